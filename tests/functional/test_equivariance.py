import copy
import itertools

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.functional import equivariance_error, invariance_error, rescale
from lightning_ssl_geometry.functional.groups.equivariance import (
    EquivarianceSettings,
    equivariance_sums,
    group_elements,
)
from lightning_ssl_geometry.nn.equivariant.layers import GroupBatchNorm, GroupConv2d, LiftingConv2d

SCALES = (1.0, 1.33, 1.66)


def images(size, n=3, channels=2):
    return torch.randn(n, channels, size, size, dtype=torch.float64)


def blobs(deviation, size=33):
    """Gaussians of that width, one off the centre."""
    y, x = torch.meshgrid(torch.arange(size) - size // 2, torch.arange(size) - size // 2, indexing="ij")
    bump = torch.stack([torch.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * deviation**2)) for a, b in ((0, 0), (3, -2))])
    return bump[:, None].double()


def rotation_network(strides=(1, 2, 2), in_channels=2):
    return nn.Sequential(
        LiftingConv2d(in_channels, 4, 5, 3, rotations=4, stride=strides[0]),
        nn.ReLU(inplace=True),
        GroupConv2d(4, 5, 5, 3, rotations=4, rotation_size=4, stride=strides[1], bias=True),
        GroupBatchNorm(5),
        nn.ReLU(inplace=True),
        GroupConv2d(5, 6, 5, 3, rotations=4, stride=strides[2]),
    ).double().eval()  # fmt: skip


def translation_network(mode):
    return nn.Sequential(
        LiftingConv2d(2, 4, 5, 3, stride=2, padding_mode=mode),
        nn.ReLU(),
        GroupConv2d(4, 4, 5, 3, stride=2, padding_mode=mode, bias=True),
    ).double()  # fmt: skip


def scale_network(rotations=1, scales=SCALES):
    return nn.Sequential(
        LiftingConv2d(1, 3, 11, 3, scales=scales, rotations=rotations),
        nn.ReLU(),
        GroupConv2d(3, 3, 11, 3, scales=scales, rotations=rotations),
    ).double()


def plain():
    return nn.Sequential(nn.Conv2d(2, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 4, 5, padding=2)).double()


def error(*args, **settings):
    return equivariance_error(*args, **settings)["output"]


class Orientations(nn.Module):
    """Any convolutions become equivariant by turning the image before them and the maps after them."""

    def __init__(self, copies):
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(2, 3, 3, padding=1) for _ in range(copies))
        self.double()

    def forward(self, x):
        turns = [(r, conv) for r in range(4) for conv in self.convolutions]
        return torch.stack([conv(x.rot90(-r, (-2, -1))).rot90(r, (-2, -1)) for r, conv in turns], dim=2)


class Ramp(nn.Module):
    """It tells left from right."""

    def forward(self, z):
        return z + torch.arange(z.shape[-1], dtype=z.dtype)


# --- what is exact has no error


@pytest.mark.parametrize("size", [13, 17, 29])
def test_rotation_networks_are_exact_on_odd_sizes(size):
    found = error(rotation_network(), images(size))
    assert found.shape == (3,)
    assert found.dtype == torch.float64
    assert (found < 1e-20).all()


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("size", [6, 7])
def test_a_quarter_turn_is_a_quarter_of_the_orientations(copies, size):
    network, x = Orientations(copies), images(size)
    assert (error(network, x) < 1e-20).all()
    assert (error(network, x, group_shape=(1, 4 * copies), turns=4) < 1e-20).all()
    network.group_shape = (copies, 4)  # another order of the same maps
    assert (error(network, x) > 0.1).all() if copies == 2 else (error(network, x) < 1e-20).all()


def test_translations_are_exact_with_circular_padding():
    network, x = translation_network("circular"), images(16)
    found = error(network, x, "translation", circular=True)
    assert found.shape == (4,)
    assert (found < 1e-20).all()
    assert (error(network, x, "translation", circular=True, stride=4) < 1e-20).all()
    assert (error(network, x, "translation", circular=True, stride=2) > 0.1).all()  # not its stride
    assert (error(network, x, "translation") > 1e-3).all()  # what leaves does not come back


def test_translations_are_exact_inside_of_what_the_border_reaches():
    network, x = translation_network("zeros"), images(33)
    found = torch.stack([error(network, x, "translation", margin=margin) for margin in (0, 2, 8)])
    assert (found[0] > found[1]).all()
    assert (found[1] > 1e-6).all()
    assert (found[2] < 1e-20).all()  # filters reach 2 pixels, and 2 places of 2


