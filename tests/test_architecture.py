"""The modules and folders of the package, their allowed imports, and limits on repetition."""

import ast
import importlib
import re
import subprocess
import sys
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType

import pytest

import lightning_ssl_geometry
from lightning_ssl_geometry.functional.info_nce.forms import InfoNCEForm

PACKAGE = Path(lightning_ssl_geometry.__file__).parent


def rooms(names):
    """The rooms whose names are in a string."""
    return set(names.split())


ROOMS = {
    "types": set(),
    "expressions": set(),
    "quantity": rooms("expressions"),
    "cost": set(),
    "papers": rooms("quantity"),
    "manifest": rooms("quantity"),
    "checks": set(),
    "deprecation": rooms("settings"),
    "settings": rooms("spelling"),
    "random": rooms("checks precision"),
    "introspection": rooms("spelling"),
    "precision": set(),
    "files": set(),
    "either_lightning": set(),
    "loggers": rooms("files recording"),
    "functional": rooms("checks deprecation introspection precision random"),
    "distributed": set(),
    "losses": rooms("checks deprecation distributed functional precision"),
    "views": rooms("checks functional precision random types"),
    "nn": rooms("checks deprecation functional spelling"),
    "data": rooms("checks deprecation either_lightning files precision random settings types views"),
    "methods": rooms(
        "checks deprecation distributed functional introspection losses nn papers quantity random settings types views"
    ),
    "diagnostics": rooms(
        "checks cost deprecation distributed functional introspection losses papers precision quantity random settings"
    ),
    "observe": rooms("checks deprecation distributed introspection spelling types views"),
    "recording": rooms("diagnostics either_lightning files manifest observe precision quantity report"),
    "measuring": rooms("checks diagnostics distributed loggers manifest observe recording settings types"),
    "callbacks": rooms(
        "checks deprecation diagnostics distributed either_lightning expressions files functional introspection "
        "loggers manifest measuring observe papers precision quantity recording report settings types views"
    ),
    "plots": set(),
    "report": rooms("deprecation expressions files manifest plots quantity"),
    "diagnose": rooms(
        "callbacks checks cli_errors cli_messages data deprecation diagnose_options diagnostics distributed "
        "either_lightning files functional introspection manifest methods nn observe quantity report spelling types "
        "views"
    ),
    "diagnose_options": set(),
    "testing": rooms("callbacks checks cost diagnostics methods observe quantity spelling types"),
    "start": rooms("callbacks cli_lightning cli_messages diagnose loggers methods recording"),
    "describe": rooms("callbacks diagnose diagnostics methods observe quantity spelling"),
    "cli": rooms("cli_messages commands spelling start"),
    "cli_lightning": rooms("cli_errors cli_messages cli_shapes"),
    "cli_shapes": set(),
    "cli_errors": rooms("cli_messages spelling"),
    "__main__": rooms("cli"),
    "__init__": rooms("spelling"),
    "spelling": set(),
    "commands": rooms("cli cli_messages describe diagnose diagnose_options report spelling"),
    "cli_messages": rooms("spelling"),
}
FOREIGN = {
    "expressions": {"torch", "lightning", "numpy"},
    "quantity": {"torch", "lightning", "numpy"},
    "cost": {"torch", "lightning", "numpy"},
    "manifest": {"torch", "lightning", "numpy"},
    "diagnostics": {"lightning"},
    "functional": {"lightning"},
    "report": {"lightning", "torch"},
}

ENTRY = r"^ +(\*?\*?[\w`]+, )*`?{}`?(, [\w`]+)*:"  # of an argument in a docstring, alone or with others
DEFINITION = ast.FunctionDef | ast.ClassDef


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_between_rooms(path):
    own = room(path)
    for name in imports(path):
        if name.startswith("lightning_ssl_geometry."):
            other = name.split(".")[1]
            assert other in ROOMS[own] | {own, "__version__"}, f"{own} imports {other}"
        assert name.split(".")[0] not in FOREIGN.get(own, set()), f"{own} imports {name}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "methods").glob("*.py")), ids=lambda path: path.stem)
def test_a_method_imports_no_sibling_method(path):
    shared = {
        "alternating",
        "augmentation_policy",
        "base",
        "chunks",
        "classification",
        "fiber_pairs",
        "moving_target",
        "on_fibers",
    }
    shared |= {"schedule", "two_views"}
    for name in imports(path):
        if path.stem != "__init__" and name.startswith("lightning_ssl_geometry.methods."):
            assert name.split(".")[2] in shared


def test_only_one_file_calls_torch_distributed():
    for path in PACKAGE.rglob("*.py"):
        called = [name for name in imports(path) if name.startswith("torch.distributed")]
        assert room(path) == "distributed" or not called, path


