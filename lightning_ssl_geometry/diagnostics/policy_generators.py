"""Whether the projector ignores what the augmentation policy contains, and not what it does not contain."""

__all__ = ["PolicyGenerators"]

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, get_args

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import at_least, floating, inside, one_of, shaped
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows, Standing, evaluating
from lightning_ssl_geometry.diagnostics.lie import encoded, fitted, leading_directions, strengths_of
from lightning_ssl_geometry.diagnostics.tangent import (
    between_samples,
    centered,
    is_linear_projector,
    isotropic,
    null_space_baselines,
    projector_weight,
)
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.groups.lie import LieOrder
from lightning_ssl_geometry.functional.groups.one_parameter import OneParameterGroup, one_parameter_action
from lightning_ssl_geometry.functional.spectrum import RankMode, singular_values_rank
from lightning_ssl_geometry.functional.tangent import column_space, projector_gain, share_outside
from lightning_ssl_geometry.papers import COSENTINO
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Quantity

STRENGTHS: Mapping[str, float] = {
    **{"brightness": 0.34, "contrast": 0.34, "saturation": 0.34, "hue": 0.1},
    **{"zoom": 0.5, "translation": 4.0, "rotation": 30.0},
}
"""The largest strengths by default: factors of 0.7 to 1.4, a tenth of a turn of hue, as in SimCLR's views."""
_SAID = {  # group -> in words
    "brightness": "a change of brightness",
    "contrast": "a change of contrast",
    "saturation": "a change of saturation",
    "hue": "a turn of the hue",
    "zoom": "a zoom",
    "translation": "a translation",
    "rotation": "a rotation",
}
_OF_THREE_CHANNELS = ("saturation", "hue")
_RECOVERED = Chart("policy_r2", "Strengths of transformations recovered", "R²")
_GAIN = Chart("policy_gain", "Gain of the projector by transformation", "gain, isotropic = 1")
_IGNORED = Chart("policy_null_space", "Generators ignored by the projector", "share")
_quantity = partial(
    Quantity,
    paper=COSENTINO,
    where="Prop. 4.3",
    invariances=("permutation",),
    comparable=("temperature", "batch size"),
)


