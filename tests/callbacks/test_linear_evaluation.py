import warnings

import pandas as pd
import pytest
import torch
from hosts import PlainHost, loader, quiet
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import nn

from lightning_ssl_geometry.callbacks import LinearEvaluation
from lightning_ssl_geometry.data import DigitsDataModule, LatentDGPDataModule
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import SmallCNN


def data():
    return DigitsDataModule(batch_size=100, subset=400)


def simclr():
    torch.manual_seed(0)
    return SimCLRModule(SmallCNN(1, 8, "group"), nn.Linear(64, 8))


def fit(folder, callback, **arguments):
    trainer = quiet(folder, callbacks=[callback], **arguments)
    trainer.fit(simclr(), datamodule=data())
    return trainer


def accuracy(trainer, features):
    """scikit-learn's, fitted on the training split's features and scored on the test split's."""
    x, y = {}, {}
    for split in ("train", "test"):
        batches = [
            trainer.datamodule.on_after_batch_transfer(batch, 0)
            for batch in trainer.datamodule.unaugmented_dataloader(split)
        ]
        with torch.no_grad():
            x[split] = torch.cat([features(batch["image"]) for batch in batches]).numpy()
        y[split] = torch.cat([batch["label"] for batch in batches]).numpy()
    scaler = StandardScaler().fit(x["train"])
    judge = LogisticRegression(max_iter=100, tol=1e-3).fit(scaler.transform(x["train"]), y["train"])
    return judge.score(scaler.transform(x["test"]), y["test"])


def test_it_is_scikit_learns_accuracy_on_each_kind_of_features(tmp_path):
    callback = LinearEvaluation(labels_per_class=[None])
    trainer = fit(tmp_path, callback, max_epochs=2)
    found = {row["features"]: row["accuracy"] for row in callback.rows}
    assert found["pixels"] == pytest.approx(accuracy(trainer, lambda image: image.flatten(1)))
    assert found["frozen"] == pytest.approx(accuracy(trainer, simclr()))
    assert found["trained"] == pytest.approx(accuracy(trainer, trainer.lightning_module))
    frame = pd.read_csv(tmp_path / "linear_evaluation.csv")
    assert frame["features"].tolist() == ["pixels", "frozen", "trained"]
    assert frame["train_size"].tolist() == [360] * 3
    assert frame["test_size"].tolist() == [359] * 3
    assert frame["feature_dim"].tolist() == [64] * 3
    assert frame["accuracy_std"].isna().all()
    assert frame["iterations"].between(2, 100).all()


@pytest.mark.parametrize(("max_iter", "stopped"), [(3, ["pixels", "frozen", "trained"]), (1000, [])])
def test_a_classifier_that_stops_before_it_converges_is_named(max_iter, stopped, tmp_path):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fit(tmp_path, LinearEvaluation(labels_per_class=[None, 5], repeats=2, max_iter=max_iter))
    said = [str(each.message) for each in found if "max_iter" in str(each.message)]
    expected = "LinearEvaluation: the classifier of {!r} stopped at its `max_iter` of 3 iterations. Its accuracy"
    assert [each.partition(" may")[0] for each in said] == [expected.format(name) for name in stopped for _ in (1, 2)]


def test_repeated_channels_are_one_pixel(tmp_path):
    callback = LinearEvaluation(labels_per_class=[None])
    trainer = quiet(tmp_path, callbacks=[callback])
    trainer.fit(SimCLRModule(SmallCNN(3, 8), nn.Linear(64, 8)), datamodule=DigitsDataModule(100, channels=3))
    assert [row["feature_dim"] for row in callback.rows] == [64, 64, 64]


