"""The commands `ssl-geometry diagnose` and `ssl-geometry choose`."""

__all__ = ["run", "run_choose"]

import argparse
import csv
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, get_type_hints

import lightning as L
from jsonargparse import ArgumentParser, Namespace
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import rank_zero_only
from rich.console import Console
from torch import nn

from lightning_ssl_geometry.checks import inside, integer
from lightning_ssl_geometry.cli_errors.keys import of_parser
from lightning_ssl_geometry.cli_messages import debugging, end, ending_in_one_line
from lightning_ssl_geometry.data import ImageDataModule
from lightning_ssl_geometry.diagnose.checked import checked
from lightning_ssl_geometry.diagnose.choosing import choose, refuse_early
from lightning_ssl_geometry.diagnose.comparison import (
    compare,
    data_of,
    diagnosis_in,
    refuse_different_data,
    refuse_too_few,
)
from lightning_ssl_geometry.diagnose.diagnosis import diagnose, folder_of_images
from lightning_ssl_geometry.diagnose.loaded import Loaded
from lightning_ssl_geometry.diagnose.model_source import WAYS, ModelSource, named_source, source_name
from lightning_ssl_geometry.diagnose.run_settings import run_settings
from lightning_ssl_geometry.diagnose.trust import ask
from lightning_ssl_geometry.diagnose_options import BATCH_SIZE, CHOOSING, IMAGES, NETWORK, REST, Option
from lightning_ssl_geometry.files import refuse_other_files, replacing
from lightning_ssl_geometry.report.page import PAGES_HAVE
from lightning_ssl_geometry.report.side_by_side import comparison_remarks, comparison_tables
from lightning_ssl_geometry.views import SimCLRViews

_YAML = (".yaml", ".yml")
_OUTPUTS = {"comparison.html", "choose_models.csv", "choose_scores.csv", ".decoded"}
_MOST_WAITING = 2 * 2**30  # bytes of the weights of models that were checked and wait for their diagnosis
_BASES = {"model": nn.Module, "data": LightningDataModule, "views": nn.Module}
_OF_SOURCE = get_type_hints(ModelSource)
_Waiting = tuple[ModelSource, Loaded]  # a model that was checked


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
    if Path(options.what or "").suffix in _YAML:
        given.remove(options.what)
        options = parser.parse_args(["--config", options.what, *given])
    told = partial(_as_options, images=options.images is not None)
    with ending_in_one_line(ValueError, OSError, ImportError, MisconfigurationException, told=told):
        _seed(options)
        _refuse_trust_in_a_file(options, given)
        _refuse_contradictions(options)
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
            _add(parser, option)
    options = parser.parse_args(list(args))
    told = partial(_as_options, images=options.images is not None, of_models=True)
    with ending_in_one_line(ValueError, OSError, ImportError, MisconfigurationException, told=told):
        _seed(options)
        if options.labels is not None:
            integer(1, labels=options.labels)
        _refuse_trust_in_a_file(options, args)
        _refuse_contradictions_of_images(options)
        built = parser.instantiate_classes(options)
        built["compare"], built["pretrained"] = options.models, True
        _choose(built, parser.dump(options, skip_none=True))


def _seed(options: Namespace) -> None:
    inside("[0, 4294967295]", seed_everything=options.seed_everything)
    L.seed_everything(options.seed_everything, verbose=False)


def _choose(options: Namespace, config: str) -> None:
    output = Path(options.output)
    _refuse_other_tables(output / "choose_models.csv", output / "choose_scores.csv")
    folders = _compared(options, config, partial(refuse_early, labels=options.labels, by=options.by))
    found = choose(folders, labels=options.labels, incomparable=options.incomparable, seed=options.seed_everything)
    if options.by is not None:
        found.best(options.by)  # an error before anything is written
    advice = found.advice(options.by)
    page = compare(folders, output / "comparison.html", choosing=found.panels(), advice=advice)
    if getattr(rank_zero_only, "rank", 0) == 0:
        _write_rows(found.score_rows(), output / "choose_scores.csv", ["knob", "score", "good", "best"])
        _write_rows(found.model_rows(), output / "choose_models.csv", ["model"])  # last: see _refuse_other_tables
        if found.scores:
            console = Console()
            for table in found.tables():
                console.print(table)
        else:
            print(*found.remarks, "No score can be compared between all models.", sep="\n")
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
        _add(parser, option)
    return parser


def _add(parser: ArgumentParser, option: Option) -> None:
    name, flag = option.name, f"--{option.name}"
    if name in _BASES:
        parser.add_subclass_arguments(_BASES[name], name, as_group=False, required=False, help=option.help)
    elif name == "config":
        parser.add_argument(flag, action="config", help=option.help)  # with --print_config
    elif name == "compare":
        parser.add_argument(flag, nargs="+", default=option.default, metavar="NAME=WHAT", help=option.help)
    elif option.switch and name != "print_config":
        parser.add_argument(flag, action="store_true", help=option.help)
    elif not option.switch:
        plain = option.kind | None if option.default is None else option.kind
        parser.add_argument(flag, type=_OF_SOURCE.get(name, plain), default=option.default, help=option.help)


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
        if not options.pretrained and all("timm" not in named_source(_named(each)[1]) for each in options.compare):
            raise ValueError(f"Expected --pretrained false beside timm:NAME, but got {', '.join(options.compare)}.")


