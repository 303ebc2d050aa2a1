"""Equations as pure functions; arguments outside the documented shapes, dtypes or ranges raise a ValueError."""

__all__ = [
    "CALDER_LEE",
    "CALDER_LEE_INVARIANT",
    "CL_ICA",
    "COSENTINO",
    "CRL_TAC",
    "KELLER",
    "NT_XENT",
    "RUSAK",
    "Dot",
    "FiberGroup",
    "InfoNCEForm",
    "LpDistance",
    "Similarity",
    "SquaredDistance",
    "activation_pattern",
    "affine_map",
    "alignment",
    "alignment_uniformity_terms",
    "alpha_req",
    "augmentation_channel_loss",
    "base_spaces",
    "byol",
    "byol_momentum",
    "byol_prediction_error",
    "chance_agreement",
    "cka_between",
    "cka_by_chance",
    "cka_matrix",
    "cka_or_nan",
    "class_blocks",
    "class_mean_cosine",
    "cluster_rates",
    "clustered_flow",
    "clusteredness",
    "content_dimension",
    "content_style_temperature",
    "counter_hash",
    "counter_uniform",
    "draw_members",
    "effective_rank",
    "epps_pulley",
    "equalizing_temperature",
    "equivariance_error",
    "exact_channel_loss",
    "feature_map",
    "fiber_bundle",
    "first_variation",
    "gaussian_potential",
    "generalized_normal",
    "gradient_spectrum",
    "hardest_negative",
    "infinite_width_kernel",
    "info_nce",
    "info_nce_entropy",
    "info_nce_upper_bound",
    "invariance_error",
    "kernel_cosine",
    "kernel_flow",
    "kernel_target_alignment",
    "kmeans",
    "label_agreement",
    "latent_r2",
    "leading_share",
    "lidar",
    "lie_action",
    "lie_generator",
    "lie_strength",
    "linear_cka",
    "linear_regions",
    "local_unexplained_variance",
    "log_bilinear_info_nce",
    "log_singular_values",
    "mean_correlation",
    "mean_cosine",
    "mle_dimension",
    "modality_gap",
    "modality_gap_by_chance",
    "modality_gap_share",
    "nearby_bases",
    "neural_collapse",
    "neural_kernel",
    "neural_kernel_trace",
    "normalized_distance",
    "normalized_kernel",
    "null_space_fraction",
    "numerical_rank",
    "one_hidden_layer_kernel",
    "one_parameter_action",
    "output_velocity",
    "participation_ratio",
    "policy_entropy",
    "principal_angles",
    "principal_components",
    "projection_alignment",
    "projector_gain",
    "quarter_turn",
    "rescale",
    "rotate",
    "rotation_rank",
    "score_function_loss",
    "second_variation",
    "sigreg",
    "silhouette",
    "step_invariance_error",
    "tangential_gradient",
    "topographic_distance",
    "translate",
    "two_nn_dimension",
    "unexplained_variance",
    "uniform_sphere",
    "uniform_uniformity",
    "uniformity",
    "variance_effective_rank",
    "variational_loss",
    "vicreg",
    "vicreg_terms",
    "von_mises_fisher",
]

