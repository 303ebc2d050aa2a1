"""Tests that need escnn: they run in its own environment (`nox -s escnn`), and are skipped elsewhere."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.diagnostics.accumulate import evaluating
from lightning_ssl_geometry.nn.equivariant.escnn import EscnnBackbone, EscnnCNN

# importorskip also keeps the warnings of escnn's import from being errors: that py3nj, which we leave out, is missing,
# and an escape sequence in a docstring. Not "escnn": this folder, too, goes by that name where escnn is missing.
enn = pytest.importorskip("escnn.nn")
gspaces = pytest.importorskip("escnn.gspaces")


def fields(space, count):
    return enn.FieldType(space, count * [space.regular_repr])


def small(space, bias=True):
    """Build a network that users might: two convolutions, with biases."""
    image, hidden, last = enn.FieldType(space, 2 * [space.trivial_repr]), fields(space, 2), fields(space, 3)
    return enn.SequentialModule(
        enn.R2Conv(image, hidden, 5, padding=2, bias=bias, recompute=True),
        enn.InnerBatchNorm(hidden),
        enn.ReLU(hidden),
        enn.R2Conv(hidden, last, 3, padding=1, bias=bias, recompute=True),
    )


MAKERS = [lambda: EscnnCNN(width=4), lambda: EscnnBackbone(small(gspaces.rot2dOnR2(4)))]


def step(backbone, x, lr=0.1):
    optimizer = torch.optim.SGD(backbone.parameters(), lr)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = (backbone(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture
def trained():
    """An adapter whose batch statistics and weights, biases too, are no longer those of its beginning."""
    torch.manual_seed(1)
    backbone = EscnnBackbone(small(gspaces.rot2dOnR2(4)))
    step(backbone, torch.randn(8, 2, 9, 9))
    return backbone


def rotated(z, turns):
    """Carry z (N, C, 4, H, W) along with the rotation of the image by 90 degrees, counter-clockwise, `turns` times."""
    return torch.rot90(z, turns, dims=(-2, -1)).roll(turns, dims=2)


def relative(error, z):
    return (error.abs().max() / z.abs().max()).item()


@pytest.mark.parametrize(("rotations", "channels"), [(1, 1), (2, 3), (4, 1), (8, 1)])
def test_shape_and_attributes(rotations, channels):
    backbone = EscnnCNN(channels, width=2, rotations=rotations)
    assert backbone(torch.randn(2, channels, 29, 29)).shape == (2, 8, rotations, 8, 8)
    assert backbone.out_dim == 8
    assert backbone.group_shape == (1, rotations)


def test_kernels_and_strides_by_choice():
    backbone = EscnnCNN(width=2, kernel_sizes=[5, 3], strides=[2, 1])
    assert backbone(torch.randn(2, 1, 9, 9)).shape == (2, 4, 4, 5, 5)
    assert [layer.bias for layer in backbone.modules() if isinstance(layer, enn.R2Conv)] == [None, None]


# escnn samples its filters' basis in float32, so float64 is no closer to equivariance than that rounding
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-6)])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("size", [13, 29])
def test_every_quarter_turn_is_exact_on_sizes_4k_plus_1(dtype, tolerance, training, size):
    backbone = EscnnCNN(width=4).to(dtype).train(training)
    x = torch.randn(3, 1, size, size, dtype=dtype)
    with torch.no_grad():
        for turns in range(4):
            z = rotated(backbone(x), turns)
            assert relative(backbone(torch.rot90(x, turns, dims=(-2, -1))) - z, z) < tolerance
            assert turns == 0 or relative(rotated(z, -turns) - z, z) > 0.1  # which is no matter of invariance


def test_the_convention_per_element():
    backbone = EscnnCNN(width=2).double()
    x = torch.randn(2, 1, 13, 13).double()
    z, z_rotated = backbone(x), backbone(torch.rot90(x, 1, dims=(-2, -1)))
    for r in range(4):
        expected = torch.rot90(z[:, :, (r - 1) % 4], 1, dims=(-2, -1))
        torch.testing.assert_close(z_rotated[:, :, r], expected, rtol=0, atol=1e-5)


def test_even_sizes_are_not_exact_and_say_so():
    backbone = EscnnCNN(width=2)
    x = torch.randn(2, 1, 28, 28)
    with pytest.warns(UserWarning, match=r"Exact are sizes 4 k \+ 1, such as 21, 25, 29, 33"):
        z = rotated(backbone(x), 1)
    with pytest.warns(UserWarning, match="Exact are sizes"):
        assert relative(backbone(torch.rot90(x, 1, dims=(-2, -1))) - z, z) > 1e-2


def test_half_a_turn_is_two_elements_of_four_and_four_of_eight():
    x = torch.randn(2, 1, 13, 13)
    for rotations in (2, 4, 8):
        backbone = EscnnCNN(width=2, rotations=rotations)
        z = torch.rot90(backbone(x), 2, dims=(-2, -1)).roll(rotations // 2, dims=2)
        assert relative(backbone(torch.rot90(x, 2, dims=(-2, -1))) - z, z) < 1e-5


def test_a_network_restricted_to_fewer_rotations_keeps_the_order_of_elements():
    space = gspaces.rot2dOnR2(8)
    hidden = fields(space, 2)
    convolution = enn.R2Conv(enn.FieldType(space, [space.trivial_repr]), hidden, 5, padding=2, recompute=True)
    restriction = enn.RestrictionModule(hidden, 4)
    last = enn.R2Conv(restriction.out_type, fields(restriction.out_type.gspace, 2), 3, padding=1, recompute=True)
    backbone = EscnnBackbone(enn.SequentialModule(convolution, restriction, last))
    x = torch.randn(2, 1, 9, 9)
    z = rotated(backbone(x), 1)
    assert z.shape == (2, 2, 4, 9, 9)
    assert relative(backbone(torch.rot90(x, 1, dims=(-2, -1))) - z, z) < 1e-5


@pytest.mark.parametrize("saved_training", [True, False])
@pytest.mark.parametrize("loaded_training", [True, False])
def test_a_checkpoint_loads_in_either_mode(trained, saved_training, loaded_training, tmp_path):
    x = torch.randn(3, 2, 9, 9)
    torch.save(nn.Sequential(trained.train(saved_training)).state_dict(), tmp_path / "checkpoint")
    other = nn.Sequential(EscnnBackbone(small(gspaces.rot2dOnR2(4)))).train(loaded_training)
    other(x)
    other.load_state_dict(torch.load(tmp_path / "checkpoint", weights_only=True), strict=True)
    assert torch.equal(other.eval()(x), trained.eval()(x))
    assert torch.equal(other.train()(x), trained.train()(x))


@pytest.mark.parametrize("state", ["new", "training", "eval", "eval past the adapter"])
def test_the_state_dict_is_the_same_in_every_state(trained, state):
    backbone = EscnnBackbone(small(gspaces.rot2dOnR2(4)))
    if state == "eval past the adapter":
        backbone.network.eval()
    elif state != "new":
        backbone.train(state == "training")
    keys = list(backbone.state_dict())
    assert keys == list(trained.state_dict())
    assert not any(key.endswith((".filter", ".matrix", ".expanded_bias")) for key in keys)
    assert any(key.endswith(".bias") for key in keys)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("cached", [True, False])
def test_a_checkpoint_of_the_bare_network_loads(trained, training, cached):
    x = torch.randn(3, 2, 9, 9)
    bare = small(gspaces.rot2dOnR2(4))
    bare.load_state_dict(trained.network.train().state_dict(), strict=False)
    bare.train(training)
    state = {f"network.{key}": value for key, value in bare.state_dict().items()}
    assert ("network.0.filter" in state) != training
    backbone = EscnnBackbone(small(gspaces.rot2dOnR2(4)))
    backbone.network.train(not cached)  # past the adapter, caches filters of other weights
    before = dict(state)
    backbone.load_state_dict(state, strict=True)
    assert state.keys() == before.keys()
    assert torch.equal(backbone.eval()(x), trained.eval()(x))


def test_strict_loading_still_finds_what_is_missing_or_unknown(trained):
    state = trained.state_dict()
    state["network.0.other"] = state.pop("network.0.weights")
    with pytest.raises(RuntimeError, match=r"(?s)Missing.*network\.0\.weights.*Unexpected.*network\.0\.other"):
        EscnnBackbone(small(gspaces.rot2dOnR2(4))).load_state_dict(state)


def test_eval_mode_caches_nothing(trained):
    """Its tensors stay the same objects, it can be copied, and its gradients are those of its weights as they are."""
    x = torch.randn(3, 2, 9, 9)
    tensors = [id(t) for t in (*trained.parameters(), *trained.buffers())]
    for _ in range(2):
        with evaluating(trained):
            z = trained(x)
            assert not any(m.training for m in trained.modules() if isinstance(m, nn.BatchNorm3d))
            assert torch.equal(copy.deepcopy(trained)(x), z)
            step(trained, x)  # backward more than once
            assert not torch.equal(trained(x), z)
    assert trained.training
    assert [id(t) for t in (*trained.parameters(), *trained.buffers())] == tensors


def test_eval_within_inference_mode_leaves_gradients_to_later(trained):
    with torch.inference_mode():
        trained.eval()
        trained(torch.randn(1, 2, 9, 9))
    x = torch.randn(1, 2, 9, 9, requires_grad=True)
    (gradient,) = torch.autograd.grad(trained(x).square().sum(), x)
    assert gradient.abs().min() > 0


@pytest.mark.parametrize("make", MAKERS, ids=["cnn", "adapter"])
def test_a_training_loop_lowers_the_loss_and_every_parameter_has_a_gradient(make):
    backbone = make()
    losses = step(backbone, torch.randn(4, backbone.in_type.size, 13, 13))
    assert all(after < before for before, after in pairwise(losses))
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in backbone.parameters())


def test_conversion_to_sync_batch_norm(trained):
    x = torch.randn(2, 2, 9, 9)
    z = trained.eval()(x)
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(trained)
    assert [type(m).__name__ for m in converted.modules() if "BatchNorm" in type(m).__name__][1:] == ["SyncBatchNorm"]
    assert torch.equal(converted(x), z)


def test_networks_share_no_basis():
    network, other = EscnnCNN(width=2).double(), EscnnCNN(width=2)
    own = {t.data_ptr() for t in network.buffers()}
    assert own.isdisjoint(t.data_ptr() for t in other.buffers())
    assert other(torch.randn(2, 1, 9, 9)).dtype == torch.float32


def convolution(space, representations):
    image, out = enn.FieldType(space, [space.trivial_repr]), enn.FieldType(space, representations)
    return enn.R2Conv(image, out, 5)


def test_refused_networks():
    c4, dihedral, flips = gspaces.rot2dOnR2(4), gspaces.flipRot2dOnR2(4), gspaces.flip2dOnR2()
    circle, solid = gspaces.rot2dOnR2(-1), gspaces.rot2dOnR3(4)
    for network, message in [
        (nn.Conv2d(1, 1, 3), "`network` to be an escnn EquivariantModule, but got Conv2d"),
        (convolution(c4, [c4.trivial_repr]), "`network.out_type` of regular representations only, but got irrep_0"),
        (convolution(c4, [c4.regular_repr, c4.irrep(1)]), "regular representations only, but got irrep_1, regular"),
        (convolution(c4, [c4.quotient_repr(2)]), "regular representations only, but got quotient"),
        (enn.SequentialModule(small(c4), enn.GroupPooling(fields(c4, 3))), "regular representations only"),
        (enn.IdentityModule(fields(c4, 1)), "`network.in_type` of trivial representations only, but got regular"),
        (enn.IdentityModule(fields(dihedral, 1)), r"rot2dOnR2\(n\) with n >= 1 and without flips, but got D4"),
        (enn.IdentityModule(fields(flips, 1)), "without flips, but got C2"),
        (enn.IdentityModule(enn.FieldType(circle, [circle.trivial_repr])), r"without flips, but got SO\(2\)"),
        (enn.IdentityModule(fields(solid, 1)), "rotations of the plane, .* but got C4"),
    ]:
        with pytest.raises(ValueError, match=message):
            EscnnBackbone(network)
