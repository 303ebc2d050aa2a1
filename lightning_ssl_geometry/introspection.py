"""Find submodules of any network, record their outputs, and replace parameters and buffers."""

__all__ = [
    "OUTPUT",
    "check_settled",
    "gradient_isolated",
    "hidden_layers",
    "layer_outputs",
    "matching_submodules",
    "submodule",
    "substituted_call",
    "vectors",
]

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial

from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from lightning_ssl_geometry.spelling import near, one_of_these

_COMPILED = "_orig_mod."
_NEAR = 3  # names that an error suggests


def submodule(network: nn.Module, path: str, argument: str, given: str | None = None) -> nn.Module:
    """Return a submodule by its dotted name. The prefix "_orig_mod." of compiled modules may be omitted.

    Args:
        network: The network.
        path: The submodule's name, such as "backbone.layer4".
        argument: Name of the user's argument that contains `path`, such as "layers", for the error message.
        given: The value of this argument in the error message. None: `path`.

    Raises:
        ValueError: If there is no submodule of that name. The message lists the nearest names.
    """
    modules = dict(network.named_modules(remove_duplicate=False))
    modules |= {name.replace(_COMPILED, ""): module for name, module in modules.items() if _COMPILED in name}
    if path and path in modules:
        return modules[path]
    known = [name for name in modules if name and "_orig_mod" not in name]
    offered = near(path, known) or _outer(known)
    raise ValueError(_unnamed(network, argument, given or repr(path), offered=offered))


def _outer(names: Sequence[str]) -> list[str]:
    return [name for name in names if "." not in name]


def _unnamed(network: nn.Module, argument: str, given: str, offered: Sequence[str]) -> str:
    hint = one_of_these(offered) or " It has none."
    return f"Expected `{argument}` to name submodules of {type(network).__name__}, but got {given}.{hint}"


@contextmanager
def gradient_isolated(network: nn.Module, blocks: Sequence[str], argument: str) -> Iterator[list[Tensor]]:
    """Stop the gradient after some submodules of a network: what comes later trains none of what came before.

    Args:
        network: The network.
        blocks: Dotted names of submodules that return one tensor.
        argument: Name of the user's argument that contains `blocks`, for the error message.

    Yields:
        A list, which a call of the network inside of the context extends by the outputs of the submodules, in the order
        in which they are called. The gradient flows from these to the submodules before.

    Raises:
        ValueError: If there is no submodule of a name, one returns no tensor, or they are not called once each in the
            order of `blocks`.
    """
    outputs: list[Tensor] = []
    called: list[str] = []

    def cut(module: nn.Module, args: object, output: object, *, name: str) -> Tensor:
        if not isinstance(output, Tensor):
            raise ValueError(
                f"Expected `{argument}` that return a tensor, but {name!r} returns {type(output).__name__}."
            )
        called.append(name)
        outputs.append(output)
        return output.detach().clone()  # the next layer may work in place

    handles = [submodule(network, name, argument).register_forward_hook(partial(cut, name=name)) for name in blocks]
    try:
        yield outputs
        if called != list(blocks):
            raise ValueError(
                f"Expected `{argument}` {list(blocks)} to be called once each, in this order, but {called} were called."
            )
    finally:
        for handle in handles:
            handle.remove()


