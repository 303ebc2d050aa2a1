"""Each contract of check_diagnostic is kept by all diagnostics of the package, and broken by a class that is wrong."""

import os
import random
import warnings
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from clouds import Drawn
from observations import concrete, metric_of, observed
from torchmetrics import MeanMetric, Metric

from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics import Diagnostic, EffectiveRank, UndefinedWarning, Uniformity
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.testing import DIAGNOSTIC_CONTRACTS, check_diagnostic, contract
from lightning_ssl_geometry.testing.surroundings import shared

GIVEN = observed(Drawn(views=3, rows=24).points().double())
REMEMBERS = {"reset": "a readout is compared with the first one, which a reset keeps"}
EXPECTED = {"CKADrift": REMEMBERS, "NeuralKernel": REMEMBERS}


@pytest.mark.parametrize("name", concrete())
def test_every_diagnostic_keeps_them(name):
    found = check_diagnostic(metric_of(concrete()[name]), GIVEN, EXPECTED.get(name), sized=sized)
    assert list(found) == list(DIAGNOSTIC_CONTRACTS)
    assert found["memory"] == found["cost"] == "kept"


def sized(rows, width):
    return observed(Drawn(views=3, rows=rows, width=width).points().double(), p=width)


class Norm(Diagnostic):
    """The mean squared norm of z, without a mistake."""

    full_state_update = False

    section = "hypersphere"
    cost = Cost(update="n D", compute="1", memory="1")
    quantities: ClassVar = {
        "": Quantity(
            title="Norm", low="Near the origin.", high="Far away.", bounds=(0, None), invariances=("rotation",)
        )
    }

    def __init__(self):
        super().__init__()
        self.add_sums("total", "count")

    def update(self, z):
        self.total += z.double().square().sum()
        self.count += z.shape[-2]

    def compute(self):
        self.require(self.count, "samples")
        return self.value().where(self.total.isfinite(), self.nan())

    def value(self):
        return self.total / self.count

    def nan(self):
        warnings.warn(UndefinedWarning("Norm is NaN: `z` is not finite."), stacklevel=1)
        return self.total.new_tensor(torch.nan)


class BatchMeans(Norm):
    def update(self, z):
        self.total += z.double().square().sum() / z.shape[-2]
        self.count += 1


class Weighted(Norm):
    def update(self, z):
        place = torch.arange(z.shape[-2], dtype=torch.float64)[:, None]
        self.total += (z.double().square() * (place + self.count)).sum()
        self.count += z.shape[-2]


class Unmerged(Norm):
    def __init__(self):
        Diagnostic.__init__(self)
        for name in ("total", "count"):
            self.add_state(name, torch.zeros((), dtype=torch.float64), dist_reduce_fx=lambda states: states[0])


class OfAllTime(Norm):
    seen = 0

    def update(self, z):
        super().update(z)
        self.seen += z.shape[-2]

    def value(self):
        return self.total / self.seen


class Counting(Norm):
    calls = 0

    def value(self):
        self.calls += 1
        return super().value() * self.calls


class Local(Norm):
    def __init__(self):
        super().__init__()
        self.weigh = lambda x: x


class InPlace(Norm):
    def update(self, z):
        super().update(z.detach().mul_(1.0))
        z.detach()[..., 0] = 1.0


class Drawing(Norm):
    def value(self):
        return super().value() + 0 * torch.rand(())


class Seeding(Norm):
    def value(self):
        torch.manual_seed(0)
        return super().value()


class DrawingNumpy(Norm):
    def value(self):
        return super().value() + 0 * np.random.rand()  # noqa: NPY002, the mistake that is tested


class DrawingPython(Norm):
    def value(self):
        return super().value() + 0 * random.random()


class Widening(Norm):
    def value(self):
        torch.set_default_dtype(torch.float64)
        return super().value()


class Exporting(Norm):
    def value(self):
        os.environ["A_NAME_OF_A_TEST"] = "1"
        return super().value()


class Overflowing(Norm):
    def update(self, z):
        self.total += (1e3 * z).square().sum().double()
        self.count += z.shape[-2]


class Stray(Norm):
    def __init__(self):
        super().__init__()
        self.largest = torch.zeros((), dtype=torch.float64)

    def update(self, z):
        super().update(z)
        self.largest = torch.maximum(self.largest, z.abs().max())


class Cancelling(Norm):
    """The variance of z, as the difference of two large numbers."""

    def __init__(self):
        super().__init__()
        self.add_sums("mean")

    def update(self, z):
        self.total += z.square().mean((0, 2)).sum()
        self.mean += z.mean((0, 2)).sum()
        self.count += z.shape[-2]

    def value(self):
        return self.total / self.count - (self.mean / self.count).square()


