"""A batch in chunks: the loss, the gradient and the running statistics of the plain step, in the memory of a chunk."""

import copy
import random
import weakref

import pytest
import torch
from hosts import quiet
from small_methods import METHODS, SGD, data
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import DataLoader

from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.distributed import all_reduce_mean
from lightning_ssl_geometry.methods import BYOLModule, CRLTACModule, HSSLModule, SimCLRModule
from lightning_ssl_geometry.methods.chunks import in_chunks, kept_buffers
from lightning_ssl_geometry.nn import MLPProjector
from lightning_ssl_geometry.views import CropFamily

SIDE = 8


def encoder():
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 12), nn.LayerNorm(12), nn.GELU(), nn.Linear(12, 6))


def maps():
    """A backbone whose output has places, (N, C, H, W)."""
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.GELU(), nn.Conv2d(4, 6, 3))


def head():
    return MLPProjector(6, 5, 4)  # has batch norm, which sees the whole batch


ON_FIBERS = {"mode": "h-ssl", "group": "translation"}


@pytest.fixture(scope="module")
def given():
    """A batch of digits in float64, with its views."""
    digits = data(30)
    digits.prepare_data()
    digits.setup("fit")
    batch = digits.on_after_batch_transfer(next(iter(digits.train_dataloader())), 0)
    views = tuple(view.double() for view in batch["views"])
    return {"views": views, "label": batch["label"], "index": batch["index"]}


def made(method, chunk_size=None):
    module = METHODS[method]().double().train()
    module.chunk_size = chunk_size
    return module


def gradients(module, given):
    found = module.step(given)
    found["loss"].backward()
    names = {name: parameter.grad for name, parameter in module.named_parameters() if parameter.grad is not None}
    return found["loss"].detach(), names


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1, 7, 20, 100])
def test_loss_and_gradient_are_those_of_the_plain_step(method, size, given):
    module, plain = made(method, size), made(method)
    loss, found = gradients(module, given)
    expected, wanted = gradients(plain, given)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    assert set(found) == set(wanted)
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-12)
    for (name, one), other in zip(module.named_buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12, msg=name)


