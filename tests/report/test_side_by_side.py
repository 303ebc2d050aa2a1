"""The comparison in the terminal: one table, with a column for each model and a row for each number."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import declare, entry, write_csv, write_info, write_log
from rich.console import Console

from lightning_ssl_geometry.report.side_by_side import comparison_tables, distinct

NUMBERS = {"rank": entry("Rank", of="Rank"), "acc": entry("Accuracy", of="Probe", percent=True, headline=True)}
NUMBERS |= {"hidden": entry("Setting", of="Probe", key="hidden", shown=False)}


def write_model(folder, **values):
    write_log(folder, **{f"test__{name}": [value] for name, value in values.items()})
    write_info(folder, kind="diagnosis")
    return declare(folder, **{f"test__{name}": NUMBERS[name] for name in values})


def printed(groups, width):
    console = Console(width=width, record=True, file=io.StringIO())
    tables = comparison_tables(groups, width)
    for table in tables:
        console.print(table)
    return console.export_text().splitlines(), tables


def test_rows_are_numbers_and_columns_are_models(tmp_path):
    groups = {
        "small": [write_model(tmp_path / "a", rank=4.25, acc=0.5, hidden=3.0)],
        "large": [write_model(tmp_path / "b", rank=8.5, acc=0.75)],
        "other": [write_model(tmp_path / "c", acc=0.25)],
    }
    rows = [["pixels", "all", 0.4], ["trained", "all", 0.9]]
    write_csv(tmp_path / "b" / "linear_evaluation.csv", ["features", "labels_per_class", "accuracy"], rows)
    lines, tables = printed(groups, 100)
    assert len(tables) == 1
    cells = [line.split() for line in lines if line.strip()]
    assert ["small", "large", "other"] in cells
    assert ["test/rank", "4.25", "8.50", "\N{EN DASH}"] in cells
    assert ["test/acc", "50.0%", "75.0%", "25.0%"] in cells
    assert any(line[-3:] == ["\N{EN DASH}", "90.0%", "\N{EN DASH}"] for line in cells)
    assert "hidden" not in "\n".join(lines)  # a setting


def test_several_runs_of_a_model_are_a_mean_with_its_deviation(tmp_path):
    runs = [write_model(tmp_path / f"{seed}", rank=value) for seed, value in enumerate((1.0, 3.0))]
    lines, _ = printed({"both": runs, "first": runs[:1]}, 100)
    assert any("2.0 ± 1.4" in line and line.split()[-1] == "1" for line in lines)


@pytest.mark.parametrize("width", [30, 48, 80, 200])
def test_a_narrow_terminal_gets_blocks_that_hold_every_number_once(tmp_path, width):
    names = [f"a_long_name_that_many_models_share_{place}_of_them" for place in range(7)]
    groups = {name: [write_model(tmp_path / name, rank=1.5 + k, acc=0.1 + k / 10)] for k, name in enumerate(names)}
    lines, tables = printed(groups, width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for place in range(7):
        assert text.count(f"{1.5 + place:.2f}") == 1
    assert sum("test/rank" in line for line in lines) == len(tables)
    headings = [heading for table in tables for heading in (column.header.plain for column in table.columns[1:])]
    assert len(set(headings)) == 7
    assert (len(tables) == 1) == (width == 200)


@given(st.lists(st.text(max_size=60), unique=True, min_size=1, max_size=30), st.integers(8, 40))
def test_short_names_are_distinct(names, most):
    found = distinct(names, most)
    assert len(set(found)) == len(names)
    assert all(len(name) <= most for name in found)


def test_short_names_keep_what_tells_them_apart():
    names = ["run_with_a_long_name_small_for_all", "run_with_a_long_name_large_for_all"]
    assert distinct(["a", "b"], 10) == ["a", "b"]
    assert distinct(names, 40) == names
    assert ["small" in short and "large" not in short for short in distinct(names, 14)] == [True, False]


def test_a_block_has_no_rows_of_numbers_that_its_models_lack(tmp_path):
    groups = {
        "one_of_two": [write_model(tmp_path / "a", rank=1.5)],
        "other_of_them": [write_model(tmp_path / "b", acc=1)],
    }
    rows = [[str(cell) for cell in table.columns[0].cells] for table in printed(groups, 30)[1]]
    assert rows == [["test/rank"], ["test/acc"]]
