import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import timm
import torch
import yaml
from diagnose.hosts import Theirs
from diagnose.test_diagnosis import write_images
from torch import nn

from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.diagnose import ModelSource
from lightning_ssl_geometry.diagnose.loaded import Loaded
from lightning_ssl_geometry.diagnose.model_source import _locate, source_name
from lightning_ssl_geometry.diagnose.several import named_model
from lightning_ssl_geometry.methods import SimCLRModule

CONFIG = {
    "seed_everything": 0,
    "trainer": {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 1,
        "limit_train_batches": 2,
        "limit_val_batches": 0,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 1,
        "logger": {"class_path": "CSVLogger", "init_args": {"save_dir": "runs", "name": "digits"}},
    },
    "model": {
        "class_path": "lightning_ssl_geometry.methods.SimCLRModule",
        "init_args": {
            "backbone": {
                "class_path": "lightning_ssl_geometry.nn.SmallCNN",
                "init_args": {"in_channels": 3, "width": 4},
            },
            "projector": {"class_path": "torch.nn.Linear", "init_args": {"in_features": 32, "out_features": 8}},
        },
    },
    "data": {
        "class_path": "lightning_ssl_geometry.data.DigitsDataModule",
        "init_args": {
            "batch_size": 128,
            "channels": 3,
            "image_size": 12,
            "views": {"class_path": "lightning_ssl_geometry.views.SimCLRViews", "init_args": {"strength": "small"}},
        },
    },
}
QUIET = ["--accelerator", "cpu", "--progress", "false"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run as `ssl-geometry fit` leaves it; the folder that it was started in is its parents[2]."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    main(["fit", "--config", "config.yaml"])
    patch.undo()
    return folder / "runs" / "digits" / "version_0"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scalars(folder):
    return pd.read_csv(folder / "metrics.csv").iloc[-1]


def refused(capsys, *args):
    """The message with which the command ends."""
    with pytest.raises(SystemExit) as ended:
        main(["diagnose", *args])
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("what", ["runs/digits", "version_0", "last.ckpt"])
def test_a_run_on_the_data_it_was_trained_on(here, run, what):
    checkpoint = next((run / "checkpoints").glob("*.ckpt"))
    main(["diagnose", str({"runs/digits": run.parent, "version_0": run, "last.ckpt": checkpoint}[what]), *QUIET])
    (folder,) = here.glob("runs/diagnosis/digits/version_*")
    assert pd.read_csv(folder / "layers.csv")["layer"].tolist() == ["h", "z"]
    record = json.loads((folder / "run.json").read_text())
    assert record["checkpoint"] == str(checkpoint)
    assert record["seed"] == 0
    assert record["method"] == "SimCLRModule"  # a comparison asks which method trained a model
    assert "SimCLR" not in (folder / "config.yaml").read_text()  # of the diagnosis, not of the run


def test_a_run_whose_optimizer_declares_no_types(run, tmp_path):
    """timm's LARS, as in the settings of the papers."""
    copy = shutil.copytree(run, tmp_path / "version_0")
    config = yaml.safe_load((copy / "config.yaml").read_text())
    config["model"]["init_args"]["optimizer"] = {"class_path": "timm.optim.Lars", "init_args": {"lr": 4.0}}
    (copy / "config.yaml").write_text(yaml.safe_dump(config))
    loaded = ModelSource(run=str(copy)).load()
    assert isinstance(loaded.module, SimCLRModule)


def test_the_weights_are_the_checkpoints(run):
    loaded = ModelSource(run=str(run)).load()
    assert isinstance(loaded.module, SimCLRModule)
    assert isinstance(loaded.data, DigitsDataModule)
    held = torch.load(next((run / "checkpoints").glob("*.ckpt")), weights_only=True)["state_dict"]
    for name, value in loaded.module.state_dict().items():
        assert torch.equal(value, held[name]), name
    assert loaded.image_size == 12
    inner = ModelSource(run=str(run), backbone="backbone", projector="projector").load().module
    x = torch.rand(2, 3, 12, 12)
    torch.testing.assert_close(inner.eval()(x), loaded.module.eval()(x))


def test_a_run_on_other_images_is_normalised_as_in_training(here, run):
    write_images(here / "images")
    main(["diagnose", str(run), "--images", "images", *QUIET])
    record = json.loads((here / "runs/diagnosis/digits/version_0/run.json").read_text())
    data = DigitsDataModule(channels=3, image_size=12)
    data.setup()
    assert record["normalization"].startswith(f"mean {data.mean[0]:.3f}")
    assert record["data_path"] == str(here / "images")
    assert "crop_scale=(0.9, 1.0)" in record["views"]  # its own


def test_anybodys_class_with_a_lightning_checkpoint(here):
    torch.manual_seed(5)
    theirs = Theirs(width=7)
    torch.save({"state_dict": theirs.state_dict(), "epoch": 1}, "theirs.ckpt")
    write_images(here / "images", classes=0)
    options = {
        "model": {"class_path": "diagnose.hosts.Theirs", "init_args": {"width": 7}},
        "checkpoint": "theirs.ckpt",
        "backbone": "trunk",
        "projector": "head",
    }
    (here / "theirs.yaml").write_text(yaml.safe_dump(options))
    main(["diagnose", "theirs.yaml", "--images", "images", "--image_size", "8", *QUIET])
    dotted = ["--model", "diagnose.hosts.Theirs", "--model.width", "7", "--checkpoint", "theirs.ckpt"]
    dotted += ["--backbone", "trunk", "--projector", "head", "--images", "images", "--image_size", "8"]
    main(["diagnose", *dotted, *QUIET])
    first, second = (scalars(here / f"runs/diagnosis/Theirs/version_{k}") for k in (0, 1))
    assert first.equals(second)
    assert pd.read_csv(here / "runs/diagnosis/Theirs/version_0/layers.csv")["width"].tolist() == [7, 8, 4]


def test_timm_by_its_name_and_any_datamodule(here):
    data = ["--data", "diagnose.hosts.TheirData", "--batch_keys", "{image: 0, label: 1}"]
    views = ["--views", "lightning_ssl_geometry.views.NormalizedViews", "--views.mean", "[0.5,0.5,0.5]"]
    views += ["--views.std", "[0.25,0.25,0.25]"]
    main(["diagnose", "timm:resnet10t", "--pretrained", "false", *data, *views, "--name", "random", *QUIET])
    values = scalars(here / "runs/diagnosis/random/version_0")
    assert "test/neural_collapse_simplex" in values.index
    record = json.loads((here / "runs/diagnosis/random/version_0/run.json").read_text())
    assert (record["weights"], record["samples"]) == ("random", 40)


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("timm:resnet18.a1_in1k", "resnet18.a1_in1k"),
        ("models/mine.yaml", "mine"),
        ("runs/digits/version_3", "digits"),
        ("runs/digits", "digits"),
    ],
)
def test_names(what, name):
    assert source_name(what) == name