class Wide(nn.Module):
    """Keeps activations that are much larger than its input, and counts their rows while they live."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 300, dtype=torch.float64))
        self.rows = self.most = 0

    def forward(self, x):
        wide = (x @ self.weight).exp()
        self.rows += len(x)
        self.most = max(self.most, self.rows)
        weakref.finalize(wide.untyped_storage(), self.forget, len(x))
        return wide.sin().sum(1, keepdim=True) * wide.mean(1, keepdim=True)

    def forget(self, count):
        self.rows -= count


@pytest.mark.parametrize(("size", "most"), [(4, 8), (16, 32), (64, 64)])
def test_the_activations_of_one_chunk_are_alive_at_a_time(size, most):
    network, x = Wide(), torch.rand(64, 4, dtype=torch.float64) / 100
    y = in_chunks(network, x, size)
    assert network.rows == 0  # between the passes there are none
    y.square().sum().backward()
    assert network.most <= most  # of one chunk, and of the next before the first is freed
    plain = Wide()
    plain(x).square().sum().backward()
    assert plain.most == 64
    torch.testing.assert_close(network.weight.grad, plain.weight.grad, rtol=1e-10, atol=1e-12)


def test_dropout_has_the_same_masks_in_both_passes():
    network = nn.Sequential(nn.Linear(6, 400), nn.Dropout(0.5)).double()
    x = torch.rand(12, 6, dtype=torch.float64)
    torch.manual_seed(3)
    y = in_chunks(network, x, 5)
    y.sum().backward()
    # The bias's gradient is twice the number of rows whose output was kept.
    assert torch.equal(network[0].bias.grad, 2.0 * (y != 0).sum(0))


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_sees_each_chunk_once(momentum):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=momentum)).double()
    plain = copy.deepcopy(network)
    x = torch.rand(12, 3, dtype=torch.float64)
    in_chunks(network, x, 4).square().sum().backward()
    torch.cat([plain(part) for part in x.split(4)]).square().sum().backward()
    for (name, one), other in zip(network.named_buffers(), plain.buffers(), strict=True):
        assert torch.equal(one, other), name
    torch.testing.assert_close(network[0].weight.grad, plain[0].weight.grad, rtol=1e-12, atol=1e-12)


def test_layers_whose_output_depends_on_buffers_that_they_change():
    """Spectral norm takes a step of a power iteration in each forward pass of training."""
    torch.manual_seed(0)
    network = nn.Sequential(spectral_norm(nn.Linear(3, 4)), nn.Tanh()).double()
    plain = copy.deepcopy(network)
    x = torch.rand(12, 3, dtype=torch.float64)
    y = in_chunks(network, x, 4)
    y.square().sum().backward()
    torch.cat([plain(part) for part in x.split(4)]).square().sum().backward()
    for (name, one), other in zip(network.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-10, atol=1e-12, msg=name)
    for (name, one), other in zip(network.named_buffers(), plain.named_buffers(), strict=True):
        assert torch.equal(one, other[1]), name


def same_as_the_loop(network, x, size=4):
    """The gradient and the buffers are those of a plain call for each chunk."""
    plain = copy.deepcopy(network)
    torch.manual_seed(5)
    random.seed(5)
    in_chunks(network, x, size).square().sum().backward()
    torch.manual_seed(5)
    random.seed(5)
    chunks = x.tensor_split(-(-len(x) // size))
    torch.cat([plain(part.clone()) for part in chunks]).square().sum().backward()
    for (name, one), other in zip(network.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-10, atol=1e-12, msg=name)
    for (name, one), other in zip(network.named_buffers(), plain.buffers(), strict=True):
        assert torch.equal(one, other), name


class Stateful(nn.Module):
    """Its output depends on buffers that change in ways that torch does not count."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.linear = kind, nn.Linear(3, 3)
        self.register_buffer("scale", torch.ones(3))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("variance", torch.ones(3))
        self.register_buffer("calls", torch.zeros(()))
        self.same = nn.Module()
        self.same.register_buffer("scale", self.scale)

    def forward(self, x):
        x = self.linear(x)
        if self.kind == "in data":
            self.scale.data.mul_(1.5)
        elif self.kind == "another tensor":
            self.scale.data = self.scale.data * 1.5
        elif self.kind == "shared":
            self.same.scale.mul_(1.5)
        elif self.kind == "every second call":
            self.calls += 1
            if self.calls % 2 == 0:
                self.scale.mul_(1.5)
        elif self.kind == "batch norm by function":
            x = nn.functional.batch_norm(x, self.mean, self.variance, training=True)
        elif self.kind == "layer drop":
            x = x * float(random.random() < 0.5)
        elif self.kind == "default dtype":
            x = x * torch.linspace(0.5, 1, 3)
        elif self.kind == "in place":
            return x.sub_(1).tanh()
        return (x * self.scale.clone()).tanh()  # a later call may change it before the backward pass


KINDS = ["in data", "another tensor", "shared", "every second call", "batch norm by function", "layer drop", "in place"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_second_pass_has_the_state_of_the_first(kind):
    torch.manual_seed(0)
    same_as_the_loop(Stateful(kind).double(), torch.rand(14, 3, dtype=torch.float64))


def test_buffers_that_layers_share_are_kept_as_one():
    network = Stateful("shared")
    with kept_buffers(network):
        network(torch.rand(2, 3))
        assert torch.equal(network.scale, torch.full((3,), 1.5))
    assert torch.equal(network.scale, torch.ones(3))


def test_the_default_dtype_of_the_first_pass():
    """Lightning sets it for a step with the precision "64-true", and not for the backward pass."""
    network = Stateful("default dtype").double()
    torch.set_default_dtype(torch.float64)
    try:
        y = in_chunks(network, torch.rand(6, 3), 4)
    finally:
        torch.set_default_dtype(torch.float32)
    y.sum().backward()
    assert torch.get_default_dtype() == torch.float32


def test_several_backward_passes_through_one_graph():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh()).double()
    x, weight = torch.rand(9, 3, dtype=torch.float64), network[0].weight

    def gradients(y):
        first, second = (torch.autograd.grad(y[:, k].sum(), weight, create_graph=True)[0] for k in (0, 1))
        (again,) = torch.autograd.grad(first.square().sum() + second.square().sum(), weight)
        return first, second, again

    for found, expected in zip(gradients(in_chunks(network, x, 4)), gradients(network(x)), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_no_chunk_is_much_smaller_than_the_others():
    """Batch norm needs two rows."""
    sizes, network = [], nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    network[0].register_forward_hook(lambda _, args, __: sizes.append(len(args[0])))
    in_chunks(network, torch.rand(13, 3), 4)
    assert sizes == [4, 3, 3, 3]


class Synchronised(nn.Module):
    def forward(self, x):
        return x - all_reduce_mean(x.mean(0))


def uneven(process):
    network = nn.Sequential(nn.Linear(3, 4), Synchronised())
    y = in_chunks(network, torch.rand(16 - 4 * process, 3), 4)
    y.square().sum().backward()
    return len(y)


def test_processes_with_batches_of_other_sizes_have_as_many_chunks(two_processes):
    assert two_processes(uneven) == [16, 12]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda x: (x, x), "to return a tensor beside `chunk_size`, but got tuple"),
        (lambda x: x.sum(), r"to return 3 rows for 3 rows beside `chunk_size`, but got shape \(\)"),
        (lambda x: x[:2], r"to return 3 rows for 3 rows beside `chunk_size`, but got shape \(2, 3\)"),
    ],
)
def test_a_backbone_without_rows_is_named(output, message):
    class Wrong(nn.Module):
        def forward(self, x):
            return output(x)

    with pytest.raises(ValueError, match=message):
        in_chunks(Wrong(), torch.rand(6, 3), 3)


