"""The command `study`: the arms of study_arms.py, and how far each score agrees with their accuracy."""

__all__ = ["study"]

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from agreements import Row, agreements
from paper_scores import GOOD, TABLE, Value
from recipe import Fit, command, each, existing, finished, grid, markdown, read, run_all, write
from study_arms import DATA, alike, arms_of, knobs

from lightning_ssl_geometry.diagnose import Choice, choose, compare
from lightning_ssl_geometry.diagnose.scores import Score
from lightning_ssl_geometry.files import replacing

HERE = Path(__file__).resolve().parent


def _values(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells of a row of `Choice.model_rows`."""
    return ({"model": row["model"], "score": key, "value": value} for key, value in row.items() if key != "model")


def _trained(options: argparse.Namespace, arm: str, words: list[str], seed: int) -> Fit:
    folder, data = options.output / "study" / arm / f"seed{seed}", DATA[options.data]
    configs = [HERE.parent / "simclr" / "laptop.yaml", *arms_of(data)[arm].configs, HERE / "study.yaml", *data.configs]
    configs += [options.diagnosed] if data.trains else []
    # All runs have one test set, and none has trained on it.
    words = command(options, folder, configs=configs, added=words, seed=seed, data_seed=0)
    return Fit(f"{arm}, seed {seed}", words, folder, finished)


def _diagnosed(options: argparse.Namespace, models: Mapping[str, Path], folder: Path) -> dict[str, Path]:
    """Pass the test images through models. Return the folders of the diagnoses."""

    def fit(name: str, model: Path) -> Fit:
        place = folder / name
        words = ["-m", "lightning_ssl_geometry", "diagnose", "--config", str(options.diagnosed)]
        words += ["--run", str(model), "--output", str(folder), "--name", name, "--progress", "false"]
        return Fit(f"diagnosis of {name}", words, place, lambda place: _newer(finished(place), model))

    return _done(options, {name: fit(name, model) for name, model in models.items()})


def _with_paper_scores(options: argparse.Namespace, choice: Choice, models: Mapping[str, Path], folder: Path) -> Choice:
    """Measure the scores of paper_scores.py on models, and add those that all models have."""

    def fit(name: str, model: Path) -> Fit:
        words = [str(HERE / "paper_scores.py"), "--run", str(model), "--folder", str(folder / name)]
        words += ["--config", str(options.diagnosed)]
        return Fit(f"scores of {name}", words, folder / name, lambda place: _newer(existing(place / TABLE), model))

    files = _done(options, {name: fit(name, model) for name, model in models.items()})
    tables = {name: {row.score: row.value for row in read(file, Value)} for name, file in files.items()}
    found, left_out = list(choice.scores), dict(choice.left_out)
    for score, good in GOOD.items():
        values = {name: tables[name][score] for name in choice.accuracy or {}}
        if lacks := [name for name, value in values.items() if not math.isfinite(value)]:
            left_out[score] = f"no finite value of {', '.join(lacks)}"
        else:
            found.append(Score(score, good, values, ""))
    return replace(choice, scores=tuple(found), left_out=left_out)


def _done(options: argparse.Namespace, fits: Mapping[str, Fit]) -> dict[str, Path]:
    """Run what is missing. Return name -> what was written, or end the command if anything is still missing."""
    run_all(fits.values(), options.jobs)
    found: dict[str, Path] = {name: path for name, one in fits.items() if (path := one.done(one.folder))}
    if missing := [one.name for name, one in fits.items() if name not in found]:
        sys.exit(f"Missing: {'; '.join(missing)}. Start the command again to repeat these.")
    return found


def _newer(found: Path | None, model: Path) -> Path | None:
    """A result of a model, unless the model was trained again since."""
    return found if found is not None and found.stat().st_mtime >= model.stat().st_mtime else None


def _last(run: Path) -> Path:
    return run / "checkpoints" / "last.ckpt"


def _fifth(run: Path) -> Path | None:
    """The checkpoint after a fifth of a run's epochs, if any. A resumed run may have it in an older version."""
    epochs = yaml.safe_load((run / "config.yaml").read_text())["trainer"]["max_epochs"]
    name = f"epoch={epochs // 5 - 1}.ckpt"
    folders = [run, *sorted(run.parent.glob("version_*"), key=lambda path: -int(path.name.removeprefix("version_")))]
    return next((found for folder in folders if (found := existing(folder / "checkpoints" / name))), None)


def _of_data(options: argparse.Namespace) -> argparse.Namespace:
    """Give each data set a folder of its own, and write a data section with the root of its images there."""
    diagnosed, output = DATA[options.data].diagnosed, options.output
    if options.data == "cifar10":
        if options.root is None or not (options.root / "train").is_dir():
            sys.exit(f"Expected --root with train/<class>/* for --data cifar10, but got {options.root}.")
        output = options.output / options.data
        section = yaml.safe_load(diagnosed.read_text())
        section["data"]["init_args"]["root"] = str(options.root / "train")
        diagnosed = output / "data.yaml"
        with replacing(diagnosed) as file:
            file.write(yaml.safe_dump(section).encode())
    return argparse.Namespace(**vars(options) | {"output": output, "diagnosed": diagnosed, "root": None})


def study(options: argparse.Namespace) -> None:
    """Train the arms, pass the test images through all, and measure how far each score agrees with their accuracy."""
    options = _of_data(options)
    arms = arms_of(DATA[options.data])
    runs = grid(options, {arm: list(of.words) for arm, of in arms.items()}, _trained)
    named = {f"{arm}, seed {seed}": folder for arm, seed, folder in each(runs)}
    models = {name: _last(folder) for name, folder in named.items()}
    fifths = {name: fifth for name, folder in named.items() if (fifth := _fifth(folder))}
    ends = _diagnosed(options, models, options.output / "end")
    early = _diagnosed(options, fifths, options.output / "fifth")

    def of(names: Sequence[str], found: Mapping[str, Path] = ends) -> dict[str, Path]:
        return {name: folder for name, folder in found.items() if name.rpartition(", seed ")[0] in names}

    later = {name: ends[name] for name in early}
    quick = partial(choose, resamples=1)  # `agreements` makes the intervals; the page has those of "the end"
    chosen = {
        "the end": choose(ends),
        "the end, whether comparable or not": quick(ends, incomparable=True),
        "the end, one method, temperature and width": quick(of(alike(arms))),
        **{f"the end, {knob}": quick(of(names)) for knob, names in knobs(arms).items()},
        "the end, runs with a fifth": quick(later, incomparable=True),
        "a fifth": quick(early, incomparable=True),
        "the end, runs with a fifth of one method, temperature and width": quick(of(alike(arms), later)),
        "a fifth, one method, temperature and width": quick(of(alike(arms), early)),
    }
    for when, choice in chosen.items():
        files, folder = (fifths, "scores_fifth") if when.startswith("a fifth") else (models, "scores_end")
        known = {name: files[name] for name in choice.accuracy or {}}
        chosen[when] = _with_paper_scores(options, choice, known, options.output / folder)
    accuracy = chosen["the end"].accuracy or {}
    rows = [row for when, choice in chosen.items() for row in agreements(when, choice, accuracy)]
    print(write(rows, options.output / "study.csv", ".4g"))
    for name, choice in {"end": chosen["the end, whether comparable or not"], "fifth": chosen["a fifth"]}.items():
        values = [row for model in choice.model_rows() for row in _values(model)]
        print(write(values, options.output / f"study_{name}.csv", ".4g"))
    print(compare(ends, options.output / "comparison.html", choosing=chosen["the end"].panels()))
    header = ["scores after", "score", "runs", "tau [95%]", "regret, points [95%]", "by chance"]
    print(markdown(header, map(_cells, rows)))
    for when, choice in chosen.items():
        for line in (*choice.remarks, *(f"Left out: {title}: {why}." for title, why in choice.left_out.items())):
            print(f"{when}: {line}")


def _cells(row: Row) -> list[str]:
    chance = f"{100 * row.by_chance:.1f}"
    return [row.when, row.score, str(row.runs), row.tau_text(), row.regret_text(), chance]
