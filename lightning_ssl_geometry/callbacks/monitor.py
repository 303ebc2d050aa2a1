"""GeometryMonitor: computes diagnostics of a model during training."""

__all__ = ["GeometryMonitor", "Stage"]

from collections.abc import Sequence
from typing import Any, Unpack, get_args

import lightning as L
from torch import Tensor
from torchmetrics import Metric

from lightning_ssl_geometry.callbacks.calibration import calibrated
from lightning_ssl_geometry.callbacks.loaders import on_device, one_pass, spread_batches, validation_loader
from lightning_ssl_geometry.callbacks.loops import Stage
from lightning_ssl_geometry.callbacks.order import callbacks_of
from lightning_ssl_geometry.callbacks.run_callback import now, run_files
from lightning_ssl_geometry.callbacks.stage import StageCallback
from lightning_ssl_geometry.checks import at_least, one_of
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.measuring.failures import OnError
from lightning_ssl_geometry.measuring.filling import Filling
from lightning_ssl_geometry.measuring.measurements import Measurements, refuse_misspelt
from lightning_ssl_geometry.measuring.readout import Seen
from lightning_ssl_geometry.observe.host import Host, HostSettings, Observer, one_host
from lightning_ssl_geometry.observe.moment import Moment
from lightning_ssl_geometry.observe.padding import without_repeats
from lightning_ssl_geometry.observe.undisturbed import undisturbed
from lightning_ssl_geometry.recording.arrays import ArrayFiles
from lightning_ssl_geometry.settings import passed_on

_PROBED = "ssl_geometry_probed"  # entry of a checkpoint: the epochs done at the latest readout "probe" of each monitor