def test_frozen_batch_norm_is_not_changed():
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double()
    network[1].eval()
    before = copy.deepcopy(network[1].state_dict())
    in_chunks(network, torch.rand(12, 3, dtype=torch.float64), 4).sum().backward()
    assert all(torch.equal(value, before[name]) for name, value in network[1].state_dict().items())


@pytest.mark.parametrize("chunk_size", [1, 3])
def test_training_gets_the_batch_in_chunks_and_validation_as_a_whole(given, chunk_size):
    module, sizes, rows = made("simclr", chunk_size), [], 2 * len(given["index"])
    module.backbone.register_forward_hook(lambda _, args, __: sizes.append(len(args[0])))
    module.step(given)
    assert max(sizes) == chunk_size
    assert sum(sizes) == rows
    for gradient in (False, True):
        sizes.clear()
        with torch.set_grad_enabled(gradient):
            module.eval().step(given)
        assert sizes == [rows]


def test_batch_norm_in_the_backbone_is_warned_of(tmp_path):
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 6), nn.BatchNorm1d(6))
    for make in (SimCLRModule, BYOLModule):
        heads = (head(), nn.Linear(4, 4)) if make is BYOLModule else (head(),)
        module = make(backbone, *heads, chunk_size=8)
        with pytest.warns(UserWarning, match=r"statistics from each chunk of 8 rows.*BatchNorm1d"):
            quiet(tmp_path, max_steps=1, limit_val_batches=0).fit(module, DigitsDataModule(batch_size=32, subset=64))


def test_a_fit_ends_with_the_same_weights(tmp_path):
    """Training from Lightning, with the encoder's phase and the policy's of CRL-TAC."""
    found = []
    for size in (None, 9):
        torch.manual_seed(0)
        family = CropFamily(SIDE, 6, 2)
        policy = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, len(family)))
        backbone = nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.GELU(), nn.Linear(12, 6))
        module = CRLTACModule(backbone, nn.Linear(6, 4), family, policy, draws=3, chunk_size=size)
        data = DigitsDataModule(batch_size=32, subset=128, val_fraction=0.25, seed=0)
        quiet(tmp_path, max_epochs=2, limit_val_batches=0).fit(module, datamodule=data)
        found.append({name: value.clone() for name, value in module.state_dict().items()})
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("size", [0, -1, 2.5, "8", True])
def test_a_chunk_has_at_least_one_row(size):
    assert SimCLRModule(encoder(), head(), chunk_size=1).chunk_size == 1
    with pytest.raises(ValueError, match="`chunk_size`"):
        SimCLRModule(encoder(), head(), chunk_size=size)


def test_gradient_isolated_blocks_and_chunks_exclude_each_other():
    with pytest.raises(ValueError, match=r"`chunk_size`.*`blocks`"):
        HSSLModule(maps(), **ON_FIBERS, projector=head(), blocks=["0"], heads=[nn.Linear(4, 4)], chunk_size=4)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's own
def test_a_compiled_module_trains_in_chunks(tmp_path):
    def weights(compiled):
        torch.manual_seed(0)
        torch.compiler.reset()
        model = SimCLRModule(nn.Linear(5, 4), nn.Linear(4, 2), chunk_size=4, optimizer=SGD, warmup_epochs=0)
        batches = [{"views": tuple(torch.randn(2, 6, 5)), "index": torch.arange(6)} for _ in range(3)]
        trainer = quiet(tmp_path / str(compiled), max_epochs=1)
        trainer.fit(torch.compile(model, backend="eager") if compiled else model, DataLoader(batches, batch_size=None))
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    torch.testing.assert_close(weights(True), weights(False))
