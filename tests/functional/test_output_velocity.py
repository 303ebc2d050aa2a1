import copy

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.functional.output_velocity import output_velocity, step_invariance_error
from lightning_ssl_geometry.functional.variational.loss import first_variation

N, D, P = 7, 6, 3


class First(nn.Module):
    """Sees the first coordinates only: the others are noise to it."""

    def __init__(self, kept):
        super().__init__()
        self.kept = kept

    def forward(self, x):
        return x[..., : self.kept]


def mlp():
    return nn.Sequential(nn.Linear(D, 8), nn.Tanh(), nn.Linear(8, P)).double(), torch.randn(N, D).double()


def convolutional():
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Flatten()
    network = nn.Sequential(*layers, nn.Linear(64, P)).double()
    network(torch.randn(50, 1, 6, 6).double())  # running statistics
    return network.eval(), torch.randn(N, 1, 6, 6).double()


def transformer():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    network = nn.Sequential(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Flatten(), nn.Linear(20, P))
    return network.double().eval(), torch.randn(N, 5, 4).double()


def frozen():
    network, x = mlp()
    network[0].weight.requires_grad_(False)
    return network, x


def tied():
    layer = nn.Linear(P, P)
    return nn.Sequential(nn.Linear(D, P), layer, nn.Tanh(), layer).double(), torch.randn(N, D).double()


def shared():
    """One parameter in two modules."""
    network, x = tied()
    network[3] = nn.Linear(P, P).double()
    network[3].weight = network[1].weight
    return network, x


NETWORKS = {f.__name__: f for f in (mlp, convolutional, transformer, frozen, tied, shared)}


def jacobian(network, x):
    """(N, P, all weights), one backward pass each."""
    weights = [p for p in network.parameters() if p.requires_grad]
    rows = []
    for z in network(x.clone()).flatten():
        gradients = torch.autograd.grad(z, weights, retain_graph=True, allow_unused=True)
        zero = [torch.zeros_like(w) if g is None else g for g, w in zip(gradients, weights, strict=True)]
        rows.append(torch.cat([g.flatten() for g in zero]))
    return torch.stack(rows).unflatten(0, (len(x), -1))


