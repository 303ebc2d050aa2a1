"""The model card of a run: Markdown with the front matter of the Hugging Face Hub."""

__all__ = ["write_card"]

import html
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from lightning_ssl_geometry.files import replacing
from lightning_ssl_geometry.quantity import SECTIONS, Paper, Quantity
from lightning_ssl_geometry.report.contents import Reading, evaluation_table, layer_table, readings_of
from lightning_ssl_geometry.report.facts import weights
from lightning_ssl_geometry.report.figures import View, in_order
from lightning_ssl_geometry.report.numbers import moment
from lightning_ssl_geometry.report.run import Run, read_run
from lightning_ssl_geometry.report.verdicts import findings

if TYPE_CHECKING:
    from jinja2 import Template

_FRONT = {"library_name": "lightning-ssl-geometry"}
_TAGS = ("lightning-ssl-geometry", "pytorch-lightning", "representation-geometry")
_SPECIAL = re.compile(r"([\\`*_\[\]|~$])")
_ADDRESS = re.compile(r"(?<=[a-zA-Z])(:)(?=//)|(?<=[wW]{3})(\.)|(@)")  # of links that Markdown makes by itself
_ARXIV = re.compile(r"[a-z-]*/?[0-9.]+")
_INFO = {  # keys of run.json; paths are left out, as cards are published
    "model": "model",
    "data": "data",
    "samples": "samples",
    "image_shape": "image shape",
    "normalization": "normalization",
    "representation": "representation",
    "token": "token",
    "layers": "layers",
    "seed": "seed",
    "epochs": "epochs",
    "steps": "steps",
    "parameters": "parameters",
    "precision": "precision",
    "status": "status",
}
_VERSIONS = ("lightning-ssl-geometry", "torch", "lightning", "timm")


def write_card(run: Run | str | Path, output: str | Path | None = None, *, overwrite: bool = False) -> Path:
    """Write the model card of a run or of a diagnosis as Markdown, and return its path.

    The card begins with the front matter of the Hugging Face Hub: library and tags. It has no license, because the run
    does not know it. Then it says what ran, and lists the last value of each scalar with a description, with the
    meaning of low and high values and the paper. Texts of the run are escaped, so that they are neither Markdown nor
    HTML.

    Args:
        run: A run from :func:`read_run`, or the folder of a run.
        output: Path of the card. None: `README.md` in the run's folder. Missing folders are created.
        overwrite: Whether to replace a file that is there.

    Raises:
        FileExistsError: If the file is there and `overwrite` is false.
        FileNotFoundError: If `run` does not exist.
        ValueError: If `run` is not the folder of a run, or `output` is a folder.
    """
    read = run if isinstance(run, Run) else read_run(run)
    path = read.folder / "README.md" if output is None else Path(output)
    if path.is_dir():
        raise ValueError(f"Expected `output` to be a file, but {path} is a folder.")
    if path.exists() and not overwrite:
        raise FileExistsError(f"Expected no file at {path}, but there is one. `overwrite=True` replaces it.")
    text = _template().render(**_contents(read))
    with replacing(path) as file:
        file.write(text.encode("utf-8", errors="replace"))
    return path


def _contents(run: Run) -> dict[str, Any]:
    readings_by_section, found = readings_of(View.of(run)), findings(run)
    described = {name: [each for each in held if each.quantity] for name, held in readings_by_section.items()}
    sections = {name: described[name] for name in in_order(described) if described[name]}
    tables = {"Layer by layer": layer_table(run), "Linear evaluation": evaluation_table(run)}
    command = run.info.get("command")
    return {
        "front": _front(run),
        "title": str(run.info.get("model") or run.name) if run.is_diagnosis else run.name,
        "made": _made(run),
        "command": _fenced(str(command)) if command else None,
        "notes": [*run.notes, *found.caveats],
        "findings": found.shown,
        "sections": {SECTIONS.get(name, name): readings for name, readings in sections.items()},
        "tables": {heading: table for heading, table in tables.items() if table},
        "papers": _papers(sections),
    }


def _front(run: Run) -> Markup:
    import yaml

    tags = [*_TAGS, *([] if run.is_diagnosis else ["self-supervised-learning"])]
    return Markup(yaml.safe_dump(_FRONT | {"tags": tags}, sort_keys=False))


def _made(run: Run) -> dict[str, str]:
    said = {title: _shown(run.info[key]) for key, title in _INFO.items() if run.info.get(key) is not None}
    if run.is_diagnosis:
        said |= {"weights": weights(run, short=True)} if weights(run, short=True) else {}
    versions = run.info.get("versions")
    if isinstance(versions, Mapping):
        said["versions"] = ", ".join(f"{name} {versions[name]}" for name in _VERSIONS if versions.get(name))
    return said | ({"started": moment(run.info["started"])} if run.info.get("started") else {})


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _papers(sections: Mapping[str, list[Reading]]) -> list[Paper]:
    quantities = [each.quantity for readings in sections.values() for each in readings]
    return list(dict.fromkeys(each.paper for each in quantities if each and each.paper))


def _escaped(value: object) -> str:
    """Return a text on one line in which nothing is Markdown or HTML, or Markup as it is."""
    if isinstance(value, Markup):
        return value
    text = "".join(letter if letter.isprintable() else " " for letter in " ".join(str(value).split()))
    text = _SPECIAL.sub(r"\\\1", html.escape(text, quote=False))
    return _ADDRESS.sub(lambda found: f"&#{ord(found[0])};", text)


def _fenced(text: str) -> Markup:
    line = "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", line)), default=0))
    return Markup(f"{fence}sh\n{line}\n{fence}")


def _cited(quantity: Quantity) -> str:
    return ", ".join(filter(None, [quantity.paper.short, quantity.where])) if quantity.paper else ""


def _linked(paper: Paper) -> Markup:
    if not _ARXIV.fullmatch(paper.arxiv):
        return Markup("")
    return Markup(f" ([arXiv:{paper.arxiv}]({paper.address}))")


@lru_cache
def _template() -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("lightning_ssl_geometry.report", ""), finalize=_escaped, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {"cited": _cited, "linked": _linked}
    return environment.get_template("model_card.md.j2")
