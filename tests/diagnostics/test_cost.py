"""Every diagnostic declares its cost, known costs are those that theory says, and a wrong declaration is found.

That all declarations hold is asked by tests/testing/test_check_diagnostic.py.
"""

from dataclasses import replace

import pytest
import torch
from clouds import Drawn
from observations import concrete, metric_of, observed

from lightning_ssl_geometry.cost import LETTERS, Cost, terms
from lightning_ssl_geometry.diagnostics import (
    Alignment,
    Clusteredness,
    Diagnostic,
    EffectiveRank,
    EquivarianceError,
    NeuralCollapse,
    SIGReg,
    Uniformity,
)
from lightning_ssl_geometry.testing import check_diagnostic
from lightning_ssl_geometry.testing.case import Case
from lightning_ssl_geometry.testing.growth import degree


def sized(rows, width):
    return observed(Drawn(rows=rows, width=width).points().double(), p=width)


def checked(kind, **settings):
    only = ["memory", "cost"]
    return check_diagnostic(metric_of(kind, **settings), sized(24, 6), only=only, sized=sized)


@pytest.mark.parametrize("name", concrete())
def test_every_diagnostic_declares_its_cost(name):
    assert isinstance(concrete()[name].cost, Cost)


@pytest.mark.parametrize(
    ("kind", "update", "compute", "memory"),  # powers of the letters
    [
        # (2 N, D)^T (2 N, D), then the eigenvalues of (D, D)
        (EffectiveRank, {"n": 1, "N": 0, "D": 2, "nND": 3}, {"N": 0, "D": 3}, {"N": 0, "D": 2}),
        # a number for each pair of views
        (Alignment, {"n": 1, "N": 0, "D": 1, "nND": 2}, {"N": 0, "D": 0}, {"N": 0, "D": 0}),
        # the samples are kept, and each is compared with each
        (Uniformity, {"n": 1, "N": 1, "D": 1, "nND": 2}, {"N": 2, "D": 1, "nND": 3}, {"N": 1, "D": 1, "nND": 2}),
        # the samples are kept, and projected on a fixed number of directions
        (SIGReg, {"n": 1, "N": 1, "D": 1, "nND": 2}, {"N": 1, "D": 1, "nND": 2}, {"N": 1, "D": 1, "nND": 2}),
    ],
)
def test_costs_that_are_known(kind, update, compute, memory):
    growth = Case(metric_of(kind), sized(24, 6), None, sized=sized).growth
    measured = ((update, growth.update), (compute, growth.compute), (memory, growth.memory))
    for said, (expected, found) in zip((kind.cost.update, kind.cost.compute, kind.cost.memory), measured, strict=True):
        assert {letters: degree(found[letters]) for letters in expected} == expected
        for letters, power in expected.items():
            assert max(sum(term.get(letter, 0) for letter in letters) for term in terms(said)) == power


WRONG = [
    (EffectiveRank, {"compute": "D^2"}, r"cost: compute='D\^2' .* power 2 of D, but the power 3 was measured: "),
    (EffectiveRank, {"compute": "N D^3"}, r"compute='N D\^3' .* power 1 of N, but the power 0 was measured: "),
    (EffectiveRank, {"update": "n D"}, r"update='n D' .* power 1 of D, but the power 2 was measured"),
    (EffectiveRank, {"update": "n D^3"}, r"update='n D\^3' .* power 3 of D, but the power 2 was measured"),
    (EffectiveRank, {"memory": "D"}, r"memory: memory='D' .* power 1 of D, but the power 2 was measured: "),
    (EffectiveRank, {"memory": "N D^2"}, r"memory='N D\^2' .* power 1 of N, but the power 0 was measured"),
    (Uniformity, {"compute": "N D"}, r"compute='N D' .* power 1 of N, but the power 2 was measured"),
    (Uniformity, {"compute": "N^2 + D"}, r"power 2 of n, N, D together, but the power 3 was measured"),
    (Uniformity, {"compute": "N^3 D"}, r"compute='N\^3 D' .* power 3 of N, but the power 2 was measured"),
    (Uniformity, {"memory": "N + D"}, r"power 1 of n, N, D together, but the power 2 was measured"),
    (Uniformity, {"memory": "1"}, r"memory='1' .* power 0 of N, but the power 1 was measured"),
    (Uniformity, {"update": "n D"}, r"update='n D' .* power 0 of N, but the power 1 was measured"),
    (Alignment, {"compute": "D"}, r"compute='D' .* power 1 of D, but the power 0 was measured"),
    (EquivarianceError, {"update": "F"}, r"update='F' .* power 0 of n, but the power 1 was measured"),
    (EquivarianceError, {"update": "n^2 F"}, r"update='n\^2 F' .* power 2 of n, but the power 1 was measured"),
    (Clusteredness, {"compute": "N D"}, r"compute='N D' .* power 1 of N, but the power 2 was measured"),
]


