"""The function `diagnose`: runs diagnostics on images without training, and writes a folder with a page."""

__all__ = ["diagnose", "folder_of_images"]

import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader

from lightning_ssl_geometry.callbacks import LayerGeometry, LinearEvaluation, RunReport
from lightning_ssl_geometry.callbacks.run_callback import RunCallback, run_files
from lightning_ssl_geometry.data import ImageDataModule, ImageFolderDataModule
from lightning_ssl_geometry.data.loader import BatchLoader
from lightning_ssl_geometry.diagnose.diagnosed_model import DiagnosedModel
from lightning_ssl_geometry.diagnose.observed import diagnosis_monitor
from lightning_ssl_geometry.methods.base import SSLModule
from lightning_ssl_geometry.observe.batch_keys import stage_keys


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
    """Run diagnostics on a network, without changing it, and write a page with the results.

    Args:
        model: A module of this package, a :class:`DiagnosedModel`, or a network that maps images (N, C, H, W) to h
            (N, D).
        data: A DataModule. The diagnostics run on its test set. :class:`DiagnosedModel` says what a batch must hold.
        output: Folder of all diagnoses. The page is `report.html` in a new folder `output/name/version_*`. The path of
            this new folder is returned.
        name: Name of the model. None: the name of its class.
        normalization: Mean and standard deviation per channel that normalise the images of an ImageDataModule. None:
            those of `data`.
        callbacks: The callbacks that run diagnostics. None: :func:`diagnosis_monitor` and
            :class:`lightning_ssl_geometry.callbacks.LayerGeometry`.
        linear_evaluation: Also fit linear classifiers on h and on each layer of the projector. They are fitted on the
            training set and scored on the test set. `data` must then be an ImageDataModule with labels.
        about: Further entries for the record `run.json`, such as the checkpoint.
        config: Text that is saved as `config.yaml`.
        accelerator: Argument of Lightning's Trainer.
        devices: Argument of Lightning's Trainer.
        precision: Argument of Lightning's Trainer.
        progress: Whether to show a progress bar.

    Raises:
        ValueError: If `normalization` does not fit the data, the test set is empty, `linear_evaluation` is given
            without labels, or the model or a diagnostic raises a ValueError.
    """
    if not isinstance(data, LightningDataModule):
        raise ValueError(
            f"Expected `data` to be a LightningDataModule of `lightning`, but got a {type(data).__name__} of "
            f"`{type(data).__module__.partition('.')[0]}`."
        )
    module = model if isinstance(model, SSLModule | DiagnosedModel) else DiagnosedModel(model)
    if precision in ("16-true", "bf16-true"):
        module = copy.deepcopy(module)  # the Trainer rounds the weights
    data.prepare_data()
    data.setup("test")
    with _normalized(data, normalization):
        labels = _labelled(data, module)
        if linear_evaluation:  # what it would refuse after the pass is refused before
            if not labels:
                raise ValueError("Expected images with labels for `linear_evaluation`, but they have none.")
            _images(data, beside="linear_evaluation").unaugmented_dataloader("train")
        if callbacks is None:
            callbacks = _callbacks(getattr(module, "projector", None), labels, linear_evaluation)
        logger = CSVLogger(output, name or type(model).__name__)
        record = _about(data) | dict(about or {}) | ({"model": name} if name else {})
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
        device = module.device
        trainer.test(module, datamodule=data, verbose=False)
        module.to(device)
    return Path(logger.log_dir)


