"""Work is counted as the formulas say, bytes as the tensors have, and the power of a growth is found."""

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.diagnostics import EffectiveRank, Uniformity
from lightning_ssl_geometry.testing.growth import MULTIPLES, WorkCounter, bytes_held, degree

A = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def work(call):
    with WorkCounter() as counter:
        call()
    return counter.work


@pytest.mark.parametrize(
    ("call", "count"),
    [
        (lambda: A.T @ A, 2 * 5 * 5 * 6),  # a multiplication and an addition for each of 5 * 5 * 6 products
        (lambda: torch.linalg.svdvals(A), 6 * 5 * 5),
        (lambda: torch.linalg.eigvalsh(A[:5]), 5**3),
        (lambda: A + 1, 30),
        (lambda: A.sum(), 30),  # the input is larger than the result
        (lambda: A[:, :1] + A[:1], 30),  # the result is larger than the inputs
        (lambda: A.T, 0),
        (lambda: A[1:].view(-1), 0),
        (lambda: A.sort(dim=0), 30),
        (lambda: A[:5].trace(), 5),
        (lambda: nn.functional.linear(A, A), 2 * 6 * 6 * 5),
    ],
)
def test_work_of_an_operation(call, count):
    assert work(call) == count


def test_a_backward_pass_is_work():
    weight = A.clone().requires_grad_()
    forward = work(lambda: weight @ A.T)
    assert work(lambda: (weight @ A.T).sum().backward()) > 2 * forward


def test_work_is_the_same_again():
    def compute():
        metric = Uniformity()
        metric.update(A)
        metric.compute()

    assert work(compute) == work(compute) > 0


@pytest.mark.parametrize(
    ("counts", "power"),
    [
        ([7, 7, 7, 7], 0),
        ([0, 0, 0, 0], 0),
        ([x for x in MULTIPLES], 1),
        ([1000 + x for x in MULTIPLES], 0),  # 0.3% more is no growth that can be seen
        ([20 * x + x**2 for x in MULTIPLES], 2),
        ([50 * x + x**2 for x in MULTIPLES], 1),  # a term that is 7% at most is not seen
        ([100 * x**2 + x**3 * 40 for x in MULTIPLES], 3),
        ([x**4 for x in MULTIPLES], 4),
        ([x**2 * (1 + 0.01 * (-1) ** x) for x in MULTIPLES], 2),  # an error of 1%
        ([2.0 ** (4 * x) for x in MULTIPLES], None),
        ([8, 4, 2, 1], None),
    ],
)
def test_the_power_of_a_growth(counts, power):
    assert degree(counts) == power


def test_bytes_are_those_of_the_state_and_of_nothing_else():
    metric = EffectiveRank()
    metric.update(A)
    assert bytes_held(metric) == 8 * (5 * 5 + 5 + 2)  # outer, total, and the sums `rows` and `rounding`
    metric.compute()  # torchmetrics keeps the result
    assert bytes_held(metric) == 8 * (5 * 5 + 5 + 2)
    metric.again = [metric.outer, metric.outer[:1]]  # the same memory
    assert bytes_held(metric) == 8 * (5 * 5 + 5 + 2)
    metric.more = {"a": (torch.zeros(10),)}
    assert bytes_held(metric) == 8 * (5 * 5 + 5 + 2) + 40
