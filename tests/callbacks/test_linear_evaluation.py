import pandas as pd
import pytest
import torch
from hosts import PlainHost, loader, quiet
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import nn

from lightning_ssl_geometry.callbacks import LinearEvaluation
from lightning_ssl_geometry.data import DigitsDataModule
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


def test_it_is_scikit_learns_accuracy_on_each_kind_of_features(tmp_path):
    callback = LinearEvaluation(labels_per_class=[None])
    trainer = fit(tmp_path, callback, max_epochs=2)
    images = {
        split: list(
            map(trainer.datamodule.on_after_batch_transfer, trainer.datamodule.clean_dataloader(split), [0] * 9)
        )
        for split in ("train", "test")
    }

    def accuracy(features):
        with torch.no_grad():
            x = {s: torch.cat([features(b["image"]) for b in batches]).numpy() for s, batches in images.items()}
        y = {s: torch.cat([b["label"] for b in batches]).numpy() for s, batches in images.items()}
        scaler = StandardScaler().fit(x["train"])
        judge = LogisticRegression(max_iter=100, tol=1e-3).fit(scaler.transform(x["train"]), y["train"])
        return judge.score(scaler.transform(x["test"]), y["test"])

    found = {row["features"]: row["accuracy"] for row in callback.rows}
    assert found["pixels"] == pytest.approx(accuracy(lambda image: image.flatten(1)))
    assert found["frozen"] == pytest.approx(accuracy(simclr()))
    assert found["trained"] == pytest.approx(accuracy(trainer.lightning_module))
    frame = pd.read_csv(tmp_path / "linear_evaluation.csv")
    assert frame["features"].tolist() == ["pixels", "frozen", "trained"]
    assert frame["train_size"].tolist() == [360] * 3
    assert frame["test_size"].tolist() == [359] * 3
    assert frame["feature_dim"].tolist() == [64] * 3
    assert frame["accuracy_std"].isna().all()
    assert frame["iterations"].between(2, 100).all()


def test_repeated_channels_are_one_pixel(tmp_path):
    callback = LinearEvaluation(labels_per_class=[None])
    trainer = quiet(tmp_path, callbacks=[callback])
    trainer.fit(SimCLRModule(SmallCNN(3, 8), nn.Linear(64, 8)), datamodule=DigitsDataModule(100, channels=3))
    assert [row["feature_dim"] for row in callback.rows] == [64, 64, 64]


@pytest.mark.parametrize("features", [["trained"], ["trained", "frozen"]])
def test_only_the_chosen_features_are_judged(tmp_path, features):
    callback = LinearEvaluation(labels_per_class=[None], features=features)
    fit(tmp_path, callback)
    assert {row["features"] for row in callback.rows} == set(features)


def test_the_full_batch_solver_scores_the_same(tmp_path):
    tables = []
    for solver in ("sklearn", "full-batch"):
        callback = LinearEvaluation(labels_per_class=[None, 5], repeats=2, features=["frozen"], solver=solver)
        fit(tmp_path, callback)
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
        ({"split": "train"}, "`split` to be one of 'val', 'test', but got 'train'"),
        ({"labels_per_class": [0]}, r"`labels_per_class` of None or numbers >= 1, but got \[0\]"),
        ({"features": ["voxels"]}, r"`features` to be of \('pixels', 'frozen', 'trained'\), but got \['voxels'\]"),
        ({"features": []}, r"`features` to be of .*, but got \[\]"),
        ({"solver": "svm"}, r"`solver` to be one of \('sklearn', 'full-batch'\), but got 'svm'"),
        ({"repeats": 0}, "`repeats` >= 1, but got 0"),
        ({"max_iter": 0}, "`max_iter` >= 1, but got 0"),
        ({"regularization": 0.0}, r"`regularization` > 0, but got 0\.0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        LinearEvaluation(**arguments)


def test_too_few_labels_and_no_datamodule_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"`labels_per_class` of at most \d+ \(class \d has no more\), but got 100"):
        fit(tmp_path, LinearEvaluation(labels_per_class=[100]))
    with pytest.raises(
        ValueError, match=r"DataModule with `clean_dataloader\(split\)` for LinearEvaluation, but got none"
    ):
        quiet(tmp_path, callbacks=[LinearEvaluation()]).fit(PlainHost(), loader(), loader())
