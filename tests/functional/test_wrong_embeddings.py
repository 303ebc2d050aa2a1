"""Every function of embeddings refuses numpy arrays, integer tensors and other numbers of axes, and says why."""

import inspect
import re

import pytest
import torch
from torch import nn

from lightning_ssl_geometry import functional as F

N, D = 12, 3


def rows(*shape):
    return torch.randn(*(shape or (N, D)), generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64)


def two(first="z1", second="z2"):
    return lambda: {first: rows(), second: rows() + 0.5 * rows().flip(0)}


def one(name="h", **rest):
    return lambda: {name: rows()} | {key: value() for key, value in rest.items()}


def labels():
    return torch.arange(N) % 3


def projector():
    return nn.Sequential(nn.Linear(D, 5), nn.ReLU(), nn.Linear(5, 2)).double()


# name -> (makes valid arguments, names of the embeddings, numbers of axes that they may have)
CALLS = {
    "activation_pattern": (one(projector=projector), "h", {2}),
    "affine_map": (one(projector=projector), "h", {2}),
    "alignment": (two(), "z1 z2", {2}),
    "alignment_uniformity_terms": (two(), "z1 z2", {2}),
    "alpha_req": (one(), "h", {2, 3}),
    "augmentation_channel_loss": (lambda: {"z": rows(4, 3, D)}, "z", {3}),
    "byol": (lambda: {name: rows() for name in ("q1", "q2", "z1", "z2")}, "q1 q2 z1 z2", {2}),
    "byol_prediction_error": (two("q", "z"), "q z", {2}),
    "cka_between": (lambda: {"a": [rows()], "b": [rows()]}, "", {2}),
    "cka_matrix": (lambda: {"h": [rows(), rows()]}, "", {2}),
    "cka_or_nan": (lambda: {"h": [rows(), rows()]}, "", {2}),
    "class_mean_cosine": (one(label=labels), "h", {2}),
    "clusteredness": (one("z", label=labels), "z", {2}),
    "content_dimension": (two("x1", "x2"), "x1 x2", {2}),
    "effective_rank": (one(), "h", {2, 3}),
    "epps_pulley": (lambda: {"x": rows(N)}, "x", {1, 2, 3, 4}),
    "exact_channel_loss": (lambda: {"z": rows(N, 4, D), "log_policy": rows(N, 4)}, "z", {3}),
    "first_variation": (two(), "z1 z2", {2}),
    "gaussian_potential": (one("z"), "z", {2}),
    "gradient_spectrum": (two("x1", "x2"), "x1 x2", {2}),
    "hardest_negative": (two(), "z1 z2", {2}),
    "infinite_width_kernel": (one("x"), "x", {2}),
    "info_nce": (two(), "z1 z2", {2}),
    "info_nce_entropy": (two(), "z1 z2", {2}),
    "info_nce_upper_bound": (two(), "z1 z2", {2}),
    "invariance_error": (two("h", "h_moved"), "h h_moved", {2}),
    "kmeans": (one("z", clusters=lambda: 2), "z", {2}),
    "latent_r2": (lambda: {"h": rows(), "z": rows(N, 2)}, "h z", {2}),
    "leading_share": (one(), "h", {2, 3}),
    "lidar": (lambda: {"h": rows(2, N, D)}, "h", {3}),
    "lie_generator": (lambda: two("h1", "h2")() | {"strength": rows(N)}, "h1 h2", {2}),
    "lie_strength": (lambda: two("h1", "h2")() | {"generator": rows(D, D)}, "h1 h2", {2}),
    "lie_action": (lambda: {"generator": rows(D, D), "h": rows(), "strength": rows(N)}, "h", {2}),
    "linear_cka": (two("a", "b"), "a b", {2}),
    "linear_regions": (one(projector=projector), "h", {2}),
    "local_unexplained_variance": (lambda: {"delta": rows(), "weight": rows(N, D, 2)}, "delta", {2}),
    "log_bilinear_info_nce": (lambda: two()() | {"weight": torch.eye(D).double()}, "z1 z2", {2}),
    "log_singular_values": (one(), "h", {2, 3}),
    "mean_correlation": (two("z", "latent"), "z latent", {2}),
    "mean_cosine": (one(), "h", {2}),
    "mle_dimension": (one(neighbors=lambda: 4), "h", {2}),
    "modality_gap": (two(), "z1 z2", {2}),
    "modality_gap_by_chance": (two(), "z1 z2", {2}),
    "modality_gap_share": (two(), "z1 z2", {2}),
    "neural_collapse": (one(label=labels), "h", {2}),
    "normalized_distance": (two("a", "b"), "a b", {2}),
    "null_space_fraction": (lambda: {"direction": rows(), "weight": rows(D, 2)}, "direction", {2}),
    "numerical_rank": (lambda: {"matrix": rows(), "tau": 0.5}, "matrix", {2, 3, 4}),
    "participation_ratio": (one(), "h", {2, 3}),
    "principal_angles": (lambda: {"a": rows()[:, :2], "b": rows(N, 2)}, "a b", {2}),
    "principal_components": (one(), "h", {2}),
    "projection_alignment": (lambda: two("h", "delta")() | {"weight": rows(D, 2)}, "h delta", {2}),
    "projector_gain": (lambda: {"direction": rows(), "weight": rows(D, 2)}, "direction", {2}),
    "score_function_loss": (lambda: {"z": rows(4, 3, D), "log_probability": rows(4, 3)}, "z", {3}),
    "second_variation": (two("z", "direction"), "z direction", {2}),
    "sigreg": (one(), "h", {2}),
    "silhouette": (one("z", label=labels), "z", {2}),
    "step_invariance_error": (lambda: {"at": rows(), "moved": rows(2, N, D)}, "at", {2}),
    "tangential_gradient": (two("z", "vector"), "z vector", {1, 2, 3, 4}),
    "two_nn_dimension": (one(), "h", {2}),
    "unexplained_variance": (lambda: {"delta": rows(), "weight": rows(D, 2)}, "delta", {2}),
    "uniformity": (one("z"), "z", {2}),
    "variance_effective_rank": (one(), "h", {2, 3}),
    "variational_loss": (two(), "z1 z2", {2}),
    "vicreg": (two(), "z1 z2", {2}),
    "vicreg_terms": (two(), "z1 z2", {2}),
}
# They take labels, images, kernels, probabilities, group elements or numbers, but no embeddings (N, D).
OTHERS = """
base_spaces byol_momentum chance_agreement cka_by_chance class_blocks cluster_rates clustered_flow
content_style_temperature counter_hash counter_uniform draw_members equalizing_temperature equivariance_error
feature_map fiber_bundle generalized_normal kernel_cosine kernel_flow kernel_target_alignment label_agreement
nearby_bases neural_kernel neural_kernel_trace normalized_kernel one_hidden_layer_kernel one_parameter_action
output_velocity policy_entropy quarter_turn rescale rotate rotation_rank topographic_distance translate uniform_sphere
uniform_uniformity von_mises_fisher
"""
ARGUMENTS = [(name, argument) for name, (_, arguments, _) in CALLS.items() for argument in arguments.split()]


