"""What is known of dimensions, decay, isotropy and drift of a representation: the measures of the field."""

__all__ = ["DIMENSION_ENTRIES"]

from lightning_ssl_geometry.report.entry import Entry

DIMENSION_ENTRIES = {
    "lidar": Entry(
        "LiDAR",
        ("lidar", "lidar_h", "lidar_z"),
        "The effective rank of what tells samples apart, in units of what tells the views of one sample apart. Low, "
        "near 1, means that few directions are alive and stable under augmentation; high, up to D, that many are. It "
        "depends on the number of views: compare only what has the same.",
        "thilak",
        "LiDAR",
    ),
    "alpha_req": Entry(
        "Spectral decay (alpha-ReQ)",
        ("alpha_req_alpha", "alpha_req", "alpha_req_h_alpha"),
        "The exponent of a power law through the eigenvalues of the covariance of h, in order. Low, near 0, "
        "means that the variance is spread over all directions; high, above 1, that a few hold it. The paper finds the "
        "best representations near 1.",
        "agrawal",
    ),
    "alpha_req_r2": Entry(
        "Fit of the spectral decay",
        ("alpha_req_r2", "alpha_req_h_r2"),
        "R² of that power law. High, near 1, means that the spectrum is one; low, that it is none, and its exponent "
        "says little.",
        "agrawal",
    ),
    "alpha_req_range": Entry(
        "Range of the fit",
        ("alpha_req_first", "alpha_req_last", "alpha_req_h_first", "alpha_req_h_last"),
        "The first and the last index of the eigenvalues that the power law is fitted to, counted from 1; a low first "
        "and a high last one mean most of the spectrum. Exponents compare only over the same range.",
        "agrawal",
    ),
    "intrinsic_dimension_two_nn": Entry(
        "Intrinsic dimension, TwoNN",
        ("intrinsic_dimension_two_nn", "two_nn"),
        "The dimension of the cloud that representations form, from the distances to their two nearest neighbours. "
        "Low means that they lie near a thin, possibly curved, manifold; high, that they fill many dimensions. In many "
        "dimensions it is too small, more so with few samples.",
        "facco",
    ),
    "intrinsic_dimension_mle": Entry(
        "Intrinsic dimension, MLE",
        ("intrinsic_dimension_mle", "mle_dimension"),
        "The same by maximum likelihood over more neighbours: smoother, and on a coarser scale. Low means a thin "
        "manifold, high one of many dimensions.",
        "levina",
    ),
    "cka_drift_first": Entry(
        "CKA with the first readout",
        ("cka_drift_first",),
        "Linear CKA between the representations of the same samples now and when they were first looked at. High, "
        "near 1, means that they are the same up to rotation and scale; low, that training has made others.",
        "kornblith",
    ),
    "cka_drift_last": Entry(
        "CKA with the readout before",
        ("cka_drift_last",),
        "The same, with the readout before: low while the representation still changes, high, near 1, once it has "
        "settled.",
        "kornblith",
    ),
    "sigreg": Entry(
        "SIGReg's isotropy",
        ("sigreg", "sigreg_h", "sigreg_z"),
        "How far embeddings are from an isotropic Gaussian, as the mean Epps-Pulley statistic of random projections. "
        "Low, near 1, means that they look like one; high, that they have another shape, place or size. It grows with "
        "the number of samples: compare only what has the same.",
        "balestriero",
        best="low",
    ),
}
