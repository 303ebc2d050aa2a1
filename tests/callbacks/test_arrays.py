import numpy as np
import pandas as pd
import pytest
import torch

from lightning_ssl_geometry.callbacks.arrays import ArrayFiles


def test_numpy_and_pandas_read_it(tmp_path):
    files = ArrayFiles(tmp_path / "geometry")
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


def test_a_resumed_run_goes_on_behind_its_step(tmp_path):
    files = ArrayFiles(tmp_path)
    for step in (5, 10, 15):
        files.append("train/a", 0, step, torch.ones(2))
    with (tmp_path / "train" / "a.csv").open("a") as file:
        file.write("3,2")  # an interrupted write
    files.keep_until(10)
    assert pd.read_csv(tmp_path / "train" / "a.csv")["step"].tolist() == [5, 10]
    files.keep_until(0)
    assert not list(tmp_path.rglob("*.csv"))


def test_bad_input(tmp_path):
    files = ArrayFiles(tmp_path)
    with pytest.raises(ValueError, match=r"'a' to be a scalar or one-dimensional, but got \(2, 2\)"):
        files.append("a", 0, 0, torch.ones(2, 2))
    files.append("a", 0, 0, torch.ones(3))
    with pytest.raises(ValueError, match="Expected 3 values for 'a', as in earlier rows, but got 4"):
        files.append("a", 0, 1, torch.ones(4))
