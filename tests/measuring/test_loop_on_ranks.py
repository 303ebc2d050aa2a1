"""A GeometryLoop on two processes finds what one process finds, also where a process has no steps."""

import json

import pytest
import torch
from hosts import pairs
from loops import SETTINGS, diagnostics, rows, seeded

from lightning_ssl_geometry.measuring import GeometryLoop


def sharded(rank, folder, processes):
    model = seeded().eval()
    geometry = GeometryLoop(model, folder, diagnostics(), table=False, page=False, **SETTINGS)
    data = pairs()
    for start in range(0, 40, 8):
        own = slice(start + 4 * rank, start + 4 * rank + 4) if processes == 2 else slice(start, start + 8)
        batch = data[own]
        index = torch.arange(40)[own]
        with geometry.step({"index": index, "label": batch[2], 2: batch[2], 0: batch[0], 1: batch[1]}):
            model.loss(*batch)
    if rank == 0:  # the other rank has no held-out samples
        geometry.look([data[:]])
    found = geometry.read_out()
    geometry.close()
    return found, geometry.folder


def test_two_processes_find_what_one_finds(tmp_path, two_processes):
    expected, _ = sharded(0, tmp_path / "one", processes=1)
    first, second = two_processes(sharded, tmp_path / "two", 2)
    assert first[0].keys() == expected.keys()
    for name, value in expected.items():
        assert first[0][name] == second[0][name] == pytest.approx(value, rel=1e-6), name
    assert first[1] == second[1] == tmp_path / "two" / "version_0"
    assert len(rows(first[1] / "metrics.csv")) == 1


def shares(rank, processes, idle):
    """The batches of each epoch on this rank: rank `idle` has no step in one epoch, then the other, then both."""
    batches = [slice(start, start + 8) for start in range(0, 40, 8)]
    if processes == 1:
        return [batches, batches, [], batches]
    return [[] if rank == idle else batches, batches if rank == idle else [], [], batches[rank::2]]


def with_idle_ranks(rank, folder, processes, idle):
    model = seeded().eval()
    geometry = GeometryLoop(model, folder, diagnostics(), table=False, page=False, **SETTINGS)
    found = []
    for own in shares(rank, processes, idle):
        for part in own:
            x1, x2, label = pairs()[part]
            with geometry.step({"index": torch.arange(40)[part], 0: x1, 1: x2, 2: label}):
                model.loss(x1, x2, label)
        found.append(geometry.read_out())
    geometry.close()
    return found, geometry.folder


@pytest.mark.parametrize("idle", [0, 1])
def test_a_process_without_steps_changes_no_result(tmp_path, two_processes, idle):
    expected, whole = with_idle_ranks(0, tmp_path / "one", processes=1, idle=idle)
    (first, folder), (second, _) = two_processes(with_idle_ranks, tmp_path / "two", 2, idle)
    assert first == second
    assert [set(found) for found in first] == [set(found) for found in expected]
    for found, values in zip(first, expected, strict=True):
        assert found == pytest.approx(values, rel=1e-6)
    for name in ("geometry/quantities.json", "geometry/train/rows_seen.csv"):
        assert without_steps(folder / name) == without_steps(whole / name)


def without_steps(path):
    """The contents of a file, without the numbers of steps: a process counts its own steps."""
    if path.suffix == ".json":
        return json.loads(path.read_text())
    return [{name: value for name, value in row.items() if name != "step"} for row in rows(path)]
