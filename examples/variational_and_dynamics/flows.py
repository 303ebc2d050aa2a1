"""Fits of ContrastiveFlowModule with and without a network, seed by seed: the stills, the film and the table."""

import argparse
import io
import logging
import warnings
import zipfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import lightning as L
import numpy as np
import torch
from draw_clouds import clouds
from draw_stills import Still, seen, stills
from numpy.typing import NDArray
from PIL import Image
from recipe import processes
from torch import Tensor

from lightning_ssl_geometry.callbacks import EmbeddingSnapshots
from lightning_ssl_geometry.cli import lightning_cli
from lightning_ssl_geometry.files import replacing
from lightning_ssl_geometry.functional import (
    clusteredness,
    first_variation,
    tangential_gradient,
    uniform_uniformity,
    uniformity,
)
from lightning_ssl_geometry.plots import Caption

HERE = Path(__file__).parent
FRAMES = 48  # of the film
ARROW = 0.35  # the longest arrow of a still


class Flow(NamedTuple):
    """One flow of a figure: a data set, and the way in which its points move.

    Attributes:
        name: Name in the table.
        configs: Names of the YAML files, in their order.
        iterations: The iterations of the stills.
        step: The learning rate; None: that of the YAML files.
        bunching: How far the initial cloud is from uniform; 0: uniform.
    """

    name: str
    configs: tuple[str, ...]
    iterations: tuple[int, ...]
    step: float | None = None
    bunching: float = 0.0


class Run(NamedTuple):
    """The result of a fit.

    Attributes:
        flow: The flow that was fitted.
        seed: Seed of points, cloud and network.
        points: The clean input, (n, D).
        label: (n,), the clusters of the points.
        z: Iteration -> (n, d).
        temperature: Temperature of the loss.
        length: Median length of h at the end, before h is projected onto the sphere.
    """

    flow: Flow
    seed: int
    points: NDArray[np.float64]
    label: NDArray[np.int64]
    z: dict[int, NDArray[np.float64]]
    temperature: float
    length: float


class Row(NamedTuple):
    """One number at one iteration."""

    flow: str
    seed: int
    iteration: int
    quantity: str
    value: float


def frames(flow: Flow) -> list[int]:
    """The film's iterations: denser at the beginning, the stills among them."""
    last = flow.iterations[-1]
    return sorted({round(last * (place / (FRAMES - 1)) ** 2) for place in range(FRAMES)} | set(flow.iterations))


def fit(flow: Flow, seed: int, folder: Path, steps: int | None = None) -> Run:
    """Fit one flow, or read what an earlier fit with the same settings has left in the folder."""
    file = _file(flow, seed, folder)
    settings = repr(
        (Run._fields, flow, seed, steps, [(HERE / f"{config}.yaml").read_text() for config in flow.configs])
    )
    found = _kept(file, settings) or _fitted(flow, seed, steps) | {"settings": np.array(settings)}
    if not file.exists():
        with replacing(file) as opened:
            np.savez(opened, **found)
    z = {int(name): values for name, values in found.items() if name.isdigit()}
    return Run(flow, seed, found["points"], found["label"], z, float(found["temperature"]), float(found["length"]))


def _file(flow: Flow, seed: int, folder: Path) -> Path:
    return folder / f"{flow.name.replace(', ', '_').replace(' ', '_')}_seed{seed}.npz"


def _kept(file: Path, settings: str) -> dict[str, NDArray[Any]]:
    if not file.exists():
        return {}
    try:
        with np.load(file) as read:
            found = dict(read)
    except (EOFError, OSError, ValueError, zipfile.BadZipFile) as error:
        raise OSError(f"{file} cannot be read ({error}). Remove it, and it is made again.") from error
    if str(found.get("settings")) != settings:
        raise FileExistsError(f"{file} is of other settings. Give another --output, or remove it.")
    return found


