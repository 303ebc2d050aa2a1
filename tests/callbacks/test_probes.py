import copy

import pytest
import torch
from hosts import HalvesHost, PlainHost, loader, quiet

from lightning_ssl_geometry.callbacks import KNNProbe, LinearProbe

TAP = {"taps": {"h": "trunk"}, "batch_keys": {"label": 2}, "num_classes": 2}


def fit(folder, host, *callbacks, **arguments):
    torch.manual_seed(0)
    trainer = quiet(folder, callbacks=list(callbacks), **arguments)
    trainer.fit(host, loader(200), loader(80, seed=1))
    return trainer


@pytest.mark.parametrize("probe", [LinearProbe, KNNProbe])
@pytest.mark.parametrize(("host", "views"), [(PlainHost, "calls"), (HalvesHost, "halves")])
def test_labels_that_are_there_are_found(tmp_path, probe, host, views):
    callback = probe(**TAP, view_layout=views)
    trainer = fit(tmp_path, host(), callback, max_epochs=4)
    assert trainer.callback_metrics[f"val/{callback.name}_accuracy"] > 0.85


@pytest.mark.parametrize("probe", [LinearProbe, KNNProbe])
def test_labels_that_are_not_there_are_not(tmp_path, probe):
    class Shuffled(PlainHost):
        def on_train_batch_start(self, batch, batch_idx):
            batch[2] = batch[2][torch.randperm(len(batch[2]))]

    callback = probe(**TAP)
    trainer = fit(tmp_path, Shuffled(), callback, max_epochs=2)
    assert 0.2 < trainer.callback_metrics[f"val/{callback.name}_accuracy"] < 0.8


@pytest.mark.parametrize("probe", [LinearProbe, KNNProbe])
def test_the_host_trains_the_same_and_its_checkpoint_has_the_same_keys(tmp_path, probe):
    bare, watched = PlainHost(), None
    watched = copy.deepcopy(bare)
    fit(tmp_path / "bare", bare)
    trainer = fit(tmp_path, watched, probe(**TAP))
    for name, value in bare.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name])
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    assert set(torch.load(tmp_path / "x.ckpt", weights_only=True)["state_dict"]) == set(bare.state_dict())


def test_the_linear_probe_is_resumed_with_its_optimizer(tmp_path):
    first = LinearProbe(**TAP)
    trainer = fit(tmp_path, PlainHost(), first)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    again = LinearProbe(**TAP)
    resumed = quiet(tmp_path, callbacks=[again], max_epochs=1)
    resumed.fit(PlainHost(), loader(200), loader(80, seed=1), ckpt_path=tmp_path / "x.ckpt", weights_only=True)
    before, after = first.state_dict(), again.state_dict()
    assert torch.equal(before["head"]["weight"], after["head"]["weight"])
    assert before["optimizer"]["state"][0]["step"] == after["optimizer"]["state"][0]["step"] == 25


def test_the_bank_is_capped_and_emptied(tmp_path):
    probe = KNNProbe(**TAP, bank_size=20)
    fit(tmp_path, PlainHost(), probe, max_epochs=2)
    kept = sum(len(label) for _, label in probe._bank)
    assert 20 <= kept < 28  # whole batches of 8
    assert probe._gathered is None


@pytest.mark.parametrize("probe", [LinearProbe, KNNProbe])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": None}, "`num_classes` for .*Probe: no DataModule says it. Give it to the probe"),
        ({"batch_keys": None}, "Expected `label` for .*Probe, but the step has only h, index"),
        ({"taps": {"h": "torso"}}, "submodules of PlainHost, but got h='torso'"),
        ({"taps": {"z": "trunk"}}, "Expected `h` for .*Probe, but the step has only"),
    ],
)
def test_what_is_missing_is_named(tmp_path, probe, arguments, message):
    with pytest.raises(ValueError, match=message):
        fit(tmp_path, PlainHost(), probe(**(TAP | arguments)))


def test_a_label_out_of_range_is_named(tmp_path):
    class Odd(PlainHost):
        def on_train_batch_start(self, batch, batch_idx):
            batch[2] = batch[2] + 5

    message = r"LinearProbe 'linear_probe', stage 'train'.*labels from 0 to 1, but got 6"
    with pytest.warns(UserWarning, match="labels from 0 to 1"), pytest.raises(ValueError, match=message):
        fit(tmp_path, Odd(), LinearProbe(**TAP, on_error="raise"))


@pytest.mark.parametrize("probe", [LinearProbe, KNNProbe])
def test_labels_out_of_range_in_later_batches_are_left_out_and_counted(tmp_path, probe):
    class Odd(PlainHost):
        def on_train_batch_start(self, batch, batch_idx):
            if batch_idx == 1:
                batch[2] = torch.where(torch.arange(8) < 3, 7, batch[2])

    callback = probe(**TAP)
    with pytest.warns(UserWarning, match=r"labels from 0 to 1, but 3 of the epoch are others; they were left out"):
        trainer = fit(tmp_path, Odd(), callback)
    assert trainer.callback_metrics[f"val/{callback.name}_accuracy"] > 0.8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "`k` >= 1, but got 0"),
        ({"bank_size": 0}, "`bank_size` >= 1, but got 0"),
        ({"chunk_size": 0}, "`chunk_size` >= 1, but got 0"),
        ({"temperature": 0.0}, "`temperature` > 0, but got 0.0"),
        ({"num_classes": 1}, "`num_classes` >= 2, but got 1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        KNNProbe(**arguments)
