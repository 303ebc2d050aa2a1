"""Methods of self-supervised learning. All are subclasses of SSLModule."""

__all__ = [
    "AdaptiveTemperatureModule",
    "BYOLModule",
    "CRLTACModule",
    "ContrastiveFlowModule",
    "DirectCLRModule",
    "HSSLModule",
    "HomomorphicBYOLModule",
    "SSLModule",
    "SimCLRModule",
    "SupervisedModule",
    "VICRegModule",
]

from lightning_ssl_geometry.methods.adaptive_temperature import AdaptiveTemperatureModule
from lightning_ssl_geometry.methods.base import SSLModule
from lightning_ssl_geometry.methods.byol import BYOLModule
from lightning_ssl_geometry.methods.contrastive_flow import ContrastiveFlowModule
from lightning_ssl_geometry.methods.crl_tac import CRLTACModule
from lightning_ssl_geometry.methods.direct_clr import DirectCLRModule
from lightning_ssl_geometry.methods.homomorphic_byol import HomomorphicBYOLModule
from lightning_ssl_geometry.methods.hssl import HSSLModule
from lightning_ssl_geometry.methods.simclr import SimCLRModule
from lightning_ssl_geometry.methods.supervised import SupervisedModule
from lightning_ssl_geometry.methods.vicreg import VICRegModule
