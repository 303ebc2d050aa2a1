r"""The two factors of a parameter's gradient: the inputs of its layer, and the gradients at the layer's outputs.

The gradient with respect to the weight of a linear layer is a sum of outer products, over the positions t to which the
layer is applied. For a convolution, the positions are those of its output, and its inputs are patches.

.. math:: \nabla_W f^k(x_i) = \sum_t g^k_{it} \otimes a_{it}, \quad
    a_{it} \text{ the input}, \quad g^k_{it} = \partial f^k(x_i) / \partial s_{it}, \quad s_{it} = W a_{it} + b

A bias is the weight of an additional input 1. The weight and bias of a normalisation act elementwise, so their gradient
itself is the factor g, and the factor a is 1. The factors give the whole gradient only if no other part of the network
uses the parameter. The autograd graph tells how often a parameter is used.
"""

__all__ = ["Factors", "Pass", "Place", "forward_pass"]

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from lightning_ssl_geometry.introspection import substituted_call

_LEAF = torch._C._functions.AccumulateGrad  # the node of a parameter
_CUSTOM = torch.autograd.function.BackwardCFunction  # can hide the tensors that it uses, e.g. a checkpoint
_LINEAR = (nn.Linear,)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass(frozen=True)
class Factors:
    """The factors of a gradient: inputs `a` (N, G, T, I), and gradients `g` (N, Q, G, T, O) at the outputs.

    The network has Q outputs. The layer has G groups, T positions, and I inputs and O outputs per group.
    """

    a: Tensor
    g: Tensor

    def folded(self) -> "Factors":
        """Merge the axes Q and O, so that inner products also sum over the Q outputs."""
        n, q, groups, places, out = self.g.shape
        return Factors(self.a, self.g.permute(0, 2, 3, 1, 4).reshape(n, 1, groups, places, q * out))


@dataclass(frozen=True)
class Place:
    """One call of a layer in a forward pass."""

    module: nn.Module
    input: Tensor  # (N, ...)
    version: int  # of the input, which changes if a later layer overwrites the input
    edge: GradientEdge  # of the output in the autograd graph
    shape: torch.Size  # of the output

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """The layer's parameters that require a gradient."""
        return tuple(parameter for parameter in self.module.parameters(recurse=False) if parameter.requires_grad)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The sizes G, T, I and O of :class:`Factors`."""
        bias, out = self._counts()[1], self.shape[1:]
        if isinstance(self.module, nn.Linear):
            return 1, out[:-1].numel(), self.module.in_features * self._counts()[0] + bias, out[-1]
        if isinstance(self.module, _ConvNd):
            patch = self.module.weight[0].numel() * self._counts()[0]
            return self.module.groups, out[1:].numel(), patch + bias, out[0] // self.module.groups
        return 1, 1, 1, sum(parameter.numel() for parameter in self.parameters)

    def factors(self, gradient: Tensor) -> Factors:
        """Compute the :class:`Factors` from the gradients (N, Q, ...) of Q network outputs at the layer's output."""
        weight, bias = self._counts()
        groups, places, _, out = self.sizes
        n, q = gradient.shape[:2]
        if isinstance(self.module, _NORMS):
            g = _elementwise(self.module, self.input, gradient, weight=bool(weight), bias=bool(bias))
            return Factors(g.new_ones(n, 1, 1, 1), g[:, :, None, None])
        if isinstance(self.module, _ConvNd):
            a = _patches(self.module, self.input) if weight else gradient.new_empty(n, groups, places, 0)
            g = gradient.reshape(n, q, groups, out, places).mT
        else:
            a = self.input.reshape(n, 1, places, -1) if weight else gradient.new_empty(n, 1, places, 0)
            g = gradient.reshape(n, q, 1, places, out)
        return Factors(torch.cat([a, a.new_ones(*a.shape[:-1], 1)], -1) if bias else a, g)

    def _counts(self) -> tuple[int, int]:
        trains = {id(parameter) for parameter in self.parameters}
        return int(id(self.module.weight) in trains), int(id(self.module.bias) in trains)


@dataclass(frozen=True)
class Pass:
    """A forward pass with its autograd graph: the outputs `z` (N, d), and the calls of layers, `places`."""

    z: Tensor
    places: tuple[Place, ...]

    def gradients(self, places: Sequence[Place], weight: Tensor) -> list[Tensor]:
        """Compute the gradients of sum_ik weight_ik f^k(x_i) with respect to the layer outputs at `places`."""
        edges = [place.edge for place in places]
        found = torch.autograd.grad(self.z, edges, weight, retain_graph=True, allow_unused=True, materialize_grads=True)
        return list(found)

    def by_parameters(self) -> dict[tuple[int, ...], list[Place]]:
        """Group the calls of layers by the ids of the layers' parameters."""
        found: dict[tuple[int, ...], list[Place]] = {}
        for place in self.places:
            found.setdefault(tuple(map(id, place.parameters)), []).append(place)
        return found

    def described(self, parameters: Sequence[nn.Parameter]) -> set[int]:
        """Return the ids of the parameters that are unused, or whose gradients are given by :class:`Factors`."""
        nodes = _nodes(self.z)
        uses, opaque = _uses(nodes), not nodes or any(isinstance(node, _CUSTOM) for node in nodes)
        groups = self.by_parameters()
        owners = Counter(key for group in groups for key in group)
        kept = {id(place) for place in self._by_sample()}
        wrong = {
            key
            for group, places in groups.items()
            if any(owners[key] > 1 or uses[key] != len(places) for key in group)
            or any(id(place) not in kept for place in places)
            for key in group
        }
        # an opaque operation may use any parameter
        unused = {id(parameter) for parameter in parameters if not uses[id(parameter)] and not opaque}
        return (set(owners) | unused) - wrong

    def _by_sample(self) -> list[Place]:
        # the calls of layers whose input and output have one row per sample
        n = len(self.z)
        named = [place for place in self.places if place.shape[0] == n and len(place.input) == n]
        if not named or n == 1:
            return named
        # The gradient of sample i scales with the weight of f(x_i). Other axes can have n rows too, such as time steps
        # or flattened (samples x positions); their gradients do not scale so.
        weight = 1 + torch.arange(n, dtype=self.z.dtype, device=self.z.device) / n
        outputs = (
            torch.arange(1, self.z.shape[1] + 1, device=self.z.device).cos().to(self.z)
        )  # unequal, since sums may be fixed
        plain = self.gradients(named, outputs.expand_as(self.z))
        grown = self.gradients(named, torch.outer(weight, outputs))
        return [place for place, a, b in zip(named, plain, grown, strict=True) if _proportional(a, b, weight)]


