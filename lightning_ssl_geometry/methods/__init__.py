"""Methods, one paper per file, on the SSLModule that they share."""

__all__ = ["CRLTACModule", "HSSLModule", "SSLModule", "SimCLRModule", "SupervisedModule"]

from lightning_ssl_geometry.methods.base import SSLModule
from lightning_ssl_geometry.methods.crl_tac import CRLTACModule
from lightning_ssl_geometry.methods.hssl import HSSLModule
from lightning_ssl_geometry.methods.simclr import SimCLRModule
from lightning_ssl_geometry.methods.supervised import SupervisedModule
