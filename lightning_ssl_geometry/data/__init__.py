"""Data as LightningDataModules, one source per file."""

__all__ = [
    "CIFAR10DataModule",
    "CIFAR100DataModule",
    "ClusterDataModule",
    "DigitsDataModule",
    "ImageDataModule",
    "ImageFolderDataModule",
    "Images",
    "InvertibleMLP",
    "LatentDGPDataModule",
    "LatentProcess",
    "MNISTDataModule",
    "PublishedDataModule",
    "ShiftedMNISTDataModule",
    "Source",
    "TinyImageNetDataModule",
]

from lightning_ssl_geometry.data.base import ImageDataModule, Images, Source
from lightning_ssl_geometry.data.cifar import CIFAR10DataModule, CIFAR100DataModule
from lightning_ssl_geometry.data.clusters import ClusterDataModule
from lightning_ssl_geometry.data.digits import DigitsDataModule
from lightning_ssl_geometry.data.folder import ImageFolderDataModule
from lightning_ssl_geometry.data.latent_dgp import LatentDGPDataModule
from lightning_ssl_geometry.data.latent_process import LatentProcess
from lightning_ssl_geometry.data.mixing import InvertibleMLP
from lightning_ssl_geometry.data.mnist import MNISTDataModule
from lightning_ssl_geometry.data.published import PublishedDataModule
from lightning_ssl_geometry.data.shifted_mnist import ShiftedMNISTDataModule
from lightning_ssl_geometry.data.tiny_imagenet import TinyImageNetDataModule
