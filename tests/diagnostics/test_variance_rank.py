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


@pytest.mark.parametrize("value", [3.7, 0.9, 1e-5])
@pytest.mark.parametrize("shape", [(2000, 1), (2000, 4), (20000, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_large_batch_of_equal_rows_has_no_rank(value, shape, dtype):
    metric = VarianceRank()
    metric.update(torch.full(shape, value, dtype=dtype))
    with pytest.warns(UndefinedWarning):
        assert all(found.isnan() for found in metric.compute().values())
