import math

import lightning as L
import pandas as pd
import pytest
import torch
from hosts import loader, quiet
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn.functional import normalize

from lightning_ssl_geometry.callbacks import ChannelEvaluation, LinearEvaluation
from lightning_ssl_geometry.callbacks.channel_evaluation import channel_weight
from lightning_ssl_geometry.callbacks.logistic_regression import LogisticRegression, Rows
from lightning_ssl_geometry.data import DigitsDataModule, ShiftedMNISTDataModule
from lightning_ssl_geometry.functional import gaussian_potential
from lightning_ssl_geometry.report import read_run
from lightning_ssl_geometry.views import CropFamily, QuarterTurnFamily

WEIGHTINGS = ("learned", "top", "oracle", "uniform")


class ChannelHost(L.LightningModule):
    """An encoder and a policy over crops, and the average over them as a loop over the family."""

    def __init__(self, family=None, scale=1.0):
        super().__init__()
        self.family = family or CropFamily(image_size=24, size=6, stride=6)  # 16 crops
        self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(36, 10), nn.ReLU())
        self.projector = nn.Linear(10, 4)
        self.policy = nn.Sequential(nn.Flatten(), nn.Linear(24 * 24, len(self.family)))
        for i, parameter in enumerate(self.parameters()):
            values = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i))
            parameter.data.copy_(scale * 0.3 * values)

    def forward(self, x):
        return self.represent(x, self.probabilities(x)[None])[0][0]

    def probabilities(self, image):
        return self.policy(image).softmax(1)

    def represent(self, image, weight):
        f = head = 0
        sample = torch.arange(len(image))
        for k in range(len(self.family)):
            h = self.backbone(self.family(image, sample, torch.full_like(sample, k)))
            f = f + weight[:, :, k, None] * h
            head = head + weight[:, :, k, None] * normalize(self.projector(h), dim=1)
        return f, normalize(head, dim=-1)

    def training_step(self, batch, batch_idx):
        loss = self(batch["views"][0]).square().mean()
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        pass

    def test_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Blind(ChannelHost):
    """A host without the one thing that integrates."""

    represent = None


def data(batch_size=64):
    return ShiftedMNISTDataModule(source="digits", subset=200, test_fraction=0.05, batch_size=batch_size)


def fit(folder, *callbacks, host=None, datamodule=None, **arguments):
    trainer = quiet(folder, callbacks=list(callbacks), **({"limit_train_batches": 1} | arguments))
    trainer.fit(host or ChannelHost(), datamodule=datamodule or data())
    return trainer


def splits(trainer):
    """Whole splits: image, label and box."""
    for split in ("train", "test"):
        raw = trainer.datamodule.unaugmented_dataloader(split)
        batches = [trainer.datamodule.on_after_batch_transfer(batch, 0) for batch in raw]
        yield {name: torch.cat([batch[name] for batch in batches]) for name in ("image", "label", "box")}


def test_it_is_the_judges_accuracy_on_each_average(tmp_path):
    callback = ChannelEvaluation(top=3)
    trainer = fit(tmp_path, callback)
    host, seen = trainer.lightning_module.eval(), {}
    for split, batch in zip(("train", "test"), splits(trainer), strict=True):
        seen["pixels", split] = Rows(batch["image"].flatten(1), batch["label"])
        overlap = host.family.overlap(batch["box"])
        for name in WEIGHTINGS:
            with torch.no_grad():
                weight = channel_weight(name, host.probabilities(batch["image"]), overlap, top=3)
                for level, z in zip(("f", "head"), host.represent(batch["image"], weight[None]), strict=True):
                    seen[f"{level}, {name}", split] = Rows(z[0], batch["label"])
    classifier = LogisticRegression(standardize=False)
    found = {row["features"]: row["accuracy"] for row in callback.rows}
    assert set(found) == {name for name, _ in seen}
    for name, accuracy in found.items():
        assert accuracy == pytest.approx(classifier(seen[name, "train"], seen[name, "test"]).accuracy, abs=0.012)
    assert found["f, oracle"] > found["f, uniform"]


