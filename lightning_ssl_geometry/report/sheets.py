"""Which scalars stand together in a figure, on the page of a run and in a comparison of groups of runs."""

__all__ = ["SECTIONS", "SHEETS", "Sheet", "Wanted"]

from dataclasses import dataclass
from typing import Literal

from lightning_ssl_geometry.plots import Dash


@dataclass(frozen=True)
class Wanted:
    """A quantity of a figure.

    Attributes:
        key: Its glossary entry.
        name: What its lines are called, where there are several quantities.
        color: On the page of a run, a key of `plots.COLORS`.
        dash: In a comparison, where colours tell groups apart.
        baseline: What the quantity would be without structure: dotted and grey, drawn once where data agree.
        compared: Whether a comparison has it.
    """

    key: str
    name: str = ""
    color: str = "violet"
    dash: Dash = "solid"
    baseline: bool = False
    compared: bool = True


@dataclass(frozen=True)
class Sheet:
    """A figure of scalars over training.

    Attributes:
        name: Good for a file name.
        title: Above it.
        ylabel: At its axis.
        wanted: The quantities, first the one that it is about.
        floor: Where the vertical axis starts.
        where: On the page of a run, in a comparison, or on both.
    """

    name: str
    title: str
    ylabel: str
    wanted: tuple[Wanted, ...]
    floor: float | None = None
    where: Literal["run", "groups", "both"] = "both"


SECTIONS = {  # the order of both pages
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
    "other": "Other diagnostics",
}


def _against(key: str, name: str, baseline: str, word: str, color: str = "blue") -> tuple[Wanted, Wanted]:
    """A quantity beside what it would be without structure."""
    return Wanted(key, name, color), Wanted(baseline, word, "muted", "dotted", baseline=True)


def _by_group(key: str) -> tuple[Wanted, ...]:
    """A quantity for the groups that it was observed for."""
    return (
        Wanted(key),
        Wanted(f"{key}_rotation", "rotation", "blue"),
        Wanted(f"{key}_translation", "translation", "green", "dashed"),
        Wanted(f"{key}_scale", "scale", "orange", "dotted"),
    )


