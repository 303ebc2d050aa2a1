"""Lightning's command line, with the checks of what it is given."""

__all__ = ["GeometryCLI"]

from typing import Any

from lightning.pytorch.cli import LightningCLI


class GeometryCLI(LightningCLI):
    """LightningCLI that takes weights, and nothing else, from a checkpoint.

    Lightning's own merges the hyper-parameters of `--ckpt_path` into the command line's, and imports the classes that
    they name. Here the model is what the configuration says.
    """

    def _parse_ckpt_path(self) -> None:
        pass

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        """Read a checkpoint with `weights_only=True`, that behind a URL too, unless `--weights_only` says otherwise."""
        arguments = super()._prepare_subcommand_kwargs(subcommand)
        if arguments.get("ckpt_path") is not None and arguments.get("weights_only") is None:
            arguments["weights_only"] = True
        return arguments