def test_what_enters_at_the_border_is_left_out():
    """One filter of one pixel reaches nowhere, and its bias tells what is there from what is not."""
    network = nn.Conv2d(2, 3, 1).double()
    assert (error(network, images(6), "translation", fill=5.0) < 1e-20).all()


def test_sizes_that_strides_do_not_divide():
    """9 pixels and stride 4 make 3 places: H / H' is 3, so it has to be said, or the network says it."""
    network, x = translation_network("zeros"), images(9)
    with pytest.raises(ValueError, match="but got none"):
        error(network, x, "translation", stride=4, margin=8)
    guess, said = error(network, x, "translation"), error(network, x, "translation", stride=4)
    network.stride = 4
    assert torch.equal(error(network, x, "translation"), said)
    assert not torch.allclose(guess, said)


# --- what is not has one


def test_even_sizes_and_strides_are_not_exact():
    assert (error(rotation_network(), images(16)) > 0.1).all()
    assert (error(rotation_network((1, 1, 1)), images(16)) < 1e-20).all()


def test_a_plain_network_is_not_equivariant_to_turns():
    found = error(plain(), images(17))
    assert (found > 0.3).all()
    turned = error(plain(), images(17), "translation", circular=True)
    assert (turned < found.min() / 2).all()  # it is to translations, but for the border


def test_scaling_is_approximate_and_better_for_smooth_images():
    network = scale_network()
    errors = [error(network, blobs(deviation), "scale", scales=SCALES) for deviation in (1, 2, 4)]
    for rough, smooth in itertools.pairwise(errors):
        assert rough.shape == (3,)
        assert (smooth < rough).all()
    assert (errors[-1] > 0).all()
    assert (errors[0] < 0.1).all()
    random = nn.Conv2d(1, 9, 11, padding=5).double()
    assert (error(random, blobs(2), "scale", scales=SCALES) > 5 * errors[1]).all()


def test_scales_and_orientations_at_once():
    network = scale_network(4)
    network.group_shape, network.scales = (3, 4), SCALES
    assert (error(network, blobs(2)) < 1e-20).all()
    assert (error(network, blobs(3), "scale") < 0.05).all()
    other = nn.Sequential(network)
    other.forward = lambda x: network(x).unflatten(2, (3, 4)).transpose(2, 3).flatten(2, 3)  # at place r S + s
    other.group_shape, other.scales = (3, 4), SCALES
    assert (error(other, blobs(2)) > 0.1).all()
    assert (error(other, blobs(3), "scale") > 0.1).any()


# --- the definition


def test_it_is_the_definition():
    network, x = rotation_network((1, 1, 1)), images(6)
    broken = nn.Sequential(network, Ramp())
    z = broken(x).detach()
    for place, r in enumerate((1, 2, 3)):
        moved = broken(x.rot90(r, (-2, -1))).detach()
        difference = reference = 0.0
        for n in range(len(x)):
            for k in range(4):
                expected = z[n, :, (k - r) % 4].rot90(r, (-2, -1))
                difference += (moved[n, :, k] - expected).square().sum()
                reference += expected.square().sum()
        torch.testing.assert_close(error(broken, x)[place].detach(), difference / reference)


def test_the_scales_definition():
    for scales, pairs in ((SCALES, [(0, 1), (0, 2), (1, 2)]), (SCALES[:2], [(0, 1)])):
        network, x = scale_network(scales=scales), blobs(2)
        z = network(x).detach()
        for place, (i, j) in enumerate(pairs):
            factor = scales[i] / scales[j]
            moved, expected = network(rescale(x, factor)).detach()[:, :, i], rescale(z[:, :, j], factor)
            inner = slice(round(16.5 * (1 - factor) + 0.5), -round(16.5 * (1 - factor) + 0.5))
            moved, expected = moved[..., inner, inner], expected[..., inner, inner]
            found = error(network, x, "scale", scales=scales)[place].detach()
            torch.testing.assert_close(found, (moved - expected).square().sum() / expected.square().sum())


def test_vectors_are_compared_as_they_are():
    """One pixel that moves to another place: 2 squares differ, of 1."""
    x = torch.zeros(1, 1, 3, 3)
    x[..., 0, 0] = 1
    assert error(nn.Flatten(), x).tolist() == [2, 2, 2]
    assert error(nn.Flatten(), x, "translation", stride=1, circular=True).tolist() == [2, 2, 2, 2]
    assert error(nn.Flatten(), x, "translation", stride=1).tolist() == [2, 1, 2, 1]  # up and left it is gone
    assert error(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), x).tolist() == [0, 0, 0]


