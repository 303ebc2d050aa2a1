"""Before the first step, batch norm has the statistics of training batches, for the readout alone."""

import copy
from pathlib import Path

import pandas as pd
import pytest
import torch
from hosts import PlainHost, pairs, quiet
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader

from lightning_ssl_geometry.callbacks import EmbeddingSnapshots, GeometryMonitor, LinearEvaluation
from lightning_ssl_geometry.callbacks.calibration import calibrated
from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.diagnostics import EffectiveRank
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import SmallCNN

TAPS = {"h": "trunk", "z": "head", "encoder": "trunk", "projector": "head"}


class NormHost(PlainHost):
    """Inputs of very different scales and means, which batch norm takes away and the identity does not."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
        with torch.no_grad():
            self.trunk[0].bias.copy_(20 * torch.randn(64))
            self.trunk[0].weight.mul_(torch.logspace(-2, 2, 64)[:, None])


class ByHand(NormHost):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        loss = super().training_step(batch, batch_idx)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()


def train_loader():
    return DataLoader(pairs(400), batch_size=50, shuffle=True)


def fit(folder, host, callback, **arguments):
    torch.manual_seed(1)
    trainer = quiet(folder, callbacks=[callback] if callback else [], logger=CSVLogger(folder, "run"), **arguments)
    trainer.fit(host, train_loader(), DataLoader(pairs(400, seed=1), batch_size=100))
    return trainer


def probing():
    return GeometryMonitor(
        {"rank": EffectiveRank()},
        stages=["probe"],
        probe_size=400,
        taps=TAPS,
        batch_keys={"views": [0, 1]},
    )


def rank(network, x):
    metric = EffectiveRank()
    with torch.no_grad():
        metric.update(network(x))
    return metric.compute().item()


def test_a_fresh_network_reads_before_training_as_it_trains(tmp_path):
    host = NormHost()
    x1, x2, _ = pairs(400, seed=1).tensors
    x = torch.cat([x1, x2])
    trains = rank(copy.deepcopy(host.trunk).train(), x)
    identity = rank(copy.deepcopy(host.trunk).eval(), x)
    fit(tmp_path, host, probing())
    found = pd.read_csv(tmp_path / "run" / "version_0" / "metrics.csv").loc[0, "probe/rank"]
    assert found == pytest.approx(trains, rel=0.1)  # the error of 400 samples' moments
    assert abs(identity - trains) > 5 * abs(found - trains)


def test_the_host_is_the_same_bit_for_bit(tmp_path):
    bare, watched = NormHost(), NormHost()
    fit(tmp_path / "a", bare, None)
    fit(tmp_path / "b", watched, probing())
    for name, value in bare.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name


def calibrated_state(folder, host):
    """Buffers inside and after the block, and how many batches were drawn."""
    drawn = []

    class Counted(DataLoader):
        def __iter__(self):
            for batch in super().__iter__():
                drawn.append(batch)
                yield batch

    found = {}

    class Look(GeometryMonitor):
        def on_train_start(self, trainer, pl_module):
            drawn.clear()
            before = copy.deepcopy(pl_module.state_dict())
            with calibrated(trainer, pl_module):
                found["inside"] = copy.deepcopy(pl_module.state_dict())
            found["same"] = all(torch.equal(value, pl_module.state_dict()[name]) for name, value in before.items())
            found["drawn"] = len(drawn)

    trainer = quiet(folder, callbacks=[Look({}, stages=[])])
    trainer.fit(host, Counted(pairs(400), batch_size=50), DataLoader(pairs(8), batch_size=8))
    return found


def test_it_takes_a_few_batches_and_gives_everything_back(tmp_path):
    host = NormHost()
    rows = copy.deepcopy(host.trunk[0])
    found = calibrated_state(tmp_path, host)
    assert found["same"]
    assert found["drawn"] == 8  # 400 samples are fewer than 1,024: the whole epoch
    with torch.no_grad():
        seen = torch.stack([rows(x) for x in torch.cat(pairs(400).tensors[:2]).split(50)])
    torch.testing.assert_close(found["inside"]["trunk.1.running_mean"], seen.mean((0, 1)), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found["inside"]["trunk.1.running_var"], seen.var(1).mean(0), rtol=1e-4, atol=1e-3)


def pretrained(host):
    host.trunk[1].num_batches_tracked += 1


def in_eval_mode(host):
    host.trunk[1].eval()


def without_statistics(host):
    host.trunk[1] = nn.BatchNorm1d(64, track_running_stats=False)


@pytest.mark.filterwarnings("ignore:Found 1 module.* in eval mode at the start of training")
@pytest.mark.parametrize("change", [pretrained, in_eval_mode, without_statistics])
def test_what_is_not_fresh_stays(tmp_path, change):
    host = NormHost()
    change(host)
    before = copy.deepcopy(host.state_dict())
    found = calibrated_state(tmp_path, host)
    assert found["drawn"] == 0
    for name, value in before.items():
        if "running" in name:
            assert torch.equal(found["inside"][name], value), name


def test_a_host_that_steps_by_hand_is_told_so(tmp_path):
    with pytest.warns(UserWarning, match="batch norm as the identity.* ByHand .*automatic optimization"):
        fit(tmp_path, ByHand(), probing())


def simclr():
    torch.manual_seed(0)
    return SimCLRModule(SmallCNN(1, 8), nn.Linear(64, 8))


def test_the_frozen_network_is_the_one_that_is_trained(tmp_path):
    callback = LinearEvaluation(labels_per_class=[None], features=["frozen"])
    data = DigitsDataModule(batch_size=100, subset=400)
    trainer = quiet(tmp_path, callbacks=[callback])
    trainer.fit(simclr(), datamodule=data)
    (row,) = callback.rows

    network, classifier = simclr(), callback.classifier
    batches = [data.on_after_batch_transfer(batch, 0) for batch in data.train_dataloader()]
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None
    with torch.no_grad():
        for batch in batches:
            network.backbone(torch.cat(batch["views"]))
        network.eval()
        rows = []
        for split in ("train", "test"):
            clean = [data.on_after_batch_transfer(batch, 0) for batch in data.unaugmented_dataloader(split)]
            h = torch.cat([network(batch["image"]) for batch in clean])
            rows.append((h, torch.cat([batch["label"] for batch in clean])))
    from lightning_ssl_geometry.callbacks.logistic_regression import Rows

    assert row["accuracy"] == pytest.approx(classifier(*(Rows(*pair) for pair in rows)).accuracy, abs=0.01)


def test_snapshots_before_training_are_calibrated_too(tmp_path):
    callback = EmbeddingSnapshots([0], taps=TAPS, batch_keys={"views": [0, 1]})
    host = NormHost()
    identity = copy.deepcopy(host).eval()(pairs(400, seed=1).tensors[0])
    fit(tmp_path, host, callback)
    assert not torch.allclose(callback.kept[0]["z"], identity, rtol=0.1)


def test_a_network_from_the_command_line_is_calibrated_and_rehearsed(tmp_path, caplog):
    smoke = Path(__file__).parents[2] / "examples" / "simclr" / "smoke.yaml"
    words = ["--trainer.max_epochs", "1", "--trainer.logger.init_args.save_dir", str(tmp_path)]
    main(["fit", "--config", str(smoke), *words])  # a warning would be an error
    assert "not rehearsed" not in caplog.text
