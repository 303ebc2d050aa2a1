"""The command line's messages for settings that fail when an object is built or when training begins."""

import os
import re
import sys
from pathlib import Path

import forked
import pytest
import torch
import yaml
from torch import nn

from lightning_ssl_geometry.cli import lightning_cli, main
from lightning_ssl_geometry.cli_errors.building import optimizer_error
from lightning_ssl_geometry.cli_errors.keys import of_parser
from lightning_ssl_geometry.cli_errors.memory import within_memory

SMOKE = Path(__file__).parents[1] / "examples" / "simclr" / "smoke.yaml"
QUIET = ["--trainer.callbacks", "[]", "--trainer.enable_progress_bar", "false"]


def said(capsys, tmp_path, *arguments, command="fit"):
    capsys.readouterr()
    where = ["--trainer.logger.init_args.save_dir", str(tmp_path)]
    with pytest.raises(SystemExit, match="2"):
        main([command, "--config", str(SMOKE), "--trainer.accelerator", "cpu", *arguments, *QUIET, *where])
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ssl-geometry: error: ")]
    return line.removeprefix("ssl-geometry: error: ")


@pytest.mark.parametrize(
    ("setting", "line"),
    {
        "model.init_args.loss.init_args.temperature=-1": "Expected `temperature` > 0 and finite, but got -1.0.",
        "model.init_args.loss.init_args.temperature=null": "Expected `temperature` to be a number, .* but got None",
        "model.init_args.optimizer.init_args.lr=-1": r"Expected `lr` that torch.optim.AdamW accepts, but got -1.0 ",
        f"model.init_args.backbone.init_args.width={10**18}": "Expected `width` that .*SmallCNN accepts, but got 10",
        "model.init_args.backbone.init_args.in_channels=0": "Expected `in_channels` to be an integer >= 1, but got 0.",
        f"model.init_args.projector.init_args.depth={10**18}": "Expected `depth` <= 1000, but got 1000000",
        f"seed_everything={10**30}": "Expected 0 <= `seed_everything` <= 4294967295, but got 1000000",
        f"trainer.devices={10**9}": "Expected `devices` <= 10000, but got 1000000000.",
        "trainer.devices=0": r"Expected `devices` that trainer accepts, but got 0 \(MisconfigurationException",
        "trainer.max_epochs=-5": r"Expected `max_epochs` that trainer accepts, but got -5 \(MisconfigurationException",
        "trainer.accelerator=abacus": r"Expected `accelerator` that trainer accepts, but got 'abacus' \(ValueError",
        "data.init_args.batch_size=-1": "Expected `batch_size` to be an integer >= 1, but got -1.",
        "data.init_args.batch_size=many": "Expected an integer, but got many.",
        "trainer.max_epochs=many": "Expected an integer or null, but got many.",
        "trainer.limit_val_batches=many": "Expected an integer or a number or null, but got many.",
    }.items(),
)
def test_a_setting_that_cannot_be_built(tmp_path, capsys, setting, line):
    key, _, value = setting.partition("=")
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(put(yaml.safe_load(SMOKE.read_text()), key, yaml.safe_load(value))))
    found = said(capsys, tmp_path, "--config", str(tmp_path / "x.yaml"))
    assert found.startswith(f"{key}: ")
    with pytest.raises(AssertionError, match=line):
        raise AssertionError(found)


def put(config, key, value):
    around = config
    *outer, last = key.split(".")
    for part in outer:
        around = around[part]
    around[last] = value
    return config


@pytest.mark.parametrize("views", [{}, []])
def test_views_that_are_none(tmp_path, capsys, views):
    config = put(yaml.safe_load(SMOKE.read_text()), "data.init_args.views", views)
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(config))
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        lightning_cli(["--config", str(tmp_path / "x.yaml"), *QUIET], run=False)
    assert "error: data.init_args.views: " in capsys.readouterr().err


