import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from lightning_ssl_geometry.functional.intrinsic_dimension import (
    distances_mle_dimension,
    distances_two_nn_dimension,
    mle_dimension,
    neighbor_distances,
    two_nn_dimension,
)


def sorted_distances(h):
    """To all others, ascending: (N, N - 1)."""
    return np.sort(cdist(h.numpy(), h.numpy()), axis=1)[:, 1:]


def slow_two_nn(h, discard):
    ratio = sorted(row[1] / row[0] for row in sorted_distances(h))
    ranks = range(1, len(ratio) - math.ceil(discard * len(ratio)) + 1)
    x, y = np.array([(math.log(ratio[i - 1]), -math.log(1 - i / len(ratio))) for i in ranks]).T
    return np.linalg.lstsq(x[:, None], y, rcond=None)[0][0]


def slow_mle(h, k, average):
    estimates = []
    for row in sorted_distances(h):
        estimates.append((k - 1) / sum(math.log(row[k - 1] / row[j]) for j in range(k - 1)))
    return np.mean(estimates) if average == "estimates" else len(estimates) / sum(1 / each for each in estimates)


@pytest.mark.parametrize("chunk_size", [7, 256])
def test_neighbours_are_scipys(chunk_size):
    h = torch.randn(60, 5, dtype=torch.float64) + 100
    np.testing.assert_allclose(neighbor_distances(h, 9, chunk_size), sorted_distances(h)[:, :9], rtol=1e-12)


@pytest.mark.parametrize("discard", [0.01, 0.1, 0.33])
def test_two_nn_is_the_papers_fit(discard):
    h = torch.randn(97, 4, dtype=torch.float64)
    assert two_nn_dimension(h, discard=discard).item() == pytest.approx(slow_two_nn(h, discard), rel=1e-12)


def test_two_nn_by_likelihood():
    h = torch.randn(97, 4, dtype=torch.float64)
    expected = 96 / sum(math.log(row[1] / row[0]) for row in sorted_distances(h))
    assert two_nn_dimension(h, estimator="mle").item() == pytest.approx(expected)


@pytest.mark.parametrize("average", ["inverses", "estimates"])
@pytest.mark.parametrize("k", [3, 20])
def test_mle_is_the_papers_sum(k, average):
    h = torch.randn(97, 4, dtype=torch.float64)
    assert mle_dimension(h, k, average=average).item() == pytest.approx(slow_mle(h, k, average))


def poisson(dim, n=20_000, k=6):
    """Distances to the neighbours under the model: T_j^d is a sum of j exponentials, and mu = T_2 / T_1 is Pareto's."""
    volume = torch.rand(n, k, dtype=torch.float64).log().neg().cumsum(1)
    return volume ** (1 / dim)


@pytest.mark.parametrize("dim", [1, 3, 25])
def test_where_the_model_holds_they_find_the_dimension_and_the_mean_of_estimates_its_bias(dim):
    distance = poisson(dim)
    assert distances_two_nn_dimension(distance).item() == pytest.approx(dim, rel=0.03)
    assert distances_two_nn_dimension(distance, estimator="mle").item() == pytest.approx(dim, rel=0.03)
    assert distances_mle_dimension(distance).item() == pytest.approx(dim, rel=0.02)
    biased = distances_mle_dimension(distance, average="estimates").item()
    assert biased == pytest.approx(dim * 5 / 4, rel=0.03)  # (k - 1) / (k - 2)


def sphere(dim, n=2000):
    return torch.nn.functional.normalize(torch.randn(n, dim + 1, dtype=torch.float64), dim=1)


MANIFOLDS = {
    "curve": (1, lambda n: torch.rand(n, 1) * torch.tensor([3.0, 5.0, 7.0])),
    "torus": (2, lambda n: torch.view_as_real(torch.polar(torch.ones(n, 2), 6.2832 * torch.rand(n, 2))).flatten(1)),
    "sphere": (4, lambda n: sphere(4, n)),
}


