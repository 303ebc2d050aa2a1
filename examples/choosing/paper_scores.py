"""Scores that the five papers suggest, and CLID, of one run of the study, on the test images.

`reproduce.py study` calls it for each run, and compares the scores with those of `ssl-geometry choose`. The directions
were fixed before any of these scores was compared with an accuracy.
"""

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import yaml
from sklearn.cluster import KMeans
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from recipe import write

import lightning_ssl_geometry.data
from lightning_ssl_geometry.data import ImageDataModule
from lightning_ssl_geometry.diagnose import ModelSource
from lightning_ssl_geometry.diagnostics import (
    GradientSpectrum,
    IntrinsicDimension,
    NeuralKernel,
    ProjectionAlignment,
    UpperBound,
)
from lightning_ssl_geometry.methods import SSLModule
from lightning_ssl_geometry.views import SimCLRViews

HERE = Path(__file__).parent
TABLE = "paper_scores.csv"
CLUSTERS = 10
TEMPERATURE = 0.5  # of the bound, for all runs
# Name -> which values are good, and why.
GOOD = {
    "gap of the bound": "low",  # Cosentino et al.: InfoNCE near its bound is a projector that fits the displacements
    "projection alignment": "high",  # Cosentino et al.: W W^T h points along the displacement, beyond a random W
    "gain of views over samples": "low",  # Cosentino et al.: the projector attenuates augmentations
    "content dimension": "high",  # Rusak et al.: the directions that both views share
    "kernel alignment with clusters": "high",  # Calder & Lee: a step on one sample moves its cluster along
    "CLID": "high",  # Lu et al. 2023: learnable clusters in many dimensions
}


class Value(NamedTuple):
    """One score of one run."""

    score: str
    value: float


def secant_gain(h: Tensor, z: Tensor) -> float:
    """Return how much a projector stretches differences between views, over those between samples.

    Each is the sum of squared distances in z over that in h. For a linear projector W, the result is the gain of W on
    the differences between views, divided by the gain on those between samples.

    Args:
        h: (2, N, D), two views.
        z: (2, N, P), their projections.
    """

    def gain(difference: Callable[[Tensor], Tensor]) -> Tensor:
        return difference(z).square().sum() / difference(h).square().sum()

    return float(gain(lambda x: x[1] - x[0]) / gain(lambda x: x[0] - x[0].mean(0)))


def cluster_learnability(rows: Tensor, cluster: Tensor) -> float:
    """Return how often the nearest of the rows before a row has its cluster, for rows (N, D) in their order."""
    distance = torch.cdist(rows, rows).masked_fill(torch.ones(len(rows), len(rows)).triu().bool(), torch.inf)
    return float((cluster[distance[1:].argmin(1)] == cluster[1:]).float().mean())


def measured(model: SSLModule, data: ImageDataModule) -> dict[str, float]:
    """Return the scores of a model on the test images."""
    data.prepare_data()
    data.setup("test")
    model.eval()
    seen = [data.on_after_batch_transfer(batch, 0) for batch in data.test_dataloader()]
    image = torch.cat([batch["image"] for batch in seen])
    views = tuple(torch.cat([batch["views"][view] for batch in seen]) for view in (0, 1))
    with torch.no_grad():
        h, z = model.embed(views)
        clean = model.embed((image,))[0][0]
    bound, alignment = UpperBound(TEMPERATURE), ProjectionAlignment(samples=128)
    spectrum, dimension = GradientSpectrum(), IntrinsicDimension()
    bound.update(z)
    alignment.update(h, z, projector=model.projector)
    spectrum.update(h)
    dimension.update(clean)
    cluster = torch.from_numpy(KMeans(CLUSTERS, n_init=10, random_state=0).fit_predict(clean.numpy())).long()
    kernel = NeuralKernel(outputs=16, contrast_size=256)
    kernel.update(image, encoder=model.backbone, label=cluster)
    bounds, aligned = bound.compute(), alignment.compute()
    order = torch.randperm(len(clean), generator=torch.Generator().manual_seed(0))
    learnable = cluster_learnability(clean[order], cluster[order])
    return {
        "gap of the bound": float(bounds["upper"] - bounds["info_nce"]),
        "projection alignment": float(aligned["cosine"] - aligned["random"]),
        "gain of views over samples": secant_gain(h, z),
        "content dimension": float(spectrum.compute()["content_dimension"]),
        "kernel alignment with clusters": float(kernel.compute()["alignment"]),
        "CLID": learnable * float(dimension.compute()["two_nn"]),
    }


def main() -> None:
    """Measure one checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--config", type=Path, default=HERE / "diagnosed.yaml", help="YAML file with the data section")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    section = yaml.safe_load(options.config.read_text())["data"]
    kind, given = section["class_path"].rpartition(".")[2], section["init_args"]
    data = getattr(lightning_ssl_geometry.data, kind)(**given | {"views": SimCLRViews(**given["views"]["init_args"])})
    model = ModelSource(run=str(options.run)).load().network
    assert isinstance(model, SSLModule)
    write([Value(*item) for item in measured(model, data).items()], options.folder / TABLE)


if __name__ == "__main__":
    main()
