"""The outputs of a network's layers, caught in passing."""

__all__ = ["OUTPUT", "hidden_layers", "layer_outputs"]

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from lightning_ssl_geometry.functional.submodule import submodule

OUTPUT = "output"


@contextmanager
def layer_outputs(
    network: nn.Module, layers: Sequence[str] | None = None
) -> Iterator[Callable[[Tensor], dict[str, Tensor]]]:
    """Lend a pass through the network that returns the outputs of layers by name; the hooks go with the context.

    Args:
        network: Maps a tensor to a tensor.
        layers: Dotted names of submodules, "" for the network itself, each called once in a pass. None: the network's
            output, as "output".

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
    modules = {name: submodule(network, name, "layers") if name else network for name in layers}
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


def hidden_layers(network: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """What each linear layer of a network sees, in the order of the pass: the places where a projector can be cut.

    Args:
        network: Maps x to a tensor, such as a projector.
        x: (N, D).

    Returns:
        The input of the first linear layer that does not see x itself, (N, D'), as "hidden_1", the next one's as
        "hidden_2", and so on, and the network's "output".

    >>> import torch
    >>> mlp = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    >>> {name: tuple(value.shape) for name, value in hidden_layers(mlp, torch.ones(4, 3)).items()}
    {'hidden_1': (4, 5), 'output': (4, 2)}
    """
    seen: list[Tensor] = []

    def catch(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs[0] is not x:
            seen.append(inputs[0].clone())  # a copy: a later layer may work in place

    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    handles = [module.register_forward_pre_hook(catch) for module in linear]
    try:
        output = _tensor(OUTPUT, network(x))
    finally:
        for handle in handles:
            handle.remove()
    return {f"hidden_{place}": value for place, value in enumerate(seen, 1)} | {OUTPUT: output}


def _tensor(name: str, z: object) -> Tensor:
    if not isinstance(z, Tensor):
        raise ValueError(f"Expected `{name}` to be a tensor, but got {type(z).__name__}.")
    return z
