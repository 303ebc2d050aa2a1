import pytest
import torch
from torch.nn.functional import leaky_relu

from lightning_ssl_geometry.data import InvertibleMLP


def test_the_forward_pass_is_the_layers_one_by_one():
    g = InvertibleMLP(4, depth=3, slope=0.3, candidates=50)
    z = torch.randn(7, 4)
    expected = leaky_relu(leaky_relu(z @ g.weight[0].T, 0.3) @ g.weight[1].T, 0.3) @ g.weight[2].T
    assert torch.allclose(g(z), expected, atol=1e-6)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_inverse(depth):
    g = InvertibleMLP(10, depth, candidates=500)
    z = 3 * torch.randn(1000, 10)
    x = g(z)
    assert x.dtype == torch.float32
    assert torch.allclose(g.inverse(x), z, atol=1e-5)
    assert torch.allclose(g(g.inverse(z)), z, atol=1e-5)
    assert torch.allclose(g.inverse(g(z.double())), z.double(), atol=1e-12)


def test_one_layer_is_linear():
    g = InvertibleMLP(5, depth=1, candidates=50)
    z = torch.randn(8, 5)
    assert torch.allclose(g(-2 * z[:4] + z[4:]), -2 * g(z[:4]) + g(z[4:]), atol=1e-5)
    deep = InvertibleMLP(5, depth=2, candidates=50)
    assert not torch.allclose(deep(-z), -deep(z), atol=1e-2)


@pytest.mark.parametrize("dim", [2, 6])
def test_columns_have_length_1_and_conditions_are_below_the_threshold(dim):
    g = InvertibleMLP(dim, candidates=300)
    assert torch.allclose(g.weight.norm(dim=1), torch.ones(3, dim))
    assert (torch.linalg.cond(g.weight.double()) <= g.threshold * (1 + 1e-5)).all()
    assert not torch.equal(g.weight[0], g.weight[1])


def test_the_threshold_is_a_quantile_of_the_candidates():
    generator = torch.Generator().manual_seed(3)
    matrix = 2 * torch.rand(200, 5, 5, dtype=torch.float64, generator=generator) - 1
    conditions = sorted(torch.linalg.cond(m / m.norm(dim=0)).item() for m in matrix)
    for quantile, place in ((0.0, 0), (0.25, 50), (1.0, 199)):
        found = InvertibleMLP(5, candidates=200, quantile=quantile, seed=3).threshold
        assert found == pytest.approx(conditions[place], rel=1e-9)


def test_no_matrix_that_qualifies_is_overlooked():
    """A layer is the first matrix, after the candidates, that is conditioned well enough."""
    g = InvertibleMLP(4, depth=5, candidates=100, quantile=0.1, seed=1)
    generator = torch.Generator().manual_seed(1)
    torch.rand(100, 4, 4, dtype=torch.float64, generator=generator)
    matrix = 2 * torch.rand(2048, 4, 4, dtype=torch.float64, generator=generator) - 1
    matrix = matrix / matrix.norm(dim=1, keepdim=True)
    assert torch.equal(g.weight, matrix[torch.linalg.cond(matrix) <= g.threshold][:5].float())


def test_the_seed_alone_decides():
    state = torch.get_rng_state()
    first = InvertibleMLP(4, candidates=50, seed=5).weight
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    assert torch.equal(InvertibleMLP(4, candidates=50, seed=5).weight, first)
    assert not torch.equal(InvertibleMLP(4, candidates=50, seed=6).weight, first)


def test_nothing_is_trained_and_everything_is_saved():
    g, other = InvertibleMLP(4, candidates=50, seed=1), InvertibleMLP(4, candidates=50, seed=2)
    assert not list(g.parameters())
    other.load_state_dict(g.state_dict())
    assert torch.equal(other.weight, g.weight)


def test_a_checkpoint_brings_back_the_same_function():
    g, other = (InvertibleMLP(4, slope=slope, candidates=50, seed=seed) for slope, seed in ((0.3, 1), (0.2, 2)))
    z = torch.randn(7, 4)
    assert not torch.equal(other(z), g(z))
    other.load_state_dict(g.state_dict())
    assert torch.equal(other(z), g(z))
    assert torch.equal(other.inverse(z), g.inverse(z))
    assert (other.slope, other.threshold) == (g.slope, g.threshold)


def test_too_few_tries():
    with pytest.raises(ValueError, match=r"Expected 3 matrices of condition number <= .* among `tries` = 2, but got 0"):
        InvertibleMLP(10, candidates=500, tries=2)


@pytest.mark.parametrize("name", ["dim", "depth", "candidates", "tries"])
def test_bad_numbers(name):
    with pytest.raises(ValueError, match=f"Expected `{name}` to be an integer >= 1, but got 0"):
        InvertibleMLP(**({"dim": 3} | {name: 0}))


@pytest.mark.parametrize("slope", [0.0, -0.2, 1.1, float("nan")])
def test_bad_slopes(slope):
    with pytest.raises(ValueError, match=r"Expected `slope` in \(0, 1\], but got"):
        InvertibleMLP(3, slope=slope)


@pytest.mark.parametrize("quantile", [-0.1, 1.1, float("nan")])
def test_bad_quantiles(quantile):
    with pytest.raises(ValueError, match=r"Expected `quantile` in \[0, 1\], but got"):
        InvertibleMLP(3, quantile=quantile)