def test_maps_of_one_place_do_not_move():
    x = images(9)
    for pool in (nn.AdaptiveAvgPool2d(1), nn.AdaptiveMaxPool2d(1)):
        assert (error(pool, x) < 1e-20).all()
        assert (error(pool, x, "translation", stride=2, circular=True) < 1e-20).all()
        assert error(pool, x, "scale", scales=SCALES).isfinite().all()


def test_a_group_axis_of_one_is_none():
    network = plain()
    once = nn.Sequential(network, nn.Unflatten(1, (4, 1)))
    once.group_shape = (1, 4)
    x = images(8)
    assert torch.equal(error(once, x), error(network, x))


def test_one_orientation_may_have_scales():
    scales = nn.Sequential(plain(), nn.Unflatten(1, (2, 2)))
    x = images(8)
    torch.testing.assert_close(error(scales, x, group_shape=(2, 1)), error(scales[0], x))


def test_the_unit_does_not_matter_and_zeros_are_not_finite():
    network, x = plain(), images(8)
    scaled = nn.Sequential(network, nn.Hardtanh(-1e9, 1e9))
    scaled.forward = lambda x: -7 * network(x)
    torch.testing.assert_close(error(scaled, x), error(network, x))
    assert error(nn.Threshold(1e9, 0.0), x).isnan().all()


def test_settings_without_values_are_those_of_the_function():
    network, x = plain(), images(8)
    for group, settings in (("translation", {}), ("scale", {"scales": SCALES})):
        found = EquivarianceSettings(group, **settings).sums(network, x)
        assert torch.equal(found.difference, equivariance_sums(network, x, group, **settings).difference)


def test_images_need_no_square_for_translations():
    x = torch.randn(2, 2, 8, 12, dtype=torch.float64)
    network = nn.Conv2d(2, 3, 2, stride=2).double()
    assert torch.equal(error(network, x, "translation"), error(network, x, "translation", stride=2))


def test_shifts_are_by_one_pixel_unless_said():
    by_one = ((1, 0), (-1, 0), (0, 1), (0, -1))
    assert group_elements("translation") == EquivarianceSettings("translation").elements() == by_one


def test_sums_add_over_samples():
    network, x = plain(), images(8, n=5)
    parts = [equivariance_sums(network, part) for part in x.split(2)]
    total = sum(part.difference for part in parts) / sum(part.reference for part in parts)
    torch.testing.assert_close(total, equivariance_error(network, x)["output"][None])


def test_gradients_flow_where_they_are_enabled():
    network, x = plain(), images(8)
    error(network, x).sum().backward()
    assert all(parameter.grad.any() for parameter in network.parameters() if parameter.ndim > 1)
    with torch.no_grad():
        assert not error(network, x).requires_grad


# --- layers


def test_layers_show_where_equivariance_is_lost():
    network = nn.Sequential(rotation_network(), Ramp(), nn.ReLU(inplace=True)).eval()
    found = equivariance_error(network, images(17), layers=["0.0", "0.2", "0", "1", "2"])
    assert list(found) == ["0.0", "0.2", "0", "1", "2"]
    for name in ("0.0", "0.2", "0"):
        assert (found[name] < 1e-20).all()
    for name in ("1", "2"):
        assert (found[name] > 0.1).all()
    assert not any(module._forward_hooks for module in network.modules())


def test_a_layers_output_is_the_one_before_the_next_layer_worked_in_place():
    network, x = nn.Sequential(plain(), nn.ReLU(inplace=True)), images(8)
    kept = x.clone()
    found = equivariance_error(network, x, layers=["0", "1"])
    assert torch.equal(found["0"], error(network[0], x))
    assert torch.equal(found["1"], error(network, x))
    first = nn.Sequential(nn.ReLU(inplace=True), plain())
    assert torch.equal(error(first, x), error(nn.Sequential(nn.ReLU(), first[1]), x))
    assert torch.equal(x, kept)


def test_outputs_without_maps_leave_the_stride_to_the_others():
    network, x = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten()).double(), images(8)
    names = ["0", "1", "2"]
    said = equivariance_error(network, x, "translation", layers=names, stride=[1, 1, 1])
    assert (said["0"] > 0).all()
    torch.testing.assert_close(equivariance_error(network, x, "translation", layers=names), said)


