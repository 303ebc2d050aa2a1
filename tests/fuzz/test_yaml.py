"""Changed configs end in a step of training, or in one line that names the key."""

import os
import re
import shutil
import sys
import warnings

import lightning as L
import pytest
import yaml
from fuzzing import Failures, chance, numbers, outcome
from mutated_yaml import mutation
from recipes import BASES, EXAMPLES

from lightning_ssl_geometry.cli import lightning_cli, main
from lightning_ssl_geometry.start import RunCLI

# A sweep of Weights & Biases is no config; the package escnn is mostly not installed.
CONFIGS = sorted(path for path in EXAMPLES.rglob("*.yaml") if path.stem not in ("sweep", "escnn"))


def stem(path):
    return path.relative_to(EXAMPLES).with_suffix("").as_posix()


def before(path):
    """The config that another one changes, or none if it is whole."""
    held = yaml.safe_load(path.read_text())
    if path not in BASES and all("class_path" in held.get(key, {}) for key in ("model", "data")):
        return []
    return [BASES.get(path, path.with_name("laptop.yaml"))]


def text_of(path):
    """The text of a config, for a machine without a GPU."""
    return path.read_text().replace("accelerator: gpu", "accelerator: cpu")


def offline(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise AssertionError(f"{event} {arguments}")


class EndAfterStep(L.Callback):
    def on_train_batch_end(self, *_):
        sys.stdout.flush()
        os._exit(0)


def started(folder, configs, fits):
    """Train one step, or only build the objects: the data of most configs are not in the repository."""
    os.chdir(folder)
    sys.addaudithook(offline)
    checked = RunCLI.before_fit

    def before_fit(cli):
        cli.trainer.callbacks.append(EndAfterStep())
        checked(cli)

    RunCLI.before_fit = before_fit
    words = [word for path in configs for word in ("--config", str(path))]
    if fits:
        main(["fit", *words])
    else:
        lightning_cli(words, run=False)


def reason(found, case, path):
    """What is wrong with an outcome, or None."""
    lines = found.err.splitlines()
    said = [line for line in lines if line.startswith("ssl-geometry: error: ")]
    if found.status == 0:
        return "accepted in silence" if case.refused else None
    if found.status != 2 or len(said) != 1 or "Traceback" in found.err:
        return f"status {found.status}\n  " + "\n  ".join([*lines[:2], "...", *lines[-6:]])
    line = said[0].removeprefix("ssl-geometry: error: ")
    if len(line) > 1000 or not line.isprintable():
        return f"too long, or with control characters: {line!r}"
    named = re.match(r"(seed_everything|trainer|model|data|ckpt_path|optimizer|lr_scheduler)\b[\w.]*: ", line)
    keys = [part for part in case.path or () if isinstance(part, str)]
    of_file = case.path is None or not yaml.safe_load(case.text)  # all was deleted
    words = [path.name, "`data`", "`model`"] if of_file else keys[-2:]
    if named or any(word in line for word in words):
        return None
    return f"names no key: {line}"


@pytest.mark.parametrize("path", CONFIGS, ids=stem)
def test_a_changed_config_trains_a_step_or_ends_in_one_line(path, tmp_path, monkeypatch, request):
    failures, fits = Failures(request), path.stem == "smoke"
    monkeypatch.chdir(tmp_path)
    imported_by(path, tmp_path / path.name)
    for number in numbers():
        folder = tmp_path / str(number)
        folder.mkdir()
        case = mutation(chance(stem(path), number), text_of(path))
        changed = folder / path.name
        changed.write_text(case.text)
        found = outcome(started, folder, [*before(path), changed], fits)
        if wrong := reason(found, case, changed):
            failures.add(number, case.said, wrong)
        shutil.rmtree(folder)
    failures.check()


def imported_by(path, copy):
    """Start the config itself: it works, and what it imports is there when the children are forked."""
    copy.write_text(text_of(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lightning_cli([word for each in [*before(path), copy] for word in ("--config", str(each))], run=False)
