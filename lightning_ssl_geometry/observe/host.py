"""Observer: collects h, z, labels and other tensors of a step, from its outputs or by forward hooks."""

__all__ = ["Host", "HostSettings", "NotFiniteError", "Observer", "TapSettings", "one_host"]

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import torch
from lightning.pytorch.plugins.precision import Precision
from torch import Tensor, nn

from lightning_ssl_geometry.deprecation import deprecated
from lightning_ssl_geometry.observe.batch_keys import BatchKeys, contents, in_short, stage_keys
from lightning_ssl_geometry.observe.batch_reader import BatchReader, with_clean
from lightning_ssl_geometry.observe.moment import Moment
from lightning_ssl_geometry.observe.taps import TapPaths, Taps, ViewLayout
from lightning_ssl_geometry.observe.undisturbed import undisturbed
from lightning_ssl_geometry.types import COLUMNS, SAMPLE_AXIS

_TAPPED = ("h", "z", "fibers", "encoder", "projector")
_STEPS = {"train": "training", "val": "validation"}


class NotFiniteError(ValueError):
    """Raised if h or z contains NaN or infinity."""


class TapSettings(TypedDict, total=False):
    """Keyword arguments of :class:`Host`, except `augment`."""

    taps: TapPaths | None
    view_layout: ViewLayout
    num_views: int | None
    batch_keys: BatchKeys | None
    views: ViewLayout | None


class HostSettings(TapSettings, total=False):
    """Keyword arguments of :class:`Host`."""

    augment: nn.Module | None


class Host:
    """Describes where to find h, z, labels and views in a LightningModule of another package (the host).

    Callbacks take these arguments one by one, or one Host as their argument `host`. They may share one Host.

    A step of the host may show less than another. A validation step may pass one view through the backbone alone, for
    example. The monitor then leaves out the diagnostics that need more in this stage, and a warning names them. A
    submodule in `taps` that neither the training nor the validation step calls is an error before training.

    Args:
        taps: Name -> dotted path of a submodule whose output is recorded, such as {"h": "backbone", "z": "head",
            "projector": "head"}. The names "encoder" and "projector" stand for the submodule itself, not for its
            output. "backbone:cls" is the first token of an output (N, T, D), and "backbone:0" the first entry of a
            tuple: see :class:`lightning_ssl_geometry.observe.tap.Tap`. A list of paths names the towers of a model,
            which receive one view each: see :class:`lightning_ssl_geometry.observe.taps.Taps`. None: the host's steps
            return a mapping with these names. Some callbacks pass views through the host themselves. If `taps` has both
            "encoder" and "projector", the callbacks call these submodules. Otherwise, they call the host's `forward`.
            If the host has no `forward`, they call the submodules of h and z.
        view_layout: How a submodule in `taps` receives the two views of N samples. "calls": one call per view.
            "halves": one call on 2N rows, first all first views, then all second views. "interleaved": one call on 2N
            rows, the two views of a sample next to each other. The views are numbered in the order of the calls or rows
            (with towers, in the order of the list). Diagnostics that compare two views use the first two. Ranks and
            spectra use all views.
        num_views: Number of views V, if `view_layout` is "halves" or "interleaved". None: the number of rows of a call
            divided by N, if `batch_keys` names a part of the batch with N rows, such as the label, else 2. A step may
            show one view even if V is given. If V is given with "halves", a submodule may be called several times, for
            example once for each size of crops. The rows of its calls are joined.
        batch_keys: Name -> place in the batch. A place is a key, a position, a dotted path ("views.0.image"), or a list
            of these. "views" is a list of views, "image" the images. A prefix limits an entry to one stage, as in
            {"label": 1, "val/label": "label"}. If a batch lacks a place, the first batch of the stage raises an error.
            A missing place of "views" is an error only where views are read. A name that looks misspelt is an error
            before training.
        augment: Makes two views of the batch's images if batches have no views. It is called with (image, index,
            epoch). Examples are :class:`lightning_ssl_geometry.views.SimCLRViews`, for images in [0, 1], and
            :class:`lightning_ssl_geometry.views.NormalizedViews`. The views pass through the host in eval mode, in
            addition to the host's own step.
        views: Deprecated name of `view_layout`.
    """

    def __init__(
        self,
        taps: TapPaths | None = None,
        view_layout: ViewLayout = "calls",
        batch_keys: BatchKeys | None = None,
        augment: nn.Module | None = None,
        views: ViewLayout | None = None,
        num_views: int | None = None,
    ) -> None:
        if views is not None:
            if view_layout not in ("calls", views):
                raise ValueError(f"Expected `view_layout` alone, but got {view_layout!r} and `views` = {views!r}.")
            deprecated("the keyword `views`", f"`view_layout={views!r}`")
            view_layout = views
        self.taps = taps
        self.view_layout = view_layout
        self.num_views = num_views
        self.batch_keys = batch_keys
        self.augment = augment


