"""Taps: what a step of somebody else's model passes through its submodules, caught by forward hooks."""

__all__ = ["Taps", "ViewLayout"]

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.functional.submodule import submodule

ViewLayout = Literal["calls", "halves", "interleaved"]
_MODULES = ("encoder", "projector")
_NO_FORWARD = "LightningModule.forward"  # by name: Lightning's class comes in the packages lightning, pytorch_lightning


class Taps:
    """Names for submodules of a host, and the tensors that they return while a step is observed.

    Args:
        taps: Name of the observation -> dotted name of the submodule. "encoder" and "projector" stand for the
            submodule itself, any other name (such as "h" and "z") for its output.
        views: How a step's two views pass through: "calls", one call per view; "halves", one call on 2N rows, the
            first views first; "interleaved", one call on 2N rows, the two views of a sample in turn. Of V views that
            :meth:`calls` arranges, on VN rows.

    Raises:
        ValueError: If `views` is none of the choices.
    """

    def __init__(self, taps: dict[str, str], views: ViewLayout = "calls") -> None:
        if views not in get_args(ViewLayout):
            raise ValueError(f"Expected `views` to be one of {get_args(ViewLayout)}, but got {views!r}.")
        self.taps = taps
        self.views = views
        self._modules: dict[str, nn.Module] = {}
        self._sources: dict[str, nn.Module] = {}
        self._caught: dict[str, list[Tensor]] = {}
        self._handles: list[Any] = []
        self._open = False
        self._count = 2

    def attach(self, host: nn.Module) -> None:
        """Register the hooks; before the first forward pass, since a compiled module ignores later ones.

        Raises:
            ValueError: If a tap names no submodule of the host; the nearest names are offered.
        """
        self.detach()
        for name, path in self.taps.items():
            module = submodule(host, path, "taps", f"{name}={path!r}")
            self._sources[name] = module
            if name in _MODULES:  # diagnostics differentiate it and read its layers: without torch.compile's wrapper
                self._modules[name] = getattr(module, "_orig_mod", module)
            else:
                self._handles.append(module.register_forward_hook(self._hook(name)))

    def detach(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._modules, self._sources, self._open = [], {}, {}, False

    def open(self) -> None:
        """Catch what passes from now on."""
        self._caught, self._open, self._count = {}, True, 2

    def close(self) -> dict[str, Any]:
        """Stop catching, and return the observation: outputs as (V, N, ...), detached, and the modules.

        Raises:
            ValueError: If a hook never fired, or the rows that it caught are not V x N.
        """
        self._open = False
        silent = [name for name in self.taps if name not in self._caught and name not in self._modules]
        if silent:
            raise ValueError(
                f"Expected the step to pass through `taps` {silent}, but {self.taps[silent[0]]!r} was never called. "
                "(What torch.compile had compiled before is called without hooks. Where the monitor makes views, or "
                "in the stage 'probe', tap `encoder` and `projector` too, unless the host's `forward` returns z.)"
            )
        caught, self._caught = self._caught, {}
        return {name: self._arrange(name, calls) for name, calls in caught.items()} | self._modules

    def calls(self, views: Sequence[Tensor]) -> list[Tensor]:
        """Arrange views (V of N rows) as the host is called with them: one call each, or one on all rows.

        To be called after :meth:`open`, which expects two views.
        """
        self._count = len(views)
        if self.views == "calls":
            return list(views)
        rows = torch.stack(list(views), dim=0 if self.views == "halves" else 1)
        return [rows.flatten(0, 1)]

    def forward(self, host: nn.Module, x: Tensor) -> None:
        """Pass a batch through the tapped encoder and projector.

        Where not both are tapped, it goes through the host, or if that has no `forward`, from what h to what z is
        tapped at.
        """
        if self._modules.keys() >= {"encoder", "projector"}:
            self._sources["projector"](self._sources["encoder"](x).flatten(1))
        elif "h" in self._sources and type(host).forward.__qualname__ == _NO_FORWARD:
            h = self._sources["h"](x).flatten(1)
            if "z" in self._sources:
                self._sources["z"](h)
        else:
            host(x)

    def _hook(self, name: str) -> Any:
        def catch(module: nn.Module, inputs: Any, output: Any) -> None:
            if self._open:
                if not isinstance(output, Tensor):
                    raise ValueError(f"Expected tap {name!r} to return a tensor, but got {type(output).__name__}.")
                self._caught.setdefault(name, []).append(output.detach().flatten(1))

        return catch

    def _arrange(self, name: str, calls: list[Tensor]) -> Tensor:
        if self.views == "calls":
            if len({call.shape for call in calls}) > 1:
                shapes = [tuple(call.shape) for call in calls]
                raise ValueError(f"Expected tap {name!r} to return one shape per view, but got {shapes}.")
            return torch.stack(calls)
        if len(calls) > 1 or len(calls[0]) % self._count:
            rows = [len(call) for call in calls]
            raise ValueError(
                f"Expected tap {name!r} to be called once on {self._count}N rows (`views`={self.views!r}), got {rows}."
            )
        if self.views == "halves":
            return calls[0].unflatten(0, (self._count, -1))
        return calls[0].unflatten(0, (-1, self._count)).transpose(0, 1)
