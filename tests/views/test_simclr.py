"""SimCLRViews: torchvision's pipeline with the same parameters, and a view that depends on its sample alone."""

import copy
import pickle

import pytest
import torch
import torchvision.transforms.v2.functional as tv

from lightning_ssl_geometry.views import SimCLRViews, render

ADJUST = (tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue)


def batch(n=16, channels=3, height=20, width=28):
    """Smooth images with all colours, as uint8."""
    coarse = torch.rand(n, channels, 4, 4)
    image = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    return (image * 255).round().to(torch.uint8), 1000 + 7 * torch.arange(n)


def one_view(x, p, size, kernel):
    """The pipeline by torchvision, for one float image and its parameters."""
    x = tv.resized_crop(x, p.top, p.left, p.height, p.width, size=list(size), antialias=True)
    x = tv.horizontal_flip(x) if p.flip else x
    if p.jitter:
        for kind in p.order:
            x = ADJUST[kind](x, p.factor[kind])
    x = tv.rgb_to_grayscale(x, len(x)) if p.gray else x
    return tv.gaussian_blur(x, [kernel[1], kernel[0]], [p.sigma, p.sigma]) if p.blur else x


def by_torchvision(views, image, index, epoch, size, kernel):
    parameters = views.draw(index, epoch, *image.shape[2:])
    x = tv.to_dtype(image, torch.float32, scale=True)
    rows = zip(*(value.tolist() for value in parameters), strict=True)
    made = [one_view(x[p.source], p, size, kernel) for p in map(type(parameters)._make, rows)]
    return torch.stack(made).split(len(image))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("strength", ["small", "moderate", "large"])
