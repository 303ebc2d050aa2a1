import pytest
import torch
from torch.autograd import gradcheck
from torchvision.transforms import functional as tv

from lightning_ssl_geometry.functional import quarter_turn, rescale, translate

ACTIONS = [
    lambda x: quarter_turn(x, torch.arange(len(x))),
    lambda x: translate(x, torch.arange(2 * len(x)).view(-1, 2) - 2),
    lambda x: translate(x, torch.tensor([1, -2]), circular=True),
    lambda x: rescale(x, torch.linspace(0.6, 1.3, len(x))),
]


def close(found, expected, atol=1e-12):
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)


def images(*shape):
    return torch.randn(shape, dtype=torch.float64)


def moved(x, s, fill, circular):
    """One image (C, H, W), pixel by pixel."""
    height, width = x.shape[1:]
    y = torch.as_tensor(fill).double().expand(len(x))[:, None, None].repeat(1, height, width)
    for row in range(height):
        for column in range(width):
            i, j = row + s[0], column + s[1]
            if circular:
                y[:, i % height, j % width] = x[:, row, column]
            elif 0 <= i < height and 0 <= j < width:
                y[:, i, j] = x[:, row, column]
    return y


@pytest.mark.parametrize("shape", [(9, 6, 6), (9, 3, 5, 5), (9, 2, 3, 4, 4)])
def test_turns_are_torchs_rot90(shape):
    x, turns = images(*shape), torch.arange(-4, 5)
    one_by_one = [torch.rot90(image, r, (-2, -1)) for image, r in zip(x, turns.tolist(), strict=True)]
    assert torch.equal(quarter_turn(x, turns), torch.stack(one_by_one))
    for r in turns.tolist():
        assert torch.equal(quarter_turn(x, r), torch.rot90(x, r, (-2, -1)))


def test_turns_compose():
    x = images(16, 3, 5, 5)
    r, s = torch.arange(16) // 4, torch.arange(16) % 4
    assert torch.equal(quarter_turn(quarter_turn(x, s), r), quarter_turn(x, r + s))
    assert torch.equal(quarter_turn(quarter_turn(x, r), -r), x)
    assert torch.equal(quarter_turn(quarter_turn(x, 3), 2), quarter_turn(x, 1))


def test_half_turns_need_no_square():
    x, turns = images(3, 2, 4, 6), torch.tensor([0, 2, -2])
    assert torch.equal(quarter_turn(x, turns), torch.stack([x[0], x[1].flip(1, 2), x[2].flip(1, 2)]))
    assert torch.equal(quarter_turn(x, 2), x.flip(2, 3))


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("fill", [0.0, 2.5, torch.tensor([1.0, -1.0, 7.0])])
def test_translations_pixel_by_pixel(fill, circular):
    x = images(7, 3, 4, 5)
    shift = torch.tensor([[0, 0], [1, 2], [-3, 1], [2, -4], [-1, -1], [4, 0], [9, -11]])
    one_by_one = [moved(image, s, fill, circular) for image, s in zip(x, shift.tolist(), strict=True)]
    assert torch.equal(translate(x, shift, fill, circular), torch.stack(one_by_one))
    for s in shift:
        assert torch.equal(translate(x, s, fill, circular), translate(x, s.expand(7, 2), fill, circular))


def test_translations_compose():
    x, a, b = images(20, 2, 5, 7), torch.randint(-9, 10, (20, 2)), torch.randint(-9, 10, (20, 2))
    there = translate(x, a, circular=True)
    assert torch.equal(translate(there, -a, circular=True), x)
    assert torch.equal(translate(there, b, circular=True), translate(x, a + b, circular=True))
    small = images(20, 2, 5, 5)  # a translation turned is the turned translation
    turned = quarter_turn(translate(small, torch.tensor([1, 2])), 1)
    assert torch.equal(turned, translate(quarter_turn(small, 1), torch.tensor([-2, 1])))


@pytest.mark.parametrize("size", [(8, 8), (9, 9), (6, 9)])
def test_factor_1_is_the_identity(size):
    x = images(3, 2, *size)
    for given in (x, x.float(), x.half(), x.bfloat16()):
        assert torch.equal(rescale(given, 1.0, fill=3.0), given)
        assert torch.equal(rescale(given, torch.ones(3), fill=3.0), given)


@pytest.mark.parametrize(
    ("size", "resized"), [(32, 24), (32, 8), (32, 30), (31, 19), (29, 27), (8, 2), (16, 24), (9, 11)]
)
def test_whole_sizes_are_torchvisions(size, resized):
    x = images(2, 3, size, size)
    expected = tv.resize(x, [resized, resized], tv.InterpolationMode.BILINEAR, antialias=True)
    border = (size - resized) // 2
    expected = torch.nn.functional.pad(expected, [border] * 4, value=0.3)  # a negative border crops
    close(rescale(x, resized / size, fill=0.3), expected)


