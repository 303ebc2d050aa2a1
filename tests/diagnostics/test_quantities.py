"""What diagnostics declare of their results holds: keys, bounds, caps, invariances, and the null without structure.

It is asked of clouds that are hard on them and of those that hypothesis draws. Nothing has to be registered here for a
new diagnostic: it is in `diagnostics.__all__`, and what its `update` names is made by `observations.py`. More clouds
than in each run of the tests: `pytest tests/diagnostics/test_quantities.py --hypothesis-profile many`.
"""

import math
from dataclasses import replace
from typing import ClassVar, get_args

import pytest
import torch
from clouds import CLOUDS, Drawn, cloud, drawn
from hypothesis import example, given
from hypothesis import strategies as st
from observations import SPACES, concrete, metric_of, observed, permuted, results, variants
from torchmetrics import R2Score

from lightning_ssl_geometry import diagnostics
from lightning_ssl_geometry.diagnostics import CKADrift, Diagnostic, PairSimilarity
from lightning_ssl_geometry.diagnostics.card import card, card_html, quantities_of, range_of
from lightning_ssl_geometry.quantity import SECTIONS, Chart, Invariance, Picture, Quantity, cap_at, declared

_EPS = 1e-5  # of float32 sums


METRICS = concrete()


def is_as_observed(quantity):
    """Rows or images that are kept and not measured, so that nothing is declared about their values."""
    return not quantity.shown or bool(
        quantity.picture and quantity.picture.kind in ("points", "images", "gallery", "classes")
    )


def wordless(quantities):
    """The parts of a declaration that are missing."""
    for key, quantity in quantities.items():
        serves = quantity.baseline or not quantity.shown or (quantity.picture and quantity.picture.role)
        if not serves and not (is_as_observed(quantity) and quantity.text) and not (quantity.low and quantity.high):
            yield f"{key!r} does not say what low and high mean"
        if quantity.null:
            yield from no_baseline(key, quantity, quantities.get(quantity.null))
        for sentence in filter(None, (quantity.text, quantity.low, quantity.high)):
            if not sentence.endswith(".") or "The same" in sentence:  # it stands alone in a table
                yield f"{key!r} says {sentence!r}, which is no sentence that stands alone"
        if quantity.section and quantity.section not in SECTIONS:
            yield f"{key!r} is of no section of the page"


def no_baseline(key, quantity, null):
    """Why the null of a quantity cannot be drawn beside it."""
    if null is None:
        yield f"{key!r} has the null {quantity.null!r}, which is not declared"
    elif not null.baseline or (null.chart, null.bounds) != (quantity.chart, quantity.bounds):
        yield f"{key!r} has the null {quantity.null!r}, which is no baseline of its chart and bounds"


def outside(quantities, found, sizes):
    """Results that contradict their declaration; NaN (no value) and -inf (the logarithm of 0) do not."""
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


def of_cloud(kind, points, p=4, **settings):
    """Problems of a Metric's results on a cloud; an error is right if the cloud or the setting has no value."""
    views, n, d = points.shape
    try:
        metric = metric_of(kind, **settings)
        found = results(metric, observed(points, p))
    except ValueError as error:
        if not str(error).startswith("Expected "):
            raise
        return []
    return list(outside(metric.quantities, found, {"N": n, "V": views, "D": d, "P": p}))


def of_colors(kind):
    """Keys that need images with three channels, which those here do not have; test_policy_generators.py has them."""
    ends = ("_hue", "_saturation") if kind is diagnostics.PolicyGenerators else ()
    return {key for key in kind.quantities if ends and key.endswith(ends)}


