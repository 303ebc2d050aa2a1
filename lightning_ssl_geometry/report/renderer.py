"""A renderer of matplotlib that writes the SVG of a page: CSS variables for colours, the page's font, and short paths.

This module imports matplotlib. matplotlib's own SVG has to be parsed and changed before a page can hold it, which takes
longer than to write the page's SVG in the first place.
"""

__all__ = ["Renderer"]

import base64
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import escape
from matplotlib.backend_bases import GraphicsContextBase
from matplotlib.path import Path
from matplotlib.transforms import Affine2D, Transform

from lightning_ssl_geometry.plots import COLORS, RAMP
from lightning_ssl_geometry.plots.measure import Measure
from lightning_ssl_geometry.plots.style import TEXT
from lightning_ssl_geometry.report.polyline import corners

_VARIABLES = {color: f"var(--{name})" for name, color in COLORS.items()}
_VARIABLES |= {color: f"var(--ramp-{number})" for number, color in enumerate(RAMP)}
_VARIABLES |= {"#ffffff": "var(--paper)"}
_CLASSES = {  # of the page's style sheet, in place of styles that are often repeated
    "fill: none; stroke: var(--grid); stroke-width: 0.8; stroke-linecap: square": "grid",
    **{f"fill: none; stroke: var(--ramp-{number})": f"r{number}" for number in range(len(RAMP))},
}
_NEAR, _NEAR_BEHIND = 0.15, 0.4  # pixels between a line and what is drawn of it; of thin lines behind the others
_PHOTO = 4096  # pixels
_LETTERS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
_POINTS = {Path.MOVETO: 1, Path.LINETO: 1, Path.CURVE3: 2, Path.CURVE4: 3}
_CAPS = {"projecting": "square", "round": "round"}
_ANCHORS = {"center": "middle", "right": "end"}
Tip = tuple[float, float, str, str]  # x, y, text, kind


