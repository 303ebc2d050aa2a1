"""Run a module without lasting changes to its modes, its gradients or the global random state."""

__all__ = ["random_state_kept", "undisturbed"]

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch import nn


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Restore the random states of Python, numpy, torch and the GPUs in use after the block, or after a function."""
    raised: BaseException | None = None
    with isolate_rng(include_cuda=torch.cuda.is_initialized()):
        try:
            yield
        except BaseException as error:  # raised again below, behind isolate_rng
            raised = error
    if raised is not None:
        raise raised


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Put a module in eval mode, without gradients, in this block. Then restore its modes and the random state."""
    modes = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        with random_state_kept(), torch.no_grad():  # transforms of data sets also use numpy's random state
            yield
    finally:
        for child, training in modes:
            child.training = training