def test_rectangles_are_resized_about_their_centre():
    x = images(2, 3, 12, 20)
    expected = tv.resize(x, [6, 10], tv.InterpolationMode.BILINEAR, antialias=True)
    close(rescale(x, 0.5)[..., 3:9, 5:15], expected)


@pytest.mark.parametrize("fill", [1.0, 0.5, -2.0])
def test_a_fill_is_a_shift_before_and_after(fill):
    x = images(2, 3, 7, 7)
    close(rescale(x, 0.6, fill=fill), rescale(x - fill, 0.6) + fill)


def test_a_constant_stays_inside_and_fill_is_around():
    n, size, c = 40, 11, 0.7
    fill = torch.tensor([0.0, -2.0])
    factor = torch.linspace(0.02, 1.9, n, dtype=torch.float64)
    y = rescale(torch.full((n, 2, size, size), c, dtype=torch.float64), factor, fill)
    # pixel i spans i - 1/2 to i + 1/2 about the centre, the resized image -f H / 2 to f H / 2
    edge = torch.arange(size, dtype=torch.float64) - size / 2
    half = factor[:, None] * size / 2
    share = (torch.minimum(edge + 1, half) - torch.maximum(edge, -half)).clamp(0, 1)
    share = (share[:, :, None] * share[:, None])[:, None]  # of the pixel's area
    close(y, c * share + fill.double()[:, None, None] * (1 - share))


def test_a_linear_ramp_is_steeper_by_the_factor():
    size, factor = 61, torch.tensor([1 / 3, 0.5, 1.0, 1.3, 1.7, 0.57, 0.7, 0.83, 0.97], dtype=torch.float64)
    t = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    ramp = 3 * t[:, None] - 2 * t + 5
    y = rescale(ramp.expand(9, 1, -1, -1), factor)
    # (T_f x)(p) = x(p / f) where the filter, of reach 1 / f, sees no border. The mean of its taps is where it is
    # centred if 1 / f is whole or f >= 1; elsewhere it is off by up to 0.1 pixels, as in torchvision's resize
    for f, image, bias in zip(factor, y, [0.0] * 5 + [0.1] * 4, strict=True):
        inside = (t / f).abs() <= (size - 1) / 2 - max(1 / f, 1)
        assert inside.sum() > 15
        expected = 3 / f * t[:, None] - 2 / f * t + 5
        close(image[0][inside][:, inside], expected[inside][:, inside], atol=1e-12 + (3 + 2) * bias)


@pytest.mark.parametrize("size", [8, 9])
def test_rescaling_commutes_with_quarter_turns(size):
    x, factor = images(12, 3, size, size), torch.linspace(0.3, 1.6, 12)
    for turns in (torch.arange(12), 1):
        close(quarter_turn(rescale(x, factor, 1.0), turns), rescale(quarter_turn(x, turns), factor, 1.0))


def test_rescaling_is_continuous_in_the_factor():
    x, factor = images(1, 1, 8, 8), torch.linspace(0.1, 1.5, 2001, dtype=torch.float64)
    y = rescale(x.expand(2001, -1, -1, -1), factor, 3.0)
    assert y.diff(dim=0).abs().max() < 0.02 * (x.max() - x.min() + 3)


@pytest.mark.parametrize("fill", [0.0, torch.tensor([0.5, 2.0, 1.0])])
def test_a_number_is_the_same_factor_for_all(fill):
    x = images(4, 3, 5, 8, 8)  # feature maps
    for factor in (0.6, 1.0, 1.4):
        close(rescale(x, factor, fill), rescale(x, torch.full((4,), factor, dtype=torch.float64), fill))
        for k in range(5):
            close(rescale(x, factor, fill)[:, :, k], rescale(x[:, :, k], factor, fill))


def test_more_axes_are_moved_alike():
    x = images(4, 3, 5, 6, 6)
    factor, turns, shift = torch.linspace(0.5, 1.2, 4), torch.arange(4), torch.arange(8).view(4, 2) - 3
    for k in range(5):
        close(rescale(x, factor)[:, :, k], rescale(x[:, :, k], factor))
        assert torch.equal(quarter_turn(x, turns)[:, :, k], quarter_turn(x[:, :, k], turns))
        fill = torch.tensor([1.0, 2.0, 3.0])
        assert torch.equal(translate(x, shift, fill)[:, :, k], translate(x[:, :, k], shift, fill))


@pytest.mark.parametrize("action", ACTIONS)
def test_linear_and_differentiable(action):
    a, b = images(3, 2, 5, 5), images(3, 2, 5, 5)
    close(action(2 * a + b), 2 * action(a) + action(b))
    assert gradcheck(action, a.requires_grad_())


