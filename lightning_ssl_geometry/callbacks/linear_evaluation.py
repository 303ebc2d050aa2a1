"""LinearEvaluation: the same linear classifier on pixels, on the untrained and on the trained network."""

__all__ = ["LinearEvaluation"]

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal, get_args

import lightning as L
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lightning_ssl_geometry.callbacks.calibration import calibrated
from lightning_ssl_geometry.callbacks.evaluation import Evaluation, flat_pixels, gather_split
from lightning_ssl_geometry.callbacks.logistic_regression import LogisticRegression, Rows, Solver
from lightning_ssl_geometry.checks import at_least, one_of
from lightning_ssl_geometry.introspection import layer_outputs, submodule

Features = Literal["pixels", "frozen", "trained"]
_PROJECTOR = "projector"


class LinearEvaluation(Evaluation):
    """Fit a multinomial logistic regression on frozen features, before and after training.

    The features are the pixels ("pixels"), the network's outputs before training ("frozen"), and its outputs after
    training ("trained"). For "frozen", new batch norms get statistics of training batches first (:func:`calibrated`).
    Images are not augmented. Features are standardised by the training set's mean and deviation. The classifier is
    fitted on the training split and scored on `split`. The results are written to `linear_evaluation.csv` in the run's
    folder, and saved in checkpoints.

    If `layers` is given, inner layers of the trained network are scored, too, as by Rusak et al., Content suppresses
    style (2022), Table 2 and Appendix E.

    Args:
        labels_per_class: Numbers of labels per class. An entry None stands for all labels.
        split: The split on which accuracy is measured.
        repeats: Number of random draws for each number of labels. The table has the mean and the standard deviation
            over the draws.
        regularization: scikit-learn's C, the inverse strength of the L2 penalty.
        max_iter: Largest number of L-BFGS iterations.
        seed: Seed of the draws.
        features: Which of "pixels", "frozen" and "trained" are scored. Large images make "pixels" slow.
        solver: "sklearn", on the CPU, or "full-batch", on the module's device: see :class:`LogisticRegression`.
        layers: Dotted names of submodules of the module, such as "backbone.layer4.1", "projector.0" or "projector".
            Each submodule must return (N, D) or (N, C, H, W). An output (N, C, H, W) is averaged over H and W. The
            projector gets h, the output of the module's `forward`. If `layers` is given, `features` may be empty.
        at: When features are scored. "fit": at the start and the end of a fit. "test": at the end of a test, without
            "frozen".

    Raises:
        ValueError: If an argument is out of range, the DataModule has no `unaugmented_dataloader`, a layer does not
            exist, or another run wrote the table. At the end of the fit, if a layer is not called exactly once in a
            pass, or returns another shape.
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
        layers: Sequence[str] = (),
        at: Literal["fit", "test"] = "fit",
    ) -> None:
        super().__init__(LogisticRegression(solver, regularization=regularization, max_iter=max_iter, tol=1e-3), split)
        one_of(("fit", "test"), at=at)
        if at == "test" and "frozen" in features:
            raise ValueError(f"Expected `features` of 'pixels' and 'trained' with `at='test'`, but got {features}.")
        if not (features or layers) or not set(features) <= set(get_args(Features)):
            raise ValueError(f"Expected `features` to be of {get_args(Features)}, but got {features}.")
        if isinstance(layers, str) or len(set(layers)) < len(layers) or set(layers) & {"", *get_args(Features)}:
            raise ValueError(f"Expected `layers` to be distinct names of submodules, but got {layers!r}.")
        if any(few is not None and few < 1 for few in labels_per_class):
            raise ValueError(f"Expected `labels_per_class` of None or numbers >= 1, but got {labels_per_class}.")
        at_least(1, repeats=repeats)
        self.features = tuple(features)
        self.layers = tuple(layers)
        self.labels_per_class = tuple(labels_per_class)
        self.repeats = repeats
        self.seed = seed
        self.at = at

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows}  # a resumed run cannot evaluate its untrained network again

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.fits:
            self.rows = state_dict["rows"]

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_fit_start(trainer, pl_module)
        if self.at == "fit":
            for name in self.layers:
                submodule(pl_module, name, "layers")
            if not self.rows:
                self._evaluate(trainer, pl_module, ("pixels",))
                with calibrated(trainer, pl_module) if "frozen" in self.features else nullcontext():
                    self._evaluate(trainer, pl_module, ("frozen",))

    def after_training(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.at == "fit":
            self.rows = [row for row in self.rows if row["features"] not in ("trained", *self.layers)]
            self._evaluate_network(trainer, pl_module)

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_test_end(trainer, pl_module)
        if self.at == "test":
            for name in self.layers:
                submodule(pl_module, name, "layers")
            self.rows = []
            self._evaluate(trainer, pl_module, ("pixels",))
            self._evaluate_network(trainer, pl_module)

    def _evaluate_network(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._evaluate(trainer, pl_module, ("trained",))
        if self.layers:
            self._judge(trainer, pl_module, self.layers, observe=partial(_layer_features, pl_module, self.layers))

    def _evaluate(self, trainer: L.Trainer, pl_module: L.LightningModule, features: Sequence[str]) -> None:
        for name in features:
            if name in self.features:
                self._judge(trainer, pl_module, (name,), observe=partial(_whole, pl_module, name))

    def _judge(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        names: Sequence[str],
        observe: Callable[[Tensor], dict[str, Tensor]],
    ) -> None:
        train, test = (self._observed(trainer, pl_module, split, observe=observe) for split in ("train", self.split))
        if trainer.is_global_zero:
            device = pl_module.device if self.classifier.solver == "full-batch" else torch.device("cpu")
            for name in names:
                fitted, scored = (Rows(found[name].to(device), found["label"].to(device)) for found in (train, test))
                self.rows += [self._score(name, fitted, scored, few=few) for few in self.labels_per_class]
        self.write(trainer)
        trainer.strategy.barrier("linear_evaluation")

    def _observed(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        split: str,
        observe: Callable[[Tensor], dict[str, Tensor]],
    ) -> dict[str, Tensor]:

        def float_features(batch: Any) -> dict[str, Tensor]:
            return {name: value.float() for name, value in observe(batch["image"]).items()}

        found = gather_split(trainer, pl_module, split, observe=float_features, asker="LinearEvaluation")
        return found | ({"pixels": flat_pixels(found["pixels"])} if "pixels" in found else {})

    def _score(self, name: str, train: Rows, test: Rows, few: int | None) -> dict[str, Any]:
        generator, label = np.random.default_rng(self.seed), train.label.numpy(force=True)
        draws = [_draw(label, few, generator) for _ in range(1 if few is None else self.repeats)]
        chosen = [Rows(*(part[torch.from_numpy(draw).to(part.device)] for part in train)) for draw in draws]
        return self.row(name, [self.classifier(rows, test) for rows in chosen], train=chosen[0], test=test, few=few)


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


def _whole(pl_module: L.LightningModule, name: str, image: Tensor) -> dict[str, Tensor]:
    return {name: image if name == "pixels" else pl_module(image)}


def _layer_features(pl_module: L.LightningModule, layers: Sequence[str], image: Tensor) -> dict[str, Tensor]:
    within = [name for name in layers if name.split(".")[0] == _PROJECTOR]
    found: dict[str, Tensor] = {}
    if before := [name for name in layers if name not in within]:
        with layer_outputs(pl_module, before) as run:
            found |= run(image)
    if within:
        inner = [name.removeprefix(_PROJECTOR).removeprefix(".") for name in within]
        with layer_outputs(pl_module.get_submodule(_PROJECTOR), inner) as run:
            found |= dict(zip(within, run(pl_module(image)).values(), strict=True))  # of h
    return {name: _pooled(name, found[name]) for name in layers}


def _pooled(name: str, output: Tensor) -> Tensor:
    if output.ndim not in (2, 4):
        raise ValueError(f"Expected `{name}` to return (N, D) or (N, C, H, W), but got shape {tuple(output.shape)}.")
    return output.mean(dim=(2, 3)) if output.ndim == 4 else output
