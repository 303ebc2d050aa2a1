"""Keyword arguments `**settings` that a constructor passes on to another constructor."""

__all__ = ["all_named", "passed_on"]

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def passed_on(function: _Function) -> _Function:
    """Decorate a constructor, so that the command line shows defaults and descriptions of its `**settings`.

    From an annotation `Unpack[...]`, jsonargparse would read only the names. Without this annotation, it finds in the
    source to which constructor the settings are passed, and reads that constructor. So this decorator replaces the
    annotation by `Any` at run time. Type checkers still see the annotation in the source.

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


@contextmanager
def all_named(kind: type) -> Iterator[None]:
    """Within this context, the signature of the constructor of `kind` lists what its `**settings` accepts.

    From the signature, Lightning sees which hyper-parameters in a checkpoint are unknown, and ignores them.

    >>> class Base:
    ...     def __init__(self, depth=1): ...
    >>> class Derived(Base):
    ...     def __init__(self, width, **settings): ...
    >>> with all_named(Derived):
    ...     print(inspect.signature(Derived.__init__))
    (self, width, *, depth=1)
    """
    constructor: Any = vars(kind).get("__init__", kind.__init__)  # type: ignore[misc]
    before = vars(constructor).get("__signature__")
    constructor.__signature__ = _signature(kind)
    try:
        yield
    finally:
        if before is None:
            del constructor.__signature__
        else:
            constructor.__signature__ = before


def _signature(kind: type) -> inspect.Signature:
    """Join the parameters of a constructor and of its parents', up to the first without `**settings`."""
    found: dict[str, inspect.Parameter] = {}
    for each in kind.__mro__:
        if "__init__" not in vars(each):
            continue
        own = inspect.signature(vars(each)["__init__"]).parameters.values()
        for one in own:
            if one.name not in found and one.kind is not one.VAR_KEYWORD:
                found[one.name] = one.replace(kind=one.KEYWORD_ONLY) if found and each is not kind else one
        if not any(one.kind is one.VAR_KEYWORD for one in own):
            break
    order = sorted(found.values(), key=lambda one: one.kind)
    return inspect.Signature(order)
