"""LightningCLI with checked settings, one-line errors and safe checkpoints."""

__all__ = ["GeometryCLI"]

import pickle
import re
import sys
from argparse import ArgumentParser, _SubParsersAction
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import yaml
from jsonargparse import Namespace
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from lightning_ssl_geometry.cli_errors.building import BAD_VALUES, culprit, explained, optimizer_error
from lightning_ssl_geometry.cli_errors.files import of_file
from lightning_ssl_geometry.cli_errors.keys import misspelt, of_parser
from lightning_ssl_geometry.cli_errors.memory import within_memory
from lightning_ssl_geometry.cli_errors.running import at_key, in_users_code
from lightning_ssl_geometry.cli_messages import debugging, end, one_line, other_file
from lightning_ssl_geometry.cli_shapes import misfit

_SEEDS = 2**32 - 1
_DEVICES = 10_000


class _Parser(LightningArgumentParser):
    given: ClassVar[list[str]] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False} | kwargs)
        self.add_argument("--help_all", action="help", help="Show this help message and exit.")

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        if not self.exit_on_error or debugging():
            super().error(message, ex)
        given = _Parser.given
        named = [each for each in given[:1] if not each.startswith("-")]
        command = " ".join(["ssl-geometry", *named])
        files = _read(given)
        said = of_parser(message, list(files.values()), command=command, options=_options(self, given))
        end(said + misspelt(message, files) + other_file(said))


class GeometryCLI(LightningCLI):
    """LightningCLI that reports a wrong setting in one line, and ignores the hyper-parameters in a checkpoint.

    LightningCLI would merge these hyper-parameters into the settings, and import the classes that they name.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = kwargs.get("args")
        _Parser.given = [str(each) for each in (sys.argv[1:] if given is None else given)]
        for said in filter(None, map(of_file, _files(_Parser.given))):
            end(said)
        super().__init__(*args, **{"parser_class": _Parser} | kwargs)

    def instantiate_classes(self) -> None:
        """Build all objects. If a setting is wrong, print one line and exit."""
        try:
            with within_memory():
                super().instantiate_classes()
            found = optimizer_error(self._settings)
        except BAD_VALUES as error:
            if debugging():
                raise
            with within_memory():
                found = culprit(self._settings)
            if found is None and not hasattr(self, "config_init"):
                raise  # each class can be built by itself: not the settings' fault
            found = found or self._of_trainer(error)
        if found is not None:
            key, cause = found
            if debugging():
                raise cause
            end(f"{key}: {explained(self._settings, key, cause)}")

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Build the Trainer, without progress bars if `enable_progress_bar` is false.

        Raises a ValueError for more than 10,000 devices.
        """
        devices = self._settings.get("trainer.devices")
        if isinstance(devices, int) and devices > _DEVICES:
            raise ValueError(f"Expected `devices` <= {_DEVICES}, but got {devices}.")
        if self._settings.get("trainer.enable_progress_bar") is False:
            callbacks = self._get(self.config_init, "trainer.callbacks") or []
            callbacks = callbacks if isinstance(callbacks, list) else [callbacks]
            kwargs["callbacks"] = [each for each in callbacks if not isinstance(each, ProgressBar)]
        return super().instantiate_trainer(**kwargs)

    def _run_subcommand(self, subcommand: str) -> None:
        try:
            super()._run_subcommand(subcommand)
        except pickle.UnpicklingError as error:
            if debugging():
                raise
            named = re.search(r"(?:GLOBAL|Unsupported class) (\S+)", str(error))
            held = f"holds {named[1]}" if named else "is damaged or is no checkpoint"
            end(
                f"ckpt_path: Expected a checkpoint that loads with weights_only=True, but it {held}. If you trust the "
                "file as much as a program that you run, add --weights_only false."
            )
        except RuntimeError as error:
            said = misfit(self.model, error)
            if said is None or debugging() or self.trainer.global_step > 0 or in_users_code(error):
                raise
            end(f"model: {said}")
        except (ValueError, OSError, MisconfigurationException) as error:
            refused = isinstance(error, MisconfigurationException)  # by Lightning, such as an epoch that is done
            begun = subcommand == "fit" and self.trainer.global_step > 0 and not refused
            plain = isinstance(error, FileNotFoundError | MisconfigurationException)
            ours = plain or re.search(r"(^|: )Expected ", str(error))
            if debugging() or begun or not ours or in_users_code(error):
                raise
            checkpoint = self._settings.get("ckpt_path")
            key = "ckpt_path" if checkpoint and str(checkpoint) in str(error) else at_key(self._settings, error)
            end(f"{key}: {one_line(str(error))}" if key else one_line(str(error)))

    @property
    def _settings(self) -> Namespace:
        return self.config[self.subcommand] if self.subcommand else self.config

    def _of_trainer(self, error: Exception) -> tuple[str, Exception]:
        settings = self._settings.get("trainer")
        if not isinstance(settings, Namespace | dict):
            return "trainer", error
        plain = {key: value for key, value in dict(settings).items() if key not in ("callbacks", "logger", "plugins")}
        said = {key: re.search(rf"\b{key}\b", str(error)) for key in plain}
        named = {key: match.start() for key, match in said.items() if match}
        if named:
            return f"trainer.{min(named, key=lambda key: named[key])}", error
        for key, value in plain.items():
            try:
                self.trainer_class(**{key: value}, logger=False)
            except Exception as again:
                if type(again) is type(error):
                    return f"trainer.{key}", error
        return "trainer", error

    def _set_seed(self) -> None:
        seed = self._get(self.config, "seed_everything")
        if not isinstance(seed, bool) and seed is not None and not 0 <= seed <= _SEEDS:
            end(f"seed_everything: Expected 0 <= `seed_everything` <= {_SEEDS}, but got {seed}.")
        super()._set_seed()

    def _parse_ckpt_path(self) -> None:
        pass

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        arguments = super()._prepare_subcommand_kwargs(subcommand)
        if arguments.get("ckpt_path") is not None and arguments.get("weights_only") is None:
            arguments["weights_only"] = True
        if subcommand == "predict" and arguments.get("return_predictions") is None:
            arguments["return_predictions"] = False  # nobody would read them, and they fill the memory
        return arguments


def _options(parser: ArgumentParser, given: list[str]) -> list[str]:
    commands = [each for each in parser._actions if isinstance(each, _SubParsersAction)]
    parsers = [parser, *(each.choices[name] for each in commands for name in given[:1] if name in each.choices)]
    return [option for each in parsers for option in each._option_string_actions if option.startswith("--")]


def _files(arguments: list[str]) -> list[str]:
    names = [value for flag, value in pairwise(arguments) if flag in ("-c", "--config")]
    return names + [each.partition("=")[2] for each in arguments if each.startswith("--config=")]


def _read(arguments: list[str]) -> dict[str, dict[str, Any]]:
    held = {}
    for name in _files(arguments):
        try:
            held[name] = yaml.safe_load(Path(name).read_text())
        except (OSError, ValueError, yaml.YAMLError):
            continue
    return {name: each for name, each in held.items() if isinstance(each, dict)}
