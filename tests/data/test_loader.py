import pytest
import torch
from torch.utils.data import TensorDataset

from lightning_ssl_geometry.data.loader import BatchLoader, GlobalBatchSampler


def epochs(world_size, size=103, batch_size=12, epoch=0, **arguments):
    samplers = [
        GlobalBatchSampler(size, batch_size, world_size=world_size, rank=r, **arguments) for r in range(world_size)
    ]
    for sampler in samplers:
        sampler.set_epoch(epoch)
        assert len(list(sampler)) == len(sampler)
    return [list(sampler) for sampler in samplers]


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("shuffle", [True, False])
def test_ranks_share_the_global_batches_of_one_process(shuffle, drop_last):
    (alone,) = epochs(1, batch_size=12, shuffle=shuffle, drop_last=drop_last)
    for world_size in (2, 3):
        ranks = epochs(world_size, batch_size=12 // world_size, shuffle=shuffle, drop_last=drop_last)
        assert {len(batches) for batches in ranks} == {len(alone)}
        for batch, *parts in zip(alone, *ranks, strict=True):
            assert sorted(torch.cat(parts).tolist()) == sorted(batch.tolist())
            assert max(len(p) for p in parts) - min(len(p) for p in parts) <= 1


@pytest.mark.parametrize("size", [5, 12, 13, 25, 103])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_without_drop_last_every_sample_comes_once_and_no_batch_is_empty(size, world_size):
    ranks = epochs(world_size, size=size, batch_size=4)
    assert sorted(torch.cat([batch for batches in ranks for batch in batches]).tolist()) == list(range(size))
    assert all(1 <= len(batch) <= 4 for batches in ranks for batch in batches)


def test_drop_last_leaves_full_batches():
    (batches,) = epochs(1, shuffle=True, drop_last=True)
    assert [len(batch) for batch in batches] == [12] * 8
    assert len(set(torch.cat(batches).tolist())) == 96


def test_the_order_is_a_function_of_seed_and_epoch():
    def order(**arguments):
        (batches,) = epochs(1, shuffle=True, **arguments)
        return torch.cat(batches).tolist()

    torch.manual_seed(1)
    first = order(epoch=3, seed=5)
    torch.manual_seed(2)
    assert order(epoch=3, seed=5) == first
    assert order(epoch=4, seed=5) != first
    assert order(epoch=3, seed=6) != first


def test_the_loader_resumes_within_an_epoch():
    loader = BatchLoader(TensorDataset(torch.arange(40)), GlobalBatchSampler(40, 8, shuffle=True))
    whole = [batch[0].tolist() for batch in loader]
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    assert state == {"batches": 2}
    again = BatchLoader(TensorDataset(torch.arange(40)), GlobalBatchSampler(40, 8, shuffle=True))
    again.load_state_dict(state)
    assert len(again) == 5
    assert [batch[0].tolist() for batch in again] == whole[2:]
    assert [batch[0].tolist() for batch in again] == whole
    assert again.state_dict() == {"batches": 0}


def test_bad_input():
    with pytest.raises(
        ValueError, match=r"`batch_size` x processes of at most 10, the number of samples, but got 6 x 2"
    ):
        GlobalBatchSampler(10, 6, drop_last=True, world_size=2)
    with pytest.raises(ValueError, match="at least one sample per process and batch, but got 1 for 2"):
        GlobalBatchSampler(1, 6, world_size=2)
