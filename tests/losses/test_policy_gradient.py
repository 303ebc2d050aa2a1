"""The estimators of the policy's gradient: one and two processes, and what they embed."""

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.functional import augmentation_channel_loss, exact_channel_loss
from lightning_ssl_geometry.losses import AllPairs, DistinctPairs, ExactInformation, ScoreFunction
from lightning_ssl_geometry.losses.policy_gradient import Channel
from lightning_ssl_geometry.views import CropFamily

KINDS = (AllPairs, DistinctPairs, ExactInformation, ScoreFunction)
FAMILY = CropFamily(image_size=10, size=4, stride=2)  # 16 crops


def images(n):
    """Black images with a bright square of 3 x 3 pixels somewhere."""
    generator = torch.Generator().manual_seed(0)
    x = torch.zeros(n, 1, 10, 10, dtype=torch.float64)
    for image in x:
        top, left = torch.randint(7, (2,), generator=generator)
        image[0, top : top + 3, left : left + 3] = torch.rand(3, 3, generator=generator, dtype=torch.float64)
    return x


def encoder():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 5)).double()


def channel(x, jensen=True):
    return Channel(x, FAMILY, embed=encoder(), beta=2.0, jensen=jensen)


def logits(n):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(n, 16, generator=generator, dtype=torch.float64)


def uniform(n, m=8):
    generator = torch.Generator().manual_seed(3)
    return torch.rand(n, m, generator=generator, dtype=torch.float64)


def both(kind, rows=slice(None), n=7):
    """The loss and its gradient for some of n images."""
    given = logits(n)[rows].requires_grad_()
    loss = kind()(channel(images(n)[rows]), given.log_softmax(1), uniform(n)[rows])
    return loss.item(), torch.autograd.grad(loss, given)[0]


def on_a_rank(rank, name):
    kind = next(each for each in KINDS if each.__name__ == name)
    loss, gradient = both(kind, slice(0, 4) if rank == 0 else slice(4, None))
    return loss, gradient / 2  # as DistributedDataParallel averages it


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_give_the_gradient_of_one(kind, two_processes):
    loss, gradient = both(kind)
    found = two_processes(on_a_rank, kind.__name__)
    assert [each[0] for each in found] == pytest.approx([loss, loss])
    torch.testing.assert_close(torch.cat([each[1] for each in found]), gradient)


@pytest.mark.parametrize("jensen", [True, False])
def test_the_exact_one_embeds_equal_crops_once_and_is_the_exact_loss(jensen):
    x, seen = images(5), []

    def embed(views):
        seen.append(len(views))
        return encoder()(views)

    given = Channel(x, FAMILY, embed=embed, beta=2.0, jensen=jensen)
    found = ExactInformation(chunk_size=7)(given, logits(5).log_softmax(1), uniform(5))
    every = encoder()(FAMILY(x, torch.arange(5).repeat_interleave(16), torch.arange(16).repeat(5)))
    torch.testing.assert_close(found, exact_channel_loss(every.view(5, 16, -1), logits(5), beta=2.0, jensen=jensen))
    assert max(seen) <= 7
    assert sum(seen) < 5 * 16


@pytest.mark.parametrize("kind", [AllPairs, DistinctPairs])
def test_uniform_draws_are_weighed_by_the_policy(kind):
    x, log_policy = images(5), logits(5).log_softmax(1)
    member = (uniform(5) * 16).long()
    z = encoder()(FAMILY(x, torch.arange(5).repeat_interleave(8), member.flatten())).view(5, 8, -1)
    expected = augmentation_channel_loss(z, log_policy.gather(1, member), 2.0, itself=kind is AllPairs)
    torch.testing.assert_close(kind()(channel(x), log_policy, uniform(5)), expected)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="Expected `jensen` = True beside ScoreFunction, but got False"):
        ScoreFunction()(channel(images(4), jensen=False), logits(4).log_softmax(1), uniform(4))
    with pytest.raises(ValueError, match=r"N >= 2 and m >= 3, but got \(4, 2, 5\)"):
        ScoreFunction()(channel(images(4)), logits(4).log_softmax(1), uniform(4, 2))
    with pytest.raises(ValueError, match="Expected `chunk_size` >= 1, but got 0"):
        ExactInformation(chunk_size=0)