def test_a_wrong_key_is_named_with_its_section_without_a_command_too(tmp_path, capsys):
    config = put(yaml.safe_load(SMOKE.read_text()), "trainer.class_path", "lightning.pytorch.Trainer")
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(config))
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        lightning_cli(["--config", str(tmp_path / "x.yaml"), *QUIET], run=False)
    assert "error: trainer.class_path: Expected a key of `ssl-geometry`" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fit", "validate", "test"])
def test_a_projector_that_does_not_fit_its_backbone(tmp_path, capsys, command):
    line = said(capsys, tmp_path, "--model.init_args.projector.init_args.in_dim", "63", command=command)
    assert line == (
        "model.init_args.projector: Expected `projector` to take D = 64, which SmallCNN as `backbone` returns, but got "
        "MLPProjector, which takes 63."
    )


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        (["data.init_args.channels", "1"], "`backbone.0`, a Conv2d with in_channels=3, .* shape .*, whose width is 1."),
        (["model.init_args.backbone", "Folded"], "`backbone.1`, a Linear with in_features=7, .* whose width is 192."),
    ],
)
def test_a_network_that_does_not_fit_the_data(tmp_path, capsys, setting, line):
    key, value = setting
    found = said(capsys, tmp_path, f"--{key}", value.replace("Folded", "test_cli_errors.Folded"))
    assert re.match(f"model: Expected {line}", found), found


class Folded(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(7, 64))


def test_a_command_without_settings_says_what_to_pass(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["fit"])
    expected = (
        "Expected `data` and `model`, but got none: pass a file with --config FILE. `ssl-geometry init` copies such"
    )
    assert capsys.readouterr().err.startswith(f"ssl-geometry: error: {expected} files.")


def test_a_file_with_another_ending_is_offered(tmp_path, capsys):
    (tmp_path / "smoke.yaml").touch()
    assert said(capsys, tmp_path, "--config", str(tmp_path / "smoke.yml")).endswith("Did you mean `smoke.yaml`?")


def test_a_logger_whose_package_is_missing_is_one_line_with_the_package(tmp_path, capsys, monkeypatch):
    for name in ("_TENSORBOARD_AVAILABLE", "_TENSORBOARDX_AVAILABLE"):
        monkeypatch.setattr(f"lightning.fabric.loggers.tensorboard.{name}", False)
    config = yaml.safe_load(SMOKE.read_text())
    config["trainer"] |= {"logger": {"class_path": "TensorBoardLogger", "init_args": {"save_dir": str(tmp_path)}}}
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(SystemExit, match="2"):
        main(["fit", "--config", str(tmp_path / "x.yaml")])
    line = "trainer.logger: Expected the package `tensorboard` to be installed, but it is not: pip install tensorboard"
    assert f"ssl-geometry: error: {line}\n" in capsys.readouterr().err


def test_a_recipe_runs_without_a_progress_bar():
    cli = lightning_cli(["--config", str(SMOKE), "--trainer.enable_progress_bar", "false"], run=False)
    kinds = [type(each).__name__ for each in cli.trainer.callbacks]
    assert "RichProgressBar" not in kinds
    assert "GeometryMonitor" in kinds


def test_data_that_do_not_fit_are_named_before_the_first_step(tmp_path, capsys):
    line = said(capsys, tmp_path, "--data.init_args.subset", "100000000")
    assert line.startswith("data.init_args.subset: Expected `subset` of at most 1438, the size of the training set")
    line = said(capsys, tmp_path, "--ckpt_path", "nowhere.ckpt")
    assert line == "ckpt_path: Checkpoint file not found: nowhere.ckpt"


