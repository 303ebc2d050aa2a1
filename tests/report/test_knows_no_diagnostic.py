"""The page is made from what a run declares: no name of a diagnostic, a method or a probe stands in its code."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from jinja2 import Environment, nodes

from lightning_ssl_geometry import callbacks, diagnostics, methods, report

ROOM = Path(report.__file__).parent
FILES = sorted([*ROOM.glob("*.py"), *ROOM.glob("*.j2")])
VOCABULARY = {  # of files, tables and pictures; some diagnostic calls a result so, too
    *("first", "last", "layer", "mean", "step"),  # columns
    *("accuracy", "learned", "pixels", "uniform"),  # in linear_evaluation.csv
    *("histogram", "label", "sample", "spectrum", "style", "z"),  # in figures
    *("tau", "temperature"),  # a column of the scores of many models, and a setting in which models may differ
}


def names():
    """Classes that declare quantities, and what they log: {class}, {snake}, {key} and {snake}_{key}."""
    for room in (diagnostics, methods, callbacks):
        for name in room.__all__:
            kind = getattr(room, name)
            if inspect.isclass(kind) and (keys := getattr(kind, "quantities", {})):
                snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
                yield from (name, snake, *filter(None, keys), *(f"{snake}_{key}" for key in keys if key))


def literals(path):
    """All texts in code and in expressions of a template; docstrings and the template's own text are prose."""
    if path.suffix == ".j2":
        found = Environment().parse(path.read_text()).find_all(nodes.Const)
        return [const.value for const in found if isinstance(const.value, str)]
    tree = ast.parse(path.read_text())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in prose]
    return [node.value for node in found if isinstance(node.value, str)]


NAMES = set(names())


def known(path):
    """Names of diagnostics among the texts of a file, but those of files: whole texts, and words that are no prose."""
    for text in (re.sub(r"\w+\.csv", "", each) for each in literals(path)):
        words = {word for word in re.findall(r"\w+", text) if "_" in word or re.search(r"[a-z][A-Z]", word)}
        yield from NAMES & (words | {text})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_text_is_the_name_of_a_diagnostic(path):
    assert set(known(path)) <= VOCABULARY


def test_the_vocabulary_holds_nothing_superfluous():
    assert {word for path in FILES for word in known(path)} == VOCABULARY
    assert not [word for word in VOCABULARY if "_" in word]


def test_a_name_would_be_found(tmp_path):
    assert sorted(path.name for path in FILES if path.suffix == ".j2") == ["model_card.md.j2", "page.html.j2"]
    code = "def f():\n    'CKADrift'\n    return 'LiDAR', f'val/effective_rank', 'linear_probe.csv'"
    (tmp_path / "a.py").write_text(code)
    assert sorted(known(tmp_path / "a.py")) == ["LiDAR", "effective_rank"]
    (tmp_path / "a.j2").write_text("Alignment {% if name == 'linear_probe' %}effective_rank{% endif %}")
    assert set(known(tmp_path / "a.j2")) == {"linear_probe"}
