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
from lightning_ssl_geometry.nn.equivariant.basis import hermite_gaussian_basis
from lightning_ssl_geometry.nn.equivariant.groups import check_exact_size, elements
from lightning_ssl_geometry.nn.equivariant.layers import GroupConv2d, LiftingConv2d, PointwiseConv2d


@pytest.mark.parametrize(
    ("group", "order"), [("translation", 1), ("rotation", 4), ("scale", 6), ("scale-rotation", 24)]
)
def test_the_maps_of_the_papers_network_for_mnist(group, order):
    network = EquivariantCNN(width=2, group=group, kernels="paper")
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
    assert UnstructuredCNN(width=1)(x).shape == EquivariantCNN(width=1, kernels="paper")(x).shape
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


def layers(network):
    """The convolutions in the order of the forward pass, as (inputs, outputs, kernel, effective size, stride, padding).

    A plain convolution has None in place of the effective size, and a 1 x 1 convolution is left out.
    """
    found = []
    for each in network.modules():
        if isinstance(each, torch.nn.Conv2d):
            (kernel, _), (stride, _), (padding, _) = each.kernel_size, each.stride, each.padding
            found.append((each.in_channels, each.out_channels, kernel, None, stride, padding))
        elif isinstance(each, GroupConv2d | LiftingConv2d):
            sizes = (each.kernel_size, each.effective_size, each.stride, each.padding)
            found.append((each.in_channels, each.out_channels, *sizes))
    return [row for row in found if row[2] > 1]


def shortcuts(network):
    """The 1 x 1 convolutions, as (inputs, outputs, stride)."""
    found = [each for each in network.modules() if isinstance(each, torch.nn.Conv2d) and each.kernel_size == (1, 1)]
    return [(each.in_channels, each.out_channels, each.stride[0]) for each in found]


# Appendix B of Keller et al. 2022
MNIST = [(1, 32, 11, 11, 1, 5), (32, 64, 7, 3, 2, 3), (64, 128, 7, 3, 2, 3)]
CIFAR10_STAGES = [(64, 128, 1), (128, 256, 2), (256, 512, 2)]  # inputs, outputs and stride of three blocks each


def cifar10():
    """ResNet-20's convolutions: two, then two in each of nine blocks."""
    rows = [(3, 9, 7, 7, 1, 3), (9, 64, 7, 3, 1, 3)]
    for a, b, stride in CIFAR10_STAGES:
        rows += [(a, b, 7, 3, stride, 3), *[(b, b, 7, 3, 1, 3)] * 5]
    return rows


def plain(rows, copies):
    """The same layers with `copies` times as many channels, but for the image's."""
    a, b, kernel, _, stride, padding = rows[0]
    first = (a, b * copies, kernel, None, stride, padding)
    return [first, *((a * copies, b * copies, k, None, s, p) for a, b, k, _, s, p in rows[1:])]


def test_the_network_for_mnist_is_the_papers():
    network = EquivariantCNN(kernels="paper")
    assert layers(network) == MNIST
    assert (network.out_dim, network.group_shape, network.stride) == (128, (6, 1), 4)
    assert network.scales == (1.0, 1.25, 1.33, 1.5, 1.66, 1.75)


def test_the_accurate_network_is_the_default_for_scales():
    network = EquivariantCNN()
    assert [row[2:5] for row in layers(network)] == [(11, 3, 1), (11, 3, 2), (11, 3, 1)]
    assert (network.stride, network(torch.rand(2, 1, 29, 29)).shape[-1]) == (2, 15)
    assert layers(EquivariantCNN(scales=(1.0, 1.5)))[0][2:5] == (11, 3, 1)  # two scales are enough
    assert layers(EquivariantCNN(group="rotation"))[0][2:5] == layers(EquivariantCNN(kernels="paper"))[0][2:5]


@pytest.mark.parametrize("network", [EquivariantCNN, EquivariantResNet])
def test_a_network_names_its_orientations_if_it_has_two(network):
    found = [network(group=group, rotations=n).orientation for group, n in (("rotation", 2), ("dihedral", 4))]
    assert found == ["rotation", "dihedral"]
    assert [network(group=group).orientation for group in ("scale", "translation")] == [None, None]


def test_the_residual_network_is_the_papers():
    network = EquivariantResNet()
    assert layers(network) == cifar10()
    assert shortcuts(network) == CIFAR10_STAGES
    assert (network.out_dim, network.group_shape, network.stride) == (512, (6, 1), 4)


