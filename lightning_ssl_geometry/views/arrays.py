"""The base class of modules that make views of vectors and signals."""

__all__ = ["ArrayViews", "learn"]

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from lightning_ssl_geometry import checks
from lightning_ssl_geometry.checks import floating, integer, shaped
from lightning_ssl_geometry.random import counter_hash
from lightning_ssl_geometry.views.validation import expect_axes


class ArrayViews(nn.Module, ABC):
    """Base class of random views of standardised vectors or signals.

    A view depends only on the sample, on (seed, epoch, sample index, number of the view), and on what the module
    learned from the training set (:meth:`learn`). It does not depend on the rest of the batch.

    Args:
        num_views: V >= 1, the number of views of each sample.
        seed: Seed of the random numbers.

    Attributes:
        axes: Names of the axes of a batch, such as "N, D".
        image_range: None, because the samples may have any finite values.

    Raises:
        ValueError: If `num_views` is not a positive integer.
    """

    axes: str
    image_range = None

    def __init__(self, num_views: int, seed: int) -> None:
        super().__init__()
        integer(1, num_views=num_views)
        checks.seed(seed=seed)
        self.num_views, self.seed = num_views, int(seed)

    def learn(self, sample: Tensor, rows: Tensor) -> None:
        """Keep what the views need of the training set. A DataModule calls this method before it makes views.

        Args:
            sample: (M, C, ...), samples before standardisation.
            rows: (n,) int64, positions of the training samples among the M samples.
        """

    @torch.no_grad()
    def forward(
        self, image: Tensor, index: Tensor, epoch: int = 0, mean: Tensor | None = None, std: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Standardise every sample and make V views of it.

        Args:
            image: Floating point (N, D), vectors, or (N, C, T), signals.
            index: (N,) int64, the position of each sample in its data set.
            epoch: Epoch of the training. The views differ between epochs.
            mean: (D,) or (C,), subtracted from the samples. None: 0.
            std: (D,) or (C,), by which the samples are then divided. None: 1.

        Returns:
            V tensors of the shape and dtype of `image`.

        Raises:
            ValueError: If an argument has a wrong shape or dtype.
        """
        expect_axes(self.axes, image)
        floating(image=image)
        if index.shape != image.shape[:1] or index.dtype != torch.int64:
            got = f"shape {tuple(index.shape)} and {index.dtype}"
            raise ValueError(f"Expected `index` of shape ({len(image)},) and torch.int64, but got {got}.")
        x = image.to(torch.promote_types(image.dtype, torch.float32))
        standardize = _standardization(x, mean=mean, std=std)
        keys = [counter_hash(self.seed, epoch, index.cpu(), view) for view in range(self.num_views)]
        made = (self._view(x, standardize, key=key, view=view) for view, key in enumerate(keys))
        return tuple(view.to(image.dtype) for view in made)

    @abstractmethod
    def _view(self, x: Tensor, standardize: Callable[[Tensor], Tensor], *, key: Tensor, view: int) -> Tensor:
        """Make the view with number `view` of samples `x`, and standardise it.

        `key` (N,) int64 is a random integer for each sample, on the CPU.
        """


def learn(views: nn.Module, sample: Tensor, rows: Tensor) -> None:
    """Call `learn(sample, rows)` of each ArrayViews that `views` is or contains."""
    for module in views.modules():
        if isinstance(module, ArrayViews):
            module.learn(sample, rows)


def _standardization(x: Tensor, *, mean: Tensor | None, std: Tensor | None) -> Callable[[Tensor], Tensor]:
    moments = {name: value for name, value in (("mean", mean), ("std", std)) if value is not None}
    shaped("C,", {"C": x.shape[1]}, **moments)
    columns = (-1, *[1] * (x.ndim - 2))
    at = {name: value.to(x).view(columns) for name, value in moments.items()}
    return lambda sample: (sample - at.get("mean", 0)) / at.get("std", 1)
