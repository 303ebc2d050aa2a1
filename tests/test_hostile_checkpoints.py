"""Hostile checkpoints: no way to load one imports or runs the code that it names."""

import os
import pickle
import sys
from pathlib import Path

import lightning as L
import pytest
import torch
from PIL import Image
from torch import nn

from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.diagnose import load_weights
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import MLPProjector, SmallCNN

SMOKE = str(Path(__file__).parents[1] / "examples" / "simclr" / "smoke.yaml")
QUIET = ["--trainer.callbacks", "[]", "--trainer.enable_progress_bar", "false", "--trainer.accelerator", "cpu"]
QUIET += ["--trainer.max_epochs", "2", "--trainer.limit_train_batches", "1", "--trainer.limit_val_batches", "1"]

PLANTED = """
from pathlib import Path
from lightning import LightningModule
from torch import nn

Path({canary!r}).touch()


class Model(LightningModule):
    pass


class Network(nn.Identity):
    pass


def run(*args, **kwargs):
    pass
"""

WRITTEN = {"ssl_geometry_class": "SimCLRModule", "pytorch-lightning_version": L.__version__}
THROUGH_CLI = {
    "_instantiator": "lightning.pytorch.cli.instantiate_module",
    "_class_path": "lightning_ssl_geometry.methods.SimCLRModule",
    "backbone": {"class_path": "torch.nn.Identity"},
    "projector": {"class_path": "torch.nn.Identity"},
}
HOSTILE = {
    "a function to call": {"_instantiator": "planted.run"},
    "a class to import": THROUGH_CLI | {"_class_path": "planted.Model"},
    "a class to import, without an instantiator": {"_class_path": "planted.Model"},
    "a network to import": THROUGH_CLI | {"backbone": {"class_path": "planted.Network"}},
    "a network by its name alone": THROUGH_CLI | {"projector": "planted.Network"},
    "a function as an argument": THROUGH_CLI | {"optimizer": "planted.run"},
    "an imported class with a class to import": THROUGH_CLI
    | {"_class_path": "lightning_ssl_geometry.methods.VICRegModule", "backbone": {"class_path": "planted.Network"}},
}
hostile = pytest.mark.parametrize("held", HOSTILE.values(), ids=HOSTILE.keys())


