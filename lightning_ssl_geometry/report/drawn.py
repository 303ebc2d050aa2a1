"""Draw all figures of a page. If a figure fails, the page names it and the reason."""

__all__ = ["Drawings", "draw"]

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count

import numpy as np

from lightning_ssl_geometry.report.evaluation import evaluated, evaluation_panel
from lightning_ssl_geometry.report.figures import Figured, Plan, View, in_order, plans
from lightning_ssl_geometry.report.files import plain
from lightning_ssl_geometry.report.lines import component_panels, line_panel
from lightning_ssl_geometry.report.moments import moment_panels
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.pictures import class_panel, gallery_panel
from lightning_ssl_geometry.report.stills import (
    image_panel,
    layer_panel,
    matrix_panels,
    path_panels,
    point_panel,
    spectra_panels,
)

_MOST_UNKNOWN = 24
_Drawn = Panel | Iterable[Panel | None] | None
_PICTURES: dict[Figured, Callable[[Plan, View], _Drawn]] = {
    "line": line_panel,
    "dots": line_panel,
    "components": component_panels,
    "spectrum": moment_panels,
    "profile": moment_panels,
    "histogram": moment_panels,
    "quantiles": moment_panels,
    "spectra": spectra_panels,
    "matrix": matrix_panels,
    "points": point_panel,
    "images": image_panel,
    "gallery": gallery_panel,
    "classes": class_panel,
    "path": path_panels,
    "layers": layer_panel,
}


@dataclass
class Drawings:
    """Caches the figures of a page, and collects the errors of figures that could not be drawn."""

    lost: list[str] = field(default_factory=list)  # a sentence for each figure that could not be drawn
    left_out: int = 0  # figures of undeclared logs that are too many
    panels: dict[str, list[Panel]] | None = None  # by section; None before they are drawn

    def of(self, what: str, drawing: Callable[[], _Drawn]) -> list[Panel]:
        """Call `drawing` and return its figures. If it raises an error, record this error under the name `what`."""
        try:
            drawn = drawing()
            panels = [drawn] if drawn is None or isinstance(drawn, Panel) else list(drawn)
        except Exception as error:  # values of a run may be anything
            self.lose(what, error)
            return []
        return [panel for panel in panels if panel is not None]

    def lose(self, what: str, error: Exception) -> None:
        """Record that a figure could not be drawn."""
        said = f"Not drawn: {plain(what, 60)}, because of {type(error).__name__}: {plain(error, 300)}"
        if said not in self.lost:  # the page may be made several times
            self.lost.append(said)

    def warn(self, where: str) -> None:
        """Give one warning about all figures that could not be drawn."""
        lost, self.lost = self.lost, []
        if lost:
            warnings.warn(f"{where} lacks figures. {' '.join(lost)}", stacklevel=3)


def draw(view: View, drawings: Drawings) -> dict[str, list[Panel]]:
    """Return all figures of a page, by section. They are drawn only if `drawings` does not hold them yet."""
    if drawings.panels is not None:
        return drawings.panels
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, and shown so
        found = plans(view)
        unknown = [plan for held in found.values() for plan in held if not any(m.declared for m in plan.members)]
        dropped = {id(plan) for plan in unknown[_MOST_UNKNOWN:]}
        drawings.left_out = len(dropped)
        kept = {name: [plan for plan in held if id(plan) not in dropped] for name, held in found.items()}
        panels = {name: [p for plan in held for p in drawings.of(plan.title, partial(_PICTURES[plan.kind], plan, view))]
                  for name, held in kept.items()}  # fmt: skip
        if panel := drawings.of("linear evaluation", lambda: evaluation_panel(view)):
            panels.setdefault(evaluated(view), []).extend(panel)
        panels = _told_apart(panels)
    drawings.panels = {name: panels[name] for name in in_order(panels) if panels[name]}
    return drawings.panels


def _told_apart(panels: Mapping[str, Sequence[Panel]]) -> dict[str, list[Panel]]:
    seen: set[str] = set()
    found: dict[str, list[Panel]] = {section: [] for section in panels}
    for section, panel in ((section, panel) for section, held in panels.items() for panel in held):
        name = re.sub(r"\W+", "_", panel.name).strip("_") or "figure"
        free = next(each for each in chain([name], (f"{name}_{k}" for k in count(2))) if each not in seen)
        seen.add(free)
        found[section].append(replace(panel, name=free))
    return {section: _titled_apart(held) for section, held in found.items()}


def _titled_apart(panels: Sequence[Panel]) -> list[Panel]:
    # titles of a section that are equal get the data that they show, or else the figure's name
    for more in (lambda panel: ", ".join(filter(None, panel.stages)), lambda panel: panel.name):
        counts = Counter(panel.title for panel in panels)
        panels = [replace(panel, title=f"{panel.title}, {more(panel)}") if counts[panel.title] > 1 and more(panel)
                  else panel for panel in panels]  # fmt: skip
    return [*panels]
