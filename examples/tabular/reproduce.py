"""Train SimCLR on tables, and score features by logistic regression and kNN: see README.md beside this file.

    python examples/tabular/reproduce.py --output runs/tabular

The features are the raw ones, those of the untrained network, and those of the trained network. It writes
`results.csv` and prints the table of README.md. `--split val` scores the validation samples, by which settings are
chosen. Arguments after `--` are passed on to the configuration of each run.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import recipe  # noqa: E402

from lightning_ssl_geometry.cli import lightning_cli  # noqa: E402

FEATURES = {"breast_cancer": 30, "wine": 13}  # of each table
CLASSIFIERS = {
    "linear": lambda: LogisticRegression(max_iter=1000),
    "kNN": lambda: KNeighborsClassifier(n_neighbors=5),
}
FEW = 5  # labels per class


class Row(NamedTuple):
    """The accuracy of one classifier on one kind of features."""

    data: str
    seed: int
    labels: str
    classifier: str
    features: str
    accuracy: float


def main():
    parser = recipe.parser(__doc__, "runs/tabular")
    parser.add_argument("--size", choices=["smoke", "laptop"], default="laptop")
    parser.add_argument("--split", choices=["val", "test"], default="test")
    options = parser.parse_args()
    rows = [row for name in FEATURES for seed in options.seeds for row in scored(options, name, seed=seed)]
    recipe.write(rows, options.output / "results.csv", digits=".4f")
    print(table(rows))


def scored(options, name, seed):
    """Train one network, and return the rows of one table and seed."""
    cli = parsed(options, name, seed=seed)
    cli.datamodule.setup()
    sets = {"raw": features(cli, None, options.split), "untrained": features(cli, cli.model, options.split)}
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    sets["trained"] = features(cli, cli.model, options.split)
    (_, label), _ = sets["raw"]
    draws = {"all": [np.arange(len(label))], f"{FEW} per class": drawn(label, seed)}
    return [
        Row(name, seed, labels, classifier, kind, mean_accuracy(make, *found, chosen))
        for labels, chosen in draws.items()
        for classifier, make in CLASSIFIERS.items()
        for kind, found in sets.items()
    ]


def parsed(options, name, seed):
    given = ["--config", str(HERE / f"{options.size}.yaml"), "--data.init_args.name", name]
    given += ["--model.init_args.backbone.init_args.in_dim", str(FEATURES[name])]
    given += ["--seed_everything", str(seed), "--data.init_args.seed", str(seed), *options.more]
    given += ["--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false", "--trainer.callbacks", "null"]
    given += ["--trainer.enable_checkpointing", "false", "--trainer.enable_model_summary", "false"]
    return lightning_cli([*given, "--trainer.logger", "false", "--trainer.limit_val_batches", "0"], run=False)


@torch.no_grad()
def features(cli, model, split):
    """(features, labels) of the training samples and of the samples of `split`."""
    found = []
    for part in ("train", split):
        batches = [
            cli.datamodule.on_after_batch_transfer(batch, 0) for batch in cli.datamodule.unaugmented_dataloader(part)
        ]
        image, label = (torch.cat([batch[key] for batch in batches]) for key in ("image", "label"))
        found.append(((image if model is None else model.eval()(image)).numpy(), label.numpy()))
    if model is not None:
        model.train()
    return found


def drawn(label, seed):
    """Draw a few samples of each class, 10 times."""
    generator = np.random.default_rng(seed)
    places = [np.flatnonzero(label == number) for number in np.unique(label)]
    return [np.concatenate([generator.choice(place, FEW, replace=False) for place in places]) for _ in range(10)]


def mean_accuracy(make, fitted, test, draws):
    """Fit the classifier on each draw of the training samples, and return its mean accuracy on `test`."""
    x, label = fitted
    models = [make_pipeline(StandardScaler(), make()).fit(x[draw], label[draw]) for draw in draws]
    return float(np.mean([model.score(*test) for model in models]))


def table(rows):
    kinds = ("raw", "untrained", "trained")
    found = {}
    for row in rows:
        kind = found.setdefault((row.data, row.labels, row.classifier), {name: [] for name in kinds})
        kind[row.features].append(100 * row.accuracy)
    lines = [[*place, *(recipe.over_seeds(kind[name], ".1f") for name in kinds)] for place, kind in found.items()]
    return recipe.markdown(["data", "labels", "classifier", *kinds], lines)


if __name__ == "__main__":
    with recipe.errors_in_one_line():
        main()