def _fitted(flow: Flow, seed: int, steps: int | None) -> dict[str, NDArray[Any]]:
    words = [word for config in flow.configs for word in ("--config", str(HERE / f"{config}.yaml"))]
    words += ["--seed_everything", str(seed), f"--model.init_args.seed={seed}", f"--data.init_args.seed={seed}"]
    words += [f"--model.init_args.bunching={flow.bunching}"]
    words += [] if flow.step is None else [f"--model.init_args.optimizer.init_args.lr={flow.step}"]
    cli = lightning_cli([*words, "--trainer.logger=false", "--trainer.callbacks=null"], run=False)
    kept = EmbeddingSnapshots([step for step in frames(flow) if steps is None or step <= steps])
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    never = {
        "limit_val_batches": 1,
        "num_sanity_val_steps": 0,
        "check_val_every_n_epoch": None,
        "val_check_interval": 10**9,
    }
    with TemporaryDirectory() as folder:  # the callback writes there too
        trainer = L.Trainer(
            accelerator="cpu",
            max_steps=kept.iterations[-1],
            callbacks=[kept],
            default_root_dir=folder,
            **quiet,
            **never,
        )
        trainer.fit(cli.model, datamodule=cli.datamodule)
    data, model = cli.datamodule, cli.model
    with torch.inference_mode():
        h = model.place(data.points, torch.arange(len(data.points)))
    return {
        "points": data.points.numpy(),
        "label": data.labels.numpy(),
        "temperature": np.array(model.loss.form.temperature),
        "length": np.array(h.norm(dim=1).median().item()),
    } | {str(step): found["z"].double().numpy() for step, found in kept.kept.items()}


def fit_all(flows: Iterable[Flow], options: argparse.Namespace) -> list[Run]:
    """Fit all, in as many processes as there are jobs. OUTPUT/flows keeps the fits of a command that was stopped."""
    asked, folder = [(flow, seed) for seed in options.seeds for flow in flows], output(options) / "flows"
    kept = partial(fit, folder=folder, steps=options.steps)
    if missing := [(flow, seed) for flow, seed in asked if not _file(flow, seed, folder).exists()]:
        with processes(min(options.jobs, len(missing)), _alone) as pool:
            list(pool.map(kept, *zip(*missing, strict=True)))
    return [kept(flow, seed) for flow, seed in asked]


def output(options: argparse.Namespace) -> Path:
    """Folder of results and figures. Fits that end early, by `--steps`, have a folder of their own."""
    return options.output if options.steps is None else options.output / f"first_{options.steps}_steps"


def _alone() -> None:
    """Make a process fit quietly, on one core."""
    torch.set_num_threads(1)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")


def measure(run: Run) -> Iterable[Row]:
    """What the stills only suggest, at each of them, and the length of h at the end."""
    label = torch.from_numpy(run.label)
    for step in (step for step in run.flow.iterations if step in run.z):
        z = torch.from_numpy(run.z[step])
        scores = clusteredness(z, label)
        quantities = {
            "nmi": scores.nmi,
            "silhouette": scores.silhouette,
            "kmeans_silhouette": scores.kmeans_silhouette,
            "uniformity": uniformity(z).item(),
            "relative_uniformity": (uniformity(z) / uniform_uniformity(z.shape[1])).item(),
            "gradient": descent(z, run.temperature).norm(dim=1).mean().item(),
        }
        yield from (Row(run.flow.name, run.seed, step, name, float(value)) for name, value in quantities.items())
    if (last := run.flow.iterations[-1]) in run.z:
        yield Row(run.flow.name, run.seed, last, "length", run.length)


def descent(z: Tensor, temperature: float) -> Tensor:
    """Minus the gradient of each point along the sphere (Eq. 7)."""
    return -tangential_gradient(z, first_variation(z, z, temperature).sum(0))


