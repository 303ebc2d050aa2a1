import copy
import inspect
import math
from types import MappingProxyType

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize
from torchmetrics import Metric

from lightning_ssl_geometry import functional as F
from lightning_ssl_geometry.diagnostics import (
    Alignment,
    AugmentationRank,
    EffectiveRank,
    GaussianPotential,
    HardestNegativeDistance,
    LabelAgreement,
    LogSpectrum,
    NullSpaceFraction,
    ProjectorRank,
    UnexplainedVariance,
    Uniformity,
    UpperBound,
)
from lightning_ssl_geometry.diagnostics.diagnostic import preferred
from lightning_ssl_geometry.diagnostics.standard import standard_diagnostics

V, N, P = 2, 60, 6
OF_ROWS = {
    "effective_rank": EffectiveRank(),
    "effective_rank_centred": EffectiveRank(center=True),
    "log_spectrum": LogSpectrum(),
    "log_spectrum_centred": LogSpectrum(center=True),
    "alignment": Alignment(),
    "alignment_1": Alignment(alpha=1),
    "potential": GaussianPotential(),
    "potential_of_20": GaussianPotential(contrast_size=20),
    "uniformity": Uniformity(t=1.0, seed=3),
    "bound": UpperBound(),
    "bound_of_20": UpperBound(temperature=0.1, contrast_size=20),
    "augmentation_rank": AugmentationRank(),
    "null_space": NullSpaceFraction(tau=0.5),
    "unexplained": UnexplainedVariance(tau=0.5),
    "unexplained_of_20": UnexplainedVariance(contrast_size=20),
    "hardest_negative": HardestNegativeDistance(bins=7),
    "hardest_negative_of_20": HardestNegativeDistance(contrast_size=20),
    "label_agreement": LabelAgreement(),
    "label_agreement_of_20": LabelAgreement(contrast_size=20),
}
PROJECTOR = nn.Linear(P, 4, bias=False).double()
PROJECTOR.weight.data = torch.randn(4, P, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def data(n=N, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(V, n, P, generator=generator, dtype=dtype) + 0.3, torch.arange(n) * 7


def fed(metric, z, index, chunks):
    metric = copy.deepcopy(metric)
    for rows in chunks:
        update(metric, z[:, rows], index[rows])
    return metric


def update(metric, z, index):
    given = {"h": z, "z": z, "index": index, "label": index % 3, "coarse_label": index % 2, "projector": PROJECTOR}
    metric.update(**{name: given[name] for name in inspect.signature(metric.update).parameters})


def close(found, expected, **tolerance):
    torch.testing.assert_close(found, expected, **tolerance)


def test_moments_agree_with_the_functions():
    z, index = data()
    for center in (False, True):
        rank = fed(EffectiveRank(center), z, index, torch.arange(N).split(8)).compute()
        close(rank, F.effective_rank(z, center=center))
        spectrum = fed(LogSpectrum(center), z, index, torch.arange(N).split(8)).compute()
        close(spectrum, F.log_singular_values(z, center=center))


def test_contrasts_agree_with_the_functions():
    z, index = data()
    whole = [torch.arange(N)]
    close(fed(Alignment(), z, index, whole).compute(), F.alignment(z[0], z[1]))
    potential = (F.gaussian_potential(z[0]) + F.gaussian_potential(z[1])) / 2
    close(fed(GaussianPotential(), z, index, whole).compute(), potential)
    uniform = (F.uniformity(z[0]) + F.uniformity(z[1])) / 2
    close(fed(Uniformity(), z, index, whole).compute(), uniform)
    bound = fed(UpperBound(0.2), z, index, whole).compute()
    for found, expected in zip(
        (bound["invariance"], bound["repulsion"], bound["upper"]),
        F.info_nce_upper_bound(z[0], z[1], 0.2),
        strict=True,
    ):
        close(found, expected)
    loss = F.info_nce(z[0], z[1], 0.2, positive_in_denominator=False, symmetric=False)
    close(bound["info_nce"], loss)
    assert bound["info_nce"] <= bound["upper"]


@pytest.mark.parametrize("name", ["potential", "potential_of_20", "uniformity"])
def test_one_embedding_for_each_sample_counts_as_one_view(name):
    z, index = data()
    metric = copy.deepcopy(OF_ROWS[name])
    for rows in torch.randperm(N).split(11):
        metric.update(z[0, rows], index[rows])
    close(metric.compute(), fed(OF_ROWS[name], z[:1], index, [torch.arange(N)]).compute())


def test_the_sample_is_a_choice_by_index_and_seed():
    z, index = data(500)
    z[..., 0] = index.double()  # to tell who was chosen
    chosen = {
        seed: set(fed(GaussianPotential(contrast_size=50, seed=seed), z, index, [torch.arange(500)]).sample()[0, :, 0])
        for seed in (0, 1)
    }
    assert all(len(s) == 50 for s in chosen.values())
    assert chosen[0] != chosen[1]


@pytest.mark.parametrize("name", [name for name in OF_ROWS if "uniformity" not in name])
def test_embeddings_that_are_all_equal_give_a_number_or_nan_but_no_error(name):
    metric = copy.deepcopy(OF_ROWS[name])
    update(metric, torch.full((V, N, P), 0.3), torch.arange(N))
    metric.compute()


def test_a_collapsed_and_an_isotropic_cloud():
    direction = torch.randn(1, 200, 1) * torch.eye(P)[0]
    collapsed = fed(EffectiveRank(), direction, torch.arange(200), [torch.arange(200)]).compute()
    assert collapsed.item() == pytest.approx(1, abs=1e-3)
    cloud = torch.randn(1, 20_000, P)
    assert fed(EffectiveRank(), cloud, torch.arange(20_000), [torch.arange(20_000)]).compute() > 0.999 * P


def test_small_singular_values_survive_float32_features():
    scale = torch.logspace(0, -6, P, dtype=torch.float64)
    h = (torch.linalg.qr(torch.randn(500, P, dtype=torch.float64)).Q * scale).float()
    metric = LogSpectrum()
    metric.update(h[None])
    close(metric.compute(), F.log_singular_values(h), rtol=1e-3, atol=1e-3)


def test_effective_rank_of_collapsed_float32_features_is_that_of_their_svd_in_float64():
    generator = torch.Generator().manual_seed(2)
    thin = torch.randn(2000, 4, generator=generator) @ torch.randn(4, 64, generator=generator)
    h = thin + 1e-4 * torch.randn(2000, 64, generator=generator)
    metric = EffectiveRank()
    for rows in h.split(100):
        metric.update(rows[None])
    sigma = torch.linalg.svdvals(h.double())
    expected = F.spectrum.singular_values_effective_rank(sigma)
    close(metric.compute(), expected, rtol=1e-6, atol=0)
    gram = torch.linalg.eigvalsh(h.T @ h).clamp(min=0).sqrt()  # float32: what the moments must not be
    assert abs(F.spectrum.singular_values_effective_rank(gram) / expected - 1) > 1e-4


def test_projector_rank_of_a_linear_layer():
    layer = nn.Linear(8, 5, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.diag(torch.tensor([1.0, 0.5, 0.02, 0.005, 0.0])) @ torch.eye(5, 8))
    metric = ProjectorRank()
    metric.update(layer)
    found = metric.compute()
    assert found["rank"] == 3
    close(found["singular_values"], torch.tensor([1.0, 0.5, 0.02, 0.005, 0.0]).double(), atol=1e-7, rtol=1e-6)
    metric = ProjectorRank(0.1, "absolute")
    metric.update(layer)
    assert metric.compute()["rank"] == 2


def test_projector_rank_tells_layers_apart():
    metric = ProjectorRank()
    metric.update(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    kinds = ("rank", "thresholds", "singular_values")
    assert set(metric.compute()) == {f"{kind}_{layer}" for kind in kinds for layer in (0, 2)}
    with pytest.raises(ValueError, match=r"torch.nn.Linear, but got ReLU"):
        metric.update(nn.ReLU())


def test_upper_bound_range():
    # Both terms are cosines: L in [log(2(N - 1)) - 2 beta, log(2(N - 1)) + 2 beta], here N = 128 and beta = 2
    for z in (torch.randn(2, 128, 9), torch.ones(2, 128, 9)):
        metric = UpperBound(0.5)
        metric.update(z, torch.arange(128))
        found = metric.compute()
        assert 1.537 < found["info_nce"] <= found["upper"] < 9.538
    opposite = normalize(torch.randn(128, 9), dim=1)
    metric.reset()
    metric.update(torch.stack([opposite, -opposite]), torch.arange(128))
    assert metric.compute()["invariance"].item() == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Uniformity(contrast_size=1), "`contrast_size` >= 2, but got 1"),
        (lambda: UpperBound(0), "`temperature` > 0, but got 0"),
        (lambda: ProjectorRank(0, "absolute"), "`tau` > 0, but got 0"),
        (lambda: Alignment().update(torch.ones(1, 3, 2)), r"V >= 2 views, but got \(1, 3, 2\)"),
        (
            lambda: Uniformity().update(torch.ones(2, 3, 2), torch.arange(4)),
            r"`z` with N rows and `index` of shape \(N,\), but got \(3, 2, 2\), \(4,\)",
        ),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bad_observations():
    with pytest.raises(ValueError, match=r"`z` of shape \(V, N, P\) with V >= 2 views, but got \(1, 3, 2\)"):
        UpperBound().update(torch.ones(1, 3, 2), torch.arange(3))
    metric = Uniformity()
    metric.update(torch.ones(1, 1, 2), torch.arange(1))
    with pytest.raises(ValueError, match="at least 2 samples, but got 1"):
        metric.compute()


def slow_rank(sigma, mode, tau):
    ordered = sorted(sigma.tolist(), reverse=True)
    if mode == "relative":
        return sum(1 for value in ordered if value > 0 and value >= tau * ordered[0])
    explained, total = 0.0, sum(value**2 for value in ordered)
    for count, value in enumerate(ordered):
        if explained >= tau * total:
            return count
        explained += value**2
    return len(ordered) if total else 0


@pytest.mark.parametrize("decay", [0.0, 0.3, 1.5, math.inf])
def test_ranks_of_the_projector_at_other_thresholds(decay):
    torch.manual_seed(1)
    layer = nn.Linear(20, 16, bias=False)
    sigma = torch.exp(-decay * torch.arange(16.0)) if decay < math.inf else torch.zeros(16)
    with torch.no_grad():
        layer.weight.copy_(torch.linalg.qr(torch.randn(16, 16)).Q @ torch.diag(sigma) @ torch.eye(16, 20))
    metric = ProjectorRank()
    metric.update(layer)
    found = metric.compute()
    thresholds = [("relative", 0.1), ("relative", 0.01), ("relative", 0.001), ("cumulative", 0.9), ("cumulative", 0.99)]
    spectrum = np.linalg.svd(layer.weight.detach().double().numpy(), compute_uv=False)
    assert found["thresholds"].tolist() == [slow_rank(spectrum, *each) for each in thresholds]
    assert found["thresholds"][1] == found["rank"]  # of relative 0.01, its default
    names = ProjectorRank.quantities["thresholds"].picture.names
    assert names == ("max × 0.1", "max × 0.01", "max × 0.001", "90% of sum", "99% of sum")  # noqa: RUF001


def test_thresholds_of_weights_that_are_not_finite_are_nan():
    layer = nn.Linear(4, 3)
    with torch.no_grad():
        layer.weight[0, 0] = torch.nan
    metric = ProjectorRank()
    metric.update(layer)
    assert metric.compute()["thresholds"].isnan().tolist() == [True] * 5


def test_a_metric_says_what_it_prefers_and_by_default_fibers_beside_a_projector():
    class Beside(Metric):
        def update(self, h, projector):
            pass

        def compute(self):
            return 0.0

    class Clean(Beside):
        prefers = MappingProxyType({"h": "h_image"})

    class AsNamed(Beside):
        prefers = MappingProxyType({})

    assert preferred(Beside()) == {"h": "fibers"}
    assert preferred(Clean()) == {"h": "h_image"}
    assert preferred(AsNamed()) == preferred(EffectiveRank()) == {}


@pytest.mark.parametrize(
    ("projector", "kept"),
    [(None, True), (nn.Linear(4, 2), True), (nn.Sequential(nn.Linear(4, 2)), True), (nn.ReLU(), False)],
)
def test_the_standard_set_leaves_out_what_does_not_apply_to_the_projector(projector, kept):
    assert ("projector" in standard_diagnostics(projector)) == kept
    assert standard_diagnostics(projector).keys() | {"projector"} == standard_diagnostics().keys()
