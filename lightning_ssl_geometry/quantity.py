"""The meaning of a result: declared in the class that computes it, saved with the run, shown in the report.

A metric, method, probe or evaluation may have two class attributes. `section` is the part of the report for its
results, a key of SECTIONS or a new heading. `quantities` maps the key of each result to its Quantity. The key of a
single result is "".
"""

__all__ = [
    "CHANCE",
    "CLASSIFIER_ACCURACY",
    "CLASSIFIER_LOSS",
    "POLICY_ENTROPY",
    "PROBES",
    "SECTIONS",
    "TREND_OF_LOSS",
    "VECTORS",
    "Chart",
    "Invariance",
    "Kind",
    "Knob",
    "Paper",
    "Picture",
    "Quantity",
    "Role",
    "Verdict",
    "cap_at",
    "declared",
]

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from lightning_ssl_geometry.expressions import holds, names_in, value_of

Kind = Literal[
    "line",
    "components",
    "spectrum",
    "spectra",
    "profile",
    "histogram",
    "quantiles",
    "matrix",
    "points",
    "images",
    "gallery",
    "classes",
    "path",
    "dots",
]
Role = Literal["", "x", "label", "overlay"]
Invariance = Literal["rotation", "scale", "translation", "permutation"]
Knob = Literal["width", "rows", "temperature", "batch size", "views", "method"]

_TEXTS = ("space", "title")
_BRACES = re.compile(r"\{([^{}]+)\}")
VECTORS = ("components", "spectrum", "profile", "histogram", "quantiles")
"""The kinds of pictures of values (K,)."""
_OF_LOGARITHMS = ("spectrum", "spectra", "profile", "histogram", "quantiles")

