"""Faults of a diagnostic that show on few inputs only, and sound Metrics that keep the contracts."""

from typing import ClassVar

import pytest
import torch
from clouds import Drawn
from torch import nn
from torchmetrics import MeanMetric, Metric

from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics import Diagnostic
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.testing import check_diagnostic

ROWS = Drawn(views=2, rows=24).points()


class Mean(Diagnostic):
    """The mean of a number of each sample."""

    full_state_update = False
    section = "hypersphere"
    cost = Cost(update="n D", compute="1", memory="1")
    quantities: ClassVar = {"": Quantity(title="Mean", low="Low values.", high="High values.")}

    def __init__(self):
        super().__init__()
        self.add_sums("total", "count", "wrong")

    def update(self, embedding):
        self.wrong += not embedding.isfinite().all()
        self.total += self.number(embedding.double()).sum()
        self.count += embedding.shape[0]

    def number(self, rows):
        return rows.square().sum(-1)

    def compute(self):
        if self.wrong:
            return undefined(self, "`embedding` is not finite")
        return self.value()

    def value(self):
        return self.total / self.count


class OfDirection(Mean):
    def number(self, rows):
        length = rows.norm(dim=-1)
        return rows[:, 0] / (length if length.any() else 1)


class OfContrast(Mean):
    def number(self, rows):
        spread = rows.std(-1)
        return rows[:, 0] / spread.where(rows.any(-1), 1)


class Inverse(Mean):
    def value(self):
        return self.count / self.total


class Invariant(Mean):
    quantities: ClassVar = {
        "": Quantity(title="Mean", low="Low values.", high="High values.", invariances=("rotation", "scale"))
    }


class Rotated(Mean):
    quantities: ClassVar = {
        "": Quantity(title="Mean", low="Low values.", high="High values.", invariances=("rotation",))
    }


class Promising(Mean):
    quantities: ClassVar = {**Mean.quantities, "spread": Quantity(title="Spread", low="Low values.", high="High.")}


class Constant(Mean):
    def __init__(self):
        super().__init__()
        self.weights = torch.ones(6, dtype=torch.float64)

    def number(self, rows):
        return rows.square() @ self.weights


class Buffered(Mean):
    weights: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("weights", torch.ones(6, dtype=torch.float64), persistent=False)
        self.network = nn.Linear(2, 2)
        self.others = (nn.Linear(2, 2),)

    def number(self, rows):
        return rows.square() @ self.weights


class Plain(Metric):
    """Without `full_state_update`, which is then None."""

    def __init__(self):
        super().__init__()
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, embedding):
        self.total += embedding.double().square().sum()

    def compute(self):
        return self.total


class Sleeping(Mean):
    def update(self, embedding, projector):
        projector.eval()
        super().update(projector(embedding).detach())


def broken(metric, contract, **further):
    with pytest.raises(AssertionError) as caught:
        check_diagnostic(metric, {"embedding": ROWS[0]} | further, only=[contract])
    return str(caught.value).partition(f"\n{contract}: ")[2]


@pytest.mark.parametrize("kind", [Mean, Buffered, Rotated])
def test_a_sound_one_keeps_all(kind):
    found = check_diagnostic(kind(), {"embedding": ROWS[0]})
    assert set(found.values()) <= {"kept", "left out: no invariance is declared"}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (OfDirection, "For one sample of zeros, '' is NaN without an UndefinedWarning that says why."),
        (OfContrast, "For one sample of ones, '' is infinite."),
        (Inverse, "For samples that are 0, '' is infinite."),
    ],
)
def test_a_division_by_zero_is_noticed(kind, said):
    assert broken(kind(), "degenerate") == said


def test_a_tensor_with_a_name_of_ones_own_is_moved():
    assert "'' changes under a scale of the observed vectors" in broken(Invariant(), "invariances")
    assert check_diagnostic(Rotated(), {"embedding": ROWS[0]}, only=["invariances"]) == {"invariances": "kept"}


def test_weights_and_distributions_are_not_moved():
    class Entropy(Mean):
        def update(self, probabilities, weight):
            entropy = -(probabilities * probabilities.log()).sum(-1)
            super().update(weight.double() * entropy[:, None])

    given = {"probabilities": ROWS[0].softmax(-1), "weight": torch.rand(24, 2) + 0.1}
    found = check_diagnostic(Entropy(), given, only=["degenerate", "single_precision", "batches"])
    assert found["single_precision"] == "left out: the observation has no vectors"


def test_a_result_that_is_declared_but_not_returned_is_noticed():
    assert "`quantities` declares ['spread'], but `compute` returns ['']." in broken(Promising(), "described")


def test_a_result_may_depend_on_an_argument_that_is_not_observed():
    class Labelled(Promising):
        def update(self, embedding, label=None):
            super().update(embedding)

    assert check_diagnostic(Labelled(), {"embedding": ROWS[0]}, only=["described"]) == {"described": "kept"}
    assert "['spread']" in broken(Labelled(), "described", label=torch.arange(24))


def test_a_constant_that_stays_behind_is_noticed():
    assert "The constructor keeps tensors in ['weights']" in broken(Constant(), "registered")


def test_a_mode_is_noticed_after_other_contracts():
    given = {"embedding": ROWS[0], "projector": nn.Linear(6, 6)}
    with pytest.raises(AssertionError, match="untouched: A module's training mode was changed"):
        check_diagnostic(Sleeping(), given, only=["batches", "order", "untouched"])
    assert given["projector"].training


def test_metrics_that_torchmetrics_cannot_merge_are_not_merged():
    found = check_diagnostic(Plain(), {"embedding": ROWS[0]})
    assert found["merged"] == "left out: torchmetrics merges no Metric whose `full_state_update` is None"
    assert set(found.values()) - {found["merged"]} == {
        "kept",
        "left out: the Metric is no Diagnostic",
        "left out: no invariance is declared",
    }


def test_metrics_of_torchmetrics_keep_them():
    found = check_diagnostic(MeanMetric(), {"value": ROWS[0], "weight": torch.rand(24, 6)})
    assert found["degenerate"] == found["single_precision"] == found["registered"] == "kept"
