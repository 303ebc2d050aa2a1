"""Diagnostics as torchmetrics Metrics: what each `update` names is what it observes."""

__all__ = [
    "Alignment",
    "AugmentationRank",
    "EffectiveRank",
    "EmbeddingSample",
    "EquivarianceError",
    "GaussianPotential",
    "HardestNegativeDistance",
    "InvarianceError",
    "JacobianRank",
    "LabelAgreement",
    "LieGenerator",
    "LinearRegions",
    "LocalUnexplainedVariance",
    "LogSpectrum",
    "LossGap",
    "Moments",
    "NonEmptyProbability",
    "NullSpaceFraction",
    "PairSimilarity",
    "PolicyEntropy",
    "PolicyMaps",
    "ProjectorRank",
    "RotationRank",
    "SampledEmbeddings",
    "SampledRows",
    "UnexplainedVariance",
    "Uniformity",
    "UpperBound",
]

from lightning_ssl_geometry.diagnostics.accumulate import Moments, SampledEmbeddings, SampledRows
from lightning_ssl_geometry.diagnostics.augmentation_channel import (
    EmbeddingSample,
    NonEmptyProbability,
    PairSimilarity,
    PolicyEntropy,
    PolicyMaps,
)
from lightning_ssl_geometry.diagnostics.contrastive import UpperBound
from lightning_ssl_geometry.diagnostics.equivariance import EquivarianceError, InvarianceError
from lightning_ssl_geometry.diagnostics.homomorphism import LossGap
from lightning_ssl_geometry.diagnostics.hypersphere import Alignment, GaussianPotential, Uniformity
from lightning_ssl_geometry.diagnostics.lie import LieGenerator, RotationRank
from lightning_ssl_geometry.diagnostics.neighbors import HardestNegativeDistance, LabelAgreement
from lightning_ssl_geometry.diagnostics.piecewise_affine import JacobianRank, LinearRegions, LocalUnexplainedVariance
from lightning_ssl_geometry.diagnostics.spectrum import EffectiveRank, LogSpectrum, ProjectorRank
from lightning_ssl_geometry.diagnostics.tangent import AugmentationRank, NullSpaceFraction, UnexplainedVariance
