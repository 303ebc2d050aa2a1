"""Figures of a trainable augmentation channel: where P(T | X) looks, and how far it keeps samples apart."""

__all__ = ["channel_comparisons", "channel_panels"]

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lightning_ssl_geometry.plots import Caption, Curve, curves, overlay, policy_maps, scatter
from lightning_ssl_geometry.report.array_panels import known_arrays, moments
from lightning_ssl_geometry.report.comparison_lines import Lines, counted
from lightning_ssl_geometry.report.download import Numbers, array_numbers
from lightning_ssl_geometry.report.glossary import ENTRIES, lookup, split
from lightning_ssl_geometry.report.groups import Group, average_array, shared_stage
from lightning_ssl_geometry.report.logs import Floats, Readouts, Snapshot
from lightning_ssl_geometry.report.numbers import number
from lightning_ssl_geometry.report.panel import Panel, printable, stage_order, time_name
from lightning_ssl_geometry.report.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COMPARED = 4  # samples of each group
_SIMILARITY = "cosine without its sign"
_FIRSTS = "The first run of each group."


def channel_panels(run: Run) -> list[Panel | None]:
    """Draw what is no scalar: maps of the policy, similarities of pairs, and embeddings."""
    similarities = [_similarity(run, array) for array in known_arrays(run, "pair_similarity")]
    return [_maps({"": run}), *similarities, _embeddings({"": run})]


def channel_comparisons(groups: Sequence[Group], titled: bool) -> list[Panel | None]:
    """Draw the same for groups: the first run of each beside the others, similarities over all runs."""
    firsts = {printable(group.name, 30): group.runs[0] for group in groups}
    return [_maps(firsts, titled), _similarity_comparison(groups, titled), _embeddings(firsts, titled)]


def _maps(runs: Mapping[str, Run], titled: bool = False) -> Panel | None:
    """The samples of a run; of several runs, the first ones of each."""
    found = {name: _latest(run, "policy_maps") for name, run in runs.items()}
    shown = []
    for name, parts in found.items():
        image, probability = parts.get("image"), parts.get("probability")
        if image is None or probability is None or (image.values.ndim, probability.values.ndim) != (3, 3):
            continue
        pairs = zip(image.values, probability.values, strict=False)
        kept = [(x, p) for x, p in pairs if np.isfinite(x).all() and np.isfinite(p).all()]
        kept = kept[: _COMPARED if len(runs) > 1 else None]
        if kept:
            shown.append((name, np.stack([x for x, _ in kept]), np.stack([p for _, p in kept])))
    if not shown:
        return None
    figure = policy_maps(shown, caption=_caption("policy_maps", runs, titled))
    said = [f"{_of(name)}{len(x)} samples, P(T | X) up to {number(float(p.max()))}" for name, x, p in shown]
    rows = [(name, *place, p[place]) for name, _, p in shown for place in np.ndindex(*p.shape)]
    numbers = Numbers(("run", "sample", "row", "column", "probability"), rows)
    return _panel("policy_maps", figure, said, found, numbers)


def _embeddings(runs: Mapping[str, Run], titled: bool = False) -> Panel | None:
    """Points where all embeddings have two dimensions, else lines."""
    found = {name: _latest(run, "embeddings") for name, run in runs.items()}
    shown: list[tuple[str, Floats, NDArray[np.int64] | None]] = []
    for name, parts in found.items():
        if (z := parts.get("z")) is None or z.values.ndim != 2 or z.values.shape[1] < 2:
            continue
        kept = np.flatnonzero(np.isfinite(z.values).all(axis=1))
        label = parts.get("label")
        fits = label is not None and label.values.shape == (len(z.values), 1) and np.isfinite(label.values).all()
        labels = label.values[kept, 0].astype(np.int64) if label is not None and fits else None
        if len(kept):
            shown.append((name, z.values[kept], labels))
    if not shown:
        return None
    key = "embeddings_2d" if all(z.shape[1] == 2 for _, z, _ in shown) else "embeddings"
    caption = _caption(key, runs, titled)
    lines = [(name, z) for name, z, _ in shown]
    figure = scatter(shown, caption=caption) if key == "embeddings_2d" else overlay(lines, caption=caption)
    said = [f"{_of(name)}{len(z)} samples, {_spread(z)} from their mean on average" for name, z in lines]
    most = max(z.shape[1] for _, z in lines)
    rows = [(name, "" if label is None else float(label[row]), *z[row])
            for name, z, label in shown for row in range(len(z))]  # fmt: skip
    numbers = Numbers(("run", "label", *(f"z{place}" for place in range(1, most + 1))), rows)
    return _panel(key, figure, said, found, numbers)


