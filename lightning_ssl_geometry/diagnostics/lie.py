"""How a transformation acts on h: its generator, and the directions that rotations span (Cosentino et al. 2022)."""

__all__ = ["LieGenerator", "RotationRank", "encoded", "fitted", "leading_directions", "strengths_of"]

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, get_args

import torch
from torch import Tensor, nn
from torchmetrics.functional import r2_score

from lightning_ssl_geometry.checks import at_least, floating, inside, one_of, shaped
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows, Standing, evaluating
from lightning_ssl_geometry.diagnostics.tangent import (
    between_samples,
    is_linear_projector,
    isotropic,
    null_space_baselines,
    projector_weight,
)
from lightning_ssl_geometry.functional.groups.lie import LieOrder, lie_generator, lie_strength
from lightning_ssl_geometry.functional.groups.rotation import covariance_rank, rotate
from lightning_ssl_geometry.functional.spectrum import RankMode, singular_values_rank
from lightning_ssl_geometry.functional.tangent import column_space, null_space_fraction
from lightning_ssl_geometry.papers import COSENTINO
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity
from lightning_ssl_geometry.random import counter_hash, counter_uniform

_IGNORED = Chart("lie_null_space", "Generator ignored by the projector", "share")
_ROTATIONS = Chart("rotation", "Rank of rotations", "directions")
_quantity = partial(Quantity, paper=COSENTINO, invariances=("permutation",))
_recovered = partial(
    _quantity, where="Eq. 7", bounds=(None, 1), chart=Chart("lie_r2", "Transformation strength recovered", "R²")
)
_rank = partial(
    _quantity,
    where="Fig. 10, App. E",
    bounds=(0, None),
    chart=_ROTATIONS,
    picture=Picture("profile"),
    xlabel="largest angle, degrees",
)
_STRENGTH, _SHUFFLE, _ANGLE = 1, 2, 3  # counters that make the draws differ
_CHUNK = 256  # images per forward pass


