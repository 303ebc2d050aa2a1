"""What is known of a trainable augmentation channel: CRL-TAC 2021."""

__all__ = ["CHANNEL_ENTRIES"]

from lightning_ssl_geometry.report.entry import Entry

_NON_EMPTY = ("non_empty", "non_empty_probability")
_MAPS = ("policy_maps", "policy")
_EMBEDDINGS = ("embeddings", "embedding_sample", "embedding")

CHANNEL_ENTRIES = {
    "non_empty": Entry(
        "Probability of views that show something",
        tuple(f"{name}_learned" for name in _NON_EMPTY),
        "The mass that P(T | X) puts on augmented images that are not blank. Low means that samples mostly turn into "
        "one and the same blank image, which pulls their embeddings together; high, near 1, that the policy has found "
        "the object.",
        "crltac",
        "Sec. 3.2",
        "high",
    ),
    "non_empty_uniform": Entry(
        "Share of views that show something",
        tuple(f"{name}_uniform" for name in _NON_EMPTY),
        "What the probability would be if all augmentations were drawn alike: low for small objects in large images, "
        "high, 1, where no augmentation is blank. A policy has learned what lies above.",
        "crltac",
        "Sec. 3.2",
    ),
    "policy_entropy": Entry(
        "Entropy of the policy",
        ("policy_entropy",),
        "Mean entropy of P(T | X), in nats. Low, near 0, means that each image has a single augmentation left, from "
        "which h generalises badly; high, up to log K for K augmentations, that the policy prefers none.",
        "crltac",
        "Sec. 5.3",
    ),
    "policy_loss": Entry(
        "Loss of the policy",
        ("policy_loss",),
        "What the policy descends, without the encoder: the contrastive loss with each augmentation weighed by its "
        "probability, minus the weighed entropy. Low means that the augmentations it prefers tell samples apart; high, "
        "that they do not.",
        "crltac",
        "Alg. 1",
        "low",
    ),
    "policy_maps": Entry(
        "What the policy looks at",
        tuple(f"{name}_{part}" for name in _MAPS for part in ("image", "probability")),
        "Images, and below each its P(T | X): for crops, the place in a map is that of the crop in the image. Bright "
        "cells have a high probability, dark ones a low one; an even map is a policy that has learned nothing.",
        "crltac",
        "Fig. 3",
    ),
    "pair_similarity": Entry(
        "Similarity of different samples",
        ("pair_similarity",),
        "The cosines of all pairs of samples, without their sign and in order. Low up to the right end means samples "
        "as orthogonal as they can be; high, near 1 from the left end on, that all lie in one direction (collapse).",
        "crltac",
        "Fig. 8",
    ),
    "embeddings": Entry(
        "Embeddings as they are",
        tuple(f"{name}_{part}" for name in _EMBEDDINGS for part in ("z", "label")),
        "A thin line for each sample, its embedding's values in order. Lines that differ fill the figure, from low to "
        "high in each dimension; lines on top of each other are samples that the representation does not tell apart.",
        "crltac",
        "Fig. 7",
    ),
    "embeddings_2d": Entry(
        "Embeddings in the plane",
        (),
        "A point for each sample, its two coordinates. Points all around the circle spread as they should; points on "
        "one spot, however high or low, are samples that the representation does not tell apart.",
        "crltac",
        "Fig. 6",
    ),
    "gaussian_potential_image": Entry(
        "Gaussian potential, clean images",
        ("gaussian_potential_image", "gaussian_potential_z_image"),
        "The same for one embedding of each image, averaged over its augmentations. High, near 1, means that images "
        "crowd on one spot; low, near 0.02, that they spread evenly.",
        "crltac",
        "Sec. 5.5",
    ),
}
