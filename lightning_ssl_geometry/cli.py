"""The command `ssl-geometry`, with the subcommands of Lightning's CLI and those of this package."""

__all__ = ["lightning_cli", "main"]

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

from lightning_ssl_geometry import __version__
from lightning_ssl_geometry.cli_messages import debugging, end
from lightning_ssl_geometry.commands import COMMANDS
from lightning_ssl_geometry.commands.parser import CommandParser
from lightning_ssl_geometry.spelling import did_you_mean

if TYPE_CHECKING:
    from lightning_ssl_geometry.start import RunCLI

_DESCRIPTION = "Train contrastive models and see their geometry."
_EPILOG = """\
`ssl-geometry COMMAND --help` lists the options of a command. A wrong setting ends a command with one line. The
environment variable JSONARGPARSE_DEBUG=true shows the traceback instead."""
_OF_LIGHTNING = ("-c", "--config", "--print_config")  # the options that may stand before a command of Lightning's


def main(args: Sequence[str] | None = None) -> None:
    """Run a command, such as `main(["fit", "--config", "x.yaml"])`. If `args` is None, it is `sys.argv[1:]`.

    If whoever reads the output stops reading, as in `ssl-geometry describe | head -1`, the command ends in silence.
    """
    with _silent_without_reader():
        try:
            _run(args)
        except KeyboardInterrupt:
            if args is not None or debugging():
                raise
            sys.stderr.write("Interrupted.\n")
            raise SystemExit(_BY_SIGINT) from None


def _run(args: Sequence[str] | None) -> None:
    if args is None:
        sys.path.append("")  # classes in the current folder can be named; what is installed comes before them
        warnings.filterwarnings(
            "ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning
        )  # Lightning's
    given = sys.argv[1:] if args is None else list(args)
    first = given[0].partition("=")[0] if given else ""
    if first in COMMANDS:
        import_module(COMMANDS[first].module).run(first, given[1:])
    elif first in _OF_LIGHTNING:
        lightning_cli(args)
    else:
        parser = _parser()
        if not first.startswith("-"):
            got = f"`{first}`" if first else "none"
            end(f"Expected a command, but got {got}.{did_you_mean(first, COMMANDS)} See `{parser.prog} --help`.")
        parser.parse_args(given)


def _parser() -> CommandParser:
    width = max(map(len, COMMANDS))
    rows = [f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items()]
    commands = "\n".join([_DESCRIPTION, "", "commands:", *rows])
    parser = CommandParser("", commands, usage="ssl-geometry COMMAND ...", epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"{parser.prog} {__version__}")
    return parser


def lightning_cli(args: Sequence[str] | None, run: bool = True) -> "RunCLI":
    """Make Lightning's CLI for any LightningModule and LightningDataModule, and run the subcommand in `args`.

    If `args` is None, the arguments are `sys.argv[1:]`. If `run` is false, `args` must not have a subcommand. The CLI
    then only builds its attributes `model`, `datamodule` and `trainer`.
    """
    from lightning_ssl_geometry.start import RunCLI

    return RunCLI(
        args=None if args is None else list(args),
        run=run,
        parser_kwargs={"version": __version__, "description": _DESCRIPTION, "prog": "ssl-geometry"},
    )


_BY_SIGPIPE, _BY_SIGINT = 141, 130  # the status that a shell gives to a program that this signal ends


@contextmanager
def _silent_without_reader() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        of_pipe = _is_of_pipe(error)
        rich_ended = of_pipe and isinstance(error, SystemExit)  # then rich has already closed the output
        gone = any(_is_gone(stream, "\n" if of_pipe and not rich_ended else "") for stream in (sys.stdout, sys.stderr))
        if rich_ended or (of_pipe and gone):  # another pipe, such as wandb's, is an error
            raise SystemExit(_BY_SIGPIPE) from None
        raise
    if any([_is_gone(stream) for stream in (sys.stdout, sys.stderr)]):
        raise SystemExit(_BY_SIGPIPE)


def _is_of_pipe(error: BaseException | None) -> bool:
    return error is not None and (isinstance(error, BrokenPipeError) or _is_of_pipe(error.__context__))


def _is_gone(stream: TextIO | None, said: str = "") -> bool:
    """Whether nobody reads a stream. Its further output is dropped, so that the interpreter's end is silent too."""
    if stream is None:
        return False
    try:
        stream.write(said)
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return True
    except OSError:  # a full disk, which the interpreter reports
        return False
    return False