@pytest.mark.parametrize("name", MANIFOLDS)
def test_known_manifolds_in_many_dimensions(name):
    dim, draw = MANIFOLDS[name]
    h = draw(2000)
    h = h.double() @ torch.randn(h.shape[1], 30, dtype=torch.float64)
    assert two_nn_dimension(h).item() == pytest.approx(dim, rel=0.12)
    assert mle_dimension(h).item() == pytest.approx(dim, rel=0.12)


def test_rotation_scale_translation_and_order_change_nothing():
    h = torch.randn(80, 5, dtype=torch.float64)
    moved = 1e-3 * (h @ torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64)).Q + 4)[torch.randperm(80)]
    for dimension in (two_nn_dimension, mle_dimension):
        assert dimension(moved).item() == pytest.approx(dimension(h).item(), rel=1e-6)


def test_corners_of_a_simplex_have_no_finite_dimension():
    assert not two_nn_dimension(torch.eye(9)).isfinite()
    assert mle_dimension(torch.eye(9), 5).isinf()


def test_twenty_neighbours_are_asked_unless_said():
    h = torch.randn(30, 4, dtype=torch.float64)
    assert mle_dimension(h).item() == pytest.approx(slow_mle(h, 20, "inverses"))


def test_one_ratio_that_is_left_is_enough_for_a_line():
    # of two ratios, log 2 and log 4, the first is left, with F = 1/2: -log 2 log(1/2) / (log 2)^2 = 1
    distance = torch.tensor([[1.0, 2.0], [1.0, 4.0]])
    assert distances_two_nn_dimension(distance, discard=0.5).item() == pytest.approx(1)


def test_float32_is_computed_in_float64():
    h = torch.randn(50, 4)
    assert mle_dimension(h).item() == mle_dimension(h.double()).item()
    assert two_nn_dimension(h).dtype == torch.float64


CLOUD = torch.randn(30, 3)
REPEATED = torch.cat([CLOUD, CLOUD[:1], CLOUD[7:8], CLOUD[7:8]])
ERRORS = [
    (two_nn_dimension, (REPEATED,), {}, "rows that differ, but got 5 of 33 that coincide with another"),
    (mle_dimension, (REPEATED,), {}, "rows that differ, but got 5 of 33 that coincide with another"),
    (two_nn_dimension, (CLOUD[:2],), {}, r"`h` of at least 3 rows, but got 2"),
    (mle_dimension, (CLOUD[:2],), {}, r"`h` of at least 3 rows, but got 2"),
    (two_nn_dimension, (CLOUD,), {"chunk_size": 0}, "`chunk_size` >= 1, but got 0"),
    (mle_dimension, (CLOUD,), {"chunk_size": -1}, "`chunk_size` >= 1, but got -1"),
    (mle_dimension, (CLOUD, 30), {}, r"`neighbors` in \[2, 29\], but got 30"),
    (mle_dimension, (CLOUD, 1), {}, r"`neighbors` in \[2, 29\], but got 1"),
    (two_nn_dimension, (CLOUD,), {"discard": 0}, r"`discard` in \(0, 1\), but got 0"),
    (two_nn_dimension, (CLOUD,), {"discard": 1}, r"`discard` in \(0, 1\), but got 1"),
    (two_nn_dimension, (CLOUD,), {"discard": float("nan")}, r"`discard` in \(0, 1\), but got nan"),
    (two_nn_dimension, (CLOUD[:3],), {"discard": 0.9}, r"`discard` to leave some of 3 ratios, but got 0\.9"),
    (two_nn_dimension, (CLOUD,), {"estimator": "x"}, r"`estimator` to be one of \('fit', 'mle'\), but got 'x'"),
    (mle_dimension, (CLOUD,), {"average": "x"}, r"`average` to be one of \('inverses', 'estimates'\), but got 'x'"),
]


@pytest.mark.parametrize(("dimension", "arguments", "settings", "message"), ERRORS)
def test_bad_input(dimension, arguments, settings, message):
    with pytest.raises(ValueError, match=message):
        dimension(*arguments, **settings)
