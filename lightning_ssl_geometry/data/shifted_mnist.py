"""ShiftedMNISTDataModule: digits at random positions on larger black images."""

__all__ = ["ShiftedMNISTDataModule"]

from typing import Literal, Unpack, get_args

import torch
from torch import nn

from lightning_ssl_geometry.checks import integer, one_of
from lightning_ssl_geometry.data.base import ImageDataModule, Images, Source, Split, SplitSettings
from lightning_ssl_geometry.data.digits import DigitsDataModule
from lightning_ssl_geometry.data.mnist import MNISTDataModule
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.random import counter_uniform
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.views import GroupViews

Origin = Literal["mnist", "digits"]
_SIDES: dict[Origin, int] = {"mnist": 28, "digits": 8}
_STREAMS: dict[Split, int] = {"train": 0x5417ED0, "test": 0x5417ED1}  # keep these draws apart from others


class ShiftedMNISTDataModule(ImageDataModule):
    """Black images (canvases), each with one digit in a random cell of a grid.

    The defaults, 3 x 3 cells of 28 x 28 pixels, are the data of Koyama, Minami, Miyato & Gal, Contrastive
    Representation Learning with Trainable Augmentation Channel (2021). The cell of a digit is drawn uniformly. It
    depends only on (seed, training or test set, index). Batches have `box` (N, 4), the cells: top, left, bottom and
    right in pixels. Bottom and right are exclusive. `mean` and `std` include the black pixels.

    Args:
        root: The folder that contains `MNIST/raw`. Not used for "digits".
        source: "mnist", or "digits" for the 8 x 8 digits of :class:`DigitsDataModule`.
        grid: Number of cells per row and per column, >= 1.
        cell: Height and width of a cell in pixels. The digit is in the middle of its cell. None: the size of a digit.
        canvas: Height and width of a canvas in pixels. The grid is in its middle. None: `grid` x `cell`.
        batch_size: Samples per process.
        views: Makes the views from (image, index, epoch, mean, std). None: one view, the normalised image.
        seed: Seed of the cells, the subset, the validation samples, the order, and the test set of "digits".
        download: Whether to download MNIST's files if they are missing.
        test_fraction: Fraction of "digits" to hold out as the test set, in (0, 1). Not used for "mnist".
        **settings: `val_fraction`, `subset`, `channels` and `drop_last` of :class:`ImageDataModule`.

    Raises:
        ValueError: If an argument is out of range, if a file of MNIST is not as published, if a cell is too small for a
            digit, or if the canvas is too small for the cells.
        FileNotFoundError: If a file of MNIST is missing.
    """

    @by_position(
        *("batch_size", "views", "val_fraction", "subset", "channels", "seed", "drop_last", "download", "test_fraction")
    )
    @passed_on
    def __init__(
        self,
        root: str = "data",
        source: Origin = "mnist",
        grid: int = 3,
        cell: int | None = None,
        canvas: int | None = None,
        *,
        batch_size: int = 256,
        views: nn.Module | None = None,
        seed: int = 0,
        download: bool = False,
        test_fraction: float = 0.2,
        **settings: Unpack[SplitSettings],
    ) -> None:
        one_of(get_args(Origin), source=source)
        integer(1, grid=grid)
        side = _SIDES[source]
        cell = side if cell is None else cell
        if cell < side:
            raise ValueError(f"Expected `cell` >= {side}, the side of a digit of {source!r}, but got {cell}.")
        canvas = grid * cell if canvas is None else canvas
        if not canvas >= grid * cell:
            raise ValueError(f"Expected `canvas` >= {grid * cell}, `grid` x `cell`, but got {canvas}.")
        views = GroupViews(action=None, num_views=1) if views is None else views
        super().__init__(batch_size, views=views, seed=seed, image_size=canvas, **settings)
        self.grid, self.cell, self.canvas = grid, cell, canvas
        self.digits: ImageDataModule = (
            MNISTDataModule(root, download=download)
            if source == "mnist"
            else DigitsDataModule(seed=seed, test_fraction=test_fraction)
        )

    def prepare_data(self) -> None:
        self.digits.prepare_data()

    def load(self) -> Source:
        """Read the digits and draw a cell for each."""
        source = self.digits.load()
        return source._replace(train=self._shifted(source.train, "train"), test=self._shifted(source.test, "test"))

    def _shifted(self, images: Images, split: Split) -> Images:
        index = torch.arange(len(images.image))
        chosen = (self.grid * counter_uniform(self.seed, _STREAMS[split], index, size=2)).long()  # (M, 2)
        corner = self.cell * chosen + (self.canvas - self.grid * self.cell) // 2
        return images._replace(box=torch.cat([corner, corner + self.cell], 1).short())