def test_weights_that_cannot_be_downloaded(monkeypatch, capsys):
    def offline(*_, **__):
        raise OSError("no network\nand more of it")

    monkeypatch.setattr("timm.create_model", offline)
    with pytest.raises(OSError, match="of 'resnet18' to be downloaded, but: no network Without them, use `pret"):
        ModelSource(timm="resnet18").load()
    line = (
        "ssl-geometry: error: Expected timm's weights of 'resnet18' to be downloaded, but: no network Without them, "
        "use `--pretrained false` for random weights, or `--checkpoint FILE` for your own.\n"
    )
    assert refused(capsys, "timm:resnet18", "--images", ".") == line


def test_timm_is_normalised_and_sized_as_timm_says(monkeypatch):
    pretrained = []
    from lightning_ssl_geometry.diagnose import model_source

    class Offline(model_source.TimmBackbone):
        def __init__(self, name, pretrained_weights=False, **options):
            pretrained.append(options.pop("pretrained"))
            super().__init__(name, **options)

    monkeypatch.setattr(model_source, "TimmBackbone", Offline)
    loaded = ModelSource(timm="resnet18").load()
    assert isinstance(loaded, Loaded)
    assert loaded.normalization == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert loaded.image_size == 224
    assert ModelSource(timm="resnet18", pretrained=False).load().normalization is None
    assert pretrained == [True, False]
    assert ModelSource(timm="resnet18", pretrained=False, mean=[0.5], std=[0.2]).load().normalization == (
        (0.5,),
        (0.2,),
    )


