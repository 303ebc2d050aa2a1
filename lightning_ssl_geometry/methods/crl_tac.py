r"""Contrastive Representation Learning with Trainable Augmentation Channel (Koyama, Minami, Miyato & Gal 2021).

SimCLR's views are drawn by a fixed distribution. Here a policy network gives each image its own distribution P(T | X)
over a finite family of augmentations, and both it and the encoder h = g o f maximise the information I(X; Z) that the
embedding Z keeps of the image through this channel (Eq. 2), with a small reward for the policy's entropy:

.. math:: \max_{h, P} \; I(X; Z) + \lambda H(T | X)

Algorithm 1 has two phases per batch, each with its own optimizer. Phase 1 draws m members for each image from P(T | X)
and updates h. Phase 2 draws m members uniformly, weighs them by P(T | X), normalised over the m draws, and updates the
policy against the updated h. Both descend :func:`functional.augmentation_channel_loss`. With m = 2 and a uniform policy
this is SimCLR.
"""

__all__ = ["CRLTACModule"]

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import normalize
from torch.optim import Optimizer

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.functional.augmentation_channel import draw_members, policy_entropy
from lightning_ssl_geometry.losses import AugmentationChannelLoss
from lightning_ssl_geometry.methods.alternating import AlternatingModule, Part
from lightning_ssl_geometry.methods.base import CONTRASTIVE_LOSS
from lightning_ssl_geometry.papers import CRL_TAC
from lightning_ssl_geometry.quantity import Chart, Quantity
from lightning_ssl_geometry.random import counter_uniform
from lightning_ssl_geometry.types import Batch, Observation
from lightning_ssl_geometry.views import AugmentationFamily

_ENCODER_PHASE, _POLICY_PHASE = 1, 2  # apart from each other by (seed, epoch, phase, index)


