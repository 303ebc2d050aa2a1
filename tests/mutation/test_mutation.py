"""The tool that changes the package's source: which changes it makes, and which of them its children notice."""

import ast
import csv
import subprocess
import tempfile
from collections import Counter

import pytest
from mutation import mutate
from mutation.mutants import mutants, mutated
from scipy.stats import binomtest

SOURCE = '''"""Add 1."""
import warnings

WIDTH: "1" = 784


def scaled(x: "2" = 0, y: float = 0.5) -> "3":
    """Return 4 x."""
    if x < 1 and not y:
        raise ValueError(f"Expected `x` >= {1}, but got " + str(x - 1))
    warnings.warn("5 " + str(x), stacklevel=2)
    x += 1
    return max(x, y) * 2 - x.min(), True, "a" * 2
'''


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "scaled.py"
    path.write_text(SOURCE)
    return path


def test_each_number_and_operator_is_changed_once(source):
    changes = [(each.line, each.before, each.after) for each in mutants(source, "scaled.py")]
    assert sorted(changes) == [
        (4, "784", "785"),
        (7, "0", "1"),
        (7, "0.5", "1.0"),
        (9, "1", "2"),
        (9, "not y", "y"),
        (9, "x < 1", "x <= 1"),
        (9, "x < 1 and (not y)", "x < 1 or not y"),
        (12, "1", "2"),
        (12, "x += 1", "x -= 1"),
        (13, "2", "3"),
        (13, "2", "3"),
        (13, "max(x, y)", "min(x, y)"),
        (13, "max(x, y) * 2", "max(x, y) / 2"),
        (13, "max(x, y) * 2 - x.min()", "max(x, y) * 2 + x.min()"),
        (13, "x.min()", "x.max()"),
    ]


def test_a_mutant_differs_from_the_source_in_one_line(source):
    for each in mutants(source, "scaled.py"):
        before, after = (ast.unparse(tree).splitlines() for tree in (ast.parse(SOURCE), mutated(SOURCE, each)))
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_a_key_stays_when_other_lines_change(source):
    def keys():
        return {(m.key, m.before, m.after) for m in mutants(source, "scaled.py")}

    before = keys()
    assert len({key for key, *_ in before}) == len(before)
    source.write_text(SOURCE.replace("WIDTH", "\nSIDE = 3\nWIDTH"))
    assert len(keys() - before) == 1
    assert keys() > before


def test_the_interval_is_wilsons():
    for hits, total in ((0, 5), (19, 20), (950, 1000), (7, 7)):
        exact = binomtest(hits, total).proportion_ci(method="wilson")
        assert mutate.wilson(hits, total) == pytest.approx((exact.low, exact.high))


def test_a_larger_sample_has_the_smaller_one_in_it():
    each = mutate.every_mutant(["losses"])["losses"]
    places = [mutate.place(mutant, 0) for mutant in each]
    assert len(set(places)) == len(places)
    assert 0.3 < sum(place < 0.5 for place in places) / len(places) < 0.7
    assert places != [mutate.place(mutant, 1) for mutant in each]


def commit_all(folder):
    """Make a repository of a folder, with one commit."""
    person = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*person, "commit", "-q", "-m", "a"]):
        subprocess.run(["git", *command], cwd=folder, check=True)


def test_changed_lines_are_gits(tmp_path, monkeypatch):
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    file = tmp_path / mutate.PACKAGE / "a.py"
    file.parent.mkdir()
    file.write_text("a\nb\nc\nd\n")
    commit_all(tmp_path)
    file.write_text("a\nB\nc\nd\ne\nf\n")
    path = f"{mutate.PACKAGE}/a.py"
    assert mutate.changed_lines("HEAD") == {(path, 2), (path, 5), (path, 6)}


def test_every_mutant_that_cannot_be_killed_exists_and_has_a_reason():
    named = {(m.module, m.key): m for each in mutate.every_mutant(list(mutate.ROOMS)).values() for m in each}
    for key, row in mutate.equivalent().items():
        assert key in named, f"{row} is no mutant of the source: delete the line"
        assert (row["before"], row["after"]) == (named[key].before, named[key].after)
        assert len(row["reason"]) > 20, row
    with mutate.EQUIVALENT.open(newline="") as file:
        rows = [(row["module"], row["key"]) for row in csv.DictReader(file)]
    assert max(Counter(rows).values(), default=1) == 1


