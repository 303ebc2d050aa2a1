import numpy as np
import pytest
import torch

from lightning_ssl_geometry.functional.alpha_req import alpha_req, eigenvalues_alpha_req, fit_range


def power_law(alpha, n=300, dim=40):
    """Rows whose covariance has the eigenvalues i^-alpha exactly, turned at random, far from the origin."""
    h = torch.randn(n, dim, dtype=torch.float64)
    h = torch.linalg.qr(h - h.mean(0)).Q * torch.arange(1, dim + 1).double() ** (-alpha / 2)
    return n**0.5 * h @ torch.linalg.qr(torch.randn(dim, dim, dtype=torch.float64)).Q + 3


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.5])
def test_it_is_the_exponent_of_a_power_law_whatever_the_range(alpha):
    h = power_law(alpha)
    for given in ((None, None), (1, 40), (7, 9)):
        found = alpha_req(h, *given)
        assert found.alpha.item() == pytest.approx(alpha, abs=1e-9)
        assert found.r2.item() == pytest.approx(1)
        assert (found.first, found.last) == ((4, 20) if given == (None, None) else given)


@pytest.mark.parametrize(("first", "last", "center", "weighted"), [(1, 12, True, False), (3, 9, False, True)])
def test_it_is_numpys_fit_of_the_covariance(first, last, center, weighted):
    h = torch.randn(50, 12, dtype=torch.float64) * torch.rand(12, dtype=torch.float64) + 0.5
    rows = h.numpy() - h.numpy().mean(0) * center
    eigenvalues = np.sort(np.linalg.eigvalsh(rows.T @ rows))[::-1][first - 1 : last]
    index = np.arange(first, last + 1)
    weight = 1 / np.sqrt(index) if weighted else np.ones(len(index))  # polyfit squares them
    slope, _ = np.polyfit(np.log(index), np.log(eigenvalues), 1, w=weight)
    found = alpha_req(h, first, last, center=center, weighted=weighted)
    assert found.alpha.item() == pytest.approx(-slope)
    if not weighted:
        correlation = np.corrcoef(np.log(index), np.log(eigenvalues))[0, 1]
        assert found.r2.item() == pytest.approx(correlation**2)


def test_it_is_invariant_under_rotation_scale_and_centred_under_translation():
    h = torch.randn(60, 20, dtype=torch.float64) * torch.linspace(1, 3, 20)
    turned = 7 * h @ torch.linalg.qr(torch.randn(20, 20, dtype=torch.float64)).Q + 2
    torch.testing.assert_close(alpha_req(h).alpha, alpha_req(turned).alpha)
    assert (alpha_req(h, center=False).alpha - alpha_req(turned, center=False).alpha).abs() > 1e-3
    torch.testing.assert_close(alpha_req(h).alpha, alpha_req(h.reshape(2, 30, 20)).alpha)  # views are rows


def test_equal_eigenvalues_have_the_exponent_0_and_nothing_to_explain():
    found = eigenvalues_alpha_req(torch.ones(9), 1, 9)
    assert found.alpha == 0
    assert found.r2.isnan()


def test_a_broken_law_is_told_by_r2():
    index = torch.arange(1.0, 41)
    bent = torch.where(index < 10, 1.0, (index / 10) ** -4)
    assert eigenvalues_alpha_req(bent, 1, 40).r2 < 0.9 < eigenvalues_alpha_req(bent, 12, 40).r2


def test_the_default_range_lies_in_the_spectrum():
    for length in range(3, 600):
        first, last = fit_range(length)
        assert 1 <= first <= last - 2
        assert last <= length
    assert fit_range(512, last=200) == (4, 200)
    assert [fit_range(length) for length in (15, 16, 199, 202)] == [(1, 15), (4, 8), (4, 99), (4, 100)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_rounding_of_the_features_is_no_spectrum(dtype):
    thin = torch.randn(300, 5, dtype=torch.float64) @ torch.randn(5, 40, dtype=torch.float64) + 1
    assert alpha_req(thin.to(dtype), 1, 5).alpha > 0
    with pytest.raises(ValueError, match="got 15 zeros among the first 20"):
        alpha_req(thin.to(dtype), 1, 20)
    assert alpha_req(torch.randn(300, 40).to(dtype), 1, 40).alpha > 0


def test_an_eigenvalue_at_the_rounding_floor_is_0():
    # |diag(3, 4, b)| = 5, and 3 eps of it are the floor of a 3 x 3 matrix of float64
    floor = 15 * 2.0**-52
    above = torch.diag(torch.tensor([3.0, 4.0, floor * (1 + 2.0**-40)], dtype=torch.float64))
    assert alpha_req(above, center=False).last == 3
    with pytest.raises(ValueError, match="but got 1 zeros among the first 3"):
        alpha_req(torch.diag(torch.tensor([3.0, 4.0, floor], dtype=torch.float64)), center=False)


ERRORS = [
    (lambda h: alpha_req(h[0]), r"`h` of shape \(N, D\) or \(V, N, D\).*but got \(50,\)"),
    (lambda h: alpha_req(h.long()), r"a float dtype, but got torch\.int64"),
    *[
        (lambda h, a=a, b=b: alpha_req(h[:, :6], a, b), f"`last` <= 6, the length of the spectrum, but got {a} and {b}")
        for a, b in ((0, 3), (2, 3), (5, 4), (1, 7))
    ],
    (lambda h: alpha_req(h[:3, :6]), r"`last` <= 2, .* but got 1 and 2"),  # 3 rows have 2 directions
    (lambda h: alpha_req(h, 4, 43), "from `first` = 4 to `last` = 43, but got 3 zeros among the first 43"),
    (lambda h: alpha_req(h, 4, 41), "from `first` = 4 to `last` = 41, but got 1 zeros among the first 41"),
    (lambda h: alpha_req(torch.ones(9, 3)), "eigenvalues > 0 from `first` = 1 to `last` = 3"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_bad_input(call, message):
    flat = torch.cat([power_law(1.0), torch.zeros(300, 10)], dim=1)
    assert alpha_req(flat, 4, 40).last == 40
    with pytest.raises(ValueError, match=message):
        call(flat)
