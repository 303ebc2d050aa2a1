"""The samplers against torchvision's own: two-sample tests with fixed seeds."""

import math

import pytest
import torch
from scipy.stats import chi2_contingency, chisquare, ks_2samp, kstest
from torchvision.transforms import v2

from lightning_ssl_geometry.random import counter_uniform
from lightning_ssl_geometry.views import (
    sample_bernoulli,
    sample_color_jitter,
    sample_resized_crop,
    sample_uniform,
)

N = 3000
LEVEL = 1e-3  # of each test: the seeds are fixed, so a pass stays a pass


def uniforms(size):
    return counter_uniform(0, 0, torch.arange(N), 0, size=size)


@pytest.mark.parametrize(
    ("height", "width", "scale", "ratio"),
    [
        (32, 32, (0.08, 1.0), (3 / 4, 4 / 3)),
        (40, 56, (0.5, 1.0), (3 / 4, 4 / 3)),
        (24, 30, (0.3, 0.6), (0.5, 2.0)),
    ],
)
def test_crops_are_torchvisions(height, width, scale, ratio):
    transform = v2.RandomResizedCrop(8, scale=scale, ratio=ratio)
    image = torch.empty(1, height, width)
    theirs = [transform.make_params([image]) for _ in range(N)]
    ours = dict(
        zip(
            ("top", "left", "height", "width"),
            sample_resized_crop(uniforms(22), height, width, scale, ratio),
            strict=True,
        )
    )
    for name, value in ours.items():
        assert ks_2samp(value.numpy(), [p[name] for p in theirs]).pvalue > LEVEL, name
    for derived in (lambda p: p["height"] * p["width"], lambda p: p["width"] / p["height"]):
        assert ks_2samp(derived(ours).numpy(), [derived(p) for p in theirs]).pvalue > LEVEL


@pytest.mark.parametrize(
    ("height", "width", "scale"),
    [(10, 40, (0.9, 1.0)), (40, 10, (0.9, 1.0)), (33, 32, (0.999, 1.0)), (31, 32, (1.0, 1.0))],
)
def test_fallback_is_torchvisions_central_crop(height, width, scale):
    """Where no crop fits, or hardly one does, theirs is one of few: those that come often must be the same."""
    transform = v2.RandomResizedCrop(8, scale=scale)
    image = torch.empty(1, height, width)
    theirs = [tuple(transform.make_params([image])[k] for k in ("top", "left", "height", "width")) for _ in range(500)]
    ours = list(zip(*(v.tolist() for v in sample_resized_crop(uniforms(22), height, width, scale)), strict=True))
    often = {box for box in theirs if theirs.count(box) > 25}
    assert often
    for box in often:
        assert math.isclose(ours.count(box) / N, theirs.count(box) / 500, abs_tol=0.1)


def test_crops_lie_inside():
    top, left, height, width = sample_resized_crop(uniforms(22), 17, 29, (0.01, 1.0), (0.1, 10.0))
    for value, room in ((top, 17 - height), (left, 29 - width)):
        assert (value >= 0).all()
        assert (value <= room).all()
        assert (value == room)[room > 0].any()
    assert (height > 0).all()
    assert (width > 0).all()


def test_jitter_is_torchvisions():
    ranges = ((0.6, 1.4), (0.2, 1.8), (0.0, 2.0), (-0.1, 0.1))
    transform = v2.ColorJitter(0.4, 0.8, 1.0, 0.1)
    theirs = [transform.make_params([]) for _ in range(N)]
    order, factor = sample_color_jitter(uniforms(5), *ranges)
    for column, name in enumerate(("brightness", "contrast", "saturation", "hue")):
        assert ks_2samp(factor[:, column].numpy(), [p[f"{name}_factor"] for p in theirs]).pvalue > LEVEL, name
    code = torch.tensor([1000, 100, 10, 1])
    ours_count = torch.unique((order * code).sum(1), return_counts=True)[1]
    theirs_count = torch.unique(torch.stack([(p["fn_idx"] * code).sum() for p in theirs]), return_counts=True)[1]
    assert len(ours_count) == len(theirs_count) == 24
    assert chisquare(ours_count.numpy()).pvalue > LEVEL
    assert chi2_contingency(torch.stack([ours_count, theirs_count]).numpy()).pvalue > LEVEL


