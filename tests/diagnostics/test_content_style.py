import copy
import inspect

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.diagnostics.content_style import (
    DimensionTemperature,
    GradientSpectrum,
    LossTerms,
    OutputWeights,
)
from lightning_ssl_geometry.functional import LpDistance
from lightning_ssl_geometry.functional.adaptive_temperature import content_dimension, gradient_spectrum
from lightning_ssl_geometry.losses import InfoNCELoss, LearnedTemperature

N, D, CONTENT = 80, 6, 2
ENCODER = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Linear(6, 4))
for parameter in ENCODER.parameters():
    parameter.data = torch.linspace(-1, 2, parameter.numel()).view_as(parameter)


def data(n=N):
    """Two views that are equal in the first two dimensions only, then rotated."""
    generator = torch.Generator().manual_seed(1)
    latent = torch.randn(n, D, generator=generator, dtype=torch.float64)
    change = 0.3 * torch.randn(n, D, generator=generator, dtype=torch.float64)
    change[:, :CONTENT] = 0
    mixing = torch.randn(D, D, generator=generator, dtype=torch.float64)
    return torch.stack([latent, latent + change]) @ mixing.T + 3, torch.arange(n) * 7


def update(metric, z, index):
    given = {"h": z, "z": z, "index": index, "temperature": torch.arange(1.0, 5.0), "encoder": ENCODER}
    metric.update(**{name: given[name] for name in inspect.signature(metric.update).parameters})


def fed(metric, z, index, chunks):
    metric = copy.deepcopy(metric)
    for rows in chunks:
        update(metric, z[:, rows], index[rows])
    return metric


def close(found, expected):
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_the_spectrum_is_the_functions():
    z, index = data()
    found = fed(GradientSpectrum(), z, index, torch.arange(N).split(9)).compute()
    close(found["singular_values"], gradient_spectrum(z[0], z[1]))
    close(found["content_dimension"], content_dimension(z[0], z[1]))
    assert found["content_dimension"] == CONTENT
    close(found["ratio"][:CONTENT], torch.zeros(CONTENT, dtype=torch.float64))
    assert found["ratio"].diff().min() > -1e-10
    assert found["ratio"][CONTENT:].mean().item() == pytest.approx(0.3**2, rel=0.2)


def test_views_that_agree_have_no_content_to_tell_apart_and_flat_directions_no_ratio():
    z, index = data()
    found = fed(GradientSpectrum(), torch.stack([z[0], z[0]]), index, [torch.arange(N)]).compute()
    assert found["content_dimension"] == 0
    close(found["ratio"], torch.zeros(D, dtype=torch.float64))
    close(found["singular_values"], torch.linalg.eigvalsh(z[0].T.cov(correction=0)).flip(0))
    flat = torch.cat([z, torch.ones(2, N, 2)], dim=2)
    found = fed(GradientSpectrum(), flat, index, [torch.arange(N)]).compute()
    assert found["ratio"].isnan().tolist() == [False] * D + [True] * 2
    assert found["content_dimension"] == CONTENT
    constant = fed(GradientSpectrum(), torch.ones(2, N, D), index, [torch.arange(N)]).compute()
    assert all(value.isnan().all() for value in constant.values())


@pytest.mark.parametrize("similarity", ["dot", "distance"])
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("positive", [False, True])
def test_the_terms_are_those_of_info_nce(similarity, include_self, positive):
    z, index = data()
    settings = {"normalize": False, "similarity": similarity}
    settings |= {"include_self": include_self, "positive_in_denominator": positive}
    loss = InfoNCELoss(0.5, form="RUSAK", **settings)
    found = fed(LossTerms(loss=loss), z, index, [torch.arange(N)]).compute()
    loss = loss(z[0], z[1])
    close(found["total"], loss)
    close(found["align"] + found["uniform"], loss)
    assert set(found) == {"align", "uniform", "total"}


def test_only_the_last_temperatures_and_weights_count():
    metric = DimensionTemperature()
    metric.update(torch.ones(3))
    last = torch.tensor([1.0, 2.0, 3.0])
    metric.update(last)
    last += 1
    assert metric.compute().tolist() == [1, 2, 3]


def test_weights_of_each_output():
    layer = nn.Conv2d(2, 3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, -2.0, 0.0])[:, None, None, None].expand(3, 2, 2, 2))
        layer.weight[1, 0] = 4
    metric = OutputWeights("body.0", split=2)
    metric.update(nn.ModuleDict({"body": nn.Sequential(layer)}))
    with torch.no_grad():
        layer.weight.zero_()
    found = metric.compute()
    assert found["weight"].tolist() == [1, 3, 0]
    assert found["used"] == 2
    assert found["unused"] == 0
    metric = OutputWeights("body.0")
    metric.update(nn.ModuleDict({"body": nn.Sequential(layer)}))
    assert set(metric.compute()) == {"weight"}


def computed(metric, *observations):
    metric.update(*observations)
    return metric.compute()


ONE, PAIRS, THREE = torch.ones(1, 3, 2), torch.ones(2, 3, 2), torch.arange(3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GradientSpectrum(min_ratio=1.0), r"`min_ratio` > 1 and finite, but got 1\.0"),
        (lambda: GradientSpectrum(eps=0.0), r"`eps` > 0 and finite, but got 0\.0"),
        (lambda: LossTerms(temperature=0.0), r"`temperature` > 0 and finite, but got 0\.0"),
        (lambda: LossTerms(loss=InfoNCELoss()), "Expected a `form` with symmetric=False, .* but got symmetric=True"),
        (lambda: LossTerms(loss=InfoNCELoss(LearnedTemperature(3))), "Expected `loss` with fixed temperatures"),
        (
            lambda: LossTerms(loss=InfoNCELoss(), normalize=True),
            "Expected `loss` alone, but got `normalize` beside it",
        ),
        (
            lambda: LossTerms(loss=InfoNCELoss(form="RUSAK", similarity=LpDistance(p=3.0))),
            r"similarity 'dot' or 'distance', but got LpDistance\(scale=1.0, p=3.0, power=True\)",
        ),
        (lambda: LossTerms(contrast_size=1), "`contrast_size` >= 2, but got 1"),
        (lambda: OutputWeights("0", split=0), "`split` >= 1, but got 0"),
        (lambda: GradientSpectrum().update(ONE), r"V >= 2 views, but got \(1, 3, 2\)"),
        (lambda: DimensionTemperature().update(torch.ones(())), r"`temperature` of shape \(P,\), but got \(\)"),
        (lambda: OutputWeights("1.0").update(ENCODER), r"`layer` to name submodules of Sequential, but got '1\.0'"),
        (lambda: OutputWeights("1").update(ENCODER), r"`layer` to have a weight \(out, in, \.\.\.\), but got ReLU"),
        (lambda: OutputWeights("2", 4).update(ENCODER), "`split` < 4, the outputs of '2', but got 4"),
        (lambda: computed(GradientSpectrum(), torch.ones(2, 1, 3)), "at least 2 samples, but got 1"),
        (lambda: computed(LossTerms(), ONE, THREE), "with V >= 2 views, but got"),
        (
            lambda: computed(LossTerms(loss=InfoNCELoss((1.0, 2.0, 3.0), form="RUSAK")), PAIRS, THREE),
            "`temperature` with P = 2 values, one per dimension, but got 3",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
