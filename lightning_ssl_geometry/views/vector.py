"""Views of vectors, such as the rows of a table.

Corruption: Bahri, Jiang, Tay & Metzler, SCARF: Self-Supervised Contrastive Learning using Random Feature Corruption
(2022). A random set of floor(c D) features is replaced. Each replaced feature j gets the value that feature j has in a
random training sample, so it follows the empirical marginal distribution of that feature.
"""

__all__ = ["VectorViews"]

import math
from collections.abc import Callable

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import inside, shaped, switch
from lightning_ssl_geometry.random import counter_hash, counter_uniform
from lightning_ssl_geometry.views.arrays import ArrayViews
from lightning_ssl_geometry.views.sampling import sample_bernoulli, sample_normal
from lightning_ssl_geometry.views.validation import expect_axes

_CORRUPTED, _DONOR, _NOISE, _MASK = range(4)  # streams of random numbers
_POSITIVE = (1 << 63) - 1


class VectorViews(ArrayViews):
    """Random views of vectors: feature corruption, Gaussian noise and feature masking, in this order.

    The samples are standardised first, so `noise` is in units of the training set's standard deviation of each feature,
    and masked features have the training set's mean. By default, the views are those of SCARF: the sample itself, and a
    copy with 60 % of the features corrupted.

    Args:
        corruption: c in [0, 1]. floor(c D) of the D features of a view are replaced. A feature's new value is the value
            of this feature in a random training sample. A DataModule of this package passes the training set. Without
            such a DataModule, call :meth:`learn` first.
        noise: Standard deviation of Gaussian noise, >= 0, for every feature.
        mask: Probability in [0, 1] that a feature is masked.
        keep_first: Whether the first view is the sample itself.
        num_views: V, the number of views of each sample.
        seed: Seed of the random numbers.

    Raises:
        ValueError: If an argument is out of range. A call raises it if `corruption` is positive and the module has no
            training set.

    >>> views = VectorViews(corruption=0.0, mask=0.5, keep_first=False)
    >>> first, second = views(torch.ones(1, 6), torch.tensor([7]))
    >>> first.tolist()
    [[0.0, 0.0, 1.0, 1.0, 1.0, 0.0]]
    """

    axes = "N, D"

    def __init__(
        self,
        corruption: float = 0.6,
        noise: float = 0.0,
        mask: float = 0.0,
        *,
        keep_first: bool = True,
        num_views: int = 2,
        seed: int = 0,
    ) -> None:
        super().__init__(num_views, seed)
        inside("[0, 1]", corruption=corruption, mask=mask)
        inside("[0, inf)", noise=noise)
        switch(keep_first=keep_first)
        self.corruption, self.noise, self.mask, self.keep_first = corruption, noise, mask, keep_first
        self._training: tuple[Tensor, Tensor] | None = None

    def learn(self, sample: Tensor, rows: Tensor) -> None:
        """Keep a reference to the training set, from which corrupted features take their values.

        Args:
            sample: (M, D), samples before standardisation.
            rows: (n,) int64, positions of the training samples among the M samples.
        """
        expect_axes(self.axes, sample)
        self._training = sample, rows

    def extra_repr(self) -> str:
        names = ("corruption", "noise", "mask", "keep_first", "num_views", "seed")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def _view(self, x: Tensor, standardize: Callable[[Tensor], Tensor], *, key: Tensor, view: int) -> Tensor:
        if self.keep_first and view == 0:
            return standardize(x)
        x = standardize(self._corrupted(x, key))
        here = key.to(x.device, non_blocking=True)
        if self.noise:
            x = x + self.noise * sample_normal(counter_uniform(here, _NOISE, size=x.shape[1]))
        if self.mask:
            x = x.masked_fill(sample_bernoulli(counter_uniform(here, _MASK, size=x.shape[1]), self.mask), 0)
        return x

    def _corrupted(self, x: Tensor, key: Tensor) -> Tensor:
        dim = x.shape[1]
        count = math.floor(self.corruption * dim + 1e-9)  # 0.29 x 100 is 28.999...
        if not count:
            return x
        order = counter_uniform(key, _CORRUPTED, size=dim).argsort(dim=1, stable=True)
        chosen = torch.zeros(x.shape, dtype=torch.bool).scatter_(1, order[:, :count], True)
        chosen, other = (
            each.to(x.device, non_blocking=True) for each in (chosen, self._marginal(key, dim).to(x.dtype))
        )
        return torch.where(chosen, other, x)

    def _marginal(self, key: Tensor, dim: int) -> Tensor:
        if self._training is None:
            raise ValueError(
                "Expected a training set for `corruption` > 0, but VectorViews has none. Call `learn` first, "
                "or set `corruption` to 0."
            )
        sample, rows = self._training
        shaped("M, D", {"D": dim}, training_set=sample)
        feature = torch.arange(dim)
        donor = (counter_hash(key[:, None], _DONOR, feature) & _POSITIVE) % len(rows)  # (N, D)
        return sample[rows[donor], feature]
