"""The variational form of NT-Xent: Eq. 1, 4 and 7, Prop. 3.1 and Lemma A.2 of Calder & Lee, on finite samples."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from lightning_ssl_geometry.functional import (
    first_variation,
    info_nce,
    second_variation,
    tangential_gradient,
    variational_loss,
)
from lightning_ssl_geometry.functional.variational.form import Form

FORMS = [
    {},
    {"temperature": 0.7, "symmetric": True},
    {"psi": torch.sqrt},
    {"eta": lambda t: 1 / (1 + t)},
    {"eta": lambda t: 1 / (1 + t).square(), "psi": torch.arctan, "symmetric": True},
    {"negatives": "both", "include_self": False},
    {"negatives": "both", "eta": lambda t: (-t.square()).exp(), "include_self": False, "symmetric": True},
    {"include_self": False},
]
IDS = ["eq4", "symmetric", "psi", "eta", "psi and eta", "eq1", "eq1 by eta", "without itself"]


def cloud(seed, n=7, d=3, *, sphere=True):
    z = torch.randn(2, n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return normalize(z, dim=-1) if sphere else z


def loop(z1, z2, temperature=0.1, psi=torch.log1p, eta=None, negatives="other", include_self=True, symmetric=False):
    """Eq. 4 term by term."""
    eta = eta or (lambda t: (-t / temperature).exp())
    n = len(z1)
    total = torch.zeros((), dtype=z1.dtype)
    orders = [(z1, z2), (z2, z1)] if symmetric else [(z1, z2)]
    for a, b in orders:
        for i in range(n):
            near = torch.zeros((), dtype=z1.dtype)
            for others in (a, b) if negatives == "both" else (b,):
                for j in range(n):
                    if include_self or i != j:
                        near = near + eta((a[i] - others[j]).square().sum() / 2) / n
            total = total + psi(near / eta((a[i] - b[i]).square().sum() / 2)) / n
    return total / len(orders)


@pytest.mark.parametrize("form", FORMS, ids=IDS)
def test_the_loss_is_the_double_sum(form):
    z1, z2 = cloud(0)
    torch.testing.assert_close(variational_loss(z1, z2, **form), loop(z1, z2, **form), rtol=1e-12, atol=0)


@pytest.mark.parametrize("form", FORMS, ids=IDS)
@pytest.mark.parametrize("sphere", [True, False])
def test_the_first_variation_is_n_times_the_gradient(form, sphere):
    z = (cloud(1, sphere=sphere) * (1 if sphere else 0.4)).requires_grad_()
    (gradient,) = torch.autograd.grad(variational_loss(z[0], z[1], **form), z)
    found = first_variation(z[0], z[1], **form)
    assert not found.requires_grad
    torch.testing.assert_close(found, 7 * gradient, rtol=1e-10, atol=1e-12)


def bracket(z, order, tau=0.5):
    """Prop. 3.1 at the points of view 0, where nu has the views 0 and 1 with weight 1/2 each and T' is not T.

    `order` says of which (T, T') the G of the term Psi'(G(y)) is.
    """
    n = z.shape[1]
    eta = lambda a, b: (-(a - b).square().sum() / 2 / tau).exp()  # noqa: E731
    slope = lambda g: 1 / (1 + g)  # noqa: E731

    def ratio(t, s, i):
        return sum(eta(z[t, i], z[s, k]) for k in range(n)) / n / eta(z[t, i], z[s, i])

    found = torch.zeros_like(z[0])
    for i in range(n):
        for j in range(n):
            x, y = z[0, i], z[1, j]
            weight = slope(ratio(0, 1, i)) / eta(x, z[1, i]) + slope(ratio(*order, j)) / eta(z[0, j], y)
            found[i] += weight * (-eta(x, y) / tau) * (x - y) / n
            pair = eta(x, z[1, i])
            both = slope(ratio(0, 1, i)) * eta(x, y) + slope(ratio(1, 0, i)) * eta(z[1, i], z[0, j])
            found[i] -= both * (-pair / tau) / pair**2 * (x - z[1, i]) / n
    return found


def test_prop_3_1_with_the_views_of_g_exchanged():
    z = cloud(2)
    variation = first_variation(z[0], z[1], 0.5, symmetric=True)[0]
    torch.testing.assert_close(bracket(z, (1, 0)) / 2, variation, rtol=1e-10, atol=1e-12)
    assert (bracket(z, (0, 1)) / 2 - variation).norm() > 0.01 * variation.norm()  # as printed


def test_eq_7_at_an_invariant_map():
    z, tau = cloud(3)[0], 0.3
    near = (-torch.cdist(z, z).square() / 2 / tau).exp()
    slope = 1 / (1 + near.mean(1))
    weight = (slope[:, None] + slope) * (-near / tau)
    expected = (weight[:, :, None] * (z[:, None] - z)).mean(1)
    torch.testing.assert_close(first_variation(z, z, tau).sum(0), expected, rtol=1e-10, atol=1e-12)


def test_eq_1_in_terms_of_nt_xent():
    """SimCLR's NT-Xent has sums where Eq. 1 has means: log(1 + N G) against log(1 + G)."""
    z1, z2 = cloud(4)
    n, form = len(z1), {"negatives": "both", "include_self": False, "temperature": 0.5, "symmetric": True}
    scaled = variational_loss(z1, z2, psi=lambda g: torch.log1p(n * g), **form)
    torch.testing.assert_close(scaled, info_nce(z1, z2, 0.5), rtol=1e-12, atol=0)


def test_eq_1_by_cosines():
    z1, z2 = cloud(5)
    tau, n = 0.3, len(z1)
    near = ((z1 @ z2.T / tau).exp() + (z1 @ z1.T / tau).exp()).fill_diagonal_(0).sum(1) / n
    expected = torch.log1p(near / ((z1 * z2).sum(1) / tau).exp()).mean()
    found = variational_loss(z1, z2, tau, negatives="both", include_self=False)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_values_that_need_no_computing():
    one = torch.ones(5, 2, dtype=torch.float64)
    assert variational_loss(one, one).item() == pytest.approx(math.log(2))
    assert variational_loss(one, one, negatives="both", include_self=False).item() == pytest.approx(math.log(1 + 8 / 5))
    assert variational_loss(one[:1], -one[:1], 0.1).item() == pytest.approx(math.log(2))  # alone: its own ratio is 1


def test_the_default_neither_overflows_nor_underflows():
    z1, z2 = 100 * cloud(6, sphere=False).float()
    loss = variational_loss(z1, z2, 0.01)
    assert torch.isfinite(loss)
    assert torch.isfinite(first_variation(z1, z2, 0.01)).all()
    torch.testing.assert_close(loss, variational_loss(z1.double(), z2.double(), 0.01).float(), rtol=1e-4, atol=0)
    assert variational_loss(z1, z2, 0.01, torch.log1p) == loss  # by its name, too


def test_points_far_from_the_origin_lose_no_distance():
    z1 = torch.randn(64, 8)
    z2 = z1 + 0.1 * torch.randn(64, 8)
    far = z1 + 1000, z2 + 1000
    exact = far[0].double(), far[1].double()
    torch.testing.assert_close(variational_loss(*far).double(), variational_loss(*exact), rtol=1e-5, atol=0)
    torch.testing.assert_close(first_variation(*far).double(), first_variation(*exact), rtol=1e-3, atol=1e-5)
    bent, expected = (second_variation(z, z1.to(z), on_sphere=False) for z in (far[0], exact[0]))
    torch.testing.assert_close(bent.double(), expected, rtol=1e-3, atol=0)
    alike = 30 * torch.randn(8).repeat(16, 1)
    assert variational_loss(alike, alike).item() == pytest.approx(math.log(2), rel=1e-6)


def test_autocast_and_half_precision_change_nothing_but_the_input():
    z1, z2 = cloud(7).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = variational_loss(z1, z2), first_variation(z1, z2), second_variation(z1, z2)
    expected = variational_loss(z1.float(), z2.float()), first_variation(z1.float(), z2.float())
    assert [value.dtype for value in found] == [torch.float32] * 3
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0)
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=0)