class PolicyGenerators(SampledRows):
    r"""How transformations by one real number act on h, and what a linear projector does with each (Prop. 4.3).

    Cosentino et al. 2022 model an augmentation as a one-parameter group with a generator G (Eq. 7) and claim that the
    projector's null space contains G. This can hold only for transformations that the augmentation policy contains.
    Each kept image is transformed by each group of :func:`functional.one_parameter_action`, with a random strength up
    to the given one, and a generator is fitted to half of the images, as in :class:`LieGenerator`. For each group, such
    as "hue":

    - `r2_hue` <= 1: R^2 of the strengths of the other half of the images. Only if it is well above `r2_shuffled`, the
      largest R^2 of fits to shuffled strengths, h moves as one generator says.
    - `gain_hue` >= 0: the gain of W on the displacements h(t x) - h(x), beside isotropic directions
      (:func:`functional.projector_gain`). The baseline is `gain_between_samples`.
    - `null_space_hue` in [0, 1]: the share of :math:`\|G\|_F^2` that W ignores. NaN for G = 0.

    `null_space_span` is the share of the sum of :math:`G G^\top / \|G\|_F^2` over all groups that W ignores. The
    baselines `null_space_between_samples` and `null_space_isotropic` are those of :class:`LieGenerator`. All but R^2
    need a linear projector. The networks run in eval mode, and their weights must not change between updates. Memory: N
    = `contrast_size` images. `compute` costs a forward pass of these images for each group and one more, and
    O(N D^2 + D^3).

    Args:
        strengths: Group -> the largest strength, > 0, in the unit of the group. None: `STRENGTHS`. The results of
            saturation and hue are then NaN for images of one channel.
        mean: What was subtracted from the colours of the images, a number or one per channel.
        std: By what they were divided then, a number or one per channel.
        contrast_size: Number of samples kept, >= 4.
        dimensions: Number >= 1 of principal directions (uncentred) of h to which each G is restricted. If D is smaller,
            all D.
        order: Model of the groups: "first" (I + epsilon G) or "exponential", which takes longer.
        tau: The projector's null space has the directions with singular values below this threshold.
        mode: Unit of `tau`: "absolute", "relative" to the largest value, or "cumulative" share of the sum of squares.
        seed: Determines which samples are kept, and their strengths.
        ridge: Weight of the ridge penalty of the fits, >= 0.
    """

    section = "augmentations"
    cost = Cost(update="n X + N X", compute="N D^2 + D^3 + N F", memory="N X")
    quantities: ClassVar[dict[str, Quantity]] = {
        **{
            f"r2_{group}": _quantity(
                title=f"Strength of {group} recovered",
                text=f"How well the strength of {said} can be read from h by a fitted generator G, on other samples "
                "(R²).",
                low="0 or below: no single G describes how h moves.",
                high="Near 1: h moves as the Lie group that G generates would move it.",
                where="Eq. 7",
                bounds=(None, 1),
                null="r2_shuffled",
                better="high",
                chart=_RECOVERED,
                label=group,
            )
            for group, said in _SAID.items()
        },
        "r2_shuffled": _quantity(
            title="Shuffled strengths",
            text="The largest R² of fits to strengths that were shuffled between samples.",
            where="Eq. 7",
            bounds=(None, 1),
            chart=_RECOVERED,
            label="shuffled",
            baseline=True,
        ),
        **{
            f"gain_{group}": _quantity(
                title=f"Gain on {group}",
                text=f"How much the projector stretches the displacements of h by {said}, squared, beside isotropic "
                "directions.",
                low="Well below the value between samples: the projector attenuates the transformation.",
                high="As high as between samples: the projector does not treat the transformation apart.",
                bounds=(0, None),
                null="gain_between_samples",
                chart=_GAIN,
                label=group,
            )
            for group, said in _SAID.items()
        },
        "gain_between_samples": _quantity(
            title="Gain between samples",
            text="How much the projector stretches the displacements between different samples.",
            bounds=(0, None),
            chart=_GAIN,
            label="between samples",
            baseline=True,
        ),
        **{
            f"null_space_{group}": _quantity(
                title=f"Generator of {group} ignored",
                text=f"Share of the fitted generator G of {said} in the null space of the projector. It describes the "
                "transformation only where R² is well above that of shuffled strengths.",
                low="The projector sees the transformation.",
                high="Near 1: the projector discards the transformation, as the invariance term asks.",
                bounds=(0, 1),
                null="null_space_between_samples",
                chart=_IGNORED,
                label=group,
            )
            for group, said in _SAID.items()
        },
        "null_space_span": _quantity(
            title="Generators ignored, together",
            text="Share of the span of all fitted generators in the null space of the projector.",
            low="The projector sees the transformations.",
            high="Near 1: the projector discards all of the transformations.",
            bounds=(0, 1),
            null="null_space_between_samples",
            chart=_IGNORED,
            label="all together",
        ),
        "null_space_between_samples": between_samples("Prop. 4.3", _IGNORED),
        "null_space_isotropic": isotropic("Prop. 4.3", _IGNORED),
    }

    def __init__(
        self,
        strengths: Mapping[str, float] | None = None,
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
        contrast_size: int = 1024,
        dimensions: int = 32,
        *,
        order: LieOrder = "first",
        tau: float = 1e-2,
        mode: RankMode = "relative",
        seed: int = 0,
        ridge: float = 1e-3,
    ) -> None:
        super().__init__(("image", "position"), contrast_size, seed)
        at_least(4, contrast_size=contrast_size)
        at_least(1, dimensions=dimensions)
        inside("[0, inf)", ridge=ridge)
        one_of(get_args(LieOrder), order=order)
        if strengths is not None:
            if not isinstance(strengths, Mapping):
                raise ValueError(f"Expected `strengths` to be a dict of groups and numbers, but got {strengths!r}.")
            for group, strength in strengths.items():
                one_of(get_args(OneParameterGroup), **{"a key of strengths": group})
                inside("(0, inf)", **{f"strengths[{group!r}]": strength})
            if not strengths:
                raise ValueError("Expected `strengths` with at least one group, but got none.")
        singular_values_rank(torch.ones(1), tau, mode=mode)  # checks `tau` and `mode`
        self.strengths = None if strengths is None else dict(strengths)
        self.mean, self.std = mean, std
        self.dimensions = dimensions
        self.order: LieOrder = order
        self.tau = tau
        self.mode: RankMode = mode
        self.ridge = ridge
        self.encoder = Standing()
        self.projector = Standing()

    def update(
        self, image: Tensor, index: Tensor | None = None, *, encoder: nn.Module, projector: nn.Module | None = None
    ) -> None:
        """Add `image` (N, C, H, W), `index` (N,), the images' indices in the data set, and the networks."""
        shaped("N, C, H, W", image=image)
        floating(image=image)
        first = image[:1]
        for group in self._groups(image) if len(first) else ():
            one_parameter_action(first, first.new_zeros(1), group, mean=self.mean, std=self.std)  # checks the channels
        self.encoder.hold(encoder)
        if projector is not None:
            self.projector.hold(projector)
        index = self.numbers.of(index, image)
        self.keep(index, image=image, position=index)

    def compute(self) -> dict[str, Tensor]:
        rows = self.rows()
        self.require(len(rows["position"]), "samples", least=4)
        image, encoder = rows["image"], self.encoder.module()
        strength, shuffle = strengths_of(rows["position"], self.seed)
        moved: dict[str, Tensor] = {}
        with evaluating(encoder), torch.no_grad():
            h = in_float64(encoded(encoder, image))
            for group, most in self._groups(image).items():
                x = one_parameter_action(image, most * strength.to(image), group, mean=self.mean, std=self.std)
                moved[group] = in_float64(encoded(encoder, x))
        weight = self._weight()
        # what is not computed below stays NaN
        found = dict.fromkeys(self._keys(weight is not None), h.new_tensor(torch.nan))
        if self.strengths is None and len(moved) < len(STRENGTHS):
            undefined(self, "images of one channel have no saturation and no hue")
        if not all(each.isfinite().all() for each in (h, *moved.values())):
            undefined(self, "an image is not finite, or the encoder's output for one is not")
            return found
        half = len(image) // 2
        seen = torch.cat([h[:half], *(each[:half] for each in moved.values())])
        basis, generators, shuffled = leading_directions(seen, min(self.dimensions, h.shape[1])), {}, []
        for name, other in moved.items():
            r2, generator = fitted(
                h @ basis, other @ basis, strength, shuffle=shuffle, order=self.order, ridge=self.ridge
            )
            found[f"r2_{name}"] = r2["r2"]
            shuffled.append(r2["r2_shuffled"])
            generators[name] = basis @ generator
        found["r2_shuffled"] = torch.stack(shuffled).max()
        return found if weight is None else found | self._of_projector(weight, h, moved=moved, generators=generators)

    def _groups(self, image: Tensor) -> dict[OneParameterGroup, float]:
        gray = image.shape[1] == 1
        known = {group: most for group, most in STRENGTHS.items() if not gray or group not in _OF_THREE_CHANNELS}
        return self.strengths or known  # type: ignore[return-value]

    def _keys(self, linear: bool) -> list[str]:
        """The results with and without a linear projector."""
        absent = _SAID.keys() - (self.strengths or _SAID).keys()
        return [
            key
            for key in self.quantities
            if (linear or key.startswith("r2_")) and not key.endswith(tuple(f"_{group}" for group in absent))
        ]

    def _weight(self) -> Tensor | None:
        if not self.projector or not is_linear_projector(projector := self.projector.module()):
            return None
        return projector_weight(projector)

    def _of_projector(
        self, weight: Tensor, h: Tensor, *, moved: Mapping[str, Tensor], generators: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        basis = column_space(weight, self.tau, mode=self.mode)
        found = null_space_baselines(self, h, basis)
        found["gain_between_samples"] = self._gain(centered(h)[0], weight, "different samples")
        moments = []
        for group, generator in generators.items():
            found[f"gain_{group}"] = self._gain(moved[group] - h, weight, group)
            if generator.any():
                moments.append(generator @ generator.T / generator.square().sum())
                found[f"null_space_{group}"] = share_outside(moments[-1], basis)
        return found | ({"null_space_span": share_outside(sum(moments[1:], moments[0]), basis)} if moments else {})

    def _gain(self, delta: Tensor, weight: Tensor, by: str) -> Tensor:
        if delta.any() and weight.any():
            return projector_gain(delta, weight)
        return undefined(self, f"h does not move by {by}, or W is 0", like=delta[0, 0])
