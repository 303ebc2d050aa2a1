import json
import subprocess
import sys
import warnings
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.text import Text

from lightning_ssl_geometry import plots
from lightning_ssl_geometry.plots import (
    Caption,
    Curve,
    Dot,
    curves,
    dots,
    matrix,
    overlay,
    policy_maps,
    ramp,
    scatter,
    trajectory,
)
from lightning_ssl_geometry.plots.line import _apart


def line(y, **rest):
    y = np.asarray(y, dtype=np.float64)
    return Curve(rest.pop("label", "a"), np.arange(len(y), dtype=np.float64), y, **rest)


def draw(*lines, **rest):
    return curves(lines, **{"xlabel": "epochs", "ylabel": "loss"} | rest).axes[0]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_figures_touch_no_global_state():
    code = """
import sys, io, matplotlib
before = list(dict.items(matplotlib.rcParams))  # asking for one by name may import pyplot
import numpy as np
from lightning_ssl_geometry.plots import Curve, curves
from lightning_ssl_geometry.plots.line import _apart
from lightning_ssl_geometry.report.svg import inline_svg
figure = curves([Curve("a", np.arange(3.0), np.arange(3.0))], xlabel="x", ylabel="y")
inline_svg(figure, key="f", label="a")
buffer = io.BytesIO()
figure.savefig(buffer, format="png", dpi=100)
assert buffer.getvalue().startswith(b"\\x89PNG")
assert "matplotlib.pyplot" not in sys.modules
assert list(dict.items(matplotlib.rcParams)) == before
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_line_is_drawn_with_its_values_and_its_label():
    axes = draw(line([4.0, 3.0, 2.0], label="train 2", color="orange", dash="dashed"))
    drawn = axes.lines[0]
    assert np.array_equal(drawn.get_ydata(), [4.0, 3.0, 2.0])
    assert drawn.get_color() == plots.COLORS["orange"]
    assert "train 2" in texts(axes)
    assert axes.get_xlabel() == "epochs"
    assert texts(axes)[0] == "loss"


def test_what_is_not_finite_is_a_gap_with_a_cross():
    axes = draw(line([4.0, np.nan, 2.0, np.inf, 1e200]))
    curve, points, crosses = axes.lines[:3]
    assert np.array_equal(np.isnan(curve.get_ydata()), [False, True, False, True, True])
    assert np.array_equal(points.get_ydata(), [4.0, 2.0])
    assert np.array_equal(crosses.get_xdata(), [1.0, 3.0, 4.0])


def test_a_point_between_gaps_is_seen_on_a_long_line():
    y = np.ones(40)
    y[[10, 12]] = np.nan
    assert np.array_equal(draw(line(y)).lines[1].get_xdata(), [11.0])


@pytest.mark.parametrize(
    ("values", "scale"),
    [([1.0, 2.0], "linear"), ([1.0, 1e6], "log"), ([-1.0, 1e6], "linear"), ([0.0, 1e6], "linear")],
)
def test_only_positive_values_over_many_decades_get_a_log_axis(values, scale):
    axes = draw(line(values))
    assert axes.get_yscale() == scale
    assert ("log scale" in texts(axes)[0]) == (scale == "log")


def test_on_a_log_axis_what_is_not_positive_is_left_out_without_a_cross():
    axes = draw(line([3.0, 1.0, 0.0, -1.0]), log=True)
    assert np.array_equal(np.isnan(axes.lines[0].get_ydata()), [False, False, True, True])
    assert len(axes.lines[2].get_xdata()) == 0


def test_a_floor_is_part_of_the_axis():
    assert draw(line([50.0, 60.0]), floor=0.0).get_ylim()[0] == 0.0
    assert draw(line([-5.0, 60.0]), floor=0.0).get_ylim()[0] < -5.0
    low, high = draw(line([1e-14, 2e-3]), floor=0.0).get_ylim()  # a logarithmic axis has no zero
    assert 0 < low < 1e-14 < 2e-3 < high


def test_an_axis_ends_at_its_ceiling_unless_a_value_is_above_it():
    assert draw(line([100.0, 100.0]), ceiling=100.0).get_ylim() == (90.0, 100.0)
    assert draw(line([50.0, 60.0]), ceiling=100.0).get_ylim()[1] < 61.0
    assert draw(line([50.0, 120.0]), ceiling=100.0).get_ylim()[1] > 120.0
    assert draw(line([0.0, 0.0]), floor=0.0, ceiling=0.0).get_ylim() == (0.0, 1.0)  # an axis has two ends


@pytest.mark.parametrize("seed", range(40))
def test_ticks_are_round_within_the_limits_and_told_apart(seed):
    rng = np.random.default_rng(seed)
    center, spread = rng.normal() * 10.0 ** rng.uniform(-8, 8), 10.0 ** rng.uniform(-8, 8)
    axes = draw(line(center + spread * rng.normal(size=5)), log=False)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    low, high = axes.get_ylim()
    assert len(labels) >= 2
    assert len(set(labels)) == len(labels)
    assert all(low <= tick <= high for tick in axes.get_yticks())
    assert max(map(len, labels)) <= 8


def test_ticks_far_from_zero_and_close_together_count_from_the_first():
    axes = draw(line([100.000012, 100.000048]))
    assert texts(axes)[0] == "loss above 100.00001 (\N{MULTIPLICATION SIGN}10⁻⁵)"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 1e-310, 1e99, -1e99])
def test_a_constant_has_an_axis(value):
    low, high = draw(line([value, value])).get_ylim()
    assert low < value < high


def test_large_and_small_ticks_share_a_power_of_ten():
    axes = draw(line([2e9, 8e9]))
    assert texts(axes)[0] == "loss (\N{MULTIPLICATION SIGN}10⁹)"
    assert all(len(label.get_text()) <= 4 for label in axes.get_yticklabels())


def test_epochs_have_whole_ticks():
    axes = draw(line([3.0, 2.0, 1.0]), xlim=(0.0, 3.0))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("seed", range(10))
def test_labels_are_moved_apart_and_keep_their_order(seed):
    rng = np.random.default_rng(seed)
    heights = rng.uniform(30, 190, size=7)
    moved = _apart(heights, 13.0, 30.0, 200.0)
    order = np.argsort(heights)
    assert (np.diff(moved[order]) >= 13.0 - 1e-9).all()
    assert moved.max() <= 200.0
    far = np.array([40.0, 80.0, 60.0])
    assert np.array_equal(_apart(far, 13.0, 30.0, 200.0), far)


def test_a_long_line_is_thinned_and_keeps_its_spikes():
    y = np.sin(np.linspace(0, 20, 50_000))
    y[31_415], y[27_182] = 9.0, -7.0
    drawn = draw(line(y)).lines[0]
    assert len(drawn.get_ydata()) <= 610
    assert drawn.get_ydata().max() == 9.0
    assert drawn.get_ydata().min() == -7.0
    assert drawn.get_xdata()[[0, -1]].tolist() == [0.0, 49_999.0]


def test_a_faint_line_has_no_label_and_no_points():
    axes = draw(line([1.0, 2.0]), line([1.0, 3.0], label="behind", faint=True))
    assert "behind" not in texts(axes)
    assert len(axes.lines) == 4


def test_texts_are_no_mathematics():
    axes = draw(line([1.0, 2.0], label="$\\bad{$"), ylabel="$x$", xlabel="$y$")
    axes.figure.canvas.draw()
    assert "$\\bad{$" in texts(axes)


def test_a_trajectory_runs_from_grey_to_violet():
    path = np.linspace(0.0, 1.0, 30)
    axes = trajectory(path, path**2, xlabel="x", ylabel="y", ends=("start", "end")).axes[0]
    assert axes.lines[0].get_color() == plots.RAMP[0]
    assert axes.lines[28].get_color() == plots.RAMP[-1]
    assert {"start", "end"} <= set(texts(axes))
    assert ramp(1) == [plots.RAMP[-1]]


def test_a_trajectory_skips_what_is_not_finite_and_thins():
    path = np.arange(1000.0)
    path[500] = np.nan
    axes = trajectory(path, path, xlabel="x", ylabel="y", ends=("start", "end")).axes[0]
    assert 100 <= len(axes.lines) <= 130


def test_a_trajectory_of_one_point_has_its_end():
    point = np.array([0.5])
    axes = trajectory(point, point, xlabel="x", ylabel="y", ends=("start", "end")).axes[0]
    assert "end" in texts(axes)
    assert "start" not in texts(axes)


def test_dots_have_their_bars_and_a_row_each():
    rows = [Dot("pixels", 90.0, np.nan, "90%"), Dot("trained", 95.0, 1.0, "95%", "blue", "tip")]
    axes = dots([("all", rows), ("few", rows)], xlabel="accuracy").axes[0]
    bars = [bar for bar in axes.lines if len(bar.get_xdata()) == 2]
    assert [bar.get_xdata().tolist() for bar in bars] == [[94.0, 96.0]] * 2
    assert texts(axes).count("pixels") == 2
    assert axes.get_xlim()[0] < 90.0 < 96.0 < axes.get_xlim()[1]


def test_many_dots_make_a_taller_figure():
    rows = [Dot("a", float(value), np.nan, "") for value in range(30)]
    assert (
        dots([("all", rows)], xlabel="x").get_size_inches()[1]
        > dots([("all", rows[:3])], xlabel="x").get_size_inches()[1]
    )


def test_a_band_is_as_high_as_its_spread():
    axes = draw(line([4.0, 3.0, 2.0], spread=np.array([1.0, 0.5, np.nan])))
    corners = axes.collections[0].get_paths()[0].vertices
    assert corners[:, 1].min() == 2.5
    assert corners[:, 1].max() == 5.0
    assert axes.get_ylim()[1] > 5.0
    assert not draw(line([4.0, 3.0], spread=np.full(2, np.nan))).collections


def test_values_out_of_bounds_are_seen_with_their_bands_and_bars():
    curve = line([1.5, 1.9, 0.5], spread=np.array([0.1, 0.1, 0.7]), bounds=(0.0, 1.0))
    low, high = curve.edges
    assert low.tolist() == pytest.approx([1.4, 1.8, 0.0])
    assert high.tolist() == pytest.approx([1.5, 1.9, 1.0])  # no bound is passed by what is not there
    row = Dot("odd", 9300.0, 50.0, "9300%", bounds=(0.0, 100.0))
    assert row.bar.tolist() == [9250.0, 9300.0]
    least, most = dots([("", [row, Dot("even", 50.0, 1.0, "50%", bounds=(0.0, 100.0))])], xlabel="x").axes[0].get_xlim()
    assert least < 49
    assert most > 9300


def test_a_band_and_a_bar_end_at_their_bounds():
    axes = draw(line([1.0, 98.0], spread=np.array([3.0, 5.0]), bounds=(0.0, 100.0)), ceiling=100.0)
    corners = axes.collections[0].get_paths()[0].vertices
    assert (corners[:, 1].min(), corners[:, 1].max()) == (0.0, 100.0)
    assert axes.get_ylim()[1] == 100.0
    row = Dot("trained", 99.0, 3.0, "99%", bounds=(0.0, 100.0))
    bar = dots([("", [row])], xlabel="accuracy, %").axes[0].lines[0]
    assert bar.get_xdata().tolist() == [96.0, 100.0]


def test_a_band_ends_at_the_floor_and_on_a_log_axis_at_its_foot():
    axes = draw(line([1.0, 2.0], spread=np.array([3.0, 1.0])), floor=0.0)
    assert axes.get_ylim()[0] == 0.0
    axes = draw(line([1.0, 2.0], spread=np.array([3.0, 1.0])), log=True)
    assert axes.collections[0].get_paths()[0].vertices[:, 1].min() == axes.get_ylim()[0]


def test_a_histogram_is_stepped_and_named_in_order():
    lines = [Curve(name, np.arange(4.0), np.array([0.0, 1.0, 0.0, 0.0]), stepped=True) for name in "ba"]
    axes = draw(*lines)
    assert [drawn.get_drawstyle() for drawn in axes.lines[:1]] == ["steps-post"]
    assert texts(axes)[1:] == ["b", "a"]


def test_a_figure_that_stands_alone_has_its_caption():
    caption = Caption("Loss", [("solid", "train"), ("dashed", "validation" * 4), ("dotted", "t")], ["3 runs each"])
    plain, alone = (draw(line([1.0, 2.0]), caption=each) for each in (Caption(), caption))
    assert texts(alone)[2:] == ["Loss", "train", "validation" * 4, "t", "3 runs each"]
    assert len({text.xy[1] for text in alone.texts[2:]}) == 4  # the third dash has a row of its own
    assert alone.figure.get_size_inches()[1] * 72 == pytest.approx(plain.figure.get_size_inches()[1] * 72 + 18 + 3 * 16)
    heights = [axes.get_window_extent().height for axes in (plain, alone)]
    assert heights[0] == pytest.approx(heights[1])


def test_a_line_without_a_label_has_none():
    assert texts(draw(line([1.0, 2.0], label="")))[1:] == []


def test_errors_name_what_was_expected():
    with pytest.raises(ValueError, match=r"`x` and `y` of one shape \(R,\), but got \(2,\) and \(3,\)"):
        Curve("a", np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="Expected `tips` for all 2 points or none, but got 1"):
        Curve("a", np.zeros(2), np.zeros(2), tips=["x"])
    with pytest.raises(ValueError, match=r"Expected `spread` of shape \(2,\) as `x`, but got \(3,\)"):
        Curve("a", np.zeros(2), np.zeros(2), spread=np.zeros(3))
    with pytest.raises(ValueError, match=r"Expected `color` to be one of ink, .*, but got 'pink'"):
        Curve("a", np.zeros(2), np.zeros(2), color="pink")
    with pytest.raises(ValueError, match=r"Expected `dash` to be one of solid, .*, but got '--'"):
        Curve("a", np.zeros(2), np.zeros(2), dash="--")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Expected `lines` with a finite value, but got none"):
        draw(line([np.nan]))
    with pytest.raises(ValueError, match="Expected `lines` with a finite positive value, but got none"):
        draw(line([-1.0]), log=True)
    with pytest.raises(ValueError, match="Expected `points` with a finite value, but got none"):
        trajectory(np.array([np.nan]), np.zeros(1), xlabel="x", ylabel="y", ends=("a", "b"))
    with pytest.raises(ValueError, match="Expected `groups` with a finite value, but got none"):
        dots([], xlabel="x")


def tips(figure):
    """What stands under a pointer, point by point."""
    groups = [line.get_gid() for axes in figure.axes for line in axes.lines if (line.get_gid() or "").startswith("[")]
    return [text for group in groups for text in json.loads(group)[1:]]


def test_places_have_names_that_slant_where_they_do_not_fit():
    plain = draw(line([3.0, 2.0, 1.0]), names=["h", "1", "z"])
    slanted = draw(line([3.0, 2.0, 1.0]), names=["h", "projector.layer.1", "z"])
    for axes, names, turned in ((plain, ["h", "1", "z"], 0), (slanted, ["h", "projector.layer.1", "z"], 35)):
        assert [label.get_text() for label in axes.get_xticklabels()] == names
        assert {label.get_rotation() for label in axes.get_xticklabels()} == {turned}
        assert axes.get_xlabel() == ""
    assert slanted.figure.get_size_inches()[1] > plain.figure.get_size_inches()[1]
    assert slanted.get_window_extent().height == pytest.approx(plain.get_window_extent().height)


def test_a_matrix_has_names_numbers_and_values_that_are_faint_enough_to_write_on():
    values = np.array([[1.0, 0.25], [np.nan, 1.5]])
    figure = matrix(["a", "b"], values, meaning="CKA")
    axes = figure.axes[0]
    assert {"a", "b", "1", "2", "1.00", "0.25", "1.50", "\N{EN DASH}"} <= set(texts(axes))
    assert [cell.get_alpha() for cell in axes.patches] == [0.55, 0.17, 0.55]
    assert tips(figure) == ["a and a: 1", "a and b: 0.25", "b and b: 1.5"]
    assert "CKA, from 0 to 1" in texts(figure.axes[1])


def test_a_large_matrix_has_colours_and_no_values():
    names = [f"model {place}" for place in range(40)]
    axes = matrix(names, np.eye(40), meaning="CKA").axes[0]
    assert "1.00" not in texts(axes)
    assert len(axes.patches) == 1600
    assert "model 0" in texts(axes)
    assert "model 1" not in texts(axes)  # there is no room for a line of text in each row


def test_maps_and_embeddings_say_their_values():
    few, many = np.array([[[0.1, 0.4], [0.3, 0.2]]]), np.ones((1, 10, 10)) / 100
    assert tips(policy_maps([("", np.eye(8)[None], few)]))[1] == "row 1, column 2: 0.4"
    assert tips(policy_maps([("", np.eye(8)[None], many)])) == ["brightest, row 1, column 1: 0.01"]
    assert tips(overlay([("", np.array([[0.0, 1.0], [2.0, 3.0]]))]))[1] == "dimension 2: 1 to 3, mean 2"
    assert tips(scatter([("", np.eye(2), np.array([0, 1]))])) == ["class 0: 1, 0", "class 1: 0, 1"]


def test_a_histogram_says_its_values_in_the_middle_of_its_bins():
    axes = draw(Curve("a", np.arange(3.0), np.array([1.0, 2.0, 2.0]), stepped=True, tips=["p", "q", "r"]))
    target = next(drawn for drawn in axes.lines if drawn.get_gid())
    assert target.get_xdata().tolist() == [0.5, 1.5, 2.0]


def test_dots_without_a_heading_leave_no_row_for_it():
    rows = [Dot("a", float(value), np.nan, "") for value in range(12)]
    axes = [dots([(name, rows)], xlabel="x").axes[0] for name in ("", "all")]
    assert [max(ax.get_ylim()) for ax in axes] == [11.6, 12.6]
    wide = dots([("", [Dot("a", 0.0501, np.nan, ""), Dot("b", 0.0599, np.nan, "")])], xlabel="x").axes[0]
    boxes = [label.get_window_extent() for label in wide.get_xticklabels()]
    assert len(boxes) >= 2
    assert all(a.x1 + 4 < b.x0 for a, b in pairwise(boxes))


LONG = "projector.layers.3.a_name_without_an_end." * 20


@pytest.mark.filterwarnings("error")  # also none about letters that matplotlib's font lacks
@pytest.mark.parametrize("name", [LONG, "\N{CJK UNIFIED IDEOGRAPH-6F22}", "$\\bad{$", "<b>&amp;", "a\nb", " ", "%s{}"])
def test_texts_beside_the_axes_have_room_or_lose_their_middle(name):
    x = np.arange(3.0)
    caption = Caption(name, [("dashed", name)], [name])
    drawn = [
        curves([Curve(name, x, x), Curve(f"{name} 2", x, x)], xlabel="x", ylabel="y", caption=caption),
        curves([Curve(name, x, x, stepped=True)], xlabel="x", ylabel="y", caption=caption),
        curves([Curve("a", x, x)], xlabel="", ylabel="y", names=[name, "b", name], caption=caption),
        dots([("", [Dot(name, 1.0, np.nan, name)])], xlabel="x", caption=caption),
        matrix([name, "b"], np.eye(2), meaning="CKA", caption=caption),
    ]
    for figure in drawn:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure.set_dpi(4 * 72)  # a picture as a page has it: at 72, letters are rounded to whole pixels
            figure.draw_without_rendering()
            found = [text for axes in figure.axes for text in axes.findobj(Text) if text.get_text().strip()]
            boxes = [text.get_window_extent() for text in found if text.get_visible()]
        assert min(box.x0 for box in boxes) >= -4
        assert max(box.x1 for box in boxes) <= figure.bbox.width
        assert min(box.y0 for box in boxes) >= -4
        assert all(axes.bbox.width > 4 * 70 for axes in figure.axes)


def test_axes_stand_at_the_same_place_unless_a_name_needs_more():
    figures = [curves([line([1.0, 2.0], label=name)], xlabel="x", ylabel="y") for name in ("a", "long", "a" * 27)]
    short, usual, long = [figure.axes[0].bbox.bounds for figure in figures]
    assert short == usual
    assert long[:2] == short[:2]
    assert long[2] < short[2]
    assert long[3] == short[3]


def test_a_matrix_needs_a_value_for_each_pair_of_names():
    with pytest.raises(ValueError, match=r"Expected `values` of shape \(2, 2\) for 2 names, but got \(2, 3\)"):
        matrix(["a", "b"], np.zeros((2, 3)), meaning="CKA")


def test_a_spread_may_be_a_factor():
    y, spread = np.array([1.0, 10.0, 100.0]), np.array([2.0, 2.0, np.nan])
    line = plots.Curve("a", np.arange(3.0), y, spread=spread, factor=True)
    low, high = line.edges
    np.testing.assert_allclose(low * high, np.array([1.0, 100.0, np.nan]))
    axes = plots.curves([line], xlabel="x", ylabel="y", log=True).axes[0]
    assert axes.get_ylim()[0] < 0.5
    assert plots.Curve("a", np.arange(3.0), y).edges is None
