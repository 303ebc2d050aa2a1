"""Run fits in child processes, kill them at a chosen point, and read the files that they leave."""

import json
import os
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings

import lightning as L
import numpy as np
import pandas as pd
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from lightning_ssl_geometry.callbacks import GeometryMonitor, RunReport, last_checkpoint
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import SmallCNN
from lightning_ssl_geometry.report import read_run

EPOCHS = 4


def fit(folder, version=None, resume=False, callbacks=(), epochs=EPOCHS, logger=None, saving=None, **arguments):
    """Fit a small SimCLR under `folder/run`; with `resume`, from the last checkpoint there, if there is one."""
    checkpoint = _last(folder, version, resume)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    model = SimCLRModule(
        SmallCNN(1, 8, "group"), nn.Linear(64, 8), optimizer=lambda groups: torch.optim.SGD(groups, lr=0.1)
    )
    saving = saving or ModelCheckpoint(save_last=True)
    monitor = GeometryMonitor(stages=["train", "val", "probe"], every_n_steps=1, probe_size=10)
    trainer = L.Trainer(
        logger=logger or ResumableCSVLogger(folder, "run", version),
        callbacks=[saving, monitor, RunReport(page=False, table=False), *callbacks],
        accelerator="cpu",
        max_epochs=epochs,
        log_every_n_steps=1,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **arguments,
    )
    trainer.fit(model, datamodule=DigitsDataModule(batch_size=40, subset=200), ckpt_path=checkpoint)
    return trainer


def _last(folder, version, resume):
    try:
        return last_checkpoint(folder / "run") if resume else None
    except ValueError:  # killed before the first one: begin anew, in the folder of a fixed version after emptying it
        if version is not None:
            shutil.rmtree(folder / "run" / f"version_{version}", ignore_errors=True)
        return None


def child(function, *arguments, before=None, log=None):
    """Call a function in a forked process, and return how it ended: 0, 1 after an error, -9 when it was killed."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        with open(log or os.devnull, "a") as printed:
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            sys.stdout = sys.stderr = printed
            warnings.simplefilter("ignore")
            try:
                if before:
                    before()
                function(*arguments)
            except BaseException:
                traceback.print_exc()
                printed.flush()
                os._exit(1)
            printed.flush()
    finally:
        os._exit(0)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def after(seconds):
    def arm():
        def wait():
            time.sleep(seconds)
            kill()

        threading.Thread(target=wait, daemon=True).start()

    return arm


def at_call(number, late=False):
    """Kill this process before or after its n-th call that changes files."""

    def arm():
        count = 0

        def counted(call):
            def counting(*arguments, **named):
                nonlocal count
                count += 1
                if count == number and not late:
                    kill()
                result = call(*arguments, **named)
                if count == number:
                    kill()
                return result

            return counting

        for name in ("write", "fsync", "replace", "rename", "unlink", "open", "mkdir"):
            setattr(os, name, counted(getattr(os, name)))

    return arm


def history(folder):
    run = read_run(folder)
    scalars = {name: (each.step, each.epoch, each.value) for name, each in run.scalars.items()}
    arrays = {name: (each.step, each.epoch, each.values) for name, each in run.arrays.items()}
    return scalars | arrays


def assert_same_history(found, expected):
    assert found.keys() == expected.keys()
    for name, parts in expected.items():
        for one, other in zip(found[name], parts, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)


def assert_whole(folder):
    """Every file of the run can be read, and no table has a step twice."""
    for path in folder.rglob("*.csv"):
        text = path.read_text()
        assert text.endswith("\n"), path
        frame = pd.read_csv(path)
        rows = {line.count(",") for line in text.splitlines()}
        assert len(rows) == 1, path
        for name in set(frame) - {"epoch", "step"}:
            steps = frame["step"][frame[name].notna()]
            assert not steps.duplicated().any(), (path, name)
    for path in [*folder.rglob("run.json"), *folder.rglob("history.json")]:
        json.loads(path.read_text())
    for path in folder.rglob("geometry/**/*.npz"):
        np.load(path)["values"]
