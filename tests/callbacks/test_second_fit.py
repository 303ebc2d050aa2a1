"""A callback that has seen a fit begins the next one as a new callback would, unless a checkpoint brings its state."""

import copy

import lightning as L
import numpy as np
import pandas as pd
import pytest
import torch
from callbacks.test_channel_evaluation import ChannelHost
from callbacks.test_channel_evaluation import data as shifted
from hosts import quiet
from torch import nn

from lightning_ssl_geometry.callbacks import ChannelEvaluation, EmbeddingSnapshots, LayerGeometry, LinearEvaluation
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import SmallCNN


def simclr(seed):
    torch.manual_seed(seed)
    return SimCLRModule(SmallCNN(1, 8, "group"), nn.Linear(64, 8))


def digits():
    return DigitsDataModule(batch_size=100, subset=400)


def channel_host(seed):
    return ChannelHost(scale=1.0 + seed)


MAKERS = {
    "LinearEvaluation": (lambda: LinearEvaluation([None], max_iter=5, layers=["projector"]), simclr, digits),
    "ChannelEvaluation": (lambda: ChannelEvaluation(["uniform"], ["f"], max_iter=5), channel_host, shifted),
    "LayerGeometry": (LayerGeometry, simclr, digits),
    "EmbeddingSnapshots": (lambda: EmbeddingSnapshots([0, 2]), simclr, digits),
}
SHORT = {"limit_train_batches": 2}


class Ends(L.Callback):
    """An error in the first training step."""

    def on_train_batch_start(self, *_):
        raise RuntimeError("out of luck")


def fit(folder, callbacks, host, data, ckpt_path=None, **arguments):
    trainer = quiet(folder, callbacks=callbacks, **(SHORT | arguments))
    trainer.fit(host, datamodule=data, ckpt_path=ckpt_path)
    return trainer


def written(folder):
    """Tables and arrays in a run's folder, by name."""
    found = {}
    for path in sorted(folder.rglob("*.*")):
        if path.suffix == ".npz":
            with np.load(path) as file:
                found |= {f"{path.name}/{key}": str(file[key].tolist()) for key in file}  # of NaN, the text is equal
        elif path.suffix == ".csv":
            found[path.name] = path.read_text()
    return found


@pytest.mark.parametrize("name", MAKERS)
def test_a_second_fit_is_as_with_a_new_callback(tmp_path, name):
    make, host, data = MAKERS[name]
    used = make()
    fit(tmp_path / "first", [used], host(1), data())
    fit(tmp_path / "second", [used], host(2), data())
    fit(tmp_path / "fresh", [make()], host(2), data())
    fresh = written(tmp_path / "fresh")
    assert fresh
    assert written(tmp_path / "second") == fresh
    assert written(tmp_path / "first") != fresh


@pytest.mark.parametrize("name", MAKERS)
def test_a_second_fit_that_fails_leaves_nothing_of_the_first(tmp_path, name):
    make, host, data = MAKERS[name]
    used = make()
    fit(tmp_path / "first", [used], host(1), data())
    for folder, callback in (("second", used), ("fresh", make())):
        beside = [] if name == "LinearEvaluation" else [LinearEvaluation([None], features=["pixels"], max_iter=5)]
        with pytest.raises(RuntimeError, match="out of luck"):
            fit(tmp_path / folder, [callback, *beside, Ends()], host(2), data())
    assert written(tmp_path / "second") == written(tmp_path / "fresh")


@pytest.mark.parametrize("name", MAKERS)
def test_a_resumed_fit_has_what_the_checkpoint_brings_and_not_what_another_fit_left(tmp_path, name):
    make, host, data = MAKERS[name]
    first = make()
    before = fit(tmp_path / "before", [first], host(2), data())
    before.save_checkpoint(tmp_path / "half.ckpt")
    used = make()
    fit(tmp_path / "other", [used], host(1), data())
    for folder, callback in (("resumed", used), ("fresh", make())):
        fit(tmp_path / folder, [callback], host(2), data(), tmp_path / "half.ckpt", max_epochs=2)
    assert written(tmp_path / "resumed") == written(tmp_path / "fresh")


def test_stills_of_another_fit_are_not_those_of_a_checkpoint_without_any(tmp_path):
    before = fit(tmp_path / "before", [], simclr(2), digits())
    before.save_checkpoint(tmp_path / "half.ckpt")
    used = EmbeddingSnapshots([0, 4])
    fit(tmp_path / "other", [used], simclr(1), digits(), max_epochs=2)
    with pytest.warns(UserWarning, match=r"no embeddings are kept of \[0\]"):
        fit(tmp_path / "resumed", [used], simclr(2), digits(), tmp_path / "half.ckpt", max_epochs=2)
    assert list(used.kept) == [4]


def test_a_test_after_a_fit_keeps_the_table_of_both(tmp_path):
    linear, channel = LinearEvaluation([None], max_iter=5), ChannelEvaluation(["uniform"], ["f"], False, max_iter=5)
    trainer = fit(tmp_path, [linear, channel], channel_host(1), shifted())
    rows = copy.deepcopy(linear.rows)
    trainer.test(trainer.lightning_module, datamodule=trainer.datamodule, verbose=False)
    assert linear.rows == rows
    table = pd.read_csv(tmp_path / "linear_evaluation.csv")["features"].tolist()
    assert table == ["pixels", "frozen", "trained", "f, uniform"]
