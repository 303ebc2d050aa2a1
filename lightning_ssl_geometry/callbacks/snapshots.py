"""EmbeddingSnapshots: saves the embeddings of the validation set at chosen training steps."""

__all__ = ["EmbeddingSnapshots"]

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Unpack

import lightning as L
import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.utils.data import RandomSampler

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.callbacks.calibration import calibrated
from lightning_ssl_geometry.callbacks.loaders import on_device, one_pass, validation_loader
from lightning_ssl_geometry.callbacks.run_callback import RunCallback, now, run_files, starts_anew
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.observe.host import Host, HostSettings, Observer, one_host
from lightning_ssl_geometry.observe.padding import without_repeats
from lightning_ssl_geometry.observe.undisturbed import undisturbed
from lightning_ssl_geometry.recording.run_files import RunFiles
from lightning_ssl_geometry.settings import passed_on

_FILE = "embeddings.npz"


class EmbeddingSnapshots(RunCallback):
    """Save the embeddings z of the whole validation set at chosen training steps.

    The validation set passes through the module in eval mode. Before the first step, new batch norms get statistics of
    training batches (:func:`calibrated`). The training does not change. The file `embeddings.npz` in the run's folder
    has `iteration` (K,), `z` (K, n, P) in float32, `index` (n,) and, if known, `label` (n,). K is the number of saved
    iterations, n the number of samples, and P the dimension of z. The samples are sorted by `index`. If the module
    returns `z_image`, the embeddings of the unaugmented samples, these are saved. Otherwise, the embeddings of the
    first views are saved. Checkpoints hold the embeddings so far. At the end of training, a warning names the
    iterations without embeddings.

    Args:
        iterations: Numbers of optimizer steps after which the embeddings are saved. 0 means before the first step.
        host: For a model of another package: a :class:`Host`, which says where z and the views are. Callbacks may share
            it.
        **places: `taps`, `view_layout`, `batch_keys` and `augment` of :class:`Host`, in place of `host`.

    Attributes:
        kept: Iteration -> {"z": (n, P), "index": (n,), "label": (n,)}.

    Raises:
        ValueError: If `iterations` is empty, or has a negative number or a duplicate. In training, if there is no
            validation set, if it is shuffled and has no index, or if the module returns no z.
    """

    @by_position("taps", "view_layout", "batch_keys", "augment")
    @passed_on
    def __init__(self, iterations: Sequence[int], *, host: Host | None = None, **places: Unpack[HostSettings]) -> None:
        super().__init__()
        wanted = sorted(iterations)
        if not wanted or wanted[0] < 0 or len(set(wanted)) < len(wanted):
            raise ValueError(f"Expected `iterations` >= 0, each once and at least one, but got {list(iterations)}.")
        self.iterations = wanted
        self.observer = Observer(one_host(host, Host(**places)), one_view=True)
        self.kept: dict[int, dict[str, Tensor]] = {}

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if starts_anew(trainer, stage):
            self.kept = {}
        self.observer.attach(pl_module, trainer.precision_plugin)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.observer.detach()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        super().on_exception(trainer, pl_module, exception=exception)
        self.observer.detach()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self.refuse(trainer, _FILE)
        done = trainer.global_step
        self.kept = {step: kept for step, kept in self.kept.items() if done and step <= done}
        self._keep(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        super().on_train_batch_end(trainer, pl_module, outputs, batch=batch, batch_idx=batch_idx)
        self._keep(trainer, pl_module)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if missed := [step for step in self.iterations if step not in self.kept]:
            done = trainer.global_step
            rank_zero_warn(f"Training ended after {done} iterations: no embeddings are kept of {missed}.")

    def state_dict(self) -> dict[str, Any]:
        return {"kept": self.kept}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.fits:
            self.kept = state_dict["kept"]

    def _keep(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        step = trainer.global_step
        if step not in self.iterations or step in self.kept:
            return
        before = nullcontext() if step else calibrated(trainer, pl_module)
        with before, undisturbed(pl_module):
            self.kept[step] = self._look(trainer, pl_module)
        if (files := run_files(trainer)).writes:  # without a folder, the embeddings are only in `kept`
            _write(files, self.kept)

    def _look(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, Tensor]:
        loader = validation_loader(trainer)
        if loader is None:
            raise ValueError("Expected a validation set for EmbeddingSnapshots, but the Trainer has none.")
        self.observer.restart("probe")
        parts: dict[str, list[Tensor]] = {}
        for place, batch in enumerate(one_pass(loader)):
            looked = self.observer.look(pl_module, on_device(batch, trainer), now(trainer), stage="probe")
            if "z" not in looked:
                raise ValueError("Expected a module that returns `z` for EmbeddingSnapshots, but it does not.")
            if self.observer.numbered and isinstance(getattr(loader, "sampler", None), RandomSampler):
                raise ValueError(
                    "Expected an index of the samples for EmbeddingSnapshots, since the validation loader shuffles "
                    "them: name it in `batch_keys`, such as {'index': 2}, or use `shuffle=False`."
                )
            if (observation := without_repeats(looked, loader, place)) is None:
                continue
            observation["z"] = observation.get("z_image", observation["z"][0])
            for name in {"z", "index", "label"} & observation.keys():
                parts.setdefault(name, []).append(observation[name])
        found = distributed.gather_rows({name: torch.cat(values) for name, values in parts.items()}, pl_module.device)
        if not found:
            raise ValueError("Expected batches in the validation set for EmbeddingSnapshots, but no process had one.")
        order = found["index"].argsort(stable=True)
        return {name: value[order].cpu() for name, value in found.items()}


def _write(files: RunFiles, kept: dict[int, dict[str, Tensor]]) -> None:
    steps = sorted(kept)
    last = kept[steps[-1]]
    arrays = {"iteration": np.array(steps), "z": torch.stack([kept[step]["z"] for step in steps]).float().numpy()}
    arrays |= {name: last[name].numpy() for name in ("index", "label") if name in last}
    with files.replacing(_FILE) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
