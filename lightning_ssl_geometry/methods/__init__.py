"""Methods as LightningModules, one paper per file."""

__all__ = ["SSLModule", "SimCLRModule"]

from lightning_ssl_geometry.methods.base import SSLModule
from lightning_ssl_geometry.methods.simclr import SimCLRModule
