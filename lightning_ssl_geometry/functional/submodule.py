"""A part of a network by its name."""

__all__ = ["submodule"]

import difflib

from torch import nn

_COMPILED = "_orig_mod."


def submodule(network: nn.Module, path: str, argument: str, given: str | None = None) -> nn.Module:
    """Find a submodule by its dotted name; the names of a network that torch.compile wrapped are those without it.

    Args:
        network: Has it.
        path: Its name, such as "backbone.layer4".
        argument: What the name was given as, for the error.
        given: How it was given, likewise; the name itself by default.

    Raises:
        ValueError: If there is none of that name; the nearest names are offered.

    >>> submodule(nn.Sequential(nn.Linear(3, 2)), "0", "layers")
    Linear(in_features=3, out_features=2, bias=True)
    """
    modules = dict(network.named_modules(remove_duplicate=False))
    modules |= {name.replace(_COMPILED, ""): module for name, module in modules.items() if _COMPILED in name}
    if path and path in modules:
        return modules[path]
    known = [name for name in modules if name and "_orig_mod" not in name]
    near = difflib.get_close_matches(path, known) or [name for name in known if "." not in name]
    raise ValueError(
        f"Expected `{argument}` to name submodules of {type(network).__name__}, but got {given or repr(path)}. "
        f"Near: {', '.join(near) or 'it has none'}."
    )
