"""The bundles that are a positive pair, by their shape and by the view that they come from."""

import pytest
import torch

from lightning_ssl_geometry.methods.fiber_pairs import FiberPairs


def test_the_default_base_space_is_one_group_element():
    features = torch.arange(4.0).expand(5, 3, 4).reshape(5, 3, 4, 1, 1)
    found = FiberPairs("h-ssl", "rotation")(features, torch.rand(5, 2), (1, 4))
    assert found.shape == (2, 5, 3)


def test_the_modes_take_their_bundles_from_these_views():
    """Features that tell view and place."""
    first = torch.arange(4.0).view(1, 1, 2, 2)
    uniform = torch.tensor([[0.3, 0.8]])  # the second and the fourth place
    expected = {"h-ssl": [1, 3], "a-ssl": [1, 11], "hybrid": [1, 11, 3]}
    for mode, values in expected.items():
        pairs = FiberPairs(mode, "translation")
        maps = torch.cat(pairs.chosen((first, first + 10)))
        assert pairs(maps, uniform, None).flatten().tolist() == values, mode


def test_a_group_axis_needs_its_shape_unless_it_has_one_element():
    pairs = FiberPairs("h-ssl", "translation")
    assert pairs(torch.rand(5, 3, 1, 2, 2), torch.rand(5, 2), None).shape == (2, 5, 3)
    for order in (2, 4):
        with pytest.raises(ValueError, match=f"`group_shape` .* whose group axis has length {order}, but got None"):
            pairs(torch.rand(5, 3, order, 2, 2), torch.rand(5, 2), None)


def test_the_second_base_space_is_any_within_the_distance_equally_often():
    """Orientations 0, 1 and 2 are within one step of orientation 1; 3 is not."""
    features = torch.arange(4.0).expand(6, 1, 4).reshape(6, 1, 4, 1, 1)
    uniform = torch.stack([torch.full((6,), 0.3), (torch.arange(6) + 0.5) / 6], dim=1)
    first, second = FiberPairs("h-ssl", "rotation", max_distance=1)(features, uniform, (1, 4))
    assert first.flatten().tolist() == [1] * 6
    assert sorted(second.flatten().tolist()) == [0, 0, 1, 1, 2, 2]
