"""Callbacks on a plain LightningModule: in any order, evaluating checkpoints, after errors, with unusual Trainers."""

import json
from pathlib import Path

import lightning as L
import numpy as np
import pandas as pd
import pytest
import torch
from hosts import quiet
from lightning.pytorch.callbacks import EarlyStopping, LearningRateFinder, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_ssl_geometry.callbacks import (
    EmbeddingSnapshots,
    GeometryMonitor,
    KNNProbe,
    LayerGeometry,
    LinearEvaluation,
    LinearProbe,
    RunReport,
)
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.diagnostics import EffectiveRank, LogSpectrum
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import SmallCNN
from lightning_ssl_geometry.recording.run_files import RunFiles

pytestmark = [
    pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Your `val_dataloader`'s sampler has shuffling enabled"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed"),
]
KEYS = {"label": 1, "image": 0}
OF_H = {"taps": {"h": "backbone"}, "batch_keys": KEYS}
OF_Z = {"taps": {"h": "backbone", "z": "head"}, "batch_keys": KEYS}


class Plain(L.LightningModule):
    """A classifier of another package, which fails at batch `fails_at` of the first epoch."""

    def __init__(self, fails_at=None):
        super().__init__()
        torch.manual_seed(0)
        self.backbone, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.fails_at, self.lr = fails_at, 1e-2

    def forward(self, x):
        return self.head(self.backbone(x))

    def training_step(self, batch, batch_idx):
        if batch_idx == self.fails_at:
            raise RuntimeError("out of memory")
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.lr)


class WithTwoOptimizers(Plain):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.SGD(part.parameters(), 1e-2) for part in (self.backbone, self.head)]


class Without(Plain):
    """Without a `validation_step`."""

    validation_step = L.LightningModule.validation_step


class Shifted(nn.Module):
    def forward(self, image, index, epoch):
        return image + 3, image - 3


def loader(shuffle=False):
    x = torch.rand(64, 6, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(x, (x[:, 0] > 0.5).long() + (x[:, 1] > 0.5).long()), batch_size=8, shuffle=shuffle)


def made(folder, callbacks, **arguments):
    return quiet(
        folder,
        **({"logger": ResumableCSVLogger(folder), "max_epochs": 2, "enable_checkpointing": True} | arguments),
        callbacks=callbacks,
    )


def fitted(folder, callbacks, model=None, **arguments):
    trainer = made(folder, callbacks, **arguments)
    trainer.fit(model or Plain(), loader(), loader())
    return trainer


def table(trainer, name="metrics.csv"):
    return pd.read_csv(Path(trainer.log_dir) / name)


def values(trainer, column):
    return table(trainer).dropna(subset=[column])[["step", column]].to_numpy()


@pytest.mark.parametrize("order", ["pma", "amp", "map"])
def test_what_one_callback_passes_through_the_model_is_seen_by_no_other(order, tmp_path):
    def attached(which):
        every = {
            "p": LinearProbe(3, **OF_H),
            "m": GeometryMonitor({"rank": EffectiveRank()}, **OF_H, every_n_steps=1),
            "a": GeometryMonitor({"own": EffectiveRank()}, **OF_H, augment=Shifted(), every_n_steps=1),
        }
        return [every[each] for each in which]

    alone = fitted(tmp_path / "alone", attached("pm")).callback_metrics
    found = fitted(tmp_path / order, attached(order)).callback_metrics
    assert len(alone) >= 5
    assert {name: found[name] for name in alone} == alone
    assert found["val/own"] != found["val/rank"]


