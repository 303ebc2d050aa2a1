"""The commands `ssl-geometry diagnose` and `ssl-geometry choose`."""

__all__ = ["run", "run_choose"]

import csv
import io
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import lightning as L
from jsonargparse import ArgumentParser, Namespace
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import rank_zero_only
from rich.console import Console

from lightning_ssl_geometry.checks import inside, integer
from lightning_ssl_geometry.cli_errors.keys import of_parser
from lightning_ssl_geometry.cli_messages import debugging, end, ending_in_one_line
from lightning_ssl_geometry.diagnose.by_options import (
    YAML,
    add_option,
    ask_for,
    diagnosed_by,
    fields_of_source,
    loaded_by,
)
from lightning_ssl_geometry.diagnose.choosing import choose, refuse_early
from lightning_ssl_geometry.diagnose.comparison import (
    compare,
)
from lightning_ssl_geometry.diagnose.model_source import WAYS, ModelSource, named_source
from lightning_ssl_geometry.diagnose.several import compared, named_model
from lightning_ssl_geometry.diagnose_options import CHOOSING, IMAGES, NETWORK, REST
from lightning_ssl_geometry.files import refuse_other_files, replacing
from lightning_ssl_geometry.report.side_by_side import comparison_remarks, comparison_tables


class _Parser(ArgumentParser):
    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        if not self.exit_on_error or debugging():
            super().error(message, ex)
        options = [each for each in self._option_string_actions if each.startswith("--")]
        end(_of_option(of_parser(message, [], command=self.prog, options=options), options))


def run(args: Sequence[str]) -> None:
    """Run `ssl-geometry diagnose` with the command-line options `args`. Exits with a message if an option is wrong."""
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # no line for each of a download's retries
    parser = _parser()
    given = list(args)
    options = parser.parse_args(given)
    if Path(options.what or "").suffix in YAML:
        given.remove(options.what)
        options = parser.parse_args(["--config", options.what, *given])
    told = partial(_as_options, images=options.images is not None)
    with ending_in_one_line(ValueError, OSError, ImportError, MisconfigurationException, told=told):
        _seed(options)
        _refuse_trust_in_a_file(options, given)
        _refuse_contradictions(options)
        _refuse_no_folder(Path(options.output))
        built = parser.instantiate_classes(options)
        config = parser.dump(options, skip_none=True)
        if built.compare:
            _compare(built, config)
        else:
            _diagnose_one(built, config)


def run_choose(args: Sequence[str]) -> None:
    """Run `ssl-geometry choose` with the command-line options `args`. Exits with a message if an option is wrong."""
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    parser = _Parser("ssl-geometry choose", allow_abbrev=False)
    parser.add_argument("models", nargs="+")
    for option in (*IMAGES, *REST, *CHOOSING):
        if option.name not in ("compare", "name"):
            add_option(parser, option)
    options = parser.parse_args(list(args))
    told = partial(_as_options, images=options.images is not None, of_models=True)
    with ending_in_one_line(ValueError, OSError, ImportError, MisconfigurationException, told=told):
        _seed(options)
        if options.labels is not None:
            integer(1, labels=options.labels)
        _refuse_trust_in_a_file(options, args)
        _refuse_contradictions_of_images(options)
        _refuse_no_folder(Path(options.output))
        built = parser.instantiate_classes(options)
        built["compare"], built["pretrained"] = options.models, True
        _choose(built, parser.dump(options, skip_none=True))


def _seed(options: Namespace) -> None:
    inside("[0, 4294967295]", seed_everything=options.seed_everything)
    L.seed_everything(options.seed_everything, verbose=False)


def _choose(options: Namespace, config: str) -> None:
    output = Path(options.output)
    _refuse_other_tables(output / "choose_models.csv", output / "choose_scores.csv")
    folders = compared(options, config, partial(refuse_early, labels=options.labels, by=options.by))
    found = choose(folders, labels=options.labels, incomparable=options.incomparable, seed=options.seed_everything)
    if options.by is not None:
        found.best(options.by)  # an error before anything is written
    advice = [_as_options(each, of_models=True) for each in found.advice(options.by)]
    reasons = [f"{title} ({why})" for title, why in found.left_out.items()]
    shown = [*advice, *([f"Left out: {'; '.join(reasons)}."] if reasons else [])]
    page = compare(folders, output / "comparison.html", choosing=found.panels(), advice=shown)
    if getattr(rank_zero_only, "rank", 0) == 0:
        _write_rows(found.score_rows(), output / "choose_scores.csv", ["knob", "score", "good", "best"])
        _write_rows(found.model_rows(), output / "choose_models.csv", ["model"])  # last: see _refuse_other_tables
        if found.scores:
            console = Console()
            for table in found.tables():
                console.print(table)
        elif found.remarks:
            print(*found.remarks, sep="\n")
        for title, why in found.left_out.items():
            print(f"Left out: {title}: {why}.")
        print(*advice, sep="\n")
        print(f"The numbers: {output / 'choose_models.csv'}, {output / 'choose_scores.csv'}. The page: {page}")


