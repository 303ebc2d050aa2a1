"""Forms of InfoNCE from several papers, with different denominators and similarities."""

__all__ = [
    "CALDER_LEE",
    "CALDER_LEE_INVARIANT",
    "CL_ICA",
    "COSENTINO",
    "CRL_TAC",
    "FORMS",
    "KELLER",
    "NT_XENT",
    "RUSAK",
    "FormName",
    "InfoNCEForm",
    "InfoNCESwitches",
    "named_form",
]

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal, TypedDict, Unpack, get_args

from lightning_ssl_geometry.checks import at_least, one_of, switch
from lightning_ssl_geometry.deprecation import deprecated
from lightning_ssl_geometry.functional.info_nce.similarity import Dot, LpDistance, Similarity, SquaredDistance

_Negatives = Literal["both", "same", "other"]
_Denominator = Literal["sum", "mean"]
_SIMILARITIES: Mapping[str, Similarity] = {"dot": Dot(), "distance": SquaredDistance()}


class InfoNCESwitches(TypedDict, total=False):
    """Keyword arguments that change attributes of an :class:`InfoNCEForm`; `p` and `power` are deprecated."""

    normalize: bool
    positive_in_denominator: bool
    symmetric: bool
    negatives: _Negatives
    include_self: bool
    joint: bool
    denominator: _Denominator
    similarity: Similarity | Literal["dot", "distance"]
    eps: float
    p: float
    power: bool


@dataclass(frozen=True, kw_only=True)
class InfoNCEForm:
    r"""Settings that choose a form of InfoNCE; the defaults are SimCLR's NT-Xent.

    .. math:: L = \frac{1}{|A|} \sum_{a \in A} -\log \frac{\exp s_{a a^+}}
        {[\exp s_{a a^+}] + c \sum_{b \in B_a} \exp s_{ab}}

    :math:`A` are the anchors, :math:`a^+` is the other view of the anchor's sample, and :math:`B_a` are its negatives.
    :math:`s_{ab}` is the similarity of two embeddings divided by the temperature. The factor c is 1, or 1/N for N
    samples per view. The term in brackets is optional. The last column of the table is the loss if all s are 0:

    ======================== ============================================================ ===========
    form                     what differs from NT-Xent                                    at s = 0
    ======================== ============================================================ ===========
    `NT_XENT`                                                                             log(2N-1)
    `COSENTINO`              positive_in_denominator=False, symmetric=False               log(2(N-1))
    `RUSAK`                  symmetric=False, negatives="same"                            log(N)
    `CL_ICA`                 symmetric=False, negatives="same",                           log(N+1)
                             include_self=True, similarity="distance", normalize=False
    `CALDER_LEE`             symmetric=False, denominator="mean"                          log(3-2/N)
    `CALDER_LEE_INVARIANT`   symmetric=False, denominator="mean",                         log(2)
                             negatives="other", include_self=True
    `KELLER`                 positive_in_denominator=False, joint=True                    log(4(N-1))
    `CRL_TAC`                positive_in_denominator=False, symmetric=False,              0
                             denominator="mean", negatives="other", include_self=True
    ======================== ============================================================ ===========

    - `NT_XENT`: Chen et al., A Simple Framework for Contrastive Learning of Visual Representations (2020).
    - `COSENTINO`: Cosentino et al., Toward a Geometrical Understanding of Self-supervised Contrastive Learning, Eq. 1.
    - `RUSAK`: Eq. 1 of Rusak et al., Content suppresses style: dimensionality collapse in contrastive learning. The
      paper draws M negatives independently. Here the negatives are the N-1 other samples of the anchor's view.
    - `CL_ICA`: the code of Zimmermann et al., Contrastive Learning Inverts the Data Generating Process (2021).
    - `CALDER_LEE`, `CALDER_LEE_INVARIANT`: Eq. 1 and Eq. 4 of Calder & Lee, Understanding Contrastive Learning through
      Variational Analysis and Neural Network Optimization Perspectives. Eq. 4 contains exp(-|x-y|^2 / 2 tau); this is
      `similarity="distance"` with temperature 2 tau or, on the unit sphere, "dot" with temperature tau.
    - `KELLER`: Eq. 2 and 3 of Keller et al., Homomorphic Self-Supervised Learning. In the sum over l of Eq. 3, g_k is a
      misprint for g_l.
    - `CRL_TAC`: Eq. 20 of Contrastive Representation Learning with Trainable Augmentation Channel.

    Attributes:
        normalize: Scale the rows to unit length, so that their dot product is the cosine.
        positive_in_denominator: Include the term in brackets.
        symmetric: Use both views as anchors; if False, only view 1.
        negatives: The view of the negatives: the anchor's ("same"), the other view ("other") or "both".
        include_self: Include the anchor's own sample among the negatives.
        joint: Use one term per sample. The sample's two anchors then share the sum of their denominators.
        denominator: "sum" (c = 1) or "mean" (c = 1/N).
        similarity: :class:`Dot` ("dot"), :class:`SquaredDistance` ("distance") or :class:`LpDistance`.
        eps: `normalize` maps a row of at most this length to 0, with gradient 0.

    Raises:
        ValueError: If an attribute is out of its range or contradicts another.
    """

    normalize: bool = True
    positive_in_denominator: bool = True
    symmetric: bool = True
    negatives: _Negatives = "both"
    include_self: bool = False
    joint: bool = False
    denominator: _Denominator = "sum"
    similarity: Similarity | Literal["dot", "distance"] = "dot"
    eps: float = 1e-8

    def __post_init__(self) -> None:
        names = ("normalize", "positive_in_denominator", "symmetric", "include_self", "joint")
        switch(**{name: getattr(self, name) for name in names})
        one_of(get_args(_Negatives), negatives=self.negatives)
        one_of(get_args(_Denominator), denominator=self.denominator)
        if self.joint and not self.symmetric:
            raise ValueError("Expected `symmetric` = True with `joint` = True, but got False.")
        at_least(0, eps=self.eps)
        if not isinstance(self.similarity, Similarity):
            one_of(tuple(_SIMILARITIES), similarity=self.similarity)
            object.__setattr__(self, "similarity", _SIMILARITIES[self.similarity])

    @property
    def logit(self) -> Similarity:
        """The similarity of the form; :class:`SquaredDistance` replaces the equal :class:`LpDistance` with p = 2."""
        assert isinstance(self.similarity, Similarity)  # see `__post_init__`
        return SquaredDistance() if self.similarity == LpDistance(p=2.0, power=True) else self.similarity

    @property
    def least(self) -> int:
        """The smallest number N of samples for which the denominator is not empty."""
        return 1 if self.include_self or self.positive_in_denominator else 2

    def but(self, **switches: Unpack[InfoNCESwitches]) -> "InfoNCEForm":
        """Return a copy with some attributes changed; an unknown attribute raises a TypeError."""
        if "p" in switches or "power" in switches:
            switches["similarity"] = _of_a_norm(self, switches)
        return replace(self, **switches)  # type: ignore[misc]

    def __str__(self) -> str:
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        return ", ".join(f"{name}={value!r}" for name, value in held.items())


