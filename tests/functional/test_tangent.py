import pytest
import torch

from lightning_ssl_geometry.functional import (
    null_space_fraction,
    numerical_rank,
    principal_angles,
    projection_alignment,
    projector_gain,
    unexplained_variance,
)
from lightning_ssl_geometry.functional.tangent import column_space, gains_along, least_share_outside, share_outside

N, D, P = 200, 12, 5


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(seed=3):
    return torch.linalg.qr(gaussian(D, D, seed=seed)).Q


def test_it_equals_least_squares_row_by_row():
    delta, weight = gaussian(N, D), gaussian(D, P, seed=1)
    residual = sum(
        (row - weight @ torch.linalg.lstsq(weight, row[:, None]).solution[:, 0]).square().sum() for row in delta
    )
    torch.testing.assert_close(unexplained_variance(delta, weight), residual / delta.square().sum())


def test_it_is_0_inside_the_column_space_and_1_outside():
    weight = gaussian(D, P)
    inside = gaussian(N, P, seed=1) @ weight.T
    outside = gaussian(N, D, seed=2) @ (torch.eye(D, dtype=torch.float64) - weight @ torch.linalg.pinv(weight))
    assert unexplained_variance(inside, weight).item() == pytest.approx(0, abs=1e-12)
    assert unexplained_variance(outside, weight).item() == pytest.approx(1)
    for seed in range(20):
        assert 0 <= unexplained_variance(gaussian(N, D, seed=seed), gaussian(D, P, seed=seed + 50)) <= 1


def test_rotating_both_or_scaling_changes_nothing():
    delta, weight, q = gaussian(N, D), gaussian(D, P, seed=1), rotation()
    expected = unexplained_variance(delta, weight)
    torch.testing.assert_close(unexplained_variance(delta @ q.T, q @ weight), expected)
    torch.testing.assert_close(unexplained_variance(3 * delta, 0.1 * weight), expected)
    torch.testing.assert_close(unexplained_variance(delta, weight @ gaussian(P, P, seed=2)), expected)  # the same span
    assert unexplained_variance(delta @ q.T, weight) != expected


def test_the_null_space_begins_below_a_hundredth_of_the_largest_singular_value():
    for second, fraction in ((0.011, 0.0), (0.009, 0.5)):
        weight = torch.diag(torch.tensor([1.0, second]))
        assert null_space_fraction(torch.eye(2), weight).item() == pytest.approx(fraction)


@pytest.mark.parametrize("shape", [(2, 8), (8, 2)])
def test_the_column_space_begins_at_the_rounding_of_the_longer_side(shape):
    weight, ranks = torch.zeros(shape, dtype=torch.float64), []
    for steps in (4, 16):  # of eps, where max(D, P) = 8
        weight[0, 0], weight[1, 1] = 1.0, steps * 2.0**-52
        ranks.append(column_space(weight).shape[1])
    assert ranks == [1, 2]


@pytest.mark.parametrize("total", [0.0, torch.inf, torch.nan])
def test_moments_without_a_finite_sum_are_refused(total):
    with pytest.raises(ValueError, match=f"finite and not all 0, but got a sum of squares of {total:g}"):
        share_outside(torch.diag(torch.tensor([total, 0.0])), torch.eye(2)[:, :1])


@pytest.mark.parametrize("width", [1, 5, 11, 12, 20])
def test_isotropic_directions_give_one_minus_rank_over_dimension(width):
    found = unexplained_variance(gaussian(200_000, D), gaussian(D, width, seed=1))
    assert found.item() == pytest.approx(1 - min(width, D) / D, abs=4e-3)


def test_columns_that_depend_on_each_other_up_to_rounding_count_once():
    weight, delta = gaussian(D, 2).float() @ gaussian(2, 8, seed=1).float(), gaussian(200_000, D)
    assert unexplained_variance(delta, weight).item() == pytest.approx(1 - 2 / D, abs=4e-3)
    with pytest.raises(ValueError, match="`a` with 8 linearly independent columns, but got rank 2"):
        principal_angles(weight, torch.eye(D)[:, :3])


