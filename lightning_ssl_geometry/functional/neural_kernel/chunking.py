"""Computation of a neural kernel in chunks of samples and outputs that fit into a given memory."""

__all__ = ["KernelWork"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from lightning_ssl_geometry.checks import positive
from lightning_ssl_geometry.functional.neural_kernel.gram import add_products, mirror
from lightning_ssl_geometry.functional.neural_kernel.jacobian import add_jacobian_products
from lightning_ssl_geometry.functional.neural_kernel.layers import Factors, Pass, Place, forward_pass
from lightning_ssl_geometry.introspection import vectors

_COLUMNS = 256  # least number of columns of the Jacobian at a time; fewer would waste passes


@dataclass(frozen=True)
class _Sizes:
    # of one sample, in numbers of tensor elements

    saved: int  # that autograd saves in a forward pass
    passed: int  # gradients at the outputs of all layers, for each direction
    widest: int  # the largest of these gradients, for each direction
    patches: int  # the largest inputs of a layer
    row: int  # the gradient with respect to one row of a weight, for each direction


class KernelWork:
    """Computes the neural kernel of a network, or its trace, in chunks that fit into `memory`.

    The ValueErrors are those of :func:`lightning_ssl_geometry.functional.neural_kernel`.

    Args:
        network: f, (N, ...) to (N, d).
        x: (n, ...), the samples, each with d outputs.
        parameters: The parameters to include, by name.
        memory: Bytes for the kernel and its computation, > 0.
        by_layer: Compute layers of known types one by one; if False, use the Jacobian for all parameters.
        vectorize: Whether samples pass together through `torch.func.vmap` for the Jacobian, and not one by one.
    """

    def __init__(
        self,
        network: nn.Module,
        x: Tensor,
        parameters: Mapping[str, nn.Parameter],
        memory: int,
        *,
        by_layer: bool,
        vectorize: bool,
    ) -> None:
        positive(memory=memory)
        self.network, self.x, self.parameters = network, x, parameters
        self.memory, self.by_layer, self.vectorize = memory, by_layer, vectorize
        saved: dict[int, int] = {}
        owned = {parameter.untyped_storage().data_ptr() for parameter in parameters.values()}

        def keep(tensor: Tensor) -> Tensor:
            if (key := tensor.untyped_storage().data_ptr()) not in owned:
                saved[key] = max(saved.get(key, 0), tensor.numel())
            return tensor

        with saved_tensors_hooks(keep, lambda tensor: tensor):
            probe = self._pass(x[:2])
        vectors(probe.z, x[:2], "network")
        error, scale = (probe.z[:1] - self._pass(x[:1]).z).detach().abs().max(), probe.z.detach().abs().max()
        if error > scale * torch.finfo(probe.z.dtype).eps ** 0.5:
            raise ValueError(
                "Expected `network` to map each sample by itself and without chance, but the output of the first "
                f"differs by {error.item():.3g} when it comes alone, for outputs of up to {scale.item():.3g}."
            )
        self.outputs = probe.z.shape[1]
        self.unit = torch.eye(self.outputs, dtype=probe.z.dtype, device=probe.z.device)
        self.dtype = torch.promote_types(probe.z.dtype, torch.float32)
        self.rest = self._undescribed(probe)
        self.sizes = _sizes(probe.places, sum(saved.values()) // len(probe.z) + 1)

    def kernel(self, directions: Tensor | None, *, folded: bool) -> Tensor:
        """Compute the kernel (n Q, n Q) for Q `directions` (Q, d) of the output; by default these are the d axes.

        If `folded`, return the sum over the directions, (n, n). A ValueError is raised if the memory is too small.
        """
        directions = self.unit if directions is None else directions.to(self.unit)
        q = len(directions)
        samples, at_once = self._plan(q, folded)
        size = len(self.x) * (1 if folded else q)
        kernel = torch.zeros(size, size, dtype=self.dtype, device=directions.device)
        if self.rest != set(self.parameters):
            passes = [self._pass(self.x)] if samples == len(self.x) else []
            self.rest |= set().union(*map(self._undescribed, passes or map(self._pass, self.x.split(samples))))
            self._plan(q, folded)  # of all samples, more parameters may need their Jacobian than of the first two
            for some in directions.split(at_once):
                self._add_layers(kernel, some, samples, folded=folded, passes=passes)
            passes.clear()
        rest = {name: parameter for name, parameter in self.parameters.items() if name in self.rest}
        room = self.memory // self.dtype.itemsize - kernel.numel()
        add = partial(add_jacobian_products, saved=self.sizes.saved, vectorize=self.vectorize)
        add(kernel, self.network, rest, x=self.x, directions=directions, room=room)
        mirror(kernel)
        return kernel

    def needed(self, q: int, folded: bool, samples: int = 1, at_once: int | None = None) -> int:
        """Estimate the bytes that :meth:`kernel` needs for `q` directions.

        The kernel is computed for `samples` samples and `at_once` directions at a time (None: as few as possible).
        """
        n, sizes, at_once = len(self.x), self.sizes, at_once or (1 if folded else q)
        result = (n if folded else n * q) ** 2
        held = samples if samples == n else 2 * samples
        layers = held * (2 * sizes.saved + sizes.patches + at_once * (sizes.passed + sizes.widest + 2 * sizes.row))
        numbers = [self.parameters[name].numel() for name in self.rest]
        jacobian = max(3 * n * (1 if folded else q) * min(sum(numbers), _COLUMNS), 24 * max(numbers, default=0))
        return (result + max(layers, jacobian)) * self.dtype.itemsize

    def _plan(self, q: int, folded: bool) -> tuple[int, int]:
        # samples and directions per chunk, halved until they fit into the memory
        n = len(self.x)
        samples, at_once = n, q
        while (needed := self.needed(q, folded, samples, at_once=at_once)) > self.memory:
            if samples == 1 and (at_once == 1 or not folded):
                hint = f" neural_kernel_trace, its contracted form, takes {self.needed(q, True)} bytes at least."
                raise ValueError(
                    f"Expected `memory` >= {needed} bytes for the kernel of n = {n} samples and {q} outputs, but got "
                    f"{self.memory}.{'' if folded else hint}"
                )
            if folded and at_once > 1:
                at_once = -(-at_once // 2)
            else:
                samples = -(-samples // 2)
        return samples, at_once

    def _add_layers(
        self, kernel: Tensor, directions: Tensor, samples: int, folded: bool, passes: Sequence[Pass]
    ) -> None:
        size = samples * len(kernel) // len(self.x)
        parts = self.x.split(samples)
        needed = self.needed(len(directions), folded, samples, at_once=len(directions))
        room = (self.memory - needed) // self.dtype.itemsize
        room += 2 * samples * len(directions) * self.sizes.row
        for i, rows in enumerate(parts):
            left = self._layers(passes[i] if passes else self._pass(rows), directions)
            for j, columns in enumerate(parts[: i + 1]):
                right = left if j == i else self._layers(self._pass(columns), directions)
                block = kernel[i * size : (i + 1) * size, j * size : (j + 1) * size]
                for key in (
                    key for key in left if key in right
                ):  # in the order of the layers, which fixes the rounding
                    first = self._factors(left[key], folded)
                    second = first if right is left else self._factors(right[key], folded)
                    add_products(block, first, second, room=room)

    def _layers(self, part: Pass, directions: Tensor) -> dict[tuple[int, ...], list[tuple[Place, Tensor]]]:
        # keys are parameter ids; gradients are (N, Q, ...) at the outputs of the layers
        rest = {id(self.parameters[name]) for name in self.rest}
        groups = {key: places for key, places in part.by_parameters().items() if not rest & set(key)}
        places = [place for group in groups.values() for place in group]
        if not places:
            return {}
        n, q = len(part.z), len(directions)
        found = {id(place): part.z.new_empty(n, q, *place.shape[1:]) for place in places}
        for row, direction in enumerate(directions):
            for place, gradient in zip(places, part.gradients(places, direction.expand_as(part.z)), strict=True):
                found[id(place)][:, row] = gradient
        return {key: [(place, found[id(place)]) for place in group] for key, group in groups.items()}

    def _factors(self, uses: Sequence[tuple[Place, Tensor]], folded: bool) -> Factors:
        parts = [place.factors(gradient) for place, gradient in uses]
        a = parts[0].a if len(parts) == 1 else torch.cat([part.a for part in parts], 2)
        g = parts[0].g if len(parts) == 1 else torch.cat([part.g for part in parts], 3)
        factors = Factors(a.to(self.dtype), g.to(self.dtype))
        return factors.folded() if folded else factors

    def _pass(self, x: Tensor) -> Pass:
        return forward_pass(self.network, x, tuple(self.parameters.values()), by_layer=self.by_layer)

    def _undescribed(self, part: Pass) -> set[str]:
        if not self.by_layer:
            return set(self.parameters)
        described = part.described(tuple(self.parameters.values()))
        return {name for name, parameter in self.parameters.items() if id(parameter) not in described}


def _sizes(places: Sequence[Place], saved: int) -> _Sizes:
    out = [place.shape[1:].numel() for place in places]
    shapes = [place.sizes for place in places]
    return _Sizes(
        saved,
        sum(out),
        max(out, default=0),
        patches=max((groups * t * inner for groups, t, inner, _ in shapes), default=0),
        row=max((t + inner for _, t, inner, _ in shapes), default=0),
    )
