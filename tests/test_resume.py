"""A run that is interrupted and resumed, in the same folder or in a new one, has one history."""

import json
import os
import shlex
import signal
import subprocess
import time
import zipfile
from functools import partial
from pathlib import Path

import forked
import killed
import lightning as L
import numpy as np
import pandas as pd
import pytest
import torch
from documents import blocks
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_ssl_geometry.callbacks import GeometryMonitor, last_checkpoint
from lightning_ssl_geometry.callbacks.resumption import _log_late
from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.diagnostics import EffectiveRank
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.report import read_run, write_report

ROOT = Path(__file__).parents[1]
SMOKE = str(ROOT / "examples" / "simclr" / "smoke.yaml")

pytestmark = pytest.mark.filterwarnings(
    "ignore:The dirpath has changed",  # of a checkpoint's best weights, in a new version folder
    "ignore:Checkpoint directory .* exists and is not empty",  # in the same one
    "ignore:Be aware that when using `ckpt_path`",  # of the checkpoint callback that interrupts
    "ignore:You're resuming from a checkpoint that ended before the epoch ended",
)


class Interrupt(L.Callback):
    """Call `before` and raise an error before a step, after the loader has given its batch."""

    def __init__(self, step, before=lambda trainer: None):
        self.step, self.before = step, before

    def on_train_batch_start(self, trainer, *_):
        if trainer.global_step == self.step:
            self.before(trainer)
            raise RuntimeError("interrupted")


def interrupted(folder, step, before=lambda trainer: None, **arguments):
    with pytest.raises(RuntimeError, match="interrupted"):
        killed.fit(folder, callbacks=[Interrupt(step, before)], **arguments)


class InterruptedAtLast(ModelCheckpoint):
    """Raise an error at `last.ckpt` of a step: the step's other checkpoint is saved already."""

    interrupts = 1

    def _save_checkpoint(self, trainer, filepath):
        if Path(filepath).stem == "last" and trainer.global_step == 8 and self.interrupts:
            self.interrupts -= 1
            raise RuntimeError("interrupted")
        super()._save_checkpoint(trainer, filepath)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    killed.fit(folder)
    return killed.history(folder / "run")


@pytest.mark.parametrize("version", [None, 0])
def test_a_run_that_is_resumed_twice_has_one_history_and_its_page_says_so(tmp_path, whole, version):
    interrupted(tmp_path, 6, version=version)
    interrupted(tmp_path, 13, version=version, resume=True)
    killed.fit(tmp_path, version, resume=True)
    killed.assert_same_history(killed.history(tmp_path / "run"), whole)
    killed.assert_whole(tmp_path / "run")
    run = read_run(tmp_path / "run")
    last = run.resumed[-1]
    assert (last.step, last.epoch, last.folder) == (12, 2, "../version_1" if version is None else ".")
    assert not last.within_epoch
    assert len(run.resumed) == (1 if version is None else 2)
    page = write_report(tmp_path / "run", tmp_path / "x.html").read_text()
    place = "from ../version_1" if version is None else "in this folder"
    assert f"at step 12, epoch 2, {place}, 20" in page


def test_what_a_resumed_run_writes_anew_is_set_aside(tmp_path):
    interrupted(tmp_path, 6, version=0)
    table = pd.read_csv(tmp_path / "run" / "version_0" / "metrics.csv")
    interrupted(tmp_path, 13, version=0, resume=True)
    assert not list(tmp_path.rglob("superseded-*"))  # the first was interrupted before it logged more
    with (tmp_path / "run" / "version_0" / "metrics.csv").open("a") as file:
        file.write(",".join("99" if name == "step" else "" for name in table) + "\r\n")
    killed.fit(tmp_path, 0, resume=True)
    (superseded,) = tmp_path.rglob("superseded-*/metrics.csv")
    assert pd.read_csv(superseded)["step"].tolist() == [99]


