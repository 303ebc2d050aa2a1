"""What a run of somebody else's may import: nothing without a word, and nothing in the place of what is installed."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from diagnose.test_diagnosis import write_images
from torch import nn

from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.diagnose import ModelSource, load_weights
from lightning_ssl_geometry.diagnose.trust import ask, foreign_names
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import SmallCNN

PLANTED = """
from pathlib import Path
from torch import nn
Path("imported").touch()
class Projector(nn.Linear):
    def __init__(self):
        super().__init__(32, 8)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run in the current folder whose projector is of a module beside it, which leaves a trace where imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "planted", raising=False)
    Path("planted.py").write_text(PLANTED)
    Path("run/checkpoints").mkdir(parents=True)
    backbone = {"class_path": "lightning_ssl_geometry.nn.SmallCNN", "init_args": {"in_channels": 3, "width": 4}}
    arguments = {"backbone": backbone, "projector": {"class_path": "planted.Projector"}}
    model = {"class_path": "lightning_ssl_geometry.methods.SimCLRModule", "init_args": arguments}
    Path("run/config.yaml").write_text(yaml.safe_dump({"model": model, "trainer": {"callbacks": "other.Thing"}}))
    module = SimCLRModule(SmallCNN(3, 4), nn.Linear(32, 8))
    torch.save({"state_dict": module.state_dict()}, "run/checkpoints/last.ckpt")
    write_images(tmp_path / "images")
    return tmp_path


def diagnose(*options):
    images = ["--images", "images", "--image_size", "12", "--accelerator", "cpu", "--progress", "false"]
    main(["diagnose", "run", *images, *options])


class Terminal:
    """Standard input or output at which somebody sits."""

    def __init__(self, stream):
        self.stream = stream

    def isatty(self):
        return True

    def __getattr__(self, name):
        return getattr(self.stream, name)


@pytest.fixture
def answered(monkeypatch):
    """Answer a question at a terminal; the questions that were asked."""

    def answer(word):
        asked = []
        monkeypatch.setattr(sys, "stdin", Terminal(sys.stdin))
        monkeypatch.setattr(sys, "stdout", Terminal(sys.stdout))
        monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or word)
        return asked

    return answer


def test_without_a_terminal_foreign_classes_are_named_and_not_imported(run, capsys):
    with pytest.raises(SystemExit) as ended:
        diagnose()
    assert ended.value.code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ssl-geometry: error: ")]
    said = "Expected --trust, as run/config.yaml names planted.Projector, which would be imported and run, but got none"
    assert said in line
    assert not (run / "imported").exists()


def test_with_trust_they_are_built_unasked(run):
    diagnose("--trust")
    assert (run / "imported").exists()
    assert (run / "runs/diagnosis/run/version_0/report.html").exists()


def test_at_a_terminal_no_is_no(run, answered, capsys):
    asked = answered("")
    with pytest.raises(SystemExit):
        diagnose()
    said = capsys.readouterr()
    assert asked == ["Do you trust whoever wrote the run? [y/N] "]
    assert "run/config.yaml names planted.Projector. To build the network, these are imported and run" in said.out
    assert "Expected your trust, as run/config.yaml names planted.Projector, but the answer was no" in said.err
    assert not (run / "imported").exists()


def test_at_a_terminal_yes_is_yes_for_all_processes(run, answered, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["ssl-geometry", "diagnose", "run"])
    answered("y")
    ask(Path("run/config.yaml"), trust=False)
    assert sys.argv == ["ssl-geometry", "diagnose", "run", "--trust"]


def test_trust_is_given_on_the_command_line_alone(run, capsys):
    Path("mine.yaml").write_text("run: run\ntrust: true\n")
    with pytest.raises(SystemExit):
        main(["diagnose", "mine.yaml", "--images", "images", "--image_size", "12"])
    assert "Expected --trust on the command line alone, but got it in a file." in capsys.readouterr().err
    assert not (run / "imported").exists()


def test_a_run_in_a_comparison_is_asked_for_too(run, capsys):
    images = ["--images", "images", "--image_size", "12"]
    Path("mine.yaml").write_text("run: run\n")
    for what in ("run", "mine.yaml"):
        with pytest.raises(SystemExit):
            main(["diagnose", "--compare", f"a={what}", "b=timm:resnet10t", "--pretrained", "false", *images])
        assert "Expected --trust, as run/config.yaml names planted.Projector" in capsys.readouterr().err
    assert not (run / "imported").exists()