class Silent(Norm):
    def nan(self):
        return self.total.new_tensor(torch.nan)


class Terse(Norm):
    quantities: ClassVar = {"": Quantity(title="Norm", low="low", high="Far away.")}


class Bounded(Norm):
    quantities: ClassVar = {"": Quantity(title="Norm", low="Low.", high="Far away.", bounds=(0, 0.1))}


class Scaled(Norm):
    quantities: ClassVar = {"": Quantity(title="Norm", low="Low.", high="Far away.", invariances=("scale",))}


class Hoarding(Norm):
    def __init__(self):
        super().__init__()
        self.held = []

    def update(self, z):
        super().update(z)
        self.held.append(z)


class Squared(Norm):
    def update(self, z):
        super().update(z)
        self.total += 0 * (z[0] @ z[0].T).sum().double()


BROKEN = {
    "batches": BatchMeans,
    "order": Weighted,
    "merged": Unmerged,
    "forward": OfAllTime,
    "reset": OfAllTime,
    "repeated": Counting,
    "registered": Stray,
    "copies": Local,
    "untouched": Drawing,
    "half_precision": Overflowing,
    "single_precision": Cancelling,
    "degenerate": Silent,
    "described": Terse,
    "bounds": Bounded,
    "invariances": Scaled,
    "memory": Hoarding,
    "cost": Squared,
}


def test_a_right_one_keeps_them():
    assert set(check_diagnostic(Norm(), {"z": GIVEN["z"]}).values()) == {"kept"}


def test_each_contract_has_a_class_that_breaks_it():
    assert BROKEN.keys() == DIAGNOSTIC_CONTRACTS.keys()


@pytest.mark.parametrize("contract", BROKEN)
def test_a_wrong_one_breaks_it(contract):
    with pytest.raises(
        AssertionError, match=rf"(?s)^{BROKEN[contract].__name__} breaks \d+ of 17 contracts.*\n.*{contract}: "
    ):
        check_diagnostic(BROKEN[contract](), {"z": GIVEN["z"]})


def test_a_changed_tensor_is_noticed():
    with pytest.raises(AssertionError, match=r"untouched: A tensor was changed\."):
        check_diagnostic(InPlace(), {"z": GIVEN["z"]}, only=["untouched"])
    assert not (GIVEN["z"][..., 0] == 1).any()  # a copy is observed


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (Drawing, "torch's random numbers"),
        (Seeding, "torch's random numbers"),
        (DrawingNumpy, "numpy's random numbers"),
        (DrawingPython, "Python's random numbers"),
        (Widening, "torch's default dtype"),
        (Exporting, "the environment variables"),
    ],
)
def test_what_a_process_shares_is_noticed_and_given_back(kind, what):
    torch.manual_seed(0)
    before = shared()
    with pytest.raises(AssertionError, match=rf"untouched: {what} changed\."):
        check_diagnostic(kind(), {"z": GIVEN["z"]}, only=["batches", "untouched"])
    assert shared() == before


def test_python_without_assertions_is_refused():
    source = Path(contract.__file__)
    compiled = {"__name__": contract.__name__}
    exec(compile(source.read_text(), str(source), "exec", optimize=1), compiled)  # as `python -O` does
    with pytest.raises(RuntimeError, match=r"Expected Python with assertions, .* but got `python -O`"):
        compiled["kept"]({"one": lambda case: None}, None, None, only=None)


def test_an_expected_failure_needs_a_reason_and_has_to_fail():
    broken = {"batches": "it is the mean over batches", "order": "batches differ", "merged": "likewise"}
    only = ["batches", "order"]
    found = check_diagnostic(BatchMeans(), {"z": GIVEN["z"]}, {"batches": broken["batches"]}, only=only)
    assert found == {"batches": "fails as expected: it is the mean over batches", "order": "kept"}
    with pytest.raises(ValueError, match=r"Expected `expected_failures` with a reason for 'order', but got ''\."):
        check_diagnostic(BatchMeans(), {"z": GIVEN["z"]}, {"order": ""})
    with pytest.raises(AssertionError, match=r"order: it is kept now\. Remove it from `expected_failures`"):
        check_diagnostic(Norm(), {"z": GIVEN["z"]}, {"order": "it was wrong once"})


def test_any_metric_can_be_checked():
    found = check_diagnostic(MeanMetric(), {"value": GIVEN["z"][0], "weight": torch.tensor(2.0)})
    assert found["described"] == found["memory"] == found["cost"] == "left out: the Metric is no Diagnostic"
    assert found["batches"] == found["merged"] == "kept"


