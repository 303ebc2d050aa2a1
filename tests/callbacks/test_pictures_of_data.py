"""The standard monitor's pictures of the data in a fit: where they are, without noise, and through a resume."""

import warnings
from functools import partial

import lightning as L
import numpy as np
import pytest
import torch
from hosts import PlainHost, quiet
from torch import nn
from torch.utils.data import DataLoader

from lightning_ssl_geometry.callbacks import GeometryMonitor, RunReport
from lightning_ssl_geometry.data import ClusterDataModule, DigitsDataModule
from lightning_ssl_geometry.diagnostics import RepresentationMap
from lightning_ssl_geometry.diagnostics.standard import PICTURES
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import SmallCNN
from lightning_ssl_geometry.report import read_run


def fit(folder, epochs, ckpt_path=None, monitor=True, callbacks=(), version=0):
    L.seed_everything(0)
    constant = partial(torch.optim.lr_scheduler.StepLR, step_size=1000)  # whatever the number of epochs
    model = SimCLRModule(SmallCNN(in_channels=1, width=4), nn.Linear(32, 8, bias=False), lr_scheduler=constant)
    trainer = L.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=ResumableCSVLogger(folder, name="run", version=version),
        callbacks=[*([GeometryMonitor()] if monitor else []), *callbacks],
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
    )
    trainer.fit(model, datamodule=DigitsDataModule(batch_size=64, subset=256), ckpt_path=ckpt_path)
    return trainer, folder / "run" / f"version_{version}"


def pictures(folder):
    run = read_run(folder)
    held = {f"{name} {which}": log for which, logs in (("latest", run.snapshots), ("first", run.firsts))
            for name, log in logs.items() if name.split("/")[1].split("_")[0] in PICTURES}  # fmt: skip
    return {name: (log.step, log.values) for name, log in held.items()}


def equal(found, expected):
    assert found.keys() == expected.keys()
    for name, (step, values) in expected.items():
        assert found[name][0] == step, name
        np.testing.assert_array_equal(found[name][1], values, err_msg=name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("runs"), 4, callbacks=[RunReport(table=False)])


def test_a_fit_has_pictures_of_held_out_samples_and_its_page_stays_small(whole):
    found = pictures(whole[1])
    names = (
        "views",
        "neighbors_image",
        "neighbors_label",
        "neighbors_cosine",
        "map_coordinates",
        "map_label",
        "map_share",
        "classes",
    )
    firsts = {f"val/neighbors_{key} first" for key in ("image", "label", "cosine")}
    assert found.keys() == {f"val/{name} latest" for name in names} | firsts | {"val/classes first"}
    image, first = (found[f"val/neighbors_image {which}"] for which in ("latest", "first"))
    assert first[0] * 4 == image[0]
    np.testing.assert_array_equal(image[1][:, 0], first[1][:, 0])  # the same samples
    page = (whole[1] / "report.html").read_text()
    assert all(f'id="figure-{name}"' in page for name in ("view_pairs", "nearest_neighbors", "class_accuracy"))
    assert len(page) < 1_000_000


@pytest.mark.parametrize("version", [0, 1])  # in the same folder, or in a new one
def test_a_resumed_fit_has_the_pictures_of_a_whole_one(whole, tmp_path, version):
    trainer, _ = fit(tmp_path, 2)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    _, folder = fit(tmp_path, 4, ckpt_path=tmp_path / "half.ckpt", version=version)
    equal(pictures(folder), pictures(whole[1]))


def test_pictures_change_no_bit_of_the_training(whole, tmp_path):
    plain, _ = fit(tmp_path, 4, monitor=False)
    for ours, theirs in zip(whole[0].model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_vectors_have_a_map_and_no_pictures_and_nobody_is_told(tmp_path):
    model = SimCLRModule(nn.Linear(2, 8), nn.Linear(8, 4, bias=False))
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=ResumableCSVLogger(tmp_path, name="run"),
        callbacks=[GeometryMonitor()],
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trainer.fit(model, datamodule=ClusterDataModule(batch_size=64))
    assert not [each for each in told if any(name in str(each.message) for name in ("views", "neighbors", "classes"))]
    assert {name.split("/")[1].split("_")[0].split(" ")[0] for name in pictures(tmp_path / "run" / "version_0")} <= {
        "map",
        "classes",
    }


@pytest.mark.filterwarnings("ignore:Trying to infer the `batch_size`")
@pytest.mark.parametrize("label", [torch.eye(3)[0], 0.5, "cat"], ids=["several", "a float", "a text"])
def test_labels_that_are_no_classes_cost_the_standard_pictures_their_classes_and_no_more(tmp_path, label):
    x = torch.rand(16, 1, 8, 8)
    data = DataLoader([(each, each, label) for each in x], 8)
    model = PlainHost()
    model.trunk = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    seen = {"taps": {"h": "trunk", "z": "head"}, "batch_keys": {"image": 0, "label": 2}}
    monitor = GeometryMonitor(**seen)
    quiet(tmp_path, callbacks=[monitor]).fit(model, data, data)
    assert {path.stem for path in (tmp_path / "geometry/val").glob("*.npz")} == {
        "neighbors_image", "neighbors_image.first", "neighbors_cosine", "neighbors_cosine.first",
        "map_coordinates", "map_share",
    }  # fmt: skip
    asked = GeometryMonitor({"map": RepresentationMap()}, **seen)
    with pytest.raises(ValueError, match=r"diagnostic 'map' .* Expected `label` as class numbers"):
        quiet(tmp_path / "asked", callbacks=[asked]).fit(model, data, data)
