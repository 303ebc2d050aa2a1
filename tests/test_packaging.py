"""The metadata of the archives and the installation guide; `nox -s package` builds and installs the archives."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from installed_floors import floors, numbers

import lightning_ssl_geometry
from lightning_ssl_geometry.papers import CALDER_LEE, COSENTINO, CRL_TAC, KELLER, RUSAK

ROOT = Path(__file__).parents[1]
# What the package imports without requiring it, and who brings it.
BROUGHT = {"PIL": "torchvision", "huggingface_hub": "timm", "safetensors": "timm", "pandas": "the user of to_frame()"}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_what_the_sdist_lists_is_there():
    for path in PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]:
        assert (ROOT / path).exists(), path


def test_the_citation_is_of_this_version_and_of_the_papers():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == lightning_ssl_geometry.__version__
    assert cited["license"] == PYPROJECT["project"]["license"]
    known = {paper.arxiv: paper.title for paper in (COSENTINO, KELLER, CRL_TAC, CALDER_LEE)}
    for paper in cited["references"]:
        (number,) = [each["value"].removeprefix("arXiv:") for each in paper.get("identifiers", [])] or [""]
        assert (known.pop(number) if number else RUSAK.title.partition(" (")[0]) == paper["title"]
    assert not known


def test_the_way_around_fortran_names_the_extras_own_requirements():
    assert "docs/install.md" in (ROOT / "README.md").read_text()
    text = (ROOT / "docs" / "install.md").read_text()
    named = re.findall(r"^pip install --no-deps (.*)$", text, re.MULTILINE)[0].replace("'", "").split()
    named += re.findall(r"^pip install \. '([^']+)'$", text, re.MULTILINE)
    assert sorted(named) == sorted(PYPROJECT["project"]["optional-dependencies"]["escnn"])
    (override,) = PYPROJECT["tool"]["uv"]["override-dependencies"]
    assert override in text


def test_the_readme_names_the_python_that_is_required():
    required = PYPROJECT["project"]["requires-python"].removeprefix(">=")
    assert f"Python {required} (or newer)" in (ROOT / "README.md").read_text()


def test_the_docs_name_the_floors():
    text = " ".join((ROOT / "docs" / "install.md").read_text().split("## The oldest versions")[1].split())
    assert f"on Python 3.11: {', '.join(f'{name} {floor}' for name, floor in floors().items())} (" in text
    assert len(floors()) == len(PYPROJECT["project"]["dependencies"])


def test_the_docs_say_what_each_requirement_costs():
    table = (ROOT / "docs" / "install.md").read_text().split("## What each requirement costs")[1].split("## ")[0]
    named = {name.strip("` ") for row in re.findall(r"^\| ([^|]*) \| [\d,]+ \|", table, re.MULTILINE)
             for name in row.removeprefix("extra ").split(" and ")}  # fmt: skip
    assert named == {*floors(), *PYPROJECT["project"]["optional-dependencies"]} - {"escnn"}


def test_every_import_is_a_requirement_and_every_requirement_is_imported():
    sources = (path.read_text() for path in (ROOT / "lightning_ssl_geometry").rglob("*.py"))
    imports = [node for source in sources for node in ast.walk(ast.parse(source))]
    found = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module for node in imports if isinstance(node, ast.ImportFrom) and not node.level}
    named = {name.partition(".")[0] for name in found} - sys.stdlib_module_names - {"lightning_ssl_geometry"}
    known = {"scikit-learn": "sklearn", "pyyaml": "yaml", "umap-learn": "umap", "lie-learn": "lie_learn"}
    extras = [each for needed in PYPROJECT["project"]["optional-dependencies"].values() for each in needed]
    optional = {known.get(name, name) for name in (re.match(r"[\w-]+", each)[0] for each in extras)}
    required = {known.get(name, name) for name in floors()}
    assert named - BROUGHT.keys() - (optional - required) == required


def test_the_floor_of_lightning_is_past_its_advisories():
    assert tuple(int(number) for number in floors()["lightning"].split(".")) >= (2, 6, 6)


@pytest.mark.parametrize(
    ("version", "release"), [("2.6.0", "2.6"), ("2.6.0+cu126", "2.6"), ("6", "6"), ("1.0.12", "1.0.12")]
)
def test_a_release_without_zeros_at_its_end(version, release):
    assert numbers(version) == release
