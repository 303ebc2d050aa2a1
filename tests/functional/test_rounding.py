"""The thresholds of rounding errors, by their formulas."""

import pytest
import torch

from lightning_ssl_geometry.functional.rounding import moments_floor, rounding_eps, rounding_floor


def test_the_epsilon_is_that_of_the_dtype_or_of_float64():
    dtypes = (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64, torch.bool)
    assert [rounding_eps(dtype) for dtype in dtypes] == [2**-7, 2**-10, 2**-23, 2**-52, 2**-52, 2**-52]


@pytest.mark.parametrize("shape", [(4, 100), (100, 4)])
def test_rounding_of_float32_spreads_over_the_singular_values_and_of_float64_grows_with_the_size(shape):
    h = torch.randn(shape)
    assert rounding_floor(h).item() == pytest.approx(2**-23 / 2 * h.double().norm().item(), rel=1e-9, abs=0)
    assert rounding_floor(h.double()).item() == pytest.approx(100 * 2**-52 * h.double().norm().item(), rel=1e-9, abs=0)


def test_one_row_or_column_has_the_rounding_of_its_norm():
    for shape in ((1, 4), (4, 1)):
        assert rounding_floor(torch.ones(shape)).item() == 2**-23 * 2


def test_no_rows_have_no_rounding():
    assert rounding_floor(torch.ones(0, 4)) == 0


@pytest.mark.parametrize(("rows", "rank"), [(3.0, 3), (16.0, 4)])
def test_the_floor_of_moments_is_the_larger_of_both_terms(rows, rank):
    n, outer, none = torch.tensor(rows, dtype=torch.float64), 2.0 * torch.eye(4, dtype=torch.float64), torch.tensor(0.0)
    assert moments_floor(n, outer, none).item() == pytest.approx(
        (4 + 2 * rows**0.5) * 2**-52 * 8 / rows, rel=1e-9, abs=0
    )
    assert moments_floor(n, outer, none + 1.0).item() == pytest.approx(1 / rank / rows, rel=1e-9, abs=0)
