"""Names in messages: the known ones that a misspelt name may mean, and a few of many."""

__all__ = ["did_you_mean", "near", "one_of_these", "some"]

from collections.abc import Iterable, Sequence


def near(wrong: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return at most `most` names of `known` that are similar to `wrong`, the most similar first.

    If exactly one name begins with `wrong`, it comes before all others. Upper and lower case count as the same letter.

    >>> near("vicregmodule", ["SimCLRModule", "VICRegModule"], most=1)
    ['VICRegModule']
    >>> near("max_ep", ["max_steps", "max_epochs"], most=1)
    ['max_epochs']
    """
    from difflib import get_close_matches

    names = list(dict.fromkeys(known))
    lower = [name.lower() for name in names]
    longer = {name for name in lower if wrong and name.startswith(wrong.lower())}
    similar = get_close_matches(wrong.lower(), dict.fromkeys(lower), n=most)
    if len(longer) == 1:
        similar = [*longer, *(each for each in similar if each not in longer)]
    return [name for each in similar for name, low in zip(names, lower, strict=True) if low == each][:most]


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return the question " Did you mean `...`?" with the most similar name, or "" if no name is similar.

    >>> did_you_mean("repport", ["fit", "report"])
    ' Did you mean `report`?'
    """
    return one_of_these(near(wrong, known, most=1))


def one_of_these(names: Iterable[str]) -> str:
    """Return the question " Did you mean `...`?" with all of these names, or "" without names.

    >>> one_of_these(["fit", "test", "report"])
    ' Did you mean `fit`, `test` or `report`?'
    """
    *first, last = [f"`{each}`" for each in names] or [""]
    said = f"{', '.join(first)} or {last}" if first else last
    return f" Did you mean {said}?" if said else ""


def some(names: Sequence[str], between: str, most: int = 3) -> str:
    """Join names, of which those after the first `most` are counted. A single one is named.

    >>> some(["a", "b", "c", "d", "e"], " and ")
    'a and b and c and 2 more'
    >>> some(["a", "b"], " or ", most=1)
    'a or b'
    """
    kept = len(names) if len(names) == most + 1 else most
    return between.join([*names[:kept], *([f"{len(names) - kept} more"] if len(names) > kept else [])])