@pytest.mark.parametrize("form", [{}, {"temperature": 0.6}, {"eta": lambda t: 3 / (1 + t), "psi": torch.sqrt}])
def test_the_second_variation_is_the_second_derivative(form):
    z, h = cloud(8)[0], cloud(9, sphere=False)[0]

    def along(s):
        return variational_loss(z + s * h, z + s * h, **form)

    s = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(along(s), s, create_graph=True)
    (expected,) = torch.autograd.grad(slope, s)
    torch.testing.assert_close(second_variation(z, h, **form), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")  # torch's own, in forward mode
def test_torch_func_takes_the_loss():
    z = cloud(17, n=4)[0]
    hessian = torch.func.hessian(lambda points: variational_loss(points, points))(z)
    expected = torch.autograd.functional.hessian(lambda points: variational_loss(points, points), z)
    torch.testing.assert_close(hessian, expected, rtol=1e-9, atol=1e-10)


def test_a_length_may_differ_from_1_by_rounding_and_not_by_more():
    z = cloud(10)[0]
    h = tangential_gradient(z, cloud(11)[0])
    second_variation(z * (1 + 0.9e-4), h, on_sphere=True)
    with pytest.raises(ValueError, match="Expected rows of `z` of length 1 for `on_sphere`, but got lengths from 1 to"):
        second_variation(z * (1 + 1.1e-4), h, on_sphere=True)


def test_the_second_variation_along_great_circles():
    z = cloud(10)[0]
    h = tangential_gradient(z, cloud(11, sphere=False)[0])
    speed = h.norm(dim=-1, keepdim=True)

    def along(s):
        on_circle = (s * speed).cos() * z + (s * speed).sin() / speed * h
        return variational_loss(on_circle, on_circle, 0.4)

    s = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(along(s), s, create_graph=True)
    (expected,) = torch.autograd.grad(slope, s)
    torch.testing.assert_close(second_variation(z, h, 0.4, on_sphere=True), expected, rtol=1e-9, atol=1e-12)


def directions(z, seed):
    """Directions h with z + h on the sphere, and for each the greatest sigma of Eq. 27, if it is not 0."""
    generator = torch.Generator().manual_seed(seed)
    pairs = tuple(torch.triu_indices(len(z), len(z), 1))
    apart = (z[:, None] - z)[pairs]
    for scale in (0.0, 0.1, 0.5, 2.0, 2.0, 2.0):  # from the opposite points to random ones
        moved = -z + scale * torch.randn(z.shape, generator=generator, dtype=z.dtype)
        h = normalize(moved, dim=1) - z
        turned = (h[:, None] - h)[pairs]
        sigma = ((apart * turned).sum(-1).square() / turned.square().sum(-1)).min().item()
        if sigma > 1e-3:
            yield h, sigma


def even(clusters):
    angle = torch.arange(clusters, dtype=torch.float64) * 2 * math.pi / clusters
    return torch.stack([angle.cos(), angle.sin()], 1)


@pytest.mark.parametrize("centers", [*(even(k) for k in (2, 3, 4)), *(cloud(k)[0][:k] for k in (2, 3, 4))])
@pytest.mark.parametrize("copies", [1, 3])
def test_lemma_a_2(centers, copies):
    """With a tau below sigma / 3 K^2 the curvature is positive, for Eq. 4 as for the lemma's own Psi and eta."""
    tried = 0
    for seed in range(20):
        for h, sigma in directions(centers, seed):
            tau = 0.999 * sigma / (3 * len(centers) ** 2)
            nearest = torch.pdist(centers).min().item() ** 2 / (2 * tau)
            if nearest < 28:  # else all similarities are below the rounding of float64
                z, h = centers.repeat_interleave(copies, 0), h.repeat_interleave(copies, 0)
                assert second_variation(z, h, tau) > 0
                lemma = {"psi": lambda t: torch.log1p(t / 2), "eta": lambda t, tau=tau: (-t / tau).exp()}
                assert second_variation(z, h, **lemma) > 0
                tried += 1
    assert tried >= 5
    z = centers.repeat_interleave(copies, 0)
    assert second_variation(z, z, 100.0) < 0  # a tau far above it


def test_points_and_directions_on_the_sphere_up_to_a_tolerance(monkeypatch):
    monkeypatch.setattr("lightning_ssl_geometry.functional.variational.second_variation._UNIT", 2.0**-10)
    z, h = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double(), torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double()

    def taken(z, h):
        try:
            return second_variation(z, h, on_sphere=True).isfinite().item()
        except ValueError:
            return False

    assert [taken((1 + step * 2.0**-10) * z, h) for step in (0.99, 1.0)] == [True, False]
    # the radial part is compared with the largest entry, or with 1 if that is larger
    for size in (0.25, 1.0, 64.0):
        assert [taken(z, size * h + step * max(size, 1) * 2.0**-10 * z) for step in (1.0, 1.01)] == [True, False]


def test_a_direction_with_a_radial_part_in_one_row_is_refused():
    z, h = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.5, 1.0], [1.0, 0.0]])
    with pytest.raises(ValueError, match=r"tangent to the sphere, but got a radial part of 0\.5"):
        second_variation(z, h, on_sphere=True)


