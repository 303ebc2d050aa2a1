"""The page of a model that was looked at once: a table with what each number means, and models side by side."""

import io

import numpy as np
import pytest
from pages import compared, comparison, declare, drawn, entry, lines, report, texts, write_csv, write_info, write_log
from rich.console import Console

from lightning_ssl_geometry.quantity import Chart, Paper, Picture
from lightning_ssl_geometry.report import read_run, summary_table

ABOUT = {
    "rank": entry("Rank", of="Rank", cap="min(V * N, D)", paper=Paper("Ada 2021", "On ranks"), space="h", width=16),
    "x_decay": entry("Decay", key="decay", remark="Fitted to {first:.0f} and on."),
    "x_first": entry("First", key="first", shown=False),
    "y_share": entry("Share", of="Share", section="augmentations", key="share", null="isotropic", percent=True),
    "y_isotropic": entry(
        "Isotropic share", of="Share", key="isotropic", baseline=True, label="isotropic", percent=True
    ),
    "a": entry("Align", of="A", section="hypersphere", chart=Chart("path", "Path"), picture=Picture("path")),
    "u": entry("Uniform", of="U", section="hypersphere", chart=Chart("path", "Path"), picture=Picture("path", "x")),
    "spectrum": entry("Spectrum", key="s", unit="singular value", picture=Picture("spectrum")),
    "ranks": entry("Ranks", key="r", picture=Picture("components", names=("at 0.1", "at 0.01"))),
}
INFO = {"kind": "diagnosis", "model": "resnet18", "data": "ImageFolderDataModule", "data_path": "/photos/val"}
INFO |= {"checkpoint": "/models/last.ckpt", "samples": 10_000, "parameters": 11_176_512, "seed": 0}


def write_diagnosis(folder, shift=0.0, width=16, layers=("h", "projector.0", "z"), **info):
    """One row of scalars, one readout of each array, a table of layers."""
    values = {"rank": 5.5 + shift, "x_decay": 1.25, "x_first": 2, "y_share": 0.9, "y_isotropic": 0.75}
    values |= {"a": 0.4, "u": -2, "own": 3}
    header, seen = ["epoch", "step"], ["samples", "views", "width_h", "width_z"]
    write_csv(folder / "metrics.csv", [*header, *(f"test/{name}" for name in values)], [[0, 0, *values.values()]])
    arrays = {"spectrum": 1 / np.arange(1, width + 1), "ranks": [9, 8]}
    for name, row in arrays.items():
        write_csv(folder / f"geometry/test/{name}.csv", [*header, *range(len(row))], [[0, 0, *row]])
    write_csv(folder / "geometry/test/rows_seen.csv", [*header, *seen], [[0, 0, 4, 2, 16, 8]])
    rows = [[name, 16, 9.5 - place + shift] for place, name in enumerate(layers)]
    write_csv(folder / "layers.csv", ["layer", "width", "rank"], rows)
    about = {f"test__{name}": each for name, each in ABOUT.items()}
    declare(folder, **about, layers__rank=entry("Rank", of="Rank", section="layers"))
    (folder / "config.yaml").write_text("seed_everything: 0\n")
    return write_info(folder, **INFO | info)


@pytest.fixture(scope="module")
def diagnosis(tmp_path_factory):
    return write_diagnosis(tmp_path_factory.mktemp("runs") / "resnet")


@pytest.fixture(scope="module")
def page(diagnosis):
    return report(diagnosis)


def test_the_page_says_what_was_looked_at(page):
    data = "ImageFolderDataModule from /photos/val10,000 samples11,176,512 parametersseed 0"
    assert "Diagnosis of resnet18" in page.text
    assert f"weights from /models/last.ckpt{data}" in page.text
    assert "config.yaml" in page.text


def test_every_number_has_its_meaning_in_a_table(page):
    table = page.text.replace("\n", "")
    assert "Rank5.50at most 8 here (Ada 2021)↑High Rank.↓Low Rank." in table
    assert "Decay1.25↑High Decay.↓Low Decay.Fitted to 2 and on." in table
    assert "Share90.0%isotropic 75.0%↑High Share." in table
    assert "own3" in table
    assert "Low First." not in table
    assert "Low Isotropic share." not in table
    assert all(f"High {title}." in table for title in ("Align", "Uniform", "Spectrum", "Ranks"))
    headings = [page.source.index(f"<h2>{name}") for name in ("Ranks", "Layer", "Augmentations", "Alignment", "Other")]
    assert headings == sorted(headings)


def test_nothing_is_drawn_over_training_and_nothing_of_it_is_missed(diagnosis, page):
    assert [note for note in read_run(diagnosis).notes if "few samples" not in note] == []
    for text in ("of training", "missing", "from 5.5", "at the start", "after 0", "Is it learning?"):
        assert text not in page.text
    found = drawn(diagnosis)
    assert list(found) == ["test_toy_s", "toy_r", "layers_rank"]
    assert len(lines(found["test_toy_s"])) == 1
    assert "this model" in texts(found["test_toy_s"])
    assert {"at 0.1", "9", "at 0.01", "8"} <= set(texts(found["toy_r"]))
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(summary_table(diagnosis))
    text = console.export_text()
    assert ("value" in text, "best" in text, "5.50 (at most 8 here)" in text) == (True, False, True)


@pytest.mark.parametrize(("kind", "said"), [("random", "random weights"), ("timm's", "timm's weights")])
def test_where_weights_are_from_is_said(tmp_path, kind, said):
    folder = write_diagnosis(tmp_path / "net", checkpoint=None, weights=kind)
    text = report(folder).text
    assert f"{said}ImageFolderDataModule from /photos/val" in text
    assert "no checkpoint" not in text
    assert f"net {said}" in comparison(tmp_path, net=[folder]).text


# --- models side by side


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    models = {"small": (0.0,), "wide": (0.5, 24), "short": (1.0, 12, ("h", "z"))}
    return {name: [write_diagnosis(folder / name, *each)] for name, each in models.items()}


def test_models_have_a_row_each_and_layers_are_lines_at_their_places(three, tmp_path):
    found = compared(**three)
    assert {"small", "wide", "short", "5.50", "6", "6.50"} <= set(texts(found["rank"]))
    assert "training" not in found["rank"].get_xlabel()
    axes = found["layers_rank"]
    assert lines(axes)[0].get_ydata().tolist() == [9.5, 8.5, 7.5]
    assert lines(axes, "green")[0].get_ydata().tolist() == [10.5, 9.5]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["h", "2", "z"]
    trained = declare(write_log(tmp_path / "run", val__rank=[4, 5]), val__rank=ABOUT["rank"])
    assert "Without: run." in texts(compared(run=[trained], two=three["small"])["toy_decay"])


def test_what_models_share_is_said_once_under_the_title(three, tmp_path):
    page = comparison(tmp_path, **three)
    head = page.text.partition("Runs")[0].partition("Ranks and")[0]
    assert head.count("ImageFolderDataModule from /photos/val10,000 samples") == 1
    assert "standard deviation" not in page.text.lower()
    assert "Values" in page.text
    other = write_diagnosis(tmp_path / "other", samples=300, data_path="/photos/test")
    text = comparison(tmp_path, **three, other=[other]).text
    assert "/photos" not in text.partition("On different data: small and wide and short on ")[0]
