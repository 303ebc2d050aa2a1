"""What the glossary is made of: papers, and entries that are from them."""

__all__ = ["PAPERS", "Entry", "Paper"]

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Paper:
    """A source: its short form and where it can be read; some are not on arXiv."""

    short: str
    title: str
    arxiv: str = ""

    @property
    def address(self) -> str | None:
        """Where it can be read."""
        return f"https://arxiv.org/abs/{self.arxiv}" if self.arxiv else None


PAPERS = {
    "cosentino": Paper(
        "Cosentino et al. 2022",
        "Toward a Geometrical Understanding of Self-supervised Contrastive Learning",
        "2205.06926",
    ),
    "wang": Paper(
        "Wang & Isola 2020",
        "Understanding Contrastive Representation Learning through Alignment and Uniformity on the Hypersphere",
        "2005.10242",
    ),
    "garrido": Paper(
        "Garrido et al. 2023",
        "RankMe: Assessing the Downstream Performance of Pretrained Self-Supervised Representations by Their Rank",
        "2210.02885",
    ),
    "crltac": Paper(
        "CRL-TAC 2021",
        "Contrastive Representation Learning with Trainable Augmentation Channel",
        "2111.07679",
    ),
    "chen": Paper(
        "Chen et al. 2020",
        "A Simple Framework for Contrastive Learning of Visual Representations",
        "2002.05709",
    ),
    "sosnovik": Paper(
        "Sosnovik et al. 2020",
        "Scale-Equivariant Steerable Networks",
        "1910.11093",
    ),
    "keller": Paper("Keller et al. 2022", "Homomorphic Self-Supervised Learning", "2211.08282"),
    "wu": Paper(
        "Wu et al. 2018",
        "Unsupervised Feature Learning via Non-Parametric Instance-level Discrimination",
        "1805.01978",
    ),
    "rusak": Paper(
        "Rusak et al. 2022",
        "Content Suppresses Style: Dimensionality Collapse in Contrastive Learning (NeurIPS 2022 workshop on "
        "self-supervised learning)",
    ),
    "zimmermann": Paper(
        "Zimmermann et al. 2021",
        "Contrastive Learning Inverts the Data Generating Process",
        "2102.08850",
    ),
    "agrawal": Paper(
        "Agrawal et al. 2022",
        "alpha-ReQ: Assessing Representation Quality in Self-Supervised Learning by measuring eigenspectrum decay "
        "(NeurIPS 2022)",
    ),
    "thilak": Paper(
        "Thilak et al. 2023",
        "LiDAR: Sensing Linear Probing Performance in Joint Embedding SSL Architectures",
        "2312.04000",
    ),
    "facco": Paper(
        "Facco et al. 2017",
        "Estimating the intrinsic dimension of datasets by a minimal neighborhood information",
        "1803.06992",
    ),
    "levina": Paper("Levina & Bickel 2004", "Maximum Likelihood Estimation of Intrinsic Dimension (NeurIPS 2004)"),
    "kornblith": Paper("Kornblith et al. 2019", "Similarity of Neural Network Representations Revisited", "1905.00414"),
    "balestriero": Paper(
        "Balestriero & LeCun 2025",
        "LeJEPA: Provable and Scalable Self-Supervised Learning Without the Heuristics",
        "2511.08544",
    ),
    "bordes": Paper(
        "Bordes et al. 2022",
        "Guillotine Regularization: Why removing layers is needed to improve generalization in Self-Supervised "
        "Learning",
        "2206.13378",
    ),
    "calder": Paper(
        "Calder & Lee 2025",
        "Understanding Contrastive Learning through Variational Analysis and Neural Network Optimization Perspectives",
        "2503.10812",
    ),
    "grill": Paper(
        "Grill et al. 2020",
        "Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning",
        "2006.07733",
    ),
    "cristianini": Paper("Cristianini et al. 2001", "On Kernel-Target Alignment (NIPS 2001)"),
    "fort": Paper(
        "Fort et al. 2020",
        "Deep learning versus kernel learning: an empirical study of loss landscape geometry and the time evolution of "
        "the Neural Tangent Kernel",
        "2010.15110",
    ),
    "papyan": Paper(
        "Papyan et al. 2020",
        "Prevalence of Neural Collapse during the terminal phase of deep learning training",
        "2008.08186",
    ),
}


@dataclass(frozen=True)
class Entry:
    """One diagnostic.

    Attributes:
        title: For people.
        names: What it may be called in a log, behind the stage.
        text: What it is, and what low and high mean.
        paper: A key of `PAPERS`.
        place: Where in the paper.
        best: The better end, where there is one.
        percent: Shown in percent.
    """

    title: str
    names: tuple[str, ...]
    text: str
    paper: str | None = None
    place: str = ""
    best: Literal["low", "high"] | None = None
    percent: bool = False
