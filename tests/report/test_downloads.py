"""The numbers that a page offers are those of the files, as CSV that a spreadsheet reads and does not run."""

import csv
import io

import numpy as np
import pytest
from pages import declare, entry, report, saved, write_array, write_csv, write_log, write_rows, write_snapshot

from lightning_ssl_geometry.quantity import Picture
from lightning_ssl_geometry.report import read_run
from lightning_ssl_geometry.report.download import Numbers, series_numbers
from lightning_ssl_geometry.report.download import saved as made


def test_every_figure_has_its_numbers_and_a_box_to_enlarge_it_and_scalars_are_saved_as_logged(whole_run, whole_page):
    found, figures = whole_page.downloads(), whole_page.count()
    assert len(found) == figures + 1  # all scalars, too
    inputs = [attributes for tag, attributes in whole_page.attributes if tag == "input"]
    boxes = [attributes for attributes in inputs if attributes["type"] == "checkbox"]
    assert {attributes["type"] for attributes in inputs} == {"checkbox", "radio"}
    assert [box["class"] for box in boxes] == ["zoom"] * figures
    assert all(box["aria-label"].startswith("Enlarge: ") and box["type"] == "checkbox" for box in boxes)
    for name, (header, *rows) in found.items():
        assert {len(row) for row in rows} == {len(header)}, name
    header, *rows = found["one-scalars.csv"]
    assert header == ["scalar", "epoch", "step", "value", "steps_done"]
    for name, series in read_run(whole_run).scalars.items():
        kept = np.array([[float(cell) for cell in row[1:]] for row in rows if row[0] == name]).T
        assert np.array_equal(kept[[0, 1, 3]], [series.epoch, series.step, series.done])
        assert kept[2] == pytest.approx(series.value, rel=1e-8, nan_ok=True)


def test_arrays_and_layers_are_saved_as_in_their_files(tmp_path):
    write_array(write_array(tmp_path, "val/s", [1, 0, -1], [3, 2, 1]), "val/t", [5, 6])
    write_snapshot(tmp_path, "val/m", [[1, 0.25], [0.25, 1]])
    write_csv(tmp_path / "layers.csv", ["layer", "width", "a"], [["h", 8, 2.5], ["z", 4, 1.5]])
    about = entry("S", key="s", unit="sigma", xlabel="place", picture=Picture("spectrum", "", True))
    found = report(declare(tmp_path, val__s=about)).downloads()
    name = tmp_path.name
    header, *rows = found[f"{name}-val_toy_s.csv"]
    assert header == ["array", "epoch", "step", "place", "sigma"]
    assert [row[2:4] for row in rows[:3]] == [["10", "1"], ["10", "2"], ["10", "3"]]
    assert [float(row[4]) for row in rows] == pytest.approx(np.exp([1, 0, -1, 3, 2, 1]).tolist(), rel=1e-8)
    assert found[f"{name}-val_t.csv"][1:] == [["val/t", "0", "10", "1", "5"], ["val/t", "0", "10", "2", "6"]]
    assert found[f"{name}-m.csv"][1:3] == [["1", "1", "1"], ["1", "2", "0.25"]]
    assert found[f"{name}-layers.csv"] == [["layer", "width", "a"], ["h", "8", "2.5"], ["z", "4", "1.5"]]


def test_nine_digits_tell_all_float32_apart_and_what_is_not_finite_stays(tmp_path):
    values = np.random.default_rng(0).normal(size=500).astype(np.float32)
    link = made("a", Numbers(["x"], [[float(value)] for value in values]))
    assert np.array_equal(np.array(saved(link.address).split()[1:], dtype=np.float32), values)
    read = read_run(write_log(tmp_path, val__loss=["nan", "inf", 1e300]))
    assert saved(made("a", series_numbers(read.scalars.values())).address).split()[1:] == [
        "val/loss,0,9,nan,10", "val/loss,1,19,inf,20", "val/loss,2,29,1e+300,30",
    ]  # fmt: skip


def test_a_huge_table_is_thinned_to_its_limit_and_said_so(tmp_path):
    link = made("a", Numbers(["step", "loss"], [[float(step), 0.5] for step in range(1000)]), most=4000)
    assert len(link.address) < 4200
    assert link.thinned == 4
    assert saved(link.address).endswith("999,0.5\n")  # the last row is kept
    write_rows(tmp_path, ["a"], *([step // 1000, step, step] for step in range(40_000)))
    assert "CSV, 1 row in 2" in report(tmp_path).text


def test_a_name_of_the_user_is_a_file_name_and_a_text_no_formula():
    for text in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1"):
        link = made("../<b>\x00 ü", Numbers(['a"b', "<i>"], [[text, "x,y\n#%\ud800"]]))
        assert link.file == "b_ü.csv"
        assert not {"<", '"', "#", " "} & set(link.address)
        assert next(csv.reader(io.StringIO(saved(link.address)))) == ['a"b', "<i>"]
        assert saved(link.address).splitlines()[1].lstrip('"').startswith(f"'{text}")
