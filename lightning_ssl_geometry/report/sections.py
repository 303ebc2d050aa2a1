"""The parts of the page: what is said of a run, in which order."""

__all__ = ["article"]

import re
from collections.abc import Sequence

from lightning_ssl_geometry.report.about import all_numbers, how_it_was_made, papers
from lightning_ssl_geometry.report.array_panels import unknown_arrays
from lightning_ssl_geometry.report.evaluation import evaluation_groups, feature_name, shown_accuracy
from lightning_ssl_geometry.report.glossary import ENTRIES, PAPERS, Entry, lookup
from lightning_ssl_geometry.report.headline import headline
from lightning_ssl_geometry.report.html import Html, element
from lightning_ssl_geometry.report.numbers import duration, moment, number
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.panels import MOST_UNKNOWN, panels
from lightning_ssl_geometry.report.run import Run
from lightning_ssl_geometry.report.scalar_panels import matching, unknown_scalars
from lightning_ssl_geometry.report.svg import inline_svg

_SECTIONS = {
    "learning": ("Is it learning?", ("loss", "info_nce", "upper_bound", "invariance", "repulsion")),
    "probes": ("Probes", ("linear_probe", "knn_probe", "linear_evaluation")),
    "ranks": ("Ranks", ("effective_rank_h", "effective_rank_z", "projector_rank")),
    "spectra": ("Spectra", ("spectrum_h", "spectrum_z", "projector_spectrum")),
    "hypersphere": ("Alignment and uniformity", ("alignment", "uniformity", "gaussian_potential")),
    "other": ("Other diagnostics", ()),
}
_STATUSES = ("finished", "running", "interrupted", "failed")
_STROKES = {"val": "9 3.6", "probe": "9 3.6 1.8 3.6", "test": "1.8 3.2"}


def article(run: Run, key: str) -> Html:
    """Write all that the page says of one run.

    Args:
        run: As `read_run` returns it.
        key: Unlike that of any other run on the page; ids start with it.
    """
    drawn = panels(run)
    sections = [
        _section(run, title, keys, drawn[name], f"{key}-{name}")
        for name, (title, keys) in _SECTIONS.items()
        if name != "other" or drawn[name]
    ]
    entries = [entry for section in drawn.values() for panel in section for entry in panel.entries]
    foot = [all_numbers(run), how_it_was_made(run), papers(entries)]
    return element("article", _header(run), _tiles(run), _notes(run), *sections, *foot)


def _header(run: Run) -> Html:
    status = str(run.info.get("status") or "unknown")
    tone = status if status in _STATUSES else "unknown"
    shown = element("span", status if status != "unknown" else "status unknown", class_=f"status {tone}")
    facts = element("div", shown, *(element("span", fact) for fact in _facts(run)), class_="facts")
    return element("header", element("h1", run.name), facts)


def _facts(run: Run) -> list[str]:
    info = run.info
    facts = [" on ".join(str(info[key]) for key in ("model", "data") if info.get(key))]
    facts += [_amount(info[key], key) for key in ("epochs", "steps", "parameters") if info.get(key) is not None]
    facts += [f"seed {info['seed']}"] if info.get("seed") is not None else []
    facts += [f"started {moment(info['started'])}"] if info.get("started") else []
    took = duration(info.get("started"), info.get("ended"))
    return [fact for fact in (*facts, f"took {took}" if took else "") if fact]


def _amount(value: object, unit: str) -> str:
    text = number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    return f"{text} {unit.removesuffix('s') if value == 1 else unit}"


def _tiles(run: Run) -> Html | None:
    tiles = [
        element(
            "div",
            element("dt", tile.name),
            element("dd", tile.value, element("span", f" {tile.of}", class_="of") if tile.of else None, class_="value"),
            element("dd", tile.remark) if tile.remark else None,
            class_="tile",
        )
        for tile in headline(run)
    ]
    return element("dl", *tiles, class_="tiles") if tiles else None


def _notes(run: Run) -> Html | None:
    if not run.notes:
        return None
    items = [element("li", note, class_="grave" if "not a finite number" in note else None) for note in run.notes]
    return element("div", element("h3", "To know when reading this page"), element("ul", *items), class_="notes")


