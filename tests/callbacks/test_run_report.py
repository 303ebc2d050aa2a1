import json
import re
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import lightning as L
import pandas as pd
import pytest
from hosts import PlainHost, loader, quiet
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from matplotlib.figure import Figure
from pages import page_of
from torch import nn

from lightning_ssl_geometry.callbacks import GeometryMonitor, RunReport
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import SmallCNN
from lightning_ssl_geometry.recording.run_record import RunRecord
from lightning_ssl_geometry.report import history as report_history
from lightning_ssl_geometry.report import read_run


def data():
    return DigitsDataModule(batch_size=100, subset=400)


def simclr():
    return SimCLRModule(SmallCNN(1, 8, "group"), nn.Linear(64, 8))


RUN = "run/version_0"


def recorded(folder, run=RUN):
    return json.loads((folder / run / "run.json").read_text())


def fit(folder, *callbacks, **arguments):
    trainer = quiet(folder, callbacks=list(callbacks), **arguments)
    trainer.fit(simclr(), datamodule=data())
    return trainer


def test_the_record_of_a_run(tmp_path, capsys):
    class Elsewhere(DigitsDataModule):
        root = Path("some") / "where"

    L.seed_everything(7, verbose=False)
    trainer = quiet(tmp_path, callbacks=[RunReport()], logger=CSVLogger(tmp_path, "run"))
    trainer.fit(simclr(), datamodule=Elsewhere(batch_size=100, subset=400))
    run, record = tmp_path / RUN, recorded(tmp_path)
    assert (record["model"], record["data"], record["seed"]) == ("SimCLRModule", "Elsewhere", 7)
    assert (record["status"], record["epochs"], record["steps"]) == ("finished", 1, 3)
    assert record["parameters"] == sum(p.numel() for p in simclr().parameters())
    assert (record["kind"], record["data_path"], record["classes"]) == ("fit", str(Path("some") / "where"), 10)
    assert {name: record["versions"][name] for name in ("torch", "timm")} == {n: version(n) for n in ("torch", "timm")}
    assert record["started"] <= record["ended"]
    assert (run / "report.html").exists()
    printed = capsys.readouterr().out
    assert "train/loss" in printed
    assert "report.html" in printed


def fails_in(hook, said="out of <b>luck</b>"):
    """A module that fails there, with a message that is no markup; within its epochs, in the second."""

    def fail(self, *_, **__):
        if hook != "on_train_epoch_end" or self.current_epoch:
            raise RuntimeError(said)

    return type("Fails", (SimCLRModule,), {hook: fail})(SmallCNN(1, 8), nn.Linear(64, 8))


EARLY = ["setup", "configure_optimizers", "on_fit_start", "on_train_start", "training_step"]


