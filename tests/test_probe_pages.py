"""The page of a run that probes all that Cosentino et al. look at."""

import numpy as np
import pytest
from lightning_ssl_geometry.report.glossary import ENTRIES, lookup
from lightning_ssl_geometry.report.projector_panels import rank_at
from pages import CHROMIUM, Page, seen_in_a_browser, write_csv, write_geometry, write_log

from lightning_ssl_geometry import plots, report
from lightning_ssl_geometry.report import read_run, write_report


@pytest.fixture(scope="module")
def geometry(tmp_path_factory):
    """A run that probes all that Cosentino et al. look at."""
    return write_geometry(tmp_path_factory.mktemp("runs") / "geometry")


@pytest.fixture(scope="module")
def geometry_page(geometry):
    return Page(write_report(geometry).read_text("utf-8"))


def panel(run, name):
    return report.figures(read_run(run))[name].axes[0]


def ends(axes):
    return [text.get_text() for text in axes.texts]


def test_a_run_that_probes_has_all_figures(geometry, geometry_page):
    names = list(report.figures(read_run(geometry)))
    assert len(names) == len(set(names)) == geometry_page.values("class").count("figure")
    for name in (
        "upper_bound", "bound_terms", "bound_entropy", "projector_rank", "projector_thresholds",
        "probe_log_spectrum_h_image", "augmentation_rank", "null_space", "unexplained_variance",
        "unexplained_variance_tau", "local_unexplained_variance", "jacobian_rank", "linear_regions", "lie_r2",
        "lie_null_space", "rotation_probe", "hardest_negative_distance", "label_agreement",
        "hardest_negative_histogram_probe",
    ):  # fmt: skip
        assert name in names
    assert "Other diagnostics" not in geometry_page.text
    for text in (
        "Augmentations and the projector",
        "Neighbours",
        "Unexplained variance0.200probe, from 0.500, isotropic",
    ):
        assert text in geometry_page.text


def test_what_is_recorded_before_training_is_at_its_start(geometry):
    read = read_run(geometry)
    assert read.time(read.scalars["probe/lie_r2"]).tolist() == [0.0, 1.0, 2.0]
    assert panel(geometry, "lie_r2").lines[0].get_xdata()[0] == 0.0


def test_a_baseline_is_dotted_and_grey_beside_its_quantity(geometry):
    axes = panel(geometry, "unexplained_variance")
    quantity, baseline = (line for line in axes.lines if len(line.get_xdata()) == 3 and line.get_linestyle() != "None")
    assert quantity.get_color() == plots.COLORS["blue"]
    assert baseline.get_color() == plots.COLORS["muted"]
    assert {"unexplained 0.200", "isotropic 0.500"} <= set(ends(axes))


def test_a_baseline_that_data_share_is_drawn_once(tmp_path):
    values = {"null_space_fraction": [0.5, 0.6], "null_space_isotropic": [0.5, 0.5]}
    write_log(tmp_path, **{f"{stage}__{name}": v for stage in ("train", "val") for name, v in values.items()})
    assert sum("isotropic" in text for text in ends(panel(tmp_path, "null_space"))) == 1


def test_a_baseline_alone_makes_no_figure(tmp_path):
    assert list(report.figures(read_run(write_log(tmp_path, val__lie_r2_shuffled=[0.0, 0.1])))) == []


def test_lines_on_top_of_each_other_are_said_so(geometry_page, tmp_path):
    assert "On top of each other: InfoNCE probe and exact form probe." in geometry_page.text
    apart = write_log(tmp_path, val__bound_info_nce=[5.0, 4.0], val__bound_upper=[6.0, 5.0])
    assert "On top of each other" not in write_report(apart).read_text("utf-8")


def test_a_spectrum_that_stood_still_is_said_so(tmp_path):
    name = tmp_path / "geometry/val/projector_singular_values.csv"
    write_csv(name, ["epoch", "step", 0, 1], [[0, 10, 3, 1], [1, 20, 3, 1], [2, 30, 9, 1]])
    page = write_report(tmp_path).read_text("utf-8")
    assert "On top of each other: after 1 epoch and after 2 epochs." in page


def test_without_coarse_labels_the_figure_says_so(geometry_page, tmp_path):
    said = "Fine labels only: the data has no coarse ones."
    assert said not in geometry_page.text
    assert said in write_report(write_geometry(tmp_path, coarse=False)).read_text("utf-8")


