"""A second fit with the same callbacks starts clean; what a checkpoint brings is kept."""

import pytest
import torch
from hosts import PlainHost, loader, quiet

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.diagnostics import CKADrift
from lightning_ssl_geometry.methods import SimCLRModule

TAPS = {"h": "trunk", "z": "head", "projector": "head"}
LABELS = {"taps": {"h": "trunk"}, "batch_keys": {"label": 2}}
SEEN = {"taps": {"h": "trunk"}, "batch_keys": {"label": 2}}


def fit(folder, callback, host_seed=0, **arguments):
    torch.manual_seed(host_seed)
    trainer = quiet(folder, callbacks=[callback], **arguments)
    trainer.fit(PlainHost(), loader(40), loader(40, seed=1))
    return {name: value.item() for name, value in trainer.callback_metrics.items() if "/" in name}


@pytest.mark.parametrize("make", [LinearProbe, KNNProbe])
def test_probes(tmp_path, make):
    used = make(num_classes=2, **SEEN)
    fit(tmp_path / "a", used, host_seed=5, max_epochs=3)
    fresh = make(num_classes=2, **SEEN)
    assert fit(tmp_path / "b", used) == fit(tmp_path / "c", fresh)
    if make is LinearProbe:
        assert used.state_dict()["optimizer"]["state"][0]["step"] == 5


def test_the_classes_are_those_of_each_fits_data(tmp_path):
    probe = LinearProbe()
    for seed in range(2):
        data = DigitsDataModule(batch_size=100, subset=300)
        data.setup()
        if seed:
            data.num_classes = 12
        quiet(tmp_path / str(seed), callbacks=[probe]).fit(
            SimCLRModule(torch.nn.Flatten(), torch.nn.Linear(64, 4)), datamodule=data
        )
        assert probe.state_dict()["head"]["bias"].shape == (12 if seed else 10,)
    assert probe.num_classes is None


def test_what_a_diagnostic_compares_with(tmp_path):
    used = GeometryMonitor({"drift": CKADrift()}, stages=["val"], **SEEN)
    fit(tmp_path / "a", used, host_seed=5, max_epochs=2)
    found = fit(tmp_path / "b", used, max_epochs=2)
    fresh = fit(tmp_path / "c", GeometryMonitor({"drift": CKADrift()}, stages=["val"], **SEEN), max_epochs=2)
    assert found == fresh
    assert found["val/drift_first"] == found["val/drift_last"]


def test_a_validation_after_the_fit_goes_on_with_its_probe(tmp_path):
    probe = KNNProbe(num_classes=2, **SEEN)
    linear = LinearProbe(num_classes=2, **SEEN)
    torch.manual_seed(0)
    trainer = quiet(tmp_path, callbacks=[probe, linear])
    host = PlainHost()
    trainer.fit(host, loader(40), loader(40, seed=1))
    after = trainer.validate(host, loader(40, seed=1), verbose=False)[0]
    assert after["val/linear_probe_accuracy"] > 0.5


@pytest.mark.parametrize("steps", [3, 5, 8])
def test_a_fit_that_is_resumed_within_an_epoch_is_observed_on(tmp_path, steps):
    def callbacks():
        return [
            GeometryMonitor(taps=TAPS, every_n_steps=1),
            LinearProbe(2, **LABELS),
            KNNProbe(num_classes=2, **LABELS),
        ]

    torch.manual_seed(0)
    first = quiet(tmp_path / "a", callbacks=callbacks(), max_steps=steps, max_epochs=-1)
    host = PlainHost()
    first.fit(host, loader(), loader(seed=1))
    first.save_checkpoint(tmp_path / "half.ckpt")
    resumed = quiet(tmp_path / "b", callbacks=callbacks(), max_epochs=3)
    resumed.fit(PlainHost(), loader(), loader(seed=1), ckpt_path=tmp_path / "half.ckpt")
    assert resumed.current_epoch == 3
    assert resumed.callback_metrics["train/effective_rank_h"] > 1