def never_computed(kind):
    """Declared keys that no setting computes, or that are always NaN on an easy cloud."""
    wanted = set(kind.quantities) - of_colors(kind)
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
    """An observation that is changed in the way that a quantity declares to have no effect."""
    generator = torch.Generator().manual_seed(11)
    if change == "permutation":
        return permuted(observation, torch.randperm(observation["h"].shape[1], generator=generator))
    found = dict(observation)
    for space in SPACES:
        rows = found[space]
        noise = torch.randn(rows.shape[-1], rows.shape[-1], generator=generator, dtype=rows.dtype)
        changes = {
            "rotation": rows @ torch.linalg.qr(noise).Q,
            "scale": 3.7 * rows,
            "translation": rows + rows.std() * noise[0],
        }
        found[space] = changes[change]
    return found


def variant(kind, points, p=4):
    """Declared invariances that do not hold."""
    observation = observed(points.double(), p)
    try:
        before = results(metric_of(kind), observation)
    except ValueError:  # the clouds are too small for it
        return
    for change in get_args(Invariance):
        keys = [key for key in before if change in declared(kind.quantities, key)[1].invariances]
        after = results(metric_of(kind), moved(observation, change)) if keys else {}
        for key in keys:
            value = before[key].double()
            slack = 1e-9 + 1e-5 * value.nan_to_num(0, 0, 0).abs().max()  # of a spectrum, rounding is in its end
            if not torch.allclose(value, after[key].double(), rtol=0, atol=slack.item(), equal_nan=True):
                yield f"{key!r} changes under {change}"


def far_from_null(kind, seeds=12):
    """Results on data without structure that are far from their null, in units of their spread."""
    pairs = {key: quantity.null for key, quantity in kind.quantities.items() if quantity.null}
    if kind is diagnostics.PolicyGenerators:  # images have structure: brightness is a group for any linear encoder
        pairs = {key: null for key, null in pairs.items() if key not in of_colors(kind) and not key.startswith("r2_")}
    clouds = [Drawn(seed=seed).points().float() for seed in range(seeds if pairs else 0)]
    found = [results(metric_of(kind), observed(points)) for points in clouds]
    for key, null in pairs.items():
        excess = torch.stack([(each[key].double() - each[null].double()).mean() for each in found])
        if not excess.mean().abs() <= 3 * excess.std() + _EPS:
            yield f"{key!r} is {excess.mean():.3g} above {null!r}, give or take {excess.std():.3g}"


def test_every_diagnostic_declares_its_results():
    undeclared = {name for name, kind in concrete().items() if not getattr(kind, "quantities", {})}
    assert not undeclared


def test_the_range_is_that_of_the_values_or_of_the_bins():
    shares = {"title": "Shares", "text": "Of samples.", "bounds": (0, 2), "percent": True, "xlabel": "distance"}
    assert range_of(Quantity(**shares)) == "from 0% to 200%"
    assert range_of(Quantity(**shares, picture=Picture("histogram"))) == "from 0 to 2 (distance)"
    assert range_of(Quantity(title="Loss", text="A loss.", chart=Chart("loss", "Loss", "nats"))) == "in nats"
    assert {each.bounds for each in CKADrift().quantities.values()} == {(0, 1)}
    assert {each.bounds for each in CKADrift(unbiased=True).quantities.values()} == {(-1, 1)}


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
    assert {each: found for each in CLOUDS if (found := of_cloud(METRICS[name], cloud(each)))} == {}


@pytest.mark.parametrize("name", METRICS)
@given(drawn=drawn(), setting=st.integers(0, 20))
@example(drawn=Drawn("heavy-tailed", 2, 4, 8, 8, 6, -7, 37), setting=0)
@example(drawn=Drawn("heavy-tailed", 3, 10, 11, 1, 6, 0, 39), setting=0)
@example(drawn=Drawn("low rank", 3, 2, 10, 3, 4, -7, 14), setting=0)
@example(drawn=Drawn("structureless", 3, 2, 1, 1, 4, 100, 1), setting=0)
def test_results_of_any_cloud_are_declared_and_within_their_bounds(name, drawn, setting):
    choices = variants(METRICS[name])
    assert of_cloud(METRICS[name], drawn.points().float(), drawn.outputs, **choices[setting % len(choices)]) == []


