"""What a result means: declared in the class that computes it, stored in the run's folder, and shown in the report.

A Metric, a method, a probe or an evaluation declares two class attributes. `section` is the part of the report that
shows its results, a key of SECTIONS or a heading of its own. `quantities` maps the key of each result to its Quantity;
the key of a single result is "". A result without a declaration is drawn under its own name.
"""

__all__ = [
    "CLASSIFIER_ACCURACY",
    "CLASSIFIER_LOSS",
    "POLICY_ENTROPY",
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
    """A paper: authors and year (`short`), title, and its number on arXiv, which is empty if it is not there."""

    short: str
    title: str
    arxiv: str = ""

    @property
    def address(self) -> str:
        """URL of the paper on arXiv; empty if the paper is not there."""
        return f"https://arxiv.org/abs/{self.arxiv}" if self.arxiv else ""


@dataclass(frozen=True)
class Chart:
    """Axes that several results of one section share; the results may come from several classes.

    `name` differs from the names of other charts and is part of a file name. `title` stands above the axes. `unit`
    labels the value axis; if it is empty, the unit of the first result does. `remark` is a sentence below the chart,
    true of all runs.
    """

    name: str
    title: str
    unit: str = ""
    remark: str = ""


PROBES = Chart("probes", "Probes during training", "accuracy")  # also of a model's own classifier


@dataclass(frozen=True)
class Picture:
    """How a result is drawn.

    Attributes:
        kind: Over all of training: "line", a scalar; "components", (K,), one line for each of `names`. At the start,
            half and end of training: "spectrum", (K,) in order on a logarithmic axis, without values that are only
            rounding errors; "profile", (K,) over its index, or over the result of the same chart with the role "x";
            "histogram", (K,) shares in equal bins over `bounds`; "quantiles", (K,) at equal shares from the least value
            to the largest. At the end of training: "matrix" (A, B); "points" (N, P), coloured by the result of the same
            chart with the role "label"; "images" (N, H, W), above the result of the same chart with the role "overlay".
            Besides: "path", two scalars against each other, one of which has the role "x"; "dots", a dot for each
            value.
        role: What the result adds to another result's picture, if it has no drawing of its own.
        logarithm: The values are natural logarithms of what is drawn. Only for a spectrum, profile, histogram or
            quantiles.
        names: Names of the components, or of the rows and columns of a matrix.
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
    """One result of a diagnostic: its name, the meaning of low and high values, and how it is drawn.

    Attributes:
        title: Name of the result for readers, required. The report adds the observed space, such as "h".
        low: What a low value means, in a sentence for a reader. `low` and `high` are required if the result is drawn,
            unless it is a baseline or has a `text`.
        high: What a high value means.
        text: What is measured, in a sentence, if the title does not say it.
        short: Name of the result in narrow tables; if empty, the title.
        paper: The paper that defines the result.
        where: The place in that paper, such as "Eq. 10, Fig. 7".
        unit: Unit of the value axis, such as "directions".
        bounds: Least and largest possible value; None for an end without a limit.
        cap: The largest value that the data's size allows: an expression of N samples, V views, D dimensions of the
            observed space and P dimensions of z, such as "min(V * N, D)".
        null: Key of the result that says what data without structure would give.
        invariances: Changes of the observed rows that leave the value unchanged.
        comparable: Properties in which two models may differ and still have comparable values.
        better: Which values are better, "low" or "high"; None if neither.
        percent: The value is a share that people read in percent.
        chart: Axes that the result shares with other results; None: it has its own axes.
        label: Name of the result's line on a shared chart.
        baseline: The result is the value for data without structure. Its line is grey and dotted, and is drawn once if
            data sets agree.
        picture: How the result is drawn. None: by its shape, a scalar as "line", (K,) as "profile", (A, B) as "matrix".
        xlabel: Label of the horizontal axis of a profile.
        remark: A sentence about this run, with the values of other results of the diagnostic in braces, such as "Fitted
            to eigenvalues {first:.0f} to {last:.0f}."; left out if one of them is missing.
        delayed: The result compares with an earlier `compute`, so that its first value is NaN.
        headline: The result is among the numbers at the top of a page.
        shown: The result is drawn. If not, it only explains another result, and stands in tables alone.
        parts: The diagnostic computes the result for several parts, such as layers. Their keys end with "_" and the
            part's name: `rank_layers_3` is the `rank` of the part `layers_3`, unless it is declared itself.
        of_weights: The result depends only on the model's weights, so that it is the same for all data and drawn once.
        section: Part of the report that shows the result, if it is not that of the class.
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
    """Return the declared key of a result and its Quantity, or None if the result is not declared.

    The declared key is the result's own, or else the longest one with `parts` that, with "_" added, begins `key`.
    """
    if key in quantities:
        return key, quantities[key]
    begun = (known for known, each in quantities.items() if known and each.parts and key.startswith(f"{known}_"))
    best = max(begun, key=len, default=None)
    return None if best is None else (best, quantities[best])


def cap_at(cap: str, **sizes: float) -> float:
    """Evaluate a cap such as "min(V * N, D)", an expression of numbers, names of sizes, +, -, *, min and max.

    `sizes` are the numbers of samples N, views V and dimensions D and P. A size that is not known is given as NaN,
    which can make the value NaN. Any other expression is a ValueError.

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


# Quantities that several classes declare; each class replaces the fields that differ.
CLASSIFIER_ACCURACY = Quantity(
    title="Probe",
    text="Accuracy of a classifier beside the model, on the validation set.",
    low="Near chance: the representation does not tell the classes apart in this way (yet).",
    high="The representation tells the classes apart.",
    unit="accuracy",
    bounds=(0.0, 1.0),
    comparable=("width", "temperature", "batch size", "method"),
    better="high",
    percent=True,
    chart=PROBES,
    headline=True,
)
CLASSIFIER_LOSS = Quantity(
    title="Loss",
    text="The cross entropy of the classifier, which training lowers.",
    low="Near 0: the classifier is sure of the right classes.",
    high="Near the logarithm of the number of classes and above: the classifier does not know the classes.",
    unit="nats",
    bounds=(0.0, None),
    better="low",
)
POLICY_ENTROPY = Quantity(
    title="Entropy of the policy",
    text="Entropy of P(T | X), which says how likely each augmentation is for an image; the mean over images.",
    low="Near 0: each image has a single augmentation left, from which h generalises badly.",
    high="Up to log K for K augmentations: the policy prefers none.",
    where="Sec. 5.3",
    bounds=(0.0, None),
    chart=Chart("policy_entropy", "Entropy of the policy", "nats"),
)
