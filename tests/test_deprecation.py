"""What a user could call before a change: it still works, and a warning names the new way."""

import importlib
from types import SimpleNamespace

import pytest
import torch
from jsonargparse import ArgumentParser
from lightning import LightningDataModule
from torch import nn
from torchmetrics import Metric

import lightning_ssl_geometry as sslg
from lightning_ssl_geometry.callbacks.evaluation import clean_batches
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.deprecation import old_names
from lightning_ssl_geometry.diagnostics import LossTerms, Stationarity, StepInvariance
from lightning_ssl_geometry.functional import LpDistance, info_nce
from lightning_ssl_geometry.losses import (
    AdaptiveTemperatureLoss,
    InfoNCELoss,
    LogBilinearInfoNCELoss,
    VariationalLoss,
)
from lightning_ssl_geometry.methods import AdaptiveTemperatureModule, SimCLRModule

SQUARED = {"form": "RUSAK", "normalize": False, "similarity": "distance"}


def pair():
    return torch.randn(7, 3, dtype=torch.float64), torch.randn(7, 3, dtype=torch.float64)


def network():
    torch.manual_seed(0)
    return nn.Linear(5, 4), nn.Linear(4, 3)


def sgd(groups):
    return torch.optim.SGD(groups, lr=0.1)


LOSSES = {  # the old way, the new one, and what the warning says
    "switches by position": (
        lambda: InfoNCELoss(0.3, False, False),
        lambda: InfoNCELoss(0.3, normalize=False, positive_in_denominator=False),
        "use `normalize=...`, `positive_in_denominator=...`",
    ),
    "a norm": (
        lambda: InfoNCELoss(normalize=False, similarity="distance", p=3.0, power=False),
        lambda: InfoNCELoss(normalize=False, similarity=LpDistance(p=3.0, power=False)),
        r"use `similarity` = LpDistance\(scale=1.0, p=3.0, power=False\)",
    ),
    "AdaptiveTemperatureLoss": (
        lambda: AdaptiveTemperatureLoss([0.5, 1.0, 2.0], mode="feature"),
        lambda: InfoNCELoss([0.5, 1.0, 2.0], mode="feature", **SQUARED),
        r"use `InfoNCELoss\(temperature, form=\"RUSAK\"",
    ),
    "LogBilinearInfoNCELoss": (
        lambda: LogBilinearInfoNCELoss(3, 0.5, False, True, "same").double(),
        lambda: LogBilinearInfoNCELoss(3, 0.5, positive_in_denominator=False, negatives="same").double(),
        "use `positive_in_denominator=...`, `symmetric=...`, `negatives=...`",
    ),
    "VariationalLoss": (
        lambda: VariationalLoss(0.5, None, None, "both", False),
        lambda: VariationalLoss(0.5, negatives="both", include_self=False),
        "use `negatives=...`, `include_self=...`",
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss(name):
    old, new, said = LOSSES[name]
    with pytest.warns(FutureWarning, match=said):
        loss = old()
    z1, z2 = pair()
    assert torch.equal(loss(z1, z2), new()(z1, z2))


DIAGNOSTICS = {
    "Stationarity": (
        lambda: Stationarity(temperature=0.5, negatives="both", contrast_size=20),
        lambda: Stationarity(loss=VariationalLoss(0.5, negatives="both"), contrast_size=20),
        r"use `loss=VariationalLoss\(",
    ),
    "StepInvariance": (
        lambda: StepInvariance(temperature=0.5, include_self=False),
        lambda: StepInvariance(loss=VariationalLoss(0.5, include_self=False)),
        r"use `loss=VariationalLoss\(",
    ),
    "LossTerms": (
        lambda: LossTerms(temperature=0.3, similarity="distance", normalize=False),
        lambda: LossTerms(
            loss=InfoNCELoss(0.3, form="RUSAK", positive_in_denominator=False, similarity="distance", normalize=False)
        ),
        r"use `loss=InfoNCELoss\(",
    ),
}


@pytest.mark.parametrize("name", DIAGNOSTICS)
def test_a_diagnostic(name):
    old, new, said = DIAGNOSTICS[name]
    with pytest.warns(FutureWarning, match=said):
        metric = old()
    assert metric.form == new().form
    assert getattr(metric, "temperature", 0.3) == 0.3


def test_the_settings_of_a_diagnostic_by_position():
    with pytest.warns(FutureWarning) as caught:
        metric = Stationarity(0.5, None, None, "both")
    assert (metric.form.temperature, metric.form.negatives) == (0.5, "both")
    said = [str(each.message) for each in caught]
    assert "use `temperature=...`, `psi=...`, `eta=...`, `negatives=...`" in said[0]
    assert "use `loss=VariationalLoss(temperature=0.5" in said[1]


def test_the_settings_of_a_method_by_position():
    with pytest.warns(FutureWarning, match="use `optimizer=...`, `lr_scheduler=...`, `warmup_epochs=...`"):
        model = SimCLRModule(*network(), None, sgd, None, 2.0)
    assert (model.optimizer, model.warmup_epochs) == (sgd, 2.0)


def test_the_settings_of_the_loss_of_a_method():
    batch = {"views": (torch.randn(6, 5), torch.randn(6, 5))}
    settings = {"symmetric": True, "negatives": "both", "include_self": True, "mode": "feature"}
    with pytest.warns(FutureWarning, match="`include_self`, .* of `AdaptiveTemperatureModule` will be .*InfoNCELoss"):
        old = AdaptiveTemperatureModule(*network(), temperature=0.7, warmup_epochs=1.0, **settings)
    new = AdaptiveTemperatureModule(*network(), loss=InfoNCELoss(0.7, **SQUARED, **settings), warmup_epochs=1.0)
    assert torch.equal(old.observe(batch)["loss"], new.observe(batch)["loss"])
    with pytest.raises(ValueError, match="Expected `loss` alone, but got `temperature` beside it"):
        AdaptiveTemperatureModule(*network(), loss=InfoNCELoss(), temperature=0.7)


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({"similarity": "distance", "p": 0.5}, r"`p` with 1 <= p < inf, but got 0\.5"),
        ({"similarity": "distance", "power": 2.0}, r"`power` to be True or False, but got 2\.0"),
        ({"p": 1.0}, r"`p` = 2 where `similarity` is 'dot', which has no norm, but got 1\.0"),
        ({"power": False}, "`power` = True where `similarity` is 'dot', which has no norm, but got False"),
    ],
    ids=str,
)
def test_a_wrong_norm_is_named(switches, message):
    with pytest.raises(ValueError, match=message):
        info_nce(*pair(), **switches)


