import pytest
import torch

from lightning_ssl_geometry.distributed import (
    all_reduce_mean,
    all_reduce_sum,
    average_gradients,
    gather,
    rank,
    unique_numbers,
    world_size,
)


def sizes_and_ranks(process):
    return rank(), world_size()


def gathered(process, parts):
    return gather(parts[process])


def gathered_gradient(process, parts, weights):
    """The gradient of the loss (weights * all rows).sum(); rank 1 doubles its loss."""
    x = parts[process].requires_grad_()
    loss = (gather(x) * weights).sum() * (process + 1)
    loss.backward()
    return x.grad


def reduced(process, x):
    """Sum and mean of x * (rank + 1), and the gradient of their weighted sum."""
    x = (x * (process + 1)).requires_grad_()
    total, mean = all_reduce_sum(x), all_reduce_mean(x)
    (3 * total + mean).sum().backward()
    return total.detach(), mean.detach(), x.grad


def numbered(process):
    return torch.cat([unique_numbers(0, 2), unique_numbers(2, 0), unique_numbers(2, 3)])


def summed_integers(process):
    return all_reduce_sum(torch.tensor([process, 10]))


def strided(process):
    return gather(torch.arange(6.0).view(2, 3).T[process : process + 2])


def averaged(process):
    """Gradients of a few parameters, of two dtypes, one transposed and one without a gradient."""
    parameters = [torch.zeros(3, 2), torch.zeros(2, 5).T, torch.zeros(4, dtype=torch.float64), torch.zeros(1)]
    for place, parameter in enumerate(parameters[:3]):
        parameter.grad = torch.full_like(parameter, 10.0 * place + process)
    average_gradients(iter(parameters))
    return [parameter.grad for parameter in parameters]


PARTS = {
    "even": (3, 3),
    "uneven": (4, 1),
    "one is empty": (0, 2),
    "all are empty": (0, 0),
}


def test_one_process_is_left_alone():
    x = torch.randn(3, 2, requires_grad=True)
    assert (rank(), world_size()) == (0, 1)
    assert gather(x) is x
    assert all_reduce_sum(x) is x
    assert all_reduce_mean(x) is x


def test_ranks_know_their_place(two_processes):
    assert two_processes(sizes_and_ranks) == [(0, 2), (1, 2)]


@pytest.mark.parametrize("sizes", PARTS.values(), ids=PARTS.keys())
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool],
    ids=str,
)
def test_gather_concatenates_in_the_order_of_the_ranks(two_processes, sizes, dtype):
    parts = [torch.randint(0, 2, (n, 3, 2)).to(dtype) for n in sizes]
    for result in two_processes(gathered, parts):
        assert result.dtype == dtype
        assert torch.equal(result, torch.cat(parts))


def test_gather_of_labels(two_processes):
    labels = [torch.tensor([5, 6, 7]), torch.tensor([2**60])]
    for result in two_processes(gathered, labels):
        assert result.tolist() == [5, 6, 7, 2**60]


def test_gather_takes_any_strides(two_processes):
    for result in two_processes(strided):
        assert result.tolist() == [[0.0, 3.0], [1.0, 4.0], [1.0, 4.0], [2.0, 5.0]]


@pytest.mark.parametrize("sizes", [(3, 3), (4, 1), (0, 2)], ids=str)
def test_gradient_of_gather_is_that_of_the_sum_of_all_losses(two_processes, sizes):
    parts, weights = [torch.randn(n, 2) for n in sizes], torch.randn(sum(sizes), 2)
    gradients = two_processes(gathered_gradient, parts, weights)
    torch.testing.assert_close(torch.cat(gradients), 3 * weights)


def test_sum_and_mean(two_processes):
    x = torch.randn(4, 3)
    for total, mean, gradient in two_processes(reduced, x):
        torch.testing.assert_close(total, 3 * x)
        torch.testing.assert_close(mean, 1.5 * x)
        # Two losses, each 3 per element from the sum and 1/2 from the mean.
        torch.testing.assert_close(gradient, torch.full_like(x, 7.0))


def test_gradients_are_averaged_in_place(two_processes):
    for grads in two_processes(averaged):
        assert grads.pop() is None
        for place, grad in enumerate(grads):
            assert (grad == 10.0 * place + 0.5).all()
    (alone,) = [averaged(3)]
    assert [grad[0].max().item() for grad in alone[:3]] == [3.0, 13.0, 23.0]


def test_numbers_are_those_of_the_data_set_in_its_order(two_processes):
    assert numbered(0).tolist() == [0, 1, 2, 3, 4]
    assert [each.tolist() for each in two_processes(numbered)] == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


def test_sum_of_integers(two_processes):
    assert [result.tolist() for result in two_processes(summed_integers)] == [[1, 20], [1, 20]]


def test_wrong_tensors_are_named():
    with pytest.raises(ValueError, match="`x` with at least 1 dimension, whose rows are gathered, but got a scalar"):
        gather(torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"`x` of a float dtype, but got torch\.int64"):
        all_reduce_mean(torch.arange(3))