def test_the_tables(tmp_path):
    fit(tmp_path, ChannelEvaluation(WEIGHTINGS[:2], ["head"], top=3, split="val", max_iter=7))
    frame = pd.read_csv(tmp_path / "linear_evaluation.csv")
    assert frame["features"].tolist() == ["head, learned", "head, top", "pixels"]
    assert frame["feature_dim"].tolist() == [4, 4, 576]
    assert set(frame["split"]) == {"val"}
    assert set(frame["labels_per_class"]) == {"all"}
    assert frame["train_size"].tolist() == [180] * 3
    assert frame["test_size"].tolist() == [20] * 3
    assert frame["iterations"].between(1, 7).all()
    scalars = pd.read_csv(tmp_path / "augmentation_channel.csv")
    assert scalars.columns.tolist() == ["quantity", "weighting", "value", "split", "size"]
    assert scalars["quantity"].tolist() == ["nonempty_mass", "entropy", "gaussian_potential"] * 2
    assert scalars["weighting"].tolist() == ["learned"] * 3 + ["top"] * 3
    assert set(scalars["size"]) == {20}


def test_the_scalars_are_what_they_are_called(tmp_path):
    callback = ChannelEvaluation(["learned", "oracle", "uniform"], ["f"], pixels=False)
    trainer = fit(tmp_path, callback)
    host, (_, batch) = trainer.lightning_module, splits(trainer)
    found = {(row["quantity"], row["weighting"]): row["value"] for row in callback.scalars}
    with torch.no_grad():
        p, empty = host.probabilities(batch["image"]), host.family.empty(batch["image"])
        assert found["nonempty_mass", "learned"] == pytest.approx(float((p * ~empty).sum(1).mean()))
        assert found["nonempty_mass", "uniform"] == pytest.approx(1 - float(empty.float().mean()))
        assert found["entropy", "learned"] == pytest.approx(float(-(p * p.log()).sum(1).mean()))
        _, head = host.represent(batch["image"], p[None])
    assert found["entropy", "uniform"] == pytest.approx(math.log(16))
    assert found["nonempty_mass", "oracle"] == pytest.approx(1)
    assert found["gaussian_potential", "learned"] == pytest.approx(float(gaussian_potential(head[0])), rel=1e-4)


@pytest.mark.parametrize("order", [1, -1])
def test_it_shares_the_table_with_linear_evaluation(tmp_path, order):
    callbacks = [ChannelEvaluation(["uniform"], ["f"], pixels=False), LinearEvaluation([None], features=["trained"])]
    trainer = fit(tmp_path, *callbacks[::order], logger=CSVLogger(tmp_path, "run"))
    found = {row.features: row.accuracy for row in read_run(trainer.logger.log_dir).evaluations}
    assert found == {row["features"]: row["accuracy"] for callback in callbacks for row in callback.rows}
    assert set(found) == {"f, uniform", "trained"}


def test_both_solvers_and_a_test_in_place_of_a_fit(tmp_path):
    arguments = {"weightings": ["oracle"], "pixels": False, "standardize": True}
    rows = []
    for solver in ("sklearn", "full-batch"):
        callback = ChannelEvaluation(**arguments, solver=solver)
        trainer = quiet(tmp_path / solver, callbacks=[callback])
        trainer.test(ChannelHost(), datamodule=data(), verbose=False)
        assert (tmp_path / solver / "augmentation_channel.csv").exists()
        rows.append(callback.rows)
    for ours, theirs in zip(*rows, strict=True):
        assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=0.012)  # one of 90 images


def test_half_precision(tmp_path):
    callback = ChannelEvaluation(top=3)
    fit(tmp_path, callback, precision="bf16-true")
    assert len(callback.rows) == 9
    assert callback.rows[-1]["accuracy"] > 0.3  # of pixels


@pytest.mark.parametrize("order", [1, -1])
def test_two_of_them_share_the_tables(tmp_path, order):
    callbacks = [ChannelEvaluation(["uniform"], ["f"], pixels=False, split=split) for split in ("val", "test")]
    fit(tmp_path, *callbacks[::order])
    for name, count in (("linear_evaluation.csv", 1), ("augmentation_channel.csv", 3)):
        assert pd.read_csv(tmp_path / name)["split"].tolist() == [*["val"] * count, *["test"] * count][::order]


