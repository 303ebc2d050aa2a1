import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lightning_ssl_geometry.report.glossary import ENTRIES, PAPERS, lookup
from lightning_ssl_geometry.report.html import element
from pages import CHROMIUM, GEOMETRY, Page, seen_in_a_browser, write_csv, write_log
from rich.console import Console

from lightning_ssl_geometry import plots, report
from lightning_ssl_geometry.report import read_run, summary_table, write_report
from lightning_ssl_geometry.report.numbers import duration, number

STEPS = 50
SCALARS = {  # a value at the start of training and one at its end
    "loss": (5.4, 4.1),
    "alignment": (1.6, 0.3),
    "uniformity": (-0.4, -3.3),
    "gaussian_potential": (0.67, 0.037),
    "effective_rank_h": (14.0, 63.0),
    "effective_rank_z": (6.0, 35.0),
    "projector_rank": (64.0, 44.0),
    "bound_upper": (8.9, 7.5),
    "bound_invariance": (-0.3, -0.85),
    "bound_repulsion": (0.97, 0.77),
    "bound_info_nce": (7.2, 5.1),
}
ABSENT = (
    "Nothing recorded in this run for: Augmentations and the projector (AugmentationRank, NullSpaceFraction, "
    "UnexplainedVariance), Augmentation channel (NonEmptyProbability, PolicyEntropy, PolicyMaps), Neighbours and "
    "classes (HardestNegativeDistance, LabelAgreement, NeuralCollapse), Equivariance and invariance "
    "(EquivarianceError, InvarianceError), Content and style (LatentR2, MeanCorrelation, GradientSpectrum)."
)
PROBES = {"linear_probe_accuracy": (0.55, 0.949), "knn_probe_accuracy": (0.62, 0.953), "label_agreement": (0.3, 0.8)}


