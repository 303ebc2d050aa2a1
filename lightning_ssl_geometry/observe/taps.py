"""Taps: forward hooks that record the outputs of a model's submodules."""

__all__ = ["Taps", "ViewLayout"]

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import one_of
from lightning_ssl_geometry.introspection import submodule

ViewLayout = Literal["calls", "halves", "interleaved"]
_MODULES = ("encoder", "projector")
_MOST = 6
_NO_FORWARD = "LightningModule.forward"  # by name, for the packages lightning and pytorch_lightning


class Taps:
    """Records the outputs of submodules with forward hooks.

    Args:
        taps: Name -> dotted path of a submodule whose output is recorded. The names "encoder" and "projector" stand for
            the submodule itself, not for its output.
        view_layout: How the submodules receive the views: see :class:`lightning_ssl_geometry.observe.host.Host`.

    Attributes:
        silent: Names in `taps` whose submodules the latest step did not call.
    """

    def __init__(self, taps: dict[str, str], view_layout: ViewLayout = "calls") -> None:
        one_of(get_args(ViewLayout), view_layout=view_layout)
        self.taps = taps
        self.view_layout = view_layout
        self._modules: dict[str, nn.Module] = {}
        self._sources: dict[str, nn.Module] = {}
        self._caught: dict[str, list[Tensor]] = {}
        self._called: set[str] = set()
        self.silent: list[str] = []
        self._handles: list[Any] = []
        self._linear: list[str] = []
        self._open = False
        self._count = 2
        self._own_pass = False

    def attach(self, host: nn.Module) -> None:
        """Register the hooks on submodules of `host`. Raises a ValueError if a path in `taps` is no submodule."""
        named = host.named_modules(remove_duplicate=False)
        self._linear = [path.replace("_orig_mod.", "") for path, each in named if isinstance(each, nn.Linear)]
        self._called, self.silent = set(), []
        self.detach()  # attach before the first forward pass: a compiled module ignores later hooks
        for name, path in self.taps.items():
            module = submodule(host, path, argument="taps", given=f"{name}={path!r}")
            self._sources[name] = module
            if name in _MODULES:  # diagnostics need its layers, not torch.compile's wrapper
                self._modules[name] = getattr(module, "_orig_mod", module)
            else:
                self._handles.append(module.register_forward_hook(self._hook(name)))

    def detach(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._modules, self._sources, self._open = [], {}, {}, False

    def open(self) -> None:
        """Start to record the outputs."""
        self._caught, self._open, self._count, self._own_pass = {}, True, 2, False

    def cancel(self) -> None:
        """Stop recording, and discard the recorded outputs."""
        self._called |= self._caught.keys()
        self._caught, self._open = {}, False

    def close(self, samples: int | None = None) -> dict[str, Any]:
        """Stop recording, and return the outputs and modules by their names in `taps`.

        Each output is detached, and (V, N, ...) for V views of N samples. `samples` is N, if it is known. A step may
        call only some of the submodules: `silent` has the others. Raises a ValueError if the step called none, or if
        the model itself was called and did not call all. Also raises a ValueError if a submodule returned no tensor, if
        z was computed before h, or if N differs between views.
        """
        self._open = False
        self._called |= self._caught.keys()
        self.silent = [name for name in self._hooked if name not in self._caught]
        if self.silent and (self._own_pass or not self._caught):
            self.refuse(self.silent)
        self._count_views(samples)
        caught, self._caught = self._caught, {}
        for name, outputs in caught.items():
            if strange := [output for output in outputs if not isinstance(output, Tensor)]:
                raise ValueError(f"Expected tap {name!r} to return a tensor, but got {type(strange[0]).__name__}.")
        if [name for name in caught if name in ("h", "z")] == ["z", "h"]:
            raise ValueError(
                f"Expected `taps` h before z, but {self.taps['z']!r} (z) returned before {self.taps['h']!r} (h). "
                f"Exchange them: {{'h': {self.taps['z']!r}, 'z': {self.taps['h']!r}}}."
            )
        return {name: self._arrange(name, calls) for name, calls in caught.items()} | self._modules

    def refuse(self, names: Sequence[str]) -> None:
        """Raise a ValueError that says that the submodules of these names in `taps` were not called."""
        raise ValueError(
            f"Expected the step to pass through `taps` {list(names)}, but {self.taps[names[0]]!r} was never called. "
            f"{self._remedy()} (What torch.compile had compiled before is called without hooks.)"
        )

    @property
    def uncalled(self) -> list[str]:
        """Names in `taps` whose submodules no step has called since :meth:`attach`."""
        return [name for name in self._hooked if name not in self._called]

    def calls(self, views: Sequence[Tensor]) -> list[Tensor]:
        """Arrange V views (N, ...) as inputs of :meth:`forward`.

        If `view_layout` is "calls", the list has V inputs of N rows. Otherwise, it has one input of V N rows.
        """
        self._count, self._own_pass = len(views), True  # after `open`, which resets both
        if self.view_layout == "calls":
            return list(views)
        rows = torch.stack(list(views), dim=0 if self.view_layout == "halves" else 1)
        return [rows.flatten(0, 1)]

    def forward(self, host: nn.Module, x: Tensor) -> None:
        """Pass an input through the encoder and the projector if `taps` has both, else through the whole model."""
        if self._modules.keys() >= {"encoder", "projector"}:
            self._pass("projector", self._pass("encoder", x, after="projector").flatten(1))
        elif "h" in self._sources and type(host).forward.__qualname__ == _NO_FORWARD:  # the model has none
            h = self._pass("h", x, after="z").flatten(1)
            if "z" in self._sources:
                self._pass("z", h)
        else:
            host(x)

    def place_of(self, message: str) -> str:
        """Return the paths of the modules in `taps` that a message names in backticks, in sentences, or "".

        If the message is about linear layers, their paths inside the module, or else in the model, are added.
        """
        said = ""
        for name, path in self.taps.items():
            if name in self._modules and f"`{name}`" in message:
                said += f" `taps` has {name}={path!r}." + (self._linear_layers(path) if "Linear" in message else "")
        return said

    def _linear_layers(self, path: str) -> str:
        inside = [each for each in self._linear if each == path or each.startswith(f"{path}.")]
        found = (inside or self._linear)[:_MOST]
        return f" Linear layers {'inside of it' if inside else 'elsewhere'}: {', '.join(found) or 'none'}."

    def _pass(self, name: str, x: Tensor, after: str = "") -> Tensor:
        try:
            output: Tensor = self._sources[name](x)
        except (RuntimeError, TypeError, ValueError) as error:
            first, second = self.taps[name], self.taps.get(after)
            hint = f" If the two are exchanged, say {{{name!r}: {second!r}, {after!r}: {first!r}}}." if second else ""
            raise ValueError(
                f"Expected `taps` {name}={first!r} to take a tensor of shape {tuple(x.shape)}, but it raised "
                f"{type(error).__name__}: {error}.{hint}"
            ) from error
        return output

    @property
    def _hooked(self) -> list[str]:
        return [name for name in self.taps if name not in self._modules]

    def _count_views(self, samples: int | None) -> None:
        rows = next((len(calls[0]) for calls in self._caught.values() if isinstance(calls[0], Tensor)), 0)
        if samples and not self._own_pass and rows and rows % samples == 0:
            self._count = rows // samples

    def _hook(self, name: str) -> Any:
        def catch(module: nn.Module, inputs: Any, output: Any) -> None:
            if self._open:
                caught = output.detach().flatten(1) if isinstance(output, Tensor) else output
                self._caught.setdefault(name, []).append(caught)

        return catch

    def _remedy(self) -> str:
        if not self._own_pass:
            return "Name submodules that the host's step calls, or leave its stage out of `stages`."
        known = {"encoder": self.taps.get("h"), "projector": self.taps.get("projector", self.taps.get("z"))}
        wanted = [f"{name!r}: {path!r}" for name, path in known.items() if path and name not in self.taps]
        if not wanted:
            return "The tapped `encoder` and `projector` do not pass through it."
        return f"The host's `forward` does not pass through it: add {' and '.join(wanted)} to `taps`."

    def _arrange(self, name: str, calls: list[Tensor]) -> Tensor:
        if self.view_layout == "calls":
            if len({call.shape for call in calls}) > 1:
                shapes = [tuple(call.shape) for call in calls]
                raise ValueError(f"Expected tap {name!r} to return one shape per view, but got {shapes}.")
            return torch.stack(calls)
        if len(calls) > 1 or len(calls[0]) % self._count:
            rows = [len(call) for call in calls]
            hint = " Each call is of one view: `view_layout='calls'`." if len(calls) > 1 else ""
            raise ValueError(
                f"Expected tap {name!r} to be called once on {self._count}N rows "
                f"(`view_layout`={self.view_layout!r}), got {rows}.{hint}"
            )
        if self.view_layout == "halves":
            return calls[0].unflatten(0, (self._count, -1))
        return calls[0].unflatten(0, (-1, self._count)).transpose(0, 1)
