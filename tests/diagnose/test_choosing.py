"""Models of known quality are put in order by scores, and the agreement with their accuracy is measured."""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_ssl_geometry.callbacks import GeometryMonitor, LayerGeometry
from lightning_ssl_geometry.diagnose import Choice, choose, choosing, command, diagnose, several
from lightning_ssl_geometry.diagnose.comparison import refuse_different_data, similarity
from lightning_ssl_geometry.diagnose.run_settings import run_settings
from lightning_ssl_geometry.diagnose.scores import Score
from lightning_ssl_geometry.diagnostics import Diagnostic
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import SmallCNN
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.report.choosing import choice_panels
from lightning_ssl_geometry.report.ranking import Agreement

RANKS = (1, 2, 4, 8, 16)


def network(rank, width=16):
    """Random directions of the pixels, `rank` of them: the more, the better h tells digits apart."""
    torch.manual_seed(0)
    linear = nn.Linear(64, width, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(width, rank) @ torch.randn(rank, 64))
    return nn.Sequential(nn.Flatten(), linear)


def images(count=600, labels=True):
    held = load_digits()
    x = torch.from_numpy(held.images[:count] / 16).float()[:, None]
    return (x, torch.from_numpy(held.target[:count]).long()) if labels else x


def diagnosed(folder, networks, data, callbacks=lambda: None):
    quiet = {"progress": False, "table": False, "accelerator": "cpu"}
    found = {}
    for name, each in networks.items():
        torch.manual_seed(0)  # the same views for all
        found[name] = diagnose(each, data, folder, name, callbacks=callbacks(), **quiet).folder
    return found


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    return diagnosed(folder, {f"rank {rank}": network(rank) for rank in RANKS}, images())


def test_the_rank_orders_models_that_differ_in_rank(digits):
    found = choose(digits, resamples=200)
    accuracy = [found.accuracy[f"rank {rank}"] for rank in RANKS]
    assert np.all(np.diff(accuracy) > 0)
    title = next(score.title for score in found.scores if score.title.startswith("Effective rank"))
    held = found.agreements[title]
    assert (held.tau, held.regret, held.pairs) == (1.0, 0.0, 10)
    assert held.tau_interval[0] > 0.3
    assert found.best(title) == "rank 16"
    assert found.agreements[found.scores[0].title].tau == max(each.tau for each in found.agreements.values())
    models, scores = found.models(), found.to_frame()
    assert models.index.tolist() == list(digits)
    assert models["accuracy"].tolist() == accuracy
    assert set(scores.columns) >= {"score", "best", "tau", "tau_low", "tau_high", "regret", "regret_by_chance", "pairs"}
    assert not any("Neural collapse" in title or "Label" in title for title in scores["score"])


class Spread(Diagnostic):
    """A diagnostic of somebody else."""

    quantities: ClassVar = {"": Quantity(title="Spread", low="Narrow.", high="Wide.", better="high")}

    def __init__(self):
        super().__init__()
        self.add_sums("total")

    def update(self, h):
        self.total += h.double().var()

    def compute(self):
        return self.total


class SpreadOfClasses(Spread):
    """Another one, into which labels go."""

    quantities: ClassVar = {"": Quantity(title="Spread of classes", low="Narrow.", high="Wide.", better="high")}

    def update(self, h, target):
        super().update(h[:, target == 0])


def test_diagnostics_of_others_are_scores_unless_labels_go_into_them(tmp_path):
    def callbacks():
        own, rename = {"mine": Spread(), "known": SpreadOfClasses()}, {"known": {"target": "label"}}
        return [GeometryMonitor(own, stages=["test"], rename=rename), LayerGeometry({}, stage="test")]

    found = choose(diagnosed(tmp_path, {"a": network(1), "b": network(8)}, images(), callbacks=callbacks), resamples=20)
    assert [score.title for score in found.scores] == ["Spread"]
    assert found.best("Spread") == "b"
    assert not found.left_out


def test_few_labels_give_lower_accuracies_of_the_same_samples(digits):
    few, every = choose(digits, labels=3, resamples=20), choose(digits, resamples=20)
    assert all(0.1 < few.accuracy[name] < every.accuracy[name] for name in list(digits)[1:])
    assert few.accuracy == choose(digits, labels=3, resamples=20).accuracy


def test_agreement_within_a_knob(digits):
    """Two groups by `half`; ranks are compared within each of them alone, and seeds do not count as settings."""
    settings = {f"rank {rank}": {"rank": rank, "half": rank > 4, "seed": rank} for rank in RANKS}
    found = choose(digits, settings=settings, resamples=50)
    assert set(found.within) == {"rank"}
    title = next(iter(found.within["rank"]))
    assert found.within["rank"][title].pairs == 3 + 1
    assert found.to_frame().groupby("knob").size().to_dict() == {"": len(found.scores), "rank": len(found.scores)}