def _refuse_other_tables(models: Path, scores: Path) -> None:
    """Raise a FileExistsError if one of the tables is not of an earlier command.

    The columns of the models are other ones in each command. So theirs is known by the table of scores beside it.
    """
    refuse_other_files(scores, "knob,score,good,best")
    if models.exists() and not scores.exists():
        raise FileExistsError(f"Expected no file {models}, or one of an earlier command, but it is another one.")
    refuse_other_files(models, "model")


def _write_rows(rows: Sequence[Mapping[str, Any]], path: Path, columns: Sequence[str]) -> None:
    text = io.StringIO()
    names = dict.fromkeys([*columns, *(name for row in rows for name in row)])
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with replacing(path) as file:
        file.write(text.getvalue().encode())


def _of_option(said: str, options: Sequence[str]) -> str:
    """Spell a message of jsonargparse on the value of an option that can be left out, but is never null.

    >>> _of_option("labels: Expected a <class 'int'>. Expected a <class 'NoneType'>. Given value: ten.", ["--labels"])
    "--labels: Expected a <class 'int'>. Given value: ten."
    """
    name, null = said.partition(":")[0], " Expected a <class 'NoneType'>."
    return f"--{said.replace(null, '')}" if f"--{name}" in options and null in said else said


def _as_options(said: str, *, images: bool = False, of_models: bool = False) -> str:
    """Spell arguments of Python as options of the command line.

    Args:
        said: The message.
        images: Whether `root` of a DataModule is the option `--images`.
        of_models: Whether the command has no options on a single model, and the models have names before "=".

    >>> _as_options("Try `pretrained=False`, or `checkpoint=FILE`.")
    'Try `--pretrained false`, or `--checkpoint FILE`.'
    >>> _as_options("Try `pretrained=False`, or `checkpoint=FILE`.", of_models=True)
    'Try `pretrained: false` in a YAML file, or `checkpoint: FILE` in a YAML file.'
    """
    if images:
        said = said.replace("`root`", "--images")
    if of_models:
        said = said.replace("`name`", "the name of a model")
    spelt = re.sub(r"`(\w+)=(\w+)`", r"`\1: \2` in a YAML file" if of_models else r"`--\1 \2`", said)
    names = "by|incomparable|labels|output|name|seed_everything|batch_size|image_size"
    spelt = re.sub(rf"`({names})`( None)?", lambda found: ("no " if found[2] else "") + f"--{found[1]}", spelt)
    return re.sub(r"(?<=[\w:] )(True|False)`", lambda found: found[0].lower(), spelt)


def _parser() -> ArgumentParser:
    parser = _Parser("ssl-geometry diagnose", allow_abbrev=False)
    parser.add_argument("what", nargs="?")
    for option in (*NETWORK, *IMAGES, *REST):
        add_option(parser, option)
    return parser


def _refuse_contradictions(options: Namespace) -> None:
    _refuse_contradictions_of_images(options)
    ways = [name for name in WAYS if options[name]]
    if options.what and ways:
        raise ValueError(f"Expected {options.what} or --{ways[0]}, but got both.")
    if options.compare:
        beside = [
            name for name in (*ModelSource.__dataclass_fields__, "name") if options[name] and name != "pretrained"
        ]
        if options.what or beside:
            got = ", ".join([*([options.what] if options.what else []), *(f"--{name}" for name in beside)])
            raise ValueError(f"Expected models in --compare alone (with options of their own, as YAML), but got {got}.")
        if not options.pretrained and all("timm" not in named_source(named_model(each)[1]) for each in options.compare):
            raise ValueError(f"Expected --pretrained false beside timm:NAME, but got {', '.join(options.compare)}.")


def _refuse_trust_in_a_file(options: Namespace, given: Sequence[str]) -> None:
    if options.trust and "--trust" not in given:
        raise ValueError("Expected --trust on the command line alone, but got it in a file.")


def _refuse_no_folder(output: Path) -> None:
    found = next(each for each in (output.absolute(), *output.absolute().parents) if each.exists())
    if not found.is_dir() or not os.access(found, os.W_OK):
        got = f"{output}, and {found} {'may not be written to' if found.is_dir() else 'is a file'}"
        raise ValueError(f"Expected --output to be a folder, or the name of a new one, but got {got}.")


def _refuse_contradictions_of_images(options: Namespace) -> None:
    if options.images is not None and options.data is not None:
        raise ValueError("Expected one of --images and --data, but got both.")
    if options.images is None and (
        lonely := [name for name in ("image_size", "batch_size") if options[name] is not None]
    ):
        raise ValueError(f"Expected --{lonely[0]} beside --images, but there are none.")


def _diagnose_one(options: Namespace, config: str) -> None:
    given = {name: options[name] for name in fields_of_source()} | (named_source(options.what) if options.what else {})
    source = ModelSource(**given)
    ask_for(source, options)
    diagnosed_by(source, loaded_by(source, options), options.name or source.name, options=options, config=config)


def _compare(options: Namespace, config: str) -> None:
    folders = compared(options, config)
    page = compare(folders, Path(options.output) / "comparison.html")
    if getattr(rank_zero_only, "rank", 0) == 0:
        console, groups = Console(), {name: [folder] for name, folder in folders.items()}
        for table in comparison_tables(groups, console.width):
            console.print(table)
        if said := comparison_remarks(groups):
            console.print(said, soft_wrap=True, highlight=False, markup=False)
        print(f"The page of the comparison: {page}")
