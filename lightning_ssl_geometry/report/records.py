"""Read run.json, config.yaml, linear_evaluation.csv and layers.csv of a run."""

__all__ = ["Evaluation", "Layers", "read_config", "read_evaluations", "read_info", "read_layers", "told_of"]

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lightning_ssl_geometry.report.files import plain, read_table, read_text
from lightning_ssl_geometry.report.logs import MOST_DRAWN, Floats, floats

_MOST_RECORD_BYTES, _MOST_CONFIG_BYTES = 2**20, 2**18
_MOST_DEPTH, _MOST_ROWS, _MOST_ERROR, _MOST_LAYERS = 20, 300, 2_000, 200
_PYTHON = "tag:yaml.org,2002:python/"


@dataclass(frozen=True)
class Evaluation:
    """One row of linear_evaluation.csv: the accuracy of a linear classifier on fixed features.

    Attributes:
        features: `pixels`, `frozen` (the untrained network), `trained`, or another name.
        labels: Labels per class: `all` or a number.
        accuracy: In [0, 1].
        std: Standard deviation over repeats. NaN if there is none.
        details: The other columns of the row.
    """

    features: str
    labels: str
    accuracy: float
    std: float
    details: Mapping[str, str]


@dataclass(frozen=True)
class Layers:
    """Scalars of each layer, in the order of the forward pass.

    Attributes:
        names: L names. The first is `h`, the last is `z`.
        width: (L,), number of dimensions. NaN if unknown.
        values: Name of a scalar, such as `effective_rank` -> values (L,). NaN if unknown.
    """

    names: tuple[str, ...]
    width: Floats
    values: Mapping[str, Floats] = field(default_factory=dict)


def read_evaluations(path: Path) -> tuple[tuple[Evaluation, ...], list[str]]:
    """Return the usable rows of linear_evaluation.csv, and sentences on problems."""
    table, notes = read_table(path, path.name)
    if missing := [key for key in ("features", "accuracy") if table.rows and key not in table.columns]:
        return (), [*notes, f"{path.name} has no column {' and no column '.join(missing)}; it was left out."]
    if len(table.rows) > _MOST_ROWS:
        notes.append(f"{path.name} has {len(table.rows):,} rows; only the first {_MOST_ROWS} were read.")
    found = [_evaluation(row) for row in table.by_column(_MOST_ROWS)]
    kept = tuple(row for row in found if abs(row.accuracy) < MOST_DRAWN)
    if len(kept) < len(found):
        lost = f"{len(found) - len(kept)} of {len(found)}"
        notes.append(f"{path.name}: left out rows whose accuracy is not a number, {lost}.")
    return kept, notes


def _evaluation(row: dict[str, str]) -> Evaluation:
    features, labels = row.pop("features"), row.pop("labels_per_class", "all")
    accuracy, std = floats([row.pop("accuracy"), row.pop("accuracy_std", "")]).tolist()
    std = std if 0 <= std < MOST_DRAWN else float("nan")
    return Evaluation(features, labels, accuracy, std=std, details={key: cell for key, cell in row.items() if cell})


def read_layers(path: Path) -> tuple[Layers | None, list[str]]:
    """Return layers.csv (columns layer, width and scalars), or None if it is unusable, and sentences on problems."""
    table, notes = read_table(path, path.name)
    if not table.rows:
        return None, notes
    if "layer" not in table.columns:
        return None, [*notes, f"{path.name} has no column `layer`; it was left out."]
    if len(table.rows) > _MOST_LAYERS or len(table.columns) > _MOST_LAYERS:
        shape = f"{len(table.rows):,} rows and {len(table.columns):,} columns"
        return None, [*notes, f"{path.name} has {shape}, and no more than {_MOST_LAYERS} are read; it was left out."]
    columns = {name: [cell.strip() for cell in table.column(name)] for name in table.columns if name != "layer"}
    parsed = {name: floats(cells) for name, cells in columns.items()}
    finite = np.concatenate([values[np.isfinite(values)] for values in [np.empty(0), *parsed.values()]])
    if lost := sum(bool(cell) for cells in columns.values() for cell in cells) - len(finite):
        notes.append(f"{path.name}: left out cells that are not finite numbers, {lost} in all.")
    if huge := int((np.abs(finite) > MOST_DRAWN).sum()):
        notes.append(f"{path.name}: left out cells beyond ±{MOST_DRAWN:.0e}, {huge} in all.")
    parsed = {name: np.where(np.abs(values) < MOST_DRAWN, values, np.nan) for name, values in parsed.items()}
    width = parsed.pop("width", np.full(len(table.rows), np.nan))
    kept = {name: values for name, values in parsed.items() if np.isfinite(values).any()}
    return Layers(tuple(table.column("layer")), width, kept), notes