@pytest.mark.parametrize(("hook", "steps"), [*((hook, 0) for hook in EARLY), ("on_train_epoch_end", 6)])
def test_a_run_that_fails_leaves_a_page_that_says_so_unless_it_had_no_step(tmp_path, capsys, hook, steps):
    report = RunReport()
    trainer = quiet(tmp_path, callbacks=[report], logger=CSVLogger(tmp_path, "run"), max_epochs=3)
    with pytest.raises(RuntimeError, match="out of <b>luck</b>"):
        trainer.fit(fails_in(hook), datamodule=data())
    record = recorded(tmp_path)
    assert (record["status"], record["steps"]) == ("failed", steps)
    assert record["error"] == {"type": "RuntimeError", "message": "out of <b>luck</b>"}
    if not steps:
        assert not (tmp_path / RUN / "report.html").exists()
        assert "report.html" not in capsys.readouterr().out
        fit(tmp_path, report, logger=CSVLogger(tmp_path, "run"))  # the next one is not this one
        assert recorded(tmp_path, "run/version_1")["status"] == "finished"
        return
    page = page_of(tmp_path / RUN / "report.html")
    when = f"after {steps} steps" if steps else "before its first step"
    said = f"This run failed {when}: RuntimeError: out of <b>luck</b>"
    assert said in page.text
    assert "status failed" in page.values("class")
    assert "<b>luck" not in page.source
    printed = " ".join(capsys.readouterr().out.split())
    assert said in printed
    assert "report.html" in printed
    assert pd.read_csv(tmp_path / RUN / "metrics.csv")["train/loss"].notna().sum() >= 1


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
def test_a_resumed_run_that_fails_before_its_first_step_keeps_its_page(tmp_path):
    saving = ModelCheckpoint(tmp_path / "kept", save_last=True)
    loggers = [CSVLogger(tmp_path, "run", version=f"version_{part}") for part in (0, 1)]
    settings = {"callbacks": [RunReport(), saving], "enable_checkpointing": True}
    trainer = quiet(tmp_path, logger=loggers[0], **settings)
    trainer.fit(fails_in("on_train_epoch_end"), datamodule=data())  # it would fail in a second epoch
    trainer = quiet(tmp_path, logger=loggers[1], max_epochs=3, **settings)
    with pytest.raises(RuntimeError, match="out of <b>luck</b>"):
        trainer.fit(fails_in("training_step"), datamodule=data(), ckpt_path=tmp_path / "kept" / "last.ckpt")
    assert "This part of the run failed before its first step" in page_of(tmp_path / "run/version_1/report.html").text


def test_what_fails_behind_the_end_of_a_fit_is_not_its_failure(tmp_path):
    class Later(ModelCheckpoint):
        def on_fit_end(self, trainer, pl_module):
            raise RuntimeError("out of luck")

    callbacks = [RunReport(table=False), Later(tmp_path / "checkpoints")]
    trainer = quiet(tmp_path, callbacks=callbacks, logger=CSVLogger(tmp_path, "run"), enable_checkpointing=True)
    with pytest.raises(RuntimeError, match="out of luck"):
        trainer.fit(simclr(), datamodule=data())
    assert recorded(tmp_path)["status"] == "finished"


def broken(*_, **__):
    raise OSError(28, "No space left on device")


UNWRITTEN = {  # what fails, and what the warning calls it
    "run": ("lightning_ssl_geometry.report.read_run", r"write the report of this run: OSError: .*No space"),
    "page": (
        "lightning_ssl_geometry.report.page.replacing",
        r"write .*version_0/report\.html: OSError: .*No space",
    ),
    "drawing": ("lightning_ssl_geometry.report.page.inline_svg", r"report\.html lacks figures\. Not drawn: .*OSError"),
    "table": (
        "lightning_ssl_geometry.report.summary_table",
        r"write the table of this run: OSError: .*No space",
    ),
    "figures": (
        "lightning_ssl_geometry.recording.run_record.log_run",
        r"write the figures to the loggers: OSError",
    ),
    "record": (None, r"write .*run\.json: OSError: .*No space left"),
}


@pytest.mark.parametrize("what", UNWRITTEN)
def test_a_report_that_cannot_be_written_makes_a_finished_fit_warn(tmp_path, monkeypatch, capsys, what):
    place, said = UNWRITTEN[what]
    if place:
        monkeypatch.setattr(place, broken)
    else:  # at the end alone
        write = RunRecord._write
        monkeypatch.setattr(RunRecord, "_write", lambda *args: write(*args) if args[1] == "running" else broken())
    with pytest.warns(UserWarning, match=said) as warned:
        fit(tmp_path, RunReport(), logger=CSVLogger(tmp_path, "run"))
    assert len([each for each in warned if re.search("Could not write|lacks figures", str(each.message))]) == 1
    assert recorded(tmp_path)["status"] == ("running" if what == "record" else "finished")
    assert (tmp_path / RUN / "report.html").exists() is (what not in ("run", "page"))
    assert ("train/loss" in capsys.readouterr().out) is (what not in ("run", "table"))


