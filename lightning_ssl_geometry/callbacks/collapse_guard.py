"""CollapseGuard: warns of a collapse of the representation, or ends the fit."""

__all__ = ["Action", "CollapseGuard"]

from collections.abc import Iterator, Mapping
from math import isnan, nan
from typing import Any, Literal, Unpack, get_args

import lightning as L
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from lightning_ssl_geometry.callbacks.loops import Stage
from lightning_ssl_geometry.callbacks.monitor import GeometryMonitor
from lightning_ssl_geometry.checks import integer, one_of, switch
from lightning_ssl_geometry.diagnostics import ClassMeanCosine, MeanCosine, VarianceRank
from lightning_ssl_geometry.expressions import holds, value_of
from lightning_ssl_geometry.manifest import Declared
from lightning_ssl_geometry.measuring.failures import OnError
from lightning_ssl_geometry.observe.host import Host, HostSettings
from lightning_ssl_geometry.quantity import Verdict
from lightning_ssl_geometry.settings import passed_on

Action = Literal["stop", "warn"]


class CollapseGuard(GeometryMonitor):
    """Warn of a collapse of h or z, or end the fit.

    After each validation, two diagnostics of h and of z are compared with the thresholds that they declare:

    - :class:`~lightning_ssl_geometry.diagnostics.MeanCosine`: all rows point in one direction (collapse in whole).
    - :class:`~lightning_ssl_geometry.diagnostics.VarianceRank`: all rows differ along one direction alone, whose count
      is limited by min(N - 1, D) for N samples with D dimensions.

    One readout is noisy, and an untrained network can be near collapse. So a threshold has to be passed in `patience`
    readouts in a row. A readout of too few samples says nothing and starts the count again. The values are logged as
    `{stage}/{name}/{diagnostic}`. The fit ends after the epoch as with Lightning's `EarlyStopping`, not before the
    Trainer's `min_epochs`. Checkpoints are saved before. A fit that is resumed from such a checkpoint goes on: the
    guard does not act again by the same value. A collapse that is no loss of directions, such as an encoder that
    ignores what a task needs, is not seen. Rows that are all 0 have no direction: their values are NaN, and the
    guard counts them as a collapse. Values that are not finite give a warning and no readout: they do not end the fit.
    After a fit without a readout, such as one without validation, a warning says so.

    Args:
        action: "stop": warn, and end the fit. "warn": warn only.
        patience: Number of readouts in a row that pass a threshold, >= 1.
        per_class: Whether a class whose rows all point in one direction is a collapse, too. Needs labels. Supervised
            training leads there by itself.
        stage: Which samples are observed: "val", "train" or "probe" (see :class:`GeometryMonitor`).
        name: Part of all logged names.
        on_error: What happens if a diagnostic fails: see :class:`GeometryMonitor`.
        host: For a model of another package: see :class:`GeometryMonitor`.
        **places: `taps`, `view_layout`, `batch_keys` and `augment` of :class:`Host`, in place of `host`.

    Raises:
        ValueError: If an argument is out of range, and as :class:`GeometryMonitor` does.
    """

    @passed_on
    def __init__(
        self,
        action: Action = "stop",
        patience: int = 3,
        *,
        per_class: bool = False,
        stage: Stage = "val",
        name: str = "collapse",
        on_error: OnError = "warn",
        host: Host | None = None,
        **places: Unpack[HostSettings],
    ) -> None:
        one_of(get_args(Action), action=action)
        one_of(("val", "train", "probe"), stage=stage)
        switch(per_class=per_class)
        integer(1, patience=patience)
        kinds = {"mean_cosine": MeanCosine, "variance_rank": VarianceRank}
        kinds |= {"class_mean_cosine": ClassMeanCosine} if per_class else {}
        super().__init__(
            {f"{kind}_{space}": make() for kind, make in kinds.items() for space in ("h", "z")},
            {f"{kind}_z": {"h": "z"} for kind in kinds},
            (stage,),
            name=name,
            on_error=on_error,
            host=host,
            **places,
        )
        self.action, self.patience, self.per_class = action, patience, per_class
        self.found: dict[str, str] = {}
        self._known: dict[str, Declared] = {}
        self._passed: dict[str, int] = {}
        self._unread = False  # whether this fit has trained without a readout

    @property
    def title(self) -> str:
        return f"CollapseGuard {self.name!r}"

    @property
    def state_key(self) -> str:
        return self.title  # guards with different names keep their counts apart

    def declare(self, entries: Mapping[str, Declared]) -> None:
        super().declare(entries)
        self._known |= entries

    def start_clean(self) -> None:
        super().start_clean()
        self.found, self._passed = {}, {}

    def state_dict(self) -> dict[str, Any]:
        return {"found": dict(self.found), "passed": dict(self._passed)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.fits:
            self.found, self._passed = dict(state_dict["found"]), dict(state_dict["passed"])

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self._unread = False

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self._unread = True

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_fit_end(trainer, pl_module)
        if self._unread and trainer.global_step:
            stage = self.measurements.stages[0]
            rank_zero_warn(
                f"{self.title} had no readout of {stage!r} in this fit, so it says nothing about a collapse."
                + (" Without validation, `stage='train'` watches the training." if stage == "val" else "")
            )

    def judge(self, stage: Stage, trainer: L.Trainer, results: dict[str, Tensor]) -> None:
        if trainer.state.fn != "fit":
            return
        self._unread = False
        for name, verdict, values in self._thresholds(stage, results):
            enough = not verdict.given or holds(verdict.given, values)
            zeros = isnan(values["value"]) and not self._known[name].key  # the mean cosine of no direction
            passed = self._passed.get(name, 0) + 1 if enough and (zeros or holds(verdict.when, values)) else 0
            self._passed[name] = passed
            if passed >= self.patience and name not in self.found:
                self.found[name] = self._said_of_zeros(name) if zeros else self._said(name, verdict, values)
                self._react(trainer, self.found[name])

    def _react(self, trainer: L.Trainer, said: str) -> None:
        stops = self.action == "stop"
        trainer.should_stop = trainer.should_stop or stops
        rows = f"{self.seen[self.measurements.stages[0]].samples:,} samples"
        does = "ends the fit" if stops else "warns"
        times = "in the last readout" if self.patience == 1 else f"in {self.patience} readouts in a row"
        rank_zero_warn(f"{self.title} {does} after epoch {trainer.current_epoch}: {said} It was so {times}, of {rows}.")

    def _thresholds(
        self, stage: Stage, results: Mapping[str, Tensor]
    ) -> Iterator[tuple[str, Verdict, Mapping[str, float]]]:
        samples, views, views_z = self.measurements.rows[stage]
        for name, value in results.items():
            known = self._known.get(name)
            for verdict in known.quantity.verdicts if known else ():
                assert known is not None
                begin = name.removesuffix(known.key) if known.key else f"{name}_"
                beside = {key: results[f"{begin}{key}"].item() for key in verdict.names if f"{begin}{key}" in results}
                of_space = views_z if known.space == "z" else views
                sizes = {"N": samples, "V": of_space, "D": nan if known.width is None else known.width}
                yield name, verdict, dict.fromkeys(verdict.names, nan) | beside | sizes | {"value": value.item()}

    def _said_of_zeros(self, name: str) -> str:
        return f"All rows of {self._known[name].space} are 0."

    def _said(self, name: str, verdict: Verdict, values: Mapping[str, float]) -> str:
        known = self._known[name]
        words = {"space": known.space or known.quantity.title, "title": known.quantity.title}
        return verdict.filled(lambda text: words.get(text) or f"{value_of(text, values):.4g}")
