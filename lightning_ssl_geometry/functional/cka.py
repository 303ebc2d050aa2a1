r"""Centred kernel alignment (CKA) with the linear kernel: similarity of two representations of the same samples.

Kornblith et al., Similarity of Neural Network Representations Revisited (2019). Nguyen et al., Do Wide and Deep
Networks Learn the Same Things? (2021), use the unbiased estimator HSIC_1 of Song et al., Feature selection via
dependence maximization (2012). HSIC measures the dependence of two representations a and b with centred columns and
Gram matrices :math:`K = a a^T` and :math:`L = b b^T`:

.. math::
    \mathrm{HSIC}(K, L) \propto \mathrm{tr}(K L) = \|a^T b\|_F^2, \quad
    \mathrm{HSIC}_1(K, L) = \frac{1}{n (n - 3)} \Bigl[\mathrm{tr}(\tilde K \tilde L)
    + \frac{1^T \tilde K 1\, 1^T \tilde L 1}{(n - 1)(n - 2)} - \frac{2}{n - 2}\, 1^T \tilde K \tilde L 1\Bigr]

where the tilde sets the diagonal to 0. Murphy et al., Correcting Biased Centered Kernel Alignment Measures in
Biological and Artificial Neural Networks (2024), show that the biased estimate rises with the number of dimensions for
unrelated representations, and that the unbiased one does not.
"""

__all__ = ["cka_between", "cka_by_chance", "cka_matrix", "cka_or_nan", "linear_cka"]

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, embeddings
from lightning_ssl_geometry.precision import in_float64


def linear_cka(a: Tensor, b: Tensor, *, unbiased: bool = False) -> Tensor:
    r"""Return the linear CKA of two representations, which is invariant to rotation, scaling and translation.

    .. math:: \mathrm{CKA} = \frac{\mathrm{HSIC}(K, L)}{\sqrt{\mathrm{HSIC}(K, K)\, \mathrm{HSIC}(L, L)}}
        = \frac{\|a^T b\|_F^2}{\|a^T a\|_F\, \|b^T b\|_F}

    HSIC measures the dependence of a and b, with :math:`K = a a^T` and :math:`L = b b^T` for centred columns. The
    default is from Sec. 3 of Kornblith et al. 2019, and `unbiased` from Eq. 3 of Nguyen et al. 2021. The result is a
    float64 scalar from 0 (no linear dependence) to 1 (equal up to rotation, scale and translation). With `unbiased` it
    may be below 0. The biased estimate is too high for small n. For example, it is about 1/2 for independent isotropic
    representations with D_a = D_b = n. Cost: the smaller of O(n D_a D_b) and O(n^2 (D_a + D_b)).

    Args:
        a: (n, D_a), any float dtype; computed in float64.
        b: (n, D_b), the same samples in the same order.
        unbiased: Use the unbiased estimator HSIC_1, which needs n >= 4.

    Raises:
        ValueError: If a shape is not (n, D), n differs or is too small, or all rows of one representation are equal.

    >>> a = torch.arange(12.0).reshape(6, 2) ** 2
    >>> f"{linear_cka(a, -3 * a.flip(1) + 5):.3f}"
    '1.000'
    """
    a, b = (_zero_mean(_varying(name, _rows(name, h, unbiased))) for name, h in (("a", a), ("b", b)))
    if len(a) != len(b):
        raise ValueError(f"Expected `a` and `b` of the same samples, but got {len(a)} and {len(b)} rows.")
    own = [_positive(name, _hsic(each, each, unbiased)) for name, each in (("a", a), ("b", b))]
    return _hsic(a, b, unbiased) / (own[0] * own[1]).sqrt()


def cka_matrix(h: Sequence[Tensor], *, unbiased: bool = False) -> Tensor:
    """Compute :func:`linear_cka` of all pairs of L representations, as a symmetric matrix (L, L) in float64.

    `h` holds the representations (n, D_l) of the same n samples, such as those of L layers. `unbiased` needs n >= 4. A
    ValueError is raised if `h` is empty, n differs or is too small, or all rows of one representation are equal.
    """
    rows = _same_samples(h, unbiased)
    layers = [_zero_mean(_varying(f"h[{place}]", each)) for place, each in enumerate(rows)]
    length = [_positive(f"h[{i}]", _hsic(each, each, unbiased)).sqrt() for i, each in enumerate(layers)]
    return _similarities(layers, length, unbiased)


def cka_or_nan(h: Sequence[Tensor], *, unbiased: bool = False) -> Tensor:
    """Compute :func:`cka_matrix`, with NaN instead of an error for a collapsed representation.

    A representation that has equal rows, or is not finite, gets NaN in its row and column of the result. Other invalid
    arguments raise the ValueError of :func:`cka_matrix`.

    >>> cka_or_nan([torch.eye(3), torch.ones(3, 2)]).tolist()
    [[1.0, nan], [nan, nan]]
    """
    found = [_centred(layer, unbiased) for layer in _same_samples(h, unbiased)]
    return _similarities([layer for layer, _ in found], [length for _, length in found], unbiased)