def test_comparison_of_a_run_a_yaml_and_a_diagnosis(here, run, capsys):
    (here / "theirs.yaml").write_text(
        yaml.safe_dump({"model": {"class_path": "diagnose.hosts.Theirs"}, "backbone": "trunk"})
    )
    write_images(here / "images", n=30)
    given = ["--images", "images", "--image_size", "12", *QUIET]
    main(["diagnose", "--compare", f"ours={run}", "theirs=theirs.yaml", *given])
    said = capsys.readouterr().out
    assert "The page of the comparison: runs/diagnosis/comparison.html" in said
    rows = [line.split() for line in said.splitlines() if line.lstrip().startswith("test/effective_rank_h")]
    assert len(rows) == 1  # one table, of both
    values = [scalars(here / f"runs/diagnosis/{name}/version_0") for name in ("ours", "theirs")]
    numbers = [cell for cell in rows[0] if cell[0].isdigit()]
    assert [float(each) for each in numbers] == pytest.approx([v["test/effective_rank_h"] for v in values], rel=5e-3)
    page = (here / "runs/diagnosis/comparison.html").read_text()
    assert "theirs" in page
    assert "CKA" in page
    earlier = here / "runs/diagnosis/ours/version_0"
    main(["diagnose", "--compare", f"again={earlier}", "theirs=theirs.yaml", *given])
    assert len(list(here.glob("runs/diagnosis/ours/version_*"))) == 1
    assert len(list(here.glob("runs/diagnosis/theirs/version_*"))) == 2


def test_a_state_dict_of_timms(here):
    torch.manual_seed(3)
    theirs = timm.create_model("resnet10t", num_classes=0)
    torch.save(theirs.state_dict(), "timm.pt")
    loaded = ModelSource(timm="resnet10t", checkpoint="timm.pt").load()
    assert loaded.about["checkpoint"] == "timm.pt"
    assert "weights" not in loaded.about
    x = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(loaded.module.eval()(x), theirs.eval()(x))
    whole = timm.create_model("resnet10t", num_classes=10)
    torch.save({"model": whole.state_dict(), "epoch": 3}, "whole.pt")
    loaded = ModelSource(timm="resnet10t", checkpoint="whole.pt").load()  # without its classifier, as timm says
    torch.testing.assert_close(loaded.module.eval()(x), whole.eval().forward_head(whole.forward_features(x), True))


def third(folder, name, **model):
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(model))
    return path.name


WRONG_THIRD = {
    "a folder that is not there": ("run/nowhere", "there is no run/nowhere"),
    "an unknown network of timm": ("timm:resnot10t", "to be a timm model, but got 'resnot10t'"),
    "a checkpoint that is not there": (
        {"timm": "resnet10t", "checkpoint": "lost.pt"},
        "`checkpoint` to be a file, but there is none at lost.pt",
    ),
    "a network of other images": (
        {"model": {"class_path": "torch.nn.Linear", "init_args": {"in_features": 5, "out_features": 2}}},
        "to take images of shape (3, 12, 12), but",
    ),
    "a submodule that is not there": (
        {"model": {"class_path": "diagnose.hosts.Theirs"}, "backbone": "trunc"},
        "trunc",
    ),
    "an option that is misspelt": ({"timm": "resnet10t", "chekpoint": "x"}, "chekpoint"),
}


