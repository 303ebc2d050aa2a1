"""The linear evaluation protocol: the same classifier on pixels, on the untrained and on the trained network."""

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
from lightning_ssl_geometry.introspection import layer_outputs, submodule

Features = Literal["pixels", "frozen", "trained"]
_PROJECTOR = "projector"


class LinearEvaluation(Evaluation):
    """scikit-learn's multinomial logistic regression on frozen features, before and after training.

    Features are raw pixels, the network as it was when the fit began ("frozen": random weights, unless it was
    pretrained; a batch norm that has seen no batch has the statistics of training batches, see :func:`calibrated`) and
    as it is when the fit ends ("trained"), of images without augmentation, each standardised by the training set's mean
    and deviation. It is fitted on the training split, with all labels or with a few per class, and scored on another
    split, which it never sees otherwise. Needs a DataModule with `unaugmented_dataloader(split)`.
    The table goes to `linear_evaluation.csv` in the run's folder, and into the checkpoint. Rank 0 does the work.

    With `layers`, inner layers of the trained network are judged too: before and after the projector, as in Table 2 of
    Rusak et al., Content suppresses style (2022), or before its last block, as in their Appendix E. Images pass through
    the module's `forward`, and its output h, where `layers` name the projector or a part of it, through that.

    Args:
        labels_per_class: None stands for all labels; a number for as many per class, drawn `repeats` times.
        split: Where accuracy is measured.
        repeats: Draws of the few labels; their mean and standard deviation are kept.
        regularization: scikit-learn's C, the inverse strength of the L2 penalty.
        max_iter: Most iterations of L-BFGS; the table has how many it took, of the last draw.
        seed: Of the draws.
        features: Which of the three are judged; the pixels of large images take the longest.
        solver: "sklearn", on the CPU, or "full-batch", the same on the module's device:
            see :class:`LogisticRegression`.
        layers: Dotted names of submodules of the module, such as "backbone.layer4.1", "projector.0" or "projector",
            each of which returns (N, D), or (N, C, H, W), which is averaged over H and W. Judged when the fit ends,
            from one more pass over the splits; `features` may be empty beside them.
        at: "fit", as above, or "test": at the end of a test, of the network as it is; there is then nothing "frozen".

    Raises:
        ValueError: If an argument is out of range, or the DataModule has no `unaugmented_dataloader`; when the
            fit begins, if
            `layers` name no submodule; when it ends, if one is not called once in a pass, or returns another shape.
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
        super().__init__(LogisticRegression(solver, True, regularization, max_iter, tol=1e-3), split)
        if at not in ("fit", "test"):
            raise ValueError(f"Expected `at` to be one of 'fit', 'test', but got {at!r}.")
        if at == "test" and "frozen" in features:
            raise ValueError(f"Expected `features` of 'pixels' and 'trained' with `at='test'`, but got {features}.")
        if not (features or layers) or not set(features) <= set(get_args(Features)):
            raise ValueError(f"Expected `features` to be of {get_args(Features)}, but got {features}.")
        if isinstance(layers, str) or len(set(layers)) < len(layers) or set(layers) & {"", *get_args(Features)}:
            raise ValueError(f"Expected `layers` to be distinct names of submodules, but got {layers!r}.")
        if any(few is not None and few < 1 for few in labels_per_class):
            raise ValueError(f"Expected `labels_per_class` of None or numbers >= 1, but got {labels_per_class}.")
        if repeats < 1:
            raise ValueError(f"Expected `repeats` >= 1, but got {repeats}.")
        self.features = tuple(features)
        self.layers = tuple(layers)
        self.labels_per_class = tuple(labels_per_class)
        self.repeats = repeats
        self.seed = seed
        self.at = at

    def state_dict(self) -> dict[str, Any]:
        """The rows so far: a resumed run still knows its untrained network's."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them back."""
        self.rows = state_dict["rows"]

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Evaluate pixels and the untrained network, unless a checkpoint brought their rows."""
        super().on_fit_start(trainer, pl_module)
        if self.at == "fit":
            self._check_layers(pl_module)
            if not self.rows:
                self._evaluate(trainer, pl_module, ("pixels",))
                with calibrated(trainer, pl_module) if "frozen" in self.features else nullcontext():
                    self._evaluate(trainer, pl_module, ("frozen",))

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Evaluate the trained network and its layers, and write the table."""
        if self.at == "fit":
            self.rows = [row for row in self.rows if row["features"] not in ("trained", *self.layers)]
            self._evaluate_network(trainer, pl_module)

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Evaluate pixels, the network as it is and its layers, and write the table, if that was asked for."""
        super().on_test_end(trainer, pl_module)
        if self.at == "test":
            self._check_layers(pl_module)
            self.rows = []
            self._evaluate(trainer, pl_module, ("pixels",))
            self._evaluate_network(trainer, pl_module)

    def _check_layers(self, pl_module: L.LightningModule) -> None:
        for name in self.layers:
            submodule(pl_module, name, "layers")

    def _evaluate_network(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._evaluate(trainer, pl_module, ("trained",))
        if self.layers:
            self._judge(trainer, pl_module, self.layers, partial(_layers, pl_module, self.layers))

    def _evaluate(self, trainer: L.Trainer, pl_module: L.LightningModule, features: Sequence[str]) -> None:
        for name in features:
            if name in self.features:
                self._judge(trainer, pl_module, (name,), partial(_whole, pl_module, name))

    def _judge(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        names: Sequence[str],
        observe: Callable[[Tensor], dict[str, Tensor]],
    ) -> None:
        """Score what is observed of images, by its names, from one pass over both splits."""
        train, test = (self._observed(trainer, pl_module, split, observe) for split in ("train", self.split))
        if trainer.is_global_zero:
            device = pl_module.device if self.classifier.solver == "full-batch" else torch.device("cpu")
            for name in names:
                fitted, scored = (Rows(found[name].to(device), found["label"].to(device)) for found in (train, test))
                self.rows += [self._score(name, fitted, scored, few) for few in self.labels_per_class]
        self.write(trainer)
        trainer.strategy.barrier("linear_evaluation")

    def _observed(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        split: str,
        observe: Callable[[Tensor], dict[str, Tensor]],
    ) -> dict[str, Tensor]:
        """Features by name, and labels, of a split from all ranks, in the order of the data set."""

        def float_features(batch: Any) -> dict[str, Tensor]:
            return {name: value.float() for name, value in observe(batch["image"]).items()}

        found = gather_split(trainer, pl_module, split, float_features, asker="LinearEvaluation")
        return found | ({"pixels": flat_pixels(found["pixels"])} if "pixels" in found else {})

    def _score(self, name: str, train: Rows, test: Rows, few: int | None) -> dict[str, Any]:
        generator, label = np.random.default_rng(self.seed), train.label.numpy(force=True)
        draws = [_draw(label, few, generator) for _ in range(1 if few is None else self.repeats)]
        chosen = [Rows(*(part[torch.from_numpy(draw).to(part.device)] for part in train)) for draw in draws]
        return self.row(name, [self.classifier(rows, test) for rows in chosen], chosen[0], test, few)


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


def _layers(pl_module: L.LightningModule, layers: Sequence[str], image: Tensor) -> dict[str, Tensor]:
    """Outputs of layers by name: of the projector's on h, of the others on the image."""
    within = [name for name in layers if name.split(".")[0] == _PROJECTOR]
    found: dict[str, Tensor] = {}
    if before := [name for name in layers if name not in within]:
        with layer_outputs(pl_module, before) as run:
            found |= run(image)
    if within:
        inner = [name.removeprefix(_PROJECTOR).removeprefix(".") for name in within]
        with layer_outputs(pl_module.get_submodule(_PROJECTOR), inner) as run:
            found |= dict(zip(within, run(pl_module(image)).values(), strict=True))
    return {name: _pooled(name, found[name]) for name in layers}


def _pooled(name: str, output: Tensor) -> Tensor:
    if output.ndim not in (2, 4):
        raise ValueError(f"Expected `{name}` to return (N, D) or (N, C, H, W), but got shape {tuple(output.shape)}.")
    return output.mean(dim=(2, 3)) if output.ndim == 4 else output