def test_rescaling_is_differentiable_in_the_factor():
    x = images(4, 1, 5, 5).requires_grad_()
    factor = torch.tensor([0.45, 0.71, 0.93, 1.37], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, factor: rescale(x, factor, 0.3), (x, factor))


@pytest.mark.parametrize("action", ACTIONS)
def test_dtypes_and_autocast(action):
    x = torch.rand(4, 3, 8, 8)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        y = action(x.to(dtype))
        assert y.dtype == dtype
        close(y.float(), action(x.to(dtype).float()), atol=1e-2 if dtype.itemsize == 2 else 1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        assert action(x).dtype == torch.float32
        close(action(x).double(), action(x.double()), atol=1e-6)


@pytest.mark.parametrize("action", ACTIONS)
def test_the_input_is_left_alone_and_may_be_laid_out_in_any_way(action):
    x = images(4, 3, 6, 6)
    before = x.clone()
    expected = action(x)
    assert expected.shape == x.shape
    close(action(x.to(memory_format=torch.channels_last)), expected)
    close(action(x.transpose(2, 3).contiguous().transpose(2, 3)), expected)
    expected.zero_()
    assert torch.equal(x, before)


def test_no_sample_at_all():
    x, none = torch.rand(0, 3, 6, 6), torch.zeros(0, dtype=torch.int64)
    for y in (quarter_turn(x, none), translate(x, none.view(0, 2)), rescale(x, none.float()), rescale(x, 0.5)):
        assert y.shape == x.shape


X, BYTE, SHIFT = torch.rand(2, 3, 4, 4), torch.ones(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, 1])
IMAGES = r"`x` of shape \(N, C, ..., H, W\), floating point, but got "
TURNS = r"`turns` to be an integer or torch.int64 of shape \(2,\), but got "
ODD = "`turns` to be even where H != W, but got odd ones on 3 x 4 pixels"
MOVES = r"`shift` .* of shape \(2,\) or \(2, 2\), but got "
FILL = r"`fill` to be a number or of shape \(3,\), but got \(2,\)"
FACTORS = r"`factor` to be a number or of shape \(2,\), but got "
BAD = [
    (lambda: translate(X[0], SHIFT), IMAGES + r"\(3, 4, 4\)"),
    (lambda: translate(BYTE, SHIFT), IMAGES + r"\(2, 3, 4, 4\), torch.uint8"),
    (lambda: rescale(X[0], 0.5), IMAGES + r"\(3, 4, 4\)"),
    (lambda: rescale(BYTE, 0.5), IMAGES + r"\(2, 3, 4, 4\), torch.uint8"),
    (lambda: quarter_turn(X[0, 0], 1), r"`x` of shape \(N, ..., H, W\), floating point, but got \(4, 4\)"),
    (lambda: quarter_turn(BYTE, 1), r"`x` .* but got \(2, 3, 4, 4\), torch.uint8"),
    (lambda: quarter_turn(X, 0.5), TURNS + "0.5"),
    (lambda: quarter_turn(X, torch.ones(2)), TURNS + r"\(2,\), torch.float32"),
    (lambda: quarter_turn(X, torch.tensor(1)), TURNS + r"\(\), torch.int64"),
    (lambda: quarter_turn(X, torch.ones(3, dtype=torch.int64)), TURNS + r"\(3,\), torch.int64"),
    (lambda: quarter_turn(X[:, :, 1:], 1), ODD),
    (lambda: quarter_turn(X[:, :, 1:], -1), ODD),
    (lambda: quarter_turn(X[:, :, 1:], torch.tensor([2, 3])), ODD),
    (lambda: translate(X, (0, 1)), MOVES + r"\(0, 1\)"),
    (lambda: translate(X, SHIFT.float()), MOVES + r"\(2,\), torch.float32"),
    (lambda: translate(X, SHIFT.expand(3, 2)), MOVES + r"\(3, 2\), torch.int64"),
    (lambda: translate(X, SHIFT.expand(2, 1, 2)), MOVES + r"\(2, 1, 2\), torch.int64"),
    (lambda: translate(X, SHIFT, torch.zeros(2)), FILL),
    (lambda: rescale(X, 0.5, torch.zeros(2)), FILL),
    (lambda: rescale(X, torch.ones(3)), FACTORS + r"\(3,\)"),
    (lambda: rescale(X, torch.tensor(1.0)), FACTORS + r"\(\)"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("number", [0.0, -1.0, float("inf"), float("nan")])
def test_bad_factors(number):
    for factor in (number, torch.tensor([1.0, number])):
        with pytest.raises(ValueError, match=f"`factor` > 0 and finite, but got {number}"):
            rescale(X, factor)
