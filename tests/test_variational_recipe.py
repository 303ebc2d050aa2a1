"""Calder & Lee's figures, each by one command, in small sizes."""

import importlib.util
import sys
from functools import partial
from pathlib import Path

import forked
import numpy as np
import pandas as pd
import pytest
import torch

from lightning_ssl_geometry.cli import main

RECIPE = Path(__file__).parents[1] / "examples" / "variational_and_dynamics"


@pytest.fixture(scope="module")
def recipe():
    """The recipe's reproduce.py as a module, which makes the modules of its folder importable."""
    before, known = list(sys.path), set(sys.modules)
    spec = importlib.util.spec_from_file_location("reproduce_variational_and_dynamics", RECIPE / "reproduce.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before
    for name in set(sys.modules) - known:
        if str(RECIPE) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def give(recipe, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys.modules["recipe"], "get_context", lambda _: forked.SERVER)

    def give(what, *words):
        monkeypatch.setattr(sys, "argv", ["reproduce.py", what, "--output", str(tmp_path), *words])
        recipe.main()
        return capsys.readouterr().out

    return give


def test_figure_3_has_three_panels_and_their_values(give, tmp_path):
    printed = give("figure_3")
    losses = pd.read_csv(tmp_path / "results" / "figure_3.csv").set_index(["temperature", "count"])["loss"]
    assert losses[0.5, 4] == pytest.approx(0.279, abs=6e-4)
    assert "| tau = 0.1 | 0.6931 | 0.4055 | 0.2877 |" in printed
    found = pd.read_csv(tmp_path / "results" / "figure_3_threshold.csv")
    assert (found["threshold"].diff().dropna() > 0).all()
    assert np.corrcoef(found["temperature"], found["threshold"])[0, 1] > 0.99
    figures = sorted(path.name for path in (tmp_path / "figures").glob("*.png"))
    assert figures == ["figure_3_left.png", "figure_3_middle.png", "figure_3_right.png"]


def test_the_dynamics_are_as_the_theorems_say(give, recipe, tmp_path, monkeypatch):
    module = sys.modules["dynamics"]
    monkeypatch.setattr(module, "MODES", 3)
    monkeypatch.setattr(module, "digits", partial(module.digits, count=60))
    monkeypatch.setattr(module, "ITERATIONS", (0, 1, 5))
    monkeypatch.setattr(module, "SIZES", {"50 of 200": (50, 50, 50, 50), "5 of 200": (65, 5, 65, 65)})
    assert "| free points | 0 | 0 |" in give("dynamics", "--seeds", "0", "--jobs", "1")
    found = pd.read_csv(tmp_path / "results" / "dynamics.csv")
    drift = found[found["experiment"] == "Thm. 4.2"].set_index(["arm", "at"])["value"]
    assert (drift[["free points", "network that sees no noise"]] == 0).all()
    assert drift["network", 0] < 1e-15
    assert drift["network", 1] > 1e-4
    lengths = found[found["experiment"] == "Prop. A.1 (2)"].pivot(index="at", columns="arm", values="value")
    assert (lengths["k f"].diff().dropna() < 0).all()
    assert lengths["k f"].iloc[-1] < 1e-3 < 0.02 < lengths["null: pairs stay"].min()
    times = found[found["experiment"] == "steps"].pivot(index="at", columns="arm", values="value")
    assert (times["measured"] / times["predicted"]).between(0.9, 1.2).all()
    assert times["measured"].iloc[-1] > 3 * times["measured"].iloc[0]


def test_figure_3s_threshold_is_where_the_loss_leaves_its_plateau(recipe):
    figure_3 = sys.modules["figure_3"]
    for tau in (0.1, 0.3):
        floor = figure_3.loss(figure_3.MANY, tau)
        goal = floor + figure_3.SHARE * (np.log(2) - floor)
        counts = range(2, 40)
        reached = [figure_3.squared_distance(k) for k in counts if figure_3.loss(k, tau) <= goal]
        missed = [figure_3.squared_distance(k) for k in counts if figure_3.loss(k, tau) > goal]
        assert max(reached) <= figure_3.threshold(tau) <= min(missed)


def test_figure_1_fits_measures_and_draws(recipe, give, monkeypatch, tmp_path):
    figure_1, started, unmoved = sys.modules["figure_1"], [], []
    load = figure_1.load_weights

    def load_weights(model, path):
        before = [p.detach().clone() for p in model.parameters()]
        load(model, path)
        unmoved.extend(torch.equal(p, q) for p, q in zip(before, model.parameters(), strict=True))

    def run_here(fits, jobs):
        started.extend(fits)
        for fit in fits:
            main(fit.words[2:])

    monkeypatch.setattr(figure_1, "run_all", run_here)
    monkeypatch.setattr(figure_1, "load_weights", load_weights)
    still = ["--model.init_args.optimizer.init_args.lr=0.0", "--trainer.limit_val_batches=0"]
    small = ["--data.init_args.subset=200", "--data.init_args.batch_size=64"]
    printed = give("figure_1", "--epochs", "1", "--points", "60", "--", *small, *still)
    assert [fit.name for fit in started] == ["digits"]
    assert all(unmoved)  # without a learning rate: the untrained network is the one that the fit began with
    assert len(unmoved) > 10
    rows = pd.read_csv(tmp_path / "results" / "figure_1.csv").set_index(["features", "quantity"])["value"]
    assert rows["pixels", "knn_accuracy"] > 0.7
    assert rows["trained h", "silhouette"] != rows["untrained h", "silhouette"]  # the statistics of its norms moved
    assert len(rows) == 12
    assert rows.between(-1, 1).all()
    assert "| Digits (8 x 8) | trained z | 0." in printed
    assert (tmp_path / "figures" / "figure_1_digits.png").stat().st_size > 10_000


@pytest.mark.parametrize("words", [["--jobs", "0"], ["--seed=-1"], ["--epochs", "0"], ["--points", "0"]])
def test_figure_1_refuses_numbers_that_mean_nothing(words, give, capsys):
    with pytest.raises(SystemExit):
        give("figure_1", *words)
    assert f"argument {words[0].partition('=')[0]}: Expected an integer >= " in capsys.readouterr().err


def test_an_output_that_is_a_file_is_refused_before_the_work(give, capsys):
    with pytest.raises(SystemExit):
        give("figure_3", "--output", __file__)
    assert "argument --output: Expected a folder" in capsys.readouterr().err


def test_figure_1_says_which_folder_has_no_data(recipe, give, tmp_path):
    with pytest.raises(SystemExit, match="to have MNIST/raw or train/<class>, but it has neither"):
        give("figure_1", "--root", str(tmp_path))
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    (tmp_path / "train").mkdir()
    with pytest.raises(SystemExit, match="of one data set with --checkpoint, but got mnist, cifar10"):
        give("figure_1", "--root", str(tmp_path), "--checkpoint", "x.ckpt")


def test_the_kernels_identities_hold_and_fall_as_they_should(recipe, give, tmp_path):
    printed = give("kernel_identities", "--seeds", "0", "1", "2")
    rows = pd.read_csv(tmp_path / "results" / "kernel_identities.csv")
    assert rows.groupby("identity")["seed"].nunique().eq(3).all()
    assert rows[rows["identity"] == "Prop. 4.3"]["error"].max() < 1e-13
    for identity, law in sys.modules["kernel_identities"].LAWS.items():
        of = rows[rows["identity"] == identity]
        slope = np.polyfit(np.log(of["at"].astype(float)), np.log(of["error"]), 1)[0]
        assert slope == pytest.approx(law.power, abs=0.08), identity
        assert f"| {identity} | " in printed
    assert "`reproduce.py kernel_identities" in printed
    assert len(list((tmp_path / "figures").glob("kernel_*.png"))) == 4


def test_figure_5_has_stills_a_film_and_numbers(give, tmp_path):
    printed = give("figure_5", "--seeds", "0", "--jobs", "1", "--steps", "60")
    folder = tmp_path / "first_60_steps"
    found = pd.read_csv(folder / "results" / "figure_5.csv").set_index(["flow", "quantity", "iteration"])["value"]
    assert found["network", "nmi", 30] > 0.7
    assert found["free points", "nmi", 30] < 0.1
    start, now = (found["free points, bunched", "relative_uniformity", step] for step in (0, 30))
    assert start < now < 1.02
    assert found["network", "uniformity", 0] == pytest.approx(found["free points", "uniformity", 0], abs=1e-5)
    assert "| network | 30 | " in printed
    figures = sorted(path.name for path in (folder / "figures").iterdir())
    assert figures == ["figure_5.gif", "figure_5_input.png", "figure_5_stills.png"]
    assert (folder / "figures" / "figure_5.gif").read_bytes()[:6] == b"GIF89a"


def test_figure_6_has_both_dimensions(give, tmp_path):
    give("figure_6", "--seeds", "0", "--jobs", "1", "--steps", "80")
    folder = tmp_path / "first_80_steps"
    found = pd.read_csv(folder / "results" / "figure_6.csv").set_index(["flow", "quantity", "iteration"])["value"]
    assert found["2-D, network", "nmi", 20] > 0.9
    assert found["3-D, free points", "nmi", 50] < 0.1
    assert "length" not in found.index.get_level_values("quantity")  # no flow has ended
    assert len(list((folder / "figures").glob("figure_6_[23]d*"))) == 6


def test_a_stopped_figure_goes_on_with_the_fits_that_it_has(give, tmp_path):
    words = ("figure_5", "--seeds", "0", "--jobs", "1", "--steps", "30")
    folder = tmp_path / "first_30_steps"
    give(*words)
    kept = sorted((folder / "flows").iterdir())
    table, times = (folder / "results" / "figure_5.csv").read_text(), [file.stat().st_mtime_ns for file in kept]
    kept.pop().unlink()
    give(*words)
    assert (folder / "results" / "figure_5.csv").read_text() == table
    assert [file.stat().st_mtime_ns for file in kept] == times[:-1]
    kept[0].write_bytes(b"PK")
    with pytest.raises(OSError, match=f"{kept[0]} cannot be read"):
        give(*words)
