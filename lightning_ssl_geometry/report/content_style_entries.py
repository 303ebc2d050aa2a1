"""What is known of content and style: Rusak et al. 2022, and what they build on."""

# ruff: noqa: RUF001  -- people read these texts: a minus is a minus sign

__all__ = ["CONTENT_STYLE_ENTRIES"]

from lightning_ssl_geometry.report.entry import Entry

_SHARE = (
    "How much of the variance of the outputs that hold mostly {0} is explained by a linear map of the {0} latents, as "
    "adjusted R² on other samples. High, near 1, means that they hold nothing else; low, that they mix {0} with {1}."
)

CONTENT_STYLE_ENTRIES = {
    "latent_r2_by_layer": Entry(
        "R² of content and style by layer",
        ("latent_r2_content", "latent_r2_style"),
        "How well a linear map of each layer finds the true latents on samples that it was not fitted on, from the "
        "input (layer 0) to the end of the projector. High, near 1, means that they can be read off; where the line of "
        "style falls and that of content stays high, the layers drop style. A low line for both, or one that falls in "
        "wide layers alone, may mean too few samples for so many directions.",
        "rusak",
        "Fig. 1",
    ),
    "latent_r2_content_z": Entry(
        "R² of content in z",
        ("latent_r2_content_z",),
        "How well a linear map of z finds the content latents, which the views share, on samples that it was not "
        "fitted on. High, near 1, means that they can be read off; low, near 0, that they are gone, or hidden from a "
        "linear map.",
        "rusak",
        "Fig. 1",
        "high",
    ),
    "latent_r2_style_z": Entry(
        "R² of style in z",
        ("latent_r2_style_z",),
        "The same of the style latents, which differ between the views: low where training suppresses them, high where "
        "it keeps them.",
        "rusak",
        "Fig. 1",
        "high",
    ),
    "latent_r2_content_h": Entry(
        "R² of content in h",
        ("latent_r2_content_h",),
        "R² of the content latents before the projector: high, near 1, where a linear map of h finds them; low, near "
        "0, where none does.",
        "rusak",
        "Fig. 1",
        "high",
    ),
    "latent_r2_style_h": Entry(
        "R² of style in h",
        ("latent_r2_style_h",),
        "R² of the style latents before the projector: high beside a low one in z means that the projector takes the "
        "loss of style upon itself.",
        "rusak",
        "Fig. 1",
        "high",
    ),
    "mcc": Entry(
        "Outputs as latents (MCC)",
        ("mcc_mean",),
        "Mean absolute correlation of outputs with true latents, matched one to one as well as can be. High, 1, means "
        "that each output is a latent, up to order, sign and scale; low, that outputs mix latents or lost them.",
        "zimmermann",
        best="high",
    ),
    "mcc_content": Entry(
        "MCC of content",
        ("mcc_content",),
        "The same over the matched latents that are content: high, near 1, where each has an output of its own; low, "
        "where outputs mix them or hold none of them.",
        "zimmermann",
        best="high",
    ),
    "mcc_style": Entry(
        "MCC of style",
        ("mcc_style",),
        "The same over the matched latents that are style: high, near 1, where each has an output of its own; low, "
        "where outputs mix them or hold none of them.",
        "zimmermann",
        best="high",
    ),
    "temperature_auc": Entry(
        "Order of the temperatures",
        ("temperature_order_auc",),
        "Of the pairs of an output that holds content and one that holds style, how many have the lower temperature on "
        "content; equal ones count half. High, 1, is the order that keeps style; 0.5 none; low, 0, the opposite.",
        "rusak",
        "Prop. 3",
        "high",
    ),
    "temperature_content_share": Entry(
        "Content in outputs of content",
        ("temperature_order_content_share",),
        _SHARE.format("content", "style"),
        "rusak",
        "Sec. 4.1",
        "high",
    ),
    "temperature_style_share": Entry(
        "Style in outputs of style",
        ("temperature_order_style_share",),
        _SHARE.format("style", "content"),
        "rusak",
        "Sec. 4.1",
        "high",
    ),
    "temperature_content_outputs": Entry(
        "Outputs that hold content",
        ("temperature_order_content_outputs",),
        "How many outputs are explained by the content latents better than by the style latents: high, all that vary, "
        "where style is suppressed; low, where outputs hold style. Outputs that are constant do not count.",
        "rusak",
        "Sec. 4.1",
    ),
    "dimension_temperature": Entry(
        "Temperature of each dimension",
        ("dimension_temperature",),
        "The temperature by which the loss divides each dimension of the embedding. Low ones weigh their dimension "
        "more: content is to have lower temperatures than style, whose positive pairs differ.",
        "rusak",
        "Prop. 3",
    ),
    "gradient_spectrum": Entry(
        "Spectrum of the gradient",
        ("gradient_spectrum_singular_values",),
        "Singular values of the InfoNCE gradient of a linear encoder on these representations: their covariance less "
        "that of the differences between views. High ones belong to directions that views share (content), low ones to "
        "those that differ (style), which learn slowly; a cliff stands between the two.",
        "rusak",
        "Eq. 5",
    ),
    "gradient_ratio": Entry(
        "Change between views, by direction",
        ("gradient_spectrum_ratio",),
        "Variance of the difference between views in units of the variance, in order: low, 0, for directions of exact "
        "content; high, 2, for those in which the views have nothing in common.",
        "rusak",
        "Prop. 2",
    ),
    "content_dimension": Entry(
        "Content dimensions in the gradient",
        ("gradient_spectrum_content_dimension",),
        "How many directions stand before the steepest rise of the change between views: the number of content "
        "dimensions. Low, 0, means that no direction stands out; high, that many are the same in both views.",
        "rusak",
        "Prop. 2",
    ),
    "loss_align": Entry(
        "Alignment term",
        ("loss_terms_align",),
        "Minus the mean similarity of the two views, divided by the temperature. Low means that the views agree; high, "
        "that they are far apart.",
        "rusak",
        "Table 1",
    ),
    "loss_uniform": Entry(
        "Uniformity term",
        ("loss_terms_uniform",),
        "Mean logarithm of the sum over the other samples of the exponential similarity. Low means that samples are "
        "spread; high, up to the logarithm of their number for distances, that they coincide.",
        "rusak",
        "Table 1",
    ),
    "loss_total": Entry(
        "Both terms",
        ("loss_terms_total",),
        "Their sum, InfoNCE without the positive pair in its denominator, which training lowers. A representation that "
        "has collapsed to content can have a lower value than the true latents.",
        "rusak",
        "Table 1",
        "low",
    ),
    "output_weights": Entry(
        "Weights of the outputs",
        ("output_weights_weight",),
        "Mean absolute weight of each output channel of a layer. Low ones, near 0, are outputs that weight decay has "
        "shut down, as no loss looks at them; high ones are in use.",
        "rusak",
        "Fig. 4",
    ),
    "output_weights_used": Entry(
        "Weights inside of the subvector",
        ("output_weights_used",),
        "Mean absolute weight of the outputs that the loss looks at. Low, near 0, means that they are shut down, too.",
        "rusak",
        "Fig. 4",
    ),
    "output_weights_unused": Entry(
        "Weights outside of it",
        ("output_weights_unused",),
        "The same of the outputs that it does not look at: low, near 0, once weight decay has shut them down; high, "
        "like the others, as long as it has not.",
        "rusak",
        "Fig. 4",
    ),
    "within_class": Entry(
        "Spread within classes",
        ("neural_collapse_within_class",),
        "Covariance within classes in units of that between them. Low, near 0, means that all that varies within a "
        "class is lost; high, that classes overlap.",
        "papyan",
        "NC1",
    ),
    "equinorm": Entry(
        "Lengths of class means",
        ("neural_collapse_equinorm",),
        "Deviation of the lengths of the class means as a share of their mean. Low, 0, means that all classes are "
        "equally far from the centre; high, that some stand out.",
        "papyan",
        "NC2",
    ),
    "equiangularity": Entry(
        "Angles of class means",
        ("neural_collapse_equiangularity",),
        "Deviation of the cosines between class means. Low, 0, means that all classes stand at one angle; high, that "
        "some are close and others opposite.",
        "papyan",
        "NC2",
    ),
    "simplex": Entry(
        "Distance to the simplex",
        ("neural_collapse_simplex",),
        "How far the cosines between class means are from −1 / (C − 1), the smallest that C classes can all have. "
        "Low, 0, is the simplex that minimises contrastive losses of labelled classes; high means classes on few "
        "directions.",
        "papyan",
        "NC2",
    ),
}
