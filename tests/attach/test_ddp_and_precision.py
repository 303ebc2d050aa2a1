"""Two processes observe the same as one, and bfloat16 is observed in every stage."""

import pytest
import torch
from hosts import assert_logged, assert_undisturbed, attach, quiet, rankme

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.diagnostics import Alignment, EffectiveRank

DDP = {"devices": 2, "strategy": "ddp"}
STAGES = {"train", "val", "probe"}


def fitted(rank, folder, watched):
    scene = attach(folder, "dict_batches", watched=watched, sharded=True, **DDP)
    assert not watched or assert_logged(scene["trainer"], STAGES) is None
    host = scene["host"].eval()
    batches = torch.utils.data.DataLoader(scene["SAMPLES"], batch_size=60)
    with torch.no_grad():
        h = torch.cat([host.model["trunk"](view["image"]) for batch in batches for view in batch["views"]])
    metrics = {name: value.item() for name, value in scene["trainer"].callback_metrics.items()}
    return metrics, {name: value.numpy() for name, value in host.state_dict().items()}, rankme(h)


def test_two_processes_are_observed_as_one_and_train_the_same(tmp_path, two_processes):
    watched = two_processes(fitted, tmp_path / "a", True)
    bare = two_processes(fitted, tmp_path / "b", False)
    for (metrics, weights, rank), (_, expected, _) in zip(watched, bare, strict=True):
        assert weights.keys() == expected.keys()
        for name in weights:
            assert (weights[name] == expected[name]).all(), name
        for stage in ("val", "probe"):  # of the whole validation set, not of a rank's half
            assert metrics[f"{stage}/effective_rank_h"] == pytest.approx(rank, rel=1e-4)
    # the kNN bank has each rank's samples in another order, so ties may break otherwise
    assert watched[0][0] == pytest.approx(watched[1][0], rel=1e-5)


def augmented(rank, folder, index):
    """The monitor's views of a normalised image, which must not depend on the number of processes."""
    torch.manual_seed(0)
    scene = attach(folder, "one_image", watched=False, max_epochs=0)
    image, label = scene["LOADER"].dataset.tensors
    data = torch.utils.data.TensorDataset(image[:48], label[:48], 7 + torch.arange(48))
    keys = {"image": 0, "index": 2} if index else {"image": 0}
    diagnostics = {"rank": EffectiveRank(), "alignment": Alignment()}
    taps = {"h": "features", "z": "classifier"}
    monitor = GeometryMonitor(diagnostics, taps=taps, batch_keys=keys, stages=["val"], augment=scene["AUGMENT"])
    devices = {"devices": 2, "strategy": "ddp"} if rank is not None else {}
    trainer = quiet(folder, callbacks=[monitor], **devices)
    trainer.validate(scene["host"], torch.utils.data.DataLoader(data, batch_size=6), verbose=False)
    return {name: value.item() for name, value in trainer.callback_metrics.items() if "val/" in name}


@pytest.mark.parametrize("index", [True, False], ids=["given", "counted"])
def test_the_views_made_are_the_same_on_one_and_two_processes(tmp_path, two_processes, index):
    alone = augmented(None, tmp_path, index)
    assert alone.keys() >= {"val/rank", "val/alignment"}
    for found in two_processes(augmented, tmp_path, index):
        assert found == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("name", ["tuple_batches", "one_image"])
def test_bfloat16(tmp_path, name, precision):
    scene = assert_undisturbed(tmp_path, name, precision=precision)
    assert_logged(scene["trainer"], STAGES)
    assert scene["trainer"].callback_metrics["probe/effective_rank_h"].dtype == torch.float32
    host, batches = scene["host"].float().eval(), scene["seen"].batches
    if name == "tuple_batches":
        pairs = [x.float() for batch in batches for x in batch[:2]]
        with torch.no_grad():
            expected = rankme(torch.cat([host.encoder(x) for x in pairs]))
        for stage in ("val", "probe"):
            found = scene["trainer"].callback_metrics[f"{stage}/effective_rank_h"]
            assert found == pytest.approx(expected, rel=0.02)
