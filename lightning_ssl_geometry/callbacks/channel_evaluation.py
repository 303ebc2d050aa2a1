r"""ChannelEvaluation: fits a linear classifier on representations averaged over augmentations.

.. math:: Z = E_{T | X} [h(T(X))] = \sum_k w_k(X) \, h(t_k(X))

This is the evaluation of CRL-TAC (arXiv 2111.07679, Section 3.1). The augmentations are t_1, ..., t_K, and h(X) is the
representation of an image X. In CRL-TAC, the weight w_k(X) is the learned probability P(t_k | X). Other weights serve
as a comparison.
"""

__all__ = ["ChannelEvaluation", "channel_weight"]

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, get_args, runtime_checkable

import lightning as L
import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from lightning_ssl_geometry.callbacks.evaluation import (
    Evaluation,
    clean_batches,
    flat_pixels,
    gather_split,
    write_rows,
)
from lightning_ssl_geometry.callbacks.logistic_regression import LogisticRegression, Rows, Solver
from lightning_ssl_geometry.callbacks.order import callbacks_of
from lightning_ssl_geometry.callbacks.run_callback import starts_anew
from lightning_ssl_geometry.checks import at_least
from lightning_ssl_geometry.functional.hypersphere import gaussian_potential
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.types import Batch
from lightning_ssl_geometry.views import AugmentationFamily

Weighting = Literal["learned", "top", "oracle", "uniform"]
Level = Literal["f", "head"]
_CHANNEL_FILE = "augmentation_channel.csv"
_CHANNEL = ("nonempty_mass", "entropy", "gaussian_potential")


