"""What is read of a run's folder."""

import json
import subprocess
import sys

import numpy as np
import pytest
from pages import declare, entry, report, write_array, write_csv, write_info, write_log, write_rows

from lightning_ssl_geometry.report import read_run, summary_table, write_report
from lightning_ssl_geometry.report.download import series_numbers


def test_scalars_are_read_as_they_were_logged_and_time_counts_epochs(tmp_path):
    rows = [[0, 0, "", 3, ""], [0, 9, 2.5, 4, ""], ["", 14, "", "", 0.1], [1, 19, 1.5, 5, ""], ["", 4, "", "", 0.2]]
    read = read_run(write_array(write_rows(tmp_path, ["train/loss", "probe/rank", "lr"], *rows), "train/own", [1], [3]))
    loss = read.scalars["train/loss"]
    assert (loss.epoch.tolist(), loss.step.tolist(), loss.value.tolist()) == ([0, 1], [9, 19], [2.5, 1.5])
    assert (read.steps_per_epoch, read.time_unit) == (10, "epochs")
    assert read.time(loss).tolist() == read.time(read.arrays["train/own"]).tolist() == [1, 2]
    assert read.time(read.scalars["probe/rank"]).tolist() == [0, 1, 2]  # what is looked at before training
    assert read.scalars["lr"].epoch.tolist() == [0, 1]  # a row without an epoch has that of the steps around it
    # a host logs after its first step: this is no look before training
    read = read_run(write_rows(tmp_path / "host", ["train/loss", "probe/own"], [0, 0, 2.5, 4], [0, 1, 1.5, 5]))
    assert read.time(read.scalars["probe/own"]).tolist() == [1, 2]


def test_two_optimizers_have_one_clock(tmp_path):
    """Lightning's log counts batches, and geometry/ the steps of both optimizers."""
    write_log(tmp_path, train__loss=[3, 2, 1])
    rows = [[epoch, 20 * (epoch + 1), 0.5] for epoch in range(3)]
    write_csv(tmp_path / "geometry/train/own.csv", ["epoch", "step", 0], rows)
    read = read_run(tmp_path)
    loss = read.scalars["train/loss"]
    assert (loss.step.tolist(), loss.done.tolist(), read.steps_per_epoch) == ([9, 19, 29], [20, 40, 60], 20)
    assert read.time(loss).tolist() == read.time(read.arrays["train/own"]).tolist() == [1, 2, 3]


def test_a_page_replaces_no_file_of_others(tmp_path):
    write_log(tmp_path, train__loss=[3, 2, 1])
    before = (tmp_path / "metrics.csv").read_text()
    with pytest.raises(
        FileExistsError, match=r"no file .*metrics\.csv, or one of an earlier command, but it is another"
    ):
        write_report(read_run(tmp_path), tmp_path / "metrics.csv")
    assert (tmp_path / "metrics.csv").read_text() == before
    for _ in range(2):  # its own pages it does replace
        write_report(read_run(tmp_path), tmp_path / "page.html")


def test_epochs_of_one_step_keep_what_was_seen_before_training(tmp_path):
    rows = [[0, 0, "", 3, ""], [0, 0, "", "", 8], [0, 0, 2.5, 4, ""], [1, 1, 1.5, 5, ""], [2, 2, 1.0, 6, 9]]
    read = read_run(write_rows(tmp_path, ["train/loss", "probe/rank", "probe/b/rank"], *rows))
    rank = read.scalars["probe/rank"]
    assert (rank.value.tolist(), rank.step.tolist()) == ([3, 4, 5, 6], [0, 0, 1, 2])
    assert [read.time(read.scalars[f"probe/{name}"]).tolist() for name in ("rank", "b/rank")] == [[0, 1, 2, 3], [0, 3]]
    assert read.time(read.scalars["train/loss"]).tolist() == [1, 2, 3]
    assert "3 (before training)" in report(tmp_path).source
    assert series_numbers([rank]).rows[:2] == [("probe/rank", 0, 0, 3, 0), ("probe/rank", 0, 0, 4, 1)]
    resumed(write_log(tmp_path / "on", probe__rank=[7]), "..", logged=2)
    assert read_run(tmp_path / "on").scalars["probe/rank"].value.tolist() == [3, 4, 5, 7]


