"""GeometryLoop: computes diagnostics in a training loop of one's own, without Lightning's Trainer."""

__all__ = ["GeometryLoop"]

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import torch
from lightning.fabric.utilities import move_data_to_device
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_ssl_geometry import checks, distributed
from lightning_ssl_geometry.checks import one_of
from lightning_ssl_geometry.manifest import Declared
from lightning_ssl_geometry.measuring.failures import Failures, OnError
from lightning_ssl_geometry.measuring.filling import Filling
from lightning_ssl_geometry.measuring.measurements import Measurements, refuse_misspelt
from lightning_ssl_geometry.measuring.run_folder import RunFolder
from lightning_ssl_geometry.observe.feed import space_in
from lightning_ssl_geometry.observe.host import Host, HostSettings, Observer, one_host
from lightning_ssl_geometry.observe.moment import Moment
from lightning_ssl_geometry.observe.undisturbed import undisturbed
from lightning_ssl_geometry.recording.run_record import RunRecord, described
from lightning_ssl_geometry.settings import passed_on

_STAGES = ("train", "val", "test")
_WRAPPERS = (nn.parallel.DistributedDataParallel, nn.DataParallel)


class GeometryLoop:
    """Compute diagnostics of a model in any PyTorch training loop. On one machine, they change no bit of the training.

    The loop marks its steps, and asks for the results::

        geometry = GeometryLoop(model, "runs/mine", taps={"h": "backbone", "z": "head"}, batch_keys={"label": 1})
        for epoch in range(10):
            for batch in loader:
                with geometry.step(batch):
                    loss = ...  # the model's forward passes
                ...  # backward pass, optimizer
            print(geometry.read_out({"train/loss": loss.item()}))
        geometry.close()

    Each run gets a new folder `version_*`. The folder has the files that a run of Lightning's Trainer with
    :class:`lightning_ssl_geometry.callbacks.GeometryMonitor` and RunReport has: the scalars in `metrics.csv`, vectors
    and larger arrays in `geometry`, `run.json`, and the page `report.html`. The object is a context manager, too: `with
    GeometryLoop(...) as geometry:` calls :meth:`close` at the end, and records an error. In a run of
    `torch.distributed`, every process makes one object, and all processes call :meth:`read_out` and :meth:`close`
    together. Their first call of any method waits for all of them, because rank 0 makes the folder.

    Args:
        model: The model. The module inside of DistributedDataParallel is observed.
        folder: Folder of the runs. A relative path begins at the working directory of this call. None: no file is
            written.
        diagnostics: Name -> Metric. None: the standard set, as far as it applies to the model's projector.
        rename: Name of a diagnostic -> {argument of its `update`: name of the tensor}, such as {"effective_rank_z":
            {"h": "z"}}.
        every_n_steps: Observe every n-th step of the stage "train" between two readouts, including the first. None:
            observe until there are max(4 D, 1,024) rows, then every 50th step. A row is one view of one sample.
        name: Part of all logged names: `{stage}/{name}/{diagnostic}`.
        on_error: What happens if a diagnostic fails, or if h or z is not finite. "warn": the result is NaN, with a
            warning. "raise": the error is raised. An error before the first successful step of a stage is always
            raised.
        page: Write the page when the run ends.
        table: Print a table of the results when the run ends.
        about: Further entries for `run.json`, such as {"data": "digits"}.
        host: Where h, z, labels and views are: a :class:`lightning_ssl_geometry.callbacks.Host`. A batch that is a
            dict needs no `batch_keys` for its keys "label" and "index". Without `taps`, the loop hands over h and z
            itself: see :meth:`step`. A diagnostic that needs more than the steps of a stage show is left out of this
            stage, with a warning.
        **places: `taps`, `view_layout`, `batch_keys` and `augment` of Host, in place of `host`.

    Raises:
        ValueError: If an argument is out of range, `folder` cannot be a folder, `host` is given beside one of
            `places`, or `taps` names no submodule. In :meth:`step`, if a diagnostic lacks a tensor, or a submodule in
            `taps` was not called.
    """

    @passed_on
    def __init__(
        self,
        model: nn.Module,
        folder: str | Path | None = "runs/loop",
        diagnostics: dict[str, Metric] | None = None,
        rename: dict[str, dict[str, str]] | None = None,
        every_n_steps: int | None = None,
        *,
        name: str | None = None,
        on_error: OnError = "warn",
        page: bool = True,
        table: bool = True,
        about: Mapping[str, str | int | float | None] | None = None,
        host: Host | None = None,
        **places: Unpack[HostSettings],
    ) -> None:
        self.model = _unwrapped(model)
        self.name = name
        self.observer = Observer(one_host(host, Host(**places)), one_view=True, names=("label", "index"))
        self.failures = Failures(on_error)
        self.filling = Filling(every_n_steps)
        self.measurements = Measurements(
            self,
            self.observer,
            self.failures,
            diagnostics=diagnostics,
            rename=rename or {},
            stages=_STAGES,
            name=name,
        )
        self.measurements.apply_to(self.model, self.observer.taps.taps if self.observer.taps else ("h", "z"))
        refuse_misspelt([self.measurements])
        self.observer.attach(self.model)
        self._run = RunFolder(folder)
        self._record = RunRecord(self._run.files, page=page, table=table)
        self._about = dict(about or {})
        self._begun: set[str] = set()  # stages with a step since the latest readout
        self._batches = 0
        self._epoch, self._step, self._from_step = 0, 0, 0
        self._read: tuple[set[int], int] = set(), 0  # epochs of the readouts at a step of metrics.csv
        self._closed = self._inside = False

    @property
    def title(self) -> str:
        """Name of this object in messages."""
        return "GeometryLoop" + (f" {self.name!r}" if self.name else "")

    @property
    def folder(self) -> Path | None:
        """Folder of this run. None before the first step, or if no file is written."""
        return self._run.files.folder

    @contextmanager
    def step(self, batch: Any = None, stage: str = "train") -> Iterator[dict[str, Any]]:
        """Observe the forward passes of one step, inside this block.

        The block gets a dict. Tensors that the block puts into it are observed, too, such as "h" (V, N, D) and "z"
        (V, N, P) of V views of N samples. This is needed only for tensors that neither `taps` nor `batch_keys` finds.
        Labels on another device than h are moved.

        Args:
            batch: The batch, if `batch_keys` names parts of it.
            stage: "train", "val" or "test".
        """
        self._refuse_inside("step")
        self._begin(stage)
        given: dict[str, Any] = {}
        wanted = stage != "train" or self.filling.wants(self._batches)
        if wanted:
            self.observer.open()
        self._inside = True
        try:
            yield given
        except BaseException:
            self.observer.cancel()
            raise
        finally:
            self._inside = False
        if wanted:
            with self.failures.caught(self._moment, self.title, stage):
                self._see(stage, self._observation(given, batch, stage))
        if stage == "train":
            self._step += 1
            self._batches += 1

    def look(self, batches: Iterable[Any], stage: str = "val") -> None:
        """Pass the views of batches through the model in eval mode, without gradients, and observe them.

        The views are those that `batch_keys` names, or those that `augment` makes. The model's modes and the random
        state do not change.

        Args:
            batches: Batches of held-out samples, such as a DataLoader. They are moved to the model's device.
            stage: "val" or "test".
        """
        one_of(_STAGES[1:], stage=stage)
        self._refuse_inside("look")
        self._begin(stage)
        with undisturbed(self.model):
            for batch in batches:
                with self.failures.caught(self._moment, self.title, stage):
                    held = move_data_to_device(batch, self._device)
                    self._see(stage, self.observer.look(self.model, held, self._moment, stage=stage))

    def read_out(self, scalars: Mapping[str, float] | None = None, epoch: int | None = None) -> dict[str, float]:
        """Compute the diagnostics of the steps since the latest readout, on all processes together, and reset them.

        Args:
            scalars: Further scalars for `metrics.csv`, such as {"train/loss": 0.7}. Rank 0 writes its own. A
                ValueError is raised if a value is no number, a diagnostic has the same name, or a name is "epoch" or
                "step". The steps then wait for the next readout.
            epoch: Number of the epoch, from 0. None: the number of earlier readouts.

        Returns:
            The scalars by name, such as "train/effective_rank_h", with `scalars`.
        """
        self._refuse_inside("read_out")
        if epoch is not None:
            checks.integer(0, epoch=epoch)
        checks.scalars(scalars={} if scalars is None else scalars)
        own = {name: float(value) for name, value in (scalars or {}).items()}
        _refuse_taken(own, {*self.measurements.declared(), "epoch", "step"})
        self._start()
        self._epoch = self._epoch if epoch is None else epoch
        found: dict[str, float] = {}
        for stage in self._stages_of_all():
            self._begin(stage)
            with self.failures.keeping():  # what others have computed is written first
                results = self.measurements.read_out(stage, self._moment, self._device)
            found |= {name: value.item() for name, value in results.items()}
        self._run.log(own | found | {"epoch": self._epoch}, self._row_step)
        self._read = self._read_here | {self._epoch}, self._row_step
        self._begun, self._batches = set(), 0
        self._epoch += 1
        self.failures.raise_pending()
        _refuse_taken(own, found)  # by a result that no diagnostic declares: all results are written
        return own | found

    def close(self, error: BaseException | None = None) -> None:
        """End the run: write `run.json` and the page, print the table, and remove the hooks.

        If the run ended by an exception, it is given as `error`, and `run.json` records it. Steps after the latest
        readout are not read out.
        """
        self.observer.detach()
        if self._closed:
            return
        self._closed = True
        if self._record.entries:
            status = "finished" if error is None else "failed"
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else status
            self._record.end(status, self._done, error)
            if self._record.has_results:
                self._record.show()

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: plain numbers and strings. A run that loads it continues this folder.

        The state has no tensors of steps: what was observed since the latest readout is not in it.
        """
        return {"epoch": self._epoch, "step": self._step, "read": sorted(self._read_here)} | self._run.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the run that saved `state`, before the first step.

        Readouts that this run wrote after the checkpoint move to a folder `superseded-*` in the run's folder. If the
        folder is gone, the run gets a new one, with a warning. A ValueError is raised after the first step, or if
        :meth:`state_dict` did not return `state`.
        """
        if self._record.entries:
            raise ValueError(f"Expected `load_state_dict` before the first step, but got it at {self._moment}.")
        _refuse_foreign(state)
        self._epoch, self._step = int(state["epoch"]), int(state["step"])
        self._from_step = self._step
        self._read = set(state.get("read", ())), self._row_step
        self._run.resume(state)

    def check(self, entries: Mapping[str, Declared | None]) -> None:
        """Raise a ValueError if a name in `entries` has another description in this run."""
        self._run.quantities.check(self, entries)

    def declare(self, entries: Mapping[str, Declared]) -> None:
        """Add descriptions of logged names to `quantities.json`."""
        self._run.quantities.declare({self: entries})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(error)

    @property
    def _moment(self) -> Moment:
        return Moment(self._epoch, self._step)

    @property
    def _row_step(self) -> int:
        """The step of a row of metrics.csv: the number of the latest step, as the Trainer counts."""
        return max(self._step - 1, 0)

    @property
    def _read_here(self) -> set[int]:
        epochs, at = self._read
        return epochs if at == self._row_step else set()

    @property
    def _device(self) -> torch.device:
        return next((each.device for each in self.model.parameters()), torch.device("cpu"))

    @property
    def _done(self) -> dict[str, int]:
        begun = {"from_step": self._from_step} if self._from_step else {}
        return begun | {"epochs": self._epoch, "steps": self._step}

    def _refuse_inside(self, call: str) -> None:
        if self._inside:
            raise ValueError(f"Expected `{call}` after the block of `step`, but got it inside. Leave the block first.")

    def _start(self) -> None:
        if self._closed:
            raise ValueError("Expected steps before `close`, but got one after it. Make another GeometryLoop.")
        if self._record.entries:
            return
        self._run.open()
        self.measurements.start(self._run.arrays)
        found = described(self.model)
        machine = found["machine"] | {"device": str(self._device)}
        own = {"kind": "fit", "world_size": distributed.world_size(), "machine": machine}
        self._record.begin(found | own | self._about, self._done)

    def _begin(self, stage: str) -> None:
        one_of(_STAGES, stage=stage)
        self._start()
        if stage in self._begun:
            return
        self._begun.add(stage)
        self.observer.restart(stage)
        self.failures.begin(stage)
        self.measurements.begin(stage, self._device)
        if stage == "train":
            self.filling.restart()

    def _observation(self, given: dict[str, Any], batch: Any, stage: str) -> dict[str, Any]:
        if self.observer.augment is None:
            return _on_one_device(self.observer.close(given, batch, self._moment, stage=stage))
        self.observer.cancel()
        with undisturbed(self.model):
            return self.observer.look(self.model, batch, self._moment, stage=stage) | given

    def _see(self, stage: str, observation: dict[str, Any]) -> None:
        if stage == "train":
            self.filling.saw(observation)
        self.measurements.see(stage, self._moment, observation)

    def _stages_of_all(self) -> list[str]:
        own = torch.tensor([[int(stage in self._begun) for stage in _STAGES]], device=self._device)
        anywhere = distributed.gather(own).any(0).tolist()
        return [stage for stage, begun in zip(_STAGES, anywhere, strict=True) if begun]