def test_order_and_factors_are_independent():
    order, factor = sample_color_jitter(uniforms(5), (0, 1), (0, 1), (0, 1), (-0.5, 0.5))
    correlation = torch.corrcoef(torch.cat([order[:, :3].float(), factor], 1).T)
    assert correlation[3:, :3].abs().max() < 4 / math.sqrt(N)
    assert (correlation[3:, 3:] - torch.eye(4)).abs().max() < 4 / math.sqrt(N)


@pytest.mark.parametrize("probability", [0.0, 0.2, 0.5, 1.0])
def test_bernoulli_has_the_probability(probability):
    count = int(sample_bernoulli(uniforms(1), probability).sum())
    transforms = v2.RandomGrayscale(probability), v2.RandomHorizontalFlip(probability)
    red_then_green = torch.zeros(3, 1, 2)
    red_then_green[0, 0, 0] = red_then_green[1, 0, 1] = 1
    for transform in transforms:
        theirs = sum(not torch.equal(transform(red_then_green), red_then_green) for _ in range(N))
        if probability in (0.0, 1.0):
            assert count == theirs
        else:
            table = [[count, N - count], [theirs, N - theirs]]
            assert chi2_contingency(table).pvalue > LEVEL


def test_uniform_is_the_blurs_sigma():
    transform = v2.GaussianBlur(3, sigma=(0.1, 2.0))
    theirs = [transform.make_params([])["sigma"][0] for _ in range(N)]
    ours = sample_uniform(uniforms(1)[:, 0], 0.1, 2.0)
    assert ks_2samp(ours.numpy(), theirs).pvalue > LEVEL
    assert kstest(ours.numpy(), "uniform", (0.1, 1.9)).pvalue > LEVEL


SCALE = r"`scale` = \(minimum, maximum\) with 0.0 < minimum <= maximum <= 1.0"
RATIO = r"`ratio` = \(minimum, maximum\) with 0.0 < minimum <= maximum < inf"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"u": torch.rand(2, 5)}, r"`u` of shape \(N, 22\), but got \(2, 5\)"),
        ({"scale": (0.0, 1.0)}, SCALE),
        ({"scale": (0.5, 0.4)}, SCALE),
        ({"scale": (0.5, 1.1)}, SCALE),
        ({"scale": (0.5,)}, SCALE),
        ({"ratio": (2.0, 1.0)}, RATIO),
        ({"ratio": (1.0, math.inf)}, RATIO),
        ({"ratio": (math.nan, 1.0)}, RATIO),
    ],
)
def test_errors_of_crops_name_the_argument(given, message):
    with pytest.raises(ValueError, match=message):
        sample_resized_crop(**{"u": torch.rand(2, 22), "height": 8, "width": 8} | given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"u": torch.rand(5)}, r"`u` of shape \(N, 5\), but got \(5,\)"),
        ({"contrast": (-1, 1)}, r"`contrast` = .* 0.0 <= minimum <= maximum < inf, but got \(-1, 1\)"),
        ({"hue": (0, 1)}, r"`hue` = .* -0.5 <= minimum <= maximum <= 0.5, but got \(0, 1\)"),
    ],
)
def test_errors_of_jitter_name_the_argument(given, message):
    ranges = {"brightness": (0, 1), "contrast": (0, 1), "saturation": (0, 1), "hue": (0, 0.1)}
    with pytest.raises(ValueError, match=message):
        sample_color_jitter(**{"u": torch.rand(2, 5)} | ranges | given)
