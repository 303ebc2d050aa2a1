"""What is known of the neural kernel: Calder & Lee 2025, for what a network adds to gradient descent."""

__all__ = ["KERNEL_ENTRIES"]

from lightning_ssl_geometry.report.entry import Entry


def _names(value: str) -> tuple[str, ...]:
    return tuple(f"neural_kernel{output}_{value}" for output in ("", "_h", "_z"))


KERNEL_ENTRIES = {
    "neural_kernel_within": Entry(
        "Neural kernel within classes",
        _names("within"),
        "Cosine of the gradients of two samples of one class, which says how far a training step on one moves the "
        "other along. High, near 1, means that a class moves as one; low, near 0, that each sample moves by itself, as "
        "points without a network do.",
        "calder",
        "Eq. 12",
    ),
    "neural_kernel_between": Entry(
        "Neural kernel between classes",
        _names("between"),
        "The same for two samples of different classes. Low, near 0, means that classes move independently, as "
        "clusters with orthogonal centers do; high, as within classes, that the network does not know the classes.",
        "calder",
        "Theorem 4.5",
    ),
    "neural_kernel_alignment": Entry(
        "Alignment of the neural kernel with the labels",
        _names("alignment"),
        "Centred cosine between the kernel and that of the labels. High, near 1, means that the classes are all that "
        "training steps tell apart; low, near 0, that they have nothing to do with the classes.",
        "cristianini",
        "Definition 1",
    ),
    "neural_kernel_rank": Entry(
        "Effective rank of the neural kernel",
        _names("effective_rank"),
        "The exponential of the entropy of the kernel's eigenvalues. Low, near 1, means that a step on any sample "
        "moves all alike; high, up to the number of samples, that each moves by itself, as without a network.",
        "calder",
        "Eq. 12",
    ),
    "neural_kernel_drift": Entry(
        "Drift of the neural kernel",
        _names("drift"),
        "1 minus the cosine between the kernel now and when it was first looked at. Low, near 0, means training in a "
        "fixed kernel, as of infinitely wide networks; high, up to 1, that the network has learned another one.",
        "fort",
    ),
    "neural_kernel_spectrum": Entry(
        "Spectrum of the neural kernel",
        _names("spectrum"),
        "Eigenvalues of the kernel, as shares of their sum. A few high ones mean that training moves samples along few "
        "patterns, and these fast; low ones are patterns that it hardly learns.",
        "calder",
        "Eq. 12",
    ),
    "neural_kernel_blocks": Entry(
        "Neural kernel by class",
        _names("blocks"),
        "Mean cosine of the gradients of samples of every two classes. High on the diagonal and low beside it means a "
        "kernel of blocks, in which classes move as one and each by itself.",
        "calder",
        "Theorem 4.5",
    ),
}
