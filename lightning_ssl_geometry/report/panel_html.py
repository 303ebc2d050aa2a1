"""A figure on a page, with what is said of it."""

__all__ = ["panel_html"]

import re
from collections.abc import Sequence

from lightning_ssl_geometry.report.entry import PAPERS, Entry
from lightning_ssl_geometry.report.html import Html, element
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.svg import inline_svg

_STROKES = {"val": "9 3.6", "probe": "9 3.6 1.8 3.6", "test": "1.8 3.2"}


def panel_html(panel: Panel, key: str, entries: Sequence[Entry], keyed: bool = True) -> Html:
    """Write a figure with its title, its key (`keyed`: even an empty one) and what the glossary says of entries."""
    sentences = [_sentence(entry, len(panel.entries) > 1 and entry.title != panel.title) for entry in entries]
    return element(
        "figure",
        element("h3", panel.title),
        _key(panel) if keyed else None,
        inline_svg(panel.figure, key=key, label=panel.label),
        element("figcaption", *sentences, element("p", panel.remark) if panel.remark else None),
        class_="panel",
    )


def _key(panel: Panel) -> Html:
    """Tell which data a figure shows, and by which dashes; an empty one keeps neighbours aligned."""
    stages = [stage for stage in panel.stages if stage]
    pairs = [element("span", _swatch(stage) if panel.dashed else None, stage) for stage in stages]
    return element("div", *pairs, class_="key")


def _swatch(stage: str) -> Html:
    line = element("line", x1="0", x2="26", y1="4", y2="4", stroke_dasharray=_STROKES.get(stage))
    return element("svg", line, viewBox="0 0 26 8", aria_hidden="true")


def _sentence(entry: Entry, named: bool) -> Html:
    source = ", ".join(filter(None, [PAPERS[entry.paper].short, entry.place])) if entry.paper else ""
    source = re.sub(r"(Eq|Fig|Sec)\. ", "\\1.\N{NO-BREAK SPACE}", source)
    name = element("b", f"{entry.title}. ") if named else None
    return element("p", name, f"{entry.text} ", element("cite", f"({source})") if source else None)
