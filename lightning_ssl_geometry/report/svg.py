"""Matplotlib figures as inline SVG, in the style of the page."""

__all__ = ["inline_svg"]

import base64
import io
import json
import re
import warnings
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup, escape

from lightning_ssl_geometry.plots import COLORS, RAMP
from lightning_ssl_geometry.report.logs import Floats

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
_POLYLINE = re.compile(r"M [-\d. \nL]+")  # one stroke of straight lines
_NEAR, _NEAR_BEHIND = 0.15, 0.4  # pixels between a line and what is drawn of it; of thin lines behind the others
_CLASSES = {  # of the page's style sheet, in place of styles that are often repeated
    "fill: none; stroke: var(--grid); stroke-width: 0.8; stroke-linecap: square": "grid",
    **{f"fill: none; stroke: var(--ramp-{number})": f"r{number}" for number in range(len(RAMP))},
}
_Tip = tuple[float, float, str, str]  # x, y, text, kind


def inline_svg(figure: "Figure", *, key: str, label: str) -> Markup:
    """Render a figure of `plots` as SVG for an HTML page.

    Colours become CSS variables (`--ink`, `--ramp-0`), and texts use the page's font. All ids begin with `key`. `label`
    describes the figure for screen readers. Tooltips become radio buttons above the points, one group for each figure:
    a style sheet shows the name of the button that is hovered, focused or tapped. The tab key stops once at a figure,
    and the arrow keys go from point to point.
    """
    root = ElementTree.fromstring(_render(figure))
    for node in root.iter():
        node.tag = _NAMESPACE.sub("", node.tag)
        node.attrib = {_NAMESPACE.sub("", name): _in_page_style(value) for name, value in node.attrib.items()}
        if node.get("transform", "").startswith("rotate(-0 "):
            del node.attrib["transform"]
        node.text, node.tail = (node.text if node.tag == "text" else None), None
    tips = [tip for group in root.iter("g") for tip in _tips(group)]
    behind = {path for group in root.iter("g") if group.get("class") == "every" for path in group.iter("path")}
    for path in root.iter("path"):
        if _POLYLINE.fullmatch(path.get("d", "")):
            path.attrib["d"] = _simplified(path.attrib["d"], _NEAR_BEHIND if path in behind else _NEAR)
        if path.get("style") in _CLASSES:
            path.attrib["class"] = _CLASSES[path.attrib.pop("style")]
    _make_ids_unique(root, key)
    _drop_empty(root)
    wide, tall = (float(side) for side in root.attrib["viewBox"].split()[2:])
    root.attrib = {"class": "figure", "viewBox": f"0 0 {wide:g} {tall:g}", "role": "img", "aria-label": label}
    drawn = Markup(ElementTree.tostring(root, encoding="unicode")) + _buttons(tips, key, label, size=(wide, tall))
    return Markup('<div class="drawing" style="--wide:{};--tall:{}">{}</div>').format(f"{wide:g}", f"{tall:g}", drawn)


def _buttons(tips: "list[_Tip]", key: str, label: str, size: tuple[float, float]) -> Markup:
    head = Markup('<div class="{}"{} role="radiogroup" aria-label="Values: {}">')
    drawn, name = Markup(""), key.replace("figure", "t")
    for kind in dict.fromkeys(kind for *_, kind in tips):
        looks, _, side = kind.rpartition(" ")
        cells = (
            Markup(' style="--side:{:.1f}%"').format(100 * float(side) / size[0])
            if side.replace(".", "").isdecimal()
            else ""
        )
        parts = [f'<input type=radio name={name} style={_place(x / size[0], y / size[1])} aria-label="{escape(text)}">'
                 for x, y, text, known in tips if known == kind]  # fmt: skip
        drawn += head.format(looks if cells else kind, cells, label.partition(":")[0]) + Markup(
            "".join(parts) + "</div>"
        )
    return drawn


def _place(x: float, y: float) -> str:
    # from the nearer sides: the text of a tip goes towards the middle
    across = f"left:{100 * x:.1f}%" if x < 0.5 else f"right:{100 - 100 * x:.1f}%"
    return across + (f";top:{100 * y:.1f}%" if y < 0.5 else f";bottom:{100 - 100 * y:.1f}%")


def _simplified(drawn: str, near: float) -> str:
    points = np.array(drawn.replace("M", "").replace("L", "").split(), dtype=np.float64).reshape(-1, 2)
    return "M" + " ".join(f"{x:.1f} {y:.1f}".replace(".0", "") for x, y in points[_corners(points, near)]) + " "


def _corners(points: Floats, near: float) -> list[int]:
    # Douglas & Peucker 1973: between two corners, all points are near the line through them
    kept, open_ = {0, len(points) - 1}, [(0, len(points) - 1)]
    while open_:
        first, last = open_.pop()
        if last - first < 2:
            continue
        along, away = points[last] - points[first], points[first + 1 : last] - points[first]
        length = float(np.hypot(*along))
        far = np.abs(away @ [-along[1], along[0]]) / length if length else np.hypot(*away.T)
        if far.max() > near:
            corner = first + 1 + int(far.argmax())
            kept.add(corner)
            open_ += [(first, corner), (corner, last)]
    return sorted(kept)


def _render(figure: "Figure") -> bytes:
    import matplotlib

    buffer = io.BytesIO()
    hidden = figure.findobj(lambda artist: artist.get_gid() == "every" and not artist.get_visible())
    for artist in hidden:  # the page's style sheet hides them
        artist.set_visible(True)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "figure"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the page's font draws the text
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    for artist in hidden:
        artist.set_visible(False)
    return buffer.getvalue()


def _in_page_style(value: str) -> str:
    if value.startswith(('["tips', "data:")):
        return _as_photo(value)
    value = _COLOR.sub(lambda match: _VARIABLES.get(match[0], match[0]), _DECIMALS.sub(r"\1", value))
    value = _FAMILY.sub("", _FONT.sub(r"font-size: \1", value))
    return value.removeprefix("font-size: 10.5px; ").removesuffix("; fill: var(--muted)")  # as in the style sheet


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
        unseen = child.tag == "path" and child.get("style") == "fill: none"
        if child.tag in ("metadata", "style") or unseen or (child.tag in ("g", "defs") and not len(child)):
            parent.remove(child)
        elif child.tag == "g" and not child.attrib:
            place = [*parent].index(child)
            parent[place : place + 1] = [*child]


def _tips(group: ElementTree.Element) -> list[_Tip]:
    name = group.get("id", "")
    if name in ("plain", "every"):
        group.set("class", name)
    if not name.startswith('["tips'):
        return []
    kind, *texts = json.loads(name)
    points = [(float(use.attrib["x"]), float(use.attrib["y"])) for use in group.iter("use")]
    group.clear()
    return [(x, y, text, kind) for (x, y), text in zip(points, texts, strict=True)]


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