@pytest.mark.parametrize("ends", [[(0, 9), (1, 19), (2, 22)], [(4, 49), (9, 99)], [(0, 9), (1, 12)]])
def test_an_epoch_that_was_cut_short_or_not_logged_leaves_the_length_of_the_others(tmp_path, ends):
    assert read_run(write_rows(tmp_path, ["a"], *([*end, 1] for end in ends))).steps_per_epoch == 10


def test_a_value_logged_twice_is_one_and_what_is_not_finite_is_kept(tmp_path):
    rows = [[0, 4, 1, "", "", 4], [0, 9, "", 1, "", 1], [1, 19, "", "nan", 2, 2], [2, 29, "", "inf", 3, ""]]
    rows += [[1, 19, "", "", "", 7], [0, 9, "", "", "", 5]]  # resumed: the last value of a step counts
    rows += [[3, 39, 8, "", 8], [3, 39, 8, "", 8, 8, 8]]  # of another length than the header: left out
    read = read_run(write_rows(tmp_path, ["a_step", "a_epoch", "b", "again"], *rows))
    assert list(read.scalars) == ["a_step", "a", "b", "again"]
    np.testing.assert_array_equal(read.scalars["a"].value, [1, np.nan, np.inf])
    assert read.scalars["b"].value.tolist() == [2, 3]  # an empty cell is no NaN
    assert (read.scalars["again"].step.tolist(), read.scalars["again"].value.tolist()) == ([4, 9, 19], [4, 5, 7])
    assert "a is not a finite number in 2 of 3 rows, first at epoch 1, step 19." in read.notes


def test_a_scalar_with_nothing_before_it_starts_at_its_second_readout(tmp_path):
    write_log(tmp_path, val__drift=["nan", 0.9], val__other=["nan", 1])
    read = read_run(declare(tmp_path, val__drift=entry("Drift", delayed=True)))
    assert read.scalars["val/drift"].value.tolist() == [0.9]
    assert [note.split()[0] for note in read.notes if "finite" in note] == ["val/other"]


@pytest.mark.parametrize(
    ("name", "text", "note"),
    [
        ("metrics.csv", "", "metrics.csv is empty"),
        ("metrics.csv", "epoch,step,a\n0,9,1.5\n1,19,0.9", "ends in an incomplete line, which was left out"),
        ("metrics.csv", "epoch,step,a\n0,9,1\n0,9\n", "left out rows of another length than the header, 1 of 2"),
        ("metrics.csv", "epoch,step,a\n0,9,x\n0,,1\n", "left out cells that are not numbers or have no step, 2 in all"),
        ("metrics.csv", "epoch,a\n0,1\n0,2\n", "metrics.csv has no column `step`; its rows are counted instead"),
        ("run.json", "[1]", "run.json holds a list instead of an object"),
        ("config.yaml", "a: [", "config.yaml is not YAML"),
        ("linear_evaluation.csv", "a,b\n1,2\n", "has no column features and no column accuracy"),
        ("linear_evaluation.csv", "features,accuracy\na,x\n", "left out rows whose accuracy is not a number, 1 of 1"),
        ("layers.csv", "name,width\nh,2\n", "layers.csv has no column `layer`; it was left out"),
        ("layers.csv", "layer,width,a\nh,2,x\nz,1,3\n", "layers.csv: left out cells that are not finite numbers, 1 in"),
        ("geometry/train/a.csv", "x,y\n1,2\n", "geometry/train/a.csv has no columns epoch, step, 0, 1"),
        ("geometry/train/a.csv", "epoch,step,0\n0,,2\n", "left out rows without a step, 1 of 1"),
    ],
)
def test_what_a_torn_or_foreign_file_lacks_is_said_on_the_page(tmp_path, name, text, note):
    write_rows(tmp_path, ["a"], [0, 9, 1])
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    assert note.replace("`", "") in report(tmp_path).text