def _refuse_taken(own: Mapping[str, float], logged: Iterable[str]) -> None:
    if taken := sorted(own.keys() & set(logged)):
        raise ValueError(
            f"Expected `scalars` of names that are not logged already, but got {taken[0]!r}. Give it another name."
        )


def _refuse_foreign(state: Any) -> None:
    wanted: dict[str, type] = {"epoch": int, "step": int}
    if isinstance(state, Mapping) and "folder" in state:
        wanted |= {"run": str, "folder": str, "files": list}
    held = state if isinstance(state, Mapping) else {}
    wrong = [name for name, kind in wanted.items() if not isinstance(held.get(name), kind)]
    if not wrong and "folder" in held and not all(isinstance(name, str) for name in held["files"]):
        wrong = ["files"]
    if not wrong and not all(isinstance(epoch, int) for epoch in held.get("read", ())):
        wrong = ["read"]
    if wrong or min(held["epoch"], held["step"]) < 0:
        got = f"{wrong[0]!r} is {held.get(wrong[0])!r}" if wrong and held else f"it is {state!r}"
        raise ValueError(f"Expected `state` to be what `state_dict` of a GeometryLoop returned, but {got:.200}.")


def _on_one_device(observation: dict[str, Any]) -> dict[str, Any]:
    space = space_in(observation)
    if space is None:
        return observation
    return {name: each.to(space.device) if isinstance(each, Tensor) else each for name, each in observation.items()}


def _unwrapped(model: nn.Module) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise ValueError(f"Expected `model` to be a torch.nn.Module, but got a {type(model).__name__}.")
    while isinstance(model, _WRAPPERS):
        model = model.module
    return model