def matching_submodules(network: nn.Module, patterns: Sequence[str], argument: str) -> list[str]:
    """Return the dotted names of the submodules that match a pattern, in the order of `named_modules`.

    Args:
        network: The network.
        patterns: Names with wildcards, such as "blocks.*". "*", "?" and "[...]" are those of :mod:`fnmatch`, and stand
            for letters of one part of a name: "blocks.*" matches "blocks.0", but not "blocks.0.attn". The prefix
            "_orig_mod." of compiled modules is omitted.
        argument: Name of the user's argument that contains `patterns`, such as "layers", for the error message.

    Raises:
        ValueError: If no submodule matches one of the patterns. The message lists the nearest names.

    >>> network = nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.ReLU()))
    >>> matching_submodules(network, ["*"], "layers")
    ['0', '1']
    """
    known = [name.replace(_COMPILED, "") for name, _ in network.named_modules() if name]
    known = [name for name in dict.fromkeys(known) if "_orig_mod" not in name]
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in known):
            inner = [name for name in known if _matches(".".join(name.split(".")[-pattern.count(".") - 1 :]), pattern)]
            offered = inner[:_NEAR] or near(pattern, known) or _outer(known)
            raise ValueError(_unnamed(network, argument, repr(pattern), offered=offered))
    return [name for name in known if any(_matches(name, pattern) for pattern in patterns)]


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


OUTPUT = "output"


def _copied(name: str, z: object) -> Tensor:
    return _tensor(name, z).clone()  # the next layer may work in place


@contextmanager
def layer_outputs(
    network: nn.Module, layers: Sequence[str] | None = None, read: Callable[[str, object], Tensor] = _copied
) -> Iterator[Callable[[Tensor], dict[str, Tensor]]]:
    """Yield a function that maps x to the outputs of the network's layers, as a dict by name.

    Args:
        network: Maps a tensor to a tensor.
        layers: Dotted names of submodules, or "" for the network itself. Each must be called once in a forward pass.
            None: only the network's output, under the name "output".
        read: Function that is called with a layer's name and its output, right after the layer, and returns the tensor
            to keep. It must not return the output itself, because the next layer may work in place. It can return less,
            such as one token, so that less is in memory. By default, the output is copied.

    Raises:
        ValueError: If a submodule does not exist. The yielded function raises it if a layer is not called exactly once,
            or does not return a tensor.

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
        return lambda module, inputs, z: caught.setdefault(name, []).append(read(name, z))

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
    """Return the hidden vectors of a projector: the inputs of its linear layers, in the order of the forward pass.

    Args:
        network: The projector, which maps x to a tensor.
        x: (N, D).

    Returns:
        The inputs of the linear layers except x, each (N, D'), as "hidden_1", "hidden_2", ..., and the network's
        "output".

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


def substituted_call(network: nn.Module, tensors: Mapping[str, Tensor], *x: Tensor) -> Tensor:
    """Call a network with other parameters and buffers, and return its output.

    If a tensor has several names in the network, it is replaced at all of them.

    Args:
        network: Maps (N, ...) to (N, d).
        tensors: The new tensors, by their names in `named_parameters` and `named_buffers`. The others are kept.
        x: The network's inputs, each (N, ...).

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


def check_settled(network: nn.Module, argument: str, result: str) -> None:
    """Raise a ValueError if a network's output for a sample depends on chance or on other samples.

    This is the case if batch norm or dropout (p > 0) is in training mode, or if batch norm has no running statistics.
    In the error message, `argument` is the name of the network, and `result` the name of its output.
    """
    for module in network.modules():
        if isinstance(module, _DropoutNd):
            settled = not (module.training and module.p)
        else:
            settled = not isinstance(module, _BatchNorm) or not (module.training or module.running_mean is None)
        if not settled:
            raise ValueError(
                f"Expected `{argument}` in eval mode and with running statistics, so that a sample's {result} depends "
                f"neither on chance nor on other samples, but got {module} without."
            )


def vectors(z: object, x: Tensor, argument: str) -> Tensor:
    """Check the output z of a network for x (N, ...), and return it.

    A ValueError is raised if z is not a floating point tensor (N, D). Its message calls the network `argument`.
    """
    if not isinstance(z, Tensor) or z.ndim != 2 or len(z) != len(x) or not z.is_floating_point():
        got = f"{tuple(z.shape)}, {z.dtype}" if isinstance(z, Tensor) else type(z).__name__
        raise ValueError(f"Expected `{argument}` to return (N, D) for N = {len(x)} samples, but got {got}.")
    return z
