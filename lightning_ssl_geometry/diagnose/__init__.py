"""Diagnose a network without training it: a run of this package, a checkpoint, a timm model or your own module."""

__all__ = [
    "Choice",
    "DiagnosedModel",
    "ModelSource",
    "choose",
    "compare",
    "diagnose",
    "diagnosis_monitor",
    "folder_of_images",
    "load_weights",
]

from lightning_ssl_geometry.deprecation import old_names
from lightning_ssl_geometry.diagnose.checkpoint import load_weights
from lightning_ssl_geometry.diagnose.choosing import Choice, choose
from lightning_ssl_geometry.diagnose.comparison import compare
from lightning_ssl_geometry.diagnose.diagnosed_model import DiagnosedModel
from lightning_ssl_geometry.diagnose.diagnosis import diagnose, folder_of_images
from lightning_ssl_geometry.diagnose.model_source import ModelSource
from lightning_ssl_geometry.diagnose.observed import diagnosis_monitor

__getattr__ = old_names(
    __name__,
    {"Subject": "DiagnosedModel", "Source": "ModelSource"},
)
