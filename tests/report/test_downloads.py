"""The numbers that a page offers are those of the files, as CSV that a spreadsheet reads and does not run."""

import csv
import io
from urllib.parse import unquote

import numpy as np
import pytest
from pages import declare, entry, page_of, write_array, write_csv, write_log, write_results, write_snapshot

from lightning_ssl_geometry.quantity import Picture
from lightning_ssl_geometry.report import read_run, write_comparison, write_report
from lightning_ssl_geometry.report.download import Numbers, saved, series_numbers


def files(page):
    """The tables that a page offers, by name."""
    links = [attributes for tag, attributes in page.attributes if tag == "a" and "download" in attributes]
    assert len({link["download"] for link in links}) == len(links)
    assert {link["href"].partition(",")[0] for link in links} == {"data:text/csv;charset=utf-8"}
    return {link["download"]: list(csv.reader(io.StringIO(body(link["href"])))) for link in links}


def body(address):
    return unquote(address.partition(",")[2], errors="strict")


def test_every_figure_has_its_numbers_and_a_box_to_enlarge_it_and_scalars_are_saved_as_logged(computed, tmp_path):
    run = write_results(tmp_path / "one", computed)
    page = page_of(write_report(run))
    found, figures = files(page), page.values("class").count("figure")
    assert len(found) == figures + 1  # all scalars, too
    boxes = [attributes for tag, attributes in page.attributes if tag == "input"]
    assert [box["class"] for box in boxes] == ["zoom"] * figures
    assert all(box["aria-label"].startswith("Enlarge: ") and box["type"] == "checkbox" for box in boxes)
    for name, (header, *rows) in found.items():
        assert {len(row) for row in rows} == {len(header)}, name
    header, *rows = found["one-scalars.csv"]
    assert header == ["scalar", "epoch", "step", "value", "steps_done"]
    for name, series in read_run(run).scalars.items():
        kept = np.array([[float(cell) for cell in row[1:]] for row in rows if row[0] == name]).T
        assert np.array_equal(kept[[0, 1, 3]], [series.epoch, series.step, series.done])
        assert kept[2] == pytest.approx(series.value, rel=1e-8, nan_ok=True)


def test_arrays_and_layers_are_saved_as_in_their_files(tmp_path):
    write_array(write_array(tmp_path, "val/s", [1, 0, -1], [3, 2, 1]), "val/t", [5, 6])
    write_snapshot(tmp_path, "val/m", [[1, 0.25], [0.25, 1]])
    write_csv(tmp_path / "layers.csv", ["layer", "width", "a"], [["h", 8, 2.5], ["z", 4, 1.5]])
    found = files(page_of(write_report(declare(
        tmp_path, val__s=entry("S", key="s", unit="sigma", xlabel="place", picture=Picture("spectrum", "", True)),
    ))))  # fmt: skip
    name = tmp_path.name
    header, *rows = found[f"{name}-val_toy_s.csv"]
    assert header == ["array", "epoch", "step", "place", "sigma"]
    assert [row[2:4] for row in rows[:3]] == [["10", "1"], ["10", "2"], ["10", "3"]]
    assert [float(row[4]) for row in rows] == pytest.approx(np.exp([1, 0, -1, 3, 2, 1]).tolist(), rel=1e-8)
    assert found[f"{name}-val_t.csv"][1:] == [["val/t", "0", "10", "1", "5"], ["val/t", "0", "10", "2", "6"]]
    assert found[f"{name}-m.csv"][1:3] == [["1", "1", "1"], ["1", "2", "0.25"]]
    assert found[f"{name}-layers.csv"] == [["layer", "width", "a"], ["h", "8", "2.5"], ["z", "4", "1.5"]]


def test_a_comparison_saves_means_and_spreads(tmp_path):
    runs = [write_log(tmp_path / str(seed), val__loss=[3.0, 1.0 + seed]) for seed in (0, 1)]
    for run in runs:
        declare(run, val__loss=entry("Loss", of="Host", key="loss"))
    found = files(page_of(write_comparison({"a": runs}, tmp_path / "page.html", title="Two seeds")))
    header, *rows = found["Two_seeds-host_loss.csv"]
    assert header == ["group", "quantity", "epochs of training", "mean", "standard deviation"]
    assert rows == [["a", "", "1", "3", "0"], ["a", "", "2", "1.5", "0.707106781"]]
    assert found["Two_seeds-scalars.csv"][2] == ["a", "val/loss", "2", "1.5", "0.707106781", "2"]


def test_nine_digits_tell_all_float32_apart_and_what_is_not_finite_stays(tmp_path):
    values = np.random.default_rng(0).normal(size=500).astype(np.float32)
    link = saved("a", Numbers(["x"], [[float(value)] for value in values]))
    assert np.array_equal(np.array(body(link.address).split()[1:], dtype=np.float32), values)
    read = read_run(write_log(tmp_path, val__loss=["nan", "inf", 1e300]))
    assert body(saved("a", series_numbers(read.scalars.values())).address).split()[1:] == [
        "val/loss,0,9,nan,10", "val/loss,1,19,inf,20", "val/loss,2,29,1e+300,30",
    ]  # fmt: skip


def test_a_huge_table_is_thinned_to_its_limit_and_said_so(tmp_path):
    link = saved("a", Numbers(["step", "loss"], [[float(step), 0.5] for step in range(1000)]), most=4000)
    assert len(link.address) < 4200
    assert link.thinned == 4
    assert body(link.address).endswith("999,0.5\n")  # the last row is kept
    rows = [[step // 1000, step, step] for step in range(40_000)]
    write_csv(tmp_path / "metrics.csv", ["epoch", "step", "a"], rows)
    assert "CSV, 1 row in 2" in page_of(write_report(tmp_path)).text


def test_a_name_of_the_user_is_a_file_name_and_a_text_no_formula():
    for text in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1"):
        link = saved("../<b>\x00 ü", Numbers(['a"b', "<i>"], [[text, "x,y\n#%\ud800"]]))
        assert link.file == "b_ü.csv"
        assert not {"<", '"', "#", " "} & set(link.address)
        assert next(csv.reader(io.StringIO(body(link.address)))) == ['a"b', "<i>"]
        assert body(link.address).splitlines()[1].lstrip('"').startswith(f"'{text}")
