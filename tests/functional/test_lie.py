from itertools import count
from math import factorial

import pytest
import torch
from torch.autograd import gradcheck
from torchmetrics.functional import r2_score

from lightning_ssl_geometry.functional.groups.lie import (
    _lack_of_fit,
    _terms,
    lie_action,
    lie_generator,
    lie_strength,
)
from lightning_ssl_geometry.functional.spectrum import numerical_rank
from lightning_ssl_geometry.functional.tangent import null_space_fraction

N, D = 60, 8
ORDERS = ["first", "exponential"]


def skew(d=D, norm=1.0):
    a = torch.randn(d, d, dtype=torch.float64)
    g = a - a.T
    return norm * g / torch.linalg.matrix_norm(g, 2)


def planted(n=N, d=D, order="exponential", norm=1.0, noise=0.0):
    """G, h1, h2 and strengths in [-1, 1]."""
    g, h1 = skew(d, norm), torch.randn(n, d, dtype=torch.float64)
    strength = 2 * torch.rand(n, dtype=torch.float64) - 1
    h2 = lie_action(g, h1, strength) if order == "exponential" else h1 + strength[:, None] * (h1 @ g.T)
    return g, h1, h2 + noise * torch.randn_like(h2), strength


def close(found, expected, atol=1e-12, rtol=0.0):
    torch.testing.assert_close(found, expected, atol=atol, rtol=rtol)


@pytest.mark.parametrize("size", [0.0, 1e-6, 0.5, 3.0, 40.0])
def test_the_action_is_the_matrix_exponential(size):
    g, h, strength = skew(norm=size), torch.randn(9, D, dtype=torch.float64), torch.randn(9, dtype=torch.float64)
    expected = torch.stack([torch.linalg.matrix_exp(e * g) @ x for e, x in zip(strength, h, strict=True)])
    close(lie_action(g, h, strength), expected, atol=1e-13 * (1 + size))
    close(lie_action(g.float(), h.float(), strength.float()), expected.float(), atol=1e-5 * (1 + size))
    general = g + 0.1 * torch.randn_like(g)  # neither skew nor normal
    expected = torch.stack([torch.linalg.matrix_exp(e * general) @ x for e, x in zip(strength, h, strict=True)])
    close(lie_action(general, h, strength), expected, atol=1e-12 * (1 + size), rtol=1e-11)


def test_the_action_is_a_group_with_the_generator_as_its_derivative():
    g, h = skew(), torch.randn(9, D, dtype=torch.float64)
    a, b = torch.randn(2, 9, dtype=torch.float64)
    close(lie_action(g, lie_action(g, h, a), b), lie_action(g, h, a + b))
    close(lie_action(g, lie_action(g, h, a), -a), h)
    close(lie_action(g, h, torch.zeros(9)), h)
    close((lie_action(g, h, 1e-6 * torch.ones(9)) - h) / 1e-6, h @ g.T, atol=1e-5)
    close(lie_action(g, h, a).norm(dim=1), h.norm(dim=1))  # skew: a rotation
    assert lie_action(g, h[:0], a[:0]).shape == (0, D)
    assert lie_action(g.float(), h.float(), a.float()).dtype == torch.float32
    assert lie_action(g.float(), h.float(), a).dtype == torch.float64


@pytest.mark.parametrize("eps", [2.0**-23, 2.0**-52])
@pytest.mark.parametrize("size", [0.0, 1e-20, 1e-3, 0.5, 1.0, 3.9])
def test_the_series_ends_with_the_first_term_that_rounding_hides(size, eps):
    assert _terms(size, eps) == next(k for k in count(1) if size**k / factorial(k) <= eps)
    assert _terms(eps, eps) == 1


def test_the_action_is_differentiable():
    inputs = (skew(3), torch.randn(2, 3, dtype=torch.float64), torch.randn(2, dtype=torch.float64))
    assert gradcheck(lie_action, tuple(x.requires_grad_() for x in inputs))


def test_the_first_order_is_recovered_exactly_where_it_holds_exactly():
    g, h1, h2, strength = planted(order="first")
    found = lie_generator(h1, h2, strength, ridge=0)
    close(found, g)
    close(lie_strength(found, h1, h2), strength, atol=1e-11)
    close(lie_generator(h1, h2, 1000 * strength, ridge=0), g / 1000)  # per unit of strength


