"""The README keeps its word: its commands are those that are run, and its Python runs."""

import re
from pathlib import Path

import documents
import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return documents.blocks(README, language)


def test_the_second_command_is_the_one_that_ci_runs():
    (command,) = [line for line in blocks("sh")[1].splitlines() if not line.startswith("#")]
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_files_that_it_names_exist():
    for path in re.findall(r"(?<![\w/])(?:examples|benchmarks|docs)/[\w/.]+", README):
        assert (ROOT / path.rstrip(".")).exists(), path


@pytest.mark.filterwarnings("ignore")  # Lightning's advice to users: loggers, workers, logging intervals
def test_the_python_blocks_run_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks("python"):
        exec(block, names)
    assert "train/effective_rank_h" in names["trainer"].callback_metrics