def test_an_option_that_is_misspelt(capsys):
    for command, wrong, right in [
        ("fit", "--trainer.max_epocs=1", "--trainer.max_epochs"),
        ("fit", "--trainer.max_epoch=1", "--trainer.max_epochs"),  # an abbreviation
        ("validate", "--ckpt_pth", "--ckpt_path"),
        ("validate", "--ckpt_pat", "--ckpt_path"),
        ("diagnose", "--pretraned", "--pretrained"),
        ("diagnose", "--pretrain", "--pretrained"),
        ("report", "--outp", "--output"),
    ]:
        with pytest.raises(SystemExit, match="2"):
            main([command, *["run"] * (command == "report"), wrong])
        expected = f"Expected arguments of `ssl-geometry {command}`, but got {wrong}. Did you mean `{right}`?"
        assert capsys.readouterr().err == f"ssl-geometry: error: {expected} See `ssl-geometry {command} --help`.\n"
    with pytest.raises(SystemExit, match="2"):
        main(["fit", "--zebra"])
    expected = "Expected arguments of `ssl-geometry fit`, but got --zebra. See `ssl-geometry fit --help`."
    assert capsys.readouterr().err == f"ssl-geometry: error: {expected}\n"


def test_a_class_that_is_misspelt_where_it_is_given_as_text(capsys):
    name = "lightning_ssl_geometry.methods.SimCLRModul"
    line = "module 'lightning_ssl_geometry.methods' has no attribute 'SimCLRModul'."
    for command in ("fit", "diagnose"):
        with pytest.raises(SystemExit, match="2"):
            main([command, "--model", name])
        assert capsys.readouterr().err == f"ssl-geometry: error: model: {line} Did you mean `{name}e`?\n"


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ("MNIST", "MNIST/raw"),
        ("CIFAR10", "cifar-10-batches-py"),
        ("CIFAR100", "cifar-100-python"),
    ],
)
@pytest.mark.parametrize("download", [True, False])
def test_a_data_set_that_is_not_there(tmp_path, capsys, monkeypatch, data, place, download):
    def offline(*_, **__):
        raise RuntimeError("no\nnetwork")

    monkeypatch.setattr(f"torchvision.datasets.{data}.download", offline)
    config = yaml.safe_load(SMOKE.read_text())
    config["data"] = {
        "class_path": f"lightning_ssl_geometry.data.{data}DataModule",
        "init_args": {"root": str(tmp_path), "download": download},
    }
    (tmp_path / "x.yaml").write_text(yaml.safe_dump({"seed_everything": 0} | config))
    where = ["--trainer.logger.init_args.save_dir", str(tmp_path)]
    with pytest.raises(SystemExit, match="2"):
        main(["fit", "--config", str(tmp_path / "x.yaml"), "--trainer.accelerator", "cpu", *where, *QUIET])
    (line,) = [each for each in capsys.readouterr().err.splitlines() if "error: " in each]
    assert line.startswith("ssl-geometry: error: data.init_args.root: Expected ")
    assert str(tmp_path / place) in line
    if download:
        assert "but got: no network. Without a network, put the published files into the folder" in line


