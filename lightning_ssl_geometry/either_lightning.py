"""One package under two names: `lightning` and `pytorch_lightning` have equal classes that are not the same."""

__all__ = ["either", "package_of"]

import sys
from typing import TypeVar

_Kind = TypeVar("_Kind")


def either(kind: type[_Kind]) -> tuple[type[_Kind], ...]:
    """Return a class of `lightning`, and the class of the same name in `pytorch_lightning` if that package is in use.

    The result is for `isinstance`. `pytorch_lightning` is never imported here. Without it, no object has its classes.

    >>> from lightning.pytorch.loggers import CSVLogger
    >>> isinstance(CSVLogger("runs"), either(CSVLogger))
    True
    """
    module = sys.modules.get(kind.__module__.replace("lightning.pytorch", "pytorch_lightning", 1))
    twin = getattr(module, kind.__name__, kind)
    return (kind,) if twin is kind else (kind, twin)


def package_of(thing: object) -> str:
    """Return the package of a Trainer or of a similar object, as pip names it: "lightning" or "pytorch-lightning".

    >>> import lightning as L
    >>> package_of(L.LightningDataModule())
    'lightning'
    """
    homes = (each.__module__.partition(".")[0] for each in type(thing).__mro__)
    return "pytorch-lightning" if "pytorch_lightning" in homes else "lightning"
