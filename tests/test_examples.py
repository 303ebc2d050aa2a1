"""Every YAML under examples/ is run, or at least takes a step on made-up data of the right shape."""

import json
import math
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import forked
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from PIL import Image
from recipes import BASES, CONTENT, EXAMPLES, FLOWS, script

from lightning_ssl_geometry.callbacks import ChannelEvaluation, GeometryMonitor
from lightning_ssl_geometry.cli import lightning_cli, main
from lightning_ssl_geometry.data import (
    ClusterDataModule,
    DigitsDataModule,
    ImageFolderDataModule,
    LatentDGPDataModule,
    MNISTDataModule,
    SklearnDataModule,
)
from lightning_ssl_geometry.nn import ShallowCNN

SIZES = {"DigitsDataModule": 8, "MNISTDataModule": 28}
ALONE = sorted(
    [*EXAMPLES.glob("*/laptop.yaml"), *EXAMPLES.glob("*/paper.yaml"), CONTENT / "cifar10.yaml", FLOWS / "figure_5.yaml"]
)
OVERLAYS = sorted(set(EXAMPLES.glob("*/*.yaml")) - set(ALONE) - set(EXAMPLES.glob("*/smoke.yaml")))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/smoke.yaml")), ids=lambda path: path.parent.name)
def test_smoke_fits(path, tmp_path, capsys):
    main(["fit", "--config", str(path), "--trainer.logger.init_args.save_dir", str(tmp_path)])
    (run,) = tmp_path.glob("*/version_0")
    assert (run / "report.html").exists()
    assert str(run / "report.html") in capsys.readouterr().out.replace("\n", "")
    metrics = pd.read_csv(run / "metrics.csv")
    names = ["train/loss", "val/loss", "val/linear_probe_accuracy", "val/knn_probe_accuracy"]
    assert (metrics[names].notna().sum() == 2).all()
    assert metrics.filter(regex="/effective_rank_h$").notna().sum().sum() >= 2
    evaluation = pd.read_csv(run / "linear_evaluation.csv")
    evaluation = evaluation[evaluation["features"].isin(["pixels", "frozen", "trained"])]
    assert evaluation.groupby("features").size().to_dict() == {"pixels": 2, "frozen": 2, "trained": 2}
    assert evaluation["accuracy"].between(0.3, 1).all()
    if (published := path.with_name("results.csv")).exists():
        results = pd.read_csv(published)
        row = results[results["run"] == run.parent.name]["accuracy"].to_numpy()
        assert abs(evaluation["accuracy"].to_numpy() - row).max() < 0.03  # other processors round otherwise


@pytest.mark.parametrize("method", ["byol", "vicreg"])
def test_another_method_in_simclrs_place_fits(method, tmp_path):
    configs = [word for name in ("laptop", method) for word in ("--config", str(EXAMPLES / "simclr" / f"{name}.yaml"))]
    fewer = ["--trainer.max_epochs=2", "--trainer.check_val_every_n_epoch=1", "--data.init_args.subset=400"]
    fewer += ["--data.init_args.batch_size=64", "--trainer.logger.init_args.save_dir", str(tmp_path)]
    main(["fit", *configs, *fewer])
    run = tmp_path / f"{method}_digits" / "version_0"
    assert (run / "report.html").exists()
    metrics = pd.read_csv(run / "metrics.csv")
    names = ["train/loss", "val/loss", *(["train/momentum"] if method == "byol" else [])]
    assert (metrics[names].notna().sum() == 2).all()
    evaluation = pd.read_csv(run / "linear_evaluation.csv")
    assert evaluation.groupby("features").size().to_dict() == {"pixels": 2, "frozen": 2, "trained": 2}


