"""Principal components: those of scikit-learn, with signs that depend on nothing but the rows."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from lightning_ssl_geometry.functional import principal_components


@pytest.mark.parametrize(("rows", "width", "count"), [(50, 7, 2), (9, 30, 3), (20, 20, 20)])
def test_they_are_scikit_learns_up_to_signs(rows, width, count):
    h = torch.randn(rows, width, dtype=torch.float64) * torch.linspace(3, 0.2, width, dtype=torch.float64) + 5
    points, share = principal_components(h, count)
    judge = PCA(count).fit(h.numpy())
    np.testing.assert_allclose(points.abs(), np.abs(judge.transform(h.numpy())), atol=1e-8)
    np.testing.assert_allclose(share, judge.explained_variance_ratio_, atol=1e-10)


def test_coordinates_have_the_variance_of_their_share_and_are_uncorrelated():
    h = torch.randn(40, 6, dtype=torch.float64) @ torch.randn(6, 6, dtype=torch.float64)
    points, share = principal_components(h, 6)
    moments = points.T @ points
    torch.testing.assert_close(moments, moments.diag().diag(), atol=1e-9, rtol=0)
    torch.testing.assert_close(moments.diag() / moments.trace(), share)
    torch.testing.assert_close(share.sum(), torch.ones((), dtype=torch.float64))


def test_signs_do_not_depend_on_the_order_of_the_rows_or_a_shift():
    h, order = torch.randn(30, 5, dtype=torch.float64), torch.randperm(30)
    points, share = principal_components(h)
    again, share_again = principal_components(h[order] - 7)
    torch.testing.assert_close(again, points[order])
    torch.testing.assert_close(share_again, share)


def test_missing_dimensions_and_equal_rows_are_zero():
    points, share = principal_components(torch.tensor([[1.0], [3.0], [5.0]]))
    torch.testing.assert_close(points.abs(), torch.tensor([[2.0, 0.0], [0.0, 0.0], [2.0, 0.0]], dtype=torch.float64))
    assert share.tolist() == [1, 0]
    points, share = principal_components(torch.full((4, 3), 0.1))
    assert not points.any()
    assert share.tolist() == [0, 0]


def test_wrong_arguments_are_errors():
    with pytest.raises(ValueError, match="Expected `count` >= 1"):
        principal_components(torch.randn(3, 3), 0)
    with pytest.raises(ValueError, match="`h`"):
        principal_components(torch.randn(3))


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_shares_do_not_depend_on_the_unit_of_length_where_squares_leave_float64(scale):
    h = torch.randn(9, 3, dtype=torch.float64)
    torch.testing.assert_close(principal_components(scale * h)[1], principal_components(h)[1])
