"""Diagnostics as torchmetrics Metrics: what each `update` names is what it observes."""

__all__ = [
    "Alignment",
    "EffectiveRank",
    "GaussianPotential",
    "LogSpectrum",
    "Moments",
    "ProjectorRank",
    "SampledRows",
    "Uniformity",
    "UpperBound",
]

from lightning_ssl_geometry.diagnostics.accumulate import Moments, SampledRows
from lightning_ssl_geometry.diagnostics.contrastive import UpperBound
from lightning_ssl_geometry.diagnostics.hypersphere import Alignment, GaussianPotential, Uniformity
from lightning_ssl_geometry.diagnostics.spectrum import EffectiveRank, LogSpectrum, ProjectorRank
