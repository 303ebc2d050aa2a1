"""Networks: backbones x -> h and projectors h -> z."""

__all__ = ["MLPProjector", "ResNet", "SmallCNN", "TimmBackbone"]

from lightning_ssl_geometry.nn.backbones import ResNet, SmallCNN, TimmBackbone
from lightning_ssl_geometry.nn.projectors import MLPProjector
