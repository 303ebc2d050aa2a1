import inspect
import math

import numpy as np
import pytest
import torch
from torch import nn

from lightning_ssl_geometry import diagnostics as D
from lightning_ssl_geometry.quantity import SECTIONS, cap_at, declared

V, N, WIDTH, P = 2, 60, 12, 5
OBSERVED = {
    "EffectiveRank": D.EffectiveRank,
    "LogSpectrum": D.LogSpectrum,
    "ProjectorRank": D.ProjectorRank,
    "LiDAR": D.LiDAR,
    "AlphaReQ": D.AlphaReQ,
    "IntrinsicDimension": D.IntrinsicDimension,
    "SIGReg": D.SIGReg,
    "Alignment": D.Alignment,
    "GaussianPotential": D.GaussianPotential,
    "Uniformity": D.Uniformity,
    "UpperBound": D.UpperBound,
    "AugmentationRank": D.AugmentationRank,
    "NullSpaceFraction": D.NullSpaceFraction,
    "UnexplainedVariance": D.UnexplainedVariance,
    "LieGenerator": D.LieGenerator,
    "RotationRank": lambda: D.RotationRank(count=6, contrast_size=2),
    "JacobianRank": D.JacobianRank,
    "LinearRegions": D.LinearRegions,
    "LocalUnexplainedVariance": D.LocalUnexplainedVariance,
    "HardestNegativeDistance": D.HardestNegativeDistance,
    "LabelAgreement": D.LabelAgreement,
    "MeanCorrelation": D.MeanCorrelation,
    "TemperatureOrder": D.TemperatureOrder,
    "NeuralCollapse": D.NeuralCollapse,
    "CKADrift": D.CKADrift,
    "LayerSample": lambda: D.LayerSample(num_layers=2),
}
FIGURES = {  # people save figures by these names
    *("upper_bound", "bound_terms", "bound_entropy", "effective_rank", "projector_rank", "projector_thresholds"),
    *("lidar", "alpha_req", "alpha_req_r2", "intrinsic_dimension", "sigreg", "augmentation_rank", "null_space"),
    *("unexplained_variance", "unexplained_variance_tau", "local_unexplained_variance", "rotation", "trajectory"),
    *("local_unexplained_variance_tau", "jacobian_rank", "linear_regions", "linear_regions_visited", "lie_r2"),
    *("lie_null_space", "hardest_negative_distance", "hardest_negative_histogram", "label_agreement", "mcc"),
    *("within_class", "neural_collapse", "cka_drift", "temperature_order", "temperature_shares", "content_outputs"),
    *("spectrum", "projector_spectrum", "augmentation_spectrum", "jacobian_spectrum"),
}


def cloud(kind):
    noise = torch.randn(V, N, WIDTH)
    if kind == "rank 3":
        return torch.randn(V, N, 3) @ torch.randn(3, WIDTH)
    if kind == "classes, far from the origin":
        return 1e3 + 50 * torch.randn(3, WIDTH)[torch.arange(N) % 3] + noise
    return noise


def computed(name, kind="isotropic"):
    torch.manual_seed(0)
    metric, projector, h = OBSERVED[name](), nn.Linear(WIDTH, P), cloud(kind)
    z = projector(h).detach()
    observation = {
        **{"h": h, "z": z, "index": torch.arange(N), "label": torch.arange(N) % 3, "coarse_label": torch.arange(N) % 2},
        **{"latent": h[..., :4], "content": torch.arange(4) < 2, "temperature": torch.rand(P), "layers": [h[0], z[0]]},
        **{"image": torch.rand(N, 1, 6, 6), "encoder": nn.Sequential(nn.Flatten(), nn.Linear(36, WIDTH))},
        "projector": projector,
    }
    given = {key: observation[key] for key in inspect.signature(metric.update).parameters}
    for _ in range(2 if name == "CKADrift" else 1):  # the first readout has none to compare with
        metric.reset()
        metric.update(**given)
        found = metric.compute()
    return found if isinstance(found, dict) else {"": found}


def quantities(name):
    return getattr(D, name).quantities


