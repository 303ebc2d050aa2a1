"""Diagnostics of CRL-TAC: the policy P(T | X) over augmentations T of images X, and embeddings (Koyama et al. 2021)."""

__all__ = ["EmbeddingVectors", "NonEmptyProbability", "PairSimilarity", "PolicyEntropy", "PolicyMaps"]

import math
from dataclasses import replace
from functools import partial
from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torchmetrics.utilities.prints import rank_zero_warn

from lightning_ssl_geometry.checks import at_least, shaped
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.diagnostics.undefined import directions, undefined
from lightning_ssl_geometry.functional.augmentation_channel import policy_entropy
from lightning_ssl_geometry.papers import CRL_TAC
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import POLICY_ENTROPY, Chart, Picture, Quantity

_filled = partial(
    Quantity,
    paper=CRL_TAC,
    where="Sec. 3.2",
    bounds=(0.0, 1.0),
    invariances=("permutation",),
    chart=Chart("non_empty", "Probability of views that show something", "probability"),
)
_map = partial(
    Quantity,
    paper=CRL_TAC,
    where="Fig. 3",
    invariances=("permutation",),
    chart=Chart("policy_maps", "What the policy looks at"),
)
_embedding = partial(Quantity, paper=CRL_TAC, chart=Chart("embeddings", "Embeddings as they are"))


class _Family(Protocol):
    grid: tuple[int, int] | None

    def empty(self, image: Tensor) -> Tensor:
        """Return (N, K) bool: whether each of the K views of each image (N, C, H, W) is empty."""


class NonEmptyProbability(Diagnostic):
    r"""Probability that an augmented image is not empty (Koyama et al. 2021, Section 3.2).

    .. math:: E_X \sum_{k: \, T_k X \text{ not empty}} P(t_k | X)

    The policy P(T | X) is a distribution over K augmentations T of an image X. Observes images, the logarithm of the
    policy, and the augmentations `family`, such as a `CropFamily`. A view is empty if all of its pixels have the
    darkest value of the image. Results in [0, 1]: `learned` is the probability under the policy. `uniform` is the
    probability if all augmentations were equally likely. An image with only empty views counts as 0, with a warning. If
    all images have only empty views, both results are NaN. Cost: O(N K) for N images.
    """

    section = "channel"
    cost = Cost(update="n K + n X", compute="1", memory="1")
    quantities: ClassVar[dict[str, Quantity]] = {
        "learned": _filled(
            title="Probability of views that show something",
            text="The probability that the policy P(T | X) gives to augmented images that are not blank.",
            low="Near 0: most samples become the same blank image, which pulls their embeddings together.",
            high="Near 1: the policy has found the object.",
            null="uniform",
            comparable=("width", "temperature", "batch size", "method"),
            better="high",
            label="learned",
            headline=True,
        ),
        "uniform": _filled(
            title="Share of views that show something",
            text="What the probability would be if all augmentations were drawn alike: low for small objects in large "
            "images, 1 where no augmentation is blank.",
            label="uniform",
            baseline=True,
        ),
    }

    full_state_update = False
    learned: Tensor
    uniform: Tensor
    samples: Tensor
    blank: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_sums("learned", "uniform", "samples", "blank")

    def update(self, image: Tensor, log_policy: Tensor, family: _Family) -> None:
        """Add `image` (N, C, H, W) and `log_policy` (N, K), the log-probabilities of the K members of `family`."""
        filled = ~family.empty(image)  # (N, K)
        shaped("N, K", dict(zip("NK", filled.shape, strict=True)), log_policy=log_policy)
        self.learned += (_probability(log_policy) * in_float64(filled)).sum()
        self.uniform += in_float64(filled).mean(1).sum()
        self.samples += len(filled)
        self.blank += in_float64(~filled.any(1)).sum()

    def compute(self) -> dict[str, Tensor]:
        self.require(self.samples, "images")
        blank, samples = int(self.blank), int(self.samples)
        if self.learned.isnan():
            return {"learned": _no_log_policy(self), "uniform": self.uniform / samples}
        if blank == samples:
            nan = undefined(self, f"all views of all {blank} images are empty")
            return {"learned": nan, "uniform": nan}
        if blank:
            rank_zero_warn(f"All views of {blank} of {samples} images are empty: they count as 0.")
        return {"learned": self.learned / self.samples, "uniform": self.uniform / self.samples}


