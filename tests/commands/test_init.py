"""ssl-geometry init: the list of recipes, and copies whose commands run in their own folder."""

import ast
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.commands.init import copy_recipe, recipes

EXAMPLES = Path(__file__).parents[2] / "examples"
RECIPES = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))


def test_the_list_has_every_recipe_with_a_readme(capsys):
    main(["init"])
    shown = capsys.readouterr().out
    assert sorted(recipes()) == RECIPES
    assert re.findall(r"^  (\w+)  ", shown, re.MULTILINE) == RECIPES
    assert "SimCLR, seen through its geometry" in shown


@pytest.fixture(params=RECIPES)
def copy(request, tmp_path):
    """The folder of a copied recipe; the recipes that it uses are beside it."""
    copy_recipe(request.param, tmp_path / request.param)
    for other in set(re.findall(r"ssl-geometry init (\w+) \.\./", texts(tmp_path / request.param))):
        copy_recipe(other, tmp_path / other)
    return tmp_path / request.param


def texts(folder):
    return "\n".join(path.read_text() for path in sorted(folder.iterdir()))


def test_a_copy_names_no_file_of_the_repository(copy):
    assert "examples/" not in texts(copy)
    links = re.findall(r"\]\((?!http)([^)#]*)\)", (copy / "README.md").read_text())
    assert [link for link in links if not (copy / link).exists()] == []


def test_a_copy_has_the_files_that_its_commands_name(copy):
    commands = re.sub(r"\\\n", " ", texts(copy))
    named = re.findall(r"--config (\S+\.yaml)", commands) + re.findall(r"^ *python (\S+\.py)", commands, re.MULTILINE)
    assert named
    assert [name for name in named if "{" not in name and name != "NAME.yaml" and not (copy / name).exists()] == []


def test_a_copy_has_the_modules_that_its_scripts_import(copy):
    for script in copy.glob("*.py"):
        for node in ast.walk(ast.parse(script.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in {name.partition(".")[0] for name in names}:
                assert (copy / f"{name}.py").exists() or find_spec(name), f"{script.name}: {name}"


def test_a_copy_has_all_settings_and_scripts(copy):
    kinds = ("*.yaml", "*.py")
    ours = {path.name for kind in kinds for path in (EXAMPLES / copy.name).glob(kind)}
    assert {path.name for kind in kinds for path in copy.glob(kind)} - {"recipe.py", "draw_points.py"} == ours


def test_the_printed_commands_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["init", "simclr", "my folder/simclr"])
    cd, fit = (shlex.split(line) for line in capsys.readouterr().out.splitlines()[-2:])
    assert (cd[0], fit[0]) == ("cd", "ssl-geometry")
    assert " ".join(fit) in Path(cd[1], "smoke.yaml").read_text()
    monkeypatch.chdir(cd[1])
    main([*fit[1:], "--trainer.fast_dev_run", "true"])
    assert list(tmp_path.iterdir()) == [tmp_path / "my folder"]


def test_without_a_folder_the_copy_is_named_after_the_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "simclr").mkdir()  # an empty folder may be there
    main(["init", "simclr"])
    assert (tmp_path / "simclr" / "smoke.yaml").exists()


FOLDER = "Expected `FOLDER` to be a new or empty folder, but "
WRONG = {
    "a near name": (
        ["simclrr"],
        "Expected `RECIPE` to be the name of a recipe, but got 'simclrr'. Did you mean `simclr`?",
    ),
    "no name": (["../simclr"], "Expected `RECIPE` to be the name of a recipe, but got '../simclr'."),
    "far": (["zzz"], "but got 'zzz'. `ssl-geometry init` lists all recipes."),
    "a full folder": (["simclr", "full"], f"{FOLDER}full has contents. Name another."),
    "a file": (["simclr", "full/mine.yaml"], f"{FOLDER}got the file full/mine.yaml."),
    "below a file": (["simclr", "full/mine.yaml/x"], "Not a directory"),
    "too much": (["simclr", "x", "y"], "Expected arguments of `ssl-geometry init`, but got y."),
}


@pytest.mark.parametrize(("args", "said"), WRONG.values(), ids=WRONG.keys())
def test_nothing_is_overwritten(tmp_path, monkeypatch, capsys, args, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.yaml").write_text("mine")
    with pytest.raises(SystemExit, match="2"):
        main(["init", *args])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ssl-geometry: error: ")
    assert said in line
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "mine.yaml"]

    assert (tmp_path / "full" / "mine.yaml").read_text() == "mine"


def test_a_package_without_recipes_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("lightning_ssl_geometry.commands.init.__file__", str(tmp_path / "a" / "b" / "init.py"))
    with pytest.raises(ValueError, match=r"Expected the recipes in .*recipes, but there are none"):
        recipes()


def test_a_link_that_leads_nowhere_is_named(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "gone")
    with pytest.raises(ValueError, match=r"the link .*link leads nowhere"):
        copy_recipe("simclr", link)
    assert not (tmp_path / "gone").exists()
