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