def test_a_threshold_leaves_out_weak_directions():
    weight = rotation()[:, :P] * torch.tensor([1.0, 0.5, 1e-3, 1e-6, 0.0], dtype=torch.float64)
    delta = gaussian(200_000, D)
    for tau, rank in ((0.7, 1), (1e-2, 2), (1e-4, 3), (1e-9, 4)):
        assert column_space(weight, tau).shape == (D, rank)
        assert unexplained_variance(delta, weight, tau).item() == pytest.approx(1 - rank / D, abs=4e-3)
    assert column_space(weight).shape == (D, 4)  # an exact zero never counts
    assert column_space(weight.float()).shape == (D, 3)  # 1e-6 is within the rounding of float32
    assert column_space(weight, 0.4, mode="absolute").shape == (D, 2)
    assert column_space(weight, 0.79, mode="cumulative").shape == (D, 1)


def test_null_space_fraction_counts_what_the_map_loses():
    q = rotation()
    weight = q[:, :P]
    null, seen = gaussian(N, D - P, seed=1) @ q[:, P:].T, gaussian(N, P, seed=2) @ q[:, :P].T
    assert null_space_fraction(null, weight).item() == pytest.approx(1)
    assert null_space_fraction(seen, weight).item() == pytest.approx(0, abs=1e-12)
    expected = null.square().sum() / (null.square().sum() + seen.square().sum())
    torch.testing.assert_close(null_space_fraction(torch.cat([null, seen]), weight), expected)
    torch.testing.assert_close((null @ weight), torch.zeros(N, P, dtype=torch.float64))


def test_proposition_4_1_and_why_its_converse_does_not_hold():
    q = rotation()
    h, weight = gaussian(N, D), q[:, :P]
    ignored = gaussian(N, D - P, seed=1) @ q[:, P:].T
    cosine = torch.cosine_similarity(h @ weight, (h + ignored) @ weight, dim=1)
    torch.testing.assert_close(cosine, torch.ones_like(cosine))  # v in the kernel: the invariance term is at -1
    # a W of rank 1 sends everything to one line: its minimum too (up to sign), with v outside the kernel
    line = torch.outer(q[:, 0], gaussian(P, seed=2))
    v = 0.1 * h @ torch.outer(q[:, 0], q[:, 0])
    cosine = torch.cosine_similarity(h @ line, (h + v) @ line, dim=1)
    torch.testing.assert_close(cosine, torch.ones_like(cosine))
    assert null_space_fraction(v, line).item() == pytest.approx(0, abs=1e-12)


def test_more_directions_of_augmentation_leave_a_smaller_rank():
    # Proposition 4.2: a projector whose kernel holds all v has at most D - rank(v) dimensions left
    for rank in (1, 4, 9):
        v = gaussian(N, rank) @ gaussian(rank, D, seed=1)
        weight = torch.linalg.svd(v).Vh[rank:].T
        assert null_space_fraction(v, weight).item() == pytest.approx(1)
        assert numerical_rank(weight, 1e-6) == D - numerical_rank(v, 1e-6, mode="relative")


def test_share_outside_is_the_function_of_moments():
    delta, weight = gaussian(N, D), gaussian(D, P, seed=1)
    found = share_outside(delta.T @ delta / N, column_space(weight))
    torch.testing.assert_close(found, unexplained_variance(delta, weight))


