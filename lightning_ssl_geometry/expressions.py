"""Arithmetic and comparisons in the texts of a :class:`Quantity`, evaluated without `eval`.

An expression has numbers, names, +, -, *, /, min, max, sqrt and log. A condition compares expressions with <, <=, > and
>=, and may join comparisons by `and`.
"""

__all__ = ["holds", "names_in", "value_of"]

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

_Found = TypeVar("_Found")
_LONGEST = 200
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_COMPARISONS: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CHOICES = {"min": min, "max": max}
_FUNCTIONS = {"sqrt": math.sqrt, "log": math.log}


def value_of(text: str, names: Mapping[str, float]) -> float:
    """Return the value of an expression. It is NaN if a number in it is NaN. Errors are ValueErrors.

    >>> value_of("min(N - 1, D)", {"N": 100, "D": 64})
    64.0
    """
    return _guarded(text, lambda tree: _value(tree, names))


def holds(text: str, names: Mapping[str, float]) -> bool | None:
    """Return whether a condition holds, or None if a number in it is NaN. Errors are ValueErrors.

    >>> holds("value < 0.5 * D and N >= D", {"value": 3, "D": 64, "N": 100})
    True
    """
    return _guarded(text, lambda tree: _condition(tree, names))


def names_in(text: str) -> set[str]:
    """Return the names in an expression or a condition, without those of functions.

    >>> sorted(names_in("value < sqrt(D)"))
    ['D', 'value']
    """
    found = _guarded(text, lambda tree: {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
    return found - {*_CHOICES, *_FUNCTIONS}


def _guarded(text: str, of: Callable[[ast.expr], _Found]) -> _Found:
    try:
        if len(text) > _LONGEST:
            raise ValueError("it is too long")
        return of(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, KeyError, RecursionError, MemoryError, ArithmeticError) as error:
        raise ValueError(f"{text[:_LONGEST]!r}: {error}") from None


def _condition(node: ast.expr, names: Mapping[str, float]) -> bool | None:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            every = [_condition(part, names) for part in parts]
            return None if None in every else all(every)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            first, second = _value(left, names), _value(right, names)
            return None if math.isnan(first) or math.isnan(second) else _COMPARISONS[type(op)](first, second)
    raise ValueError(f"{type(node).__name__} is no comparison")


def _value(node: ast.expr, names: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.Name(id=name):
            return float(names[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return float(_OPERATORS[type(op)](_value(left, names), _value(right, names)))
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as arguments, keywords=[]) if name in _CHOICES:
            return _chosen(name, [_value(each, names) for each in arguments])
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](_value(argument, names))
    raise ValueError(f"{type(node).__name__} is not among them")


def _chosen(name: str, values: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else float(_CHOICES[name](values))
