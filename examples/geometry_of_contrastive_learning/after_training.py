"""What is measured on the encoders of finished runs: other views and pools of negatives, and projectors trained alone.

`pools` asks how the distances of h1 and h2 to the hardest negative, and how often it has the same label, depend on the
views (those of the run, those of the moderate policy, clean images) and on the number of samples among which it is
sought, before and after training. `spread` asks how many directions of h the augmentations of each policy span, behind
every encoder, and the displacements between samples. `alone` trains a new projector behind each encoder, once with each
policy; only the policy differs then, and h stands still.
`regions` trains small MLPs there with the encoder's own policy, and counts the regions of their partitions (Eq. 11): so
small that many samples share a region. `spans` trains projectors there with augmentations that are made in h, in a
subspace of known dimension and of known length (Prop. 4.2). `generators` fits generators (Prop. 4.3) to transformations
of several strengths. Each encoder's rows are written to a file of their own, so that an interrupted
command can be started again, and `--jobs` encoders are measured at a time.
"""

import argparse
import csv
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from recipe import each, markdown, mean_statistics, network_of, over_seeds, processes, read, write
from torch import Tensor, nn

from lightning_ssl_geometry.data import ImageDataModule
from lightning_ssl_geometry.diagnostics import (
    HardestNegativeDistance,
    LabelAgreement,
    NullSpaceFraction,
    PolicyGenerators,
    ProjectorGain,
)
from lightning_ssl_geometry.diagnostics.policy_generators import STRENGTHS as ACTIONS
from lightning_ssl_geometry.functional import effective_rank, hardest_negative, info_nce, linear_regions
from lightning_ssl_geometry.functional.neighbors import normalized_distance
from lightning_ssl_geometry.functional.spectrum import singular_values_effective_rank, singular_values_rank
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import MLPProjector
from lightning_ssl_geometry.views import SimCLRViews

STRENGTHS = ("small", "moderate", "large")
POOLS = {"laptop": (128, 512, 2048), "smoke": (16, 40)}
SAMPLES = {"laptop": 4096, "smoke": 40}  # of the validation split; the pools are parts of them
CALIBRATION = 1024  # training images, at most, whose views give an untrained batch norm its statistics
STEPS = {"laptop": 3000, "smoke": 20}  # of a projector that is trained alone
DRAWS = 8  # views of each training image with each policy
BATCH, RATE, BETA = 512, 3e-3, 2.0
WIDTHS, HIDDEN = (4, 8, 16), (1, 2, 3)  # of the MLPs whose regions are counted
SHARES = (0.0625, 0.25, 0.5, 0.75, 1.0)  # of the dimensions of h, which augmentations span
LENGTHS = (0.0, 0.25, 1.0)  # of these augmentations, beside the distance between samples
PARTS = (1.0, 0.5, 0.25, 0.125)  # of the strengths to which generators are fitted
DIRECTIONS = (32, 128)  # leading ones of h, in which they are fitted


class Network(NamedTuple):
    """A trained model and its data."""

    model: SimCLRModule
    data: ImageDataModule
    strength: str
    seed: int
    flips: bool  # not digits


class Pools(NamedTuple):
    """The hardest negative h* of samples of one run, with one kind of views and one number of samples.

    `trained` is 0 for the network before training. The distances, of unit vectors, are those of h1 to h* (`distance`),
    h1 to h2 (`pair`), h2 to h* (`from_h2`), and h1 to another sample (`between_samples`).
    """

    strength: str
    seed: int
    trained: int
    views: str
    pool: int
    distance: float
    pair: float
    from_h2: float
    between_samples: float
    agreement: float
    chance: float


class Spread(NamedTuple):
    """How many directions the displacements in h of one network span, with views of one policy.

    `of` are the "augmentations", v = h2 - h1, or, with views "clean", the displacements "between samples", h of one
    image minus h of another. The counts are the exponential of the entropy of the singular values (`effective_rank`),
    the directions that carry 90% of the sum of squares (`ninety`), those with at least 1% of the largest singular value
    (`one_percent`), and those whose singular value over the root of the number of samples is at least 0.1 (`absolute`,
    Eq. 2 as printed): this one also sees how long the displacements are.
    """

    encoder: str
    seed: int
    trained: int
    views: str
    of: str
    effective_rank: float
    ninety: int
    one_percent: int
    absolute: int


