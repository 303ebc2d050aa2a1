"""A figure on a page, with what is said of it."""

__all__ = ["panel_html", "sentence"]

import re
from collections.abc import Sequence

from lightning_ssl_geometry.report.download import download
from lightning_ssl_geometry.report.entry import PAPERS, Entry
from lightning_ssl_geometry.report.html import Html, element
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.svg import inline_svg

_STROKES = {"val": "9 3.6", "probe": "9 3.6 1.8 3.6", "test": "1.8 3.2"}


def panel_html(panel: Panel, key: str, entries: Sequence[Entry], keyed: bool = True, prefix: str = "") -> Html:
    """Write a figure with its title, its key and what the glossary says of entries; its numbers, and a larger self.

    Args:
        panel: The figure.
        key: Unlike that of any other figure on the page.
        entries: Those whose sentences are new to the section.
        keyed: Give it a key, even an empty one.
        prefix: Of the name of the file of its numbers.
    """
    sentences = [sentence(entry, len(panel.entries) > 1 and entry.title != panel.title) for entry in entries]
    return element(
        "figure",
        element("div", element("h3", panel.title), _tools(panel, prefix), class_="head"),
        _key(panel) if keyed else None,
        element("div", inline_svg(panel.figure, key=key, label=panel.label), class_="canvas"),
        element("figcaption", *sentences, element("p", panel.remark) if panel.remark else None),
        class_="panel",
    )


def _tools(panel: Panel, prefix: str) -> Html:
    """A link to the numbers, and a box that enlarges the figure as long as it is checked: the style does the rest."""
    link = download(f"{prefix}-{panel.name}" if prefix else panel.name, panel.numbers) if panel.numbers else None
    box = element("input", type="checkbox", class_="zoom", autocomplete="off", title="Enlarge",
                  aria_label=f"Enlarge: {panel.title}")  # fmt: skip
    return element("span", link, box, class_="tools")


def _key(panel: Panel) -> Html:
    """Tell which data a figure shows, and by which dashes; an empty one keeps neighbours aligned."""
    stages = [stage for stage in panel.stages if stage]
    pairs = [element("span", _swatch(stage) if panel.dashed else None, stage) for stage in stages]
    return element("div", *pairs, class_="key")


def _swatch(stage: str) -> Html:
    line = element("line", x1="0", x2="26", y1="4", y2="4", stroke_dasharray=_STROKES.get(stage))
    return element("svg", line, viewBox="0 0 26 8", aria_hidden="true")


def sentence(entry: Entry, named: bool) -> Html:
    """Write what the glossary says of an entry, and where it is from; `named`: with its title in front."""
    source = ", ".join(filter(None, [PAPERS[entry.paper].short, entry.place])) if entry.paper else ""
    source = re.sub(r"(Eq|Fig|Sec)\. ", "\\1.\N{NO-BREAK SPACE}", source)
    name = element("b", f"{entry.title}. ") if named else None
    return element("p", name, f"{entry.text} ", element("cite", f"({source})") if source else None)