def test_missing_files_are_named_and_the_config_where_the_command_line_writes_one(tmp_path):
    (tmp_path / "geometry").mkdir()
    missing = ("metrics.csv is missing", "run.json is missing", "geometry/ holds no arrays")
    assert all(any(note.startswith(said) for note in read_run(tmp_path).notes) for said in missing)
    for command, noted in (("ssl-geometry fit", True), ("train.py", False), (None, False)):
        notes = read_run(write_info(tmp_path, command=command)).notes
        assert any("config.yaml is missing" in note for note in notes) is noted
    (tmp_path / "run.json").unlink()
    (tmp_path / "config.yaml").write_text("seed_everything: 3\nmodel: {class_path: a.B}\ndata: {class_path: C}\n")
    assert read_run(tmp_path).info == {"model": "B", "data": "C", "seed": 3}


def test_a_run_that_declares_scalars_alone_lacks_no_arrays(tmp_path):
    declare(tmp_path, val__a=entry("A"))
    assert not any("no arrays" in note for note in read_run(tmp_path).notes)


def test_the_newest_version_is_read_and_named_and_what_is_no_run_is_named_with_what_was_looked_for(tmp_path):
    for version in (2, 10, 9):
        write_log(tmp_path / f"runs/digits/version_{version}", a=[version])
    (tmp_path / "runs/digits/version_11").mkdir()
    read = read_run(tmp_path / "runs/digits")
    assert (read.name, read.scalars["a"].value.tolist()) == ("digits/version_10", [10])
    assert "This is version_10, the newest of 3 versions in digits." in read.notes
    with pytest.raises(FileNotFoundError, match=r"Expected `run` to be the folder .*nowhere does not exist"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"to hold metrics\.csv or geometry/.*but .* holds nothing\."):
        write_report(tmp_path / "runs/digits/version_11")
    with pytest.raises(ValueError, match=r"holds digits\. Runs further down: .*version_10"):
        summary_table(tmp_path / "runs")
    with pytest.raises(ValueError, match=r"but .*metrics\.csv is a file"):
        read_run(tmp_path / "runs/digits/version_2/metrics.csv")


def resumed(folder, earlier, **changes):
    told = {"from": earlier, "run": None, "step": 20, "logged": 20, "epoch": 2, "time": "2026-01-02T03:04:05"}
    (folder / "history.json").write_text(json.dumps({"run": "r", "resumed": [told | changes]}))


def test_a_run_that_goes_on_in_another_folder_has_the_history_and_the_meaning_of_both(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    declare(write_array(write_log(one, val__rank=[1, 2, 9]), "val/own", [1], [2], [9]), val__rank=entry("Rank of both"))
    resumed(write_rows(two, ["val/rank"], [2, 29, 3], [3, 39, 4]), "../one")
    read = read_run(two)
    assert read.scalars["val/rank"].value.tolist() == [1, 2, 3, 4]
    assert read.arrays["val/own"].values.tolist() == [[1], [2]]
    text = report(two).text
    assert "High Rank of both." in text
    assert "at step 20, epoch 2, from ../one, 2026-01-02 03:04" in text
    for earlier, said in (
        ("../gone", "gone does not exist"),
        (None, "does not say which"),
        ("../two/../two", "itself"),
    ):
        resumed(two, earlier)
        (note,) = [each for each in read_run(two).notes if each.startswith("Resumed at step 20")]
        assert said in note


def test_reading_a_run_imports_neither_torch_nor_lightning(tmp_path):
    write_log(tmp_path, val__loss=[2.0, 1.0])
    code = f"""
import sys
from lightning_ssl_geometry.report import summary_table, write_report
assert not {{"matplotlib", "jinja2"}} & set(sys.modules)
write_report({str(tmp_path)!r})
summary_table({str(tmp_path)!r})
assert not {{"torch", "lightning", "pandas", "matplotlib.pyplot"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