def test_the_geometry_recipe_draws_the_papers_figures_by_one_command(tmp_path, capsys, make):
    make(script("geometry_of_contrastive_learning"), "--size", "smoke", "--seeds", "0", "--output", str(tmp_path))
    output = tmp_path / "strengths"
    figures = {path.name.split("_")[1] for path in output.glob("figure_*.png")}
    assert figures == {"1", "3", "4", "5", "6", "7", "9", "10", "eq", "prop"}
    assert "L <= L_upper at 9 of 9 readouts" in capsys.readouterr().out
    assert (output / "comparison.html").stat().st_size > 10_000
    found = pd.read_csv(output / "results.csv").set_index(["group", "seed", "name"])["last"]
    results = EXAMPLES / "geometry_of_contrastive_learning" / "results"
    published = pd.read_csv(results / "smoke.csv").set_index(["group", "seed", "name"])["last"]
    assert set(found.index) == set(published.index)
    steady = [
        row
        for row in published.index
        if row[2].startswith(("probe/bound", "probe/unexplained_variance_full", "probe/unexplained_variance_tau"))
        and not row[2].endswith("_random")
    ] + [row for row in published.index if row[2] == "train/loss"]
    assert len(steady) >= 15
    assert (found[steady] - published[steady]).abs().max() < 0.03  # other processors round otherwise
    spectra = pd.read_csv(output / "spectra.csv")
    assert spectra.groupby("group").size().to_dict() == dict.fromkeys(("small", "moderate", "large"), 16)
    of_views = pd.read_csv(output / "augmentation_spectra.csv")
    assert (of_views.groupby("group")["last"].max() > 0).all()
    overlap = pd.read_csv(output / "angles.csv")
    assert len(overlap) == 3 * 3
    assert overlap[["first", "last"]].stack().between(0, 1).all()
    turned = pd.read_csv(output / "rotations.csv").groupby("angle")["rank"]
    assert (turned.size() == 5).all()
    assert (turned.mean().diff().dropna() > 0).all()
    same = ("--size", "smoke", "--seeds", "0", "--output", str(tmp_path))
    make(script("geometry_of_contrastive_learning"), *same, "--grid", "pools")
    pools = pd.read_csv(tmp_path / "pools" / "results.csv")
    assert len(pools) == 3 * 2 * 3 * 2
    clean = pools[pools["views"] == "clean"]
    assert (clean["pair"] == 0).all()
    assert (clean["from_h2"] - clean["distance"]).abs().max() < 1e-6  # h1 and h2 are one point
    assert (pools["from_h2"] <= pools["distance"] + pools["pair"] + 1e-6).all()
    own = pools[(pools["strength"] == "moderate") & (pools["views"] != "clean")].drop(columns="views")
    assert own.groupby(["trained", "pool"]).nunique().le(1).all(axis=None)  # the run's own policy is the moderate one
    make(script("geometry_of_contrastive_learning"), *same, "--grid", "spread")
    spread = pd.read_csv(tmp_path / "spread" / "results.csv")
    assert len(spread) == 3 * 2 * 4
    of_encoder = spread.groupby(["encoder", "trained"])["effective_rank"]
    assert of_encoder.nunique().min() == 4  # each policy has views of its own, and samples are no augmentations
    assert spread.groupby(["encoder", "views"])["effective_rank"].nunique().min() == 2  # training changes the network
    make(script("geometry_of_contrastive_learning"), *same, "--grid", "alone")
    alone = pd.read_csv(tmp_path / "alone" / "results.csv")
    assert len(alone) == 3 * 4 * 3
    assert alone.groupby(["encoder", "measured"])["gain"].nunique().min() == 4  # each policy trains another projector
    make(script("geometry_of_contrastive_learning"), *same, "--grid", "regions")
    regions = pd.read_csv(tmp_path / "regions" / "results.csv")
    assert len(regions) == 3 * 3 * 3
    one = regions[regions["hidden"] == 1]
    assert (one[["first", "last"]] <= one["samples"].clip(upper=2 ** one["width"]).to_numpy()[:, None]).all(axis=None)
    counted = (tmp_path / "regions" / "results.csv").read_text()
    (tmp_path / "regions" / "large_seed0.csv").unlink()
    kept = [tmp_path / "regions" / f"{name}_seed0.csv" for name in ("small", "moderate")]
    times = [path.stat().st_mtime_ns for path in kept]
    make(script("geometry_of_contrastive_learning"), *same, "--grid", "regions")
    assert (tmp_path / "regions" / "results.csv").read_text() == counted
    assert [path.stat().st_mtime_ns for path in kept] == times
    make(script("geometry_of_contrastive_learning"), *same, "--grid", "spans")
    spans = pd.read_csv(tmp_path / "spans" / "results.csv")
    assert len(spans) == 3 * (1 + 2 * 5)  # no augmentations; two lengths, five numbers of dimensions
    assert (spans.loc[spans["dimensions"] == 64, "length"].value_counts() == 3).all()
    make(script("geometry_of_contrastive_learning"), *same, "--grid", "generators")
    fits = pd.read_csv(tmp_path / "generators" / "results.csv")
    assert len(fits) == 3 * 2 * 4 * 7
    assert fits["r2"].le(1).all()
    before = (output / "results.csv").read_text()
    metrics = output / "small" / "seed0" / "version_0" / "metrics.csv"
    kept = metrics.read_text()
    metrics.write_text("\n".join(kept.splitlines()[:4]) + "\n")
    with pytest.raises(SystemExit, match=r"Expected 3 readouts in .*small.*metrics.csv, but got 2, fewer than"):
        make(script("geometry_of_contrastive_learning"), *same)
    metrics.write_text(kept)
    damages = [
        (
            "linear_evaluation.csv",
            "",
            r"Expected an evaluation of .*trained \(all labels\).*evaluation.csv, but got none",
        ),
        (
            "linear_evaluation.csv",
            slice(-1),
            r"Expected an evaluation of trained \(10 labels\) in .*, but got none. Del",
        ),
        (
            "geometry/probe/projector_singular_values.csv",
            slice(-1),
            r"Expected 3 readouts in .*values.csv, but got 2, few",
        ),
    ]
    for name, left, said in damages:
        file = output / "moderate" / "seed0" / "version_0" / name
        kept = file.read_text()
        file.write_text("".join(kept.splitlines(keepends=True)[left]) if isinstance(left, slice) else left)
        with pytest.raises(SystemExit, match=said):
            make(script("geometry_of_contrastive_learning"), *same)
        file.write_text(kept)
    checkpoint = output / "moderate" / "seed0" / "version_0" / "checkpoints" / "last.ckpt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:20_000])
    with pytest.raises(OSError, match=r"last.ckpt cannot be read .* Delete its run's folder to run it again"):
        make(script("geometry_of_contrastive_learning"), *same, "--grid", "generators")
    with pytest.raises(
        SystemExit, match="Expected no seed after --, since --seeds gives the seeds, but got '--seed_ev"
    ):
        make(script("geometry_of_contrastive_learning"), *same, "--", "--seed_everything=5")
    assert (output / "results.csv").read_text() == before


