"""The table of `docs/functional.md`: every public name of `functional` with its equation, its shapes and its paper.

    python docs/equations.py            # is the table as it would be made?
    python docs/equations.py --write    # make it

All columns are read from the docstrings, so nothing is listed here.
"""

__all__ = ["row", "table", "with_table"]

import argparse
import inspect
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # what the repository declares, not what happens to be installed

from lightning_ssl_geometry import functional, papers  # noqa: E402
from lightning_ssl_geometry.quantity import Paper  # noqa: E402

PAGE = ROOT / "docs" / "functional.md"
_BEGIN, _END = "<!-- made by docs/equations.py -->", "<!-- end -->"
_SHAPE = r"\((?:[A-Z]|[a-z]\b|2|\.\.\.)[^()]*,[^()]*\)"

_NO_MAP = r"(?! (?:->|to) )"  # "g, (N, D) -> (N, P)" describes a network


def table() -> str:
    """Write a Markdown table with a row for each name of `functional.__all__`."""
    rows = [row(name, getattr(functional, name)) for name in functional.__all__]
    return "\n".join(["| name | what it is, equation | shapes | paper |", "| --- | --- | --- | --- |", *rows])


def row(name: str, thing: object) -> str:
    """Write the row of one name."""
    doc = (inspect.getdoc(thing) or "") if callable(thing) else ""
    title = f"{{obj}}`{name} <lightning_ssl_geometry.functional.{name}>`"
    said = _first_sentence(doc) if callable(thing) else f"A form of `info_nce`, of type `{type(thing).__name__}`."
    paper = (
        _paper(thing, doc) if callable(thing) else _linked(*(each for each in papers.__all__ if name.startswith(each)))
    )
    cells = (title, " ".join(filter(None, (said.replace("|", r"\|"), _equation(doc)))), _shapes(doc), paper)
    return f"| {' | '.join(cells)} |"


def with_table(page: str) -> str:
    """Replace the table in the text of the page."""
    before, rest = page.split(_BEGIN)
    return f"{before}{_BEGIN}\n{table()}\n{_END}{rest.split(_END)[1]}"


def _first_sentence(doc: str) -> str:
    paragraph = " ".join(doc.split("\n\n")[0].split())
    return _markdown(re.split(r"(?<!Eq\.)(?<!Prop\.)(?<!\bal\.)(?<=[.!?])\s", paragraph, maxsplit=1)[0].rstrip(":"))


def _markdown(text: str) -> str:
    text = re.sub(r":math:`([^`]*)`", lambda found: _math(found[1]), text)
    return re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)


def _equation(doc: str) -> str:
    found = re.search(r"^\.\. math::(.*(?:\n(?:[ \t]+.*)?)*)", doc, re.MULTILINE)
    return _math(" ".join(found[1].split("\n\n\n")[0].split())) if found else ""


def _math(tex: str) -> str:
    if "&" in tex or r"\\" in tex:
        tex = rf"\begin{{aligned}} {tex} \end{{aligned}}"
    return "{math}`" + re.sub(" +", " ", tex.replace(r"\|", r"\Vert ").replace("|", r"\vert ")) + "`"


def _shapes(doc: str) -> str:
    listed = re.split(r"Returns:|Raises:", doc.partition("Args:")[2])[0]
    arguments = re.findall(rf"^ +`?(\w+)`?: [^\n(.]{{0,24}}({_SHAPE}){_NO_MAP}", listed, re.MULTILINE)
    for names, shape in re.findall(rf"((?:`\w+`(?:, | and ))*`\w+`) (?:of shape )?({_SHAPE})", doc.split("Args:")[0]):
        arguments += [(name, shape) for name in re.findall(r"\w+", names.replace(" and ", ", "))]
    shapes = [f"`{name}` {shape}" for name, shape in dict(arguments).items()]
    if returned := re.search(rf"Returns:\s+(?:[^.]*?)({_SHAPE}|[Ss]calar)", doc):
        shapes.append(f"returns {'a scalar' if 'calar' in returned[1] else returned[1]}")
    return ", ".join(shapes).replace("|", r"\|")


def _paper(thing: object, doc: str) -> str:
    module = inspect.getdoc(inspect.getmodule(thing)) or ""
    for text in (doc, module):
        if found := [name for name in papers.__all__ if _names(text, getattr(papers, name))]:
            return _linked(*found)
    return ""


def _linked(*names: str) -> str:
    found = [getattr(papers, name) for name in names]
    return ", ".join(f"[{paper.short}]({paper.address})" if paper.address else paper.short for paper in found)


def _names(text: str, paper: Paper) -> bool:
    author, year = paper.short.split()[0], paper.short[-4:]
    return bool(re.search(rf"\b{author}\b", text)) and year in text


def main(arguments: list[str] | None = None) -> int:
    """Make the table, or compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table")
    write = parser.parse_args(arguments).write
    text = PAGE.read_text()
    if (made := with_table(text)) == text:
        return 0
    if write:
        PAGE.write_text(made)
    print(f"docs/functional.md: {'written' if write else 'not as the docstrings say'}")
    return int(not write)


if __name__ == "__main__":
    sys.exit(main())