def test_a_form_has_the_temperature_of_the_functions():
    z1, z2 = cloud(9)
    t = (z1 - z2).square().sum(-1) / 2
    torch.testing.assert_close(Form().similarity(t), (-t / 0.1).exp())
    assert variational_loss(z1, z2) == variational_loss(z1, z2, Form().temperature)


def test_moving_all_points_alike_has_no_curvature():
    z = cloud(12)[0]
    torch.testing.assert_close(second_variation(z, torch.ones_like(z)).item(), 0.0, rtol=0, atol=1e-15)


def test_tangential():
    z, v = 3 * cloud(13)
    found = tangential_gradient(z, v)
    torch.testing.assert_close((found * z).sum(-1), torch.zeros(7, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(tangential_gradient(z, found), found)
    torch.testing.assert_close(tangential_gradient(z, 2 * z), torch.zeros_like(z), rtol=0, atol=1e-12)


def test_functions_without_slope_have_none():
    z1, z2 = cloud(14)
    assert not first_variation(z1, z2, psi=torch.ones_like).any()
    assert second_variation(z1, z2, eta=torch.ones_like) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": 0.0}, r"Expected `temperature` > 0 and finite, but got 0\.0"),
        ({"temperature": math.nan}, r"Expected `temperature` > 0 and finite, but got nan"),
        ({"negatives": "all"}, r"Expected `negatives` to be one of \('other', 'both'\), but got 'all'"),
        ({"include_self": "no"}, r"Expected `include_self` to be True or False, but got 'no'"),
        ({"symmetric": 1}, r"Expected `symmetric` to be True or False, but got 1"),
        ({"psi": torch.sum}, r"Expected `psi` to map a tensor element by element, but got shape \(\) for shape \(7,\)"),
        (
            {"eta": lambda t: 1.0},
            r"Expected `eta` to map a tensor element by element, but got float for shape \(7, 7\)",
        ),
    ],
)
def test_bad_settings(arguments, message):
    z1, z2 = cloud(15)
    with pytest.raises(ValueError, match=message):
        variational_loss(z1, z2, **arguments)
    with pytest.raises(ValueError, match=message.replace("7, 7", "7,")):
        first_variation(z1, z2, **arguments)


