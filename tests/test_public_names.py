"""The names of `import lightning_ssl_geometry as sslg; sslg.HSSLModule`, which are imported at their first use."""

import ast
import pickle
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import lightning_ssl_geometry as sslg
from lightning_ssl_geometry import spelling

STUB = Path(sslg.__file__).with_suffix(".pyi")
FUNCTIONS = {"report", "diagnose"}  # what their functions return has its name there


def public(room):
    names = import_module(f"lightning_ssl_geometry.{room}").__all__
    return [name for name in names if room not in FUNCTIONS or name[0].islower()]


ROOMS = [path.stem for path in Path(sslg.__file__).parent.iterdir() if not path.name.startswith((".", "__"))]
OFFERED = [(room, name) for room in sslg._ROOMS for name in public(room) if name not in ROOMS]


def test_importing_the_package_imports_nothing_else():
    code = """
import sys
before = set(sys.modules)
import lightning_ssl_geometry as sslg
assert set(sys.modules) - before == {"lightning_ssl_geometry"}, set(sys.modules) - before
assert "HSSLModule" in dir(sslg)
assert not hasattr(sslg, "HSLModule")
assert "torch" not in sys.modules
sslg.quantity
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(("room", "name"), OFFERED)
def test_a_name_is_that_of_its_room(room, name):
    assert getattr(sslg, name) is getattr(import_module(f"lightning_ssl_geometry.{room}"), name)
    assert name in dir(sslg)


def test_no_name_is_in_two_rooms():
    assert [name for name, count in Counter(name for _, name in OFFERED).items() if count > 1] == []


def test_a_part_of_the_package_goes_before_a_function_of_its_name():
    assert sslg.diagnose is import_module("lightning_ssl_geometry.diagnose")
    assert callable(sslg.diagnose.diagnose)
    assert sslg.functional.effective_rank is import_module("lightning_ssl_geometry.functional").effective_rank


@pytest.mark.parametrize(("wrong", "meant"), [("HSLModule", "HSSLModule"), ("write_reports", "write_report")])
def test_a_misspelt_name_is_answered_with_the_near_one(wrong, meant):
    with pytest.raises(AttributeError, match=f"has no attribute '{wrong}'. Did you mean: '{meant}'?"):
        getattr(sslg, wrong)
    shown = subprocess.run(
        [sys.executable, "-c", f"import lightning_ssl_geometry as sslg; sslg.{wrong}"], capture_output=True, text=True
    )
    assert shown.stderr.count("Did you mean") == 1


def test_a_wrong_name_is_compared_with_all_names_only_once(monkeypatch):
    compared = []
    monkeypatch.setattr(spelling, "near", lambda wrong, known, most: compared.append(wrong) or [])
    assert [hasattr(sslg, "NoNameThatIsKnown") for _ in range(3)] == [False] * 3
    assert compared == ["NoNameThatIsKnown"]


def test_an_unknown_name_is_an_error_also_where_nothing_is_near():
    with pytest.raises(AttributeError, match=r"has no attribute 'zzzzz'$"):
        sslg.zzzzz  # noqa: B018
    with pytest.raises(ImportError, match="zzzzz"):
        from lightning_ssl_geometry import zzzzz  # noqa: F401


def test_what_is_taken_from_here_can_be_pickled():
    assert pickle.loads(pickle.dumps(sslg.InfoNCELoss)) is sslg.InfoNCELoss
    metric = pickle.loads(pickle.dumps(sslg.EffectiveRank()))
    assert type(metric).__module__.startswith("lightning_ssl_geometry.diagnostics.")


_INNER = {"cli_errors", "commands", "observe", "recording"}  # folders without public names


def test_type_checkers_know_the_same_names():
    """A type checker sees each public name of the rooms, only functions of `report` and `diagnose`, and the rooms."""
    stars, named = set(), set()
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            room = node.module.partition(".")[2]
            for alias in node.names:
                assert alias.name in ("*", alias.asname)
                stars, named = (stars | {room}, named) if alias.name == "*" else (stars, named | {(room, alias.name)})
    assert stars == set(sslg._ROOMS) - FUNCTIONS
    assert {(room, name) for room, name in named if room} == {each for each in OFFERED if each[0] in FUNCTIONS}
    folders = {path.parent.name for path in STUB.parent.glob("*/__init__.py")} - _INNER
    assert {name for room, name in named if not room} == folders | {"loggers"}
