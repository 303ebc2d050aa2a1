"""What each diagnostic is, what low and high mean, and where it comes from."""

# ruff: noqa: RUF001  -- people read these texts: a minus is a minus sign

__all__ = ["ENTRIES", "PAPERS", "STAGES", "Entry", "Paper", "lookup", "split"]

from functools import lru_cache

from lightning_ssl_geometry.report.channel_entries import CHANNEL_ENTRIES
from lightning_ssl_geometry.report.content_style_entries import CONTENT_STYLE_ENTRIES
from lightning_ssl_geometry.report.dimension_entries import DIMENSION_ENTRIES
from lightning_ssl_geometry.report.dynamics_entries import DYNAMICS_ENTRIES
from lightning_ssl_geometry.report.entry import PAPERS, Entry, Paper
from lightning_ssl_geometry.report.equivariance_entries import EQUIVARIANCE_ENTRIES
from lightning_ssl_geometry.report.kernel_entries import KERNEL_ENTRIES
from lightning_ssl_geometry.report.layer_entries import LAYER_ENTRIES
from lightning_ssl_geometry.report.projector_entries import PROJECTOR_ENTRIES

STAGES = ("train", "val", "probe", "test")


ENTRIES = {
    "loss": Entry(
        "Loss",
        ("loss",),
        "The objective that training descends. Where it is contrastive, low means that the views of a sample find each "
        "other among all others; high, near the logarithm of the number of negatives, that samples are not told apart. "
        "Values compare only at one temperature and batch size.",
        "chen",
        best="low",
    ),
    "momentum": Entry(
        "Momentum of the target",
        ("momentum",),
        "How much of itself BYOL's target keeps in a step of training. Low means that it follows the online network; "
        "high, at 1, that it stands still.",
        "grill",
        "Sec. 3.3",
    ),
    "upper_bound": Entry(
        "Upper bound",
        ("upper_bound", "bound_upper"),
        "A bound on InfoNCE that keeps, of all negatives, only the one closest to its anchor. Low, like the loss, "
        "means views that agree and closest negatives that are far; a bound high above the loss, that the other "
        "negatives are much farther than the closest.",
        "cosentino",
        "Eq. 3",
        "low",
    ),
    "info_nce": Entry(
        "InfoNCE",
        ("upper_bound_info_nce", "bound_info_nce"),
        "InfoNCE on the same samples as its upper bound. Low means that views find each other among all samples; high, "
        "near log 2(N − 1), that they do not.",
        "cosentino",
        "Eq. 1",
        "low",
    ),
    "invariance": Entry(
        "Invariance term",
        ("upper_bound_invariance", "bound_invariance"),
        "Minus the cosine between the embeddings of two views: at −1 they coincide, at 0 they are unrelated.",
        "cosentino",
        "Eq. 4",
    ),
    "repulsion": Entry(
        "Repulsion term",
        ("upper_bound_repulsion", "bound_repulsion"),
        "The cosine between an embedding and its closest negative: low means samples kept apart, 1 that another "
        "sample sits on the same spot.",
        "cosentino",
        "Eq. 5",
    ),
    "expectation": Entry(
        "Expected similarity",
        ("bound_expectation",),
        "Mean cosine to the negatives, each weighed as the loss weighs it: low, near −1, means that the negatives that "
        "count are opposite; high, near 1, that they sit on the anchor. The repulsion term is its largest value.",
        "cosentino",
        "Prop. C.1",
    ),
    "entropy": Entry(
        "Entropy of the negatives",
        ("bound_entropy",),
        "How evenly the loss looks at the negatives, in nats: low, near 0, means at a single one; high, up to "
        "log 2(N − 1), at all alike, which the upper bound supposes.",
        "cosentino",
        "Prop. C.1",
    ),
    "entropy_form": Entry(
        "Exact form with entropy",
        ("bound_entropy_form",),
        "(Invariance + expected similarity) / temperature + entropy. It equals InfoNCE, low or high with it, up to "
        "rounding (the paper prints a minus before its second term; its own derivation has the plus).",
        "cosentino",
        "Eq. 13",
        "low",
    ),
    "linear_probe": Entry(
        "Linear probe",
        ("linear_probe_accuracy",),
        "Accuracy of a linear classifier that learns along on the detached representation h. High means that classes "
        "are linearly separable in h; low, near chance, that they are not (yet, for it trails while h moves).",
        "chen",
        best="high",
        percent=True,
    ),
    "classifier": Entry(
        "Classifier",
        ("accuracy",),
        "Accuracy of the method's own classifier, on images without augmentation outside of training. High means that "
        "it tells the classes apart; low, near chance, that it does not (yet).",
        best="high",
        percent=True,
    ),
    "knn_probe": Entry(
        "kNN",
        ("knn_probe_accuracy",),
        "Accuracy of a vote among the nearest neighbours in h, with nothing to train. High means that neighbours share "
        "their class; low, that neighbourhoods follow something else.",
        "wu",
        best="high",
        percent=True,
    ),
    "effective_rank_h": Entry(
        "Effective rank of h (RankMe)",
        ("effective_rank_h",),
        "The exponential of the entropy of the singular values of the representations h: how many directions are "
        "used. Low, near 1, is dimensional collapse; high, up to D, means that all directions are used alike.",
        "garrido",
        "RankMe",
    ),
    "effective_rank_z": Entry(
        "Effective rank of z",
        ("effective_rank_z",),
        "The effective rank of the embeddings z, behind the projector: low, near 1, is collapse, high is up to P. "
        "Usually it is lower than that of h, as the projector drops what the loss asks to ignore.",
        "garrido",
        "RankMe",
    ),
    "projector_thresholds": Entry(
        "Projector rank at other thresholds",
        (),
        "The rank of W counted anew from its whole spectrum, as the paper gives no threshold: relative thresholds "
        "count the singular values that reach a share of the largest, cumulative ones how many of the largest make up "
        "a share of the sum of squares. Low means that few directions of h reach the loss, high that nearly all do.",
        "cosentino",
        "Eq. 2, Fig. 1",
    ),
    "projector_rank": Entry(
        "Projector rank",
        ("projector_rank",),
        "How many singular values of the projector's weight W exceed a threshold. High means that nearly all of h "
        "reaches the loss; low, that directions are discarded, as strong augmentations make it.",
        "cosentino",
        "Eq. 2, Fig. 1",
    ),
    "alignment": Entry(
        "Alignment",
        ("alignment",),
        "Mean squared distance between the normalised embeddings of two views: 0 where they coincide, 2 where they "
        "have nothing in common.",
        "wang",
    ),
    "uniformity": Entry(
        "Uniformity",
        ("uniformity",),
        "Logarithm of the mean Gaussian kernel between embeddings of different samples: 0 where all coincide "
        "(collapse), about −4 where they spread evenly over a sphere of many dimensions.",
        "wang",
    ),
    "gaussian_potential": Entry(
        "Gaussian potential",
        ("gaussian_potential",),
        "Mean of exp(−2‖z − z′‖²) over pairs of samples, the uniformity without its logarithm. High, near 1, means "
        "that embeddings crowd on one spot; low, near 0.02, that they spread evenly.",
        "crltac",
        "Sec. 5.5",
    ),
    "spectrum_h": Entry(
        "Spectrum of h",
        ("log_spectrum_h", "singular_values_h", "log_singular_values_h"),
        "Singular values of the representations h of augmented images, in order. A slow fall means that many "
        "directions carry variance; a steep fall or a cliff (low values early on), that few do.",
        "cosentino",
        "Fig. 9",
    ),
    "spectrum_h_image": Entry(
        "Spectrum of h, clean images",
        ("log_spectrum_h_image",),
        "Singular values of the representations h of images without augmentation, in order: high up to the last "
        "index means that the images themselves span all of h; low ones, that directions stay unused.",
        "cosentino",
        "Fig. 4",
    ),
    "spectrum_z": Entry(
        "Spectrum of z",
        ("log_spectrum_z", "singular_values_z", "log_singular_values_z"),
        "Singular values of the embeddings z, behind the projector. High up to the last index means that the loss sees "
        "all P dimensions; a cliff, that it sees fewer.",
        "cosentino",
        "Fig. 4 and 9",
    ),
    "projector_spectrum": Entry(
        "Spectrum of the projector",
        ("projector_singular_values", "log_projector_singular_values"),
        "Singular values of the projector's weight W. High ones are directions of h that it passes on, low ones "
        "directions that it discards.",
        "cosentino",
        "Eq. 2",
    ),
    "trajectory": Entry(
        "Alignment against uniformity",
        (),
        "Each point is a readout, from grey (early) to violet (late). Good embeddings move to the lower left; the "
        "lower right corner, where everything coincides, is collapse.",
        "wang",
    ),
    "linear_evaluation": Entry(
        "Linear evaluation",
        (),
        "One linear classifier, trained the same way on each kind of feature. High means linearly separable classes; "
        "what training adds is the distance from the frozen network, whose weights are random.",
        "chen",
    ),
}
ENTRIES |= PROJECTOR_ENTRIES | EQUIVARIANCE_ENTRIES | CHANNEL_ENTRIES | CONTENT_STYLE_ENTRIES
ENTRIES |= DIMENSION_ENTRIES | LAYER_ENTRIES | DYNAMICS_ENTRIES | KERNEL_ENTRIES


def split(name: str) -> tuple[str, str]:
    """Split a logged name into its stage and the rest.

    >>> split("val/loss"), split("lr-SGD")
    (('val', 'loss'), ('', 'lr-SGD'))
    """
    stage, slash, rest = name.partition("/")
    return (stage, rest) if slash and stage in STAGES else ("", name)


@lru_cache(maxsize=4096)
def lookup(name: str) -> Entry | None:
    """Find what is known of a logged name; a layer's rank (`projector_rank_2`) is a projector's rank.

    >>> lookup("train/effective_rank_h").title
    'Effective rank of h (RankMe)'
    """
    base = split(name)[1]
    for entry in ENTRIES.values():
        if base in entry.names or any(base.startswith(f"{known}_") for known in entry.names if "projector" in known):
            return entry
    return None
