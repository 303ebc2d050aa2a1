"""SimCLR's schedule of the learning rate: linear warm-up, then half a cosine to zero."""

__all__ = ["warmup_cosine"]

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def warmup_cosine(optimizer: Optimizer, warmup_steps: int, total_steps: int) -> LambdaLR:
    r"""Make a scheduler that is stepped once per optimizer step. The learning rate at step s is eta_s.

    .. math:: \eta_s / \eta = \begin{cases} (s + 1) / S_w & s < S_w \\
        \tfrac12 \bigl(1 + \cos \pi \frac{s - S_w}{S - S_w}\bigr) & s \ge S_w \end{cases}

    Args:
        optimizer: Its learning rate is eta, the maximum of the schedule.
        warmup_steps: S_w, the number of warm-up steps, from 0 to S.
        total_steps: S, the total number of steps, >= 1.

    Raises:
        ValueError: If a number is out of range.
    """
    if not 0 <= warmup_steps <= total_steps or total_steps < 1:
        raise ValueError(f"Expected 0 <= `warmup_steps` <= {total_steps} (`total_steps`), but got {warmup_steps}.")

    def scale(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        done = min((step - warmup_steps) / max(total_steps - warmup_steps, 1), 1)  # it stays 0 after S
        return 0.5 * (1 + math.cos(math.pi * done))

    return LambdaLR(optimizer, scale)
