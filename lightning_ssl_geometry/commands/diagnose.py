"""The command `ssl-geometry diagnose`: its help, without the imports that the command itself needs."""

__all__ = ["add_options", "parser", "run"]

import sys
from argparse import _ActionsContainer
from collections.abc import Sequence

from lightning_ssl_geometry.commands.parser import CommandParser
from lightning_ssl_geometry.diagnose_options import IMAGES, NETWORK, REST, Option

_DESCRIPTION = """\
Look at a network without training it: one pass over images, and a page. What to look at is a run of
`ssl-geometry fit` or a checkpoint in it, `timm:NAME`, `hf:USER/MODEL` of the Hugging Face Hub, a YAML file with
the options below, or these options themselves, such as --model. The images are a folder, any DataModule, or those that
the run was trained on."""
_EPILOG = """\
`ssl-geometry diagnose --model.help CLASS` lists the options of a class, such as --model.in_channels, and
likewise --data.help and --views.help."""
_WHAT = "a run's folder, a checkpoint in one, timm:NAME, hf:USER/MODEL, hf:FOLDER, or a YAML file"


def run(name: str, args: Sequence[str]) -> None:
    """Run `ssl-geometry diagnose`."""
    if {"-h", "--help"} & set(args):
        parser(name).print_help()
        sys.exit(0)
    from lightning_ssl_geometry.diagnose import command

    command.run(args)


def parser(name: str) -> CommandParser:
    """Return a parser with the options of the command. It only prints the help: the command parses by itself."""
    made = CommandParser(name, _DESCRIPTION, usage=f"ssl-geometry {name} [WHAT] [OPTION ...]", epilog=_EPILOG)
    made.add_argument("what", metavar="WHAT", nargs="?", help=_WHAT)
    for title, options in {
        "the network, by one of --run, --timm, --hub and --model": NETWORK,
        "the images": IMAGES,
    }.items():
        add_options(made.add_argument_group(title), options)
    add_options(made, REST)
    return made


def add_options(to: _ActionsContainer, options: Sequence[Option]) -> None:
    """Add options to a parser or to a group of its options, for the help."""
    for option in options:
        if option.switch:
            to.add_argument(f"--{option.name}", action="store_true", help=option.help)
        else:
            to.add_argument(f"--{option.name}", metavar=option.value or option.name.upper(), help=option.help)