def test_a_key_that_is_none_and_a_file_that_is_not_there(tmp_path, capsys):
    (tmp_path / "x.yaml").write_text("trainer: {max_epoch: 3}")
    assert "max_epoch" in said(capsys, tmp_path, "--config", str(tmp_path / "x.yaml"))
    assert "nowhere.yaml" in said(capsys, tmp_path, "--config", "nowhere.yaml")


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("model.init_args.optimizr", "model: Option 'optimizr' is not accepted. Did you mean `optimizer`?"),
        ("model.init_args.zebra", "model: Option 'zebra' is not accepted."),
        ("data.init_args.valfraction", "data: Option 'valfraction' is not accepted. Did you mean `val_fraction`?"),
        (
            "trainer.callbacks.init_args.view_layot",
            "trainer.callbacks.0: Option 'view_layot' is not accepted. Did you mean `view_layout`?",
        ),
    ],
)
def test_a_misspelt_argument_is_refused_with_the_nearest_one(tmp_path, capsys, key, line):
    config = yaml.safe_load(SMOKE.read_text())
    config["trainer"]["callbacks"] = {"class_path": "lightning_ssl_geometry.callbacks.GeometryMonitor", "init_args": {}}
    put(config, key, 0)
    config["trainer"]["callbacks"] = [config["trainer"]["callbacks"]]
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(config))
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        lightning_cli(["--config", str(tmp_path / "x.yaml")], run=False)
    assert capsys.readouterr().err == f"ssl-geometry: error: {line} It is in {tmp_path / 'x.yaml'}.\n"


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        ("trainer:", "trainr:", "trainr: Expected a key of `ssl-geometry fit`, but got `trainr`. {}`trainer`?"),
        (
            "max_epochs",
            "max_epoch",
            "trainer.max_epoch: Expected a key .*, but got `max_epoch`. {}`.*max_epochs`?",
        ),
        ("seed_everything", "seed_everythin", "seed_everythin: .*, but got `seed_everythin`. {}`seed_everything`?"),
        (" temperature", " temprature", "model.init_args.loss: Option 'temprature' is not accepted. {}`temperature`?"),
        ("batch_size", "batchsize", "data: Option 'batchsize' is not accepted. {}`batch_size`?"),
        ("methods.SimCLR", "methods.SimClr", "model: .* no attribute 'SimClrModule'. {}`.*methods.SimCLRModule`?"),
        ("geometry.methods.", "geometry.method.", "model: .* no attribute 'method'. {}`.*geometry.methods`?"),
        ("geometry.data.", "geometri.data.", "data: No module named .*. {}`lightning_ssl_geometry`?"),
        ("torch.optim.AdamW", "torch.optm.AdamW", "model.init_args.optimizer: .*optm'. {}`torch.optim`?"),
        ("class_path: torch.", "clas_path: torch.", "model.init_args.optimizer: .* got `clas_path`. {}`class_path`?"),
        ("data:\n(.*)\n  init_args:", "data:\n\\1\n  init_arg:", "data: .* but got `init_arg`. {}`init_args`?"),
    ],
)
def test_a_misspelt_word_of_a_file_is_one_line_with_the_key_the_nearest_word_and_the_file(
    tmp_path, capsys, right, wrong, line
):
    path = tmp_path / "x.yaml"
    path.write_text(re.sub(right, wrong, SMOKE.read_text(), count=1))
    (tmp_path / "other.yaml").write_text("trainer: {max_epochs: 1}\n")
    with pytest.raises(SystemExit, match="2"):
        main(["fit", "--config", str(path), "--config", str(tmp_path / "other.yaml")])
    (said,) = capsys.readouterr().err.splitlines()
    expected = line.format("Did you mean ").replace("?", r"\?")
    assert re.fullmatch(f"ssl-geometry: error: {expected}.* It is in {re.escape(str(path))}\\.", said), said


def test_a_misspelt_word_of_the_command_line_is_in_no_file(tmp_path, capsys):
    line = said(capsys, tmp_path, "--data.init_args.batchsize", "3")
    assert line == "data: Option 'batchsize' is not accepted. Did you mean `batch_size`?"


@pytest.mark.parametrize(
    ("loss", "line"),
    [
        (
            {"class_path": "InfoNCELos"},
            "Expected a dot import path string: InfoNCELos. .* Did you mean `{}.InfoNCELoss`\\?",
        ),
        (
            {"class_path": "{}.losses.InfoNCELos"},
            ".* has no attribute 'InfoNCELos'. Did you mean `{}.losses.InfoNCELoss`\\?",
        ),
        (
            {"init_args": {"temperature": 0.2}},
            "Expected a `class_path` before the argument `temperature`, but got none: name the class first.",
        ),
    ],
)
def test_a_class_that_is_misspelt_or_left_out(tmp_path, capsys, loss, line):
    package = "lightning_ssl_geometry"
    loss = {key: each.format(package) if isinstance(each, str) else each for key, each in loss.items()}
    config = put(yaml.safe_load(SMOKE.read_text()), "model.init_args.loss", loss)
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(config))
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        lightning_cli(["--config", str(tmp_path / "x.yaml")], run=False)
    expected = f"ssl-geometry: error: model.init_args.loss: {line.replace('{}', package)} It is in .*x.yaml.\n$"
    assert re.match(expected, capsys.readouterr().err)


