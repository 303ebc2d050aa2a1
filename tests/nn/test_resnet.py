from functools import partial

import pytest
import torch
from torch import nn
from torchvision.models import resnet

from lightning_ssl_geometry.nn import ResNet, SubVector
from lightning_ssl_geometry.nn.norms import norm_2d


def shapes(network):
    return {name: tuple(value.shape) for name, value in network.state_dict().items()}


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_at_its_own_width_it_is_torchvisions(norm):
    torch.manual_seed(3)
    expected = resnet.resnet18(norm_layer=partial(norm_2d, norm))
    expected.fc = nn.Identity()
    torch.manual_seed(3)
    found = ResNet(18, stem="imagenet", norm=norm).network
    assert list(found.state_dict()) == list(expected.state_dict())
    for name, value in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], value), name


@pytest.mark.parametrize("depth", [18, 34, 50])
def test_a_narrow_one_has_torchvisions_names_and_scaled_widths(depth):
    narrow, wide = ResNet(depth, width=8, stem="imagenet"), ResNet(depth, stem="imagenet")
    found, expected = shapes(narrow.network), shapes(wide.network)
    assert list(found) == list(expected)
    for name, shape in expected.items():
        assert found[name] == tuple(n if n <= 7 else n // 8 for n in shape), name  # 3 channels, kernels of 1 to 7
    assert narrow.out_dim == wide.out_dim // 8 == (256 if depth == 50 else 64)


def test_the_last_convolution_of_appendix_e():
    network = ResNet(50, width=8).network
    assert network.get_submodule("layer4.2.conv3").weight.shape == (256, 64, 1, 1)


@pytest.mark.parametrize("depth", [18, 50])
def test_a_narrow_one_computes_and_starts_as_torchvisions(depth):
    # The same weights in the upper corner of a wide network, zeros elsewhere: a narrow network in a wide one.
    narrow, wide = (ResNet(depth, width=width, stem="imagenet").double().eval() for width in (8, 64))
    state = {name: torch.zeros_like(value) for name, value in wide.state_dict().items()}
    for name, value in narrow.state_dict().items():
        state[name][tuple(slice(n) for n in value.shape)] = value
    wide.load_state_dict(state)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)  # float32 would lose 1e-5 over 50 layers
    with torch.no_grad():
        torch.testing.assert_close(narrow(x), wide(x)[:, : narrow.out_dim])
    for name, layer in narrow.named_modules():
        if isinstance(layer, nn.Conv2d) and layer.weight.numel() > 4000:
            fan_out = layer.out_channels * layer.kernel_size[0] ** 2
            assert layer.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.1), name


@pytest.mark.parametrize(("stem", "side"), [("cifar", 32), ("stride", 16), ("imagenet", 8)])
@pytest.mark.parametrize(("width", "norm"), [(8, "group"), (6, "batch")])
def test_stems(stem, side, width, norm):
    backbone = ResNet(18, 1, stem, norm, width)
    seen = []
    backbone.network.layer1.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape))
    x = torch.randn(2, 1, 32, 32)
    y = backbone(x)
    assert y.shape == (2, 8 * width)
    assert seen == [(2, width, side, side)]
    y.sum().backward()
    assert all(p.grad is not None for p in backbone.parameters())
    assert any(isinstance(layer, nn.BatchNorm2d) for layer in backbone.modules()) == (norm == "batch")


def test_sub_vector():
    h = torch.randn(3, 5)
    assert torch.equal(SubVector(2)(h), h[:, :2])
    assert torch.equal(SubVector(5)(h), h)
    assert repr(SubVector(2)) == "SubVector(dim=2)"


BAD = [
    (lambda: ResNet(width=0), "Expected `width` to be an integer >= 1, but got 0"),
    (lambda: ResNet(18.0), r"Expected `depth` to be an integer >= 1, but got 18\.0"),
    (lambda: ResNet(torch.ones(2)), r"Expected `depth` to be an integer >= 1, but got tensor\(\[1., 1.\]\)"),
    (lambda: ResNet(width=8.0), r"Expected `width` to be an integer >= 1, but got 8\.0"),
    (lambda: ResNet(width=torch.tensor(8)), r"Expected `width` to be an integer >= 1, but got tensor\(8\)"),
    (lambda: ResNet(in_channels="3"), "Expected `in_channels` to be an integer >= 1, but got '3'"),
    (lambda: ResNet(width=12, norm="group"), "multiple of 8 channels for `norm='group'`, but got 12"),
    (lambda: SubVector(0), "Expected `dim` to be an integer >= 1, but got 0"),
    (lambda: SubVector(6)(torch.zeros(3, 5)), "Expected `dim` <= D = 5, but got 6"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
