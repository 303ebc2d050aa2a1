"""The comparison under one linear classifier: pixels, a frozen random network, what was trained, weighted in ways."""

__all__ = ["FEATURES", "evaluation_groups", "evaluation_panel", "feature_name", "is_chosen", "shown_accuracy",
           "weightings_remark"]  # fmt: skip

from collections.abc import Iterable

import numpy as np

from lightning_ssl_geometry.plots import Dot, dots
from lightning_ssl_geometry.report.download import Numbers
from lightning_ssl_geometry.report.glossary import ENTRIES
from lightning_ssl_geometry.report.numbers import percent
from lightning_ssl_geometry.report.panel import Panel, printable
from lightning_ssl_geometry.report.records import Evaluation
from lightning_ssl_geometry.report.run import Run

_WEIGHTINGS = ("learned", "top", "oracle", "uniform")  # of augmentations, over which f or its head is averaged
_WEIGHTED = (
    "f and its head are averaged over augmentations. Their weights: P(T | X) (learned), its likeliest alike (top), "
    "those with most of the object alike (oracle), all alike (uniform)."
)
FEATURES = {"pixels": "raw pixels", "frozen": "frozen network", "trained": "trained network"}
FEATURES |= {name: name for level in ("f", "head") for name in (f"{level}, {weighting}" for weighting in _WEIGHTINGS)}


def feature_name(name: str) -> str:
    """What a row of the comparison is called.

    >>> feature_name("frozen"), feature_name("resnet")
    ('frozen network', 'resnet')
    """
    return FEATURES.get(name, name)


def is_chosen(name: str) -> bool:
    """Whether features are those of the method as it was trained, which the others are there to compare with."""
    return name in ("trained", "f, learned", "head, learned")


def weightings_remark(features: Iterable[str]) -> str:
    """Say what is averaged over augmentations, where something is."""
    return _WEIGHTED if any(name.endswith(tuple(f", {each}" for each in _WEIGHTINGS)) for name in features) else ""


def shown_accuracy(row: Evaluation) -> str:
    """Write an accuracy with its spread, where it has one."""
    return percent(row.accuracy) + ("" if np.isnan(row.std) else f" ± {100 * row.std:.1f}")


def evaluation_groups(run: Run) -> dict[str, list[Evaluation]]:
    """Group the rows by labels per class (and split, where there are several); all labels and pixels first."""
    splits = {row.details.get("split", "") for row in run.evaluations}
    order = {name: place for place, name in enumerate(FEATURES)}
    groups: dict[str, list[Evaluation]] = {}
    for row in sorted(run.evaluations, key=lambda row: order.get(row.features, len(order))):
        heading = (
            "all labels" if row.labels == "all" else f"{row.labels} label{'' if row.labels == '1' else 's'} per class"
        )
        heading += f", {row.details.get('split', 'no split')}" if len(splits) > 1 else ""
        groups.setdefault(heading, []).append(row)
    return dict(sorted(groups.items(), key=lambda group: not group[0].startswith("all")))


def evaluation_panel(run: Run) -> Panel | None:
    """Draw the accuracies as dots; None if there are none."""
    groups = evaluation_groups(run)
    if not groups:
        return None
    figure = dots([(printable(name, 40), [_dot(row) for row in rows]) for name, rows in groups.items()],
                  xlabel="accuracy, %")  # fmt: skip
    spoken = "; ".join(
        f"{heading}: " + ", ".join(f"{feature_name(row.features)} {shown_accuracy(row)}" for row in rows)
        for heading, rows in groups.items()
    )
    entry = ENTRIES["linear_evaluation"]
    splits = tuple(dict.fromkeys(row.details.get("split", "") for row in run.evaluations))
    title = "The same linear classifier on each"
    remark = weightings_remark(row.features for row in run.evaluations)
    return Panel("linear_evaluation", title, figure, f"{entry.title}: {spoken}.", (entry,), splits, remark=remark,
                 numbers=_numbers(run))  # fmt: skip


def _numbers(run: Run) -> Numbers:
    """All columns of the file."""
    details = list(dict.fromkeys(key for row in run.evaluations for key in row.details))
    rows: list[list[str | float]] = [
        [row.features, row.labels, row.accuracy, row.std, *(row.details.get(key, "") for key in details)]
        for row in run.evaluations
    ]
    return Numbers(("features", "labels_per_class", "accuracy", "accuracy_std", *details), rows)


def _dot(row: Evaluation) -> Dot:
    name, text = feature_name(row.features), shown_accuracy(row)
    details = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in row.details.items())
    tip = f"{name}: {text}" + (f" ({details})" if details else "")
    color = "blue" if is_chosen(row.features) else "muted"
    return Dot(printable(name), 100 * row.accuracy, 100 * row.std, text, color, tip)
