"""Collect the linear evaluation of finished runs: python examples/simclr/table.py RUN... > results.csv.

One line per run, features and number of labels, on standard output; the table of means over seeds, as Markdown, on
standard error. With `--into FILE`, the rows of FILE that the runs have made again are replaced there instead.
"""

import argparse
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


def main(runs, into=None):
    found = pd.concat([rows(Path(run)) for run in runs])
    if into:
        found = replaced(pd.read_csv(into, dtype={"labels_per_class": str}), found)
    found.to_csv(into or sys.stdout, index=False, float_format="%.4f")
    groups = found.groupby(["run", "labels_per_class", "features"], sort=False)["accuracy"]
    table = (100 * groups.agg(["mean", "std", "count"])).reset_index()
    for (run, labels), part in table.groupby(["run", "labels_per_class"], sort=False):
        part = part.set_index("features").reindex(["pixels", "frozen", "trained"]).dropna(subset="mean")
        cells = [f"{name} {r['mean']:.1f} ± {r['std']:.1f}" for name, r in part.iterrows()]
        print(f"| {run} | {labels} | {' | '.join(cells)} | {int(part['count'].iloc[0] / 100)} |", file=sys.stderr)


def replaced(old, new):
    """Replace the rows of the same run, seed, features and labels; what they say of the epochs stays."""
    keys = ["run", "seed", "features", "labels_per_class"]
    new = new.astype({"labels_per_class": str}).set_index(keys)
    old = old.set_index(keys)
    if missing := [key for key in new.index if key not in old.index]:
        raise SystemExit(f"Expected rows of {missing[0]} in the file, but there are none.")
    old.update(new.drop(columns="epochs"))
    return old.astype({name: int for name in ("train_size", "test_size", "feature_dim", "iterations")}).reset_index()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", help="folders of finished runs")
    parser.add_argument("--into", help="a file of such rows")
    main(**vars(parser.parse_args()))