def test_every_function_is_listed():
    functions = {name for name in F.__all__ if inspect.isfunction(getattr(F, name))}
    assert functions == CALLS.keys() | set(OTHERS.split())


@pytest.mark.parametrize("name", CALLS)
def test_the_valid_call_works(name):
    getattr(F, name)(**CALLS[name][0]())


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_a_numpy_array(name, argument):
    given = CALLS[name][0]()
    given[argument] = given[argument].numpy()
    expected = f"Expected `{argument}` to be a torch.Tensor, but got a ndarray. Use `torch.from_numpy({argument})`."
    with pytest.raises(TypeError, match=re.escape(expected)):
        getattr(F, name)(**given)


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_an_integer_tensor(name, argument):
    given = CALLS[name][0]()
    given[argument] = given[argument].long()
    expected = f"Expected `{argument}` of a float dtype, but got torch.int64. Use `{argument}.float()`."
    with pytest.raises(ValueError, match=re.escape(expected)):
        getattr(F, name)(**given)


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_another_number_of_axes(name, argument):
    for axes in {0, 1, 2, 3, 4} - CALLS[name][2]:
        given = CALLS[name][0]()
        given[argument] = torch.ones((2,) * axes, dtype=torch.float64)
        with pytest.raises(ValueError, match=rf"^Expected `{argument}` of shape .*, but got \({'2' if axes else ''}"):
            getattr(F, name)(**given)


@pytest.mark.parametrize("name", ["cka_matrix", "cka_or_nan"])
def test_a_list_of_representations(name):
    with pytest.raises(TypeError, match=r"Expected `h\[1\]` to be a torch.Tensor, but got a ndarray"):
        getattr(F, name)([rows(), rows().numpy()])
    with pytest.raises(ValueError, match=r"Expected `h\[1\]` of a float dtype"):
        getattr(F, name)([rows(), rows().long()])
    with pytest.raises(ValueError, match=r"Expected `h\[1\]` of shape"):
        getattr(F, name)([rows(), rows(2, N, D)])
