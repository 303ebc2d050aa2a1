import numpy as np
import pytest
import torch

from lightning_ssl_geometry.functional.neural_collapse import class_moments, moments_neural_collapse, neural_collapse


def simplex(classes, dim, scale=1.0):
    """The corners of a regular simplex, centred, turned into `dim` dimensions at random: (C, D)."""
    corners = torch.eye(classes, dtype=torch.float64) - 1 / classes
    return scale * corners @ torch.linalg.qr(torch.randn(dim, classes, dtype=torch.float64)).Q.T


def labelled(classes=4, dim=6, n=200):
    """Classes of different sizes, far from the origin, with spread."""
    label = torch.cat([torch.arange(classes), torch.randint(classes, (2, n - classes)).amin(dim=0)])
    mean = torch.randn(classes, dim, dtype=torch.float64) + 3
    return mean[label] + 0.3 * torch.randn(n, dim, dtype=torch.float64), label


def close(found, expected, **tolerance):
    torch.testing.assert_close(torch.stack(tuple(found)), torch.stack(tuple(expected)), **tolerance)


def slow(h, label):
    """Papyan et al.'s sums, one term at a time."""
    h, label = h.numpy(), label.numpy()
    classes = np.unique(label)
    mean = np.stack([h[label == c].mean(0) for c in classes])
    centred = mean - mean.mean(0)
    within = sum(np.outer(x - mean[classes == c][0], x - mean[classes == c][0]) for x, c in zip(h, label, strict=True))
    between = sum(np.outer(m, m) for m in centred) / len(classes)
    norm = [np.linalg.norm(m) for m in centred]
    cosine = [
        centred[a] @ centred[b] / (norm[a] * norm[b])
        for a in range(len(classes))
        for b in range(len(classes))
        if a != b
    ]
    return torch.tensor(
        [
            np.trace(within / len(h) @ np.linalg.pinv(between, rcond=1e-10)) / len(classes),
            np.std(norm) / np.mean(norm),
            np.std(cosine),
            np.mean(np.abs(np.array(cosine) + 1 / (len(classes) - 1))),
        ]
    )


@pytest.mark.parametrize(("classes", "dim"), [(4, 6), (2, 5), (5, 2), (7, 3), (3, 1)])
def test_it_is_the_papers_sums(classes, dim):
    h, label = labelled(classes, dim)
    close(neural_collapse(h, label), slow(h, label))


@pytest.mark.parametrize(("classes", "dim"), [(2, 2), (4, 4), (10, 30)])
def test_a_simplex_of_points_is_collapsed_whatever_its_place_size_and_numbers(classes, dim):
    label = torch.cat([torch.arange(classes), torch.randint(classes, (50,))])
    found = neural_collapse(simplex(classes, dim, scale=7.0)[label] + 3, label)
    assert max(found) < 1e-10
    assert min(found) >= 0
    assert max(moments_neural_collapse(*class_moments(simplex(classes, dim, scale=7.0)[label], label)[1:])) < 1e-7


def test_isotropic_noise_around_a_simplex_has_a_closed_form():
    # Corners of squared length s^2 (1 - 1/C) have Sigma_B = s^2/C on the C-1 directions that they span, and noise
    # has Sigma_W = sigma^2 I: tr(Sigma_W Sigma_B^+) / C = (C-1) sigma^2 / s^2.
    classes, dim, size, sigma, count = 4, 5, 2.0, 0.3, 60
    noise = torch.randn(classes, count, dim, dtype=torch.float64)
    noise = noise - noise.mean(dim=1, keepdim=True)
    rows = noise.flatten(0, 1)
    rows = rows @ torch.linalg.inv(torch.linalg.cholesky(rows.T @ rows / len(rows))).T  # Sigma_W is exactly sigma^2 I
    label = torch.arange(classes).repeat_interleave(count)
    found = neural_collapse(sigma * rows + simplex(classes, dim, size)[label], label)
    assert found.within_class.item() == pytest.approx((classes - 1) * sigma**2 / size**2)
    assert max(found[1:]) < 1e-10


def test_orthogonal_class_means_are_a_simplex_once_centred_but_a_cross_is_none():
    assert max(neural_collapse(torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2))) < 1e-10
    # +-e1, +-e2: of the 6 pairs 2 have the cosine -1 and 4 have 0; -1/3 is the mean, sqrt(2)/3 the deviation, and
    # |cos + 1/3| is 2/3 or 1/3.
    cross = torch.cat([torch.eye(2), -torch.eye(2)]).double()
    found = neural_collapse(cross, torch.arange(4))
    assert found.equinorm.item() == pytest.approx(0, abs=1e-12)
    assert found.equiangularity.item() == pytest.approx(2**0.5 / 3)
    assert found.simplex.item() == pytest.approx((2 * 2 / 3 + 4 * 1 / 3) / 6)


