"""The command `ssl-geometry card`, which writes the model card of a run."""

__all__ = ["run"]

from collections.abc import Sequence

from lightning_ssl_geometry.cli_messages import ending_in_one_line
from lightning_ssl_geometry.commands.parser import CommandParser

_DESCRIPTION = """\
Write the model card of a run or a diagnosis: Markdown with the front matter of the Hugging Face Hub, what ran, and each
geometric quantity with its value, the meaning of low and high values, and its paper. Read the card before you publish
it: it repeats the command of the run, with the paths in it."""


def run(name: str, args: Sequence[str]) -> None:
    """Run `ssl-geometry card RUN`. If RUN cannot be read or a card is there, print one line and exit with status 2."""
    parser = CommandParser(name, _DESCRIPTION)
    parser.add_argument("run", metavar="RUN", help="folder of the run: the folder of its metrics.csv, or one above")
    parser.add_argument("--output", metavar="FILE", help="file of the card; RUN/README.md by default")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    options = parser.parse_args(args)
    with ending_in_one_line(ValueError, OSError, told=lambda said: said.replace("`overwrite=True`", "--overwrite")):
        _write(options.run, options.output, options.overwrite)


def _write(folder: str, output: str | None, overwrite: bool) -> None:
    from lightning_ssl_geometry.report import write_card

    print(f"The model card of this run: {write_card(folder, output, overwrite=overwrite)}")
