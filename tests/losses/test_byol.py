import math
import pickle

import pytest
import torch
from ranks import mean_gradients
from torch import nn
from torch.nn.functional import mse_loss, normalize

from lightning_ssl_geometry.functional import byol, byol_momentum, byol_prediction_error, info_nce
from lightning_ssl_geometry.losses import BYOLLoss


def tensors(n=7, p=4, dtype=torch.float64):
    return [torch.randn(n, p, dtype=torch.float64).to(dtype) for _ in range(4)]


def slow_loss(q1, q2, z1, z2):
    """Eq. 2 as it is read on its right side, sample by sample and way by way."""
    total = 0.0
    for i in range(len(q1)):
        for q, z in ((q1[i], z2[i]), (q2[i], z1[i])):
            total = total + 2 - 2 * (q @ z) / (q.norm() * z.norm())
    return total / len(q1)


def test_the_loss_and_its_gradient_equal_the_loop():
    given = [x.requires_grad_() for x in tensors()]
    found, expected = byol(*given), slow_loss(*given)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(torch.autograd.grad(found, given), torch.autograd.grad(expected, given))
    assert torch.autograd.gradcheck(byol, given)


def test_it_is_p_times_the_mean_squared_error_of_unit_rows():
    q1, q2, z1, z2 = (normalize(x) for x in tensors(p=5))
    torch.testing.assert_close(byol(q1, q2, z1, z2), 5 * (mse_loss(q1, z2) + mse_loss(q2, z1)))


def test_range_and_symmetry():
    q1, q2, z1, z2 = tensors()
    torch.testing.assert_close(byol(z2, z1, z1, z2), torch.tensor(0.0, dtype=torch.float64))
    torch.testing.assert_close(byol(-z2, -z1, z1, z2), torch.tensor(8.0, dtype=torch.float64))
    torch.testing.assert_close(byol(q2, q1, z2, z1), byol(q1, q2, z1, z2))
    scale = torch.rand(7, 1, dtype=torch.float64) + 0.1
    torch.testing.assert_close(byol(q1 * scale, q2, z1, z2 / scale), byol(q1, q2, z1, z2))
    rotation = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    torch.testing.assert_close(byol(*(x @ rotation for x in (q1, q2, z1, z2))), byol(q1, q2, z1, z2))


def test_the_error_keeps_its_digits_near_zero():
    angle = 1e-4  # 4 sin^2(angle / 2) = 1e-8, below float32's rounding of 2 - 2 cos
    q, z = torch.tensor([[1.0, 0.0]]), torch.tensor([[math.cos(angle), math.sin(angle)]])
    assert byol_prediction_error(q, z).item() == pytest.approx(1e-8, rel=1e-4)


def test_a_row_without_direction_counts_as_zero_without_gradient():
    q = torch.zeros(1, 3, requires_grad=True)
    error = byol_prediction_error(q, torch.tensor([[0.0, 2.0, 0.0]]))
    assert error.tolist() == [1]
    error.sum().backward()
    assert q.grad.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype):
    given = tensors(dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = byol(*given)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, byol(*(x.float() for x in given)))


def test_the_module_is_the_function_and_its_gradient_stops_at_the_targets():
    given = [x.requires_grad_() for x in tensors()]
    loss = BYOLLoss()
    torch.testing.assert_close(loss(*given), byol(*given), rtol=1e-15, atol=0)
    loss(*given).backward()
    whole = torch.autograd.grad(byol(*given), given)
    torch.testing.assert_close([x.grad for x in given[:2]], list(whole[:2]))
    assert [x.grad for x in given[2:]] == [None, None]


def test_the_module_is_picklable_and_shows_its_setting():
    loss = BYOLLoss(eps=0.5)
    given = tensors()
    assert repr(loss) == "BYOLLoss(eps=0.5)"
    assert torch.equal(pickle.loads(pickle.dumps(loss))(*given), loss(*given))


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)).double()


def step(process, x1, x2, sizes):
    x1, x2 = (x.split(sizes)[process] for x in (x1, x2))
    online, target = network(), network().requires_grad_(False)
    value = BYOLLoss()(online(x1), online(x2), target(x1 + 1), target(x2 - 1))
    value.backward()
    return value.detach(), mean_gradients(online, len(sizes))


