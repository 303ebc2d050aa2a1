"""The paper's backbones and their controls: shapes, sizes and what they refuse."""

import pytest
import torch

from lightning_ssl_geometry.nn import (
    EquivariantCNN,
    EquivariantResNet,
    UnstructuredCNN,
    UnstructuredMLP,
    UnstructuredResNet,
)


@pytest.mark.parametrize(
    ("group", "order"), [("translation", 1), ("rotation", 4), ("scale", 6), ("scale-rotation", 24)]
)
def test_the_maps_of_the_papers_network_for_mnist(group, order):
    network = EquivariantCNN(width=2, group=group)
    assert network(torch.rand(2, 1, 29, 29)).shape == (2, 8, order, 8, 8)
    assert (network.out_dim, network.group_shape[0] * network.group_shape[1]) == (8, order)


@pytest.mark.parametrize(("side", "maps"), [(28, 7), (29, 8)])
def test_28_pixels_give_7_and_29_the_papers_8(side, maps):
    assert EquivariantCNN(width=1, group="translation")(torch.rand(2, 1, side, side)).shape[-1] == maps


@pytest.mark.parametrize(("side", "maps"), [(25, 7), (28, 7), (32, 8), (33, 9)])
def test_the_residual_network_for_cifar(side, maps):
    network = EquivariantResNet(width=1, group="translation", blocks=1)
    assert network(torch.rand(2, 3, side, side)).shape == (2, 8, 1, maps, maps)


@pytest.mark.parametrize(("side", "maps"), [(25, 4), (33, 5), (64, 8)])
def test_the_residual_network_for_tiny_imagenet(side, maps):
    network = EquivariantResNet(width=1, group="translation", widths=(1, 2, 4, 8), strides=(1, 2, 2, 2), blocks=2)
    assert network(torch.rand(2, 3, side, side)).shape == (2, 8, 1, maps, maps)


def test_controls_have_the_shape_of_their_counterparts():
    x, y = torch.rand(2, 1, 29, 29), torch.rand(2, 3, 33, 33)
    assert UnstructuredCNN(width=1)(x).shape == EquivariantCNN(width=1)(x).shape
    equivariant, plain = EquivariantResNet(width=1, blocks=1), UnstructuredResNet(width=1, blocks=1)
    assert plain(y).shape == equivariant(y).shape
    assert (plain.out_dim, plain.group_shape) == (equivariant.out_dim, equivariant.group_shape)
    assert UnstructuredMLP(29 * 29)(x).flatten(2).shape == (2, 128, 16)


def test_the_mlps_rows_are_parts_of_its_output():
    network = UnstructuredMLP(81, width=4).eval()
    x = torch.rand(2, 1, 9, 9)
    assert torch.equal(network(x).flatten(2).transpose(1, 2), network.layers(x).unflatten(1, (16, 4)))


@pytest.mark.parametrize("network", [EquivariantResNet, UnstructuredResNet])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"blocks": 0}, "Expected `blocks` to be an integer >= 1, but got 0"),
        ({"width": 0}, "Expected `width` to be an integer >= 1, but got 0"),
        ({"strides": (1, 2)}, r"Expected as many `strides` as `widths`, but got \[1, 2\] and \[2, 4, 8\]"),
    ],
)
def test_wrong_arguments_are_refused(network, arguments, message):
    with pytest.raises(ValueError, match=message):
        network(**arguments)
