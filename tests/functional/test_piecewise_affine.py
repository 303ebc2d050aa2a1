from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional

from lightning_ssl_geometry.functional.piecewise_affine import (
    activation_pattern,
    affine_map,
    linear_regions,
    local_unexplained_variance,
    unexplained_squares,
)
from lightning_ssl_geometry.functional.spectrum import numerical_rank
from lightning_ssl_geometry.nn import MLPProjector

N, D, H, P = 40, 7, 9, 5
F64 = torch.float64


def perceptron(*widths, bias=True, activation=nn.ReLU, seed=0):
    torch.manual_seed(seed)
    layers = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after, bias=bias, dtype=F64), activation()]
    return nn.Sequential(*layers[:-1])


def trained_norm(activation):
    projector = MLPProjector(D, H, P, depth=3).double()
    projector(torch.randn(200, D, dtype=F64))  # running statistics
    return projector.eval()


class Custom(nn.Module):
    """The layers of another module, through the functions of torch, with a skip and branches."""

    def __init__(self, act):
        super().__init__()
        torch.manual_seed(3)
        self.a, self.b = nn.Linear(D, D, dtype=F64), nn.Linear(2 * D, P, dtype=F64)
        self.act = act

    def forward(self, h):
        x = h + self.act(self.a(h))
        left, right = x.chunk(2, 1)
        return self.b(torch.cat([2 * left, 1 - right / 3, x[:, :D]], 1).view(len(h), 2, D).flatten(1))


def points(n=N, dtype=F64, seed=1):
    return torch.randn(n, D, generator=torch.Generator().manual_seed(seed), dtype=dtype)


PIECEWISE = {
    "relu": lambda: perceptron(D, H, H, P),
    "in place, batch norm": lambda: trained_norm(nn.ReLU),
    "leaky": lambda: perceptron(D, H, P, activation=nn.LeakyReLU),
    "prelu": lambda: perceptron(D, H, P, activation=lambda: nn.PReLU(H, dtype=F64)),
    "hardtanh": lambda: perceptron(D, H, H, P, activation=nn.Hardtanh),
    "relu6": lambda: perceptron(D, H, H, P, activation=nn.ReLU6),
    "dropout": lambda: nn.Sequential(perceptron(D, H, P), nn.Dropout(0.5), nn.Identity()).eval(),
    "skip": lambda: Custom(functional.relu),
    "linear": lambda: nn.Linear(D, P, dtype=F64),
    "weight norm": lambda: nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(D, H, dtype=F64)), nn.ReLU(), nn.Linear(H, P, dtype=F64)
    ),
    "first in place": lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(D, P, dtype=F64)),
}


@pytest.mark.parametrize("name", PIECEWISE)
def test_it_is_the_affine_map_everywhere_in_the_region(name):
    projector, h = PIECEWISE[name](), points()
    weight, bias = affine_map(projector, h)
    for step in (0.0, 1e-7):  # too small to leave the region
        near = h + step * points(seed=2)
        assert torch.equal(linear_regions(projector, near), linear_regions(projector, h))
        torch.testing.assert_close(torch.einsum("ndp,nd->np", weight, near) + bias, projector(near))


@pytest.mark.parametrize("name", PIECEWISE)
def test_it_is_the_jacobian_one_sample_at_a_time(name):
    projector, h = PIECEWISE[name](), points(5)
    slow = [torch.autograd.functional.jacobian(lambda x: projector(x[None].clone())[0], row).T for row in h]
    torch.testing.assert_close(affine_map(projector, h)[0], torch.stack(slow))


@pytest.mark.parametrize("name", PIECEWISE)
def test_one_region_has_one_map(name):
    projector, h = PIECEWISE[name](), points(4000) / 3
    region = linear_regions(projector, h)
    assert torch.equal(region.unique(), torch.arange(int(region.max()) + 1))
    common = region.bincount().argmax()
    weight, bias = affine_map(projector, h[region == common])
    assert len(weight) > 2
    torch.testing.assert_close(weight, weight[:1].expand_as(weight))
    torch.testing.assert_close(bias, bias[:1].expand_as(bias))