class Runs:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A file that the importable module `planted` writes when it is imported."""
    folder = tmp_path / "planted"
    folder.mkdir()
    (folder / "planted.py").write_text(PLANTED.format(canary=str(tmp_path / "canary")))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "planted", raising=False)
    return tmp_path / "canary"


def arguments():
    return {"backbone": SmallCNN(1, 8), "projector": MLPProjector(64, 16, 8)}


def saved(path, **held):
    model = SimCLRModule(**arguments())
    torch.save(WRITTEN | {"state_dict": model.state_dict()} | held, path)
    return model


def test_the_canary_sings(canary):
    import planted  # noqa: F401

    assert canary.exists()


@hostile
def test_load_from_checkpoint_imports_nothing_that_a_checkpoint_names(tmp_path, canary, held):
    model = saved(tmp_path / "x.ckpt", hyper_parameters=held)
    again = SimCLRModule.load_from_checkpoint(tmp_path / "x.ckpt", **arguments())
    assert torch.equal(again.projector[0].weight, model.projector[0].weight)
    with pytest.raises((ValueError, TypeError), match="backbone"):
        SimCLRModule.load_from_checkpoint(tmp_path / "x.ckpt")
    assert not canary.exists()


def test_the_networks_of_a_checkpoint_are_asked_for(tmp_path):
    saved(tmp_path / "x.ckpt", hyper_parameters=THROUGH_CLI)
    with pytest.raises(ValueError, match=r"Expected `backbone` to be a torch.nn.Module, but got a dict.*weights_only"):
        SimCLRModule.load_from_checkpoint(tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match=r"Expected `projector` to be a torch.nn.Module, but got a str"):
        SimCLRModule(nn.Identity(), "mlp")


def test_load_from_checkpoint_of_a_trusted_file_is_lightnings(tmp_path):
    networks = {name: {"class_path": "torch.nn.Flatten"} for name in ("backbone", "projector")}
    torch.save(WRITTEN | {"state_dict": {}, "hyper_parameters": THROUGH_CLI | networks}, tmp_path / "x.ckpt")
    with pytest.warns(UserWarning, match="contains no parameters"):
        model = SimCLRModule.load_from_checkpoint(tmp_path / "x.ckpt", weights_only=False)
    assert isinstance(model.backbone, nn.Flatten)


def test_load_from_checkpoint_unpickles_nothing(tmp_path, canary):
    saved(tmp_path / "x.ckpt", extra=Runs(f"touch {canary}"))
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        SimCLRModule.load_from_checkpoint(tmp_path / "x.ckpt", **arguments())
    with (tmp_path / "x.ckpt").open("rb") as opened, pytest.raises(pickle.UnpicklingError, match="Weights only"):
        SimCLRModule.load_from_checkpoint(opened, **arguments())
    assert not canary.exists()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    saving = ["--trainer.callbacks+=lightning.pytorch.callbacks.ModelCheckpoint", "--trainer.max_epochs=1"]
    main(["fit", "--config", SMOKE, *QUIET, "--trainer.logger.init_args.save_dir", str(folder), *saving])
    return folder / "simclr_smoke" / "version_0"


def poisoned(run, path, **extra):
    (checkpoint,) = run.rglob("*.ckpt")
    torch.save(torch.load(checkpoint, weights_only=True) | extra, path)
    return str(path)


def command(name, folder, checkpoint):
    extra = ["--return_predictions", "false"] if name == "predict" else []
    where = ["--trainer.logger.init_args.save_dir", str(folder)]
    return [name, "--config", SMOKE, *QUIET, *where, "--ckpt_path", checkpoint, *extra]


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
@hostile
def test_the_command_line_imports_nothing_that_a_checkpoint_names(tmp_path, canary, run, held):
    checkpoint = poisoned(run, tmp_path / "x.ckpt", hyper_parameters=held)
    for name in ("fit", "predict"):
        main(command(name, tmp_path, checkpoint))
        assert not canary.exists(), name


@hostile
def test_diagnose_imports_nothing_that_a_checkpoint_names(tmp_path, canary, held):
    model = saved(tmp_path / "x.ckpt", hyper_parameters=held)
    network = SmallCNN(1, 8)
    load_weights(network, tmp_path / "x.ckpt", prefix="backbone.")
    assert all(torch.equal(value, model.backbone.state_dict()[name]) for name, value in network.state_dict().items())
    assert not canary.exists()


def test_diagnose_unpickles_nothing(tmp_path, canary, capsys):
    saved(tmp_path / "x.ckpt", extra=Runs(f"touch {canary}"))
    (tmp_path / "images").mkdir()
    for k in range(4):
        Image.new("L", (8, 8), k).save(tmp_path / "images" / f"{k}.png")
    network = ["--model", "lightning_ssl_geometry.nn.SmallCNN", "--model.init_args.width", "8"]
    where = ["--images", str(tmp_path / "images"), "--output", str(tmp_path), "--image_size", "8"]
    with pytest.raises(SystemExit, match="2"):
        main(["diagnose", *network, "--checkpoint", str(tmp_path / "x.ckpt"), *where, "--progress", "false"])
    assert "to load with weights_only=True, but" in capsys.readouterr().err
    assert not canary.exists()


@pytest.mark.parametrize("name", ["fit", "validate", "test", "predict"])
def test_the_command_line_unpickles_nothing(tmp_path, canary, capsys, run, name):
    checkpoint = poisoned(run, tmp_path / "x.ckpt", extra=Runs(f"touch {canary}"))
    with pytest.raises(SystemExit, match="2"):
        main(command(name, tmp_path, checkpoint))
    assert "ckpt_path: Expected a checkpoint that loads with weights_only=True" in capsys.readouterr().err
    assert not canary.exists()
