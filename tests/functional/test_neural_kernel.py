import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd.functional import jvp
from torch.func import functional_call
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from lightning_ssl_geometry.functional import kernel_flow, neural_kernel, neural_kernel_trace
from lightning_ssl_geometry.functional.neural_kernel import chunking, gram, jacobian
from lightning_ssl_geometry.functional.neural_kernel.chunking import KernelWork
from lightning_ssl_geometry.functional.neural_kernel.gram import add_products, mirror
from lightning_ssl_geometry.functional.neural_kernel.layers import Factors, forward_pass
from lightning_ssl_geometry.nn import MLPBackbone, SmallCNN


class Function(nn.Module):
    """A network of the given modules whose forward is a function of itself and x."""

    def __init__(self, forward, **modules):
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)
        self.function = forward

    def forward(self, x):
        return self.function(self, x)


def tied():
    network = Function(lambda f, x: f.a(torch.tanh(f.b(x))), a=nn.Linear(5, 5), b=nn.Linear(5, 5))
    network.a.weight = network.b.weight
    return network


def overwriting(f, x):
    y = f.b(torch.tanh(x)[:, None].expand(-1, 3, -1).contiguous())
    y[:, 0] = 0
    return f.a(y.relu_().mean(1))


def sorted_inside(f, x):
    order = x[:, 0].argsort()
    return f.a(torch.tanh(f.b(x[order]))[order.argsort()])


def convolutions():
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, stride=2, padding=1, groups=2),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.Conv2d(6, 4, 3, padding="same", padding_mode="circular", dilation=2, bias=False),
        nn.GroupNorm(2, 4),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 4),
    ).eval()


def normalised():
    layers = (nn.Linear(5, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 6, bias=False), nn.BatchNorm1d(6), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(6, 3)).eval()


VECTORS, IMAGES = (9, 5), (5, 2, 9, 9)


def reparametrised():
    layer = nn.utils.parametrize.register_parametrization(nn.Linear(5, 4), "weight", nn.Tanh())
    return nn.Sequential(layer, nn.Linear(4, 2))


def using(function):
    return lambda: Function(function, a=nn.Linear(5, 4), b=nn.Linear(5, 5))


# `vmap` refuses checkpoints and, in torch 2.13 and older, the gradient of a part of a tensor that is written anew
ALONE = {"checkpointed", *(["overwritten"] if torch.__version__ < "2.15" else [])}
NETWORKS = {  # name -> network, shape of x, how many of its parameters need their Jacobian
    "linear": (lambda: nn.Linear(5, 3), VECTORS, 0),
    "mlp": (lambda: MLPBackbone(5, [7, 6], 3), VECTORS, 0),
    "norms": (normalised, VECTORS, 0),
    "convolutions": (convolutions, IMAGES, 0),
    "one convolution": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3, bias=False), nn.Tanh(), nn.Flatten()), (6, 3, 7), 0),
    "one channel": (lambda: nn.Sequential(nn.Conv1d(3, 1, 3), nn.Flatten()), (6, 3, 7), 0),
    "frozen convolution": (
        lambda: Function(lambda f, x: f.a(torch.tanh(f.b(x)).flatten(1)), a=nn.Linear(12, 2), b=nn.Conv1d(3, 4, 3)),
        (4, 3, 5), 0),
    "volume": (lambda: nn.Sequential(nn.Conv3d(1, 3, 2), nn.Flatten(), nn.Linear(24, 2)), (4, 1, 3, 3, 3), 0),
    "sequence": (lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm((4, 4)), nn.Flatten()), (4, 4, 3), 0),
    "called twice": (using(lambda f, x: f.a(f.b(torch.tanh(f.b(x))))), VECTORS, 0),
    "called by keyword": (using(lambda f, x: f.a(torch.tanh(f.b(input=x)))), VECTORS, 2),
    "weight outside": (using(lambda f, x: f.a(torch.tanh(F.linear(f.b(x), f.b.weight)))), VECTORS, 2),
    "tied": (tied, VECTORS, 3),
    "reparametrised": (reparametrised, VECTORS, 2),
    "other layers": (lambda: nn.Sequential(nn.PReLU(), nn.Linear(5, 3), nn.PReLU(3)), VECTORS, 2),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(2, 3, 2), nn.Flatten(), nn.Linear(48, 2)), (3, 2, 3, 3), 2),
    "frozen weight": (using(lambda f, x: f.a(torch.tanh(f.b(x)))), VECTORS, 0),
    "time first": (using(lambda f, x: f.a(torch.tanh(f.b(x.transpose(0, 1))).mean(0))), (5, 5, 5), 2),
    "time first, as long": (using(lambda f, x: f.a(torch.tanh(f.b(x.transpose(0, 1))).mean(0))), (2, 2, 5), 2),
    "flattened": (using(lambda f, x: f.a(torch.tanh(f.b(x.flatten(0, 1))).unflatten(0, (-1, 3)).sum(1))), (4, 3, 5), 2),
    "sorted inside": (using(sorted_inside), VECTORS, 2),
    "row by row": (lambda: Function(lambda f, x: torch.stack([f.a(row) for row in x]), a=nn.Linear(1, 1)), (1, 1), 2),
    "overwritten": (using(overwriting), VECTORS, None),
    "unused": (using(lambda f, x: f.a(x)), VECTORS, 0),
    "without effect": (using(lambda f, x: (f.b(x), f.a(x))[1]), VECTORS, 0),
    "dead": (using(lambda f, x: f.a(torch.relu(f.b(x) - 1e3))), VECTORS, 0),
    "norm at each position": (lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Flatten()), (4, 5, 3), 0),
    "checkpointed": (using(lambda f, x: f.a(checkpoint(f.b, x, use_reentrant=False))), VECTORS, None),
}  # fmt: skip


