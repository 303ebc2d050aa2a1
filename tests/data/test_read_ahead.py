"""Rows of a memory-mapped file are asked for a batch ahead, and nothing else changes."""

import mmap
import os
from time import monotonic, sleep

import numpy as np
import pytest
import torch

from lightning_ssl_geometry.data import read_ahead as module
from lightning_ssl_geometry.data.base import Images, _Slices
from lightning_ssl_geometry.data.loader import BatchLoader, GlobalBatchSampler

ROWS, SIZE = 2000, 3 * 64 * 64


def mapped(path):
    """A memory-mapped file that the system was asked to drop from its memory."""
    np.save(path, np.random.default_rng(0).integers(256, size=(ROWS, 3, 64, 64), dtype=np.uint8))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return torch.from_numpy(np.load(path, mmap_mode="c"))


def in_memory(image, row):
    return module._in_memory(*module._pages(image.data_ptr() + row * SIZE, SIZE))


@pytest.mark.skipif(not hasattr(mmap, "MADV_WILLNEED"), reason="no such call")
def test_rows_are_read_from_the_disk(tmp_path):
    image, rows = mapped(tmp_path / "x.npy"), torch.tensor([1990, 3, 1000])
    if in_memory(image, 1990):
        pytest.skip("this file system is in memory")
    module.read_ahead(image, rows)
    until = monotonic() + 20
    while not all(in_memory(image, row) for row in rows.tolist()) and monotonic() < until:
        sleep(0.01)
    assert all(in_memory(image, row) for row in rows.tolist())
    assert not in_memory(image, 500)


def test_batches_are_the_same_and_without_rows_or_a_call_nothing_is_asked_for(tmp_path, monkeypatch):
    image = mapped(tmp_path / "x.npy")
    kinds = [Images(image, torch.arange(ROWS), is_mapped=is_mapped) for is_mapped in (False, True)]
    loaders = [
        BatchLoader(
            _Slices(images, torch.arange(5, ROWS), None, split="train", augmented=True),
            GlobalBatchSampler(ROWS - 5, 128, shuffle=True),
        )
        for images in kinds
    ]
    plain, ahead = ([batch | {"split": None} for batch in loader] for loader in loaders)
    assert len(plain) == len(ahead) == 16
    for one, other in zip(plain, ahead, strict=True):
        assert one.keys() == other.keys()
        assert "is_mapped" not in other
        assert all(torch.equal(one[name], other[name]) for name in ("image", "label", "index"))
    monkeypatch.setattr(module, "_system", lambda: pytest.fail("asked the system"))
    module.read_ahead(image, torch.arange(0))
    monkeypatch.delattr(mmap, "MADV_WILLNEED", raising=False)
    module.read_ahead(image, torch.arange(3))


def test_rows_that_are_in_memory_are_not_asked_for(tmp_path, monkeypatch):
    image, asked = mapped(tmp_path / "x.npy"), []

    class System:
        def madvise(self, *given):
            asked.append(given)

    monkeypatch.setattr(module, "_system", System)
    monkeypatch.setattr(module, "_in_memory", lambda start, length: start < image.data_ptr() + 10 * SIZE)
    module.read_ahead(image, torch.tensor([1, 2, 3]))
    assert not asked
    module.read_ahead(image, torch.tensor([1, 30, 3]))
    assert len(asked) == 3
    assert all(start.value % mmap.PAGESIZE == 0 for start, _, _ in asked)
    assert asked[1][0].value + asked[1][1].value == image.data_ptr() + 31 * SIZE


class Source:
    def __init__(self):
        self.told = []

    def announce(self, positions):
        self.told.append(("announced", positions.tolist()))

    def __getitem__(self, positions):
        self.told.append(("read", positions.tolist()))
        return {}


def test_each_batch_is_announced_while_the_one_before_is_used():
    source = Source()
    loader = BatchLoader(source, GlobalBatchSampler(5, 2))
    batches = iter(loader)
    next(batches)
    assert source.told == [("announced", [0, 1]), ("announced", [2, 3]), ("read", [0, 1])]
    assert len(list(batches)) == 2
    assert [positions for what, positions in source.told if what == "read"] == [[0, 1], [2, 3], [4]]
    assert source.told[-1] == ("read", [4])


def test_a_resumed_pass_announces_only_what_is_left():
    source = Source()
    loader = BatchLoader(source, GlobalBatchSampler(6, 2))
    loader.load_state_dict({"epoch": 0, "batches": 1})
    assert len(list(loader)) == 2
    assert [positions for what, positions in source.told if what == "announced"] == [[2, 3], [4, 5]]
