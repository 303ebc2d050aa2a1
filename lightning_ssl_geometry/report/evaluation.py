"""The comparison under one linear classifier: raw pixels, frozen random network, trained network."""

__all__ = ["evaluation_groups", "evaluation_panel", "feature_name", "shown_accuracy"]

import numpy as np

from lightning_ssl_geometry.plots import Dot, dots
from lightning_ssl_geometry.report.glossary import ENTRIES
from lightning_ssl_geometry.report.numbers import percent
from lightning_ssl_geometry.report.panel import Panel, printable
from lightning_ssl_geometry.report.run import Evaluation, Run

_FEATURES = {"pixels": "raw pixels", "frozen": "frozen network", "trained": "trained network"}


def feature_name(name: str) -> str:
    """What a row of the comparison is called.

    >>> feature_name("frozen"), feature_name("resnet")
    ('frozen network', 'resnet')
    """
    return _FEATURES.get(name, name)


def shown_accuracy(row: Evaluation) -> str:
    """Write an accuracy with its spread, where it has one."""
    return percent(row.accuracy) + ("" if np.isnan(row.std) else f" ± {100 * row.std:.1f}")


def evaluation_groups(run: Run) -> dict[str, list[Evaluation]]:
    """Group the rows by labels per class (and split, where there are several); all labels and pixels first."""
    splits = {row.details.get("split", "") for row in run.evaluations}
    order = {name: place for place, name in enumerate(_FEATURES)}
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
    return Panel("linear_evaluation", title, figure, f"{entry.title}: {spoken}.", (entry,), splits)


def _dot(row: Evaluation) -> Dot:
    name, text = feature_name(row.features), shown_accuracy(row)
    details = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in row.details.items())
    tip = f"{name}: {text}" + (f" ({details})" if details else "")
    color = "blue" if row.features == "trained" else "muted"
    return Dot(printable(name), 100 * row.accuracy, 100 * row.std, text, color, tip)
