r"""The contribution of one layer to the neural kernel: inner products of gradients, computed from their factors.

With the factors :math:`\nabla f^k(x_i) = \sum_t g^k_{it} \otimes a_{it}` of :mod:`.layers`, the products are

.. math:: \langle \nabla f^k(x_i), \nabla f^l(x_j) \rangle = \sum_{t, s} (a_{it} \cdot a_{js}) (g^k_{it} \cdot g^l_{js})
    = \sum_t g^k_{it} \cdot \Bigl[\sum_s (a_{it} \cdot a_{js}) g^l_{js}\Bigr]

The left side needs the gradients, for some rows of the weight at a time. It is cheap if the layer has many positions t.
The two sums on the right need no gradients, and are cheap if the layer has few positions.
"""

__all__ = ["add_gram", "add_products", "cheapest", "mirror"]

import torch
from torch import Tensor

from lightning_ssl_geometry.functional.neural_kernel.layers import Factors

_PANELS = 8  # parts of a symmetric product, so that (1 + 1/8) / 2 of the square is computed
_CACHED = 2**18  # numbers at a time that fit the cache: 2.5 times as fast as from memory


def add_products(kernel: Tensor, left: Factors, right: Factors, room: int) -> None:
    """Add a layer's contribution to the kernel between two sets of samples, by the cheapest formula.

    `left` and `right` are the :class:`Factors` of the layer for N and N' samples. `kernel` (N Q, N' Q), for Q outputs,
    is changed in place. At most `room` tensor elements are held at a time. If `right` is `left`, only the entries on
    and below the diagonal are computed; :func:`mirror` completes the kernel.
    """
    (n, q, groups, t, _), m = left.g.shape, len(right.g)
    s, inner = right.g.shape[3], left.a.shape[-1]
    way, held, _ = cheapest(left, right, room)
    for group in range(groups):
        if way == "weights":
            _add_by_weights(kernel, left, right, group=group, rows=max(1, room // ((n + m) * q * (inner + max(t, s)))))
        else:
            add = _add_by_places if way == "places" else _add_by_sums
            add(kernel, left, right, group, max(1, min(room // held, n // _PANELS)))


def cheapest(left: Factors, right: Factors, room: int) -> tuple[str, int, int]:
    """Choose the formula with the fewest multiplications that needs at most `room` tensor elements for one sample.

    Returns:
        "weights" for the inner products of gradients, "places" for the first sum of the module's docstring and "sums"
        for the second; the tensor elements that it holds for one sample; and its multiplications for one group.
    """
    n, q, _, t, out = left.g.shape
    m, s, inner = len(right.g), right.g.shape[3], left.a.shape[-1]
    costs = {
        "weights": (n * t + m * s) * q * inner * out + n * m * q * q * inner * out,
        "places": n * m * t * s * (inner + q * q * (out + 1)),
        "sums": n * m * (t * s * (inner + q * out) + q * q * t * out),
    }
    held = {"weights": 0, "places": t * m * s * (1 + q * q), "sums": t * m * s + _CACHED}  # per sample
    way = min((way for way in costs if held[way] <= room), key=lambda way: costs[way])
    return way, held[way], costs[way]


def add_gram(kernel: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left @ right.T to `kernel`; if `right` is `left`, only on and below the diagonal."""
    if left is not right:
        kernel.addmm_(left, right.T)
        return
    for rows in torch.arange(len(left)).tensor_split(_PANELS):
        if len(rows):
            start, stop = int(rows[0]), int(rows[-1]) + 1
            kernel[start:stop, :stop].addmm_(left[start:stop], left[:stop].T)


def mirror(kernel: Tensor) -> None:
    """Copy the entries below the diagonal to the entries above it, in place."""
    size = -(-len(kernel) // _PANELS)
    for start in range(0, len(kernel), size):
        stop = min(start + size, len(kernel))
        kernel[start:stop, stop:] = kernel[stop:, start:stop].T
        block = kernel[start:stop, start:stop]
        block.copy_(block.tril() + block.tril(-1).T)


def _add_by_weights(kernel: Tensor, left: Factors, right: Factors, group: int, rows: int) -> None:
    for start in range(0, left.g.shape[-1], rows):
        some = slice(start, start + rows)
        gradient = _gradient(left, group, some)
        add_gram(kernel, gradient, gradient if right is left else _gradient(right, group, some))


def _gradient(factors: Factors, group: int, rows: slice) -> Tensor:
    g = factors.g[:, :, group, :, rows].transpose(2, 3)  # (N, Q, rows, T)
    return (g.flatten(1, 2) @ factors.a[:, group]).reshape(g.shape[0] * g.shape[1], -1)  # (N Q, rows * inputs)


def _add_by_places(kernel: Tensor, left: Factors, right: Factors, group: int, samples: int) -> None:
    n, q, _, t, out = left.g.shape
    s = right.g.shape[3]
    a_right = right.a[:, group].flatten(0, 1)  # (M S, I)
    g_right = right.g[:, :, group].reshape(-1, out)  # (M Q S, O)
    for start in range(0, n, samples):
        a, g = left.a[start : start + samples, group], left.g[start : start + samples, :, group]
        m = start + len(a) if right is left else len(right.g)
        inputs = (a.flatten(0, 1) @ a_right[: m * s].T).view(len(a), 1, t, m, 1, s)
        outputs = (g.reshape(-1, out) @ g_right[: m * q * s].T).view(len(a), q, t, m, q, s)
        part = outputs.mul_(inputs).sum((2, 5)) if t * s > 1 else outputs.mul_(inputs)
        kernel[start * q : (start + len(a)) * q, : m * q] += part.view(len(a) * q, m * q)


def _add_by_sums(kernel: Tensor, left: Factors, right: Factors, group: int, samples: int) -> None:
    n, q, _, t, out = left.g.shape
    s = right.g.shape[3]
    a_right, g_right = right.a[:, group].flatten(0, 1), right.g[:, :, group]  # (M S, I), (M, Q, S, O)
    some = max(1, _CACHED // (q * t * out))
    for start in range(0, n, samples):
        a, g = left.a[start : start + samples, group], left.g[start : start + samples, :, group].flatten(2)
        m = start + len(a) if right is left else len(right.g)
        inputs = (a.flatten(0, 1) @ a_right[: m * s].T).view(len(a), t, m, s).transpose(1, 2)
        for row, (weight, outputs) in enumerate(zip(inputs, g, strict=True), start):  # (M, T, S), (Q, T O)
            for first in range(0, m, some):
                last = min(first + some, m)
                sums = (weight[first:last, None] @ g_right[first:last]).flatten(0, 1).flatten(1)  # (some Q, T O)
                kernel[row * q : (row + 1) * q, first * q : last * q] += outputs @ sums.T
