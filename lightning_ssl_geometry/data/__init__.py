"""Data sets as LightningDataModules, one file for each."""

__all__ = [
    "CIFAR10DataModule",
    "CIFAR100DataModule",
    "ClusterDataModule",
    "DatasetDataModule",
    "DigitsDataModule",
    "ImageDataModule",
    "ImageFolderDataModule",
    "Images",
    "InvertibleMLP",
    "LatentDGPDataModule",
    "LatentProcess",
    "MNISTDataModule",
    "Parts",
    "PartsDataModule",
    "ShiftedMNISTDataModule",
    "SklearnDataModule",
    "Source",
    "TensorDataModule",
    "TinyImageNetDataModule",
    "TorchvisionDataModule",
]

from lightning_ssl_geometry.data.base import ImageDataModule, Images, Source
from lightning_ssl_geometry.data.cifar import CIFAR10DataModule, CIFAR100DataModule
from lightning_ssl_geometry.data.clusters import ClusterDataModule
from lightning_ssl_geometry.data.dataset import DatasetDataModule
from lightning_ssl_geometry.data.digits import DigitsDataModule
from lightning_ssl_geometry.data.folder import ImageFolderDataModule
from lightning_ssl_geometry.data.invertible_mlp import InvertibleMLP
from lightning_ssl_geometry.data.latent_dgp import LatentDGPDataModule
from lightning_ssl_geometry.data.latent_process import LatentProcess
from lightning_ssl_geometry.data.mnist import MNISTDataModule
from lightning_ssl_geometry.data.parts import Parts, PartsDataModule
from lightning_ssl_geometry.data.shifted_mnist import ShiftedMNISTDataModule
from lightning_ssl_geometry.data.sklearn_tables import SklearnDataModule
from lightning_ssl_geometry.data.tensors import TensorDataModule
from lightning_ssl_geometry.data.tiny_imagenet import TinyImageNetDataModule
from lightning_ssl_geometry.data.torchvision_files import TorchvisionDataModule
from lightning_ssl_geometry.deprecation import old_names

__getattr__ = old_names(
    __name__,
    {"PublishedDataModule": "TorchvisionDataModule"},
)
