"""The command `guard`: the fits of guard_fit.py with each seed, and a table of what CollapseGuard did in them."""

__all__ = ["HEADER", "guard", "lines"]

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from readouts import EPOCHS, PATIENCES, READOUTS, Readout
from recipe import Fit, existing, grid, markdown, over_seeds, read, write

HERE = Path(__file__).resolve().parent
HEADER = (  # of the printed table
    "arm",
    *(f"warned, patience {patience}" for patience in PATIENCES),
    "epoch (patience 3)",
    "cosine h",
    "cosine z",
    "participation h",
    "participation z",
    "accuracy h",
    "accuracy z",
)


def guard(options: argparse.Namespace) -> None:
    """Train the arms of guard_fit.py with each seed, and print how often, and when, the guard warned."""
    files = grid(options, {"guard": []}, _fit)["guard"]
    rows = [row for seed in sorted(files) for row in read(files[seed], Readout)]
    print(write(rows, options.output / "guard.csv", ".4g"))
    print(markdown(HEADER, lines(rows)))


def lines(rows: Sequence[Readout]) -> Iterator[list[str]]:
    """The lines of the printed table, one for each arm."""
    for arm in dict.fromkeys(row.arm for row in rows):
        runs = [[row for row in rows if (row.arm, row.seed) == (arm, seed)] for seed in sorted({r.seed for r in rows})]
        ends = [run[-1] for run in runs]
        watched = not math.isnan(ends[0].cosine_h)  # all but the untrained network
        # Epochs of each run in which the guard of each patience had warned.
        warned = {
            patience: [sum(getattr(row, f"warned_{patience}") for row in run) for run in runs] for patience in PATIENCES
        }
        when = [EPOCHS - epochs + 1 for epochs in warned[3] if epochs]
        yield [
            arm,
            *(f"{sum(map(bool, warned[patience]))} of {len(runs)}" if watched else "" for patience in PATIENCES),
            f"{median(when):g}" if when else "",
            *(over_seeds([getattr(end, name) for end in ends], ".3f") for name in Readout._fields[3:5]),
            *(over_seeds([getattr(end, name) for end in ends], ".2f") for name in Readout._fields[5:7]),
            *(over_seeds([getattr(end, name) for end in ends], ".2f") for name in ("accuracy_h", "accuracy_z")),
        ]


def _fit(options: argparse.Namespace, arm: str, words: list[str], seed: int) -> Fit:
    folder = options.output / arm / f"seed{seed}"
    words = [str(HERE / "guard_fit.py"), "--seed", str(seed), *words, "--folder", str(folder)]
    return Fit(f"{arm}, seed {seed}", words, folder, lambda place: existing(place / READOUTS))
