"""The command `ssl-geometry`, with the subcommands of Lightning's CLI and those of this package."""

__all__ = ["lightning_cli", "main"]

import argparse
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from lightning.pytorch import LightningDataModule, LightningModule

from lightning_ssl_geometry import __version__
from lightning_ssl_geometry.cli_lightning import GeometryCLI
from lightning_ssl_geometry.start import SaveConfig, prepare

_DESCRIPTION = """Train contrastive models and see their geometry. `fit`, `validate`, `test` and `predict` are
LightningCLI's. `ssl-geometry diagnose` looks at a network without training it,
`ssl-geometry report RUN [--output PAGE]` writes the page of a run, and `ssl-geometry describe [NAME]` says what the
results of a diagnostic, a method, a probe or a callback mean. A wrong setting ends the command with one line; the
environment variable JSONARGPARSE_DEBUG=true shows the traceback instead."""


def main(args: Sequence[str] | None = None) -> None:
    """Run a command, such as `main(["fit", "--config", "x.yaml"])`. If `args` is None, it is `sys.argv[1:]`.

    If whoever reads the output stops reading, as in `ssl-geometry describe | head -1`, the command ends in silence.
    """
    with _silent_without_reader():
        _run(args)


def _run(args: Sequence[str] | None) -> None:
    if args is None:
        sys.path.append("")  # classes in the current folder can be named; what is installed comes before them
        warnings.filterwarnings(
            "ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning
        )  # Lightning's
    given = sys.argv[1:] if args is None else list(args)
    if given[:1] == ["report"]:
        _report(given[1:])
    elif given[:1] == ["diagnose"]:
        from lightning_ssl_geometry.diagnose import command

        command.run(given[1:])
    elif given[:1] == ["describe"]:
        from lightning_ssl_geometry import describe

        describe.run(given[1:])
    else:
        lightning_cli(args)


def lightning_cli(args: Sequence[str] | None, run: bool = True) -> GeometryCLI:
    """Make Lightning's CLI for any LightningModule and LightningDataModule, and run the subcommand in `args`.

    If `args` is None, the arguments are `sys.argv[1:]`. If `run` is false, `args` must not have a subcommand. The CLI
    then only builds its attributes `model`, `datamodule` and `trainer`.
    """
    return _CLI(
        LightningModule,
        LightningDataModule,
        subclass_mode_model=True,
        subclass_mode_data=True,
        auto_configure_optimizers=False,
        seed_everything_default=0,
        save_config_callback=SaveConfig,
        parser_kwargs={"version": __version__, "description": _DESCRIPTION, "prog": "ssl-geometry"},
        args=None if args is None else list(args),
        run=run,
    )


class _CLI(GeometryCLI):
    def before_fit(self) -> None:
        prepare(self)

    before_validate = before_test = before_predict = before_fit


_BY_SIGPIPE = 141  # the status that a shell gives to a program that this signal ends


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


def _report(args: Sequence[str]) -> None:
    from rich.console import Console

    from lightning_ssl_geometry.report import read_run, remarks, summary_table, write_report

    parser = argparse.ArgumentParser("ssl-geometry report", description="Write the page of a run.")
    parser.add_argument("run", help="folder of the run: the folder of its metrics.csv, or one above")
    parser.add_argument("--output", help="where the page goes; RUN/report.html by default")
    options = parser.parse_args(args)
    try:
        run = read_run(options.run)
        page = write_report(run, options.output)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    console = Console()
    console.print(summary_table(run))
    if run.notes:
        console.print(remarks(run), soft_wrap=True, highlight=False, markup=False)
    console.print(f"The page of this run: {page}", soft_wrap=True, highlight=False, markup=False)
