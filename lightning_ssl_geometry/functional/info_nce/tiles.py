"""Log-sum-exp of the logits between all samples of two views, in tiles that need O(N + block^2) memory.

Each tile of `block` x `block` logits is written into one buffer, reduced, and overwritten by the next tile. The
backward pass computes the tiles again. Within a view the logits are symmetric, so tiles below the diagonal are skipped.
A tile between the views serves the anchors of both views. Where only some samples are anchors, both hold among these
samples alone.
"""

__all__ = ["Contrast", "negative_logsumexp"]

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lightning_ssl_geometry.functional.info_nce.similarity import Similarity

_Views = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Contrast:
    """Settings of :func:`negative_logsumexp`.

    Attributes:
        similarity: The similarity that computes the logits.
        anchors: Number of views whose rows are anchors: 1 (view 1 only) or 2.
        same: Whether rows of the anchor's own view are negatives.
        other: Whether rows of the other view are negatives.
        own: Whether the anchor's own sample is a negative too, in each of the chosen views.
        bounded: Whether |logit| and the range of the logits stay below 2/3 log(largest number of the dtype). If so,
            exponentials are summed without subtracting the maximum.
        block: Rows and columns of a tile.
        rows: The samples that are anchors, a slice with start and stop; the others are negatives only. None: all.
    """

    similarity: Similarity
    anchors: int
    same: bool
    other: bool
    own: bool
    bounded: bool
    block: int
    rows: slice | None = None


@torch.compiler.disable  # its tiles are written one into another, which torch.compile does not follow
def negative_logsumexp(x1: Tensor, x2: Tensor, contrast: Contrast) -> Tensor:
    """Return the log-sum-exp of each anchor's logits with its negatives, (contrast.anchors, n); differentiable once.

    The views `x1` and `x2` are (N, P), both float32 or both float64. n of the N samples are anchors. Row v of the
    result is for anchors of view v + 1.
    """
    logsumexp: Tensor = _NegativeLogSumExp.apply(x1.contiguous(), x2.contiguous(), contrast)
    return logsumexp


class _NegativeLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x1: Tensor, x2: Tensor, contrast: Contrast) -> Tensor:
        with torch.autocast(x1.device.type, enabled=False):
            total = (_bounded_logsumexp if contrast.bounded else _running_logsumexp)((x1, x2), contrast)
        ctx.contrast = contrast
        ctx.save_for_backward(x1, x2, total)
        return total if contrast.rows is None else total[:, contrast.rows].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x1, x2, total = ctx.saved_tensors
        if (rows := ctx.contrast.rows) is not None:
            grad, of_anchors = torch.zeros_like(total), grad
            grad[:, rows] = of_anchors
        with torch.autocast(x1.device.type, enabled=False):
            gradients = _gradients((x1, x2), total, grad, contrast=ctx.contrast)
        return *gradients, None


class _Tile(NamedTuple):
    row: tuple[int, slice]
    col: tuple[int, slice]
    mirrored: bool  # the columns are anchors too, with the rows as negatives

    @property
    def symmetric(self) -> bool:
        return self.row == self.col

    @property
    def has_own(self) -> bool:
        return self.row[1] == self.col[1]


def _tiles(n: int, contrast: Contrast) -> Iterator[_Tile]:
    chosen = contrast.rows or slice(0, n)
    anchors = _blocks(chosen.start, chosen.stop, contrast.block)
    others = _blocks(0, chosen.start, contrast.block) + _blocks(chosen.stop, n, contrast.block)
    if contrast.same:
        for view in range(contrast.anchors):
            for i, rows in enumerate(anchors):
                yield _Tile((view, rows), (view, rows), mirrored=False)
                for cols in anchors[i + 1 :]:
                    yield _Tile((view, rows), (view, cols), mirrored=True)
                for cols in others:
                    yield _Tile((view, rows), (view, cols), mirrored=False)
    if contrast.other:
        for rows in anchors:
            for cols in anchors:
                yield _Tile((0, rows), (1, cols), mirrored=contrast.anchors == 2)
            for view, cols in itertools.product(range(contrast.anchors), others):
                yield _Tile((view, rows), (1 - view, cols), mirrored=False)


def _blocks(start: int, stop: int, block: int) -> list[slice]:
    return [slice(first, min(first + block, stop)) for first in range(start, stop, block)]


def _bounded_logsumexp(x: _Views, contrast: Contrast) -> Tensor:
    n, buffer = len(x[0]), _buffer(x[0], contrast)
    total = x[0].new_zeros(contrast.anchors, n)
    for tile in _tiles(n, contrast):
        terms = _logits(x, tile, contrast, buffer=buffer).exp_()
        total[tile.row] += terms.sum(dim=1)
        if tile.mirrored:
            total[tile.col] += terms.sum(dim=0)
    return total.log_()


