"""How far scores without labels agree with a classifier, and what it costs to choose by them, as figures."""

__all__ = ["choice_panels"]

from collections.abc import Collection, Mapping

import numpy as np

from lightning_ssl_geometry.plots import Dot, dots
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.report.download import Numbers
from lightning_ssl_geometry.report.members import printable
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.ranking import Agreement
from lightning_ssl_geometry.report.side_by_side import distinct

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
_ACCURACY = Quantity(
    title="The models by a linear classifier",
    text="Accuracy of logistic regression on standardised h, fitted and scored on different samples. The bar is one "
    "standard error of the scored samples.",
)


def choice_panels(
    agreements: Mapping[str, Agreement],
    accuracy: Mapping[str, float] | None,
    samples: int,
    *,
    incomparable: Collection[str] = (),
) -> list[Panel]:
    """Draw tau, regret and accuracy, each with a row for each score or model. Without labels there is none.

    Args:
        agreements: Title of a score -> its agreement with the accuracy.
        accuracy: Model -> accuracy of the classifier.
        samples: Number of samples that the classifier was scored on.
        incomparable: Titles of the scores that cannot be compared between these models. They get a star.
    """
    if accuracy is None:
        return []
    models = _accuracy(accuracy, samples)
    starred = {f"{title}*" if title in incomparable else title: each for title, each in agreements.items()}
    known = {title: each for title, each in starred.items() if np.isfinite(each.tau)}
    said = _STAR if any(title.endswith("*") for title in known) else ""
    return [_tau(known, said), _regret(known, said), models] if known else [models]


def _tau(agreements: Mapping[str, Agreement], star: str) -> Panel:
    rows = []
    for title, each in sorted(agreements.items(), key=lambda item: -item[1].tau):
        low, high = each.tau_interval
        shown = low > 0 or high < 0
        text = f"{title}: {each.tau:.2f} [{low:.2f}, {high:.2f}]"
        rows.append(Dot(printable(title, _LONGEST), each.tau, np.nan, text=f"{each.tau:.2f}", tip=text,
                        color="blue" if shown else "muted", bounds=(-1.0, 1.0),
                        interval=each.tau_interval))  # fmt: skip
    table = [(title, each.tau, *each.tau_interval, each.pairs) for title, each in agreements.items()]
    said = f"Grey: the interval contains 0.{star}"
    return _panel("choosing_tau", _TAU, rows, unit="Kendall's tau", remark=said,
                  numbers=Numbers(("score", "tau", "low", "high", "pairs"), table))  # fmt: skip


def _regret(agreements: Mapping[str, Agreement], star: str) -> Panel:
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
    said = f"Blue: the whole interval is below the cost of a random choice.{star}"
    return _panel("choosing_regret", _REGRET, rows, unit="accuracy lost, points", remark=said,
                  numbers=Numbers(("score", "regret", "low", "high", "by chance"), table))  # fmt: skip


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
