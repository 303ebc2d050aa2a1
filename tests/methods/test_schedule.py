import math

import lightning as L
import pytest
import torch
from hosts import quiet
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from lightning_ssl_geometry.methods import ContrastiveFlowModule, CRLTACModule, SimCLRModule
from lightning_ssl_geometry.methods.schedule import warmup_cosine
from lightning_ssl_geometry.views import CropFamily

NO_VALIDATION = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")


def rates(warmup, total):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    scheduler = warmup_cosine(optimizer, warmup, total)
    found = []
    for _ in range(total):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found, optimizer.param_groups[0]["lr"]


def test_warm_up_then_cosine():
    found, last = rates(4, 12)
    assert found[:4] == pytest.approx([0.5, 1.0, 1.5, 2.0])
    assert found[4:] == pytest.approx([1 + math.cos(math.pi * s / 8) for s in range(8)])
    assert last == pytest.approx(0)


def test_warm_up_alone():
    assert rates(4, 4)[0] == pytest.approx([0.5, 1.0, 1.5, 2.0])


def test_a_cosine_of_one_step_falls_to_0_in_it():
    found, last = rates(4, 5)
    assert found == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0])
    assert last == pytest.approx(0)


def test_after_the_last_step_the_rate_stays_0():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    scheduler = warmup_cosine(optimizer, 0, 4)
    for _ in range(8):
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0


def test_no_warm_up_begins_at_the_peak():
    assert rates(0, 5)[0][0] == 2.0


class Rates(L.Callback):
    def __init__(self):
        self.seen = []

    def on_train_batch_start(self, trainer, *_):
        self.seen.append(trainer.optimizers[0].param_groups[0]["lr"])


def seen_rates(folder, epochs, **arguments):
    """The learning rates of a fit on four batches, of which the highest is 1."""
    sgd = lambda groups: torch.optim.SGD(groups, lr=1.0)  # noqa: E731
    model = SimCLRModule(nn.Linear(5, 4), nn.Linear(4, 2), warmup_epochs=epochs, optimizer=sgd)
    look = Rates()
    batches = [{"views": tuple(torch.randn(2, 3, 5)), "index": torch.arange(3)} for _ in range(4)]
    quiet(folder, callbacks=[look], **arguments).fit(model, DataLoader(batches, collate_fn=lambda rows: rows[0]))
    return look.seen


@NO_VALIDATION
def test_an_epoch_of_warm_up_counts_optimizer_steps(tmp_path):
    """Two batches make a step, so that an epoch has two, and three epochs have six."""
    found = seen_rates(tmp_path, 1, max_epochs=3, accumulate_grad_batches=2)
    expected = [0.5, 1.0, *(0.5 + 0.5 * math.cos(math.pi * s / 4) for s in range(4))]
    assert found == pytest.approx([rate for rate in expected for _ in range(2)])


@NO_VALIDATION
def test_without_warm_up_the_cosine_begins_with_the_first_step(tmp_path):
    expected = [0.5 + 0.5 * math.cos(math.pi * s / 8) for s in range(8)]
    assert seen_rates(tmp_path, 0, max_epochs=2) == pytest.approx(expected)


@NO_VALIDATION
def test_the_last_batches_of_an_epoch_make_a_step_of_their_own(tmp_path):
    """Of four batches, three make a step, and so does the fourth: two steps in each of four epochs."""
    found = seen_rates(tmp_path, 2, max_epochs=4, accumulate_grad_batches=3)
    steps = [found[4 * epoch + place] for epoch in range(4) for place in (0, 3)]
    expected = [0.25, 0.5, 0.75, 1.0, *(0.5 + 0.5 * math.cos(math.pi * s / 4) for s in range(4))]
    assert steps == pytest.approx(expected)


class Stream(IterableDataset):
    def __iter__(self):
        return iter([{"views": tuple(torch.randn(2, 3, 5)), "index": torch.arange(3)} for _ in range(9)])


@NO_VALIDATION
def test_a_set_without_a_length_has_no_epochs_of_warm_up(tmp_path):
    for epochs in (0, 1):
        model = SimCLRModule(nn.Linear(5, 4), nn.Linear(4, 2), warmup_epochs=epochs)
        trainer = quiet(tmp_path / str(epochs), max_epochs=-1, max_steps=4)
        if epochs:
            with pytest.raises(ValueError, match="Expected `warmup_epochs` 0 for a training set without a length"):
                trainer.fit(model, DataLoader(Stream(), batch_size=None))
        else:
            trainer.fit(model, DataLoader(Stream(), batch_size=None))
            assert trainer.global_step == 4


@NO_VALIDATION
def test_weights_that_wait_for_their_shape_decay(tmp_path):
    batches = [{"views": tuple(torch.randn(2, 3, 5)), "index": torch.arange(3)}]
    projector = nn.Sequential(nn.LazyLinear(6), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
    model = SimCLRModule(nn.Linear(5, 4), projector, optimizer=lambda p: torch.optim.AdamW(p, weight_decay=0.1))
    trainer = quiet(tmp_path, fast_dev_run=1)
    trainer.fit(model, DataLoader(batches, collate_fn=lambda rows: rows[0]))
    for group in trainer.optimizers[0].param_groups:
        assert {p.ndim for p in group["params"]} == ({2} if group["weight_decay"] else {1})


@NO_VALIDATION
@pytest.mark.parametrize(("epochs", "expected"), [(10, [0.25, 0.5, 0.75, 1.0]), (0.5, [0.5, 1.0, 1.0, 0.5])])
def test_a_trial_of_four_batches_is_all_warm_up_where_that_is_longer(epochs, expected, tmp_path):
    assert seen_rates(tmp_path, epochs, fast_dev_run=4) == pytest.approx(expected)


@pytest.mark.parametrize("warmup", [-1, 6])
def test_bad_input(warmup):
    with pytest.raises(ValueError, match=rf"0 <= `warmup_steps` <= 5 \(`total_steps`\), but got {warmup}"):
        rates(warmup, 5)


@pytest.mark.parametrize(
    ("model", "optimizer", "lr"),
    [
        (lambda **none: SimCLRModule(nn.Identity(), nn.Linear(2, 2), **none), torch.optim.AdamW, 1e-3),
        (lambda **none: ContrastiveFlowModule(4, **none), torch.optim.SGD, 0.1),
        (
            lambda **none: CRLTACModule(nn.Identity(), nn.Linear(2, 2), CropFamily(8, 4, 2), **none),
            torch.optim.Adam,
            1e-3,
        ),
    ],
    ids=["SimCLR", "flow", "CRL-TAC"],
)
def test_without_an_optimizer_a_method_has_its_own(model, optimizer, lr):
    for none in ({}, {"optimizer": None, "lr_scheduler": None}):  # the latter from YAML
        made = model(**none).optimizer([nn.Parameter(torch.ones(2))])
        assert type(made) is optimizer
        assert made.param_groups[0]["lr"] == lr
    assert (model().lr_scheduler is None) == (optimizer is not torch.optim.SGD)
