"""The table of docs/functional.md has every public name of `functional`, as the docstrings describe it."""

import importlib.util
import re
from pathlib import Path

import pytest

from lightning_ssl_geometry import functional

ROOT = Path(__file__).parents[1]


def module():
    spec = importlib.util.spec_from_file_location("equations", ROOT / "docs" / "equations.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


equations = module()
PAGE = (ROOT / "docs" / "functional.md").read_text()


def test_the_page_is_as_the_docstrings_say():
    assert equations.with_table(PAGE) == PAGE, "python docs/equations.py --write"


def test_every_public_name_has_a_row_of_four_columns():
    rows = [line for line in PAGE.splitlines() if line.startswith("| {obj}")]
    assert [re.search(r"functional\.(\w+)>", line)[1] for line in rows] == functional.__all__
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows} == {5}
    assert all(line.split(" | ")[1].strip() for line in rows)


def test_no_cell_ends_inside_brackets_or_a_name():
    for line in PAGE.splitlines():
        if line.startswith("| {obj}"):
            said, shapes = re.sub(r"\{math\}`[^`]*`", "", line.split(" | ")[1]), line.split(" | ")[2]
            assert not any(re.search(r"\([^)\]]*$", each) for each in (said, shapes)), line
            assert not said.strip().endswith("et al."), line


def example(h, z, a, b, network, other):
    r"""Measure something of h, by Wang et al. (2020). Other sentences are not in the table.

    .. math:: \|h\|
        = 1

    As Wang & Isola 2020 have it. The views are `a` and `b` (N, P).

    Args:
        h: Rows, (N, D).
        z: (N, P).
        network: f, in eval mode, maps (N, ...) to (N, d).
        other: g, (N, D) -> (N, P).

    Returns:
        A scalar.
    """


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (2, r"Measure something of h, by Wang et al. (2020). {math}`\Vert h\Vert = 1`"),
        (3, "`h` (N, D), `z` (N, P), `a` (N, P), `b` (N, P), returns a scalar"),
        (4, "[Wang & Isola 2020](https://arxiv.org/abs/2005.10242)"),
    ],
)
def test_a_row_is_read_from_the_docstring(column, expected):
    assert equations.row("example", example).split(" | ")[column - 1].rstrip(" |") == expected