@pytest.mark.parametrize("norm", [0.3, 1.0, 2.0])
def test_the_exponential_is_recovered(norm):
    g, h1, h2, strength = planted(norm=norm)
    found = lie_generator(h1, h2, strength, order="exponential", ridge=0)
    close(found, g, atol=1e-6)
    close(lie_strength(found, h1, h2, order="exponential"), strength, atol=1e-5)
    first = lie_generator(h1, h2, strength, ridge=0)
    assert (first - g).norm() > 1e3 * (found - g).norm()


def test_the_orders_agree_for_small_strengths():
    g, h1, h2, strength = planted(norm=1e-3)
    close(lie_generator(h1, h2, strength, ridge=0), g, atol=1e-5)
    close(lie_strength(g, h1, h2), strength, atol=1e-5)


@pytest.mark.parametrize("order", ORDERS)
def test_ridge_least_squares_as_one_stacked_system(order):
    _, h1, h2, strength = planted(noise=0.3, order=order, norm=0.4)
    found = lie_generator(h1, h2, strength, order=order, ridge=0.1)
    x = strength[:, None] * h1
    penalty = 0.1 * x.square().sum() / D  # times the mean eigenvalue of the moments
    if order == "first":
        stacked = torch.cat([x, penalty.sqrt() * torch.eye(D).double()])
        close(found, torch.linalg.lstsq(stacked, torch.cat([h2 - h1, torch.zeros(D, D).double()])).solution.T)
    else:
        g = found.requires_grad_()
        loss = (h2 - lie_action(g, h1, strength)).square().sum() + penalty * g.square().sum()
        (slope,) = torch.autograd.grad(loss, g)
        assert slope.abs().max() < 1e-4 * loss  # a stationary point


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_rotating_the_space_conjugates_the_generator(order, ridge):
    _, h1, h2, strength = planted(noise=0.1)
    q = torch.linalg.qr(torch.randn(D, D, dtype=torch.float64)).Q
    found = lie_generator(h1, h2, strength, order=order, ridge=ridge)
    turned = lie_generator(h1 @ q.T, h2 @ q.T, strength, order=order, ridge=ridge)
    close(turned, q @ found @ q.T, atol=1e-11 if order == "first" else 1e-5)
    close(lie_generator(3 * h1, 3 * h2, strength, ridge=ridge), lie_generator(h1, h2, strength, ridge=ridge))


@pytest.mark.parametrize("order", ORDERS)
def test_strengths_are_told_on_held_out_pairs_and_not_by_shuffled_ones(order):
    _, h1, h2, strength = planted(n=400, norm=0.7, noise=0.02)
    fit, rest = slice(200), slice(200, None)
    shuffled = strength[fit][torch.randperm(200)]
    r2 = [
        r2_score(lie_strength(g, h1[rest], h2[rest], order=order), strength[rest])
        for drawn in (strength[fit], shuffled)
        if (g := lie_generator(h1[fit], h2[fit], drawn, order=order)) is not None
    ]
    assert r2[0] > 0.95
    assert r2[1] < 0.2


def test_fewer_pairs_than_dimensions_take_the_smallest_generator_that_fits():
    g, h1, h2, strength = planted(n=5, order="first")
    found = lie_generator(h1, h2, strength, ridge=0)
    close(strength[:, None] * (h1 @ found.T), h2 - h1)
    assert found.norm() < g.norm()
    assert numerical_rank(found, 1e-8) == 5
    close(found, (torch.linalg.pinv(strength[:, None] * h1) @ (h2 - h1)).T, atol=1e-10)


@pytest.mark.parametrize("order", ORDERS)
def test_a_dimension_that_is_always_zero_has_no_part_in_the_generator(order):
    _, h1, h2, strength = planted(n=20, d=3, noise=0.1)
    wider = torch.nn.functional.pad
    found = lie_generator(wider(h1, (0, 1)), wider(h2, (0, 1)), strength, order=order, ridge=0)
    expected = wider(lie_generator(h1, h2, strength, order=order, ridge=0), (0, 1, 0, 1))
    close(found, expected, atol=1e-11 if order == "first" else 1e-5)


def test_gauss_newton_goes_beyond_the_first_order():
    g, h1, h2, strength = planted(norm=2.0)
    first, found = (lie_strength(g, h1, h2, order=order) for order in ORDERS)
    close(found, strength, atol=1e-9)
    assert (first - strength).abs().max() > 0.1
    # cos and sin of the angle: the first order is sin(angle)
    turn, east = torch.tensor([[0.0, -1.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0]])
    for angle in (-3.0, -0.5, 1.0, 2.5):
        there = torch.tensor([[angle, angle]]).double()
        there = torch.cat([there[:, :1].cos(), there[:, 1:].sin()], 1)
        close(lie_strength(turn, east, there), torch.tensor([angle]).double().sin(), atol=1e-7)
        close(lie_strength(turn, east, there, order="exponential"), torch.tensor([angle]).double(), atol=1e-7)


