"""Support for deprecated names and arguments, which work for one more release and warn."""

__all__ = ["by_position", "deprecated", "old_names"]

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import FrameType
from typing import Any, TypeVar

from lightning_ssl_geometry.settings import names_its_class

_PACKAGE = f"{__package__}."
_Function = TypeVar("_Function", bound=Callable[..., Any])


def deprecated(old: str, new: str) -> None:
    """Warn that `old` will be removed in the next release. The warning shows the user's line of code.

    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     deprecated("`Judge`", "`LogisticRegression`")
    >>> str(caught[0].message)
    '`Judge` will be removed in the next release: use `LogisticRegression`.'
    """
    warnings.warn(f"{old} will be removed in the next release: use {new}.", FutureWarning, _stacklevel())


def _stacklevel() -> int:
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and (_imports(frame) or _makes_class(frame) or _name(frame).startswith(_PACKAGE)):
        frame = frame.f_back
        level += not _imports(frame)
    return level


def _name(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '')}."


def _makes_class(frame: FrameType) -> bool:
    return frame.f_code.co_filename == "<frozen abc>"


def _imports(frame: FrameType) -> bool:  # `warnings` does not count these frames
    return "importlib" in frame.f_code.co_filename and "_bootstrap" in frame.f_code.co_filename


def old_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module, so that old names still work but warn.

    `names` maps each old name to the new name, or to an import path if the object has moved.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        room, _, new = names[name].rpartition(".")
        deprecated(f"`{module}.{name}`", f"`{room or module}.{new}`")
        return getattr(import_module(room or module), new)

    return find


def by_position(*names: str) -> Callable[[_Function], _Function]:
    """Return a decorator that lets a function accept its keyword-only arguments `names` by position, with a warning.

    Args:
        names: Names of these arguments, in the order of their positions.

    >>> @by_position("width")
    ... def area(height, *, width=1.0):
    ...     return height * width
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     area(2.0, 3.0)
    6.0
    >>> str(caught[0].message)
    '`area` with `width` by position will be removed in the next release: use `width=...`.'
    """

    def decorate(function: _Function) -> _Function:
        kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
        most = sum(
            kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds
        )

        call = names_its_class(function) if function.__name__ == "__init__" else function

        @functools.wraps(function)
        def wrapped(*given: Any, **named: Any) -> Any:
            late = dict(zip(names, given[most:], strict=False))
            if late:
                said = ", ".join(f"`{name}`" for name in late)
                constructs = function.__name__ == "__init__"
                called = type(given[0]).__name__ if constructs else function.__name__
                deprecated(f"`{called}` with {said} by position", ", ".join(f"`{name}=...`" for name in late))
            if twice := late.keys() & named.keys():
                raise TypeError(f"{function.__qualname__}() got multiple values for argument {min(twice)!r}")
            return call(*given[:most], *given[most + len(names) :], **late, **named)

        return wrapped  # type: ignore[return-value]

    return decorate
