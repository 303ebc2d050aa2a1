"""Look at a module, and leave its modes, its gradients and the global random state as they are."""

__all__ = ["random_state_kept", "undisturbed"]

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch import nn


@contextmanager
def random_state_kept(module: nn.Module) -> Iterator[None]:
    """Give the random states of Python, numpy and torch back at the end, that of a module's GPU too.

    Lightning's `isolate_rng` does so only where the block ends well; here an error changes nothing.
    """
    device = getattr(module, "device", None)
    raised: BaseException | None = None
    with isolate_rng(include_cuda=getattr(device, "type", "cpu") == "cuda"):
        try:
            yield
        except BaseException as error:  # raised again below, behind isolate_rng
            raised = error
    if raised is not None:
        raise raised


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Run in eval mode without gradients, and leave modes and random state as they were."""
    modes = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        with random_state_kept(module), torch.no_grad():  # numpy's too: transforms of data sets draw from it
            yield
    finally:
        for child, training in modes:
            child.training = training
