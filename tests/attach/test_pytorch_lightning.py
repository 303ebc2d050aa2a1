"""Hosts, loggers and Trainers of the package `pytorch_lightning`, and mixtures of the two packages."""

import json
import shutil

import lightning as L
import pandas as pd
import pytest
import torch
from hosts import PlainHost, loader

from lightning_ssl_geometry.callbacks import (
    EmbeddingSnapshots,
    GeometryMonitor,
    KNNProbe,
    LinearProbe,
    RunReport,
)
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.diagnose import diagnose
from lightning_ssl_geometry.either_lightning import either, package_of
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import SmallCNN

pl = pytest.importorskip("pytorch_lightning")
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint  # noqa: E402
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger  # noqa: E402

SEEN = {"taps": {"h": "trunk", "z": "head", "projector": "head"}, "batch_keys": {"views": [0, 1], "label": 2}}


class Host(pl.LightningModule):
    """The host `PlainHost`, written for the other package."""

    def __init__(self):
        super().__init__()
        model = PlainHost()
        self.trunk, self.head = model.trunk, model.head

    forward, embed = PlainHost.forward, PlainHost.embed
    training_step, validation_step = PlainHost.training_step, PlainHost.validation_step
    configure_optimizers = PlainHost.configure_optimizers


def trainer_of(package, folder, callbacks, logger=True, **settings):
    quiet = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 1}
    quiet |= {"max_epochs": 2, "num_sanity_val_steps": 0, "default_root_dir": folder}
    return package.Trainer(**quiet | settings, callbacks=callbacks, logger=logger)


def observers():
    return [
        GeometryMonitor(**SEEN, stages=["train", "val", "probe"]),
        LinearProbe(2, **SEEN),
        KNNProbe(num_classes=2, **SEEN),
        EmbeddingSnapshots([0, 5], **SEEN),
    ]


def fitted(folder, callbacks, logger, host=Host):
    torch.manual_seed(0)
    model = host()
    trainer = trainer_of(pl if host is Host else L, folder, callbacks, logger)
    trainer.fit(model, loader(), loader(seed=1))
    return model, trainer


@pytest.fixture(scope="module")
def same(tmp_path_factory):
    """The host and the Trainer of the same fit by the package lightning."""
    folder = tmp_path_factory.mktemp("lightning")
    return fitted(folder, observers(), ResumableCSVLogger(folder), host=PlainHost)


@pytest.mark.parametrize("table", [CSVLogger, ResumableCSVLogger, L.pytorch.loggers.CSVLogger])
def test_all_callbacks_and_loggers_work_under_its_trainer(tmp_path, same, table):
    theirs = [EarlyStopping("their_loss", patience=9), ModelCheckpoint(save_last=True)]
    logger = [table(tmp_path, "runs"), TensorBoardLogger(tmp_path, "boards")]
    host, trainer = fitted(tmp_path, [*theirs, RunReport(table=False), *observers()], logger)
    assert [each for each in trainer.callbacks if each in theirs] == theirs  # none is lost by our sorting
    assert isinstance(trainer.callbacks[-1], ModelCheckpoint)  # saves what the others have logged
    folder = tmp_path / "runs" / "version_0"
    record = json.loads((folder / "run.json").read_text())
    assert record["status"] == "finished"
    assert record["versions"]["pytorch-lightning"] == pl.__version__
    for name in ("report.html", "embeddings.npz", "metrics.csv", "geometry/val/log_spectrum_h.csv"):
        assert (folder / name).exists(), name
    assert list((tmp_path / "boards").rglob("events.out.tfevents.*"))
    ours, theirs = same
    assert all(torch.equal(p, q) for p, q in zip(host.parameters(), ours.parameters(), strict=True))
    found, expected = ({k: v for k, v in each.callback_metrics.items() if "/" in k} for each in (trainer, theirs))
    assert found.keys() - expected.keys() == {"train/objective"}  # of RunReport
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_training_under_its_trainer_is_the_same_with_and_without_us(tmp_path):
    watched, _ = fitted(tmp_path, [RunReport(table=False), *observers()], CSVLogger(tmp_path))
    bare, _ = fitted(tmp_path, [], False)
    assert all(torch.equal(p, q) for p, q in zip(watched.parameters(), bare.parameters(), strict=True))


