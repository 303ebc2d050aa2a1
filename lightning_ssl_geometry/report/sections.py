"""The parts of the page: what is said of a run, in which order."""

__all__ = ["article"]

from collections.abc import Mapping, Sequence
from functools import partial

from lightning_ssl_geometry.report.about import all_numbers, how_it_was_made, papers
from lightning_ssl_geometry.report.array_panels import unknown_arrays
from lightning_ssl_geometry.report.drawn import Drawings
from lightning_ssl_geometry.report.evaluation import evaluation_groups, feature_name, is_chosen, shown_accuracy
from lightning_ssl_geometry.report.facts import facts
from lightning_ssl_geometry.report.glossary import ENTRIES, lookup
from lightning_ssl_geometry.report.headline import headline
from lightning_ssl_geometry.report.html import Html, element
from lightning_ssl_geometry.report.layer_panels import layer_table
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.panel_html import panel_html
from lightning_ssl_geometry.report.panels import MOST_UNKNOWN, panels
from lightning_ssl_geometry.report.readings import section_entries, section_readings
from lightning_ssl_geometry.report.run import Run
from lightning_ssl_geometry.report.scalar_panels import matching, own_losses, unknown_scalars
from lightning_ssl_geometry.report.sheets import SECTIONS

_EXPECTED = {  # what a section names where it is absent; a section that is not here is left out then
    "learning": ("loss", "info_nce", "upper_bound", "invariance", "repulsion"),
    "probes": ("linear_probe", "knn_probe", "linear_evaluation"),
    "ranks": ("effective_rank_h", "effective_rank_z", "projector_rank"),
    "spectra": ("spectrum_h", "spectrum_z", "projector_spectrum"),
    "hypersphere": ("alignment", "uniformity", "gaussian_potential"),
}
_LOGGED_BY = {
    "learning": "`self.log` of the loss, UpperBound",
    "probes": "LinearProbe, KNNProbe, LinearEvaluation",
    "ranks": "EffectiveRank, ProjectorRank",
    "spectra": "LogSpectrum, ProjectorRank",
    "augmentations": "AugmentationRank, NullSpaceFraction, UnexplainedVariance",
    "channel": "NonEmptyProbability, PolicyEntropy, PolicyMaps",
    "neighbors": "HardestNegativeDistance, LabelAgreement, NeuralCollapse",
    "equivariance": "EquivarianceError, InvarianceError",
    "content_style": "LatentR2, MeanCorrelation, GradientSpectrum",
    "hypersphere": "Alignment, Uniformity, GaussianPotential",
}
_UNNAMED = ("layers", "models", "dynamics", "change", "other")  # what is not missed where it is absent
_GRAVE = ("not a finite number", "This run failed", "Not drawn")
_STATUSES = ("finished", "running", "interrupted", "failed")


def article(run: Run, key: str, drawings: Drawings) -> Html:
    """Write all that the page says of one run.

    Args:
        run: As `read_run` returns it.
        key: Unlike that of any other run on the page; ids start with it.
        drawings: Keeps what could not be drawn, of which the page says so.
    """
    drawn = panels(run, drawings)
    tables = {name: section_readings(run, name) if run.is_diagnosis else None for name in SECTIONS}
    tables["layers"] = layer_table(run, run.name)
    sections = [
        _section(run, name, drawn[name], tables[name], f"{key}-{name}", drawings)
        for name in SECTIONS
        if drawn[name] or tables[name] or (name in _EXPECTED and not _is_empty(run, name))
    ]
    entries = [entry for name in SECTIONS for entry in section_entries(run, name)] if run.is_diagnosis else []
    entries += [entry for section in drawn.values() for panel in section for entry in panel.entries]
    foot = [all_numbers(run), how_it_was_made(run), papers(entries)]
    return element("article", _header(run), _tiles(run), _notes(run, drawings), *sections, _absent(run, drawn), *foot)


def _header(run: Run) -> Html:
    status = str(run.info.get("status") or "unknown")
    tone = status if status in _STATUSES else "unknown"
    shown = element("span", status if status != "unknown" else "status unknown", class_=f"status {tone}")
    line = element("div", shown, *(element("span", fact) for fact in facts(run)), class_="facts")
    title = f"Diagnosis of {run.info.get('model') or run.name}" if run.is_diagnosis else run.name
    return element("header", element("h1", title), line)


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


def _notes(run: Run, drawings: Drawings) -> Html | None:
    notes = [*run.notes, *drawings.lost]
    if not notes:
        return None
    items = [element("li", note, class_="grave" if any(each in note for each in _GRAVE) else None) for note in notes]
    return element("div", element("h3", "To know when reading this page"), element("ul", *items), class_="notes")


def _absent(run: Run, drawn: Mapping[str, Sequence[Panel]]) -> Html | None:
    """Name the sections that were left out, in one line; a diagnosis cannot have them all."""
    named = [] if run.is_diagnosis else [name for name in SECTIONS if name not in _UNNAMED]
    names = [f"{SECTIONS[name]} ({_LOGGED_BY[name]})" for name in named if not drawn[name] and _is_empty(run, name)]
    return element("p", f"Nothing recorded in this run for: {', '.join(names)}.", class_="absent") if names else None


def _is_empty(run: Run, name: str) -> bool:
    return not any(_recorded(run, key) for key in _EXPECTED.get(name, ()))


def _section(run: Run, name: str, drawn: Sequence[Panel], table: Html | None, key: str, drawings: Drawings) -> Html:
    keys = _EXPECTED.get(name, ())
    said: set[str] = set()
    figures = []
    for place, panel in enumerate(drawn):
        fresh = [entry for entry in panel.entries if entry.text not in said]
        figures += drawings.html(panel, partial(panel_html, panel, f"{key}-{place}", fresh, prefix=run.name))
        said |= {entry.text for entry in panel.entries}
    if "linear_evaluation" in keys and run.evaluations:
        figures.append(_evaluation_table(run))
    absent = [ENTRIES[entry].title for entry in keys if not _recorded(run, entry) and not run.is_diagnosis]
    remark = f"Not recorded in this run: {', '.join(absent)}." if absent else None
    if name == "other" and len(unknown_scalars(run)) + len(unknown_arrays(run)) > MOST_UNKNOWN:
        remark = f"The first {MOST_UNKNOWN}; scalars that are not drawn are among all numbers."
    return element(
        "section",
        element("h2", "Loss" if name == "learning" and run.is_diagnosis else SECTIONS[name]),
        None if name == "layers" else table,
        element("div", *figures, class_="panels") if figures else None,
        table if name == "layers" else None,
        element("p", remark, class_="absent") if remark else None,
        id=key,
    )


def _recorded(run: Run, key: str) -> bool:
    if key == "linear_evaluation":
        return bool(run.evaluations)
    if key == "loss" and own_losses(run):
        return True
    entry = ENTRIES[key]
    return bool(matching(run, entry)) or any(lookup(name) is entry for name in (*run.arrays, *run.snapshots))


def _evaluation_table(run: Run) -> Html:
    groups = evaluation_groups(run)
    head = element("tr", element("th", "features", scope="col"), *(element("th", name, scope="col") for name in groups))
    cells = {(row.features, name): shown_accuracy(row) for name, rows in groups.items() for row in rows}
    body = [
        element(
            "tr",
            element("th", feature_name(feature), scope="row"),
            *(element("td", cells.get((feature, name), "\N{EN DASH}")) for name in groups),
            class_="chosen" if is_chosen(feature) else None,
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
