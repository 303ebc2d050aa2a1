"""Scores that choose models without labels: scalars for which low or high values are known to be good."""

__all__ = ["NOT_COMPARABLE", "Score", "scores"]

import inspect
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from lightning_ssl_geometry import diagnostics
from lightning_ssl_geometry.manifest import Declared
from lightning_ssl_geometry.report.figures import View
from lightning_ssl_geometry.report.logs import Series
from lightning_ssl_geometry.report.members import Member, is_scalar, members
from lightning_ssl_geometry.report.seen import cap_of
from lightning_ssl_geometry.report.standings import differing_settings
from lightning_ssl_geometry.report.tracks import shared_stage
from lightning_ssl_geometry.spelling import some

NOT_COMPARABLE = "not comparable"  # begins the reason for which `incomparable` takes a score all the same
_TRUTHS = {"label", "coarse_label", "content", "style", "latents", "cluster", "box"}  # of an update: known from outside


class Score(NamedTuple):
    """A scalar that orders models.

    Attributes:
        title: Its name.
        picks: "low", "high", or the number near which values are good.
        values: Model -> value.
        source: The paper, or "".
        incomparable: Why it cannot be compared between these models, or "".
    """

    title: str
    picks: str | float
    values: dict[str, float]
    source: str
    incomparable: str = ""

    @property
    def good(self) -> str:
        """Which values are good: "low", "high", or "near" and a number."""
        return f"near {self.picks:g}" if isinstance(self.picks, float) else self.picks

    @property
    def goodness(self) -> dict[str, float]:
        """Model -> number; the higher, the better."""
        if isinstance(self.picks, float):
            return {name: -abs(value - self.picks) for name, value in self.values.items()}
        sign = 1.0 if self.picks == "high" else -1.0
        return {name: sign * value for name, value in self.values.items()}


def scores(view: View, *, incomparable: bool = False) -> tuple[list[Score], dict[str, str]]:
    """Return the scores that all models have, and why others are left out: title -> reason.

    Each group of the view is one model with one run. A scalar is a score if its quantity says what picks a model
    (`picks`) or which values are better (`better`), and if no labels and no known latents go into it. With
    `incomparable`, scores that cannot be compared between these models are not left out for this reason.
    """
    found, left_out = [], {}
    for member in members(view.runs, last_layers=True):
        known = member.declared
        if known is None or not is_scalar(member, view.runs) or known.quantity.baseline or not _label_free(known):
            continue
        picks = known.quantity.better if known.quantity.picks is None else known.quantity.picks
        stage = shared_stage([member], view)
        if picks in (None, "") or stage is None:
            continue
        logged = {group.name: _last(view, member, stage, group=place) for place, group in enumerate(view.groups)}
        values = {name: value for name, value in logged.items() if value is not None}
        differ = " and ".join(sorted(differing_settings(view, member, stage)))
        why = f"{NOT_COMPARABLE} between models that differ in {differ}" if differ else ""
        if reason := _unusable(view, member, stage, values=values) or ("" if incomparable else why):
            left_out[member.title] = reason
        else:
            source = "" if known.quantity.paper is None else known.quantity.paper.short
            found.append(Score(member.title, picks, values=values, source=source, incomparable=why))
    return found, left_out


def _label_free(known: Declared) -> bool:
    kind = getattr(diagnostics, known.diagnostic, None)
    reads = known.reads or (inspect.signature(kind.update).parameters if kind else _TRUTHS)  # of earlier versions
    return _TRUTHS.isdisjoint(reads)


def _last(view: View, member: Member, stage: str, *, group: int) -> float | None:
    log = view.logged(view.groups[group].runs[0], member, stage)
    return float(log.value[-1]) if isinstance(log, Series) and len(log.value) else None


def _unusable(view: View, member: Member, stage: str, *, values: Mapping[str, float]) -> str:
    """Say why the values of a scalar do not order models, or return ""."""
    if lacking := [group.name for group in view.groups if group.name not in values]:
        return f"{some(lacking, ' and ')} {'lacks' if len(lacking) == 1 else 'lack'} it"
    if missing := [name for name, value in values.items() if not np.isfinite(value)]:
        return f"no finite value of {some(missing, ' and ')}"
    caps = {cap.most for run in view.runs if (name := member.names.get(view.place(run), {}).get(stage))
            and (cap := cap_of(run, name)) is not None and cap.by_rows}  # fmt: skip
    if caps and max(values.values()) > 0.9 * max(caps):
        return f"the number of samples limits it: at most {max(caps):,}"
    return ""
