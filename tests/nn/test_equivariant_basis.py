import itertools
from math import factorial, pi

import numpy as np
import pytest
import torch
from scipy.special import eval_hermitenorm
from torch.nn.functional import conv2d
from torch.testing import assert_close

from lightning_ssl_geometry.functional.groups.action import rescale
from lightning_ssl_geometry.nn.equivariant.basis import hermite_gaussian_basis, hermite_lines, supports

SCALES = (1.0, 1.25, 1.33, 1.5, 1.66, 1.75)  # Keller et al., Appendix B


def slow_basis(kernel_size, effective_size, scales, rotations, widths):
    """The definition, pixel by pixel: for each scale (R, e^2, k, k)."""
    found = []
    for scale, k in zip(scales, widths, strict=True):
        psi = np.zeros((rotations, effective_size**2, k, k))
        for r, i, j in itertools.product(range(rotations), range(k), range(k)):
            y, x = i - k // 2, j - k // 2
            for _ in range(r):  # back to the pixel that the turns bring here
                y, x = x, -y
            for m, n in itertools.product(range(effective_size), repeat=2):
                he = eval_hermitenorm(n, y / scale) * eval_hermitenorm(m, x / scale)
                psi[r, m * effective_size + n, i, j] = he * np.exp(-(y**2 + x**2) / (2 * scale**2)) / scale**2
        found.append(psi)
    norm = np.sqrt((found[0] ** 2).sum((-2, -1), keepdims=True))[:1]
    return [torch.from_numpy(psi / norm) for psi in found]


@pytest.mark.parametrize(
    ("kernel_size", "effective_size", "scales", "rotations", "widths"),
    [(7, 3, (1.0, 1.5), 4, (5, 7)), (5, 5, (1.25,), 4, (5,)), (11, 4, SCALES, 1, (7, 7, 9, 9, 11, 11))],
)
def test_the_basis_is_its_definition(kernel_size, effective_size, scales, rotations, widths):
    assert supports(kernel_size, scales) == widths
    expected = slow_basis(kernel_size, effective_size, scales, rotations, widths)
    assert_close(
        hermite_gaussian_basis(kernel_size, effective_size, scales, rotations), expected, rtol=1e-10, atol=1e-13
    )


@pytest.mark.parametrize(("rotations", "mirrored"), [(8, False), (3, True), (5, True)])
def test_a_turned_function_is_the_function_at_the_turned_place(rotations, mirrored):
    """In closed form: x to the right, y down, counter-clockwise as seen, mirrored before it is turned."""
    found = hermite_gaussian_basis(9, 3, (1.2,), rotations, mirrored=mirrored)[0]
    y, x = np.meshgrid(*[np.arange(-4.0, 5.0)] * 2, indexing="ij")
    norm = hermite_gaussian_basis(9, 3, (1.2,))[0][0]
    for place, (flip, k) in enumerate(itertools.product((False, True) if mirrored else (False,), range(rotations))):
        angle = 2 * pi * k / rotations
        right = x * np.cos(angle) - y * np.sin(angle)  # the place that this pixel comes from
        down = x * np.sin(angle) + y * np.cos(angle)
        right = -right if flip else right
        for m, n in itertools.product(range(3), repeat=2):
            he = eval_hermitenorm(n, down / 1.2) * eval_hermitenorm(m, right / 1.2)
            psi = he * np.exp(-(x**2 + y**2) / (2 * 1.2**2))
            unturned = (
                eval_hermitenorm(n, y / 1.2) * eval_hermitenorm(m, x / 1.2) * np.exp(-(x**2 + y**2) / (2 * 1.2**2))
            )
            expected = torch.from_numpy(psi / np.sqrt((unturned**2).sum()))
            assert_close(found[place, 3 * m + n], expected, rtol=1e-9, atol=1e-12)
    assert len(found) == rotations * (1 + mirrored)
    assert_close(found[0], norm)


