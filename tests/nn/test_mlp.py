import pytest
import torch
from torch import nn

from lightning_ssl_geometry.nn import MLPBackbone


def test_its_layers():
    network = MLPBackbone(3, [5, 7], 4, slope=0.2)
    assert [type(layer) for layer in network] == [nn.Linear, nn.LeakyReLU, nn.Linear, nn.LeakyReLU, nn.Linear]
    assert [(layer.in_features, layer.out_features) for layer in list(network)[::2]] == [(3, 5), (5, 7), (7, 4)]
    assert network[1].negative_slope == 0.2
    assert network.out_dim == 4
    x = torch.randn(6, 3)
    hidden = network[0](x)
    assert torch.equal(network[1](hidden), torch.where(hidden > 0, hidden, 0.2 * hidden))
    assert network(x).shape == (6, 4)


def test_without_hidden_layers_and_biases_it_is_a_matrix():
    network = MLPBackbone(3, [], 3, bias=False)
    x = torch.randn(6, 3)
    torch.testing.assert_close(network(x), x @ network[0].weight.T)
    assert len(list(network.parameters())) == 1


def test_a_last_activation_leaves_the_last_layer_to_the_projector():
    backbone, projector = MLPBackbone(3, [5], 4, slope=0.0, last_activation=True), nn.Linear(4, 2)
    x = torch.randn(6, 3)
    assert (backbone(x) >= 0).all()
    whole = MLPBackbone(3, [5, 4], 2, slope=0.0)
    whole.load_state_dict(nn.Sequential(*backbone, projector).state_dict())
    assert torch.equal(projector(backbone(x)), whole(x))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, [5], 4), "Expected `in_dim` to be an integer >= 1, but got 0"),
        ((3, [5, 0], 4), "Expected `hidden_dims` to be an integer >= 1, but got 0"),
        ((3, [5], -1), "Expected `out_dim` to be an integer >= 1, but got -1"),
        ((3, [5], 4, -0.1), r"Expected `slope` >= 0 and finite, but got -0\.1"),
        ((3, [5], 4, float("nan")), "Expected `slope` >= 0 and finite, but got nan"),
    ],
)
def test_wrong_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        MLPBackbone(*arguments)
