"""The helps of `ssl-geometry` and of its commands: what they import, and what they say."""

import argparse
import json
import subprocess
import sys

import pytest

from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.commands import COMMANDS
from lightning_ssl_geometry.diagnose import ModelSource, command
from lightning_ssl_geometry.diagnose_options import IMAGES, NETWORK, REST

HEAVY = ("torch", "lightning", "torchmetrics", "jsonargparse", "matplotlib", "numpy", "rich", "yaml", "timm", "sklearn")
LIGHT = {
    "--version": 0,
    "--help": 0,
    "-h": 0,
    **{f"{name} --help": 0 for name in COMMANDS},
    "fit --config x.yaml -h": 0,
    "init": 0,
    "": 2,
    "ftt": 2,
    "--versio": 2,
    "report": 2,
    "report run --outp page": 2,
    "describe --al": 2,
    "init zzz": 2,
}
ENDED = """
import json, sys
from lightning_ssl_geometry.cli import main
status = 0
try:
    main(sys.argv[1:])
except SystemExit as ended:
    status = ended.code or 0
print(json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


@pytest.mark.parametrize("words", LIGHT)
def test_it_answers_without_importing_anything_heavy(words):
    done = subprocess.run([sys.executable, "-c", ENDED, *words.split()], capture_output=True, text=True, check=True)
    *shown, last = done.stdout.splitlines()
    status, modules = json.loads(last)
    assert status == LIGHT[words]
    assert set(HEAVY) & set(modules) == set()
    if status:
        (line,) = done.stderr.splitlines()
        assert line.startswith("ssl-geometry: error: Expected ") or "required" in line
        assert line.endswith(("--help`.", "lists all recipes."))
    else:
        assert shown


@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_says_how_the_command_is_called(name, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: ssl-geometry {name} ")


@pytest.mark.parametrize(
    ("wrong", "meant"), [("reprot", "report"), ("diagnos", "diagnose"), ("FIT", "fit"), ("tets", "test")]
)
def test_a_misspelt_command_is_answered_with_the_near_one(wrong, meant, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([wrong])
    expected = f"Expected a command, but got `{wrong}`. Did you mean `{meant}`? See `ssl-geometry --help`."
    assert capsys.readouterr().err == f"ssl-geometry: error: {expected}\n"


def test_the_options_of_diagnose_for_the_network_are_the_arguments_of_a_source():
    assert {option.name for option in NETWORK} == ModelSource.__dataclass_fields__.keys()
    made, parsed = ModelSource(timm="x"), command._parser().get_defaults()
    assert {name: parsed[name] for name in ModelSource.__dataclass_fields__} == vars(made) | {"timm": None}


def test_the_help_of_diagnose_has_the_options_and_the_defaults_of_its_parser(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["diagnose", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for option in (*NETWORK, *IMAGES, *REST):
        assert f"--{option.name} " in shown
    for default in (
        "weights of --timm; true by",
        "is removed from the keys --ignore",
        "classifier on the training set; f",
    ):
        assert default in shown


@pytest.mark.parametrize("name", ["fit", "predict"])
def test_all_keys_are_a_flag_away(name, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help_all"])
    shown = capsys.readouterr().out
    for key in ("--trainer.max_epochs", "--ckpt_path", "--model", "--data", "--print_config"):
        assert key in shown


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("describe zzz", ValueError),
        ("init zzz", ValueError),
        ("report zzz", (ValueError, OSError)),
        ("card zzz", (ValueError, OSError)),
        ("report --outp x", argparse.ArgumentError),
    ],
)
def test_every_command_shows_the_traceback_on_demand(words, error, monkeypatch):
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    monkeypatch.setenv("JSONARGPARSE_DEBUG", "true")
    with pytest.raises(error):
        main(words.split())