def _no_log_policy(metric: Diagnostic) -> Tensor:
    return undefined(metric, "a value of `log_policy` is NaN")


class PolicyEntropy(Diagnostic):
    """Mean entropy, in nats, of the policy P(T | X) over the augmentations T of an image X.

    Observes the logarithm of P(T | X) for N images and K augmentations. The value is in [0, log K]. Cost: O(N K).
    Equation: :func:`functional.policy_entropy`.
    """

    section = "channel"
    cost = Cost(update="n K", compute="1", memory="1")
    quantities: ClassVar[dict[str, Quantity]] = {
        "": replace(
            POLICY_ENTROPY,
            paper=CRL_TAC,
            invariances=("permutation",),
            comparable=("width", "temperature", "batch size"),
        )
    }

    full_state_update = False
    total: Tensor
    samples: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_sums("total", "samples")

    def update(self, log_policy: Tensor) -> None:
        """Add `log_policy` (N, K), the log-probabilities of K augmentations for N images."""
        self.total += in_float64(policy_entropy(log_policy)).sum()
        self.samples += len(log_policy)

    def compute(self) -> Tensor:
        self.require(self.samples, "samples")
        return _no_log_policy(self) if self.total.isnan() else self.total / self.samples


class PolicyMaps(SampledRows):
    """Maps of the policy P(T | X) over augmentations T, for some images X (Koyama et al. 2021, Fig. 3).

    Observes images, the index of each image in the data set, the logarithm of the policy, and the K augmentations
    `family`, which must form a grid. The result `image` (count, H, W) holds the images, averaged over their channels.
    The result `probability` (count, rows, columns) holds the policy on the grid. Memory: O(count (C H W + K)).

    Args:
        count: Number of images kept, >= 2.
        seed: Determines which images are kept.
    """

    section = "channel"
    cost = Cost(update="n K + n X + N K + N X", compute="N K + N X", memory="N K + N X")
    quantities: ClassVar[dict[str, Quantity]] = {
        "image": _map(
            title="What the policy looks at",
            text="Images, and below each the probability P(T | X) of each augmentation. For crops, the place of a "
            "cell in the map is the place of the crop in the image.",
            low="Dark cells: augmentations that the policy avoids.",
            high="Bright cells: augmentations that the policy prefers. If all cells are alike, it has learned nothing.",
            picture=Picture("images"),
        ),
        "probability": _map(
            title="P(T | X) of each augmentation", bounds=(0.0, 1.0), picture=Picture("images", role="overlay")
        ),
    }

    def __init__(self, count: int = 8, seed: int = 0) -> None:
        at_least(2, count=count)
        super().__init__(("image", "probability"), count, seed)

    def update(self, image: Tensor, log_policy: Tensor, family: _Family, index: Tensor | None = None) -> None:
        """Add `image` (N, C, H, W), `index` (N,) and `log_policy` (N, K) for the K members of `family`."""
        if family.grid is None:
            raise ValueError(f"Expected `family` with a grid of its members, but got {type(family).__name__}.")
        shaped("N, K", {"K": math.prod(family.grid)}, log_policy=log_policy)
        self.offer(index, image=image, probability=_probability(log_policy).unflatten(1, family.grid))

    def compute(self) -> dict[str, Tensor]:
        rows = self.rows()
        return {"image": in_float64(rows["image"]).mean(1), "probability": rows["probability"]}


