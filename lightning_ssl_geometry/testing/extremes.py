"""The contracts of a diagnostic on the precision of what it observes, and on samples without structure."""

__all__ = ["degenerate", "half_precision", "is_as_observed", "single_precision"]

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from lightning_ssl_geometry.diagnostics import UndefinedWarning
from lightning_ssl_geometry.diagnostics.card import quantities_of
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.quantity import Quantity, declared
from lightning_ssl_geometry.testing.case import Case, Results, by_key

_AS_OBSERVED = ("points", "images", "gallery", "classes")  # kinds of pictures that show samples and measure nothing
_FAR, _LOST = 1000.0, 0.01  # from the origin, in standard deviations; of a result, by rounding
_Change = Callable[[Tensor], Tensor]
_FINITE: dict[str, _Change] = {
    "samples that are equal": lambda rows: rows[..., :1, :].expand_as(rows).clone(),
    "samples that are 0": torch.zeros_like,
    "one sample that is 0": lambda rows: _with(rows, 0.0, slice(None)),
    "one sample with equal numbers": lambda rows: _with(rows, 1.0, slice(None)),
}
_NOT_FINITE: dict[str, _Change] = {
    "a value that is NaN": lambda rows: _with(rows, math.nan, 0),
    "a value that is infinite": lambda rows: _with(rows, math.inf, 0),
}


def single_precision(case: Case) -> str | None:
    """Ask that float32 vectors far from the origin give the value of the same numbers in float64."""
    if not case.sampled.vectors:
        return "no vectors are observed"
    far = case.sampled.changed(case.sampled.vectors, lambda rows: rows + _FAR * rows.std())
    rounded = case.sampled.with_values(far).in_dtype(torch.float32)
    expected = case.of(case.sampled.with_values(rounded).in_dtype(torch.float64))
    found = case.of(rounded)
    for key, value in expected.items():
        assert key in found, f"{key!r} has no result in float32."
        size = value.double().nan_to_num(0, 0, 0).abs().max() if value.numel() else 0.0
        same = torch.allclose(
            found[key].double(), value.double(), rtol=0, atol=_LOST * float(size) + 1e-9, equal_nan=True
        )
        assert same, (
            f"{key!r} is {_number(found[key])} for float32 vectors that are {_FAR:g} standard deviations from the "
            f"origin, but {_number(value)} for the same numbers in float64."
        )
    return None


def half_precision(case: Case) -> str | None:
    """Ask that results stay finite in both half precisions."""
    expected = case.value()
    for dtype in (torch.bfloat16, torch.float16):
        found = case.of(case.sampled.in_dtype(dtype))
        for key, value in expected.items():
            assert key in found, f"{key!r} has no result in {dtype}."
            lost = bool(value.isfinite().all()) and not bool(found[key].isfinite().all())
            assert not lost, f"{key!r} is not finite in {dtype}, but it is in float64."
    return None


def degenerate(case: Case) -> str | None:
    """Ask that samples without structure give a value, NaN with a reason, or an error that says what was expected."""
    sampled = case.sampled
    few = {"one sample": sampled.rows(torch.arange(1)), "two samples": sampled.rows(torch.arange(2))}
    finite = few | {what: sampled.changed(sampled.vectors, change) for what, change in _FINITE.items()}
    others = {what: sampled.changed(sampled.vectors, change) for what, change in _NOT_FINITE.items()}
    quantities = quantities_of(case.metric)
    before = {key: value for key, value in case.value().items() if not _shows(quantities, key)}
    known = [key for key, value in before.items() if not value.isnan().all()]
    whole = [key for key, value in before.items() if value.isfinite().all()]
    for what, values in (finite | others).items():
        found, explained = _tried(case, what, values)
        silent = [key for key in known if key in found and found[key].numel() and found[key].isnan().all()]
        assert explained or not silent or not isinstance(case.metric, Diagnostic), (
            f"For {what}, {silent} are NaN without an UndefinedWarning that says why."
        )
        if what in finite:
            endless = [key for key in _infinite(found, whole) if not _is_logarithm(quantities, key)]
            assert not endless, f"For {what}, {endless} are infinite."
    return None


def is_as_observed(quantity: Quantity) -> bool:
    """Return whether a quantity shows samples as they were observed."""
    return not quantity.shown or bool(quantity.picture and quantity.picture.kind in _AS_OBSERVED)


def _tried(case: Case, what: str, values: Mapping[str, Any]) -> tuple[Results, bool]:
    """Return the results, or none after a ValueError, and whether an UndefinedWarning was given."""
    metric = case.fresh()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            metric.update(**values)
            found = by_key(metric.compute())
        except ValueError as error:
            if isinstance(metric, Diagnostic) and not str(error).startswith("Expected "):
                raise AssertionError(f"For {what}, the error does not say what was expected: {error}") from error
            found = {}
    return found, any(issubclass(each.category, UndefinedWarning) for each in said)


def _infinite(found: Results, keys: Iterable[str]) -> list[str]:
    return [key for key in keys if key in found and found[key].is_floating_point() and found[key].isinf().any()]


def _is_logarithm(quantities: Mapping[str, Quantity], key: str) -> bool:
    known = declared(quantities, key)
    return bool(known and known[1].picture and known[1].picture.logarithm)


def _shows(quantities: Mapping[str, Quantity], key: str) -> bool:
    """Return whether a result shows samples as they were observed."""
    known = declared(quantities, key)
    return known is not None and is_as_observed(known[1])


def _with(rows: Tensor, value: float, columns: int | slice) -> Tensor:
    """Return a copy of `rows`, with a value in some columns of the first sample of each view."""
    found = rows.clone()
    found[..., 0, columns] = value
    return found


def _number(value: Tensor) -> str:
    return f"{value.item():.6g}" if value.numel() == 1 else f"an array with the mean {value.double().mean():.6g}"
