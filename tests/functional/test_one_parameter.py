import math
from typing import get_args

import pytest
import torch
from torch.autograd import gradcheck
from torchvision.transforms.v2 import functional as tv

from lightning_ssl_geometry.functional.groups.one_parameter import OneParameterGroup, one_parameter_action
from lightning_ssl_geometry.views.color import adjust_brightness, adjust_contrast, adjust_saturation

GROUPS = get_args(OneParameterGroup)
COLORS = ("brightness", "contrast", "saturation", "hue")
MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def images(n=4, size=9):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def smooth(size=41):
    y, x = torch.meshgrid(*[torch.linspace(-1, 1, size, dtype=torch.float64)] * 2, indexing="ij")
    return torch.exp(-6 * ((x - 0.1) ** 2 + (y + 0.15) ** 2)).expand(2, 3, -1, -1).clone()


def strengths(*values):
    return torch.tensor(values, dtype=torch.float64)


def close(found, expected, atol=1e-12):
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)


@pytest.mark.parametrize("group", GROUPS)
def test_strength_0_changes_nothing(group):
    for x in (images(), images()[..., :6]):
        close(one_parameter_action(x, torch.zeros(4), group), x, atol=1e-12)
    assert (one_parameter_action(images(), torch.full((4,), 0.3), group) - images()).abs().max() > 0.01


@pytest.mark.parametrize("group", COLORS)
@pytest.mark.parametrize("normalization", [(0.0, 1.0), (MEAN, STD), (0.5, 0.25)])
def test_colours_obey_the_law_of_a_group(group, normalization):
    a, b = strengths(0.3, -0.7, 0.1, 2.0), strengths(0.2, 0.4, -0.1, 1.0)
    once = one_parameter_action(images(), a + b, group, *normalization)
    twice = one_parameter_action(one_parameter_action(images(), b, group, *normalization), a, group, *normalization)
    close(twice, once, atol=1e-10)
    back = one_parameter_action(one_parameter_action(images(), a, group, *normalization), -a, group, *normalization)
    close(back, images(), atol=1e-10)


@pytest.mark.parametrize(("group", "a", "b"), [("zoom", 0.3, -0.2), ("translation", 3.3, -5.1), ("rotation", 20, -47)])
def test_moves_obey_it_up_to_interpolation(group, a, b):
    x, (a, b) = smooth(), (torch.full((2,), float(each)) for each in (a, b))
    once = one_parameter_action(x, a + b, group)
    assert (once - x).abs().max() > 0.03
    close(one_parameter_action(one_parameter_action(x, b, group), a, group), once, atol=0.02)


def test_colours_are_those_of_the_views_where_nothing_is_clamped():
    x, factor = 0.3 + 0.2 * images(), strengths(0.8, 1.0, 1.1, 1.3)
    for group, adjust in (
        ("brightness", adjust_brightness),
        ("contrast", adjust_contrast),
        ("saturation", adjust_saturation),
    ):
        close(one_parameter_action(x, factor.log(), group), adjust(x, factor), atol=1e-4)  # their weights sum to 0.9999


def test_a_third_of_a_turn_permutes_the_channels_and_a_gray_keeps_its_hue():
    x = images()
    close(one_parameter_action(x, torch.full((4,), 1 / 3, dtype=torch.float64), "hue"), x.roll(1, 1))
    gray = x[:, :1].expand(-1, 3, -1, -1)
    close(one_parameter_action(gray, strengths(0.1, 0.2, 0.3, 0.4), "hue"), gray)
    turned = one_parameter_action(x, strengths(0.1, 0.2, 0.3, 0.4), "hue")
    close(turned.mean(1), x.mean(1))
    close(turned.square().sum(1), x.square().sum(1))