def test_without_labels_nothing_says_how_far_to_trust_a_score(tmp_path):
    found = choose(diagnosed(tmp_path, {"a": network(2), "b": network(8)}, images(64, labels=False)))
    assert found.accuracy is None
    assert not found.agreements
    assert any("no labels" in remark for remark in found.remarks)
    assert found.best(next(score.title for score in found.scores if score.title.startswith("Effective rank"))) == "b"
    with pytest.raises(ValueError, match="Expected `labels` None for samples without labels, but got 5"):
        choose(diagnosed(tmp_path, {"a": network(2), "b": network(8)}, images(64, labels=False)), labels=5)


def test_models_of_other_widths_are_not_compared_by_what_depends_on_the_width(tmp_path):
    found = choose(diagnosed(tmp_path, {"a": network(2), "b": network(2, width=32)}, images(200)), resamples=20)
    rank = next(title for title in found.left_out if title.startswith("Effective rank"))
    assert found.left_out[rank] == "not comparable between models that differ in width"
    assert any("2 models are too few" in remark for remark in found.remarks)
    assert not found.agreements  # tau would be 1 or -1
    assert rank not in {score.title for score in found.scores}


def test_scores_that_cannot_be_compared_are_taken_where_asked(tmp_path, capsys):
    models = {"a": network(2), "b": network(2, width=32)}
    folders = diagnosed(tmp_path, models, images(200))
    strict, found = (choose(folders, incomparable=asked, resamples=20) for asked in (False, True))
    (remark,) = (each for each in found.remarks if each.startswith("Taken, although they cannot be compared"))
    more = {score.title for score in found.scores} - {score.title for score in strict.scores}
    assert more == {title for title, why in strict.left_out.items() if why.startswith("not comparable")}
    assert all(title in remark and title not in found.left_out for title in more)
    assert not any("Taken" in each for each in strict.remarks)
    marked = {row["score"]: row["incomparable"] for row in found.score_rows()}
    assert {title for title, why in marked.items() if why} == more
    assert all(why == strict.left_out[title] for title, why in marked.items() if why)
    with pytest.raises(ValueError, match=r"was left out: not comparable .* `incomparable` takes scores"):
        strict.best(min(more))
    words = [f"{name}={folder}" for name, folder in folders.items()]
    for asked in ([], ["--incomparable"]):
        command.run_choose([*words, "--output", str(tmp_path / "chosen"), *asked])
        said = " ".join(capsys.readouterr().out.split())
        assert ("Taken, although they cannot be compared between these models" in said) is bool(asked)


def test_if_no_score_can_be_compared_the_reasons_are_said(tmp_path, capsys, monkeypatch):
    folders = diagnosed(tmp_path, {"a": network(2), "b": network(2, width=32)}, images(200))
    everything = choosing.scores

    def widths_matter(view, *, incomparable=False):
        found, left_out = everything(view, incomparable=True)
        return [], left_out | {score.title: "not comparable between models that differ in width" for score in found}

    monkeypatch.setattr(choosing, "scores", widths_matter)
    with pytest.raises(ValueError, match=r"Expected a score for these models, but all are left .*differ in width"):
        choose(folders, resamples=20).best()
    words = [f"{name}={folder}" for name, folder in folders.items()]
    command.run_choose([*words, "--output", str(tmp_path / "chosen")])
    said = capsys.readouterr().out
    assert "No score has comparable values for all of these models.\n" in said
    assert "take scores that cannot be compared, too, by --incomparable.\n" in said
    with pytest.raises(ValueError, match="Expected `incomparable` to be True or False, but got 'false'"):
        choose(folders, incomparable="false")


def test_a_star_marks_scores_that_cannot_be_compared():
    agreement = Agreement(0.5, (0.1, 0.8), regret=0.02, regret_interval=(0.0, 0.1), by_chance=0.05, pairs=6)
    both, goodness = {"Rank": agreement, "Loss": agreement}, {"Rank": {"a": 1.0}, "Loss": {"a": 0.0}}
    tau, regret, places, _, within = choice_panels(
        goodness, {"a": 0.5}, 100, agreements=both, within={"model.width": both}, incomparable={"Rank"}
    )
    assert "Rank*: a; Loss: a" in places.label
    for panel in (tau, regret, within):
        assert "Rank* " in panel.label
        assert "Loss " in panel.label
        assert panel.remark.endswith("*: a score that cannot be compared between these models.")
    assert not any("*" in panel.remark for panel in choice_panels(goodness, {"a": 0.5}, 100, agreements=both))


