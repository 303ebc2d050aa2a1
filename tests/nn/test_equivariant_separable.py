import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from lightning_ssl_geometry.nn.equivariant import layers, separable
from lightning_ssl_geometry.nn.equivariant.basis import hermite_gaussian_basis, supports
from lightning_ssl_geometry.nn.equivariant.layers import GroupConv2d
from lightning_ssl_geometry.nn.equivariant.separable import line_matrices, pays, separable_conv2d, turn

PAPER = (1.0, 1.25, 1.33, 1.5, 1.66, 1.75)  # scales of Keller et al., Appendix B
ORDERS = {"weights first": (0, 1), "rows first": (1, 0)}


def doubles(*shape):
    return torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("circular", [True, False])
@pytest.mark.parametrize("padding", [-1, 0, 2, 4])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [7, 10])
def test_line_matrices_are_convolutions(size, stride, padding, circular):
    lines, x = doubles(2, 5), doubles(3, 1, size)
    padded = F.pad(x, (padding, padding), mode="circular" if circular and padding > 0 else "constant")
    expected = F.conv1d(padded, lines[:, None], stride=stride)
    matrices = line_matrices(lines, size, expected.shape[-1], stride, padding, circular)
    assert_close(torch.einsum("eyx,nix->ney", matrices, x), expected)


@pytest.mark.parametrize("e", [1, 2, 3, 4])
def test_turned_coefficients_are_those_of_turned_filters(e):
    basis = hermite_gaussian_basis(7, e, (1.2,), rotations=4)[0].flatten(2)
    weight = doubles(3, 2, e**2)
    for r in range(4):
        assert_close(turn(weight, r) @ basis[0], weight @ basis[r])
    assert torch.equal(turn(weight, 4), weight)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("e", "channels", "out_channels"), [(1, 3, 2), (2, 1, 3), (3, 2, 1)])
