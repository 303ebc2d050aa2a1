"""The command `ssl-geometry diagnose`: its help, without the imports that the command itself needs."""

__all__ = ["parser", "run"]

import sys
from argparse import _ActionsContainer
from collections.abc import Mapping, Sequence

from lightning_ssl_geometry.commands.parser import CommandParser

_DESCRIPTION = """\
Look at a network without training it: one pass over images, and a page. What to look at is a run of
`ssl-geometry fit` or a checkpoint in it, `timm:NAME`, `hf:USER/MODEL` of the Hugging Face Hub, a YAML file with
the options below, or these options themselves, such as --model. The images are a folder, any DataModule, or those that
the run was trained on."""
_EPILOG = """\
`ssl-geometry diagnose --model.help CLASS` lists the options of a class, such as --model.in_channels, and
likewise --data.help and --views.help."""
_WHAT = "a run's folder, a checkpoint in one, timm:NAME, hf:USER/MODEL, hf:FOLDER, or a YAML file"
_NETWORK = {
    "run": "folder of a run of `ssl-geometry fit`, or a checkpoint in it; of a folder, its newest checkpoint",
    "timm": "name of a network in timm, which is built without its classifier",
    "hub": "name of a model on the Hugging Face Hub, or a folder in the Hub's layout: config.json, model.safetensors",
    "model CLASS": "any class of a network, by its import path",
    "pretrained {true,false}": "download and load timm's weights; true by default",
    "checkpoint FILE": "the weights for --model or --timm: a file of torch.save, or .safetensors",
    "prefix": 'prefix of the network\'s keys in the checkpoint, such as "backbone."; it is removed from the keys',
    "ignore": "prefixes of keys in the checkpoint to ignore, after --prefix is removed",
    "backbone": "name of the submodule that maps images to h",
    "layer": "name of a submodule of the backbone whose output is h; the backbone's output by default",
    "layers PATTERN": "names of submodules of the backbone to compare layer by layer, such as 'blocks.*'",
    "token {cls,mean,patch_mean,mean_nhwc,flatten}": "what becomes of tokens (N, T, D); known for timm's networks",
    "projector": "name of the submodule that maps h to z",
    "mean": "mean per channel for normalising images; known for runs and timm's weights, else measured",
    "std": "standard deviation per channel, together with --mean",
    "batch_keys": "where a batch holds views, image, label and index, such as '{label: 1}'",
}
_IMAGES = {
    "images FOLDER": "folder of images, with or without a folder per class",
    "image_size": "height and width of --images in pixels; what the network wants by default",
    "batch_size": "of --images; 256 by default",
    "data CLASS": "a DataModule instead of --images",
    "views CLASS": "makes two views of an image; SimCLRViews by default",
}
_REST = {
    "config FILE": "YAML file with any of these options",
    "compare NAME=WHAT [NAME=WHAT ...]": "several of these, or folders of earlier diagnoses, side by side",
    "trust": "import classes that a run's config names from other packages, unasked",
    "seed_everything SEED": "seed of random weights; 0 by default",
    "linear_evaluation {true,false}": "fit a classifier on the training set; false by default",
    "output FOLDER": "each diagnosis gets a folder in it; runs/diagnosis by default",
    "name": "of the model, on the page",
    "accelerator": "the Trainer's; auto by default",
    "devices": "the Trainer's; 1 by default",
    "precision": "the Trainer's; 32-true by default",
    "progress {true,false}": "show a progress bar; true by default",
    "print_config": "print all settings, and exit",
}

_SWITCHES = ("trust", "print_config")


def run(name: str, args: Sequence[str]) -> None:
    """Run `ssl-geometry diagnose`."""
    if {"-h", "--help"} & set(args):
        parser(name).print_help()
        sys.exit(0)
    from lightning_ssl_geometry.diagnose import command

    command.run(args)


def parser(name: str) -> CommandParser:
    """Return a parser with the options of the command. It only prints the help: the command parses by itself."""
    made = CommandParser(name, _DESCRIPTION, usage=f"ssl-geometry {name} [WHAT] [OPTION ...]", epilog=_EPILOG)
    made.add_argument("what", metavar="WHAT", nargs="?", help=_WHAT)
    for title, options in {
        "the network, by one of --run, --timm, --hub and --model": _NETWORK,
        "the images": _IMAGES,
    }.items():
        _add(made.add_argument_group(title), options)
    _add(made, _REST)
    return made


def _add(to: _ActionsContainer, options: Mapping[str, str]) -> None:
    for spelt, said in options.items():
        option, _, value = spelt.partition(" ")
        if option in _SWITCHES:
            to.add_argument(f"--{option}", action="store_true", help=said)
        else:
            to.add_argument(f"--{option}", metavar=value or option.upper(), help=said)
