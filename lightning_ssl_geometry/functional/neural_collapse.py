r"""Neural collapse: each class becomes one point, and the class means have equal norms and angles.

Papyan, Han & Donoho, Prevalence of neural collapse during the terminal phase of deep learning training (2020). Rusak et
al., Content suppresses style (2022), Lemma 1 and 4, expect neural collapse under InfoNCE if the content determines the
class; then the style is lost. With :math:`\mu_c` the mean of class c and :math:`\mu_G` the mean of all :math:`\mu_c`,

.. math::
    \Sigma_W = \frac1N \sum_i (h_i - \mu_{y_i})(h_i - \mu_{y_i})^T, \quad
    \Sigma_B = \frac1C \sum_c (\mu_c - \mu_G)(\mu_c - \mu_G)^T
"""

__all__ = ["NeuralCollapse", "class_moments", "moments_neural_collapse", "neural_collapse"]

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import embeddings, floating, integers, rows, shaped
from lightning_ssl_geometry.functional.rounding import moments_floor, rounding_floor
from lightning_ssl_geometry.precision import in_float64


class NeuralCollapse(NamedTuple):
    r"""Four float64 scalars >= 0; all are 0 if classes are points that form a simplex equiangular tight frame (ETF).

    :math:`\mu_c` is the mean of class c, one of C classes, and :math:`\mu_G` is the mean of all :math:`\mu_c`.
    :math:`\Sigma_W` is the covariance within classes, and :math:`\Sigma_B` the covariance of the class means. All four
    scalars are NaN if all class means are equal up to rounding. `equiangularity` and `simplex` are NaN if a class mean
    equals :math:`\mu_G`, because it has no angle.

    Attributes:
        within_class: :math:`\mathrm{tr}(\Sigma_W \Sigma_B^+) / C` (NC1), the spread within classes relative to the
            spread between classes. 0 if every class is a point.
        equinorm: Standard deviation of :math:`\|\mu_c - \mu_G\|`, divided by the mean (NC2). 0 if all norms are equal.
        equiangularity: Standard deviation of the cosines between all pairs of :math:`\mu_c - \mu_G` (NC2), at most 1. 0
            for equal angles.
        simplex: Mean of :math:`|\cos + 1/(C-1)|` over the same pairs (NC2), at most C / (C-1). 0 if all angles are
            equal and as large as possible for C directions.
    """

    within_class: Tensor
    equinorm: Tensor
    equiangularity: Tensor
    simplex: Tensor


def neural_collapse(h: Tensor, label: Tensor) -> NeuralCollapse:
    """Measure how close each class is to one point, and how close the class means are to equal norms and angles.

    Papyan, Han & Donoho (2020) have classes of equal size. For other sizes, all classes have the same weight in the
    covariance of class means, and all rows in the covariance within classes. Cost: O(N D^2 + C^2 D).

    Args:
        h: (N, D), representations. Any float dtype; computed in float64.
        label: (N,), integers; the classes are the values that occur, at least 2.

    Raises:
        ValueError: If a shape or dtype is wrong, or there are fewer than 2 classes.

    >>> label = torch.tensor([0, 0, 1, 1, 2, 2])
    >>> max(neural_collapse(torch.eye(3)[label], label)).item() < 1e-9  # three points at equal angles
    True
    """
    embeddings("N, D", h=h)
    _, count, total, _ = class_moments(h, label)
    if len(count) < 2:
        raise ValueError(f"Expected `label` of at least 2 classes, but got {len(count)}.")
    mean = total / count[:, None]  # (C, D)
    rest = in_float64(h) - mean[label.unique(return_inverse=True)[1]]  # more accurate than from the moments
    return _collapse(mean, rest.T @ rest / len(rest), rounding_floor(h).square() * min(h.shape) / len(h))


