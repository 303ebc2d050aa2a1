"""The default diagnostics of `diagnose`."""

__all__ = ["diagnosis_diagnostics", "diagnosis_monitor"]

from torch import nn
from torchmetrics import Metric

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.diagnostics import (
    AlphaReQ,
    ClassRank,
    HardestNegativeDistance,
    IntrinsicDimension,
    LabelAgreement,
    LiDAR,
    LogSpectrum,
    NeuralCollapse,
    NullSpaceFraction,
    RankConvergence,
    SIGReg,
    UnexplainedVariance,
)
from lightning_ssl_geometry.diagnostics.standard import STANDARD_RENAME, standard_diagnostics

_CLEAN = ("log_spectrum_h_image", "alpha_req", "intrinsic_dimension")
_OF_Z = ("alignment", "uniformity", "gaussian_potential", "sigreg", "label_agreement")


def diagnosis_diagnostics(projector: nn.Module | None, labels: bool, images: bool = True) -> dict[str, Metric]:
    """Return the diagnostics of :func:`diagnosis_monitor` by name."""
    diagnostics: dict[str, Metric] = standard_diagnostics(projector, samples=True) | {
        "log_spectrum_h_image": LogSpectrum(),
        "alpha_req": AlphaReQ(),
        "intrinsic_dimension": IntrinsicDimension(),
        "lidar": LiDAR(),
        "rank_convergence": RankConvergence(),
        "sigreg": SIGReg(),
        "hardest_negative": HardestNegativeDistance(),
    }
    if labels:
        diagnostics |= {
            "label_agreement": LabelAgreement(),
            "neural_collapse": NeuralCollapse(),
            "class_rank": ClassRank(),
        }
    if not images:
        diagnostics = {name: each for name, each in diagnostics.items() if name not in _CLEAN}
    if isinstance(projector, nn.Linear):
        diagnostics |= {"unexplained_variance": UnexplainedVariance(), "null_space": NullSpaceFraction()}
    return diagnostics


def diagnosis_monitor(projector: nn.Module | None, labels: bool, images: bool = True) -> GeometryMonitor:
    """Return a monitor that runs the standard diagnostics, and some more, in the test loop.

    LiDAR, SIGReg, the distance of the hardest negative and the rank of parts of the rows are always added. On
    unaugmented images, the spectrum, alpha-ReQ and intrinsic dimension are added. If there are labels, label agreement,
    neural collapse and the rank of each class are added. If the projector is linear, two diagnostics of the directions
    of h that the projector ignores are added.

    Args:
        projector: The network's projector. None: diagnostics of z are computed on h.
        labels: Whether the images have labels.
        images: Whether the batches have images without augmentation. False: the diagnostics of these are left out.
    """
    diagnostics = diagnosis_diagnostics(projector, labels, images)
    rename = STANDARD_RENAME | {name: {"h": "h_image"} for name in _CLEAN}
    if projector is None:
        rename |= {name: {"z": "h"} for name in (*_OF_Z, "hardest_negative")}
        for name in ("effective_rank_z", "log_spectrum_z", "projector", "bound"):  # no loss had this network's bound
            del diagnostics[name]
    return GeometryMonitor(diagnostics, {name: rename[name] for name in rename if name in diagnostics}, stages=["test"])
