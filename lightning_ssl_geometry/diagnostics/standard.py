"""The diagnostics that `GeometryMonitor()` observes when it is given none."""

__all__ = ["STANDARD_RENAME", "standard_diagnostics"]

from torchmetrics import Metric

from lightning_ssl_geometry.diagnostics.contrastive import UpperBound
from lightning_ssl_geometry.diagnostics.hypersphere import Alignment, GaussianPotential, Uniformity
from lightning_ssl_geometry.diagnostics.spectrum import EffectiveRank, LogSpectrum, ProjectorRank
from lightning_ssl_geometry.diagnostics.tangent import AugmentationRank

STANDARD_RENAME = {"effective_rank_z": {"h": "z"}, "log_spectrum_z": {"h": "z"}}


def standard_diagnostics() -> dict[str, Metric]:
    """Make one of each that streams: ranks and spectra of h, z, projector and augmentations, the sphere, the bound."""
    return {
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