def still(run: Run, step: int, longest: float | None = None) -> Still:
    """A moment with its arrows; `longest` of them is drawn as long as ARROW."""
    z = torch.from_numpy(run.z[step])
    arrow = descent(z, run.temperature)
    scale = ARROW / (longest or arrow.norm(dim=1).max().clamp(min=1e-12).item())
    return Still(f"it. {step:,}", run.z[step], run.label, (scale * arrow).numpy())


def rows_of_stills(runs: Sequence[Run]) -> list[tuple[str, list[Still]]]:
    """A row for each run, with one scale of arrows."""
    found = []
    for run in runs:
        steps = [step for step in run.flow.iterations if step in run.z]
        longest = max(
            descent(torch.from_numpy(run.z[step]), run.temperature).norm(dim=1).max().item() for step in steps
        )
        found.append((run.flow.name, [still(run, step, longest) for step in steps]))
    return found


def film(runs: Sequence[Run], path: Path, seconds: float = 0.125) -> Path:
    """Write an animated GIF: the runs beside each other, each at its own pace, without arrows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    steps = [sorted(run.z) for run in runs]
    pictures = []
    for frame in range(max(map(len, steps))):
        row = []
        for run, times in zip(runs, steps, strict=True):
            step = times[min(frame, len(times) - 1)]
            row.append(Still(f"{run.flow.name.split(', ')[-1]}: {step:,}", run.z[step], run.label))
        drawn = io.BytesIO()
        stills([("", row)]).savefig(drawn, dpi=110)
        pictures.append(Image.open(drawn).convert("P", palette=Image.Palette.ADAPTIVE, colors=64))
    pause = round(1000 * seconds)
    times = [pause] * (len(pictures) - 1) + [12 * pause]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=times, loop=0, optimize=True)
    return path


def typical(rows: Sequence[Row], flow: str, iteration: int) -> int:
    """The seed with the median NMI at an iteration; of an even number of seeds, the lower of the two."""
    found = sorted((row.value, row.seed) for row in rows if row[:1] + row[2:4] == (flow, iteration, "nmi"))
    return found[(len(found) - 1) // 2][1] if found else rows[0].seed


def input_figure(run: Run, title: str, noise: float = 0.2):
    """The data with one draw of its noise, along its last coordinate; in space, the third axis points up.

    Lines from the origin give the scale: 3 along a line of clusters, 2 along each axis of a plane of them, and 0.5
    along the noise.
    """
    centers = [run.points[run.label == place].mean(0).round() + 0.0 for place in sorted(set(run.label.tolist()))]
    dim = run.points.shape[1]
    tips = np.diag([{2: 3.0, 3: 2.0}[dim]] * (dim - 1) + [0.5])
    noisy = run.points.copy()
    noisy[:, -1] += noise * (2 * torch.rand(len(noisy), generator=torch.Generator().manual_seed(0)).numpy() - 1)
    marks = [(_place(tip), seen(tip) if dim == 3 else tip) for tip in tips]
    if dim == 3:
        noisy = seen(noisy)
    return clouds([(title, noisy, run.label)], names=[_place(each) for each in centers], marks=marks)


def _place(at: NDArray[np.float64]) -> str:
    return f"({', '.join(f'{each:g}' for each in at)})"


def summary(rows: Sequence[Row], quantity: str, flow: str, iteration: int) -> str:
    """Mean and, in brackets, the least and the greatest over seeds."""
    values = [row.value for row in rows if (row.flow, row.iteration, row.quantity) == (flow, iteration, quantity)]
    return f"{np.mean(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def table(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each flow and still."""
    names = ("nmi", "silhouette", "kmeans_silhouette", "relative_uniformity")
    moments = dict.fromkeys((row.flow, row.iteration) for row in rows)
    return [[flow, f"{step:,}", *(summary(rows, name, flow, step) for name in names)] for flow, step in moments]


HEADER = ["iteration", "NMI", "silhouette", "of k-means", "uniformity / uniform"]
NOTES = Caption(
    notes=(
        "Colour: the input's clusters. Arrows: the negative gradient",
        "at each point, along the sphere, one scale per row.",
    )
)
