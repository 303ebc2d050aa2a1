"""Groups of runs beside each other: means, deviations, counts, the data they share, and who has what."""

import re

import numpy as np
import pytest
from pages import (
    compared,
    comparison,
    declare,
    entry,
    lines,
    page_of,
    sentences,
    texts,
    write_array,
    write_csv,
    write_info,
    write_log,
    write_rows,
    write_snapshot,
)

from lightning_ssl_geometry import plots
from lightning_ssl_geometry.quantity import Chart, Paper, Picture
from lightning_ssl_geometry.report import comparison_figures, read_run, write_comparison
from lightning_ssl_geometry.report.groups import average, read_groups

BOTH, PATH = Chart("both", "Both of it", "nats"), Chart("path", "A path")
ABOUT = {
    "loss": entry("Loss", of="Host", section="learning"),
    "rank": entry("Rank", of="Rank", unit="directions", space="h", paper=Paper("Ada 2021", "On ranks")),
    "acc": entry("Accuracy", of="Probe", section="probes", percent=True, bounds=(0, 1)),
    "a": entry("First", key="a", chart=BOTH, label="first"),
    "b": entry("Second", key="b", chart=BOTH, label="second"),
    "null": entry("Random", key="null", chart=BOTH, label="random", baseline=True),
    "x": entry("X", key="x", chart=PATH, picture=Picture("path", "x")),
    "y": entry("Y", key="y", chart=PATH, picture=Picture("path")),
    "spectrum": entry("Spectrum", key="s", unit="singular value", picture=Picture("spectrum")),
    "histogram": entry("Histogram", key="h", bounds=(0, 2), percent=True, picture=Picture("histogram")),
    "thresholds": entry("Thresholds", key="t", picture=Picture("components", names=("one", "two", "three", "four"))),
    "z": entry("Points", key="z", picture=Picture("points")),
}
FIGURES = [
    "host",
    "probe",
    "rank",
    "both",
    "toy_x",
    "toy_y",
    "toy_s",
    "toy_h",
    "toy_h_start",
    "toy_t",
    "toy_t_2",
    "toy_z",
]