def test_the_strength_of_a_stretch_is_the_logarithm_of_its_factor():
    # exp(epsilon) h; the first order is exp(epsilon) - 1
    h, strength = torch.tensor([[1.0], [2.0], [-3.0]]).double(), torch.tensor([2.0, -1.0, 0.5]).double()
    first, found = (lie_strength(torch.eye(1), h, h * strength.exp()[:, None], order=order) for order in ORDERS)
    close(first, strength.expm1())
    close(found, strength)


def slow_strength(g, h1, h2, iterations):
    """Gauss-Newton steps for one pair: shorter by half after a step that is rejected, and longer again after others."""
    strength, damping, y = 0.0, 1.0, h1
    for _ in range(iterations):
        slope, limit = g @ y, 4 / torch.linalg.matrix_norm(g, 2)
        step = damping * ((h2 - y) @ slope / (slope @ slope)).clamp(-limit, limit)
        tried = torch.linalg.matrix_exp((strength + step) * g) @ h1
        if (h2 - tried).norm() < (h2 - y).norm():
            strength, damping, y = strength + step, min(2 * damping, 1.0), tried
        else:
            damping = damping / 2
    return strength


@pytest.mark.parametrize("iterations", [1, 3, 5, 8])
def test_the_steps_are_those_of_the_slow_loop(iterations):
    g, (h1, h2) = skew(3, norm=3.0) + 0.5 * torch.randn(3, 3).double(), torch.randn(2, 20, 3, dtype=torch.float64)
    expected = [float(slow_strength(g, a, b, iterations)) for a, b in zip(h1, h2, strict=True)]
    found = lie_strength(g, h1, h2, order="exponential", iterations=iterations)
    close(found, torch.tensor(expected, dtype=torch.float64), atol=1e-7)


def test_the_ridge_is_a_thousandth_unless_said():
    _, h1, h2, strength = planted(noise=0.1)
    found = [lie_generator(h1, h2, strength, **ridge) for ridge in ({}, {"ridge": 1e-3}, {"ridge": 2e-3})]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_a_search_has_100_iterations_unless_said(monkeypatch):
    asked = []
    refined = lambda generator, *_, max_iterations: asked.append(max_iterations) or generator  # noqa: E731
    monkeypatch.setattr("lightning_ssl_geometry.functional.groups.lie._refined", refined)
    lie_generator(*planted()[1:], order="exponential")
    assert asked == [100]


def test_a_step_that_lowers_the_error_by_less_than_rounding_is_not_taken():
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    h2 = torch.tensor([[2.0, 1e-17]], dtype=torch.float64)  # at 1 from (1, 0), before a turn by 1e-17 and after it
    assert lie_strength(turn, torch.tensor([[1.0, 0.0]]), h2, order="exponential", iterations=1) == 0


def test_there_are_twenty_steps_unless_said():
    g, (h1, h2) = skew(3, norm=3.0), torch.randn(2, 20, 3, dtype=torch.float64)
    found = [lie_strength(g, h1, h2, order="exponential", iterations=count) for count in (20, 21)]
    assert torch.equal(lie_strength(g, h1, h2, order="exponential"), found[0])
    assert not torch.equal(*found)  # what is far from a fit is found slowly


def test_the_lack_of_fit_of_no_motion_is_1():
    g, h1, h2, strength = planted(noise=0.1)
    parts = {"h1": h1, "h2": h2, "strength": strength}
    for scale in (1.0, 100.0):
        scaled = {**parts, "h1": scale * h1, "h2": scale * h2}
        assert _lack_of_fit(0 * g, **scaled, penalty=torch.tensor(3.0)).item() == pytest.approx(1)
    # a penalty adds its multiple of |G|^2, over the squared length of the motion
    plain, with_penalty = (_lack_of_fit(g, **parts, penalty=torch.tensor(each)) for each in (0.0, 3.0))
    close(with_penalty - plain, 3 * g.square().sum() / (h2 - h1).square().sum())