def build(name):
    make, shape, rest = NETWORKS[name]
    network = make().double()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.5)
    for norm in network.modules():
        if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2)
    if name.startswith("frozen"):
        network.b.weight.requires_grad_(False)
    return network, torch.randn(shape, dtype=torch.float64), rest


def slow_kernel(network, x):
    """By the gradient of each output of each sample alone."""
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    rows = []
    for point in x:
        z = network(point[None].clone())[0]
        found = [
            torch.autograd.grad(each, parameters, retain_graph=True, materialize_grads=True, allow_unused=True)
            for each in z
        ]
        rows.append(torch.stack([torch.cat([part.flatten() for part in row]) for row in found]))
    jacobian = torch.stack(rows)
    return torch.einsum("ikp,jlp->ijkl", jacobian, jacobian)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("by_layer", [True, False])
def test_it_is_the_product_of_the_gradients(name, by_layer):
    network, x, _ = build(name)
    way = {"by_layer": by_layer, "vectorize": name not in ALONE}
    expected = slow_kernel(network, x)
    torch.testing.assert_close(neural_kernel(network, x, **way), expected, rtol=1e-12, atol=1e-12)
    trace = expected.diagonal(dim1=2, dim2=3).mean(2)
    torch.testing.assert_close(neural_kernel_trace(network, x, **way), trace, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in NETWORKS if NETWORKS[name][2] is not None])
def test_only_what_its_layers_do_not_describe_needs_its_jacobian(name):
    network, x, rest = build(name)
    parameters = {key: parameter for key, parameter in network.named_parameters() if parameter.requires_grad}
    work = KernelWork(network, x, parameters, 2**30, by_layer=True, vectorize=True)
    work.kernel(None, folded=True)
    assert len(work.rest) == rest


@pytest.mark.parametrize("name", ["mlp", "convolutions", "called twice", "other layers", "tied"])
@pytest.mark.parametrize("by_layer", [True, False])
def test_the_memory_asked_for_does_not_change_the_kernel(name, by_layer):
    network, x, _ = build(name)
    full, trace = neural_kernel(network, x), neural_kernel_trace(network, x)
    for share in (1.0, 1.5, 3.0):  # of what is needed at least
        memory = [int(share * least(f, network, x, by_layer)) for f in (neural_kernel, neural_kernel_trace)]
        torch.testing.assert_close(neural_kernel(network, x, memory=memory[0], by_layer=by_layer), full)
        torch.testing.assert_close(neural_kernel_trace(network, x, memory=memory[1], by_layer=by_layer), trace)


def test_a_layer_that_mostly_sees_one_sample_at_each_time_is_not_by_sample():
    # time is the first axis, as long as there are samples; a gate lets sample i through at time i, others to a third
    network = using(lambda f, x: f.a((torch.tanh(f.b(x.transpose(0, 1))) * x.transpose(0, 1)[..., :1]).sum(0)))()
    x = torch.randn(2, 2, 5, dtype=torch.float64)
    x[..., 0] = torch.tensor([[1.0, 0.3], [0.3, 1.0]])
    parameters = dict(network.double().named_parameters())
    work = KernelWork(network, x, parameters, 2**30, by_layer=True, vectorize=True)
    assert work.rest == {"b.weight", "b.bias"}
    torch.testing.assert_close(neural_kernel(network, x), slow_kernel(network, x))


