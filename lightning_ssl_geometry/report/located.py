"""A base class for objects that stand for a folder and can be used as its path."""

__all__ = ["Located"]

import os
from functools import total_ordering
from pathlib import Path
from typing import Any

from lightning_ssl_geometry.deprecation import deprecated

_OF_PATHS = frozenset(name for name in dir(Path) if not name.startswith("_"))


@total_ordering
class Located(os.PathLike[str]):
    """An object that can be used as the path of its attribute `folder`.

    `Path(run)`, `open(run / "report.html")`, `str(run)` and `print(run)` work as they do for the path. The object is
    equal to the path of its folder, and is sorted with paths and other such objects by it. The methods of `Path`, such
    as `run.exists()`, work for one more release and warn: call them on `run.folder`.

    The object is no `Path`: `isinstance(run, Path)` is False, and an attribute of the object comes before that of the
    path. So `run.name` is the name of the run, such as "simclr/version_0", while the name of the folder,
    `run.folder.name`, is "version_0".
    """

    folder: Path

    def __fspath__(self) -> str:
        return str(self.folder)

    def __truediv__(self, part: str | os.PathLike[str]) -> Path:
        return self.folder / part

    def __str__(self) -> str:
        return str(self.folder)

    def __eq__(self, other: object) -> bool:
        return self.folder == Path(os.fspath(other)) if isinstance(other, Located | Path) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self.folder < Path(os.fspath(other)) if isinstance(other, Located | Path) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.folder)

    def __getattr__(self, name: str) -> Any:  # only called for names that the object does not have
        if name not in _OF_PATHS or "folder" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        deprecated(f"`{type(self).__name__}.{name}`", f"`{type(self).__name__}.folder.{name}`")
        return getattr(self.folder, name)