def test_a_fit_that_fails_leaves_no_hooks_on_the_model(tmp_path):
    model = Plain(fails_at=3)
    monitor, layers = GeometryMonitor({"rank": EffectiveRank()}, **OF_H, every_n_steps=1), LayerGeometry(**OF_H)
    callbacks = [monitor, LinearProbe(3, **OF_H), layers, EmbeddingSnapshots([1], **OF_Z)]
    with pytest.raises(RuntimeError, match="out of memory"):
        fitted(tmp_path, callbacks, model=model)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_validation_of_a_checkpoint_scores_its_own_classifier(tmp_path):
    saving = ModelCheckpoint(save_top_k=-1, filename="{epoch}")
    trainer = fitted(tmp_path, [LinearProbe(3, **OF_H), KNNProbe(3, num_classes=3, **OF_H), saving])
    scored = values(trainer, "val/linear_probe_accuracy")
    for again in (trainer, made(tmp_path / "new", [LinearProbe(3, **OF_H), KNNProbe(3, num_classes=3, **OF_H)])):
        for epoch in range(2):
            path = Path(saving.dirpath) / f"epoch={epoch}.ckpt"
            # its neighbours are of another network
            with pytest.warns(UserWarning, match="KNNProbe 'knn_probe' is not scored"):
                (found,) = again.validate(Plain(), loader(), ckpt_path=path, verbose=False)
            assert found["val/linear_probe_accuracy"] == pytest.approx(scored[epoch, 1])
            assert "val/knn_probe_accuracy" not in found


def test_a_validation_of_a_checkpoint_takes_nothing_back(tmp_path):
    snapshots = EmbeddingSnapshots([0, 4, 8, 12, 16, 20], **OF_Z)
    monitor = GeometryMonitor({"rank": EffectiveRank()}, stages=["probe"], **OF_H)
    saving = ModelCheckpoint(save_top_k=-1, filename="{epoch}")
    trainer, model = made(tmp_path, [snapshots, monitor, saving], max_epochs=2), Plain()
    with pytest.warns(UserWarning, match="no embeddings are kept of"):
        trainer.fit(model, loader(), loader())
    trainer.validate(model, loader(), ckpt_path=Path(saving.dirpath) / "epoch=0.ckpt", verbose=False)
    trainer.fit_loop.max_epochs = 3
    trainer.fit(model, loader(), loader())
    assert np.load(Path(trainer.log_dir) / "embeddings.npz")["iteration"].tolist() == [0, 4, 8, 12, 16, 20]
    assert values(trainer, "probe/rank")[:, 0].tolist() == [0, 7, 15, 23]


def test_a_test_of_a_checkpoint_keeps_the_linear_evaluation(tmp_path):
    evaluation = LinearEvaluation([None], max_iter=5)
    data, saving = DigitsDataModule(batch_size=40, subset=200), ModelCheckpoint(filename="{epoch}")
    trainer = made(tmp_path, [evaluation, saving], max_epochs=1)
    model = SimCLRModule(SmallCNN(1, 8, "group"), nn.Linear(64, 8))
    trainer.fit(model, datamodule=data)
    rows = list(evaluation.rows)
    assert len(rows) == 3
    trainer.test(model, datamodule=data, ckpt_path=Path(saving.dirpath) / "epoch=0.ckpt", verbose=False)
    assert evaluation.rows == rows


def test_neighbours_that_are_not_finite_have_no_vote(tmp_path):
    class Broken(Plain):
        def training_step(self, batch, batch_idx):
            batch = [batch[0].clone(), batch[1]]
            if batch_idx == 2:
                batch[0][0] = torch.inf
            return self.head(self.backbone(batch[0]).detach()[1:]).square().mean()  # no gradient is NaN

    probe = KNNProbe(1, num_classes=3, **OF_H)
    found = fitted(tmp_path / "broken", [probe], model=Broken(), max_epochs=1).callback_metrics
    expected = fitted(tmp_path / "whole", [KNNProbe(1, num_classes=3, **OF_H)], max_epochs=1).callback_metrics
    assert expected["val/knn_probe_accuracy"] == 1  # each sample is its own nearest neighbour
    assert found["val/knn_probe_accuracy"] >= 63 / 64 - 1e-6


def test_a_validation_before_the_first_fit_belongs_to_the_run(tmp_path):
    monitor = GeometryMonitor({"rank": EffectiveRank(), "spectrum": LogSpectrum()}, stages=["val"], **OF_H)
    trainer, model = made(tmp_path, [monitor]), Plain()
    trainer.validate(model, loader(), verbose=False)
    trainer.fit(model, loader(), loader())
    assert values(trainer, "val/rank")[:, 0].tolist() == [0, 7, 15]
    assert table(trainer, "geometry/val/spectrum.csv")["step"].tolist() == [0, 8, 16]
    assert not list(tmp_path.rglob("superseded*"))