def test_seeds_of_one_setting_count_once(digits):
    settings = {f"rank {rank}": {"rank": min(rank, 4), "seed": rank} for rank in RANKS}
    found = choose(digits, settings=settings, resamples=20)
    assert (found.agreements, found.within) == ({}, {})
    assert any("3 settings are too few" in remark for remark in found.remarks)
    assert len(found.table().columns) == 3
    seeds = choose(digits, settings={name: {"seed": place} for place, name in enumerate(digits)}, resamples=20)
    assert any("1 settings are too few" in remark for remark in seeds.remarks)
    numbers = {name: {"t": 1 if place % 2 else 1.0} for place, name in enumerate(digits)}
    assert any("1 settings are too few" in remark for remark in choose(digits, settings=numbers, resamples=20).remarks)


def test_a_model_without_settings_is_in_no_group(digits):
    settings = {f"rank {rank}": {"rank": rank} for rank in RANKS[1:]}
    found = choose(digits, settings=settings, resamples=20)
    assert next(iter(found.within["rank"].values())).pairs == 6
    with pytest.raises(ValueError, match=r"Expected `settings` of rank 1, .*, but got 'rank 3'"):
        choose(digits, settings={"rank 3": {}})


def test_the_settings_of_a_foreign_folder_are_not_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text("seed_everything: 1\nmodel: {a: 1}\n")
    assert run_settings("timm:resnet18") is None
    (tmp_path / "config.yaml").write_text("site: !include x\n")
    assert run_settings(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"resamples": 0}, "Expected `resamples` to be an integer >= 1, but got 0"),
        ({"labels": 0}, "Expected `labels` to be an integer >= 1, but got 0"),
        ({"labels": 500}, "Expected `labels` below [0-9]+, the samples of the smallest class, but got 500"),
        ({"seed": "a"}, "Expected `seed` to be an integer"),
        ({"settings": {"m": 3}}, "Expected `settings` to hold Mappings, but 'm' is of type int"),
        ({"settings": [1]}, "Expected `settings` to be a dict of names and Mappings, but got a list"),
        ({"layer": "g"}, "Expected `layer` 'g' in the diagnosis of 'rank 1', but it has h"),
        ({"layer": "label"}, "Expected `layer` 'label' in the diagnosis of 'rank 1', but it has h"),
        ({"seed": -1}, "Expected `seed` to be an integer >= 0, but got -1"),
        ({"seed": 2**32}, r"Expected `seed` in \[0, 4294967295\], but got 4294967296"),
        ({"diagnoses": None}, "Expected `diagnoses` to be a dict of names and folders, but got a NoneType"),
        ({"diagnoses": {"a": None}}, r"Expected `diagnoses\['a'\]` to be a path, but got"),
    ],
)
def test_bad_arguments(digits, arguments, message):
    with pytest.raises(ValueError, match=message):
        choose(**{"diagnoses": digits} | arguments)


def test_keys_of_settings_may_be_numbers_and_folders_may_hold_versions(digits):
    above = {name: Path(folder).parent for name, folder in digits.items()}
    found = choose(above, settings={"rank 1": {1: 2}}, resamples=5)
    assert found.accuracy == choose(digits, resamples=5).accuracy


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (lambda label: torch.where(label == 3, -1, label), "Expected labels >= 0, but 62 of 600 are below"),
        (lambda label: label * 0 + 7, "Expected labels of at least 2 classes, but all are 7"),
    ],
)
@pytest.mark.filterwarnings("ignore:GeometryMonitor, diagnostic")
def test_labels_that_no_classifier_learns(label, message, tmp_path):
    x, known = images()
    folders = diagnosed(tmp_path, {"a": network(2), "b": network(8)}, (x, label(known)))
    with pytest.raises(ValueError, match=message):
        choose(folders, resamples=5)


def test_large_labels_take_no_memory(tmp_path):
    x, label = images(200)
    choose(diagnosed(tmp_path, {"a": network(2), "b": network(8)}, (x, label * 2**40)), resamples=5)


def test_an_unknown_score_is_named_with_the_known_ones(digits):
    with pytest.raises(ValueError, match=r"Expected `by` to name a score, but got 'RankMe'\..*Effective rank"):
        choose(digits, resamples=5).best("RankMe")


