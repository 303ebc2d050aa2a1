r"""Contrastive Representation Learning with Trainable Augmentation Channel (Koyama, Minami, Miyato & Gal 2021).

SimCLR draws the augmentations of all images from the same distribution. Here, a policy network gives each image X its
own distribution P(T | X) over a finite family of augmentations T. Policy and encoder h = g o f maximise the mutual
information of image and embedding (Eq. 2), and the entropy of the policy with a small weight:

.. math:: \max_{h, P} \; I(X; Z) + \lambda H(T | X)

Algorithm 1 has two phases for each batch, each with its own optimizer. Phase 1 updates h. It draws m augmentations for
each image from P(T | X), and minimises :func:`functional.augmentation_channel_loss`. With m = 2 and a uniform policy
this is SimCLR. Phase 2 updates the policy. The paper draws m augmentations uniformly, and weighs them by P(T | X). The
argument `policy_gradient` is the estimator of the gradient. By default, it is
:class:`~lightning_ssl_geometry.losses.DistinctPairs`: the weights are normalised over the m draws, and a pair has two
different draws. Once the policy is concentrated on few augmentations, this does not descend the loss of phase 1: for
289 augmentations, m = 8 and 2.3 nats, its expected gradient has a cosine of 0.1 with the exact one.
:class:`~lightning_ssl_geometry.losses.ScoreFunction` and :class:`~lightning_ssl_geometry.losses.ExactInformation`
follow the exact gradient. :class:`~lightning_ssl_geometry.losses.AllPairs` is the plainest reading of the paper.
"""

__all__ = ["CRLTACModule"]

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, Unpack

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torch.nn.functional import normalize

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.checks import inside, integer, positive
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.functional.augmentation_channel import draw_members, policy_entropy
from lightning_ssl_geometry.losses import AugmentationChannelLoss, DistinctPairs, PolicyGradient
from lightning_ssl_geometry.losses.policy_gradient import Channel
from lightning_ssl_geometry.methods.alternating import AlternatingModule, Part
from lightning_ssl_geometry.methods.augmentation_policy import POLICY_QUANTITIES, EntropyWatch, log_probabilities
from lightning_ssl_geometry.methods.base import BATCH_SIZE, CONTRASTIVE_LOSS, SSLSettings
from lightning_ssl_geometry.methods.chunks import batch_norm_of, kept_buffers
from lightning_ssl_geometry.papers import CRL_TAC
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import Batch, Observation
from lightning_ssl_geometry.views import AugmentationFamily

_ENCODER_PHASE, _POLICY_PHASE = 1, 2  # apart from each other by (seed, epoch, phase, index)