def test_the_geometry_recipe_asks_for_images(tmp_path, capsys, make):
    nowhere = tmp_path / "nowhere"
    for words, said in (
        ((), "Expected --root FOLDER with --size laptop, but got none."),
        (("--size", "smoke", "--root", str(nowhere)), f"Expected --root to be a folder of images, but {nowhere} is"),
    ):
        with pytest.raises(SystemExit, match="2"):
            make(script("geometry_of_contrastive_learning"), "--output", str(tmp_path), *words)
        assert said in capsys.readouterr().err


@pytest.fixture
def make(monkeypatch):
    """Run a recipe's reproduce.py with a command line; its fits are forked."""

    plain = subprocess.run

    def run(words, **named):  # jsonargparse runs programs, too
        return (forked.run_into_a_file if "env" in named else plain)(words, **named)

    def make(recipe, *words):
        monkeypatch.setattr(sys.modules["recipe"].subprocess, "run", run)
        monkeypatch.setattr(sys, "argv", ["reproduce.py", *words])
        recipe.main()

    return make


def test_a_run_that_was_resumed_keeps_what_was_measured_before_training(tmp_path):
    recipe = script("homomorphic_ssl")
    logged = (
        "epoch,step,probe/gap,test/accuracy\n0,0,0.5,\n",
        "epoch,step,probe/gap,test/accuracy\n1,9,0.25,\n1,10,,0.75\n",
    )
    for version, text in enumerate(logged):
        (folder := tmp_path / f"version_{version}").mkdir()
        (folder / "metrics.csv").write_text(text)
    told = {"from": "../version_0", "run": None, "step": 5, "logged": 5, "epoch": 0, "time": "2026-01-02T03:04:05"}
    (folder / "history.json").write_text(json.dumps({"run": "r", "resumed": [told]}))
    header = "features,labels_per_class,accuracy,accuracy_std,repeats,split,train_size,test_size,feature_dim,iterations"
    (folder / "linear_evaluation.csv").write_text(f"{header}\ntrained,all,0.625,,1,test,50,50,8,3\n")
    found = recipe.scores(tmp_path)
    assert found == {"classifier": 0.75, "linear evaluation": 0.625, "gap before": 0.5, "gap after": 0.25}


