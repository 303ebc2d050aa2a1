"""Equivariant convolutions: this package beside the published SESN code, ready-made filters, and escnn.

    git clone https://github.com/ISosnovik/sesn SESN
    python benchmarks/equivariant.py --sesn SESN [--rounds 7]
    PYTHONPATH=. python benchmarks/equivariant.py  # in the environment of the extra escnn

Scales: the network of Keller et al. for MNIST (lifting to 32 channels, kernel 11, effective size 11; 64 and 128
channels, kernel 7, effective size 3, stride 2; 6 scales), with BatchNorm and ReLU after each layer, and the three
convolutions alone. "Ready-made filters" are grouped convolutions with filters of full width that are the parameters
themselves: what the published code does but for the expansion of its weights in the basis. First all three must agree
on the same weights: outputs, and gradients of the weights, to 1e-5 of their norms (in double precision, as rounding
moves gradients by 1e-3 through the kinks of ReLU).

Quarter turns: a network of the same strides with kernels of 7 and full interaction of the 4 orientations, beside
escnn's R2Conv, InnerBatchNorm and ReLU of as many regular fields. Its filters are limited in frequency, so there the
weights differ and nothing but shapes and equivariance is checked. escnn needs an environment of its own; its part is
left out where it is missing, as the other is without `--sesn`.

Forward and backward from 29 x 29 images to gradients of all parameters, in training mode. Contestants take turns, so
that a busy machine disturbs all alike; a ratio is the median over the rounds of the ratios within a round.
"""

import argparse
import copy
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch
from machine import machine
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_ssl_geometry.nn.equivariant.layers import GroupBatchNorm, GroupConv2d, LiftingConv2d

SCALES = (1.0, 1.25, 1.33, 1.5, 1.66, 1.75)
OURS, AGAIN, TOLERANCE = "this package", "this package, `recompute`", 1e-5
GEOMETRY = ((11, 11, 1), (7, 3, 2), (7, 3, 2))  # kernel, effective size and stride of each layer


class ReadyMadeConv2d(nn.Module):
    """Filters (S, C_out, C_in, k, k) that are parameters, on maps (N, S C_in, H, W) or, lifting, (N, C_in, H, W)."""

    def __init__(self, filters: Tensor, stride: int, lifting: bool) -> None:
        super().__init__()
        self.groups, self.stride, self.padding = 1 if lifting else len(filters), stride, filters.shape[-1] // 2
        self.weight = nn.Parameter(filters.flatten(0, 1).contiguous())

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, None, self.stride, self.padding, groups=self.groups)


class PerScaleBatchNorm(nn.BatchNorm2d):
    """Batch norm of (N, S C, H, W) with statistics over the scales too."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.view(-1, self.num_features, *x.shape[2:])).view(x.shape)


def network(convs: list[nn.Module], norm: Callable[[int], nn.Module] | None, width: int, inplace: bool) -> nn.Module:
    """The convolutions, each followed by batch norm and ReLU if `norm` is given."""
    layers: list[nn.Module] = []
    for i, conv in enumerate(convs):
        layers += [conv] if norm is None else [conv, norm(width * 2**i), nn.ReLU(inplace)]
    return nn.Sequential(*layers)


def ours(width: int, norm: bool, recompute: bool = False) -> nn.Module:
    convs = [
        (LiftingConv2d if i == 0 else GroupConv2d)(
            c_in, width * 2**i, k, e, scales=SCALES, stride=stride, recompute=recompute
        )
        for i, (c_in, (k, e, stride)) in enumerate(zip((1, width, 2 * width), GEOMETRY, strict=True))
    ]
    return network(convs, GroupBatchNorm if norm else None, width, inplace=False)  # in place, a view costs a copy


def published(sesn: Path, width: int, norm: bool) -> nn.Module:
    sys.path.insert(0, str(sesn))
    from models.impl.ses_conv import SESConv_H_H, SESConv_Z2_H

    convs = []
    for i, (c_in, (k, e, stride)) in enumerate(zip((1, width, 2 * width), GEOMETRY, strict=True)):
        settings = {"scales": list(SCALES), "stride": stride, "padding": k // 2}
        reach = () if i == 0 else (1,)
        convs.append((SESConv_H_H if i else SESConv_Z2_H)(c_in, width * 2**i, *reach, k, e, **settings))
    return network(convs, nn.BatchNorm3d if norm else None, width, inplace=True)


def ready_made(model: nn.Module, width: int, norm: bool) -> nn.Module:
    """With the filters of our `model`, widened by zeros."""
    convs = []
    for i, conv in enumerate(m for m in model if hasattr(m, "filters")):
        wide = [F.pad(psi, [(conv.kernel_size - psi.shape[-1]) // 2] * 4) for psi in conv.filters()]
        convs.append(ReadyMadeConv2d(torch.stack(wide).detach(), conv.stride, lifting=i == 0))
    return network(convs, PerScaleBatchNorm if norm else None, width, inplace=True)


def scale_networks(sesn: Path, width: int, norm: bool) -> dict[str, nn.Module]:
    """The contestants with the same weights."""
    torch.manual_seed(0)
    own, theirs, again = ours(width, norm), published(sesn, width, norm), ours(width, norm, recompute=True)
    again.load_state_dict(own.state_dict())
    for mine, other in zip(own.parameters(), theirs.parameters(), strict=True):
        other.data.copy_(mine.data.view(other.shape))  # (O, I, F) as (O, I, 1, F)
    ready = ready_made(own, width, norm)
    return {OURS: own, AGAIN: again, "published code": theirs, "ready-made filters": ready}


def check_agreement(models: dict[str, nn.Module], x: Tensor) -> None:
    """Outputs of all, and gradients of those that have the same parameters."""
    models = {name: copy.deepcopy(model).double() for name, model in models.items()}
    z = {name: model(x.double()) for name, model in models.items()}
    weight = torch.randn_like(z[OURS])
    flat = weight.transpose(1, 2).flatten(1, 2)  # scales before channels
    close("outputs of the published code", z["published code"], z[OURS])
    close("outputs of ready-made filters", z["ready-made filters"], z[OURS].transpose(1, 2).flatten(1, 2))
    gradients = {
        name: torch.autograd.grad(z[name], list(model.parameters()), flat if z[name].ndim == 4 else weight)
        for name, model in models.items()
    }
    names = [name for name, _ in models[OURS].named_parameters()]
    for name, mine, other in zip(names, gradients[OURS], gradients["published code"], strict=True):
        close(f"gradients of {name}", other.view(mine.shape), mine)


def close(what: str, other: Tensor, expected: Tensor) -> None:
    error = ((other - expected).norm() / expected.norm()).item()
    if not error < TOLERANCE:
        raise SystemExit(f"{what}: relative error {error:.1e}, more than {TOLERANCE}")


def turn_networks(width: int) -> dict[str, nn.Module]:
    """Ours and escnn's, with as many regular fields of C4."""
    from lightning_ssl_geometry.nn.equivariant.escnn import EscnnCNN

    torch.manual_seed(0)
    convs: list[nn.Module] = [LiftingConv2d(1, width, 7, 3, rotations=4)]
    for c_in in (width, 2 * width):
        convs.append(GroupConv2d(c_in, 2 * c_in, 7, 3, rotations=4, rotation_size=4, stride=2))
    return {OURS: network(convs, GroupBatchNorm, width, inplace=False), "escnn": EscnnCNN(1, width, 4, (7, 7, 7))}


