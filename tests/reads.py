"""Count what a GPU would wait for: operations whose result, or its shape, is read from a tensor's values."""

__all__ = ["Reads"]

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READING = {"_local_scalar_dense", "bincount", "equal", "is_nonzero", "masked_select", "nonzero", "repeat_interleave"}
UNIQUE = {"_unique2", "unique_dim", "unique_consecutive"}
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}


class Reads(TorchDispatchMode):
    """Names the operations that read: `found`.

    Args:
        kind: Only operations with an argument of this class count. With a class for tensors of a device, copies from
            there to the CPU count, too.
    """

    def __init__(self, kind=Tensor):
        super().__init__()
        self.kind = kind
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        if any(isinstance(each, self.kind) for each in tree_leaves((args, kwargs))):
            masks = [x for x in args[1] if x is not None and x.dtype == torch.bool] if name in INDEXED else []
            reads = name in READING | UNIQUE or self._leaves(name, args, kwargs)
            self.found += [name] * reads + ["mask"] * len(masks)
        return func(*args, **kwargs)

    def _leaves(self, name, args, kwargs):
        if self.kind is Tensor:
            return False
        to_cpu = str(kwargs.get("device") or "").startswith("cpu")
        return to_cpu or (name == "copy_" and not isinstance(args[0], self.kind))
