"""Rules for the temperature of each dimension of the embeddings.

Rusak et al., Content suppresses style: dimensionality collapse in contrastive learning (2022), give content a lower
temperature than style. Content hardly changes between the views of a sample; style changes. A rule is a module that
maps both views of the batch of all ranks, (N, P) each and detached, to the temperatures (P,).
"""

__all__ = ["ContentStyleTemperature", "EqualizingTemperature", "GradientSpectrumTemperature", "LearnedTemperature"]

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import at_least, finite, inside, shaped
from lightning_ssl_geometry.functional.adaptive_temperature import (
    content_count,
    content_style_temperature,
    equalizing_temperature,
    pair_covariances,
    variance_ratios,
)
from lightning_ssl_geometry.functional.info_nce.settings import temperature_range
from lightning_ssl_geometry.precision import keeping_float64


class _FixedTemperature(nn.Module):
    def __init__(self, temperature: Tensor) -> None:
        super().__init__()
        self.temperature = tuple(temperature.tolist())

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        dtype = torch.promote_types(z1.dtype, torch.float32)
        return torch.tensor(self.temperature, dtype=dtype).to(z1.device, non_blocking=True)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"


class ContentStyleTemperature(_FixedTemperature):
    """One temperature for the first dimensions, another for the rest (Table 2 of Rusak et al. 2022).

    Args:
        dim: P, the number of dimensions of the embeddings.
        tau_c: Temperature of the first `content_dim` dimensions, > 0.
        tau_s: Temperature of the others, > 0.
        content_dim: Number of dimensions of content, from 0 to P; None: P // 2.
    """

    def __init__(self, dim: int, tau_c: float = 0.7, tau_s: float = 1.0, content_dim: int | None = None) -> None:
        content_dim = dim // 2 if content_dim is None else content_dim
        super().__init__(content_style_temperature(dim, content_dim, tau_c=tau_c, tau_s=tau_s))


class EqualizingTemperature(_FixedTemperature):
    r"""Fixed temperatures by Prop. 3 of Rusak et al. 2022: :math:`\sigma_c / \sigma_s` for content, 1 for style.

    Content hardly changes between the views of a sample; style changes. The paper states these temperatures for squared
    differences, the mode "distance" of :class:`InfoNCELoss`. Its proof divides the embeddings, the mode "feature".
    Therefore the proof needs the square in the mode "distance", :math:`\sigma_c^2 / \sigma_s^2`. It can be the `tau_c`
    of a :class:`ContentStyleTemperature`.

    Args:
        dim: P, the number of dimensions of the embeddings.
        sigma_c: Standard deviation of the change of content between two views, >= 0.
        sigma_s: Standard deviation of the change of style between two views, > 0.
        content_dim: Number of content dimensions, which come first; from 0 to P.
        floor: Smallest temperature, > 0. It replaces a smaller one, with a warning.
    """

    def __init__(self, dim: int, sigma_c: float, sigma_s: float, content_dim: int, floor: float = 0.1) -> None:
        tau_c = equalizing_temperature(sigma_c, sigma_s, floor=floor)
        super().__init__(content_style_temperature(dim, content_dim, tau_c))


class LearnedTemperature(nn.Module):
    r"""A learnt temperature per dimension: AnInfoNCE (Rusak et al. 2024, arXiv 2407.00143).

    The logit of embeddings f and f' is :math:`-\frac12 (f - f')^T \Lambda (f - f')` with a positive diagonal
    :math:`\Lambda`. This is :class:`InfoNCELoss` with the similarity "distance" and :math:`\tau = 2 / \Lambda`. The
    parameter `log_precision` (P,) is :math:`\log \Lambda`, so :math:`\Lambda` stays positive. The methods of this
    package apply no weight decay to it by default, because decay would pull :math:`\Lambda` to 1.

    Args:
        dim: P, the number of dimensions of the embeddings.
        initial: The initial temperature, or one per dimension; > 0.
    """

    def __init__(self, dim: int, initial: float | Sequence[float] = 1.0) -> None:
        super().__init__()
        at_least(1, dim=dim)
        temperature_range(initial, dim)
        tau = torch.as_tensor(initial, dtype=torch.float64).expand(dim)
        self.log_precision = nn.Parameter((2 / tau).log().to(torch.get_default_dtype()))

    @property
    def precision(self) -> Tensor:
        """The diagonal of Lambda, (P,), > 0."""
        return self.log_precision.exp()

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        """Return the temperatures (P,), with gradient; the views have no effect."""
        return 2 * (-self.log_precision).exp()

    def extra_repr(self) -> str:
        return f"dim={len(self.log_precision)}"


