"""The linear evaluation protocol: the same classifier on pixels, on the untrained and on the trained network."""

__all__ = ["LinearEvaluation"]

import csv
import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import lightning as L
import numpy as np
import torch
from numpy.typing import NDArray

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.callbacks.observer import run_folder, undisturbed

Features = Literal["pixels", "frozen", "trained"]
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
        max_iter: Most iterations of L-BFGS; the table has how many it took, of the last draw.
        seed: Of the draws.
        features: Which of the three are judged; the pixels of large images take the longest.

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
    ) -> None:
        super().__init__()
        if not features or not set(features) <= set(get_args(Features)):
            raise ValueError(f"Expected `features` to be of {get_args(Features)}, but got {features}.")
        if split not in ("val", "test"):
            raise ValueError(f"Expected `split` to be one of 'val', 'test', but got {split!r}.")
        if any(few is not None and few < 1 for few in labels_per_class):
            raise ValueError(f"Expected `labels_per_class` of None or numbers >= 1, but got {labels_per_class}.")
        for name, value in {"repeats": repeats, "max_iter": max_iter}.items():
            if value < 1:
                raise ValueError(f"Expected `{name}` >= 1, but got {value}.")
        if not regularization > 0:
            raise ValueError(f"Expected `regularization` > 0, but got {regularization}.")
        self.features = tuple(features)
        self.labels_per_class = tuple(labels_per_class)
        self.split = split
        self.repeats = repeats
        self.regularization = regularization
        self.max_iter = max_iter
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
        if not (chosen := [name for name in features if name in self.features]):
            return
        for name in chosen:
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
                found["features"].append(image if name == "pixels" else pl_module(image).float())
                found["label"].append(batch["label"])
                found["index"].append(batch["index"])
        features, label, index = (distributed.gather(torch.cat(part)).cpu() for part in found.values())
        order = index.argsort()
        features = _pixels(features) if name == "pixels" else features
        return features[order].numpy(), label[order].numpy()

    def _score(self, name: str, train: _Split, test: _Split, few: int | None) -> dict[str, Any]:
        generator = np.random.default_rng(self.seed)
        draws = [_draw(train[1], few, generator) for _ in range(1 if few is None else self.repeats)]
        judged = [self._judge((train[0][draw], train[1][draw]), test) for draw in draws]
        scores = [score for score, _ in judged]
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
            "iterations": judged[-1][1],
        }

    def _judge(self, train: _Split, test: _Split) -> tuple[float, int]:
        """Fit on one split and score on the other: the accuracy, and how many iterations the fit took."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler().fit(train[0])
        judge = LogisticRegression(C=self.regularization, max_iter=self.max_iter, tol=1e-3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the table has the number of iterations
            judge.fit(scaler.transform(train[0]), train[1])
        return float(judge.score(scaler.transform(test[0]), test[1])), int(judge.n_iter_.max())

    def _write(self, path: Any) -> None:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(self.rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)


def _pixels(image: torch.Tensor) -> torch.Tensor:
    """Flatten images, (N, C, H, W) to (N, D); of channels that repeat each other, one."""
    return (image[:, :1] if (image == image[:, :1]).all() else image).flatten(1)


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
