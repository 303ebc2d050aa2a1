"""Diagnose a network without training it: a run's, a checkpoint's, timm's or anybody's, on any images."""

__all__ = ["Source", "Subject", "compare", "diagnose", "diagnosis_monitor", "folder_of_images", "load_weights"]

from lightning_ssl_geometry.diagnose.checkpoint import load_weights
from lightning_ssl_geometry.diagnose.comparison import compare
from lightning_ssl_geometry.diagnose.diagnosis import diagnose, folder_of_images
from lightning_ssl_geometry.diagnose.observed import diagnosis_monitor
from lightning_ssl_geometry.diagnose.source import Source
from lightning_ssl_geometry.diagnose.subject import Subject
