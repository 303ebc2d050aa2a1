import csv
import io
from urllib.parse import unquote

import numpy as np
import pytest
from diagnoses import write_diagnosis
from pages import CHROMIUM, Page, saved_from_a_browser, write_csv, write_geometry, write_log

from lightning_ssl_geometry.report import read_run, write_comparison, write_report
from lightning_ssl_geometry.report.download import Numbers, download, series_numbers


def files(page):
    """The tables that a page offers, by name."""
    links = [attributes for tag, attributes in page.attributes if tag == "a" and "download" in attributes]
    assert len({link["download"] for link in links}) == len(links)
    heads = [link["href"].partition(",") for link in links]
    assert {head for head, *_ in heads} == {"data:text/csv;charset=utf-8"}
    texts = [unquote(text, errors="strict") for *_, text in heads]
    return {link["download"]: list(csv.reader(io.StringIO(text))) for link, text in zip(links, texts, strict=True)}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_geometry(tmp_path_factory.mktemp("runs") / "one")


@pytest.fixture(scope="module")
def page(run):
    return Page(write_report(run).read_text("utf-8"))


def test_every_figure_has_its_numbers_and_a_box_to_enlarge_it(page):
    found = files(page)
    figures = page.values("class").count("figure")
    assert len(found) == figures + 1  # all scalars, too
    boxes = [attributes for tag, attributes in page.attributes if tag == "input"]
    assert [box["class"] for box in boxes] == ["zoom"] * figures
    assert all(box["aria-label"].startswith("Enlarge: ") and box["type"] == "checkbox" for box in boxes)
    for name, (header, *rows) in found.items():
        assert rows, name
        assert {len(row) for row in rows} == {len(header)}, name


def test_scalars_are_saved_as_they_were_logged(run, page):
    header, *rows = files(page)["one-scalars.csv"]
    assert header == ["scalar", "epoch", "step", "value"]
    for name, series in read_run(run).scalars.items():
        saved = np.array([[float(cell) for cell in row[1:]] for row in rows if row[0] == name])
        assert np.array_equal(saved.T[:2], [series.epoch, series.step])
        assert saved[:, 2] == pytest.approx(series.value, rel=1e-8)


def test_a_spectrum_is_saved_where_it_is_drawn(run, page):
    header, *rows = files(page)["one-probe_log_spectrum_h.csv"]
    assert header == ["array", "epoch", "step", "index", "singular value"]
    array = read_run(run).arrays["probe/log_spectrum_h"]
    assert [float(row[2]) for row in rows[::16]] == array.step.tolist()
    assert [float(row[4]) for row in rows] == pytest.approx(np.exp(array.values).ravel().tolist(), rel=1e-8)


def test_a_comparison_saves_means_and_spreads(tmp_path):
    runs = [write_log(tmp_path / str(seed), val__loss=[3.0, 1.0 + seed]) for seed in (0, 1)]
    page = Page(write_comparison({"a": runs}, tmp_path / "page.html", title="Two seeds").read_text("utf-8"))
    found = files(page)
    header, *rows = found["Two_seeds-loss.csv"]
    assert header == ["group", "quantity", "epochs of training", "mean", "standard deviation"]
    assert rows == [["a", "", "1", "3", "0"], ["a", "", "2", "1.5", "0.707106781"]]
    assert found["Two_seeds-scalars.csv"][2] == ["a", "val/loss", "19", "1.5", "0.707106781", "2"]


def test_nine_digits_tell_all_float32_apart():
    values = np.random.default_rng(0).normal(size=500).astype(np.float32)
    link = download("a", Numbers(["x"], [[float(value)] for value in values]))
    saved = unquote(link.partition("utf-8,")[2].partition('"')[0]).split()[1:]
    assert np.array_equal(np.array(saved, dtype=np.float32), values)


def test_what_is_not_finite_is_saved_as_it_was_logged(tmp_path):
    read = read_run(write_log(tmp_path, val__loss=["nan", "inf", 1e300]))
    link = download("a", series_numbers(read.scalars.values()))
    assert "9,nan%0A" in link
    assert "19,inf%0A" in link
    assert "29,1e%2B300%0A" in link


def test_a_huge_table_is_thinned_to_its_limit_and_said_so():
    rows = [[float(step), 0.5] for step in range(1000)]
    link = download("a", Numbers(["step", "loss"], rows), most=4000)
    assert len(link) < 4000 + 200
    assert ">CSV, 1 row in 4</a>" in link
    assert "999,0.5%0A" in link  # the last row is kept


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1"])
def test_a_text_is_no_formula(text):
    body = unquote(download("a", Numbers(["name"], [[text]])).partition("utf-8,")[2].partition('"')[0])
    assert next(csv.reader(io.StringIO(body.partition("\n")[2]))) == [f"'{text}"]


def test_a_name_of_the_user_is_a_file_name_and_text():
    link = download("../<b>\x00 ü", Numbers(['a"b', "<i>"], [["x,y\n#%", "\ud800"]]))
    assert 'download="b_ü.csv"' in link
    assert "<i>" not in link
    body = unquote(link.partition("utf-8,")[2].rpartition('"')[0].partition('"')[0])
    assert next(csv.reader(io.StringIO(body))) == ['a"b', "<i>"]


def test_layers_are_saved_as_in_their_file(tmp_path):
    found = files(Page(write_report(write_diagnosis(tmp_path / "one")).read_text("utf-8")))
    expected = [row.split(",") for row in (tmp_path / "one/layers.csv").read_text().split()]
    assert found["one-layers.csv"] == [[row[0], *(cell.removesuffix(".0") for cell in row[1:])] for row in expected]
    assert [row[2] for row in found["one-layers_effective_rank.csv"]] == ["effective_rank", "9.5", "8.5", "7.5", "6.5"]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_browser_saves_the_files_under_the_policy_of_the_page(page, tmp_path):
    names = ["one-scalars.csv", "one-projector_rank.csv"]
    saved = saved_from_a_browser(page, tmp_path, names)
    assert {name: list(csv.reader(io.StringIO(text))) for name, text in saved.items()} == {
        name: files(page)[name] for name in names
    }


@pytest.mark.parametrize("name", ["val/cka_drift_first", "val/neural_kernel_drift"])
def test_a_scalar_with_nothing_before_it_starts_at_its_second_readout(name, tmp_path):
    rows = [[0, 9, "nan", "nan"], [1, 19, 0.9, "nan"]]
    write_csv(tmp_path / "metrics.csv", ["epoch", "step", name, "val/other"], rows)
    read = read_run(tmp_path)
    assert read.scalars[name].value.tolist() == [0.9]
    assert not any(name in note for note in read.notes)
    assert any("val/other is not a finite number" in note for note in read.notes)