def test_images_that_no_model_would_see_are_refused(digits, tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.run_choose([*map(str, digits.values()), "--output", str(tmp_path / "out"), "--images", str(tmp_path)])
    assert "Expected no --images: all models are folders of earlier diagnoses" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_command_writes_tables_and_a_page(digits, tmp_path, capsys):
    words = [f"{name.replace(' ', '_')}={folder}" for name, folder in digits.items()]
    command.run_choose([*words, "--output", str(tmp_path), "--labels", "5"])
    said = capsys.readouterr().out
    assert "By the linear classifier: rank_16 (accuracy " in said
    assert "Effective rank" in said
    page = (tmp_path / "comparison.html").read_text()
    assert '<p class="advice">By the linear classifier: rank_16 (accuracy ' in page
    assert " Left out: " in page
    assert '<a href="#choosing">Which one to choose</a></p>' in page
    names = ("choosing_tau", "choosing_regret", "choosing_accuracy", "between_models")
    places = [page.index(f'id="figure-{name}"') for name in names]
    assert places == sorted(places)
    assert len((tmp_path / "choose_models.csv").read_text().splitlines()) == 1 + len(RANKS)
    assert (tmp_path / "choose_scores.csv").read_text().startswith("knob,score,good,best,tau")
    assert "drawn at random costs" in " ".join(said.split())
    (tmp_path / "trust.yaml").write_text("trust: true\n")
    with pytest.raises(SystemExit):
        command.run_choose([*words, "--output", str(tmp_path), "--config", str(tmp_path / "trust.yaml")])
    assert "Expected --trust on the command line alone, but got it in a file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.run_choose([*words, "--output", str(tmp_path), "--by", "nothing"])
    assert "to name a score, but got 'nothing'" in capsys.readouterr().err


def test_the_settings_of_a_run_are_those_of_its_model_data_and_length(tmp_path):
    config = """
seed_everything: 3
trainer: {max_epochs: 5, callbacks: [x]}
model: {class_path: a.B, init_args: {temperature: 0.1, backbone: {class_path: c.D, init_args: {width: 8}}}}
data: {class_path: e.F, init_args: {root: somewhere, seed: 3}}
"""
    (tmp_path / "config.yaml").write_text(config)
    found = run_settings(str(tmp_path))
    assert found == {
        "seed_everything": 3,
        "model": "a.B",
        "model.temperature": 0.1,
        "model.backbone": "c.D",
        "model.backbone.width": 8,
        "data": "e.F",
        "data.root": "somewhere",
        "data.seed": 3,
        "trainer.max_epochs": 5,
    }
    assert run_settings("timm:resnet18") is None


def test_the_settings_of_the_newest_version_are_taken_as_its_weights_are(tmp_path):
    for version in (2, 10):
        (tmp_path / f"version_{version}").mkdir()
        (tmp_path / f"version_{version}" / "config.yaml").write_text(f"model: {{a: {version}}}\n")
    assert run_settings(str(tmp_path)) == {"model.a": 10}


def test_a_checkpoint_is_a_setting_and_places_far_above_are_not_read(tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (tmp_path / "config.yaml").write_text("model: {a: 1}\ntrainer: {precision: 16-mixed}\ndata: {root: here}\n")
    for place in (folder / "last.ckpt", tmp_path / "other.ckpt"):
        place.write_bytes(b"")
    both = {"model.a": 1, "trainer.precision": "16-mixed", "data.root": "here"}
    assert run_settings(str(folder / "last.ckpt")) == {"checkpoint": "last"} | both
    assert run_settings(str(tmp_path / "other.ckpt")) == {"checkpoint": "other"} | both
    assert run_settings(str(folder)) is None
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "x.ckpt").write_bytes(b"")
    assert run_settings(str(tmp_path / "deep" / "x.ckpt")) is None
    assert run_settings(str(tmp_path / "deep" / "er")) is None


def test_a_model_whose_outputs_are_not_finite_is_left_out_alone(digits, tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(digits["rank 4"], folder)
    held = dict(np.load(folder / "representations.npz"))
    held["h"][3] = np.nan
    np.savez(folder / "representations.npz", **held)
    found = choose(digits | {"broken": folder}, resamples=20)
    assert set(found.accuracy) == set(digits)
    assert "Left out: broken: its outputs of h are not finite." in found.remarks
    assert found.scores
    with pytest.raises(ValueError, match="at least 2 models with finite outputs of `layer` 'h', but got 1 of 2"):
        choose({"broken": folder, "rank 1": digits["rank 1"]})


def test_a_broken_file_of_outputs_is_named(digits, tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(digits["rank 4"], folder)
    path = folder / "representations.npz"
    whole = path.read_bytes()
    for part in (whole[: len(whole) // 2], b"", whole[:2000] + bytes(500) + whole[2500:]):
        path.write_bytes(part)
        with pytest.raises(ValueError, match=r"outputs of 'broken' in .*npz, but the file is broken"):
            choose({"rank 1": digits["rank 1"], "broken": folder})


def test_models_with_the_same_value_are_all_named(digits):
    found = choose({"one": digits["rank 4"], "two": digits["rank 4"], "three": digits["rank 1"]}, resamples=5)
    title = next(score.title for score in found.scores if score.title.startswith("Effective rank"))
    assert found.best(title) == "one"
    console = Console(width=200, file=io.StringIO())
    console.print(found.table())
    assert "one or two" in console.file.getvalue()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    data = load_digits()
    for place, image in enumerate(data.images[:40]):
        (folder / str(data.target[place])).mkdir(exist_ok=True)
        Image.fromarray((image * 15.9).astype("uint8")).save(folder / str(data.target[place]) / f"{place}.png")
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--by", "nothing"], "Expected --by to name a score, but got 'nothing'"),
        (["--labels", "400"], "Expected --labels below "),
    ],
)
def test_what_one_diagnosis_shows_is_said_after_one(tmp_path, saved, capsys, words, said):
    (tmp_path / "net.yaml").write_text("model: {class_path: lightning_ssl_geometry.nn.SmallCNN}")
    models = [f"{name}={tmp_path / 'net.yaml'}" for name in ("a", "b")]
    with pytest.raises(SystemExit):
        command.run_choose(
            [
                *models,
                "--images",
                str(saved),
                "--image_size",
                "8",
                "--output",
                str(tmp_path / "out"),
                "--progress",
                "false",
                *words,
            ]
        )
    assert said in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")] == ["a"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--labels", "-1"], "Expected --labels to be an integer >= 1, but got -1"),
        (["--labels", "ten"], "error: --labels: Expected an integer, but got ten"),
        (["--images", "3"], "at least 4 samples, which CKA between models needs, but got 3"),
        (["--images", "broken"], "Expected --images to have whole images only, but "),
        (["--seed_everything", "-1"], "Expected --seed_everything in [0, 4294967295], but got -1"),
        (["--batch_size", "0"], "Expected --batch_size to be an integer >= 1, but got 0"),
        (["--image_size", "0"], "Expected --image_size to be an integer >= 1, but got 0"),
        (["--output", "net.yaml/runs"], "net.yaml is a file."),
    ],
)
def test_numbers_out_of_range_are_said_before_any_work(tmp_path, saved, capsys, words, said):
    (tmp_path / "net.yaml").write_text("model: {class_path: lightning_ssl_geometry.nn.SmallCNN}")
    few, broken = tmp_path / "3", tmp_path / "broken"
    for place, file in enumerate(sorted(saved.glob("*/*.png"))[:3]):
        few.mkdir(exist_ok=True)
        shutil.copy(file, few / f"{place}.png")
    broken.mkdir()
    (broken / "gone.png").symlink_to(broken / "nowhere.png")
    words = [str(tmp_path / word) if word in ("3", "broken", "net.yaml/runs") else word for word in words]
    given = ["--images", str(saved), "--image_size", "8", "--output", str(tmp_path / "out"), *words]
    with pytest.raises(SystemExit):
        command.run_choose([f"a={tmp_path / 'net.yaml'}", f"b={tmp_path / 'net.yaml'}", *given])
    assert said in capsys.readouterr().err