@pytest.mark.parametrize("channels_last", [True, False])
def test_the_product_is_a_convolution_with_any_lines(
    e, channels, out_channels, stride, order, channels_last, monkeypatch
):
    monkeypatch.setattr(separable, "_multiplications", lambda *_, **__: ORDERS[order])
    x, weight = doubles(2, channels, 8, 11), doubles(out_channels, channels, e, e)
    down, right = doubles(e, 3), doubles(e, 5)  # unequal, so that no axis is taken for the other
    filters = torch.einsum("oimn,nx,my->oixy", weight, down, right)
    expected = F.conv2d(x, filters, stride=stride, padding=(1, 2))
    rows, columns = (
        line_matrices(lines, size, out, stride, lines.shape[1] // 2, circular=False)
        for lines, size, out in zip((down, right), x.shape[2:], expected.shape[2:], strict=True)
    )
    x = x.to(memory_format=torch.channels_last) if channels_last else x
    z = separable_conv2d(x, weight.flatten(2), rows, columns)
    assert_close(z, expected)
    assert z.permute(0, 2, 3, 1).is_contiguous()


@pytest.mark.parametrize("order", ORDERS)
def test_no_samples_give_none(order, monkeypatch):
    monkeypatch.setattr(separable, "_multiplications", lambda *_, **__: ORDERS[order])
    rows = line_matrices(torch.ones(2, 3), 5, 3, 2, 1, circular=False)
    assert separable_conv2d(torch.zeros(0, 2, 5, 5), torch.zeros(4, 2, 4), rows, rows).shape == (0, 4, 3, 3)


@pytest.mark.parametrize("thin", [1, 2])
def test_the_rule_counts_multiplications(thin, monkeypatch):
    """By torch's counter; with a weight, those in the products with the matrices count as many times."""
    monkeypatch.setattr(separable, "THIN", thin)
    (i, o, e), size, out = (3, 5, 2), [8, 11], [4, 6]
    count = separable._multiplications(i, o, e, size, out)
    rows, columns = torch.zeros(e, out[0], size[0]), torch.zeros(e, out[1], size[1])
    for order, expected in zip(ORDERS.values(), count, strict=True):
        monkeypatch.setattr(separable, "_multiplications", lambda *_, order=order, **__: order)
        with FlopCounterMode(display=False) as counter:
            separable_conv2d(torch.zeros(1, i, *size), torch.zeros(o, i, e**2), rows, columns)
        with_weights = e**2 * i * o * out[1] * (size[0] if order == (0, 1) else out[0])
        thin_products = counter.get_total_flops() / 2 - with_weights
        assert thin * thin_products + with_weights == expected


def test_the_layers_for_which_it_pays():
    """Those of Keller et al., Appendix B, at each scale: for MNIST the second and third, and a block for CIFAR-10."""
    widths = supports(7, PAPER)
    assert [pays(32, 64, 3, k, [29, 29], [15, 15]) for k in widths] == [False] * 3 + [True] * 3
    assert all(pays(64, 128, 3, k, [15, 15], [8, 8]) for k in widths)
    assert all(pays(128, 128, 3, k, [33, 33], [33, 33]) for k in widths)
    assert not pays(128, 128, 3, 3, [33, 33], [33, 33])  # as many functions as pixels
    assert not pays(64, 128, 3, 7, [400, 400], [400, 400])  # matrices of 400 x 400 with 7 numbers a row
    assert not any(pays(64, 128, 3, 7, [5, 5], empty) for empty in ([0, 0], [5, 0], [0, 5]))


@pytest.mark.parametrize("out_size", [[8, 0], [0, 8], [0, 0], [-1, 8], [8, -1]])
def test_it_does_not_pay_without_an_output(out_size):
    """An ordinary convolution is then asked for, which refuses such images."""
    assert not pays(64, 128, 3, 7, [15, 15], out_size)


def test_layers_go_by_the_rule(monkeypatch):
    """At each scale, and only on processors."""
    wide = []
    monkeypatch.setattr(
        GroupConv2d, "_separable", lambda self, s, images, *_, **__: wide.append(s) or self._filters_at(s)
    )
    monkeypatch.setattr(GroupConv2d, "_convolve", lambda self, x, filters: filters)
    conv = GroupConv2d(32, 64, 7, 3, scales=PAPER, stride=2)
    images = [torch.zeros(1, 32, 29, 29)]
    for s in range(6):
        conv._at_scale(s, images)
    assert wide == [3, 4, 5]
    assert conv.to("meta")._at_scale(5, images)[0].device.type == "meta"
    assert wide == [3, 4, 5]


@pytest.mark.parametrize("padding_mode", ["zeros", "circular"])
@pytest.mark.parametrize("basis_type", ["A", "fitted"])
@pytest.mark.parametrize(("rotations", "rotation_size"), [(1, 1), (4, 4)])
def test_single_precision_agrees_with_the_convolution(padding_mode, basis_type, rotations, rotation_size, monkeypatch):
    conv = GroupConv2d(
        8,
        16,
        7,
        3,
        scales=(1.0, 1.5),
        rotations=rotations,
        rotation_size=rotation_size,
        stride=2,
        padding_mode=padding_mode,
        basis_type=basis_type,
    )
    z = torch.rand(4, 8, 2 * rotations, 15, 17)
    found = []
    for decision in (True, False):
        monkeypatch.setattr(layers, "pays", lambda *_, d=decision, **__: d)
        found.append(conv(z))
    product, convolution = found
    assert (product - convolution).norm() < 1e-5 * convolution.norm()  # measured: 1e-6


@pytest.mark.parametrize(
    ("channels", "size", "out_size", "expected"),
    [
        # 49 x 64 x 128 = 401408 multiplications per pixel of a convolution, and 86400 + 91008 of the products
        ((64, 128), [15, 15], [1, 1], True),
        # 49 x 32 x 29 = 45472, and 146334 + 23490
        ((1, 32), [29, 29], [1, 29], False),
    ],
)
def test_what_pays_depends_on_both_sides_of_the_output(channels, size, out_size, expected):
    assert pays(*channels, 3, 7, size, out_size) == expected