def test_rotation_scale_shift_order_and_names_of_the_classes_do_not_matter():
    h, label = labelled()
    rotation = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
    order = torch.randperm(len(h))
    changed = neural_collapse(
        (5 * h @ rotation - 2)[order], torch.tensor([9, -3, 100, 4], dtype=torch.int32)[label][order]
    )
    close(changed, neural_collapse(h, label))


def test_shrinking_the_classes_shrinks_the_first_by_the_square_and_no_other():
    h, label = labelled()
    mean = torch.stack([h[label == c].mean(0) for c in range(4)])[label]
    whole, shrunk = neural_collapse(h, label), neural_collapse(mean + (h - mean) / 10, label)
    close(shrunk, (whole.within_class / 100, *whole[1:]))


def test_what_does_not_tell_classes_apart_adds_nothing():
    h, label = labelled(3, 2)
    mean = torch.stack([h[label == c].mean(0) for c in range(3)])[label]
    orthogonal = torch.randn(len(h), 4, dtype=torch.float64)
    same_mean = orthogonal - torch.stack([orthogonal[label == c].mean(0) for c in range(3)])[label]
    assert neural_collapse(torch.cat([mean, 9 * same_mean], dim=1), label).within_class < 1e-10


def test_moments_of_parts_add_up():
    h, label = labelled()
    parts = [class_moments(h[rows], label[rows])[1:] for rows in (slice(0, None, 2), slice(1, None, 2))]
    assert all(len(count) == 4 for count, _, _ in parts)
    close(moments_neural_collapse(*map(sum, zip(*parts, strict=True))), neural_collapse(h, label))


@pytest.mark.parametrize(("size", "seen"), [(60, False), (1000, True)])
def test_a_direction_of_the_means_that_may_be_rounding_is_not_divided_by(size, seen):
    # The class means are size * eps * e_2, e_1 and -e_1 in D = 100, so their second singular value is sqrt(2/3) * size
    # * eps. An SVD may be wrong by D * eps times the first, 141 eps. All scatter is along e_2.
    mean = torch.zeros(3, 100, dtype=torch.float64)
    mean[1, 0], mean[2, 0], mean[0, 1] = 1.0, -1.0, size * torch.finfo(mean.dtype).eps
    count = torch.tensor([1e8, 1.0, 1.0], dtype=torch.float64)  # so many that the rest of the rounding is smaller
    total = mean * count[:, None]
    outer = mean.T @ total
    outer[1, 1] += 1
    found = moments_neural_collapse(count, total, outer).within_class.item()
    expected = 1 / count.sum().item() / (2 / 3 * mean[0, 1].item() ** 2) if seen else 0.0
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("steps", "nan"), [(1, True), (3, False)])
def test_means_of_rows_that_differ_by_rounding_are_equal(steps, nan):
    # Rows of four entries of about 1: eps^2 |h|^2 = 4 eps^2. Two means at +-k eps differ if 2 k^2 eps^2 > 2 * 4 eps^2.
    h = torch.ones(32, 4)
    h[:, 0] += steps * 2.0**-23 * torch.tensor([1.0, -1.0]).repeat(16)
    assert neural_collapse(h, torch.arange(32) % 2).equinorm.isnan() == nan


def test_a_direction_of_the_means_at_the_rounding_bound_is_not_divided_by():
    # The means (+-3, +-1) have the singular values 6 and 2, and 2^2 = C * rounding. The scatter is along the second.
    count, mean = torch.ones(4), torch.tensor([[3.0, 1.0], [-3.0, 1.0], [3.0, -1.0], [-3.0, -1.0]])
    outer = mean.T @ mean + torch.diag(torch.tensor([0.0, 1.0]))
    found = [moments_neural_collapse(count, mean, outer, rounding=each).within_class.item() for each in (1.0, 0.99)]
    assert found == [0, pytest.approx(1 / 4 / 4)]  # Sigma_W / sigma^2


def test_a_mean_at_the_rounding_bound_has_no_direction():
    mean = torch.tensor([[2.0], [-1.0], [-1.0]])  # squared lengths 4, 1 and 1
    found = [moments_neural_collapse(torch.ones(3), mean, mean.T @ mean, rounding=each) for each in (1.0, 0.99)]
    assert [each.equiangularity.isnan().item() for each in found] == [True, False]
    assert not any(each.equinorm.isnan() for each in found)


def test_means_at_the_rounding_bound_are_equal():
    count, total = torch.ones(2), torch.tensor([[1.0], [-1.0]])  # |m|^2 summed: 2 = C * rounding
    assert all(value.isnan() for value in moments_neural_collapse(count, total, torch.tensor([[2.0]]), rounding=1.0))
    found = moments_neural_collapse(count, total, torch.tensor([[2.0]]), rounding=0.999)
    assert found.equinorm == 0


