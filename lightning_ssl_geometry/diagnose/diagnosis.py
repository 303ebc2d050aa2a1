"""The function `diagnose`: runs diagnostics on images without training, and writes a folder with a page."""

__all__ = ["diagnose", "folder_of_images"]

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from lightning_ssl_geometry.callbacks import LayerGeometry, LinearEvaluation, RunReport
from lightning_ssl_geometry.callbacks.run_callback import RunCallback, run_files
from lightning_ssl_geometry.data import ImageDataModule
from lightning_ssl_geometry.data.loader import BatchLoader
from lightning_ssl_geometry.diagnose.diagnosed_model import DiagnosedModel
from lightning_ssl_geometry.diagnose.given import DiagnosisData, datamodule_of, folder_of_images, place_and_views
from lightning_ssl_geometry.diagnose.observed import diagnosis_monitor
from lightning_ssl_geometry.diagnose.samples import (
    Normalization,
    Reading,
    Samples,
    checksum,
    in_words,
    of_all_processes,
)
from lightning_ssl_geometry.methods.base import SSLModule
from lightning_ssl_geometry.observe.batch_keys import stage_keys
from lightning_ssl_geometry.report import Run, read_run

_KEEPS_WEIGHTS = ("32", "32-true", "16-mixed", "bf16-mixed", "16", "bf16")  # precisions of the Trainer


def diagnose(
    model: nn.Module,
    data: DiagnosisData,
    output: str | Path = "runs/diagnosis",
    name: str | None = None,
    *,
    views: nn.Module | None = None,
    batch_size: int | None = None,
    image_size: int | None = None,
    normalization: Normalization | None = None,
    callbacks: Sequence[L.Callback] | None = None,
    linear_evaluation: bool = False,
    about: Mapping[str, Any] | None = None,
    config: str | None = None,
    accelerator: str = "auto",
    devices: int = 1,
    precision: str = "32-true",
    progress: bool = True,
    table: bool = True,
) -> Run:
    """Run diagnostics on a network, without changing it, and write a page with the results.

    `data` is one of these:

    - A DataModule. Its test set is used. An ImageFolderDataModule of a folder without classes gives all its images,
      unless `test_fraction` was given or its test set was already drawn.
    - A folder, as in :func:`folder_of_images`.
    - A tensor of images (N, C, H, W), or a tuple (images, labels). Labels are integers (N,).
    - A Dataset, or a DataLoader. All samples of a DataLoader are used once, in the order of its Dataset, also if it
      shuffles or drops the last batch. A DataLoader with a sampler of its own keeps it.

    The samples of a Dataset or a DataLoader are images, (image, label), (views, label), (view 1, view 2, label), or
    dicts with the keys "image" or "views", "label" and "index". For other samples, `batch_keys` of
    :class:`DiagnosedModel` says what they hold. Images of tensors, Datasets and DataLoaders are uint8, which are
    divided by 255, or in [0, 1]. The network sees them like this unless `normalization` is given. Images that are
    normalised already need `views=NormalizedViews(mean, std)`.

    Args:
        model: A module of this package, a :class:`DiagnosedModel`, or a network that maps images (N, C, H, W) to h
            (N, D).
        data: The images, as described above.
        output: Folder of all diagnoses. The page is `report.html` in a new folder `output/name/version_*`.
        name: Name of the model. None: the name of its class.
        views: Makes the views of samples that have none. None: `augment` of a DiagnosedModel, or else `SimCLRViews()`.
            A DataModule makes its own.
        batch_size: Samples per process. None: that of a DataModule or DataLoader, or else 256.
        image_size: Height and width to which images in a folder are resized. None: the images must be squares of one
            size.
        normalization: Mean and standard deviation per channel that normalise images in [0, 1]. None: those of an
            ImageDataModule or of the images in a folder. Other images are not changed.
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
        table: Whether to print the numbers as a table.

    Returns:
        The run. In a notebook it shows its page, and `figure` and `to_frame` return its figures and numbers. It can be
        used as the path of the new folder: `diagnose(...) / "report.html"`, `Path(run)` and `str(run)` work.

    Raises:
        ValueError: If `name` is no name of a folder in `output`, or `output` is a file. If `data` is nothing of the
            above, has no samples, has images that are not finite, has labels that are no integers, or does not go with
            another argument. If `normalization` does not fit the data, `linear_evaluation` is given without labels, or
            the model or a diagnostic raises a ValueError.
        FileNotFoundError: If `data` is a folder that does not exist.
    """
    _refuse_no_folder(Path(output), name)
    own = model if isinstance(model, DiagnosedModel) else None
    reading = Reading(
        views=views,
        normalization=normalization,
        batch_size=batch_size,
        image_size=image_size,
        augment=own.augment if own else None,
        batch_keys=own.batch_keys if own else {},
        cache=Path(output) / ".decoded",
    )
    given = datamodule_of(data, reading)
    module = _observable(model, given)
    if str(precision) not in _KEEPS_WEIGHTS:
        module = copy.deepcopy(module)  # the Trainer converts the weights
    given.prepare_data()
    given.setup("test")
    with _normalized(given, normalization):
        labels = _labelled(given, module)
        if linear_evaluation:  # what it would refuse after the pass is refused before
            if not labels:
                raise ValueError("Expected images with labels for `linear_evaluation`, but they have none.")
            _images(given, beside="linear_evaluation").unaugmented_dataloader("train")
        if callbacks is None:
            callbacks = _default_callbacks(module, given, labels, linear_evaluation=linear_evaluation)
        logger = CSVLogger(output, name or type(model).__name__)
        method = type(module).__name__ if isinstance(module, SSLModule) else None
        record = _about(given) | {"method": method} | dict(about or {}) | ({"model": name} if name else {})
        known = {key: value for key, value in record.items() if value is not None}
        report = RunReport(table=table, kind="diagnosis", about=known)
        trainer = L.Trainer(
            accelerator=accelerator,
            devices=devices,
            precision=precision,  # type: ignore[arg-type]
            logger=logger,
            callbacks=[*([_Config(config)] if config else []), *callbacks, _Seen(report), report],
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=progress,
        )
        device = next((parameter.device for parameter in module.parameters()), module.device)
        with _fewer_warnings(given):
            trainer.test(module, datamodule=given, verbose=False)
        module.to(device)
    trainer.strategy.barrier("the first process has written the run")
    return read_run(logger.log_dir)


