"""How CRL-TAC estimates the gradient of the information with respect to the policy (arXiv 2111.07679, Alg. 1)."""

__all__ = ["AllPairs", "Channel", "DistinctPairs", "ExactInformation", "PolicyGradient", "ScoreFunction"]

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.checks import whole
from lightning_ssl_geometry.functional.augmentation_channel import augmentation_channel_loss, draw_members
from lightning_ssl_geometry.functional.policy_gradient import exact_channel_loss, score_function_loss


class _Family(Protocol):
    def __call__(self, image: Tensor, sample: Tensor, member: Tensor) -> Tensor: ...

    def __len__(self) -> int: ...

    def distinct(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]: ...


class Channel(NamedTuple):
    """Images and what makes embeddings of their augmentations.

    Attributes:
        image: (N, C, H, W).
        family: The K augmentations, an `AugmentationFamily`.
        embed: Maps augmented images (M, C, h, w) to embeddings (M, P). It is called without gradients.
        beta: Inverse temperature, > 0.
        jensen: Whether Jensen's inequality is applied to the numerator of Eq. 2.
    """

    image: Tensor
    family: _Family
    embed: Callable[[Tensor], Tensor]
    beta: float
    jensen: bool

    def drawn(self, member: Tensor) -> Tensor:
        """Return the embeddings (N, m, P) of the augmentations `member` (N, m)."""
        sample = torch.arange(len(self.image), device=self.image.device).repeat_interleave(member.shape[1])
        with torch.no_grad():
            return self.embed(self.family(self.image, sample, member.flatten())).unflatten(0, member.shape)

    def distinct(self, chunk_size: int) -> tuple[Tensor, Tensor]:
        """Return the embeddings (U, P) of all different augmented images, and the row (N, K) of each augmentation."""
        sample, member, inverse = self.family.distinct(self.image)
        pairs = zip(sample.split(chunk_size), member.split(chunk_size), strict=True)
        with torch.no_grad():
            return torch.cat([self.embed(self.family(self.image, *pair)) for pair in pairs]), inverse


class PolicyGradient(nn.Module, ABC):
    """Base class of estimators: a scalar whose gradient with respect to the policy descends minus the information.

    Every rank takes part. The scalar belongs to the global batch.

    Attributes:
        least_draws: The smallest m that the estimator can use.
        needs_jensen: Whether it can only estimate the gradient with Jensen's inequality.
        batch_statistics: Whether the encoder may normalise with the statistics of the images it is given.
    """

    least_draws: ClassVar[int] = 2
    needs_jensen: ClassVar[bool] = False
    batch_statistics: ClassVar[bool] = True

    @abstractmethod
    def forward(self, channel: Channel, log_policy: Tensor, uniform: Tensor) -> Tensor:
        """Return a scalar with the gradient.

        Args:
            channel: The images and their augmentations.
            log_policy: (N, K), log P(T | X), with gradient.
            uniform: (N, m), random numbers from the uniform distribution on [0, 1), for m draws.
        """


class _UniformDraws(PolicyGradient):
    itself: bool

    def forward(self, channel: Channel, log_policy: Tensor, uniform: Tensor) -> Tensor:
        member = (uniform * len(channel.family)).long()
        z, weight = distributed.gather(channel.drawn(member)), distributed.gather(log_policy.gather(1, member))
        return augmentation_channel_loss(z, weight, channel.beta, jensen=channel.jensen, itself=self.itself)


class DistinctPairs(_UniformDraws):
    """Uniform draws, weighed by the policy, in pairs of two different draws (:func:`.augmentation_channel_loss`).

    The weights are P(T | X), normalised over the m draws of an image, and the scalar is Eq. 2 with these weights. Its
    expected gradient is not that of -I(X; Z), because the draws also stand in the normalisation and in a logarithm. If
    the policy is concentrated on far fewer than K / m augmentations, most draws of an image are improbable, and their
    normalised weights compare improbable augmentations with each other.

    For crops of MNIST, K = 289 and m = 8, the expected gradient has a cosine of 0.11 with the exact one at 2.3 nats and
    of 0.07 at 1.8 nats, and 0.05 and 0.04 of its length. At 5.2 nats, close to the uniform policy, the cosine is 0.76
    for beta = 0.5 and 0.01 for beta = 5 (README.md of examples/trainable_augmentation_channel).
    """

    itself = False


class AllPairs(_UniformDraws):
    """Uniform draws, weighed by the policy, in all m^2 pairs: the plainest reading of Eq. 2 and Alg. 1.

    A draw is compared with itself, too. With each of the K augmentations drawn once, the scalar and its gradient are
    those of :class:`ExactInformation`. With m draws, the bias is that of :class:`DistinctPairs`: a cosine of 0.04 to
    0.07 at 2.3 nats and 0.02 to 0.04 at 1.8 nats.
    """

    itself = True


class ScoreFunction(PolicyGradient):
    """Draws of the policy, their log-probabilities, and a leave-one-out baseline (:func:`.score_function_loss`).

    It descends Eq. 17. Its bias falls with N m, and is small at any entropy: for 32 images with m = 8 draws of 289
    crops, the cosine with the exact gradient is 1.00, and the length 0.99 to 1.01. The noise of one batch is 1 to 2
    times the exact gradient from 3.2 nats down, and 6 to 7 times at 5.2 nats. Needs m >= 3 draws, and Jensen's
    inequality. The paper draws uniformly.
    """

    least_draws = 3
    needs_jensen = True

    def forward(self, channel: Channel, log_policy: Tensor, uniform: Tensor) -> Tensor:
        if not channel.jensen:
            raise ValueError("Expected `jensen` = True beside ScoreFunction, but got False.")
        member = draw_members(log_policy.detach().exp(), uniform)
        z, drawn = distributed.gather(channel.drawn(member)), distributed.gather(log_policy.gather(1, member))
        return score_function_loss(z, drawn, channel.beta)


class ExactInformation(PolicyGradient):
    """All K augmentations, without draws: the exact gradient (:func:`.exact_channel_loss`).

    It descends Eq. 17, or Eq. 2 without Jensen's inequality, for the images of the batch, without bias and noise. If
    most augmentations are empty, a uniform policy can lie in the basin of a local optimum, whose policy chooses the
    empty ones and whose information is 0. On a fixed encoder, the recipe of CRL-TAC found it at beta = 5.

    Equal one-coloured augmentations are embedded once. For images with a small object, this is cheap: of the 289 crops
    of the paper's images, 84% are one and the same. The random numbers are not used. The encoder must not use batch
    statistics. Memory and work: O(U^2) for U different augmented images in the global batch, and O(N K^2 P) without
    Jensen's inequality.

    Args:
        chunk_size: Largest number of augmented images in a call of the encoder, >= 1.
    """

    batch_statistics: ClassVar[bool] = False

    def __init__(self, chunk_size: int = 256) -> None:
        super().__init__()
        whole(1, chunk_size=chunk_size)
        self.chunk_size = chunk_size

    def forward(self, channel: Channel, log_policy: Tensor, uniform: Tensor) -> Tensor:
        z, inverse = channel.distinct(self.chunk_size)
        before = distributed.gather(inverse.new_tensor([len(z)]))[: distributed.rank()].sum()
        every = distributed.gather(z), distributed.gather(log_policy), distributed.gather(inverse + before)
        return exact_channel_loss(*every, channel.beta, jensen=channel.jensen)
