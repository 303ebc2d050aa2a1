"""Support for constructors that pass `**settings` on to another constructor."""

__all__ = ["all_named", "passed_on"]

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def passed_on(function: _Function) -> _Function:
    """Decorate a constructor so that jsonargparse finds the defaults and descriptions of its `**settings`.

    At run time, the annotation `Unpack[...]` is replaced by `Any`. jsonargparse then reads the constructor that takes
    the settings. With `Unpack[...]`, jsonargparse would read only the names of the settings.

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
    """Return a context in which the constructor's signature lists the arguments accepted by its `**settings`.

    Lightning reads this signature to ignore unknown hyper-parameters of a checkpoint.

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
