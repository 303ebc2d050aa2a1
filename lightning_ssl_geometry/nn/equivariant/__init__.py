"""Networks that are equivariant to scale, quarter turns and their product."""

__all__ = [
    "EquivariantCNN",
    "EquivariantResNet",
    "EscnnBackbone",
    "EscnnCNN",
    "GroupBatchNorm",
    "GroupClassifier",
    "GroupConv2d",
    "GroupConvClassifier",
    "GroupPool",
    "LiftingConv2d",
    "PointwiseConv2d",
    "UnstructuredCNN",
    "UnstructuredMLP",
    "UnstructuredResNet",
    "hermite_gaussian_basis",
]

from lightning_ssl_geometry.nn.equivariant.backbones import (
    EquivariantCNN,
    EquivariantResNet,
    UnstructuredCNN,
    UnstructuredMLP,
    UnstructuredResNet,
)
from lightning_ssl_geometry.nn.equivariant.basis import hermite_gaussian_basis
from lightning_ssl_geometry.nn.equivariant.escnn import EscnnBackbone, EscnnCNN
from lightning_ssl_geometry.nn.equivariant.layers import GroupBatchNorm, GroupConv2d, LiftingConv2d, PointwiseConv2d
from lightning_ssl_geometry.nn.equivariant.pooling import GroupClassifier, GroupConvClassifier, GroupPool