@pytest.mark.parametrize(("kind", "changes", "message"), WRONG)
def test_a_wrong_declaration_is_found(kind, changes, message):
    wrong = type("Wrong", (kind,), {"cost": replace(kind.cost, **changes)})
    with pytest.raises(AssertionError, match=message):
        checked(wrong)


def test_work_that_is_not_counted_may_be_more():
    more = type("More", (Uniformity,), {"cost": replace(Uniformity.cost, compute="N^3 D", uncounted="a sort of numpy")})
    assert set(checked(more).values()) == {"kept"}


def test_a_cost_that_is_missing_or_no_cost_is_found():
    for cost in (None, "N D"):
        wrong = type("Wrong", (Uniformity,), {"cost": cost})
        with pytest.raises(AssertionError, match=rf"(?s)memory: `cost` is {cost!r}.*\ncost: `cost` is {cost!r}, but a"):
            checked(wrong)
    assert Diagnostic.cost is None


def test_without_larger_observations_the_samples_are_drawn_again():
    given = {"h": Drawn(rows=24, width=5).points(), "label": torch.arange(24) % 3}
    found = check_diagnostic(NeuralCollapse(), given, only=["memory", "cost"])
    assert set(found.values()) == {"kept"}
    wrong = type("Wrong", (NeuralCollapse,), {"cost": replace(NeuralCollapse.cost, update="n D")})
    with pytest.raises(AssertionError, match="power 1 of D, but the power 2 was measured"):
        check_diagnostic(wrong(), given, only=["cost"])


def test_the_width_stays_where_a_network_is_observed():
    given = {name: value for name, value in sized(24, 6).items() if name in ("h", "projector")}
    kind = concrete()["NullSpaceFraction"]
    growth = Case(kind(), given, None).growth
    assert list(growth.update) == ["n", "N", "nN"]
    assert check_diagnostic(kind(), given, only=["cost"]) == {"cost": "kept"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"update": "n log n"},
            r"Expected `update` to be '1' or a sum of products of n, N, C, D, K, X, F .* 'n log n'",
        ),
        ({"compute": "n D"}, r"Expected `compute` to be '1' or a sum of products of N, C, D, K, X, F .* but got 'n D'"),
        ({"memory": "D N"}, "`memory` .* in this order, .* but got 'D N'"),
        ({"memory": "D^4"}, r"`memory` .* with powers 2 or 3, .* but got 'D\^4'"),
        ({"memory": ""}, "`memory` .* but got ''"),
        ({"memory": "D D"}, "`memory` .* but got 'D D'"),
        ({"memory": "D + D"}, r"`memory` .* but got 'D \+ D'"),
        ({"memory": "1 + D"}, r"`memory` .* but got '1 \+ D'"),
        ({"memory": "D^1"}, r"`memory` .* but got 'D\^1'"),
        ({"memory": "O(D)"}, r"`memory` .* but got 'O\(D\)'"),
        ({"memory": None}, "`memory` .* but got None"),
        ({"uncounted": None}, "Expected `uncounted` to be a text, but got None"),
    ],
)
def test_errors_name_the_argument(changes, message):
    with pytest.raises(ValueError, match=message):
        Cost(**{"update": "n D", "compute": "D", "memory": "D"} | changes)


def test_terms_have_the_letters_in_their_order():
    said = "n N^2 C D^3 K X^2 F + 1"
    assert "".join(terms(said)[0]) == "".join(LETTERS)
    assert terms(said) == [{"n": 1, "N": 2, "C": 1, "D": 3, "K": 1, "X": 2, "F": 1}, {}]