def one_host(host: Host | None, flat: Host) -> Host:
    """Return `host`, or the host `flat` of the flat keywords if `host` is None. Raises a ValueError if both are given.

    >>> one_host(Host({"h": "backbone"}), Host(batch_keys={"label": 1}))
    Traceback (most recent call last):
    ValueError: Expected `host` alone, but got `batch_keys` beside it. Say it in `host`.
    """
    if host is None:
        return flat
    if not isinstance(host, Host):
        raise ValueError(f"Expected `host` to be a Host, such as Host(taps={{...}}), but got a {type(host).__name__}.")
    beside = [name for name, value in vars(flat).items() if value != vars(Host())[name]]
    if beside:
        raise ValueError(f"Expected `host` alone, but got `{'` and `'.join(beside)}` beside it. Say it in `host`.")
    return host


class Observer:
    """Collects the tensors and modules of a step by name: h, z, label, index, encoder, projector and others.

    Args:
        host: Where to find the tensors and modules in a LightningModule of another package. Observers may share it.
        finite: Raise an error if h or z is not finite. This check synchronizes with the GPU.
        one_view: If `batch_keys` has "image" and no "views", :meth:`look` takes the images as the only view.
        names: Names of parts that need no entry in `batch_keys` if a batch has them as keys.

    Raises:
        ValueError: If `host` has `augment` without `taps`.
    """

    def __init__(self, host: Host, finite: bool = True, one_view: bool = False, names: Sequence[str] = ()) -> None:
        if host.augment is not None and not host.taps:
            raise ValueError(
                "Expected `taps` beside `augment`: the modules of this package get views in their batches."
            )
        self.one_view = one_view
        self.finite = finite
        self.taps = Taps(host.taps, host.view_layout, host.num_views) if host.taps else None
        self.reader = BatchReader(host.batch_keys, host.augment, names)
        self.numbered = False  # whether the latest step's samples were numbered as they came, without an index
        self._precision = Precision()
        self._untapped: tuple[str, list[str]] | None = None  # class and submodules of a host that only taps can show

    @property
    def augment(self) -> nn.Module | None:
        """The module that makes views of images, or None."""
        return self.reader.augment

    @property
    def towers(self) -> Mapping[str, Sequence[str]]:
        """Name in `taps` -> names of the towers, for the names with a list of paths."""
        return self.taps.towers if self.taps else {}

    def attach(self, host: nn.Module, precision: Precision | None = None) -> None:
        """Register forward hooks on the submodules that `taps` names. Raises a ValueError if one does not exist.

        `precision` is the precision of the forward passes in :meth:`look`. None: that of the inputs.
        """
        self._precision = precision or Precision()
        if self.taps:
            self.taps.attach(host)
        foreign = not (self.taps or hasattr(host, "observe"))
        self._untapped = (type(host).__name__, [name for name, _ in host.named_children()]) if foreign else None

    def detach(self) -> None:
        """Remove the forward hooks."""
        if self.taps:
            self.taps.detach()

    def require(self, name: str, observation: Mapping[str, Any], stage: str) -> None:
        """Raise a ValueError if the step of a module of another package has no h and z, and `name` needs `taps`."""
        if self._untapped and name in _TAPPED and not {name, "h", "z"} & observation.keys():
            host, children = self._untapped
            raise ValueError(
                f"Expected `taps` for {host}, whose {_STEPS.get(stage, stage)} step returns none of h, z: name its "
                f'submodules, such as `taps={{"h": ..., "z": ...}}`. It has {", ".join(children) or "none"}.'
            )

    def tapped(self, error: Exception) -> str:
        """Return where the module that an error is about stands in `taps`, and which linear layers there are.

        Returns "" if the error is not about a module in `taps`.
        """
        return self.taps.place_of(str(error)) if self.taps else ""

    def open(self, of_copies: bool = False) -> None:
        """Start to record the outputs of the hooked submodules. `of_copies`: and those of deep copies of the model."""
        if self.taps:
            self.taps.open(of_copies)

    @property
    def is_open(self) -> bool:
        """Whether outputs are recorded now."""
        return self.taps is not None and self.taps.is_open

    @property
    def silent(self) -> dict[str, str]:
        """Name -> path, for the names in `taps` whose submodules the latest step did not call."""
        return {name: self.taps.path_of(name) for name in self.taps.silent} if self.taps else {}

    @property
    def uncalled(self) -> list[str]:
        """Names in `taps` whose submodules neither the latest step nor an earlier step of this run has called."""
        return [name for name in self.taps.silent if name in self.taps.uncalled] if self.taps else []

    def refuse_uncalled(self) -> None:
        """Raise a ValueError if :attr:`uncalled` has a name."""
        if self.taps and self.uncalled:
            self.taps.refuse(self.uncalled)

    def hold(self) -> None:
        """Stop recording, and keep the recorded outputs for :meth:`close`."""
        if self.taps:
            self.taps.hold()

    def cancel(self) -> None:
        """Stop recording, and discard the recorded outputs."""
        if self.taps:
            self.taps.cancel()

    def restart(self, stage: str) -> None:
        """Number the samples of a stage from 0 again."""
        self.reader.restart(stage)

    def close(self, outputs: Any, batch: Any, moment: Moment, stage: str) -> dict[str, Any]:
        """Stop recording, and return the tensors of the step by name, detached.

        Samples without an index get one that no other process uses. A step may call only some of the submodules in
        `taps`. Raises a ValueError if it calls none, if no training step and no earlier step calls one of them, if h or
        z is not finite, or if shapes do not match.
        """
        found = dict(outputs) if isinstance(outputs, Mapping) else {}
        if self.taps:
            tapped = self.taps.close(self.reader.samples(batch, stage))
            if twice := sorted(found.keys() & tapped.keys()):
                raise ValueError(f"Expected each name once, but got {twice[0]!r} from the step and in `taps`.")
            found |= tapped
            if stage == "train":
                self.refuse_uncalled()
                self._refuse_one_view(found)
        found |= self.reader.read(batch, stage)
        observation = {name: value.detach() if isinstance(value, Tensor) else value for name, value in found.items()}
        spaces = {name: observation[name] for name in observation if name.partition(".")[0] in ("h", "z")}
        for name, value in spaces.items() if self.finite else ():
            if bad := int((~torch.isfinite(value)).sum()):
                raise NotFiniteError(
                    f"Expected finite `{name}`, but got {bad} of {value.numel()} values that are not, at {moment}."
                )
        if spaces:
            _refuse_flat(spaces)
            n = self._shared_size(observation, spaces, batch=batch, keys=stage_keys(self.reader.batch_keys, stage))
            device = next(iter(spaces.values())).device
            self.numbered = "index" not in observation
            if self.numbered:
                observation["index"] = self.reader.numbers(n, stage, device)
                self.reader.count(n, stage)
        return observation

    def of_step(self, host: nn.Module, outputs: Any, batch: Any, *, moment: Moment, stage: str) -> dict[str, Any]:
        """Return the tensors of a step of the module `host`. If `augment` is given, its views pass through `host`."""
        if self.augment is None:
            own = None if self.taps else outputs  # a host's outputs may have the same names by accident
            return self.close(own, batch, moment, stage=stage)
        with undisturbed(host):
            return self.look(host, batch, moment, stage=stage)

    def look(self, host: nn.Module, batch: Any, moment: Moment, stage: str) -> dict[str, Any]:
        """Pass the views of a batch through the module `host`. Returns the same tensors as :meth:`close`, by name.

        `image` and `h_image` (h of the unaugmented images) are added if available. The caller must restore modes,
        gradients and random state. Raises a ValueError if the batch has neither views nor images, if h or z is not
        finite, or if shapes do not match.
        """
        if self.taps is None:
            if not hasattr(host, "observe"):
                raise ValueError(
                    f"Expected `taps` for {type(host).__name__}, which is not of this package, but got None. Say which "
                    'of its submodules returns h, such as `taps={"h": "backbone"}`.'
                )
            with self._precision.forward_context():
                outputs = host.observe(batch)  # type: ignore[operator]
            return self.close(outputs, batch, moment, stage=stage)
        views = self._precision.convert_input(self._views(batch, stage))
        self.open()
        with self._precision.forward_context():
            for call in self.taps.calls(views):
                self.taps.forward(host, call)
        observation = self.close(None, batch, moment, stage=stage) | {"views": tuple(views)}
        if "image" not in observation and isinstance(batch, Mapping) and "image" in batch:
            observation["image"] = batch["image"]
        with self._precision.forward_context():
            return with_clean(observation)

    def _refuse_one_view(self, found: Mapping[str, Any]) -> None:
        shapes = {name: tuple(found[name].shape) for name in ("h", "z") if name in found}
        layout = self.taps.view_layout if self.taps else "calls"
        for name, shape in shapes.items():
            if layout != "calls" and shape[0] == 1:
                raise ValueError(
                    f"Expected several views in the training step for `view_layout`={layout!r}, but `{name}` has as "
                    f"many rows as the batch has samples, {shape[1]}. Name labels or indices of the samples, one for "
                    "all views, or say `view_layout='calls'`."
                )

    def _views(self, batch: Any, stage: str) -> Sequence[Tensor]:
        if self.augment is not None:
            image = self.reader.image(batch, stage)
            index = self.reader.read(batch, stage).get("index")
            if index is None:
                index = self.reader.numbers(len(image), stage, torch.device("cpu"))
            return self.reader.augmented(image, index)
        if not self.one_view:
            return self.reader.views(batch, stage)
        if not self.reader.has_views(batch, stage) and "image" in (named := self.reader.read(batch, stage)):
            return [named["image"]]
        return self.reader.views(batch, stage, beside="")

    def _shared_size(
        self, observation: dict[str, Any], spaces: dict[str, Tensor], *, batch: Any, keys: BatchKeys
    ) -> int:
        shapes = {name: tuple(value.shape[: 1 if "." in name else 2]) for name, value in spaces.items()}
        several = {shape[0] for shape in shapes.values() if len(shape) > 1} - {1}  # one of them may have one view
        if len(several) > 1 or len({shape[-1] for shape in shapes.values()}) > 1:
            raise ValueError(f"Expected taps with the same (V, N), but got {shapes}.")
        n = next(iter(shapes.values()))[-1]
        for name in (name for name in COLUMNS if SAMPLE_AXIS[name] == 0):
            if observation.get(name) is not None and (rows := len(observation[name])) != n:
                one_call = self.taps and self.taps.view_layout == "calls" and n == 2 * rows
                hint = " One call on both views is `view_layout='halves'` or `'interleaved'`." if one_call else ""
                whole = f" {contents(batch)}" if name in keys else ""
                if isinstance(observation[name], Tensor):
                    raise ValueError(f"Expected `{name}` with {n} rows, as h and z have, but got {rows}.{hint}{whole}")
                where = f"`batch_keys` {name}={keys[name]!r}" if name in keys else f"`{name}`"
                got = in_short(observation[name])
                raise ValueError(
                    f"Expected {where} to be a tensor with {n} rows, as h and z have, but got {got}.{whole}"
                )
        return n


def _refuse_flat(spaces: Mapping[str, Tensor]) -> None:
    for name, value in spaces.items():
        if "." not in name and value.ndim < 3:
            raise ValueError(
                f"Expected `{name}` of shape (V, N, D) for V views of N samples, but got {tuple(value.shape)}. One "
                f"view is `{name}[None]`."
            )
