import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from lightning_ssl_geometry import __version__
from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.commands import COMMANDS

SMOKE = str(Path(__file__).parents[1] / "examples" / "simclr" / "smoke.yaml")
QUIET = ["--trainer.callbacks", "[]", "--trainer.enable_progress_bar", "false", "--trainer.accelerator", "cpu"]


def smoke(folder, *arguments):
    return ["fit", "--config", SMOKE, "--trainer.logger.init_args.save_dir", str(folder), *arguments]


def test_version_and_help(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert __version__ in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"\n  {name}" in shown
        assert command.summary in shown


READ = {
    "init": (["init"], 141),
    "help": (["--help"], 0),
    "diagnose": (["diagnose", "--help"], 0),
}


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", READ)
def test_a_reader_that_stops_reading_ends_the_command_in_silence(command, unbuffered):
    arguments, status = READ[command]
    ends_in_silence(arguments, status, unbuffered)


def test_a_reader_that_stops_reading_a_table_of_rich_ends_the_command_in_silence():
    ends_in_silence(["describe", "UpperBound"], 141)  # rich has its own answer to a broken pipe, after every flush


def ends_in_silence(arguments, status, unbuffered=""):
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "lightning_ssl_geometry", *arguments],
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert (ended.returncode, ended.stderr) == (status, "")


def test_another_pipe_that_breaks_is_an_error(monkeypatch):
    def broken():
        raise BrokenPipeError("of a logger")

    monkeypatch.setattr("lightning_ssl_geometry.describe.table", broken)
    with pytest.raises(BrokenPipeError, match="of a logger"):
        main(["describe"])


def test_ctrl_c_ends_a_command_with_one_line(monkeypatch, capsys):
    def interrupted(name, args):
        raise KeyboardInterrupt

    monkeypatch.setattr("lightning_ssl_geometry.commands.choose.run", interrupted)
    monkeypatch.setattr(sys, "argv", ["ssl-geometry", "choose", "one", "another"])
    with pytest.raises(SystemExit, match="130"):
        main()
    assert capsys.readouterr().err == "Interrupted.\n"
    with pytest.raises(KeyboardInterrupt):
        main(["choose", "one", "another"])  # Python's callers decide themselves


def test_print_config_is_a_config(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["fit", "--config", SMOKE, "--print_config"])
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["model"]["class_path"] == "lightning_ssl_geometry.methods.SimCLRModule"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("max_epochs: 2", "max_epoch: 2"),
        ("projector:", "projektor:"),
        ("strength: moderate", "strenght: moderate"),
        ("every_n_steps: 2", "every_n_step: 2"),
        ("every_n_steps: 2", "view_layouts: calls"),
        ("batch_size: 64", "batch_size: many"),
        ("methods.SimCLRModule", "methods.SimClrModule"),
    ],
)
def test_a_misspelt_key_fails_and_is_named(tmp_path, capsys, right, wrong):
    text = Path(SMOKE).read_text()
    assert right in text
    (tmp_path / "x.yaml").write_text(text.replace(right, wrong))
    with pytest.raises(SystemExit, match="2"):
        main(["fit", "--config", str(tmp_path / "x.yaml")])
    assert wrong.split(":")[0].split(".")[-1] in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_validate_test_and_predict_from_a_checkpoint(tmp_path, capsys):
    main(smoke(tmp_path, *QUIET, "--trainer.max_epochs", "1"))
    run = tmp_path / "simclr_smoke" / "version_0"
    (checkpoint,) = run.rglob("*.ckpt")
    assert torch.load(checkpoint, weights_only=True)["ssl_geometry_class"] == "SimCLRModule"
    for command in ("validate", "test", "predict"):
        main([command, *smoke(tmp_path, *QUIET)[1:], "--ckpt_path", str(checkpoint)])
    (path,) = tmp_path.rglob("embeddings.npz")
    assert path.parent.parent == run.parent
    assert f"The embeddings of 359 samples: {path}\n" in capsys.readouterr().out
    with np.load(path) as found:
        rows = {name: len(found[name]) for name in found}
    assert rows == dict.fromkeys(["index", "h", "z", "label"], 359)


def test_report_of_a_run_and_of_no_run(tmp_path, capsys):
    main(smoke(tmp_path, *QUIET, "--trainer.max_epochs", "1"))
    main(["report", str(tmp_path / "simclr_smoke" / "version_0")])
    page = tmp_path / "simclr_smoke" / "version_0" / "report.html"
    assert page.exists()
    assert str(page) in capsys.readouterr().out.replace("\n", "")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="2"):
        main(["report", str(tmp_path / "empty")])
    assert "empty" in capsys.readouterr().err


def test_an_interrupted_fit_leaves_a_checkpoint_and_readable_logs(tmp_path):
    command = [*forked.COMMAND, *smoke(tmp_path, "--trainer.max_epochs", "10000")]
    environment = os.environ | {"COLUMNS": "200", "TERM": "dumb"}
    run, printed = tmp_path / "simclr_smoke" / "version_0", tmp_path / "printed"
    process = forked.start(command, stdout=printed, stderr=printed, environment=environment)
    try:
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline and process.is_alive():
            if (run / "metrics.csv").exists() and "val/loss" in (run / "metrics.csv").read_text():
                break
            time.sleep(0.2)
        os.kill(process.pid, signal.SIGINT)
        process.join(100)
    finally:
        process.kill()
        process.join()
    printed = (tmp_path / "printed").read_text()
    metrics = pd.read_csv(run / "metrics.csv")
    assert metrics["val/loss"].notna().any(), printed
    assert torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] > 0
    assert '"status": "interrupted"' in (run / "run.json").read_text()
    assert (run / "report.html").exists()
    assert "The page of this run" in printed