@pytest.mark.parametrize("scale", [1.0, 2.0**20])
@pytest.mark.parametrize("n", [8, 8192])
@pytest.mark.parametrize(("share", "nan"), [(0.8, True), (1.2, False)])
def test_means_of_sums_count_from_the_rounding_of_the_sums_on(scale, n, share, nan):
    # (C + D + 2 N^0.5) eps is the relative error of sums over N rows of C = 2 classes in D = 1
    count = torch.tensor([n / 2, n / 2], dtype=torch.float64)
    step = round(share * (3 + 2 * n**0.5)) * 2.0**-52
    mean = scale * (1 + step * torch.tensor([[1.0], [-1.0]], dtype=torch.float64))
    outer = (count[:, None] * mean.square()).sum()[None, None]
    assert moments_neural_collapse(count, count[:, None] * mean, outer).equinorm.isnan() == nan


@pytest.mark.parametrize(("steps", "seen"), [(300, False), (301, True)])
def test_a_direction_at_the_rounding_of_an_svd_is_not_divided_by(steps, seen):
    # Means (+-3, +-b) in D = 100 have the singular values 6 and 2 b, and D eps * 6 = 2 * 300 eps. A large class at the
    # origin makes the rest of the rounding smaller.
    mean = torch.zeros(5, 100, dtype=torch.float64)
    mean[:4, :2] = torch.tensor([[3.0, 1.0], [-3.0, 1.0], [3.0, -1.0], [-3.0, -1.0]])
    mean[:, 1] *= steps * 2.0**-52
    count = torch.tensor([1.0, 1.0, 1.0, 1.0, 1e8], dtype=torch.float64)
    outer = mean.T @ (mean * count[:, None])
    outer[1, 1] += 1  # all scatter is along the second
    found = moments_neural_collapse(count, mean * count[:, None], outer).within_class.item()
    assert found == pytest.approx(1e-8 / (2 * mean[0, 1].item()) ** 2 if seen else 0.0, rel=1e-6)


def test_a_scatter_at_the_rounding_of_the_sums_is_0():
    # N = 4 and D = 1: (1 + 2 * 4^0.5) eps * 8 / 4 = 10 eps; the scatter is (8 - (4 - 10 eps)^2 / 2) / 4 = 10 eps
    eps = 2.0**-52
    count, total = torch.tensor([2.0, 2.0]), torch.tensor([[4 - 10 * eps], [0.0]], dtype=torch.float64)
    for outer, is_0 in ((8.0, True), (8 + 8 * eps, False)):
        outer = torch.tensor([[outer]], dtype=torch.float64)
        assert (moments_neural_collapse(count, total, outer).within_class == 0) == is_0


def test_float32_and_half_are_computed_in_float64():
    h, label = labelled()
    for dtype in (torch.float32, torch.bfloat16):
        found = neural_collapse(h.to(dtype), label)
        assert found.within_class.dtype == torch.float64
        close(found, neural_collapse(h.to(dtype).double(), label))


def test_one_point_and_rows_that_are_no_numbers_give_nan():
    label = torch.tensor([0, 0, 1, 1])
    assert all(value.isnan() for value in neural_collapse(torch.ones(4, 3), label))
    assert all(value.isnan() for value in neural_collapse(torch.full((4, 3), torch.nan), label))


@pytest.mark.parametrize(
    ("h", "label", "message"),
    [
        (torch.ones(3), torch.arange(3), r"`h` of shape \(N, D\), but got \(3,\)"),
        (torch.ones(2, 2).long(), torch.arange(2), r"`h` of a float dtype, but got torch\.int64"),
        (torch.ones(3, 2), torch.arange(2), r"`label` of shape \(N,\), N = 3, but got \(2,\)"),
        (torch.ones(3, 2), torch.rand(3), r"`label` of an integer dtype, but got torch\.float32"),
        (torch.ones(3, 2), torch.ones(3).bool(), r"`label` of an integer dtype, but got torch\.bool"),
        (torch.ones(3, 2), torch.ones(3).long(), "`label` of at least 2 classes, but got 1"),
        (torch.ones(0, 2), torch.ones(0).long(), "`label` of at least 2 classes, but got 0"),
    ],
)
def test_bad_rows_and_labels(h, label, message):
    with pytest.raises(ValueError, match=message):
        neural_collapse(h, label)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 1), (2, 3), (3, 3)), r"`count` of shape \(C,\), but got \(2, 1\)"),
        (((2,), (3, 3), (3, 3)), r"`total` of shape \(C, D\), C = 2, but got \(3, 3\)"),
        (((2,), (2, 3), (2, 3)), r"`outer` of shape \(D, D\), .*but got \(2, 3\)"),
        (((1,), (1, 3), (3, 3)), "`count` of at least 2 rows, but got 1"),
    ],
)
def test_bad_moments(shapes, message):
    with pytest.raises(ValueError, match=message):
        moments_neural_collapse(*map(torch.ones, shapes))


def test_an_empty_class_is_named():
    with pytest.raises(ValueError, match="`count` > 0 in every class, but got 0"):
        moments_neural_collapse(torch.tensor([3.0, 0.0]), torch.ones(2, 3), torch.ones(3, 3))
