"""How feature maps lie in memory, which no value depends on, and the layers that go by it."""

import itertools

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from lightning_ssl_geometry.nn.equivariant import layers
from lightning_ssl_geometry.nn.equivariant.layers import GroupBatchNorm, GroupConv2d, LiftingConv2d, PointwiseConv2d

PAPER = (1.0, 1.25, 1.33, 1.5, 1.66, 1.75)  # scales of Keller et al., Appendix B


@pytest.fixture
def double():
    """Modules made in double precision, whose basis is not rounded."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def shares_memory_with_its_slices(z):
    images = z.permute(2, 0, 1, 3, 4).flatten(0, 1)
    return images.data_ptr() == z.data_ptr() and images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("pays", [True, False])
@pytest.mark.parametrize("in_channels", [1, 3])
@pytest.mark.parametrize(
    ("scales", "rotations", "rotation_size"), [((1.0, 1.8), 4, 1), ((1.0, 1.8), 4, 4), (PAPER, 1, 1)]
)
def test_the_group_is_outermost_in_memory_and_the_channels_innermost(
    in_channels, scales, rotations, rotation_size, pays, monkeypatch
):
    monkeypatch.setattr(layers, "pays", lambda *_, **__: pays)
    lift = LiftingConv2d(in_channels, 3, 5, 3, scales=scales, rotations=rotations)
    conv = GroupConv2d(3, 5, 5, 3, scales=scales, rotations=rotations, rotation_size=rotation_size)
    for x in layouts(torch.randn(2, in_channels, 9, 9)):
        assert shares_memory_with_its_slices(lift(x))
    for layer in (conv, PointwiseConv2d(3, 2, stride=2), GroupBatchNorm(3), nn.ReLU()):
        assert shares_memory_with_its_slices(layer(lift(x)))
        assert shares_memory_with_its_slices(layer(lift(x).contiguous())) == (not isinstance(layer, nn.ReLU))


@pytest.mark.parametrize("pays", [True, False])
@pytest.mark.parametrize("in_channels", [1, 3])
@pytest.mark.parametrize("scales", [(1.0,), (1.0, 1.1)])
def test_one_convolution_leaves_the_group_next_to_the_channels(in_channels, scales, pays, monkeypatch):
    monkeypatch.setattr(layers, "pays", lambda *_, **__: pays)
    lift = LiftingConv2d(in_channels, 3, 5, 3, scales=scales, rotations=4)
    for x in layouts(torch.randn(2, in_channels, 9, 9)):
        assert has_the_group_next_to_the_channels(lift(x))
    z = lift(x)
    for layer in (GroupBatchNorm(3), nn.ReLU(), GroupConv2d(3, 5, 5, 3, rotations=4, rotation_size=4, bias=True)):
        if z.shape[2] == 4 or not isinstance(layer, GroupConv2d):
            assert has_the_group_next_to_the_channels(layer(z))


def test_interacting_orientations_do_without_copies(monkeypatch):
    """Batch norm and the convolutions get views of the feature map."""
    seen = []
    monkeypatch.setattr(nn.BatchNorm2d, "forward", lambda self, x: seen.append(x) or x)
    monkeypatch.setattr(GroupConv2d, "_at_scale", lambda self, s, images: seen.append(images[0]) or images)
    z = LiftingConv2d(1, 3, 5, 3, rotations=4)(torch.randn(2, 1, 9, 8))
    for layer in (GroupBatchNorm(3), GroupConv2d(3, 3, 5, 3, rotations=4, rotation_size=4)):
        assert layer(z).shape == z.shape
        assert seen[-1].data_ptr() == z.data_ptr()
        assert seen[-1].is_contiguous(memory_format=torch.channels_last)


def has_the_group_next_to_the_channels(z):
    return z.permute(0, 3, 4, 2, 1).is_contiguous()


def layouts(z):
    """The same values in every order of the axes in memory."""
    for order in itertools.permutations(range(1, z.ndim)):
        back = [0, *(1 + order.index(axis) for axis in range(1, z.ndim))]
        yield z.permute(0, *order).contiguous().permute(back)
    yield z.to(memory_format=torch.channels_last if z.ndim == 4 else torch.channels_last_3d)
    yield z.movedim(2, 0).contiguous(memory_format=torch.contiguous_format).movedim(0, 2)
    yield torch.cat([z, z], dim=-1)[..., : z.shape[-1]]
    yield z[:1].expand_as(z)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rotation_size", [1, 4])
@pytest.mark.parametrize("pays", [True, False])
def test_any_layout_gives_the_same_values(double, channels, rotation_size, pays, monkeypatch):
    monkeypatch.setattr(layers, "pays", lambda *_, **__: pays)
    conv = GroupConv2d(channels, 3, 5, 3, scales=(1.0, 1.5), rotations=4, scale_size=2, rotation_size=rotation_size)
    lift, pointwise, norm = LiftingConv2d(channels, 3, 5, 3), PointwiseConv2d(channels, 3), GroupBatchNorm(channels)
    z = torch.randn(2, channels, 8, 6, 7)
    for layer, values in ((lift, z[:, :, 0]), (conv, z), (pointwise, z), (norm, z)):
        for other in layouts(values):
            assert_close(layer(other), layer(other.contiguous()))


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (2, 0, 3, 4, 1), (0, 3, 4, 2, 1)])
def test_batch_norm_is_that_over_samples_group_and_space(double, order):
    ours, theirs = GroupBatchNorm(3), nn.BatchNorm3d(3)
    for norm in (ours, theirs):
        nn.init.constant_(norm.weight, 1.3)
    z, weight = torch.randn(2, 2, 3, 6, 5, 4)
    z = z.permute(order).contiguous().permute([order.index(axis) for axis in range(5)])
    for training in (True, True, False):
        found = []
        for norm in (ours.train(training), theirs.train(training)):
            x = z.detach().requires_grad_()
            y = norm(x)
            found.append((y, *torch.autograd.grad((weight * y).sum(), (x, norm.weight, norm.bias))))
        assert_close(*found)
        assert_close(dict(ours.state_dict()), dict(theirs.state_dict()))


def test_pointwise_convolution_is_an_einsum(double):
    z = torch.randn(2, 3, 4, 7, 6)
    for stride in (1, 2):
        conv = PointwiseConv2d(3, 5, stride)
        expected = torch.einsum("oc,ncghw->noghw", conv.weight[:, :, 0, 0], z)[..., ::stride, ::stride]
        assert_close(conv(z), expected)


@pytest.mark.parametrize("cls", [LiftingConv2d, GroupConv2d])
def test_modules_take_the_memory_format_of_channels_last(cls):
    layer = cls(2, 3, 5, 3, scales=(1.0, 1.8), rotations=4)
    x = torch.randn(2, 2, 9, 8) if cls is LiftingConv2d else torch.randn(2, 2, 8, 9, 8)
    expected = layer(x)
    assert_close(layer.to(memory_format=torch.channels_last)(x), expected)
    assert layer.weight.is_contiguous()
