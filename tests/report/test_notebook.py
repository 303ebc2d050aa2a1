"""A run in a notebook: its page, its figures, its numbers, and its folder."""

import copy
import html
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pages import declare, entry, write_array, write_info, write_log

from lightning_ssl_geometry.quantity import Picture
from lightning_ssl_geometry.report import Run, figures, read_run, write_report


@pytest.fixture
def folder(tmp_path):
    """Three epochs with a scalar that is declared, one that is not, and a spectrum."""
    write_log(tmp_path / "one", val__bound_upper=[3, 2, "nan"], lr=[0.1, 0.1, 0.1])
    write_array(tmp_path / "one", "val/spectrum_h", [4, 3, 2], [5, 4, 3])
    of_spectrum = entry("Spectrum", of="Toy", space="h", picture=Picture("spectrum"))
    declare(tmp_path / "one", val__bound_upper=entry("Bound", key="upper"), val__spectrum_h=of_spectrum)
    write_info(tmp_path / "one", model="SimCLRModule", status="finished")
    return tmp_path / "one"


def test_a_run_is_the_path_of_its_folder(folder):
    run = read_run(folder)
    assert os.fspath(run) == str(run) == f"{run}" == str(folder)
    assert Path(run) == run.folder == folder
    assert run / "metrics.csv" == folder / "metrics.csv"
    assert (run / "metrics.csv").is_file()
    assert run == folder
    assert folder == run
    assert run == read_run(run)
    assert run != folder.parent
    assert run != str(folder)  # like a path
    assert {folder: "here"}[run] == "here"
    assert sorted([folder / "x", run, folder.parent]) == [folder.parent, folder, folder / "x"]
    assert max(read_run(folder), run) == folder
    with pytest.raises(TypeError, match="not supported between"):
        run < str(folder)  # noqa: B015
    assert write_report(run) == folder / "report.html"
    with (run / "run.json").open() as file:
        assert "SimCLRModule" in file.read()


def test_a_method_of_paths_warns_and_works(folder):
    run = read_run(folder)
    with pytest.warns(FutureWarning, match="`Run.exists` will be removed in the next release: use `Run.folder.exists`"):
        assert run.exists()
    with pytest.raises(AttributeError, match="'Run' object has no attribute 'exist'"):
        _ = run.exist


def test_a_run_can_be_copied_and_pickled(folder):
    run = read_run(folder)
    for again in (copy.copy(run), copy.deepcopy(run), pickle.loads(pickle.dumps(run))):
        assert again == run
        assert again.to_frame().equals(run.to_frame())


def test_the_short_form_of_a_run(folder, tmp_path):
    assert repr(read_run(folder)) == f"Run({str(folder)!r}: training of SimCLRModule, 2 scalars, 1 vectors)"
    write_info(folder, kind="diagnosis", model="a\nb" * 100, status="failed")
    assert re.fullmatch(r"Run\('.*': diagnosis of a ba b.*…, failed, 2 scalars, 1 vectors\)", repr(read_run(folder)))
    assert repr(Run(Path("x"), "x")) == "Run('x': 0 scalars, 0 vectors)"


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(folder):
    run = read_run(folder)
    frame = run._repr_html_()
    (held,) = re.findall(r'<iframe srcdoc="([^"]*)"', frame)
    assert html.unescape(held) == write_report(run).read_text()
    assert "<" not in held
    (allowed,) = re.findall(r'sandbox="([^"]*)"', frame)
    assert not {"allow-scripts", "allow-same-origin", "allow-top-navigation"} & set(allowed.split())


def test_figures_are_drawn_once_and_show_themselves(folder):
    run = read_run(folder)
    drawn = run.figures()
    assert drawn.keys() == figures(run).keys()
    assert len(drawn) == 3
    for name, figure in drawn.items():
        assert run.figure(name) is figure
        assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_wrong_name_of_a_figure_is_told_the_near_ones(folder):
    with pytest.raises(ValueError, match=r"the name of a figure .* got 'toy_uper'. Did you mean 'toy_upper'"):
        read_run(folder).figure("toy_uper")
    with pytest.raises(ValueError, match=r"but got 'zzz'. There are .*, .*"):
        read_run(folder).figure("zzz")
    with pytest.raises(ValueError, match=r"but got 'loss'. There are none"):
        Run(Path("x"), "x").figure("loss")


def test_the_numbers_as_a_frame(folder):
    expected = pd.DataFrame(
        {
            "stage": ["", "", "", "val", "val", "val"],
            "name": ["lr", "lr", "lr", "bound", "bound", "bound"],
            "key": ["", "", "", "upper", "upper", "upper"],
            "epoch": [0.0, 1.0, 2.0] * 2,
            "step": [10, 20, 30] * 2,
            "value": [0.1, 0.1, 0.1, 3.0, 2.0, np.nan],
        }
    )
    found = read_run(folder).to_frame().sort_values(["name", "step"], ascending=[False, True], ignore_index=True)
    pd.testing.assert_frame_equal(found, expected)
    assert read_run(folder).to_frame().pivot(index="step", columns="name", values="value").shape == (3, 2)


def test_vectors_are_further_rows_of_the_frame(folder):
    found = read_run(folder).to_frame(vectors=True)
    spectrum = found[found["name"] == "spectrum_h"]
    assert spectrum["position"].tolist() == [0, 1, 2] * 2
    assert spectrum["step"].tolist() == [10] * 3 + [20] * 3
    assert spectrum["value"].tolist() == [4, 3, 2, 5, 4, 3]
    assert found["position"].isna().sum() == 6
    pd.testing.assert_frame_equal(found[found["position"].isna()].drop(columns="position"), read_run(folder).to_frame())


@pytest.mark.parametrize("vectors", [False, True])
def test_a_run_without_numbers_has_an_empty_frame(vectors):
    found = Run(Path("x"), "x").to_frame(vectors=vectors)
    assert found.empty
    assert list(found.columns) == ["stage", "name", "key", "epoch", "step", *(["position"] * vectors), "value"]


def test_pandas_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match=r"pandas to be installed for `to_frame`, .* `pip install pandas`"):
        Run(Path("x"), "x").to_frame()


def test_a_run_is_read_and_named_without_matplotlib_and_pandas(folder):
    code = f"import sys; from lightning_ssl_geometry.report import read_run; repr(read_run({str(folder)!r})); "
    code += "print([name for name in ('matplotlib', 'pandas', 'torch') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