def test_layers_of_the_backbone_and_the_projector_are_judged_when_the_fit_ends(tmp_path):
    layers = ["backbone", "projector", "backbone.5", "projector.0"]
    callback = LinearEvaluation(labels_per_class=[None, 10], repeats=2, features=["trained"], layers=layers)
    torch.manual_seed(0)
    projector = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 8))
    trainer = quiet(tmp_path, callbacks=[callback], max_epochs=2)
    trainer.fit(SimCLRModule(SmallCNN(1, 8, "group"), projector), datamodule=data())
    module = trainer.lightning_module
    whole = {row["features"]: row for row in callback.rows if row["labels_per_class"] == "all"}
    assert list(whole) == ["trained", *layers]
    assert [row["feature_dim"] for row in whole.values()] == [64, 64, 8, 16, 16]
    assert whole["backbone"]["accuracy"] == whole["trained"]["accuracy"]
    block = nn.Sequential(*list(module.backbone)[:6])
    for name, features in {
        "projector": lambda x: projector(module(x)),
        "projector.0": lambda x: projector[0](module(x)),
        "backbone.5": lambda x: block(x).mean((2, 3)),
    }.items():
        assert whole[name]["accuracy"] == pytest.approx(accuracy(trainer, features)), name
    frame = pd.read_csv(tmp_path / "linear_evaluation.csv")
    assert frame["features"].tolist() == [name for name in ["trained", *layers] for _ in range(2)]


def test_layers_alone_and_again(tmp_path):
    callback = LinearEvaluation(labels_per_class=[None], features=[], layers=["projector"])
    fit(tmp_path / "first", callback)
    fit(tmp_path / "second", callback)
    assert [row["features"] for row in callback.rows] == ["projector"]


def test_a_foreign_module_has_layers_in_its_forward(tmp_path):
    class Host(PlainHost):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.ReLU())

        def training_step(self, batch, batch_idx):
            return self(batch["views"][0]).square().mean()

        def validation_step(self, batch, batch_idx):
            pass

    callback = LinearEvaluation(labels_per_class=[None], features=["trained"], layers=["trunk.1", "head"])
    quiet(tmp_path, callbacks=[callback]).fit(Host(), datamodule=data())
    assert [row["feature_dim"] for row in callback.rows] == [4, 10, 4]
    assert callback.rows[0]["accuracy"] == callback.rows[2]["accuracy"]


@pytest.mark.parametrize("features", [["trained"], ["trained", "frozen"]])
def test_only_the_chosen_features_are_judged(tmp_path, features):
    callback = LinearEvaluation(labels_per_class=[None], features=features)
    fit(tmp_path, callback)
    assert {row["features"] for row in callback.rows} == set(features)


def test_the_full_batch_solver_scores_the_same(tmp_path):
    tables = []
    for solver in ("sklearn", "full-batch"):
        callback = LinearEvaluation(labels_per_class=[None, 5], repeats=2, features=["frozen"], solver=solver)
        fit(tmp_path / solver, callback)
        tables.append(callback.rows)
    for theirs, ours in zip(*tables, strict=True):
        assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=0.01)
        assert ours["train_size"] == theirs["train_size"]


def test_half_precision(tmp_path):
    callback = LinearEvaluation(labels_per_class=[None])
    fit(tmp_path, callback, precision="bf16-true")
    assert [row["features"] for row in callback.rows] == ["pixels", "frozen", "trained"]
    assert all(row["accuracy"] > 0.3 for row in callback.rows)


