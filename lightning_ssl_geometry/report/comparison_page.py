"""The page that compares groups of runs."""

__all__ = ["write_comparison"]

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from lightning_ssl_geometry.report.about import papers, record
from lightning_ssl_geometry.report.comparison import comparison_panels
from lightning_ssl_geometry.report.comparison_dots import are_diagnoses
from lightning_ssl_geometry.report.coverage import coverage_table, odd_widths
from lightning_ssl_geometry.report.document import document, write_page
from lightning_ssl_geometry.report.download import Numbers, download
from lightning_ssl_geometry.report.drawn import Drawings
from lightning_ssl_geometry.report.facts import shared_facts, weights
from lightning_ssl_geometry.report.glossary import ENTRIES
from lightning_ssl_geometry.report.groups import Average, Group, average_scalar, read_groups, shared_stage
from lightning_ssl_geometry.report.html import Html, element
from lightning_ssl_geometry.report.layer_panels import similarity_panel
from lightning_ssl_geometry.report.logs import Floats
from lightning_ssl_geometry.report.numbers import deviation, number, percent
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.panel_html import panel_html
from lightning_ssl_geometry.report.sheets import SECTIONS

_OF_MEANS = (
    "not a finite number", "left out", "the newest of", "Fewer samples", "could not be read", "of one name",
    "were read", "shown as infinite", "leave them out", "no finite number", "This run failed",
)  # fmt: skip


def write_comparison(
    groups: Mapping[str, Sequence[str | Path]],
    output: str | Path,
    *,
    title: str = "Comparison",
    similarity: tuple[Sequence[str], Floats] | None = None,
) -> Path:
    r"""Write one self-contained HTML page that compares groups of runs, with figures and numbers.

    The file appears whole or not at all. It has no script and asks for nothing from the network; the numbers of each
    figure are in it as CSV files to be saved.

    Args:
        groups: Name -> the folders of its runs; see :func:`lightning_ssl_geometry.report.comparison_figures`.
        output: The page's path. Folders on the way are made.
        title: The page's.
        similarity: (names, values (M, M)): how alike M models are on the same samples, such as their linear CKA.

    Returns:
        The page's path.

    Raises:
        FileNotFoundError: If a run does not exist.
        ValueError: If there is no group, a group has no run, a folder is no run, `output` is a folder, or `similarity`
            is not one value for each pair of names.

    Warns:
        UserWarning: If there is a figure that could not be drawn; the page says so.

    >>> import tempfile
    >>> run = Path(tempfile.mkdtemp())
    >>> _ = (run / "metrics.csv").write_text("epoch,step,train/loss\n0,9,4.5\n1,19,4.0\n")
    >>> write_comparison({"small": [run]}, run / "strengths.html").name
    'strengths.html'
    """
    models = [] if similarity is None else [_similarity(*similarity)]
    drawings = Drawings()
    written = write_page(Path(output), document(title, _article(read_groups(groups), title, models, drawings)))
    drawings.warn(str(written))
    return written


def _similarity(names: Sequence[str], values: Floats) -> Panel:
    found = np.asarray(values, dtype=np.float64)
    if not len(names) or found.shape != (len(names), len(names)):
        raise ValueError(
            f"Expected `similarity` with values of shape ({len(names)}, {len(names)}) for its {len(names)} names, but "
            f"got {found.shape}."
        )
    return similarity_panel(names, found)


def _article(groups: Sequence[Group], title: str, models: Sequence[Panel], drawings: Drawings) -> Html:
    drawn = comparison_panels(groups, drawings)
    drawn["models"] += models
    once = are_diagnoses(groups)
    sections = [_section(name, panels, title, once, drawings) for name, panels in drawn.items() if panels]
    entries = [entry for panels in drawn.values() for panel in panels for entry in panel.entries]
    header = element("header", element("h1", title), _legend(groups), _shared(groups))
    foot = (_numbers(groups, title), coverage_table(groups), _runs(groups), papers(entries))
    return element("article", header, _notes(groups, drawings), *sections, *foot)


def _legend(groups: Sequence[Group]) -> Html:
    """Name the groups in their colours."""
    named = [
        element("span", group.name, element("small", f" {_made_of(group)}"),
                class_=f"group {group.color}")
        for group in groups
    ]  # fmt: skip
    return element("div", *named, class_="facts")


def _made_of(group: Group) -> str:
    """How many runs; of a single diagnosis, which weights."""
    if len(group.runs) == 1 and group.runs[0].is_diagnosis and (said := weights(group.runs[0], short=True)):
        return said
    return f"{len(group.runs)} run{'s' * (len(group.runs) > 1)}"


