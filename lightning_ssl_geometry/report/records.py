"""What a run says of itself, in run.json and config.yaml, and how well a linear classifier did on its features."""

__all__ = ["Evaluation", "read_config", "read_evaluations", "read_info"]

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lightning_ssl_geometry.report.logs import read_rows


@dataclass(frozen=True)
class Evaluation:
    """One row of linear_evaluation.csv: a linear classifier on fixed features.

    Attributes:
        features: `pixels`, `frozen` (a network with random weights), `trained`, or another name.
        labels: Labels per class, `all` or a number.
        accuracy: In [0, 1].
        std: Standard deviation over repeats, NaN where there is none.
        details: The row's other columns, as they are.
    """

    features: str
    labels: str
    accuracy: float
    std: float
    details: Mapping[str, str]


def read_evaluations(path: Path) -> tuple[tuple[Evaluation, ...], list[str]]:
    """Read linear_evaluation.csv: its rows, and notes on what was left out."""
    if not path.is_file():
        return (), []
    rows, notes = read_rows(path, path.name)
    if missing := [key for key in ("features", "accuracy") if rows and key not in rows[0]]:
        return (), [*notes, f"{path.name} has no column {' and no column '.join(missing)}; it was left out."]
    found = [_evaluation(row) for row in rows]
    kept = tuple(row for row in found if np.isfinite(row.accuracy))
    if len(kept) < len(found):
        notes.append(
            f"{path.name}: left out rows whose accuracy is not a number, {len(found) - len(kept)} of {len(found)}."
        )
    return kept, notes


def _evaluation(row: dict[str, str]) -> Evaluation:
    rest = dict(row)
    features, labels = rest.pop("features"), rest.pop("labels_per_class", "all")
    accuracy, std = rest.pop("accuracy"), rest.pop("accuracy_std", "")
    return Evaluation(features, labels, _float(accuracy), _float(std), {k: v for k, v in rest.items() if v})


def _float(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def read_info(path: Path) -> tuple[dict[str, object], list[str]]:
    """Read run.json, and notes on why it is not known."""
    if not path.is_file():
        return {}, ["run.json is missing: model, data, seed, versions and status are not known from it."]
    try:
        info = json.loads(path.read_bytes().decode("utf-8", errors="replace"))
    except ValueError as error:
        return {}, [f"run.json could not be read: {error}."]
    if not isinstance(info, dict):
        return {}, [f"run.json holds a {type(info).__name__} instead of an object; it was left out."]
    return info, []


def read_config(path: Path, command: object = None) -> tuple[str | None, dict[str, object], list[str]]:
    """Read config.yaml: its text, what it says of model, data and seed for runs without run.json, and notes.

    Args:
        path: The file.
        command: What started the run: only `ssl-geometry` writes such a file.
    """
    if not path.is_file():
        ours = str(command).startswith("ssl-geometry")
        return None, {}, ["config.yaml is missing, which ssl-geometry writes: settings are not known."] if ours else []
    import yaml

    text = path.read_bytes().decode("utf-8", errors="replace")
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError:
        return text, {}, ["config.yaml is not YAML; it is shown as it is."]
    return text, _configured(config) if isinstance(config, dict) else {}, []


def _configured(config: dict[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key in ("model", "data"):
        section = config.get(key)
        if isinstance(section, dict) and isinstance(section.get("class_path"), str):
            found[key] = section["class_path"].rpartition(".")[2]
    if isinstance(seed := config.get("seed_everything"), int) and not isinstance(seed, bool):
        found["seed"] = seed
    return found