class Alone(NamedTuple):
    """A projector that was trained alone with views of `trained`, and the gain on views of `measured`."""

    encoder: str
    seed: int
    trained: str
    measured: str
    gain: float
    between_samples: float
    ignored: float
    ignored_between_samples: float


class Regions(NamedTuple):
    """The regions of an MLP that contain a sample, before and after the MLP was trained alone."""

    encoder: str
    seed: int
    hidden: int
    width: int
    samples: int
    first: int
    last: int


class Spans(NamedTuple):
    """A projector that was trained alone, with augmentations that span `dimensions` of h and have one length.

    `length` is in units of the root mean square distance between samples.
    """

    encoder: str
    seed: int
    dimensions: int
    length: float
    rank: float
    effective_rank: float
    gain: float
    between_samples: float


class Generators(NamedTuple):
    """R² of the generator of a group, fitted to strengths up to `part` of the usual ones, and of shuffled strengths."""

    encoder: str
    seed: int
    dimensions: int
    part: float
    action: str
    r2: float
    shuffled: float


def network(options: argparse.Namespace, path: Path, strength: str, *, seed: int, trained: bool = True) -> Network:
    """Load the model of a finished run, in eval mode, and its data.

    If `trained` is false, the model has the weights with which the run began, and its batch norms have the
    statistics of views of training images.
    """
    net = Network(*network_of(path, options.root, trained=trained), strength, seed, flips=options.size != "smoke")
    if not trained:
        calibrate(net, images(net.data, "train", CALIBRATION))
    return net


def calibrate(net: Network, found: dict[str, Tensor]) -> None:
    """Give each batch norm the statistics of one batch of views."""
    views = views_of(net, net.strength)(found["image"], found["index"], 0, net.data.mean, net.data.std)
    with torch.no_grad(), mean_statistics(net.model):
        net.model.project(net.model(torch.cat(views)))


def views_of(net: Network, strength: str) -> SimCLRViews:
    return SimCLRViews(strength=strength, color="fast", flip=None if net.flips else 0.0)


def images(data: ImageDataModule, split: str, count: int) -> dict[str, Tensor]:
    """Images drawn from a split at random, in [0, 1], with their labels and indices."""
    loader, parts = data.unaugmented_dataloader(split), []
    loader.sampler.shuffle = True  # a folder of images is in the order of the classes
    for batch in loader:
        made = data.on_after_batch_transfer(batch, 0)
        parts.append({name: made[name] for name in ("image", "label", "index")})
        if sum(len(part["index"]) for part in parts) >= count:
            break
    found = {name: torch.cat([part[name] for part in parts])[:count] for name in parts[0]}
    column = (-1, 1, 1)
    plain = found["image"] * data.std.view(column) + data.mean.view(column)
    return found | {"image": plain.clamp(0, 1)}


@torch.inference_mode()
def represented(net: Network, image: Tensor, index: Tensor, strength: str, *, epoch: int = 0) -> Tensor:
    """Return h (2, N, D) of two views of images in [0, 1]. Both views of "clean" are the image itself."""
    data, parts = net.data, []
    views = None if strength == "clean" else views_of(net, strength)
    for x, rows in zip(image.split(500), index.split(500), strict=True):
        if views is None:
            one = net.model((x - data.mean.view(-1, 1, 1)) / data.std.view(-1, 1, 1))
            parts.append(torch.stack([one, one]))
        else:
            made = views(x, rows, epoch, data.mean, data.std)
            parts.append(torch.stack([net.model(view) for view in made]))
    return torch.cat(parts, 1)


