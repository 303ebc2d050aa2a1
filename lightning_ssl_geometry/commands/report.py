"""The command `ssl-geometry report`, which writes the page of a run."""

__all__ = ["run"]

from collections.abc import Sequence

from lightning_ssl_geometry.cli_messages import ending_in_one_line
from lightning_ssl_geometry.commands.parser import CommandParser


def run(name: str, args: Sequence[str]) -> None:
    """Run `ssl-geometry report RUN`. If RUN cannot be read, print one line and exit with status 2."""
    parser = CommandParser(name, "Write the page of a run, and print its results.")
    parser.add_argument("run", metavar="RUN", help="folder of the run: the folder of its metrics.csv, or one above")
    parser.add_argument("--output", metavar="PAGE", help="file of the page; RUN/report.html by default")
    options = parser.parse_args(args)
    with ending_in_one_line(ValueError, OSError):
        _report(options.run, options.output)


def _report(folder: str, output: str | None) -> None:
    from rich.console import Console

    from lightning_ssl_geometry.report import read_run, remarks, summary_table, write_report

    run = read_run(folder)
    page = write_report(run, output)
    console = Console()
    console.print(summary_table(run))
    if said := remarks(run):
        console.print(said, soft_wrap=True, highlight=False, markup=False)
    console.print(f"The page of this run: {page}", soft_wrap=True, highlight=False, markup=False)