def read_info(path: Path) -> tuple[dict[str, object], list[str]]:
    """Return the content of run.json, and sentences on problems."""
    text, notes = read_text(path, path.name, _MOST_RECORD_BYTES)
    info = json.loads(text)
    if not isinstance(info, dict):
        return {}, [*notes, f"{path.name} holds a {type(info).__name__} instead of an object; it was left out."]
    if _depth(info) > _MOST_DEPTH:
        return {}, [*notes, f"{path.name} is nested more than {_MOST_DEPTH} deep; it was left out."]
    return info, notes


def read_config(path: Path) -> tuple[tuple[str, dict[str, object]], list[str]]:
    """Return the text of config.yaml, a dict of model, data and seed, and sentences on problems. Build no objects."""
    import yaml

    text, notes = read_text(path, path.name, _MOST_CONFIG_BYTES)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return (text, {}), [*notes, f"{path.name} is not YAML; it is shown as it is."]
    except RecursionError:
        return (text, {}), [*notes, f"{path.name} is nested too deeply; it is shown as it is, and not read."]
    if tag := next((node.tag for node in _nodes(root) if node.tag.startswith(_PYTHON)), None):
        asked = plain(tag.replace(_PYTHON, "!!python/"), 80)
        notes.append(f"{path.name} asks for a Python object ({asked}), which was not built; it is shown as it is.")
    return (text, _configured(root)), notes


def told_of(info: Mapping[str, object]) -> list[str]:
    """Return a list with one sentence on how a run failed. It is empty if the run did not fail."""
    error = info.get("error")
    if info.get("status") != "failed" or not isinstance(error, Mapping):
        return []
    said = f"{plain(error.get('type'), 100)}: {plain(error.get('message'), _MOST_ERROR)}"
    return [f"This {_failed(info.get('steps'), info.get('from_step', 0))}: {said}"]


def _failed(steps: object, before: object) -> str:
    if steps is None:
        return "run failed at once"
    if isinstance(steps, int) and isinstance(before, int) and steps <= before:
        return f"{'part of the run' if before else 'run'} failed before its first step"
    return f"run failed after {plain(steps, 40)} steps"


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level and depth <= _MOST_DEPTH:
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        depth, level = depth + 1, [item for items in inner for item in items]
    return depth


def _nodes(root: Any) -> Iterator[Any]:
    left, seen = [root] if root is not None else [], set[int]()
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node.value, list):
            left += [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]


def _entries(node: Any) -> dict[str, Any]:
    pairs = node.value if node is not None and node.id == "mapping" else ()
    return {key.value: value for key, value in pairs if key.id == "scalar"}


def _configured(root: Any) -> dict[str, object]:
    found: dict[str, object] = {}
    config = _entries(root)
    for key in ("model", "data"):
        path = _entries(config.get(key)).get("class_path")
        if path is not None and path.tag == "tag:yaml.org,2002:str":
            found[key] = path.value.rpartition(".")[2]
    seed = config.get("seed_everything")
    if seed is not None and seed.tag == "tag:yaml.org,2002:int" and re.fullmatch(r"-?[0-9]{1,20}", seed.value):
        found["seed"] = int(seed.value)
    return found