def class_moments(h: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the classes and the sums over their rows that :func:`moments_neural_collapse` needs.

    For `h` (N, D) and integers `label` (N,), the first result has the C classes that occur, ascending (C,). The second
    is the number of rows of each class (C,), and the third the sum of these rows (C, D). The fourth is the sum of h h^T
    over all rows (D, D). The last three are float64, and can be added over batches with the same classes.

    >>> classes, count, total, outer = class_moments(torch.ones(3, 2), torch.tensor([7, 4, 7]))
    >>> classes.tolist(), count.tolist(), total.tolist(), outer.tolist()
    ([4, 7], [1.0, 2.0], [[1.0, 1.0], [2.0, 2.0]], [[3.0, 3.0], [3.0, 3.0]])
    """
    shaped("N, D", h=h)
    floating(h=h)
    shaped("N,", {"N": len(h)}, label=label)
    integers(label=label)
    classes, which = label.unique(return_inverse=True)
    count = in_float64(which.bincount(minlength=len(classes)))
    h = in_float64(h)
    total = h.new_zeros(len(classes), h.shape[1]).index_add_(0, which.to(h.device), h)
    return classes, count, total, h.T @ h


def moments_neural_collapse(
    count: Tensor, total: Tensor, outer: Tensor, *, rounding: Tensor | float = 0.0
) -> NeuralCollapse:
    """Compute :func:`neural_collapse` from the last three results of :func:`class_moments`.

    `within_class` is set to 0 if it may be a rounding error. Class means count as equal if their squared distance is
    below `rounding`. This is the mean of eps^2 |h|^2 over the rows, with the machine epsilon eps of their dtype. A
    ValueError is raised if there are fewer than 2 classes, or if a class has no rows.

    >>> h, label = torch.tensor([[0.0], [2.0], [5.0]]), torch.tensor([0, 0, 1])
    >>> round(moments_neural_collapse(*class_moments(h, label)[1:]).within_class.item(), 4)  # (2/3) / 4 / 2
    0.0833
    """
    classes = count.numel()
    shaped("C,", count=count)
    shaped("C, D", {"C": classes}, total=total)
    shaped("D, D", {"D": total.shape[1]}, outer=outer)
    if not (count > 0).all():
        raise ValueError(f"Expected `count` > 0 in every class, but got {count.min().item():g}.")
    rows(2, count=count)
    count, total, outer = in_float64(count), in_float64(total), in_float64(outer)
    mean = total / count[:, None]
    within = (outer - mean.T @ total) / count.sum()
    lost = moments_floor(count.sum(), outer, outer.new_zeros(()))  # rounding error of an eigenvalue
    within = within.where(within.trace() > lost, 0)
    added = (sum(mean.shape) + 2 * count.sum().sqrt()) * torch.finfo(mean.dtype).eps  # relative error of the sums
    return _collapse(mean, within, (added.square() * outer.trace() / count.sum()).clamp(min=rounding))


def _collapse(mean: Tensor, within: Tensor, rounding: Tensor) -> NeuralCollapse:
    classes = len(mean)
    centred = mean - mean.mean(dim=0)
    centred = centred.where(centred.square().sum() > classes * rounding, torch.nan)
    norm = torch.linalg.vector_norm(centred, dim=1)
    unit = centred / norm.where(norm.square() > rounding, torch.nan)[:, None]
    rows, columns = torch.triu_indices(classes, classes, offset=1, device=mean.device)
    cosine = (unit @ unit.T)[rows, columns]
    return NeuralCollapse(
        within_class=_relative_spread(within, centred, rounding),
        equinorm=norm.std(correction=0) / norm.mean(),
        equiangularity=cosine.std(correction=0),
        simplex=(cosine + 1 / (classes - 1)).abs().mean(),
    )


def _relative_spread(within: Tensor, centred: Tensor, rounding: Tensor) -> Tensor:
    if not centred.isfinite().all():  # svd would raise
        return centred.sum() * torch.nan
    _, sigma, directions = torch.linalg.svd(centred, full_matrices=False)
    sigma, directions = sigma[: len(centred) - 1], directions[: len(centred) - 1]  # centring removes one direction
    seen = sigma > max(centred.shape) * torch.finfo(sigma.dtype).eps * sigma[0]
    seen &= sigma.square() > len(centred) * rounding
    if not seen.any():
        return sigma.sum() * torch.nan  # all class means coincide: there is nothing to compare with
    # Sigma_B^+ = C V S^-2 V^T with the SVD U S V^T of the centred class means
    spread = ((directions @ within) * directions).sum(dim=1)
    return (spread.clamp(min=0)[seen] / sigma[seen].square()).sum()  # rounding may give -1e-17
