"""Collect the linear evaluation of finished runs: python examples/simclr/table.py RUN... > results.csv.

One line per run, features and number of labels, on standard output; the table of means over seeds, as Markdown, on
standard error.
"""

import json
import sys
from pathlib import Path

import pandas as pd


def rows(run):
    record = json.loads((run / "run.json").read_text())
    frame = pd.read_csv(run / "linear_evaluation.csv").drop(columns=["accuracy_std", "repeats"])
    frame.insert(0, "run", run.parent.name)
    frame.insert(1, "seed", record["seed"])
    frame["epochs"] = record["epochs"]
    return frame


def main(runs):
    found = pd.concat([rows(Path(run)) for run in runs])
    found.to_csv(sys.stdout, index=False, float_format="%.4f")
    order = ["pixels", "frozen", "trained"]
    groups = found.groupby(["run", "labels_per_class", "features"], sort=False)["accuracy"]
    table = (100 * groups.agg(["mean", "std", "count"])).reset_index()
    for (run, labels), part in table.groupby(["run", "labels_per_class"], sort=False):
        cells = [f"{r['mean']:.1f} ± {r['std']:.1f}" for _, r in part.set_index("features").loc[order].iterrows()]
        print(f"| {run} | {labels} | {' | '.join(cells)} | {int(part['count'].iloc[0] / 100)} |", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