def test_snapshots_of_a_shuffled_set_need_an_index(tmp_path):
    trainer = made(tmp_path, [EmbeddingSnapshots([0], **OF_Z)])
    with pytest.raises(ValueError, match="Expected an index of the samples for EmbeddingSnapshots"):
        trainer.fit(Plain(), loader(), loader(shuffle=True))


@pytest.mark.parametrize(
    ("arguments", "last"),
    [({"max_epochs": 7}, 55), ({"max_epochs": -1, "max_steps": 52}, 51), ({"max_epochs": 7, "stops": 2}, 23)],
)
def test_the_stage_probe_is_read_after_the_last_epoch_of_any_fit(arguments, last, tmp_path):
    stops = arguments.pop("stops", None)
    callbacks = [GeometryMonitor({"rank": EffectiveRank()}, stages=["probe"], probe_every_n_epochs=5, **OF_H)]
    callbacks += [EarlyStopping("val/loss", mode="max", patience=stops)] if stops else []
    trainer = fitted(tmp_path, callbacks, **arguments)
    steps = values(trainer, "probe/rank")[:, 0].tolist()
    assert steps == [0, *([39] if not stops else []), last]


def test_two_layer_geometries_would_replace_each_others_files(tmp_path):
    with pytest.raises(ValueError, match="Expected one LayerGeometry with stage='val', but got 2"):
        fitted(tmp_path, [LayerGeometry(**OF_H), LayerGeometry(**OF_H)])


def test_a_search_for_a_learning_rate_is_no_resumption(tmp_path):
    trainer = fitted(tmp_path, [LearningRateFinder(num_training_steps=4), RunReport(page=False, table=False)])
    assert json.loads((Path(trainer.log_dir) / "history.json").read_text())["resumed"] == []


def test_the_steps_of_two_optimizers_are_counted_once(tmp_path):
    monitor = GeometryMonitor({"rank": EffectiveRank()}, stages=["val", "probe"], **OF_H)
    saving = ModelCheckpoint(filename="{epoch}")
    trainer = fitted(tmp_path, [monitor, saving], model=WithTwoOptimizers())
    trainer.validate(WithTwoOptimizers(), loader(), ckpt_path=Path(saving.dirpath) / "epoch=1.ckpt", verbose=False)
    assert values(trainer, "val/rank")[:, 0].tolist() == [7, 15, 15]
    assert values(trainer, "probe/rank")[:, 0].tolist() == [0, 7, 15]


@pytest.mark.parametrize(("limit", "scored"), [(1.0, 64), (0.5, 32), (2, 16), (0, 0)])
def test_a_limit_of_validation_batches_holds_for_probes_that_look_themselves(limit, scored, tmp_path):
    rows = []
    model = Without()
    model.backbone.register_forward_hook(lambda module, given, out: rows.append(0 if module.training else len(out)))
    fitted(tmp_path, [LinearProbe(3, **OF_H)], model=model, max_epochs=2, limit_val_batches=limit)
    assert sum(rows) in (2 * scored, 2 * scored + 8)  # and one batch that is tried before


def test_labels_that_are_left_out_do_not_make_the_result_nan(tmp_path):
    label = torch.arange(64) % 3
    label[40:56] = -1
    data = DataLoader(TensorDataset(torch.rand(64, 6), label), batch_size=8)
    trainer = made(tmp_path, [LinearProbe(3, **OF_H)], max_epochs=1)
    model = Without()
    model.training_step = lambda batch, batch_idx: model(batch[0]).sum()
    with pytest.warns(UserWarning, match="16 of the epoch are others; .* The results are of the other samples"):
        trainer.fit(model, data, loader())


def test_rows_that_a_full_disk_refused_are_written_before_the_next_fit(tmp_path, monkeypatch):
    files = RunFiles(tmp_path)
    files.append("a.csv", ["epoch", "step", "x"], [0, 0, 1])
    with monkeypatch.context() as patch:

        def full(*_):
            raise OSError("No space left on device")

        patch.setattr("lightning_ssl_geometry.recording.run_files.append", full)
        with pytest.warns(UserWarning, match="cannot be written now"):
            files.append("a.csv", ["epoch", "step", "x"], [1, 8, 2])
    files.reopen()
    assert pd.read_csv(tmp_path / "a.csv")["x"].tolist() == [1, 2]
