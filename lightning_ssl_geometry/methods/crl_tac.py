r"""Contrastive Representation Learning with Trainable Augmentation Channel (Koyama, Minami, Miyato & Gal 2021).

SimCLR draws views from a fixed distribution. Here, a policy network gives each image its own distribution P(T | X) over
a finite family of augmentations. Policy and encoder h = g o f maximise the mutual information of image and embedding
(Eq. 2), plus a small reward for the entropy of the policy:

.. math:: \max_{h, P} \; I(X; Z) + \lambda H(T | X)

Algorithm 1 has two phases per batch, each with its own optimizer. Phase 1 draws m members of the family for each image
from P(T | X), and updates h. Phase 2 draws m members uniformly, weighs them by P(T | X), normalised over the m draws,
and updates the policy with the new h. Both phases minimise :func:`functional.augmentation_channel_loss`. With m = 2 and
a uniform policy this is SimCLR.
"""

__all__ = ["CRLTACModule"]

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
from lightning_ssl_geometry.losses import AugmentationChannelLoss
from lightning_ssl_geometry.methods.alternating import AlternatingModule, Part, with_kept_statistics
from lightning_ssl_geometry.methods.augmentation_policy import POLICY_QUANTITIES, EntropyWatch, log_probabilities
from lightning_ssl_geometry.methods.base import CONTRASTIVE_LOSS, SSLSettings
from lightning_ssl_geometry.papers import CRL_TAC
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import Batch, Observation
from lightning_ssl_geometry.views import AugmentationFamily

_ENCODER_PHASE, _POLICY_PHASE = 1, 2  # apart from each other by (seed, epoch, phase, index)


