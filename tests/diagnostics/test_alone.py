"""Metrics on their own, without a monitor: no `index`, rows of one view, and `plot`.

Asked of all in `diagnostics.__all__`; nothing has to be registered here for a new one. `check_diagnostic` asks for
`forward` and `merge_state` of all; here are their cases without `index` and without rows.
"""

import copy
import inspect
import pickle
import re

import matplotlib as mpl
import numpy as np
import pytest
import torch
from clouds import Drawn
from observations import concrete, metric_of, observed, permuted
from torchmetrics import MetricCollection

from lightning_ssl_geometry.diagnostics import (
    CKADrift,
    EffectiveRank,
    GradientSpectrum,
    HardestNegativeDistance,
    LiDAR,
    LogSpectrum,
    MeanCosine,
    ModalityGap,
    Uniformity,
)
from lightning_ssl_geometry.quantity import declared

N = 60
METRICS = concrete()
NUMBERING = [name for name, kind in METRICS.items() if "index" in inspect.signature(kind.update).parameters]
VIEWED = ("h", "z", "latent")
of_each = pytest.mark.parametrize("name", METRICS)
of_each_numbering = pytest.mark.parametrize("name", NUMBERING)
pytestmark = [pytest.mark.filterwarnings("ignore::lightning_ssl_geometry.diagnostics.UndefinedWarning")]


def given(seed=0, views=2):
    return observed(Drawn(seed=seed, views=views).points().double())


GIVEN = given()


def wanted(metric, observation, without=()):
    return {key: observation[key] for key in inspect.signature(metric.update).parameters if key not in without}


def by_key(found):
    return found if isinstance(found, dict) else {"": found}


def close(found, expected):
    torch.testing.assert_close(by_key(found), by_key(expected), equal_nan=True)


def numbered(name, chunks, index=None, **settings):
    """The results of samples without an index, or with `index`."""
    metric = metric_of(METRICS[name], **settings)
    for rows in chunks:
        part = permuted(GIVEN | ({} if index is None else {"index": index}), rows)
        metric.update(**wanted(metric, part, without=("index",) if index is None else ()))
    return metric.compute()


def small(name):
    return {"contrast_size": 20} if "contrast_size" in inspect.signature(METRICS[name]).parameters else {}


def test_a_metric_needs_only_what_it_measures():
    z = torch.randn(50, 4)
    metric = Uniformity()
    metric.update(z)
    expected = Uniformity()
    expected.update(z[None], torch.arange(50))
    close(metric.compute(), expected.compute())


@of_each_numbering
def test_samples_without_index_are_numbered_as_they_come(name):
    expected = numbered(name, [torch.arange(N)], index=torch.arange(N), **small(name))
    close(numbered(name, torch.arange(N).split(17), **small(name)), expected)


def rank_result(rank, name):
    return numbered(name, torch.arange(N)[rank::2].split(10), **small(name))


@of_each_numbering
def test_no_two_ranks_share_a_number(name, two_processes):
    """Every second sample is on each rank, as a sampler deals them: each has the number that it has on one rank."""
    expected = numbered(name, [torch.arange(N)], **small(name))
    for found in two_processes(rank_result, name):
        close(found, expected)


@of_each_numbering
def test_reset_begins_to_count_anew(name):
    metric = metric_of(METRICS[name], **small(name))
    for _ in range(2):
        metric.update(**wanted(metric, GIVEN, without=("index",)))
        metric.compute()
        metric.reset()
    metric.update(**wanted(metric, GIVEN))  # with an index


@of_each_numbering
@pytest.mark.parametrize("first", [True, False])
def test_updates_with_and_without_index_do_not_mix(name, first):
    metric = metric_of(METRICS[name])
    metric.update(**wanted(metric, GIVEN, without=() if first else ("index",)))
    with pytest.raises(ValueError, match="Expected `index` in every update or in none, but got both"):
        metric.update(**wanted(metric, GIVEN, without=("index",) if first else ()))


def in_one_view(observation, flat):
    def cut(value):
        return value[0] if flat else value[:1]

    found = observation | {key: cut(observation[key]) for key in VIEWED}
    return found | {"views": observation["views"][:1]}


@of_each
def test_one_view_is_rows_or_says_how_many_views(name):
    """Rows (N, D) are one view (1, N, D), or the error says that and how many views a Metric needs."""
    found = []
    for flat in (False, True):
        metric = metric_of(METRICS[name])
        try:
            metric.update(**wanted(metric, in_one_view(GIVEN, flat)))
            found.append(metric.compute())
        except ValueError as error:
            found.append(str(error))
    one, rows = found
    if isinstance(rows, str):
        assert re.search(r"\(V, N, [DPd]\) (with|for) V >= 2 |V >= 2 tensors", rows), rows
        assert isinstance(one, str), f"(1, N, D) has a value, but for (N, D): {rows}"
    else:
        close(rows, one)


