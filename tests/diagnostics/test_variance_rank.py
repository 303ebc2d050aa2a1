import pytest
import torch

from lightning_ssl_geometry.diagnostics import UndefinedWarning, VarianceRank
from lightning_ssl_geometry.functional import leading_share, participation_ratio, variance_effective_rank


@pytest.mark.parametrize("center", [True, False])
def test_it_is_the_functions_of_all_rows(center):
    h = torch.randn(2, 60, 5, dtype=torch.float64) * torch.tensor([5.0, 1.0, 1.0, 0.5, 0.1]) + 2
    metric = VarianceRank(center)
    for part in h.split(25, dim=1):
        metric.update(part)
    expected = {
        "participation_ratio": participation_ratio(h, center=center),
        "effective_rank": variance_effective_rank(h, center=center),
        "leading_share": leading_share(h, center=center),
    }
    assert metric.compute().keys() == expected.keys()
    for name, value in metric.compute().items():
        assert value.item() == pytest.approx(expected[name].item(), rel=1e-9), name


def test_equal_rows_have_none():
    metric = VarianceRank()
    metric.update(torch.ones(8, 3))
    with pytest.warns(UndefinedWarning, match="VarianceRank is NaN: all of `h` is one row but for rounding"):
        assert all(value.isnan() for value in metric.compute().values())