def test_one_hidden_layer_in_closed_form():
    projector, h = perceptron(D, H, P), points()
    pattern = activation_pattern(projector, h)
    first, second = projector[0].weight, projector[2].weight
    assert torch.equal(pattern, projector[0](h) > 0)
    weight, bias = affine_map(projector, h)
    torch.testing.assert_close(weight, torch.einsum("ad,na,pa->ndp", first, pattern.double(), second))
    torch.testing.assert_close(bias, (pattern * projector[0].bias) @ second.T + projector[2].bias)


def test_the_pattern_is_in_order_of_execution():
    projector, h = perceptron(D, H, H, P), points()
    hidden = projector[0](h)
    expected = torch.cat([hidden > 0, projector[2](hidden.relu()) > 0], 1)
    assert torch.equal(activation_pattern(projector, h), expected)


def test_a_breakpoint_belongs_to_the_side_below_it():
    h = torch.tensor([[-1.0, 0.0, 1.0]])
    assert activation_pattern(nn.ReLU(), h).tolist() == [[False, False, True]]
    assert torch.equal(affine_map(nn.ReLU(), h)[0], torch.diag(torch.tensor([0.0, 0.0, 1.0]))[None])


def test_a_clamp_has_two_sides():
    h = torch.tensor([[-2.0, 0.5, 2.0]])
    assert linear_regions(nn.Hardtanh(), torch.tensor([[-1.5], [0.5], [1.5]])).tolist() == [0, 1, 2]
    assert activation_pattern(nn.Hardtanh(), h).tolist() == [[False, True, True, False, False, True]]
    for bounds, expected in (({"min": 0.0}, [[0, 1, 1]]), ({"max": 1.0}, [[0, 0, 1]]), ({"min": 0, "max": 1}, None)):
        found = activation_pattern(Call(lambda x, bounds=bounds: x.clamp(**bounds)), h).int().tolist()
        assert found == (expected or [[0, 1, 1, 0, 0, 1]])
    assert activation_pattern(Call(lambda x: x.clamp_min(1)), h).tolist() == [[False, False, True]]


def test_views_do_not_move_a_sample():
    layer = nn.Linear(2, 3)
    h = torch.randn(6, 4)
    grouped = Call(lambda x: layer(x.reshape(-1, 2)).relu().reshape(len(x), -1))
    stacked = Call(lambda x: layer(x.reshape(len(x), 2, 2)).relu().flatten(1))
    expected = (layer(h.reshape(6, 2, 2)) > 0).flatten(1)
    assert torch.equal(activation_pattern(grouped, h), expected)
    assert torch.equal(activation_pattern(stacked, h), expected)


@pytest.mark.parametrize("act", [functional.relu, torch.relu_, functional.relu_, lambda x: x.clamp(min=0)])
def test_functions_are_seen_like_modules(act):
    h = points()
    assert torch.equal(activation_pattern(Custom(act), h), activation_pattern(Custom(nn.ReLU()), h))
    assert activation_pattern(Custom(act), h).shape == (N, D)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU])
def test_without_biases_a_region_is_a_cone(activation):
    projector, h = perceptron(D, H, H, P, bias=False, activation=activation), points()
    scale = torch.rand(N, 1, dtype=F64) * 10 + 0.01
    assert torch.equal(activation_pattern(projector, h * scale), activation_pattern(projector, h))
    torch.testing.assert_close(affine_map(projector, h * scale), affine_map(projector, h))
    assert affine_map(projector, h)[1].abs().max() < 1e-12


def test_a_linear_projector_has_one_region_and_its_own_rank():
    projector, h = nn.Linear(D, P), points(dtype=torch.float32)
    with torch.no_grad():
        projector.weight[2:] = 0
    assert activation_pattern(projector, h).shape == (N, 0)
    assert linear_regions(projector, h).tolist() == [0] * N
    weight, bias = affine_map(projector, h)
    torch.testing.assert_close(weight, projector.weight.T.expand_as(weight))
    torch.testing.assert_close(bias, projector.bias.expand_as(bias))
    assert (numerical_rank(weight, 1e-2, mode="relative") == 2).all()


def visited(*widths):
    cloud = points(400) / 10
    return sum(len(linear_regions(perceptron(*widths, seed=seed), cloud).unique()) for seed in range(8)) / 8


