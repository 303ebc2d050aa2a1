import pytest
import torch

from lightning_ssl_geometry.diagnostics import LayerSample


def observed(n=40):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, d, generator=generator) for d in (5, 3)], torch.arange(n) * 3, torch.arange(n) % 4


@pytest.mark.parametrize("order", [list(range(40)), list(reversed(range(40)))], ids=["in order", "backwards"])
@pytest.mark.parametrize("size", [7, 40], ids=["batches", "at once"])
def test_the_same_samples_however_they_arrive(order, size):
    layers, index, label = observed()
    whole = LayerSample(2, contrast_size=12)
    whole.update(layers, index, label)
    expected, metric = whole.compute(), LayerSample(2, contrast_size=12)
    for rows in torch.tensor(order).split(size):
        metric.update([layer[rows] for layer in layers], index[rows], label[rows])
    found = metric.compute()
    assert list(found) == ["sample", "label", "layer_0", "layer_1"]
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    rows = found["sample"] // 3
    assert torch.equal(found["layer_1"], layers[1][rows])
    assert torch.equal(found["label"], label[rows])


def test_without_labels_and_after_a_reset():
    layers, index, _ = observed()
    metric = LayerSample(2)
    metric.update(layers, index)
    assert list(metric.compute()) == ["sample", "layer_0", "layer_1"]
    metric.reset()
    assert not len(metric.key)


def test_bad_input():
    with pytest.raises(ValueError, match="`num_layers` >= 1, but got 0"):
        LayerSample(0)
    with pytest.raises(ValueError, match="`layers` of 3 tensors, but got 2"):
        LayerSample(3).update(*observed()[:2])
