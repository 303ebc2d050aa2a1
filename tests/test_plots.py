"""Figures: what is drawn for which values, and that texts have room."""

import json
import subprocess
import sys
import warnings
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text
from sklearn.isotonic import isotonic_regression

from lightning_ssl_geometry import plots
from lightning_ssl_geometry.plots import (
    COLORS,
    Caption,
    Curve,
    Dot,
    Tiles,
    cross_matrix,
    curves,
    dots,
    gallery,
    largest_classes,
    matrix,
    overlay,
    policy_maps,
    scatter,
    trajectory,
)
from lightning_ssl_geometry.plots.line import _apart

ENDS = {"xlabel": "x", "ylabel": "y", "ends": ("start", "end")}


def line(y, **rest):
    y = np.asarray(y, dtype=np.float64)
    return Curve(rest.pop("label", "a"), np.arange(len(y), dtype=np.float64), y, **rest)


def draw(*lines, **rest):
    return curves(lines, **{"xlabel": "epochs", "ylabel": "loss"} | rest).axes[0]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def tips(figure):
    """What stands under a pointer, point by point."""
    groups = [line.get_gid() for axes in figure.axes for line in axes.lines if (line.get_gid() or "").startswith("[")]
    return [text for group in groups for text in json.loads(group)[1:]]


def seen(axes):
    """Lines that are seen: not those that carry the values for the page."""
    return [line for line in axes.lines if not (line.get_gid() or "").startswith('["tips"')]


def band(axes):
    return axes.collections[0].get_paths()[0].vertices[:, 1]


