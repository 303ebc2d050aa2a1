"""ssl-geometry describe: the card of a class by its name, and a table of all."""

import sys

import pytest
from torch import nn

from lightning_ssl_geometry import callbacks, diagnostics, methods
from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.diagnose.observed import diagnosis_diagnostics
from lightning_ssl_geometry.diagnostics.card import quantities_of
from lightning_ssl_geometry.diagnostics.standard import standard_diagnostics

ROOMS = (diagnostics, methods, callbacks)
CLASSES = {
    name: getattr(room, name) for room in ROOMS for name in room.__all__ if isinstance(getattr(room, name), type)
}

MINE = '''
from torchmetrics import MeanMetric
from lightning_ssl_geometry.quantity import Paper, Quantity

NUMBER = 3

class Spread(MeanMetric):
    section = "ranks"
    quantities = {
        "": Quantity(title="Spread of rows", low="Alike.", high="Far apart.", paper=Paper("A 2024", "On spread")),
        "near": Quantity(title="Spread of neighbours", text="Of the nearest ones.", section="neighbors"),
    }

class Silent:
    """Does something.

    Something else.
    """

class Numbered(MeanMetric):
    quantities = {0: Quantity(title="First", text="Of all.")}

class Wrong(MeanMetric):
    quantities = {"": "Spread"}

class Refusing(type):
    def __getattr__(cls, name):
        raise RuntimeError(f"no {name}")

class Hidden(metaclass=Refusing):
    pass

class HiddenSection(metaclass=Refusing):
    quantities = {"": Quantity(title="First", text="Of all.")}
'''


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "own_metrics.py").write_text(MINE)
    (tmp_path / "own_broken.py").write_text("raise RuntimeError('not\\nhere')")
    (tmp_path / "own_leaving.py").write_text("raise SystemExit(3)")
    (tmp_path / "own_base.py").write_text("class Own(BaseException): pass\nraise Own('not here')")
    (tmp_path / "own_stopped.py").write_text("raise KeyboardInterrupt")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_metrics", None)


def described(capsys, *args):
    main(["describe", *args])
    return capsys.readouterr().out


def refused(capsys, name):
    with pytest.raises(SystemExit, match="2"):
        main(["describe", name])
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    return shown.err


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_of_the_package_by_its_name(capsys, name):
    shown = described(capsys, name)
    assert shown.startswith(name)
    for quantity in quantities_of(CLASSES[name]).values():
        assert quantity.title in shown
    assert max(map(len, shown.splitlines())) <= 120


def test_a_class_of_anybody_by_its_import_path(capsys, mine):
    shown = described(capsys, "own_metrics.Spread")
    for text in ("Spread of rows (Ranks", "low: Alike.", "high: Far apart.", "A 2024, On spread"):
        assert text in shown
    assert "Spread of neighbours (Neighbours" in shown
    assert "  logged as: <stage>/<name of the diagnostic>_near\n" in shown
    assert described(capsys, "own_metrics.Silent") == "Silent\nDoes something.\n\nIt declares no results of its own.\n"
    assert described(capsys, "torchmetrics.MeanSquaredError").splitlines()[2].startswith("Mean squared error")
    assert described(capsys, "lightning_ssl_geometry.diagnostics.LiDAR") == described(capsys, "LiDAR")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lida", "Did you mean `LiDAR`"),
        ("val/loss", "'val/loss' is logged by "),
        ("own_metrics.Numbered", "`quantities` of Numbered to map texts to Quantity, but got {0: "),
        ("own_leaving.Metric", "but: SystemExit: 3"),
        ("top1", "the name of a class or of a log, or an import path, but got 'top1'"),
        ("EfectiveRank", "Did you mean `EffectiveRank`"),
        ("LinearProb", "Did you mean `LinearProbe`"),
        ("xyzzy", "but got 'xyzzy'. `ssl-geometry describe` lists all."),
        ("no_such_package.Metric", "but: ModuleNotFoundError: No module named 'no_such_package'"),
        ("own_metrics.Spred", "AttributeError: module 'own_metrics' has no attribute 'Spred'"),
        ("own_metrics.NUMBER", "to be a class, but got a int."),
        ("own_metrics.Wrong", "`quantities` of Wrong to map texts to Quantity, but got {'': 'Spread'}"),
        ("own_broken.Metric", "but: RuntimeError: not here"),
        ("own_base.Metric", "Expected 'own_base.Metric' to be importable, but: Own: not here"),
        ("own_metrics.Hidden", "to be a class that can be described, but: RuntimeError: no quantities"),
        ("own_metrics.HiddenSection", "to be a class that can be described, but: RuntimeError: no section"),
        (".", "or an import path, but got '.'. `ssl-geometry describe` lists all."),
        ("..", "or an import path, but got '..'"),
        ("own_metrics..Spread", "or an import path, but got 'own_metrics..Spread'"),
        ("val/layer_3.weight", "or an import path, but got 'val/layer_3.weight'. Did you mean `Layer"),
        ("knn", "but got 'knn'. Did you mean `KNNProbe`?"),
        ("probe/knn_accuracy", "but got 'probe/knn_accuracy'. Did you mean `KNNProbe` or `ClassAccuracy`?"),
        ("val/efective_rank", "Did you mean `EffectiveRank`"),
        ("", "but got ''"),
    ],
)
def test_an_unknown_name_is_one_line_with_the_nearest(capsys, mine, name, said):
    assert said in refused(capsys, name)


