"""The subcommands of `ssl-geometry`.

Each command has a module with a function `run(name, args)`. `name` is the command, and `args` are the words behind it.
The module imports Lightning, torch and matplotlib only where it needs them, so that `--help` answers at once.
"""

from typing import NamedTuple


class Command(NamedTuple):
    """A subcommand.

    Attributes:
        summary: One sentence for `ssl-geometry --help`.
        module: Import path of the module with the function `run`.
    """

    summary: str
    module: str


COMMANDS = {
    "init": Command("List the recipes, or copy one into a folder of yours.", f"{__name__}.init"),
    "fit": Command("Train a model.", f"{__name__}.training"),
    "validate": Command("Evaluate a model on the validation set.", f"{__name__}.training"),
    "test": Command("Evaluate a model on the test set.", f"{__name__}.training"),
    "predict": Command("Write the embeddings of a data set to a file.", f"{__name__}.training"),
    "diagnose": Command("Look at a network without training it.", f"{__name__}.diagnose"),
    "choose": Command("Choose among models, without labels or with a few.", f"{__name__}.choose"),
    "report": Command("Write the page of a run.", f"{__name__}.report"),
    "card": Command("Write the model card of a run, as Markdown.", f"{__name__}.card"),
    "describe": Command("Say what the results of a diagnostic, a method or a callback mean.", f"{__name__}.describe"),
}
"""The subcommands by name, in the order of `ssl-geometry --help`."""
