"""What a diagnostic's results mean: declared beside what computes them, written down by the run, shown by the page.

A Metric, a method, a probe or an evaluation has two class attributes:

    section: the part of the page that it belongs to, a key of SECTIONS or a heading of its own quantities: {key of a
    result: Quantity}; the key of a single result is ""

A quantity with `parts` is also that of each result whose key is its own, "_" and the name of a part, where that key is
not declared itself: `rank_layers_3` is a `rank`, of the part `layers_3`. Other results that are not declared are drawn
under their own names, without claims.
"""

__all__ = [
    "PROBES",
    "SECTIONS",
    "Chart",
    "Invariance",
    "Kind",
    "Knob",
    "Paper",
    "Picture",
    "Quantity",
    "Role",
    "cap_at",
    "declared",
]

import ast
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "line", "components", "spectrum", "profile", "histogram", "quantiles", "matrix", "points", "images", "path", "dots"
]
Role = Literal["", "x", "label", "overlay"]
Invariance = Literal["rotation", "scale", "translation", "permutation"]
Knob = Literal["width", "rows", "temperature", "batch size", "views", "method"]

_OF_LOGARITHMS = ("spectrum", "profile", "histogram", "quantiles")

SECTIONS = {  # the order of a page
    "learning": "Is it learning?",
    "probes": "Probes",
    "ranks": "Ranks and dimensions",
    "spectra": "Spectra",
    "layers": "Layer by layer",
    "models": "Between models",
    "augmentations": "Augmentations and the projector",
    "channel": "Augmentation channel",
    "neighbors": "Neighbours and classes",
    "equivariance": "Equivariance and invariance",
    "content_style": "Content and style",
    "hypersphere": "Alignment and uniformity",
    "dynamics": "What the network adds",
    "change": "Change of the representation",
    "other": "Other logs",
}


@dataclass(frozen=True)
class Paper:
    """A source: authors and year, title, and its number on arXiv where it has one."""

    short: str
    title: str
    arxiv: str = ""

    @property
    def address(self) -> str:
        """Where it can be read; empty if that is not known."""
        return f"https://arxiv.org/abs/{self.arxiv}" if self.arxiv else ""


@dataclass(frozen=True)
class Chart:
    """Axes that several quantities of a section share, of one class or of several.

    Attributes:
        name: Unlike that of other charts, and good for a file name.
        title: Above it.
        unit: At its axis; that of its first quantity if empty.
        remark: A sentence below it that is true of all runs.
    """

    name: str
    title: str
    unit: str = ""
    remark: str = ""


PROBES = Chart("probes", "Probes during training", "accuracy")  # of a model's own classifier and of those beside it