def test_few_labels_per_class(tmp_path):
    callback = LinearEvaluation(labels_per_class=[5], repeats=3, split="val")
    fit(tmp_path, callback)
    for row in callback.rows:
        assert row["train_size"] == 50
        assert row["test_size"] == 40
        assert row["repeats"] == 3
        assert 0 < row["accuracy_std"] < 0.2
        assert row["accuracy"] > 0.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "train"}, r"`split` to be one of \('val', 'test'\), but got 'train'"),
        ({"labels_per_class": [0]}, r"`labels_per_class` of None or numbers >= 1, but got \[0\]"),
        ({"features": ["voxels"]}, r"`features` to be of \('pixels', 'frozen', 'trained'\), but got \['voxels'\]"),
        ({"features": []}, r"`features` to be of .*, but got \[\]"),
        ({"layers": "backbone"}, "`layers` to be distinct names of submodules, but got 'backbone'"),
        ({"layers": ["a", "b", "a"]}, r"`layers` to be distinct names of submodules, but got \['a', 'b', 'a'\]"),
        ({"layers": ["trained"]}, r"`layers` to be distinct names of submodules, but got \['trained'\]"),
        ({"layers": [""]}, r"`layers` to be distinct names of submodules, but got \[''\]"),
        ({"solver": "svm"}, r"`solver` to be one of \('sklearn', 'full-batch'\), but got 'svm'"),
        ({"repeats": 0}, "`repeats` >= 1, but got 0"),
        ({"max_iter": 0}, "`max_iter` >= 1, but got 0"),
        ({"regularization": 0.0}, r"`regularization` > 0, but got 0\.0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        LinearEvaluation(**arguments)


def test_a_layer_that_is_none_is_named_when_the_fit_begins_and_one_with_other_outputs_when_it_ends(tmp_path):
    callback = LinearEvaluation(labels_per_class=[None], features=["pixels"], layers=["backbone.bone", "projecter"])
    with pytest.raises(
        ValueError, match=r"`layers` to name submodules of SimCLRModule, but got 'backbone\.bone'\. Did you mean `b"
    ):
        fit(tmp_path / "misspelt", callback)
    assert not callback.rows
    callback = LinearEvaluation(labels_per_class=[None], features=[], layers=["loss"])
    with pytest.raises(ValueError, match="`loss` to be called once in a pass, but it was called 0 times"):
        fit(tmp_path, callback)
    projector = nn.Sequential(nn.Unflatten(1, (8, 8)), nn.Flatten(), nn.Linear(64, 8))
    callback = LinearEvaluation(labels_per_class=[None], features=[], layers=["projector.0"])
    host = SimCLRModule(SmallCNN(1, 8, "group"), projector)
    with pytest.raises(
        ValueError, match=r"`projector\.0` to return \(N, D\) or \(N, C, H, W\), but got shape \(\d+, 8, 8\)"
    ):
        quiet(tmp_path / "odd", callbacks=[callback]).fit(host, datamodule=data())


def test_too_few_labels_and_no_datamodule_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"`labels_per_class` of at most \d+ \(class \d has no more\), but got 100"):
        fit(tmp_path, LinearEvaluation(labels_per_class=[100]))
    with pytest.raises(
        ValueError, match=r"DataModule with `unaugmented_dataloader\(split\)` for LinearEvaluation, but got none"
    ):
        quiet(tmp_path, callbacks=[LinearEvaluation()]).fit(PlainHost(), loader(), loader())
    latent = LatentDGPDataModule(dim=4, content_dim=2, mixing=nn.Identity(), batch_size=8, epoch_size=16)
    model = SimCLRModule(nn.Identity(), nn.Linear(4, 4))
    with pytest.raises(ValueError, match="Expected `label` in the batches for LinearEvaluation, but got only views, "):
        quiet(tmp_path, callbacks=[LinearEvaluation()]).fit(model, datamodule=latent)


def test_a_fit_that_was_killed_after_its_last_checkpoint_is_evaluated_when_it_is_resumed(tmp_path):
    """Lightning then skips the hooks of training."""
    whole, again, none = (LinearEvaluation(labels_per_class=[None]) for _ in range(3))
    fit(tmp_path / "whole", whole, max_epochs=1).save_checkpoint(tmp_path / "last.ckpt")
    kept = torch.load(tmp_path / "last.ckpt", weights_only=False)
    (own,) = (state for name, state in kept["callbacks"].items() if "LinearEvaluation" in name)
    own["rows"] = [row for row in own["rows"] if row["features"] != "trained"]  # as before the end
    torch.save(kept, tmp_path / "last.ckpt")
    resumed = quiet(tmp_path / "resumed", callbacks=[again], max_epochs=1)
    resumed.fit(simclr(), datamodule=data(), ckpt_path=tmp_path / "last.ckpt", weights_only=False)
    assert again.rows == whole.rows
    first, second = (tmp_path / name / "linear_evaluation.csv" for name in ("whole", "resumed"))
    assert first.read_text() == second.read_text()
    fit(tmp_path / "none", none, max_epochs=0)
    assert "trained" not in {row["features"] for row in none.rows}
