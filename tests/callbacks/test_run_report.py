import json
from importlib.metadata import version

import lightning as L
import pandas as pd
import pytest
from hosts import quiet
from lightning.pytorch.loggers import CSVLogger
from torch import nn

from lightning_ssl_geometry.callbacks import RunReport
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
    assert record["versions"]["torch"] == version("torch")
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
    with (
        pytest.warns(UserWarning, match=r"could not write the report of this run: .*metrics\.csv"),
        pytest.raises(RuntimeError, match="out of luck"),
    ):
        trainer.fit(Fails(SmallCNN(1, 8), nn.Linear(64, 8)), datamodule=data())
    assert json.loads((tmp_path / "run" / "version_0" / "run.json").read_text())["status"] == "failed"


def test_a_csv_logger_is_asked_for_before_training(tmp_path):
    with pytest.raises(ValueError, match="CSVLogger among the Trainer's `logger`s for RunReport, but got none"):
        fit(tmp_path, RunReport())