def folder_of_images(
    root: str | Path, image_size: int, batch_size: int, cache: str | Path, channels: int | None = None
) -> ImageFolderDataModule:
    """Return a DataModule whose test set is all images in a folder. Names of subfolders are the labels.

    Args:
        root: The folder. If it has a subfolder `test`, the images are read from there. A FileNotFoundError is raised if
            the folder does not exist, a ValueError if it has no images.
        image_size: Height and width to which images are resized.
        batch_size: Samples per process.
        cache: Folder for decoded images. Each `root` gets its own subfolder.
        channels: 1: convert colours to grey. None: keep the channels of the images.
    """
    if not Path(root).is_dir():
        raise FileNotFoundError(f"Expected `images` to be a folder, but there is none at {root}.")
    place = hashlib.sha256(str(Path(root).resolve()).encode()).hexdigest()[:16]
    return ImageFolderDataModule(
        str(root),
        image_size,
        batch_size,
        val_fraction=0.0,
        channels=channels,
        test_fraction=1.0,
        cache=str(Path(cache) / place),
    )


def _callbacks(projector: nn.Module | None, labels: bool, linear_evaluation: bool) -> list[L.Callback]:
    found: list[L.Callback] = [diagnosis_monitor(projector, labels), LayerGeometry(stage="test")]
    if linear_evaluation:
        layers = [] if projector is None else [*_cuts(projector), "projector"]
        found.append(LinearEvaluation([None], features=["pixels", "trained"], layers=layers, at="test"))
    return found


def _cuts(projector: nn.Module) -> list[str]:
    name = "projector"
    while not isinstance(projector, nn.Sequential) and len(children := list(projector.named_children())) == 1:
        name, projector = f"{name}.{children[0][0]}", children[0][1]
    layers = list(projector.named_children()) if isinstance(projector, nn.Sequential) else []
    linear = [place for place, (_, layer) in enumerate(layers) if isinstance(layer, nn.Linear)]
    return [f"{name}.{layers[place - 1][0]}" for place in linear[1:]]  # the input of the first linear layer is h


class _Config(RunCallback):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_test_start(trainer, pl_module)
        with run_files(trainer).replacing("config.yaml") as file:
            file.write(self.text.encode())


@contextmanager
def _normalized(
    data: LightningDataModule, normalization: tuple[Sequence[float], Sequence[float]] | None
) -> Iterator[None]:
    if normalization is None:
        yield
        return
    data = _images(data, beside="normalization")
    mean, std = (torch.tensor(list(moment)) for moment in normalization)
    if mean.shape != data.mean.shape or std.shape != data.std.shape or not (std > 0).all():
        got = f"{mean.tolist()} and {std.tolist()}"
        raise ValueError(f"Expected `normalization` of {len(data.mean)} channels, with std > 0, but got {got}.")
    own = data.mean, data.std
    data.mean, data.std = mean, std
    try:
        yield
    finally:
        data.mean, data.std = own


def _images(data: LightningDataModule, beside: str) -> ImageDataModule:
    if not isinstance(data, ImageDataModule):
        raise ValueError(f"Expected an ImageDataModule beside `{beside}`, but got {type(data).__name__}.")
    return data


def _labelled(data: LightningDataModule, module: L.LightningModule) -> bool:
    batch = next(iter(data.test_dataloader()), None)
    if batch is None:
        raise ValueError(f"Expected a test set in {type(data).__name__}, but it is empty.")
    if isinstance(module, DiagnosedModel) and "label" in stage_keys(module.batch_keys, "test"):
        return True
    return isinstance(batch, Mapping) and "label" in batch


def _about(data: LightningDataModule) -> dict[str, Any]:
    found: dict[str, Any] = {"samples": _size(data)}
    if root := getattr(data, "root", None):
        found["data_path"] = str(Path(root).resolve())
    if isinstance(data, ImageDataModule):
        mean, std = (", ".join(f"{value:.3f}" for value in moment.tolist()) for moment in (data.mean, data.std))
        found |= {"normalization": f"mean {mean}; std {std}", "views": repr(data.views)}
        found["image_shape"] = " x ".join(map(str, data.image_shape))
    return found


def _size(data: LightningDataModule) -> int | None:
    loader = data.test_dataloader()
    if isinstance(loader, BatchLoader):
        return loader.sampler.size
    return len(loader.dataset) if isinstance(loader, DataLoader) and isinstance(loader.dataset, Sized) else None