def test_an_argument_of_a_loss_whose_class_no_file_names(tmp_path, capsys):
    config = yaml.safe_load(SMOKE.read_text())
    del config["model"]["init_args"]["loss"]
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(config))
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        lightning_cli(["--config", str(tmp_path / "x.yaml"), "--model.loss.init_args.temperature", "0.2"], run=False)
    said = "model.init_args.loss: Expected a `class_path` before the argument `temperature`"
    assert said in capsys.readouterr().err


class Picky(torch.optim.SGD):
    def __init__(self, params, lr=0.1):
        params = list(params)
        if len(params) < 2:
            raise ValueError("too few")
        super().__init__(params, lr)


def test_an_optimizer_with_a_taste_of_its_own_is_left_to_training():
    def found(class_path, **arguments):
        return optimizer_error({"model": {"optimizer": {"class_path": class_path, "init_args": arguments}}})

    sys.modules["test_cli_errors"] = sys.modules[__name__]
    assert found("test_cli_errors.Picky", lr=0.1) is None
    assert found("torch.optim.SGD", lr=0.1) is None
    key, error = found("torch.optim.SGD", lr=-0.1, momentum=0.9)
    assert key == "model.optimizer.init_args.lr"
    assert str(error) == "Invalid learning rate: -0.1"
    key, error = found("torch.optim.lr_scheduler.CosineAnnealingWarmRestarts", T_0=3, T_mult=0)
    assert key == "model.optimizer.init_args.T_mult"
    assert isinstance(error, ValueError)


class Broken(nn.Module):
    def forward(self, x):
        raise ValueError("not what the settings say")


@pytest.mark.filterwarnings("ignore")
def test_a_bug_keeps_its_traceback(tmp_path):
    where = ["--trainer.logger.init_args.save_dir", str(tmp_path)]
    network = ["--model.init_args.backbone", "test_cli_errors.Broken"]
    sys.modules["test_cli_errors"] = sys.modules[__name__]
    with pytest.raises(ValueError, match="not what the settings say"):
        main(["fit", "--config", str(SMOKE), *QUIET, *where, *network])


def test_a_traceback_can_be_asked_for(tmp_path):
    bad = ["fit", "--config", str(SMOKE), "--model.init_args.loss.init_args.temperature", "-1"]
    for debug, ending in {"false": 2, "true": 1}.items():
        ended = forked.run([*forked.COMMAND, *bad], tmp_path, os.environ | {"JSONARGPARSE_DEBUG": debug})
        assert ended.returncode == ending, ended.stderr
        assert ("Traceback" in ended.stderr) == (debug == "true")
        assert "Expected `temperature` > 0 and finite, but got -1.0." in ended.stderr
    assert "JSONARGPARSE_DEBUG" in forked.run([*forked.COMMAND, "--help"]).stdout


