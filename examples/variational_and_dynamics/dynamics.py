"""What the paper says of the dynamics in words, measured: Sec. 4.2, Thm. 4.2, Remark 4.4, Prop. A.1 (2), and the rank.

Sec. 4.2: whether points of one cluster move in one direction. Thm. 4.2: two views of each point start at one place;
free points stay together, and those of a network drift apart, unless the network does not see the augmentation. Remark
4.4: Fig. 5's network with one small cluster among four. Prop. A.1 (2): the gradient of an invariant map that grows.
Steps: from small weights, a network learns one direction of z at a time, at times that the eigenvalues of its neural
kernel predict (Simon et al., On the stepwise nature of self-supervised learning, 2023). All in float64.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import torch
from recipe import add_seeds_and_jobs, markdown, over_seeds, processes, save, spread_note, write
from sklearn.datasets import load_digits
from sklearn.metrics import silhouette_samples
from torch import Tensor, nn
from torch.nn.functional import normalize

from lightning_ssl_geometry.data import ClusterDataModule
from lightning_ssl_geometry.functional import first_variation, neural_kernel, variational_loss
from lightning_ssl_geometry.nn import MLPProjector
from lightning_ssl_geometry.plots import Caption, Curve, curves

TEMPERATURE, RADIUS, STEP = 0.5, 0.1, 0.1  # as in figure_5.yaml
NOISE = 0.2
ITERATIONS = (0, 1, 2, 5, 10, 15, 20, 30, 50, 70, 100, 150, 200)
SIZES = {"50 of 200": (50, 50, 50, 50), "15 of 200": (61, 15, 62, 62), "5 of 200": (65, 5, 65, 65)}
SMALL = 1  # the cluster with fewer points; on the line, the one at -1
MOVES = (0, 1, 2, 5, 10, 15)
SCALES = (1, 2, 3, 5, 10, 20)
MODES, STARTS = 6, 1e-4  # steps of the rank that are followed, and the scale of the last layer's weights at the start
TABLES = (  # experiment, what its places are, the places of its table, digits
    ("Sec. 4.2", "iteration of Sec. 4.2", MOVES, ".3f"),
    ("Thm. 4.2", "iteration of Thm. 4.2", (0, 1, 10, 50, 200), ".2g"),
    ("Remark 4.4", "iteration of Remark 4.4", (0, 15, 30, 70, 200), ".2f"),
    ("Prop. A.1 (2)", "k", SCALES, ".2g"),
)
FLOWS = {"network": "blue", "free points": "orange", "network that sees no noise": "green"}


class Row(NamedTuple):
    """One number of one seed."""

    experiment: str
    arm: str
    seed: int
    at: float
    value: float


class Points(NamedTuple):
    """Two views (2, n, D) of points, their clusters, and a random cloud (n, 2) of the first embeddings.

    The last coordinate is the one with the noise of the augmentation.
    """

    views: Tensor
    label: Tensor
    cloud: Tensor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which seeds, and how many at once."""
    add_seeds_and_jobs(parser, list(range(10)), jobs=2)


def points(seed: int, sizes: Sequence[int] = SIZES["50 of 200"], centers: str = "collinear") -> Points:
    """Fig. 5's four clusters on a line, or four orthogonal ones, with two draws of the noise across them."""
    dim = {"collinear": 1, "orthogonal": 4}[centers]
    data = ClusterDataModule(
        centers, dim=dim + 1, manifold_dim=dim, points_per_cluster=list(sizes), noise=NOISE, seed=seed
    )
    generator = torch.Generator().manual_seed(seed)
    views = data.points.double().expand(2, -1, -1).clone()
    views[..., -1] += NOISE * (2 * torch.rand(views.shape[:2], generator=generator, dtype=torch.float64) - 1)
    cloud = normalize(torch.randn(len(data.points), 2, generator=generator, dtype=torch.float64), dim=1)
    return Points(views, data.labels, cloud)


