"""What no cloud can tell is NaN with its reason, never a plausible number: every Metric that a cloud can be fed to."""

import inspect
import math
import warnings

import pytest
import torch
from clouds import CLOUDS, ONE_POINT, cloud
from torch import nn
from torchmetrics import Metric

from lightning_ssl_geometry import diagnostics
from lightning_ssl_geometry import functional as F
from lightning_ssl_geometry.diagnostics.undefined import UndefinedWarning
from lightning_ssl_geometry.functional.alpha_req import alpha_req
from lightning_ssl_geometry.functional.intrinsic_dimension import mle_dimension, two_nn_dimension
from lightning_ssl_geometry.functional.lidar import lidar
from lightning_ssl_geometry.functional.neural_collapse import neural_collapse

# Observations that a cloud determines; a Metric that needs others needs a network or images.
FROM_A_CLOUD = {
    *("h", "z", "z_image", "index", "label", "coarse_label", "latent", "content", "temperature", "layers", "projector"),
}
SETTINGS = {"IntrinsicDimension": {"neighbors": 9}, "LayerSample": {"num_layers": 1}, "SIGReg": {"standardize": True}}
BASES = {"Diagnostic", "Moments", "SampledRows", "SampledEmbeddings"}
# Results that do not depend on the values of a cloud, so that they always exist.
SHOWN_AS_IT_IS = {"EmbeddingVectors", "LayerSample", "DimensionTemperature", "ProjectorRank"}
OF_NO_VALUE = {"index", "label", "sample", "first", "last", "isotropic", "full_isotropic", "tau_isotropic"}
OF_NO_VALUE |= {"fine_chance", "coarse_chance"}


def fed_from_a_cloud():
    found = []
    for name in diagnostics.__all__:
        if inspect.isclass(kind := getattr(diagnostics, name)) and issubclass(kind, Metric) and name not in BASES:
            named = inspect.signature(kind.update).parameters.keys() - {"self"}
            found += [name] if named <= FROM_A_CLOUD else []
    return found


METRICS = {name: (name, SETTINGS.get(name, {})) for name in fed_from_a_cloud()}
METRICS |= {
    "EffectiveRank, centred": ("EffectiveRank", {"center": True}),
    "LogSpectrum, centred": ("LogSpectrum", {"center": True}),
    "AlphaReQ, uncentred": ("AlphaReQ", {"center": False}),
    "CKADrift, unbiased": ("CKADrift", {"unbiased": True}),
}
# Values for a cloud of one point, which are limits and not noise; all other Metrics are NaN.
OF_ONE_POINT = {
    "Alignment": 0.0,  # the views coincide
    "AugmentationRank": 0.0,
    "GaussianPotential": 1.0,
    "ModalityGap": {"gap": 0.0, "gap_chance": 0.0},
    "Uniformity": 0.0,
    "PairSimilarity": 1.0,
    "MeanCosine": 1.0,
    "ClassMeanCosine": {"largest": 1.0, "collapsed": 3.0},
    "EffectiveRank": 1.0,  # not centred: the one direction of the point
    "RankConvergence": {"rank": 1.0, "growth": 0.0},
    "Clusteredness": {"relative_uniformity": 0.0},
    "HardestNegativeDistance": {"pair": 0.0, "between_samples": 0.0},
    "Stationarity": {"tangential": 0.0},  # all points at one spot are stationary
    "MeanCorrelationCoefficient": 0.0,  # what is constant correlates with nothing
    "LinearRegions": {"visited": 1.0, "fraction": 1 / 60},
    "UpperBound": {"invariance": -1.0, "repulsion": 1.0, "expectation": 1.0, "temperature": 0.5, "negatives": 2.0 * 59}
    | dict.fromkeys(("info_nce", "upper", "entropy_form", "entropy"), math.log(2 * 59)),
    "LossTerms": {"align": -1.0, "uniform": math.log(59) + 1, "total": math.log(59)},
}
SCALE_INVARIANT = set(METRICS) - {
    *("LogSpectrum", "LogSpectrum, centred", "AugmentationRank", "GradientSpectrum"),  # of the size of h
    *("LiDAR", "JacobianRank", "LinearRegions", "LocalUnexplainedVariance"),  # delta, or a projector with biases
    *SHOWN_AS_IT_IS,
}


