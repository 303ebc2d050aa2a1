"""Matplotlib figures as inline SVG, in the style of the page."""

__all__ = ["inline_svg"]

import base64
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
_PNG, _PHOTO = "data:image/png;base64,", 4096  # pixels
_DECIMALS = re.compile(r"(\.\d\d)\d+")


def inline_svg(figure: "Figure", *, key: str, label: str) -> Markup:
    """Render a figure of `plots` as SVG for an HTML page.

    Colours become CSS variables (`--ink`, `--ramp-0`), and texts use the page's font. Tooltips become `<title>`
    elements. All ids begin with `key`. `label` describes the figure for screen readers.
    """
    root = ElementTree.fromstring(_render(figure))
    for node in root.iter():
        node.tag = _NAMESPACE.sub("", node.tag)
        node.attrib = {_NAMESPACE.sub("", name): _in_page_style(value) for name, value in node.attrib.items()}
        if node.get("transform", "").startswith("rotate(-0 "):
            del node.attrib["transform"]
        node.text, node.tail = (node.text if node.tag == "text" else None), None
    for group in root.iter("g"):
        _tips_to_titles(group)
    _make_ids_unique(root, key)
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


def _in_page_style(value: str) -> str:
    if value.startswith(('["tips"', "data:")):
        return _as_photo(value)
    value = _COLOR.sub(lambda match: _VARIABLES.get(match[0], match[0]), _DECIMALS.sub(r"\1", value))
    return _FAMILY.sub("", _FONT.sub(r"font-size: \1", value))


def _as_photo(value: str) -> str:
    # a JPEG of many pixels has a fifth of the bytes of matplotlib's PNG, and looks the same
    if not value.startswith(_PNG):
        return value
    from PIL import Image

    picture, memory = Image.open(io.BytesIO(base64.b64decode(value[len(_PNG) :]))), io.BytesIO()
    if picture.width * picture.height < _PHOTO:
        return value
    picture.convert("RGB").save(memory, "JPEG", quality=88)
    return f"data:image/jpeg;base64,{base64.b64encode(memory.getvalue()).decode()}"


def _drop_empty(parent: ElementTree.Element) -> None:
    for child in list(parent):
        _drop_empty(child)
        # matplotlib's style sheet would change the whole page
        if child.tag in ("metadata", "style") or (child.tag in ("g", "defs") and not len(child)):
            parent.remove(child)


def _tips_to_titles(group: ElementTree.Element) -> None:
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


def _make_ids_unique(root: ElementTree.Element, key: str) -> None:
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
    return [value[1:]] if name == "href" and value.startswith("#") else []
