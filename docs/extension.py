"""What this site adds to Sphinx: pages made of a room's public names, and formulas as MathML."""

__all__ = ["setup", "topics"]

import importlib
import inspect
from pathlib import Path
from typing import Any

from docstrings import as_rest, mathml
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def topics(room: str, hidden: str | None = None) -> dict[str, list[str]]:
    """Group a room's public names by the module that defines them, without those that the room `hidden` shows."""
    module = importlib.import_module(room)
    elsewhere = importlib.import_module(hidden).__all__ if hidden else []
    groups: dict[str, list[str]] = {}
    for name in module.__all__:
        home = getattr(getattr(module, name), "__module__", room)
        if name not in elsewhere:
            groups.setdefault(home if home.startswith(room) else room, []).append(name)
    return dict(sorted(groups.items()))


class Room(SphinxDirective):
    """`.. room:: package.room`: a section per topic, with its module's docstring and its public names."""

    required_arguments = 1
    option_spec = {"hidden": str}  # noqa: RUF012 (docutils declares it so)

    def run(self) -> list[nodes.Node]:
        room = self.arguments[0]
        text = [f".. currentmodule:: {room}", ""]
        for home, names in topics(room, self.options.get("hidden")).items():
            if home != room:
                title = home.removeprefix(room + ".")
                text += [title, "-" * len(title), "", f".. automodule:: {home}", "   :no-index:", ""]
                text += [f".. currentmodule:: {room}", ""]
            for name in names:
                text += _entry(room, name)
        return self.parse_text_to_nodes("\n".join(text), allow_section_headings=True)


def _entry(room: str, name: str) -> list[str]:
    value = getattr(importlib.import_module(room), name)
    if inspect.isclass(value):
        return [f".. autoclass:: {name}", "   :members:", "   :show-inheritance:", ""]
    return [f".. auto{'function' if inspect.isfunction(value) else 'data'}:: {name}", ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the above with Sphinx."""
    app.add_directive("room", Room)
    app.connect("autodoc-process-docstring", _process, priority=100)  # before napoleon, which writes markup
    app.connect("autodoc-skip-member", _skip)
    app.connect("doctree-read", _folders)
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _process(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    builtin = what == "data" and value.__doc__ == type(value).__doc__  # a constant: the docstring is its type's
    lines[:] = [] if builtin else as_rest(lines)


def _skip(app: Sphinx, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the fields of a named tuple: its docstring lists them."""
    return True if type(value).__name__ == "_tuplegetter" else None


def _folders(app: Sphinx, document: nodes.document) -> None:
    """Show links to folders of the repository, which a site cannot follow, as their text."""
    for link in list(document.findall(addnodes.pending_xref)):
        if link["reftype"] == "myst" and (Path(app.srcdir, app.env.docname).parent / link["reftarget"]).is_dir():
            link.replace_self(link.children)


def _visit_inline(self: Any, node: nodes.math) -> None:
    self.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def _visit_block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode
