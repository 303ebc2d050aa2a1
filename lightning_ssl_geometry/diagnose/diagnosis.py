"""One pass over images, without training, into a run's folder and its page."""

__all__ = ["diagnose", "folder_of_images"]

import hashlib
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader

from lightning_ssl_geometry.callbacks import LayerGeometry, LinearEvaluation, RunReport
from lightning_ssl_geometry.callbacks.observer import run_folder
from lightning_ssl_geometry.data import ImageDataModule, ImageFolderDataModule
from lightning_ssl_geometry.data.loader import BatchLoader
from lightning_ssl_geometry.diagnose.observed import diagnosis_monitor
from lightning_ssl_geometry.diagnose.subject import Subject
from lightning_ssl_geometry.methods.base import SSLModule


def diagnose(
    model: nn.Module,
    data: LightningDataModule,
    output: str | Path = "runs/diagnosis",
    name: str | None = None,
    *,
    normalization: tuple[Sequence[float], Sequence[float]] | None = None,
    callbacks: Sequence[L.Callback] | None = None,
    linear_evaluation: bool = False,
    about: Mapping[str, Any] | None = None,
    config: str | None = None,
    accelerator: str = "auto",
    devices: int = 1,
    precision: str = "32-true",
    progress: bool = True,
) -> Path:
    """Look at a network, as the monitor would during training: nothing is trained and nothing of it changed.

    Args:
        model: A module of this package, a :class:`Subject`, or a network that maps images (N, C, H, W) to h (N, D).
        data: Its test set is looked at. Batches are as a :class:`Subject` takes them.
        output: Each diagnosis gets a folder of its own in `output/name`, `version_0` and so on.
        name: Of the model; None: that of its class.
        normalization: Mean and standard deviation per channel that the images of an ImageDataModule are normalised by,
            instead of their own.
        callbacks: What looks; None: :func:`diagnosis_monitor`'s and, layer by layer,
            :class:`lightning_ssl_geometry.callbacks.LayerGeometry`.
        linear_evaluation: Also fit a linear classifier on the training set's representations, layer by layer of the
            projector, and score it on the test set.
        about: More for the record (`run.json`), such as the checkpoint.
        config: Text that is kept as `config.yaml`.
        accelerator: The Trainer's.
        devices: The Trainer's.
        precision: The Trainer's.
        progress: Show a progress bar.

    Returns:
        The folder, with `report.html`, the page, in it.

    Raises:
        ValueError: If `normalization` is given for another DataModule, or fits not the channels; what the model or a
            diagnostic refuses.
    """
    module = model if isinstance(model, SSLModule | Subject) else Subject(model)
    labels = _prepare(data, module, normalization)
    if linear_evaluation and isinstance(data, ImageDataModule):
        data.clean_dataloader("train")  # refuses now, and not after the test, if there is nothing to train on
    if callbacks is None:
        projector = getattr(module, "projector", None)
        callbacks = [diagnosis_monitor(projector, labels), LayerGeometry(stage="test")]
        if linear_evaluation:
            layers = _cuts(projector)
            callbacks.append(LinearEvaluation([None], features=["pixels", "trained"], layers=layers, at="test"))
    logger = CSVLogger(output, name or type(model).__name__)
    folder = Path(logger.log_dir)
    record = {"model": name, "samples": _size(data), "normalization": _shown(data)} | dict(about or {})
    report = RunReport(kind="diagnosis", about={key: value for key, value in record.items() if value is not None})
    trainer = L.Trainer(
        accelerator=accelerator,
        devices=devices,
        precision=precision,  # type: ignore[arg-type]
        logger=logger,
        callbacks=[*([_Config(config)] if config else []), *callbacks, report],
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=progress,
    )
    trainer.test(module, datamodule=data, verbose=False)
    return folder


def folder_of_images(root: str | Path, image_size: int, batch_size: int, cache: str | Path) -> ImageFolderDataModule:
    """All images of a folder as a test set, or its part `test` where it has one; labels are its folders, if it has any.

    Args:
        root: The folder.
        image_size: Height and width that they are brought to.
        batch_size: Samples per process.
        cache: Where the decoded images are kept, in a folder of their own.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it has no images.
    """
    place = hashlib.sha256(str(Path(root).resolve()).encode()).hexdigest()[:16]
    return ImageFolderDataModule(
        str(root), image_size, batch_size, val_fraction=0.0, test_fraction=1.0, cache=str(Path(cache) / place)
    )


def _cuts(projector: nn.Module | None) -> list[str]:
    """Names of what comes before each linear layer of the projector but the first, and of the projector."""
    if projector is None:
        return []
    leaves = [(name, leaf) for name, leaf in projector.named_modules(prefix="projector") if not any(leaf.children())]
    linear = [place for place, (_, leaf) in enumerate(leaves) if isinstance(leaf, nn.Linear)]
    return [*(leaves[place - 1][0] for place in linear[1:]), "projector"]


class _Config(L.Callback):
    """Write `config.yaml` into the run's folder."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write it."""
        folder = run_folder(trainer)
        if trainer.is_global_zero:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.yaml").write_text(self.text)


def _prepare(
    data: LightningDataModule,
    module: L.LightningModule,
    normalization: tuple[Sequence[float], Sequence[float]] | None,
) -> bool:
    """Set the data up, and say whether it has labels."""
    data.prepare_data()
    data.setup("test")
    if normalization is not None:
        if not isinstance(data, ImageDataModule):
            raise ValueError(f"Expected an ImageDataModule beside `normalization`, but got {type(data).__name__}.")
        mean, std = (torch.tensor(list(moment)) for moment in normalization)
        if mean.shape != data.mean.shape or std.shape != data.std.shape or not (std > 0).all():
            got = f"{mean.tolist()} and {std.tolist()}"
            raise ValueError(f"Expected `normalization` of {len(data.mean)} channels, with std > 0, but got {got}.")
        data.mean, data.std = mean, std
    if isinstance(module, Subject) and "label" in module.batch_keys:
        return True
    batch = next(iter(data.test_dataloader()), None)
    if batch is None:
        raise ValueError(f"Expected a test set in {type(data).__name__}, but it is empty.")
    return isinstance(batch, Mapping) and "label" in batch


def _size(data: LightningDataModule) -> int | None:
    """Number of samples of the test set, where it says so."""
    loader = data.test_dataloader()
    if isinstance(loader, BatchLoader):
        return loader.sampler.size
    return len(loader.dataset) if isinstance(loader, DataLoader) and isinstance(loader.dataset, Sized) else None


def _shown(data: LightningDataModule) -> str | None:
    if not isinstance(data, ImageDataModule):
        return None
    mean, std = (", ".join(f"{value:.3f}" for value in moment.tolist()) for moment in (data.mean, data.std))
    return f"mean {mean}; std {std}"
