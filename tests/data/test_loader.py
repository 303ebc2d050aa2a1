import pytest
import torch

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


class Positions:
    def __getitem__(self, positions):
        return {"position": positions.tolist()}


def loader(trained=None):
    return BatchLoader(Positions(), GlobalBatchSampler(40, 8, shuffle=True), trained)


def place(loader):
    saved = loader.state_dict()
    return saved["epoch"], saved["batches"]


def epoch_of(loader, epoch):
    loader.sampler.set_epoch(epoch)
    return list(loader)


def test_batches_say_their_epoch():
    assert [batch["epoch"] for batch in epoch_of(loader(), 7)] == [7] * 5


def test_the_loader_resumes_within_an_epoch():
    whole = [batch for epoch in (0, 1, 2) for batch in epoch_of(loader(), epoch)]
    stopped, resumed = loader(), loader()
    for _, _ in zip(range(2), stopped, strict=False):
        pass
    assert place(stopped) == (0, 2)
    resumed.load_state_dict(stopped.state_dict())
    assert resumed.state_dict() == stopped.state_dict()
    assert len(resumed) == 5
    assert [batch for epoch in (0, 1, 2) for batch in epoch_of(resumed, epoch)] == whole[2:]
    assert place(resumed) == (2, 5)
    resumed.load_state_dict({"epoch": 1, "batches": 5})
    assert epoch_of(resumed, 2) == whole[10:]


OTHERS = {
    "batch": (GlobalBatchSampler(40, 4, shuffle=True), "`batch_size` x processes = 8 in the rest .*, but got 4"),
    "samples": (GlobalBatchSampler(41, 8, shuffle=True), "40 training samples in the rest .*, but got 41"),
    "seed": (GlobalBatchSampler(40, 8, shuffle=True, seed=1), "`seed` = 0 in the rest of the epoch .*, but got 1"),
}


@pytest.mark.parametrize(("sampler", "message"), OTHERS.values(), ids=OTHERS)
def test_the_rest_of_an_epoch_has_its_batches_and_later_epochs_may_have_others(sampler, message):
    stopped = loader()
    for _, _ in zip(range(2), stopped, strict=False):
        pass
    saved = stopped.state_dict()
    resumed = BatchLoader(Positions(), sampler)
    resumed.load_state_dict(saved)
    with pytest.raises(ValueError, match=message):
        next(iter(resumed))
    later = BatchLoader(Positions(), sampler, lambda: 0)  # the Trainer counts the epoch as complete
    later.load_state_dict(saved)
    assert next(iter(later))["epoch"] == 1
    earlier = BatchLoader(Positions(), sampler)  # of a version that did not save them
    earlier.load_state_dict({"epoch": 0, "batches": 2})
    assert next(iter(earlier))["epoch"] == 0


def test_ranks_may_be_others_in_the_rest_of_an_epoch():
    stopped, two = loader(), BatchLoader(Positions(), GlobalBatchSampler(40, 4, shuffle=True, world_size=2))
    for _, _ in zip(range(2), stopped, strict=False):
        pass
    two.load_state_dict(stopped.state_dict())
    assert len(list(two)) == 3


def test_what_the_trainer_counts_decides():
    whole = [batch for epoch in (0, 1) for batch in epoch_of(loader(), epoch)]
    handed_out = loader(lambda: 3)  # the fourth batch was handed out, but not trained
    for _, _ in zip(range(4), handed_out, strict=False):
        pass
    assert place(handed_out) == (0, 3)
    resumed = loader(lambda: 3)
    resumed.load_state_dict(handed_out.state_dict())
    assert epoch_of(resumed, 0) == whole[3:5]
    begun_anew = loader(lambda: 0)
    begun_anew.load_state_dict({"epoch": 0, "batches": 3})
    assert epoch_of(begun_anew, 4) == whole[5:]


def test_a_pass_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    epoch_of(loader(), 1)
    assert torch.equal(torch.get_rng_state(), before)


def test_bad_input():
    with pytest.raises(
        ValueError, match=r"`batch_size` x processes of at most 10, the number of samples, but got 6 x 2"
    ):
        GlobalBatchSampler(10, 6, drop_last=True, world_size=2)
    for size, batch_size in ((1, 6), (5, 1), (0, 6)):
        message = f"for each of 2 processes in every batch, but {size} samples in batches of at most {batch_size} x 2"
        with pytest.raises(ValueError, match=message):
            GlobalBatchSampler(size, batch_size, world_size=2)
