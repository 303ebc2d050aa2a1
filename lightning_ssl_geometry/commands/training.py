"""The commands `fit`, `validate`, `test` and `predict`, which are those of Lightning's CLI."""

__all__ = ["run"]

import sys
from collections.abc import Sequence

from lightning_ssl_geometry.commands import COMMANDS
from lightning_ssl_geometry.commands.parser import CommandParser

_CHECKPOINT = "the weights of the model; `last` is the last checkpoint of the run"
_RESUMED = "resume from a checkpoint; `last` is the last checkpoint of the run"
_PREDICTED = """
The embeddings go to embeddings.npz in the run's folder: the arrays index, h, z (if the model has a projector) and
label (if the data have labels), with one row for each sample, sorted by index."""


def run(name: str, args: Sequence[str]) -> None:
    """Run the command `name` of Lightning's CLI. The help says the most used options without importing Lightning."""
    if {"-h", "--help"} & set(args):
        _parser(name).print_help()
        sys.exit(0)
    from lightning_ssl_geometry.cli import lightning_cli

    given = [name, *args]
    lightning_cli(
        None if given == sys.argv[1:] else given
    )  # Lightning warns about words that are not those of sys.argv


def _parser(name: str) -> CommandParser:
    parser = CommandParser(
        name,
        COMMANDS[name].summary + (_PREDICTED if name == "predict" else ""),
        usage=f"ssl-geometry {name} --config FILE [--config FILE ...] [--KEY VALUE ...]",
        epilog=f"""\
Every key of the file is an option, and an option replaces the value in the file:
  ssl-geometry {name} --config config.yaml --trainer.devices 2 --data.init_args.batch_size 64

`ssl-geometry {name} --help_all` lists all keys, which takes some seconds, and --print_config prints their values.
`ssl-geometry {name} --model.help CLASS` lists the keys of a class. `ssl-geometry init` lists files to begin with.""",
    )
    replaces = "a value in a later file replaces an earlier one, and a list replaces the whole list"
    parser.add_argument("-c", "--config", metavar="FILE", help=f"YAML file with settings; {replaces}")
    parser.add_argument("--model", metavar="CLASS", help="such as lightning_ssl_geometry.methods.SimCLRModule")
    parser.add_argument("--data", metavar="CLASS", help="such as lightning_ssl_geometry.data.DigitsDataModule")
    parser.add_argument("--trainer.KEY", metavar="VALUE", help="an argument of Lightning's Trainer, such as max_epochs")
    parser.add_argument("--seed_everything", metavar="SEED", help="seed of all random numbers; 0 by default")
    parser.add_argument("--ckpt_path", metavar="FILE", help=_RESUMED if name == "fit" else _CHECKPOINT)
    parser.add_argument("--print_config", action="store_true", help="print all settings, and exit")
    parser.add_argument("--help_all", action="store_true", help="list the options for all keys, and exit")
    return parser