@pytest.mark.parametrize("sizes", [(4, 4), (7, 2), (0, 5)], ids=str)
def test_two_processes_equal_one(two_processes, sizes):
    x1, x2 = torch.randn(2, sum(sizes), 3, dtype=torch.float64)
    value, gradients = step(0, x1, x2, [sum(sizes)])
    for found, found_gradients in two_processes(step, x1, x2, sizes):
        torch.testing.assert_close(found, value)
        torch.testing.assert_close(found_gradients, gradients)


@pytest.mark.parametrize(("start", "end"), [(0.996, 1.0), (0.9, 0.99), (0.5, 0.5)])
def test_the_momentum_goes_by_half_a_cosine(start, end):
    steps = 1000
    found = [byol_momentum(step, steps, start, end) for step in range(steps + 1)]
    assert (found[0], found[500], found[1000]) == pytest.approx((start, (start + end) / 2, end), abs=1e-15)
    assert found == sorted(found)
    if end == 1:  # as the paper prints it
        printed = [1 - (1 - start) * (math.cos(math.pi * step / steps) + 1) / 2 for step in range(steps + 1)]
        assert found == pytest.approx(printed, abs=1e-15)
    assert byol_momentum(steps + 5, steps, start, end) == found[-1]


@pytest.mark.parametrize("loss", [byol, BYOLLoss()], ids=["function", "module"])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q2": lambda x: x[1:]}, r"Expected `q2` of shape \(N, P\), N = 7, P = 4, but got \(6, 4\)"),
        ({"z1": lambda x: x[:, 1:]}, r"Expected `z1` of shape \(N, P\), N = 7, P = 4, but got \(7, 3\)"),
        ({"q1": lambda x: x[:, 0]}, r"Expected `q1` of shape \(N, P\), but got \(7,\)"),
        (dict.fromkeys(("q1", "q2", "z1", "z2"), lambda x: x[:0]), "Expected `q1` of at least 1 row, but got 0"),
    ],
    ids=["rows", "columns", "axes", "none"],
)
def test_wrong_tensors_are_named(loss, changed, message):
    given = dict(zip(("q1", "q2", "z1", "z2"), tensors(), strict=True))
    with pytest.raises(ValueError, match=message):
        loss(**given | {name: change(given[name]) for name, change in changed.items()})


Q, Z = torch.ones(7, 4), torch.ones(7, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: byol_momentum(-1, 10), "Expected `step` >= 0, but got -1"),
        (lambda: byol_momentum(0, 0), "Expected `steps` >= 1, but got 0"),
        (lambda: byol_momentum(0, 10, 1.5), r"Expected `momentum` in \[0, 1\], but got 1\.5"),
        (lambda: byol_momentum(0, 10, float("nan")), r"Expected `momentum` in \[0, 1\], but got nan"),
        (lambda: byol_momentum(0, 10, 0.9, -0.1), r"Expected `final_momentum` in \[0, 1\], but got -0\.1"),
        (lambda: byol_prediction_error(Q, Z[:, :2]), r"Expected `z` of shape \(N, P\), N = 7, P = 4, but got \(7, 2\)"),
        (lambda: BYOLLoss()(Q, Q, Z, Z.long()), r"Expected `z2` of a float dtype, but got torch\.int64"),
        (lambda: BYOLLoss(-1.0), r"Expected `eps` >= 0, but got -1\.0"),
        (lambda: BYOLLoss(float("nan")), "Expected `eps` >= 0, but got nan"),
        (lambda: byol(Q, Q, Z, Z, eps=-1.0), r"Expected `eps` >= 0, but got -1\.0"),
        (lambda: byol(Q, Q, Z, Z, eps=float("nan")), "Expected `eps` >= 0, but got nan"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("scale", "dtype"), [(1e20, torch.float32), (1e37, torch.float32), (1e300, torch.float64)])
def test_embeddings_whose_squares_overflow_have_the_loss_of_their_directions(scale, dtype):
    """They are no rows of zeros, which would have the least loss and no gradient."""
    z = torch.randn(2, 8, 4, dtype=dtype)
    large = (scale * z).requires_grad_()
    assert BYOLLoss()(large[0], large[1], -large[1], -large[0]).item() == pytest.approx(8)
    info_nce(large[0], large[1]).backward()
    small = z.clone().requires_grad_()
    info_nce(small[0], small[1]).backward()
    torch.testing.assert_close(info_nce(large[0], large[1]), info_nce(small[0], small[1]))
    torch.testing.assert_close(scale * large.grad, small.grad)