def test_an_interruption_between_the_two_saves_of_a_step_leaves_the_last_checkpoint(tmp_path, whole):
    with pytest.raises(RuntimeError, match="interrupted"):
        killed.fit(tmp_path, 0, saving=InterruptedAtLast(save_last=True, save_on_exception=True))
    saved = torch.load(tmp_path / "run" / "version_0" / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 8
    killed.fit(tmp_path, 0, resume=True)
    killed.assert_same_history(killed.history(tmp_path / "run"), whole)


@pytest.mark.parametrize("epoch", [1, 3])  # the last one is 3
@pytest.mark.parametrize("version", [None, 0])
def test_a_readout_after_an_epoch_that_was_interrupted_is_taken_when_the_fit_goes_on(
    tmp_path, whole, version, epoch, monkeypatch
):
    probe = GeometryMonitor._probe

    def fails(monitor, trainer, host, moment):
        if moment.epoch == epoch:
            raise RuntimeError("interrupted")
        probe(monitor, trainer, host, moment)

    with monkeypatch.context() as patch:
        patch.setattr(GeometryMonitor, "_probe", fails)
        with pytest.raises(RuntimeError, match="interrupted"):
            killed.fit(tmp_path, version, saving=ModelCheckpoint(save_last=True, save_on_exception=True))
    killed.fit(tmp_path, version, resume=True, saving=ModelCheckpoint(save_last=True, save_on_exception=True))
    killed.assert_same_history(killed.history(tmp_path / "run"), whole)


def test_only_the_monitor_whose_readout_was_interrupted_takes_it_again(tmp_path, monkeypatch):
    def others():
        kept = {"stages": ["train", "probe"], "probe_size": 10, "every_n_steps": 1}
        return [GeometryMonitor({"rank": EffectiveRank()}, **kept, name=name) for name in ("second", "first")]

    calls, left, probe = [], [1], GeometryMonitor._probe

    def fails(monitor, trainer, host, moment):
        calls.append((monitor.name, moment.epoch))
        if calls[-1] == ("second", 1) and left:
            left.pop()
            raise RuntimeError("interrupted")
        probe(monitor, trainer, host, moment)

    saving = partial(ModelCheckpoint, save_last=True, save_on_exception=True)
    killed.fit(tmp_path / "whole", callbacks=others())
    monkeypatch.setattr(GeometryMonitor, "_probe", fails)
    with pytest.raises(RuntimeError, match="interrupted"):
        killed.fit(tmp_path, callbacks=others(), saving=saving())
    assert calls[-2:] == [("first", 1), ("second", 1)]
    calls.clear()
    killed.fit(tmp_path, resume=True, callbacks=others(), saving=saving())
    killed.assert_same_history(killed.history(tmp_path / "run"), killed.history(tmp_path / "whole" / "run"))
    assert [epoch for name, epoch in calls if name == "first"] == [2, 3]
    assert [epoch for name, epoch in calls if name == "second"] == [1, 2, 3]


def test_the_same_monitor_reads_out_each_of_two_fits(tmp_path):
    """Each fit has one readout before training and one after each epoch."""
    monitor = GeometryMonitor({"rank": EffectiveRank()}, stages=["probe"], probe_size=10, name="same")
    for number in range(2):
        killed.fit(tmp_path / str(number), callbacks=[monitor], epochs=2)
        run = read_run(tmp_path / str(number) / "run" / "version_0")
        assert len(run.scalars["probe/same/rank"].value) == 3


@pytest.mark.parametrize("version", [None, 0])
def test_a_finished_run_that_is_resumed_keeps_every_row(tmp_path, whole, version):
    killed.fit(tmp_path, version)
    (path,) = tmp_path.rglob("metrics.csv")
    before = path.read_bytes()
    killed.fit(tmp_path, version, resume=True)
    assert path.read_bytes() == before
    killed.assert_same_history(killed.history(tmp_path / "run"), whole)


class DiesBeforeTheEpochIsLogged(ModelCheckpoint):
    """Raise after an epoch's checkpoint is saved and before Lightning hands the epoch's scalars to the loggers."""

    def on_train_epoch_end(self, trainer, pl_module):
        super().on_train_epoch_end(trainer, pl_module)
        if trainer.current_epoch == 1:
            raise RuntimeError("interrupted")


@pytest.mark.parametrize("version", [None, 0])
def test_scalars_between_the_checkpoint_and_the_loggers_are_not_lost(tmp_path, whole, version):
    with pytest.raises(RuntimeError, match="interrupted"):
        killed.fit(tmp_path, version, saving=DiesBeforeTheEpochIsLogged(save_last=True))
    killed.fit(tmp_path, version, resume=True)
    killed.assert_same_history(killed.history(tmp_path / "run"), whole)
    killed.assert_whole(tmp_path / "run")


def test_a_row_of_before_training_is_not_that_of_an_epoch_of_one_step(tmp_path):
    """Both rows have step 0. The scalars of the checkpoint are logged only if the file lacks them."""
    (tmp_path / "metrics.csv").write_text("epoch,step,probe/rank,train/loss\n0,0,3.0,\n")
    loaded = {"scalars": {"probe/rank": 4.0, "train/loss": 2.0, "epoch": 0.0}, "scalars_step": 0}
    logger = ResumableCSVLogger(tmp_path / "new")
    _log_late([logger], tmp_path, loaded)
    assert pd.read_csv(Path(logger.log_dir) / "metrics.csv").to_dict("records") == [{"step": 0} | loaded["scalars"]]
    (tmp_path / "metrics.csv").write_text("epoch,step,probe/rank,train/loss\n0,0,3.0,\n0,0,4.0,\n0,0,,2.0\n")
    again = ResumableCSVLogger(tmp_path / "again")
    _log_late([again], tmp_path, loaded)
    assert not Path(again.log_dir).exists()


def test_a_run_that_is_resumed_within_an_epoch_says_what_its_means_are_of(tmp_path, whole):
    interrupted(tmp_path, 7, saving=ModelCheckpoint(save_last=True, every_n_train_steps=3))
    killed.fit(tmp_path, resume=True, saving=ModelCheckpoint(save_last=True, every_n_train_steps=3))
    found = killed.history(tmp_path / "run")
    evaluated = {name: parts for name, parts in whole.items() if not name.startswith("train/")}
    killed.assert_same_history({name: found[name] for name in evaluated}, evaluated)
    assert {name: parts[0].tolist() for name, parts in found.items()} == {
        name: parts[0].tolist() for name, parts in whole.items()
    }
    assert read_run(tmp_path / "run").resumed[0].within_epoch
    page = write_report(tmp_path / "run", tmp_path / "x.html").read_text()
    assert "at step 6, epoch 1, from ../version_0" in page
    assert "training batches show is of those after this step" in page
    assert "Resumed within epoch 1: results of its training batches are from those after step 6." in page


def test_slurms_requeue_continues_one_history(tmp_path, whole, monkeypatch):
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "fit", "SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "1"}
    for name, value in (slurm | dict.fromkeys(["SLURM_NODEID", "SLURM_LOCALID", "SLURM_PROCID"], "0")).items():
        monkeypatch.setenv(name, value)
    asked = []
    monkeypatch.setattr("lightning.pytorch.trainer.connectors.signal_connector.call", lambda words: asked.append(words))

    def requeue(trainer):
        trainer._signal_connector._slurm_sigusr_handler_fn(signal.SIGUSR1, None)

    for step in (8, 12):
        interrupted(tmp_path, step, requeue)
    killed.fit(tmp_path)
    assert asked == [["scontrol", "requeue", "7"]] * 2
    assert [path.name for path in sorted(tmp_path.glob("*.ckpt"))] == ["hpc_ckpt_1.ckpt", "hpc_ckpt_2.ckpt"]
    killed.assert_same_history(killed.history(tmp_path / "run"), whole)


def failing(folder, resume=True, **arguments):
    """Resume with fewer epochs than the checkpoint has: Lightning refuses before it restores the optimizers."""
    arguments = {"saving": ModelCheckpoint(save_last=True, save_on_exception=True)} | arguments
    with pytest.raises(MisconfigurationException, match=r"you have set Trainer\(max_epochs=0\)"):
        killed.fit(folder, resume=resume, epochs=0, **arguments)


BEFORE_A_STEP = "This part of the run failed before its first step: MisconfigurationException"


@pytest.mark.parametrize("version", [None, 0])
def test_an_attempt_that_fails_before_its_first_step_loses_nothing(tmp_path, whole, version):
    with pytest.raises(RuntimeError, match="interrupted"):
        killed.fit(tmp_path, version, saving=DiesBeforeTheEpochIsLogged(save_last=True))
    checkpoints = {path: path.read_bytes() for path in tmp_path.rglob("*.ckpt")}
    for _ in range(2):
        failing(tmp_path, version=version)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.ckpt")} == checkpoints
    run = read_run(tmp_path / "run")
    assert run.scalars["val/loss"].epoch.tolist() == [0, 1]
    assert [note[: len(BEFORE_A_STEP)] for note in run.notes if "failed" in note] == [BEFORE_A_STEP]
    assert not [note for note in run.notes if "missing" in note and "config" not in note]
    if version is None:
        assert [(each.folder, each.step) for each in run.resumed] == [("../version_0", 8)]
        assert sorted(path.name for path in run.folder.glob("*.*") if path.suffix != ".yaml") == [
            "history.json",
            "run.json",
        ]
    killed.fit(tmp_path, version, resume=True)
    killed.assert_same_history(killed.history(tmp_path / "run"), whole)
    assert len(read_run(tmp_path / "run").resumed) == 1


class SavesAtAFailure(L.Callback):
    """Save a checkpoint after any failure, unlike ModelCheckpoint, which here leaves out a fit without a step."""

    def on_exception(self, trainer, *_):
        trainer.save_checkpoint(Path(trainer.loggers[0].log_dir) / "checkpoints" / "last.ckpt")


def test_a_part_without_a_step_is_a_link_of_the_history(tmp_path, whole):
    with pytest.raises(RuntimeError, match="interrupted"):
        killed.fit(tmp_path, saving=DiesBeforeTheEpochIsLogged(save_last=True))
    for _ in range(2):
        failing(tmp_path, callbacks=[SavesAtAFailure()])
    killed.fit(tmp_path, resume=True)
    run = read_run(tmp_path / "run")
    assert [(run.folder.name, each.folder) for each in run.resumed] == [("version_3", "../version_2")]
    assert not [note for note in run.notes if "Earlier part" in note or "missing" in note]
    found = killed.history(tmp_path / "run")
    assert found.keys() == whole.keys()
    for name, (step, epoch, values) in whole.items():
        early = epoch < 2  # the optimizers of such a checkpoint are new
        assert found[name][0].tolist() == step.tolist()
        np.testing.assert_array_equal(found[name][2][early], values[early], err_msg=name)


def test_a_fit_from_the_start_after_a_failed_attempt_is_not_resumed(tmp_path):
    killed.fit(tmp_path, epochs=2)
    saving, logger = ModelCheckpoint(save_last=True, save_on_exception=True), ResumableCSVLogger(tmp_path, "run")
    failing(tmp_path, saving=saving, logger=logger)
    record = tmp_path / "run" / "version_1" / "history.json"
    assert [each["from"] for each in json.loads(record.read_text())["resumed"]] == ["../version_0"]
    killed.fit(tmp_path, saving=saving, logger=logger, epochs=2)
    assert json.loads(record.read_text())["resumed"] == []
    assert read_run(record.parent).scalars["val/loss"].epoch.tolist() == [0, 1]
    assert (record.parent / "checkpoints" / "epoch=1-step=8.ckpt").exists()  # of the step that failed before


@pytest.mark.parametrize("content", [{"metrics.csv": "step,loss\n1,2\n"}, {"history.json": '{"run": "other"}'}])
def test_a_failed_attempt_changes_no_file_of_others(tmp_path, monkeypatch, content):
    killed.fit(tmp_path, epochs=2)
    folder, checkpoint = tmp_path / "run" / "version_1", last_checkpoint(tmp_path / "run")
    folder.mkdir()
    for name, text in content.items():
        (folder / name).write_text(text)
    monkeypatch.setattr(killed, "_last", lambda *_: checkpoint)
    monkeypatch.setattr(killed, "RunReport", lambda **_: L.Callback())  # it records the failure, as ever
    failing(tmp_path, version=1)
    assert {path.name: path.read_text() for path in folder.iterdir() if path.name != "hparams.yaml"} == content


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on a trial
def test_a_trial_from_a_checkpoint_leaves_nothing(tmp_path):
    killed.fit(tmp_path, epochs=1)
    before = sorted(tmp_path.rglob("*"))
    killed.fit(tmp_path, resume=True, epochs=2, fast_dev_run=True)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """A run in two parts: version_0 up to step 4, then version_1."""
    folder = tmp_path_factory.mktemp("chain")
    interrupted(folder, 6)
    killed.fit(folder, resume=True, epochs=2)
    return folder / "run"


def copied(chain, tmp_path):
    return Path(subprocess.run(["cp", "-r", chain, tmp_path / "run"], check=True).args[-1])


def test_parts_that_are_moved_together_stay_joined(chain, tmp_path):
    killed.assert_same_history(killed.history(copied(chain, tmp_path) / "version_1"), killed.history(chain))
    assert not any("Resumed" in note for note in read_run(tmp_path / "run" / "version_1").notes)


def test_what_is_missing_of_a_history_is_a_note(chain, tmp_path):
    run = copied(chain, tmp_path)
    later = len(pd.read_csv(run / "version_1" / "metrics.csv"))
    history = run / "version_0" / "history.json"
    record = json.loads(history.read_text())

    def note():
        found = read_run(run / "version_1")
        assert len(found.scalars["val/loss"].step) < later
        (text,) = [note for note in found.notes if "the history before is not shown" in note]
        return text

    history.write_text(json.dumps(record | {"run": "other"}))
    assert (
        f"Resumed at step 4: the history before is not shown, because {run / 'version_0'} holds another run" in note()
    )
    entry = {"from": "../version_1", "run": None, "step": 2, "logged": 2, "epoch": 0}
    history.write_text(json.dumps(record | {"resumed": [entry]}))
    found = read_run(run / "version_1").notes
    assert any(f"because {run / 'version_1'} would go on from itself" in each for each in found)
    (run / "version_0").rename(run / "elsewhere")
    assert f"because {run / 'version_0'} does not exist" in note()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run": 1}', '{"run": "x", "resumed": [3]}', "[" * 100_000])
def test_an_unreadable_history_is_a_note(chain, tmp_path, content):
    run = copied(chain, tmp_path)
    (run / "version_1" / "history.json").write_text(content)
    assert any("history.json could not be read" in note for note in read_run(run / "version_1").notes)


def test_lightnings_csv_logger_deletes_and_this_is_said(tmp_path):
    interrupted(tmp_path, 6, logger=CSVLogger(tmp_path, "run", "one"))
    again = CSVLogger(tmp_path, "run", "one")
    deleted = pytest.warns(
        UserWarning, match="Lightning's CSVLogger has deleted the scalars before step 4 in .*metrics"
    )
    with pytest.warns(UserWarning, match="will be deleted"), deleted:
        killed.fit(tmp_path, resume=True, logger=again)


QUIET = ["--trainer.callbacks", "[]", "--trainer.enable_progress_bar", "false", "--trainer.accelerator", "cpu"]


def smoke(*words):
    return ["fit", "--config", SMOKE, *words]


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on a trial
@pytest.mark.parametrize("recipe", ["simclr/smoke", "trainable_augmentation_channel/smoke"])
def test_a_trial_of_a_recipe_leaves_nothing(empty, recipe):
    path = str(ROOT / "examples" / f"{recipe}.yaml")
    main(["fit", "--config", path, "--trainer.fast_dev_run", "true", "--trainer.accelerator", "cpu"])
    assert not list(empty.iterdir())


def test_without_a_logger_the_configuration_of_the_current_folder_stays(empty):
    (empty / "config.yaml").write_text("mine")
    main(
        smoke(
            *QUIET, "--trainer.logger", "false", "--trainer.max_epochs", "1", "--trainer.enable_checkpointing", "false"
        )
    )
    assert (empty / "config.yaml").read_text() == "mine"
    assert [path.name for path in empty.iterdir()] == ["config.yaml"]


def refusal(capsys, *words):
    with pytest.raises(SystemExit, match="2"):
        main(smoke(*QUIET, *words))
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    return line


def test_last_is_refused_where_there_is_none(empty, capsys):
    line = refusal(capsys, "--ckpt_path", "last")
    assert line.startswith(
        "ssl-geometry: error: ckpt_path: Expected a last checkpoint in runs/simclr_smoke/version_*/checkpoin"
    )
    assert "leave `ckpt_path` out to train from the start" in line
    words = ["--ckpt_path", "last", "--trainer.callbacks+", "ModelCheckpoint", "--trainer.callbacks.dirpath", "here"]
    assert f"Expected a last checkpoint in {empty}/here, but there is none" in refusal(capsys, *words)


def test_a_folder_of_another_run_is_refused_before_anything_is_deleted(empty, capsys):
    folder = empty / "runs" / "simclr_smoke" / "version_0"
    folder.mkdir(parents=True)
    (folder / "metrics.csv").write_text("step,loss\n1,2\n")
    version = ["--trainer.logger.init_args.version", "0"]
    assert "Resume that run with `--ckpt_path last`, or choose another `version`" in refusal(capsys, *version)
    lightnings = ["--trainer.logger", "lightning.pytorch.loggers.CSVLogger", "--trainer.logger.save_dir", "runs"]
    words = [*lightnings, "--trainer.logger.name", "simclr_smoke", "--trainer.logger.version", "0"]
    assert "metrics.csv, but Lightning's CSVLogger would delete runs/simclr_smoke/vers" in refusal(capsys, *words)
    assert [path.name for path in folder.iterdir()] == ["metrics.csv"]
    assert (folder / "metrics.csv").read_text() == "step,loss\n1,2\n"


def saved(version, name="last.ckpt", whole=True):
    path = version / "checkpoints" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data", "x")
    if not whole:
        path.write_bytes(path.read_bytes()[:20])
    return path


def test_the_last_checkpoint_is_of_the_newest_version(tmp_path):
    saved(tmp_path / "version_2")
    expected = saved(tmp_path / "version_10")
    saved(tmp_path / "own")
    saved(tmp_path / "version_10", "last-v1.ckpt", whole=False)
    assert last_checkpoint(tmp_path) == expected
    (tmp_path / "version_11").mkdir()  # never began
    assert last_checkpoint(tmp_path) == expected
    (tmp_path / "version_11" / "metrics.csv").touch()
    with pytest.raises(ValueError, match=rf"in .*version_11/checkpoints, the newest .* older version: {expected}"):
        last_checkpoint(tmp_path)
    entry = {"checkpoint": "../version_2/checkpoints/last.ckpt"}
    (tmp_path / "version_11" / "history.json").write_text(json.dumps({"resumed": [entry]}))
    assert last_checkpoint(tmp_path) == tmp_path / "version_2" / "checkpoints" / "last.ckpt"


def test_no_last_checkpoint(tmp_path):
    with pytest.raises(ValueError, match=r"Expected a last checkpoint in .*version_\*/checkpoints, but there is none"):
        last_checkpoint(tmp_path)


def killed_at_its_first_checkpoint(command, folder):
    process = forked.start(command, folder)
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and process.is_alive() and not list(folder.rglob("last.ckpt")):
        time.sleep(0.02)
    process.kill()
    process.join()
    return process.exitcode


def test_the_three_commands_of_the_documentation(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    lines = "\n".join(blocks((ROOT / "docs" / "resume.md").read_text(), "sh")).splitlines()
    fit, resume, report = (shlex.split(line) for line in lines[:3])
    assert fit[0] == resume[0] == report[0] == "ssl-geometry"
    assert killed_at_its_first_checkpoint([*forked.COMMAND, *fit[1:]], tmp_path) == -signal.SIGKILL
    for words in (resume, report):
        done = forked.run([*forked.COMMAND, *words[1:]], tmp_path, os.environ | {"COLUMNS": "200"})
        assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / "simclr_smoke"
    run = read_run(folder)
    assert run.folder == folder / "version_1"
    epochs = int(resume[resume.index("--trainer.max_epochs") + 1])
    assert run.scalars["val/loss"].epoch.tolist() == list(range(epochs))
    assert run.arrays["val/log_spectrum_h"].epoch.tolist() == list(range(epochs))
    assert "from ../version_0" in (folder / "version_1" / "report.html").read_text()
