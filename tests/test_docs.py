"""The documentation keeps its word: its Python runs, its commands and YAML parse, and its formulas are formulas."""

import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from clouds import cloud
from documents import blocks
from lightning import LightningDataModule
from torch import nn

from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.diagnostics.undefined import UndefinedWarning

ROOT = Path(__file__).parents[1]
PAGES = {path.stem: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
PYTHON = [name for name, text in PAGES.items() if blocks(text, "python")]


def commands(text):
    lines = "\n".join(blocks(text, "sh")).replace("\\\n", " ").splitlines()
    return [line[line.index("ssl-geometry ") :] for line in lines if "ssl-geometry " in line and line[0] != "#"]


COMMANDS = sorted(
    {command for text in (*PAGES.values(), (ROOT / "README.md").read_text()) for command in commands(text)}
)


@pytest.fixture
def your_package(monkeypatch):
    """The package that the pages call the reader's own."""
    package = ModuleType("your_package")
    networks = {name: type(name, (nn.Module,), {}) for name in ("YourModel", "SimCLR", "Backbone")}
    for name, each in {**networks, "YourDataModule": type("YourDataModule", (LightningDataModule,), {})}.items():
        each.__module__ = "your_package"
        setattr(package, name, each)
    monkeypatch.setitem(sys.modules, "your_package", package)
    return package


def shows_a_diagnostic_of_your_own(folder):
    """Title, sentences, axis, baseline and lines of the page's example, a class outside of this package."""
    page = (folder / "runs" / "view_variance" / "version_0" / "report.html").read_text()
    section = page[page.index('<section id="hypersphere"') :].partition("</section>")[0]
    figure = section[section.index("<h3>Spread between views</h3>") :].partition("</figure>")[0]
    drawn, said = figure.partition("<svg class=")[2].split("<figcaption>")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert "share of the variance" in texts
    assert {found[1] for text in texts if (found := re.fullmatch(r"(z|h|strangers).* 0\.\d+", text))} == {
        "z",
        "h",
        "strangers",
    }
    dotted = [path for path in re.findall(r"<path[^>]*>", drawn) if "stroke-dasharray: 1.8," in path]
    assert dotted
    assert all("stroke: var(--muted)" in path for path in dotted)
    for sentence in (
        "Share of the variance of the embeddings that lies between the views of one sample.",
        "Near 0: the views of a sample coincide.",
        "Near the value of strangers: the views of one sample are as far apart as different samples.",
        "What the share would be if the views of a sample had nothing in common.",
    ):
        assert sentence in said


@pytest.mark.parametrize("kind", ["zero", "constant", "one nan", "one inf"])
def test_the_diagnostic_of_the_page_is_nan_with_a_reason_where_it_means_nothing(kind):
    found: dict = {"__name__": "page"}
    for block in blocks(PAGES["add_diagnostic"], "python")[:2]:  # the function, and the Metric
        exec(block, found)
    metric = found["ViewVariance"]()
    metric.update(cloud(kind))
    with pytest.warns(UndefinedWarning, match="ViewVariance is NaN: all of `z` is one row"):
        computed = metric.compute()
    assert computed.keys() == metric.quantities.keys()
    assert all(value.isnan() for value in computed.values())


LOOKS = {"add_diagnostic": shows_a_diagnostic_of_your_own}  # page -> what its run is to leave


@pytest.mark.filterwarnings("ignore")  # Lightning's advice to users: loggers, workers, logging intervals
@pytest.mark.parametrize("page", PYTHON)
def test_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, your_package):
    """Run the Python blocks in order, then parse the YAML blocks with the classes of the Python blocks."""
    monkeypatch.chdir(tmp_path)
    for block in blocks(PAGES[page], "python"):
        exec(compile(block, f"{page}.md", "exec"), your_package.__dict__)
    LOOKS.get(page, lambda folder: None)(tmp_path)
    for block in blocks(PAGES[page], "yaml"):
        file = tmp_path / "config.yaml"
        file.write_text(block)
        subcommand = "fit" if "trainer" in yaml.safe_load(block) else "diagnose"
        ends(subcommand, "--config", str(file), "--print_config")


def ends(*arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code in (0, None)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_parses(command, monkeypatch, capsys, your_package):
    """All commands but `report` and `card` print their configuration; an unknown option is an error."""
    monkeypatch.chdir(ROOT)
    _, subcommand, *arguments = shlex.split(command)
    ends(subcommand, *(["--help"] if subcommand in ("report", "card") else [*arguments, "--print_config"]))
    if subcommand in ("report", "card"):
        known = capsys.readouterr().out
        assert all(option in known for option in re.findall(r"(?<= )--[\w.-]+", command))


def module(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def formulas():
    for path in (ROOT / "lightning_ssl_geometry").rglob("*.py"):
        text = path.read_text()
        yield from ((latex, False) for latex in re.findall(r":math:`([^`]*)`", text))
        displayed = re.compile(r"^( *)\.\. math::(.*\n(?:\1 +.*\n|\n(?=\1 +\S))*)", re.MULTILINE)
        yield from ((found[2].strip(), True) for found in displayed.finditer(text))


def test_norms_and_products_are_text_and_code_formulas_and_doctests_stay():
    given = [
        "|G| and size *n* of `a * b | c`, as :func:`info_nce` has it.",
        "",
        r".. math:: |x|",
        r"    * |y|",
        "",
        "Then |z|.",
        "",
        ">>> 2 * 3 | 4",
        "6",
        "",
        "*end",
    ]
    expected = [
        r"\|G\| and size \*n\* of `a * b | c`, as :func:`.info_nce` has it.",
        "",
        *given[2:5],
        r"Then \|z\|.",
        "",
        *given[7:10],
        r"\*end",
    ]
    assert module("docstrings").as_rest(given) == expected


def test_every_formula_of_the_package_becomes_mathml():
    mathml = module("docstrings").mathml
    found = list(formulas())
    assert len(found) > 150
    for latex, block in found:
        result = mathml(latex, block=block)
        assert result.startswith("<math"), latex
        assert not re.search(r">[^<]*\\[a-zA-Z]", result), latex  # a command that was not understood


def test_every_page_is_in_the_table_of_contents():
    pages = {str(path.relative_to(ROOT / "docs").with_suffix("")) for path in (ROOT / "docs").rglob("*.[mr][ds]*")}
    listed = re.findall(r"^[\w/]+$", "\n".join(re.findall(r"```{toctree}\n(.*?)```", PAGES["index"], re.DOTALL)), re.M)
    assert pages - {"index"} == set(listed)


def test_the_notebook_holds_no_outputs_and_its_cells_compile():
    """The session `docs` runs it."""
    cells = json.loads((ROOT / "examples" / "notebook.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 5
    for cell in code:
        compile("".join(cell["source"]), cell["id"], "exec")
        assert (cell["outputs"], cell["execution_count"]) == ([], None)


def test_every_recipe_has_its_page():
    recipes = {path.parent.name for path in (ROOT / "examples").glob("*/reproduce.py")} | {"simclr"}
    assert recipes == {path.stem for path in (ROOT / "docs" / "recipes").glob("*.md")}


def test_every_room_has_its_page():
    inits = (ROOT / "lightning_ssl_geometry").glob("*/__init__.py")
    rooms = {path.parent.name for path in inits if "__all__" in path.read_text()}  # the others have no public names
    assert rooms <= {path.stem for path in (ROOT / "docs" / "reference").glob("*.rst")}
