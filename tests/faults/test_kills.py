"""Kills at random points, two resumes each: the history is that of a run without a kill."""

import random

import killed
import pytest
import torch

KILLS = 30


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The history of a fit that was not killed, the number of calls that change its files, and its time."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("whole")
    assert killed.child(killed.fit, folder, log=folder / "log.txt") == 0, (folder / "log.txt").read_text()
    return killed.history(folder / "run")


@pytest.mark.parametrize("place", range(KILLS))
def test_a_run_that_was_killed_twice_has_the_history_of_one_that_was_not(whole, tmp_path, place):
    """The resumes write to the same folder or to new version folders; the kill comes at a call or at a time."""
    chance = random.Random(place)
    version = [None, 0][place % 2]
    log = tmp_path / "log.txt"
    ends = []
    for attempt in range(2):
        late, point = chance.random() < 0.5, chance.randrange(1, 215)
        before = killed.at_call(point, late) if place % 3 else killed.after(chance.uniform(0.1, 2.0))
        ends.append(killed.child(killed.fit, tmp_path, version, attempt > 0, before=before, log=log))
    ends.append(killed.child(killed.fit, tmp_path, version, True, log=log))
    assert set(ends[:2]) <= {-9, 0}, log.read_text()
    assert ends[2] == 0, log.read_text()
    killed.assert_same_history(killed.history(tmp_path / "run"), whole)
    killed.assert_whole(tmp_path / "run")
