"""The recipe examples/choosing: when a guard warns, and that its arms and the study's can be trained."""

import math

import pytest
from recipes import beside

pytestmark = pytest.mark.filterwarnings("ignore:geometry.val.collapse.rows_seen.csv")


def readouts(recipe, cosine_z, participation_z):
    sizes = enumerate(zip(cosine_z, participation_z, strict=True))
    return [recipe.Readout("arm", 0, epoch, 0.5, c, 8.0, p, 0, math.nan, math.nan) for epoch, (c, p) in sizes]


@pytest.mark.parametrize(
    ("cosine", "participation", "patience", "expected"),
    [
        ([0.5, 0.996, 0.996, 0.996], [8.0] * 4, 3, 4),
        ([0.5, 0.996, 0.5, 0.996], [8.0] * 4, 1, 2),
        ([0.5, 0.996, 0.5, 0.996], [8.0] * 4, 2, None),  # not in a row
        ([0.996, 0.5, 0.5, 0.5], [8.0, 1.4, 8.0, 8.0], 2, None),  # each threshold counts for itself
        ([0.5] * 4, [8.0, 1.4, 1.4, 1.6], 2, 3),
        ([math.nan] * 4, [math.nan] * 4, 1, None),
    ],
)
def test_when_a_guard_warns(cosine, participation, patience, expected):
    recipe = beside("choosing", "readouts")
    assert recipe.first_warning(readouts(recipe, cosine, participation), patience) == expected


def test_an_arm_of_the_guard_has_a_readout_per_epoch(monkeypatch):
    guard = beside("choosing", "guard")
    monkeypatch.setattr(guard, "EPOCHS", 2)
    rows = guard.train("no negatives", 0)
    assert [row.epoch for row in rows] == [0, 1]
    assert math.isnan(rows[0].accuracy_h)
    assert 0 <= rows[1].accuracy_h <= 1
    assert 1 <= rows[1].participation_z <= 32
    assert not rows[1].found
