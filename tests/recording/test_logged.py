import json
import struct

import lightning as L
import numpy as np
import pandas as pd
import pytest
import torch
from hosts import PlainHost, loader, quiet
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.loggers.logger import Logger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from lightning_ssl_geometry.callbacks import GeometryMonitor, RunReport
from lightning_ssl_geometry.diagnostics import EffectiveRank, HardestNegativeDistance, LogSpectrum
from lightning_ssl_geometry.loggers import log_comparison
from lightning_ssl_geometry.recording.arrays import ArrayFiles
from lightning_ssl_geometry.recording.logged import FigureTime, log_array, log_run
from lightning_ssl_geometry.recording.run_files import RunFiles

ARRAYS = [f"{stage}/{name}" for stage in ("train", "val") for name in ("log_spectrum_h", "hardest_negative_histogram")]


class Scalars(Logger):
    """A logger that Lightning knows nothing of: it takes numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.logged = {}

    @property
    def name(self):
        return "scalars"

    @property
    def version(self):
        return 0

    def log_metrics(self, metrics, step=None):
        self.logged |= {name: float(value) for name, value in metrics.items()}

    def log_hyperparams(self, params, *args, **kwargs):
        pass


def monitor(**arguments):
    diagnostics = {"effective_rank_h": EffectiveRank(), "log_spectrum_h": LogSpectrum()}
    diagnostics["hardest_negative"] = HardestNegativeDistance(bins=10)
    taps = {"h": "trunk", "z": "head", "projector": "head"}
    return GeometryMonitor(**({"diagnostics": diagnostics, "taps": taps, "every_n_steps": 1} | arguments))


def fit(folder, loggers, **arguments):
    torch.manual_seed(0)
    host = PlainHost()
    callbacks = [monitor(), RunReport(table=False, figures_share=1)] if loggers else []
    trainer = quiet(folder, callbacks=callbacks, logger=loggers, max_epochs=3, **arguments)
    trainer.fit(host, loader(), loader(seed=1))
    return host, torch.random.get_rng_state()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of one run that was logged to all of them, what it trained, and what the unknown logger got."""
    folder = tmp_path_factory.mktemp("loggers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_SILENT", "true")
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_DATA_DIR", str(folder))
        patch.setenv("WANDB_CONFIG_DIR", str(folder))
        patch.setenv("WANDB_CACHE_DIR", str(folder))
        patch.setattr("wandb.apis.public.Api.__init__", _no_network)
        wandb, scalars = WandbLogger(save_dir=folder, offline=True), Scalars()
        loggers = [CSVLogger(folder, "csv"), TensorBoardLogger(folder, "board"), scalars, wandb]
        host, state = fit(folder, loggers)
        wandb.experiment.finish()
    return folder, host, state, scalars.logged


def _no_network(*_):
    raise AssertionError("asked for the network")


