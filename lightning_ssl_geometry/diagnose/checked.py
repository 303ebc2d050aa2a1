"""Check that a model takes the images of a comparison, before any model is diagnosed."""

__all__ = ["checked"]

import lightning as L
import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor

from lightning_ssl_geometry.data import ImageDataModule, ImageFolderDataModule
from lightning_ssl_geometry.data.folder import number_of_images
from lightning_ssl_geometry.diagnose.comparison import data_in, refuse_few_samples
from lightning_ssl_geometry.diagnose.diagnosed_model import DiagnosedModel
from lightning_ssl_geometry.diagnose.given import place_and_views


def checked(module: L.LightningModule, data: LightningDataModule) -> dict[str, str]:
    """Return the data in words (:func:`data_in`), as they will stand in the record of a diagnosis.

    If the shape of the images is known, two blank images are passed through the network. The images of a folder are not
    decoded for this. Raises a ValueError if the network does not take images of this shape, or a folder has too few.
    """
    if isinstance(data, ImageFolderDataModule):
        refuse_few_samples(number_of_images(data.root))
    shape = _shape(data)
    if shape is not None:
        first = next(module.parameters(), None)
        dtype = first.dtype if first is not None and first.is_floating_point() else torch.float32
        _pass(module, torch.zeros(2, *shape, dtype=dtype))
    return data_in({"data": type(data).__name__} | place_and_views(data, shape))


def _shape(data: LightningDataModule) -> tuple[int, ...] | None:
    if isinstance(data, ImageFolderDataModule):
        return (data.channels or 3, data.image_size, data.image_size)
    if not isinstance(data, ImageDataModule):
        return None
    data.prepare_data()
    data.setup("test")
    return data.image_shape


def _pass(module: L.LightningModule, images: Tensor) -> None:
    training = module.training
    try:
        with torch.no_grad():
            h = module.eval()(images)
            if isinstance(module, DiagnosedModel):
                module.project_image(h, None)
    except torch.OutOfMemoryError:
        raise
    except (AssertionError, RuntimeError) as error:  # how networks refuse a size
        raise ValueError(
            f"Expected {type(module).__name__} to take images of shape {tuple(images.shape[1:])}, but it says: {error}"
        ) from error
    finally:
        module.train(training)