EVERY = [(name, key) for name in OBSERVED for key in quantities(name)]


@pytest.mark.parametrize("name", OBSERVED)
def test_what_is_computed_is_declared_and_the_other_way_round(name):
    found = [declared(quantities(name), key) for key in computed(name)]
    assert None not in found
    assert {key for key, _ in found} == quantities(name).keys()
    assert getattr(D, name).section in SECTIONS


@pytest.mark.parametrize(("name", "key"), EVERY)
def test_a_person_can_read_it(name, key):
    quantity = quantities(name)[key]
    if quantity.baseline or name == "LayerSample" or quantity.title == "Largest angle":
        assert quantity.text
    else:
        assert quantity.low
        assert quantity.high
    for sentence in filter(None, (quantity.text, quantity.low, quantity.high)):
        assert sentence.endswith(".")
        assert "The same" not in sentence  # it stands alone in a table
    if quantity.null:
        assert quantities(name)[quantity.null].baseline
        assert quantities(name)[quantity.null].chart == quantity.chart


@pytest.mark.parametrize("kind", ["isotropic", "rank 3", "classes, far from the origin"])
@pytest.mark.parametrize("name", OBSERVED)
def test_values_lie_within_bounds_and_caps(name, kind):
    sizes = {"N": N, "V": V, "D": WIDTH, "P": P}
    for key, value in computed(name, kind).items():
        quantity = declared(quantities(name), key)[1]
        low, high = quantity.bounds
        high = cap_at(quantity.cap, **sizes) if quantity.cap else high
        known = value.double()[~value.double().isnan()]
        assert len(known) or kind != "isotropic", key
        assert low is None or (known >= low - 1e-6).all(), key
        assert high is None or (known <= high * (1 + 1e-4) + 1e-6).all(), key


def test_figures_keep_their_names():
    charts = {quantities(name)[key].chart for name, key in EVERY} - {None}
    assert {chart.name for chart in charts} == FIGURES
    assert len(charts) == len(FIGURES)  # one title and unit for each


def test_alignment_and_uniformity_share_a_path():
    alignment, uniformity = quantities("Alignment")[""], quantities("Uniformity")[""]
    assert alignment.chart is uniformity.chart
    assert (alignment.picture.kind, alignment.picture.role) == ("path", "")
    assert (uniformity.picture.kind, uniformity.picture.role) == ("path", "x")


def test_rotations_are_drawn_over_their_angles_beside_those_of_pixels():
    found = quantities("RotationRank")
    assert {each.chart.name for each in found.values()} == {"rotation"}
    assert [found[key].picture.role for key in ("angles", "pixels", "h")] == ["x", "", ""]
    assert found["h"].null == "pixels"


def test_the_histogram_is_of_shares_in_bins_over_its_bounds():
    histogram = quantities("HardestNegativeDistance")["histogram"]
    assert (histogram.picture.kind, histogram.bounds) == ("histogram", (0, 2))
    assert computed("HardestNegativeDistance")["histogram"].sum().item() == pytest.approx(1)


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
    metric = D.ProjectorRank()
    metric.update(layer)
    found = metric.compute()
    thresholds = [("relative", 0.1), ("relative", 0.01), ("relative", 0.001), ("cumulative", 0.9), ("cumulative", 0.99)]
    spectrum = np.linalg.svd(layer.weight.detach().double().numpy(), compute_uv=False)
    assert found["thresholds"].tolist() == [slow_rank(spectrum, *each) for each in thresholds]
    assert found["thresholds"][1] == found["rank"]  # of relative 0.01, its default
    names = D.ProjectorRank.quantities["thresholds"].picture.names
    assert names == ("max × 0.1", "max × 0.01", "max × 0.001", "90% of sum", "99% of sum")  # noqa: RUF001


def test_thresholds_of_weights_that_are_not_finite_are_nan():
    layer = nn.Linear(4, 3)
    with torch.no_grad():
        layer.weight[0, 0] = torch.nan
    metric = D.ProjectorRank()
    metric.update(layer)
    assert metric.compute()["thresholds"].isnan().tolist() == [True] * 5