class CRLTACModule(AlternatingModule):
    """Train, on every batch, first an encoder and then a policy P(T | X) over a family of augmentations T.

    In training, augmentations are applied to the first view of a batch. In validation, they are applied to `image` if
    the batch has it. The views should therefore be whole images, as in :class:`ShiftedMNISTDataModule`. The draws
    depend only on (seed, epoch, sample index), with epoch 0 in validation. If a batch has no `index`, they use the
    global random state.

    In `step`, h (m, N, D) and z (m, N, P) belong to the m drawn augmentations. `h_image` is the mean of f over
    P(T | X), which `forward` returns. `z_image` is the mean of the normalised embedding over P(T | X), normalised again
    (Section 3.1 of Koyama et al. 2021). Running statistics of batch norm are updated in phase 1 only.
    :class:`AlternatingModule` lists options of the Trainer that cannot be used.

    Args:
        backbone: f, maps augmented images (M, C, h, w) to (M, D).
        projector: g, maps (M, D) to (M, P). The method normalises the output.
        family: The K augmentations T.
        policy: Maps images (N, C, H, W) to finite logits (N, K). None: P(T | X) stays uniform, as in SimCLR.
        draws: m >= 2, the number of augmentations drawn for an image in each phase. The paper uses 8. `ScoreFunction`
            needs 3.
        beta: Inverse temperature > 0, which multiplies the cosine. The paper uses 0.5, and 1 for plain MNIST.
        entropy_weight: lambda >= 0. The paper uses 0.0025. Below 0.0001, its policies often collapsed.
        jensen: Whether to apply Jensen's inequality to the numerator of Eq. 2, as in the paper's experiments.
        policy_gradient: Estimates the gradient of the policy in phase 2. None:
            :class:`~lightning_ssl_geometry.losses.DistinctPairs`.
        policy_optimizer: Makes the policy's optimizer. None: Adam with learning rate 1e-3, as for the encoder.
        policy_lr_scheduler: Makes the policy's scheduler, stepped once per epoch. None: warm-up and cosine.
        grad_clip_h: Largest norm of the gradient of backbone and projector, > 0. None: no limit.
        grad_clip_pi: Largest norm of the policy's gradient, > 0. None: no limit.
        collapse_entropy: Threshold in nats, at least 0 and less than log K. There is a warning if the policy's mean
            entropy is lower in all batches of an epoch.
        seed: Seed of the draws.
        **settings: The arguments of :class:`SSLModule` except the networks. `optimizer` and `lr_scheduler` are not used
            for the policy.

    Raises:
        ValueError: If an argument is out of range. It is raised when training begins if several processes do not use
            DDP. A step raises it if the policy's logits have a wrong shape or are not finite (checked on the CPU only),
            or if all images in the first batch of an epoch are empty.
    """

    quantities: ClassVar[dict[str, Quantity]] = {
        "loss": replace(
            CONTRASTIVE_LOSS,
            text="Minus an estimate of the information that Z has about X, in nats. It depends on beta and on the "
            "batch size.",
            low="Far below 0: the augmentations of a sample find each other among those of all samples.",
            high="Near 0: samples are not told apart.",
            paper=CRL_TAC,
            where="Alg. 1",
        ),
        "batch_size": BATCH_SIZE,
        **POLICY_QUANTITIES,
    }
    default_optimizer: ClassVar[OptimizerCallable] = staticmethod(partial(torch.optim.Adam, lr=1e-3))

    @by_position(
        *("optimizer", "policy_optimizer", "lr_scheduler", "policy_lr_scheduler", "warmup_epochs"),
        *("exclude_norm_and_bias", "grad_clip_h", "grad_clip_pi", "collapse_entropy", "seed"),
    )
    @passed_on
    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        family: AugmentationFamily,
        policy: nn.Module | None = None,
        draws: int = 8,
        beta: float = 0.5,
        entropy_weight: float = 0.0025,
        jensen: bool = True,
        *,
        policy_gradient: PolicyGradient | None = None,
        policy_optimizer: OptimizerCallable | None = None,
        policy_lr_scheduler: LRSchedulerCallable | None = None,
        grad_clip_h: float | None = None,
        grad_clip_pi: float | None = None,
        collapse_entropy: float = 0.3,
        seed: int = 0,
        **settings: Unpack[SSLSettings],
    ) -> None:
        estimator = _estimator(policy_gradient, draws=draws, jensen=jensen, networks=[backbone, projector])
        inside("[0, inf)", entropy_weight=entropy_weight)
        clips = {"grad_clip_h": grad_clip_h, "grad_clip_pi": grad_clip_pi}
        positive(**{name: clip for name, clip in clips.items() if clip is not None})
        super().__init__(backbone, projector, **settings)
        if self.warmup_epochs and policy_lr_scheduler is not None:
            raise ValueError(
                f"Expected `warmup_epochs` = 0 beside `policy_lr_scheduler`, but got {self.warmup_epochs}."
            )
        self.family, self.policy = family, policy
        self.draws, self.entropy_weight, self.seed = draws, entropy_weight, seed
        self.loss = AugmentationChannelLoss(beta, jensen)
        self.policy_gradient = estimator
        self.policy_optimizer = policy_optimizer or type(self).default_optimizer
        self.policy_lr_scheduler = policy_lr_scheduler
        self.grad_clip_h, self.grad_clip_pi = grad_clip_h, grad_clip_pi
        self.collapse_entropy = collapse_entropy
        self._entropy = EntropyWatch(collapse_entropy, len(family))

    def forward(self, x: Tensor) -> Tensor:
        return self.represent(x, self.probabilities(x)[None])[0][0]

    def project_image(self, h: Tensor, batch: Batch) -> Tensor:
        """Return the mean of the normalised embedding over P(T | X), normalised again, (N, P)."""
        image = batch["image"]
        return self.represent(image, self.probabilities(image)[None])[1][0]

    def probabilities(self, image: Tensor) -> Tensor:
        """Map images (N, C, H, W) to P(T | X), (N, K)."""
        return log_probabilities(self.policy, image, len(self.family)).exp()

    def represent(self, image: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Average f and the normalised embedding over the K augmentations of `image` (N, C, H, W).

        `weight` (S, N, K) holds S distributions over the augmentations. Return the means of f (S, N, D), and the means
        of the normalised embeddings, normalised again (S, N, P).
        """
        widths: list[int] = []

        def both(views: Tensor) -> Tensor:
            h = self.backbone(views)
            z = self.project(h)
            z = normalize(z.to(torch.promote_types(z.dtype, torch.float32)), dim=1)
            widths[:] = h.shape[1], z.shape[1]
            return torch.cat([h, z], dim=1)

        f, head = self.family.integrate(both, image, weight).split(widths, dim=-1)
        return f, normalize(head, dim=-1)

    def step(self, batch: Batch) -> Observation:
        image = batch["views"][0] if self.training or "image" not in batch else batch["image"]
        log_policy = log_probabilities(self.policy, image, len(self.family))
        member = draw_members(log_policy.detach().exp(), self._draws_of(_ENCODER_PHASE, batch, image))
        h, z = (part[0].unflatten(0, member.shape) for part in self.embed((self._views(image, member),)))  # (N, m, ...)
        observation: Observation = {
            "loss": self.loss(z),
            "h": h.transpose(0, 1),
            "z": z.transpose(0, 1),
            "log_policy": log_policy,
            "family": self.family,
            "scores": {},
        }
        if self.policy is not None:
            observation["scores"]["policy_entropy"] = policy_entropy(log_policy.detach()).mean()
        if "image" in batch and not self.training:
            f, head = self.represent(image, log_policy.exp()[None])
            observation["h_image"], observation["z_image"] = f[0], head[0]
        return observation

    def descend(self, observation: Observation, batch: Batch) -> Observation:
        log_policy = observation["log_policy"]
        self.take_step(observation["loss"], 0)
        if self.policy is not None:
            loss = self._policy_loss(log_policy, batch)
            self.take_step(loss, 1)
            observation["scores"]["policy_loss"] = loss.detach()
        self.step_schedulers()
        observation["log_policy"] = log_policy.detach()
        return observation

    def parts(self) -> list[Part]:
        encoder = Part((self.backbone, self.projector), self.optimizer, self.lr_scheduler, grad_clip=self.grad_clip_h)
        if self.policy is None:
            return [encoder]
        policy = Part((self.policy,), self.policy_optimizer, self.policy_lr_scheduler, grad_clip=self.grad_clip_pi)
        return [encoder, policy]

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        if batch_idx == 0 and self.family.empty(batch["views"][0]).all():
            n = len(batch["views"][0])
            raise ValueError(f"Expected `views` with images that are not empty, but got a batch of {n} that all are.")

    def on_fit_start(self) -> None:
        super().on_fit_start()
        self._entropy.restart()

    def on_train_epoch_end(self) -> None:
        self._entropy.end(self.current_epoch, self.entropy_weight)

    def _views(self, image: Tensor, member: Tensor) -> Tensor:
        sample = torch.arange(len(image), device=image.device).repeat_interleave(member.shape[1])
        views: Tensor = self.family(image, sample, member.flatten())
        return views

    def _policy_loss(self, log_policy: Tensor, batch: Batch) -> Tensor:
        image = batch["views"][0]
        channel = Channel(image, self.family, embed=self._embedded, beta=self.loss.beta, jensen=self.loss.jensen)
        entropy = distributed.gather(policy_entropy(log_policy)).mean()
        self._entropy.see(self.current_epoch, entropy.detach())
        information = self.policy_gradient(channel, log_policy, self._draws_of(_POLICY_PHASE, batch, image))
        return information - self.entropy_weight * entropy

    def _embedded(self, views: Tensor) -> Tensor:
        with kept_buffers(self.backbone), kept_buffers(self.projector):
            return self.project(self.features(views))

    def _draws_of(self, phase: int, batch: Batch, image: Tensor) -> Tensor:
        return self._uniform(batch, image, self.draws, seed=self.seed, stream=(phase,))


def _estimator(given: object, *, draws: int, jensen: bool, networks: Sequence[nn.Module]) -> PolicyGradient:
    """Return the estimator, by default DistinctPairs. Raise a ValueError if it does not go with the other arguments."""
    estimator = DistinctPairs() if given is None else given
    if not isinstance(estimator, PolicyGradient):
        got = f"the class {estimator.__name__}" if isinstance(estimator, type) else estimator
        raise ValueError(f"Expected `policy_gradient` to be a PolicyGradient, such as DistinctPairs(), but got {got}.")
    name = type(estimator).__name__
    if not estimator.batch_statistics and (found := batch_norm_of(nn.ModuleList(networks))):
        raise ValueError(
            f"Expected `backbone` and `projector` without batch statistics beside {name}, which embeds the "
            f"augmentations in parts, but got {found}."
        )
    integer(estimator.least_draws, draws=draws)
    if estimator.needs_jensen and not jensen:
        raise ValueError(f"Expected `jensen` = True beside {name}, but got False.")
    return estimator
