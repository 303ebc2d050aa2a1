"""What the projector does with directions of h, without a threshold (Cosentino et al. 2022, Sec. 4 and 5)."""

__all__ = ["ProjectionAlignment", "ProjectorGain"]

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import at_least
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows, Standing, by_sample, evaluating
from lightning_ssl_geometry.diagnostics.tangent import (
    displacements,
    is_linear_projector,
    projector_weight,
    random_directions,
)
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.piecewise_affine import affine_map
from lightning_ssl_geometry.functional.rounding import rounding_eps
from lightning_ssl_geometry.functional.tangent import gains_along, principal_angles, projection_alignment
from lightning_ssl_geometry.papers import COSENTINO
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity

_GAIN = Chart("projector_gain", "Gain of the projector", "gain, isotropic = 1")
_NEGATIVES = Chart("projector_gain_negatives", "Gain on the hardest negative", "gain, isotropic = 1")
_ALONG = Chart("projector_gain_spectrum", "Directions of h along the singular vectors of W", "variance, isotropic = 1")
_ANGLES = Chart("projector_angles", "Angles between W and the leading directions", "degrees")
_ALIGNMENT = Chart("projection_alignment", "Projection and displacement", "cosine")
_of_gain = partial(
    Quantity,
    paper=COSENTINO,
    where="Prop. 4.1",
    bounds=(0, None),
    invariances=("scale", "permutation"),
    comparable=("temperature", "batch size"),
    chart=_GAIN,
)
_along = partial(
    Quantity,
    paper=COSENTINO,
    where="Prop. 4.1",
    low="Low values at small indices: the displacements avoid what W stretches most.",
    high="High values at small indices: the displacements lie where W stretches most.",
    bounds=(0, None),
    invariances=("scale", "permutation"),
    chart=_ALONG,
    picture=Picture("profile"),
    xlabel="index of W's singular vector",
)
_angles = partial(
    Quantity,
    paper=COSENTINO,
    where="Prop. 4.1",
    low="Near 0: a direction that both have.",
    high="Near 90: a direction of one that the other has no part of.",
    unit="degrees",
    bounds=(0, 90),
    invariances=("scale", "permutation"),
    chart=_ANGLES,
    picture=Picture("profile"),
    xlabel="index",
)
_cosine = partial(
    Quantity,
    paper=COSENTINO,
    where="Eq. 8 and 9",
    bounds=(-1, 1),
    invariances=("scale", "permutation"),
    comparable=("temperature", "batch size"),
    chart=_ALIGNMENT,
)
_KINDS = {  # of displacements -> in words
    "augmentations": "v = h2 - h1 between the views of a sample",
    "between_samples": "h_i - h_j between different samples",
    "negatives": "h1 - h* from a sample to its hardest negative",
}
_CHUNK = 32  # maps (D, P) in memory at once


