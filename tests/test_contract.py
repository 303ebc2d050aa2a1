"""Every method gives the same results on 1 and on 2 processes, and its readouts go on after a resume."""

import lightning as L
import numpy as np
import pandas as pd
import pytest
import torch
from hosts import quiet
from small_methods import METHODS, data

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearEvaluation, LinearProbe


class Stop(L.Callback):
    """Save a checkpoint and stop after the first epoch."""

    def __init__(self, path):
        self.path = path

    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.current_epoch == 0:
            trainer.should_stop = True

    def on_train_end(self, trainer, pl_module):
        trainer.save_checkpoint(self.path)


def callbacks():
    return [
        GeometryMonitor(stages=["train", "val", "probe"], every_n_steps=2, probe_size=10),
        LinearProbe(),
        KNNProbe(k=5),
        LinearEvaluation(repeats=1),
    ]


def fitted(rank, method, folder, batch_size, *further, ckpt_path=None, **arguments):
    """Weights, logged scalars and the probe's state after a fit, by two processes if a rank is given."""
    torch.use_deterministic_algorithms(True)
    devices = {"devices": 2, "strategy": "ddp"} if rank is not None else {}
    model = METHODS[method]()
    watch = callbacks()
    trainer = quiet(folder, max_epochs=2, callbacks=[*watch, *further], **(devices | arguments))
    trainer.fit(model, datamodule=data(batch_size), ckpt_path=ckpt_path)
    scalars = {name: value.item() for name, value in trainer.callback_metrics.items()}
    probe = watch[1].state_dict()["head"]
    return {"weights": model.state_dict(), "scalars": scalars, "probe": probe, "rows": watch[3].rows}


def in_float64(rank, method, folder, batch_size):
    return fitted(rank, method, folder, batch_size, precision="64-true")


def same(found, expected, **tolerance):
    for part in ("weights", "probe"):
        for name, value in expected[part].items():
            torch.testing.assert_close(found[part][name], value, msg=lambda m, n=name: f"{n}: {m}", **tolerance)
    for name, value in expected["scalars"].items():
        found_value = torch.tensor(found["scalars"][name])
        torch.testing.assert_close(found_value, torch.tensor(value), msg=lambda m, n=name: f"{n}: {m}", **tolerance)


@pytest.mark.parametrize("method", METHODS)
def test_one_and_two_processes_agree(method, tmp_path, two_processes):
    # In float64: six steps in float32 amplify rounding to 7e-5 of a weight, where a maximum takes another winner.
    alone = in_float64(None, method, tmp_path / "one", 50)
    assert {"train/loss", "val/loss", "train/bound_upper", "val/linear_probe_accuracy", "probe/alignment"} <= set(
        alone["scalars"]
    )
    together = two_processes(in_float64, method, tmp_path / "two", 25)
    for found in together:
        same(found, alone, rtol=1e-6, atol=1e-7)
    assert together[0]["rows"] == alone["rows"]
    arrays = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("geometry/**/*.csv")]
    assert arrays
    for path in arrays:
        one, two = (pd.read_csv(tmp_path / name / path) for name in ("one", "two"))
        if "log_spectrum" in path.name:  # those below 1e-6 are rounding: compare the singular values themselves
            one, two = one.apply(np.exp), two.apply(np.exp)
        pd.testing.assert_frame_equal(one, two, rtol=2e-6, atol=1e-7, check_dtype=False)  # written with 6 digits


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_fit_is_the_same_fit(method, tmp_path):
    whole = fitted(None, method, tmp_path / "whole", 50)
    fitted(None, method, tmp_path / "parts", 50, Stop(tmp_path / "x.ckpt"))
    resumed = fitted(None, method, tmp_path / "parts", 50, ckpt_path=tmp_path / "x.ckpt")
    same(resumed, whole, rtol=0, atol=0)
    assert resumed["rows"] == whole["rows"]
    for path in (tmp_path / "whole").rglob("geometry/**/*.csv"):
        assert path.read_text() == (tmp_path / "parts" / path.relative_to(tmp_path / "whole")).read_text()