def of_each(
    options: argparse.Namespace,
    runs: Mapping[str, Mapping[int, Path]],
    kind: type[Any],
    measure: Callable[[argparse.Namespace, Path, str, int], Iterable[Any]],
) -> list[Any]:
    """Measure every encoder. The rows are of this kind, and are also written to OUTPUT/<kind>/results.csv.

    Files of an earlier command are taken, unless the encoder was trained again since, or they have other columns.
    """
    folder = options.output / kind.__name__.lower()
    files = {(strength, seed): folder / f"{strength}_seed{seed}.csv" for strength, seed, _ in each(runs)}
    missing = [
        partial(_measure, options, path, strength, seed, measure=measure, file=files[strength, seed])
        for strength, seed, path in each(runs)
        if not _is_current(files[strength, seed], path / "checkpoints" / "last.ckpt", kind)
    ]
    if min(options.jobs, len(missing)) <= 1:
        for one in missing:
            print(one())
    else:
        threads = max(1, (os.cpu_count() or 1) // options.jobs)
        with processes(min(options.jobs, len(missing)), partial(torch.set_num_threads, threads)) as pool:
            for made in [pool.submit(one) for one in missing]:
                print(made.result(), flush=True)
    rows = [row for file in files.values() for row in read(file, kind)]
    print(write(rows, folder / "results.csv"))
    return rows


def _measure(
    options: argparse.Namespace, path: Path, strength: str, seed: int, *, measure: Callable[..., Any], file: Path
) -> Path:
    return write(list(measure(options, path, strength, seed)), file)


def _is_current(file: Path, than: Path, kind: type[Any]) -> bool:
    if not file.exists() or file.stat().st_mtime < than.stat().st_mtime:
        return False
    with file.open(newline="") as opened:
        return next(csv.reader(opened), []) == list(kind._fields)  # not of an earlier version of this script


def pools(options: argparse.Namespace, runs: dict[str, dict[int, Path]]) -> None:
    """Figs. 5 and 6 with other views and pools."""
    rows = of_each(options, runs, Pools, of_pools)
    for name in ("distance", "from_h2", "agreement"):
        lines = []
        for kind, pool in dict.fromkeys((row.views, row.pool) for row in rows):
            cells = []
            for strength in dict.fromkeys(row.strength for row in rows):
                of = [row for row in rows if (row.strength, row.views, row.pool) == (strength, kind, pool)]
                first, last = ([getattr(row, name) for row in of if row.trained == trained] for trained in (0, 1))
                cells.append(f"{over_seeds(first, '.3f')} -> {over_seeds(last, '.3f')}")
            lines.append([f"{kind}, {pool}", *cells])
        print(f"\n{name}\n\n{markdown(['views, pool', *dict.fromkeys(row.strength for row in rows)], lines)}")


def of_pools(options: argparse.Namespace, path: Path, strength: str, seed: int) -> Iterator[Pools]:
    for trained in (0, 1):
        net = network(options, path, strength, seed=seed, trained=bool(trained))
        found = images(net.data, "val", SAMPLES[options.size])
        for name, kind in (("own", strength), ("moderate", "moderate"), ("clean", "clean")):
            h = represented(net, found["image"], found["index"], kind)
            with torch.inference_mode():
                z = net.model.project(h.flatten(0, 1)).unflatten(0, h.shape[:2])
            for pool in POOLS[options.size]:
                # Parts of the samples, so that small pools are not measured on few samples.
                parts = torch.randperm(len(found["index"]), generator=torch.Generator().manual_seed(seed)).split(pool)
                values = [of_pool(h[:, part], z[:, part], found["label"][part]) for part in parts if len(part) == pool]
                yield Pools(strength, seed, trained, name, pool, *torch.tensor(values).mean(0).tolist())


def of_pool(h: Tensor, z: Tensor, label: Tensor) -> tuple[float, ...]:
    """The last fields of `Pools`."""
    distance, agreement = HardestNegativeDistance(contrast_size=len(label)), LabelAgreement(contrast_size=len(label))
    index = torch.arange(len(label))
    distance.update(h, z, index)
    agreement.update(z, index, label=label)
    near, same = distance.compute(), agreement.compute()
    sample, view, _ = hardest_negative(z[0], z[1])
    from_h2 = normalized_distance(h[1], h[view, sample]).mean()
    found = (near["distance"], near["pair"], from_h2, near["between_samples"], same["fine"], same["fine_chance"])
    return tuple(map(float, found))


def spread(options: argparse.Namespace, runs: dict[str, dict[int, Path]]) -> None:
    """Sec. 4, "the larger the spread" of a policy, the more directions its augmentations span: behind one encoder."""
    rows = of_each(options, runs, Spread, of_spread)
    encoders = dict.fromkeys(row.encoder for row in rows)
    columns = [f"encoder trained with {encoder}" for encoder in encoders]
    titles = {"effective_rank": "Effective rank", "ninety": "Directions with 90% of the squares"}
    titles["one_percent"] = "Directions with at least 1% of the largest singular value"
    titles["absolute"] = "Directions of at least 0.1 (Eq. 2)"
    for name, title in titles.items():
        lines = []
        for key in dict.fromkeys((row.of, row.views, row.trained) for row in rows):
            of = [row for row in rows if (row.of, row.views, row.trained) == key]
            cells = [over_seeds([getattr(row, name) for row in of if row.encoder == each], ".1f") for each in encoders]
            lines.append([f"{key[0]}, {key[1]}, {'after' if key[2] else 'before'}", *cells])
        print(f"\n{title}\n\n{markdown(['of, views, before or after training', *columns], lines)}")


def of_spread(options: argparse.Namespace, path: Path, encoder: str, seed: int) -> Iterator[Spread]:
    for trained in (0, 1):
        net = network(options, path, encoder, seed=seed, trained=bool(trained))
        found = images(net.data, "val", SAMPLES[options.size])
        for views in STRENGTHS:
            h1, h2 = represented(net, found["image"], found["index"], views).double()
            yield Spread(encoder, seed, trained, views, "augmentations", *directions(h2 - h1))
        h = represented(net, found["image"], found["index"], "clean")[0].double()
        # Two samples are apart by sqrt(2) times as much as one and the mean; the directions are the same.
        apart = math.sqrt(2) * (h - h.mean(0))
        yield Spread(encoder, seed, trained, "clean", "between samples", *directions(apart))


def directions(rows: Tensor) -> tuple[float, int, int, int]:
    """The last fields of `Spread`."""
    sigma = torch.linalg.svdvals(rows) / math.sqrt(len(rows))
    ninety, one_percent, absolute = (
        int(singular_values_rank(sigma, tau, mode=mode))
        for tau, mode in ((0.9, "cumulative"), (0.01, "relative"), (0.1, "absolute"))
    )
    return float(singular_values_effective_rank(sigma)), ninety, one_percent, absolute


def alone(options: argparse.Namespace, runs: dict[str, dict[int, Path]]) -> None:
    """Prop. 4.1 with encoders that stand still."""
    rows = of_each(options, runs, Alone, of_alone)
    lines = []
    for encoder in dict.fromkeys(row.encoder for row in rows):
        for trained in ("untrained", *STRENGTHS):
            of = [row for row in rows if (row.encoder, row.trained) == (encoder, trained)]
            cells = [
                over_seeds([row.gain / row.between_samples for row in of if row.measured == measured], ".2f")
                for measured in STRENGTHS
            ]
            lines.append([f"{encoder}, {trained}", *cells])
    print(markdown(["encoder, W", *(f"gain on {name} over that between samples" for name in STRENGTHS)], lines))


def of_alone(options: argparse.Namespace, path: Path, encoder: str, seed: int) -> Iterator[Alone]:
    net = network(options, path, encoder, seed=seed)
    train, test = (images(net.data, split, SAMPLES[options.size]) for split in ("train", "val"))
    seen = {name: represented(net, test["image"], test["index"], name) for name in STRENGTHS}
    draws = {
        name: [represented(net, train["image"], train["index"], name, epoch=epoch) for epoch in range(DRAWS)]
        for name in STRENGTHS
    }
    for trained in ("untrained", *STRENGTHS):
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            projector = nn.Linear(net.model.projector.in_features, net.model.projector.out_features, bias=False)
        if trained != "untrained":
            fit_projector(projector, draws[trained], steps=STEPS[options.size], seed=seed)
        for measured, h in seen.items():
            yield Alone(encoder, seed, trained, measured, *gains(projector, h))


def regions(options: argparse.Namespace, runs: dict[str, dict[int, Path]]) -> None:
    """Eq. 11 for MLPs that are so small that many samples share a region."""
    rows = of_each(options, runs, Regions, of_regions)
    encoders, lines = dict.fromkeys(row.encoder for row in rows), []
    for hidden in HIDDEN:
        for width in WIDTHS:
            of = [row for row in rows if (row.hidden, row.width) == (hidden, width)]
            pairs = ([(row.first, row.last) for row in of if row.encoder == encoder] for encoder in encoders)
            cells = [" -> ".join(over_seeds(each, ".0f") for each in zip(*pair, strict=True)) for pair in pairs]
            lines.append([f"{hidden} x {width}", *cells])
    print(markdown(["hidden layers x width, untrained -> trained", *encoders], lines))


def of_regions(options: argparse.Namespace, path: Path, encoder: str, seed: int) -> Iterator[Regions]:
    net = network(options, path, encoder, seed=seed)
    train, test = (images(net.data, split, SAMPLES[options.size]) for split in ("train", "val"))
    h = represented(net, test["image"], test["index"], "clean")[0].clone()
    draws = [represented(net, train["image"], train["index"], encoder, epoch=epoch) for epoch in range(DRAWS)]
    for hidden in HIDDEN:
        for width in WIDTHS:
            with torch.random.fork_rng([]):
                torch.manual_seed(seed)
                mlp = MLPProjector(h.shape[1], width, net.model.projector.out_features, hidden + 1)
            mlp(draws[0][0].clone())  # its batch norm sees a batch, so that it is not the identity
            first = 1 + int(linear_regions(mlp.eval(), h).max())
            fit_projector(mlp.train(), draws, steps=STEPS[options.size], seed=seed)
            last = 1 + int(linear_regions(mlp.eval(), h).max())
            yield Regions(encoder, seed, hidden, width, len(h), first, last)


def spans(options: argparse.Namespace, runs: dict[str, dict[int, Path]]) -> None:
    """Prop. 4.2 with augmentations whose span is known."""
    rows, lines = of_each(options, runs, Spans, of_spans), []
    for length, dimensions in dict.fromkeys((row.length, row.dimensions) for row in rows):
        of = [row for row in rows if (row.length, row.dimensions) == (length, dimensions)]
        cells = [
            over_seeds([row.rank for row in of if row.encoder == encoder], ".1f")
            for encoder in dict.fromkeys(row.encoder for row in rows)
        ]
        lines.append([f"{length:g}, {dimensions}", *cells])
    print(markdown(["length, dimensions", *dict.fromkeys(row.encoder for row in rows)], lines))


def of_spans(options: argparse.Namespace, path: Path, encoder: str, seed: int) -> Iterator[Spans]:
    net = network(options, path, encoder, seed=seed)
    train = images(net.data, "train", SAMPLES[options.size])
    h = represented(net, train["image"], train["index"], "clean")[0].clone()
    dim = h.shape[1]
    between = (2 * h.var(0).sum()).sqrt()
    generator = torch.Generator().manual_seed(seed)
    directions = torch.linalg.qr(torch.randn(dim, dim, generator=generator)).Q
    for length in LENGTHS:
        for share in SHARES if length else (1.0,):
            basis = directions[: round(share * dim)]
            draws = []
            for _ in range(1 + DRAWS):
                v = torch.randn(len(h), len(basis), generator=generator)
                draws.append(torch.stack([h, h + length * between * (v / v.norm(dim=1, keepdim=True)) @ basis]))
            with torch.random.fork_rng([]):
                torch.manual_seed(seed)
                projector = nn.Linear(dim, net.model.projector.out_features, bias=False)
            fit_projector(projector, draws[1:], steps=STEPS[options.size], seed=seed)
            weight = projector.weight.detach().T
            rank = float(singular_values_rank(torch.linalg.svdvals(weight), tau=0.9, mode="cumulative"))
            effective = float(effective_rank(weight))
            gain, between_samples = gains(projector, draws[0])[:2] if length else (math.nan, math.nan)
            yield Spans(encoder, seed, len(basis), length, rank, effective, gain, between_samples)


def generators(options: argparse.Namespace, runs: dict[str, dict[int, Path]]) -> None:
    """Prop. 4.3: whether weaker transformations have a generator."""
    rows = of_each(options, runs, Generators, of_generators)
    encoders = dict.fromkeys(row.encoder for row in rows)
    for dimensions in dict.fromkeys(row.dimensions for row in rows):
        lines = []
        for action in dict.fromkeys(row.action for row in rows):
            for part in PARTS:
                key = (dimensions, action, part)
                of = [row for row in rows if (row.dimensions, row.action, row.part) == key]
                cells = [over_seeds([row.r2 for row in of if row.encoder == encoder], ".2f") for encoder in encoders]
                lines.append([f"{action}, {part:g}", *cells])
        print(f"\n{dimensions} dimensions\n\n{markdown(['action, part of the strength', *encoders], lines)}")


def of_generators(options: argparse.Namespace, path: Path, encoder: str, seed: int) -> Iterator[Generators]:
    net = network(options, path, encoder, seed=seed)
    found = images(net.data, "val", SAMPLES[options.size] // 2)
    column = (-1, 1, 1)
    image = (found["image"] - net.data.mean.view(column)) / net.data.std.view(column)
    scale = {"mean": net.data.mean.tolist(), "std": net.data.std.tolist()}
    names = [name for name in ACTIONS if image.shape[1] == 3 or name not in ("saturation", "hue")]
    for dimensions in DIRECTIONS:
        for part in PARTS:
            strengths = {name: part * ACTIONS[name] for name in names}
            fit = PolicyGenerators(strengths, contrast_size=len(image), dimensions=dimensions, **scale)
            fit.update(image, found["index"], encoder=net.model.backbone)
            r2 = {name: float(value) for name, value in fit.compute().items()}
            for name in names:
                yield Generators(encoder, seed, dimensions, part, name, r2[f"r2_{name}"], r2["r2_shuffled"])


def fit_projector(projector: nn.Module, draws: Sequence[Tensor], steps: int, seed: int) -> None:
    """Descend InfoNCE with the positive outside the denominator (Eq. 1), at beta = 2, in the projector alone."""
    optimizer = torch.optim.Adam(projector.parameters(), lr=RATE)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    generator, count = torch.Generator().manual_seed(seed), draws[0].shape[1]
    for _ in range(steps):
        rows = torch.randperm(count, generator=generator)[: min(BATCH, count)]
        h = draws[int(torch.randint(len(draws), (), generator=generator))][:, rows].clone()  # not of inference mode
        z1, z2 = projector(h.flatten(0, 1)).unflatten(0, (2, -1))  # batch norm sees one batch
        optimizer.zero_grad()
        info_nce(z1, z2, 1 / BETA, "COSENTINO", symmetric=True).backward()
        optimizer.step()
        scheduler.step()


def gains(projector: nn.Linear, h: Tensor) -> tuple[float, float, float, float]:
    gain, share = ProjectorGain(contrast_size=h.shape[1]), NullSpaceFraction(tau=0.9, mode="cumulative")
    with torch.inference_mode():
        z = projector(h)
    gain.update(h, z, torch.arange(h.shape[1]), projector=projector)
    share.update(h, projector)
    found, ignored = gain.compute(), share.compute()
    values = (found["augmentations"], found["between_samples"], ignored["fraction"], ignored["between_samples"])
    return tuple(map(float, values))
