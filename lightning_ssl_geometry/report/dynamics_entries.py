"""What is known of clusters, stationary points and steps: Calder & Lee 2025, for what a network adds to the loss."""

__all__ = ["DYNAMICS_ENTRIES"]

from lightning_ssl_geometry.report.entry import Entry

DYNAMICS_ENTRIES = {
    "clusteredness_nmi": Entry(
        "Given clusters found again (NMI)",
        ("clusteredness_nmi",),
        "Normalised mutual information of the given clusters and of those that k-means finds among the embeddings. "
        "High, near 1, means that the embedding is made of the given clusters; low, near 0, that what clusters it has "
        "have nothing to do with them.",
        "calder",
        "Fig. 5 and 6",
        "high",
    ),
    "clusteredness_silhouette": Entry(
        "Silhouette of the given clusters",
        ("clusteredness_silhouette",),
        "How much nearer embeddings are to their own cluster than to the next. High, near 1, means tight clusters that "
        "are far apart; low, 0 and below, that the given clusters overlap.",
        "calder",
        "Fig. 5 and 6",
        "high",
    ),
    "clusteredness_kmeans": Entry(
        "Silhouette of the clusters found",
        ("clusteredness_kmeans_silhouette",),
        "The silhouette of what k-means finds. High, near 1, means an embedding with clusters, be they the given ones "
        "or not; low, that it has none: uniform points have 0.5 on the circle, 0.3 on the sphere in three dimensions "
        "and near 0 in many.",
        "calder",
        "Fig. 5 and 6",
    ),
    "clusteredness_uniformity": Entry(
        "Uniformity, relative to uniform points",
        ("clusteredness_relative_uniformity",),
        "Uniformity as a share of what independent uniform points have. Low, near 0, means that all embeddings "
        "coincide; high, near 1, that they are as uniform as such points, where the loss alone leads, whatever the "
        "data.",
        "calder",
        "Sec. 3",
    ),
    "stationarity": Entry(
        "Gradient along the sphere",
        ("stationarity_tangential",),
        "Size of the loss's first variation along the sphere, per point. Low, near 0, means a stationary point, which "
        "the loss alone would not leave; high, that it would still move the embeddings. A network may come to rest "
        "where this is high.",
        "calder",
        "Prop. 3.1",
    ),
    "stationarity_relative": Entry(
        "Share of the gradient along the sphere",
        ("stationarity_relative",),
        "The same as a share of the whole first variation. Low, near 0, means that what is left of the gradient "
        "presses against the sphere; high, near 1, that all of it moves the embeddings.",
        "calder",
        "Theorem 3.2",
    ),
    "step_invariance_distance": Entry(
        "Distance of views from their sample",
        ("step_invariance_distance",),
        "Mean squared distance between the embeddings of a sample and of its views, as a share of that between two "
        "samples. Low, near 0, means an invariant network; high, near 1, that a view is as far as another sample.",
        "calder",
        "Theorem 4.2",
        "low",
    ),
    "step_invariance_step": Entry(
        "How differently a step moves views",
        ("step_invariance_step",),
        "Difference between how a step of gradient descent moves the embeddings of a sample and of its views, relative "
        "to how far it moves samples. Low, near 0, means that a step keeps them together, as it would points without a "
        "network; high, near 1.4, that it moves them unrelatedly: then the network cannot stay invariant.",
        "calder",
        "Theorem 4.2",
    ),
}