def stepped(network, x, loss, size):
    """The network after a step of gradient descent."""
    network = copy.deepcopy(network)
    weights = [p for p in network.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(loss(network(x.clone())), weights)
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            weight -= size * gradient
    return network


def close(found, expected, **tolerance):
    torch.testing.assert_close(found, expected, **tolerance)


@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_the_kernel_times_the_gradients(name):
    network, x = NETWORKS[name]()
    at = torch.randn(4, *x.shape[1:], dtype=torch.float64)
    g = torch.randn(N, P, dtype=torch.float64)
    kernel = torch.einsum("ikw,jlw->ijkl", jacobian(network, torch.cat([x, at])), jacobian(network, x))
    expected = -torch.einsum("ijkl,jl->ik", kernel, g) / N
    for chunk_size in (2, 100):
        close(output_velocity(network, x, g, chunk_size=chunk_size), expected[:N])
        close(output_velocity(network, x, g, at, chunk_size=chunk_size), expected[N:])


@pytest.mark.parametrize("name", ["mlp", "convolutional", "transformer"])
def test_it_is_how_a_small_step_moves_the_outputs(name):
    network, x = NETWORKS[name]()

    def loss(z):  # of the batch, not a mean over samples
        return torch.cdist(z, z).sin().mean() + z[0] @ z[1]

    z = network(x.clone()).detach().requires_grad_()
    g = N * torch.autograd.grad(loss(z), z)[0]
    ahead, back = (stepped(network, x, loss, size)(x.clone()) for size in (1e-6, -1e-6))
    close(output_velocity(network, x, g), ((ahead - back) / 2e-6).detach(), rtol=1e-5, atol=1e-6)


def test_free_points_move_against_their_own_gradient():
    points = nn.Linear(N, P, bias=False).double()  # f(e_i) = its i-th column: K_ij is the identity for i = j, else 0
    g = torch.randn(N, P, dtype=torch.float64)
    close(output_velocity(points, torch.eye(N, dtype=torch.float64), N * g), -g)


class Shifted(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x, index):
        return self.network(x) * index[:, None]


def test_a_network_of_several_inputs():
    network, x = mlp()
    g, index = torch.randn(N, P, dtype=torch.float64), torch.arange(N)
    found = output_velocity(Shifted(network), (x, index), g, (x[:2], index[:2] + 3), chunk_size=3)
    close(found, output_velocity(network, x, index[:, None] * g, x[:2]) * torch.tensor([[3], [4]]))
    close(output_velocity(Shifted(network), (x, index), g)[2], 2 * output_velocity(network, x, index[:, None] * g)[2])
    with pytest.raises(ValueError, match=r"but got \[\(7, 6\), \(6,\)\] and \(7, 3\)"):
        output_velocity(Shifted(network), (x, index[1:]), g)


@pytest.mark.parametrize("name", ["convolutional", "tied"])
def test_it_leaves_the_network_and_the_data_as_they_were(name):
    network, x = NETWORKS[name]()
    parameters = [*network.parameters()]
    g, before, data = torch.randn(N, P, dtype=torch.float64), copy.deepcopy(network.state_dict()), x.clone()
    fast = torch.backends.mha.get_fastpath_enabled()
    once = output_velocity(network, x, g)
    assert torch.equal(x, data)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert all(now is then and now.grad is None for now, then in zip(network.parameters(), parameters, strict=True))
    assert torch.backends.mha.get_fastpath_enabled() == fast
    assert not once.requires_grad
    with torch.inference_mode():
        close(output_velocity(network, x.clone(), g.clone()), once)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        close(output_velocity(network, x, g), once)
    close(output_velocity(copy.deepcopy(network).float(), x, g), once.float(), rtol=1e-4, atol=1e-4)


def noisy(seed=1, views=2):
    """Samples in the first two coordinates, and versions of them with noise in the others."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64)
    x[:, 2:] = 0
    noise = torch.randn(views, N, D, generator=generator, dtype=torch.float64)
    noise[..., :2] = 0
    return x, x + noise


def error_of(network):
    x, moved = noisy()
    z = network(moved).detach()
    g = first_variation(*z, temperature=0.5, symmetric=True)
    found = output_velocity(network, moved.flatten(0, 1), 2 * g.flatten(0, 1), torch.cat([x, *moved]))
    return z, x, step_invariance_error(found[:N], found[N:].unflatten(0, (2, N)))


def test_points_that_coincide_move_together_without_a_network():
    z = torch.randn(N, P, dtype=torch.float64)
    z[4] = z[2]
    g = first_variation(z, z, symmetric=True)
    close(g[0], g[1])
    close(g[0][4], g[0][2])
    assert step_invariance_error(-g[0], -g[1:]).item() < 1e-12


def test_a_network_that_ignores_the_noise_stays_invariant():
    z, x, error = error_of(network := nn.Sequential(First(2), nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, P)).double())
    close(z, network(x).detach().expand(2, -1, -1))
    assert error.item() < 1e-12


def test_a_network_whose_weights_happen_to_ignore_the_noise_does_not():
    network, _ = mlp()
    with torch.no_grad():
        network[0].weight[:, 2:] = 0
    z, x, error = error_of(network)
    close(z, network(x).detach().expand(2, -1, -1))  # invariant before the step,
    assert error > 0.01
    moved = noisy()[1]

    def loss(z):
        return (
            first_variation(*z.detach().unflatten(0, (2, N)), temperature=0.5, symmetric=True) * z.view(2, N, P)
        ).sum() / N

    size = 1e-5
    after = stepped(network, moved.flatten(0, 1), loss, size)
    apart = (after(moved.flatten(0, 1)) - after(x).repeat(2, 1)).square().sum(1).mean().sqrt()
    went = (after(x) - network(x)).square().sum(1).mean().sqrt()
    close((apart / went).detach(), error, rtol=1e-3, atol=0)  # and that much less after it


def test_error_of_velocities():
    at, moved = torch.randn(N, P, dtype=torch.float64), torch.randn(2, N, P, dtype=torch.float64)
    error = step_invariance_error(at, moved)
    close(step_invariance_error(-3 * at, -3 * moved), error)
    close(step_invariance_error(at, moved.flip(0)), error)
    close(step_invariance_error(at, (1.1 * at)[None]).item(), 0.1)
    assert step_invariance_error(0 * at, 0 * moved).isnan()
    many, others = torch.randn(20000, P), torch.randn(1, 20000, P)
    assert step_invariance_error(many, others).item() == pytest.approx(2**0.5, rel=0.02)


AT, MOVED = torch.ones(4, 2), torch.ones(3, 4, 2)
WITHOUT_STATISTICS = nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False)).eval()
SAMPLES = r"`x` \(n, ...\) and `cotangent` \(n, d\) with n >= 1, but got \["
NO_WEIGHT = "`network` with a parameter that requires a gradient, but got none"
BATCH_NORM = r"eval mode and with running statistics, .* but got BatchNorm2d.* without"
ERRORS = [
    (lambda f, x, g: output_velocity(f, x, g[0]), r"`cotangent` of shape \(n, d\), but got \(3,\)"),
    (lambda f, x, g: output_velocity(f, x, g[..., None]), r"`cotangent` of shape \(n, d\), but got \(7, 3, 1\)"),
    (lambda f, x, g: output_velocity(f, x, g[:3]), SAMPLES + r"\(7, 6\)\]"),
    (lambda f, x, g: output_velocity(f, x[:0], g[:0]), SAMPLES + r"\(0, 6\)\] and"),
    (lambda f, x, g: output_velocity(f, x, g[:, :2]), r"`cotangent` \(n, 3\) as `network` returns, but got d = 2"),
    (lambda f, x, g: output_velocity(f, x, g, chunk_size=0), "`chunk_size` >= 1, but got 0"),
    (lambda _, x, g: output_velocity(nn.ReLU(), x, g), NO_WEIGHT),
    (lambda f, x, g: output_velocity(nn.Sequential(f, nn.Unflatten(1, (3, 1))), x, g),
     r"`network` to return \(N, D\) for N = 7 samples, but got \(7, 3, 1\)"),
    (lambda f, x, g: output_velocity(convolutional()[0].train(), x, g), BATCH_NORM),
    (lambda f, x, g: output_velocity(nn.Sequential(WITHOUT_STATISTICS, f), x, g), BATCH_NORM),
    (lambda *_: step_invariance_error(AT[0], MOVED), r"`at` of shape \(N, d\), but got \(2,\)"),
    (lambda *_: step_invariance_error(AT, MOVED[:, :3]),
     r"`moved` of shape \(V, N, d\), N = 4, d = 2, but got \(3, 3, 2\)"),
    (lambda *_: step_invariance_error(AT, MOVED[:0]), "`moved` of at least 1 row, but got 0"),
    (lambda *_: step_invariance_error(AT, AT), r"`moved` of shape \(V, N, d\), .*but got \(4, 2\)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(*mlp(), torch.randn(N, P, dtype=torch.float64))
