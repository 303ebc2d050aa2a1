"""A vector of one value stays a vector, and a vector of another length than before is not written, with a warning."""

import warnings

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.diagnostics import ClassRank, RankConvergence
from lightning_ssl_geometry.measuring import GeometryLoop
from lightning_ssl_geometry.report import read_run


def looped(folder, *readouts):
    diagnostics = {"part": RankConvergence(), "class": ClassRank()}
    geometry = GeometryLoop(nn.Linear(1, 1), folder, diagnostics, every_n_steps=1)
    for samples, classes in readouts:
        with geometry.step() as seen:
            seen["h"], seen["label"] = torch.randn(2, samples, 4), torch.arange(samples) % classes
        geometry.read_out()
    geometry.close()
    return read_run(folder)


def test_the_ranks_of_one_class_or_of_few_rows_are_vectors(tmp_path):
    run = looped(tmp_path / "run", (3, 1), (3, 1))
    assert {"train/class_ranks", "train/class_caps", "train/part_rank"} <= run.arrays.keys()
    assert run.arrays["train/class_ranks"].values.shape == (2, 1)
    assert set(run.scalars) == {"train/part_growth", "train/class_mean", "train/class_mean_cap"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.figures()


@pytest.mark.parametrize(("second", "name"), [((16, 2), "part_rank"), ((8, 1), "class_ranks")])
def test_other_numbers_of_samples_or_classes_cost_a_row_and_no_more(tmp_path, second, name):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run = looped(tmp_path / "run", (8, 2), second, (8, 2))
    said = [f"{each.message}" for each in told if f"diagnostic '{name}'" in f"{each.message}"]
    assert len(said) == 1
    assert "as in earlier rows, but got" in said[0]
    assert "It is not written, and the run goes on" in said[0]
    assert run.arrays[f"train/{name}"].step.tolist() == [1, 3]
    assert run.scalars["train/class_mean"].finite.all()