OK, WEIGHT = torch.ones(3, 4), torch.ones(4, 2)
BAD = [
    (lambda: unexplained_variance(OK, OK), r"`weight` of shape \(D, P\), D = 4, but got"),
    (lambda: unexplained_variance(0 * OK, WEIGHT), "not all 0, but got a sum of squares of 0"),
    (lambda: null_space_fraction(OK * torch.nan, WEIGHT), "finite and not all 0, but got a sum of squares of nan"),
    (lambda: unexplained_variance(OK, WEIGHT * torch.inf), "finite `weight`"),
    (lambda: unexplained_variance(OK, WEIGHT, 0.0, mode="absolute"), "`tau` > 0, but got 0"),
    (lambda: null_space_fraction(OK, WEIGHT, mode="share"), "`mode` to be one of"),
    (lambda: column_space(torch.ones(4)), r"`weight` of shape \(D, P\), but got \(4,\)"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_gain_is_a_ratio_of_sums_over_its_isotropic_value():
    v, weight = gaussian(N, D), gaussian(D, P, seed=1)
    seen = sum((weight.T @ row).square().sum() for row in v) / sum(row.square().sum() for row in v)
    torch.testing.assert_close(projector_gain(v, weight), seen / (weight.square().sum() / D))
    q = rotation()
    for other in (projector_gain(3e20 * v, 1e-20 * weight), projector_gain(v @ q.T, q @ weight)):
        torch.testing.assert_close(other, projector_gain(v, weight))


def test_the_gain_is_0_in_the_null_space_1_for_isotropic_directions_and_largest_along_the_first_singular_vector():
    weight = gaussian(D, P, seed=1)
    left, sigma, _ = torch.linalg.svd(weight)
    assert projector_gain(left[:, P:].T, weight).item() == pytest.approx(0, abs=1e-12)
    assert projector_gain(torch.eye(D, dtype=torch.float64), weight).item() == pytest.approx(1)
    most = D * sigma[0].square() / weight.square().sum()
    torch.testing.assert_close(projector_gain(left[:, :1].T, weight), most)


def test_a_rotated_projector_has_a_mean_gain_of_1_whatever_the_directions():
    v, weight = gaussian(3, D), gaussian(D, P, seed=1)
    found = torch.stack([projector_gain(v, torch.linalg.qr(gaussian(D, D, seed=k)).Q @ weight) for k in range(2000)])
    assert found.mean().item() == pytest.approx(1, abs=4 * found.std().item() / 2000**0.5)
    assert found.std() > 0.1


def test_gains_along_the_singular_vectors_add_up():
    v, weight = gaussian(N, D), gaussian(D, P, seed=1)
    left, sigma, _ = torch.linalg.svd(weight, full_matrices=False)
    along, gain = gains_along(v.T @ v, left, sigma)
    torch.testing.assert_close(along, D * (v @ left).square().sum(0) / v.square().sum())
    torch.testing.assert_close(gain, projector_gain(v, weight))
    torch.testing.assert_close(1 - along.sum() / D, unexplained_variance(v, weight))


def test_alignment_is_the_mean_cosine_of_each_row():
    h, delta, weight = gaussian(N, D), gaussian(N, D, seed=5), gaussian(D, P, seed=1)
    rows = []
    for x, d in zip(h, delta, strict=True):
        y = weight @ (weight.T @ x)
        rows.append((y @ d) / (y.norm() * d.norm()))
    torch.testing.assert_close(projection_alignment(h, delta, weight), torch.stack(rows).mean())
    torch.testing.assert_close(projection_alignment(h, delta, weight.expand(N, D, P)), torch.stack(rows).mean())
    for scaled in ((1e-30 * h, delta, weight), (h, 1e30 * delta, weight), (h, delta, 1e-30 * weight)):
        torch.testing.assert_close(projection_alignment(*scaled), torch.stack(rows).mean())
    q = rotation()
    torch.testing.assert_close(projection_alignment(h @ q.T, delta @ q.T, q @ weight), torch.stack(rows).mean())


def test_alignment_is_1_and_minus_1_along_the_projection_and_0_outside_of_the_column_space():
    h, weight = gaussian(N, D), gaussian(D, P, seed=1)
    projected = h @ weight @ weight.T
    outside = gaussian(N, D, seed=2) @ (torch.eye(D, dtype=torch.float64) - weight @ torch.linalg.pinv(weight))
    for delta, cosine in ((2 * projected, 1), (-projected, -1), (outside, 0), (0 * projected, 0)):
        assert projection_alignment(h, delta, weight).item() == pytest.approx(cosine, abs=1e-12)
    delta = torch.cat([projected[:50], 0 * projected[50:]])
    assert projection_alignment(h, delta, weight).item() == pytest.approx(50 / N)


def test_each_sample_may_have_a_projector_of_its_own():
    h, delta, weight = gaussian(N, D), gaussian(N, D, seed=5), gaussian(N, D, P, seed=1)
    rows = [projection_alignment(h[i : i + 1], delta[i : i + 1], weight[i]) for i in range(N)]
    torch.testing.assert_close(projection_alignment(h, delta, weight), torch.stack(rows).mean())
    with pytest.raises(ValueError, match=r"`weight` of shape \(N, D, P\), N = 200, D = 12"):
        projection_alignment(h, delta, weight[1:])


def test_principal_angles_equal_scipys():
    linalg = pytest.importorskip("scipy.linalg")
    for seed in range(5):
        a, b = gaussian(D, 3, seed=seed), gaussian(D, P, seed=seed + 9)
        expected = torch.rad2deg(torch.from_numpy(linalg.subspace_angles(a.numpy(), b.numpy()).copy())).flip(0)
        torch.testing.assert_close(principal_angles(a, b), expected)
        torch.testing.assert_close(principal_angles(b, a), expected)


def test_planted_angles_are_found_small_ones_too():
    planted = torch.tensor([0.0, 1e-9, 1e-3, 30.0, 89.0, 90.0], dtype=torch.float64)
    q, angle = rotation(), torch.deg2rad(planted)
    a, b = q[:, :6], q[:, :6] * angle.cos() + q[:, 6:] * angle.sin()
    mixed = (a @ gaussian(6, 6, seed=7), b @ gaussian(6, 6, seed=8))
    torch.testing.assert_close(principal_angles(a, b), planted, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(principal_angles(*mixed), planted, rtol=1e-6, atol=1e-10)
    assert not principal_angles(a, a[:, :2]).round(decimals=6).any()
    assert principal_angles(q[:, :4], q[:, 4:]).tolist() == pytest.approx([90.0] * 4)


def test_columns_that_depend_on_each_other_are_refused():
    a = gaussian(D, 3)
    with pytest.raises(ValueError, match="`b` with 4 linearly independent columns, but got rank 3"):
        principal_angles(a, torch.cat([a, a[:, :1]], 1))


def test_no_subspace_leaves_less_than_the_leading_directions():
    v = gaussian(N, D) * torch.linspace(1, 3, D)
    moment = v.T @ v
    for dim in range(D + 1):
        floor = least_share_outside(moment, dim)
        leading = torch.linalg.eigh(moment).eigenvectors[:, D - dim :]
        torch.testing.assert_close(floor, share_outside(moment, leading), atol=1e-12, rtol=1e-9)
        others = [share_outside(moment, torch.linalg.qr(gaussian(D, D, seed=k)).Q[:, :dim]) for k in range(20)]
        assert floor <= min(others) + 1e-12


@pytest.mark.parametrize("weight", [torch.zeros(D, P), torch.full((D, P), torch.nan)])
def test_a_projector_without_a_gain_is_refused(weight):
    with pytest.raises(ValueError, match="`weight`"):
        projector_gain(gaussian(N, D), weight)


def test_alignment_has_gradients_beside_a_row_of_zeros():
    weight, h = torch.randn(3, 2, requires_grad=True), torch.randn(2, 3)
    h[0] = 0
    projection_alignment(h, torch.randn(2, 3), weight).backward()
    assert weight.grad.isfinite().all()
    assert weight.grad.any()


def test_a_mode_and_a_weight_are_checked_without_a_threshold():
    with pytest.raises(ValueError, match="`mode` to be one of"):
        unexplained_variance(torch.eye(4), torch.eye(4)[:, :1], mode="foo")
    with pytest.raises((ValueError, TypeError), match="`weight`"):
        unexplained_variance(torch.eye(4), torch.eye(4)[:, :1] * 1j)
