"""The command `ssl-geometry describe`, which explains the results of a diagnostic, method, probe or callback."""

__all__ = ["run"]

from collections.abc import Sequence

from lightning_ssl_geometry.cli_messages import ending_in_one_line
from lightning_ssl_geometry.commands.parser import CommandParser

_DESCRIPTION = """\
Describe the results of a diagnostic, a method, a probe or a callback: titles, meaning of low and high
values, ranges and papers. Without a name, list all classes."""


def run(name: str, args: Sequence[str]) -> None:
    """Run `ssl-geometry describe NAME`. Without NAME, print a table of all classes.

    NAME is a class, the import path of a class, or the name of a logged value. If it is unknown, the exit code is 2.
    """
    parser = CommandParser(name, _DESCRIPTION)
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="such as LiDAR, val/effective_rank_h or your_package.YourMetric"
    )
    wanted = parser.parse_args(args).name
    from lightning_ssl_geometry import describe

    with ending_in_one_line(ValueError):
        print(describe.table() if wanted is None else describe.described(wanted))
