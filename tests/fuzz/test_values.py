"""Every key of every recipe with unusual values: the command ends in one line that names the key, or the run starts."""

import copy
import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from lightning_ssl_geometry.cli import lightning_cli

EXAMPLES = Path(__file__).parents[2] / "examples"
RECIPES = sorted(EXAMPLES.glob("*/*.yaml"), key=lambda path: (path.stem != "smoke", path))
BAD = {  # by the type of what the recipe says
    bool: ["many"],
    int: [-1, 10**18, "many"],
    float: [-1.0, math.nan, "many"],
    str: ["nonsense", -1],
    list: [[], "nonsense"],
    dict: [{}, "nonsense"],
    type(None): [-1, "nonsense"],
}
DEMOS = "lightning.pytorch.demos.boring_classes"
BORING = {"model": {"class_path": f"{DEMOS}.BoringModel"}, "data": {"class_path": f"{DEMOS}.BoringDataModule"}}
KINDS = {"Expected ", "Parser key ", "not accepted", "Option ", "required", "instantiatable", "class", "Unable to load"}


def nodes(value, path=(), owner=""):
    """Path, value and nearest enclosing class of every entry of a configuration."""
    if isinstance(value, dict):
        owner = value.get("class_path", owner)
    if path:
        yield path, value, owner
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from nodes(each, (*path, key), owner)


def changed(config, path, value):
    """The section of a value, with another value in its place, and the value's path. Only one callback is kept."""
    config = copy.deepcopy(BORING | {path[0]: config[path[0]]})
    if path[0] != "trainer":
        config["trainer"] = {"logger": False, "enable_progress_bar": False}
    elif path[1:2] == ("callbacks",) and len(path) > 2:
        config["trainer"] = {"callbacks": [config["trainer"]["callbacks"][path[2]]]}
        path = ("trainer", "callbacks", 0, *path[3:])
    elif len(path) > 1:
        config["trainer"] = {key: each for key, each in config["trainer"].items() if key in ("accelerator", path[1])}
    around = config
    for key in path[:-1]:
        around = around[key]
    around[path[-1]] = value
    return config, path


def table():
    """One row per class and key of all recipes, for the first place with this key."""
    seen = set()
    for recipe in RECIPES:
        if recipe.stem == "escnn":
            continue
        config = yaml.safe_load(recipe.read_text())
        whole = {
            "seed_everything",
            "trainer",
            *(part for part in ("model", "data") if "class_path" in config.get(part, ())),
        }
        for path, value, owner in nodes({part: config[part] for part in config if part in whole}):
            names = tuple(key for key in path if isinstance(key, str))
            what = (owner, names[-1], type(value)) if owner else names
            if path[-1] == "class_path" or what in seen:
                continue
            seen.add(what)
            yield recipe, config, path, BAD[type(value)]


TABLE = list(table())


@contextmanager
def within(seconds) -> Iterator[None]:
    def ring(*_):
        raise AssertionError(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def ended(capsys, call):
    """The only line of a command that ends with exit code 2; None for another end."""
    capsys.readouterr()
    code = None
    try:
        call()
    except SystemExit as error:
        code = error.code
    if code is None:
        return None
    assert code == 2
    lines = [line.removeprefix("INFO: ") for line in capsys.readouterr().err.splitlines()]
    (line,) = [line for line in lines if line and not line.startswith(("Seed set", "GPU ", "TPU ", "💡"))]
    assert line.startswith("ssl-geometry: error: ")
    return line.removeprefix("ssl-geometry: error: ")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("recipe", "config", "path", "values"),
    [pytest.param(*row, id=f"{row[0].parent.name}/{row[0].stem}:{'.'.join(map(str, row[2]))}") for row in TABLE],
)
def test_a_value_that_cannot_be_is_one_line(tmp_path, capsys, recipe, config, path, values):
    for value in values:
        bad, where = changed(config, path, value)
        (tmp_path / "x.yaml").write_text(yaml.safe_dump(bad))
        with within(20):
            line = ended(capsys, lambda: lightning_cli(["--config", str(tmp_path / "x.yaml")], run=False))
        if line is None:
            continue
        dotted = ".".join(map(str, where))
        key = line.partition(": ")[0] if ": " in line else line.rpartition(" ")[2]
        around = key.rpartition(".init_args.")[0] or key  # a neighbour may say that the two do not go together
        assert dotted.startswith(around) or key.startswith(dotted), (value, line)
        assert any(kind in line for kind in KINDS), (value, line)


def test_the_table_covers_the_recipes():
    assert len({owner for _, config, _, _ in TABLE for _, _, owner in nodes(config)}) > 40
    assert len(TABLE) > 150
