import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.testing import assert_close

from lightning_ssl_geometry.nn import EquivariantCNN
from lightning_ssl_geometry.nn.equivariant import layers, separable
from lightning_ssl_geometry.nn.equivariant.basis import hermite_gaussian_basis, hermite_lines, supports
from lightning_ssl_geometry.nn.equivariant.layers import GroupBatchNorm, GroupConv2d, LiftingConv2d

PAPER = (1.0, 1.25, 1.33, 1.5, 1.66, 1.75)  # scales of Keller et al., Appendix B
LAYERS = (LiftingConv2d, GroupConv2d)


@pytest.fixture(params=["convolution", "weights first", "rows first"])
def product(request, monkeypatch):
    """How group convolutions are computed, whatever pays."""
    monkeypatch.setattr(layers, "pays", lambda *_, **__: request.param != "convolution")
    monkeypatch.setattr(
        separable, "_multiplications", lambda *_, **__: (0, 1) if request.param == "weights first" else (1, 0)
    )
    return request.param


@pytest.fixture
def double():
    """Modules made in double precision, whose basis is not rounded."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def slow_filter(layer, s, r, u, v):
    """psi^{(s, r)} at the pixel u below and v right of its centre, (C_out, C_in, ...), by the turned coordinates."""
    psi = hermite_gaussian_basis(layer.kernel_size, layer.effective_size, layer.scales)[s][0].numpy()
    for _ in range(r):
        u, v = v, -u
    half = supports(layer.kernel_size, layer.scales)[s] // 2
    inside = max(abs(u), abs(v)) <= half
    weight = layer.weight.detach().unflatten(-1, (-1, len(psi))).numpy()  # elements reached, functions
    return weight @ (psi[:, u + half, v + half] if inside else np.zeros(len(psi)))


def slow_convolution(layer, x):
    """Eq. 4 of Keller et al., z(g) = sum_h y(h) psi(g^-1 h), a loop over elements g and h of the whole group.

    An image is the same at all h of the group; g^-1 h is (s' - s) scales up, r' - r turns and a shift.
    """
    scales, rotations, half = len(layer.scales), layer.rotations, layer.kernel_size // 2
    mode = {"zeros": "constant", "circular": "wrap"}[layer.padding_mode]
    y = np.pad(x.numpy(), [(0, 0)] * (x.ndim - 2) + [(layer.padding,) * 2] * 2, mode=mode)
    height, width = (size - 2 * half for size in y.shape[-2:])
    z = []
    for s, r, u, v in itertools.product(*map(range, (scales, rotations, 2 * half + 1, 2 * half + 1))):
        if u == v == 0:
            z.append(0)
        moved = y[..., u : u + height : layer.stride, v : v + width : layer.stride]
        psi = slow_filter(layer, s, r, u - half, v - half)
        if x.ndim == 4:
            z[-1] += np.einsum("oi,nihw->nohw", psi[:, :, 0], moved)
            continue
        for to_s, to_r in itertools.product(range(s, min(s + layer.scale_size, scales)), range(rotations)):
            turns = (to_r - r) % rotations
            if turns < layer.rotation_size:
                h = to_s * rotations + to_r
                seen = psi[:, :, (to_s - s) * layer.rotation_size + turns]
                z[-1] += np.einsum("oi,nihw->nohw", seen, moved[:, :, h])
    bias = 0 if layer.bias is None else layer.bias.detach().numpy()[:, None, None, None]
    return torch.from_numpy(np.stack(z, axis=2) + bias)


def relative_error(z, expected):
    """Squared, as a number."""
    return ((z - expected).square().sum() / expected.square().sum()).item()


GEOMETRIES = [
    {"kernel_size": 5, "effective_size": 3},
    {"kernel_size": 5, "effective_size": 2, "stride": 2, "padding": 0, "bias": True},  # narrower supports are cropped
    {"kernel_size": 5, "effective_size": 3, "stride": 2, "padding": 1, "padding_mode": "circular"},  # cropped or padded
    {"kernel_size": 7, "effective_size": 2, "padding": 2, "padding_mode": "circular", "bias": True},
    {"kernel_size": 5, "effective_size": 4, "stride": 2, "padding": 3},  # padded by more than half
]


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize(("scales", "rotations"), [((1.0,), 1), ((1.0, 1.8), 4), (PAPER[::2], 1)])
def test_lifting_is_the_sum_over_the_group(double, geometry, scales, rotations):
    layer = LiftingConv2d(2, 3, scales=scales, rotations=rotations, **geometry)
    if layer.bias is not None:
        nn.init.normal_(layer.bias)
    x = torch.randn(2, 2, 9, 8)
    assert_close(layer(x), slow_convolution(layer, x), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize(
    ("scales", "rotations", "scale_size", "rotation_size"),
    [
        ((1.0,), 1, 1, 1),
        ((1.0,), 4, 1, 1),
        ((1.0,), 4, 1, 4),
        (PAPER[::2], 1, 1, 1),
        (PAPER[::2], 1, 2, 1),
        (PAPER[::2], 1, 3, 1),
        ((1.0, 1.8), 4, 1, 1),
        ((1.0, 1.8), 4, 2, 1),
        ((1.0, 1.8), 4, 1, 4),
        ((1.0, 1.8), 4, 2, 4),
    ],
)
def test_group_convolution_is_the_sum_over_the_group(
    double, product, geometry, scales, rotations, scale_size, rotation_size
):
    reach = {"scale_size": scale_size, "rotation_size": rotation_size}
    layer = GroupConv2d(2, 3, scales=scales, rotations=rotations, **reach, **geometry)
    if layer.bias is not None:
        nn.init.normal_(layer.bias)
    z = torch.randn(2, 2, len(scales) * rotations, 7, 8)
    assert_close(layer(z), slow_convolution(layer, z), rtol=1e-12, atol=1e-12)
    assert relative_error(layer(z), slow_convolution(layer, z)) < 1e-24


def network(scales, rotations, scale_size=1, rotation_size=1, mode="zeros", stride=2):
    shared = {"scales": scales, "rotations": rotations, "padding_mode": mode}
    reach = {"scale_size": scale_size, "rotation_size": rotation_size}
    return nn.Sequential(
        LiftingConv2d(1, 3, 7, 3, **shared),
        GroupBatchNorm(3),
        nn.ReLU(),
        GroupConv2d(3, 4, 5, 3, **shared, stride=stride),
        GroupBatchNorm(4),
        nn.ReLU(),
        GroupConv2d(4, 4, 5, 3, **shared, **reach, stride=stride, bias=True),
    )


def turned(z):
    """How a quarter turn of the image acts: on the maps, and one place along the orientations."""
    return z.unflatten(2, (-1, 4)).roll(1, dims=3).flatten(2, 3).rot90(1, (-2, -1))


@pytest.mark.parametrize(("scale_size", "rotation_size"), [(1, 1), (2, 1), (1, 4), (2, 4)])
@pytest.mark.parametrize("mode", ["zeros", "circular"])
def test_quarter_turns_are_exact_on_sizes_of_4k_plus_1(product, scale_size, rotation_size, mode):
    net = network((1.0, 1.5), 4, scale_size, rotation_size, mode).double()  # a float32 basis, and exact all the same
    for size in (13, 17):
        x = torch.randn(3, 1, size, size, dtype=torch.float64)
        for training in (True, False):  # the first pass also gives batch norm statistics for the second
            net.train(training)
            assert relative_error(net(x.rot90(1, (-2, -1))), turned(net(x))) < 1e-24
    even = torch.randn(3, 1, 14, 14, dtype=torch.float64)
    assert relative_error(net(even.rot90(1, (-2, -1))), turned(net(even))) > 1e-3


def test_circular_translations_by_the_total_stride_are_exact(product):
    net = network((1.0, 1.5), 4, 2, 4, "circular").double().eval()
    x = torch.randn(2, 1, 12, 16, dtype=torch.float64)
    for i, j in ((1, 0), (0, 3), (2, 1)):
        moved = net(x.roll((4 * i, 4 * j), (-2, -1)))
        assert relative_error(moved, net(x).roll((i, j), (-2, -1))) < 1e-24
    assert relative_error(net(x.roll(2, -1)), net(x)) > 1e-3


def waves(x, n=100, waves=20, frequency=0.3):
    """n images (n, 1, k, k): sums of plane waves of about this many radians per pixel, at coordinates x."""
    generator = torch.Generator().manual_seed(1)
    amplitude, phase = torch.randn(2, n, waves, 1, 1, generator=generator, dtype=torch.float64)
    k = frequency * torch.randn(n, waves, 2, generator=generator, dtype=torch.float64)
    angle = k[..., :1, None] * x[:, None] + k[..., 1:, None] * x
    return (amplitude * torch.cos(angle + 9 * phase)).sum(1, keepdim=True)


@pytest.mark.parametrize(
    ("kernel_size", "effective_size", "mean", "gain"),
    [
        (15, 3, 2e-7, 300_000),  # measured: mean 5.8e-8 beside 0.055 of a convolution at one scale, 950,000 times less
        (11, 3, 1e-3, 50),  # 5.0e-4 beside 0.055, 109 times
        (11, 11, 2.5e-2, 10),  # 0.012 beside 0.24, 20 times: the paper's first layer, whose high orders are cut off
        (7, 3, 3e-2, 1.3),  # 0.018 beside 0.030, 1.6 times: its others, whose supports end at 1.5 to 2 deviations
    ],
)
def test_lifting_scales_the_image(double, kernel_size, effective_size, mean, gain):
    """The squared relative error of z(s_i) of the image at s_i / s_j of its size, from z(s_j) of the image."""
    layer = LiftingConv2d(1, 8, kernel_size, effective_size, scales=PAPER, padding=0)
    x = torch.arange(kernel_size) - kernel_size // 2.0
    z = layer(waves(x))[..., 0, 0]  # at the centre, (N, C, S)
    errors, plain = [], []
    for i, j in itertools.combinations(range(len(PAPER)), 2):
        smaller = layer(waves(x * PAPER[j] / PAPER[i]))[..., 0, 0]
        errors.append(relative_error(smaller[:, :, i], z[:, :, j]))
        plain.append(relative_error(smaller[:, :, j], z[:, :, j]))
    print(
        kernel_size, effective_size, np.mean(errors), np.max(errors), np.mean(plain), np.mean(plain) / np.mean(errors)
    )
    assert np.mean(errors) < mean
    assert np.mean(errors) < np.mean(plain) / gain


def blobs(ratio, size=61):
    """Gaussian blobs (4, 1, size, size) of 3 to 6 pixels within 12 of the centre, then scaled about it."""
    generator = torch.Generator().manual_seed(1)
    centre, width, amplitude = torch.rand(3, 4, 12, 2, 1, generator=generator)
    x = (torch.arange(size) - size // 2) / ratio
    line = torch.exp(-((x - 24 * centre + 12) ** 2) / (2 * (3 + 3 * width) ** 2))  # (4, 12, 2, size)
    return torch.einsum("nb,nby,nbx->nyx", amplitude[..., 0, 0] - 0.5, line[:, :, 0], line[:, :, 1])[:, None]


@pytest.mark.parametrize(("scale_size", "bound"), [(1, 2e-4), (2, 5e-4)])
def test_a_network_scales_the_image(double, product, scale_size, bound):
    scales = (1.0, 1.5, 2.25)  # geometric: with 2/3 of its size an image is at s - 1 what it was at s
    lift, conv = (
        LiftingConv2d(1, 4, 15, 3, scales=scales),
        GroupConv2d(4, 4, 15, 3, scales=scales, scale_size=scale_size),
    )
    net = nn.Sequential(lift, nn.ReLU(), conv)
    z, smaller = net(blobs(1)), net(blobs(2 / 3))
    at = [slice(30 - step * 8, 31 + step * 8, step) for step in (3, 2)]  # pixels 3 k of one are 2 k of the other
    expected = z[:, :, 1, at[0], at[0]]
    assert relative_error(smaller[:, :, 0, at[1], at[1]], expected) < bound
    assert relative_error(smaller[:, :, 1, at[1], at[1]], expected) > 0.03  # a convolution at one scale
    z, smaller = (y[:, :, :, at[i], at[i]] for i, y in enumerate((z, smaller)))
    assert (relative_error(smaller[:, :, 1], z[:, :, 2]) < bound) == (scale_size == 1)  # 2 sees beyond the largest


CASES = [
    (LiftingConv2d, (2, 2, 3, 2), {"scales": (1.2,), "rotations": 4, "stride": 2, "bias": True}, (1, 2, 5, 5)),
    (LiftingConv2d, (1, 2, 5, 2), {"scales": (1.0, 1.4), "padding": 1, "padding_mode": "circular"}, (2, 1, 5, 6)),
    (GroupConv2d, (1, 2, 5, 2), {"scales": (1.0, 1.4), "scale_size": 2, "bias": True}, (1, 1, 2, 4, 4)),
    (GroupConv2d, (2, 1, 3, 2), {"scales": (1.2,), "rotations": 4, "rotation_size": 4, "stride": 2}, (1, 2, 4, 3, 3)),
]


@pytest.fixture(params=CASES, ids=["lift-turns", "lift-scales", "conv-scales", "conv-turns"])
def case(product, request):
    """A small layer and an input of it."""
    cls, sizes, options, shape = request.param
    return cls(*sizes, **options), torch.randn(shape)


def test_gradients(case):
    layer, x = case
    layer.double()
    names, values = zip(*layer.named_parameters(), strict=True)
    values = [value.detach().requires_grad_() for value in values]

    def call(x, *values):
        return functional_call(layer, dict(zip(names, values, strict=True)), x)

    assert torch.autograd.gradcheck(call, (x.double().requires_grad_(), *values))


def test_filters_are_expanded_once_a_call(case, product, monkeypatch):
    layer, x = case
    name = "filters" if isinstance(layer, LiftingConv2d) else "_filters_at"  # at each scale, where it is a convolution
    calls, expand = [], getattr(type(layer), name)
    monkeypatch.setattr(type(layer), name, lambda self, *scale: calls.append(scale) or expand(self, *scale))
    layer(x)
    scales = [(s,) for s in range(len(layer.scales))] if product == "convolution" else []
    assert calls == ([()] if name == "filters" else scales)


def test_autocast(case):
    layer, x = case
    with torch.autocast("cpu", torch.bfloat16):
        z = layer(x)
    assert z.dtype == torch.bfloat16  # with a bias or without, as of torch's convolutions
    assert relative_error(z.float(), layer(x)) < 1e-4
    z.float().sum().backward()
    assert {parameter.grad.dtype for parameter in layer.parameters()} == {torch.float32}


def test_copies_and_checkpoints(case):
    layer, x = case
    assert set(layer.state_dict()) == {"weight"} | ({"bias"} if layer.bias is not None else set())
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    other = copy.deepcopy(layer)
    other.reset_parameters()
    assert not torch.equal(other(x), layer(x))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))


def test_the_basis_follows_the_module(case):
    """`double()` keeps the basis as rounded to single precision; a layer made in double precision has more."""
    layer, x = case
    exact = hermite_gaussian_basis(layer.kernel_size, layer.effective_size, layer.scales, layer.rotations)
    doubled = copy.deepcopy(layer).double()
    if isinstance(layer, GroupConv2d):
        exact += hermite_lines(layer.kernel_size, layer.effective_size, layer.scales)
    bases = [buffer for buffer in doubled.buffers() if buffer.dtype != torch.int64]
    for basis, psi in zip(bases, exact, strict=True):
        assert basis.dtype == torch.float64
        assert torch.equal(basis, psi.float().double())
    assert relative_error(layer(x).double(), doubled(x.double())) < 1e-12
    assert {buffer.device.type for buffer in copy.deepcopy(layer).to("meta").buffers()} == {"meta"}


def test_weights_are_drawn_as_torch_does():
    for layer in (
        LiftingConv2d(3, 50, 5, 4),
        GroupConv2d(3, 50, 5, 4, scales=PAPER, rotations=4, scale_size=2, rotation_size=4),
    ):
        bound = layer.weight[0].numel() ** -0.5  # one over the root of the weights of an output
        assert 0.99 * bound < layer.weight.abs().max() <= bound


def test_repr_names_the_settings():
    assert "3, 4, kernel_size=5, effective_size=2, scales=(1.0,), rotations=4" in repr(
        LiftingConv2d(3, 4, 5, 2, scales=(1.0,), rotations=4)
    )


def kept(model, x):
    """The output, and the bytes that the backward pass needs beside the parameters."""
    own, seen = {p.untyped_storage().data_ptr() for p in model.parameters()}, {}

    def pack(tensor):
        alive.append(tensor)
        seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    alive = []
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        z = model(x)
    return z, sum(size for at, size in seen.items() if at not in own)


@pytest.mark.parametrize("group", ["scale", "rotation", "hue"])
def test_inner_maps_that_are_computed_again_take_no_memory_and_change_nothing(group, product):
    x = torch.rand(4, 3, 13, 13, requires_grad=True)
    found = {}
    for recompute in (False, True):
        torch.manual_seed(0)
        model = EquivariantCNN(3, 8, group, kernels="paper", recompute=recompute)
        z, size = kept(model, x)
        first = torch.autograd.grad(z.square().sum(), [x, *model.parameters()], create_graph=True)
        second = torch.autograd.grad(first[0].square().sum(), list(model.parameters()))
        found[recompute] = (z, *first, *second, *model.buffers()), size
    for again, once in zip(found[True][0], found[False][0], strict=True):
        assert torch.equal(again, once)
    assert found[True][1] < 0.9 * found[False][1]


BAD = [
    ({"in_channels": 0}, "`in_channels` to be an integer >= 1, but got 0"),
    ({"out_channels": 0}, "`out_channels` to be an integer >= 1, but got 0"),
    ({"stride": 0}, "`stride` to be an integer >= 1, but got 0"),
    ({"padding": -1}, "`padding` >= 0, but got -1"),
    ({"recompute": 1}, "`recompute` to be True or False, but got 1"),
    ({"padding_mode": "reflect"}, "`padding_mode` to be one of .'zeros', 'circular'., but got 'reflect'"),
    ({"kernel_size": 4}, "`kernel_size` odd and >= 1, but got 4"),
    ({"effective_size": 6}, r"`effective_size` in \[1, 5\], but got 6"),
    ({"scales": (1.5, 1.0)}, "`scales` in ascending order"),
    ({"scales": (0.4, 1.0)}, "`scales` >= 0.5, .* but got 0.4"),
    ({"rotations": 0}, "`rotations` to be an integer >= 1, but got 0"),
    ({"basis_type": "C"}, "`basis_type` to be one of .'A', 'B', 'fitted'., but got 'C'"),
    ({"basis_type": "fitted", "rotations": 8}, "`rotations` 1, 2 or 4 for `basis_type` = 'fitted', but got 8"),
    ({"orientation": "flip"}, "`orientation` to be one of .'rotation', 'dihedral', 'hue'., but got 'flip'"),
    ({"scales": (1.0, 3.0)}, "`kernel_size` >= 7 for `effective_size` > 1, but got 5, which leaves 1 pixel"),
]


@pytest.mark.parametrize(
    ("cls", "arguments", "message"),
    [
        *[(cls, *row) for cls in LAYERS for row in BAD],
        (GroupConv2d, {"scales": (1.0, 1.5), "scale_size": 3}, "`scale_size` from 1 to 2, the scales, but got 3"),
        (GroupConv2d, {"scales": (1.0, 1.5), "scale_size": 0}, "`scale_size` from 1 to 2, the scales, but got 0"),
        (GroupConv2d, {"rotations": 4, "rotation_size": 2}, "`rotation_size` to be 1 or `rotations` = 4, but got 2"),
    ],
)
def test_bad_arguments(cls, arguments, message):
    with pytest.raises(ValueError, match=message):
        cls(**{"in_channels": 1, "out_channels": 1, "kernel_size": 5, "effective_size": 3} | arguments)


def test_bad_shapes():
    lift, conv = LiftingConv2d(2, 3, 5, 3), GroupConv2d(2, 3, 5, 3, scales=(1.0, 1.5), rotations=4)
    for shape in ((2, 1, 9, 9), (2, 9, 9), (1, 2, 8, 9, 9)):
        with pytest.raises(ValueError, match=r"`x` of shape \(N, 2, H, W\), but got \(" + str(shape[0])):
            lift(torch.zeros(shape))
    for shape in ((2, 2, 4, 9, 9), (2, 3, 8, 9, 9), (2, 2, 9, 9)):
        with pytest.raises(ValueError, match=r"`z` of shape \(N, 2, 8, H, W\), but got \(2, "):
            conv(torch.zeros(shape))
