"""LayerGeometry: the same diagnostics for every layer of the backbone and of the projector."""

__all__ = ["LayerGeometry"]

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack, get_args

import lightning as L
import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torchmetrics import Metric

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.callbacks.evaluation import write_rows
from lightning_ssl_geometry.callbacks.loaders import (
    first_batches,
    has_validation,
    is_repeatable,
    on_device,
    validation_batches,
    validation_loader,
)
from lightning_ssl_geometry.callbacks.loops import EvaluationCallback, Stage, Step
from lightning_ssl_geometry.callbacks.order import callbacks_of
from lightning_ssl_geometry.callbacks.run_callback import now, run_files
from lightning_ssl_geometry.checks import one_of
from lightning_ssl_geometry.diagnostics.alpha_req import AlphaReQ
from lightning_ssl_geometry.diagnostics.hypersphere import Alignment, Uniformity
from lightning_ssl_geometry.diagnostics.intrinsic_dimension import IntrinsicDimension
from lightning_ssl_geometry.diagnostics.layers import LayerSample
from lightning_ssl_geometry.diagnostics.neighbors import LabelAgreement
from lightning_ssl_geometry.diagnostics.spectrum import EffectiveRank, LogSpectrum
from lightning_ssl_geometry.functional.cka import cka_or_nan
from lightning_ssl_geometry.introspection import OUTPUT, hidden_layers
from lightning_ssl_geometry.manifest import Declared
from lightning_ssl_geometry.observe.feed import feed, result_name, results
from lightning_ssl_geometry.observe.host import Host, HostSettings, Observer, one_host
from lightning_ssl_geometry.observe.padding import without_repeats
from lightning_ssl_geometry.observe.undisturbed import undisturbed
from lightning_ssl_geometry.papers import KORNBLITH
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity
from lightning_ssl_geometry.recording.arrays import ArrayFiles
from lightning_ssl_geometry.recording.quantities_file import meaning
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import COLUMNS

_Stage = Literal["val", "test"]
_SECTION = "layers"
_FILES = ("layers.csv", "representations.npz", "geometry/val/layer_cka.npz", "geometry/val/layer_log_spectrum.npz")
_OF_TWO_VIEWS = ("alignment", "label_agreement")
_CLEAN = {"alpha_req": {"h": "h_image"}, "intrinsic_dimension": {"h": "h_image"}}


