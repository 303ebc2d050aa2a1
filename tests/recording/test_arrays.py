import os

import numpy as np
import pandas as pd
import pytest
import torch

from lightning_ssl_geometry.files import row, write_rows
from lightning_ssl_geometry.recording.arrays import ArrayFiles
from lightning_ssl_geometry.recording.run_files import RunFiles
from lightning_ssl_geometry.report.logs import read_arrays


def test_numpy_and_pandas_read_it(tmp_path):
    files = ArrayFiles(RunFiles(tmp_path))
    values = torch.randn(3, 4).double()
    values[1, 2] = float("-inf")
    for step, vector in enumerate(values):
        files.append("val/spectrum", step // 2, step, vector)
    path = tmp_path / "geometry" / "val" / "spectrum.csv"
    read = np.genfromtxt(path, delimiter=",", skip_header=1)
    np.testing.assert_allclose(read[:, 2:], values.numpy(), rtol=1e-7)
    frame = pd.read_csv(path)
    assert list(frame) == ["epoch", "step", "0", "1", "2", "3"]
    assert frame["epoch"].tolist() == [0, 0, 1]


def test_a_resumed_run_goes_on_behind_its_step_and_loses_nothing(tmp_path):
    files = ArrayFiles(RunFiles(tmp_path))
    for step in (5, 10, 15):
        files.append("train/a", 0, step, torch.full((2,), float(step)))
    path = tmp_path / "geometry" / "train" / "a.csv"
    with path.open("a") as file:
        file.write("3,2")  # a torn row
    files.files.rewind(10)
    assert pd.read_csv(path)["step"].tolist() == [5, 10]
    files.append("train/a", 0, 15, torch.full((2,), 15.0))
    assert pd.read_csv(path)["0"].tolist() == [5, 10, 15]
    superseded = tmp_path / "superseded-1" / "geometry" / "train" / "a.csv"
    assert pd.read_csv(superseded)["step"].tolist() == [15]
    files.files.reopen()
    files.files.rewind(0)
    assert not path.exists()
    assert len(pd.read_csv(tmp_path / "superseded-2" / "geometry" / "train" / "a.csv")) == 3


WIDE = 2048


def wide(step):
    return torch.arange(WIDE) + step / 8


def test_long_vectors_are_records_that_numpy_reads(tmp_path):
    files = ArrayFiles(RunFiles(tmp_path))
    for step in range(100):
        files.append("val/spectrum", step // 10, step, wide(step))
        files.append("val/narrow", 0, step, torch.ones(512))
    folder = tmp_path / "geometry" / "val"
    assert sorted(path.name for path in folder.iterdir()) == ["narrow.csv", "spectrum.npy"]
    rows = np.load(folder / "spectrum.npy")
    assert rows["step"].tolist() == list(range(100))
    assert rows["epoch"].tolist() == [step // 10 for step in range(100)]
    np.testing.assert_array_equal(rows["values"], torch.stack([wide(step) for step in range(100)]).numpy())
    assert (folder / "spectrum.npy").stat().st_size < 100 * (4 * WIDE + 16) + 1000
    readouts, notes = read_arrays(tmp_path / "geometry")
    assert not notes
    np.testing.assert_array_equal(readouts["val/spectrum"].values, rows["values"])
    assert readouts["val/spectrum"].step.tolist() == list(range(100))


def test_a_resumed_run_goes_on_behind_its_step_with_long_vectors(tmp_path):
    files = ArrayFiles(RunFiles(tmp_path))
    for step in (5, 10, 15):
        files.append("train/a", 0, step, wide(step))
    path = tmp_path / "geometry" / "train" / "a.npy"
    before = np.load(path)
    with path.open("ab") as file:
        file.write(b"torn" * 1000)
    np.testing.assert_array_equal(np.load(path), before)
    files.append("train/a", 0, 20, wide(20))
    assert np.load(path)["step"].tolist() == [5, 10, 15, 20]
    files.files.rewind(10)
    assert np.load(path)["step"].tolist() == [5, 10]
    superseded = tmp_path / "superseded-1" / "geometry" / "train" / "a.npy"
    assert np.load(superseded)["step"].tolist() == [15, 20]
    files.append("train/a", 0, 15, wide(15))
    np.testing.assert_array_equal(np.load(path), before)
    files.files.reopen()
    files.files.rewind(0)
    assert not path.exists()
    assert np.load(tmp_path / "superseded-2" / "geometry" / "train" / "a.npy")["step"].tolist() == [5, 10, 15]


def test_a_file_of_an_older_version_is_continued_as_text(tmp_path):
    files = RunFiles(tmp_path)
    files.append("geometry/val/a.csv", ["epoch", "step", *map(str, range(WIDE))], [0, 0, *range(WIDE)])
    ArrayFiles(files).append("val/a", 0, 1, wide(1))
    assert pd.read_csv(tmp_path / "geometry" / "val" / "a.csv")["step"].tolist() == [0, 1]
    assert not list(tmp_path.rglob("*.npy"))


def test_long_vectors_that_a_full_disk_refused_are_written_when_it_has_room(tmp_path, monkeypatch):
    files, path = ArrayFiles(RunFiles(tmp_path)), tmp_path / "geometry" / "val" / "a.npy"
    files.append("val/a", 0, 0, wide(0))
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:1000]))
        with pytest.warns(UserWarning, match=r"a\.npy cannot be written now: .*No space left"):
            files.append("val/a", 0, 1, wide(1))
    assert np.load(path)["step"].tolist() == [0]
    files.append("val/a", 0, 2, wide(2))
    rows = np.load(path)
    assert rows["step"].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(rows["values"], torch.stack([wide(step) for step in range(3)]).numpy())


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (np.zeros((3, WIDE), dtype=np.float32), "no records of `epoch`, `step` and `values`"),
        (np.zeros(3, dtype=[("epoch", "<i8"), ("step", "<i8"), ("values", "<f4")]), "no records of"),
        (np.array([object(), print], dtype=object), "no records of"),
        (b"", "could not be read"),
        (b"\x93NUMPY\x02\x00", "no NPY file of version 1"),
        (row(0, 0, np.full(WIDE, np.nan)), "holds no finite number"),
        (row(0, 0, np.ones(WIDE))[:0], "has no rows"),
        (row(0, -1, np.ones(WIDE)), "left out rows without a step, 1 of 1"),
    ],
)
def test_files_that_are_no_records_are_named(tmp_path, rows, reason):
    path = tmp_path / "geometry" / "val" / "a.npy"
    path.parent.mkdir(parents=True)
    if isinstance(rows, bytes):
        path.write_bytes(rows)
    elif rows.dtype.names and rows.dtype["values"].shape:
        write_rows(path, rows)
    else:
        np.save(path, rows)
    _, notes = read_arrays(tmp_path / "geometry")
    (note,) = notes
    assert "geometry/val/a.npy" in note
    assert reason in note


