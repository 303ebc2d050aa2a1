"""What a run says of itself, in run.json and config.yaml, and how well a linear classifier did on its features."""

__all__ = ["Evaluation", "read_config", "read_evaluations", "read_info", "told_of"]

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_ssl_geometry.report.files import plain, read_table, read_text
from lightning_ssl_geometry.report.logs import MOST_DRAWN

_MOST_RECORD_BYTES, _MOST_CONFIG_BYTES = 2**20, 2**18
_MOST_DEPTH, _MOST_ROWS, _MOST_ERROR = 20, 300, 2_000
_PYTHON = "tag:yaml.org,2002:python/"


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
    """Read linear_evaluation.csv: its rows, and notes on what was left out.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it is no file, or no table.
    """
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
    rest = dict(row)
    features, labels = rest.pop("features"), rest.pop("labels_per_class", "all")
    accuracy, std = rest.pop("accuracy"), rest.pop("accuracy_std", "")
    spread = _float(std)
    spread = spread if 0 <= spread < MOST_DRAWN else float("nan")
    return Evaluation(features, labels, _float(accuracy), spread, {k: v for k, v in rest.items() if v})


def _float(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def read_info(path: Path) -> tuple[dict[str, object], list[str]]:
    """Read run.json, and notes on why it is not known.

    Raises:
        OSError: If it cannot be opened.
        RecursionError: If it is nested too deeply.
        ValueError: If it is no file, or no JSON.
    """
    text, notes = read_text(path, path.name, _MOST_RECORD_BYTES)
    info = json.loads(text)
    if not isinstance(info, dict):
        return {}, [*notes, f"{path.name} holds a {type(info).__name__} instead of an object; it was left out."]
    if _depth(info) > _MOST_DEPTH:
        return {}, [*notes, f"{path.name} is nested more than {_MOST_DEPTH} deep; it was left out."]
    return info, notes


def read_config(path: Path) -> tuple[tuple[str, dict[str, object]], list[str]]:
    """Read config.yaml: its text, what it says of model, data and seed for runs without run.json, and notes.

    Nothing is built of it: no Python object, and no alias is written out.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it is no file.
    """
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
    """Say in a sentence how a run failed, where its record knows."""
    error = info.get("error")
    if info.get("status") != "failed" or not isinstance(error, Mapping):
        return []
    when = f"after {plain(info['steps'], 40)} steps" if info.get("steps") is not None else "at once"
    return [f"This run failed {when}: {plain(error.get('type'), 100)}: {plain(error.get('message'), _MOST_ERROR)}"]


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level and depth <= _MOST_DEPTH:
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        depth, level = depth + 1, [item for items in inner for item in items]
    return depth


def _nodes(root: Any) -> Iterator[Any]:
    """All nodes of a YAML document, an alias once."""
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
    """Nodes of a mapping, by their plain keys."""
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
