"""Stills: circles and spheres in rows, and what they refuse."""

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from recipes import beside

module = beside("variational_and_dynamics", "draw_stills")
Still, stills = module.Still, module.stills


def still(dim=2, **changed):
    z = np.random.default_rng(0).normal(size=(20, dim))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    return Still(**{"title": "it. 0", "z": z, "label": np.arange(len(z)) % 4, "arrow": 0.1 * z} | changed)


@pytest.mark.parametrize("dim", [2, 3])
def test_rows_of_panels_of_one_size(dim):
    figure = stills([("network", [still(dim), still(dim)]), ("free", [still(dim, arrow=None)])])
    boxes = [axes.get_position().bounds for axes in figure.axes]
    assert len(boxes) == 3
    np.testing.assert_allclose([box[2] for box in boxes], boxes[0][2])
    assert boxes[0][1] == boxes[1][1] > boxes[2][1]
    assert {text.get_text() for axes in figure.axes for text in axes.texts} == {"network", "free", "it. 0"}


def test_the_far_side_of_a_sphere_is_paler_and_points_keep_their_length():
    for dim, sides in ((3, 2), (2, 1)):
        found = [each for each in stills([("", [still(dim)])]).axes[0].collections if isinstance(each, PathCollection)]
        held = [len(each.get_offsets()) for each in found if len(each.get_offsets())]
        assert (len(held), sum(held)) == (sides, 20)
    pole = Still("", np.array([[0.0, 0.0, 1.0], [0.58, 0.7, 0.42]]), np.array([0, 1]))
    found = stills([("", [pole])]).axes[0].collections
    points = np.concatenate([each.get_offsets() for each in found if len(each.get_offsets())])
    assert (np.linalg.norm(points, axis=1) <= 1.001).all()
    assert any(abs(x) < 1e-9 and y > 0.8 for x, y in points)  # the pole of the third axis is above the middle


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "Expected `rows` with a still in each, but got none"),
        ([("", [still(2), still(3)])], r"Expected points \(n, 2\) or \(n, 3\) throughout, but got \[\(2,\), \(3,\)\]"),
        ([("", [still(2, arrow=np.zeros((3, 2)))])], "Expected points, and arrows of their shape, all finite"),
        ([("", [still(2, z=np.full((20, 2), np.nan))])], "Expected points, and arrows of their shape, all finite"),
        ([("", [still(2, label=np.full(20, 10))])], "Expected a label from 0 to 9 for each point of 'it. 0'"),
    ],
)
def test_bad_input(rows, message):
    with pytest.raises(ValueError, match=message):
        stills(rows)
