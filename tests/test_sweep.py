"""The commands of the sweep and of the SLURM job in examples/, without a server or a cluster."""

import itertools
import os
import re
import subprocess
from pathlib import Path

import lightning as L
import pytest
import yaml

from lightning_ssl_geometry.cli import lightning_cli, main

ROOT = Path(__file__).parents[1]
SWEEP = yaml.safe_load((ROOT / "examples" / "sweep.yaml").read_text())
JOB = ROOT / "examples" / "slurm" / "fit.sbatch"
RECIPE = "examples/simclr/laptop.yaml"


def choice(**chosen):
    """The command line that wandb's agent makes of a choice."""
    from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args

    arguments = create_sweep_command_args({"args": {name: {"value": value} for name, value in chosen.items()}})
    words = [arguments["args"] if word == "${args}" else [word] for word in create_sweep_command(SWEEP["command"][:])]
    return list(itertools.chain.from_iterable(words))


def ends(parameter):
    return [parameter["min"], parameter["max"]] if "min" in parameter else parameter["values"]


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_the_agents_command_is_ours():
    command = choice(**{"data.init_args.views.init_args.strength": "large"})
    assert command[:2] == ["ssl-geometry", "fit"]
    assert command[-1] == "--data.init_args.views.init_args.strength=large"
    assert all(Path(word).exists() for word in command if word.endswith(".yaml"))
    assert SWEEP["method"] in ("bayes", "random", "grid")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_every_value_of_every_parameter_arrives(place):
    chosen = {name: ends(parameter)[place % len(ends(parameter))] for name, parameter in SWEEP["parameters"].items()}
    config = lightning_cli(choice(**chosen)[2:], run=False).config
    for name, value in chosen.items():
        found = config
        for key in name.split("."):
            found = found[key]
        assert found == value


def test_a_path_that_does_not_exist_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        lightning_cli(choice(**{"model.init_args.projector.init_args.deepness": 2})[2:], run=False)
    assert "deepness" in capsys.readouterr().err


def test_a_choice_runs_and_logs_the_sweeps_metric():
    _, *words = choice(**{name: ends(parameter)[-1] for name, parameter in SWEEP["parameters"].items()})
    quiet = ["--trainer.fast_dev_run=true", "--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false"]
    small = ["--trainer.callbacks=[]", "--trainer.callbacks+=lightning_ssl_geometry.callbacks.LinearProbe"]
    monitor = ["--trainer.callbacks+=lightning_ssl_geometry.callbacks.GeometryMonitor"]
    logged = lightning_cli([*words, *quiet, *small, *monitor]).trainer.callback_metrics
    assert {SWEEP["metric"]["name"], "val/effective_rank_h"} <= logged.keys()


def directives():
    return dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", JOB.read_text(), re.MULTILINE))


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Run the job with a stand-in for srun: the words that it was given."""
    given = directives()
    srun = tmp_path / "srun"
    srun.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" > {tmp_path}/words\nenv > {tmp_path}/env\n')
    srun.chmod(0o755)
    slurm = {
        "SLURM_JOB_ID": "4217",
        "SLURM_JOB_NAME": given["job-name"],
        "SLURM_NNODES": given["nodes"],
        "SLURM_NTASKS_PER_NODE": given["ntasks-per-node"],
        "SLURM_NTASKS": str(int(given["nodes"]) * int(given["ntasks-per-node"])),
        **{name: "0" for name in ("SLURM_NODEID", "SLURM_LOCALID", "SLURM_PROCID")},
        "SLURM_CPUS_PER_TASK": given["cpus-per-task"],
    }
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)

    def start(*arguments):
        path = f"{tmp_path}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", JOB, *arguments], capture_output=True, text=True, env=os.environ | {"PATH": path}
        )
        assert done.returncode == 0, done.stderr
        return (tmp_path / "words").read_text().splitlines()

    return start


def test_the_jobs_directives_agree():
    given = directives()
    assert subprocess.run(["bash", "-n", JOB]).returncode == 0
    assert given["ntasks-per-node"] == given["gpus-per-node"]
    assert given["signal"] == "SIGUSR1@90"
    assert "requeue" in given
    assert given["job-name"] not in ("bash", "interactive")


def test_the_job_starts_the_same_recipe_and_its_arguments_parse(job, capsys):
    words = job(RECIPE, "--data.init_args.batch_size=64")
    assert words[:2] == ["ssl-geometry", "fit"]
    with pytest.raises(SystemExit, match="0"):
        main([*words[1:], "--print_config"])
    config = yaml.safe_load(capsys.readouterr().out)
    trainer, recipe = config["trainer"], yaml.safe_load(Path(RECIPE).read_text())
    assert (trainer["num_nodes"], trainer["devices"], trainer["accelerator"]) == (2, "4", "gpu")
    assert trainer["default_root_dir"] == "runs/slurm-4217"
    assert config["model"]["class_path"] == recipe["model"]["class_path"]
    assert config["data"]["init_args"]["batch_size"] == 64
    with pytest.raises(AssertionError, match=r"usage: sbatch .* RECIPE\.yaml"):
        job()


def test_lightning_takes_the_jobs_processes_for_slurms(job):
    words = dict(word.split("=") for word in job(RECIPE) if word.startswith("--trainer."))
    nodes, devices = int(words["--trainer.num_nodes"]), int(words["--trainer.devices"])
    trainer = L.Trainer(accelerator="cpu", strategy="ddp", num_nodes=nodes, devices=devices, logger=False)
    slurm = trainer._accelerator_connector.cluster_environment
    assert (type(slurm).__name__, slurm.auto_requeue) == ("SLURMEnvironment", True)
    slurm.validate_settings(num_devices=devices, num_nodes=nodes)  # as Lightning does at the start
    with pytest.raises(ValueError, match="does not match"):
        slurm.validate_settings(num_devices=devices - 1, num_nodes=nodes)
    assert trainer.world_size == int(os.environ["SLURM_NTASKS"])