def test_views_are_torchvisions_with_the_same_parameters(strength, channels):
    image, index = batch(channels=channels)
    views = SimCLRViews(strength=strength, num_views=2, blur=0.4, blur_kernel=5, seed=3)
    made = views(image, index, epoch=2)
    expected = by_torchvision(views, image, index, 2, (20, 28), (5, 5))
    assert len(made) == 2
    for ours, theirs in zip(made, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("size", [(12, 9), (33, 48)])
def test_size_changes_and_floats_are_welcome(size):
    image, index = batch(12)
    views = SimCLRViews(size, blur=0.5)
    kernel = tuple({12: 3, 9: 3, 33: 3, 48: 5}[side] for side in size)
    expected = by_torchvision(views, image, index, 0, size, kernel)
    for given in (image, image / 255, (image / 255).double()):
        made = views(given, index)
        assert made[0].dtype == (torch.float32 if given.dtype == torch.uint8 else given.dtype)
        for ours, theirs in zip(made, expected, strict=True):
            torch.testing.assert_close(ours.float(), theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("side", [100, 128, 300])
def test_large_views_are_torchvisions(side):
    image, index = batch(4, height=side, width=side + 20)
    views = SimCLRViews((128, 130), blur=0.5)
    for ours, theirs in zip(
        views(image, index), by_torchvision(views, image, index, 0, (128, 130), (13, 13)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("color", ["exact", "fast"])
def test_large_views_are_those_of_the_products_with_matrices(monkeypatch, color, dtype, channels_last):
    image, index = batch(6, height=150, width=100)
    image = image if dtype == torch.uint8 else image.to(dtype) / 255
    views, mean = SimCLRViews(128, color=color, blur=0.5, channels_last=channels_last), torch.tensor([0.2, 0.5, 0.4])
    one_by_one = views(image, index, 0, mean, 2 * mean)
    monkeypatch.setattr(render, "LARGE", 10**9)
    together = views(image, index, 0, mean, 2 * mean)
    tolerance = 2e-2 if dtype == torch.float16 else 1e-4
    for ours, theirs in zip(one_by_one, together, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0)


@pytest.mark.parametrize("color", ["exact", "fast"])
def test_a_view_depends_on_its_sample_alone(color):
    image, index = batch(256, height=12, width=10)
    views = SimCLRViews(color=color, blur=0.3, seed=5)
    whole, parameters = views(image, index, 4), views.draw(index, 4, 12, 10)
    shuffled = torch.randperm(256)
    for rows in (torch.tensor([17]), torch.arange(7) * 3, shuffled):
        both = torch.cat([rows, rows + 256])
        for name, ours, all_of_them in zip(
            parameters._fields[1:], views.draw(index[rows], 4, 12, 10)[1:], parameters[1:], strict=True
        ):
            assert torch.equal(ours, all_of_them[both]), name
        for ours, all_of_them in zip(views(image[rows], index[rows], 4), whole, strict=True):
            torch.testing.assert_close(ours, all_of_them[rows], atol=1e-6, rtol=0)


@pytest.mark.parametrize("color", ["exact", "fast"])
@pytest.mark.parametrize("chunk_size", [1, 7, 1000])
def test_chunks_change_nothing(color, chunk_size):
    image, index = batch(12)
    whole = SimCLRViews(color=color, blur=0.3)(image, index)
    chunked = SimCLRViews(color=color, blur=0.3, chunk_size=chunk_size)(image, index)
    for ours, theirs in zip(chunked, whole, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_other_views_epochs_seeds_and_samples_are_other_draws():
    index = torch.arange(64)
    draw = SimCLRViews(seed=0).draw(index, 0, 32, 32)
    a, b = (draw.factor[:64], draw.factor[64:])
    others = [
        b,
        SimCLRViews(seed=1).draw(index, 0, 32, 32).factor[:64],
        SimCLRViews(seed=0).draw(index, 1, 32, 32).factor[:64],
        SimCLRViews(seed=0).draw(index + 64, 0, 32, 32).factor[:64],
    ]
    for other in others:
        assert (a != other).all()
    assert torch.equal(SimCLRViews(num_views=5).draw(index, 0, 32, 32).factor[:128], draw.factor)


def test_the_global_random_state_is_left_alone():
    image, index = batch()
    before = torch.get_rng_state()
    SimCLRViews()(image, index)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_image_is_left_alone_and_no_gradient_flows():
    image, index = batch()
    x = (image / 255).requires_grad_()
    before = x.detach().clone()
    for color in ("exact", "fast"):
        view = SimCLRViews(color=color)(x, index)[0]
        assert not view.requires_grad
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("strength", "scale", "flip", "s"),
    [("small", (0.9, 1.0), 0.0, 0.05), ("moderate", (0.5, 1.0), 0.5, 0.25), ("large", (0.08, 1.0), 0.5, 0.5)],
)
def test_presets_are_table_2(strength, scale, flip, s):
    views = SimCLRViews(strength=strength)
    n = 4000
    p = views.draw(torch.arange(n), 0, 100, 100)
    area = p.height * p.width / 100**2
    assert scale[0] - 0.01 < area.min() < scale[0] + 0.01
    assert area.max() > 0.99
    for flags, probability in ((p.flip, flip), (p.gray, 0.2), (p.jitter, 0.8), (p.blur, 0.0)):
        spread = (probability * (1 - probability) / (2 * n)) ** 0.5
        assert abs(flags.double().mean() - probability) <= 4 * spread
    for column, (low, high) in enumerate([(1 - 0.8 * s, 1 + 0.8 * s)] * 3 + [(-0.2 * s, 0.2 * s)]):
        assert low <= p.factor[:, column].min() < low + 0.01
        assert high - 0.01 < p.factor[:, column].max() <= high


def test_one_augmentation_at_a_time():
    image, index = batch(64, height=24, width=24)
    off = {"crop_scale": (1.0, 1.0), "flip": 0.0, "jitter": 0.0, "grayscale": 0.0}
    x = image / 255
    for color in ("exact", "fast"):
        plain = SimCLRViews(color=color, **off)(image, index)
        torch.testing.assert_close(plain[0], x, atol=1e-6, rtol=0)
        assert not torch.allclose(SimCLRViews(color=color, **{**off, "crop_scale": (0.3, 0.4)})(image, index)[0], x)
        flipped = SimCLRViews(color=color, **{**off, "flip": 1.0})(image, index)[0]
        torch.testing.assert_close(flipped, x.flip(3), atol=1e-6, rtol=0)
        gray = SimCLRViews(color=color, **{**off, "grayscale": 1.0})(image, index)[0]
        torch.testing.assert_close(gray, tv.rgb_to_grayscale(x, 3), atol=2e-4, rtol=0)
        still = SimCLRViews(color=color, **{**off, "jitter": 1.0}, jitter_strength=0.0)(image, index)[0]
        torch.testing.assert_close(still, x, atol=1e-6, rtol=0)
        blurred = SimCLRViews(color=color, **off, blur=1.0, blur_sigma=(1.0, 1.0), blur_kernel=5)(image, index)[0]
        torch.testing.assert_close(blurred, tv.gaussian_blur(x, [5, 5], [1.0, 1.0]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("color", ["exact", "fast"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_normalization_and_layout(color, channels_last):
    image, index = batch()
    mean, std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.25, 0.3])
    plain = SimCLRViews(color=color)(image, index)
    made = SimCLRViews(color=color, channels_last=channels_last)(image, index, 0, mean, std)
    for ours, theirs in zip(made, plain, strict=True):
        torch.testing.assert_close(ours, tv.normalize(theirs, mean.tolist(), std.tolist()), atol=1e-5, rtol=0)
        memory_format = torch.channels_last if channels_last else torch.contiguous_format
        assert ours.is_contiguous(memory_format=memory_format)
    centred = SimCLRViews(color=color)(image, index, mean=mean)
    torch.testing.assert_close(centred[0], plain[0] - mean[:, None, None], atol=1e-5, rtol=0)


@pytest.mark.parametrize("color", ["exact", "fast"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_stays_near_float32(color, dtype):
    image, index = batch()
    views = SimCLRViews(color=color, blur=0.5)
    for ours, theirs in zip(views((image / 255).to(dtype), index), views(image, index), strict=True):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.float(), theirs, atol=2 / 255, rtol=0)


def test_autocast_changes_nothing():
    image, index = batch()
    for color in ("exact", "fast"):
        views = SimCLRViews(color=color, blur=0.5)
        with torch.autocast("cpu", torch.bfloat16):
            inside = views(image, index)
        assert torch.equal(inside[0], views(image, index)[0])


def test_fast_views_are_near_the_exact_ones():
    image, index = batch(100)
    for strength, bound in (("small", 1 / 255), ("moderate", 4 / 255), ("large", 8 / 255)):
        exact = torch.cat(SimCLRViews(strength=strength)(image, index))
        fast = torch.cat(SimCLRViews(strength=strength, color="fast")(image, index))
        assert (exact - fast).abs().mean() < bound
        assert fast.min() >= 0
        assert fast.max() <= 1


@pytest.mark.parametrize("color", ["exact", "fast"])
def test_the_layout_of_the_input_does_not_matter(color):
    image, index = batch()
    views = SimCLRViews(color=color)
    for given in (image, image / 255):
        strided = given.contiguous(memory_format=torch.channels_last)
        assert torch.equal(views(strided, index)[0], views(given, index)[0])


def test_no_samples_and_two_channels():
    empty = SimCLRViews()(torch.zeros(0, 3, 8, 8), torch.zeros(0, dtype=torch.long))
    assert [view.shape for view in empty] == [(0, 3, 8, 8)] * 2
    for color in ("exact", "fast"):
        views = SimCLRViews(jitter=0.0, grayscale=0.0, color=color)
        assert views(torch.rand(4, 2, 8, 8), torch.arange(4))[0].shape == (4, 2, 8, 8)


def test_copies_make_the_same_views():
    image, index = batch()
    views = SimCLRViews(seed=9)
    for other in (copy.deepcopy(views), pickle.loads(pickle.dumps(views))):
        assert torch.equal(other(image, index)[0], views(image, index)[0])
    assert not views.state_dict()
    assert "crop_scale=(0.08, 1.0)" in repr(views)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("color", ["exact", "fast"])
def test_views_are_the_same_on_a_gpu(color):
    image, index = batch(64)
    views = SimCLRViews(color=color, blur=0.5)
    for where in (index, index.cuda()):
        for ours, theirs in zip(views(image.cuda(), where), views(image, index), strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strength": "huge"}, r"`strength` to be one of \('small', 'moderate', 'large'\), but got 'huge'"),
        ({"color": "slow"}, r"`color` to be one of \('exact', 'fast'\), but got 'slow'"),
        ({"size": 0}, "`size` to be a positive integer or two of them, but got 0"),
        ({"num_views": 0}, "`num_views` to be an integer >= 1, but got 0"),
        ({"chunk_size": 0.5}, r"`chunk_size` to be an integer >= 1, but got 0.5"),
        ({"crop_scale": (0.0, 1.0)}, r"`crop_scale` = .* with 0.0 < minimum <= maximum <= 1.0, but got \(0.0, 1.0\)"),
        ({"crop_ratio": (2.0, 1.0)}, r"`crop_ratio` = .*, but got \(2.0, 1.0\)"),
        ({"blur_sigma": (0.0, 1.0)}, r"`blur_sigma` = .*, but got \(0.0, 1.0\)"),
        ({"crop_scale": 0.5}, r"`crop_scale` = \(minimum, maximum\) with .*, but got 0.5"),
        ({"crop_scale": ("a", "b")}, r"`crop_scale` = .*, but got \('a', 'b'\)"),
        ({"seed": None}, "`seed` to be an integer between .*, but got None"),
        ({"flip": 1.5}, r"`flip` in \[0, 1\], but got 1.5"),
        ({"jitter": -0.1}, r"`jitter` in \[0, 1\], but got -0.1"),
        ({"grayscale": 2}, r"`grayscale` in \[0, 1\], but got 2"),
        ({"blur": float("nan")}, r"`blur` in \[0, 1\], but got nan"),
        ({"jitter_strength": 2.6}, r"`jitter_strength` in \[0, 2.5\], but got 2.6"),
        ({"blur_kernel": 4}, "`blur_kernel` odd and >= 1, but got 4"),
    ],
)
def test_constructor_names_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        SimCLRViews(**arguments)


IMAGE, INDEX = batch(4)
VIEWS = SimCLRViews()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: VIEWS(IMAGE[0], INDEX), r"`image` of shape \(N, C, H, W\), but got \(3, 20, 28\)"),
        (lambda: VIEWS(IMAGE.long(), INDEX), r"`image` of torch.uint8 or a float dtype, but got torch.int64"),
        (lambda: VIEWS(IMAGE[:, :2], INDEX), "`image` with 1 or 3 channels, but got 2"),
        (lambda: VIEWS(IMAGE, INDEX[:3]), r"`index` of shape \(4,\) and torch.int64, but got shape \(3,\)"),
        (lambda: VIEWS(IMAGE, INDEX.int()), r"`index` of shape .* but got shape \(4,\) and torch.int32"),
        (lambda: VIEWS(IMAGE, INDEX, mean=torch.zeros(1)), r"`mean` of shape \(C,\), C = 3, but got \(1,\)"),
        (lambda: VIEWS(IMAGE, INDEX, std=torch.tensor(1.0)), r"`std` of shape \(C,\), C = 3, but got \(\)"),
        (lambda: SimCLRViews(blur=1.0, blur_kernel=99)(IMAGE, INDEX), "`kernel_size` odd and at most 39, but got 99"),
    ],
)
def test_forward_names_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
