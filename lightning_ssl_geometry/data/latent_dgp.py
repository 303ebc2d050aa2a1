"""LatentDGPDataModule: observations x = g(z) of known latents z, drawn anew in every step."""

__all__ = ["LatentDGPDataModule"]

from itertools import chain
from typing import Any, Unpack, cast, get_args

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import at_least, integer
from lightning_ssl_geometry.data.invertible_mlp import InvertibleMLP
from lightning_ssl_geometry.data.latent_process import LatentProcess, LatentSettings
from lightning_ssl_geometry.data.resumable import Split, SyntheticDataModule
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.precision import float64_device
from lightning_ssl_geometry.random import counter_hash
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import Batch


class LatentDGPDataModule(SyntheticDataModule):
    """Pairs of observations x = g(z) and x~ = g(z~) of known latents z and z~.

    The first `content_dim` dimensions of a latent are its content, and the others are its style. z~ has the content of
    z, but another style. The `views` of a batch are x and x~. Its `latent` (2, N, d) holds z and z~ of N pairs. Its
    `content` (d,) is true for content dimensions. It also has `index`, and in validation and test `image`, which is x.
    Observations have the precision of the Trainer. Latents are float32.

    Latents depend only on (seed, split, epoch, index). Validation and test sets are the same in every epoch. With the
    Trainer's `overfit_batches`, this also holds for the training set.

    Args:
        dim: d, dimension of the latents.
        content_dim: d_c, the number of content dimensions.
        mixing: g, a network that maps latents (N, d) to observations (N, D) in float32. It is not trained, and is saved
            in checkpoints. All processes use the weights of the first process. None: `InvertibleMLP(dim, seed=seed)`.
        batch_size: Samples per process.
        epoch_size: Number of pairs in an epoch. The last pairs are left out if they do not fill a batch.
        val_size: Number of pairs for validation. 0: no validation.
        test_size: Number of pairs for testing.
        seed: Seed of the latents and of the default mixing.
        **latent: Arguments of :class:`LatentProcess`: `space`, `marginal`, `marginal_scale`, `conditional`,
            `style_scale`, `content_scale`, `p`, `concentration`, `norm_tolerance`.

    Attributes:
        process: The :class:`LatentProcess`.
        mixing: g. The default network has the method `inverse`.

    Raises:
        ValueError: If an argument is out of range, or `mixing` does not map (1, d) to (1, D). `setup` raises it if an
            epoch has only one pair, because there are then no negatives.
    """

    @by_position(
        *("space", "marginal", "marginal_scale", "conditional", "style_scale", "content_scale", "p", "concentration"),
        *("mixing", "batch_size", "epoch_size", "val_size", "test_size", "seed"),
    )
    @passed_on
    def __init__(
        self,
        dim: int = 10,
        content_dim: int = 5,
        *,
        mixing: nn.Module | None = None,
        batch_size: int = 1024,
        epoch_size: int = 102_400,
        val_size: int = 4096,
        test_size: int = 4096,
        seed: int = 0,
        **latent: Unpack[LatentSettings],
    ) -> None:
        self.process = LatentProcess(dim=dim, content_dim=content_dim, **latent)
        integer(1, epoch_size=epoch_size, test_size=test_size)
        integer(0, val_size=val_size)
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

    def size(self, split: Split) -> int:
        return {"train": self.epoch_size, "val": self.val_size, "test": self.test_size}[split]

    def setup(self, stage: str) -> None:
        """Copy the weights of `mixing` from the first process to the others."""
        at_least(2, epoch_size=self.epoch_size)
        # The weights may have been drawn at random.
        if self.trainer is not None and self.trainer.world_size > 1:
            state = self.mixing.cpu().state_dict()
            self.mixing.load_state_dict(self.trainer.strategy.broadcast(state))

    def on_after_batch_transfer(self, batch: dict[str, Any], dataloader_idx: int) -> Batch:
        index, split, clean = batch["index"], batch["split"], batch["clean"]
        epoch = 0 if clean or self._overfits else batch["epoch"]
        home = float64_device(index.device)
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
        with torch.autocast(latent.device.type, enabled=False):
            views = tuple(self.mixing.to(latent.device)(latent.flatten(0, 1)).chunk(2))
        converted = views if self.trainer is None else self.trainer.precision_plugin.convert_input(views)
        return cast(tuple[Tensor, ...], converted)


@torch.no_grad()
def _check_mixing(mixing: nn.Module, dim: int) -> None:
    expected = f"Expected `mixing` to map latents (N, d = {dim}) to (N, D), but got"
    device = next(chain(mixing.parameters(), mixing.buffers()), torch.empty(0)).device
    try:
        x = mixing(torch.zeros(1, dim, dtype=torch.float32, device=device))
    except Exception as error:  # a user's module may raise anything
        raise ValueError(f"{expected} {error!r}.") from error
    if not isinstance(x, Tensor):
        raise ValueError(f"{expected} a {type(x).__name__}.")
    if x.ndim != 2 or len(x) != 1:
        raise ValueError(f"{expected} {tuple(x.shape)} from (1, {dim}).")