def test_the_text_of_a_name_that_has_records_is_left_out_and_said_so(tmp_path):
    folder = tmp_path / "geometry" / "val"
    write_rows(folder / "a.npy", row(0, 3, np.ones(4)))
    (folder / "a.csv").write_text("epoch,step,0\n0,1,5\n")
    found, notes = read_arrays(tmp_path / "geometry")
    assert found["val/a"].step.tolist() == [3]
    assert notes == ["geometry/val/a.csv was left out: there is a val/a.npy."]


def test_of_an_array_with_more_axes_it_keeps_the_latest(tmp_path):
    files = ArrayFiles(RunFiles(tmp_path))
    values = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    for step, each in enumerate(values, start=7):
        files.append("val/policy.image", 1, step, each)
        files.append("val/labels", 1, step, torch.arange(4, dtype=torch.bfloat16).unsqueeze(1))
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["history.json", "labels.npz", "policy.image.npz"]
    with np.load(tmp_path / "geometry" / "val" / "policy.image.npz") as file:
        assert (int(file["epoch"]), int(file["step"])) == (1, 8)
        np.testing.assert_array_equal(file["values"], values[1].float().numpy())
    with np.load(tmp_path / "geometry" / "val" / "labels.npz") as file:
        assert file["values"].tolist() == [[0], [1], [2], [3]]


