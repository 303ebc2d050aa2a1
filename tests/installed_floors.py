"""What is installed is the floor of every direct dependency: `nox -s lowest` runs this before its tests."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

PYPROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())


def floors():
    """Name and floor of each direct dependency."""
    found = [re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", each) for each in PYPROJECT["project"]["dependencies"]]
    return {each[1]: each[2] for each in found}


def numbers(version):
    """Its release without zeros at the end: that of 2.6 is that of 2.6.0."""
    release = re.match(r"[\d.]*\d", version)[0]
    return re.sub(r"(\.0)+$", "", release)


def check():
    for name, floor in floors().items():
        installed = metadata.version(name)
        assert numbers(installed) == numbers(floor), f"{name} {installed} is installed, and its floor is {floor}"


if __name__ == "__main__":
    check()