def _shared(groups: Sequence[Group]) -> Html | None:
    """The data that all runs saw."""
    said = shared_facts([run for group in groups for run in group.runs])
    return element("div", *(element("span", fact) for fact in said), class_="facts") if said else None


def _notes(groups: Sequence[Group], drawings: Drawings) -> Html | None:
    """What of the runs' own notes changes a mean."""
    said = [
        element("li", f"{group.name}, {run.name}: {note}", class_="grave" if "not a finite number" in note else None)
        for group in groups
        for run in group.runs
        for note in run.notes
        if any(part in note for part in _OF_MEANS)
    ]
    said += [element("li", note) for note in odd_widths(groups)]
    said += [element("li", note, class_="grave") for note in drawings.lost]
    if coverage_table(groups):
        what = "Not all runs have the same diagnostics; a figure shows those that have what it is about. "
        said.append(element("li", what, element("a", "Who has what", href="#coverage")))
    return (
        element("div", element("h3", "To know when reading this page"), element("ul", *said), class_="notes")
        if said
        else None
    )


def _section(name: str, panels: Sequence[Panel], title: str, once: bool, drawings: Drawings) -> Html:
    said: set[str] = set()
    figures = []
    for place, panel in enumerate(panels):
        fresh = [entry for entry in panel.entries if entry.text not in said]
        write = partial(panel_html, panel, f"{name}-{place}", fresh, keyed=False, prefix=title)
        figures += drawings.html(panel, write)
        said |= {entry.text for entry in panel.entries}
    heading = "Loss" if name == "learning" and once else SECTIONS[name]
    return element("section", element("h2", heading), element("div", *figures, class_="panels"), id=name)


def _numbers(groups: Sequence[Group], title: str) -> Html | None:
    """First and last value of each known scalar on the data that the figures show, per group."""
    asked = {key: shared_stage(groups, [key]) for key in ENTRIES}
    rows = [_row(groups, key, stage) for key, stage in asked.items() if stage is not None]
    rows = [row for row in rows if row]
    if not rows:
        return None
    once = are_diagnoses(groups)
    span = None if once else "2"
    names = (element("th", group.name, colspan=span, scope="colgroup", class_=group.color) for group in groups)
    moments = (element("th", when, scope="col") for _ in groups for when in ("first", "last"))
    head = element("thead", element("tr", element("th", "scalar", scope="col"), *names),
                   None if once else element("tr", element("th"), *moments))  # fmt: skip
    table = element("div", element("table", head, element("tbody", *rows), class_="compared"), class_="wide")
    several = any(len(group.runs) > 1 for group in groups)
    what = "Mean ± standard deviation over the runs of a group. " if several else ""
    what += "" if once else "At the first and the last step that runs of a group share."
    save = element("p", download(f"{title}-scalars", _saved(groups, asked), "Save as CSV"), class_="save")
    heading = element("h2", "Values" if once else "First and last values")
    return element("section", heading, element("p", what.strip(), class_="absent") if what else None, table, save)


def _saved(groups: Sequence[Group], asked: Mapping[str, str | None]) -> Numbers:
    """All values of what is compared, not only the first and the last."""
    rows: list[list[str | float]] = []
    for key, stage in asked.items():
        for group in groups if stage is not None else ():
            if each := average_scalar(group, key, stage or ""):
                std = np.full(len(each.step), np.nan) if each.std is None else each.std
                rows += [
                    [group.name, each.name, *row, each.runs] for row in zip(each.step, each.mean, std, strict=True)
                ]
    return Numbers(("group", "scalar", "step", "mean", "standard deviation", "runs"), rows)


def _row(groups: Sequence[Group], key: str, stage: str) -> Html | None:
    found = [average_scalar(group, key, stage) for group in groups]
    name = next((each.name for each in found if each), None)
    if name is None:
        return None
    places = (-1,) if are_diagnoses(groups) else (0, -1)
    cells = [element("td", _value(each, place, ENTRIES[key].percent)) for each in found for place in places]
    return element("tr", element("th", name, scope="row"), *cells)


def _value(average: Average | None, place: int, is_percent: bool) -> str:
    if average is None or not len(average.step):
        return "\N{EN DASH}"
    mean, std = float(average.mean[place]), np.nan if average.std is None else float(average.std[place])
    text = percent(mean) if is_percent else number(mean)
    return text + (f" ± {deviation(mean, std, is_percent)}" if np.isfinite(std) else "")


def _runs(groups: Sequence[Group]) -> Html:
    """Where each run lies, and how it was made, folded."""
    folded = [
        element("details", element("summary", f"{group.name}: {run.folder.resolve()}"), *record(run))
        for group in groups
        for run in group.runs
    ]
    return element("section", element("h2", "Runs"), *folded)