def test_ranks_at_other_thresholds_are_counted_from_the_spectrum(tmp_path):
    sigma = np.array([[1.0, 0.5, 0.05, 0.005], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    assert [rank_at(sigma, "relative", tau).tolist() for tau in (0.1, 0.01, 0.001)] == [[2, 4, 0], [3, 4, 0], [4, 4, 0]]
    assert rank_at(sigma, "cumulative", 0.9).tolist() == [2, 4, 0]
    assert np.isnan(rank_at(np.array([[1.0, np.nan]]), "relative", 0.1)).all()
    for layer, values in ((0, [9.0, 9.0]), (2, [1.0, 0.05])):
        name = f"geometry/val/projector_singular_values_{layer}.csv"
        write_csv(tmp_path / name, ["epoch", "step", 0, 1], [[0, 10, *values], [1, 20, *values]])
    axes = panel(tmp_path, "projector_thresholds")
    times = "\N{MULTIPLICATION SIGN}"
    assert {f"max {times} 0.1: 1", f"max {times} 0.01: 2"} <= set(ends(axes))
    page = write_report(tmp_path).read_text("utf-8")
    assert "Layer 2, the last of 2." in page
    assert f"max {times} 0.01 and max {times} 0.001" in page


def test_the_histogram_has_its_bins_from_0_to_2(geometry):
    axes = panel(geometry, "hardest_negative_histogram_probe")
    assert axes.get_xlim() == (0.0, 2.0)
    steps = [line for line in axes.lines if line.get_drawstyle() == "steps-post"]
    assert [line.get_xdata().tolist() for line in steps] == [np.linspace(0, 2, 9).tolist()] * 3
    assert [100 * np.eye(8)[row].max() == line.get_ydata()[row] for row, line in zip((1, 3, 5), steps, strict=True)]
    assert [text for text in ends(axes) if "start" in text or "after" in text] == [
        "at the start", "after 1 epoch", "after 2 epochs",
    ]  # fmt: skip


def test_a_histogram_that_is_not_a_number_is_left_out(tmp_path):
    name = tmp_path / "geometry/probe/hardest_negative_histogram.csv"
    write_csv(name, ["epoch", "step", 0, 1], [[0, 0, "nan", "nan"], [0, 10, "nan", "nan"]])
    assert list(report.figures(read_run(tmp_path))) == []
    write_csv(name, ["epoch", "step", 0, 1], [[0, 0, "nan", "nan"], [0, 10, 0.5, 0.5]])
    assert "1 of 2 readouts have no hardest negative" in write_report(tmp_path).read_text("utf-8")


def test_rotations_are_drawn_against_their_largest_angle(geometry, tmp_path):
    axes = panel(geometry, "rotation_probe")
    assert axes.lines[0].get_xdata().tolist() == [10.0, 45.0, 90.0, 180.0]
    assert {"pixels 180", "h, start 144", "h, end 54.0"} <= set(ends(axes))
    write_csv(tmp_path / "geometry/val/rotation_angles.csv", ["epoch", "step", 0, 1], [[0, 0, 1, 2]])
    write_csv(tmp_path / "geometry/val/rotation_h.csv", ["epoch", "step", 0], [[0, 0, 1]])
    assert list(report.figures(read_run(tmp_path))) == []


def test_equivariance_and_invariance_have_figures_by_group(tmp_path):
    write_log(
        tmp_path,
        val__equivariance_mean=[0.5, 0.4],
        val__equivariance_rotation_mean=[0.1, 0.2],
        val__equivariance_scale_mean=[0.3, 0.2],
        val__invariance_mean=[0.9, 0.1],
        val__upper_bound_invariance=[-0.3, -0.8],
    )
    named = report.figures(read_run(tmp_path))
    assert ends(named["equivariance"].axes[0])[1:] == ["0.400", "rotation 0.200", "scale 0.200"]
    assert ends(named["group_invariance"].axes[0])[1:] == ["0.100"]
    text = Page(write_report(tmp_path).read_text("utf-8")).text
    assert "Equivariance and invariance" in text
    write_log(tmp_path, val__equivariance_rotation_mean=[2e-13, 2e-13], val__equivariance_scale_mean=[0.6, 0.5])
    axes = report.figures(read_run(tmp_path))["equivariance"].axes[0]
    assert axes.get_yscale() == "log"
    assert axes.get_ylim()[0] < 2e-13 < 0.6 < axes.get_ylim()[1]
    assert "Sosnovik et al. 2020" in text
    assert "Other diagnostics" not in text
    for kind, key in (("equivariance", "equivariance"), ("invariance", "group_invariance")):
        for group in ("rotation", "translation", "scale"):
            assert lookup(f"test/{kind}_{group}_mean") is ENTRIES[f"{key}_{group}"]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_browser_shows_the_page_at_phone_and_desktop_width(geometry_page, tmp_path):
    count = geometry_page.values("class").count("figure")
    expected = {"overflow": 0, "figures": count, "cut": [], "seen": count, "script": "undefined"}
    assert seen_in_a_browser(geometry_page, tmp_path) == {"390": expected, "1440": expected}
