import pytest
import torch
from torch import nn

from lightning_ssl_geometry.nn import OneHiddenLayer


def test_it_is_the_papers_matrices():
    f, x = OneHiddenLayer(5, 3, 4, nn.Tanh()), torch.randn(6, 5)
    a = torch.block_diag(*[torch.ones(4, 1)] * 3) / 2  # Eq. 19, 1 / sqrt(M) = 1 / 2
    torch.testing.assert_close(f(x), torch.tanh(x @ f.hidden.weight.T) @ a)
    assert f.hidden.weight.shape == (12, 5)
    assert [parameter.shape for parameter in f.parameters()] == [(12, 5)]  # A is no parameter


def test_it_begins_standard_normal_with_the_relu():
    f = OneHiddenLayer(10, 2, 5000)
    assert isinstance(f.activation, nn.ReLU)
    assert f.hidden.weight.mean().abs() < 0.01
    assert f.hidden.weight.std().item() == pytest.approx(1, abs=0.01)
    assert (f.out_dim, f.width) == (2, 5000)


@pytest.mark.parametrize("name", ["in_dim", "out_dim", "width"])
def test_sizes_that_are_none(name):
    with pytest.raises(ValueError, match=f"Expected `{name}` to be an integer >= 1, but got 0"):
        OneHiddenLayer(**{"in_dim": 2, "out_dim": 2, "width": 2, name: 0})
