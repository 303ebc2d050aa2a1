"""A pretended device, by default without float64, as Apple's MPS is: the laws of such a device need no such device.

A tensor there has its values in CPU memory and says that its device is "meta". Every operation of torch passes through
`dispatched`, which refuses what such a device refuses: float64, and tensors of two devices in one operation. With
`Pretended.has_float64` true, the device is one such as a GPU.
"""

__all__ = ["PLACE", "Pretended", "PretendedDevice", "on_cpu", "pretended"]

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

PLACE, CPU = torch.device("meta"), torch.device("cpu")
_COPIES = (torch.ops.aten._to_copy, torch.ops.aten.copy_, torch.ops.aten._local_scalar_dense)
_INDEXED = (torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_)  # an index may be on the CPU


class Pretended(torch.Tensor):
    """A tensor on the pretended device."""

    has_float64 = False

    @staticmethod
    def __new__(cls, held):
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, held.size(), device=PLACE, **layout)

    def __init__(self, held):
        self.held = held

    def tolist(self):
        return self.held.tolist()

    def numpy(self, force=False):
        if not force:
            raise TypeError("can't convert a tensor of the pretended device to numpy")
        return self.held.numpy(force=True)

    def __repr__(self):
        return f"Pretended({self.held})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return dispatched(func, args, kwargs or {})


class PretendedDevice(TorchDispatchMode):
    """Within this context, `.to("meta")` and `device="meta"` mean the pretended device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if Pretended not in types and "device" not in (kwargs or {}):
            return func(*args, **kwargs or {})
        return dispatched(func, args, kwargs or {})


def pretended(value):
    """Move all tensors and modules of a nested structure to the pretended device. Modules move in place."""
    return tree_map(lambda each: each.to(PLACE) if hasattr(each, "to") else each, value)


def on_cpu(autocast, place, **settings):
    """torch's autocast, which does not know the pretended device."""
    return autocast("cpu" if torch.device(place) == PLACE else place, **settings)


def dispatched(func, args, kwargs):
    """Run an operation on the values in CPU memory."""
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    there = [each for each in tensors if isinstance(each, Pretended)]
    refuse_two_devices(func, tensors, there)
    place = kwargs.get("device")
    args, kwargs = tree_map_only(Pretended, lambda each: each.held, (args, kwargs))
    found = func(*args, **kwargs | ({} if place is None else {"device": CPU}))
    if (place is None and not there) or (place is not None and torch.device(place) != PLACE):
        return found
    known = {id(each.held): each for each in there}  # what an operation in place returns is its argument
    return tree_map_only(torch.Tensor, lambda each: known[id(each)] if id(each) in known else moved_there(each), found)


def refuse_two_devices(func, tensors, there):
    elsewhere = [each for each in tensors if not isinstance(each, Pretended) and each.ndim]
    if there and elsewhere and func.overloadpacket not in (*_COPIES, *_INDEXED):
        raise RuntimeError(f"Expected all tensors to be on the same device, but {func} got two devices")
    if func.overloadpacket in _INDEXED and there and not isinstance(tensors[0], Pretended):
        raise RuntimeError(f"Expected indices on the CPU for a tensor on the CPU, but {func} got others")


def moved_there(held):
    if held.dtype == torch.float64 and not Pretended.has_float64:
        raise TypeError("Cannot convert a tensor of the pretended device to float64, which it does not have")
    return Pretended(held)
