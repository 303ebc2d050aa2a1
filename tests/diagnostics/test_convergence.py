"""Effective ranks of nested sets of rows and of classes are those of EffectiveRank on exactly these rows."""

import pytest
import torch
from clouds import cloud

from lightning_ssl_geometry.diagnostics import ClassRank, EffectiveRank, RankConvergence
from lightning_ssl_geometry.functional import effective_rank
from lightning_ssl_geometry.random import counter_hash

N, D = 60, 6


def rows(n=N, d=D):
    return cloud("isotropic", n, d).double()


def updated(metric, *batches):
    for batch in batches:
        metric.update(**batch)
    return metric.compute()


def equal(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("d", [6, 40])
def test_each_rank_is_that_of_the_first_rows_in_the_order_of_the_hash(d):
    h, index = rows(d=d), 7 * torch.arange(N)
    order = counter_hash(0, index).argsort()
    found = updated(RankConvergence(contrast_size=64), {"h": h, "index": index})
    assert found["rows"].tolist() == [4, 8, 16, 32, 64]
    assert found["cap"].tolist() == [min(size, d) for size in (4, 8, 16, 32, 64)]
    for place, size in enumerate((2, 4, 8, 16, 32)):
        known = EffectiveRank()
        known.update(h[:, order[:size]])
        torch.testing.assert_close(found["rank"][place], known.compute())
    half, whole = (effective_rank(h[:, order[:size]]) for size in (N // 2, N))
    torch.testing.assert_close(found["growth"], whole / half - 1)


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("kind", [RankConvergence, ClassRank])
def test_order_and_shards_do_not_matter(kind, parts):
    def seen(chosen):
        batch = {"h": h[:, chosen], "index": chosen, "label": chosen % 3}
        return {name: batch[name] for name in (("h", "index") if kind is RankConvergence else batch)}

    h, order = rows(), torch.randperm(N, generator=torch.Generator().manual_seed(0))
    whole = updated(kind(contrast_size=48), seen(torch.arange(N)))
    shards = [kind(contrast_size=48) for _ in range(parts)]
    for place, chosen in enumerate(order.split(5)):
        shards[place % parts].update(**seen(chosen))
    for shard in shards[1:]:
        shards[0].merge_state(shard)
    equal(shards[0].compute(), whole)


def test_independent_rows_have_grown_and_repeated_directions_have_settled():
    wide = updated(RankConvergence(), {"h": torch.eye(64, dtype=torch.float64), "index": torch.arange(64)})
    assert wide["rank"][:6].tolist() == pytest.approx([2, 4, 8, 16, 32, 64], rel=1e-3)
    assert wide["growth"].item() == pytest.approx(1, rel=1e-3)
    signs = torch.eye(2, dtype=torch.float64)[torch.arange(512) % 2]
    settled = updated(RankConvergence(), {"h": signs, "index": torch.arange(512)})
    assert abs(settled["growth"].item()) < 1e-2


def test_the_rank_of_a_class_is_that_of_its_rows_around_their_mean():
    h, label = rows(), torch.arange(N) % 3
    label[0] = 7  # a class of one sample
    found = updated(ClassRank(), {"h": h, "label": label, "index": torch.arange(N)})
    expected = torch.stack([effective_rank(h[0, label == each], center=True) for each in range(3)])
    torch.testing.assert_close(found["ranks"][:3], expected)
    torch.testing.assert_close(found["mean"], expected.mean())
    assert found["ranks"][3].isnan()
    assert found["caps"].nan_to_num(-1).tolist() == [6, 6, 6, -1]
    assert found["mean_cap"] == 6
    few = updated(ClassRank(), {"h": rows(9, 40), "label": torch.arange(9) % 3})
    assert few["caps"].tolist() == [2, 2, 2]
    assert (few["ranks"] <= 2.001).all()


def test_a_class_that_is_one_simplex_has_all_its_directions():
    corners = torch.cat([torch.eye(4), 5 + 2 * torch.eye(4)]).double()
    found = updated(ClassRank(), {"h": corners, "label": torch.arange(8) // 4})
    assert found["ranks"].tolist() == pytest.approx([3, 3], rel=1e-4)
