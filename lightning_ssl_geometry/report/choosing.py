"""How far scores without labels agree with a classifier, and what it costs to choose by them, as figures."""

__all__ = ["choice_panels"]

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from lightning_ssl_geometry.plots import Dot, cross_matrix, dots
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.report.download import Numbers, listed
from lightning_ssl_geometry.report.members import printable
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.ranking import Agreement
from lightning_ssl_geometry.report.side_by_side import distinct

_Held = TypeVar("_Held")
_LONGEST = 40  # letters of a name
_CHANCE = "drawn at random"
_STAR = " *: a score that cannot be compared between these models."
_TAU = Quantity(
    title="Do the scores order the models as a classifier does?",
    text="Kendall's tau between each score, turned so that its good values are high, and the accuracy of a linear "
    "classifier on h, with a 95% interval by bootstrap over models and samples.",
    low="Below 0: the score prefers the worse models.",
    high="1: the same order. An interval that contains 0: no better than chance, as far as these models show.",
)
_REGRET = Quantity(
    title="What does choosing by a score cost?",
    text="The accuracy of the best model minus that of the model with the best score, in points, with its 95% interval "
    "by the same bootstrap.",
    low="0: the score picks the best model.",
    high=f'Above the row "{_CHANCE}": worse than a random choice on average.',
)
_WITHIN = replace(
    _TAU, text=f"{_TAU.text} Runs are compared only if they differ in this setting, and perhaps in the seed."
)
_PLACES = Quantity(
    title="Which models do the scores prefer?",
    text="The place of each model by each score, 1 for the best value. Equally good models share a place.",
)
_ACCURACY = Quantity(
    title="The models by a linear classifier",
    text="Accuracy of logistic regression on standardised h, fitted and scored on different samples. The bar is one "
    "standard error of the scored samples.",
)


def choice_panels(
    goodness: Mapping[str, Mapping[str, float]],
    accuracy: Mapping[str, float] | None = None,
    samples: int = 0,
    *,
    agreements: Mapping[str, Agreement] | None = None,
    within: Mapping[str, Mapping[str, Agreement]] | None = None,
    incomparable: Collection[str] = (),
) -> list[Panel]:
    """Draw tau, regret and accuracy, the places that the scores give the models, and tau for each knob.

    Without labels there are only the places.

    Args:
        goodness: Title of a score -> model -> number; the higher, the better.
        accuracy: Model -> accuracy of the classifier.
        samples: Number of samples that the classifier was scored on.
        agreements: Title of a score -> its agreement with the accuracy.
        within: Knob -> title of a score -> its agreement with the accuracy among models that differ in this knob alone.
        incomparable: Titles of the scores that cannot be compared between these models. They get a star.
    """

    def starred(held: Mapping[str, _Held]) -> dict[str, _Held]:
        return {f"{title}*" if title in incomparable else title: each for title, each in held.items()}

    measured = _finite(starred(agreements or {}))
    found = [_tau(measured), _regret(measured)] if measured else []
    found += [_places(starred(goodness), accuracy)] if goodness else []
    found += [] if accuracy is None else [_accuracy(accuracy, samples)]
    known = {knob: _finite(starred(each)) for knob, each in (within or {}).items()}
    drawn = {knob: each for knob, each in known.items() if each}
    return found + [_tau(each, knob, place) for place, (knob, each) in enumerate(drawn.items(), start=1)]


def _finite(agreements: Mapping[str, Agreement]) -> dict[str, Agreement]:
    return {title: each for title, each in agreements.items() if np.isfinite(each.tau)}


def _star(titles: Iterable[str]) -> str:
    return _STAR if any(title.endswith("*") for title in titles) else ""


def _tau(agreements: Mapping[str, Agreement], knob: str = "", place: int = 0) -> Panel:
    rows = []
    for title, each in sorted(agreements.items(), key=lambda item: -item[1].tau):
        low, high = each.tau_interval
        shown = low > 0 or high < 0
        text = f"{title}: {each.tau:.2f} [{low:.2f}, {high:.2f}]"
        rows.append(Dot(printable(title, _LONGEST), each.tau, np.nan, text=f"{each.tau:.2f}", tip=text,
                        color="blue" if shown else "muted", bounds=(-1.0, 1.0),
                        interval=each.tau_interval))  # fmt: skip
    table = [(title, each.tau, *each.tau_interval, each.pairs) for title, each in agreements.items()]
    numbers = Numbers(("score", "tau", "low", "high", "pairs"), table)
    said = f"Grey: the interval contains 0.{_star(agreements)}"
    if not knob:
        return _panel("choosing_tau", _TAU, rows, unit="Kendall's tau", numbers=numbers, remark=said)
    about = replace(_WITHIN, title=f"Among runs that differ in {printable(knob, _LONGEST)} alone")
    said = f"{max(each.pairs for each in agreements.values())} pairs of runs. {said}"
    return _panel(f"choosing_tau_{place}", about, rows, unit="Kendall's tau", numbers=numbers, remark=said)


