"""Pages as a person sees them in a browser: on a phone and on a desktop, in light and in dark."""

import csv
import io
from urllib.parse import unquote

import numpy as np
import pytest
from pages import (
    CHROMIUM,
    declare,
    entry,
    page_of,
    saved_from_a_browser,
    seen_in_a_browser,
    write_csv,
    write_info,
    write_log,
    write_results,
)

from lightning_ssl_geometry.report import write_comparison, write_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
EVIL = ("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a long name without any space in it" * 3, "z")


def looks_right(page, folder, dark=False):
    """No overflow, no cut text, all figures seen, nothing of a run was run, at both widths."""
    count = page.count()
    expected = {"overflow": 0, "figures": count, "cut": [], "seen": count, "script": "undefined"}
    assert count
    folder.mkdir(exist_ok=True)
    assert seen_in_a_browser(page, folder, dark) == {"390": expected, "1440": expected}


def test_a_run_with_all_diagnostics_and_its_downloads(whole_page, tmp_path):
    page = whole_page
    looks_right(page, tmp_path / "seen")
    wanted = {each["download"]: each["href"] for tag, each in page.attributes if tag == "a" and "download" in each}
    names = ["one-scalars.csv", "one-projector_rank.csv"]
    found = saved_from_a_browser(page, tmp_path, names)  # under the policy of the page
    assert {name: text.splitlines() for name, text in found.items()} == {
        name: unquote(wanted[name].partition("utf-8,")[2]).splitlines() for name in names
    }
    assert len(list(csv.reader(io.StringIO(found["one-scalars.csv"])))) > 100


def test_a_diagnosis_with_layers_in_dark(computed, tmp_path):
    folder = write_results(tmp_path / "run", computed, "test", 1)
    write_csv(folder / "layers.csv", ["layer", "width", "a"], [["h", 8, 2.5], ["projector.0", 8, 2], ["z", 4, 1.5]])
    looks_right(page_of(write_report(write_info(folder, kind="diagnosis"))), tmp_path / "seen", dark=True)


def test_a_comparison_of_models_with_their_similarity(whole_run, renamed, tmp_path):
    names = [f"a model of a long name {place}" for place in range(12)]
    other = write_results(tmp_path / "other", renamed, shift=0.1)
    similarity = (names, np.exp(-0.2 * np.abs(np.subtract.outer(np.arange(12.0), np.arange(12.0)))))
    groups = {names[0]: [whole_run, other], names[1]: [whole_run]}
    path = write_comparison(groups, tmp_path / "page.html", similarity=similarity)
    looks_right(page_of(path), tmp_path / "seen")


def test_names_of_the_user_break_nothing(tmp_path):
    run = write_log(tmp_path / "<script>alert(1)<", **{f"val__{each.replace('/', '')}": [1, 2] for each in EVIL})
    words = dict.fromkeys(["title", "low", "high", "text", "unit", "label", "xlabel"], "".join(EVIL))
    declare(run, val__z=entry(**words, section=EVIL[0], space=EVIL[1], renamed=True))
    write_csv(run / "layers.csv", ["layer", "width", "a"], [[each, 8, place] for place, each in enumerate(EVIL)])
    write_info(run, **dict.fromkeys(["model", "checkpoint", "data", "data_path", "command"], "".join(EVIL)))
    looks_right(page_of(write_report(run)), tmp_path / "one")
    compared = write_comparison({EVIL[0]: [run]}, tmp_path / "c.html", title=EVIL[1], similarity=(EVIL, np.eye(4)))
    looks_right(page_of(compared), tmp_path / "compared")
