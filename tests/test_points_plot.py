"""Points with their names: labels that cover nothing, and what is refused."""

import numpy as np
import pytest
from recipes import beside

module = beside(".", "draw_points")
Point, points = module.Point, module.points


def test_points_stand_where_they_are_with_labels_that_cover_nothing():
    found = [Point(f"name {i}", x, y) for i, (x, y) in enumerate([(1, 1), (1.02, 1), (1, 1.02), (5, 3), (np.nan, 2)])]
    figure = points(found, xlabel="rank", ylabel="accuracy", colors=[("blue", "all of them")])
    axes = figure.axes[0]
    drawn = [tuple(map(float, line.get_xydata()[0])) for line in axes.lines if line.get_marker() == "o"]
    assert drawn[:4] == [(1, 1), (1.02, 1), (1, 1.02), (5, 3)]  # the one that is not finite is left out
    texts = {text.get_text(): text for text in axes.texts}
    assert {"name 0", "name 3", "all of them"} <= texts.keys()
    assert "name 4" not in texts
    figure.draw_without_rendering()
    boxes = [texts[f"name {i}"].get_window_extent() for i in range(4)]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert all(box.x0 >= axes.bbox.x0 for box in boxes)


def test_points_in_a_crowd_all_have_a_name():
    crowd = np.random.default_rng(0).normal(size=(20, 2))
    found = [Point(f"name {i}", *row) for i, row in enumerate([*crowd, (6.0, 6.0)])]
    axes = points(found, xlabel="rank", ylabel="accuracy").axes[0]
    assert {f"name {i}" for i in range(21)} <= {text.get_text() for text in axes.texts}


def test_a_point_without_a_name_is_drawn():
    axes = points([Point("", 1.0, 1.0), Point("two", 2.0, 2.0)], xlabel="x", ylabel="y").axes[0]
    assert sum(line.get_marker() == "o" for line in axes.lines) == 2
    assert {text.get_text() for text in axes.texts if text.get_text()} >= {"two"}


def test_points_without_a_finite_one_are_an_error():
    with pytest.raises(ValueError, match="`points` with a finite value, but got none"):
        points([Point("x", np.inf, 1.0)], xlabel="x", ylabel="y")
