import json
from importlib.metadata import version
from pathlib import Path

import lightning as L
import pandas as pd
import pytest
from hosts import PlainHost, loader, quiet
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn

from lightning_ssl_geometry.callbacks import GeometryMonitor, RunReport
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import SmallCNN


def data():
    return DigitsDataModule(batch_size=100, subset=400)


def simclr():
    return SimCLRModule(SmallCNN(1, 8, "group"), nn.Linear(64, 8))


def fit(folder, callback, **arguments):
    trainer = quiet(folder, callbacks=[callback], **arguments)
    trainer.fit(simclr(), datamodule=data())
    return trainer


def test_the_record_of_a_run(tmp_path, capsys):
    L.seed_everything(7, verbose=False)
    fit(tmp_path, RunReport(), logger=CSVLogger(tmp_path, "run"))
    run = tmp_path / "run" / "version_0"
    record = json.loads((run / "run.json").read_text())
    assert (record["model"], record["data"], record["seed"]) == ("SimCLRModule", "DigitsDataModule", 7)
    assert (record["status"], record["epochs"], record["steps"]) == ("finished", 1, 3)
    assert record["parameters"] == sum(p.numel() for p in simclr().parameters())
    assert (record["kind"], record["data_path"], record["classes"]) == ("fit", None, 10)
    assert {name: record["versions"][name] for name in ("torch", "timm")} == {n: version(n) for n in ("torch", "timm")}
    assert record["started"] <= record["ended"]
    assert (run / "report.html").exists()
    printed = capsys.readouterr().out
    assert "train/loss" in printed
    assert "report.html" in printed


def test_a_failed_run_is_recorded(tmp_path):
    class Fails(SimCLRModule):
        def on_train_epoch_end(self):
            if self.current_epoch == 1:
                raise RuntimeError("out of luck")

    trainer = quiet(tmp_path, callbacks=[RunReport(table=False)], logger=CSVLogger(tmp_path, "run"), max_epochs=3)
    with pytest.raises(RuntimeError, match="out of luck"):
        trainer.fit(Fails(SmallCNN(1, 8), nn.Linear(64, 8)), datamodule=data())
    run = tmp_path / "run" / "version_0"
    assert json.loads((run / "run.json").read_text())["status"] == "failed"
    assert pd.read_csv(run / "metrics.csv")["train/loss"].notna().sum() >= 1
    assert (run / "report.html").exists()


def test_an_early_failure_is_not_hidden_by_the_report(tmp_path):
    class Fails(SimCLRModule):
        def on_train_start(self):
            raise RuntimeError("out of luck")

    trainer = quiet(tmp_path, callbacks=[RunReport()], logger=CSVLogger(tmp_path, "run"))
    with pytest.raises(RuntimeError, match="out of luck"):  # and no word on a page of nothing
        trainer.fit(Fails(SmallCNN(1, 8), nn.Linear(64, 8)), datamodule=data())
    assert json.loads((tmp_path / "run" / "version_0" / "run.json").read_text())["status"] == "failed"


def test_a_csv_logger_is_asked_for_before_training(tmp_path):
    with pytest.raises(ValueError, match="CSVLogger among the Trainer's `logger`s for RunReport, but got none"):
        fit(tmp_path, RunReport(), logger=False)


class Writes(L.Callback):
    """Something that the page reads, at the very end."""

    def on_test_end(self, trainer, pl_module):
        path = Path(trainer.loggers[0].log_dir) / "linear_evaluation.csv"
        path.write_text("features,labels_per_class,accuracy\ntrained,all,0.875\n")


def test_a_diagnosis_is_recorded_by_a_test_alone(tmp_path):
    about = {"model": "resnet18", "checkpoint": "x.ckpt", "samples": 180, "seed": None, "share": 0.5}
    report = RunReport(table=False, kind="diagnosis", about=about)
    saving = ModelCheckpoint(tmp_path / "checkpoints")
    trainer = quiet(
        tmp_path,
        callbacks=[report, GeometryMonitor(stages=["test"]), Writes(), saving],
        logger=CSVLogger(tmp_path, "run"),
        enable_checkpointing=True,
    )
    trainer.test(simclr(), datamodule=data(), verbose=False)
    assert trainer.callbacks[-2:] == [report, saving]
    run = tmp_path / "run" / "version_0"
    record = json.loads((run / "run.json").read_text())
    assert about.items() <= record.items()
    assert (record["kind"], record["status"], record["data"]) == ("diagnosis", "finished", "DigitsDataModule")
    assert record["started"] <= record["ended"]
    assert not {"epochs", "steps"} & record.keys()
    assert pd.read_csv(run / "metrics.csv")["test/effective_rank_h"].notna().sum() == 1
    assert "87.5" in (run / "report.html").read_text()  # what was written after the test, by another callback


@pytest.mark.parametrize(("kind", "records"), [("fit", ["finished"]), ("diagnosis", [])])
def test_each_kind_leaves_the_other_alone(tmp_path, kind, records):
    class Fails(SimCLRModule):
        def on_test_epoch_end(self):
            raise RuntimeError("out of luck")

    trainer = quiet(tmp_path, callbacks=[RunReport(table=False, kind=kind)], logger=CSVLogger(tmp_path, "run"))
    module = Fails(SmallCNN(1, 8), nn.Linear(64, 8))
    trainer.fit(module, datamodule=data())
    found = [json.loads(path.read_text())["status"] for path in tmp_path.rglob("run.json")]
    assert found == records
    with pytest.raises(RuntimeError, match="out of luck"):
        trainer.test(module, datamodule=data(), verbose=False)
    (path,) = tmp_path.rglob("run.json")
    assert json.loads(path.read_text())["status"] == {"fit": "finished", "diagnosis": "failed"}[kind]


def test_where_the_data_are_is_recorded(tmp_path):
    class Elsewhere(DigitsDataModule):
        root = Path("some") / "where"

    trainer = quiet(tmp_path, callbacks=[RunReport(page=False, table=False)], logger=CSVLogger(tmp_path, "run"))
    trainer.fit(simclr(), datamodule=Elsewhere(batch_size=100, subset=400))
    record = json.loads((tmp_path / "run" / "version_0" / "run.json").read_text())
    assert record["data_path"] == str(Path("some") / "where")


def test_a_kind_that_does_not_exist():
    with pytest.raises(ValueError, match=r"`kind` to be one of \('fit', 'diagnosis'\), but got 'test'"):
        RunReport(kind="test")


def test_an_error_of_another_kind_in_the_report_does_not_hide_the_first(tmp_path, monkeypatch):
    class Fails(SimCLRModule):
        def on_train_start(self):
            raise RuntimeError("out of luck")

    def broken(*_):
        raise TypeError("no such figure")

    monkeypatch.setattr(RunReport, "_report", broken)
    trainer = quiet(tmp_path, callbacks=[RunReport()], logger=CSVLogger(tmp_path, "run"))
    said = pytest.warns(UserWarning, match="could not write the report of this run: no such figure")
    with said, pytest.raises(RuntimeError, match="out of luck"):
        trainer.fit(Fails(SmallCNN(1, 8), nn.Linear(64, 8)), datamodule=data())


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_a_fit_that_logged_nothing_ends_with_a_warning_and_not_an_error(tmp_path):
    class Silent(PlainHost):
        def validation_step(self, batch, batch_idx):
            pass

    trainer = quiet(tmp_path, callbacks=[RunReport()], logger=CSVLogger(tmp_path, "run"))
    with pytest.warns(UserWarning, match="no page to write: nothing was logged. Is `log_every_n_steps` too large"):
        trainer.fit(Silent(), loader())
