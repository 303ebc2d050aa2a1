import pytest
import torch
from torch import nn

from lightning_ssl_geometry.functional import info_nce
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods import DirectCLRModule
from lightning_ssl_geometry.nn import MLPBackbone, ResNet, SmallCNN


def batch(n=6, views=2):
    return {"views": tuple(torch.randn(views, n, 1, 8, 8)), "label": torch.arange(n), "index": torch.arange(n)}


def test_the_loss_sees_the_first_dimensions_of_the_representation():
    model, sample = DirectCLRModule(SmallCNN(1, 8, "group"), 24), batch()
    found = model.observe(sample)
    r = torch.stack([model(view) for view in sample["views"]])
    assert found["h"].shape == (2, 6, 64)
    torch.testing.assert_close(found["h"], r)
    torch.testing.assert_close(found["z"], r[..., :24])
    torch.testing.assert_close(found["loss"], info_nce(r[0, :, :24], r[1, :, :24], 0.1, negatives="other"))
    assert torch.equal(found["projector"](r), r[..., :24])


def test_the_loss_is_cross_entropy_of_the_cosines_both_ways():
    z1, z2 = torch.randn(2, 5, 4)
    logits = nn.functional.cosine_similarity(z1[:, None], z2, dim=2) / 0.1
    target = torch.arange(5)
    both = [nn.functional.cross_entropy(x, target) for x in (logits, logits.T)]
    loss = DirectCLRModule(nn.Identity()).loss
    torch.testing.assert_close(loss(z1, z2), torch.stack(both).mean())


def test_the_default_subvector_is_that_of_the_paper():
    model = DirectCLRModule(nn.Identity())
    assert model.observe({"views": tuple(torch.randn(2, 4, 2048))})["z"].shape == (2, 4, 360)


def test_a_loss_of_the_users_own():
    model, sample = DirectCLRModule(SmallCNN(1, 8, "group"), 24, InfoNCELoss(0.5)), batch()
    found = model.observe(sample)
    torch.testing.assert_close(found["loss"], info_nce(*found["z"], 0.5))


def test_what_the_loss_does_not_see_has_no_gradient_and_decays():
    # Appendix E: the last layer's rows beyond d_0 shrink by 1 - lr * weight_decay at each step, and by nothing else.
    torch.manual_seed(1)
    model = DirectCLRModule(MLPBackbone(64, [16], 12, bias=False), subvector_dim=5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=0.2)
    last = model.backbone[2].weight
    start = last.detach().clone()
    for _ in range(10):
        optimizer.zero_grad()
        model.step({"views": tuple(torch.randn(2, 8, 64))})["loss"].backward()
        assert (last.grad[5:] == 0).all()
        assert (last.grad[:5] != 0).any(dim=1).all()
        optimizer.step()
    torch.testing.assert_close(last[5:].detach(), start[5:] * 0.9**10)
    assert ((last[:5].detach() - start[:5] * 0.9**10).abs() > 1e-3).any(dim=1).all()


def test_the_last_convolution_of_a_resnet_is_its_projector():
    model = DirectCLRModule(ResNet(50, 1, norm="group", width=8), subvector_dim=16)
    model.step({"views": tuple(torch.randn(2, 4, 1, 8, 8))})["loss"].backward()
    gradient = model.backbone.get_submodule("network.layer4.2.bn3").weight.grad
    assert (gradient[16:] == 0).all()
    assert (gradient[:16] != 0).any()


@pytest.mark.parametrize("subvector_dim", [0, -1])
def test_wrong_settings_are_named(subvector_dim):
    with pytest.raises(ValueError, match=f"Expected `subvector_dim` >= 1, but got {subvector_dim}"):
        DirectCLRModule(nn.Identity(), subvector_dim)


def test_a_wrong_backbone_or_batch_is_named():
    with pytest.raises(ValueError, match="Expected `subvector_dim` <= D = 64, but got 65"):
        DirectCLRModule(SmallCNN(1, 8, "group"), 65)
    without = nn.Sequential(SmallCNN(1, 8, "group"))  # which does not say what it returns
    with pytest.raises(ValueError, match="Expected `dim` <= D = 64, but got 65"):
        DirectCLRModule(without, 65).observe(batch())
    with pytest.raises(ValueError, match="Expected 2 `views` in a batch, but got 3"):
        DirectCLRModule(SmallCNN(1, 8, "group"), 24).observe(batch(views=3))