class Renderer(Measure):
    """Collects the elements of a figure in `parts`, and the points of its tooltips in `tips`. Ids begin with `key`."""

    def __init__(self, wide: float, tall: float, key: str) -> None:
        super().__init__()
        self.wide, self.tall, self.key = wide, tall, key
        self.parts: list[str] = []
        self.tips: list[Tip] = []
        self._ids: dict[object, str] = {}
        self._groups: list[str] = []  # that are open: "plain", "every", the JSON of tooltips, or ""

    def get_canvas_width_height(self) -> tuple[float, float]:
        """Return the size of the figure in pixels."""
        return self.wide, self.tall

    def option_image_nocomposite(self) -> bool:
        """Images are drawn one by one."""
        return True

    def option_scale_image(self) -> bool:
        """The browser scales images."""
        return True

    def open_group(self, s: str, gid: str | None = None) -> None:
        """Open a group. The groups "plain" and "every" are known to the style sheet."""
        self._groups.append(gid or "")
        if gid in ("plain", "every"):
            self.parts.append(f'<g class="{gid}">')

    def close_group(self, s: str) -> None:
        """Close the group that was opened last."""
        if self._groups.pop() in ("plain", "every"):
            self.parts.append("</g>")

    def draw_path(self, gc: GraphicsContextBase, path: Path, transform: Transform, rgbFace: Any = None) -> None:
        """Draw a line or a shape."""
        style = _style(gc, rgbFace)
        if style == "fill: none":
            return
        clip = (0.0, 0.0, self.wide, self.tall) if rgbFace is None else None
        near = _NEAR_BEHIND if "every" in self._groups else _NEAR
        if drawn := _drawn(path, transform + self._flip(), clip, near=near):
            look = f'class="{_CLASSES[style]}"' if style in _CLASSES else f'style="{style}"'
            self.parts.append(f'<path d="{drawn}"{self._clip(gc)} {look}/>')

    def draw_markers(
        self,
        gc: GraphicsContextBase,
        marker_path: Path,
        marker_trans: Transform,
        path: Path,
        trans: Transform,
        rgbFace: Any = None,
    ) -> None:
        """Draw a shape at each point of a path, or collect the points as those of tooltips."""
        found = (trans + self._flip()).transform(path.vertices)
        places = found[np.isfinite(found).all(axis=1)].tolist()
        if self._groups[-1].startswith('["tips'):
            kind, *texts = json.loads(self._groups[-1])
            self.tips += [(x, y, text, kind) for (x, y), text in zip(places, texts, strict=True)]
            return
        style = _style(gc, rgbFace)
        if style == "fill: none" or not places:
            return
        drawn = _drawn(marker_path, marker_trans + Affine2D().scale(1, -1), None, near=0.0)
        name = self._known("marker", drawn, f'<path id="{{}}" d="{drawn}"/>')
        uses = "".join(f'<use href="#{name}" x="{_short(x)}" y="{_short(y)}"/>' for x, y in places)
        self.parts.append(f'<g{self._clip(gc)} style="{style}">{uses}</g>')

    def draw_text(
        self,
        gc: GraphicsContextBase,
        x: float,
        y: float,
        s: str,
        prop: Any,
        angle: float,
        ismath: Any = False,
        mtext: Any = None,
    ) -> None:
        """Write a text in the page's font. Its anchor stays where it is if the font is wider or narrower."""
        style = {} if prop.get_size_in_points() == TEXT else {"font-size": f"{_short(prop.get_size_in_points())}px"}
        if mtext is not None and (angle == 0 or mtext.get_rotation_mode() == "anchor"):
            anchor = self._flip().transform(mtext.get_transform().transform(mtext.get_unitless_position()))
            down = np.array([np.sin(np.deg2rad(angle)), np.cos(np.deg2rad(angle))])  # to the next line
            x, y = anchor + down * float(down @ (np.array([x, y]) - anchor))
            style |= {"text-anchor": _ANCHORS[mtext.get_ha()]} if mtext.get_ha() in _ANCHORS else {}
        if (color := _color(gc.get_rgb())) != _VARIABLES[COLORS["muted"]]:
            style["fill"] = color
        place = f'x="{_short(x)}" y="{_short(y)}"'
        turned = f' transform="rotate({_short(-angle)} {_short(x)} {_short(y)})"' if angle else ""
        look = f' style="{_css(style)}"' if style else ""
        self.parts.append(f"<text {place}{turned}{look}>{escape(s)}</text>")

    def draw_image(self, gc: GraphicsContextBase, x: float, y: float, im: Any, transform: Any = None) -> None:
        """Draw an image of many pixels as JPEG, which has a fifth of the bytes, and one of few as PNG."""
        from PIL import Image

        tall, wide = im.shape[:2]
        memory, photo = io.BytesIO(), wide * tall >= _PHOTO
        if photo:
            Image.fromarray(im).convert("RGB").save(memory, "JPEG", quality=88)
        else:
            Image.fromarray(im).save(memory, "PNG")
        data = f"data:image/{'jpeg' if photo else 'png'};base64,{base64.b64encode(memory.getvalue()).decode()}"
        scaled = Affine2D().scale(1 / wide, 1 / tall)
        size = Affine2D().scale(wide, tall) if transform is None else transform
        matrix = (scaled + size + Affine2D().translate(x, y) + self._flip()).get_matrix()
        numbers = " ".join(_short(value, 4) for value in matrix[:2].T.ravel())
        drawn = f'<image href="{data}" width="{wide}" height="{tall}" transform="matrix({numbers})" '
        style = "image-rendering:crisp-edges;image-rendering:pixelated"
        self.parts.append(f'<g{self._clip(gc)}>{drawn}style="{style}"/></g>')

    def _flip(self) -> Affine2D:
        return Affine2D().scale(1, -1).translate(0, self.tall)

    def _clip(self, gc: GraphicsContextBase) -> str:
        box = gc.get_clip_rectangle()
        if box is None:
            return ""
        x, y, wide, tall = box.bounds
        cut = f'x="{_short(x)}" y="{_short(self.tall - y - tall)}" width="{_short(wide)}" height="{_short(tall)}"'
        return f' clip-path="url(#{self._known("clip", cut, f"""<clipPath id="{{}}"><rect {cut}/></clipPath>""")})"'

    def _known(self, kind: str, what: str, element: str) -> str:
        if (kind, what) not in self._ids:
            self._ids[kind, what] = f"{self.key}-{len(self._ids) + 1}"
            self.parts.append(f"<defs>{element.format(self._ids[kind, what])}</defs>")
        return self._ids[kind, what]