def _similarity(run: Run, array: Readouts) -> Panel | None:
    """At the start, at half of the training and at the end."""
    time, share = run.time(array), _share(array.values)
    lines = []
    for row, (muted, dash) in moments(time).items():
        when, y = time_name(run, float(time[row])), array.values[row]
        tips = [f"{when}: {value:.3g}, {x:.3g}% of the pairs are below" for x, value in zip(share, y, strict=True)]
        lines.append(Curve(when, share, y, muted or "violet", dash, tips=tips))
    if not any(np.isfinite(line.y).any() for line in lines):
        return None
    figure = curves(lines, xlabel="pairs, %", ylabel=_SIMILARITY, xlim=(0.0, 100.0), floor=0.0, log=False)
    label = f"{ENTRIES['pair_similarity'].title}: {'; '.join(f'{line.label} {_half(line.y)}' for line in lines)}."
    stage, entry = split(array.name)[0], ENTRIES["pair_similarity"]
    numbers = array_numbers(array, array.values, moments(time), share, ("pairs below, %", "cosine"))
    return Panel(array.name.replace("/", "_"), entry.title, figure, label, (entry,), (stage,), numbers=numbers)


def _similarity_comparison(groups: Sequence[Group], titled: bool) -> Panel | None:
    """At the end."""
    stage = shared_stage(groups, ["pair_similarity"])
    if stage is None:
        return None
    found = {group.name: average_array(group, "pair_similarity", stage) for group in groups}
    lines = Lines(notes=[(f"Data: {stage}. " if stage else "") + counted(found)])
    for group in groups:
        each = found[group.name]
        if each and len(each.step):
            std = None if each.std is None else each.std[-1]
            lines.add(group, _share(each.mean), each.mean[-1], std)
            lines.said.append(f"{group.name} {_half(each.mean[-1])}")
    if not any(np.isfinite(line.y).any() for line in lines.curves):
        return None
    entry = ENTRIES["pair_similarity"]
    title = entry.title if titled else ""
    figure = lines.draw(title, xlabel="pairs, %", ylabel=_SIMILARITY, xlim=(0.0, 100.0), floor=0.0)
    numbers = lines.numbers("pairs below, %")
    return Panel("pair_similarity", entry.title, figure, f"{entry.title}: {'; '.join(lines.said)}.", (entry,),
                 numbers=numbers)  # fmt: skip


def _latest(run: Run, key: str) -> dict[str, Snapshot]:
    """The arrays of an entry by the last word of their name, of the first data that has some."""
    found = [snapshot for name, snapshot in run.snapshots.items() if lookup(name) is ENTRIES[key]]
    found.sort(key=lambda snapshot: stage_order(split(snapshot.name)[0]))
    return {each.name.rpartition("_")[2]: each for each in found if split(each.name)[0] == split(found[0].name)[0]}


def _panel(
    key: str, figure: "Figure", said: Sequence[str], found: Mapping[str, Mapping[str, Snapshot]], numbers: Numbers
) -> Panel:
    every = [snapshot for parts in found.values() for snapshot in parts.values()]
    stages = tuple(dict.fromkeys(split(snapshot.name)[0] for snapshot in every))
    steps = sorted({snapshot.step for snapshot in every})
    remark = f"After {' or '.join(map(number, steps))} steps." if any(steps) else ""
    entry = ENTRIES[key]
    label = f"{entry.title}: {'; '.join(said)}."
    return Panel(key, entry.title, figure, label, (entry,), stages, remark=remark, numbers=numbers)


def _caption(key: str, runs: Mapping[str, Run], titled: bool) -> Caption:
    notes = [_FIRSTS] if len(runs) > 1 else []
    return Caption(ENTRIES[key].title if titled else "", (), notes)


def _share(values: Floats) -> Floats:
    """What share of the pairs lies below each quantile, in percent."""
    return np.linspace(0, 100, values.shape[1])


def _half(y: Floats) -> str:
    return f"half of the pairs below {number(float(y[len(y) // 2]))}"


def _of(name: str) -> str:
    return f"{name}, " if name else ""


def _spread(z: Floats) -> str:
    return number(float(np.linalg.norm(z - z.mean(0), axis=1).mean()))
