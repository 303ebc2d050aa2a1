"""Conditions and caps are arithmetic and nothing else, and a number that is not known makes them silent."""

import math

import pytest

from lightning_ssl_geometry.expressions import holds, names_in, value_of
from lightning_ssl_geometry.quantity import Verdict


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("min(V * N, D) - 1", 7),
        ("-N + 2 * D / 4", -6),
        ("max(sqrt(N), log(D / D))", math.sqrt(10)),
    ],
)
def test_an_expression_has_its_value(text, value):
    assert value_of(text, {"V": 2, "N": 10, "D": 8}) == pytest.approx(value)
    assert math.isnan(value_of(text, {"V": 2, "N": math.nan, "D": 8}))


def test_a_condition_is_true_false_or_unknown():
    numbers = {"value": 1.0, "limit": 2.0, "lost": math.nan}
    assert holds("value < limit and limit >= 2", numbers) is True
    assert holds("value < limit and limit > 2", numbers) is False
    assert holds("value < limit and lost > 0", numbers) is None
    assert holds("value > limit and lost > 0", numbers) is None  # as if it had not been looked at
    assert names_in("sqrt(value) < min(limit, 3) and lost > 0") == {"value", "limit", "lost"}


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getcwd() > 0",
        "value",
        "value == 1",
        "0 < value < 1",
        "value < 1 or value > 2",
        "value < 9 ** 9 ** 9",
        "value < True",
        "value < 1 / 0",
        "value < log(0)",
        "value < 1e400 - unknown",
        "value < [1][0]",
        "value <",
        "value < " + "(" * 190 + "1" + ")" * 190,
        "value < " + "1 + " * 60 + "1",
    ],
)
def test_anything_else_is_a_value_error(text):
    with pytest.raises(ValueError):
        holds(text, {"value": 1.0})


@pytest.mark.parametrize(
    ("says", "when", "source"),
    [
        ("It is {value ** 2}.", "value < 1", "A fact"),
        ("It is low.", "value", "A fact"),
        ("It is low.", "value < 1", ""),
        ("", "value < 1", "A fact"),
    ],
)
def test_a_verdict_is_checked_where_it_is_declared(says, when, source):
    with pytest.raises(ValueError, match=r"Expected .*Verdict"):
        Verdict(says=says, when=when, source=source)
