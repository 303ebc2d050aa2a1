"""What a user could call before a change: it still works, and a warning names the new way."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from jsonargparse import ArgumentParser
from lightning import LightningDataModule
from torch import nn
from torchmetrics import Metric

import lightning_ssl_geometry as sslg
from lightning_ssl_geometry.callbacks import (
    EmbeddingSnapshots,
    GeometryMonitor,
    KNNProbe,
    LinearEvaluation,
    LinearProbe,
)
from lightning_ssl_geometry.callbacks.evaluation import clean_batches
from lightning_ssl_geometry.cli import lightning_cli
from lightning_ssl_geometry.data import DigitsDataModule, LatentDGPDataModule
from lightning_ssl_geometry.deprecation import old_names
from lightning_ssl_geometry.diagnostics import EquivarianceError, LossTerms, Stationarity, StepInvariance
from lightning_ssl_geometry.functional import LpDistance, info_nce
from lightning_ssl_geometry.functional.groups import equivariance
from lightning_ssl_geometry.losses import (
    AdaptiveTemperatureLoss,
    InfoNCELoss,
    LogBilinearInfoNCELoss,
    VariationalLoss,
)
from lightning_ssl_geometry.methods import (
    AdaptiveTemperatureModule,
    ContrastiveFlowModule,
    CRLTACModule,
    SimCLRModule,
)
from lightning_ssl_geometry.nn.equivariant import GroupConv2d, LiftingConv2d
from lightning_ssl_geometry.views import CropFamily

SMOKE = Path(__file__).parents[1] / "examples" / "simclr" / "smoke.yaml"
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


def crop_family():
    return CropFamily(image_size=8, size=4, stride=2)


@pytest.mark.parametrize(
    ("build", "found", "said"),
    [
        (
            lambda: CRLTACModule(*network(), crop_family(), None, 4, 0.5, 0.1, True, sgd, None, None, None, 2.0),
            lambda model: (model.optimizer, model.warmup_epochs) == (sgd, 2.0),
            "use `optimizer=...`, `policy_optimizer=...`, `lr_scheduler=...`, `policy_lr_scheduler=...`, `warmup",
        ),
        (
            lambda: ContrastiveFlowModule(4, 2, None, None, 0.2, 0.0, 0, sgd),
            lambda model: model.optimizer is sgd,
            "`ContrastiveFlowModule` with `optimizer` by position .* use `optimizer=...`",
        ),
        (
            lambda: LatentDGPDataModule(
                4, 2, "sphere", "normal", 1.0, "laplace", 0.1, 0.0, 3.0, 400.0, nn.Identity(), 8
            ),
            lambda data: (data.process.space, data.process.style_scale, data.batch_size) == ("sphere", 0.1, 8),
            "use `space=...`, `marginal=...`, `marginal_scale=...`, .*`mixing=...`, `batch_size=...`",
        ),
    ],
    ids=["CRLTACModule", "ContrastiveFlowModule", "LatentDGPDataModule"],
)
def test_further_arguments_by_position(build, found, said):
    with pytest.warns(FutureWarning, match=said):
        assert found(build())


def test_the_settings_of_the_loss_of_a_method():
    batch = {"views": (torch.randn(6, 5), torch.randn(6, 5))}
    settings = {"symmetric": True, "negatives": "both", "include_self": True, "mode": "feature"}
    with pytest.warns(FutureWarning, match="`include_self`, .* of `AdaptiveTemperatureModule` will be .*InfoNCELoss"):
        old = AdaptiveTemperatureModule(*network(), temperature=0.7, warmup_epochs=1.0, **settings)
    new = AdaptiveTemperatureModule(*network(), loss=InfoNCELoss(0.7, **SQUARED, **settings), warmup_epochs=1.0)
    assert torch.equal(old.observe(batch)["loss"], new.observe(batch)["loss"])
    with pytest.raises(ValueError, match="Expected `loss` alone, but got `temperature` beside it"):
        AdaptiveTemperatureModule(*network(), loss=InfoNCELoss(), temperature=0.7)


def test_the_settings_of_an_equivariance_error_by_position():
    with pytest.warns(FutureWarning, match="use `group_shape=...`, `scales=...`, `stride=...`, `circular=...`"):
        old = EquivarianceError("translation", None, None, 2, True, None, 1, 0.5)
    new = EquivarianceError("translation", stride=2, circular=True, margin=1, fill=0.5)
    assert old.settings == new.settings
    with pytest.warns(FutureWarning, match="use `.*EquivarianceSettings`"):
        check = equivariance.check_equivariance
    check("rotation", (1, 4), None, 2, None, 0)
    with pytest.raises(ValueError, match="`margin` >= 0, but got -1"):
        check("rotation", (1, 4), None, 2, None, -1)


FILTERS = {"scales": (1.0, 1.5), "rotations": 4, "stride": 2, "padding": 1, "padding_mode": "circular", "bias": True}
REACH = {"scale_size": 2, "rotation_size": 4}


@pytest.mark.parametrize(
    ("layer", "settings"),
    [(LiftingConv2d, FILTERS), (GroupConv2d, {"scales": (1.0, 1.5), "rotations": 4, **REACH, **FILTERS})],
)
def test_the_settings_of_an_equivariant_convolution_by_position(layer, settings):
    with pytest.warns(FutureWarning, match="use `scales=...`, `rotations=...`.*, `padding_mode=...`, `bias=...`"):
        old = layer(2, 3, 5, 3, *settings.values())
    new = layer(2, 3, 5, 3, **settings)
    assert repr(old) == repr(new)
    assert old.weight.shape == new.weight.shape


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({"similarity": "distance", "p": 0.5}, r"Expected `p` >= 1 and finite, but got 0\.5"),
        ({"similarity": "distance", "power": 2.0}, r"`power` to be True or False, but got 2\.0"),
        ({"p": 1.0}, r"`p` = 2 with the similarity 'dot', which has no norm, but got 1\.0"),
        ({"power": False}, "`power` = True with the similarity 'dot', which has no norm, but got False"),
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
MOVED = {"callbacks.probe.PROBE_ACCURACY": "quantity.CLASSIFIER_ACCURACY"}


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_is_the_new_one(old, new):
    room, _, name = old.partition(".")
    module = importlib.import_module(f"lightning_ssl_geometry.{room}")
    with pytest.warns(FutureWarning, match=f"use `lightning_ssl_geometry.{room}.{new}`"):
        found = getattr(module, name)
    assert found is getattr(module, new)


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_an_old_name_in_another_module_is_the_new_one(old, new):
    (room, _, name), (there, _, called) = (f"lightning_ssl_geometry.{each}".rpartition(".") for each in (old, new))
    with pytest.warns(FutureWarning, match=f"use `lightning_ssl_geometry.{new}`"):
        found = getattr(importlib.import_module(room), name)
    assert found is getattr(importlib.import_module(there), called)


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


TAP = {"h": "trunk"}
KEYS = {"label": 2, "views": [0, 1]}
CALLBACKS = {  # the old way, the new one, and what the warning says
    "the layout of a monitor": (
        lambda: GeometryMonitor(taps=TAP, views="halves"),
        lambda: GeometryMonitor(taps=TAP, view_layout="halves"),
        "`views` .* use `view_layout='halves'`",
    ),
    "the layout of a probe": (
        lambda: LinearProbe(2, taps=TAP, views="interleaved"),
        lambda: LinearProbe(2, taps=TAP, view_layout="interleaved"),
        "`views` .* use `view_layout='interleaved'`",
    ),
    "the layout of another probe": (
        lambda: KNNProbe(taps=TAP, views="halves"),
        lambda: KNNProbe(taps=TAP, view_layout="halves"),
        "`views` .* use `view_layout='halves'`",
    ),
    "a monitor by position": (
        lambda: GeometryMonitor(None, None, ["val"], 1, TAP, "halves", KEYS, 7, 3, nn.Identity(), "mine", "raise"),
        lambda: GeometryMonitor(
            stages=["val"],
            every_n_steps=1,
            taps=TAP,
            view_layout="halves",
            batch_keys=KEYS,
            probe_size=7,
            probe_every_n_epochs=3,
            augment=nn.Identity(),
            name="mine",
            on_error="raise",
        ),
        "use `taps=...`, `view_layout=...`, `batch_keys=...`, `probe_size=...`",
    ),
    "a probe by position": (
        lambda: LinearProbe(2, None, TAP, "halves", KEYS, "mine", "raise"),
        lambda: LinearProbe(2, taps=TAP, view_layout="halves", batch_keys=KEYS, name="mine", on_error="raise"),
        "use `taps=...`, `view_layout=...`, `batch_keys=...`, `name=...`, `on_error=...`",
    ),
    "another probe by position": (
        lambda: KNNProbe(5, 0.1, 100, 10, 2, TAP, "halves", KEYS, "mine", "raise"),
        lambda: KNNProbe(
            5, 0.1, 100, 10, 2, taps=TAP, view_layout="halves", batch_keys=KEYS, name="mine", on_error="raise"
        ),
        "use `taps=...`, `view_layout=...`, `batch_keys=...`, `name=...`, `on_error=...`",
    ),
    "snapshots by position": (
        lambda: EmbeddingSnapshots([0], TAP, "halves", KEYS, nn.Identity()),
        lambda: EmbeddingSnapshots([0], taps=TAP, view_layout="halves", batch_keys=KEYS, augment=nn.Identity()),
        "use `taps=...`, `view_layout=...`, `batch_keys=...`, `augment=...`",
    ),
}


def settings_of(callback):
    """Everything that the constructors of callbacks keep of their settings."""
    own = ("name", "num_classes", "probe_size", "probe_every_n_epochs", "every_n_steps", "k", "iterations")
    found = {name: getattr(callback, name) for name in own if hasattr(callback, name)}
    found |= {"on_error": callback.failures.on_error} if hasattr(callback, "failures") else {}
    observer = callback.observer
    place = (observer.taps.taps, observer.taps.view_layout, observer.reader.batch_keys, type(observer.augment))
    return found | {"host": place}


@pytest.mark.parametrize("name", CALLBACKS)
def test_a_callback(name):
    old, new, said = CALLBACKS[name]
    with pytest.warns(FutureWarning, match=said):
        callback = old()
    assert settings_of(callback) == settings_of(new())


@pytest.mark.parametrize("kind", ["GeometryMonitor", "LinearProbe", "KNNProbe", "EmbeddingSnapshots"])
def test_yaml_with_the_old_keyword_of_a_callback_still_builds(tmp_path, kind):
    init = {"taps": TAP, "views": "halves"} | ({"iterations": [0]} if kind == "EmbeddingSnapshots" else {})
    callback = {"class_path": f"lightning_ssl_geometry.callbacks.{kind}", "init_args": init}
    config = yaml.safe_load(SMOKE.read_text())
    config["trainer"] |= {"callbacks": [callback], "logger": False}
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(config))
    with pytest.warns(FutureWarning, match="`views` .* use `view_layout='halves'`"):
        cli = lightning_cli(["--config", str(tmp_path / "x.yaml")], run=False)
    (built,) = [each for each in cli.trainer.callbacks if type(each).__name__ == kind]
    assert built.observer.taps.view_layout == "halves"


class Theirs(LightningDataModule):
    def clean_dataloader(self, split):
        return [split]


class Delegating:
    """A DataModule that finds its methods in another."""

    def __getattr__(self, name):
        if name == "unaugmented_dataloader":
            raise AttributeError(name)
        return getattr(Theirs(), name)


def test_a_datamodule_of_ours_keeps_the_old_method():
    data = DigitsDataModule()
    with pytest.warns(FutureWarning, match="`DigitsDataModule.clean_dataloader` .* use `unaugmented_dataloader`"):
        old = data.clean_dataloader("test")
    assert len(old) == len(data.unaugmented_dataloader("test"))


@pytest.mark.parametrize("data", [Theirs, Delegating])
def test_a_datamodule_with_the_old_method_is_evaluated(data):
    trainer = SimpleNamespace(datamodule=data(), strategy=SimpleNamespace(batch_to_device=lambda batch: batch))
    with pytest.warns(FutureWarning, match="clean_dataloader` .* use the name `unaugmented_dataloader`"):
        assert list(clean_batches(trainer, "val", "LinearEvaluation")) == ["val"]


def test_an_override_by_the_old_name_is_called_by_the_new():
    with pytest.warns(FutureWarning, match="`clean_dataloader` of `TheirDigits` .* use the name `unaugmented_data"):

        class TheirDigits(DigitsDataModule):
            def clean_dataloader(self, split):
                return [split, len(super().clean_dataloader(split))]

    expected = len(DigitsDataModule().unaugmented_dataloader("test"))
    for call in (TheirDigits().unaugmented_dataloader, TheirDigits().clean_dataloader):
        with pytest.warns(FutureWarning, match="TheirDigits.clean_dataloader"):
            assert call("test") == ["test", expected]
    with pytest.warns(FutureWarning, match="TheirDigits.clean_dataloader"):
        assert TheirDigits().predict_dataloader() == ["test", expected]


@pytest.mark.filterwarnings("ignore:.*clean_dataloader.*:FutureWarning")
def test_an_override_by_the_old_name_is_called_from_a_mixin_and_below_one_by_the_new_name():
    class Mixin:
        def clean_dataloader(self, split):
            return ["mixin", *super().clean_dataloader(split)]

    class Mixed(Mixin, DigitsDataModule): ...

    class Newer(Mixed):
        def unaugmented_dataloader(self, split):
            return ["newer", *super().unaugmented_dataloader(split)]

    assert Mixed().predict_dataloader()[0] == "mixin"
    assert Newer().predict_dataloader()[:2] == ["newer", "mixin"]
    assert len(Newer().predict_dataloader()) == 2 + len(DigitsDataModule().predict_dataloader())


def test_the_warning_of_an_override_points_at_the_class():
    with pytest.warns(FutureWarning, match="clean_dataloader") as caught:
        type("TheirDigits", (DigitsDataModule,), {"clean_dataloader": lambda self, split: []})
    assert caught[0].filename == __file__


def test_the_classifier_of_an_evaluation_keeps_its_old_name():
    evaluation = LinearEvaluation()
    with pytest.warns(FutureWarning, match="`LinearEvaluation.judge` .* use `classifier`"):
        assert evaluation.judge is evaluation.classifier


@pytest.mark.parametrize("kind", [GeometryMonitor, LinearProbe, KNNProbe])
def test_the_old_keyword_beside_the_new_is_refused(kind):
    classes = {} if kind is GeometryMonitor else {"num_classes": 2}
    with pytest.raises(ValueError, match="Expected `view_layout` alone, but got 'halves' and `views` = 'calls'"):
        kind(**classes, taps={"h": "net"}, view_layout="halves", views="calls")


@pytest.mark.parametrize(
    "call",
    [
        lambda: GeometryMonitor(taps={"h": "net"}, views="halves"),
        lambda: LinearProbe(num_classes=2, taps={"h": "net"}, views="halves"),
        lambda: sslg.MeanCorrelation,
        lambda: Stationarity(temperature=0.5),
        lambda: AdaptiveTemperatureLoss(),
        lambda: exec("from lightning_ssl_geometry.diagnostics import MeanCorrelation"),
    ],
)
def test_a_warning_points_to_the_users_line(call):
    with pytest.warns(FutureWarning) as caught:
        call()
    assert {each.filename for each in caught} <= {__file__, "<string>"}