def cka_between(a: Iterable[Tensor], b: Sequence[Tensor], *, unbiased: bool = False) -> Tensor:
    """Compute :func:`linear_cka` between each layer of one network and each layer of another one.

    The result is a matrix (L_a, L_b) in float64. A representation that has equal rows, or is not finite, gets NaN, as
    in :func:`cka_or_nan`. Memory: one representation of `a` at a time, and all of `b`, in float64.

    Args:
        a: L_a representations (n, D_l) of n samples, or an iterator over them.
        b: L_b representations (n, D_l) of the same samples in the same order.
        unbiased: Use the unbiased estimator HSIC_1, which needs n >= 4.

    Raises:
        ValueError: If `a` or `b` is empty, a shape is not (n, D), or n differs or is too small.

    >>> x = torch.eye(3)
    >>> cka_between([x, x + 1, torch.ones(3, 2)], [2 * x]).squeeze(1).float()
    tensor([1., 1., nan])
    """
    columns = [_centred(layer, unbiased) for layer in _same_samples(b, unbiased, "b")]
    rows = []
    for place, layer in enumerate(a):
        if len(_rows(f"a[{place}]", layer, unbiased)) != len(b[0]):
            raise ValueError(f"Expected `a` and `b` of the same samples, but got {len(layer)} and {len(b[0])} rows.")
        own, length = _centred(layer, unbiased)
        rows.append(torch.stack([_hsic(own, other, unbiased) / (length * each) for other, each in columns]))
    if not rows:
        raise ValueError("Expected `a` to hold at least 1 representation, but got none.")
    return torch.stack(rows)


def cka_by_chance(n: int) -> float:
    r"""Return the standard deviation of the unbiased CKA over all orders of the samples of one representation.

    The mean over all orders is 0. For any two representations, whatever their dimensions,

    .. math:: \sigma = \sqrt{\frac{2}{n (n - 3)}}

    The deviation is that of two symmetric matrices (n, n) with zero diagonals and zero row sums, since
    :math:`\mathrm{HSIC}_1` is an inner product of such matrices (Szekely & Rizzo, Partial Distance Correlation with
    Methods for Dissimilarities, 2014, Sec. 3).

    Args:
        n: Number of samples, >= 4.

    >>> f"{cka_by_chance(1024):.4f}"
    '0.0014'
    """
    at_least(4, n=n)
    return float((2 / (n * (n - 3))) ** 0.5)


def _centred(layer: Tensor, unbiased: bool) -> tuple[Tensor, Tensor]:
    centred = _zero_mean(layer)
    own = _hsic(centred, centred, unbiased)
    return centred, own.where((layer != layer[0]).any() & (own > 0), torch.nan).sqrt()


def _similarities(h: list[Tensor], length: list[Tensor], unbiased: bool) -> Tensor:
    found = torch.stack([each / each for each in length]).diag()
    for i in range(len(h)):
        for j in range(i):
            found[i, j] = found[j, i] = _hsic(h[i], h[j], unbiased) / (length[i] * length[j])
    return found


def _hsic(a: Tensor, b: Tensor, unbiased: bool) -> Tensor:
    n = len(a)  # the result is HSIC times a factor that depends on n only
    wide = n * (a.shape[1] + b.shape[1]) < a.shape[1] * b.shape[1]
    trace = ((a @ a.T) * (b @ b.T)).sum() if wide else (a.T @ b).square().sum()
    if not unbiased:
        return trace
    square_a, square_b = a.square().sum(1), b.square().sum(1)
    ones_a, ones_b = a @ a.sum(0) - square_a, b @ b.sum(0) - square_b  # row sums without the diagonal, (n,)
    rest = ones_a.sum() * ones_b.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (ones_a @ ones_b)
    return trace - square_a @ square_b + rest


def _same_samples(h: Sequence[Tensor], unbiased: bool, name: str = "h") -> list[Tensor]:
    if not len(h):
        raise ValueError(f"Expected `{name}` to hold at least 1 representation, but got none.")
    layers = [_rows(f"{name}[{place}]", each, unbiased) for place, each in enumerate(h)]
    if len(lengths := {len(layer) for layer in layers}) > 1:
        raise ValueError(f"Expected `{name}` of the same samples, but got {sorted(lengths)} rows.")
    return layers


def _rows(name: str, h: Tensor, unbiased: bool) -> Tensor:
    least = 4 if unbiased else 2
    embeddings("n, D", **{name: h})
    if len(h) < least:
        raise ValueError(f"Expected `{name}` of shape (n, D) with n >= {least}, but got {tuple(h.shape)}.")
    return h


def _varying(name: str, h: Tensor) -> Tensor:
    if (h == h[0]).all():
        raise ValueError(f"Expected `{name}` with rows that vary, but all are equal.")
    return h


def _zero_mean(h: Tensor) -> Tensor:
    return in_float64(h) - in_float64(h).mean(0)


def _positive(name: str, hsic: Tensor) -> Tensor:
    if not hsic > 0:
        raise ValueError(f"Expected `{name}` with HSIC > 0 with itself, but got {hsic.item():g}.")
    return hsic