def network(seed: int, dim: int) -> nn.Module:
    """Fig. 5's network, with `dim` inputs."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return MLPProjector(in_dim=dim, hidden_dim=1000, out_dim=2, depth=2, norm="none").double()


def loss(z: Tensor) -> Tensor:
    """Eq. 4 of two views (2, n, 2), in both orders."""
    return variational_loss(z[0], z[1], TEMPERATURE, symmetric=True)


def trained(given: Points, seed: int, sees_noise: bool = True) -> Iterator[Tensor]:
    """Yield z (2, n, 2) at every iteration of gradient descent of the weights (Eq. 15)."""
    f, x = network(seed, given.views.shape[-1]), given.views.clone()
    x[..., -1] *= float(sees_noise)
    with torch.no_grad():
        offset = RADIUS * given.cloud - f(x)
    while True:
        z = normalize(f(x) + offset, dim=-1)
        yield z.detach()
        gradients = torch.autograd.grad(loss(z), list(f.parameters()))
        with torch.no_grad():
            for weight, gradient in zip(f.parameters(), gradients, strict=True):
                weight -= STEP * gradient


def free(given: Points) -> Iterator[Tensor]:
    """Yield z (2, n, 2) at every iteration of Eq. 14, back on the circle after each step."""
    z = given.cloud.expand(2, -1, -1).clone()
    while True:
        yield z
        step = first_variation(z[0], z[1], TEMPERATURE, symmetric=True)  # n times the gradient
        z = normalize(z - STEP * step, dim=-1)


def apart(z: Tensor) -> tuple[float, float]:
    """Mean distance between the views of a point, and between different points."""
    return (z[0] - z[1]).norm(dim=-1).mean().item(), torch.pdist(z[0]).mean().item()


def together(moved: Tensor, label: Tensor) -> float:
    """Length of the mean direction in which the points of a cluster move: 1 if it is the same for all of them."""
    directions = normalize(moved, dim=-1)
    lengths = [directions[label == cluster].mean(0).norm().item() for cluster in label.unique()]
    return float(np.mean(lengths))


def shared(seed: int) -> list[Row]:
    """Sec. 4.2: whether the points of a cluster move in one direction, and those of a random grouping, too."""
    given = points(seed)
    shuffled = given.label[torch.randperm(len(given.label), generator=torch.Generator().manual_seed(seed))]
    rows = []
    for name, flow in {"network": trained(given, seed), "free points": free(given)}.items():
        for step, (z, after) in zip(range(MOVES[-1] + 1), pairwise(flow), strict=False):
            if step in MOVES:
                moved = (after - z)[0]
                rows.append(Row("Sec. 4.2", name, seed, step, together(moved, given.label)))
                rows.append(Row("Sec. 4.2", f"{name}, shuffled clusters", seed, step, together(moved, shuffled)))
    return rows


def invariance(seed: int) -> list[Row]:
    """Thm. 4.2."""
    given = points(seed)
    flows = {
        "network": trained(given, seed),
        "free points": free(given),
        "network that sees no noise": trained(given, seed, sees_noise=False),
    }
    rows = []
    for name, flow in flows.items():
        for step, z in zip(range(ITERATIONS[-1] + 1), flow, strict=False):
            if step in ITERATIONS:
                views, others = apart(z)
                rows.append(Row("Thm. 4.2", name, seed, step, views / others))
                rows.append(Row("Thm. 4.2, between points", name, seed, step, others))
    return rows


def unequal(seed: int) -> list[Row]:
    """Remark 4.4: the silhouette of the small cluster's points, among the clusters of the input."""
    rows = []
    for centers, (name, sizes) in product(("collinear", "orthogonal"), SIZES.items()):
        given = points(seed, sizes, centers)
        for step, z in zip(range(ITERATIONS[-1] + 1), trained(given, seed), strict=False):
            if step in ITERATIONS:
                scores = silhouette_samples(z[0].numpy(), given.label.numpy())
                value = float(scores[given.label == SMALL].mean())
                rows.append(Row("Remark 4.4", f"{centers}, {name}", seed, step, value))
    return rows


