"""Matplotlib figures as inline SVG, in the style of the page."""

__all__ = ["inline_svg"]

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lightning_ssl_geometry.report.renderer import Tip


def inline_svg(figure: "Figure", *, key: str, label: str) -> Markup:
    """Render a figure of `plots` as SVG for an HTML page.

    Colours become CSS variables (`--ink`, `--ramp-0`), and texts use the page's font. All ids begin with `key`. `label`
    describes the figure for screen readers. Tooltips become radio buttons above the points, one group for each figure:
    a style sheet shows the name of the button that is hovered, focused or tapped. The tab key stops once at a figure,
    and the arrow keys go from point to point.
    """
    from lightning_ssl_geometry.report.renderer import Renderer

    wide, tall = (72 * float(side) for side in figure.get_size_inches())
    renderer = Renderer(wide, tall, key)
    dpi, seen = figure.dpi, figure.patch.get_visible()
    hidden = figure.findobj(lambda artist: artist.get_gid() == "every" and not artist.get_visible())
    try:
        figure.dpi = 72.0
        figure.patch.set_visible(False)  # the page is the background
        for artist in hidden:  # the page's style sheet hides them
            artist.set_visible(True)
        figure.draw(renderer)
    finally:
        figure.dpi = dpi
        figure.patch.set_visible(seen)
        for artist in hidden:
            artist.set_visible(False)
    head = Markup('<svg class="figure" viewBox="0 0 {} {}" role="img" aria-label="{}">')
    drawn = head.format(f"{wide:g}", f"{tall:g}", label) + Markup("".join(renderer.parts) + "</svg>")
    drawn += _buttons(renderer.tips, key, label, size=(wide, tall))
    return Markup('<div class="drawing" style="--wide:{};--tall:{}">{}</div>').format(f"{wide:g}", f"{tall:g}", drawn)


def _buttons(tips: "Sequence[Tip]", key: str, label: str, size: tuple[float, float]) -> Markup:
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