def test_type_b_has_orders_up_to_4_at_ever_narrower_widths():
    """25 functions: 15 at sigma, then 10 of the same orders at sigma / 1.2."""
    scales = (0.9, 1.8)
    pairs = [(n, m) for m in range(5) for n in range(5) if n + m <= 4]
    found = hermite_gaussian_basis(9, 5, scales, basis_type="B")
    y, x = np.meshgrid(*[np.arange(-4.0, 5.0)] * 2, indexing="ij")
    expected = []
    for scale in scales:
        of_scale = []
        for k in range(25):
            (n, m), sigma = pairs[k % 15], scale / 1.2 ** (k // 15)
            he = eval_hermitenorm(n, y / sigma) * eval_hermitenorm(m, x / sigma)
            of_scale.append(torch.from_numpy(he * np.exp(-(y**2 + x**2) / (2 * sigma**2)) / sigma**2))
        expected.append(torch.stack(of_scale))
    cut = [expected[0][:, 2:-2, 2:-2], expected[1]]  # supports (5, 9)
    norms = cut[0].norm(dim=(1, 2), keepdim=True)
    for psi, wanted in zip(found, cut, strict=True):
        assert_close(psi[0], wanted / norms, rtol=1e-10, atol=1e-13)


def test_the_least_scale_is_half_a_pixel():
    assert hermite_gaussian_basis(7, 2, (0.5, 1.0))[0].isfinite().all()


def test_supports_are_odd_and_grow_to_the_kernel():
    assert supports(11, SCALES) == (7, 7, 9, 9, 11, 11)
    assert supports(7, SCALES) == (5, 5, 5, 7, 7, 7)
    for kernel_size, top in itertools.product((1, 3, 7, 15), (1.1, 1.7, 2.9)):
        widths = supports(kernel_size, np.linspace(1, top, 9))
        assert all(k % 2 for k in widths)
        assert list(widths) == sorted(widths)
        assert widths[-1] == kernel_size


def test_ranks_of_the_papers_basis():
    """121 functions: as many are independent as there are pixels, of which single precision keeps fewer."""
    basis = [psi[0].flatten(1) for psi in hermite_gaussian_basis(11, 11, SCALES)]
    assert [int(torch.linalg.matrix_rank(psi)) for psi in basis] == [49, 49, 81, 81, 121, 121]
    assert [int(torch.linalg.matrix_rank(psi.float())) for psi in basis] == [49, 49, 81, 81, 113, 109]


@pytest.mark.parametrize("rotations", [1, 4])
def test_normalised_at_the_first_scale(rotations):
    first, *others = hermite_gaussian_basis(11, 11, SCALES, rotations)
    assert_close(first.flatten(2).norm(dim=2), torch.ones(rotations, 121, dtype=torch.float64))
    alone = hermite_gaussian_basis(11, 11, SCALES[1:], rotations)  # the same functions, with other factors
    for psi, unlike in zip(others, alone, strict=True):
        factor = psi.flatten(2).norm(dim=2) / unlike.flatten(2).norm(dim=2)
        assert_close(psi, unlike * factor[..., None, None])
    # On a wide support the norm goes as 1 / sigma, by substituting x = sigma x' in the integral of psi^2.
    low = hermite_gaussian_basis(21, 2, (1.5, 3.0))
    assert_close(low[1].flatten(2).norm(dim=2), torch.full((1, 4), 0.5, dtype=torch.float64), rtol=2e-3, atol=0)


@pytest.mark.parametrize("basis_type", ["A", "B"])
def test_orientations_are_quarter_turns_counter_clockwise(basis_type):
    made = (hermite_gaussian_basis(9, 4, SCALES, rotations=r, basis_type=basis_type) for r in (4, 1))
    for psi, alone in zip(*made, strict=True):
        for r in range(4):
            assert torch.equal(psi[r], torch.rot90(alone[0], r, (-2, -1)))


def test_function_m_e_plus_n_has_order_n_along_rows_and_m_along_columns():
    e = 5
    psi = hermite_gaussian_basis(11, e, (1.4,))[0][0]
    for m, n in itertools.product(range(e), repeat=2):
        own = psi[m * e + n]
        assert_close(own.flip(0), (-1) ** n * own)
        assert_close(own.flip(1), (-1) ** m * own)
        assert_close(own, psi[n * e + m].T)


def test_the_moments_of_the_functions():
    r"""By Rodrigues' formula the integral of x^n He_n(x) exp(-x^2 / 2) is n! sqrt(2 pi), and of lower powers 0."""
    scale, e = 2.0, 4
    psi = hermite_gaussian_basis(31, e, (scale,))[0][0]
    x = (torch.arange(31, dtype=torch.float64) - 15) / scale
    gauss = torch.exp(-(x**2) / 2)
    for n in range(e):
        line = psi[n].sum(1)  # He_n along the rows, up to a factor
        he = torch.from_numpy(eval_hermitenorm(n, x.numpy())) * gauss / scale
        factor = line.norm() / he.norm()
        moments = [((line / factor) @ x**power).item() for power in range(n + 1)]
        assert moments == pytest.approx([0.0] * n + [factorial(n) * (2 * pi) ** 0.5], abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel_size": 4}, "`kernel_size` odd and >= 1, but got 4"),
        ({"kernel_size": -1}, "`kernel_size` odd and >= 1, but got -1"),
        ({"effective_size": 6}, r"`effective_size` in \[1, 5\], but got 6"),
        ({"effective_size": 0}, r"`effective_size` in \[1, 5\], but got 0"),
        ({"scales": ()}, r"`scales` to be finite numbers, at least one, but got \(\)"),
        ({"scales": (1.0, float("nan"))}, r"`scales` to be finite numbers, at least one, but got \(1.0, nan\)"),
        ({"scales": (1.0, float("inf"))}, "`scales` to be finite numbers"),
        ({"scales": (1.5, 1.0)}, r"`scales` in ascending order, but got \(1.5, 1.0\)"),
        ({"scales": (1.0, 1.0)}, r"`scales` in ascending order, but got \(1.0, 1.0\)"),
        ({"scales": (0.4, 1.0)}, "`scales` >= 0.5, the deviation in pixels .*, but got 0.4"),
        ({"rotations": 0}, "`rotations` to be an integer >= 1, but got 0"),
        (
            {"scales": (1.0, 1.8, 2.6)},
            r"`kernel_size` >= 7 for `effective_size` > 1, but got 5, .* at the smallest of `scales` = \(1.0, 1.8",
        ),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        hermite_gaussian_basis(**{"kernel_size": 5, "effective_size": 3} | arguments)


@pytest.mark.parametrize(("kernel_size", "enough"), [(1, 7), (3, 7), (5, 7)])
def test_a_support_of_one_pixel_has_no_other_function_than_the_first(kernel_size, enough):
    scales = (1.0, 2.6)
    (psi, *_) = hermite_gaussian_basis(kernel_size, 1, scales)
    assert_close(psi, torch.ones(1, 1, 1, 1, dtype=torch.float64))
    if kernel_size > 1:
        with pytest.raises(
            ValueError, match=f"`kernel_size` >= {enough} for `effective_size` > 1, but got {kernel_size}"
        ):
            hermite_gaussian_basis(kernel_size, 2, scales)
    assert all(psi.isfinite().all() for psi in hermite_gaussian_basis(enough, 2, scales))


@pytest.mark.parametrize("scales", [(1.0,), SCALES])
def test_the_basis_is_the_product_of_its_lines(scales):
    e = 4
    for psi, lines in zip(hermite_gaussian_basis(11, e, scales), hermite_lines(11, e, scales), strict=True):
        for m, n in itertools.product(range(e), repeat=2):
            assert_close(psi[0, m * e + n], lines[n][:, None] * lines[m])


def slow_fit(lines, size, factor):
    """The least squares problem over frequencies, with cosines and sines as its rows."""
    nu = (np.arange(2048) + 0.5) / 4096
    weight = 1 / np.sqrt(nu**2 + 0.03**2)

    def response(x):
        phase = 2 * pi * nu[:, None] * x
        return np.concatenate([weight[:, None] * np.cos(phase), weight[:, None] * np.sin(phase)])

    x, y = np.arange(size) - size // 2, factor * (np.arange(lines.shape[1]) - lines.shape[1] // 2)
    return np.linalg.lstsq(response(x), response(y) @ lines.T, rcond=None)[0].T


@pytest.mark.parametrize(("kernel_size", "e"), [(7, 3), (11, 3), (11, 11)])
def test_fitted_lines_are_the_nearest_to_the_resampled_ones(kernel_size, e):
    found = hermite_lines(kernel_size, e, SCALES, basis_type="fitted")
    assert [lines.shape[1] for lines in found] == list(supports(kernel_size, SCALES))
    (largest,) = hermite_lines(kernel_size, e, SCALES[-1:])  # its norm is 1
    assert_close(found[-1], largest * (SCALES[0] / SCALES[-1]) ** 0.5)
    for scale, lines in zip(SCALES[:-1], found[:-1], strict=True):
        expected = slow_fit(found[-1].numpy(), lines.shape[1], scale / SCALES[-1])
        assert_close(lines, torch.from_numpy(expected), rtol=1e-8, atol=1e-10)
        assert torch.equal(lines, (-1.0) ** torch.arange(e)[:, None] * lines.flip(1))


def test_fitted_lines_are_sampled_ones_where_these_are_neither_cut_off_nor_coarse():
    pairs = (hermite_lines(41, 3, [2 * scale for scale in SCALES], basis_type=kind) for kind in ("fitted", "A"))
    for fitted, sampled in zip(*pairs, strict=True):
        assert (fitted - sampled).norm() < 2e-3 * sampled.norm()
    for scales in ((1.0,), (1.7,)):
        assert_close(hermite_lines(7, 4, scales, basis_type="fitted"), hermite_lines(7, 4, scales))


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("rotations", [1, 2, 4])
def test_a_fitted_basis_is_the_product_of_its_lines_at_quarter_turns(rotations, mirrored):
    e, scales = 3, (1.0, 1.4)
    found = hermite_gaussian_basis(7, e, scales, rotations, mirrored=mirrored, basis_type="fitted")
    for psi, lines in zip(found, hermite_lines(7, e, scales, basis_type="fitted"), strict=True):
        for place, (flip, r) in enumerate(itertools.product((1, -1) if mirrored else (1,), range(rotations))):
            for m, n in itertools.product(range(e), repeat=2):
                unturned = lines[n][:, None] * (lines[m] * flip**m)
                assert_close(psi[place, m * e + n], unturned.rot90(4 // rotations * r))
    one_scale = {"rotations": rotations, "mirrored": mirrored}
    alike = (hermite_gaussian_basis(7, e, (1.4,), basis_type=kind, **one_scale) for kind in ("fitted", "A"))
    assert_close(*alike)


def test_a_fitted_filter_commutes_with_a_smaller_image():
    """On a smooth image with a natural spectrum, by ten times less error than a sampled filter of seven pixels."""
    size = 64
    nu = torch.fft.fftfreq(size, dtype=torch.float64)
    falling = 1 / (nu[:, None].square() + nu.square() + 0.03**2).sqrt()
    noise = torch.randn(8, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = torch.fft.ifft2(torch.fft.fft2(noise) * falling).real[:, None]
    factor = SCALES[0] / SCALES[-1]
    error = {}
    for kind in ("A", "fitted"):
        small, *_, large = (psi[0, :, None] for psi in hermite_gaussian_basis(7, 3, SCALES, basis_type=kind))
        wanted = rescale(conv2d(x, large, padding=3), factor)
        got = conv2d(rescale(x, factor), small, padding=2)
        inside = slice(size // 2 - 12, size // 2 + 12)  # a filter reaches no edge
        wanted, got = wanted[..., inside, inside], got[..., inside, inside]
        error[kind] = float((wanted - got).square().sum() / wanted.square().sum())
    assert error["fitted"] < 0.1 * error["A"]


@pytest.mark.parametrize("rotations", [3, 8])
def test_a_fitted_basis_has_quarter_turns_only(rotations):
    with pytest.raises(ValueError, match=f"`rotations` 1, 2 or 4 for `basis_type` = 'fitted', but got {rotations}"):
        hermite_gaussian_basis(7, 3, SCALES, rotations, basis_type="fitted")
