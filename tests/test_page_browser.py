"""Pages as a person sees them: on a phone and on a desktop, in light and in dark."""

import numpy as np
import pytest
from diagnoses import write_diagnosis, write_layers
from pages import CHROMIUM, Page, seen_in_a_browser, write_geometry

from lightning_ssl_geometry.report import write_comparison, write_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
EVIL = ("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a long name without any space in it" * 3, "z")


def looks_right(page, folder, dark=False):
    """No overflow, no cut text, all figures seen, nothing of a run was run, at both widths."""
    count = page.values("class").count("figure")
    expected = {"overflow": 0, "figures": count, "cut": [], "seen": count, "script": "undefined"}
    assert count
    assert seen_in_a_browser(page, folder, dark) == {"390": expected, "1440": expected}


def test_a_training_run_with_layers_in_dark(tmp_path):
    run = write_layers(write_geometry(tmp_path / "run"), stage="probe")
    looks_right(Page(write_report(run).read_text("utf-8")), tmp_path, dark=True)


def test_a_diagnosis_with_layers(tmp_path):
    looks_right(Page(write_report(write_diagnosis(tmp_path / "run")).read_text("utf-8")), tmp_path)


@pytest.mark.parametrize("dark", [False, True])
def test_a_comparison_of_models_with_their_similarity(tmp_path, dark):
    names = [f"a model of a long name {place}" for place in range(12)]
    groups = {name: [write_diagnosis(tmp_path / name, place / 8)] for place, name in enumerate(names[:3])}
    similarity = (names, np.exp(-0.2 * np.abs(np.subtract.outer(np.arange(12.0), np.arange(12.0)))))
    path = write_comparison(groups, tmp_path / "page.html", similarity=similarity)
    looks_right(Page(path.read_text("utf-8")), tmp_path, dark)


def test_names_of_the_user_break_nothing(tmp_path):
    info = dict.fromkeys(["model", "checkpoint", "data", "data_path", "command"], "".join(EVIL))
    run = write_diagnosis(tmp_path / "<script>alert(1)<", names=EVIL, **info)
    page = Page(write_report(run).read_text("utf-8"))
    looks_right(page, tmp_path)
    compared = write_comparison({EVIL[0]: [run]}, tmp_path / "c.html", title=EVIL[1], similarity=(EVIL, np.eye(4)))
    (tmp_path / "compared").mkdir()
    looks_right(Page(compared.read_text("utf-8")), tmp_path / "compared")
