"""Base classes of the DataModules. A batch depends only on (seed, epoch, positions in the data set)."""

__all__ = ["ResumableDataModule", "Split", "SyntheticDataModule"]

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, get_args

import lightning as L
from torch import Tensor, nn

from lightning_ssl_geometry import checks
from lightning_ssl_geometry.checks import one_of
from lightning_ssl_geometry.data.loader import BatchLoader, BatchSource, GlobalBatchSampler
from lightning_ssl_geometry.deprecation import deprecated
from lightning_ssl_geometry.either_lightning import package_of

Split = Literal["train", "val", "test"]


class ResumableDataModule(L.LightningDataModule, ABC):
    """Base class of DataModules that can resume training in mid-epoch, with exactly the same results.

    Args:
        batch_size: Samples per process, >= 1.
        seed: Seed of the order of the samples, and of a subclass's random numbers.
        saved: A module whose state is also saved in checkpoints. None: no module.
    """

    def __init__(self, batch_size: int, seed: int, saved: nn.Module | None = None) -> None:
        super().__init__()
        checks.integer(1, batch_size=batch_size)
        checks.seed(seed=seed)
        self.batch_size = batch_size
        self.seed = int(seed)
        self._saved = saved
        self._training: BatchLoader | None = None
        self._resumed: dict[str, int] | None = None

    @property
    def trainer(self) -> L.Trainer | None:
        """The Trainer. Raises a TypeError if it is set to a Trainer of the package `pytorch_lightning`."""
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: L.Trainer | None) -> None:
        if trainer is not None and (package := package_of(trainer)) != "lightning":
            raise TypeError(
                f"Expected a Trainer of `lightning` for {type(self).__name__}, but got one of "
                f"`{package.replace('-', '_')}`. Say `import lightning as L` and `L.Trainer(...)`."
            )
        self._trainer = trainer

    @abstractmethod
    def training_loader(self) -> BatchLoader:
        """Make the training loader."""

    def unaugmented_dataloader(self, split: Split) -> BatchLoader:
        """Make a loader that yields each sample of a split once, in order and without augmentation, as `image`.

        A subclass implements this method, and raises a ValueError for an unknown split.
        """
        raise NotImplementedError(f"Expected `{type(self).__name__}` to define `unaugmented_dataloader`.")

    def predict_dataloader(self) -> BatchLoader:
        """Make the loader of the test set without augmentation."""
        return self.unaugmented_dataloader("test")

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        names = {"clean_dataloader", "unaugmented_dataloader"}
        first = next(vars(kind) for kind in cls.__mro__ if names & vars(kind).keys())
        if "unaugmented_dataloader" not in first:  # a subclass, or a class that it mixes in, overrides the old name
            deprecated(f"`clean_dataloader` of `{cls.__name__}`", "the name `unaugmented_dataloader`")
            cls.unaugmented_dataloader = _renamed(first["clean_dataloader"])  # type: ignore[method-assign, assignment]

    def clean_dataloader(self, split: Split) -> BatchLoader:
        """Deprecated name of :meth:`unaugmented_dataloader`."""
        deprecated(f"`{type(self).__name__}.clean_dataloader`", "`unaugmented_dataloader`")
        kinds = type(self).__mro__
        # a subclass that overrides this method by its old name calls it as `super()`, and must not get itself
        old = [place for place, kind in enumerate(kinds) if "clean_dataloader" in vars(kind)][:-1]
        loaders = (vars(kind).get("unaugmented_dataloader") for kind in kinds[old[-1] + 1 if old else 0 :])
        return next(load for load in loaders if load and not hasattr(load, "renamed"))(self, split)

    def train_dataloader(self) -> BatchLoader:
        """Make the training loader. After a resume, it begins at the saved position."""
        self._training = self.training_loader()
        if self._resumed is not None:
            self._training.load_state_dict(self._resumed)
            self._resumed = None
        return self._training

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {} if self._training is None else {"training": self._training.state_dict()}
        return state if self._saved is None else state | {"saved": self._saved.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._saved is not None:
            self._saved.load_state_dict(state_dict["saved"])
        if self.trainer is not None and self.trainer.state.fn == "fit":
            self._resumed = state_dict.get("training")

    @property
    def _overfits(self) -> bool:
        return self.trainer is not None and self.trainer.overfit_batches > 0  # type: ignore[attr-defined]

    def _batches(self, source: BatchSource, size: int, shuffle: bool = False, drop_last: bool = False) -> BatchLoader:
        trainer = self.trainer
        world_size, rank = (1, 0) if trainer is None else (trainer.world_size, trainer.global_rank)
        order = {"shuffle": shuffle, "drop_last": drop_last}
        sampler = GlobalBatchSampler(size, self.batch_size, **order, seed=self.seed, world_size=world_size, rank=rank)
        if trainer is None:
            return BatchLoader(source, sampler)
        progress = trainer.fit_loop.epoch_loop.batch_progress
        return BatchLoader(source, sampler, lambda: progress.current.processed)  # type: ignore[attr-defined]


def _renamed(old: Callable[[Any, Split], BatchLoader]) -> Callable[[Any, Split], BatchLoader]:
    def unaugmented_dataloader(self: Any, split: Split) -> BatchLoader:
        return old(self, split)

    unaugmented_dataloader.renamed = True  # type: ignore[attr-defined]
    return unaugmented_dataloader


class SyntheticDataModule(ResumableDataModule):
    """Base class of DataModules whose samples are computed on the training device, in `on_after_batch_transfer`.

    A loader yields batches without samples. They have `index` (the positions in a split), `split`, `epoch` and `clean`.
    If `clean` is true, the samples get no augmentation.
    """

    @abstractmethod
    def size(self, split: Split) -> int:
        """Return the number of samples in a split."""

    def val_dataloader(self) -> BatchLoader | list[BatchLoader]:
        """Make the validation loader. If the validation set is empty, return []."""
        return self.unaugmented_dataloader("val") if self.size("val") else []

    def test_dataloader(self) -> BatchLoader:
        return self.unaugmented_dataloader("test")

    def unaugmented_dataloader(self, split: Split) -> BatchLoader:
        """Make a loader of a split without augmentation. For "train", the samples are those of the first epoch."""
        one_of(get_args(Split), split=split)
        return self._batches(_Positions(split, clean=True), self.size(split))

    def training_loader(self) -> BatchLoader:
        """Make the training loader. Every epoch has new samples, except with the Trainer's `overfit_batches`."""
        return self._batches(_Positions("train", clean=False), self.size("train"), drop_last=True)


class _Positions:
    def __init__(self, split: Split, clean: bool) -> None:
        self.kind = {"split": split, "clean": clean}

    def __getitem__(self, positions: Tensor) -> dict[str, Any]:
        return {"index": positions} | self.kind
