"""Faults of a method that show in one place only, and sound modules that keep the contracts."""

import signal

import lightning as L
import pytest
import torch
from hosts import PlainHost, loader, pairs
from torch import nn
from torch.utils.data import DataLoader, default_collate

from lightning_ssl_geometry.testing import check_method


class Pairs(L.LightningDataModule):
    def train_dataloader(self):
        return loader(16)


class Named(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(pairs(16), batch_size=8, collate_fn=self.named)

    def named(self, samples):
        x1, x2, label = default_collate(samples)
        return {"views": (x1, x2), "label": label}


class Right(PlainHost):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 10), nn.ReLU())


class Zeroed(Right):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss + 0 * self.unused.sum()

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.ones(2))


class OfViews(Right):
    def training_step(self, batch, batch_idx):
        return super().training_step((*batch["views"], batch["label"]), batch_idx)


class OneSided(OfViews):
    def embed(self, x1, x2):
        return self(x1), self(x1)


class Frozen(Right):
    """Batch norm in eval mode, as a frozen network has it."""

    def __init__(self):
        super().__init__()
        self.trunk.insert(1, nn.BatchNorm1d(10).eval())


class Saving(Right):
    def __init__(self, width=10, tau=0.5):
        super().__init__()
        self.save_hyperparameters()
        self.tau = tau
        self.trunk = nn.Sequential(nn.Linear(6, width), nn.ReLU())
        self.head = nn.Linear(width, 4)


class Forgetting(Saving):
    def __init__(self, width=10, tau=0.5):
        super().__init__(width, tau)
        self.hparams.pop("width")


class ForgettingANumber(Saving):
    def __init__(self, width=10, tau=0.5):
        super().__init__(width, tau)
        self.hparams.pop("tau")


class Given(Right):
    """The network is no hyper-parameter."""

    def __init__(self, head, tau=0.5):
        super().__init__()
        self.save_hyperparameters(ignore=["head"])
        self.head = head


class SavingANetwork(Right):
    def __init__(self, head):
        super().__init__()
        self.save_hyperparameters(logger=False)
        self.head = head


class Interrupted(Right):
    def training_step(self, batch, batch_idx):
        raise KeyboardInterrupt


def said(module, contract, data=None):
    with pytest.raises(AssertionError) as caught:
        check_method(module, data or Pairs(), only=[contract])
    return str(caught.value).partition(f"\n{contract}: ")[2]


def test_a_gradient_of_zero_is_none():
    assert said(Zeroed(), "gradients") == "['unused'] got only gradients that are 0 in the fit."


def test_a_view_by_name_is_noticed():
    assert said(OneSided(), "views", Named()) == "The weights are the same with other values in view 1 of 2 (from 0)."
    assert check_method(OfViews(), Named(), only=["views"]) == {"views": "kept"}


def test_a_method_without_views_has_nothing_to_ignore():
    class Labels(Right):
        def training_step(self, batch, batch_idx):
            return self(torch.ones(1, 6)).square().sum()

    assert check_method(Labels(), Pairs(), only=["views"]) == {
        "views": "left out: the training uses no view of the batches"
    }


def test_frozen_statistics_are_allowed():
    assert check_method(Frozen(), Pairs(), only=["statistics"]) == {
        "statistics": "left out: no layer in training mode has running statistics"
    }


@pytest.mark.parametrize("module", [Saving(12, 0.1), Given(nn.Linear(10, 3), 0.1)], ids=["numbers", "a network"])
def test_saved_arguments_build_the_module_again(module):
    assert check_method(module, Pairs(), only=["checkpoint"]) == {"checkpoint": "kept"}


def test_a_forgotten_argument_is_named():
    message = said(Forgetting(12), "checkpoint")
    assert (
        "does not build the module. `save_hyperparameters` does not save ['width']. It raises RuntimeError" in message
    )
    message = said(ForgettingANumber(12, 0.1), "checkpoint")
    assert message.startswith("`load_from_checkpoint` builds a module with `tau` = 0.5, not 0.1. Save the argument")


@pytest.mark.filterwarnings("ignore:Attribute 'head' is an instance of `nn.Module`")
def test_a_network_in_a_checkpoint_is_named():
    message = said(SavingANetwork(nn.Linear(10, 3)), "checkpoint")
    assert message.startswith(
        "A checkpoint cannot be read with `weights_only=True`, as it holds torch.nn.modules.linear."
    )


def test_what_pickle_refuses_is_said_in_a_sentence():
    class Local(Right):
        pass

    message = said(Local(), "copies")
    assert message.startswith("It cannot be copied by pickle: ")
    assert message.endswith("Define its class and functions at the top of a module, not inside of another function, "
                            "and use no lambda.")  # fmt: skip


def test_an_interruption_ends_the_check():
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        check_method(Interrupted(), Pairs())
    assert signal.getsignal(signal.SIGINT) is handler


def test_callbacks_that_are_none_are_named():
    with pytest.raises(AssertionError, match=r"observed: `callbacks` returns None, not a list of callbacks\."):
        check_method(Right(), Pairs(), callbacks=lambda: None, only=["observed"])


def test_dropout_shows_after_a_resume():
    assert said(PlainHost(), "resumed").startswith(
        "3 of 3 weights and buffers differ after a resume between two epochs"
    )


def test_weights_without_memory_are_refused():
    with pytest.raises(ValueError, match='Expected `module` with weights, but got some on the device "meta"'):
        check_method(Right().to("meta"), Pairs())
