"""What is known of augmentations, the projector and neighbours: Cosentino et al. 2022."""

# ruff: noqa: RUF001  -- people read these texts: a minus is a minus sign

__all__ = ["PROJECTOR_ENTRIES"]

from lightning_ssl_geometry.report.entry import Entry

_ISOTROPIC = (
    "What directions without preference would give, 1 − rank / D: low where the projector has nearly full rank (at "
    "the threshold, where there is one), high where it has collapsed. Only the distance to it is a choice of training."
)

PROJECTOR_ENTRIES = {
    "augmentation_rank": Entry(
        "Rank of the augmentations",
        ("augmentation_rank",),
        "How many directions of h the augmentations move in: the rank of v = h2 − h1. Low means that the encoder maps "
        "them onto a small subspace, so that the projector can stay of high rank; high, that it has much to discard.",
        "cosentino",
        "Prop. 4.2",
    ),
    "augmentation_spectrum": Entry(
        "Spectrum of the augmentations",
        ("augmentation_singular_values", "log_augmentation_singular_values"),
        "Singular values of the augmentation directions v = h2 − h1. A steep fall (low values early on) means that few "
        "directions carry the augmentations; high values to the end, that they move h in all.",
        "cosentino",
        "Prop. 4.2",
    ),
    "null_space": Entry(
        "Augmentations ignored",
        ("null_space_fraction",),
        "Share of the augmentation directions v = h2 − h1 in the projector's null space: low, near 0, means that the "
        "projector sees all of them; high, near 1, that it ignores them, which leaves the invariance term at its best.",
        "cosentino",
        "Prop. 4.1",
    ),
    "null_space_isotropic": Entry(
        "Isotropic",
        ("null_space_isotropic",),
        _ISOTROPIC,
        "cosentino",
        "Prop. 4.1",
    ),
    "unexplained_variance": Entry(
        "Unexplained variance",
        ("unexplained_variance_full",),
        "Share of the displacements h2 − h* outside the column space of the projector's W: low, near 0, means that the "
        "projector spans them; high, near 1, that it misses them. It should fall below its isotropic value.",
        "cosentino",
        "Eq. 10, Fig. 7",
        "low",
    ),
    "unexplained_variance_isotropic": Entry(
        "Isotropic",
        ("unexplained_variance_full_isotropic",),
        _ISOTROPIC,
        "cosentino",
        "Eq. 10",
    ),
    "unexplained_variance_tau": Entry(
        "Unexplained variance at a threshold",
        ("unexplained_variance_tau",),
        "The same with only those directions of W whose singular values reach a threshold. Low means that the "
        "directions that count span the displacements; high above the value of all columns, that W needs its faint "
        "ones.",
        "cosentino",
        "Eq. 10",
        "low",
    ),
    "unexplained_variance_tau_isotropic": Entry(
        "Isotropic",
        ("unexplained_variance_tau_isotropic",),
        _ISOTROPIC,
        "cosentino",
        "Eq. 10",
    ),
    "local_unexplained_variance": Entry(
        "Unexplained variance, per region",
        ("local_unexplained_variance_full",),
        "As above for an MLP projector, with the linear map of the region in which each sample lies. Low means that "
        "the local maps span the displacements of their own samples; high, that they miss them.",
        "cosentino",
        "Eq. 10 and 11",
        "low",
    ),
    "local_unexplained_variance_isotropic": Entry(
        "Isotropic",
        ("local_unexplained_variance_full_isotropic",),
        _ISOTROPIC,
        "cosentino",
        "Eq. 10 and 11",
    ),
    "local_unexplained_variance_tau": Entry(
        "Unexplained variance, per region at a threshold",
        ("local_unexplained_variance_tau",),
        "The same with only those directions of each local map whose singular values reach a threshold; low and high "
        "mean the same.",
        "cosentino",
        "Eq. 10 and 11",
        "low",
    ),
    "local_unexplained_variance_tau_isotropic": Entry(
        "Isotropic",
        ("local_unexplained_variance_tau_isotropic",),
        _ISOTROPIC,
        "cosentino",
        "Eq. 10 and 11",
    ),
    "jacobian_rank": Entry(
        "Rank of the projector's Jacobian",
        ("jacobian_rank",),
        "How many directions of h the projector passes on around a sample, mean over samples; of a linear projector, "
        "the rank of W. Low means that it discards directions there, high that nearly all pass.",
        "cosentino",
        "Eq. 11",
    ),
    "jacobian_spectrum": Entry(
        "Spectrum of the projector's Jacobian",
        ("jacobian_singular_values", "log_jacobian_singular_values"),
        "Singular values of the projector's Jacobian at a sample, mean over samples. High ones are directions of h "
        "that it passes on there, low ones directions that it discards.",
        "cosentino",
        "Eq. 11",
    ),
    "linear_regions": Entry(
        "Linear regions",
        ("linear_regions_fraction",),
        "Distinct linear pieces of an MLP projector that the samples fall into, per sample. High, near 100%, means a "
        "piece of its own for each sample; low, that the projector acts as a few linear maps.",
        "cosentino",
        "Eq. 11, Fig. 8",
        percent=True,
    ),
    "linear_regions_visited": Entry(
        "Linear regions visited",
        ("linear_regions_visited",),
        "The number of those pieces: low, at 1, is a linear projector; high, up to the number of samples, one that "
        "adapts to each.",
        "cosentino",
        "Eq. 11, Fig. 8",
    ),
    "lie_r2": Entry(
        "Strength of a transformation, recovered",
        ("lie_r2",),
        "How well the strength of a known transformation can be read from h by a fitted generator G, held out (R²). "
        "High, near 1, means that h moves along G as a Lie group would move it; low, 0 or below, that it does not.",
        "cosentino",
        "Eq. 7",
        "high",
    ),
    "lie_r2_shuffled": Entry(
        "Shuffled strengths",
        ("lie_r2_shuffled",),
        "The same fit to strengths that were shuffled between samples. It should be low, about 0 or below; a high "
        "value would mean that the fit finds structure in anything.",
        "cosentino",
        "Eq. 7",
    ),
    "lie_null_space": Entry(
        "Generator ignored",
        ("lie_null_space",),
        "Share of the fitted generator G in the projector's null space: low means that the projector sees the "
        "transformation, high, near 1, that it discards it, as the invariance term asks. It says so of the "
        "transformation only where the strength is recovered: an R² well above that of shuffled strengths.",
        "cosentino",
        "Prop. 4.3",
    ),
    "lie_null_space_isotropic": Entry(
        "Isotropic",
        ("lie_null_space_isotropic",),
        _ISOTROPIC,
        "cosentino",
        "Prop. 4.3",
    ),
    "rotation": Entry(
        "Rank of rotations",
        ("rotation_h", "rotation_pixels", "rotation_angles"),
        "How many directions the rotations of one image span, against the largest angle. High means that strong "
        "augmentations move in many directions, of which pixels have the most; low in h, that the encoder maps them "
        "onto few.",
        "cosentino",
        "Fig. 10, App. E",
    ),
    "hardest_negative_distance": Entry(
        "Distance to the hardest negative",
        ("hardest_negative_distance",),
        "Mean distance in h, between unit vectors, from a sample h1 to its hardest negative h*, which is found behind "
        "the projector. Low, near 0, means that they nearly coincide, as strong augmentations allow; high, beyond "
        "1.41 (orthogonal), that repulsion drove them apart.",
        "cosentino",
        "Fig. 5",
    ),
    "hardest_negative_pair": Entry(
        "Distance between views",
        ("hardest_negative_pair",),
        "The same between the two views h1 and h2 of a sample. Low means that the encoder itself is invariant to the "
        "augmentations; high, as high as for h*, that a view is no closer than another sample.",
        "cosentino",
        "Fig. 5",
    ),
    "hardest_negative_histogram": Entry(
        "Distances to the hardest negative",
        ("hardest_negative_histogram",),
        "The share of samples at each distance between h1 and its hardest negative h*: mass at low distances means "
        "that they nearly coincide, mass at high ones, up to 2, that they are driven apart.",
        "cosentino",
        "Fig. 5",
    ),
    "label_agreement": Entry(
        "Label shared with the hardest negative",
        ("label_agreement_fine",),
        "Share of samples whose hardest negative h* has their label. High means that the displacements h2 − h* stay "
        "within a class, close to the data manifold; low, near chance, that they lead anywhere.",
        "cosentino",
        "Fig. 6",
        percent=True,
    ),
    "label_agreement_chance": Entry(
        "Chance",
        ("label_agreement_fine_chance",),
        "What a negative drawn at random would share: low for many classes, high for few.",
        "cosentino",
        "Fig. 6",
        percent=True,
    ),
    "label_agreement_coarse": Entry(
        "Coarse label shared",
        ("label_agreement_coarse",),
        "The same for coarse labels; high where h* is at least of a related class, low where it is not.",
        "cosentino",
        "Fig. 6",
        percent=True,
    ),
    "label_agreement_coarse_chance": Entry(
        "Chance, coarse",
        ("label_agreement_coarse_chance",),
        "What a negative drawn at random would share of those: low for many coarse classes, high for few.",
        "cosentino",
        "Fig. 6",
        percent=True,
    ),
}
