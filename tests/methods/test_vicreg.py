import pytest
import torch
from torch import nn

from lightning_ssl_geometry.functional import vicreg
from lightning_ssl_geometry.losses import VICRegLoss
from lightning_ssl_geometry.methods import VICRegModule
from lightning_ssl_geometry.nn import MLPProjector, SmallCNN


def module(**arguments):
    return VICRegModule(SmallCNN(1, 8, "group"), MLPProjector(64, 16, 32, depth=3, norm="layer"), **arguments)


def batch(n=6, views=2):
    return {"views": tuple(torch.randn(views, n, 1, 8, 8)), "label": torch.arange(n), "index": torch.arange(n)}


def test_the_loss_is_that_of_the_embeddings_as_they_are():
    model, sample = module(), batch()
    found = model.observe(sample)
    h = torch.stack([model(view) for view in sample["views"]])
    z = torch.stack([model.projector(row) for row in h])
    assert found["z"].shape == (2, 6, 32)
    torch.testing.assert_close(found["h"], h)
    torch.testing.assert_close(found["z"], z)
    torch.testing.assert_close(found["loss"], vicreg(z[0], z[1]))
    assert model.loss.settings == {"invariance": 25.0, "variance": 25.0, "covariance": 1.0, "gamma": 1.0, "eps": 1e-4}


def test_a_loss_of_the_users_own():
    model = module(loss=VICRegLoss(invariance=1.0, covariance=0.5))
    found = model.observe(batch())
    torch.testing.assert_close(found["loss"], vicreg(*found["z"], 1.0, 25.0, 0.5))


def test_every_parameter_receives_a_gradient_and_norms_and_biases_no_decay():
    model = module()
    model.observe(batch())["loss"].backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    decayed, free = model._parameter_groups()
    assert free["weight_decay"] == 0
    assert {p.ndim for p in free["params"]} == {1}
    assert len(decayed["params"]) + len(free["params"]) == len(list(model.parameters()))


def test_it_spreads_what_begins_collapsed():
    x = torch.randn(64, 4)
    model = VICRegModule(nn.Linear(4, 4), nn.Identity())
    with torch.no_grad():
        model.backbone.weight.mul_(0.05)
    optimizer, sample = torch.optim.Adam(model.parameters(), lr=0.02), {"views": (x, x + 0.01 * torch.randn_like(x))}
    assert model.observe(sample)["z"].std(dim=1).max() < 0.2
    for _ in range(300):
        optimizer.zero_grad()
        model.step(sample)["loss"].backward()
        optimizer.step()
    z = model.observe(sample)["z"][0]
    assert z.std(dim=0).min() > 0.95
    assert (z.T.corrcoef() - torch.eye(4)).abs().max() < 0.1


def test_wrong_batches_are_named():
    with pytest.raises(ValueError, match="Expected 2 `views` in a batch, but got 3"):
        module().observe(batch(views=3))
    with pytest.raises(ValueError, match=r"Expected `z1` and `z2` with N >= 2 samples, .* but got 1"):
        module().observe(batch(n=1))
    with pytest.raises(ValueError, match="Expected `warmup_epochs` >= 0 and finite, but got -1"):
        module(warmup_epochs=-1)
