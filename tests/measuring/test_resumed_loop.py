"""A GeometryLoop that a checkpoint continues: the same folder, each readout once."""

import json

import pytest
import torch
from hosts import PlainHost, loader, pairs, quiet
from loops import Model, diagnostics, loop, rows, seeded, train
from pages import report, write_info, write_log

from lightning_ssl_geometry.callbacks import RunReport
from lightning_ssl_geometry.recording import run_record
from lightning_ssl_geometry.report import read_run
from lightning_ssl_geometry.report.facts import facts


@pytest.mark.parametrize("mid_epoch", [False, True])
def test_a_resumed_run_continues_the_folder(tmp_path, mid_epoch):
    model = seeded()
    geometry = loop(tmp_path / "whole", model, diagnostics=diagnostics())
    torch.manual_seed(1)
    train(model, geometry, epochs=3)
    geometry.close()
    first = seeded()
    part = loop(tmp_path / "parts", first, diagnostics=diagnostics())
    torch.manual_seed(1)
    train(first, part, epochs=2)
    saved = {"model": first.state_dict(), "random": torch.get_rng_state(), "geometry": part.state_dict()}
    torch.save(saved, tmp_path / "x.pt")
    train(first, part, epochs=3, first=2)  # goes on after the checkpoint, and is killed
    if mid_epoch:
        with part.step(pairs()[:8]):
            first.loss(*pairs()[:8])
    held = torch.load(tmp_path / "x.pt", weights_only=True)
    second = Model()
    second.load_state_dict(held["model"])
    torch.set_rng_state(held["random"])
    rest = loop(tmp_path / "parts", second, diagnostics=diagnostics())
    rest.load_state_dict(held["geometry"])
    train(second, rest, epochs=3, first=2)
    rest.close()
    assert rest.folder == part.folder
    assert rows(rest.folder / "metrics.csv") == rows(geometry.folder / "metrics.csv")
    for path in (geometry.folder / "geometry" / "train").glob("*.csv"):
        assert (rest.folder / "geometry" / "train" / path.name).read_text() == path.read_text()
    assert (rest.folder / "superseded-1" / "metrics.csv").exists()
    record = json.loads((rest.folder / "run.json").read_text())
    assert record["from_step"] == 10
    assert [part["ended"] for part in record["parts"]] == [None, record["ended"]]  # the first part was killed
    assert record["started"] == record["parts"][0]["started"]


def test_a_run_in_three_parts_began_with_the_first_and_took_the_sum(tmp_path, monkeypatch):
    clock = iter(f"2026-01-0{day}T00:0{minute}:00+00:00" for day in (1, 2, 3) for minute in (0, day))
    monkeypatch.setattr(run_record, "_now", lambda: next(clock))
    state = None
    for epoch in range(3):
        geometry = loop(tmp_path)
        if state:
            geometry.load_state_dict(state)
        train(geometry.model, geometry, epochs=epoch + 1, first=epoch)
        state = geometry.state_dict()
        geometry.close()
    said = facts(read_run(tmp_path / "version_0"))
    assert said[-3:] == ["started 2026-01-01 00:00 UTC", "took 6 min 0 s", "resumed twice"]


@pytest.mark.parametrize("same_folder", [True, False])
def test_a_resumed_fit_began_with_the_first_part(tmp_path, monkeypatch, same_folder):
    clock = iter(f"2026-01-0{day}T00:0{minute}:00+00:00" for day in (1, 2) for minute in (0, day))
    monkeypatch.setattr(run_record, "_now", lambda: next(clock))
    folders = [tmp_path / "first", tmp_path / ("first" if same_folder else "second")]
    checkpoint = None
    for epochs, folder in enumerate(folders, 1):
        trainer = quiet(folder, max_epochs=epochs, callbacks=[RunReport(table=False)])
        trainer.fit(PlainHost(), loader(), loader(seed=1), ckpt_path=checkpoint)
        trainer.save_checkpoint(checkpoint := tmp_path / "x.ckpt")
    said = facts(read_run(folders[-1]))
    assert said[-3:] == ["started 2026-01-01 00:00 UTC", "took 3 min 0 s", "resumed once"]


def test_a_part_that_was_killed_took_an_unknown_time(tmp_path):
    first, second = "2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"
    parts = [{"started": first, "ended": None}, {"started": second, "ended": "2026-01-02T00:02:00+00:00"}]
    write_log(tmp_path, loss=[1.0, 0.5])
    write_info(tmp_path, started=first, ended=parts[1]["ended"], parts=parts)
    assert facts(read_run(tmp_path))[-2:] == ["took more than 2 min 0 s", "resumed once"]
    assert (
        "2026-01-01 00:00 UTC, end not recorded; 2026-01-02 00:00 UTC to 2026-01-02 00:02 UTC" in report(tmp_path).text
    )


