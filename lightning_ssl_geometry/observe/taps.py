"""Taps: forward hooks that record the outputs of a model's submodules."""

__all__ = ["TapPaths", "Taps", "ViewLayout"]

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import integer, one_of
from lightning_ssl_geometry.introspection import submodule
from lightning_ssl_geometry.observe.tap import PickedModule, Tap, tower_names

ViewLayout = Literal["calls", "halves", "interleaved"]
TapPaths = Mapping[str, str | list[str]]
_MODULES = ("encoder", "projector")
_MOST = 6
_NO_FORWARD = ("LightningModule.forward", "_forward_unimplemented")  # by name, for both packages of Lightning


class Taps:
    """Records the outputs of submodules with forward hooks.

    A list of several submodules stands for towers: tower v receives view v, in one call. The output of each tower is
    recorded as a tensor (N, D) of its own, such as "h.visual" and "h.text" for {"h": ["visual", "text"]}. If the
    shapes of the towers are equal, "h" is recorded, too.

    Args:
        taps: Name -> dotted path of a submodule whose output is recorded, or list of paths. A :class:`Tap` says what
            else a path may contain. The names "encoder" and "projector" stand for the submodule itself, not for its
            output.
        view_layout: How the submodules receive the views: see :class:`lightning_ssl_geometry.observe.host.Host`.
        num_views: Number of views V in the layouts "halves" and "interleaved": see the same class.

    Attributes:
        silent: Names in `taps` whose submodules the latest step did not call.
        towers: Name in `taps` -> names of its towers, for the names with a list.
    """

    def __init__(self, taps: TapPaths, view_layout: ViewLayout = "calls", num_views: int | None = None) -> None:
        one_of(get_args(ViewLayout), view_layout=view_layout)
        if num_views is not None:
            integer(1, num_views=num_views)
            if view_layout == "calls":
                raise ValueError(
                    "Expected `num_views` beside `view_layout`='halves' or 'interleaved', but got 'calls', where each "
                    "call is a view."
                )
        self.taps = taps
        self.view_layout = view_layout
        self.num_views = num_views
        self.towers = {name: _towers(name, paths) for name, paths in taps.items() if not isinstance(paths, str)}
        self._taps = {each.name: each for name, paths in taps.items() for each in self._named(name, paths)}
        self._refuse_uneven()
        self._modules: dict[str, nn.Module] = {}
        self._sources: dict[str, nn.Module] = {}
        self._caught: dict[str, list[Tensor | Exception]] = {}
        self._called: set[str] = set()
        self.silent: list[str] = []
        self._handles: list[Any] = []
        self._linear: list[str] = []
        self._open = False
        self._of_copies = False
        self._count = num_views or 2
        self._own_pass = False

    def attach(self, host: nn.Module) -> None:
        """Register the hooks on submodules of `host`. Raises a ValueError if a path in `taps` is no submodule."""
        named = host.named_modules(remove_duplicate=False)
        self._linear = [path.replace("_orig_mod.", "") for path, each in named if isinstance(each, nn.Linear)]
        self._called, self.silent = set(), []
        self.detach()  # attach before the first forward pass: a compiled module ignores later hooks
        for name, tap in self._taps.items():
            module = submodule(host, tap.path, argument="taps", given=f"{name}={tap.text!r}")
            self._sources[name] = module
            if _is_module(name):  # diagnostics need its layers, not torch.compile's wrapper
                module = getattr(module, "_orig_mod", module)
                self._modules[name] = PickedModule(module, tap) if tap.parts else module
            else:
                self._handles.append(module.register_forward_hook(_Hook(self, tap, module)))
        if "projector" in self.towers:  # whose weights are observed; an encoder is called, which two towers cannot be
            heads = {tower: self._modules[f"projector.{tower}"] for tower in self.towers["projector"]}
            self._modules["projector"] = nn.ModuleDict(heads)

    def detach(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._modules, self._sources, self._open = [], {}, {}, False

    def open(self, of_copies: bool = False) -> None:
        """Start to record the outputs. `of_copies`: record those of deep copies of the model, too."""
        self._caught, self._open, self._count, self._own_pass = {}, True, self.num_views or 2, False
        self._of_copies = of_copies

    @property
    def is_open(self) -> bool:
        """Whether outputs are recorded now."""
        return self._open

    def record(self, name: str, output: Tensor | Exception, of_copy: bool) -> None:
        """Record an output of a submodule by its name in `taps`, or the error of reading it."""
        if self._open and (self._of_copies or not of_copy):
            self._caught.setdefault(name, []).append(output)

    def hold(self) -> None:
        """Stop recording, and keep the recorded outputs for :meth:`close`."""
        self._open = False

    def cancel(self) -> None:
        """Stop recording, and discard the recorded outputs."""
        self._called |= self._caught.keys()
        self._caught, self._open = {}, False

    def close(self, samples: int | None = None) -> dict[str, Any]:
        """Stop recording, and return the outputs and modules by their names in `taps`.

        Each output is detached, and (V, N, D) for V views of N samples. The output of a tower is (N, D). `samples` is
        N, if it is known. A step may call only some of the submodules: `silent` has the others. Raises a ValueError if
        the step called none, or if the model itself was called and did not call all. Also raises a ValueError if a
        submodule returned no rows, if z was computed before h, or if N differs between views.
        """
        self._open = False
        self._called |= self._caught.keys()
        self.silent = [name for name in self._hooked if name not in self._caught]
        if self.silent and (self._own_pass or not self._caught):
            self.refuse(self.silent)
        caught, self._caught = self._caught, {}
        found: dict[str, list[Tensor]] = {}
        for name, outputs in caught.items():
            for output in outputs:
                if isinstance(output, Exception):
                    raise output
                found.setdefault(name, []).append(output)
        self._refuse_exchanged(list(found))
        self._count_views(sum(map(len, next(iter(found.values()), []))), samples)
        arranged = {name: self._arrange(name, calls) for name, calls in found.items()}
        return arranged | self._joint(arranged) | self._modules

    def refuse(self, names: Sequence[str]) -> None:
        """Raise a ValueError that says that the submodules of these names in `taps` were not called."""
        raise ValueError(
            f"Expected the step to pass through `taps` {list(names)}, but {self._taps[names[0]].path!r} was never "
            f"called. {self._remedy()} (What torch.compile had compiled before is called without hooks.)"
        )

    def path_of(self, name: str) -> str:
        """Return the path of a name in `taps`, or of a tower such as "h.text"."""
        return self._taps[name].text

    @property
    def uncalled(self) -> list[str]:
        """Names in `taps` whose submodules no step has called since :meth:`attach`."""
        return [name for name in self._hooked if name not in self._called]

    def calls(self, views: Sequence[Tensor]) -> list[Tensor | tuple[Tensor, ...]]:
        """Arrange V views (N, ...) as inputs of :meth:`forward`.

        If `view_layout` is "calls", the list has V inputs of N rows. Otherwise, it has one input of V N rows. If the
        views have several sizes, "halves" has one input for each. With towers, the list has one tuple of V inputs.
        """
        self._count, self._own_pass = len(views), True  # after `open`, which resets both
        if self.towers:
            return [tuple(views)]
        if self.view_layout == "calls":
            return list(views)
        if self.view_layout == "halves":
            return [torch.cat(list(alike)) for _, alike in groupby(views, key=lambda view: view.shape)]
        return [torch.stack(list(views), dim=1).flatten(0, 1)]

    def forward(self, host: nn.Module, x: Tensor | tuple[Tensor, ...]) -> None:
        """Pass an input through the encoder and the projector if `taps` has both, else through the whole model.

        A tuple has one input for each tower. Each passes through its own encoder and projector. If `taps` has not both,
        the model's `forward` gets all inputs.
        """
        inputs = x if isinstance(x, tuple) else (x,)
        if self.towers and len(inputs) != (count := self._tower_count()):
            raise ValueError(f"Expected one view for each of {count} towers in `taps`, but got {len(inputs)} views.")
        if self.taps.keys() >= {"encoder", "projector"}:
            for place, each in enumerate(inputs):
                self._pass(self._at("projector", place), self._pass(self._at("encoder", place), each))
        elif "h" in self.taps and type(host).forward.__qualname__ in _NO_FORWARD:  # the model has none
            for place, each in enumerate(inputs):
                h = self._pass(self._at("h", place), each)
                if "z" in self.taps:
                    self._pass(self._at("z", place), h)
        else:
            host(*inputs)

    def place_of(self, message: str) -> str:
        """Return the paths of the modules in `taps` that a message names in backticks, in sentences, or "".

        If the message is about linear layers, their paths inside the module, or else in the model, are added.
        """
        said = ""
        for name, paths in self.taps.items():
            if name in _MODULES and f"`{name}`" in message:
                said += f" `taps` has {name}={paths!r}."
                if "Linear" in message and isinstance(paths, str):
                    said += self._linear_layers(self._taps[name].path)
        return said

    def _linear_layers(self, path: str) -> str:
        inside = [each for each in self._linear if each == path or each.startswith(f"{path}.")]
        found = (inside or self._linear)[:_MOST]
        return f" Linear layers {'inside of it' if inside else 'elsewhere'}: {', '.join(found) or 'none'}."

    def _named(self, name: str, paths: str | list[str]) -> list[Tap]:
        if isinstance(paths, str):
            return [Tap(name, paths)]
        return [Tap(f"{name}.{tower}", path) for tower, path in zip(self.towers[name], paths, strict=True)]

    @property
    def _hooked(self) -> list[str]:
        return [name for name in self._taps if name not in self._modules]

    def _count_views(self, rows: int, samples: int | None) -> None:
        counts = samples and not self._own_pass and (self.num_views is None or rows == samples)
        if samples and counts and rows % samples == 0:
            self._count = rows // samples

    def _refuse_uneven(self) -> None:
        if self.towers and self.view_layout != "calls":
            raise ValueError(
                f"Expected `view_layout`='calls' beside lists in `taps`, since each tower gets one view, but got "
                f"{self.view_layout!r}."
            )
        if len(counts := {name: len(towers) for name, towers in self.towers.items()}) and len(set(counts.values())) > 1:
            raise ValueError(f"Expected lists of one length in `taps`, one path for each tower, but got {counts}.")

    def _tower_count(self) -> int:
        return len(next(iter(self.towers.values())))

    def _at(self, name: str, place: int) -> str:
        return f"{name}.{self.towers[name][place]}" if name in self.towers else name

    def _pass(self, name: str, x: Tensor) -> Tensor:
        tap = self._taps[name]
        try:
            output = self._sources[name](x)
        except (RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                f"Expected `taps` {name}={tap.text!r} to take a tensor of shape {tuple(x.shape)}, but it raised "
                f"{type(error).__name__}: {error}.{self._exchanged(name)}"
            ) from error
        return tap(output) if name.partition(".")[0] in ("encoder", "h") else output

    def _exchanged(self, name: str) -> str:
        first, _, tower = name.partition(".")
        after = ".".join(filter(None, [{"encoder": "projector", "h": "z"}.get(first, ""), tower]))
        if tower or after not in self._taps:
            return ""
        one, other = self._taps[name].text, self._taps[after].text
        return f" If the two are exchanged, say {{{name!r}: {other!r}, {after!r}: {one!r}}}."

    def _refuse_exchanged(self, names: list[str]) -> None:
        for place in range(self._tower_count() if self.towers else 1):
            h, z = self._at("h", place), self._at("z", place)
            if {h, z} <= set(names) and names.index(z) < names.index(h):
                one, other = self._taps[h].text, self._taps[z].text
                raise ValueError(
                    f"Expected `taps` h before z, but {other!r} (z) returned before {one!r} (h). "
                    f"Exchange them: {{'h': {other!r}, 'z': {one!r}}}."
                )

    def _joint(self, arranged: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = {}
        for name, towers in self.towers.items():
            rows = [arranged[f"{name}.{tower}"] for tower in towers if f"{name}.{tower}" in arranged]
            if rows and len({each.shape for each in rows}) == 1:
                found[name] = torch.stack(rows)
        return found

    def _remedy(self) -> str:
        if not self._own_pass:
            return "Name submodules that the host's step calls, or leave its stage out of `stages`."
        known = {"encoder": self.taps.get("h"), "projector": self.taps.get("projector", self.taps.get("z"))}
        wanted = [f"{name!r}: {path!r}" for name, path in known.items() if path and name not in self.taps]
        if not wanted:
            return "The tapped `encoder` and `projector` do not pass through it."
        return f"The host's `forward` does not pass through it: add {' and '.join(wanted)} to `taps`."

    def _arrange(self, name: str, calls: list[Tensor]) -> Tensor:
        if name not in self.taps:
            if len(calls) > 1:
                raise ValueError(
                    f"Expected tower {self._taps[name].text!r} (tap {name!r}) to be called once in a step, on its "
                    f"view, but it was called {len(calls)} times."
                )
            return calls[0]
        if self.view_layout == "calls":
            if len({call.shape for call in calls}) > 1:
                raise _unlike(name, calls)
            return torch.stack(calls)
        rows = self._rows_of(name, calls)
        if self.view_layout == "halves":
            return rows.unflatten(0, (self._count, -1))
        return rows.unflatten(0, (-1, self._count)).transpose(0, 1)

    def _rows_of(self, name: str, calls: list[Tensor]) -> Tensor:
        joined = self.view_layout == "halves" and (self.num_views is not None or self._own_pass)
        counts = [len(call) for call in calls]
        if len({call.shape[1] for call in calls}) > 1:
            raise _unlike(name, calls)
        n = sum(counts) // self._count  # joined calls have whole views
        whole = n * self._count == sum(counts) and not (n and any(count % n for count in counts))
        if not whole or (len(calls) > 1 and not joined):
            often = "called" if joined else "called once"
            hint = " Each call is of one view: `view_layout='calls'`." if len(calls) > 1 and not joined else ""
            raise ValueError(
                f"Expected tap {name!r} to be {often} on {self._count}N rows (`view_layout`={self.view_layout!r}), got "
                f"{counts}.{hint}"
            )
        return torch.cat(calls)


def _towers(name: str, paths: Sequence[str]) -> list[str]:
    if not (isinstance(paths, Sequence) and len(paths) > 1 and all(isinstance(path, str) for path in paths)):
        raise ValueError(f"Expected `taps` {name} to be a path, or a list of two or more, but got {paths!r}.")
    names = tower_names(paths)
    if len(set(names)) < len(names):
        raise ValueError(
            f"Expected `taps` {name} to list different towers, but got {paths!r}. For one submodule that is called "
            f"once per view, say {name}={paths[0]!r}."
        )
    return names


def _unlike(name: str, calls: Sequence[Tensor]) -> ValueError:
    shapes = [tuple(call.shape) for call in calls]
    return ValueError(f"Expected tap {name!r} to return one shape per view, but got {shapes}.")


def _is_module(name: str) -> bool:
    return name.partition(".")[0] in _MODULES


class _Hook:
    """Records the outputs of a submodule. A copy of the submodule, such as a momentum encoder, has the same hook."""

    def __init__(self, taps: Taps, tap: Tap, module: nn.Module) -> None:
        self.taps, self.tap, self.module, self.whole = taps, tap, module, not tap.parts

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if self.taps.is_open and not _going_back():
            rows = self.whole and isinstance(output, Tensor) and output.ndim == 2  # torch.compile can take these along
            held = output.detach().clone() if rows else _recorded(self.tap, output)
            self.taps.record(self.tap.name, held, of_copy=module is not self.module)

    def __deepcopy__(self, memo: Any) -> "_Hook":
        return self

    def __reduce__(self) -> Any:  # of a model that is pickled
        return _NoHook, ()


def _going_back() -> bool:
    # activation checkpointing calls submodules again in the backward pass
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


class _NoHook:
    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> None:
        pass


@torch.compiler.disable
def _recorded(tap: Tap, output: Any) -> Tensor | Exception:
    try:
        return tap(output).detach().clone()  # a later layer may work in place
    except Exception as error:  # raised by `close`: in a hook, it would end the host's own step
        return error