def test_a_run_of_its_trainer_resumes(tmp_path):
    def part(epochs, **settings):
        callbacks = [*observers(), RunReport(table=False), ModelCheckpoint(tmp_path / "saved", save_last=True)]
        logger = ResumableCSVLogger(tmp_path, "run", "0")
        torch.manual_seed(0)
        host = Host()
        host.trunk[2] = torch.nn.Identity()  # dropout draws from a state that a resumed fit does not restore
        trainer = trainer_of(pl, tmp_path, callbacks, logger, max_epochs=epochs)
        trainer.fit(host, loader(), loader(seed=1), **settings)
        return host

    part(1)
    last = tmp_path / "last.ckpt"
    (tmp_path / "saved" / "last.ckpt").rename(last)
    shutil.rmtree(tmp_path / "saved")
    part(2, ckpt_path=last)
    assert pd.read_csv(tmp_path / "run" / "0" / "metrics.csv")["val/effective_rank_h"].count() == 2
    record = json.loads((tmp_path / "run" / "0" / "run.json").read_text())
    assert (record["from_step"], record["steps"], record["status"]) == (5, 10, "finished")


def test_a_run_without_a_table_gets_one_under_its_trainer_too(tmp_path):
    fitted(tmp_path, [RunReport(table=False)], TensorBoardLogger(tmp_path))
    assert (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").exists()
    assert (tmp_path / "lightning_logs" / "version_0" / "report.html").exists()


def simclr():
    return SimCLRModule(SmallCNN(1, 8, "group"), torch.nn.Linear(64, 8))


@pytest.mark.parametrize(
    ("package", "model", "data", "message"),
    [
        (pl, simclr, DigitsDataModule, "`model` must be a `LightningModule` .* got `SimCLRModule`"),
        (L, Host, loader, "`model` must be a `LightningModule` .* got `Host`"),
        (
            pl,
            Host,
            DigitsDataModule,
            "Expected a Trainer of `lightning` for DigitsDataModule, but got one of `pytorch_lightning`. "
            r"Say `import lightning as L` and `L.Trainer\(...\)`.$",
        ),
    ],
    ids=["our method", "their host", "our data"],
)
def test_a_mixture_that_no_trainer_takes_is_one_line(tmp_path, package, model, data, message):
    held = {"datamodule": data()} if data is DigitsDataModule else {"train_dataloaders": data()}
    with pytest.raises(TypeError, match=message):
        trainer_of(package, tmp_path, []).fit(model(), **held)


def test_a_module_of_the_other_package_is_diagnosed(tmp_path):
    class Network(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.body = SmallCNN(1, 8, "group")

        def forward(self, x):
            return self.body(x)

    folder = diagnose(Network(), DigitsDataModule(batch_size=100, subset=200), tmp_path, progress=False)
    assert (folder / "report.html").exists()


def test_data_of_the_other_package_is_refused_in_one_line(tmp_path):
    class Data(pl.LightningDataModule):
        pass

    with pytest.raises(ValueError, match=r"but got a Data of `pytorch_lightning`\. Hand over its `test_dataloader"):
        diagnose(torch.nn.Flatten(), Data(), tmp_path)


@pytest.mark.parametrize("name", ["callbacks.ModelCheckpoint", "loggers.CSVLogger", "LightningModule", "Trainer"])
def test_a_class_is_found_in_both_packages(name):
    def found(package):
        for part in name.split("."):
            package = getattr(package, part)
        return package

    assert either(found(L.pytorch)) == (found(L.pytorch), found(pl))
    assert either(ResumableCSVLogger) == (ResumableCSVLogger,)


def test_a_thing_is_of_the_package_of_its_class():
    assert [package_of(each) for each in (PlainHost(), Host())] == ["lightning", "pytorch-lightning"]
