"""SignalViews: each operation against a slow loop or its law."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, kstest

from lightning_ssl_geometry.views import SignalViews

NEUTRAL = {"crop_scale": (1.0, 1.0), "scaling": 0.0, "jitter": 0.0, "mask_spans": 0, "num_views": 1}
LEVEL = 1e-3  # of each test of a distribution: the seeds are fixed, so a pass stays a pass


def view_of(x, **settings):
    (view,) = SignalViews(**(NEUTRAL | settings))(x, torch.arange(len(x)))
    return view


def ramp(n, steps, channels=1):
    """Signals x[t] = t + 1, which say where each time step comes from."""
    return (torch.arange(steps) + 1.0).expand(n, channels, steps).clone()


@pytest.mark.parametrize(("scale", "steps"), [((0.5, 0.5), 41), ((0.1, 1.0), 41), ((0.2, 0.2), 10), ((0.01, 0.01), 9)])
def test_a_crop_is_resized_by_linear_interpolation(scale, steps):
    x = torch.randn(30, 2, steps, dtype=torch.float64)
    where = view_of(ramp(30, steps).double(), crop_scale=scale)[:, 0] - 1  # (N, T), times in the signal
    found = view_of(x, crop_scale=scale)
    for n in range(30):
        assert 0 <= where[n].min() <= where[n].max() <= steps - 1
        assert where[n, 0] == where[n, 0].round()  # crops begin and end at time steps
        assert abs(where[n, -1] - where[n, -1].round()) < 1e-9
        length = where[n, -1] - where[n, 0] + 1
        assert max(1, np.floor(scale[0] * steps)) <= length + 1e-9 <= np.ceil(scale[1] * steps) + 1e-6
        for c in range(2):
            expected = np.interp(where[n].numpy(), np.arange(steps), x[n, c].numpy())
            np.testing.assert_allclose(found[n, c].numpy(), expected, atol=1e-9)


def test_crops_are_uniform_over_their_places():
    start = view_of(ramp(4000, 10), crop_scale=(0.6, 0.6))[:, 0, 0].long() - 1
    assert chisquare(torch.bincount(start, minlength=5).numpy()).pvalue > LEVEL


def test_a_shift_moves_whole_steps_and_fills_with_the_mean():
    x = ramp(3000, 10, channels=2)
    view = view_of(x, max_shift=0.2)
    seen = torch.zeros(5)
    for one in view:
        shift = next(s for s in range(-2, 3) if torch.equal(one, moved(x[0], s)))
        seen[shift + 2] += 1
    assert chisquare(seen.numpy()).pvalue > LEVEL


def moved(x, shift):
    expected = torch.zeros_like(x)
    for t in range(x.shape[1]):
        if 0 <= t - shift < x.shape[1]:
            expected[:, t] = x[:, t - shift]
    return expected


def test_scaling_multiplies_each_channel_by_a_normal_factor():
    view = view_of(torch.ones(1000, 3, 5), scaling=0.2)
    assert torch.equal(view, view[..., :1].expand(-1, -1, 5))
    factor = view[..., 0]
    assert kstest((factor.flatten().numpy() - 1) / 0.2, "norm").pvalue > LEVEL
    assert (torch.corrcoef(factor.T) - torch.eye(3)).abs().max() < 5 / 1000**0.5


def test_jitter_is_normal_noise_for_every_value():
    view = view_of(torch.zeros(200, 3, 20), jitter=0.5)
    assert kstest(view.flatten().numpy() / 0.5, "norm").pvalue > LEVEL


def test_a_mask_is_a_span_of_time_in_all_channels():
    masked = view_of(torch.ones(5000, 2, 20), mask_spans=1, mask_length=0.25) == 0
    assert torch.equal(masked[:, 0], masked[:, 1])
    length = masked[:, 0].sum(1)
    assert chisquare(torch.bincount(length, minlength=6).numpy()).pvalue > LEVEL  # 0 to 5 steps
    edges = masked[:, 0].int().diff(dim=1).abs().sum(1) + masked[:, 0, 0].int() + masked[:, 0, -1].int()
    assert torch.equal(edges, 2 * (length > 0).int())  # one span
    start = masked[:, 0].int().argmax(1)[length == 5]
    assert chisquare(torch.bincount(start, minlength=16).numpy()).pvalue > LEVEL


@pytest.mark.parametrize(("spans", "length", "all_masked"), [(0, 1.0, False), (3, 0.0, False), (60, 1.0, True)])
def test_the_ends_of_masking(spans, length, all_masked):
    view = view_of(torch.ones(20, 1, 4), mask_spans=spans, mask_length=length)
    assert bool((view == 0).all()) == all_masked
    assert bool((view == 1).all()) != all_masked


def test_the_random_numbers_of_one_operation_do_not_depend_on_the_others():
    x = torch.ones(50, 1, 20)
    alone = view_of(x, mask_spans=1, mask_length=0.5) == 0
    together = view_of(x, mask_spans=1, mask_length=0.5, scaling=0.1, jitter=0.1, max_shift=0.0) == 0
    assert torch.equal(alone, together)


def test_a_batch_may_be_empty():
    assert [view.shape for view in SignalViews()(torch.rand(0, 3, 8), torch.arange(0))] == [(0, 3, 8)] * 2


def test_one_time_step_is_enough():
    views = SignalViews(max_shift=1.0)
    assert all(view.isfinite().all() for view in views(torch.randn(3, 2, 1), torch.arange(3)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"crop_scale": (0.0, 1.0)}, r"`crop_scale` = \(minimum, maximum\) with 0.0 < minimum"),
        ({"crop_scale": (0.9, 0.5)}, r"but got \(0.9, 0.5\)"),
        ({"max_shift": 2}, r"`max_shift` in \[0, 1\], but got 2"),
        ({"mask_length": -1}, r"`mask_length` in \[0, 1\], but got -1"),
        ({"scaling": -1.0}, "`scaling` >= 0 and finite, but got -1.0"),
        ({"jitter": float("inf")}, "`jitter` >= 0 and finite, but got inf"),
        ({"mask_spans": 0.5}, "`mask_spans` to be an integer >= 0, but got 0.5"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        SignalViews(**arguments)