def test_a_run_is_read_once_and_a_figure_is_drawn_once_per_format(tmp_path, monkeypatch):
    calls = Counter()

    def count(owner, name, key=lambda *_, **__: None):
        call = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, **k: (calls.update([(name, key(*a, **k))]), call(*a, **k))[1])

    count(report_history, "read_scalars")
    count(report_history, "read_arrays")
    count(Figure, "__setstate__")  # each figure is a copy of an empty one
    count(Figure, "draw", lambda figure, renderer: (id(figure), type(renderer).__name__))
    loggers = [CSVLogger(tmp_path, "run"), TensorBoardLogger(tmp_path, "board")]
    fit(tmp_path, GeometryMonitor(stages=["val"]), RunReport(), logger=loggers)
    page = (tmp_path / RUN / "report.html").read_text("utf-8")
    figures = page.count('class="figure"')
    assert figures > 5
    assert calls.pop(("read_scalars", None)) == calls.pop(("read_arrays", None)) == 1
    assert calls.pop(("__setstate__", None)) == figures
    assert Counter(renderer for _, (_, renderer) in calls) == {"Renderer": figures, "RendererAgg": figures}
    assert set(calls.values()) == {1}


def test_a_logger_is_asked_for_before_training(tmp_path):
    with pytest.raises(ValueError, match="Expected a `logger` of the Trainer for RunReport, but got none"):
        fit(tmp_path, RunReport(), logger=False)


def test_a_run_with_tensorboard_alone_has_the_page_of_a_run_with_a_table(tmp_path):
    pages = []
    for logger in (TensorBoardLogger(tmp_path, "board"), CSVLogger(tmp_path, "table")):
        L.seed_everything(0, verbose=False)
        trainer = fit(tmp_path, GeometryMonitor(), RunReport(table=False, figures=False), logger=logger)
        assert trainer.logger is logger
        pages.append(read_run(tmp_path / logger.name / "version_0"))
    board, table = pages
    assert board.scalars.keys() == table.scalars.keys()
    assert all(board.scalars[name].value.tolist() == each.value.tolist() for name, each in table.scalars.items())
    assert {path.name for path in (tmp_path / "table" / "version_0").iterdir()} - {"hparams.yaml"} <= {
        path.name for path in (tmp_path / "board" / "version_0").iterdir()
    }


@pytest.mark.parametrize("evaluate", ["test", "validate"])
@pytest.mark.parametrize("where", ["after the fit", "in another process", "of another run"])
def test_an_evaluation_of_a_checkpoint_adds_to_the_page_of_its_run(tmp_path, evaluate, where):
    def trainer(run):
        callbacks = [GeometryMonitor(stages=["test", "val"]), RunReport(table=False)]
        logger = ResumableCSVLogger(tmp_path, "", run)
        return quiet(tmp_path, callbacks=callbacks, logger=logger, max_epochs=2)

    fitted = trainer("run")
    fitted.fit(simclr(), datamodule=data())
    fitted.save_checkpoint(tmp_path / "x.ckpt")
    before, page = read_run(tmp_path / "run").scalars, tmp_path / "run" / "report.html"
    written = page.stat().st_mtime_ns
    again = fitted if where == "after the fit" else trainer("other" if where == "of another run" else "run")
    getattr(again, evaluate)(simclr(), datamodule=data(), ckpt_path=tmp_path / "x.ckpt", verbose=False)
    after = read_run(tmp_path / "run").scalars
    name = {"test": "test/effective_rank_h", "validate": "val/effective_rank_h"}[evaluate]
    if where == "of another run":
        assert after.keys() == before.keys()
        assert not (tmp_path / "other" / "report.html").exists()
    else:
        assert after[name].step.tolist()[-1] == 5  # of two epochs of three steps
        assert name in page.read_text()
        assert page.stat().st_mtime_ns > written
    assert recorded(tmp_path, "run")["status"] == "finished"


class Writes(L.Callback):
    """Something that the page reads, at the very end."""

    def on_test_end(self, trainer, pl_module):
        path = Path(trainer.loggers[0].log_dir) / "linear_evaluation.csv"
        path.write_text("features,labels_per_class,accuracy\ntrained,all,0.875\n")