class ChannelEvaluation(Evaluation):
    r"""Fit a linear classifier on representations averaged over augmentations, at the end of a fit or a test.

    This is the evaluation of CRL-TAC (arXiv 2111.07679, Section 3.1). The module must have `family` (the K
    augmentations t_k), `probabilities(image)` (the weights P(t_k | image)) and `represent(image, weight)`, as
    :class:`CRLTACModule` has. The DataModule must have `unaugmented_dataloader(split)`. One classifier is fitted on the
    training split for each combination of `levels` and `weightings`. The accuracies are written to
    `linear_evaluation.csv` in the run's folder, in rows such as "head, learned". For each weighting w,
    `augmentation_channel.csv` has three means over the images x of the scored split:

    - `nonempty_mass`: :math:`\sum_k w_k(x) [t_k(x) \text{ is not empty}]`, in [0, 1]. An augmentation is empty if all
      its pixels have the darkest value of the image. If all augmentations of an image are empty, the value of this
      image is 0, and a warning is given.
    - `entropy`: the entropy of w, in nats, from 0 to log K.
    - `gaussian_potential`: the mean of :math:`e^{-2 \|z - z'\|^2}` over pairs of "head" features z and z', in (0, 1].
      It is 1 if all features are equal.

    Args:
        weightings: The weights w of the augmentations. "learned": the probabilities P(t_k | x), called "ours" in the
            paper. "top": equal weights for the `top` most probable augmentations. "oracle": equal weights for the
            augmentations that overlap most with `box`, an entry of the batch. "uniform": equal weights for all, called
            "SimCLR" in the paper.
        levels: The features. "f": the weighted mean of the backbone's outputs. "head": the weighted mean of the
            normalised embeddings, normalised again.
        pixels: Also fit a classifier on the images themselves. This takes long for large images.
        top: Number of augmentations for "top", >= 1.
        split: The split on which accuracy is measured.
        solver: "sklearn", on the CPU, or "full-batch", on the module's device: see :class:`LogisticRegression`.
        standardize: Shift and scale each feature to mean 0 and deviation 1 first. The paper does not mention this step.
        regularization: scikit-learn's C, the inverse strength of the L2 penalty.
        max_iter: Largest number of L-BFGS iterations.

    Raises:
        ValueError: If an argument is out of range. Before training, if the module, the DataModule or the batches lack a
            needed part, if `top` exceeds K, if the split is empty, or if another run wrote a table to the folder. At
            the end, if all augmentations of all images of a split are empty.
    """

    written: ClassVar[tuple[str, ...]] = (*Evaluation.written, _CHANNEL_FILE)

    def __init__(
        self,
        weightings: Sequence[Weighting] = ("learned", "top", "oracle", "uniform"),
        levels: Sequence[Level] = ("f", "head"),
        pixels: bool = True,
        top: int = 8,
        split: Literal["val", "test"] = "test",
        solver: Solver = "sklearn",
        standardize: bool = False,
        regularization: float = 1.0,
        max_iter: int = 100,
    ) -> None:
        super().__init__(LogisticRegression(solver, standardize, regularization, max_iter=max_iter), split)
        for name, given, known in (("weightings", weightings, Weighting), ("levels", levels, Level)):
            if not given or not set(given) <= set(get_args(known)):
                raise ValueError(f"Expected `{name}` to be of {get_args(known)}, but got {given}.")
        at_least(1, top=top)
        self.weightings = tuple(weightings)
        self.levels = tuple(levels)
        self.pixels = pixels
        self.top = top
        self.scalars: list[dict[str, Any]] = []

    def logs(self) -> dict[str, str]:
        return super().logs() | {f"augmentation_channel/{name}": name for name in _CHANNEL}

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if starts_anew(trainer, stage):
            self.scalars = []

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_fit_start(trainer, pl_module)
        self._check(trainer, pl_module)

    def after_training(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._evaluate(trainer, pl_module)

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_test_start(trainer, pl_module)
        self._check(trainer, pl_module)

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_test_end(trainer, pl_module)
        self._evaluate(trainer, pl_module)

    def _evaluate(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        train = self._features(trainer, pl_module, "train")
        test = self._features(trainer, pl_module, self.split)
        _report_blank({"train": train.pop("blank"), self.split: test.pop("blank")})
        if trainer.is_global_zero:
            device = pl_module.device if self.classifier.solver == "full-batch" else torch.device("cpu")
            names = [f"{level}, {weighting}" for level in self.levels for weighting in self.weightings]
            self.rows = [self._row(name, train, test, device=device) for name in [*names, *["pixels"] * self.pixels]]
            self.scalars = [row for weighting in self.weightings for row in self._scalars(weighting, test)]
        self.write(trainer)
        scalars = [row for evaluation in callbacks_of(trainer, ChannelEvaluation) for row in evaluation.scalars]
        write_rows(trainer, _CHANNEL_FILE, scalars)
        trainer.strategy.barrier("channel_evaluation")

    def _features(self, trainer: L.Trainer, pl_module: L.LightningModule, split: str) -> dict[str, Tensor]:
        observe = partial(self._observe, pl_module)
        found = gather_split(trainer, pl_module, split, observe=observe, asker=type(self).__name__)
        return found | ({"pixels": flat_pixels(found["pixels"])} if self.pixels else {})

    def _observe(self, pl_module: Any, batch: Batch) -> dict[str, Tensor]:
        image = batch["image"]
        empty = pl_module.family.empty(image)
        probability = pl_module.probabilities(image).float()
        overlap = pl_module.family.overlap(batch["box"]) if "oracle" in self.weightings else None
        weights = [channel_weight(name, probability, overlap, top=self.top) for name in self.weightings]
        weight = torch.stack(weights)  # (S, N, K)
        seen = dict(zip(get_args(Level), pl_module.represent(image, weight), strict=True))
        seen |= {"nonempty_mass": (weight * ~empty).sum(2, keepdim=True)}
        seen |= {"entropy": torch.special.entr(weight).sum(2, keepdim=True)}
        made = {
            f"{quantity}, {name}": value.float()
            for quantity, values in seen.items()
            for name, value in zip(self.weightings, values, strict=True)
        }
        return made | {"blank": empty.all(1)} | ({"pixels": image.float()} if self.pixels else {})

    def _row(
        self, name: str, train: dict[str, Tensor], test: dict[str, Tensor], device: torch.device
    ) -> dict[str, Any]:
        fitted, scored = (Rows(found[name].to(device), found["label"].to(device)) for found in (train, test))
        return self.row(name, [self.classifier(fitted, scored)], train=fitted, test=scored)

    def _scalars(self, weighting: str, test: dict[str, Tensor]) -> list[dict[str, Any]]:
        values = {name: in_float64(test[f"{name}, {weighting}"]).mean() for name in ("nonempty_mass", "entropy")}
        values["gaussian_potential"] = gaussian_potential(test[f"head, {weighting}"])
        rest = {"split": self.split, "size": len(test["label"])}
        return [{"quantity": name, "weighting": weighting, "value": float(v), **rest} for name, v in values.items()]

    def _check(self, trainer: L.Trainer, pl_module: Any) -> None:
        family = getattr(pl_module, "family", None)
        if not isinstance(family, AugmentationFamily) or not isinstance(pl_module, _Channel):
            raise ValueError(
                "Expected a module with an AugmentationFamily `family`, `probabilities` and `represent` for "
                f"{type(self).__name__}, but got {type(pl_module).__name__}."
            )
        if "top" in self.weightings and self.top > len(family):
            raise ValueError(f"Expected `top` of at most {len(family)}, the size of the family, but got {self.top}.")
        if "oracle" in self.weightings and not isinstance(family, _Overlapping):
            raise ValueError(f"Expected a family with `overlap` for 'oracle', but got {type(family).__name__}.")
        batch = next(iter(clean_batches(trainer, self.split, type(self).__name__)), None)
        if batch is None:
            raise ValueError(f"Expected samples in the split {self.split!r} for {type(self).__name__}, but got none.")
        found = set(batch) if isinstance(batch, Mapping) else set()
        if missing := [f"`{key}`" for key in ("image", "label", "index") if key not in found]:
            got = f"only {', '.join(sorted(found))}" if found else type(batch).__name__
            raise ValueError(f"Expected batches with {', '.join(missing)} for {type(self).__name__}, but got {got}.")
        if "oracle" in self.weightings and "box" not in found:
            raise ValueError(f"Expected batches with `box` for 'oracle', but got only {', '.join(sorted(found))}.")


def channel_weight(weighting: Weighting, probability: Tensor, overlap: Tensor | None = None, top: int = 8) -> Tensor:
    """Return the weights of K augmentations for each of N samples, (N, K). Each row sums to 1.

    Args:
        weighting: "learned": the weights are `probability`. "top": equal weights for the `top` most probable
            augmentations. "oracle": equal weights for the augmentations with the largest `overlap`. "uniform": equal
            weights for all.
        probability: Probabilities of the augmentations for each sample, (N, K). Each row sums to 1.
        overlap: How much of the object each augmentation shows, (N, K). A ValueError is raised if "oracle" is given
            without it.
        top: Number of augmentations for "top", in [1, K].

    >>> channel_weight("top", torch.tensor([[0.1, 0.4, 0.2, 0.3]]), top=2)
    tensor([[0.0000, 0.5000, 0.0000, 0.5000]])
    """
    if weighting == "learned":
        return probability
    chosen = torch.ones_like(probability, dtype=torch.bool)
    if weighting == "oracle":
        if overlap is None or overlap.shape != probability.shape:
            got = None if overlap is None else tuple(overlap.shape)
            raise ValueError(f"Expected `overlap` of shape {tuple(probability.shape)} for 'oracle', but got {got}.")
        chosen = overlap == overlap.amax(1, keepdim=True)
    elif weighting == "top":
        chosen = torch.zeros_like(chosen).scatter(1, probability.topk(top, dim=1).indices, True)
    return chosen.to(probability.dtype) / chosen.sum(1, keepdim=True)


@runtime_checkable
class _Channel(Protocol):
    def probabilities(self, image: Tensor) -> Tensor: ...

    def represent(self, image: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]: ...


@runtime_checkable
class _Overlapping(Protocol):
    def overlap(self, box: Tensor) -> Tensor: ...


def _report_blank(blank: dict[str, Tensor]) -> None:
    for split, images in blank.items():
        if images.all():
            raise ValueError(
                f"Expected images in the split {split!r} with an augmentation that is not empty, but got {len(images)} "
                "images that are all empty."
            )
    if any(images.any() for images in blank.values()):
        counts = ", ".join(f"{int(images.sum())} of {len(images)} in {split!r}" for split, images in blank.items())
        rank_zero_warn(f"All augmentations of some images are empty, which have `nonempty_mass` 0: {counts}.")