def _refuse_no_folder(output: Path, name: str | None) -> None:
    if name and (Path(name).is_absolute() or ".." in Path(name).parts or not Path(name).name):
        raise ValueError(f"Expected `name` to be the name of a folder in {output}, but got {name!r}.")
    for folder in (output, *output.parents):
        if folder.is_file():
            raise ValueError(f"Expected `output` to be a folder, but {folder} is a file.")


def _observable(model: nn.Module, data: LightningDataModule) -> L.LightningModule:
    if isinstance(model, DiagnosedModel):
        return model.of_our_batches() if isinstance(data, Samples) else model
    return model if isinstance(model, SSLModule) else DiagnosedModel(model)


@contextmanager
def _fewer_warnings(data: LightningDataModule) -> Iterator[None]:
    with warnings.catch_warnings():
        if (
            isinstance(data, Samples) and not data.loader.num_workers
        ):  # Lightning's advice, which images in memory do not need
            warnings.filterwarnings("ignore", message="The 'test_dataloader' does not have many workers")
        yield


def _default_callbacks(
    module: L.LightningModule, data: LightningDataModule, labels: bool, *, linear_evaluation: bool
) -> list[L.Callback]:
    projector, images = getattr(module, "projector", None), not isinstance(data, Samples) or data.has_images
    found: list[L.Callback] = [diagnosis_monitor(projector, labels, images), LayerGeometry(stage="test")]
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


class _Seen(RunCallback):
    def __init__(self, report: RunReport) -> None:
        super().__init__()
        self.report = report
        self._sum: Tensor | None = None

    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        data = getattr(trainer, "datamodule", None)
        if isinstance(data, Samples) or not isinstance(batch, Mapping) or not {"image", "index"} <= batch.keys():
            return
        image = batch["image"]
        if image.dtype in (torch.float16, torch.bfloat16):  # which have rounded the images
            return
        if isinstance(data, ImageDataModule) and image.ndim == 4:  # as they were before normalisation, up to rounding
            mean, std = (moment.to(image)[:, None, None] for moment in (data.mean, data.std))
            image = (255 * (image * std + mean)).round().to(torch.int16)
        self._sum = checksum(batch["index"], [image]) + (0 if self._sum is None else self._sum)

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_test_end(trainer, pl_module)
        if isinstance(data := getattr(trainer, "datamodule", None), Samples):
            samples, seen = data.seen()
            self.report.about = {"samples": samples} | self.report.about | {"checksum": seen}
        elif trainer.world_size > 1 or self._sum is not None:
            own = torch.zeros((), dtype=torch.int64) if self._sum is None else self._sum
            found = of_all_processes(own, trainer.strategy.root_device)
            self.report.about = self.report.about | {"checksum": found}


@contextmanager
def _normalized(data: LightningDataModule, normalization: Normalization | None) -> Iterator[None]:
    if normalization is None or isinstance(data, Samples):
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
        got = data.kind if isinstance(data, Samples) else type(data).__name__
        raise ValueError(f"Expected an ImageDataModule beside `{beside}`, but got {got}.")
    return data


def _labelled(data: LightningDataModule, module: L.LightningModule) -> bool:
    if isinstance(data, Samples):
        return data.has_labels
    batch = next(iter(data.test_dataloader()), None)
    if batch is None:
        raise ValueError(f"Expected a test set in {type(data).__name__}, but it is empty.")
    if isinstance(module, DiagnosedModel) and "label" in stage_keys(module.batch_keys, "test"):
        return True
    return isinstance(batch, Mapping) and "label" in batch


def _about(data: LightningDataModule) -> dict[str, Any]:
    found: dict[str, Any] = {"samples": _size(data)}
    if isinstance(data, Samples):
        return found | data.about
    if isinstance(data, ImageDataModule):
        found["normalization"] = in_words((data.mean.tolist(), data.std.tolist()))
    shape = data.image_shape if isinstance(data, ImageDataModule) else None
    return found | place_and_views(data, shape)


def _size(data: LightningDataModule) -> int | None:
    loader = data.test_dataloader()
    if isinstance(loader, BatchLoader):
        return loader.sampler.size
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return None
    if type(loader.batch_sampler) is not BatchSampler or not isinstance(loader.sampler, Sized):
        return None
    n, size = len(loader.sampler), loader.batch_sampler.batch_size
    return n - n % size if loader.drop_last else n
