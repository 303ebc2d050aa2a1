"""The options of `ssl-geometry diagnose`: names, defaults and texts, for its help and for its parser.

This module imports nothing heavy, so that `--help` answers at once.
"""

__all__ = ["BATCH_SIZE", "CHOOSING", "IMAGES", "NETWORK", "REST", "Option"]

from typing import Any, NamedTuple

BATCH_SIZE = 256
"""Batch size of `--images` if none is given."""
_BOOL = "{true,false}"


class Option(NamedTuple):
    """An option of the command line.

    Attributes:
        name: The name, without "--".
        text: Sentence for the help, without the default.
        default: The value if the option is not given.
        kind: Type of the value. The options in `NETWORK` have the types of `ModelSource`.
        value: What stands for the value in the help. "": the name in capitals.
        switch: Whether the option takes no value.
    """

    name: str
    text: str
    default: Any = None
    kind: type = str
    value: str = ""
    switch: bool = False

    @property
    def help(self) -> str:
        """The text, with the default if there is one.

        >>> Option("progress", "show a bar", True, kind=bool).help
        'show a bar; true by default'
        """
        if self.switch or self.default is None or self.default in ("", {}, []):
            return self.text
        shown = str(self.default).lower() if self.kind is bool else self.default
        return f"{self.text}; {shown} by default"


NETWORK = (
    Option("run", "folder of a run of `ssl-geometry fit`, or a checkpoint in it; of a folder, its newest checkpoint"),
    Option("timm", "name of a network in timm, which is built without its classifier"),
    Option(
        "hub",
        "name of a model on the Hugging Face Hub, or a folder in the Hub's layout: config.json, model.safetensors",
    ),
    Option("model", "any class of a network, by its import path", value="CLASS"),
    Option("pretrained", "download and load the weights of --timm", True, kind=bool, value=_BOOL),
    Option("checkpoint", "the weights for --model or --timm: a file of torch.save, or .safetensors", value="FILE"),
    Option(
        "prefix",
        'prefix of the network\'s keys in the checkpoint, such as "backbone."; it is removed from the keys',
        "",
    ),
    Option("ignore", "prefixes of keys in the checkpoint to ignore, after --prefix is removed", ""),
    Option("backbone", "name of the submodule that maps images to h, the representation"),
    Option("layer", "name of a submodule of the backbone whose output is h; the backbone's output by default"),
    Option(
        "layers",
        "names of submodules of the backbone to compare layer by layer, such as 'blocks.*'",
        "",
        value="PATTERN",
    ),
    Option(
        "token",
        "what becomes of tokens (N, T, D); known for timm's networks",
        value="{cls,mean,patch_mean,mean_nhwc,flatten}",
    ),
    Option("projector", "name of the submodule that maps h to z, the embedding"),
    Option("mean", "mean per channel for normalising images; known for runs and timm's weights, else measured"),
    Option("std", "standard deviation per channel, together with --mean"),
    Option("batch_keys", "where a batch holds views, image, label and index, such as '{label: 1}'", {}),
)
"""The options that say what to look at: the arguments of `ModelSource`."""
IMAGES = (
    Option("images", "folder of images, with or without a folder per class", value="FOLDER"),
    Option("image_size", "height and width of --images in pixels; what the network wants by default", kind=int),
    Option("batch_size", f"of --images; {BATCH_SIZE} by default", kind=int),
    Option("data", "a DataModule instead of --images", value="CLASS"),
    Option("views", "makes two views of an image; SimCLRViews by default", value="CLASS"),
)
"""The options that say on which images."""
REST = (
    Option("config", "YAML file with any of these options", value="FILE"),
    Option(
        "compare",
        "several of these, or folders of earlier diagnoses, side by side",
        [],
        value="NAME=WHAT [NAME=WHAT ...]",
    ),
    Option(
        "trust", "import classes that a run's config names from other packages, unasked", False, kind=bool, switch=True
    ),
    Option("seed_everything", "seed of random weights", 0, kind=int, value="SEED"),
    Option("linear_evaluation", "fit a classifier on the training set", False, kind=bool, value=_BOOL),
    Option("output", "each diagnosis gets a folder in it", "runs/diagnosis", value="FOLDER"),
    Option("name", "of the model, on the page"),
    Option("accelerator", "the Trainer's", "auto"),
    Option("devices", "the Trainer's", 1, kind=int),
    Option("precision", "the Trainer's", "32-true"),
    Option("progress", "show a progress bar", True, kind=bool, value=_BOOL),
    Option("print_config", "print all settings, and exit", switch=True),
)
"""All other options."""
CHOOSING = (
    Option("labels", "labels per class that classifiers are fitted on; all by default", kind=int, value="N"),
    Option(
        "incomparable", "take scores that cannot be compared between these models, too", False, kind=bool, switch=True
    ),
    Option(
        "by",
        "title of the score that picks the model; by default the one with the highest tau, or without labels the first",
    ),
)
"""The options of `ssl-geometry choose` alone."""
