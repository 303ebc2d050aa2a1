"""Sizes of texts, computed once for all figures."""

__all__ = ["Measure"]

import warnings
from functools import lru_cache
from typing import Any

from matplotlib.backend_bases import RendererBase


class Measure(RendererBase):
    """A renderer that draws nothing. It knows how large a text is, at 72 dpi and without hinting.

    matplotlib asks for the size of each text several times per figure, and forgets the sizes with the renderer of the
    figure. Here, all figures share them.
    """

    def get_text_width_height_descent(self, s: str, prop: Any, ismath: Any) -> tuple[float, float, float]:
        """Return the width, the height and the descent of a text in pixels."""
        return _size(s, prop, ismath)


@lru_cache(maxsize=4096)
def _size(text: str, font: Any, ismath: Any) -> tuple[float, float, float]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a page has its own font
        return RendererBase().get_text_width_height_descent(text, font, ismath)