def test_the_homomorphic_recipe_makes_its_tables_by_one_command(tmp_path, monkeypatch, capsys, make):
    recipe = script("homomorphic_ssl")
    counted = {
        "table1": 3 * 4 + 1 + 4,
        "table2": 2 * 4 + 1,
        "rates": 5 * 3,
        "strength": 12,
        "classifier": 4,
        "base_size": 2 * 5 + 2,
        "distance": 5 + 2 + 2,
    }
    for what, count in counted.items():
        for size, dataset in (("laptop", "mnist"), ("laptop", "cifar10"), ("paper", "mnist")):
            options = SimpleNamespace(what=what, size=size, dataset=dataset, output=tmp_path)
            without_mlp = 4 if (what, dataset) == ("table2", "cifar10") else count
            assert len(dict(recipe.CELLS[what](options))) == without_mlp
    monkeypatch.setattr(recipe, "DISTANCES", (1, None))
    monkeypatch.setattr(recipe, "BASE_SIZES", (4,))
    small = ["subset=60", "val_fraction=0.2", "batch_size=20", "image_size=29"]
    more = ["--data=lightning_ssl_geometry.data.DigitsDataModule", *(f"--data.init_args.{word}" for word in small)]
    more += ["--trainer.max_epochs=1"]
    make(recipe, "distance", "--seeds", "0", "--output", str(tmp_path), "--", *more)
    rows = pd.read_csv(tmp_path / "laptop" / "distance" / "results.csv")
    scores = rows[rows["quantity"].isin(recipe.SCORES)]
    assert scores.groupby("cell").size().to_dict() == dict.fromkeys(("1", "1, apart", "none", "a-ssl", "frozen"), 2)
    assert scores["value"].between(0, 1).all()
    measured = rows[~rows["quantity"].isin(recipe.SCORES)].pivot(index="cell", columns="quantity", values="value")
    assert sorted(measured.index) == ["1", "1, apart", "a-ssl", "none"]
    for when in ("before", "after"):
        assert measured[f"loss_gap_similarity {when}"].between(-1, 1).all()
        assert (measured[[f"equivariance_mean_layers_{layer} {when}" for layer in (2, 5, 8)]] > 0).all(axis=None)
    assert (tmp_path / "laptop" / "distance" / "distance_classifier.png").stat().st_size > 10_000
    assert "| none | " in capsys.readouterr().out
    make(recipe, "base_size", "--seeds", "0", "--output", str(tmp_path), "--", *more)
    rows = pd.read_csv(tmp_path / "laptop" / "base_size" / "results.csv")
    assert set(rows[rows["quantity"] == "classifier"]["cell"]) == {"4", "4, near", "a-ssl", "frozen"}
    monkeypatch.setattr(recipe, "ARMS", ("a-ssl",))
    make(recipe, "ink", "--seeds", "0", "--output", str(tmp_path), "--", *more)
    rows = pd.read_csv(tmp_path / "laptop" / "ink" / "results.csv")
    known = {"ink, R2 before", "ink, R2 after"}
    assert {cell: set(of["quantity"]) for cell, of in rows.groupby("cell")} == {
        "translation, a-ssl": known,
        "translation, a-ssl far": known,
    }
    assert (rows["value"] <= 1).all()
    monkeypatch.setattr(
        recipe.law, "NETWORKS", {"rotation": {"29 pixels": [], "28 pixels": []}, "scale": {"paper's": []}}
    )
    make(recipe, "law", "--seeds", "0", "--output", str(tmp_path), "--", *more, "--trainer.max_steps=2")
    rows = pd.read_csv(tmp_path / "laptop" / "law" / "results.csv")
    assert len(rows) == 6
    exact, inexact = (rows[(rows["network"] == "29 pixels") == chosen] for chosen in (True, False))
    assert (exact["error"] < 1e-10).all()
    assert np.allclose(exact["a_ssl"], exact["h_ssl"], rtol=1e-4)
    assert np.allclose(exact[["similarity", "gradient"]], 1, atol=1e-4)
    assert (exact["distance"] < 1e-10).all()
    assert (inexact["distance"] > 1e-3).all()
    assert rows["in_window"].notna().tolist() == (rows["group"] == "scale").tolist()
    assert (inexact["error"] > 1e-3).all()
    assert (inexact["gradient"] < 0.99).all()
    assert (tmp_path / "laptop" / "law" / "law_gradient.png").stat().st_size > 10_000


