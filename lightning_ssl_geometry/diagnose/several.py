"""Diagnose several models on the same images, by the options of a command."""

__all__ = ["compared", "named_model"]

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import lightning as L
from jsonargparse import Namespace
from lightning.pytorch.utilities import rank_zero_only

from lightning_ssl_geometry.diagnose.by_options import ask_for, data_by, diagnosed_by, loaded_by, source_of
from lightning_ssl_geometry.diagnose.checked import checked
from lightning_ssl_geometry.diagnose.comparison import data_of, diagnosis_in, refuse_different_data, refuse_too_few
from lightning_ssl_geometry.diagnose.loaded import Loaded
from lightning_ssl_geometry.diagnose.model_source import ModelSource, named_source, source_name
from lightning_ssl_geometry.diagnose_options import IMAGES
from lightning_ssl_geometry.files import refuse_other_files
from lightning_ssl_geometry.report.page import PAGES_HAVE

_OUTPUTS = {"comparison.html", "choose_models.csv", "choose_scores.csv", ".decoded"}
_MOST_WAITING = 2 * 2**30  # bytes of the weights of models that were checked and wait for their diagnosis
_SAME_VIEWS = (
    "Give --views, so that all models see the same ones, such as --views lightning_ssl_geometry.views.SimCLRViews."
)
_Waiting = tuple[ModelSource, Loaded]  # a model that was checked


def compared(options: Namespace, config: str, check: Callable[[Path], None] | None = None) -> dict[str, Path]:
    """Diagnose the models of --compare. Return the folders of the diagnoses by their names.

    `check` is called with the first diagnosis, to raise an error before the others are made.
    """
    refuse_other_files(Path(options.output) / "comparison.html", PAGES_HAVE)
    names = [named_model(each)[0] for each in options.compare]
    named = dict(named_model(each) for each in options.compare)
    if len(named) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"Expected different names of models, but {names.count(twice)} are named {twice!r}. Name them, as in "
            f"first={options.compare[names.index(twice)]}."
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
    refuse_different_data(seen, remedy, of_views=_SAME_VIEWS)
    folders: dict[str, Path] = {}
    with _told_how_to_go_on(named, folders):
        for place, (name, what) in enumerate(named.items(), start=1):
            later = list(named.values())[place:]
            found = waiting.get(what) if what in later else waiting.pop(what, None)
            folders[name] = _diagnosed(name, what, options, config=config, found=found)
            if check is not None and place == 1:
                check(folders[name])
    return folders


def named_model(given: str) -> tuple[str, str]:
    """Return the name and the rest of NAME=WHAT. Without a name, :func:`source_name` makes one."""
    name, equals, what = given.partition("=")
    if equals and name and what and not Path(given).exists():  # Lightning writes epoch=1-step=10.ckpt
        return name, what
    return source_name(given), given


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


def _checked(name: str, what: str, options: Namespace, *, waiting: dict[str, _Waiting]) -> dict[str, str]:
    """Load a model, pass blank images through it, and return the data in words.

    The model joins those that wait, so that it is not loaded again, unless their weights have `_MOST_WAITING` bytes.
    """
    if earlier := diagnosis_in(Path(what)):
        return data_of(earlier)
    if options.images is None and options.data is None and not {"timm", "hub"}.isdisjoint(named_source(what)):
        raise ValueError(f"Model {name!r}: Expected --images or --data: this network brings no images along.")
    try:
        source, loaded = waiting[what] if what in waiting else _found(what, options, asks=True)
        said = checked(loaded.module, data_by(loaded, options))
    except (ValueError, OSError, ImportError) as error:
        raise ValueError(f"Model {name!r}: {error}") from error
    held = {id(each): each for _, each in waiting.values()} | {id(loaded): loaded}
    if sum(map(_size, held.values())) <= _MOST_WAITING:
        waiting[what] = source, loaded
    return said


def _found(what: str, options: Namespace, asks: bool = False) -> _Waiting:
    L.seed_everything(options.seed_everything, verbose=False)  # random weights do not depend on who comes before
    source = source_of(what, options.pretrained)
    if asks:
        ask_for(source, options)
    return source, loaded_by(source, options)


def _size(loaded: Loaded) -> int:
    return sum(each.nbytes for each in (*loaded.network.parameters(), *loaded.network.buffers()))


def _diagnosed(name: str, what: str, options: Namespace, *, config: str, found: _Waiting | None) -> Path:
    if earlier := diagnosis_in(Path(what)):
        return earlier
    source, loaded = found or _found(what, options)
    L.seed_everything(options.seed_everything, verbose=False)  # nor do random views
    return diagnosed_by(source, loaded, name, options=options, config=config)
