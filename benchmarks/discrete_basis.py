"""Scale equivariance of the first layer's filters: sampled Hermite functions beside filters fitted to pairs of scales.

    python benchmarks/discrete_basis.py --root FOLDER [--images 100]

`FOLDER` has MNIST/raw as torchvision lays it out. Sosnovik et al., DISCO: accurate Discrete Scale Convolutions (2021),
choose filters so that the convolution commutes with a resampling of the image. Here the filters of the largest scale
are sampled, and those of each smaller scale are the least squares solution, pixel by pixel: the response of the large
filter to an image, made smaller, should be the response of the small filter to the smaller image. The error is squared
and relative, for each of the nine functions and each pair of scales. Filters are fitted to some images and measured on
others.
"""

import argparse
from collections.abc import Sequence
from itertools import combinations

import torch
from machine import machine
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl_geometry.data import MNISTDataModule
from lightning_ssl_geometry.functional.groups.action import rescale
from lightning_ssl_geometry.nn.equivariant.basis import hermite_gaussian_basis, supports

SCALES = (1.0, 1.25, 1.33, 1.5, 1.66, 1.75)
ROOM = 9  # pixels around a digit, so that no filter of 15 pixels reaches beyond the image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True)
    parser.add_argument("--images", type=int, default=100, help="for the fit; as many others for the error")
    options = parser.parse_args()
    data = MNISTDataModule(options.root, batch_size=2 * options.images)
    image = next(iter(data.unaugmented_dataloader("test")))["image"]
    fitting, judging = F.pad(image[:, :1].double() / 255, [ROOM] * 4).chunk(2)
    print(machine())
    print("| kernel, orders | widths, pixels | filters | error, mean | largest |\n| --- | --- | --- | ---: | ---: |")
    for kernel, orders in ((7, 3), (11, 3), (15, 3)):
        sampled = [filters[0] for filters in hermite_gaussian_basis(kernel, orders, SCALES)]
        for name, filters in (("sampled", sampled), ("fitted", fitted(sampled, fitting))):
            found = errors(filters, judging)
            widths = ", ".join(map(str, supports(kernel, SCALES)))
            print(f"| {kernel}, {orders} | {widths} | {name} | {found.mean():.4f} | {found.max():.4f} |", flush=True)


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
