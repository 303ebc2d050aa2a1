"""How many batches are observed: enough rows that the batch does not bound what is measured."""

import math

import pytest
import torch
from hosts import PlainHost, loader, pairs, quiet
from torch.utils.data import DataLoader, IterableDataset

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.diagnostics import EffectiveRank
from lightning_ssl_geometry.measuring.filling import Filling


def observed(batches, rows, width, every_n_steps=None, known=True):
    filling, seen = Filling(every_n_steps), []
    filling.begin(batches if known else math.inf)
    for batch_idx in range(batches):
        if filling.wants(batch_idx):
            filling.saw({"h": torch.zeros(2, rows // 2, width)})
            seen.append(batch_idx)
    return seen


@pytest.mark.parametrize("width", [16, 128, 512, 2048])
@pytest.mark.parametrize("rows", [32, 64, 512])
@pytest.mark.parametrize("batches", [1, 5, 20, 390])
@pytest.mark.parametrize("known", [True, False])
def test_the_rows_are_there_where_the_epoch_has_them(batches, rows, width, known):
    seen = observed(batches, rows, width, known=known)
    assert seen[0] == 0
    assert len(seen) * rows >= min(max(4 * width, 1024), batches * rows)


def test_long_epochs_are_observed_every_50th_step():
    assert observed(390, 512, 512) == list(range(0, 390, 50))
    assert observed(390, 512, 512, known=False) == [0, 1, 2, 3, *range(50, 390, 50)]
    assert observed(390, 512, 2048, known=True) == list(range(0, 390, 24))


def test_what_is_asked_for_is_done():
    assert observed(10, 2, 512, every_n_steps=4) == [0, 4, 8]
    with pytest.raises(ValueError, match="`every_n_steps` >= 1, but got 0"):
        GeometryMonitor(every_n_steps=0)


class Wide(PlainHost):
    """40 directions, more than a batch of 8 pairs has rows."""

    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Sequential(torch.nn.Linear(6, 400), torch.nn.ReLU(), torch.nn.Linear(400, 40))
        self.head = torch.nn.Linear(40, 4, bias=False)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


def test_the_rank_of_an_epoch_is_not_that_of_a_batch(tmp_path):
    monitor = GeometryMonitor({"rank": EffectiveRank()}, taps={"h": "trunk"}, stages=["train"])
    host = Wide()
    trainer = quiet(tmp_path, callbacks=[monitor])
    trainer.fit(host, loader(400), loader(8))
    whole = EffectiveRank()
    with torch.no_grad():
        whole.update(host.trunk(torch.cat(pairs(400).tensors[:2])))
    assert trainer.callback_metrics["train/rank"].item() == pytest.approx(whole.compute().item(), rel=0.02)


def test_a_stream_of_unknown_length(tmp_path):
    class Stream(IterableDataset):
        def __iter__(self):
            yield from pairs(80)

    monitor = GeometryMonitor({"rank": EffectiveRank()}, taps={"h": "trunk"}, stages=["train"])
    trainer = quiet(tmp_path, callbacks=[monitor])
    trainer.fit(PlainHost(), DataLoader(Stream(), 8), loader(8))
    assert monitor.seen["train"] == (80, 2)
