"""Networks that map each sample by itself, and the same way each time."""

__all__ = ["check_settled"]

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd


def check_settled(network: nn.Module, argument: str, result: str) -> None:
    """Refuse a network with batch statistics or dropout at work.

    Args:
        network: Any.
        argument: What it was given as, for the error.
        result: What of a sample would depend on chance or on others, likewise.

    Raises:
        ValueError: If batch norm or dropout is in training mode, or batch norm has no running statistics.

    >>> check_settled(nn.Dropout().eval(), "network", "output")
    """
    for module in network.modules():
        own = not module.training and getattr(module, "running_mean", ()) is not None
        if isinstance(module, _BatchNorm | _DropoutNd) and not own:
            raise ValueError(
                f"Expected `{argument}` in eval mode and with running statistics, so that a sample's {result} depends "
                f"neither on chance nor on other samples, but got {module} without."
            )
