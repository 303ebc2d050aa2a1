"""The contracts of a diagnostic on hard numbers: few bits, points far from the origin, and degenerate points."""

__all__ = ["degenerate", "half_precision", "single_precision"]

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lightning_ssl_geometry.diagnostics import UndefinedWarning
from lightning_ssl_geometry.diagnostics.card import quantities_of
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.quantity import declared
from lightning_ssl_geometry.testing.case import Case, Results, by_key
from lightning_ssl_geometry.testing.declarations import shows_samples

_FAR = 3000.0  # the mean of points far from the origin, in units of their spread: x^2 has no digit of float32 for 1
_CLOSE = 0.01
_ROWS = ("one sample of zeros", "one sample of ones")  # among ordinary samples
_NOT_FINITE = ("a value that is NaN", "a value that is infinite")
_Change = Callable[[Tensor, int], Tensor]


def half_precision(case: Case) -> str | None:
    """Ask that the value is finite in half precision where it is in float64."""
    expected = case.value()
    for dtype in (torch.bfloat16, torch.float16):
        found = case.of(case.sampled.in_dtype(dtype))
        for key, value in expected.items():
            assert key in found, f"{key!r} has no result in {dtype}."
            lost = bool(value.isfinite().all()) and not bool(found[key].isfinite().all())
            assert not lost, f"{key!r} is not finite in {dtype}, but it is in float64."
    return None


def single_precision(case: Case) -> str | None:
    """Ask that the value in float32 is that in float64 for points far from the origin."""
    vectors = case.sampled.vectors
    if not vectors:
        return "the observation has no vectors"
    far = case.sampled.anew(case.sampled.changed(vectors, lambda rows, _: rows + _FAR * rows.std()))
    single = far.anew(far.in_dtype(torch.float32))  # in float64 again: the same numbers, rounded once
    near, expected, found = case.value(), case.of(single.values), case.of(single.in_dtype(torch.float32))
    for key, value in expected.items():
        assert key in found, f"{key!r} has no result in float32."
        if shows_samples(quantities_of(case.metric), key) or not value.numel():
            continue
        assert found[key].shape == value.shape, f"{key!r} has another shape in float32 than in float64."
        size = max(_size(near[key]) if key in near else 0.0, _size(value))
        difference = (found[key].double() - value.double()).abs().nan_to_num(torch.inf)
        largest = difference.where(value.isfinite() | found[key].isfinite(), 0.0).max().item()
        assert largest <= _CLOSE * size, (
            f"For points whose mean is {_FAR:g} times their spread, {key!r} differs between float32 and float64 by "
            f"{largest:.3g}, and its size is {size:.3g}. Compute in float64, or subtract a mean before squaring."
        )
    return None


def degenerate(case: Case) -> str | None:
    """Ask that degenerate samples give a value, NaN with its reason, or a ValueError."""
    usual, quantities = case.value(), quantities_of(case.metric)
    known = [key for key, value in usual.items() if not value.isnan().all() and not shows_samples(quantities, key)]
    finite = [key for key in known if usual[key].isfinite().all()]
    is_diagnostic = isinstance(case.metric, Diagnostic)
    for what, values in _given(case).items():
        found, explained = _observed(case, values, what)
        nan = [key for key in known if key in found and found[key].numel() and found[key].isnan().all()]
        if what in _ROWS:
            nan = [key for key in finite if key in found and found[key].isnan().any()]
        if what in _ROWS or is_diagnostic:
            because = " without an UndefinedWarning that says why" if is_diagnostic else ", and finite without it"
            assert explained or not nan, f"For {what}, {_listed(nan)} NaN{because}."
        if what in _ROWS or (is_diagnostic and what not in _NOT_FINITE):
            infinite = [key for key in finite if key in found and _is_infinite(case, key, found[key])]
            assert not infinite, f"For {what}, {_listed(infinite)} infinite."
    return None


def _given(case: Case) -> dict[str, Mapping[str, Any]]:
    """Return {what is said of an observation: its values}."""
    changes: dict[str, _Change] = {
        "samples that are equal": lambda rows, axis: rows.narrow(axis, 0, 1).expand_as(rows).clone(),
        "samples that are 0": lambda rows, _: torch.zeros_like(rows),
        _ROWS[0]: lambda rows, axis: rows.index_fill(axis, _second(rows), 0.0),
        _ROWS[1]: lambda rows, axis: rows.index_fill(axis, _second(rows), 1.0),
        _NOT_FINITE[0]: lambda rows, _: _with(rows, math.nan),
        _NOT_FINITE[1]: lambda rows, _: _with(rows, math.inf),
    }
    few = {what: case.sampled.rows(torch.arange(n)) for n, what in ((1, "one sample"), (2, "two samples"))}
    vectors = case.sampled.vectors
    return few | {what: case.sampled.changed(vectors, change) for what, change in changes.items() if vectors}


def _observed(case: Case, values: Mapping[str, Any], what: str) -> tuple[Results, bool]:
    """Return the results, none after a ValueError, and whether a warning explains NaN."""
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
        except Exception as error:
            raise AssertionError(
                f"For {what}, it raises {type(error).__name__}, not a ValueError that says what was expected: {error}"
            ) from error
    return found, any(issubclass(each.category, UndefinedWarning) for each in said)


def _is_infinite(case: Case, key: str, value: Tensor) -> bool:
    known = declared(quantities_of(case.metric), key)
    value = value.double()
    if known and known[1].picture and known[1].picture.logarithm:
        value = value[value != -torch.inf]
    return bool(value.isinf().any())


def _size(value: Tensor) -> float:
    return value.double().nan_to_num(0, 0, 0).abs().max().item() if value.numel() else 0.0


def _listed(keys: list[str]) -> str:
    return f"{', '.join(map(repr, keys))} {'are' if len(keys) > 1 else 'is'}"


def _second(rows: Tensor) -> Tensor:
    return torch.ones(1, dtype=torch.int64, device=rows.device)


def _with(rows: Tensor, value: float) -> Tensor:
    found = rows.clone()
    found.view(-1)[0] = value
    return found
