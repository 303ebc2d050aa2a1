"""Errors that a run raises: the setting that the message is about, and whose code raised the error."""

__all__ = ["at_key", "in_users_code"]

import sysconfig
from collections.abc import Mapping
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any

from jsonargparse import Namespace

from lightning_ssl_geometry.cli_errors.config import named_argument, nodes


def at_key(config: Mapping[str, Any] | Namespace, error: Exception) -> str | None:
    """Return the key of the argument that the message of `error` names, or None."""
    built = list(nodes(config, ""))
    frames: list[FrameType] = [frame for frame, _ in walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        kind = type(frame.f_locals.get("self"))
        for node in built:
            if node.made is kind and (name := named_argument(node, str(error))):
                return f"{node.path}.init_args.{name}"
    return None


def in_users_code(error: BaseException) -> bool:
    """Return whether the traceback contains a file other than those of this package, Python and installed packages."""
    known = [Path(__file__).parents[1], *(Path(sysconfig.get_path(each)) for each in ("stdlib", "purelib", "platlib"))]
    files = [Path(frame.f_code.co_filename) for frame, _ in walk_tb(error.__traceback__)]
    return any(file.is_file() and not any(file.is_relative_to(each) for each in known) for file in files)