@pytest.mark.parametrize(
    ("make", "shape", "message"),
    [
        (EffectiveRank, (3,), r"Expected `h` of shape \(V, N, D\) or \(N, D\), but got \(3,\)\."),
        (EffectiveRank, (1, 2, 3, 4), r"`h` of shape \(V, N, D\) or \(N, D\), but got \(1, 2, 3, 4\)"),
        (Uniformity, (3,), r"Expected `z` of shape \(V, N, P\) or \(N, P\), but got \(3,\)\."),
        (CKADrift, (3,), r"Expected `h` of shape \(V, N, D\) or \(N, D\), but got \(3,\)\."),
    ],
)
def test_other_shapes_are_errors(make, shape, message):
    with pytest.raises(ValueError, match=message):
        make().update(torch.ones(shape))


@of_each_numbering
def test_forward_goes_on_counting(name):
    metric = metric_of(METRICS[name])
    for rows in torch.arange(N).split(30):
        metric(**wanted(metric, permuted(GIVEN, rows), without=("index",)))
    close(metric.compute(), numbered(name, [torch.arange(N)]))


@pytest.mark.filterwarnings("ignore:The ``compute`` method")  # torchmetrics does not count a merge
def test_a_sum_without_rows_is_merged():
    empty, full = EffectiveRank(), EffectiveRank()
    full.update(GIVEN["h"])
    empty.merge_state(full)
    close(empty.compute(), full.compute())
    full.merge_state(EffectiveRank())
    close(full.compute(), empty.compute())


@pytest.mark.parametrize("numbered_first", [True, False])
def test_samples_that_were_numbered_cannot_be_merged(numbered_first):
    one, other = Uniformity(), Uniformity()
    one.update(GIVEN["z"])
    other.update(GIVEN["z"], GIVEN["index"])
    pair = (one, other) if numbered_first else (other, one)
    with pytest.raises(ValueError, match="Expected `index` in all updates of Metrics that are merged"):
        pair[0].merge_state(pair[1])


@of_each
@pytest.mark.parametrize("setting", [{}, {"contrast_size": 20}], ids=["equal", "contrast_size"])
def test_in_a_collection_a_metric_has_its_own_value(name, setting):
    """torchmetrics updates one of several Metrics whose states are equal after the first batch."""
    if not setting.keys() <= inspect.signature(METRICS[name]).parameters.keys():
        pytest.skip("no such setting")
    together = MetricCollection({"a": metric_of(METRICS[name], **setting), "b": metric_of(METRICS[name])})
    alone = metric_of(METRICS[name])
    for _ in range(2):
        for rows in torch.arange(N).split(15):
            part = permuted(GIVEN, rows)
            alone.update(**wanted(alone, part))
            together.update(**wanted(alone, part))
        close(together["b"].compute(), alone.compute())
        alone.reset()
        together.reset()


def test_in_a_collection_moments_are_summed_once():
    together = MetricCollection([EffectiveRank(), LogSpectrum()])
    together.update(h=GIVEN["h"])
    assert together.compute_groups == {0: ["EffectiveRank", "LogSpectrum"]}


@pytest.mark.filterwarnings("ignore:The ``compute`` method")  # torchmetrics does not count loaded states
def test_samples_after_those_of_a_loaded_state_need_an_index():
    """Their numbers would be those of loaded samples, which would be replaced."""
    saved, loaded = HardestNegativeDistance(), HardestNegativeDistance()
    for each in (saved, loaded):
        each.persistent(True)
    saved.update(GIVEN["h"], GIVEN["z"])
    loaded.load_state_dict(saved.state_dict())
    close(loaded.compute(), saved.compute())
    with pytest.raises(ValueError, match="Expected `index` in every update or in none"):
        loaded.update(GIVEN["h"], GIVEN["z"])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda metric: pickle.loads(pickle.dumps(metric))])
def test_a_copy_has_a_copy_of_the_observed_network(copied):
    metric = metric_of(METRICS["ProjectorGain"])
    metric.update(**wanted(metric, GIVEN))
    same = copied(metric)
    with torch.no_grad():
        GIVEN["projector"].weight.mul_(1)
    with pytest.raises(ValueError, match="stands still"):
        copied(metric).compute()
    close(same.compute(), numbered("ProjectorGain", [torch.arange(N)], index=GIVEN["index"]))


@torch.no_grad()
def test_weights_that_are_replaced_have_changed():
    metric, weight = metric_of(METRICS["ProjectorGain"]), GIVEN["projector"].weight
    metric.update(**wanted(metric, GIVEN))
    kept, weight.data = weight.data, 2 * weight.data
    with pytest.raises(ValueError, match="stands still"):
        metric.compute()
    weight.data = kept


