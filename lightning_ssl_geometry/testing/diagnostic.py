"""The contracts of a diagnostic: what its value may depend on, and what it may leave behind."""

__all__ = ["DIAGNOSTIC_CONTRACTS", "check_diagnostic"]

import copy
import math
import pickle
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_ssl_geometry.diagnostics.card import quantities_of
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.quantity import SECTIONS, Invariance, cap_at, declared
from lightning_ssl_geometry.testing.case import Case, Results, by_key, computed
from lightning_ssl_geometry.testing.contract import kept, of_all
from lightning_ssl_geometry.testing.cost import cost, memory
from lightning_ssl_geometry.testing.extremes import degenerate, half_precision, is_as_observed, single_precision
from lightning_ssl_geometry.testing.observation import Observation
from lightning_ssl_geometry.testing.surroundings import shared

_SLACK = 1e-5  # relative to the ends of a range: rounding of float32 sums


def check_diagnostic(
    metric: Metric,
    observation: Observation,
    expected_failures: Mapping[str, str] | None = None,
    *,
    axes: Mapping[str, int | None] | None = None,
    only: Iterable[str] | None = None,
    sized: Callable[[int, int], Observation] | None = None,
) -> dict[str, str]:
    """Check that a diagnostic keeps the contracts of this package.

    The diagnostic is copied for each contract, and the tensors and modules of the observation become float64. Any
    Metric can be checked. Contracts on what a :class:`Diagnostic` declares are left out for others.

    ========================  ==========================================================================================
    name                      contract
    ========================  ==========================================================================================
    batches                   the value does not depend on how the samples are divided into batches
    order                     it does not depend on the order of the samples
    merged                    it is the same if 2 or 4 copies observe parts of the samples and are merged
    forward                   a call with a batch returns the batch's value, and adds the batch
    repeated                  a second `compute` returns the same
    reset                     after `reset`, it does not depend on what was observed before
    copies                    a copy by pickle or deepcopy, made between two batches, goes on as the original
    untouched                 tensors, weights, modes, gradients, random numbers, settings of torch are left alone
    single_precision          for float32 vectors far from the origin, it is the value of the same numbers in float64
    half_precision            it is finite in bfloat16 and float16 where it is in float64
    degenerate                samples that are few, equal, 0 or not finite give a value, NaN, or a ValueError
    described                 each result has a declaration with whole sentences, and each declared result is returned
    bounds                    results lie within the declared bounds and cap
    invariances               results do not change under the declared invariances
    memory                    the memory of the state grows as `cost` declares, with the samples and the width
    cost                      the work of `update` and `compute` grows as `cost` declares
    ========================  ==========================================================================================

    Args:
        metric: A Metric that has observed nothing yet.
        observation: Maps the arguments of `metric.update` to values for N samples, such as `h` (V, N, D) and `label`
            (N,). Without "index", an `update` with `index` gets 0 to N - 1. N >= 8.
        expected_failures: Maps names of contracts that the diagnostic breaks to the reason. Such a contract must be
            broken: if it is kept, this is an error.
        axes: Maps arguments to the axis of the samples, or to None for values without samples. By default, the axis is
            1 for `h`, `z` and `latent` with views, and 0 for others.
        only: Names of the contracts to check. None: all.
        sized: Makes the observation of N samples with D dimensions from (N, D), with 480 samples and 32 dimensions at
            most, for the contracts `memory` and `cost`. None: the samples of `observation` are drawn again with noise.
            The width is then changed only if `observation` has no other numbers than h, z, h_image, z_image and
            integers.

    Returns:
        Maps each contract to "kept", or to "left out" or "fails as expected" with the reason.

    Raises:
        AssertionError: If a contract is broken. The message names every broken contract, and what was found.
        ValueError: If an argument is wrong: the Metric has observed something, a name is unknown, a reason is missing,
            or the observation lacks an argument of `update`.
    """
    case = Case(metric, observation, axes=axes, sized=sized)
    return kept(DIAGNOSTIC_CONTRACTS, case, expected_failures, only=only)


def _same(found: Results, expected: Results, when: str) -> None:
    assert list(found) == list(expected), f"The results are {list(expected)}, but {when} {list(found)}."
    for key, value in expected.items():
        try:
            torch.testing.assert_close(found[key], value, equal_nan=True)
        except AssertionError as error:
            raise AssertionError(f"{key!r} differs {when}. {' '.join(str(error).split())}") from None


def batches(case: Case) -> str | None:
    _same(case.value(case.batches()), case.value(), "in three batches")
    return None


def order(case: Case) -> str | None:
    _same(case.value([case.shuffled()]), case.value(), "in another order")
    return None


def merged(case: Case) -> str | None:
    if case.metric.full_state_update is not False:
        needed = "`merge_state` needs the class attribute `full_state_update = False`"
        assert not isinstance(case.metric, Diagnostic), f"{needed}."
        return needed
    for count in (2, 4):
        first, *others = [case.fed(case.fresh(), [part]) for part in case.shuffled().tensor_split(count)]
        for other in others:
            first.merge_state(other)
        _same(computed(first), case.value(), f"from {count} copies that were merged")
    return None