@pytest.mark.parametrize(("what", "message"), WRONG_THIRD.values(), ids=WRONG_THIRD.keys())
def test_each_model_is_checked_before_the_first_is_looked_at(here, run, capsys, monkeypatch, what, message):
    def looked(*_, **__):
        raise AssertionError("a model was looked at before all were checked")

    monkeypatch.setattr("lightning_ssl_geometry.diagnose.by_options.diagnose", looked)
    write_images(here / "images", n=10)
    given = what if isinstance(what, str) else third(here, "given", **what)
    models = [f"first={run}", "second=timm:resnet10t", f"last={given}", "--pretrained", "false"]
    said = refused(capsys, "--compare", *models, "--images", "images", "--image_size", "12", *QUIET)
    assert message in said
    assert "Model 'last': Expected" in said
    assert said.count("\n") == 1
    assert not (here / "runs").exists()


def test_models_that_want_images_of_different_sizes_are_refused_before_the_first_is_looked_at(here, run, capsys):
    write_images(here / "images", n=10)
    models = [f"ours={run}", "theirs=timm:resnet10t", "--pretrained", "false"]
    said = refused(capsys, "--compare", *models, "--images", "images", *QUIET)
    assert "of the same data, but those of 'ours' and 'theirs' differ. Give --image_size" in said
    assert "'ours' is of ImageFolderDataModule" in said
    assert "3 x 12 x 12" in said
    assert not (here / "runs").exists()


def test_a_comparison_needs_two_models(here, run, capsys):
    assert "at least 2 models to compare, but got 1" in refused(capsys, "--compare", str(run), *QUIET)


@pytest.mark.parametrize(("most", "loads"), [(None, 2), (0, 4)])
def test_random_weights_do_not_depend_on_who_comes_before_and_no_model_is_loaded_twice_that_fits(
    here, monkeypatch, most, loads
):
    load, loaded = ModelSource.load, []
    monkeypatch.setattr(ModelSource, "load", lambda source, **given: loaded.append(source) or load(source, **given))
    if most is not None:
        monkeypatch.setattr("lightning_ssl_geometry.diagnose.several._MOST_WAITING", most)
    write_images(here / "images")
    (here / "b.yaml").write_text("timm: resnet10t\npretrained: false\n")
    main(["diagnose", "--compare", "a=timm:resnet10t", "b=b.yaml", "--pretrained", "false",
          "--images", "images", "--image_size", "32", *QUIET])  # fmt: skip
    first, second = (scalars(here / f"runs/diagnosis/{name}/version_0") for name in "ab")
    assert first.equals(second)
    assert len(loaded) == loads


def test_a_model_of_two_names_is_loaded_once(here, run, monkeypatch):
    load, loaded = ModelSource.load, []
    monkeypatch.setattr(ModelSource, "load", lambda source, **given: loaded.append(source) or load(source, **given))
    write_images(here / "images", n=10)
    main(["diagnose", "--compare", f"a={run}", f"b={run}", "--images", "images", "--image_size", "12", *QUIET])
    first, second = (scalars(here / f"runs/diagnosis/{name}/version_0") for name in "ab")
    assert first.equals(second)
    assert len(loaded) == 1


def test_a_run_on_anybodys_data(here, run):
    keys = ["--batch_keys", "{image: 0, label: 1}", "--data", "diagnose.hosts.TheirData"]
    views = ["--views", "lightning_ssl_geometry.views.NormalizedViews", "--views.mean", "[0.5,0.5,0.5]"]
    main(["diagnose", "--run", str(run), *keys, *views, "--views.std", "[0.25,0.25,0.25]", *QUIET])
    folder = here / "runs/diagnosis/digits/version_0"
    assert pd.read_csv(folder / "layers.csv")["layer"].tolist() == ["h", "z"]
    assert "normalization" not in json.loads((folder / "run.json").read_text())


