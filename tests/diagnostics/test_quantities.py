"""What diagnostics declare of their results holds: keys, bounds, caps and invariances, on clouds that are hard on them.

Nothing has to be registered here for a new diagnostic: it is in `diagnostics.__all__`, and what its `update` names is
made by `observations.py`.
"""

import inspect
import math
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from clouds import CLOUDS, cloud
from observations import SPACES, metric_of, observed, permuted, results, variants
from torchmetrics import Metric, R2Score

from lightning_ssl_geometry import diagnostics
from lightning_ssl_geometry.diagnostics import Diagnostic, PairSimilarity
from lightning_ssl_geometry.diagnostics.card import card, card_html, quantities_of
from lightning_ssl_geometry.quantity import SECTIONS, Quantity, cap_at, declared

_EPS = 1e-5  # of float32 sums


def concrete():
    found = {name: getattr(diagnostics, name) for name in diagnostics.__all__}
    kinds = {name: kind for name, kind in found.items() if inspect.isclass(kind) and issubclass(kind, Metric)}
    return {name: kind for name, kind in kinds.items() if not inspect.isabstract(kind)}


METRICS = concrete()


def is_as_observed(quantity):
    """Rows or images that are kept and not measured, so that they are low or high, or finite, as they came."""
    return not quantity.shown or bool(quantity.picture and quantity.picture.kind in ("points", "images"))


def wordless(quantities):
    """What a person is not told of a result."""
    for key, quantity in quantities.items():
        serves = quantity.baseline or not quantity.shown or (quantity.picture and quantity.picture.role)
        if not serves and not (is_as_observed(quantity) and quantity.text) and not (quantity.low and quantity.high):
            yield f"{key!r} does not say what low and high mean"
        if quantity.null and quantity.null not in quantities:
            yield f"{key!r} has the null {quantity.null!r}, which is not declared"
        if quantity.section and quantity.section not in SECTIONS:
            yield f"{key!r} is of no section of the page"


def outside(quantities, found, sizes):
    """Results that are not as declared; NaN says that there is no value, and the logarithm of 0 is -inf."""
    for key, value in found.items():
        if (known := declared(quantities, key)) is None:
            yield f"{key!r} is not declared"
            continue
        quantity, value = known[1], value.double()
        logarithm = bool(quantity.picture and quantity.picture.logarithm)
        allowed = value.isnan() | value.isfinite() | (value == -math.inf) & logarithm
        if not allowed.all() and not is_as_observed(quantity):
            yield f"{key!r} is infinite"
        value = value[value.isfinite()]
        low, high = quantity.bounds
        high = math.inf if high is None else high
        if quantity.cap and not math.isnan(cap := cap_at(quantity.cap, **sizes)):
            high = min(high, cap)
        low = -math.inf if low is None else low
        slack = _EPS * max(1.0, *(abs(end) for end in (low, high) if math.isfinite(end)), 0.0)
        if ((value < low - slack) | (value > high + slack)).any():
            yield f"{key!r} is {value.min():.6g} to {value.max():.6g}, outside of {low:g} to {high:g}"


def on_cloud(kind, name):
    """Problems of a Metric's results on a cloud; an error is right where the cloud has no value."""
    observation = observed(cloud(name))
    views, n, d = observation["h"].shape
    try:
        found = results(metric_of(kind), observation)
    except ValueError as error:
        if name == "isotropic" or not str(error).startswith("Expected "):
            raise
        return []
    return list(outside(kind.quantities, found, {"N": n, "V": views, "D": d, "P": d}))


def never_computed(kind):
    """Declared keys that no setting computes, or only as NaN on a cloud that is easy."""
    wanted = set(kind.quantities)
    for settings in variants(kind):
        try:
            found = results(metric_of(kind, **settings), observed(cloud("isotropic")))
        except ValueError:  # settings that need others
            continue
        finite = [key for key, value in found.items() if value.isfinite().any()]
        wanted -= {known[0] for key in finite if (known := declared(kind.quantities, key))}
        if not wanted:
            break
    return sorted(wanted)


def moved(observation, change):
    """Another observation, of which this one's quantities are said to be independent."""
    generator = torch.Generator().manual_seed(11)
    if change == "permutation":
        return permuted(observation, torch.randperm(observation["h"].shape[1], generator=generator))
    found = dict(observation)
    for space in SPACES:
        rows = found[space]
        noise = torch.randn(rows.shape[-1], rows.shape[-1], generator=generator, dtype=rows.dtype)
        changes = {"rotation": rows @ torch.linalg.qr(noise).Q, "scale": 3.7 * rows, "translation": rows + rows.std() * noise[0]}
        found[space] = changes[change]
    return found


