"""Check that the oldest allowed version of every direct dependency is installed; `nox -s lowest` runs this first."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

PYPROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())


def floors():
    found = [re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", each) for each in PYPROJECT["project"]["dependencies"]]
    return {each[1]: each[2] for each in found}


def numbers(version):
    """The numbers of a version without final zeros, so that 2.6 equals 2.6.0."""
    release = re.match(r"[\d.]*\d", version)[0]
    return re.sub(r"(\.0)+$", "", release)


def check():
    for name, floor in floors().items():
        installed = metadata.version(name)
        assert numbers(installed) == numbers(floor), f"{name} {installed} is installed, and its floor is {floor}"


if __name__ == "__main__":
    check()
