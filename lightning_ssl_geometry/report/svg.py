"""Matplotlib figures as inline SVG with the colours, font and width of the page."""

__all__ = ["inline_svg"]

import io
import json
import re
import warnings
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markupsafe import Markup

from lightning_ssl_geometry.plots import COLORS, RAMP

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_VARIABLES = {color: f"var(--{name})" for name, color in COLORS.items()}
_VARIABLES |= {color: f"var(--ramp-{number})" for number, color in enumerate(RAMP)}
_VARIABLES |= {"#ffffff": "var(--paper)"}
_NAMESPACE = re.compile(r"^\{[^}]*\}")
_COLOR = re.compile(r"#[0-9a-f]{6}\b")
_FONT = re.compile(r"\bfont: (?:[\w ]*? )?([\d.]+px) [^;]*")
_FAMILY = re.compile(r"font-family: [^;]*;? ?")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_DECIMALS = re.compile(r"(\.\d\d)\d+")


def inline_svg(figure: "Figure", *, key: str, label: str) -> Markup:
    """Render a figure of `plots` for an HTML page.

    Colours of `plots` become CSS variables (`--ink`, `--ramp-0`), text stays text in the page's font, ids begin with
    `key`, and the texts of points become `<title>` elements. `label` describes the figure for a screen reader.
    """
    root = ElementTree.fromstring(_render(figure))
    for node in root.iter():
        node.tag = _NAMESPACE.sub("", node.tag)
        node.attrib = {_NAMESPACE.sub("", name): _compact(value) for name, value in node.attrib.items()}
        if node.get("transform", "").startswith("rotate(-0 "):
            del node.attrib["transform"]
        node.text, node.tail = (node.text if node.tag == "text" else None), None
    for group in root.iter("g"):
        _explain(group)
    _rename(root, key)
    _drop_empty(root)
    box = " ".join(f"{float(side):g}" for side in root.attrib["viewBox"].split())
    root.attrib = {"class": "figure", "viewBox": box, "role": "img", "aria-label": label}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _render(figure: "Figure") -> bytes:
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "figure"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the page's font draws the text
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _compact(value: str) -> str:
    """Round to a hundredth of a pixel, and replace colours and font by those of the page."""
    if value.startswith(('["tips"', "data:")):
        return value
    value = _COLOR.sub(lambda match: _VARIABLES.get(match[0], match[0]), _DECIMALS.sub(r"\1", value))
    return _FAMILY.sub("", _FONT.sub(r"font-size: \1", value))


def _drop_empty(parent: ElementTree.Element) -> None:
    """Remove empty groups, and matplotlib's style sheet, because it would change the whole page."""
    for child in list(parent):
        _drop_empty(child)
        if child.tag in ("metadata", "style") or (child.tag in ("g", "defs") and not len(child)):
            parent.remove(child)


def _explain(group: ElementTree.Element) -> None:
    """Move the texts in the id of a group into `<title>` elements of its points."""
    if group.get("id") == "plain":
        group.set("class", "plain")
    if not group.get("id", "").startswith('["tips"'):
        return
    texts = json.loads(group.attrib.pop("id"))[1:]
    group.set("class", "tips")
    for point, text in zip(group.iter("use"), texts, strict=True):
        point.attrib.pop("style", None)
        ElementTree.SubElement(point, "title").text = text
    for path in group.iter("path"):
        path.attrib.pop("style", None)


def _rename(root: ElementTree.Element, key: str) -> None:
    """Give ids that are referred to a name that is unique on the page, and remove all other ids."""
    used: dict[str, str] = {}
    for node in root.iter():
        for name, value in node.attrib.items():
            for old in _REFERENCE.findall(value) + _referred(name, value):
                used.setdefault(old, f"{key}-{len(used) + 1}")
    for node in root.iter():
        if old := node.attrib.pop("id", None):
            node.attrib |= {"id": used[old]} if old in used else {}
        for name, value in node.attrib.items():
            node.attrib[name] = _REFERENCE.sub(lambda match: f"url(#{used[match[1]]})", value)
            for old in _referred(name, value):
                node.attrib[name] = f"#{used[old]}"


def _referred(name: str, value: str) -> list[str]:
    """Return the id in an attribute `href="#id"`, as a list; empty for other attributes and for data of images."""
    return [value[1:]] if name == "href" and value.startswith("#") else []
