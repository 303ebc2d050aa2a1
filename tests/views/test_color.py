"""Colour operations: torchvision's, image by image, and the symmetries of hue."""

import itertools

import pytest
import torch
import torchvision.transforms.v2.functional as tv

from lightning_ssl_geometry.views import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    color_jitter,
    grayscale,
)

OPERATIONS = {
    "brightness": (adjust_brightness, tv.adjust_brightness),
    "contrast": (adjust_contrast, tv.adjust_contrast),
    "saturation": (adjust_saturation, tv.adjust_saturation),
    "hue": (adjust_hue, tv.adjust_hue),
}


def images(channels, dtype=torch.float32):
    """Random ones, a nearly gray one, and one with all colours whose channels are 0, 1/2 or 1: ties everywhere."""
    image = torch.rand(12, channels, 9, 12)
    image[0] = image[0, :1] + 1e-6 * image[0]
    ties = torch.tensor(list(itertools.product([0.0, 0.5, 1.0], repeat=channels)))
    image[1] = ties[torch.arange(9 * 12) % len(ties)].T.reshape(channels, 9, 12)
    return image.to(dtype)


def factors(name):
    factor = 2 * torch.rand(12)
    factor[:3] = torch.tensor([0.0, 1.0, 2.0])
    return factor / 2 - 0.5 if name == "hue" else factor


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_is_torchvisions(name, channels):
    ours, theirs = OPERATIONS[name]
    image, factor = images(channels), factors(name)
    for shift in range(3):  # so that the images with ties meet 0, 1 and 2
        rolled = factor.roll(shift)
        expected = torch.stack([theirs(x, f) for x, f in zip(image, rolled.tolist(), strict=True)])
        torch.testing.assert_close(ours(image, rolled), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("channels", [1, 3])
def test_grayscale_is_torchvisions(channels):
    image, gray = images(channels), torch.rand(12) < 0.5
    expected = [tv.rgb_to_grayscale(x, channels) if g else x for x, g in zip(image, gray, strict=True)]
    torch.testing.assert_close(grayscale(image, gray), torch.stack(expected), atol=1e-6, rtol=0)


@pytest.mark.parametrize("channels", [1, 3])
def test_jitter_is_torchvisions_in_every_order(channels):
    order = torch.tensor(list(itertools.permutations(range(4))))
    image = torch.cat([images(channels), images(channels)])
    factor = torch.stack([factors(name).repeat(2)[torch.randperm(24)] for name in OPERATIONS], 1)
    expected = image.clone()
    for i, kinds in enumerate(order.tolist()):
        for kind in kinds:
            expected[i] = list(OPERATIONS.values())[kind][1](expected[i], factor[i, kind].item())
    torch.testing.assert_close(color_jitter(image, order, factor), expected, atol=1e-5, rtol=0)


def test_hue_by_thirds_permutes_the_channels():
    image = images(3, torch.float64)
    for thirds in (-1, 1):
        turned = adjust_hue(image, torch.full((12,), thirds / 3, dtype=torch.float64))
        torch.testing.assert_close(turned, image.roll(thirds, 1))


def test_hue_by_a_half_mirrors_between_the_extremes():
    image = images(3, torch.float64)
    extremes = image.amax(1, keepdim=True) + image.amin(1, keepdim=True)
    torch.testing.assert_close(adjust_hue(image, torch.full((12,), 0.5)), extremes - image)


def test_hue_keeps_the_extremes_and_composes():
    image, a = images(3, torch.float64), (torch.rand(12, dtype=torch.float64) - 0.5) / 2
    turned = adjust_hue(image, a)
    torch.testing.assert_close(turned.amax(1), image.amax(1))
    torch.testing.assert_close(turned.amin(1), image.amin(1))
    torch.testing.assert_close(adjust_hue(turned, -a / 2), adjust_hue(image, a / 2))


def test_factors_of_one_and_a_shift_of_zero_change_nothing():
    image, one = images(3), torch.ones(12)
    for operation in (adjust_brightness, adjust_contrast, adjust_saturation):
        assert torch.equal(operation(image, one), image)
    torch.testing.assert_close(adjust_hue(image, 0 * one), image, atol=1e-6, rtol=0)


def test_operations_leave_their_input_alone():
    image = images(3)
    before = image.clone()
    for name, (operation, _) in OPERATIONS.items():
        operation(image, factors(name))
    color_jitter(image, torch.arange(4).expand(12, 4), torch.tensor([0.5, 0.5, 0.5, 0.2]).expand(12, 4))
    grayscale(image, torch.ones(12, dtype=torch.bool))
    assert torch.equal(image, before)


@pytest.mark.parametrize("channels", [1, 3])
def test_operations_are_differentiable(channels):
    image = (0.3 + 0.4 * torch.rand(2, channels, 2, 2, dtype=torch.float64)).requires_grad_()
    factor = torch.tensor([0.8, 1.1], dtype=torch.float64)
    for operation in (adjust_brightness, adjust_contrast, adjust_saturation):
        assert torch.autograd.gradcheck(operation, (image, factor.clone().requires_grad_()))
    assert torch.autograd.gradcheck(adjust_hue, (image, (factor - 0.9).requires_grad_()))
    order, all_four = torch.tensor([[3, 1, 2, 0], [0, 2, 3, 1]]), torch.tensor([0.9, 0.8, 1.1, 0.1]).double()
    assert torch.autograd.gradcheck(lambda x: color_jitter(x, order, all_four.expand(2, 4)), image)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_stays_near_float32(dtype):
    half = images(3, dtype)
    for name, (operation, _) in OPERATIONS.items():
        factor = factors(name)
        result = operation(half, factor)
        assert result.dtype == dtype
        torch.testing.assert_close(result.float(), operation(half.float(), factor), atol=1 / 255, rtol=0)


IMAGE, ONE = torch.rand(2, 3, 4, 4), torch.ones(2)
ORDER, FACTOR = torch.arange(4).expand(2, 4), torch.ones(2, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: adjust_hue(IMAGE[:, :2], ONE), "`image` with 1 or 3 channels, but got 2"),
        (lambda: adjust_brightness(IMAGE.byte(), ONE), r"`image` of a float dtype, but got torch.uint8"),
        (lambda: adjust_contrast(IMAGE, ONE[:1]), r"`factor` of shape \(N,\), N = 2, but got \(1,\)"),
        (lambda: adjust_saturation(IMAGE, -ONE), r"`factor` >= 0, but got -1.0"),
        (lambda: adjust_hue(IMAGE, ONE), r"`shift` within \[-0.5, 0.5\], but got 1.0"),
        (lambda: grayscale(IMAGE, torch.ones(3, dtype=torch.bool)), r"`gray` of shape \(N,\), N = 2, but got \(3,\)"),
        (lambda: color_jitter(IMAGE, ORDER[:1], FACTOR), r"`order` of shape \(N, 4\), N = 2, but got \(1, 4\)"),
        (lambda: color_jitter(IMAGE, ORDER, ONE), r"`factor` of shape \(N, 4\), N = 2, but got \(2,\)"),
        (
            lambda: color_jitter(IMAGE, torch.tensor([[0, 1, 2, 3], [0, 0, 2, 3]]), FACTOR),
            r"`order` that are permutations of 0, 1, 2, 3, but got \[0, 0, 2, 3\]",
        ),
        (lambda: color_jitter(IMAGE, ORDER, -FACTOR), r"`factor` >= 0, but got -1.0"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