def write_run(folder, shift=0.0, stage="probe"):
    """Two epochs, looked at before, half and after; `shift` tells runs apart."""
    rows = {"loss": [5, 4, 3], "rank": [8, 9, 10], "acc": [0.5, 0.6, 0.8], "a": [1, 2, 3], "b": [3, 2, 2]}
    columns = {name: [value + shift for value in values] for name, values in rows.items()} | {"null": [1, 1, 1]}
    columns |= {"x": columns["a"], "y": columns["b"]}
    write_log(folder, **{f"{stage}__{name}": values for name, values in columns.items()})
    index = np.arange(16)
    spectra = [np.exp(2 - index * (0.1 + 0.2 * share) + shift) for share in (0, 0.5, 1)]
    write_array(folder, f"{stage}/spectrum", *spectra)
    write_array(folder, f"{stage}/histogram", *np.eye(8)[[1, 3, 5]])
    write_array(folder, f"{stage}/thresholds", *([9 + shift, 8, 7, 6],) * 3)
    write_snapshot(folder, f"{stage}/z", np.eye(4)[:, :2])
    return declare(folder, **{f"{stage}__{name}": about for name, about in ABOUT.items()})


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Three strengths, three seeds each."""
    folder, shifts = tmp_path_factory.mktemp("groups"), {"small": 0.0, "moderate": 0.05, "large": 0.1}
    return {
        name: [write_run(folder / f"{name}_{seed}", shift + 0.01 * seed) for seed in range(3)]
        for name, shift in shifts.items()
    }


@pytest.fixture(scope="module")
def drawn(groups):
    return compared(**groups)


@pytest.fixture(scope="module")
def page(groups, tmp_path_factory):
    """The page, with how alike the models are."""
    path = tmp_path_factory.mktemp("page") / "new" / "strengths.html"
    values = np.array([[1.0, 0.625, np.nan], [0.625, 1.0, 0.5], [np.nan, 0.5, 1.0]])
    assert write_comparison(groups, path, title="Strengths", similarity=(list(groups), values)) == path
    return page_of(path)


def of_loss(folder, **runs):
    return {name: write_log(folder / name, val_loss=values) for name, values in runs.items()}


def loss(**groups):
    """The axes of the loss, and all that is written there."""
    axes = compared(**groups)["val_loss"]
    return axes, sentences(axes)


def band(axes):
    return axes.collections[0].get_paths()[0].vertices


def test_the_page_has_groups_figures_sentences_and_numbers(page):
    assert page.count() == len(FIGURES) + 1
    said = ("Strengths", "small 3 runs", "High Rank.", "(Ada 2021)", "Ada 2021. On ranks", "First and last values")
    assert [text for text in said if text not in page.text] == []
    table = page.text.partition("First and last values")[2].replace("\n", "")
    assert "probe/rank8.010 ± 0.01010.010 ± 0.010" in table
    assert "probe/acc51.0% ± 1.081.0% ± 1.0" in table
    page.runs_nothing()
    assert all("type=radio" in each for each in re.findall("<figure.*?</figure>", page.source, re.DOTALL))
    assert "CKA between models" in page.text
    assert "small and moderate: 0.625" in page.source
    assert "Who has what" not in page.text
    header, first, *_ = page.downloads()["Strengths-rank.csv"]
    assert header == ["group", "quantity", "epochs of training", "mean", "standard deviation"]
    assert first == ["small", "", "1", "8.01", "0.01"]
    assert page.downloads()["Strengths-scalars.csv"][1] == ["small", "probe/loss", "1", "5.01", "0.01", "3"]


def test_groups_have_colours_and_quantities_dashes_and_one_name_per_group(drawn):
    assert list(drawn) == FIGURES
    for name, color in (("small", "blue"), ("moderate", "orange"), ("large", "green")):
        assert len(lines(drawn["rank"], color)) == 1
        label = next(text for text in drawn["rank"].texts if text.get_text().startswith(name))
        assert label.get_color() == plots.COLORS[color]
    axes = drawn["both"]
    assert [line.get_linestyle() for line in lines(axes)] == ["-", "--"]
    assert sum(text.startswith("small ") for text in texts(axes)) == 1
    assert {"Both of it", "first", "second", "nats"} <= set(texts(axes))
    assert len(lines(axes, "muted")) == 1  # the baseline, on which groups agree


def test_spectra_are_averaged_as_logarithms_and_histograms_compared_at_both_ends_and_components_split(drawn):
    axes, index = drawn["toy_s"], np.arange(16)
    for line, share in zip(lines(axes), (0.0, 0.5, 1.0), strict=True):
        assert np.log(line.get_ydata()) == pytest.approx(2 - index * (0.1 + 0.2 * share) + 0.01)
    assert axes.get_yscale() == "log"
    at = np.log(band(axes)[np.isclose(band(axes)[:, 0], 1.0), 1])
    assert (at.min(), at.max()) == pytest.approx((2.0, 2.02))
    assert "Averaged as logarithms." in sentences(axes)
    for name, bin_ in (("toy_h", 5), ("toy_h_start", 1)):
        line = next(line for line in drawn[name].lines if line.get_drawstyle() == "steps-post")
        assert line.get_ydata()[:-1] == pytest.approx(100 * np.eye(8)[bin_])
    assert [len(lines(drawn[name])) for name in ("toy_t", "toy_t_2")] == [3, 1]
    assert {"one", "two", "three"} <= set(texts(drawn["toy_t"]))


def test_a_line_is_the_mean_and_a_band_the_standard_deviation_within_the_bounds(tmp_path, drawn):
    values = np.array([[5.0, 4.0, 3.5], [6.0, 4.5, 3.0], [5.5, 4.1, 2.0]])
    runs = of_loss(tmp_path, **{str(seed): row for seed, row in enumerate(values)})
    axes, said = loss(a=[*runs.values()])
    assert lines(axes)[0].get_ydata() == pytest.approx(values.mean(0))
    for place, (mean, std) in enumerate(zip(values.mean(0), values.std(0, ddof=1), strict=True)):
        at = band(axes)[np.isclose(band(axes)[:, 0], place + 1), 1]
        assert (at.min(), at.max()) == pytest.approx((mean - std, mean + std))
    assert "a 2.83" in said
    assert "Mean and standard deviation of 3 runs each." in said
    axes, said = loss(a=[runs["0"]])
    assert not axes.collections
    assert "1 run each" in said
    about = {"val__toy": ABOUT["acc"]}
    runs = [declare(write_log(tmp_path / f"{at}", val__toy=[0.1 * at, 1 - 0.1 * at]), **about) for at in (0, 5)]
    axes = compared(a=runs)["probe"]
    assert (band(axes)[:, 1].min(), band(axes)[:, 1].max(), axes.get_ylim()[1]) == (0, 100, 100)


def test_baselines_that_differ_have_the_colours_of_their_groups(tmp_path):
    runs = {}
    for name, null in (("a", 0.1), ("b", 0.3)):
        write_log(tmp_path / name, val__a=[0.2, 0.9], val__null=[null] * 2)
        runs[name] = [declare(tmp_path / name, **{f"val__{key}": ABOUT[key] for key in ("a", "null")})]
    axes = compared(**runs)["both"]
    assert [len(lines(axes, color)) for color in ("blue", "orange", "muted")] == [2, 2, 0]


def test_what_a_run_lacks_is_left_out_and_said(tmp_path):
    runs = of_loss(tmp_path, one=[2, 1], two=[2, 2], nan=["nan", "nan"])
    less = [write_log(tmp_path / "less", other=[1.0, 1.0]), runs["nan"]]
    axes, said = loss(a=[runs["one"], runs["two"], *less], b=less)
    assert lines(axes)[0].get_ydata()[-1] == pytest.approx(1.5)
    assert lines(axes, "orange") == []
    assert "runs of a 2 of 4, b none." in said
    for name, row in (("a", [3, 2, 1]), ("b", [2, 1]), ("c", ["nan", "nan"])):  # arrays of another length
        declare(write_array(tmp_path / name, "val/s", row), val__s=ABOUT["spectrum"])
    runs = {"x": [tmp_path / "a", tmp_path / "b"], "y": [tmp_path / "c"]}
    assert "runs of x 1 of 2, y none." in sentences(compared(**runs)["toy_s"])
    said = "x: val/s has 3 in a, 2 in b values; figures average the runs that are like the first."
    assert said in comparison(tmp_path, **runs).text


def test_nan_is_a_gap_with_a_cross_and_lines_on_top_of_each_other_are_said_so(tmp_path):
    runs = of_loss(tmp_path, one=[3, "nan", 1], two=[3, 2, 1])
    axes, said = loss(a=[*runs.values()])
    np.testing.assert_array_equal(lines(axes)[0].get_ydata(), [3, np.nan, 1])
    assert next(line for line in axes.lines if line.get_marker() == "x").get_xdata().tolist() == [2]
    assert "Crosses: a run had no finite number there." in said
    assert "a (one): val_loss is not a finite number in 1 of 3 rows" in comparison(tmp_path, a=[*runs.values()]).text
    assert "Identical lines: a = b." in loss(a=[runs["two"]], b=[runs["two"]])[1]


# --- which runs and times are joined


def write_paced(folder, pace, values):
    write_rows(folder, ["val_loss"], *([epoch, pace * (epoch + 1) - 1, y] for epoch, y in enumerate(values)))
    index = [[epoch, pace * (epoch + 1), value, 0] for epoch, value in enumerate(values)]
    write_csv(folder / "geometry/val/own.csv", ["epoch", "step", 0, 1], index)
    return folder


def test_runs_are_averaged_at_the_times_that_all_have_in_epochs_where_these_differ_in_steps(tmp_path):
    runs = of_loss(tmp_path, long=[3, 2, 1], short=[5, 4])
    assert lines(loss(a=[*runs.values()])[0])[0].get_ydata().tolist() == [4, 3]
    odd = write_rows(tmp_path / "odd", ["val_loss"], [0, 8, 1.0])
    assert "x 2, without a step in common" in loss(x=[runs["long"], odd], y=[runs["long"]])[1]
    groups = {"a": [write_paced(tmp_path / "ten", 10, [3, 2, 1]), write_paced(tmp_path / "twenty", 20, [5, 4, 3])]}
    said = "a: the runs' epochs differ: 10 steps in ten, 20 steps in twenty. Lines are means after the same number of "
    for short, x, y, own, unit in ((0, [1, 2, 3], [4, 3, 2], 2, "epochs."), (1, [20], [3.5], 3.5, "steps.")):
        groups |= {"b": [write_paced(tmp_path / "one", 10, [1])]} if short else {}  # its epochs are not known
        found = compared(**groups)
        (line, *_), (profile, *_) = lines(found["val_loss"]), lines(found["own"])
        assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == (x, y)
        assert profile.get_ydata().tolist() == [own, 0]
        assert said + unit in comparison(tmp_path, **groups).text


def write_often(folder, epochs, every=10, pace=25):
    """A run that logs every so many steps, whose epochs' ends are not among them."""
    steps = range(every - 1, epochs * pace, every)
    return write_rows(folder, ["train/loss"], *([step // pace, step, 5 - step / 100] for step in steps))


def test_runs_that_log_every_few_steps_are_joined_by_steps_whatever_their_lengths(tmp_path):
    groups = {"a": [write_often(tmp_path / "three", 3), write_often(tmp_path / "four", 4)]}
    assert {read_run(run).steps_per_epoch for run in groups["a"]} == {25}
    assert "epochs differ" not in comparison(tmp_path, **groups).text
    mean = average(read_groups(groups)[0], lambda run: run.scalars["train/loss"])
    assert (mean.done.tolist(), mean.std.tolist()) == ([10, 20, 30, 40, 50, 60, 70], [0] * 7)
    groups["a"].append(write_often(tmp_path / "seldom", 4, every=40))  # whose pace cannot be known from its rows
    assert len({read_run(run).steps_per_epoch for run in groups["a"]}) == 2
    mean = average(read_groups(groups)[0], lambda run: run.scalars["train/loss"])
    assert (mean.done.tolist(), mean.std.tolist()) == ([40], [0])


def test_one_stage_is_shown_that_most_groups_have_probe_before_val_before_train(tmp_path):
    stages = {"a": ("train", "val", "probe"), "b": ("train", "val"), "c": ("val",)}
    runs = {name: [write_log(tmp_path / name, **{f"{stage}__x": [1.0, 0.5] for stage in held})]
            for name, held in stages.items()}  # fmt: skip
    for chosen, names in (("probe", "a"), ("val", "b"), ("val", "ab"), ("val", "abc")):
        assert f"Data: {chosen}. 1 run each." in sentences(compared(**{name: runs[name] for name in names})["x"])


def test_runs_are_joined_by_what_computed_a_value_and_not_by_its_name(tmp_path):
    one = declare(write_log(tmp_path / "one", val__mine=[1, 2]), val__mine=ABOUT["rank"])
    two = declare(write_log(tmp_path / "two", val__yours=[3, 4]), val__yours=ABOUT["rank"])
    other = declare(write_log(tmp_path / "z", val__mine=[5, 6]), val__mine=entry("Rank", of="Rank", space="z"))
    axes = compared(a=[one, two])["rank"]
    assert lines(axes)[0].get_ydata().tolist() == [2, 3]
    assert "2 runs each" in sentences(axes)
    assert {"h", "z"} <= set(texts(compared(a=[one], b=[other])["rank"]))


def write_accuracies(folder, *rows):
    header = ["features", "labels_per_class", "accuracy", "split"]
    rows = [["frozen", "all", 0.1, "val"], *(["trained", "all", *row] for row in rows)]
    write_csv(write_info(folder) / "linear_evaluation.csv", header, rows)
    return folder


def test_linear_evaluations_are_averaged_over_runs_and_those_on_different_splits_stay_apart(tmp_path):
    val, test = write_accuracies(tmp_path / "val", [0.8, "val"]), write_accuracies(tmp_path / "test", [0.6, "test"])
    twice = write_accuracies(tmp_path / "twice", [0.8, "val"], [0.6, "val"])  # one run, whose mean counts once
    said = sentences(compared(x=[val, twice], y=[val])["linear_evaluation"])
    assert "75.0% ± 7.1" in said
    assert "runs of x 2, y 1." in said
    assert "frozen" not in said
    assert "all labels, val" not in said
    axes = compared(x=[val, test], y=[test])["linear_evaluation"]
    assert {"all labels, val", "all labels, test", "80.0%", "60.0%"} <= set(texts(axes))
    assert "70.0%" not in texts(axes)
    assert "runs of x 1 of 2, y 1." in sentences(axes)


def test_who_has_what_is_said_where_not_all_have_the_same(tmp_path, groups):
    less = declare(write_log(tmp_path / "less", probe__loss=[1, 2]), probe__loss=ABOUT["loss"])
    text = comparison(tmp_path, full=groups["small"], less=[less, less]).text
    assert "Not all runs have the same diagnostics" in text
    assert "Rankyes\N{EN DASH}" in text.partition("Quantities that not all runs have; 1 more is in all of them.")[2]


def test_diagnoses_on_different_data_name_them(tmp_path):
    runs = {}
    for name, data in (("a", "cats"), ("b", "dogs"), ("c", "cats")):
        declare(write_log(tmp_path / name, test__rank=[1.0]), test__rank=ABOUT["rank"])
        runs[name] = [write_info(tmp_path / name, kind="diagnosis", data="Folder", data_path=data)]
    said = "On different data: a and c on Folder from cats; b on Folder from dogs."
    assert said in sentences(compared(**runs)["rank"])
    assert comparison(tmp_path, **runs).text.count(said) == 2  # note and figure
    assert "On different data" not in sentences(compared(a=runs["a"], c=runs["c"])["rank"])
    assert "On different data: x, a on" in sentences(compared(x=[*runs["a"], *runs["b"]])["rank"])


def test_groups_that_are_none_are_named(tmp_path):
    fitted = write_log(tmp_path / "fit", val__rank=[1.0, 2.0])
    looked = write_info(write_log(tmp_path / "looked", val__rank=[1.0]), kind="diagnosis")
    comparison_figures({"x": [fitted], "y": [looked]})
    for groups, said in (
        ({"none": []}, r"Expected `groups\['none'\]` to be a list with a run, but got \[\]"),
        ({"a": "runs"}, r"Expected `groups\['a'\]` to be a list with a run, but got 'runs'"),
        ({}, "Expected `groups` with a group of runs, but got none"),
        ({"x": [fitted, looked]}, r"Expected `groups\['x'\]` .* but fit was trained and looked is a diagnosis\."),
    ):
        with pytest.raises(ValueError, match=said):
            comparison_figures(groups)
    for names, shape in ((["a", "b"], (2, 3)), (["a"], (2, 2)), ([], (0, 0))):
        said = rf"Expected `similarity` with values of shape \({len(names)}, {len(names)}\)"
        with pytest.raises(ValueError, match=said):
            write_comparison({"a": [fitted]}, tmp_path / "page.html", similarity=(names, np.zeros(shape)))
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        write_comparison({"a": [tmp_path / "nowhere"]}, tmp_path / "page.html")
    with pytest.raises(ValueError, match=r"Expected `output` to be a file, but .* is a folder"):
        write_comparison({"a": [fitted]}, tmp_path)


def test_losses_of_two_methods_have_a_figure_each(tmp_path):
    chart, runs = Chart("loss", "Loss"), {}
    for place, name in enumerate(("ByolModule", "SimCLRModule", "SimCLRModule")):
        about = entry("Loss", of=name, section="learning", text=f"The loss of {name}.", chart=chart)
        folder = declare(write_log(tmp_path / f"{place}", val__loss=[4.0, 3.0 - place]), val__loss=about)
        runs[f"group {place}"] = [folder]
    found = compared(**runs)
    assert len(found) == 2
    page = comparison(tmp_path, **runs)
    assert "Loss (Byol)" in page.text
    assert "Loss (SimCLR)" in page.text


def many(folder, count, baselines, shift=0.0):
    """A run with `count` quantities on one chart and their baselines; the first baseline is the null of all."""
    names = [f"q{place}" for place in range(count)]
    values = {name: [1 + place + shift, 2 + place + shift] for place, name in enumerate(names)}
    values |= {name: [5 + place + shift, 6 + place + shift] for place, name in enumerate(baselines)}
    chart, null = Chart("shares", "Shares"), baselines[0] if baselines else ""
    write_log(folder, **{f"val__{name}": value for name, value in values.items()})
    about = {name: entry(name, key=name, chart=chart, label=name, null=null) for name in names}
    about |= {name: entry(name, key=name, chart=chart, label=name, baseline=True) for name in baselines}
    return declare(folder, **{f"val__{name}": each for name, each in about.items()})


def dashes(line):
    """How a line is dashed; matplotlib has one name for all dashes."""
    return repr(line._unscaled_dash_pattern)


def test_of_several_baselines_groups_are_drawn_beside_the_null(tmp_path):
    axes = compared(**{name: [many(tmp_path / name, 2, ("chance", "floor"), shift)] for name, shift in
                       (("small", 0.0), ("large", 0.5))})["shares"]  # fmt: skip
    assert len(lines(axes)) == len(set(map(dashes, lines(axes)))) == 3
    assert "chance" in texts(axes)
    assert "floor" not in texts(axes)


@pytest.mark.parametrize(("count", "baselines", "figures"), [(3, ("chance",), 1), (4, (), 1), (4, ("chance",), 4)])
def test_quantities_that_dashes_cannot_tell_apart_have_figures_of_their_own(tmp_path, count, baselines, figures):
    found = compared(**{name: [many(tmp_path / name, count, baselines, shift)] for name, shift in
                        (("small", 0.0), ("large", 0.5))})  # fmt: skip
    assert len(found) == figures
    for axes in found.values():
        styles = list(map(dashes, lines(axes)))
        assert len(set(styles)) == len(styles) == (count if figures == 1 else 1) + len(baselines)