@pytest.mark.parametrize("order", ORDERS)
def test_what_does_not_move_has_no_strength(order):
    g = torch.zeros(D, D)
    g[0, 1] = 1.0
    h = torch.eye(D)
    assert lie_strength(g, h, torch.randn(D, D), order=order)[[0, *range(2, D)]].tolist() == [0.0] * (D - 1)
    assert lie_strength(torch.zeros(D, D), h, torch.randn(D, D), order=order).tolist() == [0.0] * D
    for still in (torch.randn(9, D), torch.zeros(9, D)):
        assert not lie_generator(still, still, torch.ones(9), order=order).any()
    assert not lie_generator(torch.zeros(9, D), torch.ones(9, D), torch.ones(9), order=order, ridge=0).any()


def test_what_does_not_move_has_a_gradient_of_0():
    g, h1 = torch.zeros(D, D), torch.eye(D)
    g[0, 1] = 1.0  # only the second unit vector moves, along the first
    h2 = torch.randn(D, D, requires_grad=True)
    lie_strength(g, h1, h2).sum().backward()
    close(h2.grad, torch.zeros(D, D).index_put((torch.tensor(1), torch.tensor(0)), torch.tensor(1.0)))


@pytest.mark.parametrize("order", ORDERS)
def test_strengths_of_noise_are_finite(order):
    g = 1e-9 * torch.randn(D, D, dtype=torch.float64)
    g[0, 0] = 50.0
    h1, h2 = torch.randn(2, 30, D, dtype=torch.float64)
    h1[:, 0] = 0
    assert lie_strength(g, h1, h2, order=order).isfinite().all()


def test_a_generator_in_the_kernel_of_the_projector():
    weight = torch.linalg.qr(torch.randn(D, 3, dtype=torch.float64)).Q  # W, (D, P)
    kernel = torch.eye(D, dtype=torch.float64) - weight @ weight.T
    g = kernel @ skew()
    h1, strength = torch.randn(N, D, dtype=torch.float64), torch.rand(N, dtype=torch.float64)
    h2 = lie_action(g, h1, strength)
    close(h2 @ weight, h1 @ weight)  # every power of G is in the kernel with it: W^T h does not change
    for order in ORDERS:
        found = lie_generator(h1, h2, strength, order=order)
        assert null_space_fraction(found.T, weight).item() == pytest.approx(1)
    assert null_space_fraction((weight @ weight.T @ skew()).T, weight).item() == pytest.approx(0, abs=1e-12)


def test_a_generator_without_preference():
    weight = torch.randn(D, 3, dtype=torch.float64)
    draws = [null_space_fraction(torch.randn(D, D, dtype=torch.float64), weight) for _ in range(200)]
    assert torch.stack(draws).mean().item() == pytest.approx(1 - 3 / D, abs=0.02)


def test_it_works_in_inference_mode():
    _, h1, h2, strength = planted()
    expected = lie_generator(h1, h2, strength, order="exponential")
    with torch.inference_mode():
        close(lie_generator(h1.clone(), h2.clone(), strength.clone(), order="exponential"), expected)


ERRORS = [
    (lambda g, h1, h2, s: lie_generator(h1, h2[1:], s), r"`h2` of shape \(N, D\), N = 60, D = 8, but got \(59, 8\)"),
    (lambda g, h1, h2, s: lie_generator(h1, h2, s[1:]), r"`strength` of shape \(N,\), N = 60, but got \(59,\)"),
    (lambda g, h1, h2, s: lie_generator(h1, h2, 0 * s), "`strength` with a value other than 0"),
    (lambda g, h1, h2, s: lie_generator(h1, h2 / 0, s), "finite `h2`"),
    (lambda g, h1, h2, s: lie_action(g, h1, s / 0), "finite `strength`"),
    (lambda g, h1, h2, s: lie_generator(h1, h2, s, order="second"), "`order` to be one of .*, but got 'second'"),
    (lambda g, h1, h2, s: lie_strength(g, h1, h2, order="second"), "`order` to be one of"),
    (lambda g, h1, h2, s: lie_generator(h1, h2, s, ridge=-1), "`ridge` >= 0 and finite, but got -1"),
    (lambda g, h1, h2, s: lie_generator(h1, h2, s, ridge=float("inf")), "`ridge` >= 0 and finite, but got inf"),
    (lambda g, h1, h2, s: lie_generator(h1, h2, s, ridge=float("nan")), "`ridge` >= 0 and finite, but got nan"),
    (lambda g, h1, h2, s: lie_action(g[1:], h1, s), r"`generator` of shape \(D, D\), .*but got \(7, 8\)"),
    (lambda g, h1, h2, s: lie_strength(g / 0, h1, h2), "finite `generator`"),
    (lambda g, h1, h2, s: lie_strength(g, h1, h2[1:]), r"`h2` of shape \(N, D\), N = 60"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(*planted())
