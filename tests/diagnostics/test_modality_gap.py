"""ModalityGap is the functions of the same names on all rows, whatever the batches."""

import pytest
import torch

from lightning_ssl_geometry.diagnostics import ModalityGap, UndefinedWarning
from lightning_ssl_geometry.functional import modality_gap, modality_gap_by_chance, modality_gap_share


def observed(z, *sizes):
    metric = ModalityGap()
    for batch in z.split(sizes or z.shape[1], dim=1):
        metric.update(batch)
    return metric.compute()


def test_it_is_the_functions_on_all_rows():
    z = (
        torch.randn(3, 50, 6, generator=torch.Generator().manual_seed(0))
        + torch.tensor([0.5, -0.5, 9.0])[:, None, None]
    )
    found, z1, z2 = observed(z, 20, 30), *z[:2].double()
    gap, chance, share = (f(z1, z2) for f in (modality_gap, modality_gap_by_chance, modality_gap_share))
    expected = {"gap": gap, "gap_chance": chance, "share": share, "share_chance": share * (chance / gap) ** 2}
    torch.testing.assert_close(found, expected)


def test_one_point_has_no_gap_and_no_share():
    with pytest.warns(UndefinedWarning, match="ModalityGap is NaN: all of `z` is one direction but for rounding"):
        found = observed(torch.ones(2, 5, 3))
    assert found["gap"] == found["gap_chance"] == 0
    assert found["share"].isnan()
    assert found["share_chance"].isnan()


def test_one_tower_is_refused():
    with pytest.raises(ValueError, match=r"Expected `z` of shape \(V, N, P\) with V >= 2 views, but got \(1, 5, 3\)"):
        ModalityGap().update(torch.ones(1, 5, 3))
