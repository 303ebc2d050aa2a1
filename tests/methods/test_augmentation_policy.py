"""The watch over a policy's entropy."""

import math

import pytest
import torch

from lightning_ssl_geometry.methods.augmentation_policy import EntropyWatch


def ended(entropies, epoch=0, least=0.3):
    """End an epoch after (epoch, entropy) of some batches."""
    watch = EntropyWatch(least, 4)
    for when, entropy in entropies:
        watch.see(when, torch.tensor(entropy))
    watch.end(epoch, entropy_weight=0.01)


def test_the_highest_entropy_of_the_epoch_decides():
    for order in ([0.1, 0.2, 0.05], [0.2, 0.05, 0.1]):
        warned = pytest.warns(UserWarning, match=r"at most 0\.2 nats in every batch of epoch 0, of 1\.39 .* is 0\.01\.")
        with warned:
            ended([(0, entropy) for entropy in order])
    ended([(0, 0.1), (0, 1.2), (0, 0.1)])
    ended([(0, 0.3)])  # not below the threshold


def test_an_epoch_forgets_the_one_before():
    with pytest.warns(UserWarning, match=r"at most 0\.1 nats in every batch of epoch 1"):
        ended([(0, 1.2), (1, 0.1)], epoch=1)
    ended([(0, 0.1), (1, 1.2)], epoch=1)


def test_an_epoch_without_batches_does_not_warn():
    ended([], epoch=0)
    ended([(0, 0.1)], epoch=1)


def test_the_threshold_is_below_that_of_a_uniform_policy():
    EntropyWatch(0.0, 4)
    for least in (-0.1, math.log(4), math.nan):
        with pytest.raises(ValueError, match=f"below 1.39 nats, the .* of a uniform policy over 4, but got {least}"):
            EntropyWatch(least, 4)


def test_another_fit_begins_with_no_entropy():
    watch = EntropyWatch(0.3, 4)
    watch.see(0, torch.tensor(1.2))
    watch.end(0, entropy_weight=0.01)
    watch.restart()
    watch.see(0, torch.tensor(0.1))
    with pytest.warns(UserWarning, match=r"at most 0\.1 nats in every batch of epoch 0"):
        watch.end(0, entropy_weight=0.01)