class Opaque(torch.autograd.Function):
    """A layer that autograd does not see."""

    @staticmethod
    def forward(ctx, x, layer):
        ctx.layer = layer
        return layer(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ ctx.layer.weight, None


def test_an_operation_that_hides_what_it_does_may_use_any_parameter():
    network = using(lambda f, x: f.a(Opaque.apply(f.a(x.requires_grad_()).tile(2)[:, :5], f.b)))()
    work = KernelWork(
        network, torch.randn(9, 5), dict(network.named_parameters()), 2**30, by_layer=True, vectorize=False
    )
    assert {"b.weight", "b.bias"} <= work.rest


def seldom_outside(f, x):
    y = f.b(x)
    if (x > 10).any():  # for such samples only, the weight of `b` is used outside of `b`
        y = torch.where(x.amax((1, 2), keepdim=True) > 10, F.linear(y, f.b.weight), y)
    return f.a(y.mean(1))


@pytest.mark.parametrize("memory", [2 * 10**5, 10**8])  # bytes, for few samples at a time and for all
def test_a_use_of_the_weight_that_only_later_samples_show_is_found(memory):
    network, x = using(seldom_outside)().double(), torch.rand(9, 60, 5, dtype=torch.float64)
    x[6, 0, 0] = 11.0
    found = neural_kernel(network, x, memory=memory, vectorize=False)
    torch.testing.assert_close(found, slow_kernel(network, x))


def test_what_a_pass_saves_is_counted_once_and_without_the_parameters():
    # Autograd saves the input of each layer: 5 + 7 numbers per sample, and 1 more for what a storage may have besides.
    network = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    parameters = dict(network.named_parameters())
    work = KernelWork(network, torch.randn(9, 5), parameters, 2**30, by_layer=True, vectorize=True)
    assert work.sizes.saved == 5 + 7 + 1


@pytest.mark.parametrize("name", [name for name in NETWORKS if NETWORKS[name][2] == 0])
def test_the_sizes_of_a_layer_are_those_of_its_factors(name):
    network, x, _ = build(name)
    places = forward_pass(network, x, tuple(network.parameters())).places
    assert places
    for place in places:
        factors = place.factors(torch.randn(len(x), 2, *place.shape[1:], dtype=torch.float64))
        groups, positions, inputs, outputs = place.sizes
        assert factors.a.shape == (len(x), groups, positions, inputs)
        assert factors.g.shape == (len(x), 2, groups, positions, outputs)


def test_the_sizes_from_which_the_memory_is_estimated():
    # Outputs have 7 and 3 numbers. With one more input for the bias, a row of a weight has 6 and 8, and takes one
    # number more for the gradient at its output.
    network = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    parameters = dict(network.named_parameters())
    sizes = KernelWork(network, torch.randn(9, 5), parameters, 2**30, by_layer=True, vectorize=True).sizes
    assert (sizes.passed, sizes.widest, sizes.patches, sizes.row) == (7 + 3, 7, 8, 8 + 1)


def work_of(network, n, memory=2**30, by_layer=True, dtype=torch.float32):
    x = torch.ones(n, network[0].in_features, dtype=dtype)
    return KernelWork(network.to(dtype), x, dict(network.named_parameters()), memory, by_layer=by_layer, vectorize=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_bytes_are_those_of_the_kernel_and_of_the_larger_way(dtype):
    # The sizes are saved 13, passed 10, widest 7, patches 8 and row 9 (see the test before): one sample takes
    # 2 * 13 + 8 numbers, and 10 + 7 + 2 * 9 for each direction. Two parts of the samples are held, or all samples once.
    network, size = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3)), dtype.itemsize
    work = work_of(network, 9, dtype=dtype)
    assert work.needed(3, False) == ((9 * 3) ** 2 + 2 * (34 + 3 * 35)) * size
    assert work.needed(3, False, 4) == ((9 * 3) ** 2 + 8 * (34 + 3 * 35)) * size
    assert work.needed(3, False, 9) == ((9 * 3) ** 2 + 9 * (34 + 3 * 35)) * size
    assert work.needed(3, True) == (9**2 + 2 * (34 + 35)) * size
    assert work.needed(3, True, 4, at_once=2) == (9**2 + 8 * (34 + 2 * 35)) * size
    # The Jacobian: three times its columns, at most 256 at a time, and 24 times the largest parameter.
    rest = work_of(network, 9, by_layer=False, dtype=dtype)
    assert rest.sizes == type(rest.sizes)(13, 0, 0, patches=0, row=0)
    assert rest.needed(3, False) == ((9 * 3) ** 2 + 3 * 9 * 3 * 66) * size  # 35 + 7 + 21 + 3 parameters
    assert rest.needed(3, True) == (9**2 + 3 * 9 * 66) * size
    assert work_of(network, 1, by_layer=False, dtype=dtype).needed(1, False) == (1 + 24 * 35) * size
    wide = work_of(nn.Sequential(nn.Linear(5, 70, bias=False)), 50, by_layer=False, dtype=dtype)
    assert wide.needed(1, False) == (50**2 + 3 * 50 * 256) * size
    # Nothing is left to the Jacobian here: autograd saves 1 number and 1 more, and all other sizes are 1, but for 2 of
    # a row.
    assert work_of(nn.Sequential(nn.Linear(1, 1, bias=False)), 1, dtype=dtype).needed(1, False) == (1 + 11) * size


