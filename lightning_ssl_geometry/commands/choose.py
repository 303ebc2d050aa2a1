"""The command `ssl-geometry choose`: its help, without the imports that the command itself needs."""

__all__ = ["parser", "run"]

import sys
from collections.abc import Sequence

from lightning_ssl_geometry.commands.diagnose import add_options
from lightning_ssl_geometry.commands.parser import CommandParser
from lightning_ssl_geometry.diagnose_options import CHOOSING, IMAGES, REST

_DESCRIPTION = """\
Choose among models without labels: each label-free diagnostic orders them on the same images. Where the images have
labels, the command also says how far each order agrees with a linear classifier, and what choosing by it costs. The
models are those of `ssl-geometry diagnose --compare`: runs, checkpoints, timm:NAME, hf:USER/MODEL, YAML files, or
folders of earlier diagnoses."""


def run(name: str, args: Sequence[str]) -> None:
    """Run `ssl-geometry choose`."""
    if {"-h", "--help"} & set(args):
        parser(name).print_help()
        sys.exit(0)
    from lightning_ssl_geometry.diagnose import command

    command.run_choose(args)


def parser(name: str) -> CommandParser:
    """Return a parser with the options of the command. It only prints the help: the command parses by itself."""
    made = CommandParser(name, _DESCRIPTION, usage=f"ssl-geometry {name} [NAME=]WHAT [NAME=]WHAT ... [OPTION ...]")
    made.add_argument("models", metavar="WHAT", nargs="+", help="two models or more, with or without names")
    add_options(made.add_argument_group("how to choose"), CHOOSING)
    add_options(made.add_argument_group("the images"), IMAGES)
    add_options(made, [option for option in REST if option.name not in ("compare", "name")])
    return made
