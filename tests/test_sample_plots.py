"""Figures of samples: images below maps, and embeddings."""

import numpy as np
import pytest

from lightning_ssl_geometry import plots
from lightning_ssl_geometry.plots import Caption, overlay, policy_maps, scatter

SIDE, GRID, SAMPLES = 84, 17, 8


def maps(learned):
    """Images with a square in one of nine places, and a policy that prefers crops over the square."""
    image, probability = np.zeros((SAMPLES, SIDE, SIDE)), np.ones((SAMPLES, GRID, GRID))
    for place in range(SAMPLES):
        top, left = 28 * (place % 3) + 8, 28 * (place // 3) + 8
        image[place, top : top + 12, left : left + 12] = 2.5
        if learned:
            down, right = (4 * np.arange(GRID) + 10 - np.array([[top], [left]]) - 6) / 8
            probability[place] = np.exp(-(down[:, None] ** 2) - right**2)
    return image, probability / probability.sum((1, 2), keepdims=True)


def embeddings(learned, size):
    generator = np.random.default_rng(0)
    z = generator.normal(size=(200, size)) * (1 if learned else 0.1) + (0 if learned else generator.normal(size=size))
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def test_maps_are_as_large_as_their_images_and_on_one_scale():
    image, probability = maps(learned=True)
    figure = policy_maps([("learned", image, probability), ("uniform", *maps(learned=False))])
    *tiles, scale = [axes for axes in figure.axes if axes.images]
    sizes = {tuple(np.round(axes.bbox.size, 6)) for axes in tiles}
    assert len(sizes) == 1
    assert len(set(next(iter(sizes)))) == 1
    heat = [axes.images[0] for axes in tiles if axes.images[0].get_array().shape == (GRID, GRID)]
    assert {picture.get_clim() for picture in heat} == {(0, probability.max())}
    assert f"{probability.max() * GRID**2:.3g} times uniform" in scale.texts[0].get_text()


def test_the_map_of_colours_is_even_to_the_eye():
    figure = policy_maps([("", *maps(learned=True))])
    rgb = figure.axes[1].images[0].get_cmap()(np.linspace(0, 1, 9))[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16  # CIELAB, above 8
    np.testing.assert_allclose(np.diff(lightness)[1:], 11.75, atol=0.8)


def drawn(axes):
    """The visible lines, without the invisible ones that carry values for the page."""
    return [line for line in axes.lines if not (line.get_gid() or "").startswith('["tips"')]


def test_embeddings_of_several_runs_share_a_scale():
    figure = overlay([("learned", embeddings(True, 20)), ("uniform", embeddings(False, 20))], caption=Caption("a"))
    axes = [axes for axes in figure.axes if axes.lines]
    assert [len(drawn(each)) for each in axes] == [200, 200]
    assert axes[0].get_ylim() == axes[1].get_ylim()


def test_points_are_coloured_by_class_where_these_are_few():
    z = embeddings(True, 2)
    for classes, expected in ((10, 10), (11, 1)):
        (axes,) = scatter([("", z, np.arange(200) % classes)]).axes
        points = [line for line in drawn(axes) if line.get_marker() == "o"]
        assert len({line.get_color() for line in points}) == expected
        assert sum(len(line.get_xdata()) for line in points) == 200
        assert np.ptp(axes.get_xlim()) == pytest.approx(np.ptp(axes.get_ylim()))
    (axes,) = scatter([("", z, None)]).axes
    assert drawn(axes)[-1].get_color() == plots.COLORS["blue"]


def test_bad_input():
    image, probability = maps(learned=True)
    with pytest.raises(ValueError, match="`columns` >= 1, but got 0"):
        policy_maps([("", image, probability)], columns=0)
    with pytest.raises(ValueError, match="`runs` with a sample in each, but got none"):
        policy_maps([("", image[:0], probability[:0])])
    with pytest.raises(ValueError, match=r"\(n, H, W\) and probabilities .* but got \(8, 84, 84\) and \(7, 17, 17\)"):
        policy_maps([("", image, probability[:7])])
    with pytest.raises(ValueError, match="`runs` with finite values, but got some that are not"):
        policy_maps([("", image * np.nan, probability)])
    with pytest.raises(ValueError, match="`runs` with a sample in each, but got none"):
        overlay([])
    with pytest.raises(ValueError, match=r"\(n, P\) with P >= 2, all finite, but got \(3, 1\)"):
        overlay([("", np.ones((3, 1)))])
    with pytest.raises(ValueError, match=r"\(n, 2\) and labels \(n,\), but got \(3, 2\) and \(2,\)"):
        scatter([("", np.ones((3, 2)), np.arange(2))])
    with pytest.raises(ValueError, match=r"\(n, 2\) and labels \(n,\), but got \(3, 4\)"):
        scatter([("", np.ones((3, 4)), None)])