def _section(run: Run, title: str, keys: Sequence[str], drawn: Sequence[Panel], key: str) -> Html:
    said: set[str] = set()
    figures = []
    for place, panel in enumerate(drawn):
        figures.append(_panel(panel, f"{key}-{place}", [entry for entry in panel.entries if entry.text not in said]))
        said |= {entry.text for entry in panel.entries}
    if "linear_evaluation" in keys and run.evaluations:
        figures.append(_evaluation_table(run))
    absent = [ENTRIES[entry].title for entry in keys if not _recorded(run, entry)]
    remark = f"Not recorded in this run: {', '.join(absent)}." if absent else None
    if not keys and len(unknown_scalars(run)) + len(unknown_arrays(run)) > MOST_UNKNOWN:
        remark = f"The first {MOST_UNKNOWN}; scalars that are not drawn are among all numbers."
    return element(
        "section",
        element("h2", title),
        element("div", *figures, class_="panels") if figures else None,
        element("p", remark, class_="absent") if remark else None,
        id=key,
    )


def _recorded(run: Run, key: str) -> bool:
    if key == "linear_evaluation":
        return bool(run.evaluations)
    entry = ENTRIES[key]
    return bool(matching(run, entry)) or any(lookup(name) is entry for name in run.arrays)


def _panel(panel: Panel, key: str, entries: Sequence[Entry]) -> Html:
    sentences = [_sentence(entry, len(panel.entries) > 1 and entry.title != panel.title) for entry in entries]
    return element(
        "figure",
        element("h3", panel.title),
        _key(panel),
        inline_svg(panel.figure, key=key, label=panel.label),
        element("figcaption", *sentences, element("p", panel.remark) if panel.remark else None),
        class_="panel",
    )


def _key(panel: Panel) -> Html:
    """Tell which data a figure shows, and by which dashes; an empty one keeps neighbours aligned."""
    stages = [stage for stage in panel.stages if stage]
    pairs = [element("span", _swatch(stage) if panel.dashed else None, stage) for stage in stages]
    return element("div", *pairs, class_="key")


def _swatch(stage: str) -> Html:
    line = element("line", x1="0", x2="26", y1="4", y2="4", stroke_dasharray=_STROKES.get(stage))
    return element("svg", line, viewBox="0 0 26 8", aria_hidden="true")


def _sentence(entry: Entry, named: bool) -> Html:
    source = ", ".join(filter(None, [PAPERS[entry.paper].short, entry.place])) if entry.paper else ""
    source = re.sub(r"(Eq|Fig|Sec)\. ", "\\1.\N{NO-BREAK SPACE}", source)
    name = element("b", f"{entry.title}. ") if named else None
    return element("p", name, f"{entry.text} ", element("cite", f"({source})") if source else None)


def _evaluation_table(run: Run) -> Html:
    groups = evaluation_groups(run)
    head = element("tr", element("th", "features", scope="col"), *(element("th", name, scope="col") for name in groups))
    cells = {(row.features, name): shown_accuracy(row) for name, rows in groups.items() for row in rows}
    body = [
        element(
            "tr",
            element("th", feature_name(feature), scope="row"),
            *(element("td", cells.get((feature, name), "\N{EN DASH}")) for name in groups),
            class_="chosen" if feature == "trained" else None,
        )
        for feature in dict.fromkeys(feature for feature, _ in cells)
    ]
    table = element("table", element("thead", head), element("tbody", *body))
    title = element("h3", "Linear evaluation in numbers")
    return element("div", title, element("div", table, class_="wide"), element("p", _sizes(run)), class_="panel")


def _sizes(run: Run) -> str:
    """How much the accuracies rest on, where the file says so."""
    asked = {"train_size": "training samples", "test_size": "test samples", "repeats": "repeats"}
    found = {key: dict.fromkeys(row.details[key] for row in run.evaluations if key in row.details) for key in asked}
    said = [f"{' or '.join(values)} {asked[key]}" for key, values in found.items() if values]
    dims = dict.fromkeys(
        f"{feature_name(row.features)} {row.details['feature_dim']}"
        for row in run.evaluations
        if "feature_dim" in row.details
    )
    said += [f"dimensions: {', '.join(dims)}"] if dims else []
    splits = dict.fromkeys(row.details["split"] for row in run.evaluations if "split" in row.details)
    on = f"Accuracy on the split {' and '.join(splits)}" if splits else "Accuracy; the split was not recorded"
    return f"{'; '.join([on, *said])}."
