"""The command `ssl-geometry init`, which copies a recipe: its settings, its scripts and its README."""

__all__ = ["copy_recipe", "recipes", "run"]

import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from lightning_ssl_geometry import __version__
from lightning_ssl_geometry.cli_messages import ending_in_one_line
from lightning_ssl_geometry.commands.parser import CommandParser
from lightning_ssl_geometry.spelling import did_you_mean

_DESCRIPTION = """\
Copy a recipe into a folder of yours: its YAML files, its scripts and its README, whose commands run there.
Without a name, list the recipes."""
_SHARED = ("recipe", "draw_points")  # modules that the scripts of several recipes import
_COPIED = (".yaml", ".py", ".md")
_IMPORTED = r"^\s*(from {name} import|import {name}\b)"


def run(name: str, args: Sequence[str]) -> None:
    """Run `ssl-geometry init [RECIPE [FOLDER]]`. If nothing can be copied, print one line and exit with status 2."""
    parser = CommandParser(name, _DESCRIPTION)
    parser.add_argument("recipe", metavar="RECIPE", nargs="?", help="such as simclr")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", help="a new or empty folder; by default RECIPE, here")
    options = parser.parse_args(args)
    with ending_in_one_line(ValueError, OSError):
        print(_listed() if options.recipe is None else _copied(options.recipe, options.folder))


def recipes() -> dict[str, Path]:
    """Return the folders of all recipes by name. They are part of the installed package, or of its source tree."""
    package = Path(__file__).parents[1]
    places = [package / "recipes", package.parent / "examples"]
    found = {each.parent.name: each.parent for place in places for each in sorted(place.glob("*/README.md"))}
    if not found:
        raise ValueError(f"Expected the recipes in {places[0]}, but there are none. Install the package again.")
    return found


def copy_recipe(recipe: str, folder: Path) -> list[Path]:
    """Copy a recipe to a new or empty folder, and return the paths of the copies.

    In the copies, the commands are those that run in the folder.

    Raises:
        ValueError: If there is no such recipe, or if `folder` is a file or has contents.
    """
    known = recipes()
    if recipe not in known:
        hint = did_you_mean(recipe, known) or " `ssl-geometry init` lists all recipes."
        raise ValueError(f"Expected `RECIPE` to be the name of a recipe, but got {recipe!r}.{hint}")
    if folder.is_symlink() and not folder.exists():
        raise ValueError(f"Expected `FOLDER` to be a new or empty folder, but the link {folder} leads nowhere.")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"Expected `FOLDER` to be a new or empty folder, but got the file {folder}.")
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"Expected `FOLDER` to be a new or empty folder, but {folder} has contents. Name another.")
    texts = {each.name: each.read_text("utf-8") for each in sorted(known[recipe].iterdir()) if each.suffix in _COPIED}
    for name in _SHARED:
        if any(re.search(_IMPORTED.format(name=name), text, re.MULTILINE) for text in texts.values()):
            texts[f"{name}.py"] = (known[recipe].parent / f"{name}.py").read_text("utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(_adapted(text, recipe, name=name, copied=texts))
    return [folder / name for name in texts]


def _listed() -> str:
    known = recipes()
    width = max(map(len, known))
    rows = [f"  {name:{width}}  {_title(folder)}" for name, folder in known.items()]
    return "\n".join(["recipes:", *rows, "", "`ssl-geometry init RECIPE [FOLDER]` copies a recipe into a folder."])


def _title(folder: Path) -> str:
    return (folder / "README.md").read_text("utf-8").partition("\n")[0].removeprefix("# ")


def _copied(recipe: str, given: str | None) -> str:
    folder = Path(recipe if given is None else given)
    names = [path.name for path in copy_recipe(recipe, folder)]
    begin = next((name for name in ("smoke.yaml", "laptop.yaml") if name in names), None)
    command = "cat README.md" if begin is None else f"ssl-geometry fit --config {begin}"
    return f"The recipe is in {folder}: {', '.join(names)}. To begin:\n  cd {shlex.quote(str(folder))}\n  {command}"


def _adapted(text: str, recipe: str, *, name: str, copied: Collection[str]) -> str:
    text = text.replace(f"examples/{recipe}/", "")
    others = sorted(set(re.findall(r"examples/(\w+)", text)) & (recipes().keys() - {recipe}))
    for other in others:
        text = text.replace(f"examples/{other}", f"../{other}")
    if not name.endswith(".md"):
        return text
    text = re.sub(r"!?\[([^\]]*)\]\((?!http)([^)#]*)\)", lambda link: link[0] if link[2] in copied else link[1], text)
    title, _, rest = text.partition("\n")
    about = [
        f"Copied by `ssl-geometry init {recipe}`, version {__version__}. The commands run in this folder.",
        "Figures and files of results are not copied. They are in the repository.",
    ]
    about += [f"Some commands need `ssl-geometry init {other} ../{other}` before." for other in others]
    return "\n".join([title, "", *(f"> {line}" for line in about), rest])
