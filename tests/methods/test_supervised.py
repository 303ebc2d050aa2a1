"""The controls with labels: supervised, and a frozen backbone."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from lightning_ssl_geometry.methods import SupervisedModule
from lightning_ssl_geometry.nn import EquivariantCNN, GroupClassifier, SmallCNN


def batch(**more):
    generator = torch.Generator().manual_seed(0)
    views = tuple(torch.rand(6, 1, 9, 9, generator=generator) for _ in range(2))
    return {"views": views, "label": torch.arange(6) % 3, **more}


def module(**arguments):
    torch.manual_seed(0)
    return SupervisedModule(SmallCNN(1, 8), nn.Linear(64, 3), **arguments)


def test_the_loss_is_the_cross_entropy_of_every_view():
    model = module()
    found = model.observe(batch())
    assert found["z"].shape == (2, 6, 3)
    expected = cross_entropy(found["z"].flatten(0, 1), batch()["label"].repeat(2))
    torch.testing.assert_close(found["loss"].detach(), expected)
    found["loss"].backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_frozen_backbone_keeps_its_weights():
    model = module(train_backbone=False)
    before = [p.clone() for p in model.backbone.parameters()]
    (group,) = [g for g in model._parameter_groups() if g.get("weight_decay") is None]
    assert [p.shape for p in group["params"]] == [(3, 64)]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model.observe(batch())["loss"].backward()
    optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(model.backbone.parameters(), before, strict=True))
    assert model.projector.weight.grad.abs().sum() > 0


def test_a_frozen_backbone_and_an_evaluation_build_no_graph():
    given = batch()
    for view in given["views"]:
        view.requires_grad_()
    assert module().step(given)["h"].requires_grad
    assert not module(train_backbone=False).step(given)["h"].requires_grad
    with torch.no_grad():
        assert not module().step(given)["h"].requires_grad


def test_an_equivariant_backbone_is_pooled_for_diagnostics():
    model = SupervisedModule(EquivariantCNN(width=2, group="rotation"), GroupClassifier(8, 3)).eval()
    found = model.observe(batch(image=batch()["views"][0]))
    assert found["h"].shape == (2, 6, 8)
    assert found["h_image"].shape == (6, 8)
    torch.testing.assert_close(found["h_image"], model(batch()["views"][0]).detach())
    logits = model.projector(model.backbone(batch()["views"][0]))
    assert found["scores"]["accuracy"] == (logits.argmax(1) == batch()["label"]).float().mean()


def test_an_evaluation_scores_the_image_if_there_is_one_and_training_the_views():
    """A network whose logits are the pixels: the image shows the class, the views show another."""
    model = SupervisedModule(nn.Flatten(), nn.Identity())
    shown = torch.eye(3).view(3, 1, 1, 3)
    given = {"views": (shown.roll(1, 0), shown.roll(1, 0)), "image": shown, "label": torch.arange(3)}
    assert model.step(given)["scores"]["accuracy"] == 0
    found = model.eval().step(given)
    assert found["scores"]["accuracy"] == 1
    assert torch.equal(found["h_image"], torch.eye(3))
    del given["image"]
    found = model.step(given)
    assert found["scores"]["accuracy"] == 0
    assert "h_image" not in found


def test_a_batch_without_labels_and_a_classifier_without_logits_are_refused():
    with pytest.raises(ValueError, match="Expected `train_backbone` to be True or False, but got 'no'"):
        SupervisedModule(nn.Linear(2, 2), nn.Linear(2, 2), train_backbone="no")
    with pytest.raises(ValueError, match=r"Expected `label` in a batch for the classifier, but got \['views'\]"):
        module().observe({"views": batch()["views"]})
    model = SupervisedModule(SmallCNN(1, 8), nn.Unflatten(1, (8, 8)))
    with pytest.raises(ValueError, match="Expected `classifier` to return"):
        model.observe(batch())
