"""BYOL and SimSiam on fibers: the loss is its definition, and the target is what the momentum says."""

import inspect

import pytest
import torch
from hosts import quiet
from torch import nn
from torch.nn.functional import normalize

from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.methods import BYOLModule, HomomorphicBYOLModule, HSSLModule
from lightning_ssl_geometry.methods.fiber_pairs import FiberPairs
from lightning_ssl_geometry.nn import EquivariantCNN, GroupClassifier, MLPProjector
from lightning_ssl_geometry.views import GroupViews


def module(group="rotation", **arguments):
    torch.manual_seed(0)
    backbone = EquivariantCNN(width=8, group=group, norm="group").double()
    head, predictor = (MLPProjector(d, 16, 8, norm="layer").double() for d in (32, 8))
    return HomomorphicBYOLModule(backbone, predictor, group, projector=head, **arguments)


def batch(views=1, n=5):
    generator = torch.Generator().manual_seed(1)
    made = tuple(torch.rand(n, 1, 13, 13, generator=generator, dtype=torch.float64) for _ in range(views))
    return {"views": made, "index": torch.arange(n), "label": torch.arange(n) % 2}


def bundles(model, features, sample):
    """The two fibers of each sample, one at a time."""
    u = model._uniform(sample, features[: len(sample["index"])], 2, seed=model.seed)
    maps, count = features.mean((-2, -1)), features.shape[2]
    chosen = (u * count).long()
    n = len(u)
    if model.mode == "h-ssl":
        return [torch.stack([maps[i, :, chosen[i, j]] for i in range(n)]) for j in range(2)]
    return [torch.stack([maps[j * n + i, :, chosen[i, 0]] for i in range(n)]) for j in range(2)]


def test_a_backbone_may_change_its_input():
    losses = []
    for change in (torch.sub, torch.Tensor.sub_):
        model = module(mode="h-ssl")
        for network in (model.backbone, model.target.module.backbone):
            network.register_forward_pre_hook(lambda _, inputs, change=change: (change(inputs[0], 1.0),))
        losses.append(model.step(batch())["loss"])
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=0)


@pytest.mark.parametrize(("mode", "views"), [("h-ssl", 1), ("a-ssl", 2)])
def test_the_loss_is_its_definition(mode, views):
    model, sample = module(mode=mode), batch(views)
    with torch.no_grad():
        for weight in model.target.parameters():
            weight.add_(0.1 * torch.randn_like(weight))  # so that the target is another network
    x = torch.cat(sample["views"])
    online = bundles(model, model.backbone(x), sample)
    backbone, projector = model.target.module
    q = [normalize(model.predictor(model.projector(fiber)), dim=1) for fiber in online]
    z = [normalize(projector(fiber), dim=1) for fiber in bundles(model, backbone(x), sample)]
    expected = ((q[0] - z[1]).square().sum(1) + (q[1] - z[0]).square().sum(1)).mean()
    found = model.step(sample)
    torch.testing.assert_close(found["loss"], expected)
    torch.testing.assert_close(found["fibers"], torch.stack(online))
    assert found["h"].shape == (views, 5, 32)


def test_without_momentum_it_is_simsiam(tmp_path):
    """After each step the target has the online weights, and its branch has no gradient."""
    views = GroupViews(action=None, num_views=1)
    data = DigitsDataModule(batch_size=128, image_size=9, subset=400, views=views)
    torch.manual_seed(0)
    backbone = EquivariantCNN(width=2, group="rotation")
    predictor, classifier = MLPProjector(128, 16, 128), GroupClassifier(8, 10)
    settings = {"momentum": 0.0, "final_momentum": 0.0, "min_distance": 1, "classifier": classifier}
    model = HomomorphicBYOLModule(backbone, predictor, "rotation", **settings)
    trainer = quiet(tmp_path, max_epochs=2)
    trainer.fit(model, datamodule=data)
    online = [*model.backbone.parameters(), *model.projector.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(online, model.target.module.parameters(), strict=True))
    assert not any(weight.requires_grad for weight in model.target.parameters())
    for name in ("loss", "ssl_loss", "accuracy", "momentum"):
        assert f"train/{name}" in trainer.callback_metrics


@pytest.mark.parametrize("method", [FiberPairs, HSSLModule, HomomorphicBYOLModule])
def test_all_fiber_pairs_have_the_same_defaults(method):
    expected = {"base_size": 1, "max_distance": None, "min_distance": 0.0, "wrap_distance": False, "circular": False}
    expected |= {"pooling": "mean"}
    parameters = inspect.signature(method).parameters
    assert {name: parameters[name].default for name in expected} == expected


def test_simsiam_on_images_is_byol_without_momentum():
    torch.manual_seed(0)
    backbone, projector, predictor = nn.Linear(5, 6).double(), nn.Linear(6, 4).double(), nn.Linear(4, 4).double()
    model = BYOLModule(backbone, projector, predictor, momentum=0.0, final_momentum=0.0)
    views = torch.randn(2, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model.step({"views": tuple(views), "index": torch.arange(7)})["loss"].backward()
    found = [
        weight.grad.clone() for weight in (*backbone.parameters(), *projector.parameters(), *predictor.parameters())
    ]
    model.zero_grad()
    z = [projector(backbone(view)) for view in views]
    cosine = nn.functional.cosine_similarity
    loss = -(cosine(predictor(z[0]), z[1].detach()) + cosine(predictor(z[1]), z[0].detach())).mean() / 2  # SimSiam's
    loss.backward()
    expected = [weight.grad for weight in (*backbone.parameters(), *projector.parameters(), *predictor.parameters())]
    torch.testing.assert_close(found, [4 * grad for grad in expected])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "hybrid"}, "Expected `mode` to be one of .'h-ssl', 'a-ssl'., but got 'hybrid'"),
        ({"momentum": 2.0}, r"Expected `momentum` in \[0, 1\], but got 2.0"),
        ({"base_size": 0}, "Expected `base_size` >= 1, but got 0"),
        ({"group": "hue"}, "Expected `group` with 'rotation', the backbone's orientations, but got .*hue"),
        ({"pooling": "area"}, "Expected `pooling` = 'mean' for a group without scales"),
    ],
)
def test_bad_arguments(arguments, message):
    backbone = EquivariantCNN(width=2, group="rotation")
    with pytest.raises(ValueError, match=message):
        HomomorphicBYOLModule(backbone, nn.Identity(), **({"group": "rotation"} | arguments))


def test_without_indices_the_target_sees_the_same_base_spaces():
    backbone = nn.Conv2d(3, 3, 1)
    module = HomomorphicBYOLModule(backbone, nn.Identity(), projector=nn.Identity(), momentum=0.0, final_momentum=0.0)
    seen, drawn = [], module.fibers
    module.fibers = lambda *given: seen.append(drawn(*given)) or seen[-1]
    module.step({"views": (torch.rand(6, 3, 5, 5),)})
    assert torch.equal(seen[0], seen[1])
