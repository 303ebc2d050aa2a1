from pathlib import Path

import numpy as np
import pytest
from pages import CHROMIUM, Page, seen_in_a_browser, write_csv, write_geometry, write_log

from lightning_ssl_geometry import plots
from lightning_ssl_geometry.report import comparison_figures, figures, read_run, write_comparison

NAMES = [
    "upper_bound", "bound_terms", "bound_entropy", "projector_rank", "projector_rank_relative",
    "projector_rank_cumulative", "spectrum_h_image", "spectrum_h", "spectrum_z", "projector_spectrum",
    "augmentation_rank", "null_space", "unexplained_variance", "unexplained_variance_tau",
    "local_unexplained_variance", "local_unexplained_variance_tau", "jacobian_rank", "linear_regions",
    "linear_regions_visited", "lie_r2", "lie_null_space", "augmentation_spectrum", "jacobian_spectrum", "rotation",
    "hardest_negative_distance", "label_agreement", "hardest_negative_histogram", "hardest_negative_histogram_start",
]  # fmt: skip


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Three strengths, three seeds each."""
    folder = tmp_path_factory.mktemp("groups")
    shifts = {"small": 0.0, "moderate": 0.05, "large": 0.1}
    return {
        name: [write_geometry(folder / f"{name}_{seed}", shift + 0.01 * seed) for seed in range(3)]
        for name, shift in shifts.items()
    }


def lines(axes, color):
    """Those over the axes: a piece of line in the key is 24 pixels of 72 an inch long."""
    drawn = [line for line in axes.lines if line.get_color() == plots.COLORS[color]]
    drawn = [line for line in drawn if line.get_linestyle() != "None"]
    return [line for line in drawn if list(line.get_xdata()) != [0, 24 / 72]]


def bands(axes):
    return [np.unique(band.get_paths()[0].vertices, axis=0) for band in axes.collections]


def texts(axes):
    return " ".join(text.get_text() for text in axes.texts)


def test_names_are_those_of_the_quantities_and_always_the_same(groups):
    figures = comparison_figures(groups)
    assert list(figures) == NAMES
    assert list(comparison_figures({"one": groups["small"][:1]})) == NAMES


def test_a_line_is_the_mean_and_a_band_the_standard_deviation(tmp_path):
    values = np.array([[5.0, 4.0, 3.5], [6.0, 4.5, 3.0], [5.5, 4.1, 2.0]])
    runs = [write_log(tmp_path / str(seed), val__loss=row) for seed, row in enumerate(values)]
    axes = comparison_figures({"a": runs})["loss"].axes[0]
    assert lines(axes, "blue")[0].get_ydata() == pytest.approx(values.mean(0))
    band, mean, std = bands(axes)[0], values.mean(0), values.std(0, ddof=1)
    for place, x in enumerate([1.0, 2.0, 3.0]):
        at = band[np.isclose(band[:, 0], x), 1]
        assert at.min() == pytest.approx(mean[place] - std[place])
        assert at.max() == pytest.approx(mean[place] + std[place])
    assert "a 2.83" in texts(axes)
    assert "Data: val. Mean and standard deviation of 3 runs each." in texts(axes)


def test_one_run_has_no_band(tmp_path):
    axes = comparison_figures({"a": [write_log(tmp_path, val__loss=[2.0, 1.0])]})["loss"].axes[0]
    assert bands(axes) == []
    assert "1 run each" in texts(axes)


def test_groups_have_their_colours_in_order(groups):
    axes = comparison_figures(groups)["projector_rank"].axes[0]
    for name, color in zip(groups, ("blue", "orange", "green"), strict=True):
        assert len(lines(axes, color)) == 1
        assert next(t for t in axes.texts if t.get_text().startswith(name)).get_color() == plots.COLORS[color]


def test_quantities_have_dashes_and_one_name_per_group(groups):
    axes = comparison_figures(groups)["upper_bound"].axes[0]
    assert [line.get_linestyle() for line in lines(axes, "blue")] == ["-", "--"]
    assert texts(axes).count("small ") == 1
    assert "InfoNCE" in texts(axes)
    assert "bound" in texts(axes)


def test_a_run_without_a_quantity_is_left_out_and_said_so(tmp_path):
    full = [write_log(tmp_path / f"a{seed}", val__loss=[2.0, 1.0 + seed], val__alignment=[1, 1]) for seed in (0, 1)]
    less = [write_log(tmp_path / "b", val__alignment=[1.0, 1.0])]
    axes = comparison_figures({"a": [*full, *less], "b": less})["loss"].axes[0]
    assert lines(axes, "blue")[0].get_ydata()[-1] == pytest.approx(1.5)
    assert lines(axes, "orange") == []
    assert "runs of a 2 of 3, b none." in texts(axes)


def test_runs_of_different_length_are_averaged_where_they_overlap(tmp_path):
    long, short = write_log(tmp_path / "a", val__loss=[3, 2, 1]), write_log(tmp_path / "b", val__loss=[5, 4])
    axes = comparison_figures({"a": [long, short]})["loss"].axes[0]
    assert lines(axes, "blue")[0].get_ydata().tolist() == [4.0, 3.0]


def test_runs_without_a_step_in_common_are_said_so(tmp_path):
    write_csv(tmp_path / "a/metrics.csv", ["epoch", "step", "val/loss"], [[0, 9, 1.0]])
    write_csv(tmp_path / "b/metrics.csv", ["epoch", "step", "val/loss"], [[0, 8, 1.0]])
    groups = {"x": [tmp_path / "a", tmp_path / "b"], "y": [tmp_path / "a"]}
    assert "x 2, without a step in common" in " ".join(texts(comparison_figures(groups)["loss"].axes[0]).split("\n"))


def test_nan_is_a_gap_with_a_cross_and_said_so(tmp_path):
    runs = [write_log(tmp_path / str(seed), val__loss=row) for seed, row in enumerate(([3, "nan", 1], [3, 2, 1]))]
    axes = comparison_figures({"a": runs})["loss"].axes[0]
    assert np.isnan(lines(axes, "blue")[0].get_ydata()).tolist() == [False, True, False]
    crosses = next(line for line in axes.lines if line.get_marker() == "x")
    assert crosses.get_xdata().tolist() == [2.0]
    assert "Crosses: a run had no finite number there." in texts(axes)
    page = Page(write_comparison({"a": runs}, tmp_path / "page.html").read_text("utf-8"))
    assert "a, 0: val/loss is not a finite number in 1 of 3 rows" in page.text


def test_a_run_that_is_nan_throughout_lacks_the_quantity(tmp_path):
    runs = [write_log(tmp_path / str(seed), val__loss=row) for seed, row in enumerate((["nan", "nan"], [3, 2]))]
    assert "runs of a 1 of 2." in texts(comparison_figures({"a": runs})["loss"].axes[0])


@pytest.mark.parametrize(("stages", "chosen"), [(("train", "val", "probe"), "probe"), (("train", "val"), "val")])
def test_one_stage_is_shown_probe_before_val_before_train(tmp_path, stages, chosen):
    write_log(tmp_path, **{f"{stage}__alignment": [1.0, 0.5] for stage in stages})
    assert f"Data: {chosen}." in texts(comparison_figures({"a": [tmp_path]})["alignment"].axes[0])


def test_the_stage_is_one_that_most_groups_have(tmp_path):
    a = write_log(tmp_path / "a", probe__alignment=[1.0, 0.5], val__alignment=[1.0, 0.5])
    b = write_log(tmp_path / "b", val__alignment=[0.9, 0.4])
    axes = comparison_figures({"a": [a], "b": [b]})["alignment"].axes[0]
    assert "Data: val. 1 run each." in texts(axes)


def test_spectra_are_averaged_as_logarithms_at_start_half_and_end(groups):
    axes = comparison_figures(groups)["spectrum_h"].axes[0]
    start, half, end = lines(axes, "blue")
    index = np.arange(16)
    for line, share in ((start, 0.0), (half, 0.5), (end, 1.0)):
        assert np.log(line.get_ydata()) == pytest.approx(2 - index * (0.1 + 0.2 * share) + 0.01)
    assert len(bands(axes)) == 3
    band = np.log(bands(axes)[0][np.isclose(bands(axes)[0][:, 0], 1.0), 1])
    assert (band.min(), band.max()) == pytest.approx((2.0, 2.02))
    assert "Averaged as logarithms." in texts(axes)
    drawn = lines(comparison_figures(groups)["projector_spectrum"].axes[0], "blue")[2]
    assert np.log(drawn.get_ydata()) == pytest.approx(-index * 1.1 + 0.01)


def test_a_spectrum_has_the_axis_that_it_has_on_the_page_of_a_run(groups):
    alone = figures(read_run(groups["small"][0]))["probe_log_spectrum_h"].axes[0]
    axes = comparison_figures(groups)["spectrum_h"].axes[0]
    assert axes.get_yscale() == alone.get_yscale() == "log"
    assert "singular value (log scale)" in texts(axes)
    assert "singular value (log scale)" in texts(alone)


def test_singular_values_that_are_rounding_are_not_drawn_and_said_so(tmp_path):
    name = tmp_path / "geometry/val/projector_singular_values.csv"
    write_csv(name, ["epoch", "step", 0, 1, 2], [[0, 10, 3, 2, 1e-9], [1, 20, 3, 2e-8, 0]])
    axes = comparison_figures({"a": [tmp_path]})["projector_spectrum"].axes[0]
    assert [len(line.get_ydata()) for line in lines(axes, "blue")] == [2, 1]
    said = "Values that are below 10⁻⁸ of the largest, which is rounding, and not drawn: a 2 of 3."
    assert said in texts(axes)


def test_arrays_of_another_length_are_left_out(tmp_path):
    for run, size in (("a", 3), ("b", 2)):
        rows = [[0, 10, *range(size, 0, -1)]]
        write_csv(tmp_path / run / "geometry/val/projector_singular_values.csv", ["epoch", "step", *range(size)], rows)
    axes = comparison_figures({"x": [tmp_path / "a", tmp_path / "b"]})["projector_spectrum"].axes[0]
    assert "runs of x 1 of 2." in texts(axes)


def test_ranks_at_thresholds_are_averaged_over_runs(tmp_path):
    for run, values in (("a", [1, 0.5, 0.05]), ("b", [1, 1, 1])):
        name = tmp_path / run / "geometry/val/projector_singular_values.csv"
        write_csv(name, ["epoch", "step", 0, 1, 2], [[0, 10, *values], [1, 20, *values]])
    axes = comparison_figures({"x": [tmp_path / "a", tmp_path / "b"]})["projector_rank_relative"].axes[0]
    assert [line.get_ydata().tolist() for line in lines(axes, "blue")] == [[2.5, 2.5], [3, 3], [3, 3]]


def test_histograms_are_compared_at_the_end_and_at_the_start(groups):
    figures = comparison_figures(groups)
    for name, bin_ in (("hardest_negative_histogram", 5), ("hardest_negative_histogram_start", 1)):
        axes = figures[name].axes[0]
        drawn = next(line for line in axes.lines if line.get_drawstyle() == "steps-post")
        assert drawn.get_ydata()[:-1] == pytest.approx(100 * np.eye(8)[bin_])
        assert axes.get_xlim() == (0.0, 2.0)


def test_a_histogram_that_is_nan_is_left_out(tmp_path):
    for run, row in (("a", ["nan", "nan"]), ("b", [0.5, 0.5])):
        name = tmp_path / run / "geometry/val/hardest_negative_histogram.csv"
        write_csv(name, ["epoch", "step", 0, 1], [[0, 10, *row]])
    figures = comparison_figures({"x": [tmp_path / "a", tmp_path / "b"], "y": [tmp_path / "a"]})
    assert "runs of x 1 of 2, y none." in texts(figures["hardest_negative_histogram"].axes[0])


def test_baselines_are_grey_where_groups_agree_and_coloured_where_not(tmp_path):
    runs = {}
    for name, chance in (("a", 0.1), ("b", 0.1), ("c", 0.3)):
        columns = {"label_agreement_fine": [0.2, 0.9], "label_agreement_fine_chance": [chance] * 2}
        runs[name] = [write_log(tmp_path / name, **{f"val__{key}": value for key, value in columns.items()})]
    both = comparison_figures({name: runs[name] for name in "ab"})["label_agreement"].axes[0]
    assert len(lines(both, "muted")) == 1
    apart = comparison_figures(runs)["label_agreement"].axes[0]
    assert [len(lines(apart, color)) for color in ("blue", "orange", "green")] == [2, 2, 2]
    assert "Fine labels only: the data has no coarse ones." in texts(apart)


def test_lines_on_top_of_each_other_are_said_so(tmp_path):
    runs = {name: [write_log(tmp_path / name, val__loss=[2.0, 1.0])] for name in "ab"}
    assert "On top of each other: a and b." in texts(comparison_figures(runs)["loss"].axes[0])


def test_the_linear_evaluation_is_that_of_the_trained_network(tmp_path):
    for run, accuracy in (("a", 0.8), ("b", 0.9)):
        write_log(tmp_path / run, val__loss=[1.0, 0.5])
        rows = [["trained", "all", accuracy], ["frozen", "all", 0.1]]
        write_csv(tmp_path / run / "linear_evaluation.csv", ["features", "labels_per_class", "accuracy"], rows)
    axes = comparison_figures({"x": [tmp_path / "a", tmp_path / "b"]})["linear_evaluation"].axes[0]
    assert "85.0% ± 7.1" in texts(axes)
    assert "frozen" not in texts(axes)


def test_a_group_without_runs_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"Expected `groups\['none'\]` to be a list with a run, but got \[\]"):
        comparison_figures({"none": []})
    with pytest.raises(ValueError, match=r"Expected `groups\['a'\]` to be a list with a run, but got 'runs'"):
        comparison_figures({"a": "runs"})
    with pytest.raises(ValueError, match="Expected `groups` with a group of runs, but got none"):
        comparison_figures({})
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        write_comparison({"a": [tmp_path / "nowhere"]}, tmp_path / "page.html")
    with pytest.raises(ValueError, match=r"Expected `output` to be a file, but .* is a folder"):
        write_comparison({"a": [write_log(tmp_path, val__loss=[1.0])]}, tmp_path)


@pytest.fixture(scope="module")
def page(groups, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "new" / "strengths.html"
    assert write_comparison(groups, path, title="Strengths") == path
    return Page(path.read_text("utf-8"))


def test_the_page_has_figures_sentences_and_numbers(page):
    assert page.values("class").count("figure") == len(NAMES)
    for text in ("Strengths", "small 3 runs", "Cosentino et al. 2022", "Share of the displacements", "First and last"):
        assert text in page.text
    assert "probe/unexplained_variance_full0.510 ± 0.0100.210 ± 0.010" in page.text
    assert "probe/label_agreement_fine11.0% ± 1.061.0% ± 1.0" in page.text


def test_the_page_needs_nothing_from_elsewhere_and_is_made_the_same_again(page, groups, tmp_path):
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(page.tags)
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in page.values("content")
    ids = page.values("id")
    assert len(set(ids)) == len(ids)
    assert write_comparison(groups, tmp_path / "again.html", title="Strengths").read_text("utf-8") == page.source


def test_names_of_the_user_are_shown_and_not_run(tmp_path):
    evil = "<script>alert(1)</script>"
    run = write_log(tmp_path / "<b>run", val__loss=[2.0, 1.0], val__projector_rank=[3, 2])
    page = Page(
        write_comparison({evil: [run], "$\\bad{$": [run]}, tmp_path / "page.html", title=evil).read_text("utf-8")
    )
    assert "script" not in page.tags
    assert "<b>run" not in page.source
    assert page.text.count(evil) >= 3


def test_saved_figures_carry_their_title_and_key(groups, tmp_path):
    figure = comparison_figures(groups)["unexplained_variance"]
    assert {"Unexplained variance", "isotropic"} <= {text.get_text() for text in figure.axes[0].texts}
    figure.savefig(tmp_path / "a.png", dpi=150)
    assert Path(tmp_path / "a.png").stat().st_size > 10_000


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_browser_shows_the_comparison_at_phone_and_desktop_width(page, tmp_path):
    count = len(NAMES)
    expected = {"overflow": 0, "figures": count, "cut": [], "seen": count, "script": "undefined"}
    assert seen_in_a_browser(page, tmp_path) == {"390": expected, "1440": expected}