def _style(gc: GraphicsContextBase, face: Any) -> str:
    style, alpha = {}, gc.get_alpha() if gc.get_forced_alpha() else None
    if face is None or (len(face) == 4 and face[3] == 0):
        style["fill"] = "none"
    else:
        style["fill"] = _color(face)
        if alpha is None and len(face) == 4 and face[3] != 1:
            style["fill-opacity"] = _short(face[3])
    if alpha is not None and alpha != 1:
        style["opacity"] = _short(alpha)
    width, line = gc.get_linewidth(), gc.get_rgb()
    if not width or line[3] == 0:
        return _css(style)
    offset, dashes = gc.get_dashes()
    if dashes is not None:
        style["stroke-dasharray"] = ",".join(_short(float(each)) for each in np.asarray(dashes))
        style |= {"stroke-dashoffset": _short(offset)} if offset else {}
    style["stroke"] = _color(line)
    if alpha is None and line[3] != 1:
        style["stroke-opacity"] = _short(line[3])
    style |= {"stroke-width": _short(width)} if width != 1 else {}
    style |= {"stroke-linejoin": gc.get_joinstyle()} if gc.get_joinstyle() != "round" else {}
    return _css(style | ({"stroke-linecap": _CAPS[gc.get_capstyle()]} if gc.get_capstyle() in _CAPS else {}))


def _css(style: dict[str, str]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in style.items())


def _color(rgb: Sequence[float]) -> str:
    color = "#{:02x}{:02x}{:02x}".format(*(round(255 * float(part)) for part in rgb[:3]))
    return _VARIABLES.get(color, color)


def _short(value: float, decimals: int = 2) -> str:
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _drawn(path: Path, transform: Transform, clip: tuple[float, float, float, float] | None, *, near: float) -> str:
    # the attribute "d": strokes of straight lines with fewer points, other shapes as they are
    whole = path.cleaned(transform=transform, remove_nans=True, clip=clip, simplify=False, curves=True)
    points, codes = np.asarray(whole.vertices).tolist(), np.asarray(whole.codes).tolist()
    if {Path.STOP, Path.MOVETO, Path.LINETO} >= {*codes}:
        starts = [place for place, code in enumerate(codes) if code != Path.LINETO]
        strokes = (points[first:last] for first, last in zip(starts, [*starts[1:], len(points)], strict=True))
        return "".join(f"M{_pairs(stroke, near)} " for stroke in strokes if len(stroke) > 1)
    parts, place = [], 0
    while place < len(codes) and codes[place] != Path.STOP:
        count = _POINTS.get(codes[place], 1)
        if codes[place] == Path.CLOSEPOLY:
            parts.append("z")
        else:
            numbers = (f"{_short(x)} {_short(y)}" for x, y in points[place : place + count])
            parts.append(_LETTERS[codes[place]] + " ".join(numbers))
        place += count
    return "".join(parts)


def _pairs(stroke: Sequence[Sequence[float]], near: float) -> str:
    return " ".join(f"{stroke[at][0]:.1f} {stroke[at][1]:.1f}".replace(".0", "") for at in corners(stroke, near))