def test_the_controls_layers_are_six_times_as_wide():
    network = UnstructuredCNN()
    assert layers(network) == plain(MNIST, 6)
    assert (network.out_dim, network.group_shape) == (128, (6, 1))
    network = UnstructuredResNet(width=16)
    sixteen = plain(cifar10(), 6)
    sixteen = [(*(c if c in (3, 54) else c // 4 for c in row[:2]), *row[2:]) for row in sixteen]
    assert layers(network) == sixteen
    assert shortcuts(network) == [(6 * a // 4, 6 * b // 4, stride) for a, b, stride in CIFAR10_STAGES]
    assert (network.out_dim, network.group_shape) == (128, (6, 1))


def test_a_plain_residual_network_has_the_papers_width():
    with torch.device("meta"):
        network = UnstructuredResNet(copies=1)
    assert layers(network) == plain(cifar10(), 1)
    assert (network.out_dim, network.group_shape) == (512, (1, 1))


@pytest.mark.parametrize(("width", "outputs"), [(128, [784, 1024, 2048]), (64, [392, 512, 1024])])
def test_the_mlps_widths_are_the_papers(width, outputs):
    network = UnstructuredMLP(28 * 28, **({} if width == 128 else {"width": width}))
    linear = [each for each in network.modules() if isinstance(each, torch.nn.Linear)]
    assert [(each.in_features, each.out_features) for each in linear] == list(
        zip([784, *outputs[:2]], outputs, strict=True)
    )
    assert (network.out_dim, network.side) == (width, 4)
    assert network.eval()(torch.rand(1, 1, 28, 28)).shape == (1, width, 1, 4, 4)


@pytest.mark.parametrize(("stride", "widens"), [(1, True), (2, False), (2, True), (1, False)])
@pytest.mark.parametrize("network", [EquivariantResNet, UnstructuredResNet])
def test_a_block_adds_its_input_itself_if_shapes_agree(network, stride, widens):
    group = {"group": "translation"} if network is EquivariantResNet else {"copies": 1}
    built = network(width=2, widths=(1 + widens,), strides=(stride,), blocks=1, **group)
    (block,) = (each for each in built.modules() if hasattr(each, "shortcut"))
    assert (block.shortcut is None) == (stride == 1 and not widens)
    # With the last convolution at zero, a block without a shortcut returns its input.
    torch.nn.init.zeros_(list(block.second.parameters())[-1])
    z = torch.rand(2, 2, 1, 5, 5) if network is EquivariantResNet else torch.rand(2, 2, 5, 5)
    expected = z if block.shortcut is None else block.shortcut(block.first(z))
    torch.testing.assert_close(block(z), expected)


@pytest.mark.parametrize(
    ("height", "width", "sizes"),
    [(28, 28, "21, 25, 29, 33"), (29, 30, "25, 29, 33, 37"), (30, 29, "25, 29, 33, 37"), (6, 6, "5, 9, 13")],
)
def test_sizes_with_exact_quarter_turns_are_named(height, width, sizes):
    with pytest.warns(UserWarning, match=f"Images of {height} x {width} pixels .* such as {sizes}: see"):
        check_exact_size(height, width, 4)


@pytest.mark.parametrize("network", [EquivariantCNN, EquivariantResNet])
def test_a_network_looks_at_height_and_width(network):
    settings = {"blocks": 1} if network is EquivariantResNet else {"in_channels": 3}
    built = network(width=1, group="rotation", **settings).eval()
    for height, width in ((13, 14), (14, 13)):
        with pytest.warns(UserWarning, match=f"Images of {height} x {width} pixels"):
            built(torch.rand(1, 3, height, width))
    built(torch.rand(1, 3, 13, 17))


def test_a_group_without_scales_has_scale_1():
    found = [elements(group) for group in ("translation", "rotation", "dihedral", "hue")]
    assert [(each.scales, each.shape) for each in found] == [((1.0,), (1, n)) for n in (1, 4, 8, 3)]


def test_filters_have_scale_1_and_pointwise_layers_stride_1_by_default():
    assert LiftingConv2d(1, 1, 7, 3).scales == GroupConv2d(1, 1, 7, 3).scales == (1.0,)
    (basis,), (of_scale_1,) = hermite_gaussian_basis(7, 3), hermite_gaussian_basis(7, 3, (1.0,))
    assert torch.equal(basis, of_scale_1)
    assert PointwiseConv2d(2, 3)(torch.rand(1, 2, 1, 5, 5)).shape == (1, 3, 1, 5, 5)


def test_the_smallest_kernel_with_two_pixels_is_named():
    # The width at scale 1 is k / 3.2, odd and rounded down: 1 pixel up to k = 6, and 3 from k = 7 on.
    with pytest.raises(ValueError, match="Expected `kernel_size` >= 7 for `effective_size` > 1, but got 5"):
        hermite_gaussian_basis(5, 2, (1.0, 3.2))


def test_the_mlp_needs_one_input_and_one_position_only():
    assert UnstructuredMLP(1, width=128, side=1).eval()(torch.rand(2, 1, 1, 1)).shape == (2, 128, 1, 1, 1)


@pytest.mark.parametrize("kernels", [(), "", (7, 7, 7), ((7, 3, 1), (7, 3, 1)), ((7, 3), (7, 3), (7, 3)), 7, None])
def test_kernels_that_are_no_three_layers_are_refused(kernels):
    of_three = ((5, 2, 1), (7, 3, 2), (5, 3, 1))
    assert [row[2:5] for row in layers(EquivariantCNN(group="rotation", kernels=of_three))] == list(of_three)
    if kernels is None:
        kernels = ((7.0, 3, 1),) * 3
    with pytest.raises(ValueError, match="Expected `kernels` to be "):
        EquivariantCNN(kernels=kernels)
