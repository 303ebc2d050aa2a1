"""Every diagnostic that needs labels takes them by position and by name."""

import inspect

import pytest
import torch
from torchmetrics import Metric

from lightning_ssl_geometry import diagnostics
from lightning_ssl_geometry.observe.feed import by_key


def needs_label(cls):
    label = inspect.signature(cls.update).parameters.get("label")
    return label is not None and label.default is inspect.Parameter.empty


LABELLED = [
    cls
    for cls in vars(diagnostics).values()
    if isinstance(cls, type) and issubclass(cls, Metric) and not inspect.isabstract(cls) and needs_label(cls)
]


def test_there_are_some():
    assert {cls.__name__ for cls in LABELLED} >= {"LabelAgreement", "Clusteredness", "NeuralCollapse"}


@pytest.mark.parametrize("cls", LABELLED, ids=lambda cls: cls.__name__)
def test_labels_by_position_and_by_name(cls):
    h, label = torch.randn(2, 24, 4), torch.arange(24) % 3
    by_position, by_name = cls(), cls()
    by_position.update(h, label)
    by_name.update(h, label=label)
    for key, value in by_key(by_name.compute()).items():
        assert torch.equal(by_key(by_position.compute())[key], value), key


@pytest.mark.parametrize("cls", [diagnostics.LabelAgreement, diagnostics.Clusteredness])
def test_an_index_stays_the_second_argument_beside_a_named_label(cls):
    h, label, index = torch.randn(2, 24, 4), torch.arange(24) % 3, torch.arange(24)
    metric = cls()
    metric.update(h, index, label=label)
    with pytest.warns(FutureWarning, match="with `label` by position"):
        metric.update(h, index + 24, label)
    assert len(torch.cat(metric.key)) == 48
    with pytest.raises(TypeError, match="label"):
        metric.update(h)