def test_an_eta_that_is_zero_for_a_pair():
    z1 = cloud(15)[0]
    for function in (variational_loss, first_variation):
        with pytest.raises(ValueError, match="Expected `eta` > 0 for the two views of a point, but got 0"):
            function(z1, -z1, eta=lambda t: torch.relu(1 - t))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda z1, z2: variational_loss(z1, z2[:6]),
            r"Expected `z2` of shape \(N, P\), N = 7, P = 3, but got \(6, 3\)",
        ),
        (lambda z1, z2: first_variation(z1[:0], z2[:0]), "Expected `z1` and `z2` with N >= 1 samples, but got 0"),
        (
            lambda z1, z2: second_variation(z1, z2[:, :2]),
            r"Expected `direction` of shape \(N, d\), N = 7, d = 3, but got \(7, 2\)",
        ),
        (lambda z1, z2: second_variation(z1[:0], z2[:0]), "Expected `z` of at least 1 row, but got 0"),
        (lambda z1, z2: second_variation(z1.long(), z2), "Expected `z` of a float dtype"),
        (
            lambda z1, z2: second_variation(2 * z1, z2, on_sphere=True),
            "Expected rows of `z` of length 1 for `on_sphere`, but got lengths from 2 to 2",
        ),
        (
            lambda z1, z2: second_variation(z1, z1, on_sphere=True),
            "Expected `direction` tangent to the sphere, but got a radial part of 1",
        ),
        (
            lambda z1, z2: tangential_gradient(0 * z1, z2),
            r"Expected points `z` other than 0, .*, but got 7 points at 0\.",
        ),
        (
            lambda z1, z2: tangential_gradient(z1, z2[:, :2]),
            r"Expected `z` and `vector` \(..., d\), but got \(7, 3\), \(7, 2\)",
        ),
    ],
)
def test_bad_points(call, message):
    with pytest.raises(ValueError, match=message):
        call(*cloud(16))
