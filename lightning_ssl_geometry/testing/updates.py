"""The contracts of a diagnostic on its state: what its value may depend on, and what it may leave behind."""

__all__ = ["batches", "copies", "forward", "merged", "order", "pickled", "registered", "repeated", "reset", "untouched"]

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.testing.case import Case, Results, by_key, computed
from lightning_ssl_geometry.testing.growth import held_tensors
from lightning_ssl_geometry.testing.surroundings import shared

_OF_METRICS = ("_defaults", "_computed", "_cache", "_forward_cache")
_REGISTER = (
    "`.to(device)`, `reset` and processes leave out. Register a tensor by `add_state` if updates change it, and by "
    "`register_buffer` if not."
)


def batches(case: Case) -> str | None:
    """Ask that the value does not depend on how the samples are divided into batches."""
    _same(case.value(case.batches()), case.value(), "in three batches")
    return None


def order(case: Case) -> str | None:
    """Ask that the value does not depend on the order of the samples."""
    _same(case.value([case.shuffled()]), case.value(), "in another order")
    return None


def merged(case: Case) -> str | None:
    """Ask that copies that observed parts of the samples have the same value once they are merged."""
    if case.metric.full_state_update is not False and type(case.metric).merge_state in (
        Metric.merge_state,
        Diagnostic.merge_state,
    ):
        return f"torchmetrics merges no Metric whose `full_state_update` is {case.metric.full_state_update}"
    if case.metric.dist_sync_on_step:
        return "torchmetrics merges no Metric with `dist_sync_on_step`"
    for count in (2, 4):
        first, *others = [case.fed(case.fresh(), [part]) for part in case.shuffled().tensor_split(count)]
        for other in others:
            first.merge_state(other)
        _same(computed(first), case.value(), f"from {count} copies that were merged")
    return None


def forward(case: Case) -> str | None:
    """Ask that a call with a batch returns its value, and adds the batch."""
    metric = case.fresh()
    for part in case.shuffled().tensor_split(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = by_key(metric(**case.sampled.rows(part)))
        _same(found, case.value([part]), "in the result of a call")
    _same(computed(metric), case.value(list(case.shuffled().tensor_split(2))), "after calls instead of updates")
    return None


def repeated(case: Case) -> str | None:
    """Ask that a second `compute` returns the same."""
    metric = case.fed(case.fresh(), case.at_once())
    first = computed(metric)
    metric._computed = None  # torchmetrics keeps the first result
    _same(computed(metric), first, "in a second call of `compute`")
    return None


def reset(case: Case) -> str | None:
    """Ask that after `reset` the value does not depend on what was observed before."""
    metric = case.fed(case.fresh(), [torch.arange(case.sampled.count // 2)])
    computed(metric)
    metric.reset()
    _same(computed(case.fed(metric, case.at_once())), case.value(), "after a reset")
    return None


def registered(case: Case) -> str | None:
    """Ask that each tensor of the state is a state of torchmetrics, a buffer or a parameter."""
    made = [
        name for name, held in _unregistered(case.fresh()).items() if any(each.numel() and each.ndim for each in held)
    ]
    assert not made, f"The constructor keeps tensors in {made}, which {_REGISTER}"
    first, *rest = case.batches()
    if not rest:
        return None
    both, last = (_unregistered(case.fed(case.fresh(), parts)) for parts in ([first, *rest], rest[-1:]))
    kept = [name for name, held in both.items() if not _equal(held, last.get(name, []))]
    assert not kept, f"Updates keep tensors of earlier batches in {kept}, which {_REGISTER}"
    return None


def copies(case: Case) -> str | None:
    """Ask that a copy goes on as the original."""
    first, *rest = case.batches()
    made: dict[str, Callable[[Metric], Metric]] = {
        "pickle": pickled,
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
    """Ask that what was observed, and what the process shares, is left alone."""
    values = case.sampled.values
    modules = [value for value in values.values() if isinstance(value, nn.Module)]
    tensors = [each for value in values.values() for each in held_tensors(value)]
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


def pickled(original: Any) -> Any:
    """Return a copy by pickle. Raise an AssertionError that says why if there is none."""
    try:
        return pickle.loads(pickle.dumps(original))
    except Exception as error:
        raise AssertionError(
            f"It cannot be copied by pickle: {' '.join(str(error).split())}. Define its class and functions at the top "
            "of a module, not inside of another function, and use no lambda."
        ) from error


def _unregistered(metric: Metric) -> dict[str, list[Tensor]]:
    """Return {attribute: its tensors} without states, buffers, parameters, and what torchmetrics keeps."""
    known = {*metric._defaults, *_OF_METRICS, *vars(nn.Module())}
    found = {name: list(held_tensors(value)) for name, value in vars(metric).items() if name not in known}
    return {name: held for name, held in found.items() if held}


def _equal(one: list[Tensor], other: list[Tensor]) -> bool:
    if len(one) != len(other):
        return False
    pairs = list(zip(one, other, strict=True))
    return all(a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


def _same(found: Results, expected: Results, when: str) -> None:
    assert list(found) == list(expected), f"The results are {list(found)} {when}, not {list(expected)}."
    for key, value in expected.items():
        try:
            torch.testing.assert_close(found[key], value, equal_nan=True)
        except AssertionError:
            raise AssertionError(f"{key!r} differs {when}. {_difference(found[key], value)}") from None


def _difference(found: Tensor, expected: Tensor) -> str:
    for what in ("shape", "dtype", "device"):
        now, wanted = getattr(found, what), getattr(expected, what)
        if now != wanted:
            return f"Its {what} is {now}, not {wanted}."
    if found.numel() == 1:
        return f"It is {found.item():.8g}, not {expected.item():.8g}."
    count = int((~torch.isclose(found, expected, equal_nan=True)).sum())
    largest = (found.double() - expected.double()).abs().max().item()
    return f"{count} of {found.numel()} values differ, by up to {largest:.3g}."