def test_the_first_array_stays_through_a_resume_and_goes_with_a_fit_from_the_start(tmp_path):
    def first():
        with np.load(tmp_path / "geometry" / "val" / "a.first.npz") as file:
            return int(file["epoch"]), int(file["step"]), file["values"].ravel().tolist()

    files = ArrayFiles(RunFiles(tmp_path))
    for step in (5, 10, 15):
        files.append("val/a", 0, step, torch.full((1, 1), float(step)), first=True)
    assert first() == (0, 5, [5])
    again = RunFiles(tmp_path)
    again.adopt({"run": files.files.run, "folder": str(tmp_path), "files": []})
    again.rewind(10)
    ArrayFiles(again).append("val/a", 1, 20, torch.full((1, 1), 20.0), first=True)
    assert first() == (0, 5, [5])
    again.reopen()
    again.rewind(4)  # before the first
    ArrayFiles(again).append("val/a", 0, 6, torch.full((1, 1), 6.0), first=True)
    assert first() == (0, 6, [6])
    assert not (tmp_path / "geometry" / "val" / "b.first.npz").exists()


def test_an_array_from_behind_the_step_of_a_resumed_run_goes_elsewhere(tmp_path):
    files = ArrayFiles(RunFiles(tmp_path))
    files.append("val/a", 0, 10, torch.ones(2, 2))
    files.append("val/b", 1, 15, torch.ones(2, 2))
    folder = tmp_path / "geometry" / "val"
    (folder / f".b.npz.{'0' * 32}.part").write_bytes(b"PK")  # of a process that was killed
    files.files.rewind(10)
    assert [path.name for path in folder.iterdir()] == ["a.npz"]
    assert (tmp_path / "superseded-1" / "geometry" / "val" / "b.npz").exists()


def test_bad_input(tmp_path):
    files = ArrayFiles(RunFiles(tmp_path))
    with pytest.raises(ValueError, match="Expected 'a' to have at least one axis, but got a scalar"):
        files.append("a", 0, 0, torch.tensor(1.0))
    files.append("a", 0, 0, torch.ones(3))
    with pytest.raises(ValueError, match=r"Expected 5 columns in .*a\.csv, as in earlier rows, but got 6"):
        files.append("a", 0, 1, torch.ones(4))
    files.append("b", 0, 0, torch.ones(600))
    with pytest.raises(ValueError, match=r"Expected 600 values in .*b\.npy, as earlier, but got 601"):
        files.append("b", 0, 1, torch.ones(601))


def test_a_table_of_rows_that_an_earlier_version_began_keeps_its_columns(tmp_path):
    (tmp_path / "geometry/val").mkdir(parents=True)
    table = tmp_path / "geometry/val/rows_seen.csv"
    table.write_text("epoch,step,samples,views,width_h,width_z\n0,5,80,2,40,4\n")
    files = ArrayFiles(RunFiles(tmp_path))
    files.files.claim("geometry/val/rows_seen.csv")
    files.append_seen("val/rows_seen", 1, 10, counts=[80, 1, 40, 4, 2])
    assert table.read_text().splitlines()[1:] == ["0,5,80,2,40,4", "1,10,80,1,40,4"]
    files.append_seen("train/rows_seen", 1, 10, counts=[80, 1, 40, 4, 2])
    assert (tmp_path / "geometry/train/rows_seen.csv").read_text().splitlines() == [
        "epoch,step,samples,views,width_h,width_z,views_z",
        "1,10,80,1,40,4,2",
    ]
