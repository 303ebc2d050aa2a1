"""What is known of quantities that are measured layer by layer: Guillotine Regularization and others."""

__all__ = ["LAYER_ENTRIES"]

from lightning_ssl_geometry.report.entry import Entry

LAYER_ENTRIES = {
    "layer_effective_rank": Entry(
        "Effective rank by layer (RankMe)",
        (),
        "How many directions each layer uses, from the representation h to the embedding z. High up to z means that "
        "the projector keeps what h has; a fall to low values shows the layer that drops it.",
        "bordes",
    ),
    "layer_alpha_req": Entry(
        "Spectral decay by layer (alpha-ReQ)",
        (),
        "The exponent of a power law through each layer's eigenvalues. Low, near 0, means variance in all directions; "
        "high, above 1, in few.",
        "agrawal",
    ),
    "layer_two_nn": Entry(
        "Intrinsic dimension by layer, TwoNN",
        (),
        "The dimension of each layer's cloud from its two nearest neighbours: low for a thin manifold, high where many "
        "dimensions are filled.",
        "facco",
    ),
    "layer_mle_dimension": Entry(
        "Intrinsic dimension by layer, MLE",
        (),
        "The same by maximum likelihood over more neighbours: low for a thin manifold, high for one of many "
        "dimensions.",
        "levina",
    ),
    "layer_alignment": Entry(
        "Alignment by layer",
        (),
        "Mean squared distance between the normalised outputs of two views: low, near 0, where a layer has become "
        "invariant to augmentations; high, up to 2, where it tells views apart.",
        "wang",
    ),
    "layer_uniformity": Entry(
        "Uniformity by layer",
        (),
        "Log of the mean Gaussian kernel between samples: high, near 0, where a layer's outputs coincide; low, about "
        "\N{MINUS SIGN}4, where they spread evenly.",
        "wang",
    ),
    "layer_label_agreement": Entry(
        "Label agreement by layer",
        (),
        "Share of samples whose most similar other sample has their label. High where a layer keeps classes together; "
        "a fall to low values, near chance, shows the layer that drops them.",
        "cosentino",
        "Fig. 6",
        percent=True,
    ),
    "layer_knn_accuracy": Entry(
        "kNN by layer",
        (),
        "Accuracy of a vote among nearest neighbours in each layer. High before the projector and low behind it is why "
        "its layers are cut off after training; where the highest is in between, cut there.",
        "bordes",
        percent=True,
    ),
    "layer_linear_accuracy": Entry(
        "Linear classifier by layer",
        (),
        "Accuracy of a linear classifier on each layer: high where classes are linearly separable, low where a layer "
        "has dropped what tells them apart.",
        "bordes",
        percent=True,
    ),
    "layer_cka": Entry(
        "CKA between layers",
        ("layer_cka",),
        "Linear CKA between the layers' outputs for the same samples. High, near 1, means the same representation up "
        "to rotation and scale; low, that the layers in between changed it.",
        "kornblith",
    ),
    "model_cka": Entry(
        "CKA between models",
        (),
        "Linear CKA between the models' representations of the same samples. High, near 1, means the same "
        "representation up to rotation and scale, whatever its width; low, near 0, that they have little in common.",
        "kornblith",
    ),
}
