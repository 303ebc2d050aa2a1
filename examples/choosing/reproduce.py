"""Which score to trust, and how often CollapseGuard is right. README.md says what each part measures and found.

python examples/choosing/reproduce.py study --seeds 0 1 --jobs 2
python examples/choosing/reproduce.py guard --seeds $(seq 0 29) --jobs 2
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from agreements import Agreement, Scores, agreements, read_scores
from readouts import EPOCHS, PATIENCES, READOUTS, Readout
from recipe import Fit, command, each, finished, grid, markdown, over_seeds, parser, read, write
from study import ALIKE
from study import ARMS as STUDIED

HERE = Path(__file__).resolve().parent


def _fit(options: argparse.Namespace, arm: str, words: list[str], seed: int) -> Fit:
    folder = options.output / arm / f"seed{seed}"
    words = [str(HERE / "guard.py"), "--seed", str(seed), *words, "--folder", str(folder)]
    return Fit(f"{arm}, seed {seed}", words, folder, lambda place: _exists(place / READOUTS))


def _exists(path: Path) -> Path | None:
    return path if path.exists() else None


def _lines(rows: Sequence[Readout]) -> Iterator[list[str]]:
    for arm in dict.fromkeys(row.arm for row in rows):
        runs = [[row for row in rows if (row.arm, row.seed) == (arm, seed)] for seed in sorted({r.seed for r in rows})]
        ends = [run[-1] for run in runs]
        # Epochs of each run in which the guard of each patience had warned.
        warned = {
            patience: [sum(getattr(row, f"warned_{patience}") for row in run) for run in runs] for patience in PATIENCES
        }
        when = [EPOCHS - epochs + 1 for epochs in warned[3] if epochs]
        yield [
            arm,
            *(f"{sum(map(bool, warned[patience]))} of {len(runs)}" for patience in PATIENCES),
            f"{median(when):g}" if when else "",
            *(over_seeds([getattr(end, name) for end in ends], ".3f") for name in Readout._fields[3:5]),
            *(over_seeds([getattr(end, name) for end in ends], ".2f") for name in Readout._fields[5:7]),
            *(over_seeds([getattr(end, name) for end in ends], ".2f") for name in ("accuracy_h", "accuracy_z")),
        ]


def guard(options: argparse.Namespace) -> None:
    """Train the arms of guard.py with each seed, and print how often, and when, the guard warned."""
    files = grid(options, {"guard": []}, _fit)["guard"]
    rows = [row for seed in sorted(files) for row in read(files[seed], Readout)]
    print(write(rows, options.output / "guard.csv", ".4g"))
    header = ["arm", *(f"warned, patience {patience}" for patience in PATIENCES), f"epoch of {EPOCHS} (patience 3)"]
    header += ["cosine h", "cosine z", "participation h", "participation z", "accuracy h", "accuracy z"]
    print(markdown(header, _lines(rows)))


def _trained(options: argparse.Namespace, arm: str, words: list[str], seed: int) -> Fit:
    folder = options.output / "study" / arm / f"seed{seed}"
    configs = [HERE.parent / "simclr" / "laptop.yaml", *STUDIED[arm].configs, HERE / "study.yaml"]
    # All runs have one test set, and none has trained on it.
    words = command(options, folder, configs=configs, added=words, seed=seed, data_seed=0)
    return Fit(f"{arm}, seed {seed}", words, folder, finished)


def _chosen(models: Mapping[str, Path], output: Path) -> tuple[Scores, dict[str, str]]:
    """Pass the test digits through models. Return their scores and accuracies, and which values of a score are good."""
    named = [f"{name}={model}" for name, model in models.items()]
    words = ["choose", *named, "--output", str(output), "--progress", "false"]
    subprocess.run([sys.executable, "-m", "lightning_ssl_geometry", *words], check=True)
    return read_scores(output)


def _fifth(run: Path) -> Path | None:
    """The checkpoint after a fifth of a run's epochs, if there is one: there is one after every tenth epoch."""
    epochs = yaml.safe_load((run / "config.yaml").read_text())["trainer"]["max_epochs"]
    return _exists(run / "checkpoints" / f"epoch={epochs // 5 - 1}.ckpt")


def study(options: argparse.Namespace) -> None:
    """Train the arms, pass the test digits through all, and measure how far each score agrees with their accuracy."""
    runs = grid(options, {arm: list(of.words) for arm, of in STUDIED.items()}, _trained)
    ended = {f"{arm}, seed {seed}": folder for arm, seed, folder in each(runs)}
    models, good = _chosen(ended, options.output / "diagnoses")
    early, good_early = _chosen(
        {name: fifth for name, folder in ended.items() if (fifth := _fifth(folder))}, options.output / "fifth"
    )
    alike = {f"{arm}, seed {seed}": folder for arm, seed, folder in each(runs) if arm in ALIKE}
    models_alike, good_alike = _chosen(alike, options.output / "alike")
    accuracy = {name: scores["accuracy"] for name, scores in models.items()}
    rows = [
        *agreements("the end", models, good, accuracy),
        *agreements("the end, one method, temperature and width", models_alike, good_alike, accuracy),
        *agreements("the end, runs with a fifth", {name: models[name] for name in early}, good, accuracy),
        *agreements("a fifth", early, good_early | {"accuracy": "high"}, accuracy),
    ]
    print(write(rows, options.output / "study.csv", ".4g"))
    header = ["scores after", "score", "runs", "tau [95%]", "regret, points [95%]"]
    print(markdown(header, map(_cells, rows)))


def _cells(row: Agreement) -> list[str]:
    regret, low, high = (100 * value for value in row[6:])
    tau = f"{row.tau:.2f} [{row.tau_low:.2f}, {row.tau_high:.2f}]"
    return [row.when, row.score, str(row.runs), tau, f"{regret:.1f} [{low:.1f}, {high:.1f}]"]


if __name__ == "__main__":
    given = parser(__doc__, "runs/choosing", what=["study", "guard"]).parse_intermixed_args()
    {"study": study, "guard": guard}[given.what](given)
