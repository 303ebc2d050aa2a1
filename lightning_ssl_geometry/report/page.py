"""The HTML page of a run, and the page that compares groups of runs."""

__all__ = ["PAGES_HAVE", "comparison_figures", "comparison_numbers", "figures", "figures_by_section", "page_of",
           "write_comparison", "write_report"]  # fmt: skip

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from lightning_ssl_geometry.files import refuse_other_files, replacing
from lightning_ssl_geometry.report.contents import comparison_contents, run_contents
from lightning_ssl_geometry.report.cross import LayerSimilarity, cross_panel, model_panel
from lightning_ssl_geometry.report.download import saved
from lightning_ssl_geometry.report.drawn import Drawings, draw
from lightning_ssl_geometry.report.figures import View, in_order
from lightning_ssl_geometry.report.groups import read_groups
from lightning_ssl_geometry.report.layout import Below, below, in_rows
from lightning_ssl_geometry.report.logs import Floats
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.run import Run, read_run
from lightning_ssl_geometry.report.standings import standings_numbers
from lightning_ssl_geometry.report.svg import inline_svg

if TYPE_CHECKING:
    from jinja2 import Template
    from matplotlib.figure import Figure

PAGES_HAVE = """http-equiv="Content-Security-Policy" content="default-src 'none'"""  # near their beginning
_COLUMNS, _MUCH_LONGER = 3, 400  # figures in a row, letters
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Shown:
    """A figure on the page."""

    panel: Panel
    svg: Markup
    saved: Any  # its numbers as a link
    below: Below
    beside: Markup | None = None  # the same on another scale, shown beside the enlarged figure
    alone: bool = False  # it takes a row of its own, where it would be the last of three


def write_report(run: Run | str | Path, output: str | Path | None = None, *, drawings: Drawings | None = None) -> Path:
    """Write one self-contained HTML page from the files of a run, and return its path.

    The page has no script and makes no requests. It contains the numbers of each figure as a CSV file. The page and a
    UserWarning name figures that cannot be drawn.

    Args:
        run: A run from :func:`read_run`, or the folder of a run. If the folder has folders `version_*`, the newest of
            them is read.
        output: Path of the page. None: `report.html` in the run's folder. Missing folders are created.
        drawings: Cache of the figures. Then :func:`figures` of the same run does not draw them again.

    Raises:
        FileNotFoundError: If `run` does not exist.
        ValueError: If `run` is not the folder of a run, or `output` is a folder.
    """
    read = run if isinstance(run, Run) else read_run(run)
    path = read.folder / "report.html" if output is None else Path(output)
    drawings = drawings or Drawings()
    return _write(path, page_of(read, drawings), drawings)


def page_of(run: Run, drawings: Drawings) -> str:
    """Return the HTML page of a run. `drawings` collects the errors of figures that could not be drawn."""
    view = View.of(run)
    drawn = draw(view, drawings)
    sections = _sections(drawn, drawings, run.name)
    return _rendered(run.name, sections, run_contents(view, drawn, drawings))


def write_comparison(
    groups: Mapping[str, Sequence[str | Path]],
    output: str | Path,
    *,
    title: str = "Comparison",
    similarity: tuple[Sequence[str], Floats] | None = None,
    layers: Sequence[LayerSimilarity] = (),
    chance: float | None = None,
    choosing: Sequence[Panel] = (),
    advice: Sequence[str] = (),
) -> Path:
    """Write one self-contained HTML page that compares groups of runs, and return its path.

    The page has no script and makes no requests. The page and a UserWarning name figures that cannot be drawn.

    Args:
        groups: Maps the name of a group to the folders of its runs. More than six groups share colours.
        output: Path of the page. Missing folders are created.
        title: Title of the page.
        similarity: Names of M models, and the unbiased linear CKA between them (M, M).
        layers: Similarities between the layers of two models, each for a figure.
        chance: Standard deviation of these similarities by chance, around 0: see `functional.cka_by_chance`.
        choosing: Figures on which group is best. They stand first.
        advice: Sentences on which group is best. They stand below the title.

    Raises:
        FileNotFoundError: If a run does not exist.
        ValueError: If there is no group, a group has no run, a folder is not that of a run, `output` is a folder, or
            `similarity` or one of `layers` has a wrong shape.
    """
    models = [] if similarity is None else [model_panel(*similarity, chance=chance)]
    models += [cross_panel(each, place, chance) for place, each in enumerate(layers, start=1)]
    view, drawings = View(tuple(read_groups(groups))), Drawings()
    drawn = draw(view, drawings)
    added = {"models": models, "choosing": list(choosing)}
    if any(added.values()):
        drawn = drawn | {name: [*drawn.get(name, []), *panels] for name, panels in added.items() if panels}
        drawn = {name: drawn[name] for name in in_order(drawn)}
    sections = _sections(drawn, drawings, title)
    contents = comparison_contents(view, title, drawn, drawings=drawings) | {"advice": " ".join(advice)}
    return _write(Path(output), _rendered(title, sections, contents), drawings)


def figures(run: Run, *, drawings: Drawings | None = None) -> "dict[str, Figure]":
    """Draw all figures of a run, by name. `figures(run)["loss"].savefig("loss.png", dpi=200)` saves one.

    A UserWarning names figures that cannot be drawn. `drawings` caches the figures for :func:`write_report`.
    """
    return _named(View.of(run), run.name, drawings or Drawings())