class PairSimilarity(SampledRows):
    r"""Quantiles of :math:`|\langle z(x), z(x') \rangle|` over all pairs of images x, x' (Koyama et al. 2021, Fig. 8).

    z(x) is the embedding of image x without augmentation, scaled to length 1. The result (quantiles,) is ascending, in
    [0, 1], and not interpolated. It is NaN if all embeddings are 0 or one is not finite. Memory: O(contrast_size P) for
    P dimensions. `compute` costs O(contrast_size^2 P).

    Args:
        quantiles: Number of quantiles, >= 2, evenly spaced from the minimum to the maximum.
        contrast_size: Number of samples kept, >= 2.
        seed: Determines which samples are kept.
    """

    section = "channel"
    cost = Cost(update="n D + N D", compute="N^2 D", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "": Quantity(
            title="Similarity of different samples",
            text="The cosines of all pairs of samples, without their sign, from the smallest to the largest.",
            low="Low up to the right end: samples are as orthogonal as they can be.",
            high="Near 1 from the left end on: all samples lie in one direction (collapse).",
            paper=CRL_TAC,
            where="Fig. 8",
            unit="cosine without its sign",
            bounds=(0.0, 1.0),
            invariances=("rotation", "scale", "permutation"),
            comparable=("temperature", "batch size", "method"),
            picture=Picture("quantiles"),
            xlabel="pairs, %",
        )
    }

    def __init__(self, quantiles: int = 101, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(("z",), contrast_size, seed)
        at_least(2, quantiles=quantiles)
        self.quantiles = quantiles

    def update(self, z_image: Tensor, index: Tensor | None = None) -> None:
        """Add `z_image` (N, P), the embeddings of N images, and `index` (N,), the images' indices in the data set."""
        shaped("N, P", z_image=z_image)
        self.offer(index, z=z_image)

    def compute(self) -> Tensor:
        z = directions(self, self.rows()["z"], "z_image")
        first, second = torch.triu_indices(len(z), len(z), 1, device=z.device)
        similarity = (z @ z.T)[first, second].abs().clamp(max=1).sort().values  # rounding may give 1 + 1e-16
        place = torch.linspace(0, len(similarity) - 1, self.quantiles, dtype=torch.float64, device=z.device)
        return similarity[place.round().long()]


class EmbeddingVectors(SampledRows):
    """Embeddings of some images without augmentation, to plot them (Koyama et al. 2021, Fig. 6 and 7).

    The result `z` (count, P) holds the embeddings with P dimensions. If the images have labels, the result `label`
    (count, 1) holds them. Labels must be given in all batches or in none. Memory: O(count P).

    Args:
        count: Number of images kept, >= 2.
        seed: Determines which images are kept.
    """

    section = "channel"
    cost = Cost(update="n D + N D", compute="N D", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "z": _embedding(
            title="Embeddings as they are",
            text="The embeddings of some samples. In two dimensions each is a point, else a line through its values. "
            "Where they lie on top of each other, the representation does not tell the samples apart.",
            where="Fig. 6 and 7",
            invariances=("permutation",),
            picture=Picture("points"),
        ),
        "label": _embedding(
            title="Class",
            where="Fig. 6",
            invariances=("rotation", "scale", "translation", "permutation"),
            picture=Picture("points", role="label"),
        ),
    }

    def __init__(self, count: int = 200, seed: int = 0) -> None:
        at_least(2, count=count)
        super().__init__(("z", "label"), count, seed)
        self.has_label = False

    def update(self, z_image: Tensor, index: Tensor | None = None, label: Tensor | None = None) -> None:
        """Add `z_image` (N, P), the embeddings of N images, `index` (N,) and, if known, `label` (N,)."""
        if len(self.key) and self.has_label != (label is not None):
            raise ValueError("Expected `label` in every batch or in none, but got both.")
        self.has_label = label is not None
        shaped("N, P", z_image=z_image)
        self.offer(index, z=z_image, **({} if label is None else {"label": label}))

    def compute(self) -> dict[str, Tensor]:
        rows = self.rows()
        return {name: column.unsqueeze(1) if name == "label" else column for name, column in rows.items()}


def _probability(log_policy: Tensor) -> Tensor:
    return in_float64(log_policy).softmax(1)  # sums to 1 also for a coarse dtype