def test_every_layer_has_its_own_stride():
    network, x = translation_network("circular"), images(16)
    found = equivariance_error(network, x, "translation", circular=True, layers=["0", "2"])
    assert all((value < 1e-20).all() for value in found.values())
    said = equivariance_error(network, x, "translation", circular=True, layers=["0", "2"], stride=[2, 4])
    assert all(torch.equal(said[name], value) for name, value in found.items())


def test_a_networks_own_stride_is_that_of_its_output_if_none_is_said():
    network, x = translation_network("circular"), images(16)
    settings = {"circular": True, "layers": ["0", "2"]}
    layers, output = (
        equivariance_error(network, x, "translation", **settings),
        error(network, x, "translation", stride=4),
    )
    network.stride = 2
    own = equivariance_error(network, x, "translation", **settings)
    assert all(torch.equal(own[name], value) for name, value in layers.items())
    assert torch.equal(error(network, x, "translation", stride=4), output)
    assert not torch.allclose(error(network, x, "translation"), output)


@pytest.mark.parametrize(("distance", "count"), [(1e-6, 1), (0.5e-6, 5), (0.2e-6, 9)])
def test_a_position_counts_if_less_than_a_millionth_of_it_comes_from_outside(distance, count):
    # The image shrinks by that part of its half width, 1.5 positions. So much is missing at an edge, twice in a corner.
    sums = equivariance_sums(nn.Identity(), torch.ones(1, 1, 3, 3).double(), "scale", scales=(1.0, 1 + distance))
    assert sums.reference.item() == pytest.approx(count, rel=1e-4)


# --- invariance


def test_invariance_closed_forms():
    h = torch.randn(7, 4)
    assert invariance_error(h, h).item() == 0
    shifts = [invariance_error(h, h.roll(k, 0)) for k in range(1, 7)]  # every other image once
    torch.testing.assert_close(torch.stack(shifts).mean(), torch.tensor(1.0, dtype=torch.float64))
    moved = h + torch.tensor([3.0, 0.0, 0.0, 4.0])
    torch.testing.assert_close(invariance_error(h, moved), 25 / (2 * h.double().var(0).sum()), rtol=1e-5, atol=0)
    assert invariance_error(torch.ones(3, 2), torch.ones(3, 2)).isnan()


def test_invariance_error_is_about_one_for_other_images():
    h = torch.randn(20000, 3) + 5
    assert invariance_error(h[:10000], h[10000:]).item() == pytest.approx(1, abs=0.05)


def test_invariance_depends_on_neither_unit_nor_axes_nor_mean():
    h, moved = torch.randn(2, 9, 4, dtype=torch.float64)
    q = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    expected = invariance_error(h, moved)
    torch.testing.assert_close(invariance_error(3 * h @ q + 8, 3 * moved @ q + 8), expected)
    torch.testing.assert_close(invariance_error(h.flip(0), moved.flip(0)), expected)


# --- errors

ARGUMENTS = [
    ({"group": "mirror"}, "`group` to be one of .*, but got 'mirror'"),
    ({"group_shape": (0, 4)}, r"`group_shape` to be 2 positive integers, but got \(0, 4\)"),
    ({"group_shape": (4,)}, "`group_shape` to be 2 positive integers, but got"),
    ({"group_shape": (1, 6), "turns": 4}, "1 orientation or a multiple of 4 for `turns` = 4, but got 6"),
    ({"group": "scale", "scales": (1.0,)}, r"`scales` > 0, at least 2, ascending, but got \(1.0,\)"),
    ({"group": "scale", "scales": (2.0, 1.0)}, "`scales` > 0, at least 2, ascending"),
    ({"group": "scale", "scales": (1.0, 1.0, 2.0)}, "`scales` > 0, at least 2, ascending"),
    ({"group": "scale", "scales": (0.0, 1.0)}, "`scales` > 0, at least 2, ascending"),
    ({"group": "scale", "scales": (1.0, float("inf"))}, "`scales` > 0, at least 2, ascending"),
    ({"group_shape": (1, 2), "turns": 4}, "1 orientation or a multiple of 4 for `turns` = 4, but got 2"),
    ({"group": "scale", "scales": SCALES, "group_shape": (2, 1)}, "`scales` with S = 2 values, but got"),
    ({"layers": []}, r"`layers` to be different names of submodules, at least one, but got \[\]"),
    ({"layers": ["0", "0"]}, "`layers` to be different names"),
    ({"layers": "layers"}, "`layers` to be different names"),
    ({"layers": ["head"]}, "`layers` to name submodules of Sequential, but got 'head'"),
    ({"stride": 0}, "`stride` >= 1, but got 0"),
    ({"stride": [2, 0], "layers": ["0", "1"]}, r"`stride` >= 1, but got 0"),
    ({"stride": [2], "layers": ["0", "1"]}, r"`stride` with one value for each of 2, but got \[2\]"),
    ({"stride": [2, 2]}, "`stride` with one value for each of 1"),
    ({"margin": -1}, "`margin` >= 0, but got -1"),
]


