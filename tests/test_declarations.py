"""The declarations of diagnostics, methods and callbacks agree with each other and with all that is logged."""

import ast
import inspect
from pathlib import Path
from types import SimpleNamespace

import pytest

from lightning_ssl_geometry import callbacks, diagnostics, methods
from lightning_ssl_geometry.diagnostics.card import card
from lightning_ssl_geometry.manifest import Declared, read_manifest, written
from lightning_ssl_geometry.quantity import SECTIONS, Chart, Picture, Quantity

METHODS = Path(methods.__file__).parent
ROOMS = (diagnostics, methods, callbacks)


def classes(room):
    return [kind for name in room.__all__ if inspect.isclass(kind := getattr(room, name))]


DECLARING = [kind for room in ROOMS for kind in classes(room) if hasattr(kind, "quantities")]


def logged(path):
    """Names, without the stage, that a method's file logs by `self.log` or as one of its `scores`."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(attr="log"), args=[ast.Constant(value=str(name)), *_]):
                yield name.partition("/")[2]
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "scores":
                        yield from (each.value for each in value.keys)
            case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value="scores"))], value=ast.Dict(keys=keys)):
                yield from (key.value for key in keys)
            case ast.Assign(targets=[ast.Subscript(value=scores, slice=ast.Constant(value=str(name)))]):
                if ast.unparse(scores).endswith("['scores']"):
                    yield name


def test_quantities_on_one_chart_agree_on_it():
    charts = {}
    for kind in DECLARING:
        for quantity in kind.quantities.values():
            if quantity.chart is not None:
                place = quantity.section or kind.section, quantity.chart.name
                assert charts.setdefault(place, quantity.chart) == quantity.chart, f"{kind.__name__}: {place}"
    names = [name for _, name in charts]
    assert len(set(names)) == len(names), "a chart's name is that of a file, whatever its section"


def mixed_charts(kinds):
    """Charts with quantities in percent and quantities that are not; each side of a path has its own axis."""
    scales = {}
    for quantity in (quantity for kind in kinds for quantity in kind.quantities.values()):
        picture = quantity.picture
        if quantity.chart and not (picture and (picture.role or picture.kind == "path")):
            scales.setdefault(quantity.chart.name, set()).add(quantity.percent)
    return [name for name, held in scales.items() if len(held) > 1]


def test_quantities_on_one_chart_are_all_in_percent_or_none():
    assert mixed_charts(DECLARING) == []
    chart = Chart("both", "Both")
    about = {share: Quantity(title="A", text="A.", chart=chart, percent=share) for share in (False, True)}
    assert mixed_charts([SimpleNamespace(quantities=about)]) == ["both"]


@pytest.mark.parametrize("kind", classes(methods), ids=lambda kind: kind.__name__)
def test_a_method_declares_what_it_logs(kind):
    files = [
        f"{each.__module__.rpartition('.')[2]}.py" for each in kind.__mro__ if "_geometry.methods" in each.__module__
    ]
    found = {"loss", *(name for file in files if file != "base.py" for name in logged(METHODS / file))}
    needed = kind.quantities["loss"].comparable_at  # logged by SSLModule where it is declared
    assert found | ({needed} if needed else set()) == set(kind.quantities)


@pytest.mark.parametrize("kind", DECLARING, ids=lambda kind: kind.__name__)
def test_a_card_says_it(kind):
    shown = card(kind)
    assert shown.startswith(kind.__name__)
    for quantity in kind.quantities.values():
        assert (quantity.section or kind.section) in SECTIONS
        assert f"{quantity.title}" in shown


def test_files_of_methods_log_what_is_known():
    assert {*logged(METHODS / "moving_target.py")} == {"momentum"}
    assert {*logged(METHODS / "on_fibers.py")} == {"ssl_loss", "classifier_loss", "accuracy"}
    assert {*logged(METHODS / "crl_tac.py")} == {"policy_entropy", "policy_loss"}


def test_a_quantity_may_have_a_section_of_its_own():
    accuracy = methods.SupervisedModule.quantities["accuracy"]
    declared = Declared(quantity=accuracy, section="learning", diagnostic="SupervisedModule", key="accuracy")
    assert declared.section == "probes"
    assert Declared(quantity=Quantity(title="Loss", text="Loss."), section="learning").section == "learning"
    manifest = {"val/accuracy": declared}
    assert read_manifest(written(manifest)) == (manifest, [])


def test_logarithms_are_refused_where_they_would_be_drawn_as_they_are():
    assert Picture("spectrum", logarithm=True).logarithm
    for kind in ("line", "components", "matrix"):
        with pytest.raises(ValueError, match=rf"Expected `kind` to be one of \('spectrum', .*, but got '{kind}'"):
            Picture(kind, logarithm=True)
