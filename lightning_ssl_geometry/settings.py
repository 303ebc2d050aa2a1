"""Support for constructors that pass `**settings` on to another constructor."""

__all__ = ["all_named", "names_its_class", "passed_on"]

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from lightning_ssl_geometry.spelling import near

_Function = TypeVar("_Function", bound=Callable[..., Any])
_OF_A_CONSTRUCTOR = re.compile(
    r"^(?:[\w.<>]*\.__init__|(?:\w+\.)*[A-Z]\w*)\(\) got (?:an unexpected keyword|multiple values for(?: keyword)?) "
    r"argument '(\w+)'"
)


def passed_on(function: _Function) -> _Function:
    """Decorate a constructor so that jsonargparse finds the defaults and descriptions of its `**settings`.

    The annotation `Unpack[...]` is replaced by `Any`. jsonargparse then reads the constructor that takes the settings,
    in place of the annotation. The attribute `accepts` keeps the names of the settings.

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
    vars(function)["accepts"] = _keys(function.__annotations__.get(kwargs))
    function.__annotations__ = function.__annotations__ | {kwargs: Any}
    return function


def names_its_class(constructor: _Function) -> _Function:
    """Decorate a constructor, so that the error of an unknown keyword names the class that the user called.

    Python's own error may name the constructor of a parent, or of a part of the object.

    >>> class Base:
    ...     @names_its_class
    ...     def __init__(self, width=1.0): ...
    >>> class Square(Base): ...
    >>> Square(widht=2.0)
    Traceback (most recent call last):
    TypeError: Square() got an unexpected keyword argument 'widht'. Did you mean 'width'?
    """

    @functools.wraps(constructor)
    def wrapped(self: object, *given: Any, **named: Any) -> None:
        try:
            constructor(self, *given, **named)
        except TypeError as error:
            found = _OF_A_CONSTRUCTOR.search(str(error))
            if found is None or found[1] not in named:
                raise
            name, called = found[1], f"{type(self).__name__}() got"
            if "multiple" in found[0] and name in inspect.signature(constructor).parameters:
                raise TypeError(f"{called} multiple values for argument {name!r}") from None
            known = [each for each in _accepted(type(self)) if each != name]
            hint = [f". Did you mean {each!r}?" for each in near(name, known, most=1)]
            raise TypeError("".join([f"{called} an unexpected keyword argument {name!r}", *hint])) from None

    return wrapped  # type: ignore[return-value]


def _accepted(kind: type) -> list[str]:
    names: list[str] = []
    for each in kind.__mro__:
        if constructor := vars(each).get("__init__"):
            own = inspect.signature(constructor).parameters.values()
            names += [one.name for one in own if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)][1:]
            unpacked = [one.annotation for one in own if one.kind is one.VAR_KEYWORD]
            if not unpacked:
                break
            names += getattr(constructor, "accepts", _keys(unpacked[0]))
    return names


def _keys(unpacked: Any) -> list[str]:
    # [] if the annotation is not `Unpack[...]`
    return [name for each in getattr(unpacked, "__args__", ()) for name in getattr(each, "__annotations__", ())]


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
