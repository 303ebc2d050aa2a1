r"""Finite families of augmentations :math:`T_1, \dots, T_K`, among which a distribution :math:`P(T | X)` chooses.

Contrastive Representation Learning with Trainable Augmentation Channel (CRL-TAC, arXiv 2111.07679): the
representation of an image is an average over the whole family, :math:`\sum_k w_k(x) \, h(T_k x)`. Where images are
mostly blank, most of their views are one and the same blank view, which needs to be embedded but once.
"""

__all__ = ["AugmentationFamily", "CropFamily", "QuarterTurnFamily"]

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_ssl_geometry.functional.groups.action import quarter_turn

_CHUNK, _CHUNK_ACCELERATOR = 256, 8192
_PAIRS = 2**14  # views that `integrate` looks at in one part


class AugmentationFamily(nn.Module, ABC):
    """K transformations of images, of which any may be applied to any image of a batch.

    A family says how many members it has (`__len__`), how they transform images (:meth:`transform`), and the least
    and greatest value of every view (:meth:`extremes`), preferably without making the views; the rest follows.

    Args:
        grid: Rows and columns in which the members are arranged, row by row, for a map of one value each; None: there
            is no such arrangement.
    """

    def __init__(self, grid: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.grid = grid

    @abstractmethod
    def __len__(self) -> int:
        """K, the number of members."""

    @abstractmethod
    def transform(self, image: Tensor, sample: Tensor, member: Tensor) -> Tensor:
        """What :meth:`forward` returns, of arguments that it has checked and moved to the image's device."""

    @abstractmethod
    def extremes(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Find the least and the greatest value of every view, channel by channel.

        Args:
            image: (N, C, H, W).

        Returns:
            (N, K, C) the least and (N, K, C) the greatest, exactly as they are in the views.

        Raises:
            ValueError: If the images are not such as this family transforms.
        """

    def forward(self, image: Tensor, sample: Tensor, member: Tensor) -> Tensor:
        """Transform any image by any member, in one batch.

        Args:
            image: (N, C, H, W).
            sample: (M,) int64, which image each view is of, in [0, N).
            member: (M,) int64, which member makes it, in [0, K).

        Returns:
            (M, C, h, w), of the image's dtype, on its device, differentiable.

        Raises:
            ValueError: If an argument has another shape or dtype, or the images are not such as this family
                transforms, or an index is out of its range: the latter is looked at on the CPU only, since nothing
                here waits for an accelerator.
        """
        if image.ndim != 4:
            raise ValueError(f"Expected `image` of shape (N, C, H, W), but got shape {tuple(image.shape)}.")
        _check_index("sample", sample, len(image))
        _check_index("member", member, len(self))
        if sample.shape != member.shape:
            raise ValueError(f"Expected `member` of shape ({len(sample)},), but got shape {tuple(member.shape)}.")
        at = (index.to(image.device, non_blocking=True) for index in (sample, member))
        return self.transform(image, *at)

    @torch.no_grad()
    def empty(self, image: Tensor) -> Tensor:
        """Find the trivial views: all of their pixels have the darkest value of their image, in each channel.

        Args:
            image: (N, C, H, W).

        Returns:
            (N, K) bool.

        Raises:
            ValueError: If the images are not such as this family transforms.
        """
        lowest, highest = self.extremes(image)
        darkest = image.amin((2, 3)).unsqueeze(1)  # (N, 1, C)
        return ((lowest == darkest) & (highest == darkest)).all(2)

    def distinct(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """List views that cover all N K of them, with views that are constant and alike listed once for the batch.

        Views that are not constant are listed once each, whether or not there are equal ones among them.

        Args:
            image: (N, C, H, W).

        Returns:
            `sample` (U,) and `member` (U,), for :meth:`forward`, and `inverse` (N, K), which of those U views each
            view equals; all int64.

        Raises:
            ValueError: If the images are not such as this family transforms.
        """
        sample, member, inverse = self._distinct(image, image.new_ones(len(image), len(self), dtype=torch.bool))
        return sample, member, inverse.view(len(image), len(self))

    def integrate(
        self, network: Callable[[Tensor], Tensor], image: Tensor, weight: Tensor, chunk_size: int | None = None
    ) -> Tensor:
        r"""Average what a network makes of the views, each of the :meth:`distinct` ones embedded once.

        .. math:: z_{s n} = \sum_{k=1}^K w_{s n k} \, h(T_k x_n)

        A view that no weighting weighs is not embedded. It takes some thousand views at a time, so without gradients
        the memory does not grow with N or K; a blank view is embedded once in each of those parts. Where the images
        need a gradient, every view that is weighed is embedded.

        Args:
            network: h, from (U, C, h, w) to (U, D), each row a function of its view alone: no batch statistics.
            image: x, (N, C, H, W).
            weight: w, (S, N, K), floating point: S weightings at once. They need not sum to 1.
            chunk_size: How many views the network is given at a time, at most. None: 256 on the CPU, where larger
                batches of crops no longer stay in a cache and take twice as long, or 8,192 on an accelerator.

        Returns:
            (S, N, D), of the dtype that the network's output and the weights promote to.

        Raises:
            ValueError: If an argument has another shape, or the network's output has.
        """
        shape = (len(image), len(self))
        if weight.ndim != 3 or weight.shape[1:] != shape:
            raise ValueError(f"Expected `weight` of shape (S, {shape[0]}, {shape[1]}), but got {tuple(weight.shape)}.")
        if chunk_size is None:
            chunk_size = _CHUNK if image.device.type == "cpu" else _CHUNK_ACCELERATOR
        if not isinstance(chunk_size, int) or chunk_size < 1:
            raise ValueError(f"Expected `chunk_size` to be an integer >= 1, but got {chunk_size!r}.")
        n = max(1, _PAIRS // len(self))
        parts = zip(image.split(n), weight.split(n, 1), strict=True)
        return torch.cat([self._integrate(network, x, w, chunk_size) for x, w in parts], 1)

    def _integrate(self, network: Callable[[Tensor], Tensor], image: Tensor, weight: Tensor, chunk_size: int) -> Tensor:
        """As :meth:`integrate`, of all images at once."""
        weighed = (weight != 0).any(0)
        # where the gradient reaches the images, each view sends its own to its own pixels
        share = not (image.requires_grad and torch.is_grad_enabled())
        sample, member, inverse = self._distinct(image, weighed, share)
        pairs = zip(sample.split(chunk_size), member.split(chunk_size), strict=True)
        h = torch.cat([network(self(image, *pair)) for pair in pairs])  # (U, D)
        if h.shape[:1] != sample.shape or h.ndim != 2:
            raise ValueError(f"Expected `network` to return shape ({len(sample)}, D), but got {tuple(h.shape)}.")
        dtype = torch.promote_types(h.dtype, weight.dtype)
        size = weighed.sum(1).repeat(len(weight))  # (S N,), how many rows of h each sum has
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
        """As :meth:`distinct`, of the views where `wanted` (N, K); `inverse` (wanted.sum(),), one for each of them.

        Without `share`, views that are alike are listed once each too.
        """
        lowest, highest = (value[wanted] for value in self.extremes(image))  # (M, C)
        constant = (lowest == highest).all(1) & share
        kind, count = _kinds(lowest[constant])
        at = torch.arange(len(constant), device=image.device)
        ordered, order = kind.sort(stable=True)
        first = at[constant][order[torch.searchsorted(ordered, at[:count])]]  # of each kind
        inverse = torch.empty_like(at)
        inverse[constant] = kind
        inverse[~constant] = count + at[: len(at) - len(kind)]
        sample, member = wanted.nonzero()[torch.cat([first, at[~constant]])].unbind(1)
        return sample, member, inverse


class CropFamily(AugmentationFamily):
    """Square crops of square images, at all positions of a regular grid, the upper left one first, row by row.

    The defaults are the paper's: 17 x 17 = 289 crops.

    Args:
        image_size: Height and width of the images, in pixels.
        size: Height and width of the crops, in pixels.
        stride: From one crop to the next, in pixels.

    Attributes:
        corner: (K, 2) int64, the top and the left of every crop.

    Raises:
        ValueError: If one of these is not an integer >= 1, or fewer than two crops fit.

    >>> family = CropFamily(image_size=6, size=2, stride=4)
    >>> family.corner.tolist()
    [[0, 0], [0, 4], [4, 0], [4, 4]]
    >>> family(torch.arange(36.0).view(1, 1, 6, 6), torch.tensor([0]), torch.tensor([1])).tolist()
    [[[[4.0, 5.0], [10.0, 11.0]]]]
    """

    corner: Tensor

    def __init__(self, image_size: int = 84, size: int = 20, stride: int = 4) -> None:
        for name, value in {"image_size": image_size, "size": size, "stride": stride}.items():
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"Expected `{name}` to be an integer >= 1, but got {value!r}.")
        if size > image_size:
            raise ValueError(f"Expected `size` <= {image_size} (`image_size`), but got {size}.")
        room = image_size - size
        if room == 0:
            raise ValueError(f"Expected `size` < {image_size} (`image_size`), for two crops at least, but got {size}.")
        if stride > room:
            raise ValueError(f"Expected `stride` <= {room}, for two crops at least, but got {stride}.")
        start = torch.arange(0, room + 1, stride)
        super().__init__((len(start), len(start)))
        self.image_size, self.size, self.stride = image_size, size, stride
        self.register_buffer("corner", torch.cartesian_prod(start, start), persistent=False)

    def __len__(self) -> int:
        """K, the number of crops."""
        return len(self.corner)

    def transform(self, image: Tensor, sample: Tensor, member: Tensor) -> Tensor:
        """Crop: gather the rows of pixels of all crops, each a run of the image's memory, at once."""
        self._check(image)
        c, width = image.shape[1], self.image_size
        channel = torch.arange(c, device=image.device).view(-1, 1)
        line = torch.arange(self.size, device=image.device)
        down, right = self.corner.to(image.device).index_select(0, member).unbind(1)
        start = (sample * c * width + down) * width + right  # (M,), of the crop in the flat batch
        start = start.view(-1, 1, 1) + (channel * width + line) * width  # (M, C, h)
        pixels = image.flatten()
        if (image.requires_grad and torch.is_grad_enabled()) or not len(pixels):
            # pixel by pixel: the gradient of all runs would take `size` times the memory of the images
            return pixels.index_select(0, (start.unsqueeze(3) + line).flatten()).view(*start.shape, self.size)
        return pixels.unfold(0, self.size, 1).index_select(0, start.flatten()).view(*start.shape, self.size)

    def extremes(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Find the least and the greatest value of every crop, without making the crops.

        Args:
            image: (N, C, H, W), H and W as the family says.

        Returns:
            (N, K, C) the least and (N, K, C) the greatest.

        Raises:
            ValueError: If the images have another shape.
        """
        self._check(image)
        rows = image.unfold(3, self.size, self.stride)  # (N, C, H, columns, w)
        lowest, highest = (
            reduced.unfold(2, self.size, self.stride) for reduced in (rows.amin(-1), rows.amax(-1))
        )  # (N, C, rows, columns, h)
        return lowest.amin(-1).flatten(2).mT, highest.amax(-1).flatten(2).mT

    def overlap(self, box: Tensor) -> Tensor:
        """Measure how much of every crop lies inside of a box.

        Args:
            box: (N, 4) integer: top, left, bottom and right of each sample's box, in pixels, the last two exclusive.

        Returns:
            (N, K) int64, the area of the intersection in pixels, in [0, size^2].

        Raises:
            ValueError: If `box` has another shape or dtype.

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
        """The settings, as `print(module)` shows them."""
        return f"image_size={self.image_size}, size={self.size}, stride={self.stride}"

    def _check(self, image: Tensor) -> None:
        side = self.image_size
        if image.ndim != 4 or image.shape[2:] != (side, side):
            raise ValueError(f"Expected `image` of shape (N, C, {side}, {side}), but got shape {tuple(image.shape)}.")


class QuarterTurnFamily(AugmentationFamily):
    """The turns by 0, 1, 2 and 3 quarters, counter-clockwise, of square images of a floating-point dtype.

    >>> family = QuarterTurnFamily()
    >>> family(torch.tensor([[1.0, 2.0], [3.0, 4.0]]).view(1, 1, 2, 2), torch.tensor([0]), torch.tensor([1])).tolist()
    [[[[2.0, 4.0], [1.0, 3.0]]]]
    """

    def __init__(self) -> None:
        super().__init__((1, 4))

    def __len__(self) -> int:
        """4."""
        return 4

    def transform(self, image: Tensor, sample: Tensor, member: Tensor) -> Tensor:
        """Turn."""
        _check_square(image)
        return quarter_turn(image.index_select(0, sample), member)

    def extremes(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Find the least and the greatest value of every image, which no turn changes.

        Args:
            image: (N, C, H, H).

        Returns:
            (N, 4, C) the least and (N, 4, C) the greatest.

        Raises:
            ValueError: If the images are not square.
        """
        _check_square(image)
        lowest, highest = (value.unsqueeze(1).expand(-1, 4, -1) for value in (image.amin((2, 3)), image.amax((2, 3))))
        return lowest, highest


def _kinds(value: Tensor) -> tuple[Tensor, int]:
    """Number the different rows of (M, C): (M,) int64 in [0, count), and their count."""
    kind = torch.zeros(len(value), dtype=torch.int64, device=value.device)
    for column in value.unbind(1):  # much faster than `unique(dim=0)`
        different, which = column.unique(return_inverse=True)
        kind = (kind * len(different) + which).unique(return_inverse=True)[1]
    return kind, int(kind.max()) + 1 if len(kind) else 0


def _check_index(name: str, index: Tensor, size: int) -> None:
    if index.ndim != 1 or index.dtype != torch.int64:
        got = f"shape {tuple(index.shape)} and {index.dtype}"
        raise ValueError(f"Expected `{name}` of shape (M,) and torch.int64, but got {got}.")
    if index.device.type == "cpu" and len(index):
        for value in torch.stack(index.aminmax()).tolist():
            if not 0 <= value < size:
                raise ValueError(f"Expected `{name}` in [0, {size}), but got {value}.")


def _check_square(image: Tensor) -> None:
    if image.ndim != 4 or image.shape[2] != image.shape[3]:
        raise ValueError(f"Expected `image` of shape (N, C, H, H), but got shape {tuple(image.shape)}.")
