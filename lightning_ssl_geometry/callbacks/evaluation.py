"""Evaluation: base class of callbacks that fit a classifier on features and write its accuracy to a table."""

__all__ = ["Evaluation", "clean_batches", "flat_pixels", "gather_split", "write_rows"]

import csv
import io
from abc import ABC
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import lightning as L
import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.callbacks.logistic_regression import LogisticRegression, Rows, Score
from lightning_ssl_geometry.callbacks.order import callbacks_of
from lightning_ssl_geometry.callbacks.run_callback import RunCallback, run_files, starts_anew
from lightning_ssl_geometry.checks import one_of
from lightning_ssl_geometry.deprecation import deprecated
from lightning_ssl_geometry.observe.undisturbed import undisturbed
from lightning_ssl_geometry.papers import SIMCLR
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity, Verdict


def _worse_than(features: str, words: str) -> Verdict:
    variance = f"trained * (1 - trained) + {features} * (1 - {features})"
    return Verdict(
        says=f"A linear classifier is better on {words} ({{{features}}}) than on the trained network ({{trained}}), "
        "on {N} samples.",
        when=f"trained + 2.326 * sqrt(({variance}) / N) < {features}",
        source="one-sided test of two proportions at 1%",
        topic=f"a network that is worse than {words}",
    )


class Evaluation(RunCallback, ABC):
    """Base of the callbacks that write `linear_evaluation.csv` in the run's folder.

    Args:
        classifier: The classifier. It is fitted on the training split.
        split: "val" or "test": the split on which accuracy is measured.
    """

    section: ClassVar[str] = "probes"
    quantities: ClassVar[dict[str, Quantity]] = {
        "linear_evaluation": Quantity(
            title="Linear evaluation",
            text="One linear classifier, trained the same way on each kind of feature.",
            low="Near chance: classes are not linearly separable in these features.",
            high="Classes are linearly separable. The difference from the untrained network, which is the same "
            "network before training, is what training adds.",
            paper=SIMCLR,
            unit="accuracy",
            bounds=(0.0, 1.0),
            comparable=("width", "temperature", "batch size", "method"),
            better="high",
            percent=True,
            chart=Chart("linear_evaluation", "The same linear classifier on each", "accuracy"),
            picture=Picture("dots"),
            headline=True,
            verdicts=(_worse_than("pixels", "the raw pixels"), _worse_than("frozen", "the untrained network")),
        )
    }

    written: ClassVar[tuple[str, ...]] = ("linear_evaluation.csv",)

    def __init__(self, classifier: LogisticRegression, split: str) -> None:
        super().__init__()
        one_of(("val", "test"), split=split)
        self.classifier = classifier
        self.split = split
        self.rows: list[dict[str, Any]] = []
        self._trained = False  # whether `after_training` was called in this fit

    @property
    def judge(self) -> LogisticRegression:
        """Deprecated name of `classifier`."""
        deprecated(f"`{type(self).__name__}.judge`", "`classifier`")
        return self.classifier

    def logs(self) -> dict[str, str]:
        return {"linear_evaluation": "linear_evaluation"}

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if starts_anew(trainer, stage):
            self.rows = []

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_fit_start(trainer, pl_module)
        self._trained = False

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self.refuse(trainer, *self.written)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._trained = True
        self.after_training(trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_fit_end(trainer, pl_module)
        if not self._trained and trainer.global_step:  # resumed at its end: Lightning then skips all other hooks
            self.refuse(trainer, *self.written)
            self.after_training(trainer, pl_module)

    def after_training(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Evaluate the network at the end of a fit."""
        raise NotImplementedError

    def row(
        self, name: str, scores: Sequence[Score], train: Rows, test: Rows, few: int | None = None
    ) -> dict[str, Any]:
        """Return one row of the table, with the mean accuracy of `scores`.

        `name` is the name of the features. `train` has the samples of the first fit, and `test` the samples that are
        scored. `few` is the number of labels per class, or None if all labels are used.
        """
        if max(score.iterations for score in scores) >= self.classifier.max_iter:
            said = f"{type(self).__name__}: the classifier of {name!r} stopped at its `max_iter` of"
            rank_zero_warn(f"{said} {self.classifier.max_iter} iterations. Its accuracy may be higher with more.")
        accuracy = torch.tensor([score.accuracy for score in scores], dtype=torch.float64)
        return {
            "features": name,
            "labels_per_class": "all" if few is None else few,
            "accuracy": float(accuracy.mean()),
            "accuracy_std": float(accuracy.std()) if len(scores) > 1 else None,
            "repeats": len(scores),
            "split": self.split,
            "train_size": len(train.label),
            "test_size": len(test.label),
            "feature_dim": train.features.shape[1],
            "iterations": scores[-1].iterations,
        }

    def write(self, trainer: L.Trainer) -> None:
        """Write the rows of all evaluations of this Trainer to one table. All ranks must call this method."""
        rows = [row for evaluation in callbacks_of(trainer, Evaluation) for row in evaluation.rows]
        write_rows(trainer, "linear_evaluation.csv", rows)


def gather_split(
    trainer: L.Trainer,
    pl_module: L.LightningModule,
    split: str,
    observe: Callable[[Any], dict[str, Tensor]],
    asker: str,
) -> dict[str, Tensor]:
    """Apply `observe` to all unaugmented batches of a split, and gather the results of all ranks.

    `observe` maps a batch on the device to a dict of tensors with N rows. It is called in eval mode, without gradients.
    The results and `label` are returned on the CPU, in the order of the data set. A ValueError is raised if there are
    no batches or no labels. `asker` is the name of the caller in the message. All ranks must call this function.
    """
    found: defaultdict[str, list[Tensor]] = defaultdict(list)
    with undisturbed(pl_module):
        for batch in clean_batches(trainer, split, asker):
            if "label" not in batch:
                raise ValueError(f"Expected `label` in the batches for {asker}, but got only {', '.join(batch)}.")
            for name, value in {**observe(batch), "label": batch["label"], "index": batch["index"]}.items():
                found[name].append(value)
    whole = distributed.gather_rows({name: torch.cat(found.pop(name)) for name in list(found)}, pl_module.device)
    if not whole:
        raise ValueError(f"Expected batches in the split {split!r} for {asker}, but no process had one.")
    order = whole.pop("index").argsort()
    return {name: value[order] for name, value in whole.items()}


def clean_batches(trainer: L.Trainer, split: str, asker: str) -> Iterable[Any]:
    """Return the unaugmented batches of a split. If it has none, raise a ValueError that names the caller `asker`."""
    datamodule = getattr(trainer, "datamodule", None)
    load = getattr(datamodule, "unaugmented_dataloader", None)
    if load is None and (load := getattr(datamodule, "clean_dataloader", None)) is not None:
        deprecated(f"`{type(datamodule).__name__}.clean_dataloader`", "the name `unaugmented_dataloader`")
    if load is None:
        raise ValueError(f"Expected a DataModule with `unaugmented_dataloader(split)` for {asker}, but got none.")
    return map(trainer.strategy.batch_to_device, load(split))


def flat_pixels(image: Tensor) -> Tensor:
    """Flatten images (N, C, H, W) to (N, D). If all channels are equal, only the first is kept."""
    return (image[:, :1] if (image == image[:, :1]).all() else image).flatten(1)


def write_rows(trainer: L.Trainer, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write `rows` to the CSV file `name` in the run's folder, on rank 0. All ranks must call this function."""
    files = run_files(trainer)
    if not rows:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with files.replacing(name) as file:
        file.write(text.getvalue().encode())
