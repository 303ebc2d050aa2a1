"""Keyword arguments that a constructor passes on to another."""

__all__ = ["passed_on"]

from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def passed_on(function: _Function) -> _Function:
    """Let the command line read defaults and descriptions of `**settings` where these are passed on to.

    jsonargparse takes the names of an `Unpack[...]` without their defaults. Where the arguments are not annotated, it
    reads in the source whose they are. Type checkers go by the source, and still see the annotation.

    >>> from typing import TypedDict, Unpack
    >>> class Settings(TypedDict, total=False):
    ...     width: float
    >>> @passed_on
    ... def area(height: float, **settings: Unpack[Settings]) -> float: ...
    >>> area.__annotations__["settings"]
    typing.Any
    """
    code = function.__code__
    kwargs = code.co_varnames[code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04)]
    function.__annotations__ = function.__annotations__ | {kwargs: Any}
    return function