def figures_by_section(run: Run, *, drawings: Drawings | None = None) -> "dict[str, Figure]":
    """Draw all figures of a run as :func:`figures` does, with names such as "ranks/effective_rank"."""
    found = drawings or Drawings()
    drawn = draw(View.of(run), found)
    found.warn(run.name)
    return {f"{section}/{panel.name}": panel.figure for section, panels in drawn.items() for panel in panels}


def comparison_numbers(groups: Mapping[str, Sequence[str | Path]]) -> tuple[list[str], list[list[str | float | None]]]:
    """Return the headline numbers of groups of runs as the header and the rows of a table, one row for each group.

    Each number has two columns, its mean over the group's runs and their standard deviation. The errors of
    :func:`comparison_figures` are raised.
    """
    return standings_numbers(View(tuple(read_groups(groups))))


def comparison_figures(groups: Mapping[str, Sequence[str | Path]]) -> "dict[str, Figure]":
    """Draw all figures that compare groups of runs, by name.

    Each group has a colour. A line is the mean over its runs, and a band is the standard deviation (ddof = 1). Values
    are from the stage that most groups have. In a tie, it is the first of "probe", "val", "train" and "test". A figure
    is named after its chart and, if needed, its tensor: "projector_rank", "spectrum_h". A UserWarning names figures
    that cannot be drawn.

    Args:
        groups: Maps the name of a group to the folders of its runs. More than six groups share colours.

    Raises:
        FileNotFoundError: If a run does not exist.
        ValueError: If there is no group, a group has no run, or a folder is not that of a run.
    """
    return _named(View(tuple(read_groups(groups)), titled=True), "The comparison", Drawings())


def _named(view: View, where: str, drawings: Drawings) -> "dict[str, Figure]":
    named = {panel.name: panel.figure for panels in draw(view, drawings).values() for panel in panels}
    drawings.warn(where)
    return named


def _sections(drawn: Mapping[str, Sequence[Panel]], drawings: Drawings, prefix: str) -> dict[str, list[Shown]]:
    sections: dict[str, list[Shown]] = {}
    for number, (name, panels) in enumerate(drawn.items()):
        pictures: list[tuple[Panel, Markup, Markup | None]] = []
        for place, panel in enumerate(panels):
            try:
                pictures.append((panel, *_pictures(panel, f"figure{number}-{place}")))
            except Exception as error:  # of matplotlib
                drawings.lose(panel.title, error)
        texts = below([panel for panel, *_ in pictures])
        for (panel, svg, beside), said in zip(pictures, texts, strict=True):
            table = saved(f"{prefix}-{panel.name}", panel.numbers)
            sections.setdefault(name, []).append(Shown(panel, svg, table, below=said, beside=beside))
    return sections


def _pictures(panel: Panel, key: str) -> tuple[Markup, Markup | None]:
    first = inline_svg(panel.figure, key=key, label=panel.label)
    if panel.beside is None:
        return first, None
    return first, inline_svg(panel.beside, key=f"{key}-linear", label=f"On a linear scale: {panel.label}")


def _rendered(title: str, sections: Mapping[str, list[Shown]], contents: Mapping[str, Any]) -> str:
    order, counts = contents["order"], dict[str, int]()
    for name in order:
        whole = name in contents["readings"] or (name == "layers" and contents["layers"])
        more = bool(contents["evaluation"]) and name == contents["evaluated"]
        counts[name] = 0 if whole or name not in sections else len(sections[name]) + more
    rows = in_rows(counts)
    wide = {row[0][0] for row in rows if len(row) == 1 and row[0][1] == _COLUMNS}
    held = {name: _last_alone(shown) if name in wide else shown for name, shown in sections.items()}
    paired = {name for name in wide & held.keys() if counts[name] == 4 and _two_by_two(held[name])}
    rows = [[(name, 2 if name in paired else columns) for name, columns in row] for row in rows]
    ids = {name: name if name in contents["headings"] else f"own-{place}" for place, name in enumerate(order, start=1)}
    return _template().render(title=title, sections=held, rows=rows, ids=ids, **contents)


def _last_alone(shown: list[Shown]) -> list[Shown]:
    # a figure that would be alone in the last row fills it, unless the texts differ much in length
    letters = [sum(len(text.text + text.low + text.high) for text in each.below.texts) for each in shown[:-1]]
    says_little = len(shown) > 1 and not shown[-1].below.texts
    if len(shown) % _COLUMNS != 1 or says_little or max(letters, default=0) - min(letters, default=0) > _MUCH_LONGER:
        return shown
    return [*shown[:-1], replace(shown[-1], alone=True)]


def _two_by_two(shown: Sequence[Shown]) -> bool:
    # three columns of four figures are 2, 2 and 0 figures tall, if the last is as tall as the others or less
    return len(shown) == 4 and not shown[-1].alone and not shown[-1].below.texts


def _with_code(text: str) -> Markup:
    """Escape a text for HTML, and set its parts between backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


@lru_cache
def _template() -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("lightning_ssl_geometry.report", ""), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    style = files("lightning_ssl_geometry.report").joinpath("page.css").read_text("utf-8")
    environment.globals |= {"style": Markup(style)}
    environment.filters["code"] = _with_code
    return environment.get_template("page.html.j2")


def _write(path: Path, page: str, drawings: Drawings) -> Path:
    if path.is_dir():
        raise ValueError(f"Expected `output` to be a file, but {path} is a folder.")
    refuse_other_files(path, PAGES_HAVE)
    with replacing(path) as file:
        file.write(page.encode("utf-8", errors="replace"))
    drawings.warn(str(path))
    return path
