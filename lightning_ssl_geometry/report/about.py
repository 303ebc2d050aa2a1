"""The foot of the page: every number, how the run was made, and the papers."""

__all__ = ["all_numbers", "how_it_was_made", "papers"]

import json
from collections.abc import Iterable, Mapping

from lightning_ssl_geometry.report.glossary import PAPERS, Entry, Paper
from lightning_ssl_geometry.report.html import Html, element
from lightning_ssl_geometry.report.logs import Series
from lightning_ssl_geometry.report.numbers import moment, number
from lightning_ssl_geometry.report.run import Run


def all_numbers(run: Run) -> Html | None:
    """List each scalar's first, lowest, highest and last value, folded."""
    if not run.scalars:
        return None
    columns = ("scalar", "first", "lowest", "highest", "last", "readouts")
    head = element("tr", *(element("th", column, scope="col") for column in columns))
    body = element("tbody", *(_row(series) for series in run.scalars.values()))
    summary = element("summary", f"First, lowest, highest and last value of {len(run.scalars)} scalars")
    table = element("table", element("thead", head), body, class_="numbers")
    return element("section", element("h2", "All numbers"), element("details", summary, table))


def how_it_was_made(run: Run) -> Html:
    """Tell command, seed, versions, machine, and the config, folded."""
    rows = {"folder": str(run.folder.resolve())}
    rows |= {key.replace("_", " "): _shown(key, value) for key, value in run.info.items() if value is not None}
    pairs = [
        item
        for key, value in rows.items()
        for item in (element("dt", key), element("dd", element("code", value) if key == "command" else value))
    ]
    config = None
    if run.config is not None:
        config = element("details", element("summary", "config.yaml"), element("pre", run.config))
    return element("section", element("h2", "Run"), element("dl", *pairs, class_="run"), config)


def papers(entries: Iterable[Entry]) -> Html | None:
    """List the papers that entries are from, each once."""
    cited = [PAPERS[key] for key in dict.fromkeys(entry.paper for entry in entries if entry.paper)]
    items = [element("li", element("b", f"{paper.short}. "), _title(paper)) for paper in cited]
    return element("section", element("h2", "Papers"), element("ul", *items, class_="papers")) if items else None


def _title(paper: Paper) -> Html | str:
    return element("a", paper.title, href=paper.address) if paper.address else paper.title


def _row(series: Series) -> Html:
    value = series.value[series.finite]
    shown = (value[0], value.min(), value.max(), value[-1]) if len(value) else (float("nan"),) * 4
    cells = [element("td", number(float(cell))) for cell in (*shown, len(series.value))]
    return element("tr", element("th", series.name, scope="row"), *cells)


def _shown(key: str, value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown('', item)}" for name, item in value.items() if item is not None)
    if key in ("started", "ended"):
        return moment(value)
    if isinstance(value, int) and key in ("steps", "parameters"):
        return number(value)
    return value if isinstance(value, str) else json.dumps(value)
