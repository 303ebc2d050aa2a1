"""InfoNCE and its upper bound (Cosentino et al. 2022)."""

__all__ = ["UpperBound"]

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import positive
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import SampledEmbeddings
from lightning_ssl_geometry.diagnostics.undefined import directions
from lightning_ssl_geometry.functional.info_nce.loss import info_nce
from lightning_ssl_geometry.functional.info_nce.upper_bound import info_nce_entropy, info_nce_upper_bound
from lightning_ssl_geometry.papers import COSENTINO
from lightning_ssl_geometry.quantity import Chart, Quantity, Verdict

_quantity = partial(Quantity, paper=COSENTINO, invariances=("rotation", "scale", "permutation"))
_BOUND = Chart("upper_bound", "InfoNCE and its upper bound", "nats")
_SIZES = (
    "Temperature {temperature}, {negatives} negatives for each anchor. Equal embeddings would have log({negatives}). "
    "Values with other numbers cannot be compared."
)
_loss = partial(_quantity, better="low", chart=_BOUND, comparable_at="negatives")
_TERMS = Chart("bound_terms", "Terms of InfoNCE and its bound", "cosine")
_cosine = partial(_quantity, bounds=(-1, 1), chart=_TERMS)


class UpperBound(SampledEmbeddings):
    """InfoNCE, an upper bound, and the terms of a form with an entropy (Cosentino et al. 2022, Prop. 3.1).

    Observes the first two views of the embeddings z, with P dimensions, and the index of each sample in the data set.
    The loss is always the InfoNCE of the paper, whatever loss trains the model. It uses cosine similarity, anchors from
    view 1, n = `contrast_size` samples, and no positive pair in the denominator. Results (Eq. 1, 3-5 and 13):

    - `info_nce` and its bound `upper`: both differ from log(2(n - 1)) by at most 2 / temperature.
    - `invariance` in [-1, 1]: minus the cosine between the two views of a sample.
    - `repulsion` in [-1, 1]: cosine between a sample and its hardest negative.
    - `expectation` in [-1, 1]: weighted mean of the cosines between a sample and its negatives.
    - `entropy` in [0, log(2(n - 1))]: entropy of the weights in `expectation`.
    - `entropy_form`: (invariance + expectation) / temperature + entropy, which equals `info_nce`.
    - `temperature`, and `negatives` = 2(n - 1) for each anchor: the settings that the other values depend on.

    All results are NaN if all embeddings are 0 or one is not finite. Memory: O(contrast_size P). `compute` costs
    O(contrast_size^2 P).

    Args:
        temperature: 1 / beta, > 0. The paper has beta = 2.
        contrast_size: Number of samples kept, >= 2. The values depend on it.
        seed: Determines which samples are kept.
    """

    section = "bound"
    cost = Cost(update="n D + N D", compute="N^2 D", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "info_nce": _loss(
            title="InfoNCE",
            text="InfoNCE of N observed samples at the diagnostic's own temperature, whatever loss trains the model. "
            "Each anchor has 2(N - 1) negatives; the positive is not in the denominator.",
            low="The views of a sample find each other among all samples.",
            high="Near log(2(N - 1)) and above: samples are not told apart.",
            where="Eq. 1",
            label="InfoNCE",
            remark=_SIZES,
            verdicts=(
                Verdict(
                    says="By InfoNCE, {space} tells samples apart no better than equal embeddings do: it is "
                    "{value}, and {log(negatives)} if all embeddings are equal.",
                    when="value >= log(negatives) - 0.000001 * value",
                    given="loss_temperature > 0",  # a model that no contrastive loss trains need not tell them apart
                    source="Eq. 1, up to rounding",
                    paper=COSENTINO,
                    topic="InfoNCE at its value for equal embeddings",
                ),
                Verdict(
                    says="InfoNCE ({value}) is above its upper bound ({upper}), which cannot be: an error of this "
                    "package or of its files.",
                    when="value > upper + 0.00001 * max(1, value)",
                    source="Prop. 3.1, up to rounding",
                    paper=COSENTINO,
                    topic="a bound that is violated",
                ),
            ),
        ),
        "upper": _loss(
            title="Upper bound",
            text="An upper bound of InfoNCE, which takes every negative to be as close to its anchor as the closest "
            "one is.",
            low="Views agree, and the closest negatives are far.",
            high="Views disagree, or the closest negatives are near. Far above InfoNCE: most negatives are much "
            "farther away than the closest one.",
            where="Eq. 3",
            label="bound",
        ),
        "entropy_form": _loss(
            title="Exact form with entropy",
            text="(Invariance + expected similarity) / temperature + entropy, which equals InfoNCE up to rounding. The "
            "paper prints a minus before its second term; its own derivation has the plus.",
            low="The views of a sample find each other among all samples.",
            high="Near log(2(N - 1)) and above: samples are not told apart.",
            where="Eq. 13",
            label="exact form",
            picks="",  # InfoNCE
        ),
        "invariance": _cosine(
            title="Invariance term",
            text="Minus the cosine between the embeddings of two views.",
            low="-1: the views coincide.",
            high="0: the views are unrelated. 1: they are opposite.",
            where="Eq. 4",
            comparable=("temperature", "batch size"),
            label="invariance",
        ),
        "repulsion": _cosine(
            title="Repulsion term",
            text="Cosine between an embedding and its closest negative.",
            low="Even the closest negative is kept away from its anchor.",
            high="1: another sample sits on the same spot.",
            where="Eq. 5",
            comparable=("temperature", "batch size"),
            label="repulsion",
        ),
        "expectation": _cosine(
            title="Expected similarity",
            text="Mean cosine to the negatives, each weighed as the loss weighs it: close ones count most. It is at "
            "most the repulsion term.",
            low="Near -1: the negatives that count are opposite to the anchor.",
            high="Near 1: the negatives that count sit on the anchor.",
            where="Prop. C.1",
            label="expected",
        ),
        "entropy": _quantity(
            title="Entropy of the negatives",
            text="Entropy of the weights that the loss gives to the negatives: how evenly it looks at them.",
            low="Near 0: the loss looks at a single negative.",
            high="Up to log(2(N - 1)): the loss looks at all negatives alike, as the upper bound supposes.",
            where="Prop. C.1",
            bounds=(0, None),
            comparable_at="negatives",
            chart=Chart("bound_entropy", "Entropy of the negatives", "nats"),
            remark=_SIZES,
        ),
        "temperature": Quantity(
            title="Temperature of the bound",
            text="The temperature at which the diagnostic computes InfoNCE and its bound. It is a setting of the "
            "diagnostic.",
            shown=False,
            verdicts=(
                Verdict(
                    says="InfoNCE and its bound are computed at temperature {value}, but the model's loss has "
                    "temperature {loss_temperature}: their values are not those of the loss.",
                    when="max(value - loss_temperature, loss_temperature - value) > 0.000001 * value",
                    source="Eq. 1 depends on beta = 1 / temperature",
                    paper=COSENTINO,
                    caveat=True,
                ),
            ),
        ),
        "negatives": Quantity(
            title="Negatives of an anchor",
            text="The number of negatives that each anchor of the diagnostic is compared with: 2(N - 1) for N samples.",
            shown=False,
        ),
    }

    views = 2

    def __init__(self, temperature: float = 0.5, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(contrast_size, seed)
        positive(temperature=temperature)
        self.temperature = temperature

    def compute(self) -> dict[str, Tensor]:
        z = directions(self, self.pairs())
        invariance, repulsion, upper = info_nce_upper_bound(z[0], z[1], self.temperature)
        _, expectation, entropy = info_nce_entropy(z[0], z[1], self.temperature)
        settings = z.new_tensor([self.temperature, 2 * (z.shape[1] - 1)]).where(z.isfinite().all(), torch.nan)
        return {
            "info_nce": info_nce(z[0], z[1], self.temperature, positive_in_denominator=False, symmetric=False),
            "upper": upper,
            "entropy_form": (invariance + expectation) / self.temperature + entropy,
            "invariance": invariance,
            "repulsion": repulsion,
            "expectation": expectation,
            "entropy": entropy,
            "temperature": settings[0],
            "negatives": settings[1],
        }