def test_a_run_whose_folder_is_gone_gets_a_new_one(tmp_path):
    model = seeded()
    geometry = loop(tmp_path / "old", model)
    train(model, geometry, epochs=1)
    state = geometry.state_dict()
    (tmp_path / "old" / "version_0").rename(tmp_path / "moved")
    other = loop(tmp_path / "new", model)
    other.load_state_dict(state)
    with pytest.warns(UserWarning, match="no longer the folder of the run that is resumed"):
        train(model, other, epochs=2, first=1)
    assert [row["step"] for row in rows(other.folder / "metrics.csv")] == ["9"]


def resumed(folder, state):
    geometry = loop(folder, diagnostics=diagnostics())
    geometry.load_state_dict(state)
    return geometry


def test_a_checkpoint_between_the_last_step_and_its_readout(tmp_path):
    model = seeded()
    geometry = loop(tmp_path, model, diagnostics=diagnostics())
    train(model, geometry, epochs=1)
    with geometry.step(pairs()[:8]):
        model.loss(*pairs()[:8])
    state = geometry.state_dict()
    geometry.read_out({"train/loss": 0.25})  # the checkpoint does not know of it
    rest = resumed(tmp_path, state)
    train(rest.model, rest, epochs=2, first=1)
    table = rows(rest.folder / "metrics.csv")
    assert [row["epoch"] for row in table] == ["0", "1"]
    assert [row["epoch"] for row in rows(rest.folder / "geometry" / "train" / "rows_seen.csv")] == ["0", "1"]
    assert [row["train/loss"] for row in rows(rest.folder / "superseded-1" / "metrics.csv")] == ["0.25"]


def test_results_from_before_the_first_step_stay(tmp_path):
    geometry = loop(tmp_path, diagnostics=diagnostics())
    geometry.look([pairs()[:]])
    geometry.read_out()
    rest = resumed(tmp_path, geometry.state_dict())
    train(rest.model, rest, epochs=2, first=1)
    assert [row["epoch"] for row in rows(rest.folder / "metrics.csv")] == ["0", "1"]
    assert not (rest.folder / "superseded-1").exists()


def test_numbers_of_epochs_that_begin_again_lose_no_readout(tmp_path):
    """Training in two phases, each with epochs from 0, and a checkpoint in the second."""
    geometry = loop(tmp_path, diagnostics=diagnostics())
    for epoch in (0, 1, 2, 0):
        one_step(geometry)
        geometry.read_out(epoch=epoch)
    state = geometry.state_dict()
    one_step(geometry)
    geometry.read_out(epoch=1)  # the checkpoint does not know of it
    rest = resumed(tmp_path, state)
    one_step(rest)
    rest.read_out(epoch=1)
    for name in ("metrics.csv", "geometry/train/rows_seen.csv"):
        assert [row["epoch"] for row in rows(rest.folder / name)] == ["0", "1", "2", "0", "1"]
        assert [row["epoch"] for row in rows(rest.folder / "superseded-1" / name)] == ["1"]


def test_two_readouts_in_one_epoch_are_told_apart(tmp_path):
    geometry = loop(tmp_path, diagnostics=diagnostics())
    one_step(geometry)
    geometry.read_out({"train/loss": 0.0}, epoch=0)
    state = geometry.state_dict()
    one_step(geometry)
    geometry.read_out({"train/loss": 1.0}, epoch=0)  # the checkpoint does not know of it
    rest = resumed(tmp_path, state)
    one_step(rest)
    rest.read_out({"train/loss": 2.0}, epoch=0)
    assert [row["train/loss"] for row in rows(rest.folder / "metrics.csv")] == ["0.0", "2.0"]
    assert len(rows(rest.folder / "geometry" / "train" / "rows_seen.csv")) == 2


def test_a_state_of_an_earlier_version_continues(tmp_path):
    geometry = loop(tmp_path, diagnostics=diagnostics())
    one_step(geometry)
    geometry.read_out()
    state = geometry.state_dict()
    del state["read"]
    rest = resumed(tmp_path, state)
    one_step(rest)
    rest.read_out()
    assert [row["epoch"] for row in rows(rest.folder / "metrics.csv")] == ["0", "1"]


def one_step(geometry):
    with geometry.step(pairs()[:8]):
        geometry.model.loss(*pairs()[:8])


MALFORMED = {
    "none": None,
    "empty": {},
    "a text": {"epoch": "1", "step": 5},
    "no step": {"epoch": 1},
    "below 0": {"epoch": -1, "step": 5},
    "no run": {"epoch": 1, "step": 5, "folder": "x", "files": []},
    "epochs that are no numbers": {"epoch": 1, "step": 5, "read": ["x"]},
    "files that are no texts": {"epoch": 1, "step": 5, "folder": "x", "run": "y", "files": [3]},
}


@pytest.mark.parametrize("state", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_state_is_one_line_and_changes_nothing(tmp_path, state):
    geometry = loop(tmp_path)
    before = geometry.state_dict()
    with pytest.raises(ValueError, match="Expected `state` to be what `state_dict` of a GeometryLoop returned, but "):
        geometry.load_state_dict(state)
    assert geometry.state_dict() == before