def _regret(agreements: Mapping[str, Agreement]) -> Panel:
    first = next(iter(agreements.values()))
    rows = [Dot(_CHANCE, 100 * first.by_chance, np.nan, text=f"{100 * first.by_chance:.1f}", color="ink")]
    for title, each in sorted(agreements.items(), key=lambda item: item[1].regret):
        low, high = (100 * end for end in each.regret_interval)
        value = 100 * each.regret
        better = high < 100 * each.by_chance
        rows.append(Dot(printable(title, _LONGEST), value, np.nan, text=f"{value:.1f}", bounds=(0.0, 100.0),
                        color="blue" if better else "muted", tip=f"{title}: {value:.1f} [{low:.1f}, {high:.1f}]",
                        interval=(low, high)))  # fmt: skip
    table = [(title, each.regret, *each.regret_interval, each.by_chance) for title, each in agreements.items()]
    said = f"Blue: the whole interval is below the cost of a random choice.{_star(agreements)}"
    return _panel("choosing_regret", _REGRET, rows, unit="accuracy lost, points", remark=said,
                  numbers=Numbers(("score", "regret", "low", "high", "by chance"), table))  # fmt: skip


def _places(goodness: Mapping[str, Mapping[str, float]], accuracy: Mapping[str, float] | None) -> Panel:
    """Draw the place that each score gives each model, 1 for the best. Equally good models share the better place."""
    models = list(next(iter(goodness.values())))
    values = np.array([[each[name] for name in models] for each in goodness.values()])
    places = 1 + (values[:, None] > values[:, :, None]).sum(-1)
    best_first = np.argsort(places.mean(0) if accuracy is None else [-accuracy[name] for name in models], kind="stable")
    names = [models[at] for at in best_first]
    shown, by = distinct(names, _LONGEST), "mean place" if accuracy is None else "accuracy"
    figure = cross_matrix(
        [printable(title, _LONGEST) for title in [*goodness][::-1]], shown, places[::-1, best_first].astype(float),
        ylabel="scores", xlabel=f"models, from the left by {by}", meaning="place", limits=(len(models), 1), form=".0f",
    )  # fmt: skip
    first = [f"{title}: {' or '.join(np.array(models)[row == 1])}" for title, row in zip(goodness, places, strict=True)]
    numbers = listed(("score", "model", "place"), (((title,), (models, row.tolist())) for title, row in
                                                   zip(goodness, places, strict=True)))  # fmt: skip
    label = f"{_PLACES.title} First of each score: {'; '.join(first)}."
    return Panel("choosing_places", _PLACES.title, figure, label=label, numbers=numbers, about=[_PLACES],
                 remark=_star(goodness).strip())  # fmt: skip


def _accuracy(accuracy: Mapping[str, float], samples: int) -> Panel:
    rows = []
    shown = dict(zip(accuracy, distinct(list(accuracy), _LONGEST), strict=True))
    for name, value in sorted(accuracy.items(), key=lambda item: -item[1]):
        error = 100 * float(np.sqrt(value * (1 - value) / samples))
        text = f"{100 * value:.1f}"
        rows.append(Dot(shown[name], 100 * value, error, text=text, tip=f"{name}: {text}", bounds=(0.0, 100.0)))
    table = Numbers(("model", "accuracy"), list(accuracy.items()))
    return _panel("choosing_accuracy", _ACCURACY, rows, unit="accuracy, %", numbers=table)


def _panel(name: str, about: Quantity, rows: list[Dot], *, unit: str, numbers: Numbers, remark: str = "") -> Panel:
    label = f"{about.title}: {', '.join(f'{row.label} {row.text}' for row in rows)}."
    figure = dots([("", rows)], xlabel=unit)
    return Panel(name, about.title, figure, label=label, numbers=numbers, about=[about], remark=remark)
