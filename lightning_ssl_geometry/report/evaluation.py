"""Accuracies of linear classifiers: on pixels, and on the untrained and the trained network."""

__all__ = [
    "accuracies_by_features",
    "evaluated",
    "evaluation_groups",
    "evaluation_panel",
    "feature_name",
    "guess",
    "is_chosen",
    "shown_accuracy",
    "sizes",
]

from collections.abc import Sequence

import numpy as np

from lightning_ssl_geometry.plots import Dot, dots
from lightning_ssl_geometry.report.download import Numbers
from lightning_ssl_geometry.report.figures import View
from lightning_ssl_geometry.report.groups import Group
from lightning_ssl_geometry.report.logs import Floats
from lightning_ssl_geometry.report.members import Member, printable
from lightning_ssl_geometry.report.numbers import percent
from lightning_ssl_geometry.report.panel import Panel, caption_of
from lightning_ssl_geometry.report.records import Evaluation
from lightning_ssl_geometry.report.run import EVALUATIONS, Run

_WEIGHTINGS = ("learned", "top", "oracle", "uniform")  # of augmentations, over which f or its head is averaged
_WEIGHTED = (
    "f and its head are averaged over augmentations. Their weights: P(T | X) (learned), its likeliest alike (top), "
    "those with most of the object alike (oracle), all alike (uniform)."
)
_WORDS = {"pixels": "raw pixels", "frozen": "untrained network", "trained": "trained network"}
_ORDER = [*_WORDS, *(f"{level}, {weighting}" for level in ("f", "head") for weighting in _WEIGHTINGS)]
_TITLE = "The same linear classifier on each"


def feature_name(name: str) -> str:
    """Return the name of features in plain words, such as "untrained network" for "frozen"."""
    return _WORDS.get(name, name)


def is_chosen(name: str) -> bool:
    """Whether the features `name` are those of the method, and not those of a baseline."""
    return name in ("trained", "f, learned", "head, learned")


def shown_accuracy(row: Evaluation) -> str:
    """Format an accuracy, with its standard deviation if known."""
    return percent(row.accuracy) + ("" if np.isnan(row.std) else f" ± {100 * row.std:.1f}")


def evaluation_groups(run: Run, beside: Sequence[Run] = ()) -> dict[str, list[Evaluation]]:
    """Group the accuracies of a run by the number of labels per class, starting with all labels.

    If `run` and the runs in `beside` do not all have the same data split, each split has its own groups.
    """
    splits = {row.details.get("split", "") for each in (run, *beside) for row in each.evaluations}
    order = {name: place for place, name in enumerate(_ORDER)}
    groups: dict[str, list[Evaluation]] = {}
    for row in sorted(run.evaluations, key=lambda row: order.get(row.features, len(order))):
        per_class = f"{row.labels} label{'' if row.labels == '1' else 's'} per class"
        heading = "all labels" if row.labels == "all" else per_class
        heading += f", {row.details.get('split', 'no split')}" if len(splits) > 1 else ""
        groups.setdefault(heading, []).append(row)
    return dict(sorted(groups.items(), key=lambda group: not group[0].startswith("all")))


def _member(view: View) -> Member | None:
    names = {place: {"": EVALUATIONS} for place, run in enumerate(view.runs) if run.evaluations}
    declared = next((run.declared[EVALUATIONS] for run in view.runs if EVALUATIONS in run.declared), None)
    return Member(declared, EVALUATIONS, names) if names else None


def evaluated(view: View) -> str:
    """Return the page section of the linear evaluation."""
    member = _member(view)
    return member.declared.section if member and member.declared else "probes"


def evaluation_panel(view: View) -> Panel | None:
    """Draw the accuracies as a dot plot. Return None if there are none."""
    member = _member(view)
    blocks = _of_one(view.runs[0]) if view.alone else _of_groups(view)
    if member is None or not blocks:
        return None
    features = dict.fromkeys(row.features for run in view.runs for row in run.evaluations)
    remark = _WEIGHTED if any(name.endswith(tuple(f", {each}" for each in _WEIGHTINGS)) for name in features) else ""
    title = _TITLE if view.alone else "Linear evaluation"
    counts = _counts(view) if any(len(group.runs) > 1 for group in view.groups) else ""
    named = [(printable(heading, 40), rows) for heading, rows in blocks.items()]
    figure = dots(named, xlabel="accuracy, %", caption=caption_of(view, title, [counts]))
    words = [f"{name}: " + ", ".join(f"{row.label} {row.text}" for row in rows) for name, rows in blocks.items()]
    stages = dict.fromkeys(row.details.get("split", "") for run in view.runs for row in run.evaluations)
    return Panel(EVALUATIONS, title, figure, label=f"{title}: {'; '.join(words)}.", numbers=_numbers(view),
                 members=[member] if member.declared else [], stages=list(stages) if view.alone else [],
                 remark=remark)  # fmt: skip