@pytest.mark.parametrize("name", METRICS)
@given(drawn=drawn(well_conditioned=True))
def test_declared_invariances_hold_on_any_cloud(name, drawn):
    assert list(variant(METRICS[name], drawn.points(), drawn.outputs)) == []


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("IntrinsicDimension", Drawn("duplicated", rows=33, width=5)),
        ("LiDAR", Drawn("low rank", width=10, exponent=5, shift=-7)),
        ("MeanCorrelationCoefficient", Drawn(rows=2, width=3, outputs=2)),
        ("NeuralCollapse", Drawn("duplicated", views=3, rows=4, width=12, exponent=1)),
        ("Stationarity", Drawn("duplicated", rows=2, width=3, outputs=12)),
    ],
)
def test_rounding_is_no_structure(name, drawn):
    assert list(variant(METRICS[name], drawn.points(), drawn.outputs)) == []


@pytest.mark.parametrize("name", METRICS)
def test_data_without_structure_is_near_the_declared_null(name):
    assert list(far_from_null(METRICS[name])) == []


KNOWN = {"value", "entries", "zeros", "trend", "change", "loss_temperature", "N", "V", "D", "P"}


@pytest.mark.parametrize("name", METRICS)
def test_verdicts_are_about_numbers_that_a_run_can_have(name):
    quantities = METRICS[name].quantities
    verdicts = [(key, verdict) for key, each in quantities.items() for verdict in each.verdicts]
    assert not [key for key, verdict in verdicts if verdict.names - KNOWN - quantities.keys()]
    assert all(verdict.says.endswith(".") and not verdict.source.endswith(".") for _, verdict in verdicts)


def test_charts_of_one_name_are_one_chart():
    charts = {quantity.chart for kind in METRICS.values() for quantity in kind.quantities.values()} - {None}
    assert len({chart.name for chart in charts}) == len(charts)


def wrong(**changes):
    """A diagnostic whose declaration is wrong in one place."""

    class Wrong(PairSimilarity):
        quantities: ClassVar = {"": replace(PairSimilarity.quantities[""], **changes)}

    return Wrong


def test_a_wrong_declaration_is_caught():
    quantity = PairSimilarity.quantities[""]
    for changes in ({"bounds": (0.0, 0.5)}, {"bounds": (0.5, 1.0)}, {"cap": "min(1, N) - 1"}):
        assert "outside of" in of_cloud(wrong(**changes), cloud("isotropic"))[0]
    found = variant(wrong(invariances=("translation", "scale")), cloud("isotropic"))
    assert list(found) == ["'' changes under translation"]
    assert "which is not declared" in next(wordless(wrong(null="isotropic").quantities))
    assert "which is no baseline" in next(wordless(wrong(null="other").quantities | {"other": quantity}))
    assert "no sentence" in next(wordless(wrong(low="low").quantities))
    assert "low and high" in next(wordless(wrong(low="", text="Cosines.").quantities))
    renamed = type("Wrong", (PairSimilarity,), {"quantities": {"cosine": Quantity(title="Cosine", text="Cosines.")}})
    assert of_cloud(renamed, cloud("isotropic")) == ["'' is not declared"]
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


def test_results_of_several_layers_are_parts_of_what_is_declared():
    metric = diagnostics.ProjectorRank()
    metric.update(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)))
    assert [declared(metric.quantities, key)[0] for key in metric.compute()] == [
        key for key in ("rank", "thresholds", "singular_values") for _ in range(2)
    ]
    for kind in (diagnostics.EquivarianceError, diagnostics.LayerSample):
        assert any(quantity.parts for quantity in kind.quantities.values())


def test_what_only_begins_like_a_declared_result_is_no_part_of_it():
    one, several = (Quantity(title="Rank", low="Few.", high="Many.", parts=parts) for parts in (False, True))
    assert declared({"rank": one}, "rank_null") is None
    assert declared({"rank": several}, "ranks") is None
    assert declared({"rank": several, "rank_null": one}, "rank_null") == ("rank_null", one)
    assert declared({"rank": one, "": several}, "rank_null") is None
