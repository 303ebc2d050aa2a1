r"""Finite families of augmentations :math:`T_1, \dots, T_K` for a distribution :math:`P(T | X)` over them.

Contrastive Representation Learning with Trainable Augmentation Channel (CRL-TAC, arXiv 2111.07679) represents an image
x by an average over the whole family, :math:`\sum_k w_k(x) \, h(T_k x)`.
"""

__all__ = ["AugmentationFamily", "CropFamily", "QuarterTurnFamily"]

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_ssl_geometry.checks import inside, integer, shaped
from lightning_ssl_geometry.functional.groups.action import quarter_turn

_CHUNK, _CHUNK_ACCELERATOR = 256, 8192  # larger batches of crops leave the cache of a CPU and take twice as long
_PAIRS = 2**14  # views in one part of `integrate`


class AugmentationFamily(nn.Module, ABC):
    """K transformations of images, called members. Each member can be applied to each image of a batch.

    Args:
        grid: Rows and columns of the grid that the members form, row by row. None: they form no grid.
    """

    def __init__(self, grid: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.grid = grid

    @abstractmethod
    def __len__(self) -> int:
        """Return K, the number of members."""

    @abstractmethod
    def transform(self, image: Tensor, sample: Tensor, member: Tensor) -> Tensor:
        """Make M views (M, C, h, w). :meth:`forward` has checked the arguments and moved them to one device."""

    @abstractmethod
    def extremes(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Return the minimum and the maximum of each channel of each view: two tensors (N, K, C)."""

    def forward(self, image: Tensor, sample: Tensor, member: Tensor) -> Tensor:
        """Make M views. Each view is the result of one member for one image.

        Args:
            image: (N, C, H, W).
            sample: (M,) int64, the index of each view's image, in [0, N).
            member: (M,) int64, the index of each view's member, in [0, K) for K members.

        Returns:
            (M, C, h, w), of the image's dtype, on its device, differentiable.

        Raises:
            ValueError: If a shape or dtype is wrong, or an index is out of range. Indices on a GPU are not checked.
        """
        shaped("N, C, H, W", image=image)
        shaped("M,", sample=sample, member=member)
        for name, index, size in (("sample", sample, len(image)), ("member", member, len(self))):
            if index.dtype != torch.int64:
                raise ValueError(f"Expected `{name}` of torch.int64, but got {index.dtype}.")
            if index.device.type == "cpu" and len(index):  # a check on a GPU would synchronise with it
                least, greatest = torch.stack(index.aminmax()).tolist()
                inside(f"[0, {size})", **{name: least})
                inside(f"[0, {size})", **{name: greatest})
        at = (index.to(image.device, non_blocking=True) for index in (sample, member))
        return self.transform(image, *at)

    @torch.no_grad()
    def empty(self, image: Tensor) -> Tensor:
        """Return (N, K) bool: whether each view of images (N, C, H, W) has only the image's darkest colour."""
        lowest, highest = self.extremes(image)
        darkest = image.amin((2, 3)).unsqueeze(1)  # (N, 1, C)
        return ((lowest == darkest) & (highest == darkest)).all(2)

    def distinct(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """List the views of images (N, C, H, W), with equal one-coloured views only once.

        Three int64 tensors are returned. `sample` (U,) and `member` (U,) are the arguments of :meth:`forward` for the U
        listed views. `inverse` (N, K) is the place in the list of each of the K views of each image.
        """
        sample, member, inverse = self._distinct(image, image.new_ones(len(image), len(self), dtype=torch.bool))
        return sample, member, inverse.view(len(image), len(self))

    def integrate(
        self, network: Callable[[Tensor], Tensor], image: Tensor, weight: Tensor, chunk_size: int | None = None
    ) -> Tensor:
        r"""Average a network's embeddings of all K views, with S weights per view.

        .. math:: z_{s n} = \sum_{k=1}^K w_{s n k} \, h(T_k x_n)

        A view is not embedded if all of its weights are 0. Without gradients, the memory does not grow with N or K.

        Args:
            network: h. It maps U views (U, C, h, w) to (U, D), each view independently (no batch statistics).
            image: x, (N, C, H, W).
            weight: w, (S, N, K), floating point. The weights need not sum to 1.
            chunk_size: Largest number of views in a call of the network. None: 256 on the CPU, 8,192 on an accelerator.

        Returns:
            (S, N, D), of the promoted dtype of the network's output and the weights.
        """
        shaped("S, N, K", {"N": len(image), "K": len(self)}, weight=weight)
        if chunk_size is None:
            chunk_size = _CHUNK if image.device.type == "cpu" else _CHUNK_ACCELERATOR
        integer(1, chunk_size=chunk_size)
        n = max(1, _PAIRS // len(self))
        parts = zip(image.split(n), weight.split(n, 1), strict=True)
        return torch.cat([self._integrate(network, x, w, chunk_size=chunk_size) for x, w in parts], 1)

    def _integrate(self, network: Callable[[Tensor], Tensor], image: Tensor, weight: Tensor, chunk_size: int) -> Tensor:
        weighed = (weight != 0).any(0)
        # a gradient with respect to the images needs every view, since equal views have different pixels
        share = not (image.requires_grad and torch.is_grad_enabled())
        sample, member, inverse = self._distinct(image, weighed, share)
        pairs = zip(sample.split(chunk_size), member.split(chunk_size), strict=True)
        h = torch.cat([network(self(image, *pair)) for pair in pairs])  # (U, D)
        if h.shape[:1] != sample.shape or h.ndim != 2:
            raise ValueError(f"Expected `network` to return shape ({len(sample)}, D), but got {tuple(h.shape)}.")
        dtype = torch.promote_types(h.dtype, weight.dtype)
        size = weighed.sum(1).repeat(len(weight))  # (S N,), the number of rows of h in each sum
        z = F.embedding_bag(
            inverse.repeat(len(weight)),
            h.to(dtype),
            size.cumsum(0) - size,
            per_sample_weights=weight[:, weighed].flatten().to(dtype),
            mode="sum",
        )
        return z.view(*weight.shape[:2], h.shape[1])

    @torch.no_grad()
    def _distinct(self, image: Tensor, wanted: Tensor, share: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        lowest, highest = (value[wanted] for value in self.extremes(image))  # (M, C)
        constant = (lowest == highest).all(1) & share  # the views listed once per colour
        kind, count = _kinds(lowest[constant])
        at = torch.arange(len(constant), device=image.device)
        ordered, order = kind.sort(stable=True)
        first = at[constant][order[torch.searchsorted(ordered, at[:count])]]  # the first view of each kind
        inverse = torch.empty_like(at)
        inverse[constant] = kind
        inverse[~constant] = count + at[: len(at) - len(kind)]
        sample, member = wanted.nonzero()[torch.cat([first, at[~constant]])].unbind(1)
        return sample, member, inverse


class CropFamily(AugmentationFamily):
    """Square crops of square images at all positions of a regular grid, row by row from the upper left.

    By default, there are 289 crops, as in CRL-TAC. The buffer `corner` (K, 2) int64 holds their upper left pixels.

    Args:
        image_size: Height and width of the images, in pixels.
        size: Height and width of the crops, in pixels.
        stride: Distance between neighbouring crops, in pixels.

    Raises:
        ValueError: If an argument is no integer >= 1, or fewer than two crops fit.

    >>> CropFamily(image_size=6, size=2, stride=4).corner.tolist()
    [[0, 0], [0, 4], [4, 0], [4, 4]]
    """

    corner: Tensor

    def __init__(self, image_size: int = 84, size: int = 20, stride: int = 4) -> None:
        integer(1, image_size=image_size, size=size, stride=stride)
        room = image_size - size
        if room <= 0:
            raise ValueError(f"Expected `size` < {image_size} (`image_size`), for two crops at least, but got {size}.")
        if stride > room:
            raise ValueError(f"Expected `stride` <= {room}, for two crops at least, but got {stride}.")
        start = torch.arange(0, room + 1, stride)
        super().__init__((len(start), len(start)))
        self.image_size, self.size, self.stride = image_size, size, stride
        self.register_buffer("corner", torch.cartesian_prod(start, start), persistent=False)

    def __len__(self) -> int:
        return len(self.corner)

    def transform(self, image: Tensor, sample: Tensor, member: Tensor) -> Tensor:
        shaped("N, C, H, H", {"H": self.image_size}, image=image)
        c, width = image.shape[1], self.image_size
        channel = torch.arange(c, device=image.device).view(-1, 1)
        line = torch.arange(self.size, device=image.device)
        down, right = self.corner.to(image.device).index_select(0, member).unbind(1)
        start = (sample * c * width + down) * width + right  # (M,), of the crop in the flat batch
        start = start.view(-1, 1, 1) + (channel * width + line) * width  # (M, C, h)
        pixels = image.flatten()
        if (image.requires_grad and torch.is_grad_enabled()) or not len(pixels):
            # pixel by pixel: the gradient through `unfold` would need `size` times the memory of the images
            return pixels.index_select(0, (start.unsqueeze(3) + line).flatten()).view(*start.shape, self.size)
        return pixels.unfold(0, self.size, 1).index_select(0, start.flatten()).view(*start.shape, self.size)

    def extremes(self, image: Tensor) -> tuple[Tensor, Tensor]:
        shaped("N, C, H, H", {"H": self.image_size}, image=image)
        rows = image.unfold(3, self.size, self.stride)  # (N, C, H, columns, w)
        lowest, highest = (
            reduced.unfold(2, self.size, self.stride) for reduced in (rows.amin(-1), rows.amax(-1))
        )  # (N, C, rows, columns, h)
        return lowest.amin(-1).flatten(2).mT, highest.amax(-1).flatten(2).mT

    def overlap(self, box: Tensor) -> Tensor:
        """Return how many pixels of each of the K crops lie in each image's box: (N, K) int64 in [0, size^2].

        Each row of `box` (N, 4), integers, is (top, left, bottom, right) in pixels, with bottom and right exclusive.

        >>> CropFamily(image_size=6, size=2, stride=4).overlap(torch.tensor([[0, 1, 5, 6]]))
        tensor([[2, 4, 1, 2]])
        """
        if box.ndim != 2 or box.shape[1] != 4 or box.is_floating_point():
            raise ValueError(f"Expected `box` of shape (N, 4), integer, but got {tuple(box.shape)}, {box.dtype}.")
        corner = self.corner.to(box.device)
        near = torch.maximum(corner, box[:, None, :2])  # (N, K, 2)
        far = torch.minimum(corner + self.size, box[:, None, 2:])
        return (far - near).clamp_min(0).prod(2)

    def extra_repr(self) -> str:
        return f"image_size={self.image_size}, size={self.size}, stride={self.stride}"


class QuarterTurnFamily(AugmentationFamily):
    """Rotations of square floating-point images by 0, 1, 2 and 3 quarter turns, counter-clockwise."""

    def __init__(self) -> None:
        super().__init__((1, 4))

    def __len__(self) -> int:
        return 4

    def transform(self, image: Tensor, sample: Tensor, member: Tensor) -> Tensor:
        shaped("N, C, H, H", {"H": image.shape[-1]}, image=image)
        return quarter_turn(image.index_select(0, sample), member)

    def extremes(self, image: Tensor) -> tuple[Tensor, Tensor]:
        shaped("N, C, H, H", {"H": image.shape[-1]}, image=image)
        lowest, highest = (value.unsqueeze(1).expand(-1, 4, -1) for value in (image.amin((2, 3)), image.amax((2, 3))))
        return lowest, highest


def _kinds(value: Tensor) -> tuple[Tensor, int]:
    # numbers the different rows of `value`
    kind = torch.zeros(len(value), dtype=torch.int64, device=value.device)
    for column in value.unbind(1):  # much faster than `unique(dim=0)`
        different, which = column.unique(return_inverse=True)
        kind = (kind * len(different) + which).unique(return_inverse=True)[1]
    return kind, int(kind.max()) + 1 if len(kind) else 0
