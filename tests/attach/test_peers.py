"""Hosts whose validation step shows less than their training step, as in benchmark scripts of other projects."""

import re

import pytest
import torch
from hosts import PlainHost, loader, quiet, rankme

from lightning_ssl_geometry.callbacks import EmbeddingSnapshots, GeometryMonitor, Host, KNNProbe, LinearProbe, RunReport
from lightning_ssl_geometry.diagnostics import Alignment, EffectiveRank
from lightning_ssl_geometry.loggers import ResumableCSVLogger

pl = pytest.importorskip("pytorch_lightning")
import peers  # noqa: E402

TAPS = {"h": "backbone", "z": "projection_head", "encoder": "backbone", "projector": "projection_head"}
LAYOUTS = {"SimCLR": "halves", "BYOL": "calls", "MoCo": "calls"}
OF_H = {"effective_rank_h", "projector_rank_0", "projector_rank_2"}
OF_Z = {"effective_rank_z", "uniformity", "gaussian_potential"}
OF_TWO_VIEWS = {"augmentation_rank", "alignment", "bound_upper"}
UNCALLED = (
    "without z \\(the step does not call 'projection_head'\\), these diagnostics are left out: effective_rank_z, "
)
ONE_VIEW = "With one view of each sample in h(?: and z)?, these diagnostics are left out: augmentation"


def shared(name="SimCLR", taps=TAPS):
    return Host(taps, LAYOUTS[name], {"views": 0, "label": 1})


def trained(folder, name, callbacks):
    torch.manual_seed(0)
    host = getattr(peers, name)()
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=2,
        callbacks=callbacks,
        logger=ResumableCSVLogger(folder),
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
        num_sanity_val_steps=0,
    )
    sets = [peers.validation(), peers.validation()] if name == "SimCLR" else peers.validation()
    trainer.fit(host, peers.training(), sets)
    return host, trainer


def logged(trainer, stage):
    return {name.partition("/")[2] for name in trainer.callback_metrics if name.startswith(f"{stage}/")}


@pytest.mark.filterwarnings("ignore:.*only the first of several dataloaders")
@pytest.mark.parametrize(
    ("name", "in_training", "stage"),
    [
        ("SimCLR", OF_H | OF_Z | OF_TWO_VIEWS, "val"),
        ("BYOL", OF_H | OF_Z | OF_TWO_VIEWS, "val"),
        ("MoCo", OF_H | OF_Z, "train"),
    ],
)
def test_each_stage_is_observed_for_what_it_shows(tmp_path, name, in_training, stage):
    host = shared(name)
    monitor = GeometryMonitor(every_n_steps=1, host=host)
    probes = [LinearProbe(10, host=host), KNNProbe(num_classes=10, host=host)]
    with pytest.warns(UserWarning, match="left out") as told:
        model, trainer = trained(tmp_path, name, [monitor, *probes, RunReport(table=False)])
    found = [str(each.message) for each in told if "left out" in str(each.message)]
    assert any(re.search("stage 'val': " + UNCALLED, each) for each in found)
    assert not any("view_layout" in each for each in found)  # the labels say how many views there are
    assert len(found) == (2 if name == "MoCo" else 1), found  # one for each stage that shows less, not for each epoch
    assert any(f"stage {stage!r}" in each and re.search(ONE_VIEW, each) for each in found)
    assert in_training <= logged(trainer, "train")
    assert not (OF_TWO_VIEWS - in_training) & logged(trainer, "train")
    probed = {f"{kind}_probe_{key}" for kind in ("linear", "knn") for key in ("accuracy", "chance")}
    assert logged(trainer, "val") == OF_H | probed
    assert all(value.isfinite() for value in trainer.callback_metrics.values())
    assert monitor.seen["val"].views == 1
    with torch.no_grad():
        h = model.eval().backbone(peers.IMAGES[256:])
    assert trainer.callback_metrics["val/effective_rank_h"] == pytest.approx(rankme(h), rel=1e-4)
    assert list(tmp_path.rglob("report.html"))