TINY = """
SIDE = 28


def area(side=SIDE):
    '''Return the area of a square.

    >>> area(2)
    4
    '''
    return side * side


def steps(n):
    while n != 0:
        n = n - 1
    return "done" if n == 0 else "never"
"""
TESTS = """
from tiny.shapes.area import area, steps


def test_area():
    assert area(3) == 9


def test_steps():
    assert steps(3) == "done"
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A package with two functions, and what `main` leaves in a file of results."""
    for path, text in (("tiny/shapes/area.py", TINY), ("tests/test_area.py", TESTS)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --doctest-modules --import-mode=importlib\n")
    settings = {"ROOT": tmp_path, "PACKAGE": "tiny", "ROOMS": {"shapes": ("tests",)}, "IMPORTED": "", "GRACE": 1}
    for name, value in settings.items():
        monkeypatch.setattr(mutate, name, value)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(*words):
        mutate.main(["--rooms", "shapes", "--results", str(tmp_path / "results.csv"), *words])
        with (tmp_path / "results.csv").open(newline="") as file:
            return [(row["before"], row["after"], row["outcome"]) for row in csv.DictReader(file)]

    return run


def test_a_failed_test_and_an_endless_loop_kill_a_mutant(tiny, capsys, tmp_path):
    assert sorted(tiny()) == [
        ("0", "1", "killed"),
        ("0", "1", "killed"),
        ("1", "2", "timeout"),
        ("28", "29", "survived"),
        ("n != 0", "n == 0", "killed"),
        ("n - 1", "n + 1", "timeout"),
        ("n == 0", "n != 0", "killed"),
        ("side * side", "side / side", "killed"),
    ]
    assert "| `shapes` | 8 | 8 | 0 | 7 | 87.5%" in capsys.readouterr().out
    assert (tmp_path / "tiny/shapes/area.py").read_text() == TINY


def test_a_second_start_runs_new_lines_and_survivors_only(tiny, tmp_path):
    first = tiny()
    assert tiny() == first
    source, test = tmp_path / "tiny/shapes/area.py", tmp_path / "tests/test_area.py"
    source.write_text(TINY.replace("side * side", "side * side - 0"))
    assert sorted(tiny()[len(first) :]) == [
        ("0", "1", "killed"),
        ("side * side", "side / side", "killed"),
        ("side * side - 0", "side * side + 0", "survived"),
    ]
    source.write_text(TINY)
    test.write_text(TESTS.replace("assert area(3)", "assert area() == 784 and area(3)"))
    assert tiny("--again")[len(first) + 3 :] == [("28", "29", "killed")]


def test_only_mutants_of_changed_lines_run(tiny, tmp_path):
    commit_all(tmp_path)
    source = tmp_path / "tiny/shapes/area.py"
    source.write_text(TINY.replace("side * side", "2 * side * side - side * side"))
    found = sorted(tiny("--changed", "HEAD"))
    assert [(before, after) for before, after, _ in found] == [
        ("2", "3"),
        ("2 * side", "2 / side"),
        ("2 * side * side", "2 * side / side"),
        ("2 * side * side - side * side", "2 * side * side + side * side"),
        ("side * side", "side / side"),
    ]
    assert {outcome for *_, outcome in found} <= {"killed", "timeout"}  # the latter on a busy machine


def test_unchanged_tests_run_again_after_a_change_of_what_they_call(tiny, tmp_path, monkeypatch):
    def observed(file, folder, original=mutate.observed):
        with (tmp_path / "observed").open("a") as log:
            print(file, file=log)
        original(file, folder)

    def files_run_after(path, text):
        (tmp_path / path).write_text(text)
        (tmp_path / "observed").write_text("")
        mutate.baseline(["shapes"], tmp_path / "cache.json", ["tiny/shapes/area.py"])
        return (tmp_path / "observed").read_text().split()

    monkeypatch.setattr(mutate, "observed", observed)
    (tmp_path / "tiny/paths.py").write_text("def length(n):\n    return n\n")
    paths = "from tiny.paths import length\n\n\ndef test_length():\n    assert length(3) == 3\n"
    every = ["tests/test_area.py", "tests/test_paths.py", "tiny/shapes/area.py"]
    assert files_run_after("tests/test_paths.py", paths) == every
    assert files_run_after("tests/test_paths.py", paths) == []
    assert files_run_after("tiny/paths.py", "def length(n):\n    return 1 * n\n") == []  # in no room
    assert files_run_after("tiny/shapes/unused.py", "SIDE = 2\n") == []
    assert files_run_after("tests/test_paths.py", paths + "\n") == ["tests/test_paths.py"]
    assert files_run_after("tiny/shapes/area.py", "\n" + TINY) == ["tests/test_area.py", "tiny/shapes/area.py"]