def test_labels_may_stand_in_any_of_the_diagnoses_but_may_not_differ(tmp_path):
    nets, (x, label) = {"a": network(2), "b": network(8)}, images(200)
    folders = diagnosed(tmp_path / "without", {"a": nets["a"]}, DataLoader(TensorDataset(x), batch_size=64))
    folders |= diagnosed(tmp_path / "with", {"b": nets["b"]}, DataLoader(TensorDataset(x, label), batch_size=64))
    data = {name: json.loads((folder / "run.json").read_text())["data"] for name, folder in folders.items()}
    assert data["a"] == data["b"]
    assert choose(folders, resamples=20).accuracy is not None
    other = diagnosed(tmp_path / "other", {"a": nets["a"]}, DataLoader(TensorDataset(x, 1 - label % 2), batch_size=64))
    with pytest.raises(ValueError, match="Expected diagnoses with the same labels, but those of 'a' and 'b' differ"):
        choose(other | {"b": folders["b"]})


def test_models_are_compared_on_the_same_pixels_of_a_folder(tmp_path, saved):
    folder = tmp_path / "images"
    shutil.copytree(saved, folder)
    quiet = {"progress": False, "table": False, "accelerator": "cpu", "image_size": 8}
    one = diagnose(SmallCNN(3, 2), folder, tmp_path / "out", "one", **quiet)
    same = diagnose(SmallCNN(3, 2), folder, tmp_path / "out", "same", normalization=([0.5] * 3, [0.1] * 3), **quiet)
    assert similarity({"one": one.folder, "same": same.folder}).shape == (2, 2)
    for file in folder.glob("*/*.png"):
        Image.fromarray(255 - np.asarray(Image.open(file))).save(file)
    other = diagnose(SmallCNN(3, 2), folder, tmp_path / "out", "other", **quiet)
    with pytest.raises(ValueError, match=r"of the same data, but .* checksum"):
        similarity({"one": one.folder, "other": other.folder})