def computed(name, rows):
    """The results of a Metric that observes a cloud (V, N, D) in batches, by name, and its warnings."""
    kind, settings = METRICS[name]
    metric, n = getattr(diagnostics, kind)(**settings), rows.shape[1]
    torch.manual_seed(3)
    given = {
        **{"h": rows, "z": rows, "z_image": rows[0], "latent": rows[..., :4], "layers": [rows[0]]},
        **{"index": torch.arange(n), "label": torch.arange(n) % 3, "coarse_label": torch.arange(n) % 2},
        **{"content": torch.arange(4) < 2, "temperature": torch.linspace(0.5, 1, rows.shape[2])},
        "projector": nn.Linear(rows.shape[2], 4, bias=False),
    }
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if kind == "CKADrift":  # a readout to compare with
            metric.update(h=cloud("isotropic")[:, :n], index=given["index"])
            metric.compute()
            metric.reset()
        metric.update(**{name: given[name] for name in inspect.signature(metric.update).parameters})
        found = metric.compute()
    return (found if isinstance(found, dict) else {"": found}), [warning for warning in said]


def values(found):
    """The results of a Metric that depend on the values of a cloud."""
    return {key: value for key, value in found.items() if key not in OF_NO_VALUE}


def test_every_metric_is_fed_or_needs_more_than_a_cloud():
    every = {name for name in diagnostics.__all__ if inspect.isclass(getattr(diagnostics, name))}
    needs_more = every - BASES - {kind for kind, _ in METRICS.values()} - {"UndefinedWarning"}
    assert needs_more == {
        *("EquivarianceError", "InvarianceError", "LossGap", "LatentR2"),  # a network and its images
        *("LieGenerator", "PolicyGenerators", "RotationRank", "NeuralKernel", "StepInvariance"),
        *("NonEmptyProbability", "PolicyEntropy", "PolicyMaps"),  # a policy
        "OutputWeights",  # an encoder
        *("ViewPairs", "NearestNeighbors", "RepresentationMap", "ClassAccuracy"),  # images, or their own h
    }


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("kind", ["one nan", "one inf"])
def test_a_value_that_is_not_finite_gives_nan_and_the_reason(name, kind):
    found, said = computed(name, cloud(kind))
    if METRICS[name][0] in SHOWN_AS_IT_IS:
        return
    assert all(value.isnan().all() for value in values(found).values()), found
    assert {warning.category for warning in said} == {UndefinedWarning}
    assert str(said[0].message).startswith(f"{METRICS[name][0]} is NaN: ")


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("kind", ONE_POINT)
def test_one_point_has_its_limit_or_none(name, kind):
    found, said = computed(name, cloud(kind))
    limit = OF_ONE_POINT.get(name, math.nan)
    if METRICS[name][0] in SHOWN_AS_IT_IS | {"JacobianRank"} or (name, kind) == ("LinearRegions", "zero"):
        return
    for key, value in values(found).items():
        if name == "RankConvergence" and key in ("rows", "cap"):  # sizes, whatever the rows are
            continue
        expected = limit.get(key, math.nan) if isinstance(limit, dict) else limit
        if name.startswith("LogSpectrum") or (key == "singular_values" and name == "AugmentationRank"):
            least = 1 if name == "LogSpectrum" and kind != "zero" else 0  # not centred: the direction of the point
            assert (value[least:] == (-torch.inf if "Log" in name else 0)).all()
        elif kind == "zero" and value.isnan().all():
            continue  # 0 has no direction either
        elif kind == "zero" and name in ("AugmentationRank", "MeanCorrelationCoefficient"):
            assert value == 0
        else:
            torch.testing.assert_close(
                value.double(), torch.full_like(value.double(), expected), rtol=0, atol=2e-5, equal_nan=True
            )  # RankMe's eps alone is a bias of D eps log(1 / eps) = 1e-5
        if value.isnan().any():
            assert UndefinedWarning in {warning.category for warning in said}