@pytest.mark.parametrize(("knows", "least", "most"), [(True, 0.999999, 1.0), (False, -0.1, 0.1)])
def test_the_ink_is_predicted_from_itself_and_not_from_noise(knows, least, most, monkeypatch):
    ink, data = script("homomorphic_ssl").ink, DigitsDataModule(batch_size=100)
    data.setup()

    def h(images):
        noise = torch.randn(len(images), 2, generator=torch.Generator().manual_seed(len(images)))
        return torch.cat([noise, images.sum((1, 2, 3))[:, None]], 1) if knows else noise

    monkeypatch.setattr(ink, "network_of", lambda path, root, trained: (torch.nn.Identity(), data))
    monkeypatch.setattr(torch.nn.Identity, "forward", lambda self, images: h(images))
    found = ink.ink_r2("here", None)
    assert set(found) == {"ink, R2 before", "ink, R2 after"}
    assert all(least <= value <= most for value in found.values())


def test_the_augmentation_channels_recipe_makes_its_tables_by_one_command(tmp_path, monkeypatch, capsys, make):
    recipe = script("trainable_augmentation_channel")
    monkeypatch.setitem(recipe.LAMBDAS, "lambda", (0.0, 0.1))
    for what in ("table1", "lambda"):
        words = ["--size", "smoke", "--seeds", "0", "--output", str(tmp_path), "--jobs", "2", "--"]
        make(recipe, what, *words, "--trainer.max_epochs=1")
    with pytest.raises(SystemExit):
        make(recipe, "table2", "--size", "smoke")
    printed, refused = capsys.readouterr()
    assert "Expected one of table1, lambda, estimators, policy, bounds for --size smoke, but got table2." in refused
    output = tmp_path / "smoke"
    found = pd.read_csv(output / "table1" / "results.csv").fillna("")
    assert found["value"].between(0, 5).all()
    for arm in ("ours", "SimCLR"):
        for level in ("head", "f"):
            rows = found[(found["arm"] == arm) & (found["quantity"] == level)]
            assert sorted(rows["weighting"]) == ["learned", "oracle", "top", "uniform"]
    figures = sorted(path.name for path in (output / "table1").glob("*.png"))
    assert figures == ["figure_3_policy_maps.png", "figure_7_embeddings.png", "figure_8_pair_similarity.png"]
    assert (output / "table1" / "comparison.html").stat().st_size > 10_000
    entropy = pd.read_csv(output / "lambda" / "results.csv").query("quantity == 'entropy' and weighting == 'learned'")
    assert entropy["value"].iloc[0] < entropy["value"].iloc[1]  # the second weighs the entropy
    assert "| projection head | 0." in printed
    assert "| 0.1 | " in printed


def test_the_content_and_style_recipe_makes_its_tables_by_one_command(tmp_path, monkeypatch, capsys, make):
    recipe = script("content_suppresses_style")
    for module in (recipe, sys.modules["arms"]):
        monkeypatch.setattr(module, "CHANGES", recipe.CHANGES[:1])
    arms = {what: list(dict(recipe.settings(what, "laptop"))) for what in ("linear", "sphere", "crossed", "table2")}
    assert {what: len(names) for what, names in arms.items()} == {"linear": 8, "sphere": 6, "crossed": 26, "table2": 6}
    style = [recipe.Row(arm, 0, recipe.LATENTS[f"style in {x}"], 0.5) for arm in arms["crossed"] for x in "hz"]
    drawn = {text.get_text() for text in recipe.by_arm(style).axes[0].texts}
    assert {f"{space}, {itself} itself" for space in ("box", "sphere") for itself in ("with", "without")} < drawn
    assert "untrained" in drawn
    data = ["epoch_size=1024", "val_size=2048"]
    more = ["--", "--trainer.max_epochs=1", *(f"--data.init_args.{word}" for word in data)]
    settings = recipe.settings
    monkeypatch.setattr(
        recipe, "settings", lambda *words: {k: v for k, v in settings(*words).items() if "untrained" not in k}
    )
    for what in ("table1", "learned"):
        make(recipe, what, "--seeds", "0", "--output", str(tmp_path), "--jobs", "2", *more)
    with pytest.raises(SystemExit):
        make(recipe, "box", "--size", "paper")
    printed, refused = capsys.readouterr()
    assert "Expected table2 for --size paper, but got box." in refused
    output = tmp_path / "laptop"
    found = pd.read_csv(output / "table1" / "results.csv").set_index(["arm", "quantity"])["value"]
    assert abs(found["box", "inverse_total"] - 7.71) < 0.03  # Table 1's row g^-1, to two digits
    assert abs(found["sphere", "inverse_total"] - 9.07) < 0.03
    assert "| changes 0.2 and 0.447 | 0." in printed
    assert re.search(r"\| 0\.2, 0\.447 \| 0\.\d+ \| 0\.\d+ \| 0\.080 \| 0\.400 \|", printed)  # learned, and true
    assert (output / "learned" / "figure_temperatures.png").stat().st_size > 10_000
    assert (output / "learned" / "comparison.html").stat().st_size > 10_000


