"""CommandParser: an argparse parser whose errors are one line."""

__all__ = ["CommandParser"]

import argparse
from typing import NoReturn

from lightning_ssl_geometry.cli_messages import debugging, end, of_arguments


class CommandParser(argparse.ArgumentParser):
    """A parser that refuses abbreviated options, and ends with one line if an argument is wrong.

    Args:
        name: The subcommand, or "" for `ssl-geometry` itself.
        description: The first paragraph of the help. Its line breaks are kept.
        usage: The line of the help that shows how the command is called. None: argparse makes it.
        epilog: The last paragraph of the help. Its line breaks are kept.
    """

    def __init__(self, name: str, description: str, usage: str | None = None, epilog: str | None = None) -> None:
        super().__init__(
            f"ssl-geometry {name}".strip(),
            usage=usage,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Print one line about a wrong argument, and exit with status 2. With JSONARGPARSE_DEBUG, raise an error."""
        if debugging():
            raise argparse.ArgumentError(None, message)
        end(of_arguments(message, self.prog, self._option_string_actions))
