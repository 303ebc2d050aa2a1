"""The contracts of a diagnostic on what it declares: sentences, bounds and invariances."""

__all__ = ["bounds", "described", "invariances", "shows_samples"]

import math
from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.diagnostics.card import quantities_of
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.quantity import SECTIONS, Invariance, Quantity, cap_at, declared
from lightning_ssl_geometry.testing.case import Case
from lightning_ssl_geometry.testing.observation import SPACES

_SLACK = 1e-5  # relative to the ends of a range: rounding of float32 sums
_AS_OBSERVED = ("points", "images", "gallery", "classes")  # kinds of pictures that show samples and measure nothing


def described(case: Case) -> str | None:
    """Ask that each result is declared, each declared result is returned, and that their sentences stand alone."""
    if not isinstance(case.metric, Diagnostic):
        return "the Metric is no Diagnostic"
    quantities = case.metric.quantities
    assert quantities, "`quantities` declares no result."
    assert case.metric.section.strip(), "`section` is empty."
    found = case.value()
    for key in found:
        assert declared(quantities, key), f"The result {key!r} is not declared in `quantities`."
    if case.is_given_all:
        made = {known[0] for key in found if (known := declared(quantities, key))}
        assert not (without := sorted(quantities.keys() - made)), (
            f"`quantities` declares {without}, but `compute` returns {sorted(found)}."
        )
    for key, quantity in quantities.items():
        for sentence in filter(None, (quantity.text, quantity.low, quantity.high)):
            assert sentence.endswith("."), f"{key!r} says {sentence!r}, which does not end with a full stop."
        null = quantities.get(quantity.null) if quantity.null else None
        assert not quantity.null or (null and null.baseline), (
            f"{key!r} has the `null` {quantity.null!r}, but `quantities` declares no baseline of this name."
        )
        assert not quantity.section or quantity.section in SECTIONS or quantity.section.strip(), (
            f"The `section` of {key!r} has no text."
        )
    return None


def bounds(case: Case) -> str | None:
    """Ask that results lie within their bounds and below their cap."""
    quantities = quantities_of(case.metric)
    for key, result in case.value().items():
        known = declared(quantities, key)
        if known is None or shows_samples(quantities, key):
            continue
        quantity, value = known[1], result.double()
        logarithm = bool(quantity.picture and quantity.picture.logarithm)
        allowed = value.isnan() | value.isfinite() | (value == -math.inf) & logarithm
        assert allowed.all(), f"{key!r} is infinite."
        low, high = (
            limit if end is None else end for end, limit in zip(quantity.bounds, (-math.inf, math.inf), strict=True)
        )
        cap = cap_at(quantity.cap, **_sizes(case.sampled.values)) if quantity.cap else math.nan
        high = high if math.isnan(cap) else min(high, cap)
        slack = _SLACK * max(1.0, *(abs(end) for end in (low, high) if math.isfinite(end)), 0.0)
        value = value[value.isfinite()]
        inside = (value >= low - slack) & (value <= high + slack)
        assert inside.all(), (
            f"{key!r} has values from {value.min():.6g} to {value.max():.6g}, but {low:g} to {high:g} is declared."
        )
    return None


def invariances(case: Case) -> str | None:
    """Ask that results do not change under the declared invariances."""
    before, quantities = case.value(), quantities_of(case.metric)
    held = {key: known[1] for key in before if (known := declared(quantities, key))}
    changed = 0
    for change in get_args(Invariance):
        keys = [key for key, quantity in held.items() if change in quantity.invariances]
        after = case.of(_moved(case, change)) if keys else {}
        for key in keys:
            changed += 1
            value = before[key].double()
            slack = 1e-9 + _SLACK * value.nan_to_num(0, 0, 0).abs().max().item()
            same = torch.allclose(value, after[key].double(), rtol=0, atol=slack, equal_nan=True)
            assert same, (
                f"{key!r} changes under a {change} of the observed vectors, but `quantities` declares this invariance."
            )
    return None if changed else "no invariance is declared"


def shows_samples(quantities: Mapping[str, Quantity], key: str) -> bool:
    """Return whether a result shows samples as they were observed, and measures nothing."""
    if (known := declared(quantities, key)) is None:
        return False
    return not known[1].shown or bool(known[1].picture and known[1].picture.kind in _AS_OBSERVED)


def _moved(case: Case, change: str) -> dict[str, Any]:
    if change == "permutation":
        return case.sampled.rows(case.shuffled())

    vectors = case.sampled.vectors
    names = [name for name in vectors if name in SPACES] or vectors
    size = next(
        (case.sampled.values[name].std() for name in names if isinstance(case.sampled.values[name], Tensor)), 1.0
    )

    def moved(rows: Tensor, axis: int) -> Tensor:
        generator = torch.Generator().manual_seed(11)
        noise = torch.randn(rows.shape[-1], rows.shape[-1], generator=generator, dtype=rows.dtype).to(rows.device)
        if change == "rotation":
            return rows @ torch.linalg.qr(noise).Q
        return 3.7 * rows if change == "scale" else rows + size * noise[0]

    return case.sampled.changed(names, moved)


def _sizes(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the sizes N, V, D and P that are known, and NaN for the others."""
    found = dict.fromkeys(("N", "V", "D", "P"), math.nan)
    for name, width in (("z", "P"), ("h", "D")):
        if isinstance(rows := values.get(name), Tensor):
            found |= {"V": rows.shape[0] if rows.ndim == 3 else 1, "N": rows.shape[-2], width: rows.shape[-1]}
    if math.isnan(found["D"]):
        found["D"] = found["P"]
    return found
