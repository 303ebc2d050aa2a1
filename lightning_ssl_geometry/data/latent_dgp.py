"""LatentDGPDataModule: a data-generating process x = g(z) with known latents, drawn anew in every step."""

__all__ = ["LatentDGPDataModule"]

from itertools import chain
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.data.base import Split
from lightning_ssl_geometry.data.invertible_mlp import InvertibleMLP
from lightning_ssl_geometry.data.latent_process import Conditional, LatentProcess, Marginal, Space
from lightning_ssl_geometry.data.loader import BatchLoader
from lightning_ssl_geometry.data.resumable import ResumableDataModule, check_training_size
from lightning_ssl_geometry.random import counter_hash
from lightning_ssl_geometry.types import Batch


class LatentDGPDataModule(ResumableDataModule):
    """Pairs of observations of anchors and positives whose latents are known, some content and the rest style.

    Batches have `views` (x, x~), `latent` (2, N, d), `content` (d,) and `index`; those for validation and test also
    `image`, the anchors' observations x. Nothing is stored: latents are drawn on the training device as functions of
    (seed, split, epoch, index), so 1 and 2 processes train on the same global batches and a run resumes where it was.
    Validation and test sets are the same in every epoch, and so is training under `overfit_batches`. Observations are
    of the precision of the run, latents always in float32.

    Args:
        dim: d, as the next nine in :class:`LatentProcess`.
        content_dim: d_c: the first dimensions are content.
        space: "box", "sphere" or "unbounded".
        marginal: "uniform", "normal" or "laplace".
        marginal_scale: A number, or d of them.
        conditional: "normal", "laplace", "generalized_normal" or, on the sphere alone, "von_mises_fisher".
        style_scale: A number, or d_s = d - d_c of them.
        content_scale: A number, or d_c of them; 0: content is kept exactly.
        p: Shape of "generalized_normal".
        concentration: kappa of "von_mises_fisher".
        mixing: g, maps latents (N, d) to observations (N, D) in float32; it is frozen, all processes take over the
            first one's weights, and a checkpoint brings them back. None: `InvertibleMLP(dim, seed=seed)`.
        batch_size: Samples per process.
        epoch_size: Number of pairs in an epoch, in full batches.
        val_size: Number of pairs for validation; 0: none.
        test_size: Number of pairs for testing.
        seed: Of latents and, where none is given, mixing.

    Attributes:
        process: The law of the latents.
        mixing: g; the default one has `inverse`.

    Raises:
        ValueError: If an argument is out of range, or `mixing` does not map a latent (1, d) to (1, D).

    >>> data = LatentDGPDataModule(dim=4, content_dim=2, mixing=InvertibleMLP(4, candidates=100), batch_size=8)
    >>> batch = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
    >>> z, z_positive = batch["latent"]
    >>> (z == z_positive).all(0).tolist()
    [True, True, False, False]
    >>> torch.allclose(data.invertible_mlp.inverse(batch["views"][1]), z_positive, atol=1e-5)
    True
    """

    def __init__(
        self,
        dim: int = 10,
        content_dim: int = 5,
        space: Space = "box",
        marginal: Marginal = "uniform",
        marginal_scale: float | list[float] = 1.0,
        conditional: Conditional = "normal",
        style_scale: float | list[float] = 0.05,
        content_scale: float | list[float] = 0.0,
        p: float = 3.0,
        concentration: float = 400.0,
        mixing: nn.Module | None = None,
        batch_size: int = 1024,
        epoch_size: int = 102_400,
        val_size: int = 4096,
        test_size: int = 4096,
        seed: int = 0,
    ) -> None:
        latent = (space, marginal, marginal_scale, conditional, style_scale, content_scale, p, concentration)
        self.process = LatentProcess(dim, content_dim, *latent)
        for name, size in {"epoch_size": epoch_size, "val_size": val_size, "test_size": test_size}.items():
            if size < (least := int(name != "val_size")):
                raise ValueError(f"Expected `{name}` >= {least}, but got {size}.")
        if epoch_size < batch_size:
            raise ValueError(f"Expected `epoch_size` of at least one batch of {batch_size}, but got {epoch_size}.")
        mixing = InvertibleMLP(dim, seed=seed) if mixing is None else mixing
        super().__init__(batch_size, seed, saved=mixing)
        self.dim = dim
        self.content_dim = content_dim
        self.mixing = mixing.float().eval().requires_grad_(False)
        _check_mixing(self.mixing, dim)
        self.epoch_size = epoch_size
        self.val_size = val_size
        self.test_size = test_size

    def setup(self, stage: str) -> None:
        """Give all processes the first one's mixing: each has made its own, by random numbers that may differ.

        Raises:
            ValueError: If an epoch has one pair.
        """
        check_training_size(self.epoch_size)
        if self.trainer is not None and self.trainer.world_size > 1:
            state = self.mixing.cpu().state_dict()
            self.mixing.load_state_dict(self.trainer.strategy.broadcast(state))

    def training_loader(self) -> BatchLoader:
        """Batches that were never seen before; the same in every epoch under `overfit_batches`."""
        return self._batches(_Positions("train"), self.epoch_size, drop_last=True)

    def val_dataloader(self) -> BatchLoader | list[BatchLoader]:
        """Batches of the validation set, each pair once; nothing with `val_size=0`."""
        return self.unaugmented_dataloader("val") if self.val_size else []

    def test_dataloader(self) -> BatchLoader:
        """Batches of the test set, each pair once."""
        return self.unaugmented_dataloader("test")

    def predict_dataloader(self) -> BatchLoader:
        """Batches of the test set."""
        return self.unaugmented_dataloader("test")

    def unaugmented_dataloader(self, split: Split) -> BatchLoader:
        """Batches of a split with `image`, each pair once; those of "train" are the ones of its first epoch.

        Raises:
            ValueError: If there is no such split.
        """
        sizes = {"train": self.epoch_size, "val": self.val_size, "test": self.test_size}
        if split not in sizes:
            raise ValueError(f"Expected `split` to be one of {get_args(Split)}, but got {split!r}.")
        return self._batches(_Positions(split, clean=True), sizes[split])

    def on_after_batch_transfer(self, batch: dict[str, Any], dataloader_idx: int) -> Batch:
        """Draw latents and mix them, on the device of the indices."""
        index, split, clean = batch["index"], batch["split"], batch["clean"]
        epoch = 0 if clean or self._overfits else batch["epoch"]
        home = torch.device("cpu") if index.device.type == "mps" else index.device  # that one has no float64
        key = counter_hash(self.seed, get_args(Split).index(split), epoch, index.to(home))
        latent = self.process.sample(key)
        views = tuple(view.to(index.device) for view in self._observe(latent))
        content = self.process.content.to(index.device)
        made: Batch = {"views": views, "latent": latent.to(index.device), "content": content, "index": index}
        if clean:
            made["image"] = views[0]
        return made

    @torch.no_grad()
    def _observe(self, latent: Tensor) -> tuple[Tensor, ...]:
        """Mix latents (2, N, d) in float32 into two tensors (N, D) of the precision of the run."""
        with torch.autocast(latent.device.type, enabled=False):
            views = tuple(self.mixing.to(latent.device)(latent.flatten(0, 1)).chunk(2))
        converted = views if self.trainer is None else self.trainer.precision_plugin.convert_input(views)
        return cast(tuple[Tensor, ...], converted)


@torch.no_grad()
def _check_mixing(mixing: nn.Module, dim: int) -> None:
    """Push one zero latent through g."""
    expected = f"Expected `mixing` to map latents (N, d = {dim}) to (N, D), but got"
    device = next(chain(mixing.parameters(), mixing.buffers()), torch.empty(0)).device
    try:
        x = mixing(torch.zeros(1, dim, dtype=torch.float32, device=device))
    except Exception as error:  # it is anybody's module
        raise ValueError(f"{expected} {error!r}.") from error
    if not isinstance(x, Tensor):
        raise ValueError(f"{expected} a {type(x).__name__}.")
    if x.ndim != 2 or len(x) != 1:
        raise ValueError(f"{expected} {tuple(x.shape)} from (1, {dim}).")


class _Positions:
    """The positions themselves: what is there is made from them on the device."""

    def __init__(self, split: Split, clean: bool = False) -> None:
        self.kind = {"split": split, "clean": clean}

    def __getitem__(self, positions: Tensor) -> dict[str, Any]:
        return {"index": positions} | self.kind
