"""The recipe examples/choosing: when a guard warns, and that its arms and the study's can be trained."""

import math

import pytest
from recipes import beside

pytestmark = pytest.mark.filterwarnings("ignore:geometry.val.patience_.*rows_seen.csv")


def test_the_table_of_the_guard():
    recipe = beside("choosing", "reproduce")
    nan = math.nan

    def run(seed, warned):
        for epoch in range(recipe.EPOCHS):
            end = (0.5 + seed, 0.25) if epoch == recipe.EPOCHS - 1 else (nan, nan)
            yield recipe.Readout("arm", seed, epoch, 0.5, 0.9, 8.0, 2.0, *(int(epoch >= at) for at in warned), *end)

    rows = [*run(0, (1, 4, 99)), *run(1, (99, 99, 99))]
    (line,) = recipe._lines(rows)
    assert line[:5] == ["arm", "1 of 2", "1 of 2", "0 of 2", "5"]  # index 4 is the fifth epoch
    assert line[-2:] == [recipe.over_seeds([0.5, 1.5], ".2f"), recipe.over_seeds([0.25, 0.25], ".2f")]


def test_an_arm_of_the_guard_has_a_readout_per_epoch(monkeypatch):
    guard = beside("choosing", "guard")
    monkeypatch.setattr(guard, "EPOCHS", 2)
    rows = guard.train("no negatives", 0)
    assert [row.epoch for row in rows] == [0, 1]
    assert math.isnan(rows[0].accuracy_h)
    assert 0 <= rows[1].accuracy_h <= 1
    assert 1 <= rows[1].participation_z <= 32
    assert rows[1].warned_1 in (0, 1)
    assert not rows[1].warned_3  # too few readouts
