"""The diagnostics that `GeometryMonitor()` observes by default."""

__all__ = ["PICTURES", "STANDARD_RENAME", "pictures", "standard_diagnostics", "tower_diagnostics", "tower_rename"]

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import nn
from torchmetrics import Metric

from lightning_ssl_geometry.diagnostics.class_accuracy import ClassAccuracy
from lightning_ssl_geometry.diagnostics.contrastive import UpperBound
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.diagnostics.hypersphere import Alignment, GaussianPotential, Uniformity
from lightning_ssl_geometry.diagnostics.modality_gap import ModalityGap
from lightning_ssl_geometry.diagnostics.nearest_neighbors import NearestNeighbors
from lightning_ssl_geometry.diagnostics.representation_map import RepresentationMap
from lightning_ssl_geometry.diagnostics.spectrum import EffectiveRank, LogSpectrum, ProjectorRank
from lightning_ssl_geometry.diagnostics.tangent import AugmentationRank
from lightning_ssl_geometry.diagnostics.view_pairs import ViewPairs
from lightning_ssl_geometry.quantity import Chart

_UNIFORMITY = Chart("tower_uniformity", "Uniformity of each tower")
_RANK = Chart("tower_rank_{}", "Effective rank of each tower ({})", "directions")
STANDARD_RENAME = {"effective_rank_z": {"h": "z"}, "log_spectrum_z": {"h": "z"}}
PICTURES = {"views": ViewPairs, "neighbors": NearestNeighbors, "map": RepresentationMap, "classes": ClassAccuracy}
"""The standard diagnostics that show samples.

By default, they are computed only where weights stand still, so not in training.
"""


def pictures() -> dict[str, Diagnostic]:
    """Return {name: diagnostic} of the diagnostics that show samples. Without samples, they are left out in silence."""
    found: dict[str, Diagnostic] = {name: make() for name, make in PICTURES.items()}
    for each in found.values():
        each.optional = True
    return found


def standard_diagnostics(projector: nn.Module | None = None, samples: bool = False) -> dict[str, Metric]:
    """Return {name: diagnostic} of the standard diagnostics, without those that `projector` does not allow.

    With `samples`, the diagnostics that show samples are among them.
    """
    found: dict[str, Diagnostic] = {
        "effective_rank_h": EffectiveRank(),
        "effective_rank_z": EffectiveRank(),
        "log_spectrum_h": LogSpectrum(),
        "log_spectrum_z": LogSpectrum(),
        "projector": ProjectorRank(),
        "augmentation": AugmentationRank(),
        "alignment": Alignment(),
        "uniformity": Uniformity(),
        "gaussian_potential": GaussianPotential(),
        "bound": UpperBound(),
    }
    found |= pictures() if samples else {}
    return {name: each for name, each in found.items() if projector is None or each.applies_to(projector)}


def tower_diagnostics(towers: Mapping[str, Sequence[str]]) -> dict[str, Metric]:
    """Return {name: diagnostic} of the standard diagnostics of a model, with those of each of its towers first.

    `towers` maps "h" and "z" to the names of the towers. The names of a tower's diagnostics end with its name. The page
    shows the towers in this order. The rank of the augmentations is left out: the views of two towers, such as an image
    and its text, are no augmentations of each other. The diagnostics that show samples are among
    them. Without towers, the result is that of :func:`standard_diagnostics`, with samples.
    """
    found: dict[str, Metric] = {}
    for space in ("h", "z"):
        for tower in towers.get(space, ()):
            found |= {
                f"effective_rank_{space}_{tower}": _rank_of_one_tower(space),
                f"log_spectrum_{space}_{tower}": LogSpectrum(),
            }
    found |= {f"uniformity_{tower}": _of_one_tower() for tower in towers.get("z", ())}
    found |= {"modality_gap": ModalityGap()} if "z" in towers else {}
    joint = standard_diagnostics(samples=True)
    return found | {name: each for name, each in joint.items() if not towers or name != "augmentation"}


def tower_rename(towers: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Return the argument `rename` of `GeometryMonitor` that gives each of :func:`tower_diagnostics` its tower."""
    found = {f"uniformity_{tower}": {"z": f"z.{tower}"} for tower in towers.get("z", ())}
    for space in ("h", "z"):
        for name in ("effective_rank", "log_spectrum"):
            found |= {f"{name}_{space}_{tower}": {"h": f"{space}.{tower}"} for tower in towers.get(space, ())}
    return found


def _rank_of_one_tower(space: str) -> EffectiveRank:
    metric = EffectiveRank()
    title = replace(_RANK, name=_RANK.name.format(space), title=_RANK.title.format(space))
    # a tower sees one view of each sample; a figure for each space has room for the names at its lines
    metric.quantities = {"": replace(metric.quantities[""], cap="min(N, D)", chart=title)}  # type: ignore[misc]
    return metric


def _of_one_tower() -> Uniformity:
    metric = Uniformity()
    apart = replace(metric.quantities[""], chart=_UNIFORMITY, picture=None)  # not in the figure with the alignment
    metric.quantities = {"": apart}  # type: ignore[misc]
    return metric