@pytest.mark.parametrize("folded", [False, True])
def test_samples_and_directions_are_halved_until_they_fit(folded):
    network = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 6))
    halves = [(9, 6), (9, 3), (9, 2), (9, 1), (5, 1), (3, 1), (2, 1), (1, 1)] if folded else None
    halves = halves or [(9, 6), (5, 6), (3, 6), (2, 6), (1, 6)]
    needed = [work_of(network, 9).needed(6, folded, samples, at_once=at_once) for samples, at_once in halves]
    for k, (plan, least) in enumerate(zip(halves, needed, strict=True)):
        if least < min([*needed[:k], 10**9]):
            assert work_of(network, 9, memory=least)._plan(6, folded) == plan
    with pytest.raises(ValueError, match=f"Expected `memory` >= {needed[-1]} bytes"):
        work_of(network, 9, memory=needed[-1] - 1)._plan(6, folded)


def test_what_is_left_of_the_memory_goes_to_the_products(monkeypatch):
    rooms, network = [], nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    for name in ("add_products", "add_jacobian_products"):
        monkeypatch.setattr(chunking, name, lambda *_, room, **__: rooms.append(room))
    work = work_of(network, 9, memory=10**6)
    work.kernel(None, folded=False)
    rows = 2 * 9 * 3 * 9  # of the weights' gradients, which are among what is needed
    assert rooms == [(10**6 - work.needed(3, False, 9)) // 4 + rows] * 2 + [10**6 // 4 - (9 * 3) ** 2]


@pytest.mark.parametrize(
    ("folded", "room", "expected"),
    [  # 3 (N Q, columns) at a time: first fewer directions, if they are summed, and then fewer of the 66 columns
        (True, 3 * 9 * 66 * 3, [(3, 66)]),
        (True, 3 * 9 * 66 * 2, [(2, 66), (1, 66)]),
        (True, 3 * 9 * 66 * 2 - 1, [(1, 66)] * 3),
        (True, 3 * 9 * 33, [(1, 33)] * 6),
        (False, 3 * 9 * 3 * 33, [(3, 33)] * 2),
        (False, 3 * 9 * 3 * 33 - 1, [(3, 32), (3, 32), (3, 2)]),
        (False, 1, [(3, 1)] * 66),
    ],
)
def test_as_much_of_the_jacobian_at_a_time_as_there_is_room_for(monkeypatch, folded, room, expected):
    network, x, found = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3)), torch.ones(9, 5), []

    def part(_, parameters, columns, directions, **kept):
        assert (kept["room"], kept["saved"]) == (room // 3, 0)
        assert all(0 <= start < stop <= parameters[name].numel() for name, start, stop in columns)
        found.append((len(directions), sum(stop - start for _, start, stop in columns)))
        return torch.ones(9, *found[-1])

    monkeypatch.setattr(jacobian, "_jacobian", part)
    kernel = torch.zeros(*[9 if folded else 27] * 2)
    jacobian.add_jacobian_products(kernel, network, dict(network.named_parameters()), x, torch.eye(3), room)
    assert found == expected
    assert torch.equal(kernel.tril(), torch.full_like(kernel, 66 * (3 if folded else 1)).tril())


@pytest.mark.parametrize(
    ("room", "expected"),
    [  # a sample takes 8 numbers for each of 35 parameters and 3 directions, and 4 of what autograd saves
        (9 * 892, [(9, 3)]),
        (2 * 892, [(2, 3)] * 4 + [(1, 3)]),
        (2 * 892 - 1, [(1, 3)] * 9),
        (2 * 280, [(1, 2), (1, 1)] * 9),  # of one sample, fewer directions
        (2 * 280 - 1, [(1, 1)] * 27),
        (1, [(1, 1)] * 27),
    ],
)
def test_as_many_samples_and_then_directions_as_there_is_room_for(monkeypatch, room, expected):
    network, x, found = nn.Linear(5, 7), torch.randn(9, 5), []
    whole = jacobian._together
    monkeypatch.setattr(
        jacobian, "_together", lambda *parts: found.append(tuple(map(len, parts[-2:]))) or whole(*parts)
    )
    arguments = (network, {"weight": network.weight}, [("weight", 0, 35)], x, torch.eye(7)[:3])
    rows = jacobian._jacobian(*arguments, room=room, saved=13, vectorize=True)
    assert found == expected
    torch.testing.assert_close(rows, torch.einsum("kl,ni->nkli", torch.eye(7)[:3], x).flatten(2))
    assert torch.equal(jacobian._jacobian(*arguments, room=room, saved=13, vectorize=False), rows)
    assert found == expected


def test_a_network_whose_outputs_are_0_has_a_kernel():
    layer, x = nn.Linear(2, 1, bias=False), torch.randn(3, 2)
    nn.init.zeros_(layer.weight)
    torch.testing.assert_close(neural_kernel_trace(layer, x), x @ x.T)


def least(function, network, x, by_layer):
    with pytest.raises(ValueError, match="Expected `memory` >= ") as error:
        function(network, x, memory=1, by_layer=by_layer)
    return int(str(error.value).split()[3])


@pytest.mark.parametrize("n", [1, 9])
def test_the_least_memory_is_that_of_one_sample_at_a_time(n):
    network, x, _ = build("mlp")
    work = KernelWork(network, x[:n], dict(network.named_parameters()), 1, by_layer=True, vectorize=True)
    for function, folded in ((neural_kernel, False), (neural_kernel_trace, True)):
        assert least(function, network, x[:n], by_layer=True) == work.needed(3, folded)


@pytest.mark.parametrize("sizes", [(1, 1, 5, 4), (3, 3, 5, 4), (2, 9, 3, 2), (2, 3, 50, 4)])
@pytest.mark.parametrize("room", [1, 500, 10**6])
def test_all_ways_to_a_product_agree(sizes, room):
    t, s, inner, out = sizes
    left = Factors(*(torch.randn(shape, dtype=torch.float64) for shape in ((10, 2, t, inner), (10, 3, 2, t, out))))
    right = Factors(*(torch.randn(shape, dtype=torch.float64) for shape in ((6, 2, s, inner), (6, 3, 2, s, out))))
    rows = [torch.einsum("ngti,nqgto->nqgoi", each.a, each.g).flatten(0, 1).flatten(1) for each in (left, right)]
    for other, gradient in ((right, rows[1]), (left, rows[0])):
        kernel = torch.zeros(30, len(gradient), dtype=torch.float64)
        add_products(kernel, left, other, room)
        if other is left:
            mirror(kernel)
        torch.testing.assert_close(kernel, rows[0] @ gradient.T)
    folded = torch.zeros(10, 6, dtype=torch.float64)
    add_products(folded, left.folded(), right.folded(), room)
    blocks = (rows[0] @ rows[1].T).view(10, 3, 6, 3)
    torch.testing.assert_close(folded, blocks.diagonal(dim1=1, dim2=3).sum(-1))


WAYS = {"weights": "_add_by_weights", "places": "_add_by_places", "sums": "_add_by_sums"}


def factors_of(n, m, t, s, q, inner, out):
    """Factors of one group, for n samples with t positions, and m samples with s positions."""
    return [
        Factors(torch.ones(rows, 1, places, inner), torch.ones(rows, q, 1, places, out))
        for rows, places in ((n, t), (m, s))
    ]


class Multiplications(TorchDispatchMode):
    """Their number."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if "mm" in name or name == "mul_":
            self.count += found.numel() * (args[-1].shape[-2] if "mm" in name else 1)
        return found


def multiplications(way, n, m, t, s, q, inner, out):
    left, right = factors_of(n, m, t, s, q, inner, out)
    with Multiplications() as counter:
        getattr(gram, WAYS[way])(torch.zeros(n * q, m * q), left, right, 0, 10**6)
    return counter.count


@pytest.fixture
def chosen(monkeypatch):
    """A function that returns the way to a product, and the rows or samples at a time, without the product."""
    calls = []
    for way, name in WAYS.items():
        monkeypatch.setattr(
            gram, name, partial(lambda way, *args, **rows: calls.append((way, [*args, *rows.values()][-1])), way)
        )

    def of(room, *sizes):
        calls.clear()
        add_products(torch.zeros(0), *factors_of(*sizes), room)
        return calls[-1]

    return of


def test_a_product_takes_the_way_of_the_fewest_multiplications(request):
    drawn = [[2, 5, 2, 1, 4, 2, 6], [1, 5, 2, 2, 2, 2, 1], [1, 2, 1, 2, 5, 1, 1], [5, 4, 3, 3, 2, 2, 3]]
    counts = [{way: multiplications(way, *sizes) for way in WAYS} for sizes in drawn]
    chosen = request.getfixturevalue("chosen")  # only now, since it takes the ways' place
    found = [chosen(10**9, *sizes)[0] for sizes in drawn]
    assert found == [min(count, key=count.get) for count in counts]
    assert set(found) == set(WAYS)


def test_a_way_is_open_from_the_room_on_that_one_sample_takes(chosen):
    # places: inner products of T inputs with M S inputs, and of Q T gradients with M Q S gradients
    n, m, t, s, q = 8, 3, 2, 5, 4
    sizes, least = (n, m, t, s, q, 50, 3), t * m * s + q * t * m * q * s
    assert [chosen(room, *sizes)[0] for room in (least - 1, least)] == ["weights", "places"]
    # sums: inner products of T inputs with M S inputs, and what fits the cache
    n, m, t, s, q = 8, 3, 2, 50, 2
    sizes, least = (n, m, t, s, q, 50, 30), t * m * s + gram._CACHED
    assert chosen(10**9, *sizes)[0] == "sums"
    assert [chosen(room, *sizes)[0] == "sums" for room in (least - 1, least)] == [False, True]


def test_as_many_rows_or_samples_at_a_time_as_there_is_room_for(chosen):
    # weights: for each row of the weight and each of (N + M) Q gradients, I numbers, and T or S of the factor g
    for t, s in ((7, 3), (3, 7)):
        sizes = (4, 6, t, s, 2, 5, 1)
        one = (4 + 6) * 2 * (5 + 7)
        for room, rows in ((0, 1), (2 * one - 1, 1), (2 * one, 2), (9 * one, 9)):
            assert chosen(room, *sizes) == ("weights", rows)
    # places: as in the test before, and no more than an eighth of the samples
    sizes, one = (80, 3, 1, 1, 4, 50, 3), 3 + 4 * 3 * 4
    assert [chosen(room, *sizes) for room in (one, 3 * one - 1, 3 * one, 99 * one)] == [
        ("places", count) for count in (1, 2, 3, 10)
    ]
    assert chosen(99 * one, 7, *sizes[1:]) == ("places", 1)


def test_it_is_symmetric_positive_and_grows_with_what_trains():
    network, x, _ = build("convolutions")
    kernel = neural_kernel(network, x)
    n, _, d, _ = kernel.shape
    torch.testing.assert_close(kernel, kernel.permute(1, 0, 3, 2))
    assert torch.linalg.eigvalsh(kernel.permute(0, 2, 1, 3).reshape(n * d, n * d)).min() > -1e-10 * kernel.max()
    head = network[-1].requires_grad_(False)
    body = neural_kernel(network, x)
    network.requires_grad_(False)
    head.requires_grad_(True)
    torch.testing.assert_close(body + neural_kernel(network, x), kernel)  # parts of the parameters add up


def test_a_sample_does_not_depend_on_the_others():
    network, x, _ = build("convolutions")
    kernel, order = neural_kernel(network, x), torch.tensor([3, 0, 4])
    torch.testing.assert_close(neural_kernel(network, x[order]), kernel[order][:, order])
    torch.testing.assert_close(neural_kernel(network, x[:1]), kernel[:1, :1])


def test_directions_are_a_basis_or_an_unbiased_estimate():
    network, x, _ = build("convolutions")
    kernel, trace = neural_kernel(network, x), neural_kernel_trace(network, x)
    turn = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    torch.testing.assert_close(neural_kernel_trace(network, x, directions=turn), trace)
    one = neural_kernel_trace(network, x, directions=turn[:2])
    torch.testing.assert_close(one, torch.einsum("ijkl,qk,ql->ij", kernel, turn[:2], turn[:2]) / 2)


def test_the_error_of_an_estimate_is_what_is_stated():
    d, q, draws = 6, 2, 20_000
    s = torch.randn(d, d, dtype=torch.float64)
    s = s + s.T
    v = torch.linalg.qr(torch.randn(draws, d, q, dtype=torch.float64)).Q
    estimate = torch.einsum("rkq,kl,rlq->r", v, s, v) / q
    variance = 2 * (d - q) * (d * s.square().sum() - s.trace() ** 2) / (q * (d - 1) * (d + 2)) / d**2
    assert estimate.mean().item() == pytest.approx(s.trace().item() / d, abs=4 * (variance / draws).sqrt().item())
    assert estimate.var().item() == pytest.approx(variance.item(), rel=0.05)


def test_outputs_move_under_gradient_flow_as_the_kernel_says():
    """zdot = -1/n sum_j K_ij g_j, g_j = n dL/dz_j, is the derivative of f(w - t dL/dw) in t."""
    network, x, _ = build("mlp")
    z = network(x)
    loss = z.square().sum(1).logsumexp(0) + (z @ z.T).tanh().sum()  # not a mean over samples
    flow = kernel_flow(neural_kernel(network, x), len(x) * torch.autograd.grad(loss, z, retain_graph=True)[0])
    names, parameters = zip(*network.named_parameters(), strict=True)
    step = torch.autograd.grad(loss, parameters)
    given = tuple(w.detach() for w in parameters)
    down = tuple(-g for g in step)
    expected = jvp(lambda *w: functional_call(network, dict(zip(names, w, strict=True)), (x,)), given, down)[1]
    torch.testing.assert_close(flow, expected)
    moved = {name: w - 1e-6 * g for name, w, g in zip(names, parameters, step, strict=True)}
    torch.testing.assert_close((functional_call(network, moved, (x,)) - z) / 1e-6, flow, rtol=1e-3, atol=1e-3)


class Largest(TorchDispatchMode):
    """The most numbers that a new tensor holds."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor):
            self.numbers = max(self.numbers, found.untyped_storage().nbytes() // found.element_size())
        return found


@pytest.mark.parametrize("by_layer", [True, False])
def test_it_never_holds_the_whole_jacobian(by_layer):
    network, x = MLPBackbone(10, [300, 300], 2), torch.randn(40, 10)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    memory = 9 * 2**20
    for function in (neural_kernel, neural_kernel_trace):
        with Largest() as largest:
            function(network, x, memory=memory, by_layer=by_layer)
        assert 4 * largest.numbers < memory < 4 * len(x) * parameters


def test_single_precision_is_exact_to_five_digits():
    network, x = SmallCNN(3, 16).eval(), torch.randn(6, 3, 16, 16)
    found, exact = neural_kernel(network, x), neural_kernel(network.double(), x.double())
    assert found.dtype == torch.float32
    assert (found - exact).abs().max() < 1e-5 * exact.abs().max()


def test_half_precision_adds_up_in_single():
    network, x = MLPBackbone(5, [8], 3), torch.randn(6, 5)
    exact = neural_kernel(network, x)
    for by_layer in (True, False):
        found = neural_kernel(network.bfloat16(), x.bfloat16(), by_layer=by_layer)
        assert found.dtype == torch.float32
        assert (found - exact).abs().max() < 0.05 * exact.abs().max()


def test_what_vmap_refuses_goes_sample_by_sample():
    network = Function(lambda f, x: f.a(x) if float(x.sum()) > 0 else 2 * f.a(x), a=nn.PReLU()).double()
    x = torch.tensor([[1.0, 2.0], [-1.0, -3.0]], dtype=torch.float64)
    wrapped = Function(lambda f, x: torch.stack([f.inner(point[None])[0] for point in x]), inner=network)
    with pytest.raises(RuntimeError, match="vmap"):
        neural_kernel(wrapped, x)
    for whole in (neural_kernel(wrapped, x, vectorize=False), slow_kernel(wrapped, x)):
        torch.testing.assert_close(whole[1, 1], 4 * x[1, :, None] * x[1])


def test_it_leaves_no_trace():
    network, x, _ = build("convolutions")
    network[0].train()
    network[-1].weight.grad = torch.ones_like(network[-1].weight)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    versions = [value._version for value in network.parameters()]
    modes, state = [module.training for module in network.modules()], torch.get_rng_state()
    with torch.inference_mode():
        kernel = neural_kernel(network, x.clone())
    assert not kernel.requires_grad
    assert not kernel.is_inference()
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in network.modules()] == modes
    assert [value._version for value in network.parameters()] == versions
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert [parameter.grad is None for parameter in network[-1].parameters()] == [False, True]
    assert not any(module._forward_hooks for module in network.modules())


def test_statistics_that_a_pass_would_move_stay():
    network = nn.Sequential(nn.Conv1d(2, 3, 2), nn.InstanceNorm1d(3, track_running_stats=True), nn.Flatten())
    neural_kernel(network, torch.randn(4, 2, 5))
    assert torch.equal(network[1].running_mean, torch.zeros(3))
    assert network[1].num_batches_tracked == 0


def test_a_compiled_network_is_the_one_inside():
    network, x, _ = build("mlp")
    torch.testing.assert_close(neural_kernel(torch.compile(network), x), neural_kernel(network, x))


def test_weights_that_are_not_finite_give_what_they_give():
    network, x, _ = build("mlp")
    with torch.no_grad():
        network[0].weight[0, 0] = torch.nan
    assert neural_kernel_trace(network, x).isnan().any()


def batch_mean(f, x):
    return f.a(x - x.mean(0))


BAD = {
    "Expected `x` of shape \\(n, ...\\) with n >= 1, but got \\(0, 5\\)": (lambda: nn.Linear(5, 2), torch.ones(0, 5)),
    "Expected `x` of shape \\(n, ...\\) with n >= 1, but got \\(\\)": (lambda: nn.Linear(5, 2), torch.tensor(1.0)),
    "Expected finite `x`": (lambda: nn.Linear(5, 2), torch.full((2, 5), torch.nan)),
    "parameters that require a gradient, but ReLU has none": (nn.ReLU, torch.ones(2, 5)),
    "kernel depends neither on chance nor on other samples, but got BatchNorm1d": (
        lambda: nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)), torch.ones(2, 5)),
    "with running statistics, .*, but got BatchNorm1d": (
        lambda: nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3, track_running_stats=False)).eval(), torch.ones(2, 5)),
    "depends neither on chance .* but got Dropout\\(p=0.5": (
        lambda: nn.Sequential(nn.Linear(5, 3), nn.Dropout()), torch.ones(2, 5)),
    "to map each sample by itself and without chance": (
        lambda: Function(batch_mean, a=nn.Linear(5, 2)), torch.arange(10.0).view(2, 5)),
    "to map each sample by itself and without chance, but the output of the first differs by": (
        lambda: Function(lambda f, x: torch.cat([f.a(x), batch_mean(f, x)], 1), a=nn.Linear(5, 2)),
        torch.arange(10.0).view(2, 5)),
    "without chance, but the output of the first differs": (
        lambda: Function(lambda f, x: f.a(x + torch.rand_like(x)), a=nn.Linear(5, 2)), torch.ones(1, 5)),
    "Expected `network` to return \\(N, D\\) for N = 2 samples, but got \\(2, 2, 3\\)": (
        lambda: nn.Sequential(nn.Linear(5, 6), nn.Unflatten(1, (2, 3))), torch.ones(2, 5)),
    "Expected `network` to return \\(N, D\\) for N = 2 samples, but got tuple": (
        lambda: Function(lambda f, x: (f.a(x), x), a=nn.Linear(5, 2)), torch.ones(2, 5)),
}  # fmt: skip


