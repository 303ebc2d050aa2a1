"""Load and diagnose one model, by the options of a command."""

__all__ = ["YAML", "add_option", "ask_for", "data_by", "diagnosed_by", "fields_of_source", "loaded_by", "source_of"]

import argparse
from pathlib import Path
from typing import Any, get_type_hints

from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch import LightningDataModule
from torch import nn

from lightning_ssl_geometry.data import ImageDataModule
from lightning_ssl_geometry.diagnose.diagnosis import diagnose, folder_of_images
from lightning_ssl_geometry.diagnose.loaded import Loaded
from lightning_ssl_geometry.diagnose.model_source import ModelSource, named_source
from lightning_ssl_geometry.diagnose.run_settings import run_settings
from lightning_ssl_geometry.diagnose.trust import ask
from lightning_ssl_geometry.diagnose_options import BATCH_SIZE, NETWORK, Option
from lightning_ssl_geometry.views import SimCLRViews

YAML = (".yaml", ".yml")
"""Endings of files with options."""
_BASES = {"model": nn.Module, "data": LightningDataModule, "views": nn.Module}
_OF_SOURCE = get_type_hints(ModelSource)


def add_option(parser: ArgumentParser, option: Option) -> None:
    """Add an option to a parser."""
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


def fields_of_source() -> Any:
    """Return the names of the arguments of a ModelSource."""
    return ModelSource.__dataclass_fields__.keys()


def source_of(what: str, pretrained: bool) -> ModelSource:
    """Return the source that a text stands for: a YAML file, or what :func:`named_source` takes."""
    if Path(what).suffix in YAML:
        parser = ArgumentParser(exit_on_error=False)
        for option in NETWORK:
            add_option(parser, option)
        try:
            built = parser.instantiate_classes(parser.parse_path(what))
        except argparse.ArgumentError as error:
            said = " ".join(str(error).split())
            raise ValueError(f"Expected {what} to say what to look at, but: {said}") from error
        return ModelSource(**{name: built[name] for name in fields_of_source()})
    named: dict[str, Any] = named_source(what)
    return ModelSource(**named, pretrained=pretrained or "run" in named)  # a run beside timm's random weights


def ask_for(source: ModelSource, options: Namespace) -> None:
    """Ask whether to import the classes that the config of a run names from other packages, unless they are trusted."""
    if source.config is not None:
        ask(source.config, options.trust)


def loaded_by(source: ModelSource, options: Namespace) -> Loaded:
    """Load a model. Its views, where the data have none, are those of the options."""
    return source.load(augment=options.views or SimCLRViews())


def data_by(loaded: Loaded, options: Namespace) -> LightningDataModule:
    """Return the data on which the options say to look at a model, or else those it was trained on."""
    trained_on = loaded.data if isinstance(loaded.data, ImageDataModule) else None
    if trained_on is not None:
        trained_on.prepare_data()
        trained_on.setup("test")
    return _data(loaded, trained_on, options)


def diagnosed_by(source: ModelSource, loaded: Loaded, name: str, *, options: Namespace, config: str) -> Path:
    """Diagnose a model. Return the folder of the diagnosis, in which `config` is saved."""
    data = data_by(loaded, options)
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
