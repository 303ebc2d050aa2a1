"""HTML that is safe by construction: text is escaped unless it was built here."""

__all__ = ["Html", "element", "fragment"]

from html import escape

_VOID = frozenset({"meta", "br", "hr", "input"})


class Html(str):
    """A piece of markup, as opposed to text that is still to be escaped."""

    __slots__ = ()


def element(tag: str, *children: str | None, **attributes: str | bool | None) -> Html:
    """Build an element: children that are plain strings are text and are escaped, None is left out.

    Args:
        tag: The element's name.
        children: Text or :class:`Html`.
        attributes: Underscores become hyphens and a trailing one is dropped (`class_`, `aria_label`); True stands
            alone; False, None and what is empty are left out.

    >>> element("p", "a < b, ", element("b", "c"), class_="note")
    '<p class="note">a &lt; b, <b>c</b></p>'
    """
    pairs = [(name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items()]
    opened = "".join(f" {name}" if value is True else f' {name}="{escape(value)}"' for name, value in pairs if value)
    if tag in _VOID:
        return Html(f"<{tag}{opened}>")
    return Html(f"<{tag}{opened}>{fragment(*children)}</{tag}>")


def fragment(*children: str | None) -> Html:
    """Join text, which is escaped, and :class:`Html`, which is kept.

    >>> fragment("<", Html("<br>"), None)
    '&lt;<br>'
    """
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children if child is not None))