def write_run(folder: Path, epochs=6):
    """A run as the package writes it, with made-up numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for epoch in range(epochs):
        share, step = (epoch + 1) / epochs, (epoch + 1) * STEPS - 1
        for stage, values in (("train", SCALARS), ("val", SCALARS | PROBES)):
            logged = {f"{stage}/{name}": a + (b - a) * share for name, (a, b) in values.items()}
            rows.append({"epoch": epoch, "step": step} | logged)
        rows += [{"step": epoch * STEPS + 10 * part, "lr-LARS": 0.3 - 0.3 * share} for part in range(5)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    for name, size in (("log_spectrum_h", 128), ("log_spectrum_z", 64), ("projector_singular_values", 64)):
        index = np.arange(size)
        values = [2 - index * (6 - epoch / epochs) / size for epoch in range(epochs)]
        values = values if name.startswith("log_") else np.exp(values)
        lines = [[epoch, (epoch + 1) * STEPS, *np.round(row, 6)] for epoch, row in enumerate(values)]
        write_csv(folder / f"geometry/train/{name}.csv", ["epoch", "step", *index], lines)
    write_csv(
        folder / "linear_evaluation.csv",
        ["features", "labels_per_class", "accuracy", "accuracy_std", "split", "test_size", "feature_dim"],
        [
            ["pixels", "all", 0.952, "", "test", 360, 64],
            ["frozen", "all", 0.931, "", "test", 360, 128],
            ["trained", "all", 0.969, "", "test", 360, 128],
            ["pixels", 10, 0.871, 0.012, "test", 360, 64],
            ["frozen", 10, 0.842, 0.015, "test", 360, 128],
            ["trained", 10, 0.925, 0.009, "test", 360, 128],
        ],
    )
    info = {
        "model": "SimCLRModule",
        "data": "DigitsDataModule",
        "command": "ssl-geometry fit --config smoke.yaml",
        "seed": 0,
        "started": "2026-01-02T10:00:03+00:00",
        "ended": "2026-01-02T10:03:21+00:00",
        "status": "finished",
        "versions": {"torch": "2.15.0"},
        "epochs": epochs,
        "steps": epochs * STEPS,
        "parameters": 123456,
    }
    (folder / "run.json").write_text(json.dumps(info))
    (folder / "config.yaml").write_text("seed_everything: 0\nmodel:\n  class_path: x.y.SimCLRModule\n")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "digits")


@pytest.fixture(scope="module")
def page(run):
    return Page(write_report(run).read_text("utf-8"))


# --- what is read


def test_scalars_are_read_as_they_were_logged(run):
    series = read_run(run).scalars["val/loss"]
    assert series.epoch.tolist() == list(range(6))
    assert series.step.tolist() == [49, 99, 149, 199, 249, 299]
    assert series.value == pytest.approx(5.4 - 1.3 * np.arange(1, 7) / 6)


def test_time_counts_epochs_of_training(run):
    read = read_run(run)
    assert read.steps_per_epoch == STEPS
    assert read.time_unit == "epochs"
    assert read.time(read.scalars["train/loss"]).tolist() == [1, 2, 3, 4, 5, 6]
    assert read.time(read.arrays["train/log_spectrum_h"]).tolist() == [1, 2, 3, 4, 5, 6]


def test_a_row_without_an_epoch_has_that_of_the_steps_around_it(run):
    rate = read_run(run).scalars["lr-LARS"]
    assert rate.epoch.tolist() == [epoch for epoch in range(6) for _ in range(5)]


def test_a_resumed_run_counts_the_last_value_of_a_step(tmp_path):
    write_csv(tmp_path / "metrics.csv", ["epoch", "step", "a"], [[0, 9, 1], [1, 19, 2], [1, 19, 7], [0, 9, 5]])
    series = read_run(tmp_path).scalars["a"]
    assert series.step.tolist() == [9, 19]
    assert series.value.tolist() == [5, 7]


def test_a_value_logged_per_step_and_per_epoch_is_one_scalar(tmp_path):
    rows = [[0, 4, 1.0, ""], [0, 9, "", 1.5], [1, 19, "", 1.2]]
    write_csv(tmp_path / "metrics.csv", ["epoch", "step", "train/loss_step", "train/loss_epoch"], rows)
    assert list(read_run(tmp_path).scalars) == ["train/loss_step", "train/loss"]


def test_arrays_evaluations_info_and_config(run):
    read = read_run(run)
    assert read.arrays["train/log_spectrum_h"].values.shape == (6, 128)
    assert [row.features for row in read.evaluations[:3]] == ["pixels", "frozen", "trained"]
    assert read.evaluations[3].std == 0.012
    assert np.isnan(read.evaluations[0].std)
    assert read.info["seed"] == 0
    assert read.config.startswith("seed_everything")
    assert read.notes == ()


def test_an_interrupted_line_is_left_out_and_said_so(tmp_path):
    write_csv(tmp_path / "metrics.csv", ["epoch", "step", "a"], [[0, 9, 1.5], [1, 19, 0.9]], end="")
    read = read_run(tmp_path)
    assert read.scalars["a"].value.tolist() == [1.5]
    assert "metrics.csv ends in an incomplete line, which was left out." in read.notes


def test_nan_is_kept_and_an_empty_cell_is_not_one(tmp_path):
    write_csv(
        tmp_path / "metrics.csv", ["epoch", "step", "a", "b"], [[0, 9, 1, ""], [1, 19, "nan", 2], [2, 29, "inf", 3]]
    )
    read = read_run(tmp_path)
    assert np.isnan(read.scalars["a"].value[1])
    assert np.isinf(read.scalars["a"].value[2])
    assert len(read.scalars["b"].value) == 2
    assert "a is not a finite number in 2 of 3 rows, first at epoch 1, step 19." in read.notes


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("", "metrics.csv is empty"),
        ("epoch,st", "metrics.csv has no complete line"),
        ("epoch,step,a\n", "metrics.csv has a header and no rows"),
        ("epoch,step,a\n0,9,1\n0,9\n", "left out rows of another length than the header, 1 of 2"),
        ("epoch,step,a\n0,9,x\n0,,1\n", "left out cells that are not numbers or have no step, 2 in all"),
        ("epoch,a\n0,1\n0,2\n", "metrics.csv has no column `step`"),
        (f"epoch,step,{'a' * 200_000}\n0,9,1\n", "metrics.csv could not be read"),
    ],
)
def test_a_broken_metrics_file_still_makes_a_page(tmp_path, text, note):
    (tmp_path / "metrics.csv").write_text(text)
    assert any(note in each for each in read_run(tmp_path).notes)
    assert note in Page(write_report(tmp_path).read_text("utf-8")).text


@pytest.mark.parametrize(
    ("name", "text", "note"),
    [
        ("run.json", "{", "run.json could not be read"),
        ("run.json", "[1]", "run.json holds a list instead of an object"),
        ("config.yaml", "a: [", "config.yaml is not YAML"),
        ("linear_evaluation.csv", "a,b\n1,2\n", "has no column features and no column accuracy"),
        (
            "linear_evaluation.csv",
            "features,accuracy\npixels,x\n",
            "left out rows whose accuracy is not a number, 1 of 1",
        ),
        ("geometry/train/a.csv", "x,y\n1,2\n", "geometry/train/a.csv has no columns epoch, step, 0, 1"),
        ("geometry/train/a.csv", "epoch,step,0\n0,,2\n", "left out rows without a step, 1 of 1"),
        ("geometry/train/a.csv", "", "geometry/train/a.csv is empty"),
    ],
)
def test_other_broken_files_still_make_a_page(tmp_path, name, text, note):
    write_csv(tmp_path / "metrics.csv", ["epoch", "step", "a"], [[0, 9, 1]])
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    assert note in Page(write_report(tmp_path).read_text("utf-8")).text


def test_missing_files_are_named(tmp_path):
    (tmp_path / "geometry").mkdir()
    notes = " ".join(read_run(tmp_path).notes)
    for name in (
        "metrics.csv is missing",
        "run.json is missing",
        "geometry/ holds no arrays",
    ):
        assert name in notes
    assert "config.yaml" not in notes


@pytest.mark.parametrize(("command", "noted"), [("ssl-geometry fit", True), ("train.py", False), (None, False)])
def test_a_missing_config_is_noted_where_the_command_line_writes_one(tmp_path, command, noted):
    write_log(tmp_path, val__loss=[2.0, 1.0])
    (tmp_path / "run.json").write_text(json.dumps({"command": command}))
    assert any("config.yaml is missing" in note for note in read_run(tmp_path).notes) is noted


def test_model_data_and_seed_come_from_the_config_where_run_json_is_missing(tmp_path):
    write_csv(tmp_path / "metrics.csv", ["epoch", "step", "a"], [[0, 9, 1]])
    (tmp_path / "config.yaml").write_text("seed_everything: 3\nmodel: {class_path: a.B}\ndata: {class_path: C}\n")
    assert read_run(tmp_path).info == {"model": "B", "data": "C", "seed": 3}


def test_the_newest_version_is_read_and_named(tmp_path):
    for version in (2, 10, 9):
        write_csv(tmp_path / f"digits/version_{version}/metrics.csv", ["epoch", "step", "a"], [[0, 9, version]])
    (tmp_path / "digits/version_11").mkdir()
    read = read_run(tmp_path / "digits")
    assert read.name == "digits/version_10"
    assert read.scalars["a"].value.tolist() == [10]
    assert "This is version_10, the newest of 3 versions in digits." in read.notes


def test_a_folder_that_is_no_run_is_named_with_what_was_looked_for(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"Expected `run` to be the folder of a run, but .*nowhere does not exist"
    ):
        read_run(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"to hold metrics\.csv or geometry/.*but .* holds nothing\."):
        write_report(tmp_path)
    write_csv(tmp_path / "lightning_logs/version_0/metrics.csv", ["epoch", "step", "a"], [[0, 9, 1]])
    with pytest.raises(ValueError, match=r"holds lightning_logs\. Runs further down: .*version_0"):
        summary_table(tmp_path)
    with pytest.raises(ValueError, match=r"but .*metrics\.csv is a file"):
        read_run(tmp_path / "lightning_logs/version_0/metrics.csv")


# --- the page


def test_the_page_has_all_sections_figures_and_numbers(page):
    for title in (
        "Is it learning?",
        "Probes",
        "Ranks",
        "Spectra",
        "Alignment and uniformity",
        "Other",
        "Run",
        "Papers",
    ):
        assert title in page.text
    for text in (
        "digits",
        "finished",
        "SimCLRModule on DigitsDataModule",
        "123,456 parameters",
        "seed 0",
        "3 min 18 s",
    ):
        assert text in page.text
    for text in (
        "94.9%",
        "of 128",
        "+3.8",
        "+8.3",
        "92.5% ± 0.9",
        "label_agreement",
        "lr-LARS",
        "Accuracy on the split test",
    ):
        assert text in page.text
    assert "Not recorded" not in page.text
    assert page.text.count(ABSENT) == 1
    assert page.values("class").count("figure") == 16


def test_every_figure_says_what_it_shows_and_every_point_its_value(page):
    figures = [attributes for tag, attributes in page.attributes if tag == "svg" and attributes.get("role")]
    assert all(figure["role"] == "img" and len(figure["aria-label"]) > 20 for figure in figures)
    assert "Loss over training: train from 5.18 to 4.10; val from 5.18 to 4.10." in page.values("aria-label")
    assert "linear: 0.61650 (epoch 0, step 49)" in page.source or "linear val: 0.6165 (epoch 0, step 49)" in page.source
    assert page.tags.count("title") > 300


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing(page):
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(page.tags)
    assert page.values("src") == page.values("xlink:href") == []
    addresses = [attributes["href"] for tag, attributes in page.attributes if tag == "a"]
    assert addresses
    assert all(address.startswith(("https://arxiv.org/abs/", "data:text/csv;")) for address in addresses)
    assert "@import" not in page.source
    assert set(re.findall(r"url\((.)", page.source)) == {"#"}
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in page.values("content")


def test_ids_are_unique_and_references_lead_somewhere(page):
    ids = page.values("id")
    assert len(set(ids)) == len(ids)
    uses = [attributes["href"] for tag, attributes in page.attributes if tag == "use"]
    uses += ["#" + found for found in re.findall(r"url\(#([^)]+)\)", page.source)]
    assert uses
    assert {use[1:] for use in uses} <= set(ids)


def test_figures_take_their_colours_and_font_from_the_page(page):
    figures = "".join(re.findall(r'<svg class="figure".*?</svg>', page.source, re.DOTALL))
    assert re.findall(r"#[0-9a-f]{6}", figures) == []
    assert "font-family" not in figures
    assert "<style" not in figures
    assert set(re.findall(r"var\(--([\w-]+)\)", figures)) <= set(re.findall(r"--([\w-]+):", page.source))


def test_the_same_run_gives_the_same_page(run, page, tmp_path):
    assert write_report(run, tmp_path / "new" / "again.html").read_text("utf-8") == page.source


def test_a_hostile_run_is_shown_and_not_run(tmp_path):
    evil = "<script>alert(1)</script>"
    folder = tmp_path / "<script>alert(1)<"
    header = ["epoch", "step", f"val/{evil}", "val/$\\bad{$", "[red]x", "val/日本語", "huge", "deep", "none", "tiny"]
    rows = [[e, 10 * e + 9, e, e, e, e, f"1e{60 * e}", f"-1e{70 * e}", "nan", "1e-310"] for e in range(6)]
    write_csv(folder / "metrics.csv", header, rows)
    write_csv(folder / f"geometry/val/{evil.replace('/', '')}.csv", ["epoch", "step", 0, 1], [[0, 1, 2, 3]])
    write_csv(folder / "geometry/val/log_spectrum_h.csv", ["epoch", "step", 0, 1], [[0, 1, 1e4, "-inf"]])
    write_csv(
        folder / "geometry/val/log_spectrum_z.csv", ["epoch", "step", 0, 1], [[0, 1, 2, "-inf"], [1, 2, "nan", 1]]
    )
    write_csv(folder / "linear_evaluation.csv", ["features", "accuracy"], [[evil + "\x01", 0.5], ["trained", 1e300]])
    info = dict.fromkeys(["model", "data", "status", "command", "started", "seed", evil], evil) | {
        "machine": {evil: [evil]}
    }
    (folder / "run.json").write_text(json.dumps(info))
    (folder / "config.yaml").write_text(f"</pre>{evil}")
    page = Page(write_report(folder).read_text("utf-8"))
    assert "script" not in page.tags
    assert "<script" not in page.source
    assert page.text.count("<script>alert(1)") > 10
    assert "none is not a finite number in 6 of 6 rows" in page.text
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(summary_table(folder))
    assert evil in console.export_text()


def test_one_epoch_makes_a_page_in_steps(tmp_path):
    read = read_run(write_run(tmp_path / "short", epochs=1))
    assert read.time_unit == "steps"
    text = Page(write_report(read.folder).read_text("utf-8")).text
    assert "steps of training" in text
    assert "after 50 steps" in text


def test_noisy_values_of_every_step_stand_behind_their_means(tmp_path):
    rows = [[step // 100, step, 5 - step / 500 + (-1) ** step] for step in range(1000)]
    write_csv(tmp_path / "metrics.csv", ["epoch", "step", "train/loss"], rows)
    figure = report.figures(read_run(tmp_path))["loss"]
    behind, front = figure.axes[0].lines[:2]
    assert behind.get_ydata().max() == 6
    assert np.abs(front.get_ydata() - (5 - front.get_xdata() / 5)).max() < 0.2
    assert "Thick lines are means of 7 values each." in Page(write_report(tmp_path).read_text("utf-8")).text


def test_layers_of_a_projector_are_told_apart_and_drawn_once(tmp_path):
    header = ["epoch", "step", *(f"{stage}/projector_rank_{layer}" for stage in ("train", "val") for layer in (0, 2))]
    write_csv(tmp_path / "metrics.csv", header, [[e, e, 4, 3, 4, 3] for e in range(3)])
    for layer in (0, 2):
        name = f"geometry/val/projector_singular_values_{layer}.csv"
        write_csv(tmp_path / name, ["epoch", "step", 0, 1], [[0, 1, 2.0, 1.0]])
    page = Page(write_report(tmp_path).read_text("utf-8"))
    for text in (
        "layer 0: 4",
        "layer 2: 3",
        "Spectrum of the projector, layer 2",
        "Projector rank, layer 23 of 2val, from 3",
    ):
        assert page.text.count(text) == 1


def test_layers_are_called_as_in_the_module(tmp_path):
    write_log(tmp_path, **{f"val__projector_rank_layers_{layer}": [4, 3] for layer in (0, 3)})
    axes = report.figures(read_run(tmp_path))["projector_rank"].axes[0]
    assert {"layers.0: 3", "layers.3: 3"} <= {text.get_text() for text in axes.texts}
    assert "Projector rank, layers.33" in Page(write_report(tmp_path).read_text("utf-8")).text


def test_a_loss_of_another_name_is_the_loss(tmp_path):
    text = Page(write_report(write_log(tmp_path, train_loss=[2.0, 1.0], my_metric=[1.0, 1.0])).read_text("utf-8")).text
    learning, _, other = text.partition("Other diagnostics")
    assert "train_loss" in learning
    assert ENTRIES["loss"].text in learning
    assert "my_metric" not in learning
    assert "my_metric" in other
    assert "recorded in this run: Loss" not in text
    write_log(tmp_path, train__loss=[2.0, 1.0], byol_loss=[2.0, 1.0])
    assert "byol_loss" not in Page(write_report(tmp_path).read_text("utf-8")).text.partition("Other diagnostics")[0]


def test_only_what_is_better_at_one_end_has_a_best(tmp_path):
    without = ("effective_rank_h", "alignment", "uniformity", "gaussian_potential", "lidar", "projector_rank")
    assert [ENTRIES[key].best for key in without] == [None] * len(without)
    assert [ENTRIES[key].best for key in ("loss", "linear_probe", "knn_probe")] == ["low", "high", "high"]
    write_log(tmp_path, val__alignment=[1.0, 0.25, 0.5], val__loss=[1.0, 0.25, 0.5])
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(summary_table(tmp_path))
    text = console.export_text()
    assert re.search(r"val/alignment +│ +1 +│ +│ +0\.500", text)
    assert re.search(r"val/loss +│ +1 +│ 0\.250 \(epoch 1\) +│ +0\.500", text)


def test_alignment_without_uniformity_is_a_line(tmp_path):
    write_csv(tmp_path / "metrics.csv", ["epoch", "step", "train/alignment"], [[0, 9, 1.0], [1, 19, 0.5]])
    assert list(report.figures(read_run(tmp_path))) == ["alignment"]
    header = ["epoch", "step", "train/alignment", "train/uniformity", "val/alignment"]
    write_csv(tmp_path / "metrics.csv", header, [[0, 9, 1.0, -2.0, 0.9], [1, 19, 0.5, -3.0, 0.8]])
    assert list(report.figures(read_run(tmp_path))) == ["trajectory_train", "alignment"]
    write_csv(tmp_path / "metrics.csv", header, [[0, 9, 1.0, "", 0.9], [1, 19, "", -3.0, 0.8]])
    assert list(report.figures(read_run(tmp_path))) == ["alignment", "uniformity"]


def test_no_more_unknown_scalars_are_drawn_than_a_page_holds(tmp_path):
    header = ["epoch", "step", *(f"val/metric_{number}" for number in range(30))]
    write_csv(tmp_path / "metrics.csv", header, [[e, e, *range(30)] for e in range(2)])
    page = Page(write_report(tmp_path).read_text("utf-8"))
    assert page.values("class").count("figure") == 24
    assert "The first 24" in page.text
    assert "val/metric_29" in page.text


def test_figures_have_names_of_their_own(tmp_path):
    write_csv(tmp_path / "metrics.csv", ["epoch", "step", "a_b_2", "a b", "a/b", "a.b"], [[0, 9, 1, 2, 3, 4]])
    assert list(report.figures(read_run(tmp_path))) == ["other_a_b_2", "other_a_b", "other_a_b_3", "other_a_b_4"]


def test_an_interrupted_write_leaves_the_old_page(run, tmp_path, monkeypatch):
    path = write_report(run, tmp_path / "page.html")
    old = path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        write_report(run, path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_the_output_is_no_folder(run, tmp_path):
    with pytest.raises(ValueError, match=r"Expected `output` to be a file, but .* is a folder"):
        write_report(run, tmp_path)


def test_the_page_is_written_beside_the_run_by_default(run):
    assert write_report(run) == run / "report.html"


# --- the rest


def test_the_terminal_table_has_first_best_last_and_the_comparison(run):
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(summary_table(run))
    text = console.export_text()
    assert re.search(r"val/linear_probe_accuracy .* 61\.7% .* 94\.9% \(epoch 5\) .* 94\.9%", text)
    assert re.search(r"train/projector_rank .* 60\.7 .*│ +│ +44 ", text)
    assert re.search(r"trained network .* 92\.5% ± 0\.9", text)


def test_reading_a_run_imports_neither_torch_nor_lightning(run):
    code = f"""
