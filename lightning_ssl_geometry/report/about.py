"""The foot of the page: every number, how the run was made, and the papers."""

__all__ = ["all_numbers", "how_it_was_made", "papers", "record"]

import json
from collections.abc import Iterable, Mapping

from lightning_ssl_geometry.report.download import download, series_numbers
from lightning_ssl_geometry.report.glossary import PAPERS, Entry, Paper
from lightning_ssl_geometry.report.history import Resumption
from lightning_ssl_geometry.report.html import Html, element
from lightning_ssl_geometry.report.logs import Series
from lightning_ssl_geometry.report.numbers import moment, number
from lightning_ssl_geometry.report.run import Run


def all_numbers(run: Run) -> Html | None:
    """List each scalar's first, lowest, highest and last value, folded, and link to all values as one file."""
    if not run.scalars:
        return None
    columns = ["scalar", "value"] if run.is_diagnosis else ["scalar", "first", "lowest", "highest", "last", "readouts"]
    head = element("tr", *(element("th", column, scope="col") for column in columns))
    body = element("tbody", *(_row(series, run.is_diagnosis) for series in run.scalars.values()))
    what = "Value" if run.is_diagnosis else "First, lowest, highest and last value"
    summary = element("summary", f"{what} of {len(run.scalars)} scalar{'s' * (len(run.scalars) != 1)}")
    table = element("table", element("thead", head), body, class_="short" if run.is_diagnosis else "numbers")
    save = element("p", *_saved(run), class_="save")
    return element("section", element("h2", "All numbers"), save, element("details", summary, table))


def _saved(run: Run) -> list[Html]:
    """All scalars, and what does not fit a page."""
    link = download(f"{run.name}-scalars", series_numbers(run.scalars.values()), "Save all scalars as CSV")
    rest = "Arrays over all readouts are in the run's folder, in geometry/."
    return [link, element("span", rest)] if run.arrays else [link]


def how_it_was_made(run: Run) -> Html:
    """Tell command, seed, versions, machine, and the config, folded."""
    return element("section", element("h2", "Run"), *record(run))


def record(run: Run) -> list[Html | None]:
    """Write what is known of how a run was made: a list of names and values, and the config, folded."""
    rows = {"folder": str(run.folder.resolve())}
    rows |= {f"resumed ({n})": _resumed(entry) for n, entry in enumerate(run.resumed, 1)}
    rows |= {key.replace("_", " "): _shown(key, value) for key, value in run.info.items() if value is not None}
    pairs = [
        item
        for key, value in rows.items()
        for item in (element("dt", key), element("dd", element("code", value) if key == "command" else value))
    ]
    config = None
    if run.config is not None:
        config = element("details", element("summary", "config.yaml"), element("pre", run.config))
    return [element("dl", *pairs, class_="run"), config]


def papers(entries: Iterable[Entry]) -> Html | None:
    """List the papers that entries are from, each once."""
    cited = [PAPERS[key] for key in dict.fromkeys(entry.paper for entry in entries if entry.paper)]
    items = [element("li", element("b", f"{paper.short}. "), _title(paper)) for paper in cited]
    return element("section", element("h2", "Papers"), element("ul", *items, class_="papers")) if items else None


def _title(paper: Paper) -> Html | str:
    return element("a", paper.title, href=paper.address) if paper.address else paper.title


def _row(series: Series, last: bool) -> Html:
    """Write its numbers, or its last one alone."""
    value, count = series.value[series.finite], len(series.value)
    shown = (value[0], value.min(), value.max(), series.value[-1]) if len(value) else (float("nan"),) * 4
    cells = [element("td", number(float(cell))) for cell in (shown[-1:] if last else shown)]
    readouts = f"{count:,}" if len(value) == count else f"{len(value):,} of {count:,}"
    cells += [] if last else [element("td", readouts)]
    return element("tr", element("th", series.name, scope="row"), *cells)


def _resumed(entry: Resumption) -> str:
    """Tell when, at which step and epoch, and from which folder."""
    place = {".": "in this folder", None: "from a run of unknown folder"}.get(entry.folder, f"from {entry.folder}")
    of_rest = "; what this epoch's training batches show is of those after this step" if entry.within_epoch else ""
    return f"at step {entry.step:,.0f}, epoch {entry.epoch:,.0f}, {place}, {moment(entry.time)}{of_rest}"


def _shown(key: str, value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown('', item)}" for name, item in value.items() if item is not None)
    if key in ("started", "ended"):
        return moment(value)
    if isinstance(value, int) and key in ("steps", "parameters", "samples"):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value)
