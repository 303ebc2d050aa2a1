"""Scale equivariance with sampled filters beside fitted ones, of one layer and of an untrained network.

    python benchmarks/discrete_basis.py --root FOLDER [--images 100]

`FOLDER` has MNIST/raw as torchvision lays it out. Sosnovik et al., DISCO: accurate Discrete Scale Convolutions (2021),
choose filters so that the convolution commutes with a resampling of the image. Here the filters of the largest scale
are sampled, and those of each smaller scale are fitted: the response of the large filter to an image, made smaller,
should be the response of the small filter to the smaller image. Fitted "to images" are the least squares solution for
some images, pixel by pixel. Fitted "in lines" is `basis_type="fitted"` of the package, which needs no images. The error
is squared and relative, for each of the nine functions and each pair of scales, on other images.

The network is EquivariantCNN with batch norm's statistics of these images: the equivariance error of its output
(functional.groups.equivariance.equivariance_error, mean over pairs of scales and seeds), and the time of a forward and
backward pass as a multiple of the first row's, the median of interleaved rounds.
"""

import argparse
import time
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch
from machine import machine
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl_geometry.data import MNISTDataModule
from lightning_ssl_geometry.functional.groups.action import rescale
from lightning_ssl_geometry.functional.groups.equivariance import equivariance_error
from lightning_ssl_geometry.nn.equivariant.backbones import EquivariantCNN
from lightning_ssl_geometry.nn.equivariant.basis import hermite_gaussian_basis, supports

SCALES = (1.0, 1.25, 1.33, 1.5, 1.66, 1.75)
ROOM = 9  # pixels around a digit, so that no filter of 15 pixels reaches beyond the image
WIDTH, SEEDS, TIMED = 8, range(5), 32  # of the networks; images of a timed step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True)
    parser.add_argument("--images", type=int, default=100, help="for the fit; as many others for the error")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    for name in ("images", "rounds"):
        if getattr(options, name) < 1:
            parser.error(f"argument --{name}: Expected a number >= 1, but got {getattr(options, name)}.")
    data = MNISTDataModule(options.root, batch_size=2 * options.images)
    image = next(iter(data.unaugmented_dataloader("test")))["image"]
    fitting, judging = F.pad(image[:, :1].double() / 255, [ROOM] * 4).chunk(2)
    print(machine())
    print("| kernel, orders | widths, pixels | filters | error, mean | largest |\n| --- | --- | --- | ---: | ---: |")
    for kernel, orders in ((7, 3), (11, 3), (15, 3)):
        sampled = [filters[0] for filters in hermite_gaussian_basis(kernel, orders, SCALES)]
        lines = [filters[0] for filters in hermite_gaussian_basis(kernel, orders, SCALES, basis_type="fitted")]
        kinds = {"sampled": sampled, "fitted to images": fitted(sampled, fitting), "fitted in lines": lines}
        for name, filters in kinds.items():
            found = errors(filters, judging)
            widths = ", ".join(map(str, supports(kernel, SCALES)))
            print(f"| {kernel}, {orders} | {widths} | {name} | {found.mean():.4f} | {found.max():.4f} |", flush=True)
    image = F.pad(image[:, :1].float() / 255, [0, 1, 0, 1])
    networks(image[len(image) // 2 :], options.rounds)


def networks(image: Tensor, rounds: int) -> None:
    """Print the table of untrained networks."""
    made = {
        (kernel, strides, kind): [network(kernel, strides, kind, seed=seed) for seed in SEEDS]
        for kernel in (7, 9, 11, 15)
        for strides in ((1, 2, 1), (1, 1, 1))
        for kind in ("A", "fitted")
    }
    times = {key: [] for key in made}
    for _ in range(rounds):
        for key, found in made.items():
            times[key].append(step(found[0], image[:TIMED]))
    first = np.array(times[next(iter(times))])
    print("\n| kernel | strides | basis | error of the output, mean ± sd | step |\n| ---: | --- | --- | ---: | ---: |")
    for (kernel, strides, kind), found in made.items():
        error = [of_network(each, image) for each in found]
        ratio = np.median(np.array(times[kernel, strides, kind]) / first)
        said = f"{np.mean(error):.4f} ± {np.std(error, ddof=1):.4f} | {ratio:.2f}"
        print(f"| {kernel} | {', '.join(map(str, strides))} | {kind} | {said} |", flush=True)


def network(kernel: int, strides: tuple[int, ...], kind: str, *, seed: int) -> EquivariantCNN:
    torch.manual_seed(seed)
    layers = tuple((kernel, 3, stride) for stride in strides)
    return EquivariantCNN(width=WIDTH, group="scale", kernels=layers, basis_type=kind)


def step(made: EquivariantCNN, image: Tensor) -> float:
    """Seconds of a forward and backward pass."""
    made.train()
    start = time.perf_counter()
    made(image).square().mean().backward()
    return time.perf_counter() - start


@torch.no_grad()
def of_network(made: EquivariantCNN, image: Tensor) -> float:
    made.train()
    for norm in made.modules():
        if hasattr(norm, "momentum"):
            norm.reset_running_stats()
            norm.momentum = None  # the mean over the batches below
    for batch in image.split(TIMED):
        made(batch)
    return float(equivariance_error(made.eval(), image, "scale")["output"].mean())


def respond(x: Tensor, filters: Tensor) -> Tensor:
    """Responses (N, E, H, W) of E filters to images (N, 1, H, W)."""
    return F.conv2d(x, filters[:, None], padding=filters.shape[-1] // 2)


def smaller(x: Tensor, factor: float) -> Tensor:
    """Images or responses (N, E, H, W), made smaller about their middle."""
    return rescale(x.flatten(0, 1)[:, None], factor).view_as(x)


def fitted(sampled: Sequence[Tensor], x: Tensor) -> list[Tensor]:
    """The filters of the largest scale, and for each smaller scale those whose responses are nearest to theirs."""
    response, filters = respond(x, sampled[-1]), []
    for scale, like in zip(SCALES[:-1], sampled[:-1], strict=True):
        factor, width = scale / SCALES[-1], like.shape[-1]
        patches = F.unfold(smaller(x, factor), width, padding=width // 2)  # (N, width^2, H W)
        wanted = smaller(response, factor).flatten(2)
        gram = torch.einsum("nkp,nlp->kl", patches, patches)
        gram += 1e-9 * gram.diag().mean() * torch.eye(len(gram), dtype=gram.dtype)  # corners that are always black
        solution = torch.linalg.solve(gram, torch.einsum("nkp,nep->ke", patches, wanted))
        filters.append(solution.T.reshape(like.shape))
    return [*filters, sampled[-1]]


def errors(filters: Sequence[Tensor], x: Tensor) -> Tensor:
    """The error of each function for each pair of scales, (pairs, E)."""
    found = []
    for a, b in combinations(range(len(SCALES)), 2):
        factor = SCALES[a] / SCALES[b]
        wanted, got = smaller(respond(x, filters[b]), factor), respond(smaller(x, factor), filters[a])
        found.append((got - wanted).square().sum((0, 2, 3)) / wanted.square().sum((0, 2, 3)))
    return torch.stack(found)


if __name__ == "__main__":
    main()