NT_XENT = InfoNCEForm()
COSENTINO = NT_XENT.but(positive_in_denominator=False, symmetric=False)
RUSAK = NT_XENT.but(symmetric=False, negatives="same")
CL_ICA = RUSAK.but(include_self=True, similarity="distance", normalize=False)
CALDER_LEE = NT_XENT.but(symmetric=False, denominator="mean")
CALDER_LEE_INVARIANT = CALDER_LEE.but(negatives="other", include_self=True)
KELLER = NT_XENT.but(positive_in_denominator=False, joint=True)
CRL_TAC = CALDER_LEE_INVARIANT.but(positive_in_denominator=False)
FormName = Literal["NT_XENT", "COSENTINO", "RUSAK", "CL_ICA", "CALDER_LEE", "CALDER_LEE_INVARIANT", "KELLER", "CRL_TAC"]
FORMS: Mapping[str, InfoNCEForm] = {name: globals()[name] for name in get_args(FormName)}


def named_form(form: InfoNCEForm | FormName, **switches: Unpack[InfoNCESwitches]) -> InfoNCEForm:
    """Return the form with the given name, or the given form, with some attributes changed.

    Raises a TypeError for an unknown attribute, and a ValueError for an unknown name or a value out of its range.

    >>> named_form("RUSAK").negatives
    'same'
    """
    if not isinstance(form, InfoNCEForm):
        one_of(tuple(FORMS), form=form)
        form = FORMS[form]
    return form.but(**switches) if switches else form


def _of_a_norm(form: InfoNCEForm, switches: InfoNCESwitches) -> Similarity:
    p, power = switches.pop("p", 2.0), switches.pop("power", True)
    given = switches.get("similarity", form.similarity)
    if given in ("dot", Dot()):
        if p != 2:
            raise ValueError(f"Expected `p` = 2 with the similarity 'dot', which has no norm, but got {p}.")
        switch(power=power)
        if not power:
            raise ValueError("Expected `power` = True with the similarity 'dot', which has no norm, but got False.")
        return Dot()
    found = LpDistance(p=p, power=power)
    deprecated("`p` and `power` of InfoNCE", f"`similarity` = {found!r}")
    return found