X = images(8)
SIX = nn.Sequential(nn.Conv2d(2, 6, 1).double(), nn.Unflatten(1, (1, 6)))
ONE_VALUE = r"`h`.* of .*shape \(N, D\).*, but got"


def six_of_shape(*shape):
    network = copy.deepcopy(SIX)
    network.group_shape = shape
    return network


BAD = [
    *[(lambda bad=bad: equivariance_error(plain(), X, **bad), message) for bad, message in ARGUMENTS],
    (lambda: equivariance_error(plain(), X[0]), r"`x` of shape \(N, C, H, W\), but got \(2, 8, 8\)"),
    (lambda: equivariance_error(plain(), X.to(torch.uint8)), "of a float dtype"),
    (lambda: equivariance_error(plain(), X[:0]), "`x` with at least one image, but got none"),
    (lambda: equivariance_error(plain(), X[..., 1:]), "square images for quarter turns, but got 8 x 7 pixels"),
    (lambda: equivariance_error(nn.Sequential(nn.BatchNorm2d(2)), X), "`network` in eval mode"),
    (lambda: equivariance_error(nn.Sequential(nn.Dropout()), X), "`network` in eval mode"),
    (lambda: invariance_error(torch.ones(3, 2), torch.ones(3, 3)), ONE_VALUE),
    (lambda: invariance_error(torch.ones(1, 2), torch.ones(1, 2)), ONE_VALUE),
    (lambda: invariance_error(torch.ones(3), torch.ones(3)), ONE_VALUE),
    (lambda: equivariance_error(plain(), X, "scale"), "`scales`, since Sequential has none of its own, but got None"),
    (lambda: equivariance_error(nn.Flatten(2), X), r"`output` of shape .*, but got \(3, 2, 64\)"),
    (lambda: equivariance_error(nn.Flatten(0, 1), X, "translation"), r"`output` of shape .*, but got \(6, 8, 8\)"),
    (lambda: equivariance_error(nn.MaxPool2d(2, return_indices=True), X), "`output` to be a tensor, but got tuple"),
    (lambda: equivariance_error(nn.AvgPool2d((2, 1)), X), r"square maps in `output` .*, but got \(3, 2, 4, 8\)"),
    (lambda: equivariance_error(SIX, X), "a multiple of 4 for `turns` = 4, but got 6"),
    (lambda: equivariance_error(SIX, X, "scale", scales=SCALES), "`scales` with S = 6 values"),
    (lambda: equivariance_error(six_of_shape(1, 4), X), r"`output` with S R = 1 \* 4 group elements, but got 6"),
    *[
        (lambda f=f: equivariance_error(f, X, "translation"), "`stride`, the pixels .*, since no output has maps")
        for f in (nn.Flatten(), nn.AdaptiveAvgPool2d(1))
    ],
    (lambda: equivariance_error(nn.AdaptiveMaxPool2d(1), X, "translation"), "since no output has maps"),
    (lambda: equivariance_error(nn.AvgPool2d((2, 1)), X, "translation"), "the sizes do not tell that of `output`"),
    (lambda: equivariance_error(nn.Upsample(scale_factor=4), X, "translation"), "do not tell that of `output`"),
    (lambda: equivariance_error(plain(), X, "translation", margin=4),
     r"positions to compare in `output`, but got none of 8 x 8 for \(1, 0\)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_layers_are_called_once():
    idle = plain()
    idle.idle = nn.Identity()
    idle.forward = lambda x: idle[0](x)
    with pytest.raises(ValueError, match="`idle` to be called once in a pass, but it was called 0 times"):
        equivariance_error(idle, X, layers=["idle"])
    activation = nn.ReLU()
    twice = nn.Sequential(activation, nn.Conv2d(2, 2, 1).double(), activation)
    with pytest.raises(ValueError, match="`2` to be called once in a pass, but it was called 2 times"):
        equivariance_error(twice, X, layers=["2"])
    assert not activation._forward_hooks
