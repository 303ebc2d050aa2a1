"""The outputs of a network's layers, caught in passing."""

__all__ = ["OUTPUT", "layer_outputs"]

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

OUTPUT = "output"


@contextmanager
def layer_outputs(
    network: nn.Module, layers: Sequence[str] | None = None
) -> Iterator[Callable[[Tensor], dict[str, Tensor]]]:
    """Lend a pass through the network that returns the outputs of layers by name; the hooks go with the context.

    Args:
        network: Maps a tensor to a tensor.
        layers: Dotted names of submodules, each called once in a pass. None: the network's output, as "output".

    Raises:
        ValueError: If a name is of no submodule; in a pass, if one is not called once or does not return a tensor.

    >>> import torch
    >>> with layer_outputs(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), ["0"]) as run:
    ...     print({name: z.shape for name, z in run(torch.ones(1, 3)).items()})
    {'0': torch.Size([1, 2])}
    """
    if layers is None:
        yield lambda x: {OUTPUT: _tensor(OUTPUT, network(x))}
        return
    modules = dict(network.named_modules(remove_duplicate=False))
    if unknown := [name for name in layers if name not in modules]:
        raise ValueError(f"Expected `layers` to name submodules of {type(network).__name__}, but got {unknown[0]!r}.")
    caught: dict[str, list[Tensor]] = {}

    def catch(name: str) -> Callable[..., None]:
        # a copy: the next layer may work in place
        return lambda module, inputs, z: caught.setdefault(name, []).append(_tensor(name, z).clone())

    def run(x: Tensor) -> dict[str, Tensor]:
        caught.clear()
        network(x)
        for name in layers:
            if (calls := len(caught.get(name, []))) != 1:
                raise ValueError(f"Expected `{name}` to be called once in a pass, but it was called {calls} times.")
        return {name: caught[name][0] for name in layers}

    handles = [modules[name].register_forward_hook(catch(name)) for name in layers]
    try:
        yield run
    finally:
        for handle in handles:
            handle.remove()


def _tensor(name: str, z: object) -> Tensor:
    if not isinstance(z, Tensor):
        raise ValueError(f"Expected `{name}` to be a tensor, but got {type(z).__name__}.")
    return z
