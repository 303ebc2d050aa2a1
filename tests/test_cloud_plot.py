import numpy as np
import pytest
from matplotlib.colors import to_rgb
from recipes import beside

from lightning_ssl_geometry.plots import Caption

module = beside("variational_and_dynamics", "draw_clouds")
CLASSES, clouds = module.CLASSES, module.clouds

NAMES = [f"class {k}" for k in range(10)]


def panel(title="a", n=50, scale=1.0):
    generator = np.random.default_rng(0)
    return title, scale * generator.normal(size=(n, 2)), np.arange(n) % 10


def test_each_cloud_has_a_square_of_its_own_scale_and_all_points_in_it():
    found = clouds([panel("a"), panel("b", scale=1e6)], names=NAMES, caption=Caption(title="t", notes=("n",)))
    squares = [axes for axes in found.axes if axes.collections]
    assert len(squares) == 2
    for axes, scale in zip(squares, (1.0, 1e6), strict=True):
        (points,) = axes.collections
        xy = np.asarray(points.get_offsets())
        assert sorted(map(tuple, xy)) == sorted(map(tuple, panel(scale=scale)[1]))
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        assert right - left == pytest.approx(high - low)
        assert (xy > [left, low]).all()
        assert (xy < [right, high]).all()
        box = axes.get_window_extent()
        assert box.width == pytest.approx(box.height)


def test_points_have_their_classes_colours_which_differ_and_no_class_lies_above_all_others():
    name, z, label = panel(n=500)
    found = clouds([(name, z, label)], names=NAMES)
    (points,) = found.axes[0].collections
    drawn = zip(points.get_offsets(), points.get_facecolor(), strict=True)
    colors = {tuple(xy): tuple(color[:3]) for xy, color in drawn}
    assert all(colors[tuple(xy)] == to_rgb(CLASSES[kind]) for xy, kind in zip(z, label, strict=True))
    texts = {text.get_text(): text.get_color() for axes in found.axes for text in axes.texts}
    assert all(texts[f"\N{BLACK CIRCLE} {word}"] == color for word, color in zip(NAMES, CLASSES, strict=True))
    assert len({tuple(color) for color in points.get_facecolor()[-50:]}) > 5
    rgb = np.array([to_rgb(color) for color in CLASSES])
    assert (np.linalg.norm(rgb[:, None] - rgb[None], axis=-1) + 9 * np.eye(10)).min() > 0.3


@pytest.mark.parametrize(
    ("panels", "names", "message"),
    [
        ([], NAMES, "Expected `panels` with a point in each, but got none"),
        ([panel()], [], "Expected `names` of 1 to 10 classes, but got 0"),
        ([panel()], NAMES[:5], "Expected labels from 0 to 4, places in `names`, but got 0 to 9"),
        ([("a", np.zeros((3, 3)), np.zeros(3, int))], NAMES, r"Expected points \(n, 2\).* but got \(3, 3\)"),
        ([("a", np.full((3, 2), np.nan), np.zeros(3, int))], NAMES, "all finite"),
    ],
)
def test_what_cannot_be_drawn_is_refused(panels, names, message):
    with pytest.raises(ValueError, match=message):
        clouds(panels, names=names)