@dataclass(frozen=True)
class Picture:
    """How a result is drawn.

    Attributes:
        kind: "line": a scalar over training. "components": (K,) over training, a line for each of `names`. At the
            start, half and end of training: "spectrum", (K,) in order on a logarithmic axis, without rounding;
            "profile", (K,) over its index, or over the chart's result with the role "x"; "histogram", (K,) shares in
            equal bins over `bounds`; "quantiles", (K,) at equal shares from the least to the largest. At the end:
            "matrix" (A, B); "points" (N, P), coloured by the chart's result with the role "label"; "images" (N, H, W)
            below the chart's result with the role "overlay". "path": two scalars against each other, of which one has
            the role "x". "dots": a dot for each value.
        role: What the result is in its chart, where it is not drawn for itself.
        logarithm: The values are natural logarithms of what is drawn: of a spectrum, profile, histogram or quantiles.
        names: Of components, or of the rows and columns of a matrix.

    Raises:
        ValueError: If an attribute is not of its choices, or `logarithm` is set of another kind.
    """

    kind: Kind
    role: Role = ""
    logarithm: bool = False
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _one_of("kind", self.kind, get_args(Kind))
        _one_of("role", self.role, get_args(Role))
        if self.logarithm:
            _one_of("kind", self.kind, _OF_LOGARITHMS)


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """One result of a diagnostic: what it is called, what low and high mean, and how it is drawn.

    Attributes:
        title: Its name for people, without the space that it was computed in: the page adds that.
        text: What is measured, in a sentence, where the title does not say it.
        low: What a low value means, in a sentence for a person.
        high: What a high value means.
        short: Its name in narrow tables; the title if empty.
        paper: Where it comes from.
        where: The place in that paper, such as "Eq. 10, Fig. 7".
        unit: Of its axis, such as "directions".
        bounds: Least and largest possible value; None where there is none.
        cap: What rows and width allow at most, an expression of N samples, V views, D dimensions of the space that was
            observed and P dimensions of z, such as "min(V * N, D)".
        null: Key of the result that says what data without structure would give.
        invariances: What may be done to the observed rows without changing the value.
        comparable: What may differ between two models whose values are compared.
        better: Which end is better, where one is.
        percent: A share that people read in percent.
        chart: Axes that it shares with others; its own if None.
        label: What its line is called on a shared chart.
        baseline: It is what there would be without structure: drawn grey and dotted, and once where data agree.
        picture: How it is drawn; if None by the result's shape: "line", (K,) "profile", (A, B) "matrix".
        xlabel: Of the horizontal axis of a profile.
        remark: A sentence about this run, with the values of other results of the diagnostic in braces, such as "Fitted
            to eigenvalues {first:.0f} to {last:.0f}."; left out where one of them is missing.
        delayed: It compares with an earlier readout, so that its first value is NaN.
        headline: It is among the numbers at the top of a page.
        shown: It is drawn; what only says how to read another result is in the tables alone.
        parts: The diagnostic computes it for several parts, such as layers, under its key, "_" and the part's name.
        of_weights: It is of the model's weights, and so the same on all data: drawn once.
        section: The part of the page, where it is another one than that of the class.

    Raises:
        ValueError: If an attribute is not of its choices, or `title` is empty, or `low` or `high` is, where `baseline`
            is not set, it is drawn for itself and `text` does not say what it is.
    """

    title: str
    low: str = ""
    high: str = ""
    text: str = ""
    short: str = ""
    paper: Paper | None = None
    where: str = ""
    unit: str = ""
    bounds: tuple[float | None, float | None] = (None, None)
    cap: str = ""
    null: str = ""
    invariances: tuple[Invariance, ...] = ()
    comparable: tuple[Knob, ...] = ()
    better: Literal["low", "high"] | None = None
    percent: bool = False
    chart: Chart | None = None
    label: str = ""
    baseline: bool = False
    picture: Picture | None = None
    xlabel: str = "index"
    remark: str = ""
    delayed: bool = False
    headline: bool = False
    shown: bool = True
    parts: bool = False
    of_weights: bool = False
    section: str = ""

    def __post_init__(self) -> None:
        if not self.title:
            raise ValueError("Expected `title` with a name for people, but got none.")
        if not (self.low and self.high) and not (self.text or self.baseline or not self.shown or _role(self.picture)):
            raise ValueError(f"Expected `low` and `high` of {self.title!r} to say what they mean, but one is empty.")
        low, high = self.bounds
        if low is not None and high is not None and not low < high:
            raise ValueError(f"Expected `bounds` of {self.title!r} in order, but got {self.bounds}.")
        for name, chosen, choices in (
            ("invariances", self.invariances, get_args(Invariance)),
            ("comparable", self.comparable, get_args(Knob)),
        ):
            for each in chosen:
                _one_of(name, each, choices)
        _one_of("better", self.better, ("low", "high", None))
        if self.cap:
            cap_at(self.cap, N=2, V=2, D=2, P=2)


def declared(quantities: Mapping[str, Quantity], key: str) -> tuple[str, Quantity] | None:
    """Find what is declared of a result: under its own key, else under the longest with `parts` that it begins with.

    Args:
        quantities: Of a diagnostic.
        key: Of the result.

    Returns:
        The key under which it is declared, and the quantity; None if there is none.

    >>> quantities = {"rank": Quantity(title="Rank", low="Few.", high="Many.", parts=True)}
    >>> declared(quantities, "rank_layers_3")[0]
    'rank'
    """
    if key in quantities:
        return key, quantities[key]
    begun = (known for known, each in quantities.items() if known and each.parts and key.startswith(f"{known}_"))
    best = max(begun, key=len, default=None)
    return None if best is None else (best, quantities[best])


def cap_at(cap: str, **sizes: float) -> float:
    """Evaluate a cap, such as "min(V * N, D)".

    Args:
        cap: Numbers, names of sizes, +, -, *, min and max.
        sizes: N samples, V views, D and P dimensions; NaN where one is not known.

    Returns:
        The value; NaN where it hangs on what is not known.

    Raises:
        ValueError: If it is anything else.

    >>> cap_at("min(N - 1, D)", N=100, D=64)
    64.0
    """
    try:
        if len(cap) > _LONGEST_CAP:
            raise ValueError("it is too long")
        return float(_evaluated(ast.parse(cap, mode="eval").body, sizes))
    except (SyntaxError, ValueError, KeyError, RecursionError, OverflowError) as error:
        raise ValueError(f"Expected `cap` as in 'min(V * N, D)', but got {cap!r}: {error}.") from None


_LONGEST_CAP = 80
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_CHOICES = {"min": min, "max": max}


def _evaluated(node: ast.expr, sizes: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return float(sizes[name])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return float(_OPERATORS[type(op)](_evaluated(left, sizes), _evaluated(right, sizes)))
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as arguments, keywords=[]) if name in _CHOICES:
            values = [_evaluated(each, sizes) for each in arguments]
            return float("nan") if any(value != value for value in values) else _CHOICES[name](values)
    raise ValueError(f"{type(node).__name__} is not among them")


def _role(picture: Picture | None) -> str:
    return picture.role if picture else ""


def _one_of(name: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        raise ValueError(f"Expected `{name}` to be one of {choices}, but got {value!r}.")
