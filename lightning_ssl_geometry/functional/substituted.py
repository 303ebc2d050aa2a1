"""A call of a network with other tensors in the place of its own, which leaves the network as it was."""

__all__ = ["substituted_call"]

from collections.abc import Mapping

from torch import Tensor, nn
from torch.func import functional_call


def substituted_call(network: nn.Module, tensors: Mapping[str, Tensor], *x: Tensor) -> Tensor:
    """Call a network with other parameters and buffers.

    By default `torch.func.functional_call` finds tied tensors by itself, but leaves a module that has two names with
    the tensors that it was lent. Here every module goes by one name, and each place of a tensor is named.

    Args:
        network: Maps (N, ...) to (N, d).
        tensors: By name, as `named_parameters` and `named_buffers` have them; the rest stays its own.
        x: (N, ...), one or several, as the network takes them.

    Returns:
        What the network returns.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> substituted_call(layer, {"weight": Tensor([[2.0]])}, Tensor([[3.0]]))
    tensor([[6.]])
    """
    names = {id(own): name for name, own in (*network.named_parameters(), *network.named_buffers()) if name in tensors}
    places = {
        f"{prefix}.{attribute}".lstrip("."): tensors[names[id(own)]]
        for prefix, module in network.named_modules()
        for attribute, own in (*module._parameters.items(), *module._buffers.items())
        if id(own) in names
    }
    called: Tensor = functional_call(network, places, x, tie_weights=False)
    return called
