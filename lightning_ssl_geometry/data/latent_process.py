"""Random pairs of latents: an anchor z and a positive z~ with the content of z and another style."""

__all__ = ["Conditional", "LatentProcess", "LatentSettings", "Marginal", "Space"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal, TypedDict, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from lightning_ssl_geometry.checks import at_least, inside, one_of
from lightning_ssl_geometry.random import (
    counter_hash,
    counter_uniform,
    generalized_normal,
    reject,
    uniform_sphere,
    von_mises_fisher,
)

Space = Literal["box", "sphere", "unbounded"]
Marginal = Literal["uniform", "normal", "laplace"]
Conditional = Literal["normal", "laplace", "generalized_normal", "von_mises_fisher"]
_ANCHOR, _POSITIVE = 0, 1
_ATTEMPTS = 1 << 20
_BOUNDS = {"box": (0.0, 1.0), "sphere": (-math.inf, math.inf), "unbounded": (-math.inf, math.inf)}


class LatentSettings(TypedDict, total=False):
    """The arguments of :class:`LatentProcess` except its dimensions."""

    space: Space
    marginal: Marginal
    marginal_scale: float | Sequence[float]
    conditional: Conditional
    style_scale: float | Sequence[float]
    content_scale: float | Sequence[float]
    p: float
    concentration: float
    norm_tolerance: float | None


@dataclass(frozen=True)
class LatentProcess:
    r"""The distribution of anchors z and positives z~.

    The first `content_dim` dimensions are content, and the others are style. Anchors follow a marginal p(z). Positives
    follow a conditional p(z~ | z). By default, a positive has exactly the content of its anchor. The distribution is
    that of Rusak et al. (Content suppresses style: dimensionality collapse in contrastive learning, 2022), Sec. 4.1.
    The spaces are those of Zimmermann et al. (Contrastive Learning Inverts the Data Generating Process, 2021).

    - The box is :math:`[0, 1]^d`. The marginal is uniform, or normal or Laplace about 0.5. Marginal and conditional are
      truncated to the box in each coordinate.
    - The unbounded space is :math:`\mathbb R^d`. The marginal is normal or Laplace about 0.
    - The sphere is :math:`S^{d-1}`. The marginal is uniform, or normal or Laplace about 0 and then scaled to length 1.

    On the sphere, the conditional depends on `content_scale`. If it is 0, the style :math:`z_s` keeps its length
    :math:`|z_s|`. Then "von_mises_fisher" has the density :math:`\exp(\kappa \langle z, \tilde z \rangle)`. So the
    direction of the style has the concentration :math:`\kappa |z_s|^2`. Other conditionals add noise to the style, and
    scale it back to its length. If `content_scale` is not 0, noise is added to all dimensions, and the result is scaled
    to length 1. With `norm_tolerance`, the noise is drawn again where the length of the result differs from 1 by this
    much or more, as in the experiments of AnInfoNCE (Rusak et al. 2024). The smaller the tolerance, the closer is the
    density of normal noise to :math:`\exp(-\sum_k (\tilde z_k - z_k)^2 / (2 \sigma_k^2))` on the sphere.

    The scale of "normal" is the standard deviation before truncation. The scale of "laplace" is b in the density
    :math:`\exp(-|x| / b)`. The scale of "generalized_normal" is s in the density :math:`\exp(-(|x| / s)^p)`.

    Args:
        dim: d, the number of dimensions.
        content_dim: d_c, the number of content dimensions, in [0, d].
        space: "box", "sphere" or "unbounded".
        marginal: "uniform" (not in the unbounded space), "normal" or "laplace".
        marginal_scale: Scale of the marginal, > 0: a number, or d numbers. Not used for "uniform".
        conditional: "normal", "laplace" or "generalized_normal". On the sphere, also "von_mises_fisher".
        style_scale: Scale of the conditional for the style, >= 0: a number, or d - d_c numbers.
        content_scale: Scale of the conditional for the content, >= 0: a number, or d_c numbers. 0 keeps the content
            exactly. "von_mises_fisher" requires 0.
        p: Shape of "generalized_normal", >= 1.
        concentration: kappa >= 0 of "von_mises_fisher".
        norm_tolerance: None, or > 0: the largest change of the length by noise on the sphere, where `content_scale` is
            not 0. Others are drawn again.

    Raises:
        ValueError: If an argument has a wrong value, type or length, or if the space does not have this distribution.
            It is also raised on the sphere for one style dimension with `content_scale` 0. This style could not change.
            A draw raises it if `norm_tolerance` rejects a million draws of one pair.
    """

    dim: int
    content_dim: int
    space: Space = "box"
    marginal: Marginal = "uniform"
    marginal_scale: float | Sequence[float] = 1.0
    conditional: Conditional = "normal"
    style_scale: float | Sequence[float] = 0.05
    content_scale: float | Sequence[float] = 0.0
    p: float = 3.0
    concentration: float = 400.0
    norm_tolerance: float | None = None

    def __post_init__(self) -> None:
        one_of(get_args(Space), space=self.space)
        one_of(get_args(Marginal), marginal=self.marginal)
        one_of(get_args(Conditional), conditional=self.conditional)
        for name in ("dim", "content_dim"):
            if not isinstance(value := getattr(self, name), Integral):
                raise ValueError(f"Expected `{name}` to be an integer, but got {value!r}.")
        at_least(1, dim=self.dim)
        if not 0 <= self.content_dim <= self.dim:
            raise ValueError(f"Expected `content_dim` in [0, {self.dim}], but got {self.content_dim}.")
        sizes = {"style_scale": self.dim - self.content_dim, "content_scale": self.content_dim}
        for name, size in ({"marginal_scale": self.dim} | sizes).items():
            value = _numbers(given := getattr(self, name))
            if value is None or value.shape not in {(), (size,)}:
                raise ValueError(f"Expected `{name}` to be a number or {size} of them, but got {given!r}.")
            least, positive = (">", value > 0) if name == "marginal_scale" else (">=", value >= 0)
            if not (positive & value.isfinite()).all():
                raise ValueError(f"Expected `{name}` {least} 0 and finite, but got {given!r}.")
        for name, bound in {"p": 1, "concentration": 0}.items():
            if not isinstance(given := getattr(self, name), Real) or not bound <= float(given) < math.inf:
                raise ValueError(f"Expected `{name}` to be a number >= {bound} and finite, but got {given!r}.")
        if self.norm_tolerance is not None:
            inside("(0, inf)", norm_tolerance=self.norm_tolerance)
        self._check_combination()

    @property
    def content(self) -> Tensor:
        """Boolean (d,), true for the content dimensions."""
        return torch.arange(self.dim) < self.content_dim

    def sample(self, key: Tensor) -> Tensor:
        """Draw anchors and positives, float32 (2, N, d). Each integer of `key` (N,), int64, determines one pair."""
        anchor = self._anchors(counter_hash(key, _ANCHOR))
        return torch.stack([anchor, self._positives(anchor, counter_hash(key, _POSITIVE))])

    def _anchors(self, key: Tensor) -> Tensor:
        if self.marginal == "uniform":
            return uniform_sphere(key, self.dim) if self.space == "sphere" else counter_uniform(key, size=self.dim)
        shape, factor = _shape(self.marginal, self.p)
        centre = 0.5 if self.space == "box" else 0.0
        mean = torch.full((len(key), self.dim), centre, dtype=torch.float32, device=key.device)
        scale = factor * _values(self.marginal_scale, self.dim, key.device)
        low, high = _BOUNDS[self.space]
        z = generalized_normal(mean, scale, shape, key=_per_dimension(key, self.dim), low=low, high=high)
        return normalize(z.double(), dim=1).float() if self.space == "sphere" else z

    def _positives(self, anchor: Tensor, key: Tensor) -> Tensor:
        if self.space != "sphere" or self._moves_content:
            parts = [(self.content_scale, self.content_dim), (self.style_scale, self.dim - self.content_dim)]
            scale = torch.cat([_values(scale, size, key.device) for scale, size in parts])
            if self.norm_tolerance is not None:
                key = self._accepted(anchor, scale, key)
            noisy = self._noisy(anchor, scale, key)
            return normalize(noisy.double(), dim=1).float() if self.space == "sphere" else noisy
        content, style = anchor.split([self.content_dim, self.dim - self.content_dim], dim=1)
        return torch.cat([content, self._turned(style, key)], dim=1) if self.content_dim < self.dim else anchor

    def _accepted(self, anchor: Tensor, scale: Tensor, key: Tensor) -> Tensor:
        # The key of the first draw of each pair whose length is close to 1.
        def attempt(rows: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
            if int(numbers.max()) >= _ATTEMPTS:
                raise ValueError(
                    f"Expected a larger `norm_tolerance` or smaller scales, but got {self.norm_tolerance} and a pair "
                    f"whose first {_ATTEMPTS:,} draws were all rejected."
                )
            keys = counter_hash(key[rows], numbers)
            length = torch.linalg.vector_norm(self._noisy(anchor[rows], scale, keys).double(), dim=1)
            return keys, (length - 1).abs() < self.norm_tolerance

        kept = key.clone()
        reject(kept, torch.arange(len(key), device=key.device), attempt)
        return kept

    def _noisy(self, mean: Tensor, scale: Tensor, key: Tensor) -> Tensor:
        shape, factor = _shape(self.conditional, self.p)
        low, high = _BOUNDS[self.space]
        key = _per_dimension(key, mean.shape[1])
        return generalized_normal(mean, factor * scale, shape, key=key, low=low, high=high)

    def _turned(self, style: Tensor, key: Tensor) -> Tensor:
        style = style.double()
        radius = torch.linalg.vector_norm(style, dim=1, keepdim=True)
        if self.conditional == "von_mises_fisher":
            concentration = self.concentration * radius.square().squeeze(1)
            return (radius * von_mises_fisher(style / radius, concentration, key)).float()
        noisy = self._noisy(style, _values(self.style_scale, style.shape[1], key.device), key)
        return (noisy * (radius / torch.linalg.vector_norm(noisy, dim=1, keepdim=True))).float()

    @property
    def _moves_content(self) -> bool:
        return bool(torch.as_tensor(self.content_scale).any())

    def _check_combination(self) -> None:
        if self.space == "unbounded" and self.marginal == "uniform":
            raise ValueError("Expected `marginal` 'normal' or 'laplace' in the unbounded `space`, but got 'uniform'.")
        if self.norm_tolerance is not None and not (self.space == "sphere" and self._moves_content):
            raise ValueError(
                "Expected `norm_tolerance` None unless `space` is 'sphere' and `content_scale` is not 0, but got "
                f"{self.norm_tolerance} with {self.space!r} and {self.content_scale}."
            )
        if self.space != "sphere":
            if self.conditional == "von_mises_fisher":
                raise ValueError(f"Expected `space` 'sphere' for von Mises-Fisher positives, but got {self.space!r}.")
            return
        if self.dim < 2:
            raise ValueError(f"Expected `dim` >= 2 on the sphere, but got {self.dim}.")
        if self.dim - self.content_dim == 1 and not self._moves_content:
            raise ValueError("Expected no or several style dimensions beside exact content on the sphere, but got 1.")
        if self.conditional == "von_mises_fisher" and self._moves_content:
            raise ValueError(
                f"Expected `content_scale` 0 for von Mises-Fisher positives, but got {self.content_scale}."
            )


def _shape(law: Marginal | Conditional, p: float) -> tuple[float, float]:
    # The shape p and the factor s / scale of :func:`generalized_normal`.
    return {"normal": (2.0, math.sqrt(2)), "laplace": (1.0, 1.0)}.get(law, (p, 1.0))


def _numbers(given: object) -> Tensor | None:
    try:
        return torch.as_tensor(given, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        return None


def _values(scale: float | Sequence[float], size: int, device: torch.device) -> Tensor:
    return torch.as_tensor(scale, dtype=torch.float64, device=device).expand(size)


def _per_dimension(key: Tensor, dim: int) -> Tensor:
    return counter_hash(key[:, None], torch.arange(dim, device=key.device))