def test_an_interruption_is_left_alone(mine):
    with pytest.raises(KeyboardInterrupt):
        main(["describe", "own_stopped.Metric"])


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("val/effective_rank_h", "EffectiveRank"),
        ("lidar", "LiDAR"),
        ("train/projector_rank_layers_3", "ProjectorRank"),
        ("bound_info_nce", "UpperBound"),
        ("linear_probe_accuracy", "LinearProbe"),
        ("val/knn_probe_accuracy", "KNNProbe"),
        ("unexplained_variance_full", "UnexplainedVariance"),
        ("val/layer_cka", "LayerGeometry"),
    ],
)
def test_a_log_is_described_by_its_class(capsys, name, owner):
    first, _, shown = described(capsys, name).partition("\n\n")
    assert first == f"{name!r} is a log of {owner}."
    own, _, others = shown.partition("\n\nOthers of ")
    assert own.strip() in described(capsys, owner) or others
    assert bool(others) == (len(quantities_of(CLASSES[owner])) > 1)


def test_a_log_is_described_alone_and_the_others_of_its_class_are_named(capsys):
    _, heading, result, others = described(capsys, "val/bound_upper").split("\n\n")
    assert heading == "UpperBound"
    assert result.startswith("Upper bound (InfoNCE and its bound)\n  logged as: <stage>/bound_upper\n")
    assert " ".join(others.split()) == (
        "Others of UpperBound: bound_info_nce, bound_entropy_form, bound_invariance, bound_repulsion, "
        "bound_expectation, bound_entropy, bound_temperature, bound_negatives."
    )
    assert result in described(capsys, "UpperBound")
    assert described(capsys, "UpperBound").count("logged as: ") == 9


STANDARD = standard_diagnostics(samples=True) | diagnosis_diagnostics(nn.Linear(1, 1), labels=True)


@pytest.mark.parametrize("name", STANDARD)
def test_every_log_of_the_standard_sets_is_known(capsys, name):
    metric = STANDARD[name]
    for key, quantity in metric.quantities.items():
        log = f"{name}_{key}" if key else name
        for stage in ("", "train/", "val/", "test/", "probe/"):
            first, _, result, *_ = described(capsys, f"{stage}{log}").split("\n\n")
            assert first == f"'{stage}{log}' is a log of {type(metric).__name__}."
            assert result.startswith(f"{quantity.title} (")
            assert f"/{log}" in result.splitlines()[1]


def test_a_card_says_log_names_percents_and_what_there_would_be_without_structure(capsys):
    shown = described(capsys, "KNNProbe")
    assert "logged as: val/knn_probe_accuracy\n" in shown
    assert "range: from 0% to 100%\n" in shown
    assert "logged as: <stage>/effective_rank_h, <stage>/effective_rank_z\n" in described(capsys, "EffectiveRank")
    assert "logged as: <stage>/<name of the diagnostic>, test/lidar\n" in described(capsys, "LiDAR")
    assert "without structure: Random projector: The share" in described(capsys, "UnexplainedVariance")
    shown = described(capsys, "CollapseGuard")
    assert "It declares no results of its own.\n\nIts arguments:\n    action: " in shown
    assert "see `GeometryMonitor`" in shown  # in plain words
    assert "Raises" not in shown


def test_the_table_has_everything_that_is_declared(capsys, monkeypatch, mine):
    import own_metrics

    monkeypatch.setattr(diagnostics, "LiDAR", own_metrics.Spread)
    shown = described(capsys)
    sections = shown.split("\n\n")
    assert [part for part in sections if part.startswith("Ranks") and "Spread of rows" in part]
    assert [part for part in sections if part.startswith("Neighbours") and "Spread of neighbours" in part]
    words = " ".join(shown.split())
    for name, kind in CLASSES.items():
        if name != "LiDAR" and getattr(kind, "quantities", None):
            assert f" {name} " in words
    assert max(map(len, shown.splitlines())) <= 100
