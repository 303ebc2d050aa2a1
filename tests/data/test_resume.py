"""A run that was stopped and resumed sees the batches and the views of one that was not, wherever it stopped."""

import lightning as L
import pytest
import torch
from hosts import quiet
from torch import nn

from lightning_ssl_geometry.data import DigitsDataModule


class EpochAsView(nn.Module):
    def forward(self, image, index, epoch, mean, std):
        return (torch.full_like(image, epoch, dtype=torch.float32),)


class Record(L.LightningModule):
    """Remembers what it was trained on: (epoch of the views, index)."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.trained = []

    def training_step(self, batch, batch_idx):
        self.batch = (int(batch["views"][0].max()), batch["index"].tolist())
        return self.weight * 1.0

    def on_train_batch_end(self, *_):
        self.trained.append(self.batch)

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        assert self.trainer.estimated_stepping_batches > 0  # as schedules ask for it, before the loops are restored
        return torch.optim.SGD(self.parameters(), lr=0.1)


class SaveAndStop(L.Callback):
    """At the first call of `hook` after `step` steps."""

    def __init__(self, path, hook, step):
        setattr(self, hook, lambda trainer, *_: self.save(trainer))
        self.path, self.step = path, step

    def save(self, trainer):
        if trainer.global_step >= self.step and not self.path.exists():
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True


class Interrupt(L.Callback):
    """Raise before the step after `step` steps is taken, when its batch has been handed out."""

    def __init__(self, step):
        self.step = step

    def on_train_batch_start(self, trainer, *_):
        if trainer.global_step == self.step:
            raise InterruptedError


def trained(folder, *callbacks, ckpt_path=None, **arguments):
    model = Record()
    data = DigitsDataModule(64, views=EpochAsView(), subset=360)  # five batches per epoch
    try:
        trainer = quiet(folder, callbacks=list(callbacks), **({"max_epochs": 3} | arguments))
        trainer.fit(model, datamodule=data, ckpt_path=ckpt_path)
    except InterruptedError:
        pass
    return model.trained


STEPS = {"max_epochs": -1, "max_steps": 12}
THREE = {"limit_train_batches": 3}


@pytest.mark.parametrize(
    ("hook", "step", "first", "then"),
    [
        ("on_train_batch_end", 3, {}, {}),
        ("on_train_batch_end", 5, {}, {}),
        ("on_train_epoch_end", 5, {}, {}),
        ("on_train_epoch_end", 3, THREE, THREE),
        ("on_validation_end", 5, {}, {}),
        ("on_validation_end", 3, THREE, THREE),
        ("on_validation_end", 2, {"val_check_interval": 2}, {"val_check_interval": 2}),
        ("on_train_epoch_end", 3, STEPS | {"max_steps": 3}, STEPS),  # Lightning counts a whole epoch
        ("on_train_end", 8, STEPS | {"max_steps": 8}, STEPS),
        ("on_train_end", 5, STEPS | {"max_steps": 5}, STEPS),
    ],
)
def test_stopped_runs(hook, step, first, then, tmp_path):
    path = tmp_path / "x.ckpt"
    seen = trained(tmp_path, SaveAndStop(path, hook, step), **first)
    assert len(seen) == step
    assert seen + trained(tmp_path, ckpt_path=path, **then) == trained(tmp_path, **then)


@pytest.mark.parametrize("step", [0, 3, 5])
def test_interrupted_runs_lose_no_batch(step, tmp_path):
    path = tmp_path / "x.ckpt"
    seen = trained(tmp_path, Interrupt(step), SaveAndStop(path, "on_exception", step))
    assert len(seen) == step
    assert seen + trained(tmp_path, ckpt_path=path) == trained(tmp_path)


def test_a_run_that_is_stopped_again_and_again(tmp_path):
    seen = []
    for stop in (3, 5, 9, 12):
        before = tmp_path / "last.ckpt" if seen else None
        after = tmp_path / f"{stop}.ckpt"
        steps = STEPS | {"max_steps": stop}
        seen += trained(tmp_path, SaveAndStop(after, "on_train_end", stop), ckpt_path=before, **steps)
        after.rename(tmp_path / "last.ckpt")
    assert seen == trained(tmp_path, **STEPS)
