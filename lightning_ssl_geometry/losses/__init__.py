"""Losses as modules, computed on the batch of all processes; an argument out of its range raises a ValueError."""

__all__ = [
    "AdaptiveTemperatureLoss",
    "AllPairs",
    "AugmentationChannelLoss",
    "BYOLLoss",
    "ContentStyleTemperature",
    "DistinctPairs",
    "EqualizingTemperature",
    "ExactInformation",
    "GradientSpectrumTemperature",
    "InfoNCELoss",
    "LearnedTemperature",
    "LogBilinearInfoNCELoss",
    "PolicyGradient",
    "ScoreFunction",
    "VICRegLoss",
    "VariationalLoss",
]

from lightning_ssl_geometry.losses.adaptive_temperature import AdaptiveTemperatureLoss
from lightning_ssl_geometry.losses.augmentation_channel import AugmentationChannelLoss
from lightning_ssl_geometry.losses.byol import BYOLLoss
from lightning_ssl_geometry.losses.info_nce import InfoNCELoss
from lightning_ssl_geometry.losses.log_bilinear import LogBilinearInfoNCELoss
from lightning_ssl_geometry.losses.policy_gradient import (
    AllPairs,
    DistinctPairs,
    ExactInformation,
    PolicyGradient,
    ScoreFunction,
)
from lightning_ssl_geometry.losses.temperature import (
    ContentStyleTemperature,
    EqualizingTemperature,
    GradientSpectrumTemperature,
    LearnedTemperature,
)
from lightning_ssl_geometry.losses.variational import VariationalLoss
from lightning_ssl_geometry.losses.vicreg import VICRegLoss