class GradientSpectrumTemperature(nn.Module):
    r"""Temperatures by Prop. 2 and 3 of Rusak et al. 2022, estimated from the embeddings during training.

    In training, this module averages two matrices over the batches. "Marginal" is the covariance of the embeddings, and
    "conditional" the second moment of the change within a pair. The ratios r of the two matrices are those of
    :func:`functional.content_dimension`, in ascending order. The number :math:`d_c` of content dimensions is the number
    of ratios before the largest jump. The :math:`d_c` outputs with the smallest change within a pair, relative to their
    variance, get the temperature

    .. math:: \tau_c = \sqrt{\bar r_c / \bar r_s}

    with the means :math:`\bar r_c` before and :math:`\bar r_s` after the jump. If content and style have equal
    variance, this is :math:`\sigma_c / \sigma_s` of Prop. 3. A value below `floor` is replaced by `floor`, with a
    warning the first time. The other outputs have temperature 1. Without a jump of at least `min_ratio`, all outputs
    have temperature 1.

    The averages are the float64 buffers `marginal` and `conditional`, (P, P) each; `batches` counts their updates. The
    buffers are equal on all ranks and constant in evaluation. Precision "bf16-true" makes the averages too coarse. A
    batch of one sample is skipped. A call raises a ValueError for wrong shapes and for values that are not finite.

    Args:
        dim: P, the number of dimensions of the embeddings.
        momentum: Weight of the old averages, in [0, 1). The first 1 / (1 - momentum) batches have equal weights.
        floor: The smallest temperature, in (0, 1].
        min_ratio: The smallest factor in r that counts as the jump from content to style, > 1 and finite.
        eps: Smallest ratio in the search for the jump, > 0. It replaces smaller ratios.

    >>> z1 = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    >>> GradientSpectrumTemperature(2)(z1, z1 * torch.tensor([1.1, 1.5]))  # r = 0.1^2 and 0.5^2
    tensor([0.2000, 1.0000])
    """

    marginal: Tensor
    conditional: Tensor
    batches: Tensor

    def __init__(
        self, dim: int, momentum: float = 0.99, floor: float = 0.1, min_ratio: float = 10.0, eps: float = 1e-6
    ) -> None:
        super().__init__()
        at_least(1, dim=dim)
        inside("[0, 1)", momentum=momentum)
        inside("(0, 1]", floor=floor)
        content_count(torch.zeros(dim), min_ratio=min_ratio, eps=eps)
        self.momentum, self.floor, self.min_ratio, self.eps = momentum, floor, min_ratio, eps
        self._said = False
        self.register_buffer("marginal", torch.zeros(dim, dim, dtype=torch.float64))
        self.register_buffer("conditional", torch.zeros(dim, dim, dtype=torch.float64))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        """Return the temperatures (P,); in training, update the averages from the views (N, P) first."""
        shaped("N, P", {"P": len(self.marginal)}, z1=z1)
        if self.training and len(z1) > 1:
            before = {name: value.clone() for name, value in self.state_dict().items()}
            self.batches += 1
            rate = max(1 - self.momentum, 1 / self.batches.item())
            for average, covariance in zip((self.marginal, self.conditional), pair_covariances(z1, z2), strict=True):
                average.lerp_(covariance.to(average.dtype), rate)
            try:
                return self._temperature().to(z1.device)
            except ValueError:
                self.load_state_dict(before)  # the averages would stay NaN
                finite(z1=z1, z2=z2)
                raise
        return self._temperature().to(z1.device)

    def extra_repr(self) -> str:
        settings = f"momentum={self.momentum}, floor={self.floor}, min_ratio={self.min_ratio}, eps={self.eps}"
        return f"dim={len(self.marginal)}, {settings}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        return super()._apply(keeping_float64(fn), recurse)

    def _temperature(self) -> Tensor:
        tau = self.marginal.new_ones(len(self.marginal), dtype=torch.float32)
        r = variance_ratios(self.marginal, self.conditional)
        count = int(content_count(r, min_ratio=self.min_ratio, eps=self.eps))
        if count:
            tau_c = math.sqrt(max(r[:count].mean().item(), 0) / r[count:].mean().item())  # rounding may be below 0
            variance, change = self.marginal.diag(), self.conditional.diag()
            varies = variance > 1e-10 * variance.amax()  # an output that varies by rounding only is not content
            tau[(change / variance).where(varies, math.inf).argsort()[:count]] = max(tau_c, self.floor)
            self._say(tau_c)
        return tau

    def _say(self, tau_c: float) -> None:
        if tau_c < self.floor and not self._said:
            self._said = True
            warnings.warn(
                f"The temperature of content by the gradient's spectrum, {tau_c:.3g}, is below `floor` = {self.floor}, "
                "which is used instead in all steps.",
                stacklevel=2,
            )