def test_regions_grow_with_width_and_depth():
    by_width = [visited(D, width, P) for width in (1, 2, 4, 8, 16, 32)]
    assert by_width == sorted(by_width)
    assert by_width[-1] > 2 * by_width[0]
    by_depth = [visited(D, *([H] * depth), P) for depth in range(5)]
    assert by_depth == sorted(by_depth)
    assert by_depth[0] == 1


def test_a_deeper_networks_regions_refine_its_first_layers():
    projector, h = perceptron(D, H, H, P), points(500)
    coarse, fine = linear_regions(projector[:3], h), linear_regions(projector, h)
    for region in fine.unique():
        assert len(coarse[fine == region].unique()) == 1


@pytest.mark.parametrize("activation", [nn.GELU, nn.Tanh])
def test_any_other_projector_has_a_tangent_map(activation):
    projector, h = perceptron(D, H, P, activation=activation), points()
    weight, bias = affine_map(projector, h)
    error = [
        (projector(h + d) - torch.einsum("ndp,nd->np", weight, h + d) - bias).norm()
        for d in (s * points(seed=2) for s in (1e-3, 1e-4))
    ]
    assert (error[0] / error[1]).item() == pytest.approx(100, rel=0.2)  # of second order


@pytest.mark.parametrize("chunk_size", [1, 7, N, 1000])
def test_chunks_change_nothing(chunk_size):
    projector, h = perceptron(D, H, H, P), points()
    torch.testing.assert_close(affine_map(projector, h, chunk_size=chunk_size), affine_map(projector, h))


def test_samples_do_not_depend_on_each_other():
    projector, h = trained_norm(nn.ReLU), points(3000)  # several chunks of patterns
    order = torch.randperm(len(h))
    assert torch.equal(activation_pattern(projector, h[order]), activation_pattern(projector, h)[order])
    first, second = linear_regions(projector, h)[order], linear_regions(projector, h[order])
    assert torch.equal(first, second)


@pytest.mark.parametrize("function", [affine_map, activation_pattern, linear_regions])
def test_nothing_is_left_behind(function):
    projector = trained_norm(nn.ReLU)
    projector[0].requires_grad_(False)
    h = points().requires_grad_()
    before = {name: value.clone() for name, value in projector.state_dict().items()}
    versions = [value._version for value in projector.state_dict(keep_vars=True).values()]
    with torch.inference_mode():
        inference = function(projector, points())
    with torch.enable_grad():
        found = function(projector, h)
    with torch.no_grad():
        without = function(projector, h.detach())
    torch.testing.assert_close(found, inference)
    torch.testing.assert_close(found, without)
    for result in found if isinstance(found, tuple) else (found,):
        assert not result.requires_grad
    assert h.grad is None
    assert h.detach().equal(points())
    assert all(torch.equal(value, before[name]) for name, value in projector.state_dict().items())
    assert versions == [value._version for value in projector.state_dict(keep_vars=True).values()]
    assert [p.requires_grad for p in projector[0].parameters()] == [False]
    assert all(p.grad is None for p in projector.parameters())
    assert not any(module.training for module in projector.modules())


def test_the_result_has_the_parameters_dtype():
    projector = perceptron(D, H, P).float()
    weight, bias = affine_map(projector, points())
    assert weight.dtype == bias.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(affine_map(projector, points()), (weight, bias))
        assert torch.equal(activation_pattern(projector, points()), activation_pattern(projector, points(dtype=F64)))
    assert affine_map(nn.ReLU(), points())[0].dtype == F64


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, h):
        return self.function(h)


class Buffer(nn.Module):
    def forward(self, h):
        out = torch.zeros_like(torch.empty(len(h), D, dtype=F64))
        out[:, :3].add_(h[:, :3])
        return out


