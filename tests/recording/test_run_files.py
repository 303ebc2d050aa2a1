"""The folder of a run: which it is, and that files of others in it are left alone."""

import json
import os

import lightning as L
import numpy as np
import pytest
import torch
from hosts import PlainHost, loader, quiet
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.loggers.logger import Logger
from torch import nn

from lightning_ssl_geometry.callbacks import EmbeddingSnapshots, GeometryMonitor, RunReport
from lightning_ssl_geometry.callbacks.run_callback import run_folder
from lightning_ssl_geometry.diagnostics import LogSpectrum
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.losses import AugmentationChannelLoss, InfoNCELoss
from lightning_ssl_geometry.recording.arrays import ArrayFiles
from lightning_ssl_geometry.recording.run_files import RunFiles
from lightning_ssl_geometry.recording.run_record import described

TAPS = {"h": "trunk", "z": "head"}


class Tracker(Logger):
    """A logger as wandb's and MLflow's are: `save_dir` is where all runs are, and a run has a name of its own."""

    def __init__(self, save_dir, version):
        super().__init__()
        self._save_dir, self._version = str(save_dir), version

    name, version, save_dir = "project", property(lambda self: self._version), property(lambda self: self._save_dir)

    def log_metrics(self, metrics, step=None):
        pass

    def log_hyperparams(self, *_, **__):
        pass


def monitor(**arguments):
    return GeometryMonitor({"spectrum": LogSpectrum()}, stages=["train"], every_n_steps=1, taps=TAPS, **arguments)


def fit(folder, *callbacks, **arguments):
    trainer = quiet(folder, callbacks=list(callbacks) or [monitor()], **arguments)
    trainer.fit(PlainHost(), loader(), loader())
    return trainer


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda folder: ResumableCSVLogger(folder, "x", 3), "x/version_3"),
        (lambda folder: [TensorBoardLogger(folder, "tb", 0), CSVLogger(folder, "x", "own")], "x/own"),
        (lambda folder: Tracker(folder, "k2j4"), "project/k2j4"),
        (lambda folder: Tracker(folder, 7), "project/version_7"),
        (lambda folder: TensorBoardLogger(folder, "tb", 5), "tb/version_5"),
        (lambda _: False, None),
    ],
)
def test_the_folder_is_the_loggers(tmp_path, make, expected):
    trainer = quiet(tmp_path, logger=make(tmp_path), enable_checkpointing=True, callbacks=[ModelCheckpoint()])
    assert run_folder(trainer) == (tmp_path / expected if expected else None)


