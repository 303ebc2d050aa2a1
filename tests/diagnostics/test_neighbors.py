import pytest
import torch

from lightning_ssl_geometry import functional as F
from lightning_ssl_geometry.diagnostics import HardestNegativeDistance, LabelAgreement

N = 200


def data(seed=0):
    generator = torch.Generator().manual_seed(seed)
    h, z = (torch.randn(2, N, width, generator=generator, dtype=torch.float64) for width in (12, 5))
    return h, z, torch.arange(N), torch.randint(4, (N,), generator=generator)


def computed(metric, *arguments, **named):
    metric.update(*arguments, **named)
    return metric.compute()


def test_distance_is_measured_in_h_to_the_neighbour_in_z():
    h, z, index, _ = data()
    found = computed(HardestNegativeDistance(bins=10), h, z, index)
    star, view, _ = F.hardest_negative(z[0], z[1])
    distance = F.normalized_distance(h[0], h[view, star])
    torch.testing.assert_close(found["distance"], distance.mean())
    torch.testing.assert_close(found["pair"], F.normalized_distance(h[0], h[1]).mean())
    expected = torch.histc(distance, bins=10, min=0, max=2) / N
    torch.testing.assert_close(found["histogram"].double(), expected)
    assert found["histogram"].sum().item() == pytest.approx(1)


def test_the_baseline_is_the_distance_of_views_of_different_samples():
    h, z, index, _ = data()
    h[1] = h[0] + 0.1 * h[1] + 3  # views of a sample are near each other, and there is a mean
    found = computed(HardestNegativeDistance(), h, z, index)
    a, b = (view / view.norm(dim=1, keepdim=True) for view in h)
    apart = torch.cdist(a, b)
    of_others = apart[~torch.eye(N, dtype=torch.bool)]
    assert abs(found["between_samples"] - of_others.mean()) < 4 * of_others.std() / N**0.5
    torch.testing.assert_close(found["pair"], apart.diagonal().mean())
    order = torch.randperm(N)
    shuffled = computed(HardestNegativeDistance(), h[:, order], z[:, order], index[order])
    torch.testing.assert_close(shuffled["between_samples"], found["between_samples"])


def test_opposite_neighbours_are_in_the_last_bin():
    h = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).repeat(2, 1, 1)
    found = computed(HardestNegativeDistance(bins=4), h, h, torch.arange(2))
    assert found["distance"] == 2
    assert found["pair"] == 0
    assert found["between_samples"] == 2
    assert found["histogram"].tolist() == [0, 0, 0, 1]


def test_scaling_or_rotating_h_changes_nothing():
    h, z, index, _ = data()
    q = torch.linalg.qr(torch.randn(12, 12, dtype=torch.float64)).Q
    before = computed(HardestNegativeDistance(), h, z, index)
    after = computed(HardestNegativeDistance(), 7 * h @ q, z, index)
    for name in ("distance", "pair", "between_samples"):
        torch.testing.assert_close(after[name], before[name])


def test_agreement_of_classes_that_are_apart_is_one_and_of_a_cloud_is_chance():
    _, z, index, label = data()
    apart = z * 0.01 + torch.eye(5, dtype=torch.float64)[label]
    assert computed(LabelAgreement(), apart, index, label=label)["fine"] == 1
    found = computed(LabelAgreement(), z, index, label=label)
    assert abs(found["fine"] - found["fine_chance"]) < 0.12  # three standard deviations at N = 200
    torch.testing.assert_close(found["fine_chance"], F.chance_agreement(label))
    assert set(found) == {"fine", "fine_chance"}


def test_coarse_labels_agree_at_least_as_often():
    _, z, index, label = data()
    found = computed(LabelAgreement(), z, index, label=label, coarse_label=label // 2)
    assert found["fine"] <= found["coarse"]
    torch.testing.assert_close(found["coarse_chance"], F.chance_agreement(label // 2))


def test_embeddings_that_are_all_equal_have_no_hardest_negative():
    h, _, index, label = data()
    z = torch.ones(2, N, 5)
    z[1] += 1e-8  # rounding
    found = computed(HardestNegativeDistance(), h, z, index)
    assert found["distance"].isnan()
    assert found["histogram"].isnan().all()
    assert not found["pair"].isnan()
    found = computed(LabelAgreement(), z, index, label=label)
    assert found["fine"].isnan()
    assert not found["fine_chance"].isnan()


def test_bad_input():
    _, z, index, label = data()
    with pytest.raises(ValueError, match="`bins` >= 1, but got 0"):
        HardestNegativeDistance(bins=0)
    with pytest.raises(ValueError, match="`contrast_size` >= 2, but got 1"):
        LabelAgreement(contrast_size=1)
    with pytest.raises(ValueError, match=r"`z` of shape \(V, N, P\) with V >= 2 views, but got \(1, 200, 5\)"):
        LabelAgreement().update(z[:1], index, label=label)
    with pytest.raises(ValueError, match=r"`label` with N rows and `index` of shape \(N,\), but got \(3,\), \(200,\)"):
        LabelAgreement().update(z, index, label=label[:3])
    metric = LabelAgreement()
    metric.update(z, index, label=label)
    with pytest.raises(ValueError, match="`coarse_label` in every batch or in none, but got both"):
        metric.update(z, index, label=label, coarse_label=label)