class CRLTACModule(AlternatingModule):
    """An encoder and a policy P(T | X) over a family of augmentations, trained in turn on every batch.

    The batch's first view is the image that the family's members are applied to, in validation its `image`, where it
    has one: give the DataModule views that leave it whole, as :class:`ShiftedMNISTDataModule` does. Draws are functions
    of (seed, epoch, sample index), so they are the same for any number of processes and after a resume; in validation
    they are those of epoch 0. For batches without `index` they come from the global random state.

    The representation h (`forward`) is f integrated over P(T | X), and `z_image` the embedding likewise, on the sphere
    again (Section 3.1); in training and validation h and z are (m, N, ...), those of the m drawn members.

    One batch is one step of the encoder and one of the policy: see :class:`AlternatingModule` for what that asks of the
    Trainer. Batch statistics are those of phase 1's views, in training and in what evaluation uses.

    Args:
        backbone: f, maps augmented images (M, C, h, w) to (M, D).
        projector: g, maps these to (M, P); normalised here.
        family: The K members that T is one of.
        policy: Maps images (N, C, H, W) to finite logits (N, K). None: P(T | X) stays uniform, as SimCLR's.
        draws: m >= 2, how many members are drawn for an image in each phase; the paper has 8.
        beta: Inverse temperature, > 0: it multiplies the cosine. The paper has 0.5, and 1 for MNIST as it is.
        entropy_weight: lambda >= 0. The paper has 0.0025; below 0.0001 its policies often collapsed.
        jensen: Apply Jensen's inequality to Eq. 2's numerator, as the paper does in its experiments.
        optimizer: Of backbone and projector, as in :class:`SSLModule`; Adam with learning rate 1e-3 by default.
        policy_optimizer: Of the policy; the same by default.
        lr_scheduler: Of the first, as in :class:`SSLModule`.
        policy_lr_scheduler: Of the second.
        warmup_epochs: As in :class:`SSLModule`, of both where they have no scheduler of their own.
        exclude_norm_and_bias: As in :class:`SSLModule`.
        grad_clip_h: Largest norm of the gradient of backbone and projector. None: not clipped.
        grad_clip_pi: Largest norm of the policy's gradient.
        collapse_entropy: In nats; where the policy's mean entropy stays below in every batch of an epoch, it warns.
        seed: Of the draws.

    Raises:
        ValueError: If an argument is out of its range; with several processes of another strategy than DDP's; in a
            step, if the policy has not one finite logit per member (which only the CPU looks at, an accelerator would
            be waited for), or an epoch's first batch has only empty images.
    """

    quantities: ClassVar[dict[str, Quantity]] = {
        "loss": replace(CONTRASTIVE_LOSS, paper=CRL_TAC, where="Alg. 1"),
        "policy_entropy": Quantity(
            title="Entropy of the policy",
            text="Entropy of P(T | X), which says how likely each augmentation is for an image; the mean over images.",
            low="Near 0: each image has a single augmentation left, from which h generalises badly.",
            high="Up to log K for K augmentations: the policy prefers none.",
            paper=CRL_TAC,
            where="Sec. 5.3",
            bounds=(0.0, None),
            chart=Chart("policy_entropy", "Entropy of the policy", "nats"),
            section="channel",
        ),
        "policy_loss": Quantity(
            title="Loss of the policy",
            text="The loss that the policy alone lowers: the contrastive loss, in which each augmentation counts by "
            "its probability, minus the weighted entropy of the policy.",
            low="The augmentations that the policy prefers tell samples apart.",
            high="The augmentations that the policy prefers do not tell samples apart.",
            paper=CRL_TAC,
            where="Alg. 1",
            better="low",
            chart=Chart("policy_loss", "Loss of the policy", "loss"),
            section="channel",
        ),
    }

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
        optimizer: OptimizerCallable | None = None,
        policy_optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
        policy_lr_scheduler: LRSchedulerCallable | None = None,
        warmup_epochs: float = 0.0,
        exclude_norm_and_bias: bool = True,
        grad_clip_h: float | None = None,
        grad_clip_pi: float | None = None,
        collapse_entropy: float = 0.3,
        seed: int = 0,
    ) -> None:
        _check(draws, entropy_weight, grad_clip_h, grad_clip_pi)
        if not 0 <= collapse_entropy < math.log(len(family)):
            most = f"{math.log(len(family)):.3g} nats, the entropy of a uniform policy over {len(family)}"
            raise ValueError(f"Expected `collapse_entropy` >= 0 and below {most}, but got {collapse_entropy}.")
        if warmup_epochs and policy_lr_scheduler is not None:
            raise ValueError(f"Expected `warmup_epochs` = 0 beside `policy_lr_scheduler`, but got {warmup_epochs}.")
        super().__init__(
            backbone,
            projector,
            optimizer=optimizer or _adam,
            lr_scheduler=lr_scheduler,
            warmup_epochs=warmup_epochs,
            exclude_norm_and_bias=exclude_norm_and_bias,
        )
        self.family, self.policy = family, policy
        self.draws, self.entropy_weight, self.seed = draws, entropy_weight, seed
        self.loss = AugmentationChannelLoss(beta, jensen)
        self.policy_optimizer, self.policy_lr_scheduler = policy_optimizer or _adam, policy_lr_scheduler
        self.grad_clip_h, self.grad_clip_pi = grad_clip_h, grad_clip_pi
        self.collapse_entropy = collapse_entropy
        self._highest_entropy: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Represent images: (N, C, H, W) to h (N, D), f integrated over P(T | X)."""
        return self.represent(x, self.probabilities(x)[None])[0][0]

    def probabilities(self, image: Tensor) -> Tensor:
        """Give P(T | X): images (N, C, H, W) to (N, K), uniform without a policy."""
        return self._log_policy(image).exp()

    def represent(self, image: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Integrate over the family; each distinct augmented image is embedded once.

        Args:
            image: (N, C, H, W).
            weight: (S, N, K), S distributions over the members for each image.

        Returns:
            (S, N, D), the weighted means of f; (S, N, P), those of the normalised embeddings, normalised again.
        """
        widths: list[int] = []

        def both(views: Tensor) -> Tensor:
            h = self.backbone(views)
            z = normalize(_widened(self.project(h)), dim=1)
            widths[:] = h.shape[1], z.shape[1]
            return torch.cat([h, z], dim=1)

        f, head = self.family.integrate(both, image, weight).split(widths, dim=-1)
        return f, normalize(head, dim=-1)

    def step(self, batch: Batch) -> Observation:
        """Contrast embeddings of members drawn from P(T | X): phase 1's loss."""
        image = batch["views"][0] if self.training or "image" not in batch else batch["image"]
        log_policy = self._log_policy(image)
        member = draw_members(log_policy.detach().exp(), self._uniform(batch, image, _ENCODER_PHASE))
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
        """Take both phases' steps: the encoder's, and then the policy's against the updated encoder."""
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
        """The encoder, which is backbone and projector, and the policy, where there is one."""
        encoder = Part((self.backbone, self.projector), self.optimizer, self.lr_scheduler, self.grad_clip_h)
        if self.policy is None:
            return [encoder]
        return [encoder, Part((self.policy,), self.policy_optimizer, self.policy_lr_scheduler, self.grad_clip_pi)]

    def on_train_epoch_start(self) -> None:
        """Forget the last epoch's entropy."""
        self._highest_entropy = None

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Refuse images without content; once per epoch, since an accelerator is waited for."""
        if batch_idx == 0 and self.family.empty(batch["views"][0]).all():
            n = len(batch["views"][0])
            raise ValueError(f"Expected `views` with images that are not empty, but got a batch of {n} that all are.")

    def on_train_epoch_end(self) -> None:
        """Warn of a collapsed policy."""
        if self._highest_entropy is not None and self._highest_entropy < self.collapse_entropy:
            rank_zero_warn(
                f"The policy has collapsed: the mean entropy of P(T | X) was at most {self._highest_entropy:.3g} nats "
                f"in every batch of epoch {self.current_epoch}, of {math.log(len(self.family)):.3g} for a uniform one. "
                f"Raise `entropy_weight`, which is {self.entropy_weight}."
            )

    def _log_policy(self, image: Tensor) -> Tensor:
        k = len(self.family)
        if self.policy is None:
            return image.new_full((len(image), k), -math.log(k), dtype=torch.float32)
        logits = self.policy(image)
        if logits.shape != (len(image), k):
            wanted = f"({len(image)}, {k}), one logit per member of the family"
            raise ValueError(f"Expected `policy` to return shape {wanted}, but got {tuple(logits.shape)}.")
        if not logits.is_cuda and not torch.isfinite(logits).all():
            bad = int((~torch.isfinite(logits)).sum())
            raise ValueError(
                f"Expected `policy` to return finite logits, but got {bad} of {logits.numel()} that are not."
            )
        log_policy: Tensor = _widened(logits).log_softmax(dim=1)
        return log_policy

    def _views(self, image: Tensor, member: Tensor) -> Tensor:
        """Apply members (N, m) to images (N, C, H, W): (N m, C, h, w)."""
        sample = torch.arange(len(image), device=image.device).repeat_interleave(member.shape[1])
        views: Tensor = self.family(image, sample, member.flatten())
        return views

    def _policy_loss(self, log_policy: Tensor, batch: Batch) -> Tensor:
        """Phase 2's loss: uniform draws, weighted by the policy, and minus its entropy."""
        image = batch["views"][0]
        uniform = self._uniform(batch, image, _POLICY_PHASE)
        member = (uniform * len(self.family)).long()
        with torch.no_grad():
            z = _unmoved(self.projector, _unmoved(self.backbone, self._views(image, member))).unflatten(0, member.shape)
        entropy = distributed.gather(policy_entropy(log_policy)).mean()
        highest = entropy.detach() if self._highest_entropy is None else self._highest_entropy
        self._highest_entropy = torch.maximum(highest, entropy.detach())
        return self.loss(z, log_policy.gather(1, member)) - self.entropy_weight * entropy

    def _uniform(self, batch: Batch, image: Tensor, phase: int) -> Tensor:
        """Uniform numbers (N, m) for a phase's draws."""
        if "index" not in batch:
            return torch.rand(len(image), self.draws, device=image.device)
        epoch = self.current_epoch if self.training else 0
        return counter_uniform(self.seed, epoch, phase, batch["index"].to(image.device), size=self.draws)


def _adam(parameters: Any) -> Optimizer:
    return torch.optim.Adam(parameters, lr=1e-3)


def _widened(x: Tensor) -> Tensor:
    """Half precision in float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _unmoved(module: nn.Module, x: Tensor) -> Tensor:
    """Call a module in its mode, but leave its running statistics as they are."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    y: Tensor = functional_call(module, buffers, (x,))
    return y


def _check(draws: int, entropy_weight: float, *clips: float | None) -> None:
    if not isinstance(draws, int) or draws < 2:
        raise ValueError(f"Expected `draws` to be an integer >= 2, so that an image has a pair, but got {draws}.")
    if not 0 <= entropy_weight < math.inf:
        raise ValueError(f"Expected `entropy_weight` >= 0 and finite, but got {entropy_weight}.")
    for name, clip in zip(("grad_clip_h", "grad_clip_pi"), clips, strict=True):
        if clip is not None and not clip > 0:
            raise ValueError(f"Expected `{name}` > 0 or None, but got {clip}.")
