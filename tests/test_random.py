import pytest
import torch
from scipy import stats

from lightning_ssl_geometry.functional import counter_hash, counter_uniform


def test_it_is_the_published_splitmix64():
    # The generator's outputs from state 1234567: finalised sums of the state and multiples of 2^64 / golden ratio.
    states = [1234567 + i * 0x9E3779B97F4A7C15 for i in range(3)]
    found = [counter_hash(state).item() % (1 << 64) for state in states]
    assert found == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_a_draw_does_not_depend_on_its_company():
    index = torch.randperm(1000)
    together = counter_uniform(3, 7, index, 1, size=5)
    for i in (0, 499, 999):
        assert torch.equal(together[i], counter_uniform(3, 7, index[i : i + 1], 1, size=5)[0])


@pytest.mark.parametrize("other", [(4, 7, 1), (3, 8, 1), (3, 7, 2), (7, 3, 1)])
def test_every_counter_counts(other):
    index = torch.arange(50)
    seed, epoch, view = other
    assert not (counter_hash(3, 7, index, 1) == counter_hash(seed, epoch, index, view)).any()


def test_draws_are_uniform_and_uncorrelated():
    u = counter_uniform(0, 0, torch.arange(20_000), 0, size=4).double()
    assert u.min() >= 0
    assert u.max() < 1
    for column in u.T:
        assert stats.kstest(column.numpy(), "uniform").pvalue > 1e-3
    correlation = torch.corrcoef(torch.cat([u[:-1], u[1:]], 1).T).fill_diagonal_(0)  # also with the next index
    assert correlation.abs().max() < 5 / 20_000**0.5


def test_negative_and_large_counters_wrap_around():
    assert counter_hash(-1) == counter_hash((1 << 64) - 1)


BAD = [
    ((), "at least one counter"),
    ((torch.arange(3, dtype=torch.int32),), "dtype torch.int64, but got torch.int32"),
    ((0.5,), "integers, but got 0.5"),
]


@pytest.mark.parametrize(("counters", "message"), BAD)
def test_bad_input(counters, message):
    with pytest.raises(ValueError, match=message):
        counter_hash(*counters)