_LEARNING = (
    Sheet("loss", "Loss", "loss", (Wanted("loss"),)),
    Sheet("upper_bound", "InfoNCE and its upper bound", "nats",
          (Wanted("info_nce", "InfoNCE", "blue"),
           Wanted("entropy_form", "exact form", "green", compared=False),
           Wanted("upper_bound", "bound", "orange", "dashed"))),
    Sheet("bound_terms", "Terms of InfoNCE and its bound", "cosine",
          (Wanted("invariance", "invariance", "blue"),
           Wanted("repulsion", "repulsion", "orange", "dashed"),
           Wanted("expectation", "expected", "green", "dotted"))),
    Sheet("momentum", "Momentum of the target", "share kept", (Wanted("momentum", color="green"),)),
    Sheet("bound_entropy", "Entropy of the negatives", "nats", (Wanted("entropy", color="green"),)),
)  # fmt: skip
_PROBES = (
    Sheet("probes", "Probes during training", "accuracy, %",
          (Wanted("linear_probe", "linear", "blue"), Wanted("knn_probe", "kNN", "green"),
           Wanted("classifier", "classifier", "orange", "dashed")), where="run"),
    Sheet("classifier", "Classifier", "accuracy, %", (Wanted("classifier"),), where="groups"),
    Sheet("linear_probe", "Linear probe", "accuracy, %", (Wanted("linear_probe"),), where="groups"),
    Sheet("knn_probe", "kNN probe", "accuracy, %", (Wanted("knn_probe"),), where="groups"),
)  # fmt: skip
_RANKS = (
    Sheet("effective_rank", "Effective rank", "directions",
          (Wanted("effective_rank_h", "h", "blue"), Wanted("effective_rank_z", "z", "orange", "dashed")), 0.0),
    Sheet("projector_rank", "Projector rank", "directions", (Wanted("projector_rank", color="green"),), 0.0),
    Sheet("lidar", "LiDAR", "directions", (Wanted("lidar", color="violet"),), 0.0),
    Sheet("alpha_req", "Spectral decay (alpha-ReQ)", "exponent", (Wanted("alpha_req", color="blue"),)),
    Sheet("alpha_req_r2", "Fit of the spectral decay", "R²", (Wanted("alpha_req_r2", color="blue"),)),
    Sheet("intrinsic_dimension", "Intrinsic dimension", "dimensions",
          (Wanted("intrinsic_dimension_two_nn", "TwoNN", "blue"),
           Wanted("intrinsic_dimension_mle", "MLE", "green", "dashed")), 0.0),
)  # fmt: skip
_AUGMENTATIONS = (
    Sheet("augmentation_rank", "Rank of the augmentations", "directions",
          (Wanted("augmentation_rank", color="blue"),), 0.0),
    Sheet("null_space", "Augmentations ignored by the projector", "share",
          _against("null_space", "ignored", "null_space_isotropic", "isotropic"), 0.0),
    Sheet("unexplained_variance", "Unexplained variance", "share",
          _against("unexplained_variance", "unexplained", "unexplained_variance_isotropic", "isotropic"), 0.0),
    Sheet("unexplained_variance_tau", "Unexplained variance at a threshold", "share",
          _against("unexplained_variance_tau", "unexplained", "unexplained_variance_tau_isotropic", "isotropic"), 0.0),
    Sheet("local_unexplained_variance", "Unexplained variance, per linear region", "share",
          _against("local_unexplained_variance", "unexplained", "local_unexplained_variance_isotropic", "isotropic",
                   "green"), 0.0),
    Sheet("local_unexplained_variance_tau", "The same at a threshold, per region", "share",
          _against("local_unexplained_variance_tau", "unexplained", "local_unexplained_variance_tau_isotropic",
                   "isotropic", "green"), 0.0),
    Sheet("jacobian_rank", "Rank of the projector's Jacobian", "directions",
          (Wanted("jacobian_rank", color="green"),), 0.0),
    Sheet("linear_regions", "Linear regions of the projector", "regions per sample, %",
          (Wanted("linear_regions", color="green"),), 0.0),
    Sheet("linear_regions_visited", "Linear regions visited", "regions",
          (Wanted("linear_regions_visited", color="green"),), 0.0),
    Sheet("lie_r2", "Transformation strength recovered from h", "R²",
          _against("lie_r2", "fitted", "lie_r2_shuffled", "shuffled", "violet")),
    Sheet("lie_null_space", "Generator ignored by the projector", "share",
          _against("lie_null_space", "ignored", "lie_null_space_isotropic", "isotropic", "violet"), 0.0),
)  # fmt: skip
_CHANNEL = (
    Sheet("non_empty", "Probability of views that show something", "probability",
          _against("non_empty", "learned", "non_empty_uniform", "uniform", "violet"), 0.0),
    Sheet("policy_entropy", "Entropy of the policy", "nats", (Wanted("policy_entropy", color="green"),), 0.0),
    Sheet("policy_loss", "Loss of the policy", "loss", (Wanted("policy_loss", color="orange"),)),
)  # fmt: skip
_NEIGHBORS = (
    Sheet("hardest_negative_distance", "Distance to the hardest negative", "distance of unit vectors, 0 to 2",
          (Wanted("hardest_negative_distance", "to h*", "blue"),
           Wanted("hardest_negative_pair", "to h2", "orange", "dashed")), 0.0),
    Sheet("label_agreement", "Label shared with the hardest negative", "samples, %",
          (Wanted("label_agreement", "fine", "blue"),
           Wanted("label_agreement_coarse", "coarse", "green", "dashed"),
           Wanted("label_agreement_chance", "chance, fine", "muted", "dotted", baseline=True),
           Wanted("label_agreement_coarse_chance", "chance, coarse", "muted", "dashdot", baseline=True)), 0.0),
    Sheet("within_class", "Spread within classes", "of that between classes", (Wanted("within_class"),)),
    Sheet("neural_collapse", "Class means and the simplex", "deviation",
          (Wanted("simplex", "simplex"), Wanted("equiangularity", "angles", "green", "dashed"),
           Wanted("equinorm", "lengths", "orange", "dotted")), 0.0),
)  # fmt: skip
_EQUIVARIANCE = (
    # no floor: beside an exact group, whose error is rounding, they are drawn on a logarithmic axis
    Sheet("equivariance", "Equivariance error", "squared relative error", _by_group("equivariance")),
    Sheet("group_invariance", "Invariance error of h", "share of the distance of images",
          _by_group("group_invariance")),
    Sheet("loss_gap", "A-SSL's loss beside H-SSL's", "loss",
          (Wanted("loss_gap_a_ssl", "A-SSL", "blue"), Wanted("loss_gap_h_ssl", "H-SSL", "orange", "dashed"))),
    Sheet("loss_gap_similarity", "Embeddings of A-SSL beside H-SSL's", "mean cosine",
          (Wanted("loss_gap_similarity"),)),
)  # fmt: skip
_POTENTIAL = Sheet("gaussian_potential", "Gaussian potential", "mean kernel", (Wanted("gaussian_potential"),))
_HYPERSPHERE = (
    Sheet("alignment", "Alignment", "mean squared distance", (Wanted("alignment"),), where="groups"),
    Sheet("uniformity", "Uniformity", "log of the mean kernel", (Wanted("uniformity"),), where="groups"),
    _POTENTIAL,
    Sheet("gaussian_potential_image", "Gaussian potential, clean images", "mean kernel",
          (Wanted("gaussian_potential_image"),), 0.0),
    Sheet("sigreg", "SIGReg", "statistic", (Wanted("sigreg", color="green"),), 0.0),
)  # fmt: skip
_CHANGE = (
    Sheet("cka_drift", "CKA with earlier readouts", "linear CKA",
          (Wanted("cka_drift_first", "first", "blue"), Wanted("cka_drift_last", "one before", "orange", "dashed")),
          0.0),
)  # fmt: skip
_DYNAMICS = (
    Sheet("clusteredness", "Clusters against uniformity", "score",
          (Wanted("clusteredness_nmi", "NMI", "blue"),
           Wanted("clusteredness_silhouette", "silhouette", "green", "dashed"),
           Wanted("clusteredness_kmeans", "of k-means", "violet", "dotted"),
           Wanted("clusteredness_uniformity", "uniformity", "orange", "dashdot"))),
    Sheet("stationarity", "Gradient along the sphere", "size per point", (Wanted("stationarity"),), 0.0),
    Sheet("stationarity_relative", "Share of the gradient along the sphere", "share",
          (Wanted("stationarity_relative"),), 0.0),
    Sheet("step_invariance_distance", "Distance of views from their sample", "of that between samples",
          (Wanted("step_invariance_distance", color="green"),), 0.0),
    Sheet("step_invariance", "How differently a step moves views", "relative to the samples' moves",
          (Wanted("step_invariance_step", color="green"),), 0.0),
    Sheet("neural_kernel", "Neural kernel and classes", "cosine",
          (Wanted("neural_kernel_within", "within", "blue"),
           Wanted("neural_kernel_between", "between", "orange", "dashed"),
           Wanted("neural_kernel_alignment", "alignment", "green", "dotted"))),
    Sheet("neural_kernel_rank", "Effective rank of the neural kernel", "patterns",
          (Wanted("neural_kernel_rank"),), 0.0),
    Sheet("neural_kernel_drift", "Drift of the neural kernel", "1 \N{MINUS SIGN} cosine with the first",
          (Wanted("neural_kernel_drift"),), 0.0),
)  # fmt: skip
_CONTENT_STYLE = (
    Sheet("latent_r2_z", "R² of content and style in z", "adjusted R²",
          (Wanted("latent_r2_content_z", "content", "blue"),
           Wanted("latent_r2_style_z", "style", "orange", "dashed")), 0.0),
    Sheet("latent_r2_h", "R² of content and style in h", "adjusted R²",
          (Wanted("latent_r2_content_h", "content", "blue"),
           Wanted("latent_r2_style_h", "style", "orange", "dashed")), 0.0),
    Sheet("mcc", "Outputs as latents (MCC)", "mean correlation",
          (Wanted("mcc", "all"), Wanted("mcc_content", "content", "blue", "dashed"),
           Wanted("mcc_style", "style", "orange", "dotted")), 0.0),
    Sheet("loss_terms", "Alignment and uniformity terms of the loss", "nats",
          (Wanted("loss_total", "both"), Wanted("loss_align", "alignment", "blue", "dashed"),
           Wanted("loss_uniform", "uniformity", "orange", "dotted"))),
    Sheet("content_dimension", "Content dimensions in the gradient", "directions",
          (Wanted("content_dimension", color="violet"),), 0.0),
    Sheet("temperature_order", "Order of the temperatures", "share of pairs",
          (Wanted("temperature_auc", color="green"),), 0.0),
    Sheet("temperature_shares", "Outputs explained by latents of their kind", "adjusted R²",
          (Wanted("temperature_content_share", "content", "blue"),
           Wanted("temperature_style_share", "style", "orange", "dashed")), 0.0),
    Sheet("content_outputs", "Outputs that hold content", "outputs",
          (Wanted("temperature_content_outputs", color="blue"),), 0.0),
    Sheet("output_weights_split", "Weights in and outside of the subvector", "mean absolute weight",
          (Wanted("output_weights_used", "inside", "blue"),
           Wanted("output_weights_unused", "outside", "orange", "dashed")), 0.0),
)  # fmt: skip

SHEETS = {
    "learning": _LEARNING,
    "probes": _PROBES,
    "ranks": _RANKS,
    "augmentations": _AUGMENTATIONS,
    "channel": _CHANNEL,
    "neighbors": _NEIGHBORS,
    "equivariance": _EQUIVARIANCE,
    "content_style": _CONTENT_STYLE,
    "hypersphere": _HYPERSPHERE,
    "dynamics": _DYNAMICS,
    "change": _CHANGE,
}