class Unsaid(Metric):
    def update(self, z, wanted, usual=1):
        pass

    def compute(self):
        return torch.zeros(())


class Starred(Unsaid):
    def update(self, *args):
        pass


class Mute(Unsaid):
    def update(self):
        pass


class Failing(Norm):
    def update(self, z):
        raise RuntimeError("no memory")


def test_an_update_that_fails_is_one_error():
    with pytest.raises(
        AssertionError, match=r"^Failing fails before any contract is checked\. It raises RuntimeError: no memory$"
    ):
        check_diagnostic(Failing(), {"z": GIVEN["z"]})


def used():
    metric = EffectiveRank()
    metric.update(GIVEN["h"])
    return metric


@pytest.mark.parametrize(
    ("metric", "observation", "further", "message"),
    [
        (EffectiveRank, {}, {}, r"`metric` to be a torchmetrics.Metric, but got <class"),
        (used(), {"h": GIVEN["h"]}, {}, r"`metric` to have observed nothing yet, but its `update` was called"),
        (
            Unsaid(),
            {"z": GIVEN["z"]},
            {},
            r"with \['wanted', 'z'\], which `Unsaid.update` needs, but it lacks \['wanted'",
        ),
        (EffectiveRank(), {"h": GIVEN["h"][:, :7]}, {}, r"at least 8 samples, but got 7"),
        (Uniformity(), {"z": GIVEN["z"], "index": torch.arange(5)}, {}, r"with 24 samples .* as `z` has, but got"),
        (EffectiveRank(), {"h": GIVEN["h"]}, {"only": ["batch"]}, r"but got 'batch'\. Did you mean `batches`\?"),
        (Norm(), GIVEN["z"], {}, r"`observation` to be a dict, but got a Tensor"),
        (Norm(), {"z": GIVEN["z"].numpy()}, {}, r"`z` as a tensor, but got a numpy ndarray"),
        (Norm(), {"z": GIVEN["z"].to("meta")}, {}, r'`z` to be a dense tensor, but got one on the device "meta"'),
        (MeanMetric().to("meta"), {"value": GIVEN["z"][0]}, {}, r'`metric` on a device with memory, .* "meta"'),
        (Norm(), {"z": GIVEN["z"][:, :0]}, {}, r"at least 8 samples, but got 0"),
        (
            Norm(),
            {"z": [GIVEN["z"], GIVEN["z"][:, :9]]},
            {"axes": {"z": 1}},
            r"equally many samples, but got \[9, 24\]",
        ),
        (Norm(), {"z": GIVEN["z"]}, {"axes": {"z": 5}}, r"`z` with the samples on axis 5, but got \(3, 24, "),
        (Norm(), {"z": GIVEN["z"]}, {"axes": {"z": "1"}}, r"`axes` with an integer or None for 'z', but got '1'"),
        (Norm(), {"z": GIVEN["z"]}, {"axes": ["z"]}, r"`axes` to be a dict, but got a list"),
        (Norm(), {"z": GIVEN["z"]}, {"only": "order"}, r"`only` to be a list of names .* but got 'order'"),
        (Norm(), {"z": GIVEN["z"]}, {"only": []}, r"`only` to be a list of names .* but got \[\]"),
        (Norm(), {"z": GIVEN["z"]}, {"only": [3]}, r"`only` to be a list of names .* but got \[3\]"),
        (
            Norm(),
            {"z": GIVEN["z"]},
            {"expected_failures": ["order"]},
            r"`expected_failures` to be a dict .* \['order'\]",
        ),
        (Starred(), {"z": GIVEN["z"]}, {}, r"an argument of `Starred.update` \(\*args.*by name, but got \['z'\]"),
        (Mute(), {"z": GIVEN["z"]}, {}, r"an argument of `Mute.update` \(\).*by name, but got \['z'\]"),
        (EffectiveRank(), {"h": GIVEN["h"]}, {"axes": {"H": 0}}, r"`axes` with keys of `observation`, but got \['H'\]"),
    ],
)
def test_wrong_arguments(metric, observation, further, message):
    with pytest.raises(ValueError, match=message):
        check_diagnostic(metric, observation, **further)


def test_axes_say_where_the_samples_are():
    class Columns(Norm):
        def update(self, z):
            super().update(z.T)

    with pytest.raises(AssertionError, match="breaks"):
        check_diagnostic(Columns(), {"z": GIVEN["z"][0].T.repeat(3, 1)}, only=["batches", "order", "invariances"])
    found = check_diagnostic(Columns(), {"z": GIVEN["z"][0].T}, axes={"z": 1}, only=["batches", "order", "merged"])
    assert set(found.values()) == {"kept"}
