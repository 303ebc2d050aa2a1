"""Views of images that are already normalised."""

__all__ = ["NormalizedViews"]

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import listed, shaped
from lightning_ssl_geometry.views.simclr import SimCLRViews


class NormalizedViews(nn.Module):
    """Undo the normalisation of images, make views of the images in [0, 1], and normalise the views.

    Args:
        mean: One finite number per channel, which was subtracted from images in [0, 1].
        std: One number > 0 per channel, by which the images were then divided.
        views: Called with (image, index, epoch, mean, std). None: `SimCLRViews()`.
    """

    image_range = None

    def __init__(self, mean: Sequence[float], std: Sequence[float], views: nn.Module | None = None) -> None:
        super().__init__()
        listed(mean=mean, std=std)
        mean, std = [float(value) for value in mean], [float(value) for value in std]
        if not mean or len(mean) != len(std):
            raise ValueError(f"Expected `mean` and `std` of one length >= 1, but got {len(mean)} and {len(std)}.")
        if not all(math.isfinite(value) for value in mean):
            raise ValueError(f"Expected finite `mean`, but got {list(mean)}.")
        if not all(value > 0 for value in std):
            raise ValueError(f"Expected `std` > 0 for each channel, but got {list(std)}.")
        self.mean = tuple(mean)
        self.std = tuple(std)
        if views is not None and not isinstance(views, nn.Module):
            raise ValueError(f"Expected `views` to be a module, but got {views!r}.")
        self.views = SimCLRViews() if views is None else views

    def forward(self, image: Tensor, index: Tensor, epoch: int = 0) -> tuple[Tensor, ...]:
        """Make V views (N, C, h, w) of every image, normalised with `mean` and `std`.

        Args:
            image: (N, C, H, W), images in [0, 1] that were normalised with `mean` and `std`.
            index: (N,) int64, the position of each sample in its data set.
            epoch: Epoch of the training.
        """
        shaped("N, C, H, W", {"C": len(self.mean)}, image=image)
        mean, std = torch.tensor(self.mean, device=image.device), torch.tensor(self.std, device=image.device)
        plain = image.float() * std[:, None, None] + mean[:, None, None]
        low, high = (float(bound) for bound in plain.aminmax())
        slack = 0.02 if image.dtype in (torch.bfloat16, torch.float16) else 1e-3  # rounding of the normalised values
        if not (low >= -slack and high <= 1 + slack):
            raise ValueError(
                f"Expected `image` in [0, 1] after undoing `mean` {self.mean} and `std` {self.std}, but got values "
                f"from {low:.3g} to {high:.3g}."
            )
        views = self.views(plain.clamp(0, 1), index, epoch, mean, std)  # clamps rounding errors
        return tuple(view.to(image.dtype) for view in views)
