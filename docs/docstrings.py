"""Docstrings as this package writes them, for Sphinx: Google sections, reST roles and maths, and plain text between.

Formulas become MathML while the site is built, so that a reader needs no network and no script.
"""

__all__ = ["as_rest", "escaped", "mathml"]

import re

from latex2mathml.converter import convert

_CODE = re.compile(r"(`[^`]*`)")
_ROLE = re.compile(r":(class|func|meth|mod):`([A-Za-z_][\w.]*)`")


def as_rest(lines: list[str]) -> list[str]:
    """Escape what is text here and markup in reST, and let roles find a name in whichever module has it.

    Bars and asterisks are norms and products, but in code, doctests and displayed formulas they are left as they are.
    """
    result, verbatim = [], None  # the indentation of the formula or doctest that goes on
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if verbatim is not None and line.strip() and indent <= verbatim[0] and not verbatim[1]:
            verbatim = None
        if verbatim is not None and verbatim[1] and not line.strip():
            verbatim = None
        if line.lstrip().startswith((".. math::", ">>>")):
            verbatim = (indent, line.lstrip().startswith(">>>"))
        result.append(line if verbatim is not None else escaped(line))
    return result


def escaped(line: str) -> str:
    """Escape a line of text, but not what is code in it."""
    parts = _CODE.split(_ROLE.sub(r":\1:`.\2`", line))
    return "".join(part if part.startswith("`") else re.sub(r"([|*])", r"\\\1", part) for part in parts)


def mathml(latex: str, *, block: bool) -> str:
    r"""Convert LaTeX to MathML, which browsers show by themselves.

    Args:
        latex: A formula; lines that end in two backslashes are aligned at their `&`.
        block: Displayed on lines of its own, not within a line of text.
    """
    latex = latex.replace(r"\arg", r"\operatorname{arg}")
    if r"\\" in latex:
        latex = rf"\begin{{aligned}}{latex}\end{{aligned}}"
    return convert(latex, display="block" if block else "inline")