def test_training_is_the_same_with_it(tmp_path):
    weights = []
    for callbacks in ([], [ChannelEvaluation(["uniform"], pixels=False)]):
        trainer = fit(tmp_path / str(len(callbacks)), *callbacks, max_epochs=2)
        weights.append(torch.cat([p.flatten() for p in trainer.lightning_module.parameters()]))
        assert trainer.lightning_module.training
    torch.testing.assert_close(*weights, rtol=0, atol=0)


def test_a_fast_dev_run_writes_nothing(tmp_path):
    fit(tmp_path, ChannelEvaluation(["uniform"], pixels=False), limit_train_batches=None, fast_dev_run=True)
    assert not list(tmp_path.glob("*.csv"))


def judged(rank, folder):
    callback = ChannelEvaluation(top=3)
    devices = {"devices": 2, "strategy": "ddp"} if rank is not None else {}
    trainer = quiet(folder, callbacks=[callback], **devices)
    trainer.test(ChannelHost(), datamodule=data(50 if rank is None else 25), verbose=False)
    values = {row["features"]: row["accuracy"] for row in callback.rows}
    return values | {f"{row['quantity']}, {row['weighting']}": row["value"] for row in callback.scalars}


def test_two_processes_find_the_same(tmp_path, two_processes):
    alone = judged(None, tmp_path / "1")
    first, second = two_processes(judged, tmp_path / "2")
    assert first == pytest.approx(alone, rel=1e-4)
    assert second == {}
    assert len(pd.read_csv(tmp_path / "2" / "linear_evaluation.csv")) == 9


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_weights_are_distributions_that_follow_the_members(weighting):
    p = torch.randn(6, 30, dtype=torch.float64).softmax(1)
    overlap = torch.stack([torch.randperm(30) // 4 for _ in range(6)])
    weight = channel_weight(weighting, p, overlap, top=5)
    torch.testing.assert_close(weight.sum(1), torch.ones(6, dtype=torch.float64))
    order = torch.randperm(30)
    torch.testing.assert_close(channel_weight(weighting, p[:, order], overlap[:, order], top=5), weight[:, order])
    support = {"learned": 30, "top": 5, "oracle": 2, "uniform": 30}[weighting]  # 30 = 7 * 4 + 2
    assert (weight > 0).sum(1).tolist() == [support] * 6


def test_top_are_the_most_probable_and_all_of_them_are_uniform():
    p = torch.randn(6, 30).softmax(1)
    weight = channel_weight("top", p, top=4)
    chosen = weight > 0
    assert (p.where(chosen, 1).amin(1) > p.where(~chosen, 0).amax(1)).all()
    assert weight[chosen].unique().tolist() == [0.25]
    torch.testing.assert_close(channel_weight("top", p, top=30), channel_weight("uniform", p))


def test_the_oracle_has_nine_of_the_papers_crops_in_every_cell():
    corner = 28 * torch.cartesian_prod(torch.arange(3), torch.arange(3))
    overlap = CropFamily().overlap(torch.cat([corner, corner + 28], 1))
    weight = channel_weight("oracle", torch.full((9, 289), 1 / 289), overlap)
    assert (weight > 0).sum(1).tolist() == [9] * 9  # three of 28 - 20 = 8 pixels at stride 4, in both directions
    assert (overlap[weight > 0] == 400).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weightings": ["best"]}, r"`weightings` to be of \('learned', .*\), but got \['best'\]"),
        ({"weightings": []}, r"`weightings` to be of .*, but got \[\]"),
        ({"levels": ["g"]}, r"`levels` to be of \('f', 'head'\), but got \['g'\]"),
        ({"top": 0}, "`top` >= 1, but got 0"),
        ({"split": "train"}, r"`split` to be one of \('val', 'test'\), but got 'train'"),
        ({"solver": "saga"}, "`solver` to be one of .*, but got 'saga'"),
        ({"regularization": -1.0}, r"`regularization` > 0, but got -1\.0"),
        ({"max_iter": 0}, "`max_iter` >= 1, but got 0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        ChannelEvaluation(**arguments)


@pytest.mark.parametrize(
    ("arguments", "host", "datamodule", "message"),
    [
        ({"top": 17}, ChannelHost, data, "`top` of at most 16, the size of the family, but got 17"),
        ({"top": 4}, lambda: ChannelHost(QuarterTurnFamily()), data,
         "a family with `overlap` for 'oracle', but got QuarterTurnFamily"),
        ({}, ChannelHost, lambda: DigitsDataModule(64), "batches with `box` for 'oracle', but got only image, index"),
        ({}, Blind, data, "`represent` for ChannelEvaluation, but got Blind"),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_is_refused_before_the_training(tmp_path, arguments, host, datamodule, message):
    with pytest.raises(ValueError, match=message):
        fit(tmp_path, ChannelEvaluation(**arguments), host=host(), datamodule=datamodule())
    with pytest.raises(ValueError, match=message):
        quiet(tmp_path, callbacks=[ChannelEvaluation(**arguments)]).test(host(), datamodule=datamodule())


def test_no_datamodule_is_named(tmp_path):
    trainer = quiet(tmp_path, callbacks=[ChannelEvaluation(top=1)])
    with pytest.raises(
        ValueError, match=r"DataModule with `unaugmented_dataloader\(split\)` for ChannelEvaluation, but got"
    ):
        trainer.fit(ChannelHost(), loader(), loader())


class _Blank(ShiftedMNISTDataModule):
    """Some images are of one colour."""

    def __init__(self, blank):
        super().__init__(source="digits", subset=200, test_fraction=0.05, batch_size=200)
        self.blank = blank

    def on_after_batch_transfer(self, batch, dataloader_idx):
        made = super().on_after_batch_transfer(batch, dataloader_idx)
        made["image"][self.blank] = 1.0
        return made


def test_blank_images_count_as_mass_0_with_one_warning(tmp_path):
    callback = ChannelEvaluation(["uniform", "oracle"], ["f"], pixels=False)
    trainer = quiet(tmp_path, callbacks=[callback])
    message = "some images are empty, which have `nonempty_mass` 0: 3 of 180 in 'train', 3 of 90 in 'test'"
    with pytest.warns(UserWarning, match=message) as caught:
        trainer.test(ChannelHost(), datamodule=_Blank(slice(2, 5)), verbose=False)
    assert sum("nonempty_mass" in str(warning.message) for warning in caught) == 1
    mass = {row["weighting"]: row["value"] for row in callback.scalars if row["quantity"] == "nonempty_mass"}
    assert mass["oracle"] == pytest.approx(87 / 90)
    assert len(callback.rows) == 2


def test_nothing_but_blank_images_is_refused(tmp_path):
    trainer = quiet(tmp_path, callbacks=[ChannelEvaluation(top=1)])
    with pytest.raises(ValueError, match=r"the split 'train' with an augmentation .* but got 180 images"):
        trainer.test(ChannelHost(), datamodule=_Blank(slice(None)), verbose=False)


class _Foreign(L.LightningDataModule):
    """Somebody else's, whose splits without augmentation hold these batches."""

    def __init__(self, *batches):
        super().__init__()
        self.batches = batches

    def train_dataloader(self):
        return [torch.zeros(1)]

    val_dataloader = test_dataloader = train_dataloader

    def unaugmented_dataloader(self, split):
        return self.batches


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "samples in the split 'test' for ChannelEvaluation, but got none"),
        ([{"image": torch.ones(2), "box": torch.ones(2)}],
         "batches with `label`, `index` for ChannelEvaluation, but got only box, image"),
        ([[torch.ones(2), torch.ones(2)]], "batches with `image`, `label`, `index` .*, but got list"),
        ([{"image": 1, "label": 2, "index": 3}], "`box` for 'oracle', but got only image, index, label"),
    ],
)  # fmt: skip
def test_what_batches_lack_is_named_before_the_training(tmp_path, batches, message):
    for run in ("fit", "test"):
        trainer = quiet(tmp_path, callbacks=[ChannelEvaluation()])
        with pytest.raises(ValueError, match=message):
            getattr(trainer, run)(ChannelHost(), datamodule=_Foreign(*batches))


def test_channel_weight_names_an_overlap_that_does_not_fit():
    p = torch.full((2, 4), 0.25)
    with pytest.raises(ValueError, match=r"`overlap` of shape \(2, 4\) for 'oracle', but got None"):
        channel_weight("oracle", p)
    with pytest.raises(ValueError, match=r"`overlap` of shape \(2, 4\) for 'oracle', but got \(1, 4\)"):
        channel_weight("oracle", p, torch.ones(1, 4))
