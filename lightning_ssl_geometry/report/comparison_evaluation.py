"""Comparison of groups of runs under one linear classifier."""

__all__ = ["evaluation_comparison"]

from collections.abc import Sequence
from textwrap import wrap

import numpy as np

from lightning_ssl_geometry.plots import Caption, Dot, dots
from lightning_ssl_geometry.report.download import Numbers
from lightning_ssl_geometry.report.evaluation import FEATURES, evaluation_groups, feature_name, weightings_remark
from lightning_ssl_geometry.report.glossary import ENTRIES
from lightning_ssl_geometry.report.groups import Group
from lightning_ssl_geometry.report.logs import Floats
from lightning_ssl_geometry.report.numbers import percent
from lightning_ssl_geometry.report.panel import Panel, printable

_COMPARED = tuple(name for name in FEATURES if name not in ("pixels", "frozen"))  # these do not depend on the group


def evaluation_comparison(groups: Sequence[Group], titled: bool) -> Panel | None:
    """Draw the accuracy of the linear classifier on what was trained, for each kind of feature and number of labels."""
    found: dict[tuple[str, str], list[tuple[Group, Floats]]] = {}
    for group in groups:
        rows = [
            (heading, row) for run in group.runs for heading, each in evaluation_groups(run).items() for row in each
        ]
        for key in dict.fromkeys((row.features, heading) for heading, row in rows if row.features in _COMPARED):
            accuracy = [row.accuracy for heading, row in rows if (row.features, heading) == key]
            found.setdefault(key, []).append((group, np.array(accuracy)))
    if not found:
        return None
    ordered = sorted(found.items(), key=lambda each: _COMPARED.index(each[0][0]))
    named = [(_heading(*key), rows) for key, rows in ordered]
    spoken = [f"{heading}: {group.name} {_accuracy(value)}" for heading, rows in named for group, value in rows]
    pairs = [pair for _, rows in named for pair in rows]
    counts = dict.fromkeys(f"{printable(group.name)} {_runs(group, value)}" for group, value in pairs)
    alone = all(len(group.runs) == 1 for group, _ in pairs)
    note = [] if alone else wrap(f"Mean and standard deviation; runs of {', '.join(counts)}.", 58)
    only = {features for features, _ in found} == {"trained"}
    title = f"Linear evaluation{', trained network' if only else ''}"
    shown = [(printable(heading, 40), [_dot(*row) for row in rows]) for heading, rows in named]
    figure = dots(shown, xlabel="accuracy, %", caption=Caption(title if titled else "", (), note))
    label = f"{title}: {'; '.join(spoken)}."
    remark = weightings_remark(features for features, _ in found)
    table = [(group.name, *key, float(value.mean()), _std(value), len(value))
             for key, rows in ordered for group, value in rows]  # fmt: skip
    numbers = Numbers(("group", "features", "labels", "accuracy", "accuracy_std", "runs"), table)
    return Panel("linear_evaluation", title, figure, label, (ENTRIES["linear_evaluation"],), remark=remark,
                 numbers=numbers)  # fmt: skip


def _heading(features: str, labels: str) -> str:
    return labels if features == "trained" else f"{feature_name(features)}, {labels}"


def _dot(group: Group, accuracy: Floats) -> Dot:
    std = _std(accuracy)
    text = _accuracy(accuracy)
    tip = f"{printable(group.name, 40)}: {text}, runs: {_runs(group, accuracy)}"
    return Dot(printable(group.name, 16), 100 * float(accuracy.mean()), 100 * std, text, group.color, tip)


def _std(accuracy: Floats) -> float:
    return float(accuracy.std(ddof=1)) if len(accuracy) > 1 else np.nan


def _runs(group: Group, accuracy: Floats) -> str:
    return f"{len(accuracy)} of {len(group.runs)}" if len(accuracy) < len(group.runs) else f"{len(accuracy)}"


def _accuracy(accuracy: Floats) -> str:
    return percent(float(accuracy.mean())) + (f" ± {100 * accuracy.std(ddof=1):.1f}" if len(accuracy) > 1 else "")