ROOM_NAMES = [name for name in ROOMS if not name.startswith("__")]
OURS = "; ".join(["import lightning_ssl_geometry", *(f"import lightning_ssl_geometry.{name}" for name in ROOM_NAMES)])
THEIRS = "import lightning.pytorch.cli, torchmetrics"
BEGIN = "import sys; from time import process_time; seconds, found = [], []"
HEAVY = ("wandb", "sklearn", "matplotlib", "timm", "pandas", "escnn", "torchvision.models")


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def imported():
    """Import Lightning's rooms, then ours, in one interpreter: its seconds on the way, and what it has of HEAVY."""
    used = "import lightning_ssl_geometry.methods, lightning_ssl_geometry.callbacks, lightning_ssl_geometry.data"
    heavy = f"found.append([name for name in {HEAVY} if name in sys.modules])"
    clock, end = "seconds.append(process_time())", "print(seconds, found, sep=';')"
    steps = [BEGIN, clock, "import lightning", clock, THEIRS, heavy, used, clock, OURS, heavy, end]
    seconds, found = python("; ".join(steps)).split(";")
    return ast.literal_eval(seconds), ast.literal_eval(found)


def test_importing_everything_imports_nothing_heavy_that_lightning_does_not(imported):
    _, (theirs, ours) = imported
    assert ours == theirs


def test_import_takes_less_than_one_and_a_half_times_lightnings(imported):
    (start, lightning, ours), _ = imported
    assert ours - start < 1.5 * (lightning - start)


@cache
def trees():
    return [(path, ast.parse(path.read_text())) for path in sorted(PACKAGE.rglob("*.py"))]


def functions():
    return [(path, node) for path, tree in trees() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def test_an_argument_is_checked_by_the_kinds_in_checks():
    theirs = {
        "_check_log_dir_exists",
        "check_diagnostic",
        "check_method",
    }  # Lightning's name of a method, and the tests'
    named = [(path.name, node.name) for path, node in functions() if re.fullmatch(r"_?check(_\w+)?", node.name)]
    own = [f"{path}: {name}" for path, name in named if name not in theirs]
    assert len(own) <= 30, own


def test_an_argument_is_described_where_it_stands():
    elsewhere = {path.name: re.findall(r"[Aa]s (?:in|of|for) :", path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert sum(map(len, elsewhere.values())) <= 20, {name: len(found) for name, found in elsewhere.items() if found}


def test_the_switches_of_info_nce_are_handed_over_together():
    switches = set(InfoNCEForm.__dataclass_fields__) - {"normalize", "eps", "similarity"}  # others have these too
    spelt = [f"{path.name}: {node.name}" for path, node in functions() if switches & set(arguments(node))]
    assert len(spelt) <= 4, spelt


def arguments(function):
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def test_at_most_three_arguments_are_handed_over_by_position():
    # A call of a view, and of its parts that take the same arguments, is by position: so DataModules call any view.
    long = []
    for path, tree in trees():
        known = takers(tree)
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node) in known]
        long += [f"{path.name}:{call.lineno}" for call in calls if sum(not starred(each) for each in call.args) > 3]
    assert not long, long


def test_every_argument_of_a_public_constructor_is_described():
    # `--help` of the command line and the API reference show these lines.
    missing = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            text = ast.get_docstring(node) or ""
            for own in node.body:
                if isinstance(own, ast.FunctionDef) and own.name == "__init__":
                    names = [
                        name for name in arguments(own)[1:] if not re.search(ENTRY.format(name), text, re.MULTILINE)
                    ]
                    missing += [f"{path.name}: {node.name}({name})" for name in names]
    assert len(missing) <= 8, missing  # of two classes that nobody calls, one deprecated and one internal


def test_every_public_method_has_a_docstring_unless_a_base_class_has_the_method():
    missing = []
    for path in PACKAGE.rglob("*.py"):
        if path.name == "__main__.py":
            continue
        module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
        for each in vars(module).values():
            if isinstance(each, type) and each.__module__ == module.__name__ and not each.__name__.startswith("_"):
                missing += [f"{each.__qualname__}.{name}" for name in undocumented(each)]
    assert not missing, missing


def undocumented(each):
    inherited = {name for base in each.__mro__[1:] for name in vars(base)}
    kinds = (FunctionType, property, classmethod, staticmethod, cached_property)
    own = [name for name, value in vars(each).items() if isinstance(value, kinds) and not name.startswith("_")]
    return [name for name in own if name not in inherited and not getattr(vars(each)[name], "__doc__", None)]


@cache
def takers_of_any_number():
    """Functions of the package with `*arguments`."""
    return {node.name for _, node in functions() if node.args.vararg}


def takers(tree):
    """Functions and classes that a module defines or imports from the package, but those with `*arguments`."""
    defined = {node.name for node in ast.walk(tree) if isinstance(node, DEFINITION)}
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imported if (node.module or "").startswith("lightning_ssl_geometry")]
    return (defined | {each.asname or each.name for node in ours for each in node.names}) - takers_of_any_number()


def called(call):
    """The name of a function, or of a method of `self` or `cls`."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr if getattr(call.func.value, "id", None) in ("self", "cls") else None
    return getattr(call.func, "id", None)


def starred(argument):
    return isinstance(argument, ast.Starred)
