"""Diagnoses of models as they lie on disk: everything at one moment, and layer by layer."""

import json
from pathlib import Path

import numpy as np
from pages import write_csv

SCALARS = {
    "effective_rank_h": 5.5,
    "effective_rank_z": 3.0,
    "alpha_req_alpha": 1.25,
    "alpha_req_r2": 0.98,
    "alpha_req_first": 2,
    "alpha_req_last": 12,
    "lidar": 7.5,
    "intrinsic_dimension_two_nn": 4.5,
    "intrinsic_dimension_mle": 4.25,
    "alignment": 0.4,
    "uniformity": -2.5,
    "sigreg": 1.5,
    "null_space_fraction": 0.9,
    "null_space_isotropic": 0.75,
    "my_own_metric": 3.25,
}
LAYERS = ("h", "projector.0", "projector.2", "z")


def write_layers(folder: Path, names=LAYERS, shift=0.0, stage="test", **columns):
    """layers.csv and the map of the layers' similarities."""
    place = np.arange(len(names))
    columns = {"effective_rank": 9.5 - place + shift, "knn_accuracy": 0.75 - 0.125 * place} | columns
    rows = [[name, 16 // (k + 1), *(values[k] for values in columns.values())] for k, name in enumerate(names)]
    write_csv(folder / "layers.csv", ["layer", "width", *columns], rows)
    (folder / f"geometry/{stage}").mkdir(parents=True, exist_ok=True)
    values = 0.5 ** np.abs(place[:, None] - place)
    np.savez(folder / f"geometry/{stage}/layer_cka.npz", values=values, epoch=0, step=0)
    return folder


def write_diagnosis(folder: Path, shift=0.0, width=16, names=LAYERS, **info):
    """One row of scalars, one readout of each array."""
    values = {name: value + (0 if "first" in name or "last" in name else shift) for name, value in SCALARS.items()}
    write_csv(
        folder / "metrics.csv", ["epoch", "step", *(f"test/{name}" for name in values)], [[0, 0, *values.values()]]
    )
    arrays = {"log_spectrum_h": 2 - 0.125 * np.arange(width) + shift, "projector_singular_values": 1 / np.arange(1, 9)}
    arrays["hardest_negative_histogram"] = np.full(8, 0.125)
    for name, row in arrays.items():
        write_csv(folder / f"geometry/test/{name}.csv", ["epoch", "step", *range(len(row))], [[0, 0, *row]])
    said = {"kind": "diagnosis", "model": "resnet18", "data": "ImageFolderDataModule", "data_path": "/photos/val"}
    said |= {"checkpoint": "/models/last.ckpt", "samples": 10_000, "parameters": 11_176_512, "seed": 0} | info
    (folder / "run.json").write_text(json.dumps(said))
    (folder / "config.yaml").write_text("seed_everything: 0\n")
    return write_layers(folder, names, shift)
