"""What a notebook shows of a run."""

__all__ = ["framed", "in_short", "named", "with_picture"]

import io
from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING

from markupsafe import escape

from lightning_ssl_geometry.report.files import plain
from lightning_ssl_geometry.report.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT = 640  # of the frame in pixels; the page in it scrolls
_DPI = 144
_MAY = "allow-downloads allow-popups allow-popups-to-escape-sandbox"  # no scripts, nothing of the notebook's page


def framed(page: str) -> str:
    """Put an HTML page into a frame whose style and ids do not mix with the notebook's."""
    style = f"width: 100%; height: {_HEIGHT}px; border: 1px solid #d5dae0; border-radius: 6px"
    return f'<iframe srcdoc="{escape(page)}" sandbox="{_MAY}" title="The page of a run" style="{style}"></iframe>'


def in_short(run: Run) -> str:
    """Describe a run in one line."""
    model, status = run.info.get("model"), run.info.get("status")
    about = f"diagnosis of {model or 'a model'}" if run.is_diagnosis else model and f"training of {model}"
    counts = f"{len(run.scalars)} scalars, {len(run.arrays)} vectors"
    said = [about, None if status == "finished" else status, counts]
    return f"Run({str(run.folder)!r}: {', '.join(plain(each, 60) for each in said if each)})"


def named(figures: "Mapping[str, Figure]", name: str) -> "Figure":
    """Return the figure of a name. Raises a ValueError with similar names if there is none."""
    if name in figures:
        return figures[name]
    near = get_close_matches(str(name), figures, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"There are {', '.join(figures) or 'none'}."
    raise ValueError(f"Expected `name` to be the name of a figure of this run, but got {name!r}. {hint}")


def with_picture(figure: "Figure") -> "Figure":
    """Let a figure show itself in a notebook that has not imported pyplot. Returns the same figure."""
    vars(figure)["_repr_png_"] = partial(_png, figure)
    return figure


def _png(figure: "Figure") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()
