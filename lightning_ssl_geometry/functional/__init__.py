"""Every equation as a pure function, Tensor -> Tensor."""

__all__ = [
    "alignment",
    "counter_hash",
    "counter_uniform",
    "effective_rank",
    "gaussian_potential",
    "hardest_negative",
    "info_nce",
    "info_nce_upper_bound",
    "log_singular_values",
    "numerical_rank",
    "uniformity",
]

from lightning_ssl_geometry.functional.contrastive import hardest_negative, info_nce, info_nce_upper_bound
from lightning_ssl_geometry.functional.counter import counter_hash, counter_uniform
from lightning_ssl_geometry.functional.hypersphere import alignment, gaussian_potential, uniformity
from lightning_ssl_geometry.functional.spectrum import effective_rank, log_singular_values, numerical_rank
