"""Within a section of a page, titles tell figures apart, a text stands once, and no figure is lost in an empty row."""

import re

import numpy as np
import pytest
from pages import (
    compared,
    comparison,
    declare,
    drawn,
    entry,
    plain,
    report,
    texts,
    titles,
    write_array,
    write_info,
    write_log,
    write_results,
)

from lightning_ssl_geometry.quantity import Chart, Picture
from lightning_ssl_geometry.report.layout import in_rows

STAGES = ("train", "val", "probe")


def sections(page):
    return [part.partition("</section>")[0] for part in page.source.split("<section")[1:]]


def captions(section):
    """The paragraphs and the ends of scales below the figures, without pointers to other figures."""
    below = " ".join(re.findall(r"<figcaption>(.*?)</figcaption>", section, re.DOTALL))
    return [said for said in map(plain, re.findall(r"<(?:p|dd)>(.*?)</(?:p|dd)>", below, re.DOTALL)) if said]


@pytest.fixture(scope="module")
def pages(computed, renamed, whole_run, whole_page, tmp_path_factory):
    """One page of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    for stage in STAGES:
        several = write_results(folder / "several_stages", computed, stage)
    two = {f"{monitor}/{name}": each for name, each in computed.items() for monitor in ("early", "late")}
    found = {"run": whole_page, "several stages": report(several)}
    found["two monitors"] = report(write_results(folder / "two_monitors", two))
    diagnosis = write_info(write_results(folder / "diagnosis", computed, "test", 1), kind="diagnosis")
    found["diagnosis"] = report(diagnosis)
    other = write_results(folder / "other", renamed, shift=0.1)
    return found | {"comparison": comparison(folder, a=[whole_run, other], b=[whole_run])}


@pytest.mark.parametrize("kind", ["run", "several stages", "two monitors", "diagnosis", "comparison"])
def test_titles_and_captions_stand_once_in_a_section(pages, kind):
    found = sections(pages[kind])
    assert sum(len(titles(section)) for section in found) > 3
    for section in found:
        for said in (titles(section), captions(section)):
            assert [each for each in said if said.count(each) > 1] == []


def test_the_stage_stands_in_the_title_only_where_it_tells_figures_apart(tmp_path):
    for stage in ("train", "val"):
        write_array(tmp_path, f"{stage}/s", [3, 2, 1], [2, 1, 0.5])
    write_array(tmp_path, "val/t", [3, 2, 1], [2, 1, 0.5])
    about = {"picture": Picture("spectrum"), "section": "spectra"}
    declare(tmp_path, train__s=entry("S", **about), val__s=entry("S", **about), val__t=entry("T", of="Other", **about))
    page = report(tmp_path)
    assert titles(page.source)[:3] == ["S, train", "S, val", "T"]
    assert page.text.count("High S.") == 1
    assert "Explained at S, train." in " ".join(page.text.split())
    names = dict(zip(titles(page.source), re.findall(r'id="(figure-[^"]*)"', page.source), strict=True))
    assert f'<a href="#{names["S, train"]}">S, train</a>' in page.source


def test_equal_ends_of_two_quantities_stand_once(tmp_path):
    write_log(tmp_path, val__a=[1, 2], val__b=[2, 3])
    chart, ends = Chart("both", "Both"), {"low": "Little of it.", "high": "Much of it."}
    about = {key: entry(key.upper(), key=key, text=f"It is {key}.", chart=chart, **ends) for key in "ab"}
    declare(tmp_path, **{f"val__{key}": each for key, each in about.items()})
    page = report(tmp_path)
    assert page.text.count("Little of it.") == page.text.count("Much of it.") == 1
    assert "High and low: as for A." in page.text


def test_a_remark_on_two_figures_stands_at_the_first(tmp_path):
    for stage in ("train", "val"):
        write_array(tmp_path, f"{stage}/s", [3, 2, 1e-12], [2, 1, 1e-12])
    about = {"picture": Picture("spectrum"), "section": "spectra"}
    declare(tmp_path, train__s=entry("S", **about), val__s=entry("S", **about))
    text = " ".join(report(tmp_path).text.split())
    assert text.count("(below 10⁻⁶ of the largest), and not drawn.") == 1
    assert "Explained, with a remark, at S, train." in text


def test_layers_that_are_places_in_a_list_are_counted(tmp_path):
    parts = ("layers_0", "layers_3", "layers_10")
    write_log(tmp_path, **{f"val__rank_{part}": [at, at + 1] for at, part in enumerate(parts, 1)})
    declare(tmp_path, **{f"val__rank_{part}": entry("Rank", key="rank", part=part, headline=True) for part in parts})
    page = report(tmp_path)
    assert "Rank (3rd layer, layers.10)" in page.text
    labels = re.findall(r"<text[^>]*>(\dst|\dnd|\drd)( layer \d)", page.source)
    assert sorted(map("".join, labels)) == ["1st layer 2", "2nd layer 3", "3rd layer 4"]


def test_entries_of_two_monitors_name_their_monitor(tmp_path):
    picture = Picture("components", names=("first", "second"))
    for monitor in ("teacher", "student"):
        write_array(tmp_path, f"val/{monitor}/s", [1, 2], [3, 4])
    declare(tmp_path, **{f"val__{monitor}/s": entry("S", picture=picture) for monitor in ("teacher", "student")})
    said = [each for axes in drawn(tmp_path).values() for each in texts(axes)]
    assert [each for each in said if each.startswith("first")] == ["first, teacher: 3", "first, student: 3"]


def test_layers_with_a_number_as_name_are_called_modules(tmp_path):
    write_log(tmp_path, val__rank_0=[1, 2], val__rank_3=[2, 3])
    declare(tmp_path, **{f"val__rank_{part}": entry("Rank", key="rank", part=part, headline=True) for part in "03"})
    assert "Rank (2nd layer, module 3)" in report(tmp_path).text


def test_layers_of_two_towers_are_counted_in_each_and_names_without_a_place_are_not(tmp_path):
    parts = ("image_0", "image_2", "text_0", "text_2", "head")
    for part in parts:
        write_array(tmp_path, f"val/rank_{part}", [3, 2], [2, 1])
    declare(tmp_path, **{f"val__rank_{part}": entry("Rank", key="rank", part=part) for part in parts})
    said = ["1st layer, image.0", "2nd layer, image.2", "1st layer, text.0", "2nd layer, text.2", "head"]
    assert titles(report(tmp_path).source)[:5] == [f"Rank ({each})" for each in said]


def test_notes_show_names_of_code_as_code(tmp_path):
    write_log(tmp_path, val__x=[1, 2])
    (tmp_path / "geometry").mkdir()
    (tmp_path / "geometry/bad.npz").write_bytes(b"no archive")
    (tmp_path / "layers.csv").write_text("name,width\n<h>,3\n")
    page = report(tmp_path)
    assert "<code>layer</code>" in page.source
    assert "`" not in page.text


def test_a_run_is_described_in_plain_words(tmp_path):
    write_log(tmp_path, val__x=[1, 2])
    parts = [{"started": "2026-01-02T10:00:00+00:00", "ended": None},
             {"started": "2026-01-02T11:00:00+00:00", "ended": "2026-01-02T12:00:00+00:00"}]  # fmt: skip
    text = report(write_info(tmp_path, kind="fit", world_size=4, from_step=120, parts=parts)).text
    assert all(word not in text for word in ("kind", "world size", "from step"))
    assert "processes4" in text
    assert "continued atstep 120" in text
    assert "2026-01-02 10:00 UTC, end not recorded; 2026-01-02 11:00 UTC to 2026-01-02 12:00 UTC" in text
    assert "processes" not in report(write_info(tmp_path, kind="fit", world_size=1)).text


# --- labels at the ends of lines


def test_equal_ends_of_a_quantity_have_one_label_and_labels_fit_above_each_other(tmp_path):
    chart = Chart("all", "All")
    keys = [f"k{place}" for place in range(12)]
    for stage in ("train", "val"):
        about = {f"{stage}__{key}": entry(key, key=key, label=key, chart=chart) for key in keys}
        declare(tmp_path, **about)
    columns = {f"train__{key}": [0, 2 * place] for place, key in enumerate(keys)}
    write_log(tmp_path, **columns, **{f"val__{key}": [0, 2 * place + (place > 0)] for place, key in enumerate(keys)})
    found = [text for text in texts(drawn(tmp_path)["all"]) if re.fullmatch(r"(k|train|val).* \d+", text)]
    assert len(found) == 13
    assert {f"k{place} {2 * place}" for place in range(12)} < set(found)  # those of the first stage come first
    assert texts(drawn(tmp_path)["all"]).count("val 0") == 0  # k0 ends there too


def test_each_line_of_a_comparison_has_a_label(tmp_path):
    chart, runs = Chart("all", "All"), {}
    for at, group in enumerate("xy"):
        write_log(tmp_path / group, **{f"val__{key}": [0, 10 * at + place] for place, key in enumerate("abc")})
        declare(tmp_path / group, **{f"val__{key}": entry(key, key=key, label=key, chart=chart) for key in "abc"})
        runs[group] = [tmp_path / group]
    assert {"x 0", "b 1", "c 2", "y 10", "b 11", "c 12"} <= set(texts(compared(**runs)["all"]))


# --- rows of the page


def test_no_figure_is_alone_in_a_row_of_three():
    assert in_rows({"a": 1, "b": 1, "c": 1}) == [[("a", 1), ("b", 1), ("c", 1)]]
    assert in_rows({"a": 2, "b": 1, "c": 5}) == [[("a", 2), ("b", 1)], [("c", 3)]]
    assert in_rows({"a": 1, "b": 4}) == [[("a", 1), ("b", 2)]]
    assert in_rows({"a": 4, "b": 1}) == [[("a", 2), ("b", 1)]]
    assert in_rows({"a": 1, "b": 2}) == [[("a", 1), ("b", 2)]]
    assert in_rows({"a": 1}) == [[("a", 3)]]
    assert in_rows({"a": 2, "b": 4}) == [[("a", 2)], [("b", 3)]]
    assert in_rows({"a": 1, "b": 1, "c": 0}) == [[("a", 1), ("b", 1)], [("c", 3)]]
    assert in_rows({"a": 1, "b": 0, "c": 1}) == [[("a", 3)], [("b", 3)], [("c", 3)]]  # b is a table


@pytest.mark.parametrize("seed", range(20))
def test_rows_keep_the_order_and_are_full_where_a_neighbor_can_fill_them(seed):
    generator = np.random.default_rng(seed)
    counts = {f"{place}": int(count) for place, count in enumerate(generator.integers(0, 6, 8))}
    rows = in_rows(counts)
    assert [name for row in rows for name, _ in row] == list(counts)
    for row in rows:  # three columns, or two if there are only two figures
        found = sum(counts[name] for name, _ in row)
        assert sum(columns for _, columns in row) == (2 if found == 2 else 3)
    assert all(columns <= max(counts[name], 1) or len(row) == 1 for row in rows for name, columns in row)
    lone = [place for place, row in enumerate(rows) if len(row) == 1 and counts[row[0][0]] == 1]
    for place in lone:  # both neighbors are full, or no figures
        beside = [row for row in (*rows[max(place - 1, 0) : place], *rows[place + 1 : place + 2])]
        assert all(len(row) > 1 or counts[row[0][0]] == 0 for row in beside)
