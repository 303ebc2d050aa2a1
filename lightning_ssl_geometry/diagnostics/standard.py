"""The diagnostics that `GeometryMonitor()` observes by default."""

__all__ = ["STANDARD_RENAME", "standard_diagnostics"]

from torch import nn
from torchmetrics import Metric

from lightning_ssl_geometry.diagnostics.contrastive import UpperBound
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.diagnostics.hypersphere import Alignment, GaussianPotential, Uniformity
from lightning_ssl_geometry.diagnostics.spectrum import EffectiveRank, LogSpectrum, ProjectorRank
from lightning_ssl_geometry.diagnostics.tangent import AugmentationRank

STANDARD_RENAME = {"effective_rank_z": {"h": "z"}, "log_spectrum_z": {"h": "z"}}


def standard_diagnostics(projector: nn.Module | None = None) -> dict[str, Metric]:
    """Return {name: diagnostic} of the standard diagnostics, without those that `projector` does not allow."""
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
    return {name: each for name, each in found.items() if projector is None or each.applies_to(projector)}