from lightning_ssl_geometry.deprecation import old_names
from lightning_ssl_geometry.functional.adaptive_temperature import (
    content_dimension,
    content_style_temperature,
    equalizing_temperature,
    gradient_spectrum,
)
from lightning_ssl_geometry.functional.alpha_req import alpha_req
from lightning_ssl_geometry.functional.augmentation_channel import (
    augmentation_channel_loss,
    draw_members,
    policy_entropy,
)
from lightning_ssl_geometry.functional.byol import byol, byol_momentum, byol_prediction_error
from lightning_ssl_geometry.functional.cka import cka_between, cka_by_chance, cka_matrix, cka_or_nan, linear_cka
from lightning_ssl_geometry.functional.clusteredness import clusteredness, kmeans, silhouette, uniform_uniformity
from lightning_ssl_geometry.functional.groups.action import quarter_turn, rescale, translate
from lightning_ssl_geometry.functional.groups.equivariance import equivariance_error, invariance_error
from lightning_ssl_geometry.functional.groups.fibers import (
    FiberGroup,
    base_spaces,
    feature_map,
    fiber_bundle,
    nearby_bases,
    topographic_distance,
)
from lightning_ssl_geometry.functional.groups.lie import lie_action, lie_generator, lie_strength
from lightning_ssl_geometry.functional.groups.one_parameter import one_parameter_action
from lightning_ssl_geometry.functional.groups.rotation import rotate, rotation_rank
from lightning_ssl_geometry.functional.hypersphere import alignment, gaussian_potential, uniformity
from lightning_ssl_geometry.functional.info_nce.forms import (
    CALDER_LEE,
    CALDER_LEE_INVARIANT,
    CL_ICA,
    COSENTINO,
    CRL_TAC,
    KELLER,
    NT_XENT,
    RUSAK,
    InfoNCEForm,
)
from lightning_ssl_geometry.functional.info_nce.log_bilinear import log_bilinear_info_nce
from lightning_ssl_geometry.functional.info_nce.loss import info_nce
from lightning_ssl_geometry.functional.info_nce.similarity import Dot, LpDistance, Similarity, SquaredDistance
from lightning_ssl_geometry.functional.info_nce.terms import alignment_uniformity_terms
from lightning_ssl_geometry.functional.info_nce.upper_bound import (
    hardest_negative,
    info_nce_entropy,
    info_nce_upper_bound,
)
from lightning_ssl_geometry.functional.intrinsic_dimension import mle_dimension, two_nn_dimension
from lightning_ssl_geometry.functional.latent_r2 import latent_r2
from lightning_ssl_geometry.functional.lidar import lidar
from lightning_ssl_geometry.functional.matching import mean_correlation
from lightning_ssl_geometry.functional.mean_cosine import class_mean_cosine, mean_cosine
from lightning_ssl_geometry.functional.modality_gap import modality_gap, modality_gap_by_chance, modality_gap_share
from lightning_ssl_geometry.functional.neighbors import chance_agreement, label_agreement, normalized_distance
from lightning_ssl_geometry.functional.neural_collapse import neural_collapse
from lightning_ssl_geometry.functional.neural_kernel.alignment import (
    class_blocks,
    kernel_cosine,
    kernel_target_alignment,
    normalized_kernel,
)
from lightning_ssl_geometry.functional.neural_kernel.closed_forms import (
    cluster_rates,
    clustered_flow,
    infinite_width_kernel,
    one_hidden_layer_kernel,
)
from lightning_ssl_geometry.functional.neural_kernel.kernel import kernel_flow, neural_kernel, neural_kernel_trace
from lightning_ssl_geometry.functional.output_velocity import output_velocity, step_invariance_error
from lightning_ssl_geometry.functional.piecewise_affine import (
    activation_pattern,
    affine_map,
    linear_regions,
    local_unexplained_variance,
)
from lightning_ssl_geometry.functional.policy_gradient import exact_channel_loss, score_function_loss
from lightning_ssl_geometry.functional.principal_components import principal_components
from lightning_ssl_geometry.functional.sigreg import epps_pulley, sigreg
from lightning_ssl_geometry.functional.spectrum import effective_rank, log_singular_values, numerical_rank
from lightning_ssl_geometry.functional.tangent import (
    null_space_fraction,
    principal_angles,
    projection_alignment,
    projector_gain,
    unexplained_variance,
)
from lightning_ssl_geometry.functional.variance_rank import (
    leading_share,
    participation_ratio,
    variance_effective_rank,
)
from lightning_ssl_geometry.functional.variational.loss import first_variation, tangential_gradient, variational_loss
from lightning_ssl_geometry.functional.variational.second_variation import second_variation
from lightning_ssl_geometry.functional.vicreg import vicreg, vicreg_terms
from lightning_ssl_geometry.random import (
    counter_hash,
    counter_uniform,
    generalized_normal,
    uniform_sphere,
    von_mises_fisher,
)

__getattr__ = old_names(
    __name__,
    {"velocity": "output_velocity", "tangential": "tangential_gradient", "prediction_error": "byol_prediction_error"},
)