@pytest.mark.parametrize("second", ["fit", "test", "validate"])
def test_a_trainer_that_has_fitted_one_model_refuses_another(tmp_path, second):
    trainer = fit(tmp_path, RunReport(table=False), logger=ResumableCSVLogger(tmp_path, "run"))
    trainer.save_checkpoint(tmp_path / "fitted.ckpt")
    files = [path for path in (tmp_path / RUN).rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    other = simclr() if second == "fit" else type("Other", (SimCLRModule,), {})(simclr().backbone, simclr().projector)
    name = type(other).__name__
    with pytest.raises(ValueError, match=rf"Expected the model that this Trainer has fitted, .* got another {name}"):
        getattr(trainer, second)(other, datamodule=data())
    assert {path: path.read_bytes() for path in before} == before
    trainer.test(simclr(), datamodule=data(), ckpt_path=tmp_path / "fitted.ckpt", verbose=False)  # the same weights


@pytest.mark.parametrize("second", ["test", "validate"])
def test_another_model_of_the_fitted_class_is_evaluated_with_a_warning(tmp_path, second):
    trainer = fit(tmp_path, RunReport(table=False), logger=ResumableCSVLogger(tmp_path, "run"))
    with pytest.warns(UserWarning, match=r"This Trainer has fitted another SimCLRModule.*Give `ckpt_path`"):
        getattr(trainer, second)(simclr(), datamodule=data(), verbose=False)


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
    run, record = tmp_path / RUN, recorded(tmp_path)
    assert about.items() <= record.items()
    assert (record["kind"], record["status"], record["data"]) == ("diagnosis", "finished", "DigitsDataModule")
    assert record["started"] <= record["ended"]
    assert not {"epochs", "steps"} & record.keys()
    assert pd.read_csv(run / "metrics.csv")["test/effective_rank_h"].notna().sum() == 1
    assert "87.5" in (run / "report.html").read_text()  # what was written after the test, by another callback


@pytest.mark.parametrize(("kind", "records"), [("fit", ["finished"]), ("diagnosis", [])])
def test_each_kind_leaves_the_other_alone(tmp_path, kind, records):
    trainer = quiet(tmp_path, callbacks=[RunReport(table=False, kind=kind)], logger=CSVLogger(tmp_path, "run"))
    module = fails_in("on_test_epoch_end", "out of luck")
    trainer.fit(module, datamodule=data())
    assert [json.loads(path.read_text())["status"] for path in tmp_path.rglob("run.json")] == records
    with pytest.raises(RuntimeError, match="out of luck"):
        trainer.test(module, datamodule=data(), verbose=False)
    (path,) = tmp_path.rglob("run.json")
    assert json.loads(path.read_text())["status"] == {"fit": "finished", "diagnosis": "failed"}[kind]


def test_a_kind_that_does_not_exist():
    with pytest.raises(ValueError, match=r"`kind` to be one of \('fit', 'diagnosis'\), but got 'test'"):
        RunReport(kind="test")


def test_an_error_of_another_kind_in_the_report_does_not_hide_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(RunReport, "_show", broken)
    trainer = quiet(tmp_path, callbacks=[RunReport()], logger=CSVLogger(tmp_path, "run"))
    said = pytest.warns(UserWarning, match="Could not write the report of this run: .*No space")
    with said, pytest.raises(RuntimeError, match="out of <b>luck"):
        trainer.fit(fails_in("on_train_start"), datamodule=data())


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
def test_a_fit_that_logged_nothing_ends_with_a_warning_and_not_an_error(tmp_path):
    class Silent(PlainHost):
        def training_step(self, batch, batch_idx):
            pass

        def validation_step(self, batch, batch_idx):
            pass

    trainer = quiet(tmp_path, callbacks=[RunReport()], logger=CSVLogger(tmp_path, "run"))
    with pytest.warns(UserWarning, match="no page to write: nothing was logged. Is `log_every_n_steps` too large"):
        trainer.fit(Silent(), loader())
