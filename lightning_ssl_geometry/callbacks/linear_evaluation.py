"""The linear evaluation protocol: the same classifier on pixels, on the untrained and on the trained network."""

__all__ = ["LinearEvaluation"]

import csv
from collections.abc import Sequence
from typing import Any, Literal

import lightning as L
import numpy as np
import torch
from numpy.typing import NDArray

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.callbacks.observer import run_folder, undisturbed

_Split = tuple[NDArray[Any], NDArray[Any]]


class LinearEvaluation(L.Callback):
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
        seed: Of the draws.

    Raises:
        ValueError: If an argument is out of range, or the DataModule has no `clean_dataloader`.
    """

    def __init__(
        self,
        labels_per_class: Sequence[int | None] = (None, 10),
        split: Literal["val", "test"] = "test",
        repeats: int = 5,
        regularization: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if split not in ("val", "test"):
            raise ValueError(f"Expected `split` to be one of 'val', 'test', but got {split!r}.")
        if any(few is not None and few < 1 for few in labels_per_class):
            raise ValueError(f"Expected `labels_per_class` of None or numbers >= 1, but got {labels_per_class}.")
        if repeats < 1:
            raise ValueError(f"Expected `repeats` >= 1, but got {repeats}.")
        if not regularization > 0:
            raise ValueError(f"Expected `regularization` > 0, but got {regularization}.")
        self.labels_per_class = tuple(labels_per_class)
        self.split = split
        self.repeats = repeats
        self.regularization = regularization
        self.seed = seed
        self.rows: list[dict[str, Any]] = []

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
        folder = run_folder(trainer)
        for name in features:
            train = self._features(trainer, pl_module, "train", name)
            test = self._features(trainer, pl_module, self.split, name)
            if trainer.is_global_zero:
                self.rows += [self._score(name, train, test, few) for few in self.labels_per_class]
        if trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            folder.mkdir(parents=True, exist_ok=True)
            self._write(folder / "linear_evaluation.csv")
        trainer.strategy.barrier("linear_evaluation")

    def _features(self, trainer: L.Trainer, pl_module: L.LightningModule, split: str, name: str) -> _Split:
        """Features and labels of a split from all ranks, in the order of the data set."""
        datamodule = getattr(trainer, "datamodule", None)
        if datamodule is None or not hasattr(datamodule, "clean_dataloader"):
            raise ValueError("Expected a DataModule with `clean_dataloader(split)` for LinearEvaluation, but got none.")
        found: dict[str, list[torch.Tensor]] = {"features": [], "label": [], "index": []}
        with undisturbed(pl_module):
            for batch in datamodule.clean_dataloader(split):
                batch = trainer.strategy.batch_to_device(batch)
                image = batch["image"]
                found["features"].append((image.flatten(1) if name == "pixels" else pl_module(image)).float())
                found["label"].append(batch["label"])
                found["index"].append(batch["index"])
        features, label, index = (distributed.gather(torch.cat(part)).cpu() for part in found.values())
        order = index.argsort()
        return features[order].numpy(), label[order].numpy()

    def _score(self, name: str, train: _Split, test: _Split, few: int | None) -> dict[str, Any]:
        generator = np.random.default_rng(self.seed)
        draws = [_draw(train[1], few, generator) for _ in range(1 if few is None else self.repeats)]
        scores = [self._accuracy((train[0][draw], train[1][draw]), test) for draw in draws]
        return {
            "features": name,
            "labels_per_class": "all" if few is None else few,
            "accuracy": float(np.mean(scores)),
            "accuracy_std": float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
            "repeats": len(scores),
            "split": self.split,
            "train_size": len(draws[0]),
            "test_size": len(test[1]),
            "feature_dim": train[0].shape[1],
        }

    def _accuracy(self, train: _Split, test: _Split) -> float:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        judge = make_pipeline(StandardScaler(), LogisticRegression(C=self.regularization, max_iter=10_000, tol=1e-3))
        return float(judge.fit(*train).score(*test))

    def _write(self, path: Any) -> None:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(self.rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)


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
