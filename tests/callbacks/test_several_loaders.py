"""Of several validation dataloaders, the first is observed, and one warning of each callback says so."""

import copy
import warnings

import pytest
import torch
from hosts import PlainHost, loader, quiet

from lightning_ssl_geometry.callbacks import GeometryMonitor, LinearProbe

TAPS = {"h": "trunk", "z": "head", "projector": "head"}


class ManySets(PlainHost):
    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self(batch[0]), self(batch[1])


def observed(folder, validation, **arguments):
    torch.manual_seed(0)
    host = ManySets()
    host.trunk[2].p = 0.0  # each pass of a DataLoader draws a random number, which dropout would see
    probe = LinearProbe(num_classes=2, taps={"h": "trunk"}, batch_keys={"label": 2}, view_layout="calls")
    callbacks = [GeometryMonitor(taps=TAPS, every_n_steps=1), probe]
    trainer = quiet(folder, callbacks=callbacks, **arguments)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer.fit(host, loader(), copy.copy(validation))
    logged = {name: value for name, value in trainer.callback_metrics.items() if name.startswith("val/")}
    return trainer, logged, [text for each in said if "several dataloaders" in (text := str(each.message))]


@pytest.mark.parametrize("sanity", [0, 2])
def test_only_the_first_is_observed(tmp_path, sanity):
    arguments = {"max_epochs": 2, "num_sanity_val_steps": sanity}
    first, second = loader(16, seed=1), loader(24, seed=2)
    trainer, alone, silent = observed(tmp_path / "one", first, **arguments)
    _, found, said = observed(tmp_path / "two", [first, second], **arguments)
    assert not silent
    assert sorted(text.split(",")[0] for text in said) == ["GeometryMonitor", "LinearProbe"]
    assert found.keys() == alone.keys()
    assert {name: value.item() for name, value in found.items()} == {name: v.item() for name, v in alone.items()}
    [monitor] = [each for each in trainer.callbacks if isinstance(each, GeometryMonitor)]
    assert monitor.seen["val"].samples == 16