def test_figures_touch_no_global_state():
    code = """
import sys, io, matplotlib
before = list(dict.items(matplotlib.rcParams))  # asking for one by name may import pyplot
import numpy as np
from lightning_ssl_geometry.plots import Curve, curves
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


# --- lines


def test_a_line_is_drawn_with_its_values_and_its_label():
    behind = line([1.0, 3.0, 1.0], label="behind", faint=True)
    axes = draw(line([4.0, 3.0, 2.0], label="train 2", color="orange", dash="dashed"), behind)
    assert np.array_equal(axes.lines[0].get_ydata(), [4.0, 3.0, 2.0])
    assert axes.lines[0].get_color() == plots.COLORS["orange"]
    assert (axes.get_xlabel(), texts(axes)) == ("epochs", ["loss", "train 2"])
    assert len(axes.lines) == 3  # the faint one has no points


def test_what_is_not_finite_is_a_gap_with_a_cross_and_a_point_between_gaps_is_seen():
    curve, points, crosses = draw(line([4.0, np.nan, 2.0, np.inf, 1e200])).lines[:3]
    assert np.array_equal(np.isnan(curve.get_ydata()), [False, True, False, True, True])
    assert np.array_equal(points.get_ydata(), [4.0, 2.0])
    assert np.array_equal(crosses.get_xdata(), [1.0, 3.0, 4.0])
    y = np.ones(40)
    y[[10, 12]] = np.nan
    assert np.array_equal(draw(line(y)).lines[1].get_xdata(), [11.0])


def test_only_positive_values_over_many_decades_get_a_log_axis():
    for values, scale in (([1, 2], "linear"), ([1, 1e6], "log"), ([-1, 1e6], "linear"), ([0, 1e6], "linear")):
        axes = draw(line(values))
        assert axes.get_yscale() == scale
        assert ("log scale" in texts(axes)[0]) == (scale == "log")
    axes = draw(line([3.0, 1.0, 0.0, -1.0]), log=True)  # what is not positive is left out without a cross
    assert np.array_equal(np.isnan(axes.lines[0].get_ydata()), [False, False, True, True])
    assert {each.get_marker() for each in axes.lines} == {"None", "o"}
    factor = line([1.0, 10.0, 100.0], spread=np.array([2.0, 2.0, np.nan]), factor=True)
    np.testing.assert_allclose(np.multiply(*factor.edges), [1.0, 100.0, np.nan])
    assert draw(factor, log=True).get_ylim()[0] < 0.5


def test_a_floor_and_a_ceiling_end_the_axis_unless_a_value_is_beyond():
    assert draw(line([50.0, 60.0]), floor=0.0).get_ylim()[0] == 0.0
    assert draw(line([-5.0, 60.0]), floor=0.0).get_ylim()[0] < -5.0
    low, high = draw(line([1e-14, 2e-3]), floor=0.0).get_ylim()  # a logarithmic axis has no zero
    assert 0 < low < 1e-14 < 2e-3 < high
    assert draw(line([100.0, 100.0]), ceiling=100.0).get_ylim() == (90.0, 100.0)
    assert draw(line([50.0, 60.0]), ceiling=100.0).get_ylim()[1] < 61.0
    assert draw(line([50.0, 120.0]), ceiling=100.0).get_ylim()[1] > 120.0
    assert draw(line([0.0, 0.0]), floor=0.0, ceiling=0.0).get_ylim() == (0.0, 1.0)  # an axis has two ends
    for value in (0.0, 1.0, -3.5, 1e-310, 1e99, -1e99):
        low, high = draw(line([value, value])).get_ylim()
        assert low < value < high


@pytest.mark.parametrize("seed", range(10))
def test_ticks_are_round_within_the_limits_and_told_apart_and_labels_keep_their_order(seed):
    rng = np.random.default_rng(seed)
    center, spread = rng.normal() * 10.0 ** rng.uniform(-8, 8), 10.0 ** rng.uniform(-8, 8)
    axes = draw(line(center + spread * rng.normal(size=5)), log=False)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    low, high = axes.get_ylim()
    assert 2 <= len(set(labels)) == len(labels)
    assert all(low <= tick <= high for tick in axes.get_yticks())
    assert max(map(len, labels)) <= 8
    heights = rng.uniform(30, 190, size=7)
    moved = _apart(heights, 13.0, 30.0, 200.0)
    assert (np.diff(moved[np.argsort(heights)]) >= 13.0 - 1e-9).all()
    assert moved.max() <= 200.0
    steps, order = 13.0 * np.arange(7), np.argsort(heights)
    nearest = isotonic_regression(heights[order] - steps).clip(30.0, 200.0 - 78.0) + steps  # by least squares
    np.testing.assert_allclose(moved[order], nearest)


@pytest.mark.parametrize(
    ("values", "head", "ticks"),
    [
        ([100.000012, 100.000048], "loss above 100.00001 (\N{MULTIPLICATION SIGN}10⁻⁵)", ["0", "1", "2", "3", "4"]),
        ([2e9, 8e9], "loss (\N{MULTIPLICATION SIGN}10⁹)", ["2", "4", "6", "8"]),
    ],
)
def test_ticks_leave_out_what_they_share(values, head, ticks):
    axes = draw(line(values), xlim=(0.0, 3.0))
    assert texts(axes)[0] == head
    assert [label.get_text() for label in axes.get_yticklabels()] == ticks
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2", "3"]  # epochs are whole


def test_a_long_line_is_thinned_and_keeps_its_spikes():
    y = np.sin(np.linspace(0, 20, 50_000))
    y[31_415], y[27_182] = 9.0, -7.0
    drawn = draw(line(y)).lines[0]
    assert len(drawn.get_ydata()) <= 610
    assert (drawn.get_ydata().max(), drawn.get_ydata().min()) == (9.0, -7.0)
    assert drawn.get_xdata()[[0, -1]].tolist() == [0.0, 49_999.0]


def test_a_band_is_as_high_as_its_spread_and_ends_at_its_bounds():
    axes = draw(line([4.0, 3.0, 2.0], spread=np.array([1.0, 0.5, np.nan])))
    assert (band(axes).min(), band(axes).max()) == (2.5, 5.0)
    assert axes.get_ylim()[1] > 5.0
    assert not draw(line([4.0, 3.0], spread=np.full(2, np.nan))).collections
    axes = draw(line([1.0, 98.0], spread=np.array([3.0, 5.0]), bounds=(0.0, 100.0)), ceiling=100.0)
    assert (band(axes).min(), band(axes).max(), axes.get_ylim()[1]) == (0.0, 100.0, 100.0)
    low, high = line([1.5, 0.5], spread=np.array([0.1, 0.7]), bounds=(0.0, 1.0)).edges
    assert (low.tolist(), high.tolist()) == ([1.4, 0.0], [1.5, 1.0])  # a value beyond a bound is seen
    axes = draw(line([1.0, 2.0], spread=np.array([3.0, 1.0])), log=True)
    assert band(axes).min() == axes.get_ylim()[0]


def test_a_histogram_is_stepped_and_named_in_order_and_says_its_values_in_the_middle_of_its_bins():
    y, words = np.array([1.0, 2.0, 2.0]), ["p", "q", "r"]
    axes = draw(*[Curve(name, np.arange(3.0), y, stepped=True, tips=words) for name in "ba"])
    assert axes.lines[0].get_drawstyle() == "steps-post"
    assert texts(axes)[1:] == ["b", "a"]
    assert next(drawn for drawn in axes.lines if drawn.get_gid()).get_xdata().tolist() == [0.5, 1.5, 2.0]


# --- other pictures


def test_a_trajectory_runs_from_grey_to_violet_skips_what_is_not_finite_and_thins():
    path = np.linspace(0.0, 1.0, 30)
    axes = trajectory(path, path**2, **ENDS).axes[0]
    steps = axes.collections[0]
    assert [to_hex(steps.get_colors()[place]) for place in (0, -1)] == [plots.RAMP[0], plots.RAMP[-1]]
    assert {"start", "end"} <= set(texts(axes))
    path = np.append(np.arange(1000.0), np.nan)
    assert 100 <= len(trajectory(path, path, **ENDS).axes[0].collections[0].get_segments()) <= 120
    assert {"start", "end"} & set(texts(trajectory(path[:1], path[:1], **ENDS).axes[0])) == {"end"}


def test_dots_have_their_bars_within_their_bounds_and_a_row_each():
    rows = [Dot("pixels", 90.0, np.nan, "90%"), Dot("trained", 95.0, 1.0, "95%", "blue", "tip")]
    axes = dots([("all", rows), ("few", rows)], xlabel="accuracy").axes[0]
    bars = [bar for bar in axes.lines if len(bar.get_xdata()) == 2]
    assert [bar.get_xdata().tolist() for bar in bars] == [[94.0, 96.0]] * 2
    assert texts(axes).count("pixels") == 2
    assert axes.get_xlim()[0] < 90.0 < 96.0 < axes.get_xlim()[1]
    many = [Dot("a", float(value), np.nan, "") for value in range(12)]
    alone, headed = (dots([(name, many)], xlabel="x") for name in ("", "all"))
    assert headed.get_size_inches()[1] > alone.get_size_inches()[1]  # no row without a heading
    narrow = dots([("", [Dot("a", 0.0501, np.nan, ""), Dot("b", 0.0599, np.nan, "")])], xlabel="x").axes[0]
    boxes = [label.get_window_extent() for label in narrow.get_xticklabels()]
    assert len(boxes) >= 2
    assert all(a.x1 + 4 < b.x0 for a, b in pairwise(boxes))
    alike = [Dot("a", 98.5, 0.1, "", bounds=(0.0, 100.0)), Dot("b", 99.6, 0.1, "", bounds=(0.0, 100.0))]
    least, most = dots([("", alike)], xlabel="x").axes[0].get_xlim()
    assert most - least >= 50
    assert least < 98.4 < 99.7 <= most <= 105
    alike = [Dot("a", 1000.0, 0.1, ""), Dot("b", 1001.0, 0.1, "")]
    assert np.ptp(dots([("", alike)], xlabel="x").axes[0].get_xlim()) >= 200
    rows = [Dot(name, value, 3.0, "", bounds=(0.0, 100.0)) for name, value in (("odd", 9300.0), ("even", 99.0))]
    assert [row.bar.tolist() for row in rows] == [[9297.0, 9300.0], [96.0, 100.0]]
    least, most = dots([("", rows)], xlabel="x").axes[0].get_xlim()
    assert least < 96 < 9300 < most


def test_a_matrix_has_names_and_numbers_where_there_is_room_and_values_faint_enough_to_write_on():
    figure = matrix(["a", "b"], np.array([[1.0, 0.25], [np.nan, 1.5]]), meaning="CKA")
    axes = figure.axes[0]
    assert {"a", "b", "1", "2", "1.00", "0.25", "1.50", "\N{EN DASH}"} <= set(texts(axes))
    assert [cell.get_alpha() for cell in axes.patches] == [0.55, 0.17, 0.55]
    assert tips(figure) == ["a and a: 1", "a and b: 0.25", "b and b: 1.5"]
    assert "CKA, from 0 to 1" in texts(figure.axes[1])
    assert matrix(["a", "b"], np.ones((2, 2)), meaning="CKA", limits=(1.0, 1.0)).axes[0].patches
    large = matrix([f"model {place}" for place in range(40)], np.eye(40), meaning="CKA").axes[0]
    assert len(large.patches) == 1600
    assert {"model 0", "1.00", "model 1"} & set(texts(large)) == {"model 0"}


def test_a_matrix_between_two_lists_begins_at_the_lower_left_and_names_both():
    values = np.array([[1.0, 0.25, np.nan], [0.5, 0.0, 0.75]])
    figure = cross_matrix(["a", "b"], ["x", "y", "z"], values, ylabel="ours", xlabel="theirs", meaning="CKA")
    axes, scale = figure.axes
    assert {"a", "b", "x", "y", "z", "ours", "theirs", "1.00", "\N{EN DASH}"} <= set(texts(axes))
    assert "CKA, from 0 to 1" in texts(scale)
    first = axes.patches[0].get_bbox()
    corner = axes.transAxes.inverted().transform(axes.transData.transform((first.x0, first.y0)))
    assert corner.tolist() == [0, 0]
    assert axes.bbox.width / 3 == pytest.approx(axes.bbox.height / 2)  # square cells
    assert tips(figure) == ["a and x: 1", "a and y: 0.25", "b and x: 0.5", "b and y: 0", "b and z: 0.75"]
    assert len({cell.get_linewidth() for cell in axes.patches}) == 1  # no cell is highlighted
    figure.canvas.draw()
    inside = figure.bbox
    for text in axes.texts:
        box = text.get_window_extent()
        assert inside.x0 <= box.x0 <= box.x1 <= inside.x1 + 12
        assert inside.y0 <= box.y0
    deep = [f"network.blocks.{place}.mlp.fc2" for place in range(60)]
    large = cross_matrix(deep, deep[:50], np.ones((60, 50)), ylabel="a", xlabel="b", meaning="CKA").axes[0]
    assert 10 < sum("fc2" in text for text in texts(large)) < 80


def test_maps_are_as_large_as_their_images_on_one_scale_even_to_the_eye_and_say_their_values():
    image, few, many = np.eye(8)[None], np.array([[[0.1, 0.4], [0.3, 0.2]]]), np.ones((1, 10, 10)) / 100
    figure = policy_maps([("learned", image, few), ("uniform", image, many)])
    *tiles, scale = [axes for axes in figure.axes if axes.images]
    assert len({float(side) for axes in tiles for side in np.round(axes.bbox.size, 6)}) == 1
    assert {axes.images[0].get_clim() for axes in tiles[1::2]} == {(0, 0.4)}
    assert "0.4, 1.6 times uniform" in scale.texts[0].get_text()
    assert tips(figure)[1] == "row 1, column 2: 0.4"
    assert tips(figure)[-1] == "brightest, row 1, column 1: 0.01"
    rgb = tiles[1].images[0].get_cmap()(np.linspace(0, 1, 9))[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16  # CIELAB, above 8
    np.testing.assert_allclose(np.diff(lightness)[1:], 11.75, atol=0.8)


def test_embeddings_share_a_scale_and_points_are_coloured_by_class_where_the_largest_have_colours():
    rows = np.random.default_rng(0).normal(size=(200, 5))
    first, second = overlay([("learned", rows[:20]), ("uniform", 0.1 * rows[:20])], caption=Caption("a")).axes
    assert [len(seen(each)) for each in (first, second)] == [20, 20]
    assert first.get_ylim() == second.get_ylim()
    assert tips(overlay([("", np.array([[0.0, 1.0], [2.0, 3.0]]))]))[1] == "dimension 2: 1 to 3, mean 2"
    for classes, expected in ((10, 10), (11, 11), (150, 11)):
        (axes,) = scatter([("", rows[:, :2], np.arange(200) % classes)]).axes
        points = [line for line in seen(axes) if line.get_marker() == "o"]
        assert len({line.get_color() for line in points}) == expected
        assert sum(len(line.get_xdata()) for line in points) == 200
        assert np.ptp(axes.get_xlim()) == pytest.approx(np.ptp(axes.get_ylim()))
    assert tips(scatter([("", np.eye(2), np.array([0, 1]))])) == ["class 0: 1, 0", "class 1: 0, 1"]
    assert [text for text in texts(axes) if "others" in text]
    label = np.repeat([7, *range(20, 31)], [2, *[1] * 9, 3, 4])  # ties go to the lower number
    assert largest_classes(label) == ([7, 20, 21, 22, 23, 24, 25, 26, 29, 30], 2)


def test_named_axes_have_no_circle_and_their_own_scale():
    (axes,) = scatter([("", np.array([[30.0, -3], [1, 2]]), None)], axes_names=("across", "up")).axes
    assert axes.get_xlabel() == "across"
    assert "up" in texts(axes)
    assert max(len(each.get_xdata()) for each in axes.lines) == 2
    assert 30 < axes.get_xlim()[1] < 40


def tiles(*shape, title="", marked=None, value=None):
    images = np.random.default_rng(0).normal(size=shape) if value is None else np.full(shape, value)
    words = [[f"{row}, {column}" for column in range(shape[1])] for row in range(shape[0])]
    return Tiles(title, images, np.zeros(shape[:2], bool) if marked is None else marked, words)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_gallery_shows_every_picture_where_it_stands_stretched_to_its_range(channels):
    block = tiles(2, 3, channels, 4, 5)
    block.images[1, 2] = np.nan  # left empty
    block.marked[0, 1] = True
    figure = gallery([block, tiles(2, 1, channels, 4, 5, title="after", value=0.0)], names=["one", "two"])
    first, second = figure.axes
    (image,) = (each.get_array() for each in first.images)
    assert image.shape == (8, 15, 3)
    low, high = (bound(block.images, axis=(0, 1, 3, 4)) for bound in (np.nanmin, np.nanmax))
    expected = ((block.images[1, 0] - low[:, None, None]) / (high - low)[:, None, None]).transpose(1, 2, 0)
    np.testing.assert_allclose(image[4:, :5], np.broadcast_to(expected, (4, 5, 3)))
    assert (image[4:, 10:] == 1).all()
    assert np.ptp(image) == 1
    frames = [line for line in first.lines if line.get_color() == COLORS["orange"]]
    assert [(frame.get_xdata().mean() // 1, frame.get_ydata().mean() // 1) for frame in frames] == [(1, 0)]
    assert tips(figure) == ["0, 0", "0, 1", "0, 2", "1, 0", "1, 1", "0, 0", "1, 0"]
    assert {"one", "two"} <= set(texts(first))
    assert "after" in texts(second)
    assert first.bbox.x1 < second.bbox.x0
    assert first.bbox.width / 3 == pytest.approx(second.bbox.width)  # pictures of one size
    assert first.bbox.height / first.bbox.width == pytest.approx(2 * 4 / (3 * 5))


# --- texts and room


def test_a_figure_that_stands_alone_has_its_caption_and_axes_of_the_same_height():
    caption = Caption("Loss", [("solid", "train"), ("dashed", "validation" * 4), ("dotted", "t")], ["3 runs each"])
    plain, alone = (draw(line([1.0, 2.0]), caption=each) for each in (Caption(), caption))
    assert texts(alone)[2:] == ["Loss", "train", "validation" * 4, "t", "3 runs each"]
    assert len({text.xy[1] for text in alone.texts[2:]}) == 4  # the third dash has a row of its own
    assert alone.figure.get_size_inches()[1] > plain.figure.get_size_inches()[1]
    assert alone.get_window_extent().height == pytest.approx(plain.get_window_extent().height)


LONG = "projector.layers.3.a_name_without_an_end." * 20


@pytest.mark.filterwarnings("error")  # also none about letters that matplotlib's font lacks
@pytest.mark.parametrize("name", [LONG, "\N{CJK UNIFIED IDEOGRAPH-6F22}", "$\\bad{$", "<b>&amp;", "a\nb", " ", "%s{}"])
def test_texts_beside_the_axes_are_no_mathematics_and_have_room_or_lose_their_middle(name):
    x = np.arange(3.0)
    caption = Caption(name, [("dashed", name)], [name])
    drawn = [
        curves([Curve(name, x, x), Curve(f"{name} 2", x, x)], xlabel="x", ylabel="$y$", caption=caption),
        curves([Curve(name, x, x, stepped=True)], xlabel="$x$", ylabel="y", caption=caption),
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


# --- errors

IMAGE, MAP, NAN = np.ones((8, 4, 4)), np.ones((8, 2, 2)), np.array([np.nan])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Curve("", np.zeros(2), np.zeros(3)), r"`x` and `y` of one shape \(R,\), but got \(2,\) and \(3,\)"),
        (lambda: line([0, 0], tips=["x"]), "Expected `tips` for all 2 points or none, but got 1"),
        (lambda: line([0, 0], spread=np.zeros(3)), r"Expected `spread` of shape \(2,\) as `x`, but got \(3,\)"),
        (lambda: line([0], color="pink"), r"Expected `color` to be one of ink, .*, but got 'pink'"),
        (lambda: line([0], dash="--"), r"Expected `dash` to be one of solid, .*, but got '--'"),
        (lambda: draw(line(NAN)), "Expected `lines` with a finite value, but got none"),
        (lambda: draw(line([-1.0]), log=True), "Expected `lines` with a finite positive value, but got none"),
        (lambda: trajectory(NAN, NAN, **ENDS), "Expected `points` with a finite value, but got none"),
        (lambda: dots([], xlabel="x"), "Expected `groups` with a finite value, but got none"),
        (
            lambda: cross_matrix(["a"], ["b"], IMAGE[0], ylabel="", xlabel="", meaning=""),
            r"`values` of shape \(1, 1\) for 1 rows and 1 columns, but got \(4, 4\)",
        ),
        (lambda: matrix(["a"], IMAGE[0], meaning=""), r"`values` of shape \(1, 1\) for 1 names, but got \(4, 4\)"),
        (lambda: policy_maps([("", IMAGE, MAP)], columns=0), "`columns` >= 1, but got 0"),
        (lambda: policy_maps([("", IMAGE[:0], MAP[:0])]), "`runs` with a sample in each, but got none"),
        (lambda: policy_maps([("", IMAGE, MAP[:7])]), r"\(n, H, W\) and .* but got \(8, 4, 4\) and \(7, 2, 2\)"),
        (lambda: policy_maps([("", IMAGE * np.nan, MAP)]), "`runs` with finite values, but got some that are not"),
        (lambda: overlay([]), "`runs` with a sample in each, but got none"),
        (lambda: overlay([("", np.ones((3, 1)))]), r"\(n, P\) with P >= 2, but got \(3, 1\)"),
        (lambda: scatter([("", np.ones((3, 2)), np.arange(2))]), r"labels \(n,\), but got \(3, 2\) and \(2,\)"),
        (lambda: gallery([]), r"Expected `blocks` of pictures .* but got \[\]"),
        (lambda: gallery([tiles(2, 2, 2, 4, 4)]), r"with C = 1 or 3, but got \[\(2, 2, 2, 4, 4\)\]"),
        (lambda: gallery([tiles(2, 2, 1, 4, 4), tiles(3, 2, 1, 4, 4)]), "Expected `blocks` of pictures"),
        (lambda: gallery([tiles(2, 2, 1, 4, 4, value=np.nan)]), "with a finite value in each channel"),
        (lambda: scatter([("", np.ones((3, 4)), None)]), r"\(n, 2\) and labels \(n,\), but got \(3, 4\)"),
    ],
)
def test_errors_name_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()