class LayerGeometry(EvaluationCallback):
    """Compare layers of the backbone, the representation h, layers of the projector and the embedding z.

    All get the same diagnostics. The layers are those in `h_layers`, if the step returns it, then h, the input of each
    linear layer of the projector, and z. The results help to decide how many layers of the projector to remove (Bordes,
    Balestriero, Garrido, Bardes & Vincent, Guillotine Regularization, 2022). The validation or test step must return h
    (V, N, D) for V views of N samples, or `taps` must name it. `projector` is the module that maps h to z. The step may
    return `index`, `label`, and `h_image` (N, D), the representations of the unaugmented images. If the step also
    returns a tensor `fibers`, this is the input of the projector instead of h. Then only h and z are compared, as
    without a `projector`.

    A model of another package needs no change: `taps` names its submodules, such as {"h": "backbone", "projector":
    "head"}. The projector is called on h. If the model has no `validation_step`, the callback passes the validation set
    through the model itself, after each training epoch.

    The step may also return layers of the backbone: `h_layers`, a dict of name -> outputs (V, N, D_l), and
    `h_layers_image`, a dict of name -> outputs (N, D_l) for the unaugmented images.
    :class:`lightning_ssl_geometry.diagnose.DiagnosedModel` returns both.

    At the end of each validation or test, files in the run's folder are replaced. `layers.csv` has one row per layer,
    with its width and its diagnostics. `geometry/{stage}/layer_cka.npz` has the linear CKA between the L layers,
    (L, L). The CKA of a layer that maps all samples to one point is NaN. `geometry/{stage}/layer_{result}.npz` has the
    vectors that a diagnostic computes, such as the spectra, (L, K): shorter ones end with NaN. `representations.npz`
    has `index` (n,), `label` (n,) and the outputs (n, D_l) of each layer for n samples. D_l is the width of the layer.

    Memory: for each layer, O(D_l^2) for second moments and O(`sample_size` D_l) for samples, whatever the number of
    images. The CKA is that of the n samples.

    Args:
        diagnostics: Name -> Metric that computes scalars or vectors. A Metric is copied for each layer. The arguments
            `h` and `z` of its `update` both get the layer's outputs for the views, (V, N, D_l). An argument `h_image`
            gets the layer's outputs for the unaugmented images, (N, D_l). If the step returns no `h_image`, the first
            views are used instead. Any other argument gets the output of the step with the same name. None: effective
            rank, spectrum, alignment, uniformity, alpha-ReQ and intrinsic dimension. The last two are computed on
            `h_image`. If there are labels, the label agreement of the hardest negative is added. If the first step has
            one view of each sample, alignment and label agreement are left out, with a warning.
        rename: Name of a diagnostic -> {argument of its `update`: name of the tensor}, such as {"rank": {"h":
            "h_image"}}.
        stage: "val" or "test": the loop in which the layers are compared.
        sample_size: Number of samples in `representations.npz`, chosen by their index.
        host: For a model of another package: a :class:`Host`, which says where h, the projector, labels and views are.
            Callbacks may share it. `taps` has one path for each name: the towers of a model are compared one by one.
        **places: `taps`, `view_layout`, `batch_keys` and `augment` of :class:`Host`, in place of `host`.

    Raises:
        ValueError: If `stage` or `sample_size` is out of range, `taps` has a list of towers, or `host` is given beside
            one of `places`. Before training, if another run wrote one of the files, or a submodule in `taps` does not
            exist. In the loop, if the step has no h, the projector does not take it, or if only some of the processes
            get batches.
    """

    section: ClassVar[str] = "layers"
    quantities: ClassVar[dict[str, Quantity]] = {
        "layer_cka": Quantity(
            title="CKA between layers",
            text="Linear CKA between the layers' outputs for the same samples.",
            low="Near 0: the layers in between changed the representation.",
            high="Near 1: the layers hold the same representation up to rotation and scale.",
            paper=KORNBLITH,
            unit="CKA",
            bounds=(0.0, 1.0),
            invariances=("rotation", "scale", "translation", "permutation"),
            comparable=("width", "temperature", "batch size", "method"),
            chart=Chart("layer_cka", "CKA between layers", "CKA"),
            picture=Picture("matrix"),
        )
    }

    @passed_on
    def __init__(
        self,
        diagnostics: dict[str, Metric] | None = None,
        stage: _Stage = "val",
        sample_size: int = 1024,
        rename: dict[str, dict[str, str]] | None = None,
        *,
        host: Host | None = None,
        **places: Unpack[HostSettings],
    ) -> None:
        super().__init__()
        self.observer = Observer(one_host(host, Host(**places)), finite=False, one_view=True)
        if towers := self.observer.towers:
            raise ValueError(
                "Expected one path for each name in `taps` of LayerGeometry, which compares the layers of one tower, "
                f"but got lists for {', '.join(towers)}."
            )
        one_of(get_args(_Stage), stage=stage)
        LayerSample(1, sample_size)  # raises a ValueError if `sample_size` is out of range
        self.diagnostics = diagnostics
        self.stage = stage
        self.sample_size = sample_size
        self._rename = (_CLEAN if diagnostics is None else {}) | (rename or {})
        self._metrics: dict[str, dict[str, Metric]] = {}
        self._widths: dict[str, int] = {}
        self._sample: LayerSample | None = None

    def logs(self) -> dict[str, str]:
        return {"layers/width": "width", f"{self.stage}/layer_cka": "layer_cka"}

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        alike = [each for each in callbacks_of(trainer, LayerGeometry) if each.stage == self.stage]
        if len(alike) > 1:
            raise ValueError(
                f"Expected one LayerGeometry with stage={self.stage!r}, but got {len(alike)}, which would replace each "
                "other's files. Give one of them all diagnostics."
            )
        self.observer.attach(pl_module, trainer.precision_plugin)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.observer.detach()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        super().on_exception(trainer, pl_module, exception=exception)
        self.observer.detach()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        if self.stage == "val":
            self.refuse(trainer, *_FILES)
            if not has_validation(pl_module):
                self._look(trainer, pl_module, trial=True)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.stage == "val" and not has_validation(pl_module):
            self.on_validation_epoch_start(trainer, pl_module)
            self._look(trainer, pl_module)
            self.on_validation_epoch_end(trainer, pl_module)

    def watches(self, stage: str) -> bool:
        return stage == self.stage

    def begin_pass(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._sample = None
        self.observer.restart(stage)

    def open(self) -> None:
        self.observer.open()

    def hold(self) -> None:
        self.observer.hold()

    def take_sanity_check(self, trainer: L.Trainer, step: Step) -> None:
        if self.watches("val"):
            self._layers(trainer, self._outputs(trainer, step))

    def take(self, stage: Stage, trainer: L.Trainer, step: Step) -> None:
        if (outputs := step.own(self._outputs(trainer, step))) is not None:
            self._see(trainer, outputs)

    def _outputs(self, trainer: L.Trainer, step: Step) -> dict[str, Any]:
        host = trainer.lightning_module
        return self.observer.of_step(host, step.outputs, step.batch, moment=now(trainer), stage=self.stage)

    def _look(self, trainer: L.Trainer, pl_module: L.LightningModule, trial: bool = False) -> None:
        with undisturbed(pl_module):  # the host's `val_dataloader` may draw random numbers
            loader = validation_loader(trainer)
            if loader is None:
                if trial:
                    rank_zero_warn("LayerGeometry compares no layers: the Trainer was given no validation set.")
                return
            if trial and not is_repeatable(loader):
                return
            batches = first_batches(loader, 1) if trial else validation_batches(trainer, loader)
            for place, batch in enumerate(batches):
                seen = self.observer.look(pl_module, on_device(batch, trainer), now(trainer), stage="val")
                if trial:
                    self._layers(trainer, seen)
                elif (own := without_repeats(seen, loader, place)) is not None:
                    self._see(trainer, own)

    def _layers(self, trainer: L.Trainer, outputs: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        self.observer.require("h", outputs, self.stage)
        if "h" not in outputs:
            got = ", ".join(sorted(outputs)) or "nothing"
            raise ValueError(f"Expected the {self.stage} step to have `h` for LayerGeometry, but it has {got}.")
        try:
            with trainer.precision_plugin.forward_context():  # the precision of the step
                return _layer_outputs(outputs)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError) as error:
            shape, kind = tuple(outputs["h"].flatten(0, 1).shape), type(outputs.get("projector")).__name__
            said = f"Expected `projector` to take h {shape}, but {kind} says: {error}."
            raise ValueError(said + self.observer.tapped(ValueError(said))) from error

    def _see(self, trainer: L.Trainer, outputs: Mapping[str, Any]) -> None:
        layers, clean = self._layers(trainer, outputs)
        if self._sample is None:
            diagnostics = self.diagnostics
            if diagnostics is None:
                diagnostics = _default("label" in outputs, len(outputs["h"]))
            self._begin(layers, diagnostics, trainer.lightning_module.device)
        assert self._sample is not None
        rest = {name: outputs[name] for name in COLUMNS if name in outputs}
        for layer, value in layers.items():
            seen = {"h": value, "z": value, "h_image": clean[layer]} | rest
            for name, metric in self._metrics[layer].items():
                feed(metric, seen, self._rename.get(name, {}), name=name, stage=self.stage)
        self._sample.update(list(clean.values()), rest["index"], rest.get("label"))

    def _declare(self, found: Mapping[str, Mapping[str, Tensor]]) -> None:
        metrics, entries = next(iter(self._metrics.values())), dict[str, Declared]()
        for name, key, value in _flat(found):
            if entry := meaning(metrics[name], key):
                logged = self._logged(name, key) if value.ndim else f"layers/{result_name(name, key)}"
                quantity = _by_layer(entry.quantity) if value.ndim else entry.quantity
                entries[logged] = replace(entry, quantity=quantity, section=_SECTION)
        self.declare(entries)

    def _logged(self, name: str, key: str) -> str:
        return f"{self.stage}/layer_{result_name(name, key)}"

    def _begin(self, layers: Mapping[str, Tensor], diagnostics: Mapping[str, Metric], device: torch.device) -> None:
        self._widths = {layer: value.shape[-1] for layer, value in layers.items()}
        self._metrics = {
            layer: {name: copy.deepcopy(metric).to(device) for name, metric in diagnostics.items()} for layer in layers
        }
        self._sample = LayerSample(len(layers), self.sample_size).to(device)

    def _has_batches(self, trainer: L.Trainer) -> bool:
        saw = torch.tensor(int(self._sample is not None), device=trainer.lightning_module.device)
        count, ranks = int(distributed.all_reduce_sum(saw)), distributed.world_size()
        if 0 < count < ranks:  # ranks with batches would wait for the others
            raise ValueError(
                f"Expected batches of the {self.stage} set on each of {ranks} processes for LayerGeometry, but "
                f"{ranks - count} had none."
            )
        return count > 0

    def end(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not self._has_batches(trainer):
            return
        assert self._sample is not None
        found = {layer: results(metrics) for layer, metrics in self._metrics.items()}
        rows = [{"layer": layer, "width": self._widths[layer]} | _scalars(by) for layer, by in found.items()]
        sample = self._sample.compute()
        self._sample = None
        write_rows(trainer, "layers.csv", rows)
        self._declare(next(iter(found.values())))
        files = run_files(trainer)
        if files.writes:
            kept = {layer: sample[f"layer_{place}"] for place, layer in enumerate(self._widths)}
            cka = cka_or_nan(list(kept.values()))
            arrays = ArrayFiles(files)
            for name, values in {f"{self.stage}/layer_cka": cka, **self._vectors(found)}.items():
                arrays.append(name, *now(trainer), values=values)
            about = {"index": sample["sample"]} | ({"label": sample["label"]} if "label" in sample else {})
            columns: dict[str, Any] = {name: value.float() for name, value in kept.items()} | about
            with files.replacing("representations.npz") as file:
                np.savez(file, **{name: v.numpy(force=True) for name, v in columns.items()})

    def _vectors(self, found: Mapping[str, Mapping[str, Mapping[str, Tensor]]]) -> dict[str, Tensor]:
        gathered: dict[str, list[Tensor]] = {}
        for by in found.values():
            for name, key, value in _flat(by):
                if value.ndim == 1:
                    gathered.setdefault(self._logged(name, key), []).append(value)
        return {
            name: pad_sequence(values, batch_first=True, padding_value=torch.nan) for name, values in gathered.items()
        }


def _default(labels: bool, views: int) -> dict[str, Metric]:
    found: dict[str, Metric] = {
        "effective_rank": EffectiveRank(),
        "log_spectrum": LogSpectrum(),
        "alpha_req": AlphaReQ(),
        "intrinsic_dimension": IntrinsicDimension(),
        "alignment": Alignment(),
        "uniformity": Uniformity(),
    }
    found |= {"label_agreement": LabelAgreement()} if labels else {}
    if views < 2:
        gone = [name for name in _OF_TWO_VIEWS if found.pop(name, None)]
        rank_zero_warn(f"With one view of each sample in the step, LayerGeometry leaves out: {', '.join(gone)}.")
    return found


def _by_layer(quantity: Quantity) -> Quantity:
    chart, picture = quantity.chart, quantity.picture
    unit, title = chart.unit if chart else quantity.unit, f"{quantity.title} by layer"
    if picture is None or picture.kind != "spectrum":
        return replace(quantity, title=title, chart=None, picture=None, shown=False)
    name = chart.name if chart else quantity.title.lower()
    return replace(
        quantity,
        title=title,
        chart=Chart(f"layer_{name}", title, unit),
        picture=replace(picture, kind="spectra"),
    )


def _flat(found: Mapping[str, Mapping[str, Tensor]]) -> Iterator[tuple[str, str, Tensor]]:
    return ((name, key, value) for name, by in found.items() for key, value in by.items())


def _scalars(found: Mapping[str, Mapping[str, Tensor]]) -> dict[str, float]:
    return {result_name(name, key): value.item() for name, key, value in _flat(found) if not value.ndim}


def _layer_outputs(outputs: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    # for the views (V, N, D_l), and for unaugmented images or else the first views (N, D_l)
    inner, clean = outputs.get("h_layers", {}), outputs.get("h_layers_image", {})
    clean = {name: clean.get(name, views[0]) for name, views in inner.items()}
    found, found_clean = _from_h_on(outputs)
    return {**inner, **found}, {**clean, **found_clean}


def _from_h_on(outputs: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    h, views = outputs["h"], len(outputs["h"])
    if "projector" not in outputs or "fibers" in outputs:
        if "z" not in outputs:
            return {"h": h}, {"h": outputs.get("h_image", h[0])}
        seen = {"h": h, "z": outputs["z"]}
        return seen, {name: value[0] for name, value in seen.items()}
    rows = torch.cat([h.flatten(0, 1), *([outputs["h_image"]] if "h_image" in outputs else [])])
    found = {"h": rows} | hidden_layers(outputs["projector"], rows)
    found["z"] = found.pop(OUTPUT)
    n = h.shape[1]
    return (
        {name: value[: views * n].unflatten(0, (views, n)) for name, value in found.items()},
        {name: value[views * n :] if "h_image" in outputs else value[:n] for name, value in found.items()},
    )
