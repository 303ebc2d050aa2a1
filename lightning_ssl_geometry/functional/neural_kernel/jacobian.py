"""The contribution of arbitrary parameters to the neural kernel, computed from their Jacobian."""

__all__ = ["add_jacobian_products"]

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.func import vjp, vmap

from lightning_ssl_geometry.functional.neural_kernel.gram import add_gram
from lightning_ssl_geometry.introspection import substituted_call

Columns = list[tuple[str, int, int]]


def add_jacobian_products(
    kernel: Tensor,
    network: nn.Module,
    parameters: Mapping[str, Tensor],
    x: Tensor,
    directions: Tensor,
    room: int,
    saved: int = 0,
    *,
    vectorize: bool = True,
) -> None:
    """Add the contribution of the `parameters` to the neural kernel, computed from their Jacobian.

    `kernel` is (n Q, n Q) for Q `directions` (Q, d) of the output, or (n, n) for the sum over directions. It is changed
    in place, on and below the diagonal. At most `room` tensor elements are held at a time; autograd saves `saved`
    elements per sample. With `vectorize`, the samples x (n, ...) pass together through `torch.func.vmap`.
    """
    total = sum(parameter.numel() for parameter in parameters.values())
    if not total:
        return
    n = len(x)
    at_once = max(1, min(len(directions), room // (3 * n * total))) if len(kernel) == n else len(directions)
    for some in directions.split(at_once):
        for columns in _columns(parameters, max(1, room // (3 * n * len(some)))):
            jacobian = _jacobian(
                network, parameters, columns, x=x, directions=some, room=room // 3, saved=saved, vectorize=vectorize
            ).to(kernel.dtype)
            rows = jacobian.view(len(kernel), -1)  # from (n, Q, columns)
            add_gram(kernel, rows, rows)


def _columns(parameters: Mapping[str, Tensor], width: int) -> Iterator[Columns]:
    # `width` elements of the concatenated parameters at a time
    part: Columns = []
    free = width
    for name, parameter in parameters.items():
        start = 0
        while start < parameter.numel():
            stop = min(parameter.numel(), start + free)
            part.append((name, start, stop))
            free -= stop - start
            start = stop
            if not free:
                yield part
                part, free = [], width
    if part:
        yield part


def _jacobian(
    network: nn.Module,
    parameters: Mapping[str, Tensor],
    columns: Columns,
    x: Tensor,
    directions: Tensor,
    room: int,
    saved: int,
    vectorize: bool,
) -> Tensor:
    chosen = {name: parameters[name] for name, _, _ in columns}
    size = 8 * sum(parameter.numel() for parameter in chosen.values())  # gradients, their columns, temporary memory
    samples = max(1, room // (size * len(directions) + 4 * saved)) if vectorize else 1  # of both passes
    outputs = max(1, min(len(directions), room // size))
    width = sum(stop - start for _, start, stop in columns)
    found = directions.new_empty(len(x), len(directions), width)
    for row, points in zip(range(0, len(x), samples), x.split(samples), strict=True):
        for first, some in zip(range(0, len(directions), outputs), directions.split(outputs), strict=True):
            pull = _together if vectorize else _alone
            found[row : row + samples, first : first + outputs] = pull(network, chosen, columns, points, some)
    return found


def _together(
    network: nn.Module, chosen: Mapping[str, Tensor], columns: Columns, x: Tensor, directions: Tensor
) -> Tensor:
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    detached = {name: parameter.detach() for name, parameter in chosen.items()}

    def rows(point: Tensor) -> Tensor:
        def f(values: dict[str, Tensor]) -> Tensor:
            return substituted_call(network, {**buffers, **values}, point[None].clone())[0]

        pull = vjp(f, detached)[1]
        return torch.stack([_cut(pull(direction)[0], columns) for direction in directions])

    with torch.no_grad():  # the parameters that are not chosen would keep a graph
        return vmap(rows)(x)


def _alone(network: nn.Module, chosen: Mapping[str, Tensor], columns: Columns, x: Tensor, directions: Tensor) -> Tensor:
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    z = substituted_call(network, buffers, x.clone())[0]
    rows = []
    for direction in directions:
        gradient = torch.autograd.grad(z, list(chosen.values()), direction, retain_graph=True, materialize_grads=True)
        rows.append(_cut(dict(zip(chosen, gradient, strict=True)), columns))
    return torch.stack(rows)[None]


def _cut(gradient: dict[str, Tensor], columns: Columns) -> Tensor:
    return torch.cat([gradient[name].flatten()[start:stop] for name, start, stop in columns])