import sys
from lightning_ssl_geometry.report import summary_table, write_report
assert "matplotlib" not in sys.modules
write_report({str(run)!r}, {str(run / "other.html")!r})
summary_table({str(run)!r})
assert not {{"torch", "lightning", "pandas", "matplotlib.pyplot"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_what_the_package_logs_is_in_the_glossary():
    for name in [*SCALARS, *GEOMETRY, *(name for name in PROBES if name != "label_agreement")]:
        assert lookup(f"probe/{name}"), name
    for stem in ("upper_bound", "upper_bound_info_nce", "upper_bound_invariance", "upper_bound_repulsion"):
        assert lookup(f"train/{stem}") is not lookup("train/loss")
    for name in ("log_spectrum_h", "singular_values_z", "projector_singular_values", "projector_singular_values_0"):
        assert lookup(f"train/{name}").paper == "cosentino"
    assert lookup("val/label_agreement") is None
    assert all(entry.paper is None or entry.paper in PAPERS for entry in ENTRIES.values())


def _luminance(color):
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_colours_have_contrast_in_both_modes_and_figures_share_the_light_ones():
    css = (Path(report.__file__).parent / "page.css").read_text()
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part)) for part in css.split("@media (prefers", 1))
    assert light.keys() == dark.keys()
    for palette in (light, dark):
        paper = _luminance(palette["paper"])
        for name in palette.keys() - {"paper", "grid", "line", "tint"}:
            least = 3.0 if name.startswith("ramp") else 4.5
            bright, dim = sorted([paper, _luminance(palette[name])], reverse=True)
            assert (bright + 0.05) / (dim + 0.05) >= least, name
    assert {name: light[name] for name in plots.COLORS} == plots.COLORS
    assert tuple(light[f"ramp-{place}"] for place in range(7)) == plots.RAMP


def test_small_print():
    assert element("p", "<", None, element("br"), hidden=True, class_=None) == "<p hidden>&lt;<br></p>"
    assert [number(value) for value in (0.0, 999999.5, 1e6, 0.00099, -np.inf)] == [
        "0", "1,000,000", "1.00\N{MULTIPLICATION SIGN}10⁶", "9.90\N{MULTIPLICATION SIGN}10⁻⁴", "\N{MINUS SIGN}∞",
    ]  # fmt: skip
    assert duration("2026-01-02T03:04:05", "2026-01-02T03:04:45") == "40 s"
    assert duration("2026-01-02T03:04:05+00:00", "2026-01-02T03:04:45") is None


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_browser_shows_the_page_at_phone_and_desktop_width(page, tmp_path):
    count = page.values("class").count("figure")
    expected = {"overflow": 0, "figures": count, "cut": [], "seen": count, "script": "undefined"}
    assert seen_in_a_browser(page, tmp_path) == {"390": expected, "1440": expected}