def variant(kind):
    """Declared invariances that do not hold."""
    observation = observed(cloud("isotropic").double())
    before = results(metric_of(kind), observation)
    for change in ("rotation", "scale", "translation", "permutation"):
        keys = [key for key in before if change in declared(kind.quantities, key)[1].invariances]
        after = results(metric_of(kind), moved(observation, change)) if keys else {}
        for key in keys:
            if not torch.allclose(before[key].double(), after[key].double(), rtol=1e-6, atol=1e-9, equal_nan=True):
                yield f"{key!r} changes under {change}"


def test_every_diagnostic_declares_its_results():
    undeclared = {name for name, kind in concrete().items() if not getattr(kind, "quantities", {})}
    assert not undeclared


@pytest.mark.parametrize("name", METRICS)
def test_it_is_a_diagnostic_with_a_card(name):
    assert issubclass(METRICS[name], Diagnostic)


@pytest.mark.parametrize("name", METRICS)
def test_a_person_is_told_what_it_means(name):
    assert list(wordless(METRICS[name].quantities)) == []
    assert METRICS[name].section in SECTIONS
    assert all(quantity.title in card(METRICS[name]) for quantity in METRICS[name].quantities.values())


@pytest.mark.parametrize("name", METRICS)
def test_every_declared_result_is_computed(name):
    assert never_computed(METRICS[name]) == []


@pytest.mark.parametrize("name", METRICS)
def test_results_are_declared_and_within_their_bounds(name):
    assert {cloud: found for cloud in CLOUDS if (found := on_cloud(METRICS[name], cloud))} == {}


@pytest.mark.parametrize("name", METRICS)
def test_declared_invariances_hold(name):
    assert list(variant(METRICS[name])) == []


def wrong(**changes):
    """A diagnostic whose declaration is wrong in one place."""

    class Wrong(PairSimilarity):
        quantities: ClassVar = {"": replace(PairSimilarity.quantities[""], **changes)}

    return Wrong


def test_a_wrong_declaration_is_caught():
    for changes in ({"bounds": (0.0, 0.5)}, {"bounds": (0.5, 1.0)}, {"cap": "min(1, N) - 1"}):
        assert "outside of" in on_cloud(wrong(**changes), "isotropic")[0]
    assert list(variant(wrong(invariances=("translation", "scale")))) == ["'' changes under translation"]
    assert "which is not declared" in next(wordless(wrong(null="isotropic").quantities))
    assert "low and high" in next(wordless(wrong(low="", text="Cosines.").quantities))
    renamed = type("Wrong", (PairSimilarity,), {"quantities": {"cosine": Quantity(title="Cosine", text="Cosines.")}})
    assert on_cloud(renamed, "isotropic") == ["'' is not declared"]
    assert never_computed(renamed) == ["cosine"]
    infinite = {"": torch.tensor([math.inf])}
    assert list(outside(PairSimilarity.quantities, infinite, {})) == ["'' is infinite"]


def test_limits_of_a_plot_follow_from_the_only_result():
    assert (PairSimilarity.plot_lower_bound, PairSimilarity.plot_upper_bound) == (0.0, 1.0)
    assert PairSimilarity.higher_is_better is None

    class Better(PairSimilarity):
        quantities: ClassVar = {"": replace(PairSimilarity.quantities[""], better="low")}

    assert Better.higher_is_better is False
    assert Diagnostic.higher_is_better is None


def test_a_metric_that_declares_nothing_is_described_by_what_torchmetrics_says():
    class Undescribed(R2Score):
        pass

    quantity = quantities_of(Undescribed())[""]
    assert quantity.title == "Undescribed"
    assert quantity.better == "high"
    assert quantity.bounds == (None, 1.0)
    assert "did not describe it" in quantity.text
    assert quantities_of(object()) == {}


def test_a_card_is_escaped_and_links_its_paper():
    class Hostile(PairSimilarity):
        quantities: ClassVar = {"": replace(PairSimilarity.quantities[""], low="<script>alert(1)</script>")}

    shown = Hostile()._repr_html_()
    assert shown == card_html(Hostile())
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert '<a href="https://arxiv.org/abs/2111.07679">' in shown
    assert repr(Hostile()) in shown
