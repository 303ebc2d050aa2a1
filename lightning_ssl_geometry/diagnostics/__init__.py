"""Diagnostics of representations, embeddings and networks, as torchmetrics Metrics.

The arguments of `update` have common names. For V views of N samples, h (V, N, D) are the representations and z
(V, N, P) the embeddings. `h_image` and `z_image` are those of images without augmentation. `index` (N,) holds the index
of each sample in the data set. The callback `GeometryMonitor` calls `update`. With `rename={"sigreg_h": {"z": "h"}}`,
it passes h as the argument z of "sigreg_h". For constant weights, use its stages "val", "test" and "probe".
"""

__all__ = [
    "Alignment",
    "AlphaReQ",
    "AugmentationRank",
    "CKADrift",
    "ClassAccuracy",
    "ClassMeanCosine",
    "ClassRank",
    "Clusteredness",
    "Diagnostic",
    "DimensionTemperature",
    "EffectiveRank",
    "EmbeddingVectors",
    "EquivarianceError",
    "GaussianPotential",
    "GradientSpectrum",
    "HardestNegativeDistance",
    "IntrinsicDimension",
    "InvarianceError",
    "JacobianRank",
    "LabelAgreement",
    "LatentR2",
    "LayerSample",
    "LiDAR",
    "LieGenerator",
    "LinearRegions",
    "LocalUnexplainedVariance",
    "LogSpectrum",
    "LossGap",
    "LossTerms",
    "MeanCorrelationCoefficient",
    "MeanCosine",
    "ModalityGap",
    "Moments",
    "NearestNeighbors",
    "NeuralCollapse",
    "NeuralKernel",
    "NonEmptyProbability",
    "NullSpaceFraction",
    "OutputWeights",
    "PairSimilarity",
    "PolicyEntropy",
    "PolicyGenerators",
    "PolicyMaps",
    "ProjectionAlignment",
    "ProjectorGain",
    "ProjectorRank",
    "RankConvergence",
    "RepresentationMap",
    "RotationRank",
    "SIGReg",
    "SampledEmbeddings",
    "SampledRows",
    "Stationarity",
    "StepInvariance",
    "TemperatureOrder",
    "UndefinedWarning",
    "UnexplainedVariance",
    "Uniformity",
    "UpperBound",
    "VarianceRank",
    "ViewPairs",
]

from lightning_ssl_geometry.deprecation import old_names
from lightning_ssl_geometry.diagnostics.accumulate import Moments, SampledEmbeddings, SampledRows
from lightning_ssl_geometry.diagnostics.alpha_req import AlphaReQ
from lightning_ssl_geometry.diagnostics.augmentation_channel import (
    EmbeddingVectors,
    NonEmptyProbability,
    PairSimilarity,
    PolicyEntropy,
    PolicyMaps,
)
from lightning_ssl_geometry.diagnostics.cka import CKADrift
from lightning_ssl_geometry.diagnostics.class_accuracy import ClassAccuracy
from lightning_ssl_geometry.diagnostics.clusteredness import Clusteredness
from lightning_ssl_geometry.diagnostics.content_style import (
    DimensionTemperature,
    GradientSpectrum,
    LossTerms,
    OutputWeights,
)
from lightning_ssl_geometry.diagnostics.contrastive import UpperBound
from lightning_ssl_geometry.diagnostics.convergence import ClassRank, RankConvergence
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.diagnostics.equivariance import EquivarianceError, InvarianceError
from lightning_ssl_geometry.diagnostics.homomorphism import LossGap
from lightning_ssl_geometry.diagnostics.hypersphere import Alignment, GaussianPotential, Uniformity
from lightning_ssl_geometry.diagnostics.intrinsic_dimension import IntrinsicDimension
from lightning_ssl_geometry.diagnostics.latents import LatentR2
from lightning_ssl_geometry.diagnostics.layers import LayerSample
from lightning_ssl_geometry.diagnostics.lidar import LiDAR
from lightning_ssl_geometry.diagnostics.lie import LieGenerator, RotationRank
from lightning_ssl_geometry.diagnostics.matching import MeanCorrelationCoefficient, TemperatureOrder
from lightning_ssl_geometry.diagnostics.mean_cosine import ClassMeanCosine, MeanCosine
from lightning_ssl_geometry.diagnostics.modality_gap import ModalityGap
from lightning_ssl_geometry.diagnostics.nearest_neighbors import NearestNeighbors
from lightning_ssl_geometry.diagnostics.neighbors import HardestNegativeDistance, LabelAgreement
from lightning_ssl_geometry.diagnostics.neural_collapse import NeuralCollapse
from lightning_ssl_geometry.diagnostics.neural_kernel import NeuralKernel
from lightning_ssl_geometry.diagnostics.piecewise_affine import JacobianRank, LinearRegions, LocalUnexplainedVariance
from lightning_ssl_geometry.diagnostics.policy_generators import PolicyGenerators
from lightning_ssl_geometry.diagnostics.projection import ProjectionAlignment, ProjectorGain
from lightning_ssl_geometry.diagnostics.representation_map import RepresentationMap
from lightning_ssl_geometry.diagnostics.sigreg import SIGReg
from lightning_ssl_geometry.diagnostics.spectrum import EffectiveRank, LogSpectrum, ProjectorRank
from lightning_ssl_geometry.diagnostics.stationarity import Stationarity
from lightning_ssl_geometry.diagnostics.step_invariance import StepInvariance
from lightning_ssl_geometry.diagnostics.tangent import AugmentationRank, NullSpaceFraction, UnexplainedVariance
from lightning_ssl_geometry.diagnostics.undefined import UndefinedWarning
from lightning_ssl_geometry.diagnostics.variance_rank import VarianceRank
from lightning_ssl_geometry.diagnostics.view_pairs import ViewPairs

__getattr__ = old_names(
    __name__,
    {"MeanCorrelation": "MeanCorrelationCoefficient", "EmbeddingSample": "EmbeddingVectors"},
)
