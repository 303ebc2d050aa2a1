"""The global random state, kept over what must draw no numbers from it."""

__all__ = ["random_state_kept"]

from collections.abc import Iterator
from contextlib import contextmanager

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