def _refuse_trust_in_a_file(options: Namespace, given: Sequence[str]) -> None:
    if options.trust and "--trust" not in given:
        raise ValueError("Expected --trust on the command line alone, but got it in a file.")


def _refuse_contradictions_of_images(options: Namespace) -> None:
    if options.images is not None and options.data is not None:
        raise ValueError("Expected one of --images and --data, but got both.")
    if options.images is None and (
        lonely := [name for name in ("image_size", "batch_size") if options[name] is not None]
    ):
        raise ValueError(f"Expected --{lonely[0]} beside --images, but there are none.")


def _diagnose_one(options: Namespace, config: str) -> None:
    given = {name: options[name] for name in _fields()} | (named_source(options.what) if options.what else {})
    source = ModelSource(**given)
    _ask(source, options)
    _diagnose(source, _loaded(source, options), options.name or source.name, options=options, config=config)


def _ask(source: ModelSource, options: Namespace) -> None:
    if source.config is not None:
        ask(source.config, options.trust)


def _loaded(source: ModelSource, options: Namespace) -> Loaded:
    return source.load(augment=options.views or SimCLRViews())


def _data_for(loaded: Loaded, options: Namespace) -> LightningDataModule:
    trained_on = loaded.data if isinstance(loaded.data, ImageDataModule) else None
    if trained_on is not None:
        trained_on.prepare_data()
        trained_on.setup("test")
    return _data(loaded, trained_on, options)


def _diagnose(source: ModelSource, loaded: Loaded, name: str, *, options: Namespace, config: str) -> Path:
    data = _data_for(loaded, options)
    settings = None if source.run is None else run_settings(source.run)
    normalization = loaded.normalization
    if normalization is None and isinstance(loaded.data, ImageDataModule):
        normalization = tuple(loaded.data.mean.tolist()), tuple(loaded.data.std.tolist())
    if source.mean is None and not isinstance(data, ImageDataModule):
        normalization = None  # of its own, whatever that is
    return diagnose(
        loaded.module,
        data,
        options.output,
        name=name,
        normalization=normalization,
        linear_evaluation=options.linear_evaluation,
        about=loaded.about | {"settings": settings},
        config=config,
        accelerator=options.accelerator,
        devices=options.devices,
        precision=options.precision,
        progress=options.progress,
        table=not options.compare,
    ).folder


def _data(loaded: Loaded, trained_on: ImageDataModule | None, options: Namespace) -> LightningDataModule:
    if options.images is None:
        data = options.data or loaded.data
        if data is None:
            raise ValueError("Expected --images or --data: this network brings no images along.")
        if isinstance(data, ImageDataModule) and options.views is not None:
            data.views = options.views
        return data
    if trained_on is not None and len(trained_on.image_shape) != 3:
        shape = " x ".join(map(str, trained_on.image_shape))
        raise ValueError(
            f"Expected --data instead of --images: this network was trained on samples of shape {shape}, which are no "
            "images."
        )
    size = loaded.image_size or (trained_on.image_shape[1] if trained_on else None)
    size = size if options.image_size is None else options.image_size
    if size is None:
        raise ValueError("Expected --image_size beside --images: this network does not say which it wants.")
    channels = trained_on.image_shape[0] if trained_on else None
    cache = Path(options.output) / ".decoded"
    batch_size = BATCH_SIZE if options.batch_size is None else options.batch_size
    images = folder_of_images(options.images, size, batch_size, cache=cache, channels=channels)
    own = trained_on.views if trained_on and not options.compare else None  # models are compared on the same views
    images.views = options.views or own or SimCLRViews()
    return images


def _source(what: str, pretrained: bool) -> ModelSource:
    if Path(what).suffix in _YAML:
        parser = ArgumentParser(exit_on_error=False)
        for option in NETWORK:
            _add(parser, option)
        try:
            built = parser.instantiate_classes(parser.parse_path(what))
        except argparse.ArgumentError as error:
            said = " ".join(str(error).split())
            raise ValueError(f"Expected {what} to say what to look at, but: {said}") from error
        return ModelSource(**{name: built[name] for name in _fields()})
    named: dict[str, Any] = named_source(what)
    return ModelSource(**named, pretrained=pretrained or "run" in named)  # a run beside timm's random weights


