"""What a diagnostic or a callback logs does not depend on which others are attached beside it.

Asked of all in `diagnostics.__all__` and of all callbacks that log; nothing has to be registered here for a new one.
Every value is equal bit for bit, alone and in company: diagnostics share the tensors, networks and random states of a
step, but no sums, samples or tables. Both orders are asked, since a change would only reach those that come later.
"""

import inspect

import lightning as L
import numpy as np
import pytest
import torch
from clouds import Drawn
from hosts import quiet
from observations import concrete, metric_of, observed, permuted
from small_methods import METHODS, data
from torch.utils.data import DataLoader

from lightning_ssl_geometry import callbacks
from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.callbacks.run_callback import RunCallback
from lightning_ssl_geometry.diagnostics import EffectiveRank
from lightning_ssl_geometry.measuring.readout import Readout

GIVEN = observed(Drawn().points())
METRICS = concrete()
BATCHES = torch.arange(GIVEN["h"].shape[1]).split(25)


class Shown(L.LightningModule):
    """Its step returns an observation with every key."""

    def validation_step(self, places, batch_idx):
        return permuted(GIVEN, BATCHES[int(places)])


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Attach diagnostics to one monitor, validate, and return all that they computed, by name and key."""
    found = {}
    compute = Readout.__call__

    def noted(*given, **named):
        results = compute(*given, **named)
        found.update(results[0])
        return results

    monkeypatch.setattr(Readout, "__call__", noted)

    def validated(metrics):
        found.clear()
        monitor = GeometryMonitor(metrics, stages=["val"], on_error="raise")
        trainer = quiet(tmp_path / str(len(list(tmp_path.iterdir()))), callbacks=[monitor])
        trainer.validate(Shown(), DataLoader(range(len(BATCHES))), verbose=False)
        return dict(found)

    return validated


def differing(found, expected):
    """The keys whose values are not the same bits; NaN is equal to NaN."""
    assert found.keys() == expected.keys()
    exact = {"rtol": 0, "atol": 0, "equal_nan": True}
    return [key for key, value in expected.items() if not torch.allclose(found[key], value, **exact)]


def made(names):
    return {name: metric_of(METRICS[name]) for name in names}


@pytest.mark.filterwarnings("ignore::lightning_ssl_geometry.diagnostics.UndefinedWarning")
def test_no_diagnostic_depends_on_the_others(read):
    together = [read(made(METRICS)), read(made(reversed(METRICS)))]
    for name in METRICS:
        alone = read(made([name]))
        for found in together:
            assert found.keys() == METRICS.keys()
            assert not differing(found[name], alone[name]), name


class Scaling(EffectiveRank):
    """Changes what the next one sees."""

    def update(self, h):
        super().update(h.mul_(2.0))


def test_one_that_changes_what_it_observes_would_be_found(read):
    calm = made(["Alignment", "LogSpectrum"])
    alone = read(made(["LogSpectrum"]))["LogSpectrum"]
    assert differing(read({"first": Scaling()} | calm)["LogSpectrum"], alone) == [""]


SETTINGS = {  # arguments of callbacks for a short fit; for others a callback keeps its defaults
    "iterations": [0, 3],
    "k": 5,
    "labels_per_class": [None],
    "probe_size": 10,
    "repeats": 1,
    "split": "val",
    "stages": ["train", "val", "probe"],
    "weightings": ["learned", "top", "uniform"],
}
SHARED = ("history.json", "metrics.csv", "quantities.json")  # files of the whole run


def attachable():
    """The callbacks that observe a fit and log or write what they found; a report only reads it."""
    found = {name: getattr(callbacks, name) for name in callbacks.__all__}
    return {
        name: kind
        for name, kind in found.items()
        if inspect.isclass(kind) and issubclass(kind, RunCallback) and kind is not callbacks.RunReport
    }


CALLBACKS = attachable()


def fitted(folder, names):
    """The scalars and the files of a fit with these callbacks."""
    wanted = {name: inspect.signature(CALLBACKS[name]).parameters for name in names}
    made = [CALLBACKS[name](**{key: SETTINGS[key] for key in SETTINGS if key in wanted[name]}) for name in names]
    trainer = quiet(folder, callbacks=made)
    torch.manual_seed(1)
    trainer.fit(METHODS["crl_tac"](), datamodule=data(100))
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.*") if path.name not in SHARED}
    return dict(trainer.callback_metrics), {name: content(path) for name, path in files.items()}


def content(path):
    """The lines of a table, which two evaluations may share, or the arrays of an archive, which itself has a date."""
    if path.suffix == ".csv":
        return set(path.read_text().splitlines())
    with np.load(path) as arrays:
        return {(name, arrays[name].dtype.str, arrays[name].shape, arrays[name].tobytes()) for name in arrays}


def test_no_callback_depends_on_the_others(tmp_path):
    scalars, files = fitted(tmp_path / "all", CALLBACKS)
    for name in CALLBACKS:
        alone, written = fitted(tmp_path / name, [name])
        assert alone.keys() > {"train/loss"} or written, name
        assert not differing({key: scalars[key] for key in alone}, alone), name
        assert [file for file in written if not written[file] <= files[file]] == [], name