class GeometryMonitor(StageCallback):
    """Compute diagnostics of a model during training. On one machine, they change no bit of the training.

    A diagnostic is a torchmetrics Metric. The argument names of its `update` say which tensors of a step it gets.
    Examples are `label`, `index`, `projector`, and the representations `h` (V, N, D) and embeddings `z` (V, N, P) of V
    views of N samples. A scalar is logged as `{stage}/{name}`, or as `{stage}/{name}_{key}` if the Metric returns a
    dict. All other results are written to the folder `geometry` of the run. A vector is appended to
    `{stage}/{name}.csv`, or to `{stage}/{name}.npy` if it has more than 512 values. A larger array replaces
    `{stage}/{name}.npz`. `{stage}/rows_seen.csv` has the numbers of observed samples and views. `quantities.json`
    describes the results. Before the first step, one training and one validation batch are tried on a copy of the
    model, so that wrong settings fail early.

    Args:
        diagnostics: Name -> Metric. None: the standard set, as far as it applies to the model's projector.
        rename: Name of a diagnostic -> {argument of its `update`: name of the tensor}, such as {"effective_rank_z":
            {"h": "z"}}.
        stages: Where to observe. "train": training steps, with results at the end of each epoch. "val", "test": every
            batch of the validation or test. "probe": the same validation samples each time, in eval mode, before the
            first step (logged at step 0) and after epochs. Before the first step, new batch norms get statistics of
            training batches (:func:`calibrated`).
        every_n_steps: Observe every n-th training batch of an epoch, including the first. None: :class:`Filling`
            chooses n <= 50 such that an epoch has at least max(4 D, 1,024) rows, if possible. A row is one view of one
            sample. The rank of h cannot exceed the number of rows.
        probe_size: Number of "probe" samples per process, rounded up to whole batches. They are evenly spread over the
            validation set.
        probe_every_n_epochs: Observe "probe" after every n-th epoch, and after the last.
        name: Part of all logged names: `{stage}/{name}/{diagnostic}`. Monitors that share stages and diagnostics need
            different names.
        on_error: What happens if a diagnostic fails, or if h or z is not finite. "warn": the result is NaN, with a
            warning. "raise": the error ends a fit after the epoch's checkpoints are saved, and a validation or test at
            once. If a diagnostic fails before the first successful step of a stage, the error is always raised at once.
        host: For a model of another package: a :class:`Host`, which says where h, z, labels and views are. Callbacks
            may share it. The stage "probe" takes the views that `batch_keys` names, or else the images as the only
            view. If `augment` is given, all stages use its views. A diagnostic that needs more than the steps of a
            stage show is left out of this stage, with a warning.
        **places: `taps`, `view_layout`, `batch_keys` and `augment` of :class:`Host`, in place of `host`.

    Raises:
        ValueError: If `diagnostics` is not a dict of Metrics, `host` is given beside one of `places`, an argument is
            out of range, `rename` names an unknown argument, or a name has a path separator. Before training, if a
            diagnostic lacks an input, a submodule in `taps` does not exist or is never called, a name in `taps` or
            `batch_keys` is misspelt, shapes do not match, or a name is logged twice.
    """

    @by_position(
        "taps", "view_layout", "batch_keys", "probe_size", "probe_every_n_epochs", "augment", "name", "on_error"
    )
    @passed_on
    def __init__(
        self,
        diagnostics: dict[str, Metric] | None = None,
        rename: dict[str, dict[str, str]] | None = None,
        stages: Sequence[Stage] = ("train", "val", "test"),
        every_n_steps: int | None = None,
        *,
        probe_size: int = 1024,
        probe_every_n_epochs: int = 1,
        name: str | None = None,
        on_error: OnError = "warn",
        host: Host | None = None,
        **places: Unpack[HostSettings],
    ) -> None:
        super().__init__(Observer(one_host(host, Host(**places)), one_view=True), on_error)
        for stage in stages:
            one_of(get_args(Stage), stages=stage)
        at_least(1, probe_size=probe_size, probe_every_n_epochs=probe_every_n_epochs)
        self.name = name
        self.filling = Filling(every_n_steps)
        self.probe_size = probe_size
        self.probe_every_n_epochs = probe_every_n_epochs
        self.measurements = Measurements(
            self,
            self.observer,
            self.failures,
            diagnostics=diagnostics,
            rename=rename or {},
            stages=stages,
            name=name,
        )
        self._probe_loader: Any = None
        self._probed: int | None = None  # epochs done at the latest readout of "probe"; None: unknown
        # No two monitors of a Trainer share all of these.
        self._own = ", ".join([name or "", *stages, *(diagnostics or {})])

    @property
    def title(self) -> str:
        return "GeometryMonitor" + (f" {self.name!r}" if self.name else "")

    @property
    def seen(self) -> dict[str, Seen]:
        """Stage -> number of samples on all ranks and number of views, for the latest results."""
        return self.measurements.seen

    @property
    def every_n_steps(self) -> int | None:
        """The argument `every_n_steps`."""
        return self.filling.every_n_steps

    @every_n_steps.setter
    def every_n_steps(self, value: int | None) -> None:
        self.filling = Filling(value)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self._probe_loader = None
        self.measurements.start(ArrayFiles(run_files(trainer), trainer.loggers))
        self.measurements.apply_to(pl_module, self.observer.taps.taps if self.observer.taps else None)
        _refuse_twins(trainer)
        refuse_misspelt([monitor.measurements for monitor in callbacks_of(trainer, GeometryMonitor)])

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().teardown(trainer, pl_module, stage)
        self._probe_loader = None

    def start_clean(self) -> None:
        self.measurements.forget()
        self._probed = None

    # `state_dict` would ask for a name for each monitor, before two that share one are told apart by their diagnostics.
    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
        checkpoint.setdefault(_PROBED, {})[self._own] = self._probed

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(trainer, pl_module, checkpoint)
        if self.fits:
            self._probed = checkpoint.get(_PROBED, {}).get(self._own)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self.refuse(trainer, arrays=self.measurements.names())
        if self.watches("probe") and trainer.global_step == 0:
            with calibrated(trainer, pl_module):
                self._probe_between_epochs(trainer, pl_module, now(trainer))
            self._probed = 0
        self._catch_up(trainer, pl_module)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_epoch_end(trainer, pl_module)
        done = trainer.current_epoch + 1
        if self._probes_after(done, trainer):
            self._probe(trainer, pl_module, now(trainer))
            self.end("probe", trainer, pl_module)
            self._probed = done

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_fit_end(trainer, pl_module)
        self._catch_up(trainer, pl_module, last=self._epoch_ended is not None)
        self.failures.raise_pending()

    def watches(self, stage: str) -> bool:
        return self.measurements.watches(stage)

    def wants(self, stage: Stage, batch_idx: int) -> bool:
        return self.watches(stage) and (stage != "train" or self.filling.wants(batch_idx))

    def rehearse(self, observation: dict[str, Any], stage: str) -> set[str]:
        return self.measurements.trial(stage, observation)

    def begin(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if stage == "train":
            self.filling.begin(trainer.num_training_batches)
        self.measurements.begin(stage, pl_module.device)

    def see(self, stage: Stage, trainer: L.Trainer, observation: dict[str, Any], batch_idx: int) -> None:
        if stage == "train":
            self.filling.saw(observation)
        self.measurements.see(stage, now(trainer), observation)

    def end(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.judge(stage, trainer, self.log_results(stage, trainer, pl_module))

    def judge(self, stage: Stage, trainer: L.Trainer, results: dict[str, Tensor]) -> None:
        """React to the results of a stage of a fit: scalars by logged name."""

    def log_results(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, Tensor]:
        """Compute the results of a stage on all ranks, and log the scalars. Returns the scalars by logged name."""
        found = self.measurements.read_out(stage, now(trainer), pl_module.device)
        for name, value in found.items():
            pl_module.log(name, value.float(), batch_size=1)  # one value, which Lightning must not weigh by batches
        return found

    def _probes_after(self, done: int, trainer: L.Trainer) -> bool:
        return self.watches("probe") and (done % self.probe_every_n_epochs == 0 or done == trainer.max_epochs)

    def _catch_up(self, trainer: L.Trainer, pl_module: L.LightningModule, last: bool = False) -> None:
        # An exception in the readout after an epoch saves a checkpoint in which the epoch is done. `last`: the fit has
        # trained and ends here, which may not be `max_epochs`.
        done = trainer.current_epoch
        missing = self.watches("probe") and self._probed is not None and self._probed < done
        if missing and (last or self._probes_after(done, trainer)):
            found = self._probe_between_epochs(trainer, pl_module, Moment(done - 1, trainer.global_step))
            self.judge("probe", trainer, found)
            self._probed = done

    def _probe_between_epochs(
        self, trainer: L.Trainer, pl_module: L.LightningModule, moment: Moment
    ) -> dict[str, Tensor]:
        self._probe(trainer, pl_module, moment)
        found = self.measurements.read_out("probe", moment, pl_module.device)
        logged = {name: value.float() if moment.step else value for name, value in found.items()}
        scalars = {name: value.item() for name, value in logged.items()}
        batches = trainer.fit_loop.epoch_loop._batches_that_stepped  # not each optimizer's steps, as in a fit
        for logger in trainer.loggers:  # a log by the module would get another step here
            logger.log_metrics(scalars | {"epoch": moment.epoch}, step=max(batches - 1, 0))
            logger.save()
        return found

    def _probe(self, trainer: L.Trainer, pl_module: L.LightningModule, moment: Moment) -> None:
        self.begin_pass("probe", trainer, pl_module)
        chosen: Sequence[int] = range(1)
        with undisturbed(pl_module):  # the host's `val_dataloader` may draw random numbers
            loader = self._probe_set(trainer)
            for place, batch in enumerate(one_pass(loader)):
                if place not in chosen:
                    continue
                rows = 0
                with self.failures.caught(moment, self.title, "probe"):
                    observation = self.observer.look(pl_module, on_device(batch, trainer), moment, stage="probe")
                    rows = observation["z" if "z" in observation else "h"].shape[1]
                    if (seen := without_repeats(observation, loader, place)) is not None:
                        self.see("probe", trainer, seen, batch_idx=place)
                if place == 0:
                    chosen = spread_batches(loader, -(-self.probe_size // max(rows, 1)))
                if place == chosen[-1]:
                    break

    def _probe_set(self, trainer: L.Trainer) -> Any:
        if self._probe_loader is None:
            self._probe_loader = validation_loader(trainer)
        if self._probe_loader is None:
            raise ValueError("Expected a validation set for the stage 'probe', but the Trainer has none.")
        return self._probe_loader


def _refuse_twins(trainer: L.Trainer) -> None:
    owner: dict[str, GeometryMonitor] = {}
    for monitor in callbacks_of(trainer, GeometryMonitor):
        for name in monitor.measurements.names():
            if owner.setdefault(name, monitor) is not monitor:
                raise ValueError(
                    f"Expected each name to be logged once, but two monitors log {name!r}. Give one of them a `name`, "
                    "such as GeometryMonitor(name='teacher')."
                )