def growing(seed: int) -> list[Row]:
    """Prop. A.1 (2): the length of the bracket of Eq. 6 at k f, for an invariant f that is not a constant.

    The null is a map that grows as well, but not as k f: its points come in pairs, which are at a distance of 1 at
    every k.
    """
    z = torch.randn(50, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    apart = normalize(z[25:], dim=1)
    rows = []
    for k in SCALES:
        for arm, grown in (("k f", k * z), ("null: pairs stay", torch.cat([k * z[:25], k * z[:25] + apart]))):
            gradient = first_variation(grown, grown, TEMPERATURE, symmetric=True).sum(0)
            rows.append(Row("Prop. A.1 (2)", arm, seed, k, gradient.norm(dim=1).mean().item()))
    return rows


def digits(seed: int, count: int = 150) -> Tensor:
    """Two noisy views (2, n, 64) of digits."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.from_numpy(load_digits().data)
    rows = torch.randperm(len(image), generator=generator)[:count]
    x = (image[rows] - image.mean(0)) / image.std()
    return x + 0.5 * torch.randn(2, *x.shape, generator=generator, dtype=torch.float64)


def steps(seed: int) -> list[Row]:
    """When eigenvalues of the views' cross-correlation pass 1 / 2, and the times that the kernel predicts.

    The loss |C - I|^2 with C = Z1^T Z2 / n, symmetrised, is Simon et al.'s. From z close to 0, its gradient flow is
    dZ / dt = (2 / n) K S Z, with the neural kernel K of the 2 n rows, and S that swaps the views. So the k-th mode has
    the rate 2 lambda_k / n, with lambda_k the eigenvalues of K S. It starts with the size that z has along it.
    """
    x = digits(seed)
    n, rows_of = x.shape[1], x.flatten(0, 1)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        f = MLPProjector(in_dim=64, hidden_dim=512, out_dim=MODES + 4, depth=2, norm="none").double()
    last = [module for module in f.modules() if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        last.weight *= STARTS  # it has no bias
    kernel = neural_kernel(f, rows_of, by_layer=False)[..., 0, 0]
    values, modes = torch.linalg.eigh(_swapped_root(kernel))
    count = 2 * MODES  # a slower mode that starts larger may come first
    rate = 2 * values.flip(0)[:count] / n
    start = _amplitudes(kernel, modes.flip(1)[:, :count], f(rows_of).detach(), n)
    predicted = ((1 / start).log() / rate).sort().values[:MODES]
    rows = [Row("steps", "predicted", seed, k + 1, float(time)) for k, time in enumerate(predicted)]
    step, weights = 0.01 / float(rate[0]), [each for each in f.parameters() if each.requires_grad]
    found, time, seen = {}, 0.0, []
    while len(found) < MODES and time < 3 * float(predicted[-1]):
        z1, z2 = f(x)
        c = (z1.T @ z2 + z2.T @ z1) / (2 * n)
        value = (c - torch.eye(len(c), dtype=c.dtype)).square().sum()
        seen.append((time, value.item()))
        for k in range(len(found), int((torch.linalg.eigvalsh(c.detach()) > 0.5).sum())):
            found[k] = time
        with torch.no_grad():
            for weight, gradient in zip(weights, torch.autograd.grad(value, weights), strict=True):
                weight -= step * gradient
        time += step
    rows += [Row("steps", "measured", seed, k + 1, time) for k, time in found.items()]
    return rows + [Row("loss", "loss", seed, time, value) for time, value in seen[:: max(1, len(seen) // 300)]]


def _swapped_root(kernel: Tensor) -> Tensor:
    """K^(1/2) S K^(1/2), whose eigenvalues are those of K S."""
    root = _root(kernel)
    return root @ root.roll(len(root) // 2, 0)


def _root(kernel: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(kernel)
    return vectors * values.clamp(min=0).sqrt() @ vectors.T


def _amplitudes(kernel: Tensor, modes: Tensor, z: Tensor, n: int) -> Tensor:
    """The part of z (2 n, d) along each mode, over the size at which the mode's eigenvalue of C is 1."""
    root = _root(kernel)
    directions = root @ modes  # right eigenvectors of K S
    swapped = directions.roll(n, 0)
    size = (directions * swapped).sum(0)  # of C, times n, for a coefficient of 1
    coefficient = torch.linalg.pinv(root) @ z
    along = (modes.T @ coefficient).norm(dim=1)
    return along * (size / n).sqrt()


PARTS = (shared, invariance, unequal, growing, steps)


def of_seed(seed: int) -> list[Row]:
    """Everything of one seed, on one core."""
    torch.set_num_threads(1)
    return [row for part in PARTS for row in part(seed)]


def values(rows: Sequence[Row], experiment: str, arm: str) -> tuple[np.ndarray, np.ndarray]:
    """Places, and values (seeds, places)."""
    found: dict[float, list[float]] = {}
    for row in rows:
        if (row.experiment, row.arm) == (experiment, arm):
            found.setdefault(row.at, []).append(row.value)
    return np.array(list(found)), np.array(list(found.values())).T


def lines(rows: Sequence[Row], experiment: str, colors: dict[str, str], bounds: tuple[float, float]) -> list[Curve]:
    """A line for each arm: mean and standard deviation over seeds, within bounds."""
    drawn = []
    for arm, color in colors.items():
        at, found = values(rows, experiment, arm)
        spread = found.std(0, ddof=min(1, len(found) - 1))
        drawn.append(Curve(arm.split(", ")[-1], at, found.mean(0), color, spread=spread, bounds=bounds))
    return drawn


def of(rows: Sequence[Row], experiment: str, arm: str, at: float) -> dict[int, float]:
    """Seed -> value at one place."""
    return {row.seed: row.value for row in rows if (row.experiment, row.arm, row.at) == (experiment, arm, at)}


def table(rows: Sequence[Row], experiment: str, places: Sequence[int], digits_shown: str) -> str:
    """Markdown: an arm in each row, mean and deviation at some places."""
    arms = dict.fromkeys(row.arm for row in rows if row.experiment == experiment)
    cells = []
    for arm in arms:
        found = [list(of(rows, experiment, arm, at).values()) for at in places]
        cells.append([arm, *(over_seeds(each, digits_shown) if any(each) else "0" for each in found)])
    return markdown([experiment, *map(str, places)], cells)


def times_table(rows: Sequence[Row]) -> str:
    """Markdown: predicted and measured times of each step of the rank."""
    cells = []
    for k in range(1, MODES + 1):
        said, seen = (of(rows, "steps", arm, k) for arm in ("predicted", "measured"))
        ratio = [seen[seed] / said[seed] for seed in said if seed in seen]
        shown = [over_seeds(list(found.values()), ".3g", ".2g") for found in (said, seen)]
        cells.append([str(k), *shown, over_seeds(ratio, ".3f")])
    return markdown(["step", "predicted time", "measured", "measured / predicted"], cells)


def step_figures(rows: Sequence[Row]) -> dict[str, object]:
    """The loss and the rank of the first seed over time, and the predicted times of the steps."""
    seed = rows[0].seed
    at, lost = np.array([(row.at, row.value) for row in rows if (row.experiment, row.seed) == ("loss", seed)]).T
    passed = np.array([of(rows, "steps", "measured", k)[seed] for k in range(1, MODES + 1)])
    times = np.concatenate([[0.0], passed.repeat(2), [1.05 * passed[-1]]])
    rank = np.arange(MODES + 1).repeat(2).astype(float)
    return {
        "steps": step_figure(rows, Curve("loss", at, lost, "blue"), "loss", title="The loss falls in steps"),
        "rank": step_figure(
            rows,
            Curve("rank", times, rank, "blue"),
            "eigenvalues of C above 1/2",
            title="The rank of z rises in steps",
        ),
    }


def step_figure(rows: Sequence[Row], seen: Curve, ylabel: str, *, title: str):
    """What was seen of the first seed over time, and the predicted times of the steps."""
    seed, drawn = rows[0].seed, [seen]
    for k in range(1, MODES + 1):
        time = of(rows, "steps", "predicted", k)[seed]
        drawn.append(Curve("", np.full(60, time), np.linspace(0.0, seen.y.max(), 60), "muted", dash="dotted"))
    notes = (f"Dotted: the times that the eigenvalues of the neural kernel predict. Seed {seed}.",)
    caption = Caption(title=title, notes=notes)
    return curves(drawn, xlabel="time (step size times steps)", ylabel=ylabel, floor=0.0, caption=caption)


def run(options: argparse.Namespace) -> None:
    """Measure, write and draw."""
    with processes(min(options.jobs, len(options.seeds))) as pool:
        rows = [row for found in pool.map(of_seed, options.seeds) for row in found]
    written = write(rows, options.output / "results" / "dynamics.csv")
    for experiment, _, places, digits_shown in TABLES:
        print(table(rows, experiment, places, digits_shown), end="\n\n")
    print(times_table(rows), end="\n\n")
    print(written)
    for name, drawn in drawings(rows).items():
        print(save(drawn, options.output / "figures" / f"dynamics_{name}.png"))


def drawings(rows: Sequence[Row]):
    """Name -> figure."""
    notes = (spread_note(len({row.seed for row in rows})),)
    views = curves(
        lines(rows, "Thm. 4.2", FLOWS, bounds=(0.0, np.inf)),
        xlabel="iteration",
        ylabel="distance of views / distance of points",
        floor=0.0,
        caption=Caption(title="Thm. 4.2: two views of a point", notes=(*notes, "Free points: 0, as without noise.")),
    )
    found = {"thm_4_2": views}
    for centers, where, key in (("orthogonal", "four orthogonal ones", ""), ("collinear", "four on a line", "_line")):
        colors = {f"{centers}, {name}": color for name, color in zip(SIZES, ("blue", "orange", "green"), strict=False)}
        found[f"remark_4_4{key}"] = curves(
            lines(rows, "Remark 4.4", colors, bounds=(-1.0, 1.0)),
            xlabel="iteration",
            ylabel="silhouette of the small cluster",
            caption=Caption(title=f"Remark 4.4: a small cluster among {where}", notes=notes),
        )
    return found | step_figures(rows)
