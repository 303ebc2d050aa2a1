"""Descriptions of the results of a class: plain text for a terminal, HTML for a notebook."""

__all__ = ["bins_of", "card", "card_html", "quantities_of", "range_of", "words"]

import inspect
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from torchmetrics import Metric

from lightning_ssl_geometry.quantity import SECTIONS, Quantity, declared


def quantities_of(thing: object) -> Mapping[str, Quantity]:
    """Return {key of a result: its description}, from the attribute `quantities` of a class or object.

    Without this attribute, a Metric gets one description, made from its name and docstring, and other classes get none.

    >>> from torchmetrics import MeanSquaredError
    >>> quantities_of(MeanSquaredError())[""].title
    'Mean squared error'
    """
    kind = _class(thing)
    if found := getattr(thing, "quantities", None):
        return found
    if not issubclass(kind, Metric):
        return {}
    sentence = _first_sentence(kind.__dict__.get("__doc__") or "")
    text = sentence or f"What {kind.__name__} computes; its author did not describe it."
    better = {True: "high", False: "low", None: None}[kind.higher_is_better]
    bounds = (kind.plot_lower_bound, kind.plot_upper_bound)
    return {"": Quantity(title=words(kind.__name__), text=text, better=better, bounds=bounds)}  # type: ignore[arg-type]


def bins_of(metric: Metric, key: str) -> tuple[float, float] | None:
    """Return the bounds of the bins, if the result `key` of a Metric is declared as a histogram."""
    known = declared(quantities_of(metric), key)
    if known is None or known[1].picture is None or known[1].picture.kind != "histogram":
        return None
    low, high = known[1].bounds
    return None if low is None or high is None else (low, high)


def words(name: str) -> str:
    """Split the name of a class into words.

    >>> words("MeanSquaredError"), words("BinaryF1Score")
    ('Mean squared error', 'Binary F1 score')
    """
    first, *rest = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+\d*|\d+", name) or [name]
    return " ".join([first[:1].upper() + first[1:], *(each if each.isupper() else each.lower() for each in rest)])


def card(thing: object, logs: Mapping[str, Sequence[str]] | None = None, only: str | None = None) -> str:
    """Describe the results of a Metric, a method, a probe or an evaluation in lines of at most 100 characters.

    For each result, the text has its title, its meaning, what low and high values mean, its range and its paper. `logs`
    maps the key of a result to the names under which the result is logged. None: the names are made from the key.
    `only` is the key of a result that is described alone. None: all results are described.
    """
    lines, quantities = [_class(thing).__name__], quantities_of(thing)
    for key, quantity in quantities.items() if only is None else [(only, quantities[only])]:
        logged = ", ".join((logs or {}).get(key) or _logged(key, thing))
        lines += ["", _heading(quantity, thing), f"  logged as: {logged}"]
        lines += [
            textwrap.fill(f"{name}: {said}" if name else said, 100, initial_indent="  ", subsequent_indent="    ")
            for name, said in _said(quantity, quantities)
        ]
    return "\n".join(lines)


def card_html(thing: object) -> str:
    """Describe the results as HTML, with the same content as :func:`card`. Papers are links. All text is escaped."""
    parts, quantities = [f"<pre>{escape(repr(thing))}</pre>"], quantities_of(thing)
    for key, quantity in quantities.items():
        said = [("logged as", ", ".join(_logged(key, thing))), *_said(quantity, quantities)]
        rows = "".join(f"<dt>{escape(name)}</dt><dd>{_linked(text, quantity)}</dd>" for name, text in said)
        parts.append(f"<p><strong>{escape(_heading(quantity, thing))}</strong></p><dl>{rows}</dl>")
    return f"<div>{''.join(parts)}</div>"


def _class(thing: object) -> type:
    return thing if inspect.isclass(thing) else type(thing)


def _heading(quantity: Quantity, thing: object) -> str:
    section = quantity.section or getattr(thing, "section", "other")
    return f"{quantity.title} ({SECTIONS.get(section, section)})"


def _logged(key: str, thing: object) -> list[str]:
    if issubclass(_class(thing), Metric):
        return [f"<stage>/<name of the diagnostic>{f'_{key}' if key else ''}"]
    return [f"<stage>/{key}"]


def _said(quantity: Quantity, quantities: Mapping[str, Quantity]) -> Iterable[tuple[str, str]]:
    null = quantities.get(quantity.null) if quantity.null else None
    said = {
        "": quantity.text,
        "low": quantity.low,
        "high": quantity.high,
        "range": range_of(quantity),
        "without structure": f"{null.title}: {null.text or null.low}" if null else "",
        "better": quantity.better or "",
        "unchanged by": ", ".join(quantity.invariances),
        "compares across": ", ".join(quantity.comparable),
        "paper": _paper(quantity),
    }
    return [(name, text) for name, text in said.items() if text]


def range_of(quantity: Quantity) -> str:
    """Describe the range and the unit of a quantity. The range of a histogram is the range of its bins.

    >>> range_of(Quantity(title="Rank", text="Of rows.", bounds=(1, None), cap="min(N, D)", unit="directions"))
    'from 1 to min(N, D) (directions)'
    """
    bins = bool(quantity.picture and quantity.picture.kind == "histogram")  # its bounds are those of the bins
    percent = quantity.percent and not bins
    low, high = ("" if end is None else f"{100 * end:g}%" if percent else f"{end:g}" for end in quantity.bounds)
    high = quantity.cap or high
    words = f"from {low} to {high}" if low and high else f"{low} or more" if low else f"at most {high}" if high else ""
    unit = quantity.xlabel if bins else quantity.unit or (quantity.chart.unit if quantity.chart else "")
    return f"{words} ({unit})" if words and unit and not percent else words or (f"in {unit}" if unit == "nats" else "")


def _paper(quantity: Quantity) -> str:
    paper = quantity.paper
    return ", ".join(filter(None, (paper.short, paper.title, quantity.where, paper.address))) if paper else ""


def _linked(said: str, quantity: Quantity) -> str:
    address = escape(quantity.paper.address) if quantity.paper else ""
    return escape(said).replace(address, f'<a href="{address}">{address}</a>') if address else escape(said)


def _first_sentence(docstring: str) -> str:
    paragraph = " ".join(inspect.cleandoc(docstring).split("\n\n")[0].split())
    plain = re.sub(r"(?::[\w:]+:)?`+([^`<]+?)(?:\s*<[^`]*>)?`+_{0,2}", r"\1", paragraph)
    return re.split(r"(?<=[.!?])\s", plain, maxsplit=1)[0]
