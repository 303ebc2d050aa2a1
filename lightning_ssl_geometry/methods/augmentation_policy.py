"""The distribution P(T | X) of a policy network over augmentations T of an image X, and a warning if it collapses."""

__all__ = ["POLICY_QUANTITIES", "EntropyWatch", "log_probabilities"]

import math
from dataclasses import replace

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn

from lightning_ssl_geometry.papers import CRL_TAC
from lightning_ssl_geometry.quantity import POLICY_ENTROPY, Chart, Quantity

POLICY_QUANTITIES = {
    "policy_entropy": replace(POLICY_ENTROPY, paper=CRL_TAC, section="channel"),
    "policy_loss": Quantity(
        title="Loss of the policy",
        text="The loss that the policy alone lowers: the contrastive loss, in which each augmentation counts by "
        "its probability, minus the weighted entropy of the policy. Estimators of the policy's gradient have different "
        "losses: compare runs with one of them only. The loss of `ScoreFunction` has the right gradient, but its value "
        "means nothing.",
        low="The augmentations that the policy prefers tell samples apart.",
        high="The augmentations that the policy prefers do not tell samples apart.",
        paper=CRL_TAC,
        where="Alg. 1",
        better="low",
        chart=Chart("policy_loss", "Loss of the policy", "loss"),
        section="channel",
    ),
}


def log_probabilities(policy: nn.Module | None, image: Tensor, members: int) -> Tensor:
    """Return log P(T | X), (N, K), of N images X and K = `members` augmentations T, in at least float32.

    `policy` maps images (N, C, H, W) to logits (N, K). With None, the distribution is uniform. A ValueError is raised
    if the logits have a wrong shape. On the CPU, it is also raised if they are not finite.
    """
    if policy is None:
        return image.new_full((len(image), members), -math.log(members), dtype=torch.float32)
    logits: Tensor = policy(image)
    if logits.shape != (len(image), members):
        wanted = f"({len(image)}, {members}), one logit per member of the family"
        raise ValueError(f"Expected `policy` to return shape {wanted}, but got {tuple(logits.shape)}.")
    if not logits.is_cuda and (bad := int((~torch.isfinite(logits)).sum())):
        raise ValueError(f"Expected `policy` to return finite logits, but got {bad} of {logits.numel()} that are not.")
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=1)


class EntropyWatch:
    """Warns if the mean entropy of a policy is too low in all batches of an epoch.

    Args:
        least: The threshold of the warning in nats, at least 0 and less than log K.
        members: K, the number of augmentations.
    """

    def __init__(self, least: float, members: int) -> None:
        self.uniform = math.log(members)
        if not 0 <= least < self.uniform:
            most = f"{self.uniform:.3g} nats, the entropy of a uniform policy over {members}"
            raise ValueError(f"Expected `collapse_entropy` >= 0 and below {most}, but got {least}.")
        self.least = least
        self.restart()

    def restart(self) -> None:
        """Forget an earlier fit."""
        self._epoch, self._highest = -1, torch.tensor(-math.inf)

    def see(self, epoch: int, entropy: Tensor) -> None:
        """Record the mean entropy of a batch, a scalar."""
        self._highest = entropy if epoch != self._epoch else torch.maximum(self._highest, entropy)
        self._epoch = epoch

    def end(self, epoch: int, entropy_weight: float) -> None:
        """Warn if the entropy was too low in all batches of this epoch."""
        if epoch == self._epoch and self._highest < self.least:
            rank_zero_warn(
                f"The policy has collapsed: the mean entropy of P(T | X) was at most {self._highest:.3g} nats in every "
                f"batch of epoch {epoch}, of {self.uniform:.3g} for a uniform one. Raise `entropy_weight`, which is "
                f"{entropy_weight}."
            )
