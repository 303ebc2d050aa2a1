"""Pages on paper: what the style sheet says for print."""

import re
from pathlib import Path

import pytest

from lightning_ssl_geometry.report import page

CSS = (Path(page.__file__).parent / "page.css").read_text("utf-8")


def rules_of(media):
    """Selector -> declarations, of all blocks of a medium, in their order."""
    found = {}
    for start in re.finditer(rf"@media {media}[^{{]*{{\n", CSS):
        block = CSS[start.end() : CSS.index("\n}", start.end())]
        for selectors, said in re.findall(r"([^{}]+){([^{}]*)}", block):
            for selector in re.split(r",(?![^()]*\))", selectors):
                found.setdefault(" ".join(selector.split()), {}).update(
                    tuple(part.strip() for part in each.split(":", 1)) for each in said.split(";") if each.strip()
                )
    return found


PRINT = rules_of("print")


def test_paper_has_the_light_colors():
    assert PRINT[":root"] == {"color-scheme": "light"}
    dark = re.findall(r"@media ([^{]*prefers-color-scheme: dark[^{]*){", CSS)
    assert dark
    assert all(each.startswith("screen and ") for each in dark)
    for selector in (".notes", "pre", ".canvas", ".wide"):
        assert PRINT[selector]["background"] == "none"


@pytest.mark.parametrize("selector", [".panel", "figure", "tr", ".tile", ".notes", ".papers li"])
def test_no_figure_and_no_row_is_cut_by_the_end_of_a_page(selector):
    assert PRINT[selector]["break-inside"] == "avoid"


@pytest.mark.parametrize("selector", ["h1", "h2", "h3", ".head", ".key"])
def test_a_heading_stands_on_the_page_of_what_it_heads(selector):
    assert PRINT[selector]["break-after"] == "avoid"


@pytest.mark.parametrize(
    "selector", ["nav", ".tools", ".tips", ".save", "details:not([open])", "#numbers:has(> details:not([open]))"]
)
def test_what_is_clicked_is_not_printed(selector):
    assert PRINT[selector]["display"] == "none"


def test_an_enlarged_figure_has_the_width_of_the_paper_and_no_more():
    assert PRINT[".panel:has(.zoom:checked)"] == {"grid-column": "1 / -1"}
    wide = [selector for selector, said in rules_of("screen").items() if "width" in said and "zoom" in selector]
    assert not wide  # print has the general rules alone, and overrides those
    for selector in re.findall(r"^(\.panel:has[^{]* \.drawing) {[^}]*\bwidth", CSS, re.MULTILINE):
        assert PRINT[selector]["width"] == "100%"


def test_what_fills_the_rows_of_a_screen_does_not_reach_paper():
    screen = rules_of("screen and \\(min-width: 1124px\\)")
    assert screen["section.pairs > .panels"]["display"] == "grid"
    assert screen[".row.pairs:not(:has(.zoom:checked))"]["grid-template-columns"] == "repeat(2, minmax(0, 1fr))"
    assert "@media (min-width: 1124px) {\n" not in CSS
    assert PRINT[".panels"]["grid-template-columns"] == "repeat(2, minmax(0, 1fr))"
    assert PRINT[".row"] == {"display": "block"}
