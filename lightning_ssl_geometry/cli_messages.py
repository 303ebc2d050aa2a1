"""The one-line messages with which the command ends. This module imports nothing heavy."""

__all__ = ["debugging", "end", "ending_in_one_line", "of_arguments", "one_line", "other_file"]

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from lightning_ssl_geometry.spelling import did_you_mean

_WORDS = {"NoneType": "null", "bool": "true or false", "float": "a number", "int": "an integer", "str": "a text"}


def debugging() -> bool:
    """Return whether the environment variable JSONARGPARSE_DEBUG asks for tracebacks."""
    return os.environ.get("JSONARGPARSE_DEBUG", "").lower() in ("true", "yes", "1")


def one_line(text: str, limit: int = 600) -> str:
    """Join the lines of a text to one line of at most `limit` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]} ..."


def end(message: str) -> NoReturn:
    """Print one line about an error, and exit with status 2. Control characters are escaped."""
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in _in_words(message))
    sys.stderr.write(f"ssl-geometry: error: {shown}\n")
    sys.exit(2)


def _in_words(message: str) -> str:
    """Put words in the place of the classes that jsonargparse names."""

    def said(found: re.Match[str]) -> str:
        kinds = re.findall(r"<class '(?:\w+\.)*(\w+)'>", found[1])
        return f"Expected {' or '.join(_WORDS.get(kind, kind) for kind in kinds)}, but got "

    return re.sub(r"((?:Expected (?:a )?<class '[\w.]+'>\. ?)+)(?:Given|Got) value: ", said, message)


@contextmanager
def ending_in_one_line(*kinds: type[Exception], told: Callable[[str], str] = str) -> Iterator[None]:
    """End the command with one line if an error of these kinds is raised, except for a BrokenPipeError.

    If the environment variable JSONARGPARSE_DEBUG asks for tracebacks, nothing is caught.

    Args:
        kinds: Classes of errors.
        told: Changes the error message, whose lines are already joined to one.
    """
    try:
        yield
    except BrokenPipeError:  # nobody reads what is printed
        raise
    except kinds as error:
        if debugging():
            raise
        end(told(one_line(str(error))))


def other_file(said: str) -> str:
    """Return the question whether a similar file is meant, if a message says that a file does not exist, or ""."""
    missing = re.search(r"File does not exist: '?([^']+?)'?\.?$", one_line(said))
    folder = Path(missing[1]).parent if missing else None
    if missing is None or folder is None or not folder.is_dir():
        return ""
    return did_you_mean(Path(missing[1]).name, [each.name for each in sorted(folder.iterdir()) if each.is_file()])


def of_arguments(said: str, command: str, options: Iterable[str]) -> str:
    """Turn an error message of argparse into a sentence, the most similar option, and a hint at the help.

    Args:
        said: The message, such as "unrecognized arguments: --outptu x".
        command: The command, such as "ssl-geometry report".
        options: The options of the command, such as "--output".

    >>> print(of_arguments("unrecognized arguments: --al x", "a b", ["--all"]))
    Expected arguments of `a b`, but got --al x. Did you mean `--all`? See `a b --help`.
    """
    unknown = re.search(r"unrecognized arguments: (.*)", one_line(said))
    ours = r"(?:model|data|\w+\.\w+)"  # of Lightning's commands
    if lacking := re.search(rf"required: ({ours}(?:, {ours})*)$", one_line(said)):
        keys = " and ".join(f"`{each.rpartition('.')[2]}`" for each in lacking[1].split(", "))
        said = f"Expected {keys}, but got none: pass a file with --config FILE. `ssl-geometry init` copies such files."
    elif unknown:
        first = unknown[1].split()[0].partition("=")[0]
        said = f"Expected arguments of `{command}`, but got {unknown[1]}.{did_you_mean(first, options)}"
    else:
        said = one_line(said[:1].upper() + said[1:]).removesuffix(".") + "."
    return f"{said} See `{command} --help`."