def wandb_rows(folder):
    """What wandb wrote: log lines of LevelDB's format in blocks of 32 KiB, each a protocol buffer."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    data, at, part = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        part, at = part + data[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # whole, or the last piece
            record, part = Record.FromString(part), b""
            if record.WhichOneof("record_type") == "history":
                yield {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}


def test_training_is_the_same_with_all_of_them(run, tmp_path):
    _, host, state, _ = run
    bare, bare_state = fit(tmp_path, False)
    assert all(torch.equal(a, b) for a, b in zip(host.state_dict().values(), bare.state_dict().values(), strict=True))
    assert torch.equal(state, bare_state)


def test_csv_has_every_readout(run):
    folder = run[0] / "csv" / "version_0"
    for name in ARRAYS:
        assert pd.read_csv(folder / "geometry" / f"{name}.csv")["step"].tolist() == [5, 10, 15]
    assert pd.read_csv(folder / "metrics.csv")["val/effective_rank_h"].notna().sum() == 3


def test_tensorboard_has_histograms_at_the_scalars_steps_and_the_pages_figures(run):
    events = EventAccumulator(str(run[0] / "board" / "version_0"), size_guidance={"histograms": 0, "images": 0})
    events.Reload()
    assert set(events.Tags()["histograms"]) == set(ARRAYS)
    for stage in ("train", "val"):
        scalars = [event.step for event in events.Scalars(f"{stage}/effective_rank_h")]
        found = events.Histograms(f"{stage}/log_spectrum_h")
        assert [event.step for event in found] == scalars == [4, 9, 14]
        rows = pd.read_csv(run[0] / "csv" / "version_0" / "geometry" / stage / "log_spectrum_h.csv").iloc[:, 2:]
        for event, row in zip(found, rows.to_numpy(), strict=True):
            histogram, finite = event.histogram_value, row[np.isfinite(row)]
            assert histogram.num == len(finite)
            assert (histogram.min, histogram.max) == pytest.approx((finite.min(), finite.max()))
            assert histogram.sum == pytest.approx(finite.sum(), abs=np.ptp(finite) / 64 * len(finite))
    images = events.Tags()["images"]
    assert "geometry/ranks/effective_rank" in images
    assert all(name.split("/")[0] == "geometry" and name.count("/") == 2 for name in images)
    steps = {name: [event.step for event in events.Images(name)] for name in images}
    assert steps["geometry/ranks/effective_rank"] == [4, 9, 14]  # one epoch after the other
    assert all(each == [4, 9, 14][-len(each) :] for each in steps.values())


def test_wandb_has_histograms_figures_and_the_values(run):
    rows = list(wandb_rows(run[0]))
    for name in ARRAYS:
        mine = [row for row in rows if f"{name}/_type" in row]
        assert [row["trainer/global_step"] for row in mine] == [4, 9, 14]
        assert {row[f"{name}/_type"] for row in mine} == {"histogram"}
        total = 1.0 if name.endswith("histogram") else 10  # shares of the bins HardestNegativeDistance declares
        assert [sum(row[f"{name}/values"]) for row in mine] == pytest.approx([total] * 3, abs=1e-6 if total == 1 else 9)
    assert [row["trainer/global_step"] for row in rows if "val/effective_rank_h" in row] == [4, 9, 14]
    (media,) = run[0].glob("wandb/offline-run-*/files/media")
    assert len([*(media / "images" / "geometry" / "ranks").glob("effective_rank_*.png")]) == 3
    shown = [row for row in rows if "geometry/ranks/effective_rank/_type" in row]
    assert [row["trainer/global_step"] for row in shown] == [4, 9, 14]
    assert {row["geometry/ranks/effective_rank/_type"] for row in shown} == {"image-file"}
    images = [{name for name in row if name.endswith("/_type") and row[name] == "image-file"} for row in rows]
    assert sorted(map(len, filter(None, images)))[0] > 1  # all figures of an epoch are in one row
    steps = [row["trainer/global_step"] for row in rows if "trainer/global_step" in row]
    assert steps[0] == 0 or steps == sorted(steps)
    for name in ARRAYS:
        (path,) = media.glob(f"table/geometry/{name}_*.table.json")
        table = json.loads(path.read_text())
        written = pd.read_csv(run[0] / "csv" / "version_0" / "geometry" / f"{name}.csv")
        assert table["columns"] == list(written)
        values = np.array([[np.nan if cell is None else float(cell) for cell in row] for row in table["data"]])
        np.testing.assert_array_equal(values[:, :2], written.to_numpy()[:, :2])


def test_an_unknown_logger_gets_the_scalars(run):
    assert {"train/effective_rank_h", "val/effective_rank_h", "val/hardest_negative_pair"} <= run[3].keys()
    assert not set(ARRAYS) & run[3].keys()
    log_array([Scalars()], "val/a", 0, values=np.ones(3))
    log_run([Scalars()], run[0] / "nowhere", 0)


@pytest.mark.parametrize(
    ("bins", "values", "count", "limits"),
    [
        (None, [1.0, 2.0, np.nan, -np.inf, 4.0], 3, (1, 4)),
        (None, [3.0, 3.0, 3.0 + 1e-15], 3, (1.5, 4.5)),
        (None, [0.0], 1, (-0.5, 0.5)),
        (None, [1e308, -1e308, 2.0], 1, (1, 3)),
        ((0.0, 2.0), [0.25, 0.0, 0.0, 0.75], 1, (0, 2)),
        ((0.0, 2.0), [1 / 1024] * 1024, 1, (0, 2)),
        ((-1.0, 1.0), [0.25, 0.0, 0.0, 0.75], 1, (-1, 1)),
    ],
)
def test_any_array_has_a_histogram(tmp_path, bins, values, count, limits):
    logger = TensorBoardLogger(tmp_path)
    log_array([logger], "val/a", 3, values=np.array(values), bins=bins)
    logger.finalize("success")
    events = EventAccumulator(logger.log_dir)
    events.Reload()
    (event,) = events.Histograms("val/a")
    histogram = event.histogram_value
    assert histogram.num == pytest.approx(count)
    assert (histogram.min, histogram.max) == pytest.approx(limits)
    assert sum(histogram.bucket) == pytest.approx(count)
    assert len(histogram.bucket) <= 512


def test_the_mean_of_a_histogram_is_that_of_its_bins(tmp_path):
    logger = TensorBoardLogger(tmp_path)
    shares = np.array([0.25, 0.0, 0.0, 0.75])  # centers 0.25, 0.75, 1.25, 1.75
    log_array([logger], "val/histogram", 0, values=shares, bins=(0.0, 2.0))
    logger.finalize("success")
    events = EventAccumulator(logger.log_dir)
    events.Reload()
    assert events.Histograms("val/histogram")[0].histogram_value.sum == pytest.approx(0.25 * 0.25 + 0.75 * 1.75)


@pytest.mark.parametrize(("bins", "values"), [(None, [np.nan]), (None, []), ((0.0, 2.0), [np.nan] * 4)])
def test_what_has_no_number_is_left_out(tmp_path, bins, values):
    logger = TensorBoardLogger(tmp_path)
    log_array([logger], "val/a", 0, values=np.array(values), bins=bins)
    logger.finalize("success")
    events = EventAccumulator(logger.log_dir)
    events.Reload()
    assert not events.Tags()["histograms"]


@pytest.mark.parametrize(("name", "step"), [("train/a", 9), ("val/a", 9), ("probe/a", 9), ("test/a", 10)])
def test_arrays_have_the_step_that_lightning_gives_to_scalars(tmp_path, name, step):
    logger = TensorBoardLogger(tmp_path)
    files = ArrayFiles(RunFiles(tmp_path), [logger])
    files.append(name, 0, 10, torch.ones(2))
    files.append("probe/b", 0, 0, torch.ones(2))
    logger.finalize("success")
    events = EventAccumulator(logger.log_dir)
    events.Reload()
    assert [event.step for event in events.Histograms(name)] == [step]
    assert [event.step for event in events.Histograms("probe/b")] == [0]
    assert pd.read_csv(tmp_path / "geometry" / f"{name}.csv")["step"].tolist() == [10]


class Rising(PlainHost):
    """A host whose loss is irrelevant: the rank of its representation goes where `RANKS` says, epoch by epoch."""

    RANKS = (2, 6, 4, 1, 1)

    def __init__(self):
        super().__init__()
        self.trunk = nn.Identity()
        self.head = nn.Linear(6, 4, bias=False)

    def forward(self, x):
        kept = self.RANKS[self.current_epoch]
        return self.head(self.trunk(x * (torch.arange(6) < kept)))


class Pairs(L.LightningDataModule):
    def train_dataloader(self):
        return loader()

    def val_dataloader(self):
        return loader(seed=1)


BY_DEFAULT = [("train", 1, None), ("val", 1, None), ("probe", 1, None), ("val", 2, None)]


@pytest.mark.parametrize(("stage", "every", "at_epoch_end"), [*BY_DEFAULT, ("train", 2, True), ("probe", 2, True)])
def test_the_best_checkpoint_is_of_the_epoch_with_the_best_value(tmp_path, stage, every, at_epoch_end):
    name = f"{stage}/effective_rank_h"
    folder = tmp_path / "best"
    best = ModelCheckpoint(folder, "{epoch}", monitor=name, mode="max", save_on_train_epoch_end=at_epoch_end)
    stages = [stage] if stage == "probe" else ["train", "val"]
    watch = monitor(stages=stages, diagnostics={"effective_rank_h": EffectiveRank()}, batch_keys={"views": [0, 1]})
    trainer = quiet(
        tmp_path,
        callbacks=[best, watch],
        logger=CSVLogger(tmp_path),
        max_epochs=4,
        enable_checkpointing=True,
        check_val_every_n_epoch=every,
    )
    trainer.fit(Rising(), datamodule=Pairs())
    values = pd.read_csv(tmp_path / "lightning_logs" / "version_0" / "metrics.csv").set_index("epoch")
    values = values[name].dropna()
    values = values.iloc[1:] if stage == "probe" else values  # that of the untrained network is no checkpoint
    assert [path.name for path in folder.iterdir()] == [f"epoch={values.idxmax()}.ckpt"]
    assert best.best_model_score.item() == pytest.approx(values.max(), rel=1e-6)


@pytest.mark.parametrize("stage", ["train", "val", "probe"])
def test_early_stopping_looks_at_any_of_them(tmp_path, stage):
    stop = EarlyStopping(f"{stage}/effective_rank_h", mode="max", patience=1, check_on_train_epoch_end=True)
    watch = monitor(stages=[stage], diagnostics={"effective_rank_h": EffectiveRank()}, batch_keys={"views": [0, 1]})
    trainer = quiet(tmp_path, callbacks=[stop, watch], max_epochs=5)
    trainer.fit(Rising(), loader(), loader(seed=1))
    assert trainer.current_epoch == 3  # the ranks are 2, 6, 4: the third is not better


def test_a_comparison_has_its_figures_and_a_table_of_numbers_in_wandb(tmp_path, monkeypatch):
    folders = {}
    for name in "ab":
        torch.manual_seed(0)
        loggers = [CSVLogger(tmp_path, name)]
        callbacks = [monitor(), RunReport(page=False, table=False)]
        quiet(tmp_path, callbacks=callbacks, logger=loggers, max_epochs=2).fit(PlainHost(), loader(), loader(seed=1))
        folders[name] = [tmp_path / name / "version_0"]
    rows, tables = {}, {}
    wandb, board = WandbLogger(save_dir=tmp_path, offline=True), TensorBoardLogger(tmp_path, "board")
    monkeypatch.setattr(wandb, "log_metrics", lambda metrics, step=None: rows.update(metrics))
    monkeypatch.setattr(wandb, "log_table", lambda key, columns, data, step=None: tables.update({key: (columns, data)}))
    log_comparison([wandb, board, Scalars()], folders, step=7)
    columns, data = tables["comparison/numbers"]
    assert columns[:2] == ["group", "runs"]
    assert [row[:2] for row in data] == [["a", 1], ["b", 1]]
    assert all(len(row) == len(columns) for row in data)
    place = columns.index("Effective rank, val")
    logged = pd.read_csv(folders["a"][0] / "metrics.csv")["val/effective_rank_h"].dropna().iloc[-1]
    assert data[0][place : place + 2] == [pytest.approx(logged), None]
    assert {type(image).__name__ for image in rows.values()} == {"Image"}
    board.finalize("success")
    events = EventAccumulator(board.log_dir)
    events.Reload()
    assert set(events.Tags()["images"]) == rows.keys()
    assert all(name.startswith("comparison/") for name in rows)
    assert [event.step for event in events.Images("comparison/effective_rank")] == [7]
    log_comparison([Scalars()], {"a": [tmp_path / "nowhere"]})


def test_figures_after_epochs_take_their_share_of_the_time_and_no_more(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("lightning_ssl_geometry.recording.logged.time.monotonic", lambda: clock[0])
    limit, spent = FigureTime(0.1), 0.0
    for epoch in range(100):
        clock[0] += 1.0
        if limit.allows():
            with limit.spending():
                clock[0] += 2.0
            spent += 2.0
        assert epoch == 0 or spent <= max(2.0, 0.1 * clock[0])
    assert spent >= 8.0
    assert not FigureTime(0.0).allows()
    assert FigureTime(1.0).allows()


@pytest.mark.parametrize("share", [-1, 5, float("inf"), float("nan"), True, "0.1", None])
def test_a_share_is_a_number_from_0_to_1(share):
    with pytest.raises(ValueError, match=rf"Expected `figures_share` .*in \[0, 1\], but got {share!r}"):
        RunReport(figures_share=share)


def test_figures_without_a_share_are_sent_at_the_end_alone(tmp_path):
    torch.manual_seed(0)
    board = TensorBoardLogger(tmp_path, "board")
    callbacks = [monitor(), RunReport(page=False, table=False, figures_share=0)]
    quiet(tmp_path, callbacks=callbacks, logger=board, max_epochs=3).fit(PlainHost(), loader(), loader(seed=1))
    events = EventAccumulator(board.log_dir)
    events.Reload()
    assert {event.step for name in events.Tags()["images"] for event in events.Images(name)} == {14}


def test_the_time_of_figures_that_fail_is_counted(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("lightning_ssl_geometry.recording.logged.time.monotonic", lambda: clock[0])
    limit = FigureTime(0.1)

    def fails():
        with limit.spending():
            clock[0] += 2.0
            raise ValueError("no figure")

    with pytest.raises(ValueError, match="no figure"):
        fails()
    assert not limit.allows()
