"""On a GPU, an update that reads a tensor's value waits until everything before it is computed."""

import inspect
import warnings
from functools import partial

import pytest
import torch
from clouds import cloud
from observations import concrete, metric_of, observed
from pretended import PLACE, Pretended, PretendedDevice, on_cpu, pretended
from reads import Reads

from lightning_ssl_geometry import precision
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows

# What reads for more than that: {diagnostic: reads of an update}.
READS = {
    "ClassMeanCosine": 1,  # the classes
    "LatentR2": 3,  # the rows of both halves, and whether `content` is that of the update before
    "NeuralCollapse": 3,  # the classes of this update, how often each occurs, and those of all updates
    "PolicyGenerators": 6,  # whether five tensors are finite
    "TemperatureOrder": 2,  # the rows of both halves
    "ViewPairs": 2,  # its samples are complete: which of the new ones may replace them
}


@pytest.fixture
def device(monkeypatch):
    """The pretended device, with float64."""
    monkeypatch.setattr(Pretended, "has_float64", True)
    monkeypatch.setattr(precision, "supports_float64", lambda place: True)
    monkeypatch.setattr(torch, "autocast", partial(on_cpu, torch.autocast))
    with PretendedDevice():
        yield PLACE


@pytest.mark.parametrize("name", concrete())
def test_an_update_reads_no_values_but_for_the_choice_of_samples(name, device):
    kind = concrete()[name]
    metric, given = metric_of(kind).to(device), pretended(observed(cloud("isotropic")))
    update = partial(metric.update, **{key: given[key] for key in inspect.signature(metric.update).parameters})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        update()
        with Reads(Pretended) as reads:
            update()
    assert len(reads.found) == READS.get(name, int(issubclass(kind, SampledRows))), reads.found