@pytest.mark.parametrize("name", sorted(SCALE_INVARIANT))
@pytest.mark.parametrize("kind", ["huge", "tiny"])
def test_the_scale_does_not_matter_where_it_should_not(name, kind):
    (found, said), (expected, _) = computed(name, cloud(kind)), computed(name, cloud("isotropic"))
    assert not said
    for key, value in found.items():
        torch.testing.assert_close(value, expected[key], rtol=1e-4, atol=1e-5)  # the scale is no power of 2


@pytest.mark.parametrize("kind", ["isotropic", "far", "rank one", "rank three", "duplicated", *ONE_POINT])
@pytest.mark.parametrize("center", [False, True])
def test_spectra_agree_with_the_functions(kind, center):
    rows, name = cloud(kind), ", centred" if center else ""
    spectrum, _ = computed(f"LogSpectrum{name}", rows)
    expected = F.log_singular_values(rows, center=center)
    torch.testing.assert_close(spectrum[""], expected, rtol=0, atol=1e-6)
    rank, _ = computed(f"EffectiveRank{name}", rows)
    if expected.isneginf().all():
        assert rank[""].isnan()
        with pytest.raises(ValueError, match="at least one singular value > 0, but all are 0"):
            F.effective_rank(rows, center=center)
    else:
        torch.testing.assert_close(rank[""], F.effective_rank(rows, center=center), rtol=1e-6, atol=0)


FUNCTIONS = {
    "AlphaReQ": lambda rows: {"alpha": alpha_req(rows).alpha},
    "LiDAR": lambda rows: {"": lidar(rows)},
    "NeuralCollapse": lambda rows: neural_collapse(
        rows.flatten(0, 1), (torch.arange(rows.shape[1]) % 3).repeat(2)
    )._asdict(),
    "IntrinsicDimension": lambda rows: {"two_nn": two_nn_dimension(rows[0]), "mle": mle_dimension(rows[0], 9)},
}


@pytest.mark.parametrize("kind", [name for name in CLOUDS if not name.startswith(("one", "few"))])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_the_function_or_nan_where_that_raises(name, kind):
    rows = cloud(kind)
    if name == "IntrinsicDimension" and kind == "duplicated":
        rows = rows[:, : rows.shape[1] // 2]  # distinct points are counted
    found, _ = computed(name, cloud(kind))
    try:
        expected = FUNCTIONS[name](rows)
    except ValueError:
        expected = dict.fromkeys(values(found), torch.tensor(math.nan))
    if name == "IntrinsicDimension" and kind == "rounded":
        expected = dict.fromkeys(found, torch.tensor(math.nan))  # the function counts points, not what they are
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value.double(), rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("name", ["EffectiveRank, centred", "AlphaReQ", "GradientSpectrum", "LiDAR"])
@pytest.mark.parametrize("rows", [200, 20_000])
def test_identical_rows_far_from_0_have_no_direction_in_any_number(name, rows):
    kind, settings = METRICS[name]
    metric = getattr(diagnostics, kind)(**settings)
    for part in (1e4 + torch.randn(48)).expand(2, rows, 48).split(256, dim=1):
        metric.update(part)
    with pytest.warns(UndefinedWarning, match=f"{kind} is NaN"):
        found = metric.compute()
    found = found if isinstance(found, dict) else {"": found}
    assert all(value.isnan().all() for value in values(found).values())


@pytest.mark.filterwarnings("error")
def test_the_reason_is_said_once():
    metric = diagnostics.EffectiveRank()
    metric.update(torch.zeros(1, 4, 3))
    with pytest.warns(UndefinedWarning, match="EffectiveRank is NaN: all of `h` is 0 but for rounding"):
        metric.compute()
    metric.reset()
    metric.update(torch.zeros(1, 5, 3))
    assert metric.compute().isnan()  # a warning would be an error here


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_rounding_of_a_dtype_is_no_direction(dtype):
    rows = (cloud("rank three") + 3).to(dtype)
    assert computed("EffectiveRank", rows)[0][""] < 4.1  # and the mean's
    assert computed("LogSpectrum, centred", rows)[0][""].isfinite().sum() == 3