@pytest.mark.filterwarnings("ignore:.*left out", "ignore:.*only the first of several dataloaders")
@pytest.mark.parametrize("name", ["SimCLR", "MoCo"])
def test_the_training_stays_the_same(tmp_path, name):
    host = shared(name)
    callbacks = [GeometryMonitor(host=host), LinearProbe(10, host=host), KNNProbe(num_classes=10, host=host)]
    watched, _ = trained(tmp_path / "watched", name, callbacks)
    bare, _ = trained(tmp_path / "bare", name, [])
    assert watched.state_dict().keys() == bare.state_dict().keys()
    assert all(torch.equal(value, watched.state_dict()[key]) for key, value in bare.state_dict().items())


@pytest.mark.parametrize("stages", [["train", "val"], ["val"]])
def test_a_submodule_that_no_step_calls_is_an_error_before_training(tmp_path, stages):
    host = shared("BYOL", TAPS | {"z": "online_classifier.head.spare"})
    monitor = GeometryMonitor(host=host, stages=stages)

    class Spare(peers.BYOL):
        def __init__(self):
            super().__init__()
            self.online_classifier.head.spare = torch.nn.Linear(1, 1)

        def on_before_zero_grad(self, optimizer):
            raise AssertionError("a step was taken")

    peers.Spare = Spare
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(
            ValueError, match=r"stage 'train', before the first step: .*'online_classifier.head.spare' was ne"
        ),
    ):
        trained(tmp_path, "Spare", [monitor])


def test_a_monitor_of_the_validation_alone_may_share_the_host(tmp_path):
    host = shared("BYOL")
    callbacks = [GeometryMonitor(host=host, stages=["train"], name="a"), GeometryMonitor(host=host, stages=["val"])]
    with pytest.warns(UserWarning, match="stage 'val': " + UNCALLED):
        _, trainer = trained(tmp_path, "BYOL", callbacks)
    assert logged(trainer, "val") == OF_H


def test_a_run_without_any_diagnostic_left_is_an_error(tmp_path):
    monitor = GeometryMonitor({"alignment": Alignment()}, host=shared("BYOL"), stages=["val"])
    with pytest.raises(ValueError, match="Expected a step that shows what the diagnostics need, but without z"):
        trained(tmp_path, "BYOL", [monitor])


def test_a_later_step_that_shows_less_is_a_failure(tmp_path):
    class Tired(PlainHost):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) if batch_idx < 2 else self.trunk(batch[0]).sum()

    taps = {"h": "trunk", "z": "head"}
    monitor = GeometryMonitor({"rank": EffectiveRank()}, {"rank": {"h": "z"}}, ["train"], 1, taps=taps)
    trainer = quiet(tmp_path, callbacks=[monitor])
    with pytest.warns(UserWarning, match="Expected `z` for the diagnostic 'rank'.*The readout is NaN"):
        trainer.fit(Tired(), loader(), loader())
    assert trainer.callback_metrics["train/rank"].isnan()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda host: GeometryMonitor(host=host, taps={"h": "x"}), "Expected `host` alone, but got `taps` beside it."),
        (lambda host: KNNProbe(host=host, batch_keys={"label": 1}), "alone, but got `batch_keys` beside it. Say it in"),
        (lambda host: EmbeddingSnapshots([0], host=host, view_layout="halves"), "but got `view_layout` beside it"),
        (lambda host: LinearProbe(10, host=TAPS), "Expected `host` to be a Host, .* but got a dict"),
    ],
)
def test_a_host_beside_its_parts_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(shared())


def test_callbacks_that_share_a_host_observe_it_apart():
    host = shared()
    first, second = GeometryMonitor(host=host), LinearProbe(10, host=host)
    assert first.observer.taps is not second.observer.taps
    assert first.observer.taps.taps == second.observer.taps.taps == TAPS
