"""Modules in the folders of the recipes in examples/."""

import importlib
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def beside(recipe, name):
    folder = str(EXAMPLES / recipe)
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