@pytest.mark.parametrize(
    ("held", "names"),
    [
        ({"class_path": "torch.nn.Linear", "init_args": {"bias": True}}, []),
        ({"class_path": "torchvision.models.ResNet"}, []),
        ({"class_path": "timm.create_model"}, []),
        ({"class_path": "torch.optim.AdamW"}, []),
        ({"class_path": "lightning_ssl_geometry.nn.SmallCNN"}, []),
        ({"class_path": "torch.nn.NoSuchClass"}, []),
        ({"class_path": "SmallCNN"}, []),
        ({"root": "/data/photos.v2/train", "lr": 0.1, "none": None, "size": [1, "2.5"]}, []),
        ({"train": "/x/planted.npy", "test": "planted.npz:x", "val": "../planted.npy"}, []),
        ({"train": "arrays.npy", "test": "arrays.npz"}, []),
        ({"a": "{'class_path':\t'planted.Projector'}"}, ["planted.Projector"]),
        ({"class_path": "planted.Projector"}, ["planted.Projector"]),
        ({"class_path": "not_there.Projector"}, []),
        ("planted.Projector", ["planted.Projector"]),
        ({"a": [{"b": "planted.f"}, {"c": " planted.f "}]}, ["planted.f"]),
        ({"a": "class_path: planted.Projector"}, ["planted.Projector"]),
        ({"a": '{"class_path": "pl\\u0061nted.Projector"}'}, ["planted.Projector"]),
        ({"a": "inner.yaml"}, ["inner.yaml"]),
        ({"class_path": "torchvision.datasets.utils.os.system"}, ["torchvision.datasets.utils.os.system"]),
        ({"a": "torch.nn.functional.importlib.import_module"}, ["torch.nn.functional.importlib.import_module"]),
        ({"a": "torch.nnn.Linear"}, ["torch.nnn.Linear"]),
        ({"a": "os.system"}, ["os.system"]),
    ],
    ids=str,
)
def test_what_a_config_would_import(run, held, names):
    (run / "inner.yaml").write_text("class_path: planted.Projector\n")
    np.save("arrays.npy", np.zeros(2))
    np.savez("arrays.npz", x=np.zeros(2))
    assert foreign_names(held) == names
    assert not (run / "imported").exists()


def nested(levels):
    held = "x"
    for _ in range(levels):
        held = {"a": held}
    return held


def test_a_config_that_is_too_deep():
    with pytest.raises(ValueError, match="Expected a config of at most 50 levels, but got more"):
        foreign_names(nested(60))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model: !!python/object/apply:os.system [touch ran]", r"a Python object \(!!python/object/apply:os.system\)"),
        ("model: [", "but it is none: while parsing"),
        ("[" * 20_000, "but it is nested too deeply"),
        ("- a\n", "to hold options, but it holds a list"),
    ],
)
@pytest.mark.parametrize("trust", [[], ["--trust"]])
def test_a_config_that_is_no_plain_yaml_is_one_line(run, capsys, text, said, trust):
    Path("run/config.yaml").write_text(text)
    with pytest.raises(ValueError, match=said):
        ModelSource(run="run").load()
    with pytest.raises(SystemExit):
        diagnose(*trust)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ssl-geometry: error: ")]
    assert "run/config.yaml" in line
    assert not (run / "ran").exists()


class Runs:
    def __reduce__(self):
        return os.system, ("touch ran",)


@pytest.mark.parametrize(
    ("held", "name"), [(Runs(), "posix.system"), (nn.Linear(1, 1), "torch.nn.modules.linear.Linear")], ids=["a", "b"]
)
def test_a_refused_pickle_is_called_one(run, held, name):
    torch.save({"state_dict": {}, "more": held}, "run/checkpoints/last.ckpt")
    said = f"run/checkpoints/last.ckpt to load with weights_only=True, but it holds {name}, which is no tensor"
    with pytest.raises(ValueError, match=said) as refused:
        load_weights(nn.Linear(1, 1), "run/checkpoints/last.ckpt")
    message = str(refused.value)
    assert "the file is a pickle of Python objects beyond tensors" in message
    assert "load it in Python with weights_only=False and save its `state_dict` alone" in message
    assert "\n" not in message
    assert not (run / "ran").exists()


@pytest.mark.parametrize("way", ["module", "script"])
def test_what_is_installed_comes_before_the_current_folder(tmp_path, way):
    for name in ("sklearn", "numpy", "torch", "yaml", "lightning", "timm"):
        (tmp_path / f"{name}.py").write_text(f"open('ran_{name}', 'w')\n")
    (tmp_path / "mine.py").write_text("import sklearn\nfrom torch import nn\nclass Net(nn.Flatten):\n    pass\n")
    script = tmp_path / "bin" / "ssl-geometry"
    script.parent.mkdir()
    script.write_text("from lightning_ssl_geometry.cli import main\nmain()\n")
    start = ["-m", "lightning_ssl_geometry"] if way == "module" else [str(script)]
    command = [sys.executable, *start, "diagnose", "--model", "mine.Net", "--images", "none", "--image_size", "8"]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": root})
    assert "`images` to be a folder, but there is none at" in done.stderr, done.stderr  # the class was found
    assert list(tmp_path.glob("ran_*")) == []