@pytest.mark.parametrize("name", ["comparison.html", "choose_models.csv", "choose_scores.csv"])
def test_files_of_others_are_not_overwritten(digits, tmp_path, capsys, name):
    words = [f"{name.replace(' ', '_')}={folder}" for name, folder in digits.items()]
    command.run_choose([*words, "--output", str(tmp_path)])
    command.run_choose([*words, "--output", str(tmp_path)])  # its own are
    (tmp_path / name).write_text("mine")
    with pytest.raises(SystemExit):
        command.run_choose([*words, "--output", str(tmp_path)])
    assert f"Expected no file {tmp_path / name}, or one of an earlier command" in capsys.readouterr().err
    assert (tmp_path / name).read_text() == "mine"


def test_a_table_of_models_of_somebody_else_is_not_overwritten(digits, tmp_path, capsys):
    (mine := tmp_path / "choose_models.csv").write_text("model,year\nfiat,1998\n")
    with pytest.raises(SystemExit):
        command.run_choose([*(f"{n.replace(' ', '_')}={f}" for n, f in digits.items()), "--output", str(tmp_path)])
    assert f"Expected no file {mine}, or one of an earlier command" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [mine.name]
    assert mine.read_text() == "model,year\nfiat,1998\n"


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil"])
def test_a_name_stays_in_the_folder(tmp_path, name):
    with pytest.raises(ValueError, match="Expected `name` to be the name of a folder in"):
        diagnose(network(2), images(8), tmp_path / "out", name)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"Expected `output` to be a folder, but .*file is a file"):
        diagnose(network(2), images(8), tmp_path / "file" / "below")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def with_settings(digits, folder):
    """The diagnoses of `digits`, as if they were those of training runs that differ in one setting."""
    found = {}
    for name, place in digits.items():
        found[name] = folder / name.replace(" ", "_") / "version_0"
        shutil.copytree(place, found[name])
        record = json.loads((found[name] / "run.json").read_text())
        record["settings"] = {"model.rank": int(name.split()[1]), "seed_everything": 0}
        (found[name] / "run.json").write_text(json.dumps(record))
    return found


def test_the_settings_that_a_diagnosis_holds_are_taken(digits, tmp_path):
    given = {f"rank {rank}": {"model.rank": rank} for rank in RANKS}
    found = choose(with_settings(digits, tmp_path), resamples=20)
    assert found.within == choose(digits, settings=given, resamples=20).within
    assert set(found.within) == {"model.rank"}
    assert not any("are not known" in remark for remark in found.remarks if "settings" in remark)
    said = "The settings of these models are not known: models that differ in the seed alone count as different ones."
    assert said in choose(digits, resamples=20).remarks
    mixed = with_settings(digits, tmp_path / "again") | {"rank 1": digits["rank 1"]}
    assert any("The settings of rank 1 are not known" in remark for remark in choose(mixed, resamples=20).remarks)
    assert not choose(with_settings(digits, tmp_path / "third"), settings={}, resamples=20).within


def test_a_setting_has_a_table_and_a_figure_of_its_own(digits, tmp_path):
    found = choose(with_settings(digits, tmp_path), resamples=20)
    console = Console(width=80, file=io.StringIO())
    for table in found.tables():
        console.print(table)
    said = console.file.getvalue()
    assert "Among runs that differ in one setting alone" in said
    assert "model.rank" in said.replace("\n", "")
    held = max(found.within["model.rank"].values(), key=lambda each: each.tau)
    assert f"{held.tau:.2f} [{held.tau_interval[0]:.2f}, {held.tau_interval[1]:.2f}]" in said  # in one line
    names = [panel.name for panel in found.panels()]
    assert names == ["choosing_tau", "choosing_regret", "choosing_places", "choosing_accuracy", "choosing_tau_1"]
    places = found.panels()[2]
    first = found.scores[0].title
    assert f"{first}: {' or '.join(found.picks(first))}" in places.label
    assert [places.numbers.header[-1], min(row[-1] for row in places.numbers.rows)] == ["place", 1]