def forward(case: Case) -> str | None:
    metric = case.fresh()
    for part in case.shuffled().tensor_split(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = by_key(metric(**case.sampled.rows(part)))
        _same(found, case.value([part]), "in the result of a call")
    _same(computed(metric), case.value(list(case.shuffled().tensor_split(2))), "after calls instead of updates")
    return None


def repeated(case: Case) -> str | None:
    metric = case.fed(case.fresh(), case.at_once())
    first = computed(metric)
    metric._computed = None  # torchmetrics keeps the first result
    _same(computed(metric), first, "in a second call of `compute`")
    return None


def reset(case: Case) -> str | None:
    metric = case.fed(case.fresh(), [torch.arange(case.sampled.count // 2)])
    computed(metric)
    metric.reset()
    _same(computed(case.fed(metric, case.at_once())), case.value(), "after a reset")
    return None


def copies(case: Case) -> str | None:
    first, *rest = case.batches()
    made: dict[str, Callable[[Metric], Metric]] = {
        "pickle": lambda metric: pickle.loads(pickle.dumps(metric)),
        "deepcopy": copy.deepcopy,
    }
    held = any(isinstance(value, nn.Module) for value in case.sampled.values.values())
    for name, make in made.items():
        if held:  # a network that is observed belongs to the original
            again = case.fed(make(case.fresh()), case.batches())
        else:
            again = case.fed(make(case.fed(case.fresh(), [first])), rest)
        _same(computed(again), case.value(case.batches()), f"in a copy by {name}")
    return None


def untouched(case: Case) -> str | None:
    values = case.sampled.values
    modules = [value for value in values.values() if isinstance(value, nn.Module)]
    tensors = [each for value in values.values() for each in _tensors(value)]
    for each in tensors:
        each.requires_grad_(each.is_floating_point())
    try:
        before = [each.detach().clone() for each in tensors]
        weights = [{name: each.clone() for name, each in module.state_dict().items()} for module in modules]
        modes = [[part.training for part in module.modules()] for module in modules]
        torch.manual_seed(98_765)  # a seed that no metric sets: else a metric that sets it again is not seen
        around = shared()
        found = case.of(values)
        moved = [what for what, now in shared().items() if now != around[what]]
        assert not moved, f"{', '.join(moved)} changed."
        pairs = zip(tensors, before, strict=True)
        assert all(torch.equal(now.nan_to_num(), was.nan_to_num()) for now, was in pairs), "A tensor was changed."
        for module, was, mode in zip(modules, weights, modes, strict=True):
            now = module.state_dict()
            assert all(torch.equal(now[name], each) for name, each in was.items()), "A weight or buffer was changed."
            assert [part.training for part in module.modules()] == mode, "A module's training mode was changed."
            assert all(each.grad is None for each in module.parameters()), "A module got a gradient."
        assert not any(value.requires_grad for value in found.values()), "A result keeps a graph of gradients."
    finally:
        for each in tensors:
            each.requires_grad_(False)
    return None


def described(case: Case) -> str | None:
    if not isinstance(case.metric, Diagnostic):
        return "the Metric is no Diagnostic"
    quantities = case.metric.quantities
    assert quantities, "`quantities` declares no result."
    assert case.metric.section.strip(), "`section` is empty."
    results = case.value()
    for key in results:
        assert declared(quantities, key), f"The result {key!r} is not declared in `quantities`."
    if without := quantities.keys() - {known[0] for key in results if (known := declared(quantities, key))}:
        raise AssertionError(f"`quantities` declares {sorted(without)}, but `compute` returns {sorted(results)}.")
    for key, quantity in quantities.items():
        for sentence in filter(None, (quantity.text, quantity.low, quantity.high)):
            assert sentence.endswith("."), f"{key!r} says {sentence!r}, which is no sentence."
        null = quantities.get(quantity.null) if quantity.null else None
        assert not quantity.null or (null and null.baseline), f"{key!r} has the null {quantity.null!r}, no baseline."
        assert not quantity.section or quantity.section in SECTIONS or quantity.section.strip(), f"{key!r}: no section."
    return None


def bounds(case: Case) -> str | None:
    quantities = quantities_of(case.metric)
    for key, result in case.value().items():
        known = declared(quantities, key)
        if known is None or is_as_observed(known[1]):
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
        assert inside.all(), f"{key!r} is {value.min():.6g} to {value.max():.6g}, outside of {low:g} to {high:g}."
    return None


def invariances(case: Case) -> str | None:
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
            assert same, f"{key!r} changes under {change}, which `quantities` declares as an invariance."
    return None if changed else "no invariance is declared"


def _moved(case: Case, change: str) -> dict[str, Any]:
    if change == "permutation":
        return case.sampled.rows(case.shuffled())

    def moved(rows: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(11)
        noise = torch.randn(rows.shape[-1], rows.shape[-1], generator=generator, dtype=rows.dtype).to(rows.device)
        if change == "rotation":
            return rows @ torch.linalg.qr(noise).Q
        return 3.7 * rows if change == "scale" else rows + rows.std() * noise[0]

    return case.sampled.changed(case.sampled.vectors, moved)


def _sizes(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the sizes N, V, D and P that are known, and NaN for the others."""
    found = dict.fromkeys(("N", "V", "D", "P"), math.nan)
    for name, width in (("z", "P"), ("h", "D")):
        if isinstance(rows := values.get(name), Tensor):
            found |= {"V": rows.shape[0] if rows.ndim == 3 else 1, "N": rows.shape[-2], width: rows.shape[-1]}
    if math.isnan(found["D"]):
        found["D"] = found["P"]
    return found


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, list | tuple):
        return [tensor for each in value for tensor in _tensors(each)]
    return [value] if isinstance(value, Tensor) else []


DIAGNOSTIC_CONTRACTS = of_all(
    batches,
    order,
    merged,
    forward,
    repeated,
    reset,
    copies,
    untouched,
    single_precision,
    half_precision,
    degenerate,
    described,
    bounds,
    invariances,
    memory,
    cost,
)
"""The contracts of :func:`check_diagnostic` by name."""