def check_turns(models: dict[str, nn.Module], x: Tensor) -> None:
    shapes = {name: tuple(model(x).shape) for name, model in models.items()}
    if len(set(shapes.values())) > 1:
        raise SystemExit(f"the outputs differ in shape: {shapes}")
    for name, model in models.items():
        close(f"a quarter turn, {name}", model(x.rot90(1, (-2, -1))), model(x).roll(1, 2).rot90(1, (-2, -1)))


def seconds(model: nn.Module, x: Tensor) -> float:
    """Of a forward and a backward pass."""
    begin = time.perf_counter()
    z = model(x)
    torch.autograd.grad(z, list(model.parameters()), torch.ones_like(z))
    return time.perf_counter() - begin


def kept(model: nn.Module, x: Tensor) -> int:
    """The bytes that a forward pass keeps for the backward pass, without the parameters."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    alive: list[Tensor] = []  # so that no address is taken twice
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: alive.append(tensor) or tensor, lambda tensor: tensor):
        model(x)
    sizes = {storage.data_ptr(): storage.nbytes() for storage in (tensor.untyped_storage() for tensor in alive)}
    return sum(size for at, size in sizes.items() if at not in own)


def compare(title: str, models: dict[str, nn.Module], x: Tensor, rounds: int) -> None:
    """Print a table: the median time, the median over rounds of the time over ours, and what is kept for backward."""
    for model in models.values():
        seconds(model, x)
    times = [{name: seconds(model, x) for name, model in models.items()} for _ in range(rounds)]
    print(f"\n| {title} | ms, median (range) | time / ours | MiB kept |\n| --- | ---: | ---: | ---: |")
    for name in models:
        taken = [1e3 * t[name] for t in times]
        ratio = statistics.median(t[name] / t[OURS] for t in times)
        spread = f"{statistics.median(taken):.0f} ({min(taken):.0f}-{max(taken):.0f})"
        print(f"| {name} | {spread} | {ratio:.2f} | {kept(models[name], x) / 2**20:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sesn", type=Path, help="folder of a clone of https://github.com/ISosnovik/sesn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--width", type=int, default=32, help="channels of the first layer of the scale network")
    parser.add_argument("--fields", type=int, default=16, help="regular fields of the first layer of the turn network")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")  # escnn's, about a package that it does without
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    x = torch.rand(options.batch, 1, 29, 29)
    print(machine("escnn", batch=options.batch))
    if options.sesn is None:
        print("\nThe published SESN code is left out: clone https://github.com/ISosnovik/sesn and name it with --sesn.")
    for norm in (True, False) if options.sesn else ():
        models = scale_networks(options.sesn, options.width, norm)
        check_agreement(models, x[:8])
        compare(f"6 scales, {'with BatchNorm and ReLU' if norm else 'convolutions alone'}", models, x, options.rounds)
    if find_spec("escnn") is None:
        print("\nescnn is left out: it is not installed in this environment.")
        return
    models = turn_networks(options.fields)
    check_turns(models, x[:8])
    compare("4 quarter turns, with BatchNorm and ReLU", models, x, options.rounds)


if __name__ == "__main__":
    main()