class ProjectorGain(SampledRows):
    r"""How much a linear projector stretches the directions of augmentations, and those between samples.

    The gain of W on directions x is :math:`\sum \|W^\top x\|^2 / \sum \|x\|^2`, divided by its value for isotropic
    directions (:func:`functional.projector_gain`). It tests Prop. 4.1 of Cosentino et al. 2022 without a threshold. h1
    and h2 are the first two views of a sample, with D dimensions, and h* is the view of another sample with the most
    similar z. Scalars, >= 0:

    - `augmentations`: the gain on v = h2 - h1. Below `between_samples`, the projector attenuates augmentations.
    - `between_samples`: a baseline, the gain on h_i - h_j for the first views of different samples.
    - `view_means`: the gain on the differences of the means of the two views of samples.
    - `negatives`: the gain on h1 - h*. h* is chosen in z, so that these displacements are short behind W.
    - `negatives_random`: a baseline, the gain on h1 - h* of a W with the same singular values and random directions,
      with h* chosen behind it.

    For "augmentations", "between_samples" and "negatives", two vectors (min(D, P),) each. `<kind>_along` holds
    :math:`D u_k^\top S u_k / \mathrm{tr} S`, with the left singular vectors u_k of W and the second moments S of the
    directions. `<kind>_angles` holds the principal angles between the columns of W and the min(D, P) leading
    eigenvectors of S, in degrees; they are NaN if S or W has fewer directions. Results are NaN if the directions are 0
    up to rounding, or not finite. The weights must not change between updates. Memory: O(contrast_size (D + P)).
    `compute` costs O(contrast_size^2 P + contrast_size D^2 + D^3).

    Args:
        contrast_size: Number of samples kept, >= 2. With more samples, negatives are harder.
        seed: Determines which samples are kept, and the random W.
    """

    section = "augmentations"
    cost = Cost(update="n D + N D", compute="N^2 D + N D^2", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "augmentations": _of_gain(
            title="Gain on augmentations",
            text=f"How much the projector stretches {_KINDS['augmentations']}, squared, beside isotropic directions.",
            low="Well below the value between samples: the projector attenuates what augmentations do.",
            high="As high as between samples: the projector does not treat augmentations apart.",
            null="between_samples",
            better="low",
            label="augmentations",
        ),
        "between_samples": _of_gain(
            title="Gain between samples",
            text=f"How much the projector stretches {_KINDS['between_samples']}, squared, beside isotropic directions.",
            low="Near 1: the projector has no preference for the directions in which samples differ.",
            high="The projector prefers the directions in which samples differ.",
            label="between samples",
            baseline=True,
        ),
        "view_means": _of_gain(
            title="Gain between view means",
            text="How much the projector stretches the differences of the means of the two views of different samples.",
            low="Near 1: the projector has no preference for the directions in which samples differ.",
            high="The projector prefers the directions in which samples differ, apart from their augmentations.",
            null="between_samples",
            label="view means",
        ),
        "negatives": _of_gain(
            title="Gain on hardest negatives",
            text=f"How much the projector stretches {_KINDS['negatives']}. h* is the sample that is nearest behind it.",
            low="Below the value of a random W: hardest negatives differ in directions that the projector attenuates.",
            high="Above the value of a random W: hardest negatives differ in directions that the projector stretches.",
            null="negatives_random",
            label="to h*",
            chart=_NEGATIVES,
        ),
        "negatives_random": _of_gain(
            title="Gain of a random W on its hardest negatives",
            text="The gain of a W with these singular values but random directions, on the displacements to the "
            "hardest negatives behind it.",
            label="random W",
            baseline=True,
            chart=_NEGATIVES,
        ),
        **{
            f"{kind}_along": _along(
                title=f"Along W: {kind.replace('_', ' ')}",
                text=f"Mean square of {said} along each singular vector of W, beside isotropic directions.",
                label=kind.replace("_", " "),
            )
            for kind, said in _KINDS.items()
        },
        **{
            f"{kind}_angles": _angles(
                title=f"Angles: {kind.replace('_', ' ')}",
                text=f"Angles between the column space of W and as many leading directions of {said}.",
                label=kind.replace("_", " "),
            )
            for kind, said in _KINDS.items()
        },
    }

    def __init__(self, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(("h", "z"), contrast_size, seed)
        self.projector = Standing()

    @classmethod
    def applies_to(cls, projector: nn.Module) -> bool:
        """Return whether the projector is one `torch.nn.Linear`."""
        return is_linear_projector(projector)

    def update(self, h: Tensor, z: Tensor, index: Tensor | None = None, *, projector: nn.Module) -> None:
        """Add `h` (V, N, D) and `z` (V, N, P) for V >= 2 views of N samples, `index` (N,) and the projector."""
        projector_weight(projector, h)
        self.projector.hold(projector)
        self.offer(index, h=by_sample("h", h, views=2)[:, :2], z=by_sample("z", z, views=2)[:, :2])

    def compute(self) -> dict[str, Tensor]:
        weight, rows = in_float64(projector_weight(self.projector.module())), self.rows()
        h, count = in_float64(rows["h"]), min(weight.shape)
        if not weight.isfinite().all() or not weight.any():
            nan = undefined(self, "W is 0 or not finite", like=h[0, 0, 0])
            vectors = {key for key, quantity in self.quantities.items() if quantity.picture}
            return {key: nan.expand(count) if key in vectors else nan for key in self.quantities}
        left, sigma, _ = torch.linalg.svd(weight, full_matrices=False)
        random = random_directions(len(weight), count, seed=self.seed, like=sigma)
        rounding = rounding_eps(rows["h"].dtype) ** 2 * h.square().sum()
        deltas = {
            "augmentations": h[:, 1] - h[:, 0],
            "between_samples": h[:, 0] - h[:, 0].mean(0),
            "view_means": h.mean(1) - h.mean((0, 1)),
            "negatives": displacements(self, h, rows["z"], view=0),
            "negatives_random": displacements(self, h, h @ (random * sigma), view=0),
        }
        found: dict[str, Tensor] = {}
        for kind, delta in deltas.items():
            moment, vectors_of = delta.T @ delta, random if kind == "negatives_random" else left
            if rounding < moment.trace() < torch.inf:
                along, found[kind] = gains_along(moment, vectors_of, sigma)
                angles = self._angles(moment, left, sigma) if kind in _KINDS else along
            else:
                reason = f"the {kind.replace('_', ' ')} have no direction but rounding, or `h` is not finite"
                found[kind] = undefined(self, reason, like=moment[0, 0])
                along = angles = found[kind].expand(count)
            if kind in _KINDS:
                found |= {f"{kind}_along": along, f"{kind}_angles": angles}
        return found

    def _angles(self, moment: Tensor, left: Tensor, sigma: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(moment)
        eps = torch.finfo(values.dtype).eps * max(left.shape)
        if not (sigma[-1] > eps * sigma[0] and values[-len(sigma)] > eps * values[-1]):
            reason = f"W or the directions have fewer than {len(sigma)} dimensions, so there are fewer angles"
            return undefined(self, reason, like=sigma)
        return principal_angles(left, vectors[:, -len(sigma) :])


class ProjectionAlignment(SampledRows):
    r"""Cosine between the projection of h and the displacement that it should fit (Cosentino et al. 2022, Eq. 8, 9).

    `cosine` is the mean of :math:`\cos(W W^\top h^1_i, h^2_i - h^\star_i)` over samples. h1 and h2 are the first two
    views of a sample, and h* is the view of another sample with the most similar z. For a linear projector, W is its
    weight. For others, W_i is the transpose of the projector's Jacobian at h1_i (Eq. 11); it must act on each sample
    alone. Four results in [-1, 1]; the last three are baselines:

    - `cosine`: as above (:func:`functional.projection_alignment`).
    - `random`: with a W of the same singular values (their mean over samples) and random directions, and with h* chosen
      behind it. Since h* is near behind a projector, the cosine is not 0 then.
    - `identity`: with W W^T = I. h1 itself is similar to h2 and therefore to the displacement.
    - `any_negative`: with the first view of an arbitrary other sample in place of h*.

    All are NaN if all embeddings have one direction, or if h is not finite. The weights must not change between
    updates. Memory: O(contrast_size (D + P)). `compute` costs O(contrast_size^2 P), and O(D^2 P) for a linear
    projector, or P backward passes and O(D P) for each of the `samples`.

    Args:
        contrast_size: Number of samples kept, >= 2. Negatives come from these samples.
        samples: Number of the kept samples, >= 1, for which the cosine is computed.
        seed: Determines which samples are kept, and the random W.
    """

    section = "augmentations"
    cost = Cost(update="n D + N D", compute="N^2 D + D^3 + D F", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "cosine": _cosine(
            title="Projection and displacement",
            text="Cosine between the projection W W^T h1 of a sample and its displacement h2 - h* from the hardest "
            "negative, which the upper bound of InfoNCE asks to be aligned.",
            low="As low as for a random W: the projector does not estimate the displacements.",
            high="Near 1: the projection of a sample points along its displacement.",
            null="random",
            better="high",
            label="cosine",
        ),
        "random": _cosine(
            title="Random projector",
            text="The cosine for a W with these singular values whose directions are random.",
            label="random W",
            baseline=True,
        ),
        "identity": _cosine(
            title="No projector",
            text="The cosine between h1 itself and the displacement.",
            label="W W^T = I",
            baseline=True,
        ),
        "any_negative": _cosine(
            title="Any negative",
            text="The cosine with the displacement from an arbitrary other sample in place of the hardest negative.",
            label="any negative",
            baseline=True,
        ),
    }

    def __init__(self, contrast_size: int = 1024, samples: int = 256, seed: int = 0) -> None:
        super().__init__(("h", "z"), contrast_size, seed)
        at_least(1, samples=samples)
        self.samples = samples
        self.projector = Standing()

    def update(self, h: Tensor, z: Tensor, index: Tensor | None = None, *, projector: nn.Module) -> None:
        """Add `h` (V, N, D) and `z` (V, N, P) for V >= 2 views of N samples, `index` (N,) and the projector."""
        self.projector.hold(projector)
        self.offer(index, h=by_sample("h", h, views=2)[:, :2], z=by_sample("z", z, views=2)[:, :2])

    def compute(self) -> dict[str, Tensor]:
        rows, projector = self.rows(), self.projector.module()
        delta = displacements(self, rows["h"], rows["z"])[: self.samples]
        h = in_float64(rows["h"])
        if not h.isfinite().all() or delta.isnan().any():
            return dict.fromkeys(self.quantities, undefined(self, "`h` is not finite, or all of `z` has one direction"))
        others = (h[:, 1] - h[:, 0].roll(1, 0))[: self.samples]  # rows are in the order of a hash
        anchors, identity = h[: self.samples, 0], torch.eye(h.shape[2], dtype=h.dtype, device=h.device)
        sums, spectra = h.new_zeros(2), []
        for place in torch.arange(len(anchors), device=h.device).split(_CHUNK):
            weight = self._weight(projector, rows["h"][place, 0])
            spectra.append(torch.linalg.svdvals(weight).expand(len(place), -1))
            for at, displacement in enumerate((delta, others)):
                sums[at] += len(place) * projection_alignment(anchors[place], displacement[place], weight)
        cosine, any_negative = sums / len(anchors)
        sigma = torch.cat(spectra).mean(0)
        random = random_directions(h.shape[2], len(sigma), seed=self.seed, like=sigma) * sigma
        to_random = displacements(self, rows["h"], h @ random)[: self.samples]
        undone = bool(to_random.isnan().any())  # behind the random W, all embeddings have one direction
        return {
            "cosine": cosine,
            "random": to_random[0, 0] if undone else projection_alignment(anchors, to_random, random),
            "identity": projection_alignment(anchors, delta, identity),
            "any_negative": any_negative,
        }

    def _weight(self, projector: nn.Module, h: Tensor) -> Tensor:
        if is_linear_projector(projector):
            return in_float64(projector_weight(projector))
        with evaluating(projector):
            return in_float64(affine_map(projector, h)[0])
