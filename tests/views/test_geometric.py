"""Crops, flips and blurs: torchvision's operations image by image, and the laws of linear maps."""

import pytest
import torch
import torchvision.transforms.v2.functional as tv

from lightning_ssl_geometry.views import gaussian_blur, horizontal_flip, resized_crop
from lightning_ssl_geometry.views.geometric import blur_matrix, resize_matrix, separable

N, H, W = 12, 29, 37


def boxes():
    height, width = torch.randint(1, H + 1, (N,)), torch.randint(1, W + 1, (N,))
    top = (torch.rand(N) * (H - height + 1)).long()
    left = (torch.rand(N) * (W - width + 1)).long()
    return top, left, height, width


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("size", [(32, 40), (7, 9), (29, 37), (50, 5), (1, 1)])
def test_resized_crop_is_torchvisions(channels, size):
    image, box = torch.rand(N, channels, H, W), boxes()
    expected = [
        tv.resized_crop(x, *b, size=list(size), antialias=True)
        for x, b in zip(image, torch.stack(box, 1).tolist(), strict=True)
    ]
    torch.testing.assert_close(resized_crop(image, *box, size), torch.stack(expected), atol=1e-5, rtol=0)


def test_a_crop_of_all_at_the_same_size_is_the_image():
    image, zero = torch.rand(N, 3, H, W), torch.zeros(N, dtype=torch.long)
    assert torch.equal(resized_crop(image, zero, zero, zero + H, zero + W, (H, W)), image)


@pytest.mark.parametrize("target", [3, 8, 20])
def test_resize_matrix_keeps_constants_and_mirrors(target):
    start, length = torch.tensor([0, 2, 5]), torch.tensor([8, 5, 1])
    a = resize_matrix(start, length, 8, target, dtype=torch.float64)
    torch.testing.assert_close(a.sum(2), torch.ones(3, target, dtype=torch.float64))
    assert (a >= 0).all()
    mirrored = resize_matrix(start, length, 8, target, flip=torch.tensor([True, False, True]), dtype=torch.float64)
    torch.testing.assert_close(mirrored, torch.stack([a[0].flip(0), a[1], a[2].flip(0)]))
    torch.testing.assert_close(resize_matrix(start, length, 8, target, gain=0.5, dtype=torch.float64), a / 2)


def test_resize_matrix_sees_nothing_outside_of_the_crop():
    for target in (3, 20):
        a = resize_matrix(torch.tensor([2]), torch.tensor([4]), 8, target, dtype=torch.float64)[0]
        assert (a[:, :2] == 0).all()
        assert (a[:, 6:] == 0).all()


def test_flip_is_torchvisions_and_its_own_inverse():
    image, flip = torch.rand(2, 3, H, W), torch.tensor([True, False])
    flipped = horizontal_flip(image, flip)
    assert torch.equal(flipped[0], tv.horizontal_flip(image[0]))
    assert torch.equal(flipped[1], image[1])
    assert torch.equal(horizontal_flip(flipped, flip), image)


@pytest.mark.parametrize("kernel", [1, 3, (5, 23), (57, 7)])
def test_gaussian_blur_is_torchvisions(kernel):
    image, sigma = torch.rand(N, 3, H, W), 0.05 + 3 * torch.rand(N)
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    expected = [tv.gaussian_blur(x, [width, height], [s, s]) for x, s in zip(image, sigma.tolist(), strict=True)]
    torch.testing.assert_close(gaussian_blur(image, sigma, kernel), torch.stack(expected), atol=1e-5, rtol=0)


def test_blur_matrix_is_the_identity_where_told_and_keeps_constants():
    a = blur_matrix(torch.tensor([1.0, 2.0]), 5, 8, blur=torch.tensor([False, True]), dtype=torch.float64)
    assert torch.equal(a[0], torch.eye(8, dtype=torch.float64))
    torch.testing.assert_close(a.sum(2), torch.ones(2, 8, dtype=torch.float64))
    torch.testing.assert_close(a[1].flip(0, 1), a[1])  # a mirrored image is blurred to the mirrored blur