def test_a_network_of_inference_tensors_is_observed():
    with torch.inference_mode():
        observation = given()
    metric = metric_of(METRICS["ProjectorGain"])
    metric.update(**wanted(metric, observation))
    close(metric.compute(), numbered("ProjectorGain", [torch.arange(N)], index=GIVEN["index"]))


@pytest.fixture
def pyplot(monkeypatch):
    """matplotlib without a window."""
    backend = mpl.get_backend()
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    yield plt
    plt.close("all")
    mpl.use(backend)


def drawn(axes):
    """The titles of all Axes that show something."""
    return [ax.get_title() for ax in np.ravel(axes) if ax.lines or ax.images or ax.collections]


@of_each
@pytest.mark.parametrize("times", [1, 2])
def test_plot_draws_every_result_with_its_title(name, times, pyplot):
    metric = metric_of(METRICS[name])
    metric.update(**wanted(metric, GIVEN))
    found = metric.compute()
    figure, axes = metric.plot(found if times == 1 else [found, found])
    titles = drawn(axes)
    assert len(titles) == np.ravel(axes).size
    assert all(titles)
    assert figure is np.ravel(axes)[0].figure
    known = {key: declared(metric.quantities, key)[1] for key in by_key(found)}
    shown = {each for each in known.values() if each.shown}
    lines = {line.get_label() for ax in np.ravel(axes) for line in ax.lines}
    said = " ".join([*titles, *lines])
    role = {each for each in shown if each.picture and each.picture.role}
    assert all(each.title in said or (each.label and each.label in said) for each in shown - role), said


def test_plot_computes_by_itself(pyplot):
    metric = Uniformity()
    metric.update(GIVEN["z"])
    _, ax = metric.plot()
    assert ax.get_title() == "Uniformity"
    assert ax.get_ylabel() == "log of the mean kernel"
    assert ax.lines[0].get_ydata()[0] == pytest.approx(metric.compute().item())


def test_plot_names_the_bounds_and_the_value(pyplot):
    metric = EffectiveRank()
    metric.update(torch.eye(4))
    figure, ax = metric.plot()
    assert {each.get_text() for each in ax.texts} == {"lowest possible: 1", "4"}
    figure.canvas.draw()
    inside = ax.get_window_extent()
    for each in ax.texts:
        box = each.get_window_extent()
        assert inside.contains(box.x0, box.y0), each.get_text()
        assert inside.contains(box.x1, box.y1), each.get_text()


def test_a_spectrum_is_a_line(pyplot):
    metric = LogSpectrum()
    metric.update(GIVEN["h"])
    _, ax = metric.plot()
    torch.testing.assert_close(torch.as_tensor(ax.lines[0].get_ydata()), metric.compute().float())
    assert list(ax.lines[0].get_xdata()) == [1, 2, 3, 4, 5, 6]
    assert ax.get_xlabel() == "index"


def test_plot_draws_on_given_axes_or_says_how_many_it_needs(pyplot):
    metric = HardestNegativeDistance()
    metric.update(GIVEN["h"], GIVEN["z"])
    _, pair = pyplot.subplots(2)
    figure, axes = metric.plot(ax=pair)
    assert list(axes) == list(pair)
    assert figure is pair[0].figure
    assert metric.plot(ax=list(pair))[0] is figure
    with pytest.raises(ValueError, match="Expected `ax` of 2 Axes, one for each picture of the results, but got 1"):
        metric.plot(ax=pair[0])
    with pytest.raises(ValueError, match="Expected `val` with results of HardestNegativeDistance, but got none"):
        metric.plot([])


@pytest.mark.parametrize("metric", [EffectiveRank, Uniformity])
def test_what_was_computed_before_a_merge_is_not_kept(metric):
    x = torch.randn(2, 100, 8) * torch.tensor([1, 1, 1, 1, 0.1, 0.1, 0.1, 0.1])
    one, other, whole = metric(), metric(), metric()
    for each, rows in ((one, slice(50)), (other, slice(50, 100)), (whole, slice(100))):
        given = (x[:, rows],) if metric is EffectiveRank else (x[:, rows], torch.arange(100)[rows])
        each.update(*given)
    before = one.compute()
    one.merge_state(other)
    torch.testing.assert_close(one.compute(), whole.compute())
    assert one.compute() != before


def test_keys_of_samples_keep_their_dtype():
    metric = Uniformity()
    metric.update(torch.randn(2, 50, 8), torch.arange(50))
    metric.set_dtype(torch.float16)
    metric.update(torch.randn(2, 50, 8), torch.arange(50, 100))
    assert len(metric.rows()["z"]) == 100


@pytest.mark.parametrize("metric", [EffectiveRank, MeanCosine, ModalityGap, LiDAR, GradientSpectrum])
def test_a_batch_of_another_width_is_refused(metric):
    known = metric()
    known.update(torch.randn(2, 50, 5))
    with pytest.raises(ValueError, match="with 5 columns, as before, but got 1"):
        known.update(torch.randn(2, 50, 1))