def test_a_folder_of_one_diagnosis_is_that_diagnosis(digits, tmp_path, capsys):
    held = with_settings(digits, tmp_path / "held")
    command.run_choose([*(f"{name.replace(' ', '_')}={folder.parent}" for name, folder in held.items()),
                        "--output", str(tmp_path / "out")])  # fmt: skip
    assert "By the linear classifier: rank_16 (accuracy " in capsys.readouterr().out
    record = held["rank 4"] / "run.json"
    for content in ("{", None):
        if content is None:
            record.unlink()
        else:
            record.write_text(content)
        with pytest.raises(SystemExit):
            command.run_choose([*map(str, held.values()), "--output", str(tmp_path / "out")])
        assert f"Expected {record} to be the record of a diagnosis, but it is missing or" in capsys.readouterr().err


def test_damaged_numbers_are_named(digits, tmp_path):
    for file in ("metrics.csv", "geometry/quantities.json"):
        folder = tmp_path / file.replace("/", "_") / "damaged"
        shutil.copytree(digits["rank 4"], folder)
        (folder / file).write_bytes(b"\x00\xff")
        with pytest.raises(ValueError, match=f"numbers of 'damaged' in .*damaged, but {file} is missing or broken"):
            choose({"damaged": folder, "rank 1": digits["rank 1"]})


def test_a_pick_comes_with_how_far_to_trust_it(digits):
    found = choose(digits, resamples=50)
    best = found.accuracy["rank 16"]
    error = (best * (1 - best) / 600) ** 0.5
    said = f"By the linear classifier: rank 16 (accuracy {100 * best:.1f}%, standard error {100 * error:.1f})."
    assert found.advice()[0] == said
    near = replace(found, accuracy=found.accuracy | {"rank 8": best - 0.9 * error, "rank 4": best - 1.1 * error})
    assert near.advice()[0] == said.replace(").", ", and rank 8 within this error of it).")
    no_agreement = Agreement(0.0, (-1.0, 1.0), regret=0.0, regret_interval=(0.0, 1.0), by_chance=0.1, pairs=10)
    none = replace(found, agreements=dict.fromkeys(found.agreements, no_agreement))
    assert none.advice(found.scores[0].title)[-1].startswith("But no score has been shown to order these models")
    assert none.advice()[1:] == ["No score agrees with it: the highest tau is 0.00. So none of their picks is named."]
    first, *_, last = [score.title for score in found.scores]
    order = Agreement(1.0, (0.5, 1.0), regret=0.0, regret_interval=(0.0, 0.0), by_chance=0.1, pairs=10)
    one = replace(found, agreements=dict.fromkeys(found.agreements, order) | {last: no_agreement})
    assert len(one.advice(first)) == 2
    assert one.advice(last)[-1].startswith("But this score has not been shown")
    two = choose({name: digits[name] for name in ("rank 1", "rank 4")})
    worst = max(two.scores, key=lambda score: two.accuracy["rank 4"] - two.accuracy[two.best(score.title)]).title
    lost = 100 * (two.accuracy["rank 4"] - two.accuracy[two.best(worst)])
    assert f"this choice costs {lost:.1f} points of accuracy." in two.advice(worst)[-1]
    *_, votes, trust = replace(two, accuracy=None).advice()
    assert trust == "Nothing says how far to trust this."
    picked = [score.goodness["rank 4"] > score.goodness["rank 1"] for score in two.scores]
    name, count = max(("rank 4", sum(picked)), ("rank 1", len(picked) - sum(picked)), key=lambda pair: pair[1])
    assert votes == f"{name} is picked by {count} of {len(picked)} scores, more than any other."
    nothing = replace(found, scores=(), left_out={"Loss": "not comparable between models that differ in width"})
    assert nothing.advice()[1] == "No score has comparable values for all of these models."
    assert "by `incomparable`" in nothing.advice()[2]