def _running_logsumexp(x: _Views, contrast: Contrast) -> Tensor:
    n, buffers = len(x[0]), (_buffer(x[0], contrast), _buffer(x[0], contrast))
    total = x[0].new_full((contrast.anchors, n), -torch.inf)
    for tile in _tiles(n, contrast):
        logits, scratch = _logits(x, tile, contrast, buffer=buffers[0]), _shaped(buffers[1], tile)
        total[tile.row] = torch.logaddexp(total[tile.row], _logsumexp(logits, 1, scratch))
        if tile.mirrored:
            total[tile.col] = torch.logaddexp(total[tile.col], _logsumexp(logits, 0, scratch))
    return total


def _logsumexp(logits: Tensor, dim: int, scratch: Tensor) -> Tensor:
    # A row that is all -inf (a tile with only the anchor itself) must give -inf and not -inf - -inf = nan.
    peak = logits.amax(dim=dim, keepdim=True).clamp_(min=torch.finfo(logits.dtype).min)
    terms = _exp_(torch.sub(logits, peak, out=scratch))
    return terms.sum(dim=dim).log_().add_(peak.squeeze(dim))


def _exp_(exponent: Tensor) -> Tensor:
    # very small results become 0, since a CPU is a hundred times slower on subnormal numbers
    cut = -0.75 * math.log(torch.finfo(exponent.dtype).max)
    return torch.threshold_(exponent, cut, -torch.inf).exp_()


def _gradients(x: _Views, total: Tensor, grad: Tensor, contrast: Contrast) -> _Views:
    gradients = torch.zeros_like(x[0]), torch.zeros_like(x[1])
    buffers = _buffer(x[0], contrast), _buffer(x[0], contrast)
    scale = grad * total.neg().exp() if contrast.bounded else None
    for tile in _tiles(len(x[0]), contrast):
        if scale is not None:
            weight = _bounded_weights(x, tile, contrast, scale=scale, buffers=buffers)
        else:
            weight = _weights(x, tile, contrast, total=total, grad=grad, buffers=buffers)
        (view, rows), (view_col, cols) = tile.row, tile.col
        grad_col = None if tile.symmetric else gradients[view_col][cols]
        contrast.similarity.accumulate(weight, x[view][rows], x[view_col][cols], gradients[view][rows], grad_col)
    return gradients


def _bounded_weights(
    x: _Views, tile: _Tile, contrast: Contrast, scale: Tensor, buffers: tuple[Tensor, Tensor]
) -> Tensor:
    # equal to `_weights`: exp(logit_ab) (scale_a + scale_b) with scale = grad exp(-total)
    terms = _logits(x, tile, contrast, buffer=buffers[0]).exp_()
    if not (tile.mirrored or tile.symmetric):
        return terms.mul_(scale[tile.row][:, None])
    return terms.mul_(torch.add(scale[tile.row][:, None], scale[tile.col], out=_shaped(buffers[1], tile)))


def _weights(
    x: _Views, tile: _Tile, contrast: Contrast, total: Tensor, grad: Tensor, buffers: tuple[Tensor, Tensor]
) -> Tensor:
    # grad_a exp(logit_ab - total_a), plus grad_b exp(logit_ab - total_b) if b is an anchor too; no exponent is above 0
    logits, weight = _logits(x, tile, contrast, buffer=buffers[0]), _shaped(buffers[1], tile)
    _exp_(torch.sub(logits, total[tile.row][:, None], out=weight)).mul_(grad[tile.row][:, None])
    if tile.mirrored or tile.symmetric:
        weight.addcmul_(_exp_(logits.sub_(total[tile.col])), grad[tile.col])
    return weight


def _logits(x: _Views, tile: _Tile, contrast: Contrast, buffer: Tensor) -> Tensor:
    (view, rows), (view_col, cols) = tile.row, tile.col
    logits = contrast.similarity.tile(x[view][rows], x[view_col][cols], out=_shaped(buffer, tile))
    if tile.has_own and not contrast.own:
        logits.fill_diagonal_(-torch.inf)
    return logits


def _buffer(x: Tensor, contrast: Contrast) -> Tensor:
    return x.new_empty(min(contrast.block, len(x)) ** 2)


def _shaped(buffer: Tensor, tile: _Tile) -> Tensor:
    shape = [samples.stop - samples.start for _, samples in (tile.row, tile.col)]
    return buffer[: shape[0] * shape[1]].view(shape)