@pytest.mark.parametrize("function", [neural_kernel, neural_kernel_trace])
@pytest.mark.parametrize("message", BAD)
def test_bad_input(message, function):
    make, x = BAD[message]
    with pytest.raises(ValueError, match=message):
        function(make(), x)


def test_copies_of_a_network_have_the_same_kernel_to_the_last_bit():
    torch.manual_seed(0)
    network = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(7, 7), nn.Tanh())))
    x = torch.randn(9, 7)
    copies = [copy.deepcopy(network) for _ in range(10)]  # at other addresses, so with other identities
    kernels = [neural_kernel(each, x) for each in copies]
    assert all(torch.equal(kernel, kernels[0]) for kernel in kernels)


def test_too_little_memory_says_how_much_and_offers_the_contracted_form():
    network, x = MLPBackbone(8, [16], 8), torch.randn(100, 8)
    with pytest.raises(ValueError, match=r"`memory` >= \d+ bytes .* n = 100 samples and 8 outputs, but got 1000000"):
        neural_kernel(network, x, memory=10**6)  # the result alone takes 2.56 MB
    with pytest.raises(ValueError, match=r"neural_kernel_trace, its contracted form, takes \d+ bytes at least"):
        neural_kernel(network, x, memory=10**6)
    assert neural_kernel_trace(network, x, memory=10**6).shape == (100, 100)
    for memory in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="Expected `memory` > 0"):
            neural_kernel(network, x, memory=memory)


def test_directions_of_another_space():
    network, x, _ = build("mlp")
    for shape, message in (((2, 4), "d = 3"), ((3,), "d = 3"), ((0, 3), r"`directions` of at least 1 row, but got 0")):
        with pytest.raises(ValueError, match=f"Expected .*{message}"):
            neural_kernel_trace(network, x, directions=torch.ones(shape))


def test_a_flow_of_another_shape():
    with pytest.raises(ValueError, match=r"Expected `kernel` of shape \(n, n, d, d\)"):
        kernel_flow(torch.ones(2, 2, 3, 3), torch.ones(2, 2))
