import pytest
import torch
from torch.autograd import gradcheck
from torchvision.transforms import functional as tv

from lightning_ssl_geometry.functional.groups.rotation import covariance_rank, rotate, rotation_rank
from lightning_ssl_geometry.functional.spectrum import numerical_rank


def close(found, expected, atol=1e-5):
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)


def same(angle, n=2):
    return torch.full((n,), float(angle))


def one_hot(row=8, column=8):
    image = torch.zeros(1, 32, 32)
    image[0, row, column] = 1
    return image


@pytest.mark.parametrize("size", [(8, 8), (9, 9), (6, 9)])
def test_no_angle_is_the_identity(size):
    image = torch.randn(2, 3, *size)
    close(rotate(image, same(0)), image)
    close(rotate(image, same(360)), image)


@pytest.mark.parametrize("size", [8, 9])
@pytest.mark.parametrize("quarters", [-1, 1, 2, 3])
def test_quarter_turns_permute_the_pixels_counter_clockwise(size, quarters):
    image = torch.randn(2, 3, size, size)
    close(rotate(image, same(90 * quarters)), torch.rot90(image, quarters, (2, 3)))
    close(rotate(image.double(), same(90 * quarters)), torch.rot90(image.double(), quarters, (2, 3)), atol=1e-12)


@pytest.mark.parametrize("size", [(12, 12), (13, 13), (10, 15)])
def test_it_is_torchvisions_at_one_angle_per_image(size):
    image, angles = torch.rand(4, 3, *size), torch.tensor([-170.0, -20.0, 33.0, 90.0])
    one_by_one = [tv.rotate(x, a.item(), tv.InterpolationMode.BILINEAR) for x, a in zip(image, angles, strict=True)]
    close(rotate(image, angles), torch.stack(one_by_one), atol=1e-4)


def test_back_and_forth_on_a_smooth_disc():
    y, x = torch.meshgrid(torch.linspace(-1, 1, 65), torch.linspace(-1, 1, 65), indexing="ij")
    disc = torch.exp(-10 * ((x - 0.2) ** 2 + (y + 0.1) ** 2)).expand(1, 1, -1, -1)
    there = rotate(disc, torch.tensor([37.0]))
    assert (there - disc).abs().max() > 0.3
    close(rotate(there, torch.tensor([-37.0])), disc, atol=1e-2)


def test_linear_in_the_image_and_differentiable_in_both():
    a, b, angle = torch.randn(2, 1, 7, 7), torch.randn(2, 1, 7, 7), torch.tensor([10.0, 70.0])
    close(rotate(2 * a + b, angle), 2 * rotate(a, angle) + rotate(b, angle))
    image = torch.randn(2, 1, 4, 5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(rotate, (image, torch.tensor([11.0, -63.0], dtype=torch.float64, requires_grad=True)))
    assert rotate(a.bfloat16(), angle).dtype == torch.bfloat16


def test_rotations_span_more_directions_the_larger_the_range():
    ranges = (10, 45, 90, 180)
    ranks = torch.zeros(len(ranges))
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        row, column = torch.randint(32, (2,), generator=generator).tolist()
        ranks += torch.stack([rotation_rank(one_hot(row, column), angle, 200, generator=generator) for angle in ranges])
    assert (ranks.diff() > 0).all()


def test_rotation_rank_is_bounded_and_repeats():
    assert rotation_rank(torch.randn(3, 16, 16), 180, 12) == 11  # 12 rows, less their mean
    assert rotation_rank(one_hot(), 0, 12) == 0
    assert rotation_rank(torch.zeros(1, 8, 8), 90, 12) == 0
    first, again = (rotation_rank(one_hot(), 90, 50, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert first == again
    assert first.dtype == torch.int64
    torch.manual_seed(5)
    first = rotation_rank(one_hot(), 90, 50)
    torch.manual_seed(5)
    assert rotation_rank(one_hot(), 90, 50) == first


def test_the_rank_is_that_of_500_angles_up_to_the_largest():
    image, generator, again = one_hot(), *(torch.Generator().manual_seed(1) for _ in range(2))
    found = rotation_rank(image, 7.0, generator=generator)
    angle = 7.0 * torch.rand(500, generator=again)
    assert torch.equal(generator.get_state(), again.get_state())
    assert found == covariance_rank(rotate(image.expand(500, -1, -1, -1), angle).flatten(1))


def test_a_deviation_of_sixteen_times_the_rounding_error_counts_as_0():
    # rows (1, d) and (1, -d), each twice: the deviation is d, and the root mean square norm is 1
    found = []
    for steps in (15.5, 16, 16.5):
        size = steps * 2.0**-52
        found.append(covariance_rank(torch.tensor([[1.0, size], [1.0, -size]] * 2, dtype=torch.float64)).item())
    assert found == [0, 0, 1]


def test_covariance_rank():
    rows = torch.randn(40, 9, dtype=torch.float64) @ torch.diag(torch.logspace(0, -4, 9, dtype=torch.float64)) + 3
    for tau, mode in [(1e-2, "absolute"), (1e-2, "relative"), (0.99, "cumulative")]:
        expected = numerical_rank((rows - rows.mean(0)) / 40**0.5, tau, mode=mode)
        assert covariance_rank(rows, tau, mode=mode) == expected
        assert covariance_rank(rows[:1], tau, mode=mode) == 0
        assert covariance_rank(rows[:1].expand(7, -1).float(), tau, mode=mode) == 0
    noisy = 1 + 1e-7 * torch.randn(50, 20)  # rounding is not a direction
    assert covariance_rank(noisy) == 0
    assert covariance_rank(noisy, rounding=0) > 10


BAD = [
    (lambda: rotate(torch.ones(3, 4, 4), torch.ones(3)), r"`image` of shape \(N, C, H, W\), but got \(3, 4, 4\)"),
    (lambda: rotate(torch.ones(1, 3, 4, 4, dtype=torch.uint8), torch.ones(1)), "`image` of a float dtype"),
    (lambda: rotate(torch.ones(2, 3, 4, 4), torch.ones(1)), r"`angle` of shape \(N,\), N = 2, but got \(1,\)"),
    (lambda: rotation_rank(torch.ones(4, 4), 10), r"`image` of shape \(C, H, W\), but got \(4, 4\)"),
    (lambda: rotation_rank(one_hot(), -1), "`max_angle` >= 0 and finite, but got -1"),
    (lambda: rotation_rank(one_hot(), float("inf")), "`max_angle` >= 0 and finite, but got inf"),
    (lambda: rotation_rank(one_hot(), float("nan")), "`max_angle` >= 0 and finite, but got nan"),
    (lambda: rotation_rank(one_hot(), 10, 1), "`count` >= 2, but got 1"),
    (lambda: rotation_rank(one_hot(), 10, 5, tau=2), r"`tau` in \(0, 1\], but got 2"),
    (lambda: covariance_rank(torch.ones(3)), r"`rows` of shape \(n, D\) with n >= 1"),
    (lambda: covariance_rank(torch.ones(0, 3)), r"`rows` of shape \(n, D\) with n >= 1"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
