"""The recipe examples/choosing: when a guard warns, and that its arms and the study's can be trained."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from recipes import beside

from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.diagnose import Choice
from lightning_ssl_geometry.diagnose.scores import Score

pytestmark = pytest.mark.filterwarnings("ignore:geometry.val.patience_.*rows_seen.csv")


def test_the_table_of_the_guard():
    recipe = beside("choosing", "guard")
    nan = math.nan

    def run(seed, warned):
        for epoch in range(recipe.EPOCHS):
            end = (0.5 + seed, 0.25) if epoch == recipe.EPOCHS - 1 else (nan, nan)
            yield recipe.Readout("arm", seed, epoch, 0.5, 0.9, 8.0, 2.0, *(int(epoch >= at) for at in warned), *end)

    rows = [*run(0, (1, 4, 99)), *run(1, (99, 99, 99))]
    (line,) = recipe.lines(rows)
    assert line[:5] == ["arm", "1 of 2", "1 of 2", "0 of 2", "5"]  # index 4 is the fifth epoch
    assert line[-2:] == [recipe.over_seeds([0.5, 1.5], ".2f"), recipe.over_seeds([0.25, 0.25], ".2f")]


def test_an_arm_of_the_guard_has_a_readout_per_epoch(monkeypatch):
    guard = beside("choosing", "guard_fit")
    monkeypatch.setattr(guard, "EPOCHS", 2)
    rows = guard.train("no negatives", 0)
    assert [row.epoch for row in rows] == [0, 1]
    assert math.isnan(rows[0].accuracy_h)
    assert 0 <= rows[1].accuracy_h <= 1
    assert 1 <= rows[1].participation_z <= 32
    assert not rows[1].warned_3  # too few readouts


def test_a_run_of_the_study_keeps_the_weights_after_a_fifth(tmp_path):
    recipe = beside("choosing", "study")
    configs = [recipe.HERE.parent / "simclr" / "laptop.yaml", recipe.HERE / "study.yaml"]
    words = [word for path in configs for word in ("--config", str(path))]
    fewer = ["--trainer.limit_train_batches=1", "--trainer.logger.init_args.save_dir", str(tmp_path)]
    main(["fit", *words, *fewer])
    (run,) = tmp_path.glob("*/version_0")
    assert recipe._fifth(run) == run / "checkpoints" / "epoch=9.ckpt"
    resumed = run.parent / f"version_{int(run.name.removeprefix('version_')) + 1}"
    resumed.mkdir()
    (resumed / "config.yaml").write_bytes((run / "config.yaml").read_bytes())
    assert recipe._fifth(resumed) == run / "checkpoints" / "epoch=9.ckpt"


def test_the_study_on_cifar10_trains_and_diagnoses_on_one_section(tmp_path):
    recipe = beside("choosing", "study")
    options = SimpleNamespace(data="cifar10", root=tmp_path / "x", output=tmp_path / "out", more=[])
    with pytest.raises(SystemExit, match=r"Expected --root with train/<class>/\* for --data cifar10, but got .*x"):
        recipe._of_data(options)
    (tmp_path / "x" / "train").mkdir(parents=True)
    given = recipe._of_data(options)
    assert (given.root, given.output) == (None, tmp_path / "out" / "cifar10")
    section = yaml.safe_load(given.diagnosed.read_text())["data"]["init_args"]
    assert section["root"] == str(tmp_path / "x" / "train")
    words = recipe._trained(given, "epochs 60", ["--trainer.max_epochs=60"], 1).words
    assert words.count("--config") == 4
    assert words.index(str(given.diagnosed)) < words.index("--trainer.max_epochs=60")
    digits = recipe._of_data(SimpleNamespace(data="digits", root=None, output=tmp_path / "out"))
    assert digits.output == tmp_path / "out"


def test_the_gain_of_views_over_samples_is_that_of_a_linear_projector():
    scores = beside("choosing", "paper_scores")
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(2, 50, 6, generator=generator, dtype=torch.float64)
    weight = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    views = [weight.T @ (b - a) for a, b in zip(*h, strict=True)]
    pairs = [(weight.T @ (a - b), a - b) for a in h[0] for b in h[0]]
    of_views = sum(x.square().sum() for x in views) / (h[1] - h[0]).square().sum()
    of_samples = sum(x.square().sum() for x, _ in pairs) / sum(x.square().sum() for _, x in pairs)
    assert scores.secant_gain(h, h @ weight) == pytest.approx(float(of_views / of_samples), rel=1e-9)


def test_cluster_learnability_looks_at_earlier_rows_alone():
    scores = beside("choosing", "paper_scores")
    generator = torch.Generator().manual_seed(0)
    rows, cluster = torch.randn(40, 3, generator=generator), torch.randint(3, (40,), generator=generator)
    right = 0
    for k in range(1, 40):
        nearest = min(range(k), key=lambda j: float((rows[k] - rows[j]).norm()))
        right += int(cluster[nearest] == cluster[k])
    assert scores.cluster_learnability(rows, cluster) == pytest.approx(right / 39)
    apart = torch.cat([torch.zeros(20, 3), torch.full((20, 3), 9.0)]) + 0.1 * rows
    assert scores.cluster_learnability(apart, torch.arange(40) // 20) == pytest.approx(38 / 39)


def test_all_scores_of_the_papers_are_numbers():
    scores = beside("choosing", "paper_scores")
    guard = beside("choosing", "guard_fit")
    torch.manual_seed(0)
    found = scores.measured(guard.ARMS["SimCLR, tau = 1"](), DigitsDataModule(batch_size=64, seed=0))
    assert set(found) == set(scores.GOOD)
    assert all(math.isfinite(value) for value in found.values())


def test_agreement_of_scores_early_and_at_the_end():
    recipe = beside("choosing", "agreements")
    names = [f"arm {k}, seed {seed}" for k in range(6) for seed in (0, 1)]
    accuracy = {name: k // 2 / 10 + k % 2 / 100 for k, name in enumerate(names)}
    scores = (
        Score("follows", "high", {name: 2 * x for name, x in accuracy.items()}, ""),
        Score("against", "low", accuracy, ""),
        Score("near", 1.0, {name: abs(x - 0.51) + 1 for name, x in accuracy.items()}, ""),
    )
    choice = Choice(scores, accuracy, samples=100, agreements={}, within={}, left_out={}, remarks=())
    found = {row.score: row for row in recipe.agreements("the end", choice, accuracy)}
    assert list(found) == ["follows", "against", "near", "ranks of all scores", recipe.OTHER_SEEDS]
    assert found[recipe.OTHER_SEEDS].tau == pytest.approx(
        (60 - 6) / 66
    )  # right between arms, wrong between their seeds
    assert found[recipe.OTHER_SEEDS].regret == pytest.approx(0.01)
    assert found["follows"][3:7] == pytest.approx((1, 1, 1, 0))  # tau, its interval, the regret
    assert found["against"][3:7] == pytest.approx((-1, -1, -1, 0.51))
    assert found["near"].regret == pytest.approx(0)
    assert found["against"].regret_low <= found["against"].regret <= found["against"].regret_high
    # the ranks of "follows" and "against" cancel, which leaves "near"
    assert found["ranks of all scores"].tau == pytest.approx(found["near"].tau)
    assert found["near"].by_chance == pytest.approx(0.51 - np.mean(list(accuracy.values())))
    # of checkpoints: their own accuracy is a score, and a run whose end is not finite is left out
    ends = {name: -x for name, x in accuracy.items() if name != "arm 5, seed 1"}
    early = {row.score: row for row in recipe.agreements("a fifth", choice, ends)}
    assert early["accuracy"].tau == -1
    assert {row.runs for row in early.values()} == {11}
    assert recipe.OTHER_SEEDS not in early  # an arm has one seed


def test_what_a_choice_saves_is_the_accuracy_of_its_pick_beyond_the_others(tmp_path):
    paired = beside("choosing", "paired")
    runs = {
        "base, seed 0": (0.5, 3.0, 1.0, 9.0),
        "base, seed 1": (0.6, 2.0, 2.0, 1.0),
        "epochs 60, seed 0": (0.9, 1.0, 3.0, 1.0),
    }
    lines = ["model,score,value"]
    for name, values in runs.items():
        for score, value in zip(("accuracy", "InfoNCE", "Effective rank (h)", "LiDAR"), values, strict=True):
            lines.append(f'"{name}",{score},{value}')
    (tmp_path / "study_end.csv").write_text("\n".join(lines))
    whole, shorter = paired.saved(tmp_path / "study_end.csv", "digits")
    assert whole[:2] == ["digits, all runs", "3"]
    # the longest fit beyond the mean, itself, and the pick of LiDAR
    assert [cell.split()[0] for cell in whole[2:]] == ["23.3", "0.0", "40.0"]
    assert shorter == ["digits, without the longest", "2", *("5.0 [5.0, 5.0]", "0.0 [0.0, 0.0]", "10.0 [10.0, 10.0]")]