def forward_pass(network: nn.Module, x: Tensor, parameters: Sequence[nn.Parameter], *, by_layer: bool = True) -> Pass:
    """Pass x (N, ...) through a network, and record the calls of known layers that have one of `parameters`.

    The network's buffers do not change. Without `by_layer`, no layers are recorded.
    """
    places: list[Place] = []

    def keep(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if len(inputs) == 1 and output.requires_grad and _fits(module, inputs[0]):
            a = inputs[0].detach()
            places.append(Place(module, a, a._version, edge=get_gradient_edge(output), shape=output.shape))

    trains = {id(parameter) for parameter in parameters}
    layers = [module for module in network.modules() if by_layer and _is_known(module, trains)]
    handles = [layer.register_forward_hook(keep, prepend=True) for layer in layers]
    try:
        # buffers are copied, because layers that count or average would record this pass
        z = substituted_call(network, {name: buffer.clone() for name, buffer in network.named_buffers()}, x.clone())
    finally:
        for handle in handles:
            handle.remove()
    nodes = _nodes(z) if isinstance(z, Tensor) and places else set()
    reached = [p for p in places if p.edge.node in nodes and p.input._version == p.version]
    return Pass(z, tuple(reached))


def _is_known(module: nn.Module, trains: set[int]) -> bool:
    own = list(module.parameters(recurse=False))
    return (
        type(module) in (*_LINEAR, *_CONVOLUTIONS, *_NORMS)
        and "forward" not in vars(module)
        and "weight" in module._parameters  # a reparametrised weight is not in this table
        and any(id(parameter) in trains for parameter in own)
    )


def _fits(module: nn.Module, x: Tensor) -> bool:
    if isinstance(module, _ConvNd):
        return x.ndim == len(module.kernel_size) + 2
    inner = len(module.normalized_shape) if isinstance(module, nn.LayerNorm) else 1
    return x.ndim > inner


def _nodes(z: Tensor) -> set[Node]:
    found: set[Node] = set()
    waiting = [z.grad_fn]
    while waiting:
        if (node := waiting.pop()) is not None and node not in found:
            found.add(node)
            waiting += [after for after, _ in node.next_functions]
    return found


def _uses(nodes: set[Node]) -> Counter[int]:
    after = (following for node in nodes for following, _ in node.next_functions if following is not None)
    return Counter(id(node.variable) for node in after if isinstance(node, _LEAF))


def _proportional(plain: Tensor, grown: Tensor, weight: Tensor) -> bool:
    # whether row i of `grown` is weight_i times row i of `plain`
    plain, grown = plain.flatten(1), grown.flatten(1)
    error = (grown - weight[:, None] * plain).norm(dim=1)  # weights differ by 1 / N, of which 1 / 8 is tolerated
    return bool((error <= plain.norm(dim=1) / (8 * len(weight))).all())


def _patches(module: _ConvNd, x: Tensor) -> Tensor:
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    x = F.pad(x, module._reversed_padding_repeated_twice, mode=mode)
    spatial = len(module.kernel_size)
    for axis, (size, stride, dilation) in enumerate(
        zip(module.kernel_size, module.stride, module.dilation, strict=True), 2
    ):
        x = x.unfold(axis, (size - 1) * dilation + 1, stride)[..., ::dilation]
    x = x.unflatten(1, (module.groups, -1))  # (N, G, C, *places, *kernel)
    places = tuple(range(3, 3 + spatial))
    x = x.permute(0, 1, *places, 2, *range(3 + spatial, x.ndim))
    return x.flatten(2, 1 + spatial).flatten(3)  # (N, G, T, I)


def _elementwise(module: nn.Module, x: Tensor, gradient: Tensor, weight: bool, bias: bool) -> Tensor:
    normalise, axes = _norm(module, gradient.ndim)
    parts = [gradient * normalise(x)[:, None]] if weight else []
    parts += [gradient] if bias else []
    return torch.cat([(part.sum(axes) if axes else part).flatten(2) for part in parts], 2)  # (N, Q, O)


def _norm(module: nn.Module, axes: int) -> tuple[Callable[[Tensor], Tensor], list[int]]:
    # without weight and bias; the axes are those of the output that share one weight
    if isinstance(module, nn.LayerNorm):
        shape = module.normalized_shape
        return lambda x: F.layer_norm(x, shape, eps=module.eps), list(range(2, axes - len(shape)))
    if isinstance(module, nn.GroupNorm):
        return lambda x: F.group_norm(x, module.num_groups, eps=module.eps), list(range(3, axes))
    assert isinstance(module, _BatchNorm)
    mean, variance = module.running_mean, module.running_var
    return lambda x: F.batch_norm(x, mean, variance, eps=module.eps), list(range(3, axes))