def test_what_stays_where_it_is():
    x, e = images(), strengths(0.3, -0.7, 0.1, 2.0)
    close(one_parameter_action(x, e, "brightness"), x * e.exp()[:, None, None, None])
    luma = (x * torch.tensor([0.2989, 0.587, 0.114])[:, None, None]).sum(1) / 0.9999
    for group in ("contrast", "saturation"):
        moved = one_parameter_action(x, e, group)
        found = (moved * torch.tensor([0.2989, 0.587, 0.114])[:, None, None]).sum(1) / 0.9999
        kept = (found.mean((1, 2)), luma.mean((1, 2))) if group == "contrast" else (found, luma)
        close(*kept, atol=1e-7)


def test_whole_pixels_move_to_the_right_and_a_doubled_image_shows_its_middle():
    x = images(size=8)
    moved = one_parameter_action(x, torch.full((4,), 3.0), "translation")
    close(moved[..., 3:], x[..., :-3])
    assert not moved[..., :3].any()
    ramp = torch.arange(8.0, dtype=torch.float64).expand(1, 3, 8, 8) - 3.5
    close(one_parameter_action(ramp, strengths(math.log(2)), "zoom"), ramp / 2)


def test_a_whole_translation_is_torchvisions():
    x = images(size=8).float()
    expected = tv.affine(x, angle=0.0, translate=[2, 0], scale=1.0, shear=[0.0, 0.0])
    close(one_parameter_action(x, torch.full((4,), 2.0), "translation"), expected, atol=1e-5)


@pytest.mark.parametrize("group", GROUPS)
def test_differentiable_in_both_and_in_any_dtype(group):
    x, e = images(2, 4).requires_grad_(), strengths(0.13, -0.28).requires_grad_()
    assert gradcheck(lambda x, e: one_parameter_action(x, e, group, 0.4, 0.3), (x, e))
    half = one_parameter_action(images().bfloat16(), strengths(0.1, 0.1, 0.1, 0.1), group)
    assert half.dtype == torch.bfloat16
    close(half.double(), one_parameter_action(images(), strengths(0.1, 0.1, 0.1, 0.1), group), atol=0.02)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"group": "shear"}, "`group` to be one of .*'brightness'.*'rotation'.*, but got 'shear'"),
        ({"image": torch.rand(4, 1, 5, 5), "group": "hue"}, "3 channels for 'hue', but got 1"),
        ({"image": torch.rand(4, 2, 5, 5), "group": "contrast"}, "1 or 3 channels for 'contrast', but got 2"),
        ({"strength": torch.zeros(3)}, r"`strength` of shape \(N,\), N = 4"),
        ({"image": torch.zeros(4, 3, 5, 5, dtype=torch.uint8)}, "`image` of a float dtype"),
        ({"std": (0.2, 0.0, 0.2)}, "`std` > 0, but got 0.0"),
        ({"mean": (0.2, 0.1)}, "`mean` with 1 or 3 numbers, as `image` has channels"),
    ],
)
def test_bad_input_is_named(changed, message):
    given = {"image": torch.rand(4, 3, 5, 5), "strength": torch.zeros(4), "group": "brightness"} | changed
    with pytest.raises(ValueError, match=message):
        one_parameter_action(**given)


@pytest.mark.parametrize("group", ["hue", "zoom"])
@pytest.mark.parametrize("name", ["mean", "std"])
def test_what_normalised_the_images_is_checked_for_every_group(group, name):
    image, strength = torch.rand(1, 3, 4, 4), torch.zeros(1)
    with pytest.raises(ValueError, match=f"finite `{name}`|`{name}` .*finite"):
        one_parameter_action(image, strength, group, **{name: [1.0, float("inf"), 1.0]})
    with pytest.raises(ValueError, match=f"`{name}` with 1 or 3 numbers"):
        one_parameter_action(image, strength, group, **{name: [1.0, 1.0]})


def test_an_image_may_be_shrunk_to_nothing():
    image = torch.rand(2, 1, 5, 5)
    found = one_parameter_action(image, torch.tensor([-1e3, 1e3]), "zoom")
    assert found.isfinite().all()
    assert found[0].flatten().sort(descending=True).values[1] == 0  # but for the middle
