"""H-SSL's own parts: the paper's head, the default weight, and which images its classifier sees."""

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.methods import HSSLModule
from lightning_ssl_geometry.nn import EquivariantCNN, GroupClassifier

N = 6


def batch(views=2, **more):
    return {"views": tuple(torch.rand(N, 1, 9, 9) for _ in range(views)), "index": torch.arange(N), **more}


def module(mode="h-ssl", **settings):
    return HSSLModule(EquivariantCNN(width=8, group="rotation", norm="group"), "rotation", mode, **settings)


@pytest.mark.parametrize("base_size", [1, 2])
def test_the_papers_head_has_three_layers_of_128_outputs_each_with_batch_norm(base_size):
    layers = list(module(base_size=base_size).projector.modules())
    linear = [(each.in_features, each.out_features) for each in layers if isinstance(each, nn.Linear)]
    assert linear == [(32 * base_size, 128), (128, 128), (128, 128)]
    assert [each.num_features for each in layers if isinstance(each, nn.BatchNorm1d)] == [128, 128, 128]


class Recorded(nn.Module):
    """A loss that keeps its arguments."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, z1, z2):
        self.calls.append((z1.detach(), z2.detach()))
        return (z1 - z2).square().mean() + (2 if len(self.calls) == 1 else 6)


def test_hybrid_pairs_the_first_bundle_with_the_two_others_at_equal_weights():
    loss = Recorded()
    found = module("hybrid", loss=loss).step(batch())
    (a, b), (again, c) = loss.calls
    assert torch.equal(a, again)
    assert not torch.equal(b, c)
    means = [(a - other).square().mean() + shift for other, shift in ((b, 2), (c, 6))]
    torch.testing.assert_close(found["loss"].detach(), (means[0] + means[1]) / 2)


@pytest.mark.parametrize("training", [True, False])
def test_the_classifier_sees_the_image_in_evaluation_and_views_in_training(training):
    label = torch.arange(N) % 3
    model = module("a-ssl", classifier=GroupClassifier(32, 3)).train(training)
    given = batch(image=torch.rand(N, 1, 9, 9), label=label)
    found = model.step(given)
    classified = torch.cat(given["views"]) if training else given["image"]
    error = nn.functional.cross_entropy(model.classifier(model.backbone(classified)), label.repeat(1 + training))
    torch.testing.assert_close(found["scores"]["classifier_loss"], error.detach())
    assert ("h_image" in found) == (not training)
