"""Networks: backbones, projectors, policies, and equivariant layers in `nn.equivariant`."""

__all__ = [
    "ConvPolicy",
    "EquivariantCNN",
    "EquivariantResNet",
    "EscnnBackbone",
    "EscnnCNN",
    "GroupClassifier",
    "GroupConvClassifier",
    "GroupPool",
    "MLPBackbone",
    "MLPProjector",
    "OneHiddenLayer",
    "ResNet",
    "ShallowCNN",
    "SmallCNN",
    "SubVector",
    "TimmBackbone",
    "UnstructuredCNN",
    "UnstructuredMLP",
    "UnstructuredResNet",
]

from lightning_ssl_geometry.nn.backbones import ShallowCNN, SmallCNN, TimmBackbone
from lightning_ssl_geometry.nn.equivariant import (
    EquivariantCNN,
    EquivariantResNet,
    EscnnBackbone,
    EscnnCNN,
    GroupClassifier,
    GroupConvClassifier,
    GroupPool,
    UnstructuredCNN,
    UnstructuredMLP,
    UnstructuredResNet,
)
from lightning_ssl_geometry.nn.mlp import MLPBackbone
from lightning_ssl_geometry.nn.one_hidden_layer import OneHiddenLayer
from lightning_ssl_geometry.nn.policies import ConvPolicy
from lightning_ssl_geometry.nn.projectors import MLPProjector, SubVector
from lightning_ssl_geometry.nn.resnet import ResNet