class LieGenerator(SampledRows):
    r"""Whether a transformation acts on h as a one-parameter group (Cosentino et al. 2022, Eq. 7).

    Each kept image x is transformed by :math:`t_\epsilon`, with the strength `max_strength` times epsilon. Epsilon is
    uniform in [-1, 1]. On half of the images, the generator G in :math:`h(t_\epsilon x) = \exp(\epsilon G) h(x)` is
    fitted. On the other half, epsilon is estimated from G. Results:

    - `r2` <= 1: R^2 of the estimated strengths. At 1, one G explains all images. At 0, G is no better than the mean.
    - `r2_shuffled`: a baseline, the value of `r2` if G is fitted to shuffled strengths.
    - `null_space` in [0, 1] (Prop. 4.3): share of :math:`\|G\|_F^2` that a linear projector ignores. NaN for G = 0.
    - `null_space_between_samples`: a baseline, the share of the displacements of h between different samples.
    - `null_space_isotropic`: a baseline, 1 - rank / D, with the rank of the projector.

    The last three results need a linear projector, and are meaningful only if `r2` is high. The networks run in eval
    mode. Their weights must not change between updates. Memory: N = `contrast_size` images. `compute` costs two forward
    passes of these images and O(N D^2 + D^3) for D dimensions of h. The order "exponential" costs far more.

    Args:
        transform: Maps image (N, C, H, W) and strength (N,) to (N, C, H, W), and changes nothing at strength 0. None:
            :func:`functional.rotate`, in degrees.
        max_strength: Largest strength, > 0, in the unit of the transformation.
        contrast_size: Number of samples kept, >= 4.
        order: Model of the group: "first" (I + epsilon G) or "exponential". Set `dimensions` for "exponential".
        dimensions: Number >= 1 of principal directions (uncentred) of h to which G is restricted. None: all D. With
            fewer than 2 D samples, many G fit equally well, and the smallest is taken. Fewer directions prevent this.
        tau: The projector's null space has the directions with singular values below this threshold.
        mode: Unit of `tau`: "absolute", "relative" to the largest value, or "cumulative" share of the sum of squares.
        seed: Determines which samples are kept, and their strengths.
        ridge: Weight of the ridge penalty of the fit, >= 0.
    """

    section = "augmentations"
    cost = Cost(update="n X + N X", compute="N D^2 + N F", memory="N X")
    quantities: ClassVar[dict[str, Quantity]] = {
        "r2": _recovered(
            title="Strength of a transformation, recovered",
            text="How well the strength of a known transformation can be read from h by a fitted generator G, on other "
            "samples (R²).",
            low="0 or below: no single G describes how h moves.",
            high="Near 1: h moves as the Lie group that G generates would move it.",
            null="r2_shuffled",
            comparable=("temperature", "batch size"),
            better="high",
            label="fitted",
        ),
        "r2_shuffled": _recovered(
            title="Shuffled strengths",
            text="R² of a fit to strengths that were shuffled between samples.",
            low="About 0 or below, as it should be.",
            high="The fit finds structure in anything.",
            label="shuffled",
            baseline=True,
        ),
        "null_space": _quantity(
            title="Generator ignored",
            text="Share of the fitted generator G in the null space of the projector. It describes the transformation "
            "only where R² is well above that of shuffled strengths.",
            low="The projector sees the transformation.",
            high="Near 1: the projector discards the transformation, as the invariance term asks.",
            where="Prop. 4.3",
            bounds=(0, 1),
            null="null_space_between_samples",
            comparable=("temperature", "batch size"),
            chart=_IGNORED,
            label="ignored",
        ),
        "null_space_between_samples": between_samples("Prop. 4.3", _IGNORED),
        "null_space_isotropic": isotropic("Prop. 4.3", _IGNORED),
    }

    def __init__(
        self,
        transform: Callable[[Tensor, Tensor], Tensor] | None = None,
        max_strength: float = 30.0,
        contrast_size: int = 1024,
        order: LieOrder = "first",
        dimensions: int | None = None,
        tau: float = 1e-2,
        mode: RankMode = "relative",
        seed: int = 0,
        ridge: float = 1e-3,
    ) -> None:
        super().__init__(("image", "position"), contrast_size, seed)
        at_least(4, contrast_size=contrast_size)
        inside("(0, inf)", max_strength=max_strength)
        inside("[0, inf)", ridge=ridge)
        one_of(get_args(LieOrder), order=order)
        if dimensions is not None:
            at_least(1, dimensions=dimensions)
        singular_values_rank(torch.ones(1), tau, mode=mode)  # checks `tau` and `mode`
        self.transform = rotate if transform is None else transform
        self.max_strength = max_strength
        self.order: LieOrder = order
        self.dimensions = dimensions
        self.tau = tau
        self.mode: RankMode = mode
        self.ridge = ridge
        self.encoder = Standing()
        self.projector = Standing()

    @by_position("encoder", "projector")
    def update(
        self, image: Tensor, index: Tensor | None = None, *, encoder: nn.Module, projector: nn.Module | None = None
    ) -> None:
        """Add `image` (N, C, H, W), `index` (N,), the images' indices in the data set, and the networks."""
        shaped("N, C, H, W", image=image)
        floating(image=image)
        self.encoder.hold(encoder)
        if projector is not None:
            self.projector.hold(projector)
        index = self.numbers.of(index, image)
        self.keep(index, image=image, position=index)

    def compute(self) -> dict[str, Tensor]:
        rows = self.rows()
        self.require(len(rows["position"]), "samples", least=4)
        strength, shuffle = strengths_of(rows["position"], self.seed)
        h1, h2 = self._pairs(rows["image"], strength)
        half = len(h1) // 2
        basis = self._basis(torch.cat([h1[:half], h2[:half]]))
        found, generator = fitted(h1 @ basis, h2 @ basis, strength, shuffle=shuffle, order=self.order, ridge=self.ridge)
        return found | self._null_space(basis @ generator, h1)

    def _pairs(self, image: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        encoder = self.encoder.module()
        with evaluating(encoder), torch.no_grad():
            transformed = [
                encoded(encoder, self.transform(x, self.max_strength * epsilon.to(x)))
                for x, epsilon in zip(image.split(_CHUNK), strength.split(_CHUNK), strict=True)
            ]
            return in_float64(encoded(encoder, image)), in_float64(torch.cat(transformed))

    def _basis(self, h: Tensor) -> Tensor:
        if self.dimensions is None:
            return torch.eye(h.shape[1], dtype=h.dtype, device=h.device)
        if self.dimensions > h.shape[1]:
            raise ValueError(f"Expected `dimensions` <= D = {h.shape[1]}, but got {self.dimensions}.")
        return leading_directions(h, self.dimensions)

    def _null_space(self, generator: Tensor, h: Tensor) -> dict[str, Tensor]:
        if not self.projector or not is_linear_projector(projector := self.projector.module()):
            return {}
        weight = projector_weight(projector)
        basis = column_space(weight, self.tau, mode=self.mode)
        fraction = (
            null_space_fraction(generator.T, weight, self.tau, mode=self.mode)
            if generator.any()
            else generator.new_tensor(math.nan)
        )
        return {"null_space": fraction} | null_space_baselines(self, h, basis)


class RotationRank(SampledRows):
    """Rank of the rotations of an image, in pixels and in h, for several largest angles (Cosentino et al. 2022).

    Each kept image is rotated `count` times, by angles uniform in [0, largest angle]. The rank is the number of
    directions that these rotations span, averaged over images (Fig. 10, Prop. 4.2). It is in [0, min(count - 1, D)] for
    D pixel values or D dimensions of h. Results for R largest angles, each (R,), or a scalar if R = 1: `angles` holds
    the largest angles, `pixels` the ranks in pixels, and `h` the ranks in h. For pixels, the paper uses one-hot images.
    The encoder runs in eval mode. Its weights must not change between updates. Memory: `contrast_size` images. For each
    largest angle, `compute` costs `contrast_size` times `count` forward passes and `contrast_size` SVDs.

    Args:
        ranges: The largest angles, in degrees, each > 0.
        count: Number of rotations of each image, >= 2.
        contrast_size: Number of images kept, >= 2.
        tau: The rank counts the singular values that reach this threshold.
        mode: Unit of `tau`: "absolute", "relative" to the largest value, or "cumulative" share of the sum of squares.
        seed: Determines which images are kept, and the angles.
    """

    section = "augmentations"
    cost = Cost(update="n X + N X", compute="N D + N X + N F", memory="N X")
    quantities: ClassVar[dict[str, Quantity]] = {
        "angles": Quantity(
            title="Largest angle",
            text="The rotations of one range have angles from 0 to this one.",
            unit="degrees",
            paper=COSENTINO,
            where="Fig. 10, App. E",
            bounds=(0, None),
            chart=_ROTATIONS,
            picture=Picture("profile", role="x"),
        ),
        "pixels": _rank(
            title="Rank of rotations in pixels",
            text="How many directions the rotations of one image span in pixels, whatever the encoder.",
            label="pixels",
            baseline=True,
        ),
        "h": _rank(
            title="Rank of rotations",
            text="How many directions of h the rotations of one image span, against the largest angle.",
            low="The encoder maps the rotations of an image onto few directions: the projector can be invariant to "
            "them and keep its rank.",
            high="As high as in pixels: the encoder unfolds rotations as the pixels do.",
            null="pixels",
            comparable=("temperature", "batch size"),
            label="h",
        ),
    }

    def __init__(
        self,
        ranges: Sequence[float] = (15, 30, 60, 90, 180),
        count: int = 200,
        contrast_size: int = 4,
        tau: float = 1e-2,
        mode: RankMode = "relative",
        seed: int = 0,
    ) -> None:
        super().__init__(("image", "position"), contrast_size, seed)
        if not ranges or not all(0 < angle < math.inf for angle in ranges):
            raise ValueError(f"Expected `ranges` with at least one angle, each > 0 and finite, but got {ranges}.")
        at_least(2, count=count)
        singular_values_rank(torch.ones(1), tau, mode=mode)  # checks `tau` and `mode`
        self.ranges = tuple(ranges)
        self.count = count
        self.tau = tau
        self.mode: RankMode = mode
        self.encoder = Standing()

    @by_position("encoder")
    def update(self, image: Tensor, index: Tensor | None = None, *, encoder: nn.Module) -> None:
        """Add `image` (N, C, H, W), `index` (N,), the images' indices in the data set, and the encoder."""
        shaped("N, C, H, W", image=image)
        floating(image=image)
        self.encoder.hold(encoder)
        index = self.numbers.of(index, image)
        self.keep(index, image=image, position=index)

    def compute(self) -> dict[str, Tensor]:
        rows, encoder = self.rows(), self.encoder.module()
        fraction = counter_uniform(self.seed, _ANGLE, rows["position"], size=self.count)  # (n, count)
        with evaluating(encoder), torch.no_grad():
            ranks = [
                torch.stack([self._ranks(encoder, x, angle * u) for angle in self.ranges])
                for x, u in zip(rows["image"], fraction, strict=True)
            ]
        pixels, h = in_float64(torch.stack(ranks)).mean(0).T
        return {"angles": pixels.new_tensor(self.ranges), "pixels": pixels, "h": h}

    def _ranks(self, encoder: nn.Module, image: Tensor, angle: Tensor) -> Tensor:
        rotated = rotate(image.expand(self.count, -1, -1, -1), angle)
        spaces = (rotated.flatten(1), encoded(encoder, rotated))
        return torch.stack([covariance_rank(rows, self.tau, mode=self.mode) for rows in spaces])


def strengths_of(position: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Draw a strength in [-1, 1] for each of N samples, and a permutation of those of the first half.

    `position` (N,) holds the indices of the samples in the data set, which determine the draws together with `seed`.
    """
    strength = 2 * in_float64(counter_uniform(seed, _STRENGTH, position, size=1)[:, 0]) - 1
    shuffle = counter_hash(seed, _SHUFFLE, position[: len(position) // 2]).argsort()
    return strength, shuffle.to(strength.device)


def fitted(
    h1: Tensor, h2: Tensor, strength: Tensor, *, shuffle: Tensor, order: LieOrder, ridge: float
) -> tuple[dict[str, Tensor], Tensor]:
    """Fit a generator (K, K) on the first half of N pairs, and return it after the R^2 of strengths of the others.

    `h1` and `h2` are (N, K), `strength` (N,). "r2_shuffled" is the R^2 of a fit to strengths in the order `shuffle`.
    """
    half = len(h1) // 2
    found, generators = {}, []
    for name, drawn in (("r2", strength[:half]), ("r2_shuffled", strength[:half][shuffle])):
        generators.append(lie_generator(h1[:half], h2[:half], drawn, order=order, ridge=ridge))
        recovered = lie_strength(generators[-1], h1[half:], h2[half:], order=order)
        found[name] = r2_score(recovered, strength[half:])
    return found, generators[0]


def leading_directions(h: Tensor, count: int) -> Tensor:
    """Return the `count` leading principal directions (D, count) of `h` (N, D), which is not centred."""
    return torch.linalg.eigh(h.T @ h).eigenvectors[:, -count:]


def encoded(encoder: nn.Module, image: Tensor) -> Tensor:
    """Pass images through an encoder in chunks. Raise a ValueError if the result is not (N, D)."""
    h = torch.cat([encoder(x) for x in image.split(_CHUNK)])
    if h.ndim != 2 or len(h) != len(image):
        raise ValueError(f"Expected `encoder` to return (N, D) for N = {len(image)} images, but got {tuple(h.shape)}.")
    return h
