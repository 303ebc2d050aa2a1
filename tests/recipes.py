"""The recipes in examples/: modules in their folders, and their configs."""

import importlib.util
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
CONTENT, FLOWS = EXAMPLES / "content_suppresses_style", EXAMPLES / "variational_and_dynamics"
SIMCLR = EXAMPLES / "simclr" / "laptop.yaml"
# Overlay -> the config before it on the command line, where that is not the laptop.yaml beside the overlay.
BASES = {
    EXAMPLES / "wandb.yaml": SIMCLR,
    CONTENT / "direct_clr.yaml": CONTENT / "cifar10.yaml",
    FLOWS / "figure_1.yaml": SIMCLR,
    **dict.fromkeys((EXAMPLES / "choosing").glob("*.yaml"), SIMCLR),
    **{FLOWS / f"{name}.yaml": FLOWS / "figure_5.yaml" for name in ("figure_6", "figure_6_3d", "points")},
}


def beside(recipe, name):
    """A module of a recipe under its own name, for one that no other recipe has."""
    folder = str(EXAMPLES / recipe)
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def script(recipe, name="reproduce"):
    """A module of a recipe under a name of its own, as several recipes have one of this name."""
    path = EXAMPLES / recipe / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_{recipe}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