def test_only_the_score_function_points_along_the_gradient_where_training_ends(tmp_path, capsys, make):
    recipe = script("trainable_augmentation_channel")
    make(recipe, "estimators", "--size", "smoke", "--output", str(tmp_path))
    output = tmp_path / "smoke" / "estimators"
    found = pd.read_csv(output / "estimators.csv").query("entropy == 1.8").set_index(["estimator", "beta"])
    assert (found.loc["ExactInformation", ["cosine", "length", "noise"]] - [1, 1, 0]).abs().max().max() < 1e-3
    assert (found.loc["ScoreFunction", ["cosine", "length"]] - 1).abs().max().max() < 0.1
    assert found.loc[["AllPairs", "DistinctPairs"], "cosine"].abs().max() < 0.4
    assert found.loc[["AllPairs", "DistinctPairs"], "length"].max() < 0.4
    assert "| 0.5 | ScoreFunction | " in capsys.readouterr().out
    assert len(list(output.glob("*.png"))) == 2


def test_a_policy_alone_is_trained_with_each_estimator_by_one_command(tmp_path, monkeypatch, capsys, make):
    recipe = script("trainable_augmentation_channel")
    policies = sys.modules["policies"]
    monkeypatch.setattr(policies, "ENTROPY_WEIGHTS", {5.0: 0.02})
    monkeypatch.setattr(policies, "ESTIMATORS", {"ExactInformation": None, "ScoreFunction": None})
    for _ in range(2):  # nothing runs again
        make(recipe, "policy", "--size", "smoke", "--output", str(tmp_path), "--jobs", "2")
    assert capsys.readouterr().out.count(": done") == 5
    found = pd.read_csv(tmp_path / "smoke" / "policy" / "policy.csv").set_index(["network", "estimator"])
    assert len(found) == 5
    oracle = found.loc["oracle's crops", "none"]
    assert oracle["nonempty_mass"] > 0.99
    assert oracle["entropy"] == pytest.approx(math.log(4), abs=1e-3)  # 2 x 2 crops of 6 x 6 pixels in a cell of 8 x 8
    assert found["cell"].between(0, 1).all()


def test_the_losses_lie_beside_the_information_by_one_command(tmp_path, monkeypatch, capsys, make):
    recipe = script("trainable_augmentation_channel")
    bounds = sys.modules["bounds"]
    for name, value in {"IMAGES": 256, "BETAS": (5.0,), "CONCENTRATIONS": (10.0, 100.0)}.items():
        monkeypatch.setattr(bounds, name, value)
    make(recipe, "bounds", "--size", "smoke", "--output", str(tmp_path))
    output = tmp_path / "smoke" / "bounds"
    found = pd.read_csv(output / "bounds.csv").pivot_table(index="kappa", columns="quantity", values="value")
    assert ((found["eq_2"] - found["information"]).abs() < 0.2).all()
    assert (found["eq_2_jensen"] < found["eq_2"]).all()
    assert (found["eq_17"] > found["information"] + 0.4).all()  # no bound of I(X; Z): Z is replaced by its mean
    assert (found["eq_17"] < found["views"] + 0.05).all()  # but of I(V; V')
    assert "| 5 | Eq. 17 | " in capsys.readouterr().out
    assert (output / "bounds_beta_5.png").stat().st_size > 10_000


