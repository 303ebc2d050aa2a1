"""What is known of equivariance and invariance to groups: Sosnovik et al. 2020, for Keller et al. 2022."""

__all__ = ["EQUIVARIANCE_ENTRIES"]

from lightning_ssl_geometry.report.entry import Entry

_GROUPS = {
    "": "the group",
    "rotation": "quarter turns",
    "translation": "translations by the stride",
    "scale": "changes of scale",
}
_EQUIVARIANCE = (
    "Squared distance between the features of a transformed image and the transformed features of the image, as a "
    "share of the latter's square; the mean over {}. Low, near 0, means an equivariant network, in which a transformed "
    "view can be read off the features; high, 1 and more, that the features say nothing of those of the transformed "
    "image."
)
_INVARIANCE = (
    "Mean squared distance in h between an image and its transformed version, as a share of that between two images; "
    "the mean over {}. Low, near 0, means that h does not see the transformation; high, near 1, that it takes an image "
    "as far as another one is."
)


def _of(kind: str, title: str, text: str, paper: str | None) -> dict[str, Entry]:
    """One entry for a diagnostic of that name, and one for each group behind it, such as `equivariance_scale`."""
    key = "group_invariance" if kind == "invariance" else kind  # "invariance" is the term of the loss
    return {
        f"{key}_{group}".strip("_"): Entry(
            f"{title}, {group}" if group else title,
            (f"{kind}_{group}_mean" if group else f"{kind}_mean",),
            text.format(words),
            paper,
            best="low",
        )
        for group, words in _GROUPS.items()
    }


EQUIVARIANCE_ENTRIES = _of("equivariance", "Equivariance error", _EQUIVARIANCE, "sosnovik") | _of(
    "invariance", "Invariance error", _INVARIANCE, None
)
EQUIVARIANCE_ENTRIES |= {
    "loss_gap_a_ssl": Entry(
        "A-SSL's loss",
        ("loss_gap_a_ssl",),
        "The contrastive loss of transformed images. Where the network is equivariant to the transformation, it is "
        "that of the transformed fibers of the same images, on the same weights; far from it, fibers cannot stand for "
        "transformed images.",
        "keller",
        "Eq. 2",
    ),
    "loss_gap_h_ssl": Entry(
        "H-SSL's loss",
        ("loss_gap_h_ssl",),
        "The contrastive loss of two fibers of each image, moved as the transformation would move them.",
        "keller",
        "Eq. 3",
    ),
    "loss_gap_similarity": Entry(
        "Embeddings of A-SSL beside H-SSL's",
        ("loss_gap_similarity",),
        "Mean cosine of the embedding of a transformed image with that of the fiber which stands for it. 1 for a "
        "network that is equivariant; near 0, the two have nothing to do with each other.",
        "keller",
        "Section 3",
        best="high",
    ),
}
