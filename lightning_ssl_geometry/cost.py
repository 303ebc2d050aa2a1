"""The cost of a diagnostic: declared in its class, measured by the contracts of `check_diagnostic`."""

__all__ = ["LETTERS", "Cost", "terms"]

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

LETTERS: Mapping[str, str] = MappingProxyType(
    {
        "n": "rows of one update: its samples, times their views",
        "N": "samples in the state: all since `reset`, or those that are kept",
        "C": "classes",
        "D": "width of the observed vectors, such as h and z",
        "K": "augmentations of a policy",
        "X": "values of one image",
        "F": "work of a forward pass of an observed network for one sample",
    }
)
"""The letters of a :class:`Cost`, in the order in which a product has them."""
_FACTOR = re.compile(r"([A-Za-z])(?:\^([23]))?")
_CHOICES = {"update": "nNCDKXF", "compute": "NCDKXF", "memory": "NCDKXF"}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """How the work and the memory of a diagnostic grow with the size of the data.

    Each is a sum of products of the letters in :data:`LETTERS`, such as "n D^2" or "N^2 D + N F", or "1" for what does
    not grow. Powers are 2 or 3. A term may be left out if others exceed it wherever there are more samples than
    dimensions: "N D^2" may stand for N D^2 + D^3. Settings of the diagnostic, the number of views and logarithms count
    as constants. A backward pass counts as a forward pass.

    Attributes:
        update: The work of one `update`.
        compute: The work of one `compute`, where "n" is not allowed.
        memory: The memory between `update` and `reset`, where "n" is not allowed.
        uncounted: What the contract `cost` cannot count, such as "k-means of scikit-learn". Then the declared work may
            grow faster than the counted work. Empty: all work is done by torch.

    Raises:
        ValueError: If one of them is no such sum.

    >>> Cost(update="n D^2", compute="D^3", memory="D^2").compute
    'D^3'
    """

    update: str
    compute: str
    memory: str
    uncounted: str = ""

    def __post_init__(self) -> None:
        for name, letters in _CHOICES.items():
            _checked(name, getattr(self, name), letters)
        if not isinstance(self.uncounted, str):
            raise ValueError(f"Expected `uncounted` to be a text, but got {self.uncounted!r}.")


def terms(said: str) -> list[dict[str, int]]:
    """Return the terms of a sum, each as {letter: power}. The sum is one that a :class:`Cost` has.

    >>> terms("n D^2 + N D")
    [{'n': 1, 'D': 2}, {'N': 1, 'D': 1}]
    >>> terms("1")
    [{}]
    """
    products = [] if said == "1" else said.split(" + ")
    return [{found[1]: int(found[2] or 1) for found in _FACTOR.finditer(product)} for product in products] or [{}]


def _checked(name: str, said: object, letters: str) -> None:
    if not isinstance(said, str) or _normal(said, letters) != said:
        raise ValueError(
            f"Expected `{name}` to be '1' or a sum of products of {', '.join(letters)} in this order, with powers 2 or "
            f"3, such as 'N D^2 + F', but got {said!r}."
        )


def _normal(said: str, letters: str) -> str:
    """Return a sum as it would be written if it had only `letters`, each once in a product, and each product once."""
    products = (" ".join(_power(each, powers[each]) for each in letters if each in powers) for powers in terms(said))
    return " + ".join(dict.fromkeys(products)) or "1"


def _power(letter: str, power: int) -> str:
    return letter if power == 1 else f"{letter}^{power}"
