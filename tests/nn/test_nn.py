import pytest
import torch
from torch import nn

from lightning_ssl_geometry.nn import MLPProjector, ResNet, ShallowCNN, SmallCNN, TimmBackbone


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize(("channels", "size"), [(1, 8), (3, 28), (3, 32)])
def test_small_cnn(norm, channels, size):
    backbone = SmallCNN(channels, width=8, norm=norm)
    assert backbone(torch.randn(2, channels, size, size)).shape == (2, 64)
    assert backbone.out_dim == 64


@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize(("size", "hidden"), [(6, None), (21, 16)])
def test_shallow_cnn_sees_where_things_are(size, hidden, strides):
    network = ShallowCNN(2, size, out_dim=7, width=4, hidden_dim=hidden, strides=strides).double()
    assert network.out_dim == 7
    x = torch.zeros(2, 2, size, size, dtype=torch.float64)
    x[0, :, :3, :3] = x[1, :, 2:5, 2:5] = 1
    y = network(x)
    assert y.shape == (2, 7)
    assert (y[0] - y[1]).abs().max() > 1e-4
    assert sum(isinstance(layer, nn.Linear) for layer in network) == (1 if hidden is None else 2)


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize(("depth", "dim"), [(18, 512), (34, 512), (50, 2048)])
def test_resnet_with_the_cifar_stem_keeps_the_resolution_longer(norm, depth, dim):
    backbone = ResNet(depth, in_channels=1, norm=norm).eval()
    assert backbone.out_dim == dim
    with torch.no_grad():
        assert backbone(torch.randn(1, 1, 32, 32)).shape == (1, dim)
        assert backbone.network.layer1(backbone.network.conv1(torch.randn(1, 1, 32, 32))).shape[-2:] == (32, 32)
    has_batch = any(isinstance(m, nn.BatchNorm2d) for m in backbone.modules())
    assert has_batch == (norm == "batch")


@pytest.mark.parametrize("channels", [1, 3])
def test_resnet_with_the_imagenet_stem(channels):
    backbone = ResNet(18, channels, stem="imagenet").eval()
    with torch.no_grad():
        assert backbone(torch.randn(1, channels, 64, 64)).shape == (1, 512)


def test_timm():
    backbone = TimmBackbone("resnet10t", in_channels=1).eval()
    with torch.no_grad():
        assert backbone(torch.randn(2, 1, 32, 32)).shape == (2, backbone.out_dim)
    with pytest.raises(ValueError, match=r"timm model, but got 'resnet10x'. Did you mean .*resnet10t"):
        TimmBackbone("resnet10x")
    with pytest.raises(ValueError, match=r"timm model, but got '0000'. `timm.list_models\(\)` lists all"):
        TimmBackbone("0000")


def test_a_timm_model_whose_head_has_a_width_of_its_own():
    backbone = TimmBackbone("mobilenetv3_small_050").eval()
    with torch.no_grad():
        assert backbone(torch.randn(1, 3, 32, 32)).shape == (1, backbone.out_dim)


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_mlp_projector(norm, depth):
    projector = MLPProjector(6, 10, 4, depth, norm)
    assert projector(torch.randn(5, 6)).shape == (5, 4)
    linear = [m for m in projector if isinstance(m, nn.Linear)]
    assert len(linear) == depth
    assert linear[-1].bias is None


BAD = [
    (lambda: ShallowCNN(width=0), "`width` to be an integer >= 1, but got 0"),
    (lambda: ShallowCNN(strides=(1,)), r"`strides` of the 2 convolutions, but got \(1,\)"),
    (lambda: ShallowCNN(hidden_dim=0), "`hidden_dim` to be an integer >= 1, but got 0"),
    (lambda: ShallowCNN(strides=(1, 0)), "`strides` to be an integer >= 1, but got 0"),
    (lambda: ShallowCNN(image_size=4, strides=(2, 2)), r"`strides` to leave at least 2 of 4 pixels, but got \(2, 2\)"),
    (lambda: ShallowCNN(strides=(1, 1.0)), r"`strides` to be an integer >= 1, but got 1\.0"),
    (lambda: MLPProjector(4, depth=2.0), r"`depth` to be an integer >= 1, but got 2\.0"),
    (lambda: SmallCNN(width=torch.ones(2)), r"`width` to be an integer >= 1, but got tensor"),
    (lambda: SmallCNN(width=0), "`width` to be an integer >= 1, but got 0"),
    (lambda: SmallCNN(width=4, norm="group"), "multiple of 8 channels for `norm='group'`, but got 4"),
    (lambda: SmallCNN(norm="x"), r"`norm` to be one of \('batch', 'group'\), but got 'x'"),
    (lambda: SmallCNN(in_channels=0), "`in_channels` to be an integer >= 1, but got 0"),
    (lambda: ResNet(20), r"`depth` to be one of \(18, 34, 50\), but got 20"),
    (lambda: ResNet(18, stem="x"), r"`stem` to be one of \('cifar', 'stride', 'imagenet'\), but got 'x'"),
    (lambda: MLPProjector(4, depth=0), "`depth` to be an integer >= 1, but got 0"),
    (lambda: MLPProjector(4, depth=1001), "`depth` <= 1000, but got 1001"),
    (lambda: MLPProjector(4, norm="x"), r"`norm` to be one of \('batch', 'layer', 'none'\), but got 'x'"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_arguments_out_of_range(call, message):
    with pytest.raises(ValueError, match=message):
        call()
