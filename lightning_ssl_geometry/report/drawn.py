"""Figures of a page of which one may fail: the others are drawn, and a sentence says which one is missing and why."""

__all__ = ["Drawings"]

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lightning_ssl_geometry.report.files import plain
from lightning_ssl_geometry.report.html import Html
from lightning_ssl_geometry.report.panel import Panel


@dataclass
class Drawings:
    """Draws, and keeps what could not be drawn.

    Attributes:
        lost: A sentence for each figure, or kind of figure, that could not be drawn.
    """

    lost: list[str] = field(default_factory=list)

    def of(self, what: str, draw: Callable[[], Panel | Iterable[Panel | None] | None]) -> list[Panel]:
        """What `draw` returns without None; nothing where it fails, of which `what` then says what is missing."""
        try:
            drawn = draw()
            panels = [drawn] if drawn is None or isinstance(drawn, Panel) else list(drawn)
        except Exception as error:  # values of a run may be anything
            self._lose(what, error)
            return []
        return [panel for panel in panels if panel is not None]

    def html(self, panel: Panel, write: Callable[[], Html]) -> list[Html]:
        """A figure as it stands on a page, or nothing where matplotlib fails."""
        try:
            return [write()]
        except Exception as error:
            self._lose(panel.title, error)
            return []

    def warn(self, where: str) -> None:
        """Warn once of all that could not be drawn."""
        if self.lost:
            warnings.warn(f"{where} lacks figures. {' '.join(self.lost)}", stacklevel=3)

    def _lose(self, what: str, error: Exception) -> None:
        self.lost.append(f"Not drawn: {plain(what, 60)}, because of {type(error).__name__}: {plain(error, 300)}")