def test_a_run_on_vectors(here, capsys):
    np.save("x.npy", np.random.default_rng(0).normal(size=(60, 12)))
    data = {"class_path": "lightning_ssl_geometry.data.TensorDataModule",
            "init_args": {"train": str(here / "x.npy"), "batch_size": 16}}  # fmt: skip
    backbone = {
        "class_path": "lightning_ssl_geometry.nn.MLPBackbone",
        "init_args": {"in_dim": 12, "hidden_dims": [], "out_dim": 8},
    }
    head = CONFIG["model"]["init_args"]["projector"] | {"init_args": {"in_features": 8, "out_features": 4}}
    model = CONFIG["model"] | {"init_args": {"backbone": backbone, "projector": head}}
    Path("vectors.yaml").write_text(yaml.safe_dump(CONFIG | {"model": model, "data": data}))
    main(["fit", "--config", "vectors.yaml"])
    main(["diagnose", "runs/digits/version_0", *QUIET])  # unasked: the file of arrays is no class
    record = json.loads(Path("runs/diagnosis/digits/version_0/run.json").read_text())
    assert record["normalization"] == "mean and std per feature (12 features)"
    write_images(here / "images")
    said = refused(capsys, "runs/digits/version_0", "--images", "images")
    assert "Expected --data instead of --images: this network was trained on samples of shape 12, " in said


def test_representations_of_a_training_run_are_no_diagnosis(here, run):
    (run / "representations.npz").write_bytes(b"of validation samples")
    try:
        write_images(here / "images", n=30)
        given = ["--compare", f"ours={run}", f"again={run}", "--images", "images"]
        main(["diagnose", *given, *QUIET])
        assert (here / "runs/diagnosis/again/version_0/layers.csv").is_file()
    finally:
        (run / "representations.npz").unlink()


