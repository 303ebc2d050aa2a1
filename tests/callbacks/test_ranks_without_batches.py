"""A rank whose part of a set is empty: nobody waits for it, and it gets the others' results."""

import warnings

import torch
from hosts import PlainHost, loader, pairs, quiet
from torch.utils.data import DataLoader, IterableDataset

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.callbacks import EmbeddingSnapshots, GeometryMonitor, KNNProbe, LayerGeometry, LinearProbe
from lightning_ssl_geometry.diagnostics import EffectiveRank, LabelAgreement, LogSpectrum, Uniformity

SEEN = {"taps": {"h": "trunk", "z": "head"}, "batch_keys": {"label": 2, "views": [0, 1]}}


class OnRankZero(IterableDataset):
    """All samples are rank 0's; Lightning cannot know, since a stream has no length."""

    def __iter__(self):
        yield from pairs(24, seed=1) if distributed.rank() == 0 else ()


def fitted(rank, folder, stages):
    torch.manual_seed(0)
    host = PlainHost()
    diagnostics = {"rank": EffectiveRank(), "labels": LabelAgreement(), "u": Uniformity(), "s": LogSpectrum()}
    monitor = GeometryMonitor(diagnostics, stages=stages, **SEEN)
    probes = [LinearProbe(2, **SEEN), KNNProbe(num_classes=2, **SEEN)]
    devices = {"devices": 2, "strategy": "ddp"} if rank is not None else {}
    trainer = quiet(folder, callbacks=[monitor, *probes], use_distributed_sampler=False, max_epochs=2, **devices)
    trainer.fit(host, loader(40), DataLoader(OnRankZero(), 8))
    found = {
        name: value.item() for name, value in trainer.callback_metrics.items() if name.startswith(("val/", "probe/"))
    }
    return found, monitor.seen


def test_all_ranks_log_what_the_others_saw(tmp_path, two_processes):
    for stages in (["val"], ["train", "val"]):
        (first, seen), (second, also) = two_processes(fitted, tmp_path / str(len(stages)), stages)
        names = {"val/rank", "val/labels", "val/u", "val/linear_probe_accuracy", "val/knn_probe_accuracy"}
        assert {name for name in names if not any(key.startswith(name) for key in first)} == set()
        assert first == second
        assert seen["val"] == also["val"] == (24, 2)


def kept(rank, folder):
    torch.manual_seed(0)
    stills = EmbeddingSnapshots([0, 2], **SEEN)
    devices = {"devices": 2, "strategy": "ddp"} if rank is not None else {}
    trainer = quiet(folder, callbacks=[stills], use_distributed_sampler=False, **devices)
    trainer.fit(PlainHost(), loader(40), DataLoader(OnRankZero(), 8))
    return {step: (kept["z"].shape, kept["label"].tolist()) for step, kept in stills.kept.items()}


def test_stills_are_of_the_ranks_that_have_batches(tmp_path, two_processes):
    first, second = two_processes(kept, tmp_path)
    assert first == second
    labels = pairs(24, seed=1).tensors[2].tolist()
    assert first == {0: ((24, 4), labels), 2: ((24, 4), labels)}


class Dictionaries(PlainHost):
    def validation_step(self, batch, batch_idx):
        z1, z2 = self.embed(*batch[:2])
        h = torch.stack([self.trunk(x) for x in batch[:2]])
        return {"h": h, "z": torch.stack([z1, z2]), "index": torch.arange(len(z1)), "projector": self.head}


def layers(rank, folder):
    torch.manual_seed(0)
    trainer = quiet(folder, callbacks=[LayerGeometry()], use_distributed_sampler=False, devices=2, strategy="ddp")
    try:
        trainer.fit(Dictionaries(), loader(40), DataLoader(OnRankZero(), 8))
    except ValueError as error:
        return str(error)


def test_the_layers_end_on_all_ranks_together(tmp_path, two_processes):
    for message in two_processes(layers, tmp_path):
        assert "batches of the val set on each of 2 processes for LayerGeometry, but 1 had none" in message


class FailsOnRankOne(EffectiveRank):
    def update(self, h):
        if distributed.rank() == 1 and int(self.rows):
            raise RuntimeError("no update here")
        super().update(h)


def failing(rank, folder):
    torch.manual_seed(0)
    monitor = GeometryMonitor(
        {"f": FailsOnRankOne(), "rank": EffectiveRank()}, stages=["train"], every_n_steps=1, **SEEN
    )
    trainer = quiet(folder, callbacks=[monitor], use_distributed_sampler=False, devices=2, strategy="ddp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(PlainHost(), loader(40), loader(8))
    return {name: value.item() for name, value in trainer.callback_metrics.items() if "/" in name}


def test_a_failure_on_one_rank_is_nan_on_all(tmp_path, two_processes):
    for found in two_processes(failing, tmp_path):
        assert found["train/f"] != found["train/f"]
        assert found["train/rank"] > 1


def labels_on_one_rank(rank, folder):
    """Rank 1's labels are out of range from its second batch on: the linear probe's sums go on."""
    torch.manual_seed(0)

    class Odd(PlainHost):
        def on_train_batch_start(self, batch, batch_idx):
            if distributed.rank() == 1 and batch_idx:
                batch[2] = [str(label) for label in batch[2]]

    probe = LinearProbe(2, **SEEN)
    trainer = quiet(folder, callbacks=[probe], use_distributed_sampler=False, devices=2, strategy="ddp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(Odd(), loader(40), loader(8))
    return probe.state_dict()["head"]["weight"].tolist()


def test_a_probe_that_fails_on_one_rank_learns_from_the_others(tmp_path, two_processes):
    first, second = two_processes(labels_on_one_rank, tmp_path)
    assert first == second