def test_what_was_diagnosed_before_an_interruption_can_be_used(saved, tmp_path, capsys, monkeypatch):
    (tmp_path / "net.yaml").write_text("model: {class_path: lightning_ssl_geometry.nn.SmallCNN}")
    models = [f"{name}={tmp_path / 'net.yaml'}" for name in ("a", "b")]
    (tmp_path / "flat").mkdir()
    for file in saved.glob("*/*.png"):
        shutil.copy(file, tmp_path / "flat")
    given = ["--images", str(tmp_path / "flat"), "--image_size", "8", "--output", str(tmp_path / "out")]
    given += ["--progress", "false"]
    diagnose_one, begun = several._diagnosed, []

    def interrupted(name, *further, **options):
        begun.append(name)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return diagnose_one(name, *further, **options)

    monkeypatch.setattr(several, "_diagnosed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command.run_choose([*models, *given])
    said = capsys.readouterr().err
    assert f"1 of 2 models are diagnosed. To go on from here, name a={tmp_path}/out/a/version_0 b={tmp_path}" in said
    words = said.partition("here, name ")[2].split()
    capsys.readouterr()
    command.run_choose([*words, *given])
    assert begun == ["a", "b", "a", "b"]
    assert [path.name for path in sorted((tmp_path / "out/a").iterdir())] == ["version_0"]
    assert "The numbers:" in capsys.readouterr().out


def test_a_message_names_what_this_command_has(saved, tmp_path, capsys):
    (tmp_path / "net.yaml").write_text("model: {class_path: lightning_ssl_geometry.nn.SmallCNN}")
    models = [f"{name}={tmp_path / 'net.yaml'}" for name in ("../a", "b")]
    given = ["--images", str(saved), "--image_size", "8", "--output", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        command.run_choose([*models, *given])
    assert "Expected the name of a model to be the name of a folder in" in capsys.readouterr().err


def test_the_same_number_is_one_score(tmp_path):
    models = {str(rank): SimCLRModule(network(rank), nn.Linear(16, 8)) for rank in (1, 4)}
    folders = diagnosed(tmp_path, models, images(100))
    assert "Exact form with entropy" in (folders["1"] / "geometry" / "quantities.json").read_text()
    found = choose(folders, resamples=5, incomparable=True)
    titles = {score.title for score in found.scores} | set(found.left_out)
    assert "InfoNCE" in titles
    assert "Exact form with entropy" not in titles


def test_folders_and_files_in_each_others_place_are_named(digits, tmp_path, capsys):
    (tmp_path / "file").touch()
    (tmp_path / "out" / "comparison.html").mkdir(parents=True)
    for output, said in (("file", "to be a folder"), ("file/x", "to be a folder"), ("out", "Expected no folder")):
        with pytest.raises(SystemExit):
            command.run_choose([*map(str, digits.values()), "--output", str(tmp_path / output)])
        assert said in capsys.readouterr().err


def test_good_values_are_said_in_words():
    decay = Score("decay", 1.0, {"one": 1.2, "another": 0.5}, source="")
    found = Choice((decay,), None, samples=0, agreements={}, within={}, left_out={}, remarks=())
    assert (found.score_rows()[0]["good"], found.best()) == ("near 1", "one")


def test_the_same_model_twice_counts_once(digits, tmp_path):
    names = ("rank 1", "rank 4", "rank 16")
    found = choose({name: digits[name] for name in names} | {"again": digits["rank 16"]})
    assert "rank 16 and again have the same outputs, and count as one." in found.remarks
    assert any("3 settings are too few for a rank correlation" in remark for remark in found.remarks)
    assert not found.agreements
    assert {row["best"] for row in found.score_rows()} & {"rank 16 or again"}


def test_models_that_lack_a_score_are_named(digits, tmp_path):
    lacking = tmp_path / "lacking" / "version_0"
    shutil.copytree(digits["rank 4"], lacking)
    header, *rows = (lacking / "metrics.csv").read_text().splitlines()
    at = header.split(",").index("test/lidar")
    rows = [",".join("" if place == at else cell for place, cell in enumerate(row.split(","))) for row in rows]
    (lacking / "metrics.csv").write_text("\n".join([header, *rows, ""]))
    left_out = choose({"rank 1": digits["rank 1"], "lacking": lacking}).left_out
    assert left_out["LiDAR"] == "lacking lacks it"


def test_runs_of_which_only_the_views_differ_are_told_to_share_them():
    seen = {"a": {"data": "Digits", "views": "weak"}, "b": {"data": "Digits", "views": "strong"}}
    with pytest.raises(ValueError, match="same views, but those of 'a' and 'b' differ"):
        refuse_different_data(seen, "Share the images.", of_views="Share them.")
    seen["b"]["data"] = "Photographs"
    with pytest.raises(ValueError, match=r"'a' and 'b' differ\. Share the images"):
        refuse_different_data(seen, "Share the images.", of_views="Share them.")
