import numpy as np
import pandas as pd
import pytest
import torch

from lightning_ssl_geometry.recording.arrays import ArrayFiles
from lightning_ssl_geometry.recording.run_files import RunFiles


def test_numpy_and_pandas_read_it(tmp_path):
    files = ArrayFiles(RunFiles(tmp_path))
    values = torch.randn(3, 4).double()
    values[1, 2] = float("-inf")
    for step, row in enumerate(values):
        files.append("val/spectrum", step // 2, step, row)
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