def test_the_information_of_the_bounds_is_that_of_the_closed_form_and_of_samples():
    bounds = script("trainable_augmentation_channel", "bounds")
    for dim in (3, 8):
        without = 5.0 * bounds.mean_harmonics(5.0, 2, dim)[1] - bounds.normaliser(5.0, dim)  # H(Z) - H(Z | X)
        assert bounds.information(1e5, 5.0, dim) == pytest.approx(without, abs=1e-3)
        assert bounds.information(7.0, 2.0, dim) == pytest.approx(bounds.information(2.0, 7.0, dim), abs=1e-12)
    assert bounds.normaliser(2.0, 3) == pytest.approx(math.log(math.sinh(2.0) / 2.0), abs=1e-12)
    generator = np.random.default_rng(0)
    pole = np.eye(3)[0]
    middle = scipy.stats.vonmises_fisher(pole, 6.0).rvs(20_000, random_state=generator)
    z = np.concatenate([scipy.stats.vonmises_fisher(one, 4.0).rvs(1, random_state=generator) for one in middle[:4000]])
    density = np.exp(4.0 * z @ middle[4000:].T).mean(1) / np.exp(bounds.normaliser(4.0, 3))
    assert bounds.information(6.0, 4.0, 3) == pytest.approx(np.log(density).mean(), abs=0.05)


def test_settings_are_chosen_on_validation_digits(tmp_path):
    recipe = script("trainable_augmentation_channel")
    arms = dict(recipe.settings("settle"))
    assert len(arms) == 2 * 4 + 1  # the constants, and the estimators of phase 2; untrained
    for words in arms.values():
        cli = lightning_cli(["--config", str(EXAMPLES / recipe.HERE.name / "laptop.yaml"), *words], run=False)
        evaluations = [each.split for each in cli.trainer.callbacks if isinstance(each, ChannelEvaluation)]
        assert evaluations == ["test", "val"]
        given = cli.config.model.init_args
        assert given.entropy_weight == 0.005 * given.beta  # the paper's ratio
        assert type(cli.model.policy) is ShallowCNN


def test_the_mass_by_cell_is_that_of_the_newest_checkpoint(tmp_path):
    policies = script("trainable_augmentation_channel").policies
    options = SimpleNamespace(size="smoke", root=None, more=[], images=200, test_images=90)
    model, _ = policies.parts(options, 0, "linear layers")
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    torch.save({"state_dict": model.state_dict()}, checkpoints / "last-v1.ckpt")
    (checkpoints / "last.ckpt").write_text("of the run before it was resumed")
    os.utime(checkpoints / "last.ckpt", (0, 0))
    found = policies.by_cell(options, tmp_path, 0)
    masses = [value for name, value in found.items() if name.startswith("nonempty_mass_cell_")]
    assert len(masses) == 9
    assert all(0.05 < mass < 0.5 for mass in masses)  # an untrained policy is nearly uniform
    assert 0 <= found["cell"] <= 1


def test_untrained_arms_do_not_learn():
    recipe = script("content_suppresses_style")
    for what, arm in (("box", "untrained"), ("table1", "sphere, untrained")):
        words = dict(recipe.settings(what, "laptop"))[arm]
        assert {"--model.init_args.optimizer.init_args.lr=0.0", "--trainer.max_epochs=1"} <= set(words)
    recipe = script("trainable_augmentation_channel")
    arms = dict(recipe.settings("table1"))
    assert arms["untrained"][: len(arms["SimCLR"])] == arms["SimCLR"]
    assert recipe.policies.ESTIMATORS["untrained"] == ()


@pytest.mark.parametrize("space", ["box", "sphere"])
def test_table_1_measures_the_loss_that_it_trains(space):
    recipe = script("content_suppresses_style")
    words = dict(recipe.settings("table1", "laptop"))[space]
    configs = [word for path in recipe.configs("table1", "laptop", space) for word in ("--config", str(path))]
    cli = lightning_cli([*configs, *words], run=False)
    (monitor,) = (each for each in cli.trainer.callbacks if isinstance(each, GeometryMonitor))
    measured, trained = monitor.measurements.diagnostics["loss_terms"], cli.model.loss
    assert measured.temperature == trained.temperature
    for switch in ("normalize", "similarity", "include_self", "positive_in_denominator"):
        assert getattr(measured.form, switch) == getattr(trained.form, switch)