REFUSED = {
    "gelu": nn.GELU(),
    "sigmoid": nn.Sigmoid(),
    "tanh": nn.Tanh(),
    "silu": nn.SiLU(),
    "softplus": nn.Softplus(),
    "elu": nn.ELU(),
    "_softmax": nn.Softmax(1),
    "native_layer_norm": nn.LayerNorm(D, dtype=F64),
    "linalg_vector_norm": Call(lambda x: functional.normalize(x, dim=1)),
    "pow": Call(lambda x: x**2),
    "mul": Call(lambda x: x * x.relu()),
    "div": Call(lambda x: torch.ones_like(torch.empty(N, D)) / x),
    "mm": Call(lambda x: torch.eye(N, dtype=F64) @ x),
    "add": Buffer(),
    "mean": Call(lambda x: x - x.mean(0)),
    "gt": Call(lambda x: torch.where(x > 0, x, 0 * x)),
    "slice": Call(lambda x: x[1:]),
    "cat": Call(lambda x: torch.cat([x, x])),
    "t": Call(lambda x: x.t()),
    "div` in which": Call(lambda x: torch.div(x, 2, rounding_mode="floor")),
    "_to_copy": Call(lambda x: x.long()),
    "native_batch_norm` with statistics of the batch": Call(
        lambda x: functional.batch_norm(x, None, None, training=True)
    ),
    "view` across samples": Call(lambda x: x.view(1, -1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_piecewise_affine_is_refused_by_name(name):
    with pytest.raises(ValueError, match=rf"piecewise affine: linear layers, \(leaky\) ReLU.* but got `{name}"):
        activation_pattern(REFUSED[name], points())


def test_the_way_around_torch_is_refused():
    with pytest.raises(ValueError, match="an output that does not depend on h by these alone"):
        linear_regions(Call(lambda x: torch.from_numpy(x.detach().numpy() * 2)), points())


def test_a_negative_chunk_size_is_named():
    with pytest.raises(ValueError, match="`chunk_size` >= 1, but got -1"):
        affine_map(nn.ReLU(), torch.zeros(2, 3), chunk_size=-1)


@pytest.mark.parametrize("function", [affine_map, activation_pattern, linear_regions])
def test_bad_input(function):
    for layer in (nn.BatchNorm1d(D), nn.Dropout(), nn.BatchNorm1d(D, track_running_stats=False).eval()):
        with pytest.raises(ValueError, match=rf"`projector` in eval mode .*, but got {type(layer).__name__}\("):
            function(nn.Sequential(layer), points(dtype=torch.float32))
    for shape in ((2, 3, 4), (0, 4), (4,)):
        with pytest.raises(ValueError, match=r"`h` of shape \(N, D\).*, but got \("):
            function(nn.ReLU(), torch.zeros(shape))
    with pytest.raises(ValueError, match=r"`projector` to return \(N, D\) for N = 2 samples, but got \(2, 3, 1\)"):
        function(nn.Unflatten(1, (3, 1)), torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"`projector` to return .*, but got list"):
        function(Call(lambda x: [x]), torch.zeros(2, 3))


def maps(n=N, d=D, p=P, seed=4):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(n, d, p, generator=generator, dtype=F64) * torch.logspace(0, -3, p, dtype=F64)
    return torch.randn(n, d, generator=generator, dtype=F64), weight


def test_unexplained_variance_is_least_squares():
    delta, weight = maps()
    residual = 0.0
    for d, w in zip(delta, weight, strict=True):
        residual += (d - w @ torch.linalg.lstsq(w, d[:, None]).solution[:, 0]).square().sum()
    torch.testing.assert_close(local_unexplained_variance(delta, weight), residual / delta.square().sum())


@pytest.mark.parametrize("mode", ["absolute", "relative", "cumulative"])
@pytest.mark.parametrize("tau", [1e-3, 0.1, 0.9])
def test_a_threshold_drops_directions(tau, mode):
    delta, weight = maps()
    residual = 0.0
    for d, w in zip(delta, weight, strict=True):
        u = torch.linalg.svd(w).U[:, : int(numerical_rank(w, tau, mode=mode))]
        residual += (d - u @ (u.T @ d)).square().sum()
    found = local_unexplained_variance(delta, weight, tau, mode=mode)
    torch.testing.assert_close(found, residual / delta.square().sum())
    assert local_unexplained_variance(delta, weight) <= found + 1e-12


def test_unexplained_variance_is_between_what_lies_in_the_span_and_what_is_orthogonal_to_it():
    delta, weight = maps()
    inside = torch.einsum("ndp,np->nd", weight, torch.randn(N, P, dtype=F64))
    u = torch.linalg.svd(weight).U
    outside = u[:, :, -1]  # of D > P
    assert local_unexplained_variance(inside, weight) < 1e-25
    assert 1 - 1e-12 < local_unexplained_variance(outside, weight) <= 1
    assert 0 < local_unexplained_variance(delta, weight) < 1
    whole = pytest.approx(1, rel=N * D * torch.finfo(F64).eps)  # a ratio of two sums of N x D squares
    assert local_unexplained_variance(delta, torch.zeros_like(weight)).item() == whole
    assert local_unexplained_variance(delta, torch.randn(N, D, D + 3)) < 1e-12
    assert local_unexplained_variance(outside, weight[:, :, :0].new_zeros(N, D, 1)).item() == whole


def test_rotation_scale_and_order_change_nothing():
    delta, weight = maps()
    rotation = torch.linalg.qr(torch.randn(D, D, dtype=F64)).Q
    order = torch.randperm(N)
    for tau in (None, 0.05):
        found = local_unexplained_variance(delta, weight, tau)
        torch.testing.assert_close(local_unexplained_variance(delta @ rotation.T, rotation @ weight, tau), found)
        torch.testing.assert_close(local_unexplained_variance(3 * delta, 0.2 * weight, tau), found)
        torch.testing.assert_close(local_unexplained_variance(delta[order], weight[order], tau), found)


def test_one_map_for_all_is_equation_10():
    delta, weight = maps()
    shared = weight[:1].expand_as(weight)
    t = torch.linalg.lstsq(weight[0], delta.T).solution
    expected = (delta.T - weight[0] @ t).square().sum() / delta.square().sum()
    torch.testing.assert_close(local_unexplained_variance(delta, shared), expected)


def test_isotropic_displacements_leave_one_minus_rank_over_dimension():
    delta = torch.randn(6000, D, dtype=F64)
    weight = torch.randn(6000, D, P, dtype=F64)
    assert local_unexplained_variance(delta, weight).item() == pytest.approx(1 - P / D, abs=0.01)
    weight[..., 1] = weight[..., 0]
    assert local_unexplained_variance(delta, weight).item() == pytest.approx(1 - (P - 1) / D, abs=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_exact_zeros_do_not_explain(dtype):
    delta = torch.randn(N, D)
    weight = (torch.randn(N, D, 2, dtype=dtype) @ torch.randn(N, 2, P, dtype=dtype)) * 1e-9
    squares, rank = unexplained_squares(delta, weight, [None, 1e-30, 1.0])
    assert rank[0].tolist() == rank[1].tolist() == [2] * N
    assert (rank[2] == 1).all()
    assert (squares[0] <= squares[2] + 1e-9).all()
    assert local_unexplained_variance(delta, weight) > 0.2


def test_several_thresholds_are_those_one_by_one():
    delta, weight = maps()
    squares, rank = unexplained_squares(delta, weight, [None, 0.1, 1.0])
    for row, tau in zip(squares, (None, 0.1, 1.0), strict=True):
        torch.testing.assert_close(row.sum() / delta.square().sum(), local_unexplained_variance(delta, weight, tau))
    assert torch.equal(rank[1], numerical_rank(weight, 0.1, mode="relative"))


def test_bad_displacements():
    delta, weight = maps()
    for wrong in (weight[0], weight[1:], weight[:, 1:]):
        with pytest.raises(ValueError, match=r"`weight` of shape \(N, D, P\), N = 40, D = 7, but got"):
            local_unexplained_variance(delta, wrong)
    with pytest.raises(ValueError, match="one displacement that is not zero, but all are"):
        local_unexplained_variance(torch.zeros_like(delta), weight)
    with pytest.raises(ValueError, match=r"`weight.dtype` to be one of .* but got torch.bfloat16"):
        local_unexplained_variance(delta, weight.bfloat16())
    with pytest.raises(ValueError, match=r"`tau` in \(0, 1\], but got 2"):
        local_unexplained_variance(delta, weight, 2)
    with pytest.raises(ValueError, match=r"`mode` to be one of .*, but got 'half'"):
        local_unexplained_variance(delta, weight, 0.1, mode="half")


@pytest.mark.parametrize("shape", [(2, 8), (8, 2)])
def test_a_singular_value_counts_from_the_rounding_of_the_longer_side_on(shape):
    weight = torch.zeros(1, *shape, dtype=F64)
    weight[0, 0, 0] = 1
    ranks = []
    for steps in (4, 16):  # of eps, where max(D, P) = 8
        weight[0, 1, 1] = steps * 2.0**-52
        ranks += unexplained_squares(torch.ones(1, shape[0]), weight, [None])[1].flatten().tolist()
    assert ranks == [1, 2]