def test_an_old_name_is_found_with_a_warning_and_no_other():
    find = old_names("somewhere", {"Judge": "lightning_ssl_geometry.losses.InfoNCELoss"})
    new = "lightning_ssl_geometry.losses.InfoNCELoss"
    with pytest.warns(FutureWarning, match=f"`somewhere.Judge` will be removed in the next release: use `{new}`"):
        assert find("Judge") is InfoNCELoss
    with pytest.raises(AttributeError, match="module 'somewhere' has no attribute 'Jury'"):
        find("Jury")


RENAMED = {
    "diagnostics.MeanCorrelation": "MeanCorrelationCoefficient",
    "diagnostics.EmbeddingSample": "EmbeddingVectors",
    "functional.velocity": "output_velocity",
    "functional.tangential": "tangential_gradient",
    "functional.prediction_error": "byol_prediction_error",
    "data.PublishedDataModule": "TorchvisionDataModule",
    "diagnose.Subject": "DiagnosedModel",
    "diagnose.Source": "ModelSource",
}


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_is_the_new_one(old, new):
    room, _, name = old.partition(".")
    module = importlib.import_module(f"lightning_ssl_geometry.{room}")
    with pytest.warns(FutureWarning, match=f"use `lightning_ssl_geometry.{room}.{new}`"):
        found = getattr(module, name)
    assert found is getattr(module, new)


def test_an_old_name_is_found_at_the_top():
    with pytest.warns(FutureWarning, match="use `lightning_ssl_geometry.diagnostics.MeanCorrelationCoefficient`"):
        assert sslg.MeanCorrelation is sslg.MeanCorrelationCoefficient
    assert "MeanCorrelation" not in dir(sslg)


def test_yaml_with_an_old_name_still_builds():
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--metric", type=Metric)
    given = ["--metric", "lightning_ssl_geometry.diagnostics.MeanCorrelation"]
    with pytest.warns(FutureWarning, match="MeanCorrelationCoefficient"):
        built = parser.instantiate_classes(parser.parse_args(given))
    assert isinstance(built.metric, sslg.MeanCorrelationCoefficient)


class Theirs(LightningDataModule):
    def clean_dataloader(self, split):
        return [split]


class TheirDigits(DigitsDataModule):
    def clean_dataloader(self, split):
        return [split]


def test_a_datamodule_of_ours_keeps_the_old_method():
    data = DigitsDataModule()
    with pytest.warns(FutureWarning, match="`DigitsDataModule.clean_dataloader` .* use `unaugmented_dataloader`"):
        old = data.clean_dataloader("test")
    assert len(old) == len(data.unaugmented_dataloader("test"))


@pytest.mark.parametrize("data", [Theirs, TheirDigits])
def test_a_datamodule_with_the_old_method_is_evaluated(data):
    trainer = SimpleNamespace(datamodule=data(), strategy=SimpleNamespace(batch_to_device=lambda batch: batch))
    with pytest.warns(FutureWarning, match="clean_dataloader` .* use the name `unaugmented_dataloader`"):
        assert list(clean_batches(trainer, "val", "LinearEvaluation")) == ["val"]