def test_names_as_lightning_gives_them_to_checkpoints(here):
    (here / "epoch=1-step=10.ckpt").touch()
    assert named_model("epoch=1-step=10.ckpt")[1] == "epoch=1-step=10.ckpt"
    assert named_model("mine=epoch=1-step=10.ckpt") == ("mine", "epoch=1-step=10.ckpt")
    (here / "run/version_best").mkdir(parents=True)
    for place in ("version_2", "version_10"):
        (here / "run" / place / "checkpoints").mkdir(parents=True)
        (here / "run" / place / "config.yaml").touch()
        for name in ("last", "newer"):
            path = here / "run" / place / "checkpoints" / f"{name}.ckpt"
            path.touch()
            os.utime(path, (len(name), len(name)))
    (here / "run/version_best/config.yaml").touch()
    assert _locate(Path("run")) == (Path("run/version_10"), Path("run/version_10/checkpoints/newer.ckpt"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "one of `run`, `timm`, `hub` and `model`, but got none"),
        (["resnet10t"], "but there is no resnet10t. Of timm's networks, say timm:resnet10t."),
        (["nowhere"], "`run` to be a run's folder or a checkpoint in it, but there is no nowhere"),
        (["timm:resnet18", "--run", "x"], "Expected timm:resnet18 or --run, but got both"),
        (["--timm", "resnet18", "--run", "x"], "one of `run`, `timm`, `hub` and `model`, but got run and timm"),
        (["timm:resnet18", "--data", "DigitsDataModule", "--images", "x"], "one of --images and --data, but got both"),
        (["timm:resnot18"], "to be a timm model, but got 'resnot18'. Did you mean "),
        (["timm:resnet10t", "--pretrained", "false"], "--images or --data: this network brings no images along"),
        (["timm:resnet10t", "--mean", "[0.5]"], "`mean` and `std`, both or none, but got one"),
        (["--run", "x", "--checkpoint", "y"], "`checkpoint` beside `model` or `timm`"),
        (
            ["--run", "x", "--pretrained", "false"],
            "`--pretrained true` beside `run`, whose weights are always loaded, but got False. A network with random",
        ),
        (["x", "--pretrained", "false"], "`--pretrained true` beside `run`, whose weights are always loaded"),
        (
            ["--model", "torch.nn.Flatten", "--pretrained", "false"],
            "`--pretrained true` beside `model`, whose weights are its own or those of `checkpoint`, but got False.",
        ),
        (
            ["--compare", "a=x", "hf:y", "--pretrained", "false"],
            "Expected --pretrained false beside timm:NAME, but got a=x, hf:y.",
        ),
        (["--model", "torch.nn.Flatten", "--images", "."], "--image_size beside --images"),
        (
            [
                "--model",
                "torch.nn.Linear",
                "--model.in_features",
                "3",
                "--model.out_features",
                "2",
                "--data",
                "DigitsDataModule",
            ],
            "`backbone` to take images of shape (1, 8, 8), but Linear says: ",
        ),
        (
            ["--model", "torch.nn.Flatten", "--images", "none", "--image_size", "8"],
            "`images` to be a folder, but there is none at",
        ),
        (["--model", "torch.nn.Flatten", "--images", "empty", "--image_size", "8"], "to have images, in every class"),
        (["--compare", "timm:resnet10t", "x", "--backbone", "trunk"], "but got --backbone"),
        (["timm:resnet10t", "--prefix", "x."], "`prefix` and `ignore` beside a `checkpoint`, but got none"),
        (["timm:resnet10t", "--image_size", "32"], "--image_size beside --images, but there are none"),
        (["--compare", "timm:resnet10t", "x", "--name", "y"], "but got --name"),
        (["broken"], "to say how the run's model and data are built, but:"),
        (["--output", "o", "bad.yaml"], "no_such_option"),
        (
            ["timm:resnet10t", "--pretrained", "false", "--data", "DigitsDataModule", "--devices", "0"],
            "`Trainer(devices=0)` value is not",
        ),
        (["--compare", "a=x", "a=y"], "different names of models, but 2 are named 'a'. Name them, as in first=a=x"),
        (["--compare", "s/one.ckpt", "s/two.ckpt"], "but 2 are named 's'. Name them, as in first=s/one.ckpt"),
        (["--compare", "comparison.html=x", "b=y"], "that are no outputs of the command, but got 'comparison.html'"),
        (["--compare", "timm:resnet10t", "timm:resnet18"], "Model 'resnet10t': Expected --images or --data"),
        (["--compare", "a=bad.yaml", "b=x"], "Expected bad.yaml to say what to look at"),
        (["timm:resnet10t", "--no_such_option", "3"], "no_such_option"),
    ],
)
def test_bad_input(here, capsys, args, message):
    (here / "empty").mkdir()
    (here / "broken/checkpoints").mkdir(parents=True)
    (here / "broken/checkpoints/last.ckpt").touch()
    (here / "broken/config.yaml").write_text("model: {class_path: no.such.Class}")
    (here / "bad.yaml").write_text("no_such_option: 3\n")
    (here / "s").mkdir()
    for name in ("one", "two"):
        (here / f"s/{name}.ckpt").touch()
    said = refused(capsys, *args)
    assert message in said
    assert said.startswith("ssl-geometry: error: ")
    assert said.count("\n") == 1


def test_a_run_that_is_not_whole(here, capsys):
    (here / "run").mkdir()
    assert "Expected `run` to have a checkpoint, but there is none in run/checkpoints" in refused(capsys, "run")
    (here / "run/checkpoints").mkdir()
    torch.save(nn.Linear(1, 1).state_dict(), here / "run/checkpoints/last.ckpt")
    assert "Expected `run` to have its config.yaml" in refused(capsys, "run")


def test_help_is_short(capsys):
    with pytest.raises(SystemExit):
        main(["diagnose", "--help"])
    said = capsys.readouterr().out
    assert "known subclasses" not in said
    assert len(said.splitlines()) < 130
