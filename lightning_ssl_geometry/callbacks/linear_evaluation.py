"""The linear evaluation protocol: the same classifier on pixels, on the untrained and on the trained network."""

__all__ = ["LinearEvaluation"]

from collections.abc import Sequence
from typing import Any, Literal, get_args

import lightning as L
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lightning_ssl_geometry.callbacks.evaluation import Evaluation, flat_pixels, gather_split
from lightning_ssl_geometry.callbacks.judge import Judge, Rows, Solver

Features = Literal["pixels", "frozen", "trained"]


class LinearEvaluation(Evaluation):
    """scikit-learn's multinomial logistic regression on frozen features, before and after training.

    Features are raw pixels, the network as it was when the fit began ("frozen": random weights, unless it was
    pretrained) and as it is when the fit ends ("trained"), of images without augmentation, each standardised by the
    training set's mean and deviation. It is fitted on the training split, with all labels or with a few per class,
    and scored on another split, which it never sees otherwise. Needs a DataModule with `clean_dataloader(split)`.
    The table goes to `linear_evaluation.csv` in the run's folder, and into the checkpoint. Rank 0 does the work.

    Args:
        labels_per_class: None stands for all labels; a number for as many per class, drawn `repeats` times.
        split: Where accuracy is measured.
        repeats: Draws of the few labels; their mean and standard deviation are kept.
        regularization: scikit-learn's C, the inverse strength of the L2 penalty.
        max_iter: Most iterations of L-BFGS; the table has how many it took, of the last draw.
        seed: Of the draws.
        features: Which of the three are judged; the pixels of large images take the longest.
        solver: "sklearn", on the CPU, or "full-batch", the same on the module's device: see :class:`Judge`.

    Raises:
        ValueError: If an argument is out of range, or the DataModule has no `clean_dataloader`.
    """

    def __init__(
        self,
        labels_per_class: Sequence[int | None] = (None, 10),
        split: Literal["val", "test"] = "test",
        repeats: int = 5,
        regularization: float = 1.0,
        max_iter: int = 100,
        seed: int = 0,
        features: Sequence[Features] = ("pixels", "frozen", "trained"),
        solver: Solver = "sklearn",
    ) -> None:
        super().__init__(Judge(solver, True, regularization, max_iter, tol=1e-3), split)
        if not features or not set(features) <= set(get_args(Features)):
            raise ValueError(f"Expected `features` to be of {get_args(Features)}, but got {features}.")
        if any(few is not None and few < 1 for few in labels_per_class):
            raise ValueError(f"Expected `labels_per_class` of None or numbers >= 1, but got {labels_per_class}.")
        if repeats < 1:
            raise ValueError(f"Expected `repeats` >= 1, but got {repeats}.")
        self.features = tuple(features)
        self.labels_per_class = tuple(labels_per_class)
        self.repeats = repeats
        self.seed = seed

    def state_dict(self) -> dict[str, Any]:
        """The rows so far: a resumed run still knows its untrained network's."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them back."""
        self.rows = state_dict["rows"]

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Evaluate pixels and the untrained network, unless a checkpoint brought their rows."""
        if not self.rows:
            self._evaluate(trainer, pl_module, ("pixels", "frozen"))

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Evaluate the trained network, and write the table."""
        self.rows = [row for row in self.rows if row["features"] != "trained"]
        self._evaluate(trainer, pl_module, ("trained",))

    def _evaluate(self, trainer: L.Trainer, pl_module: L.LightningModule, features: Sequence[str]) -> None:
        if not (chosen := [name for name in features if name in self.features]):
            return
        for name in chosen:
            train = self._features(trainer, pl_module, "train", name)
            test = self._features(trainer, pl_module, self.split, name)
            if trainer.is_global_zero:
                self.rows += [self._score(name, train, test, few) for few in self.labels_per_class]
        self.write(trainer)
        trainer.strategy.barrier("linear_evaluation")

    def _features(self, trainer: L.Trainer, pl_module: L.LightningModule, split: str, name: str) -> Rows:
        """Features and labels of a split from all ranks, in the order of the data set."""

        def observe(batch: Any) -> dict[str, Tensor]:
            return {"features": (batch["image"] if name == "pixels" else pl_module(batch["image"])).float()}

        found = gather_split(trainer, pl_module, split, observe, asker="LinearEvaluation")
        features = flat_pixels(found["features"]) if name == "pixels" else found["features"]
        device = pl_module.device if self.judge.solver == "full-batch" else "cpu"
        return Rows(features.to(device), found["label"].to(device))

    def _score(self, name: str, train: Rows, test: Rows, few: int | None) -> dict[str, Any]:
        generator, label = np.random.default_rng(self.seed), train.label.numpy(force=True)
        draws = [_draw(label, few, generator) for _ in range(1 if few is None else self.repeats)]
        chosen = [Rows(*(part[torch.from_numpy(draw).to(part.device)] for part in train)) for draw in draws]
        return self.row(name, [self.judge(rows, test) for rows in chosen], chosen[0], test, few)


def _draw(label: NDArray[Any], few: int | None, generator: np.random.Generator) -> NDArray[Any]:
    if few is None:
        return np.arange(len(label))
    classes, counts = np.unique(label, return_counts=True)
    if counts.min() < few:
        smallest = classes[counts.argmin()]
        raise ValueError(
            f"Expected `labels_per_class` of at most {counts.min()} (class {smallest} has no more), but got {few}."
        )
    return np.concatenate([generator.choice(np.flatnonzero(label == c), few, replace=False) for c in classes])