def _compared(options: Namespace, config: str, check: Callable[[Path], None] | None = None) -> dict[str, Path]:
    """Diagnose the models of --compare. Return the folders of the diagnoses by their names.

    `check` is called with the first diagnosis, to raise an error before the others are made.
    """
    refuse_other_files(Path(options.output) / "comparison.html", PAGES_HAVE)
    named = dict(_named(each) for each in options.compare)
    if len(named) < len(options.compare):
        names = [_named(each)[0] for each in options.compare]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"Expected different names of models, but {names.count(twice)} are named {twice!r}. Name them, as in "
            f"first={next(what for what in options.compare if _named(what)[0] == twice)}."
        )
    if taken := sorted(_OUTPUTS & named.keys()):
        raise ValueError(f"Expected names of models that are no outputs of the command, but got {taken[0]!r}.")
    refuse_too_few(named)
    beside = [option.name for option in IMAGES if options[option.name]]
    if beside and all(diagnosis_in(Path(what)) for what in named.values()):
        raise ValueError(f"Expected no --{beside[0]}: all models are folders of earlier diagnoses, which keep theirs.")
    waiting: dict[str, _Waiting] = {}
    seen = {name: _checked(name, what, options, waiting=waiting) for name, what in named.items()}
    remedy = "Give --image_size or --data, so that all models get the same images."
    if any(diagnosis_in(Path(what)) for what in named.values()):
        remedy = "Name the runs in place of earlier diagnoses, so that all models get the same images."
    refuse_different_data(seen, remedy)
    folders: dict[str, Path] = {}
    with _told_how_to_go_on(named, folders):
        for place, (name, what) in enumerate(named.items(), start=1):
            later = list(named.values())[place:]
            found = waiting.get(what) if what in later else waiting.pop(what, None)
            folders[name] = _diagnosed(name, what, options, config=config, found=found)
            if check is not None and place == 1:
                check(folders[name])
    return folders


@contextmanager
def _told_how_to_go_on(named: Mapping[str, str], folders: Mapping[str, Path]) -> Iterator[None]:
    """Name the diagnoses that a command has made before it was interrupted or failed, so that they can be used."""
    try:
        yield
    except BaseException:
        made = {name: folder for name, folder in folders.items() if not diagnosis_in(Path(named[name]))}
        if made and len(made) < len(named) and getattr(rank_zero_only, "rank", 0) == 0:
            words = shlex.join(f"{name}={made.get(name, what)}" for name, what in named.items())
            sys.stderr.write(f"{len(made)} of {len(named)} models are diagnosed. To go on from here, name {words}\n")
        raise


def _compare(options: Namespace, config: str) -> None:
    folders = _compared(options, config)
    page = compare(folders, Path(options.output) / "comparison.html")
    if getattr(rank_zero_only, "rank", 0) == 0:
        console, groups = Console(), {name: [folder] for name, folder in folders.items()}
        for table in comparison_tables(groups, console.width):
            console.print(table)
        if said := comparison_remarks(groups):
            console.print(said, soft_wrap=True, highlight=False, markup=False)
        print(f"The page of the comparison: {page}")


def _checked(name: str, what: str, options: Namespace, *, waiting: dict[str, _Waiting]) -> str:
    """Load a model, pass blank images through it, and return the data in words.

    The model joins those that wait, so that it is not loaded again, unless their weights have `_MOST_WAITING` bytes.
    """
    if earlier := diagnosis_in(Path(what)):
        return data_of(earlier)
    if options.images is None and options.data is None and not {"timm", "hub"}.isdisjoint(named_source(what)):
        raise ValueError(f"Model {name!r}: Expected --images or --data: this network brings no images along.")
    try:
        source, loaded = waiting[what] if what in waiting else _found(what, options, asks=True)
        said = checked(loaded.module, _data_for(loaded, options))
    except (ValueError, OSError, ImportError) as error:
        raise ValueError(f"Model {name!r}: {error}") from error
    held = {id(each): each for _, each in waiting.values()} | {id(loaded): loaded}
    if sum(map(_size, held.values())) <= _MOST_WAITING:
        waiting[what] = source, loaded
    return said


def _found(what: str, options: Namespace, asks: bool = False) -> _Waiting:
    L.seed_everything(options.seed_everything, verbose=False)  # random weights do not depend on who comes before
    source = _source(what, options.pretrained)
    if asks:
        _ask(source, options)
    return source, _loaded(source, options)


def _size(loaded: Loaded) -> int:
    return sum(each.nbytes for each in (*loaded.network.parameters(), *loaded.network.buffers()))


def _diagnosed(name: str, what: str, options: Namespace, *, config: str, found: _Waiting | None) -> Path:
    if earlier := diagnosis_in(Path(what)):
        return earlier
    source, loaded = found or _found(what, options)
    L.seed_everything(options.seed_everything, verbose=False)  # nor do random views
    return _diagnose(source, loaded, name, options=options, config=config)


def _named(given: str) -> tuple[str, str]:
    name, equals, what = given.partition("=")
    if equals and name and what and not Path(given).exists():  # Lightning writes epoch=1-step=10.ckpt
        return name, what
    return source_name(given), given


def _fields() -> Any:
    return ModelSource.__dataclass_fields__.keys()