SECTIONS = {  # the order of a page
    "choosing": "Which one to choose",
    "learning": "Is it learning?",
    "probes": "Probes",
    "data": "The data",
    "bound": "InfoNCE and its bound",
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
    """A paper: authors and year (`short`), `title`, and its number on arXiv (`arxiv`), which is "" if there is none."""

    short: str
    title: str
    arxiv: str = ""

    @property
    def address(self) -> str:
        """URL of the paper on arXiv, or ""."""
        return f"https://arxiv.org/abs/{self.arxiv}" if self.arxiv else ""


@dataclass(frozen=True)
class Chart:
    """Axes shared by several results of one section, which may come from several classes.

    `name` is unique and used in file names. `title` stands above the axes. `unit` labels the value axis. If `unit` is
    empty, the unit of the first result is used. `remark` is a sentence below the chart that holds for every run.
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
        kind: "line": a scalar over training. "components": an array (K,) over training, one line for each of `names`.
            "spectrum": ordered values (K,) on a logarithmic axis. "spectra": the spectra (L, K) of L layers, where
            shorter ones end with NaN. "profile": values (K,) over their index, or over the
            result with the role "x". "histogram": shares (K,) of equal bins over `bounds`. "quantiles": values (K,)
            from the minimum to the maximum. "matrix": (A, B). "points": (N, P), coloured by the result with the role
            "label". The result with the role "x" (1, 2) has the share of the variance of each axis. "images":
            (N, H, W), above the result with the role "overlay". "gallery": (A, B, C, H, W), a table of A x B pictures
            with C = 1 or 3 channels. The results with the roles "label" and "overlay" (A, B) hold their classes and a
            value. "classes": (C, 3), with the number, the value and the baseline of each class. "path": a scalar over
            the scalar with the role "x". "dots": one dot for each value. Spectra, profiles, histograms and quantiles
            are drawn at the start, middle and end of training. The others without a time axis are drawn at the end.
        role: Role of the result in the picture of another result on the same chart. Empty: the result has its own
            picture.
        logarithm: Whether the values are natural logarithms. Only for spectrum, spectra, profile, histogram and
            quantiles.
        names: Names of the components, of the rows and columns of a matrix, of the rows of a gallery, or of the axes of
            points.
        first: Whether the first value of a run is kept beside the latest. Only for a gallery and for
            classes.
    """

    kind: Kind
    role: Role = ""
    logarithm: bool = False
    names: tuple[str, ...] = ()
    first: bool = False

    def __post_init__(self) -> None:
        _one_of("kind", self.kind, get_args(Kind))
        _one_of("role", self.role, get_args(Role))
        if self.logarithm:
            _one_of("kind", self.kind, _OF_LOGARITHMS)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A sentence about a run that is true where a number passes a threshold. The threshold has a source.

    The report evaluates `given` and `when` with the last values of a run, and shows `says` at its top if both hold. If
    the run lacks a number, or `given` does not hold, the report is silent. Expressions are those of
    :mod:`lightning_ssl_geometry.expressions`. Their names:

    - `value`, the result itself, and the keys of other results of the diagnostic. Of a vector, `entries` is the number
      of values and `zeros` the number of those that are 0.
    - N samples, V views, D dimensions of the observed tensor, P of z.
    - `trend`: Mann's and Kendall's statistic z of the last third of the values, and `change`, Sen's slope times the
      length of that third. A run with fewer than 18 values has neither.
    - `loss_temperature`: the temperature of the model's own loss, if the run recorded one.

    Attributes:
        says: The sentence. Expressions in braces are replaced by their values, {space} by the name of the tensor, and
            {title} by that of the result.
        when: The condition, such as "value < 1.5".
        given: What must hold for the condition to mean something, such as "N > D". Empty: nothing.
        source: The place in the paper, or the fact or the test from which the threshold follows.
        paper: The paper of the threshold.
        topic: What the report lists as looked for and not found if the condition does not hold, such as "collapse in
            whole". Empty: nothing.
        caveat: Whether the sentence is one of those to know before the figures are read.
    """

    says: str
    when: str
    source: str
    given: str = ""
    paper: Paper | None = None
    topic: str = ""
    caveat: bool = False

    def __post_init__(self) -> None:
        if not (self.says and self.source):
            raise ValueError(f"Expected `says` and `source` of a Verdict, but got {self.says!r} and {self.source!r}.")
        try:
            unknown = dict.fromkeys(self.names, float("nan"))
            for condition in filter(None, (self.given, self.when)):
                holds(condition, unknown)
            self.filled(lambda text: "" if text in _TEXTS else f"{value_of(text, unknown)}")
        except ValueError as error:
            raise ValueError(f"Expected a Verdict with a condition such as 'value < D', but got {error}.") from None

    @property
    def names(self) -> set[str]:
        """The names of numbers that the conditions and the sentence need."""
        inner = [text for text in _BRACES.findall(self.says) if text not in _TEXTS]
        return set().union(*map(names_in, [*filter(None, (self.given, self.when)), *inner]))

    def filled(self, of: Callable[[str], str]) -> str:
        """Return the sentence, with each text in braces replaced by what `of` returns for it."""
        return _BRACES.sub(lambda found: of(found[1]), self.says)


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """One result of a diagnostic: its name, the meaning of its values, and its picture.

    Attributes:
        title: Name of the result, required. The report adds the tensor that was observed, such as "h".
        low: A sentence on the meaning of low values. `low` and `high` are required if the result is drawn, except for a
            baseline or a result with a `text`.
        high: A sentence on the meaning of high values.
        text: A sentence on what is measured, if the title does not say it.
        short: Name of the result in narrow tables. Empty: the title.
        paper: The paper that defines the result.
        where: The place in the paper, such as "Eq. 10, Fig. 7".
        unit: Unit of the value axis, such as "directions".
        bounds: Least and largest possible value. None: no bound.
        cap: The largest possible value, computed from the data's size, such as "min(V * N, D)" for N samples, V views
            and D dimensions of the observed tensor. P is the number of dimensions of z.
        null: Key of another result: the value that this result has for data without structure.
        invariances: Transformations of the observed vectors that do not change the value.
        comparable: Settings in which models may differ while their values remain comparable.
        comparable_at: Key of another result. Two values can be compared only where this result is equal, such as the
            number of negatives of InfoNCE. Values that cannot be compared have figures of their own.
        better: Whether "low" or "high" values are better. None: neither.
        picks: The value by which a paper chooses among models without labels: "low", "high", or the number that it
            should be near. None: no paper does, or `better` says it. "": it is no score of its own, because another
            result of the diagnostic is the same number.
        percent: Whether to show the value in percent.
        chart: Axes shared with other results. None: axes of its own.
        label: Name of the result's line on a shared chart.
        baseline: Whether the result is a value for data without structure. It is then drawn as a grey dotted line.
        picture: How the result is drawn. None: a scalar as "line", (K,) as "profile", (A, B) as "matrix".
        xlabel: Label of the horizontal axis of a profile.
        remark: A sentence about this run. Names in braces stand for other results of the diagnostic, such as "Fitted to
            eigenvalues {first:.0f} to {last:.0f}.". If a result is missing, the sentence is left out.
        delayed: Whether the first value is NaN, because the diagnostic compares with an earlier `compute`.
        headline: Whether the report shows the value at its top.
        shown: Whether the result is drawn. False: it is only shown in tables.
        parts: Whether the diagnostic computes the result for several parts of the model, such as layers. The keys are
            then `{key}_{part}`, such as `rank_layers_3`.
        of_weights: Whether the result depends only on the model's weights, so that it is equal for all data sets.
        section: Part of the report that shows the result. Empty: the section of the class.
        verdicts: Sentences that the report says of a run where this result passes a threshold.
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
    comparable_at: str = ""
    better: Literal["low", "high"] | None = None
    picks: Literal["low", "high", ""] | float | None = None
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
    verdicts: tuple[Verdict, ...] = ()

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
        if not isinstance(self.picks, float):
            _one_of("picks", self.picks, ("low", "high", "", None))
        if self.cap:
            cap_at(self.cap, N=2, V=2, D=2, P=2)


def declared(quantities: Mapping[str, Quantity], key: str) -> tuple[str, Quantity] | None:
    """Return the key and the Quantity of a result in `quantities`, or None if there is none.

    A key such as `rank_layers_3` is also found under `rank` if the Quantity of `rank` has `parts`.
    """
    if key in quantities:
        return key, quantities[key]
    begun = (known for known, each in quantities.items() if known and each.parts and key.startswith(f"{known}_"))
    best = max(begun, key=len, default=None)
    return None if best is None else (best, quantities[best])


def cap_at(cap: str, **sizes: float) -> float:
    """Evaluate the `cap` of a :class:`Quantity` for sizes such as N and D. Pass NaN for an unknown size.

    `cap` is an expression of :mod:`lightning_ssl_geometry.expressions` with names of sizes. A ValueError is raised for
    any other text.

    >>> cap_at("min(N - 1, D)", N=100, D=64)
    64.0
    """
    try:
        return value_of(cap, sizes)
    except ValueError as error:
        raise ValueError(f"Expected `cap` as in 'min(V * N, D)', but got {error}.") from None


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
CHANCE = Quantity(
    title="Chance",
    text="Accuracy of always naming the most frequent class of the validation set.",
    unit="accuracy",
    bounds=(0.0, 1.0),
    percent=True,
    chart=PROBES,
    label="chance",
    baseline=True,
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
TREND_OF_LOSS = (
    Verdict(
        says="The loss was still falling: by {-change} in the last third of the run, to {value}.",
        when="trend < -2.326",
        source="one-sided test at 1% of Mann 1945 and Kendall 1948, slope of Sen 1968",
        topic="a loss that still falls",
    ),
    Verdict(
        says="The loss was rising: by {change} in the last third of the run, to {value}.",
        when="trend > 2.326",
        source="one-sided test at 1% of Mann 1945 and Kendall 1948, slope of Sen 1968",
        topic="a loss that rises",
    ),
)
