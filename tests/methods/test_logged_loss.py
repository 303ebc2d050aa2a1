"""What an epoch logs is a mean over the samples of all ranks, however these are dealt out."""

import pytest
import torch
from hosts import quiet
from torch import nn
from torch.utils.data import DataLoader

from lightning_ssl_geometry.callbacks import LinearProbe
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods import SimCLRModule, SupervisedModule

# Two global batches, of 10 and of 4 samples, in ragged parts: rank 0 has 9 of the first and 1 of the second.
PARTS = [[list(range(9)), [10]], [[9], [11, 12, 13]]]


def simclr():
    return SimCLRModule(nn.Sequential(nn.Flatten(), nn.Linear(12, 6)), nn.Linear(6, 4), InfoNCELoss(), optimizer=still)


def supervised():
    return SupervisedModule(nn.Sequential(nn.Flatten(), nn.Linear(12, 6)), nn.Linear(6, 3), optimizer=still)


METHODS = {"simclr": simclr, "supervised": supervised}


def still(groups):
    """Weights that never change."""
    return torch.optim.SGD(groups, lr=0.0)


def samples():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(14, 2, 3, 2, 2, generator=generator)
    return [{"image": views, "label": i % 3, "index": i} for i, views in enumerate(images)]


def collate(rows):
    views = tuple(torch.stack([row["image"] for row in rows]).unbind(1))
    return {"views": views} | {name: torch.tensor([row[name] for row in rows]) for name in ("label", "index")}


def logged(rank, method, folder):
    """The epoch's scalars of a fit, on one process or on one of two."""
    torch.manual_seed(0)
    model = METHODS[method]()
    batches = [[*one, *two] for one, two in zip(*PARTS, strict=True)] if rank is None else PARTS[rank]
    loader = DataLoader(samples(), batch_sampler=batches, collate_fn=collate)
    devices = {} if rank is None else {"devices": 2, "strategy": "ddp", "use_distributed_sampler": False}
    probe = LinearProbe(num_classes=3, optimizer=still)
    trainer = quiet(folder, max_epochs=1, callbacks=[probe], **devices)
    trainer.fit(model, loader, loader)
    return {name: value.item() for name, value in trainer.callback_metrics.items()}


def test_scores_are_means_over_samples_and_the_batch_size_over_the_samples_of_its_loss(tmp_path):
    """Batches of 10 and of 4 samples, with 2 views each, by weights that never change."""
    alone = {method: logged(None, method, tmp_path / method) for method in METHODS}
    torch.manual_seed(0)
    model, batch = supervised(), collate(samples())
    logits = model.projector(model(torch.cat(batch["views"])))
    label = batch["label"].repeat(2)
    for stage in ("train", "val"):
        found = alone["supervised"]
        assert found[f"{stage}/loss"] == pytest.approx(nn.functional.cross_entropy(logits, label).item(), rel=1e-5)
        assert found[f"{stage}/accuracy"] == pytest.approx((logits.argmax(1) == label).float().mean().item(), rel=1e-6)
        assert f"{stage}/batch_size" not in found  # a classifier's loss does not depend on it
        assert alone["simclr"][f"{stage}/batch_size"] == pytest.approx((10 * 10 + 4 * 4) / 14)
        assert f"{stage}/accuracy" not in alone["simclr"]


@pytest.mark.parametrize("method", METHODS)
def test_the_mean_of_an_epoch_is_that_of_one_process(method, tmp_path, two_processes):
    alone = logged(None, method, tmp_path / "one")
    assert {"train/loss", "train/linear_probe_loss"} <= set(alone)
    for found in two_processes(logged, method, tmp_path / "two"):
        assert found == pytest.approx(alone, rel=14 * torch.finfo(torch.float32).eps * 10)  # sums of 14, logits of 10