class CRLTACModule(AlternatingModule):
    """Train an encoder, and then a policy P(T | X) over a family of augmentations, on every batch.

    The members of the family are applied to the first view of a batch, in validation to `image` if the batch has it. So
    the views of the DataModule should be whole images, as :class:`ShiftedMNISTDataModule` makes them. Draws depend only
    on (seed, epoch, sample index), in validation with epoch 0. If a batch has no `index`, they come from the global
    random state.

    `forward` returns the mean of f over P(T | X). `z_image` is the mean of the normalised embedding over P(T | X),
    normalised again (Section 3.1). In the loss and the observation, h and z (m, N, ...) are those of the m drawn
    members. Running statistics of batch norm are updated in phase 1 only. :class:`AlternatingModule` says which options
    of the Trainer cannot be used.

    Args:
        backbone: f, maps augmented images (M, C, h, w) to (M, D).
        projector: g, maps (M, D) to (M, P); the method normalises the output.
        family: The K augmentations among which T is drawn.
        policy: Maps images (N, C, H, W) to finite logits (N, K). None: P(T | X) stays uniform, as in SimCLR.
        draws: m >= 2, the number of members drawn for an image in each phase; 8 in the paper.
        beta: Inverse temperature, > 0, multiplies the cosine; 0.5 in the paper, 1 for plain MNIST.
        entropy_weight: lambda >= 0; 0.0025 in the paper. With values below 0.0001, its policies often collapsed.
        jensen: Apply Jensen's inequality to the numerator of Eq. 2, as the paper does in its experiments.
        policy_optimizer: Makes the policy's optimizer. None: Adam with learning rate 1e-3, as for the encoder.
        policy_lr_scheduler: Makes the policy's scheduler, stepped once per epoch. None: warm-up and cosine.
        grad_clip_h: Largest norm of the gradient of backbone and projector, > 0. None: no limit.
        grad_clip_pi: Largest norm of the policy's gradient, > 0. None: no limit.
        collapse_entropy: In nats, from 0 to below log K. There is a warning if the policy's mean entropy is lower in
            every batch of an epoch.
        seed: Seed of the draws.
        **settings: Those of :class:`SSLModule`: `optimizer` and `lr_scheduler` for backbone and projector,
            `warmup_epochs` and `exclude_norm_and_bias` for the policy, too.

    Raises:
        ValueError: If an argument is out of range; when training begins, if several processes use another strategy than
            DDP; in a step, if the policy's logits have a wrong shape or are not finite (checked on the CPU only), or
            all images in the first batch of an epoch are empty.
    """

    quantities: ClassVar[dict[str, Quantity]] = {
        "loss": replace(CONTRASTIVE_LOSS, paper=CRL_TAC, where="Alg. 1"),
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
        policy_optimizer: OptimizerCallable | None = None,
        policy_lr_scheduler: LRSchedulerCallable | None = None,
        grad_clip_h: float | None = None,
        grad_clip_pi: float | None = None,
        collapse_entropy: float = 0.3,
        seed: int = 0,
        **settings: Unpack[SSLSettings],
    ) -> None:
        integer(2, draws=draws)
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
        self.policy_optimizer = policy_optimizer or type(self).default_optimizer
        self.policy_lr_scheduler = policy_lr_scheduler
        self.grad_clip_h, self.grad_clip_pi = grad_clip_h, grad_clip_pi
        self.collapse_entropy = collapse_entropy
        self._entropy = EntropyWatch(collapse_entropy, len(family))

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, C, H, W) to representations (N, D), the mean of f over P(T | X)."""
        return self.represent(x, self.probabilities(x)[None])[0][0]

    def probabilities(self, image: Tensor) -> Tensor:
        """Return P(T | X), (N, K), of images (N, C, H, W). Without a policy it is uniform."""
        return log_probabilities(self.policy, image, len(self.family)).exp()

    def represent(self, image: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Average f and the embedding of images (N, C, H, W) over the family, by S distributions `weight` (S, N, K).

        Returns the means of f, (S, N, D), and the means of the normalised embeddings, normalised again, (S, N, P).
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
        """Return the observation of phase 1, whose loss contrasts the embeddings of members drawn from P(T | X)."""
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
        """Take the step of the encoder, and then that of the policy with the updated encoder."""
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
        """Return the encoder (backbone and projector) and the policy, if there is one."""
        encoder = Part((self.backbone, self.projector), self.optimizer, self.lr_scheduler, grad_clip=self.grad_clip_h)
        if self.policy is None:
            return [encoder]
        policy = Part((self.policy,), self.policy_optimizer, self.policy_lr_scheduler, grad_clip=self.grad_clip_pi)
        return [encoder, policy]

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Raise a ValueError if all images of an epoch's first batch are empty. The check waits for the GPU."""
        if batch_idx == 0 and self.family.empty(batch["views"][0]).all():
            n = len(batch["views"][0])
            raise ValueError(f"Expected `views` with images that are not empty, but got a batch of {n} that all are.")

    def on_train_epoch_end(self) -> None:
        """Warn if the policy has collapsed."""
        self._entropy.end(self.current_epoch, self.entropy_weight)

    def _views(self, image: Tensor, member: Tensor) -> Tensor:
        sample = torch.arange(len(image), device=image.device).repeat_interleave(member.shape[1])
        views: Tensor = self.family(image, sample, member.flatten())
        return views

    def _policy_loss(self, log_policy: Tensor, batch: Batch) -> Tensor:
        """Return the loss of phase 2: that of uniform draws weighted by P(T | X), minus lambda times the entropy."""
        image = batch["views"][0]
        member = (self._draws_of(_POLICY_PHASE, batch, image) * len(self.family)).long()
        with torch.no_grad():
            h = with_kept_statistics(self.backbone, self._views(image, member))
            z = with_kept_statistics(self.projector, h).unflatten(0, member.shape)
        entropy = distributed.gather(policy_entropy(log_policy)).mean()
        self._entropy.see(self.current_epoch, entropy.detach())
        return self.loss(z, log_policy.gather(1, member)) - self.entropy_weight * entropy

    def _draws_of(self, phase: int, batch: Batch, image: Tensor) -> Tensor:
        return self._uniform(batch, image, self.draws, seed=self.seed, stream=(phase,))
