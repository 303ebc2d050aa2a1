"""Each contract of check_method is kept by all methods of the package, and broken by a module that is wrong."""

import lightning as L
import pytest
import torch
from hosts import ManualSteps, PlainHost, loader
from small_methods import METHODS, data
from torch import nn

from lightning_ssl_geometry import methods
from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.methods import SSLModule
from lightning_ssl_geometry.testing import METHOD_CONTRACTS, check_method
from lightning_ssl_geometry.testing.surroundings import shared

EXPECTED = {
    "contrastive_flow": {"copies": "its optimizer is a lambda, which pickle refuses"},
    "crl_tac": {"views": "it takes the first view, and draws its own views from it"},
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_them(name):
    assert list(check_method(METHODS[name](), data(50), EXPECTED.get(name))) == list(METHOD_CONTRACTS)


def test_no_method_is_forgotten():
    kinds = {kind for name in methods.__all__ if isinstance(kind := getattr(methods, name), type)}
    public = {kind for kind in kinds if issubclass(kind, SSLModule) and kind.step is not SSLModule.step}
    assert public - {type(make()) for make in METHODS.values()} == set()


class Pairs(L.LightningDataModule):
    def train_dataloader(self):
        return loader()

    def val_dataloader(self):
        return loader(24, seed=1)


class Right(PlainHost):
    """A plain SimCLR without dropout, whose batches come in one order."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 10), nn.ReLU())


class Unused(Right):
    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(2, 2)


class OneSided(Right):
    def embed(self, x1, x2):
        return self(x1), self(x1)


class Standing(Right):
    def __init__(self):
        super().__init__()
        self.trunk.insert(1, nn.BatchNorm1d(10, momentum=0.0))


class Drawing(Right):
    drawn = 0

    def training_step(self, batch, batch_idx):
        type(self).drawn += 1  # goes on from fit to fit
        return super().training_step(batch, batch_idx) * self.drawn


class Noticing(Right):
    def training_step(self, batch, batch_idx):
        factor = 1 + len(self.trainer.callbacks)
        return super().training_step(batch, batch_idx) * factor


class Forgetful(Right):
    steps = 0

    def training_step(self, batch, batch_idx):
        self.steps += 1  # in no checkpoint
        return super().training_step(batch, batch_idx) * self.steps


class Hoarding(Right):
    def on_save_checkpoint(self, checkpoint):
        checkpoint["host"] = nn.ReLU()


class Local(Right):
    def __init__(self):
        super().__init__()
        self.make = lambda: None


class Overflowing(Right):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss * torch.inf if torch.is_autocast_enabled("cpu") else loss


class Stepping(ManualSteps, Right):
    pass


class Deaf(Right):
    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
        pass


class Accumulating(Right):
    def lr_scheduler_step(self, scheduler, metric):
        pass

    def on_fit_start(self):
        self.trainer.accumulate_grad_batches = 1


class Compiled(Right):
    def __init__(self):
        super().__init__()
        self.backbone = self.trunk

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx) * (2 if self.backbone._compiled_call_impl else 1)
        self.log("loss", loss)
        return loss


def watching():
    taps = {"h": "trunk", "z": "head"}
    return [GeometryMonitor(taps=taps, stages=["train", "val"], every_n_steps=1)]


BROKEN = {
    "gradients": Unused,
    "views": OneSided,
    "statistics": Standing,
    "repeatable": Drawing,
    "observed": Noticing,
    "resumed": Forgetful,
    "resumed_within_an_epoch": Forgetful,
    "checkpoint": Hoarding,
    "copies": Local,
    "bfloat16": Overflowing,
    "accumulated": Accumulating,
    "clipped": Deaf,
    "compiled": Compiled,
}


def test_each_contract_has_a_module_that_breaks_it():
    assert BROKEN.keys() == METHOD_CONTRACTS.keys()


@pytest.mark.parametrize("contract", BROKEN)
def test_a_wrong_module_breaks_it(contract):
    with pytest.raises(AssertionError, match=rf"^{BROKEN[contract].__name__} breaks 1 of 1 contracts.\n{contract}: "):
        check_method(BROKEN[contract](), Pairs(), callbacks=watching, only=[contract])


def test_a_module_of_ones_own_is_left_as_it_is():
    module, without = Right(), {"resumed_within_an_epoch": "a plain DataLoader begins its epoch anew"}
    before = {name: value.clone() for name, value in module.state_dict().items()}
    found = check_method(module, Pairs(), without, callbacks=watching)
    assert found["observed"] == found["resumed"] == "kept"
    assert found["compiled"] == "left out: the module has no `backbone`"
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module._trainer is None


def test_a_process_is_left_as_it_was(monkeypatch):
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    module = Right()
    torch.manual_seed(5)
    before = shared()
    check_method(module, Pairs(), only=["repeatable"])
    assert shared() == before


class Exploding(Right):
    def training_step(self, batch, batch_idx):
        raise RuntimeError("no memory to clip or accumulate")


class OneBatch(L.LightningDataModule):
    def train_dataloader(self):
        return loader(8)


def test_a_module_that_cannot_be_trained_is_one_error():
    with pytest.raises(
        AssertionError, match=r"^Exploding fails before any contract is checked\. It raises RuntimeError: no memory"
    ):
        check_method(Exploding(), Pairs())
    with pytest.raises(AssertionError, match=r"^Right fails before .* got an unexpected keyword argument 'acelerator'"):
        check_method(Right(), Pairs(), acelerator="gpu")
    with pytest.raises(AssertionError, match=r"^Right fails before .* ended without a step of an optimizer"):
        check_method(Right(), Pairs(), max_steps=0)


def test_one_batch_cannot_be_accumulated():
    found = check_method(Right(), OneBatch(), only=["resumed_within_an_epoch", "accumulated"])
    assert set(found.values()) == {"left out: an epoch has one batch"}


def test_callbacks_are_made_by_a_function():
    with pytest.raises(ValueError, match=r"`callbacks` to be a function that returns callbacks, but got \["):
        check_method(Right(), Pairs(), callbacks=[])


@pytest.mark.parametrize(
    ("module", "datamodule", "only", "message"),
    [
        (nn.Linear(1, 1), Pairs(), None, r"`module` to be a LightningModule, but got Linear\("),
        (Right(), loader(), None, r"`datamodule` to be a LightningDataModule, but got <torch"),
        (Right(), Pairs(), ["resume"], r"`only` with names of contracts, but got 'resume'\. Did you mean `resumed`\?"),
    ],
)
def test_wrong_arguments(module, datamodule, only, message):
    with pytest.raises(ValueError, match=message):
        check_method(module, datamodule, only=only)