def test_without_a_logger_nothing_is_written_and_files_of_the_current_folder_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "geometry").mkdir()
    (tmp_path / "geometry" / "mine.csv").write_text("a,b\n1,2\n")
    np.savez(tmp_path / "geometry" / "mine.npz", a=1)
    before = contents(tmp_path)
    with pytest.warns(UserWarning, match=r"train/spectrum\.csv, and .* is not kept: the Trainer has no logger") as said:
        fit(tmp_path, logger=False, max_epochs=3)
    assert len([each for each in said if "is not kept" in str(each.message)]) == 1
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "name", ["geometry/train/spectrum.csv", "geometry/train/spectrum_x.npz", "metrics.csv", "run.json", "report.html"]
)
def test_a_file_of_another_is_refused_before_the_first_step_and_not_touched(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("step,mine\n1,2\n")
    with pytest.raises(ValueError, match=f"Expected `{name}` to be this run's to write, but .* is there already"):
        fit(tmp_path, monitor(), RunReport())
    assert path.read_text() == "step,mine\n1,2\n"


def test_another_run_is_refused_where_a_run_was(tmp_path):
    fit(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="neither this run nor one that it resumes wrote it"):
        fit(tmp_path)
    assert contents(tmp_path) == before


def test_foreign_files_beside_those_of_a_run_stay(tmp_path):
    (tmp_path / "geometry" / "train").mkdir(parents=True)
    for name in ("geometry/train/notes.csv", "geometry/spectrum.csv", "notes.npz"):
        (tmp_path / name).write_text("mine")
    before = contents(tmp_path)
    fit(tmp_path)
    assert before.items() <= contents(tmp_path).items()


def test_a_file_that_appears_during_the_run_is_left_alone(tmp_path):
    files = RunFiles(tmp_path)
    (tmp_path / "table.csv").write_text("mine")
    with pytest.warns(UserWarning, match=r"`table\.csv` of this run is not kept: .* is there already"):
        files.append("table.csv", ["a"], [1])
    files.append("table.csv", ["a"], [1])  # said once
    assert (tmp_path / "table.csv").read_text() == "mine"


def test_files_of_a_resumed_run_that_cannot_be_read_are_set_aside(tmp_path):
    files = ArrayFiles(RunFiles(tmp_path))
    names = ["empty", "torn", "noise", "whole"]
    for name in names:
        files.append(f"val/{name}", 0, 5, torch.ones(3))
        files.append(f"val/{name}_image", 0, 5, torch.ones(3, 3))
    folder = tmp_path / "geometry" / "val"
    for kind in ("csv", "npz"):
        image = "_image" * (kind == "npz")
        (folder / f"empty{image}.{kind}").write_bytes(b"")
        (folder / f"noise{image}.{kind}").write_bytes(b"\x80\0\xff" * 30)
        torn = folder / f"torn{image}.{kind}"
        torn.write_bytes(torn.read_bytes()[:9])
    with pytest.warns(UserWarning, match=r"could not be read: .* It is now .*unreadable-1; the run goes on") as said:
        files.files.rewind(5)
    assert len(said) == 6
    assert sorted(path.name for path in folder.iterdir() if "unreadable" not in path.name) == [
        "whole.csv",
        "whole_image.npz",
    ]
    files.append("val/empty", 1, 10, torch.ones(3))
    assert (folder / "empty.csv").read_text() == "epoch,step,0,1,2\n1,10,1,1,1\n"


def test_an_unreadable_history_is_set_aside_and_the_checkpoint_knows_the_files(tmp_path):
    files = RunFiles(tmp_path)
    files.append("table.csv", ["a"], [1])
    state = {"run": files.run, "folder": str(tmp_path), "files": ["table.csv"]}
    (tmp_path / "history.json").write_text('{"run": ')
    resumed = RunFiles(tmp_path)
    with pytest.warns(UserWarning, match=r"history\.json could not be read"):
        resumed.adopt(state)
    resumed.append("table.csv", ["a"], [2])
    assert (tmp_path / "table.csv").read_text() == "a\n1\n2\n"
    assert json.loads((tmp_path / "history.json").read_text())["run"] == state["run"]


def test_a_checkpoint_of_another_run_gives_no_leave(tmp_path):
    RunFiles(tmp_path).append("table.csv", ["a"], [1])
    other = RunFiles(tmp_path)
    other.adopt({"run": "0" * 32, "folder": str(tmp_path), "files": ["table.csv"]})
    with pytest.raises(ValueError, match=r"Expected `table\.csv` to be this run's to write"):
        other.check("table.csv")


@pytest.mark.parametrize("name", ["geometry/../../mine.csv", "geometry/../{}/mine.csv", "{}/mine.csv"])
def test_a_checkpoint_gives_no_leave_outside_of_the_folder(tmp_path, name):
    (tmp_path / "run").mkdir()
    (tmp_path / "mine.csv").write_text("epoch,step,a\n0,5,1\n")
    files, name = RunFiles(tmp_path / "run"), name.format(tmp_path)
    files.adopt({"run": "0" * 32, "folder": str(tmp_path / "run"), "files": [name, "geometry/own.csv"]})
    files.rewind(0)
    assert (tmp_path / "mine.csv").exists()
    assert files.names == {"geometry/own.csv"}


@pytest.mark.parametrize(
    ("call", "name", "lines"),
    [("write", "old.csv", [0, 1, 2, 3]), ("replace", "new.csv", [1, 2, 3]), ("fsync", "new.csv", [1, 2, 3])],
)
def test_rows_that_a_full_disk_refused_are_written_when_it_has_room(tmp_path, monkeypatch, call, name, lines):
    files = RunFiles(tmp_path)
    files.append("old.csv", ["a"], [0])

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.warns(UserWarning, match=rf"{name} cannot be written now: .*No space left"):
            files.append(name, ["a"], [1])
        files.append(name, ["a"], [2])  # said once
        assert (tmp_path / "old.csv").read_text() == "a\n0\n"
        assert not (tmp_path / "new.csv").exists()
    files.append(name, ["a"], [3])
    assert (tmp_path / name).read_text() == "a\n" + "".join(f"{line}\n" for line in lines)
    assert not list(tmp_path.glob(".*"))


def test_a_trial_of_snapshots_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    callbacks = [EmbeddingSnapshots([0], taps=TAPS, batch_keys={"views": [0, 1]}), monitor()]
    trainer = L.Trainer(callbacks=callbacks, accelerator="cpu", fast_dev_run=True, enable_progress_bar=False)
    trainer.fit(PlainHost(), loader(), loader())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("losses", "temperature"),
    [
        ([InfoNCELoss(temperature=0.1)], 0.1),
        ([AugmentationChannelLoss(beta=5.0)], 0.2),
        ([InfoNCELoss(temperature=0.1), InfoNCELoss(temperature=0.1)], 0.1),
        ([InfoNCELoss(temperature=0.1), InfoNCELoss(temperature=0.5)], None),
        ([InfoNCELoss(temperature=[0.1, 0.5])], None),
        ([nn.MSELoss()], None),
        ([], None),
    ],
)
def test_the_record_has_the_temperature_of_the_loss_if_there_is_one(losses, temperature):
    assert described(nn.ModuleList(losses))["loss_temperature"] == temperature
