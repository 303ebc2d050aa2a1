"""Losses as modules: thin over `functional`, on the batch of all ranks."""

__all__ = ["InfoNCELoss", "LogBilinearInfoNCELoss", "VICRegLoss"]

from lightning_ssl_geometry.losses.info_nce import InfoNCELoss
from lightning_ssl_geometry.losses.log_bilinear import LogBilinearInfoNCELoss
from lightning_ssl_geometry.losses.vicreg import VICRegLoss
