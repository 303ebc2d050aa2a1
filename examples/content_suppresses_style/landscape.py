"""The loss of InfoNCE over the scales of content and style, without training: what its minimum does to the style.

    python examples/content_suppresses_style/landscape.py

On the box, f = (s_c z_c, s_s z_s), on the sphere, f is this vector divided by its length, in the setting of Table 1
(d = 10, d_c = 2, style of standard deviation 0.05 or concentration 0.05, tau = 1). A positive style scale is a map of
full rank, 0 is a collapse. OUTPUT has landscape.csv and the PNGs. It takes some minutes on one core.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lightning_ssl_geometry.data import LatentProcess
from lightning_ssl_geometry.functional import counter_hash, info_nce
from lightning_ssl_geometry.plots import RAMP, Caption, Curve, curves

sys.path[:0] = [str(Path(__file__).parents[1])]
from recipe import Different, at_least, errors_in_one_line, markdown, output_folder, over_seeds, save, write  # noqa: E402

DIM, CONTENT = 10, 2
CONTENT_SCALES = {"box": (1.0, 5.0, 10.0, 20.0, 50.0, 100.0), "sphere": (1.0,)}  # the sphere has the ratio alone
STYLE_SCALES = {"box": np.linspace(0, 10, 41), "sphere": np.linspace(0, 1.25, 26)}
CONTRASTS = {"with itself": True, "without itself": False}


class Row(NamedTuple):
    """The loss of one map, for one seed."""

    space: str
    contrast: str
    content_scale: float
    style_scale: float
    seed: int
    loss: float


def latents(space: str, seed: int, rows: int) -> Tensor:
    """Both views of the latents, (2, N, d), in float64."""
    law = {"space": "box"} if space == "box" else {"space": "sphere", "conditional": "von_mises_fisher"}
    process = LatentProcess(DIM, CONTENT, **law, style_scale=0.05, concentration=0.05)
    return process.sample(counter_hash(seed, torch.arange(rows))).double()


def loss(space: str, views: Tensor, scales: tuple[float, float], include_self: bool) -> float:
    """InfoNCE of the scaled latents at tau = 1: of squared distances on the box, of cosines on the sphere."""
    scale = torch.tensor([scales[0]] * CONTENT + [scales[1]] * (DIM - CONTENT), dtype=views.dtype)
    of_cosines = {"normalize": True, "similarity": "dot"} if space == "sphere" else {}
    return info_nce(*(views * scale), 1.0, "CL_ICA", include_self=include_self, **of_cosines).item()


def measured(space: str, seed: int, rows: int) -> Iterator[Row]:
    """The loss at each pair of scales, with the anchor among its negatives and without."""
    views = latents(space, seed, rows)
    for contrast, include_self in CONTRASTS.items():
        for content_scale in CONTENT_SCALES[space]:
            for style_scale in STYLE_SCALES[space]:
                found = loss(space, views, (content_scale, float(style_scale)), include_self)
                yield Row(space, contrast, content_scale, float(style_scale), seed, found)


def mean_loss(rows: list[Row], space: str, contrast: str, content_scale: float) -> np.ndarray:
    """The loss at each style scale, a mean over seeds."""
    place = (space, contrast, content_scale)
    found = [row.loss for row in rows if (row.space, row.contrast, row.content_scale) == place]
    return np.array(found).reshape(-1, len(STYLE_SCALES[space])).mean(0)


def figure(rows: list[Row], space: str, contrast: str):
    """The loss over the style scale, a line for each content scale."""
    lines = []
    for content_scale, color in zip(CONTENT_SCALES[space], RAMP[-len(CONTENT_SCALES[space]) :], strict=True):
        y = mean_loss(rows, space, contrast, content_scale)
        best = STYLE_SCALES[space][y.argmin()]
        name = f"content {content_scale:g}: {best:g}" if space == "box" else f"least at {best:g}"
        lines.append(Curve(name, STYLE_SCALES[space], y, color))
    note = "At the right: content scale, and the style scale of the least loss." if space == "box" else ""
    title = f"Loss on the {space}, anchor {'among' if CONTRASTS[contrast] else 'not among'} its negatives"
    caption = Caption(title=title, notes=(note,) if note else ())
    xlabel = "scale of the style" if space == "box" else "scale of the style over that of the content"
    log = True if space == "box" and not CONTRASTS[contrast] else None
    return curves(lines, xlabel=xlabel, ylabel="InfoNCE", log=log, caption=caption)


def best_rows(rows: list[Row]) -> list[list[str]]:
    """A line for each space and contrast: the loss of the inverse, the best scaling, and the best collapsed map."""
    lines = []
    for space, contrast in dict.fromkeys((row.space, row.contrast) for row in rows):
        here = [row for row in rows if (row.space, row.contrast) == (space, contrast)]
        seeds = sorted({row.seed for row in here})
        of = {
            "inverse": [row for row in here if row.content_scale == row.style_scale == 1.0],
            "full rank": [min((r for r in here if r.seed == s and r.style_scale > 0), key=lambda r: r.loss)
                          for s in seeds],
            "collapsed": [min((r for r in here if r.seed == s and r.style_scale == 0), key=lambda r: r.loss)
                          for s in seeds],
        }  # fmt: skip
        best = of["full rank"][0]
        losses = [over_seeds([row.loss for row in found], ".3f") for found in of.values()]
        lines.append([space, contrast, *losses, f"{best.content_scale:g}, {best.style_scale:g}"])
    return lines


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--output", type=output_folder, default=Path("runs/content_suppresses_style/landscape"))
    arguments.add_argument("--seeds", type=at_least(0), nargs="+", default=[0, 1, 2], action=Different)
    arguments.add_argument("--rows", type=at_least(2), default=4096, help="pairs of latents")
    options = arguments.parse_args()
    rows = [row for space in CONTENT_SCALES for seed in options.seeds for row in measured(space, seed, options.rows)]
    print(write(rows, options.output / "landscape.csv", ".5g"))
    scales = f"scales of the best full rank (seed {min(options.seeds)})"
    header = ["", "", "inverse", "best full rank", "best collapsed", scales]
    print(markdown(header, best_rows(rows)))
    for space in CONTENT_SCALES:
        for contrast in CONTRASTS:
            name = f"landscape_{space}_{contrast.split()[0]}.png"
            print(save(figure(rows, space, contrast), options.output / name))


if __name__ == "__main__":
    with errors_in_one_line():
        main()