def sizes(run: Run) -> str:
    """Return sentences with the numbers of samples, repeats and dimensions behind the accuracies."""
    splits, tested, trained, repeats = (
        " or ".join(dict.fromkeys(row.details[key] for row in run.evaluations if row.details.get(key)))
        for key in ("split", "test_size", "train_size", "repeats")
    )
    on = f"Accuracy on the split {splits}" if splits else "Accuracy; the split was not recorded"
    fitted = f"Each classifier was trained on {trained} samples{f', {repeats} times' if repeats else ''}"
    sized = ((feature_name(row.features), row.details.get("feature_dim")) for row in run.evaluations)
    dims = ", ".join(dict.fromkeys(f"{name} {dim}" for name, dim in sized if dim is not None))
    said = [f"{on} ({tested} samples)" if tested else on, fitted if trained else "", dims and f"Dimensions: {dims}"]
    said += [f"{known[0].capitalize()} is right in {percent(known[1])}"] if (known := guess(run)) else []
    return " ".join(f"{each}." for each in said if each)


def guess(run: Run) -> tuple[str, float] | None:
    """Return what a guess among the classes of a run's data is, and how often it is right. None if unknown."""
    classes = run.info.get("classes")
    return (f"a guess among {classes} classes", 1 / classes) if isinstance(classes, int) and classes > 1 else None


def _of_one(run: Run) -> dict[str, list[Dot]]:
    return {heading: [_dot(row) for row in rows] for heading, rows in evaluation_groups(run).items()}


def _dot(row: Evaluation) -> Dot:
    name, text = feature_name(row.features), shown_accuracy(row)
    details = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in row.details.items())
    tip = f"{name}: {text}" + (f" ({details})" if details else "")
    color = "blue" if is_chosen(row.features) else "muted"
    return Dot(printable(name), 100 * row.accuracy, 100 * row.std, text=text, color=color, tip=tip, bounds=(0.0, 100.0))


def _of_groups(view: View) -> dict[str, list[Dot]]:
    blocks: dict[str, list[Dot]] = {}
    for (features, heading), rows in _compared(view).items():
        name = heading if features == "trained" else f"{feature_name(features)}, {heading}"
        blocks[name] = [_mean_dot(group, value) for group, value in rows]
    return blocks


def _compared(view: View) -> dict[tuple[str, str], list[tuple[Group, Floats]]]:
    found: dict[tuple[str, str], list[tuple[Group, Floats]]] = {}
    for group in view.groups:
        held: dict[tuple[str, str], list[float]] = {}
        for run in group.runs:
            for key, accuracy in accuracies_by_features(run, view).items():
                held.setdefault(key, []).append(accuracy)
        for key, values in held.items():
            found.setdefault(key, []).append((group, np.array(values)))
    return found


def accuracies_by_features(run: Run, view: View) -> dict[tuple[str, str], float]:
    """Return {(features, heading): accuracy} of a run, without features that are equal in all groups."""
    held: dict[tuple[str, str], list[float]] = {}
    for heading, rows in evaluation_groups(run, view.runs).items():
        for row in rows:
            if row.features not in ("pixels", "frozen"):  # these are equal in all groups
                held.setdefault((row.features, heading), []).append(row.accuracy)
    return {key: float(np.mean(values)) for key, values in held.items()}


def _mean_dot(group: Group, accuracy: Floats) -> Dot:
    std = _std(accuracy)
    text = percent(float(accuracy.mean())) + (f" ± {100 * std:.1f}" if len(accuracy) > 1 else "")
    tip = f"{printable(group.name, 40)}: {text}, runs: {len(accuracy)} of {len(group.runs)}"
    return Dot(
        printable(group.name, 16),
        100 * float(accuracy.mean()),
        100 * std,
        text=text,
        color=group.color,
        tip=tip,
        bounds=(0.0, 100.0),
    )


def _std(accuracy: Floats) -> float:
    return float(accuracy.std(ddof=1)) if len(accuracy) > 1 else float("nan")


def _counts(view: View) -> str:
    counts: dict[str, None] = {}
    for group, value in (pair for rows in _compared(view).values() for pair in rows):
        runs = f"{len(value)} of {len(group.runs)}" if len(value) < len(group.runs) else f"{len(value)}"
        counts[f"{printable(group.name)} {runs}"] = None
    return f"Mean and standard deviation; runs of {', '.join(counts)}."


def _numbers(view: View) -> Numbers:
    rows: list[Sequence[str | float]] = []
    if not view.alone:
        compared = [(key, *each) for key, held in _compared(view).items() for each in held]
        rows += [(group.name, *key, float(value.mean()), _std(value), len(value)) for key, group, value in compared]
        return Numbers(("group", "features", "labels", "accuracy", "accuracy_std", "runs"), rows)
    found = view.runs[0].evaluations
    details = list(dict.fromkeys(key for row in found for key in row.details))
    for row in found:
        rows.append([row.features, row.labels, row.accuracy, row.std, *(row.details.get(key, "") for key in details)])
    return Numbers(("features", "labels_per_class", "accuracy", "accuracy_std", *details), rows)
