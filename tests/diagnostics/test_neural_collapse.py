import pytest
import torch

from lightning_ssl_geometry.diagnostics.neural_collapse import NeuralCollapse
from lightning_ssl_geometry.functional.neural_collapse import neural_collapse

V, N, D, CLASSES = 2, 60, 5, 4


def data():
    generator = torch.Generator().manual_seed(1)
    label = torch.randint(CLASSES, (N,), generator=generator) * 10
    mean = torch.randn(CLASSES, D, generator=generator, dtype=torch.float64)
    return mean[label // 10] + 0.3 * torch.randn(V, N, D, generator=generator, dtype=torch.float64) + 2, label


def fed(h, label, chunks):
    metric = NeuralCollapse()
    for rows in chunks:
        metric.update(h[:, rows], label[rows])
    return metric.compute()


def expected(h, label):
    return neural_collapse(h.flatten(0, 1), label.repeat(len(h)))._asdict()


def test_it_is_the_function_in_one_batch_or_many_in_any_order():
    h, label = data()
    for chunks in ([torch.arange(N)], torch.arange(N).split(7), torch.randperm(N).split(11), label.argsort().split(5)):
        torch.testing.assert_close(fed(h, label, chunks), expected(h, label))


def test_one_representation_for_each_sample_counts_as_one_view():
    h, label = data()
    metric = NeuralCollapse()
    metric.update(h[0], label.int())
    torch.testing.assert_close(metric.compute(), expected(h[:1], label))


def rank_result(rank, h, label, order):
    half = order[:37] if rank == 0 else order[37:]  # uneven
    return fed(h, label, half.split(10))


@pytest.mark.parametrize("sort", [False, True])
def test_it_is_the_same_on_two_processes_whatever_classes_each_has_seen(sort, two_processes):
    h, label = data()
    order = label.argsort() if sort else torch.arange(N)
    for found in two_processes(rank_result, h, label, order):
        torch.testing.assert_close(found, expected(h, label))


def test_reset_forgets():
    h, label = data()
    metric = NeuralCollapse()
    metric.update(100 * h + 5, label + 1)
    metric.compute()
    metric.reset()
    metric.update(h, label)
    torch.testing.assert_close(metric.compute(), expected(h, label))


def test_a_simplex_of_points_is_collapsed():
    label = torch.arange(10).repeat(3)
    found = fed(torch.eye(10)[label][None], label, torch.randperm(30).split(4))
    assert max(found.values()) < 1e-10


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_bad_input():
    metric = NeuralCollapse()
    with pytest.raises(ValueError, match="NeuralCollapse to have observed rows, but got none"):
        metric.compute()
    with pytest.raises(ValueError, match=r"`label` of shape \(N,\), but got \(2, 3, 4\), \(6,\)"):
        metric.update(torch.ones(2, 3, 4), torch.arange(6))
    with pytest.raises(ValueError, match=r"`h` of shape \(V, N, D\) or \(N, D\) .* but got \(3,\), \(3,\)"):
        metric.update(torch.ones(3), torch.arange(3))
    with pytest.raises(ValueError, match=r"`label` of an integer dtype, but got torch\.float32"):
        metric.update(torch.ones(2, 3, 4), torch.ones(3))
    metric.update(torch.ones(2, 3, 4), torch.ones(3).long())
    with pytest.raises(ValueError, match="`count` of at least 2 rows, but got 1"):
        metric.compute()


def test_the_spread_within_classes_is_not_negative_where_rounding_is_larger():
    torch.manual_seed(1)
    line = torch.randn(3, 4, 1) @ torch.randn(1, 3)
    metric = NeuralCollapse()
    metric.update(1e6 * (line.double() + 100), torch.arange(4) % 3)
    assert metric.compute()["within_class"] >= 0
