"""Name the layer of a network that got an input of another width than it takes."""

__all__ = ["misfit"]

from traceback import walk_tb

from torch import Tensor, nn

_WIDTHS = {"in_features": -1, "in_channels": 1, "num_features": 1}  # attributes of torch's layers: axis of the input


def misfit(model: nn.Module, error: BaseException) -> str | None:
    """Return a sentence with the layer of `model` whose input's width raised `error`, or None for other errors."""
    names = {module: name for name, module in model.named_modules()}
    for frame, _ in reversed(list(walk_tb(error.__traceback__))):
        layer, given = frame.f_locals.get("self"), frame.f_locals.get("input")
        if not isinstance(layer, nn.Module) or not isinstance(given, Tensor) or layer not in names:
            continue
        for width, axis in _WIDTHS.items():
            taken = getattr(layer, width, None)
            if isinstance(taken, int) and given.ndim > 1 and given.shape[axis] != taken:
                return (
                    f"Expected `{names[layer]}`, a {type(layer).__name__} with {width}={taken}, to get inputs of width "
                    f"{taken}, but got shape {tuple(given.shape)}, whose width is {given.shape[axis]}. Change "
                    f"the network or the data."
                )
    return None