def test_images_of_a_folder_are_drawn_from_all_of_its_classes(tmp_path):
    """The folder is in the order of the classes, so its first images are all of one."""
    for name in range(4):
        (tmp_path / "train" / str(name)).mkdir(parents=True)
        for k in range(16):
            Image.new("RGB", (8, 8), (64 * name, k, 5 * k)).save(tmp_path / "train" / str(name) / f"{k}.png")
    data = ImageFolderDataModule(root=tmp_path, image_size=8, batch_size=8, val_fraction=0.25)
    data.setup()
    draw = script("geometry_of_contrastive_learning").after_training.images
    for split, count in (("train", 24), ("val", 12)):
        found = draw(data, split, count)
        assert len(set(found["index"].tolist())) == count
        assert set(found["label"].tolist()) == {0, 1, 2, 3}
        assert torch.equal(found["index"], draw(data, split, count)["index"])


def test_directions_are_counted_by_their_singular_values():
    count = script("geometry_of_contrastive_learning").after_training.directions
    flat = torch.linalg.qr(torch.randn(40, 8, dtype=torch.float64)).Q
    assert count(40**0.5 * flat) == (pytest.approx(8, rel=1e-4), 8, 8, 8)
    sigma = torch.tensor([1.0, 0.5, 0.3, 0.02, 0.009, 0, 0, 0])
    assert count(40**0.5 * flat * sigma) == (pytest.approx(2.8768, abs=1e-3), 2, 4, 3)
    assert count(40**0.5 * flat * sigma / 4) == (pytest.approx(2.8768, abs=1e-3), 2, 4, 2)  # shorter ones are fewer
    rows = torch.randn(12, 5, dtype=torch.float64)
    pairs = (rows[:, None] - rows).flatten(0, 1)
    assert count(pairs) == pytest.approx(count(2**0.5 * (rows - rows.mean(0))))


def test_the_loss_rewards_style_on_the_box_and_not_on_the_sphere():
    landscape = script("content_suppresses_style", "landscape")
    for space, include_self in (("box", True), ("box", False), ("sphere", True), ("sphere", False)):
        views = landscape.latents(space, 0, 512)
        scales = [(10.0, 0.0), (10.0, 0.5), (10.0, 3.0), (10.0, 30.0)]
        losses = [landscape.loss(space, views, scale, include_self) for scale in scales]
        best = 0 if space == "sphere" else 2 if include_self else 3
        assert losses.index(min(losses)) == best


def parsed(paths, tmp_path):
    configs = [word for path in paths for word in ("--config", str(path))]
    quiet = ["--trainer.accelerator", "cpu", "--trainer.devices", "1", "--trainer.precision", "32"]
    quiet += ["--trainer.default_root_dir", str(tmp_path)]
    return lightning_cli([*configs, *quiet], run=False)


@pytest.mark.parametrize(
    "paths",
    [*([path] for path in ALONE), *([BASES.get(path, path.with_name("laptop.yaml")), path] for path in OVERLAYS)],
    ids=lambda paths: f"{paths[-1].parent.name}-{paths[-1].stem}",
)
def test_the_others_parse_and_take_a_step(paths, tmp_path):
    if paths[-1].stem == "escnn":
        pytest.importorskip("escnn.nn")
    cli = parsed(paths, tmp_path)
    takes_a_step(cli.model, batch(cli, paths))


def batch(cli, paths):
    if isinstance(cli.datamodule, LatentDGPDataModule | ClusterDataModule | SklearnDataModule):
        return cli.datamodule.on_after_batch_transfer(next(iter(cli.datamodule.train_dataloader())), 0)
    family = getattr(cli.model, "family", None)
    size = getattr(cli.datamodule, "image_size", None) or SIZES.get(type(cli.datamodule).__name__, 32)
    size = family.image_size if family else size
    channels = 1 if family or (isinstance(cli.datamodule, MNISTDataModule) and "homomorphic" in str(paths[0])) else 3
    image, index = torch.randint(256, (4, channels, size, size), dtype=torch.uint8), torch.arange(4)
    return {"views": cli.datamodule.views(image, index), "label": index, "index": index}


def takes_a_step(model, batch):
    optimizer = model.optimizer(model._parameter_groups())
    before = [p.detach().clone() for p in model.parameters()]
    loss = model.observe(batch)["loss"]
    loss.backward()
    optimizer.step()
    assert torch.isfinite(loss)
    assert any(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
