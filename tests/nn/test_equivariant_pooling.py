"""The modules that reduce feature maps, each against its formula with the axes written out."""

import pytest
import torch

from lightning_ssl_geometry.nn.equivariant import GroupClassifier, GroupConvClassifier, GroupPool


def maps(n=3, channels=4, order=5, height=6, width=7):
    return torch.rand(n, channels, order, height, width)


def test_the_pool_reduces_the_group_and_then_averages_over_space():
    z = maps()
    elements = [z[:, :, g] for g in range(5)]
    largest = torch.stack(elements).max(0).values
    torch.testing.assert_close(GroupPool()(z), largest.flatten(2).mean(2))
    torch.testing.assert_close(GroupPool("mean")(z), sum(elements).flatten(2).mean(2) / 5)
    torch.testing.assert_close(GroupPool()(z[:, :, 0]), z[:, :, 0].flatten(2).mean(2))
    assert torch.equal(GroupPool()(z[:, :, 0, 0, 0]), z[:, :, 0, 0, 0])


@pytest.mark.parametrize("axes", [1, 3, 6])
def test_the_pool_refuses_other_numbers_of_axes(axes):
    with pytest.raises(ValueError, match=r"Expected `z` of shape .* or \(N, D\), but got"):
        GroupPool()(torch.zeros([2] * axes))


def test_the_classifier_for_cifar10_is_its_formula():
    z, network = maps(), GroupClassifier(4, 10).eval()
    torch.nn.init.normal_(network.norm.running_mean)
    largest = torch.stack([z[:, :, g] for g in range(5)]).max(0).values
    shifted = (largest - network.norm.running_mean[:, None, None]) / (1 + network.norm.eps) ** 0.5
    pooled = shifted.clamp(min=0).flatten(2).mean(2)
    torch.nn.init.normal_(network.last_norm.running_mean)
    normed = (pooled - network.last_norm.running_mean) / (1 + network.last_norm.eps) ** 0.5
    expected = normed @ network.linear.weight.T + network.linear.bias
    torch.testing.assert_close(network(z), expected)


@pytest.mark.parametrize(("group", "order"), [("rotation", 4), ("scale", 6)])
def test_the_classifier_for_mnist_is_its_formula(group, order):
    network = GroupConvClassifier(4, 10, group=group)
    conv = network.conv
    sizes = (conv.kernel_size, conv.effective_size, conv.stride, conv.padding)
    assert sizes == (7, 3, 2, 0)  # Appendix B of Keller et al. 2022
    assert (conv.in_channels, conv.out_channels, len(conv.scales) * conv.rotations) == (4, 4, order)
    for side, positions in ((7, 1), (8, 1), (10, 4)):
        z = maps(order=order, height=side, width=side)
        inner = conv(z)
        assert inner.flatten(3).shape[3] == positions
        largest = torch.stack([inner[:, :, g] for g in range(order)]).max(0).values
        expected = largest.flatten(2).mean(2) @ network.linear.weight.T + network.linear.bias
        torch.testing.assert_close(network(z), expected)