def test_a_message_of_the_parser_is_the_end_of_its_tree():
    message = """Parser key "trainer.callbacks":
  Does not validate against any of the Union subtypes
  Subtypes: [list[Callback], Callback, NoneType]
  Errors:
    - Expected a <class 'NoneType'>
    - Problem with given class_path 'package.Monitor':
        Parser key "size":
          Expected a <class 'int'>. Got value: x
  Given value type: <class 'list'>"""
    first = {"class_path": "package.Other", "init_args": {"size": "x"}}
    second = {"class_path": "package.Monitor", "init_args": {"size": "x"}}
    given = [{"trainer": {"callbacks": [first, second]}}]
    line = "trainer.callbacks.1.init_args.size: Expected a <class 'int'>. Got value: x."
    assert of_parser(message, given) == line
    assert of_parser(message, []) == "trainer.callbacks.Monitor.size: Expected a <class 'int'>. Got value: x."
    message = 'Parser key "trainer":\nUnable to load config "x"\n  - Parser key "trainer": Unable to load config "x"'
    assert of_parser(message, given).startswith('trainer: Unable to load config "x".')
    assert of_parser("neither a\n  tree", given) == "Neither a tree. See `ssl-geometry --help`."
    message = "Parser key \"model\":\n  Problem with given class_path 'nowhere.Module':\n    No module named 'nowhere'"
    assert of_parser(message, given) == "model.Module: No module named 'nowhere'."


def test_tensors_larger_than_the_memory_are_refused():
    with within_memory() as limit:
        assert torch.ones(3).sum() == 3
        limit.limit = 2**20
        with pytest.raises(ValueError, match=r"fit into 0 GiB of memory, but got one of shape \(1000, 1000\)"):
            nn.Linear(1000, 1000)


@pytest.mark.parametrize(
    ("content", "line"),
    {
        b"seed_everything: 0\n\tmodel: 1\n": r", line 2, column 1: Expected a YAML file, but found character",
        b"seed_everything: 0\ntrainer: [1\n": r", line 3, column 1: Expected a YAML file, but expected ','",
        b"seed_everything: *a\n": r", line 1, column 18: Expected a YAML file, but found undefined alias",
        b"a: 1\n---\nb: 2\n": ", line 2, column 1: Expected a YAML file, but found another document",
        b"hello": ": Expected a mapping with keys such as `model` and `data`, but got `hello`.",
        b"- a\n": ": Expected a mapping with keys such as `model` and `data`, but got a list.",
        b"a: 1\nb: {c: 1}\na: 2\n": ", line 3: Expected each key once, but `a` is also in line 1.",
        b"a: \xff": ": Expected a text file in UTF-8, but byte 3 is none of it.",
        b"a: \x07": ": Expected a YAML file, but ",
        b"a: " + b"[" * 10**4: ": Expected a YAML file, but its values are nested too deeply.",
        b"a: &a [*a]\n": ": Expected at most 100000 values, but its aliases stand for more.",
        b"a: 2001-99-99\n": ": Expected a YAML file, but month must be in 1..12",
        b"a: !!python/name:os.system x\n": ", line 1, column 4: Expected a YAML file, but could not determine",
        b"# nothing\n": ": Expected a mapping with keys such as `model` and `data`, but got no values.",
        b"model:\n": ": Expected a mapping with keys such as `model` and `data`, but got no values.",
    }.items(),
)
def test_a_config_that_is_no_yaml(tmp_path, capsys, content, line):
    (tmp_path / "x.yaml").write_bytes(content)
    found = said(capsys, tmp_path, "--config", str(tmp_path / "x.yaml"))
    assert found.startswith(str(tmp_path / "x.yaml"))
    assert re.match(line, found.removeprefix(str(tmp_path / "x.yaml"))), found


def test_a_config_without_data_is_asked_for_them(tmp_path, capsys):
    config = yaml.safe_load(SMOKE.read_text())
    (tmp_path / "x.yaml").write_text(yaml.safe_dump({"model": config["model"]}))
    with pytest.raises(SystemExit, match="2"):
        main(["fit", f"--config={tmp_path / 'x.yaml'}"])
    assert "error: Expected `data`, but got none: pass a file with --config FILE." in capsys.readouterr().err


def test_control_characters_of_a_setting_are_escaped(tmp_path, capsys):
    line = said(capsys, tmp_path, "--data.init_args.batch_size", "\u202e\x1b[31mmany")
    assert r"\u202e\x1b[31mmany" in line
