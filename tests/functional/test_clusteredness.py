import math

import pytest
import torch
from torch.nn.functional import normalize

from lightning_ssl_geometry.functional.clusteredness import clusteredness, kmeans, silhouette, uniform_uniformity
from lightning_ssl_geometry.functional.hypersphere import uniformity


def blobs(n=60, k=3, dim=4, spread=0.05, seed=0):
    """Clusters around orthogonal unit vectors."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(n) % k
    noise = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    return torch.eye(dim, dtype=torch.float64)[label] + spread * noise, label


def slow_nmi(a, b):
    def entropy(*labels):
        p = torch.stack(labels).unique(dim=1, return_counts=True)[1].double() / len(a)
        return -(p * p.log()).sum()

    return 2 * (entropy(a) + entropy(b) - entropy(a, b)) / (entropy(a) + entropy(b))


def slow_silhouette(z, label):
    scores = []
    for i in range(len(z)):
        mean = {}
        for cluster in label.unique().tolist():
            others = [j for j in range(len(z)) if j != i and label[j] == cluster]
            mean[cluster] = sum((z[i] - z[j]).norm() for j in others) / max(len(others), 1)
        a = mean.pop(label[i].item())
        b = min(mean.values())
        alone = (label == label[i]).sum() == 1
        scores.append(torch.zeros(()).double() if alone else (b - a) / max(a, b))
    return torch.stack(scores).mean()


def test_scores_are_those_of_slow_loops():
    z, label = blobs(spread=0.6)
    label[0] = 9  # alone in its cluster
    unit = normalize(z, dim=1)
    found = kmeans(z, 4)
    scores = clusteredness(z, label)
    torch.testing.assert_close(scores.nmi, slow_nmi(label, found))
    torch.testing.assert_close(scores.silhouette, slow_silhouette(unit, label))
    torch.testing.assert_close(scores.kmeans_silhouette, slow_silhouette(unit, found))
    torch.testing.assert_close(silhouette(z, label, normalize=False), slow_silhouette(z, label))
    assert 0.1 < scores.nmi < 0.9


def test_kmeans_assigns_each_row_to_the_nearest_mean():
    z, _ = blobs(spread=0.6)
    found = kmeans(z, 3, normalize=False)
    mean = torch.stack([z[found == c].mean(0) for c in range(3)])
    assert torch.equal(torch.cdist(z, mean).argmin(1), found)
    assert torch.equal(kmeans(z, 3, normalize=False, seed=0), found)


def test_the_best_of_ten_starts_is_the_default():
    # eight clusters in points without any: with scikit-learn 1.9.1, the eleventh start would be better than the ten
    z = torch.randn(40, 2, generator=torch.Generator().manual_seed(25), dtype=torch.float64)
    assert torch.equal(kmeans(z, 8, normalize=False), kmeans(z, 8, normalize=False, n_init=10))
    scores = (clusteredness(z, torch.arange(40) % 8, normalize=False, **given) for given in ({}, {"n_init": 10}))
    assert next(scores) == next(scores)


def test_clusters_that_are_apart_are_found():
    z, label = blobs(spread=0.01)
    scores = clusteredness(z, label)
    assert scores.nmi.item() == pytest.approx(1)
    assert scores.silhouette > 0.95
    torch.testing.assert_close(scores.kmeans_silhouette, scores.silhouette)


def test_names_of_clusters_rotations_and_lengths_do_not_matter():
    z, label = blobs(spread=0.3)
    once = clusteredness(z, label)
    torch.testing.assert_close(clusteredness(z, 7 - 3 * label), once)
    q = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    torch.testing.assert_close(clusteredness(z @ q, label), once)
    torch.testing.assert_close(clusteredness(z * torch.rand(60, 1).double().add(0.5), label), once)
    bare = clusteredness(z, label, normalize=False)
    torch.testing.assert_close(clusteredness(5 * z + 1, label, normalize=False), bare)
    torch.testing.assert_close(clusteredness(z.float(), label).silhouette, once.silhouette, atol=1e-6, rtol=0)


def test_labels_that_have_nothing_to_do_with_the_clusters_have_the_nmi_of_chance():
    # the bias of the mutual information of two independent partitions is (k - 1)^2 / 2N; both entropies are log k
    z, label = blobs(n=240, k=4, spread=0.02)
    chance = torch.stack([clusteredness(z, label[torch.randperm(240)], n_init=1).nmi for _ in range(40)])
    assert chance.mean().item() == pytest.approx(9 / (2 * 240 * math.log(4)), rel=0.25)
    assert silhouette(z, label[torch.randperm(240)]).abs() < 0.1


def test_uniform_points_have_no_given_clusters_but_arcs():
    z = torch.randn(600, 2, dtype=torch.float64)
    scores = clusteredness(z, torch.arange(600) % 4)
    assert scores.nmi < 0.02
    assert abs(scores.silhouette) < 0.05
    assert scores.kmeans_silhouette.item() == pytest.approx(0.5, abs=0.05)


def test_coinciding_points_are_one_cluster():
    scores = clusteredness(torch.ones(9, 2), torch.arange(9) % 3)
    assert scores.nmi == 0
    assert scores.silhouette == 0
    assert scores.kmeans_silhouette.isnan()


def test_uniformity_of_uniform_points_in_closed_form():
    for t in (0.3, 2.0, 50.0):
        x = torch.tensor(2 * t, dtype=torch.float64)
        torch.testing.assert_close(uniform_uniformity(1, t), ((1 + (-2 * x).exp()) / 2).log())  # +1 and -1
        torch.testing.assert_close(uniform_uniformity(2, t), torch.special.i0e(x).log())
        torch.testing.assert_close(uniform_uniformity(3, t), (-torch.expm1(-2 * x) / (2 * x)).log())
    assert uniform_uniformity(50).exp().item() == pytest.approx(0.0215, abs=5e-5)
    many = uniform_uniformity(10**6).item()
    assert many == pytest.approx(-4 * (1 - 2 / 10**6), rel=1e-9)
    x = torch.tensor(1e4, dtype=torch.float64)
    torch.testing.assert_close(uniform_uniformity(2, 5e3), torch.special.i0e(x).log(), rtol=1e-10, atol=0)


@pytest.mark.parametrize(("dim", "t"), [(2, 2.0), (5, 2.0), (8, 0.7)])
def test_uniformity_of_uniform_points_by_drawing_them(dim, t):
    z = torch.randn(4000, dim, dtype=torch.float64)
    assert uniformity(z, t).item() == pytest.approx(uniform_uniformity(dim, t).item(), rel=0.01)


def test_evenly_spaced_points_are_more_uniform_than_uniform_ones():
    # the mean over all pairs is e^{-2t} I_0(2t) for evenly spaced points; the N pairs i = i, which are 1, are left out
    angle = 2 * math.pi * torch.arange(100, dtype=torch.float64) / 100
    even = uniformity(torch.stack([angle.cos(), angle.sin()], 1))
    expected = ((100 * uniform_uniformity(2).exp() - 1) / 99).log()
    torch.testing.assert_close(even, expected)
    assert even < uniform_uniformity(2)


ONE, ALL = torch.zeros(60, dtype=torch.int64), torch.arange(60)
ERRORS = [
    *[(lambda z, y, f=f: f(z, ONE), "`label` of 2 to 59 clusters, .* but got 1") for f in (clusteredness, silhouette)],
    *[(lambda z, y, f=f: f(z, ALL), "`label` of 2 to 59 clusters, .* but got 60") for f in (clusteredness, silhouette)],
    (lambda z, y: silhouette(z, y[:5]), r"`label` of 60 integers, but got torch.int64 \(5,\)"),
    (lambda z, y: silhouette(z, y.double()), r"`label` of 60 integers, but got torch\.float64"),
    (lambda z, y: silhouette(z, y[:, None]), r"`label` of 60 integers, but got torch.int64 \(60, 1\)"),
    (lambda z, y: kmeans(z, 1), r"`clusters` in \[2, 59\], but got 1"),
    (lambda z, y: kmeans(z, 60), r"`clusters` in \[2, 59\], but got 60"),
    (lambda z, y: clusteredness(z, y, n_init=0), "`n_init` >= 1, but got 0"),
    (lambda z, y: kmeans(y.double(), 2), r"`z` of shape \(N, P\), but got \(60,\)"),
    (lambda z, y: kmeans(y[:, None], 2), "`z` of a float dtype, but got torch.int64"),
    (lambda z, y: clusteredness(z.index_fill(1, y[:1], math.nan), y), "finite `z`, but got 60 of 240 values"),
    *[(lambda z, y, d=d: uniform_uniformity(d), f"`dim` >= 1, but got {d}") for d in (0, math.nan)],
    *[(lambda z, y, t=t: uniform_uniformity(2, t), r"`t` in \(0, 1e\+06\]") for t in (0, math.nan, math.inf, 2e6)],
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(*blobs())
