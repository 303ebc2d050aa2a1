"""With a full disk, training goes on, old contents stay whole, and one warning is shown, for each file of a run."""

import errno
import os
import resource
import signal
import warnings
from pathlib import Path
from typing import ClassVar

import killed
import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from lightning_ssl_geometry import files
from lightning_ssl_geometry.callbacks import (
    ChannelEvaluation,
    EmbeddingSnapshots,
    GeometryMonitor,
    LayerGeometry,
    LinearEvaluation,
    RunReport,
)
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.diagnostics import EffectiveRank, LogSpectrum, PolicyMaps
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.methods import CRLTACModule
from lightning_ssl_geometry.nn import ShallowCNN
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.views import CropFamily

FILES = [
    "metrics.csv",
    "run.json",
    "history.json",
    "report.html",
    "layers.csv",
    "representations.npz",
    "embeddings.npz",
    "linear_evaluation.csv",
    "augmentation_channel.csv",
    "geometry/quantities.json",
    "geometry/val/rows_seen.csv",
    "geometry/val/spectrum.csv",
    "geometry/val/policy_maps_image.npz",
    "geometry/val/policy_maps_probability.npz",
    "geometry/val/layer_cka.npz",
    "geometry/val/layer_log_spectrum.npz",
]


class Late(EffectiveRank):
    """A Metric with one more result from its second readout on, which changes geometry/quantities.json."""

    quantities: ClassVar[dict[str, Quantity]] = {
        "value": Quantity(title="Rank", text="At each readout."),
        "more": Quantity(title="Rank again", text="From the second readout on."),
    }

    def __init__(self):
        super().__init__()
        self.readouts = 0

    def compute(self):
        self.readouts += 1
        return dict.fromkeys(["value", "more"][: self.readouts], super().compute())


def fit(folder, *callbacks):
    torch.manual_seed(0)
    model = CRLTACModule(
        ShallowCNN(image_size=4, out_dim=16, width=8),
        nn.Linear(16, 8),
        CropFamily(image_size=8, size=4, stride=2),
        ShallowCNN(image_size=8, out_dim=9, width=8),
        draws=4,
    )
    diagnostics = {"spectrum": LogSpectrum(), "policy_maps": PolicyMaps(), "late": Late()}
    monitor = GeometryMonitor(diagnostics, stages=["val"])
    everything = [
        monitor,
        LayerGeometry(),
        EmbeddingSnapshots([0, 6]),
        LinearEvaluation([None], features=["pixels"]),
        ChannelEvaluation(["uniform"], pixels=False),
        RunReport(table=False),
    ]
    trainer = L.Trainer(
        logger=ResumableCSVLogger(folder, "run", 0),
        callbacks=[ModelCheckpoint(save_last=True), *everything, *callbacks],
        accelerator="cpu",
        max_epochs=3,
        log_every_n_steps=1,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=DigitsDataModule(batch_size=40, subset=120))
    assert trainer.current_epoch == 3
    return trainer


class Full(L.Callback):
    """Let no byte of one file fit the disk from the second epoch on."""

    def __init__(self, name, said):
        self.name, self.said, self.before = name, said, None

    def on_train_epoch_start(self, trainer, *_):
        if trainer.current_epoch != 1:
            return
        self.path = Path(trainer.loggers[0].log_dir) / self.name
        self.before = self.path.read_bytes() if self.path.exists() else None
        write, replace, at = os.write, os.replace, str(self.path)

        def full(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), at)

        os.write = lambda to, data: full() if os.readlink(f"/proc/self/fd/{to}") == at else write(to, data)
        os.replace = lambda one, other: full() if str(other) == at else replace(one, other)


def runs_on_a_full_disk(folder, name):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        full = Full(name, said)
        fit(folder, full)
    now = full.path.read_bytes() if full.path.exists() else None
    assert now == full.before, "the old contents have changed"
    found = [str(each.message) for each in said if "No space left" in str(each.message)]
    said_of = [each for each in found if str(full.path) in each]
    assert len(said_of) == 1 or (name == "history.json" and said_of), found  # its failure is one of each new file
    assert not list(folder.rglob(".*.part"))


def test_a_run_writes_these_files(tmp_path):
    torch.set_num_threads(1)
    assert killed.child(fit, tmp_path, log=tmp_path / "log") == 0, (tmp_path / "log").read_text()
    run = tmp_path / "run" / "version_0"
    written = {path.relative_to(run).as_posix() for path in run.rglob("*.*") if path.is_file()}
    theirs = {"hparams.yaml", *(name for name in written if name.startswith("checkpoints/"))}
    assert written - theirs == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_no_room_for_one_file(tmp_path, name):
    torch.set_num_threads(1)
    log = tmp_path / "log"
    assert killed.child(runs_on_a_full_disk, tmp_path, name, log=log) == 0, log.read_text()


def appends_beyond_the_limit(folder):
    """Append with a limit on the size of files: the system shortens the write like on a nearly full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    (folder / "x").write_text("header\n")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    for _ in range(100):
        try:
            files.append(folder / "x", "0123456789" * 7 + "\n")
        except OSError:
            break


def test_a_line_that_fits_in_part_is_not_written_in_part(tmp_path):
    assert killed.child(appends_beyond_the_limit, tmp_path) == 0
    lines = (tmp_path / "x").read_text().splitlines()
    assert lines == ["header", *["0123456789" * 7] * 13]
