"""Similarity of a kernel matrix to the labels of its samples, or to another kernel matrix."""

__all__ = ["class_blocks", "kernel_cosine", "kernel_target_alignment", "normalized_kernel"]

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, shaped
from lightning_ssl_geometry.functional.rounding import rounding_eps
from lightning_ssl_geometry.precision import in_float64


def kernel_target_alignment(kernel: Tensor, label: Tensor, *, center: bool = True) -> Tensor:
    r"""Measure how well a kernel separates the classes: its cosine with the kernel of the labels.

    .. math:: \frac{\langle K, Y \rangle_F}{\|K\|_F \|Y\|_F}, \quad
        Y_{ij} = 1 \text{ if } i \text{ and } j \text{ have the same label}, \quad -\frac{1}{C - 1} \text{ otherwise}

    With C = 2 classes, Y is :math:`y y^T` for labels y = 1 and -1 (Cristianini, Shawe-Taylor, Elisseeff & Kandola, On
    Kernel-Target Alignment, 2001). By default K and Y are centred first (Cortes, Mohri & Rostamizadeh, Algorithms for
    Learning Kernels Based on Centered Alignment, 2012, Eq. 3 and Definition 4). After centring, a constant added to K
    has no effect. Centring also reduces the effect of class sizes.

    Args:
        kernel: K (n, n), symmetric.
        label: (n,), of C >= 2 classes.
        center: Whether to centre K and Y.

    Returns:
        A float64 scalar in [-1, 1]: 1 for a positive multiple of Y, 0 for a kernel unrelated to the classes. It is >= 0
        for a centred, positive semi-definite K. It is NaN if K, after centring, is not finite or is 0 up to rounding.

    Raises:
        ValueError: If the shapes do not fit, or all labels are equal.

    >>> label = torch.tensor([0, 0, 1])
    >>> f"{kernel_target_alignment((label[:, None] == label).float(), label):.3f}"
    '1.000'
    """
    _square(kernel=kernel)
    shaped("n,", {"n": len(kernel)}, label=label)
    classes = len(label.unique())
    if classes < 2:
        raise ValueError(f"Expected `label` of at least 2 classes, but got {classes}.")
    target = in_float64(label[:, None] == label)
    target = target - (1 - target) / (classes - 1)
    if center:
        floor = max(1e-12, 8 * rounding_eps(kernel.dtype)) * in_float64(kernel).norm()
        kernel, target = _centred(in_float64(kernel)), _centred(target)
        kernel = kernel.where(~(kernel.norm() <= floor), 0.0)  # rounding is no kernel
    return kernel_cosine(kernel, target)


def class_blocks(kernel: Tensor, label: Tensor) -> Tensor:
    """Average a kernel over the pairs of different samples, for each pair of classes.

    Args:
        kernel: (n, n).
        label: (n,), the classes, integers from 0 to C - 1.

    Returns:
        (C, C) float64. NaN for a class without samples, and on the diagonal for a class of one sample.

    Raises:
        ValueError: If the shapes do not fit, or a label is negative.

    >>> class_blocks(torch.tensor([[9.0, 1.0, 2.0], [1.0, 9.0, 4.0], [2.0, 4.0, 9.0]]), torch.tensor([0, 0, 1]))
    tensor([[1., 3.],
            [3., nan]], dtype=torch.float64)
    """
    _square(kernel=kernel)
    shaped("n,", {"n": len(kernel)}, label=label)
    at_least(0, label=min(label.tolist(), default=0))
    one_hot = in_float64(torch.nn.functional.one_hot(label.long()))  # (n, C)
    rest = in_float64(kernel) - in_float64(kernel).diag().diag()
    count = one_hot.sum(0)
    pairs = torch.outer(count, count) - count.diag()
    return one_hot.T @ rest @ one_hot / pairs  # 0 / 0 where there are none


def normalized_kernel(kernel: Tensor) -> Tensor:
    r"""Turn a kernel of inner products into a kernel of cosines, :math:`K_{ij} / \sqrt{K_{ii} K_{jj}}`.

    `kernel` is (n, n) and positive semi-definite. A ValueError is raised if the shape differs. The result is float64 in
    [-1, 1]. If :math:`K_{ii} = 0`, row i and column i are NaN.

    >>> normalized_kernel(torch.tensor([[4.0, 3.0], [3.0, 9.0]]))[0].tolist()
    [1.0, 0.5]
    """
    _square(kernel=kernel)
    length = in_float64(kernel).diag().sqrt()
    return in_float64(kernel) / torch.outer(length, length)


def kernel_cosine(kernel: Tensor, other: Tensor) -> Tensor:
    r"""Compute the cosine of two kernels of the same samples, :math:`\langle K, L \rangle_F / (\|K\|_F \|L\|_F)`.

    Fort et al., Deep learning versus kernel learning (2020), call 1 minus this cosine the kernel distance. Both kernels
    are (n, n); a ValueError is raised if a shape differs. The result is a float64 scalar in [-1, 1]. It is >= 0 for
    positive semi-definite kernels, and NaN if all entries of a kernel are 0.

    >>> f"{kernel_cosine(torch.eye(4), torch.ones(4, 4)):.2f}"
    '0.50'
    """
    _square(kernel=kernel, other=other)
    kernel, other = in_float64(kernel), in_float64(other)
    return (kernel * other).sum() / (kernel.norm() * other.norm())


def _square(**kernels: Tensor) -> None:
    n = len(next(iter(kernels.values())))
    shaped("n, n", {"n": n}, **kernels)
    at_least(1, n=n)


def _centred(kernel: Tensor) -> Tensor:
    return kernel - kernel.mean(0) - kernel.mean(1, keepdim=True) + kernel.mean()