def test_separable_is_the_product_for_every_channel():
    image, a, b = torch.rand(4, 3, 6, 5).double(), torch.rand(4, 2, 6).double(), torch.rand(4, 7, 5).double()
    expected = torch.einsum("nhi,ncij,nwj->cnhw", a, image, b)
    torch.testing.assert_close(separable(image, a, b), expected)
    out = torch.empty(3, 4, 2, 7, dtype=torch.float64)
    assert separable(image, a, b, out=out) is out
    torch.testing.assert_close(out, expected)


def test_operations_are_differentiable():
    image = torch.rand(2, 1, 3, 4, dtype=torch.float64, requires_grad=True)
    one, two = torch.ones(2).long(), torch.full((2,), 2)
    assert torch.autograd.gradcheck(lambda x: resized_crop(x, one, one, two, two, 3), image)
    assert torch.autograd.gradcheck(lambda x: horizontal_flip(x, torch.tensor([True, False])), image)
    assert torch.autograd.gradcheck(lambda x: gaussian_blur(x, torch.tensor([0.5, 1.0]), 3), image)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_stays_near_float32(dtype):
    image, box, sigma = torch.rand(N, 3, H, W), boxes(), 0.1 + torch.rand(N)
    half = image.to(dtype)
    for operation in (lambda x: resized_crop(x, *box, 20), lambda x: gaussian_blur(x, sigma, 5)):
        result = operation(half)
        assert result.dtype == dtype
        torch.testing.assert_close(result.float(), operation(half.float()), atol=1 / 255, rtol=0)


def test_autocast_changes_nothing():
    image, box = torch.rand(N, 3, H, W), boxes()
    with torch.autocast("cpu", torch.bfloat16):
        inside = resized_crop(image, *box, 20), gaussian_blur(image, torch.ones(N), 3)
    assert torch.equal(inside[0], resized_crop(image, *box, 20))
    assert torch.equal(inside[1], gaussian_blur(image, torch.ones(N), 3))


IMAGE, ONE = torch.rand(2, 3, 8, 8), torch.ones(2).long()


def cropped(image=IMAGE, width=ONE, size=4):
    return resized_crop(image, ONE, ONE, ONE, width, size)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cropped(IMAGE[0]), r"`image` of shape \(N, C, H, W\), but got \(3, 8, 8\)"),
        (lambda: cropped(width=torch.tensor([7, 8])), r"inside of 8 x 8 pixels, but got \(1, 1, 1, 8\) for sample 1"),
        (lambda: cropped(width=torch.tensor(1)), r"`width` of shape \(N,\), N = 2, but got \(\)"),
        (lambda: cropped(size=0), "`size` to be a positive integer or two of them, but got 0"),
        (lambda: cropped(size=(3, -1)), r"`size` to be a positive integer or two of them, but got \(3, -1\)"),
        (lambda: cropped(size=2.5), r"`size` to be a positive integer or two of them, but got 2\.5"),
        (lambda: cropped(size=(1, 2, 3)), r"`size` to be a positive integer or two of them, but got \(1, 2, 3\)"),
        (lambda: horizontal_flip(IMAGE.byte(), ONE.bool()), r"`image` of a float dtype, but got torch.uint8"),
        (lambda: horizontal_flip(IMAGE, ONE[:1].bool()), r"`flip` of shape \(N,\), N = 2, but got \(1,\)"),
        (lambda: gaussian_blur(IMAGE, torch.tensor([1.0, 0.0]), 3), r"`sigma` > 0, but got 0.0"),
        (lambda: gaussian_blur(IMAGE, torch.ones(2), 2), "`kernel_size` odd and at most 15, but got 2"),
        (lambda: gaussian_blur(IMAGE, torch.ones(2), 17), "`kernel_size` odd and at most 15, but got 17"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
