"""A diagnostic that fails in a training: the run goes on or ends, and checkpoints come first either way."""

import math

import pandas as pd
import pytest
import torch
from hosts import PlainHost, loader, quiet
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torchmetrics import MeanMetric

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe
from lightning_ssl_geometry.diagnostics import Alignment

TAPS = {"h": "trunk", "z": "head", "projector": "head"}


class Fragile(MeanMetric):
    """Fails at its n-th update, or at the compute of the n-th readout."""

    def __init__(self, update=None, compute=None):
        super().__init__()
        self.at = {"update": update, "compute": compute}
        self.counts = {"update": 0, "compute": 0}

    def update(self, h):
        self._count("update")
        super().update(h.norm())

    def compute(self):
        self._count("compute")
        return {"a": super().compute(), "b": super().compute()}

    def _count(self, what):
        self.counts[what] += 1
        if self.counts[what] == self.at[what]:
            raise RuntimeError(f"no {what}")


class Sick(PlainHost):
    """Its outputs are NaN in one training batch of the second epoch, or in a validation."""

    def __init__(self, train=(1, 1), val=None):
        super().__init__()
        self.bad = {"train": train, "val": val}

    def sick(self, stage, batch_idx):
        return (self.current_epoch, batch_idx) == self.bad[stage]

    def training_step(self, batch, batch_idx):
        if self.sick("train", batch_idx):
            batch[0] = batch[0] * math.nan
        loss = super().training_step(batch, batch_idx)
        return torch.nan_to_num(loss) * 0 if self.sick("train", batch_idx) else loss

    def on_before_optimizer_step(self, optimizer):
        for parameter in self.parameters():
            parameter.grad = torch.nan_to_num(parameter.grad)

    def validation_step(self, batch, batch_idx):
        if self.sick("val", batch_idx):
            batch[0] = batch[0] * math.nan
        super().validation_step(batch, batch_idx)


def fit(folder, host, *callbacks, epochs=3, **arguments):
    torch.manual_seed(0)
    trainer = quiet(folder, callbacks=list(callbacks), max_epochs=epochs, logger=CSVLogger(folder, "run"), **arguments)
    trainer.fit(host, loader(), loader(seed=1))
    return trainer


def logged(folder, name):
    frame = pd.read_csv(folder / "run" / "version_0" / "metrics.csv")
    return frame.groupby("epoch")[name].last().tolist()


def monitor(fragile, **arguments):
    defaults = {"every_n_steps": 1, "stages": ["train"], "taps": TAPS}
    return GeometryMonitor({"fragile": fragile, "alignment": Alignment()}, **(defaults | arguments))


@pytest.mark.parametrize(
    ("fragile", "where"),
    [
        ({"update": 8}, r"diagnostic 'fragile', stage 'train', step 8 \(epoch 1\): RuntimeError: no update"),
        ({"compute": 2}, r"diagnostic 'fragile', stage 'train', step 10 \(epoch 1\): RuntimeError: no compute"),
    ],
)
def test_training_goes_on_and_the_readout_is_nan(tmp_path, fragile, where):
    with pytest.warns(UserWarning, match=f"GeometryMonitor, {where}. The readout is NaN, and the run goes on") as said:
        fit(tmp_path, PlainHost(), monitor(Fragile(**fragile)))
    assert len([each for each in said if "fragile" in str(each.message)]) == 1
    for key in ("a", "b"):
        values = logged(tmp_path, f"train/fragile_{key}")
        assert [math.isnan(value) for value in values] == [False, True, False]
    assert all(map(math.isfinite, logged(tmp_path, "train/alignment")))


@pytest.mark.parametrize("fragile", [{"update": 8}, {"compute": 2}, {"compute": 3}])
def test_or_the_fit_ends_after_the_checkpoint_of_the_epoch(tmp_path, fragile):
    keep = ModelCheckpoint(tmp_path / "kept", "{epoch}", save_top_k=-1)
    said = pytest.warns(UserWarning, match="The fit ends with this error once the checkpoints of the epoch are saved")
    with said, pytest.raises(ValueError, match=r"GeometryMonitor, diagnostic 'fragile', stage 'train'.*: no "):
        fit(tmp_path, PlainHost(), keep, monitor(Fragile(**fragile), on_error="raise"), enable_checkpointing=True)
    epochs = 3 if fragile == {"compute": 3} else 2
    assert sorted(path.stem for path in (tmp_path / "kept").iterdir()) == [f"epoch={e}" for e in range(epochs)]


def test_with_warn_checkpoints_are_saved_too(tmp_path):
    keep = ModelCheckpoint(tmp_path / "kept", "{epoch}", save_top_k=-1)
    with pytest.warns(UserWarning, match="no compute"):
        fit(tmp_path, PlainHost(), keep, monitor(Fragile(compute=2)), enable_checkpointing=True)
    assert len(list((tmp_path / "kept").iterdir())) == 3


def test_one_batch_with_nan(tmp_path):
    with pytest.warns(UserWarning, match=r"stage 'train', step 7 \(epoch 1\): Expected finite `h`, but got 80 of 160"):
        fit(tmp_path, Sick(), monitor(Fragile()))
    for name in ("train/fragile_a", "train/alignment"):
        assert [math.isnan(value) for value in logged(tmp_path, name)] == [False, True, False]


def test_a_first_batch_with_nan_does_not_stop_a_resumed_training(tmp_path):
    with pytest.warns(UserWarning, match=r"stage 'train', step 1 \(epoch 0\): Expected finite `h`"):
        fit(tmp_path, Sick(train=(0, 0)), monitor(Fragile()), epochs=2)
    assert [math.isnan(value) for value in logged(tmp_path, "train/alignment")] == [True, False]


def test_in_an_evaluation_an_error_ends_it_at_once_if_asked_to(tmp_path):
    arguments = {"stages": ["val"], "on_error": "raise"}
    trainer = quiet(tmp_path, callbacks=[monitor(Fragile(update=3), **arguments)])
    with pytest.raises(ValueError, match=r"diagnostic 'fragile', stage 'val'.*no update"):
        trainer.validate(PlainHost(), loader(), verbose=False)
    trainer = quiet(tmp_path, callbacks=[monitor(Fragile(update=3), stages=["val"])])
    with pytest.warns(UserWarning, match="no update"):
        found = trainer.validate(PlainHost(), loader(), verbose=False)[0]
    assert math.isnan(found["val/fragile"])
    assert math.isfinite(found["val/alignment"])


@pytest.mark.parametrize("probe", [LinearProbe, KNNProbe])
def test_probes_outlive_nan(tmp_path, probe):
    callback = probe(num_classes=2, taps={"h": "trunk"}, batch_keys={"label": 2})
    fit(tmp_path, Sick(train=(1, 1), val=(1, 0)), callback)
    values = logged(tmp_path, f"val/{callback.name}_accuracy")
    assert [math.isnan(value) for value in values] == [False, True, False]
    assert values[2] > 0.6


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"`on_error` to be one of \('warn', 'raise'\), but got 'ignore'"):
        GeometryMonitor(on_error="ignore")
