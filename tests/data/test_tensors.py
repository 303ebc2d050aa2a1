"""TensorDataModule: arrays become the batches that any data set of this package yields."""

import math
from contextlib import suppress
from functools import partial

import lightning as L
import numpy as np
import pytest
import torch
from hosts import quiet
from torch import nn

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearEvaluation, LinearProbe
from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.data import TensorDataModule
from lightning_ssl_geometry.data.samples import as_samples, read_array
from lightning_ssl_geometry.methods import BYOLModule, SimCLRModule, SupervisedModule, VICRegModule
from lightning_ssl_geometry.nn import MLPBackbone, MLPProjector
from lightning_ssl_geometry.views import SignalViews, SimCLRViews, VectorViews

GENERATOR = np.random.default_rng(0)
VECTORS = GENERATOR.normal(size=(60, 5)).astype(np.float32)
LABELS = np.arange(60) % 3
KINDS = {
    "vector": VECTORS,
    "signal": GENERATOR.normal(size=(60, 2, 12)).astype(np.float32),
    "image": GENERATOR.random((60, 3, 6, 6)).astype(np.float32),
}


def module(train=VECTORS, label=LABELS, **settings):
    return TensorDataModule(train, label, **({"batch_size": 8} | settings))


def samples(data, split):
    """index, label and unaugmented samples of a split, as the Trainer gets them."""
    made = [data.on_after_batch_transfer(batch, 0) for batch in data.unaugmented_dataloader(split)]
    return {name: torch.cat([batch[name] for batch in made]) for name in made[0]}


def test_data_sets_with_the_same_views_keep_their_own_donors():
    views = VectorViews(corruption=1.0, keep_first=False)
    near, far = (module(KINDS["vector"] + shift, views=views) for shift in (0, 1000))
    batch = next(iter(near.train_dataloader()))
    far.on_after_batch_transfer(next(iter(far.train_dataloader())), 0)
    assert near.on_after_batch_transfer(batch, 0)["views"][0].abs().max() < 10


def test_a_seed_may_be_of_numpy():
    data, expected = (module(KINDS["image"], seed=seed, views=SimCLRViews(seed=seed)) for seed in (np.int64(3), 3))
    for ours, theirs in zip(data.train_dataloader(), expected.train_dataloader(), strict=True):
        pairs = (each.on_after_batch_transfer(batch, 0)["views"] for each, batch in ((data, ours), (expected, theirs)))
        torch.testing.assert_close(*pairs)


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_of_other_images_are_refused(channels):
    image = torch.zeros(30, 4, 8, 8, dtype=torch.uint8)
    with pytest.raises(ValueError, match=f"`channels` None for images of 4 channels, but got {channels}"):
        TensorDataModule(image, channels=channels, batch_size=4).setup()


@pytest.mark.parametrize(("kind", "views"), [("vector", VectorViews), ("signal", SignalViews), ("image", SimCLRViews)])
def test_a_batch_of_each_kind(kind, views):
    data = module(KINDS[kind], kind=kind)
    batch = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
    assert type(data.views) is views
    assert set(batch) == {"index", "label", "views"}
    assert [view.shape for view in batch["views"]] == [(8, *KINDS[kind].shape[1:])] * 2
    assert batch["label"].tolist() == [LABELS[i] for i in batch["index"]]
    assert (data.num_classes, data.class_names) == (3, ["0", "1", "2"])
    assert data.image_shape == KINDS[kind].shape[1:]
    assert "image" in data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)


def test_views_that_are_set_before_the_setup_stay():
    data = module()
    data.views = views = VectorViews(0.1)
    data.setup()
    assert data.views is views


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_standardised_by_the_training_set(kind):
    data = module(KINDS[kind], kind=kind)
    seen = samples(data, "train")
    x = KINDS[kind][seen["index"]].astype(np.float64)
    axes = (0, *range(2, x.ndim))
    np.testing.assert_allclose(data.mean, x.mean(axes), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(data.std, x.std(axes), rtol=1e-5)
    for split in ("train", "val", "test"):
        seen = samples(data, split)
        column = (-1, *[1] * (x.ndim - 2))
        back = seen["image"] * data.std.view(column) + data.mean.view(column)
        np.testing.assert_allclose(back, KINDS[kind][seen["index"]], atol=1e-5)


def test_the_sets_are_drawn_by_the_seed_and_disjoint():
    def sets(**settings):
        data = module(**settings)
        return [samples(data, split)["index"].tolist() for split in ("train", "val", "test")]

    train, val, test = sets()
    assert sorted(train + val + test) == list(range(60))
    assert [len(train), len(val), len(test)] == [43, 5, 12]
    assert sets() == [train, val, test]
    assert sets(seed=1) != [train, val, test]


def test_given_sets_are_kept_whole():
    sets = {"val": VECTORS[:7] + 1, "val_label": LABELS[:7], "test": VECTORS[:9] + 2, "test_label": LABELS[:9]}
    data = module(**sets)
    assert samples(data, "train")["index"].tolist() == list(range(60))
    for split, count in (("val", 7), ("test", 9)):
        seen = samples(data, split)
        assert seen["index"].tolist() == list(range(count))
        np.testing.assert_allclose(seen["image"] * data.std + data.mean, sets[split], atol=1e-5)
        assert seen["label"].tolist() == sets[f"{split}_label"].tolist()
    np.testing.assert_allclose(data.mean, VECTORS.mean(0), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("fraction", "sizes"), [(0.0, (54, 6, 0)), (0.5, (27, 3, 30)), (1.0, (0, 0, 60))])
def test_the_fraction_of_the_test_set(fraction, sizes):
    data = module(test_fraction=fraction)
    data.setup()
    assert tuple(len(data._positions[split]) for split in ("train", "val", "test")) == sizes


def test_subset_is_of_the_training_set_beside_a_given_validation_set():
    data = module(val=VECTORS, val_label=LABELS, subset=20)
    data.setup()
    assert [len(data._positions[split]) for split in ("train", "val", "test")] == [20, 60, 12]


def test_without_labels():
    data = module(label=None)
    assert set(samples(data, "train")) == {"image", "index"}
    assert not hasattr(data, "num_classes")
    assert data.class_names == []


@pytest.mark.parametrize(
    ("given", "kind", "channels_last", "shape"),
    [
        (np.zeros((9, 6, 6), np.uint8), "image", False, (1, 6, 6)),
        (np.zeros((9, 6, 4, 3), np.uint8), None, True, (3, 6, 4)),
        (np.zeros((9, 12, 2)), "signal", True, (2, 12)),
        (np.zeros((9, 5), np.uint16), None, False, (5,)),
        (np.zeros((9, 5), bool), None, False, (5,)),
        (np.zeros((9, 5), ">f8"), None, False, (5,)),
        (np.zeros((9, 5), np.longdouble), None, False, (5,)),
        (np.zeros((5, 9))[::-1].T, None, False, (5,)),
        (torch.zeros(9, 5, dtype=torch.bfloat16), None, False, (5,)),
        (torch.zeros(9, 3, 6, 6, dtype=torch.uint8).requires_grad_(False), None, False, (3, 6, 6)),
    ],
)
def test_arrays_of_many_kinds(given, kind, channels_last, shape):
    given[0] = 1
    data = TensorDataModule(given, kind=kind, channels_last=channels_last, batch_size=2, seed=2, val_fraction=0.0)
    part = data.parts().train
    assert part.image.shape == (9, *shape)
    assert part.image.dtype == (torch.uint8 if len(shape) == 3 else torch.float32)
    assert part.image[0].float().mean() == 1
    assert not part.image[1:].any()


@pytest.mark.parametrize("dtype", [np.uint64, np.ulonglong, ">u8"])
def test_large_unsigned_integers_stay_positive(dtype):
    given = np.arange(2**63, 2**63 + 2**61, 2**59, dtype=np.uint64).astype(dtype)
    read = as_samples(read_array(given[:, None], "train"), "train", kind="vector")
    assert read.flatten().tolist() == given.astype(float).tolist()


def test_labels_may_be_of_any_integer_type():
    for dtype in (np.uint8, np.uint16, np.int32, np.uint64, np.longlong, np.ulonglong, ">u8", ">i4"):
        assert module(label=LABELS.astype(dtype)).parts().train.label.tolist() == LABELS.tolist()


def test_files(tmp_path):
    np.save(tmp_path / "x.npy", VECTORS)
    np.savez(tmp_path / "one.npz", VECTORS)
    np.savez(tmp_path / "two.npz", x=VECTORS, label=LABELS)
    for path in ("x.npy", "one.npz", "two.npz:x"):
        data = module(str(tmp_path / path), str(tmp_path / "two.npz:label"))
        assert torch.equal(data.parts().train.image, torch.from_numpy(VECTORS))
        assert data.parts().train.label.tolist() == LABELS.tolist()
    mapped = module(str(tmp_path / "x.npy")).parts().train.image.untyped_storage()
    assert mapped.data_ptr() != module(str(tmp_path / "x.npy")).parts().train.image.untyped_storage().data_ptr()
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY but no more")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)


def test_a_constant_feature_has_the_deviation_1():
    x = VECTORS.copy()
    x[:, 2] = 0.1  # its sum rounds, so that the computed variance is not 0
    data = module(x)
    seen = samples(data, "train")["image"]
    assert data.std[2] == 1
    assert seen[:, 2].abs().max() == 0
    torch.testing.assert_close(seen[:, :2].std(0, correction=0), torch.ones(2))


def test_half_precision_rounds_after_the_standardisation(tmp_path):
    """In bfloat16, 1000 + x would lose x."""

    class Look(SimCLRModule):
        def training_step(self, batch, batch_idx):
            assert batch["views"][0].dtype == torch.bfloat16
            assert batch["views"][0].unique().numel() > 30
            return super().training_step(batch, batch_idx)

    data = module(1000 + VECTORS, views=VectorViews(0.0))
    quiet(tmp_path, precision="bf16-true", fast_dev_run=True).fit(method("simclr", Look), datamodule=data)


def method(name, simclr=SimCLRModule):
    torch.manual_seed(0)
    networks = MLPBackbone(5, [16], 8), MLPProjector(8, 8, 4, norm="layer")
    sgd = partial(torch.optim.SGD, lr=0.01, momentum=0.9)
    return {
        "simclr": lambda: simclr(*networks, optimizer=sgd),
        "vicreg": lambda: VICRegModule(*networks, optimizer=partial(sgd, lr=1e-3)),
        "byol": lambda: BYOLModule(*networks, MLPProjector(4, 8, 4, norm="layer"), momentum=0.9, optimizer=sgd),
        "supervised": lambda: SupervisedModule(networks[0], nn.Linear(8, 3), optimizer=sgd),
    }[name]()


def fitted(rank, name, folder, batch_size, *further, ckpt_path=None, **arguments):
    """Weights, scalars, rows of the evaluation and views by index of a fit, by two processes if a rank is given."""
    devices = {"devices": 2, "strategy": "ddp"} if rank is not None else {}
    evaluation, model, seen = LinearEvaluation(repeats=1, labels_per_class=(None,)), method(name), {}
    views = VectorViews(0.4, noise=0.1)
    data = module(views=views, batch_size=batch_size, drop_last=False, val_fraction=0.2)
    made = data.on_after_batch_transfer

    def keep(batch, dataloader_idx):
        found = made(batch, dataloader_idx)
        if batch["split"] == "train" and batch["augmented"]:
            rows = zip(found["index"].tolist(), *found["views"], strict=True)
            seen.update({(batch["epoch"], index): (one.clone(), two.clone()) for index, one, two in rows})
        return found

    data.on_after_batch_transfer = keep
    callbacks = [GeometryMonitor(stages=["train", "val"]), LinearProbe(), KNNProbe(k=3), evaluation, *further]
    trainer = quiet(folder, max_epochs=2, callbacks=callbacks, **(devices | arguments))
    with suppress(InterruptedError):
        trainer.fit(model, datamodule=data, ckpt_path=ckpt_path)
    scalars = {key: value.item() for key, value in trainer.callback_metrics.items()}
    return {"weights": model.state_dict(), "scalars": scalars, "rows": evaluation.rows, "views": seen}


@pytest.mark.parametrize("name", ["simclr", "vicreg", "byol", "supervised"])
def test_every_method_trains_on_vectors(name, tmp_path):
    quiet(tmp_path, fast_dev_run=True).fit(method(name), datamodule=module(views=VectorViews(0.4)))


def test_one_and_two_processes_see_the_same_views_and_learn_the_same(tmp_path, two_processes):
    alone = fitted(None, "simclr", tmp_path / "one", 10)
    together = two_processes(fitted, "simclr", tmp_path / "two", 5)
    assert len(alone["views"]) == 2 * 38
    assert not set(together[0]["views"]) & set(together[1]["views"])  # each sample once
    both = together[0]["views"] | together[1]["views"]
    assert both.keys() == alone["views"].keys()
    for key, views in alone["views"].items():
        assert all(torch.equal(one, other) for one, other in zip(views, both[key], strict=True))
    for key, value in alone["weights"].items():
        torch.testing.assert_close(together[0]["weights"][key], value, rtol=1e-3, atol=1e-4)
    assert {"val/linear_probe_accuracy", "val/knn_probe_accuracy", "train/loss"} <= set(alone["scalars"])
    assert [row["features"] for row in alone["rows"]] == ["pixels", "frozen", "trained"]


def test_a_fit_that_is_interrupted_within_an_epoch_resumes_exactly(tmp_path):
    class Interrupt(L.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == 6:  # of 4 steps in each epoch
                trainer.save_checkpoint(tmp_path / "x.ckpt")
                raise InterruptedError

    whole = fitted(None, "simclr", tmp_path / "whole", 10)
    fitted(None, "simclr", tmp_path / "parts", 10, Interrupt())
    resumed = fitted(None, "simclr", tmp_path / "parts", 10, ckpt_path=tmp_path / "x.ckpt")
    for key, value in whole["weights"].items():
        assert torch.equal(resumed["weights"][key], value)
    assert len(resumed["views"]) == 38 - 20
    for key, views in resumed["views"].items():
        assert all(torch.equal(one, other) for one, other in zip(views, whole["views"][key], strict=True))


CONFIG = """
model:
  class_path: lightning_ssl_geometry.methods.SimCLRModule
  init_args:
    backbone:
      class_path: lightning_ssl_geometry.nn.MLPBackbone
      init_args: {{in_dim: 5, hidden_dims: [8], out_dim: 8}}
    projector:
      class_path: lightning_ssl_geometry.nn.MLPProjector
      init_args: {{in_dim: 8, hidden_dim: 8, out_dim: 4}}
data:
  class_path: lightning_ssl_geometry.data.TensorDataModule
  init_args:
    train: {folder}/data.npz:x
    train_label: {folder}/data.npz:label
    batch_size: 8
    views: {{class_path: lightning_ssl_geometry.views.VectorViews, init_args: {{corruption: 0.4}}}}
"""


@pytest.mark.filterwarnings("ignore:The number of training batches")
def test_from_yaml(tmp_path):
    np.savez(tmp_path / "data.npz", x=VECTORS, label=LABELS)
    (tmp_path / "config.yaml").write_text(CONFIG.format(folder=tmp_path))
    trainer = ["fast_dev_run=true", "accelerator=cpu", "logger=false", "enable_progress_bar=false"]
    main(["fit", "--config", str(tmp_path / "config.yaml"), *(f"--trainer.{word}" for word in trainer)])


def nan(value):
    changed = VECTORS.copy()
    changed[3, 2] = value
    return changed


RAGGED = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(3, 3)], layout=torch.jagged)
WRONG = [
    ({"label": LABELS[:-1]}, r"`train_label` of shape \(60,\), one per sample, but got \(59,\)"),
    ({"label": LABELS[:, None]}, r"`train_label` of shape \(60,\), one per sample, but got \(60, 1\)"),
    ({"label": LABELS + 0.5}, r"`train_label` to be integers, the classes, but got torch.float64.*np.unique"),
    ({"label": LABELS > 0}, "`train_label` to be integers, the classes, but got torch.bool"),
    ({"label": LABELS.astype(str)}, r"`train_label` to hold numbers, but got .*dtype <U21.*np.unique"),
    ({"label": LABELS - 1}, "`train_label` >= 0, but got -1"),
    ({"label": LABELS.astype(np.uint64) + 2**63}, r"`train_label` < 2\*\*63, but got 92233720368547758\d\d"),
    ({"label": LABELS + 1}, r"training labels 0 to 3, each at least once, but \[0\] are missing.*`class_names`"),
    ({"label": LABELS * 0}, r"at least 2 classes, but got only \['0'\]"),
    ({"class_names": ["a", "b"]}, "`class_names` for labels up to 2, but got 2 names"),
    ({"train": nan(np.nan)}, "finite `train`, but got 1 of 300 values that are not"),
    ({"train": nan(np.inf)}, "finite `train`, but got 1 of 300 values that are not"),
    (
        {"train": np.array([[1], [1, 2]], dtype=object)},
        "dtype object. Do all rows have one length",
    ),
    ({"train": VECTORS.astype(str)}, "`train` to hold numbers, but got an array of dtype <U"),
    (
        {"train": np.ma.masked_greater(VECTORS, 1), "label": None},
        r"`train` without missing values, but \d+ values are masked\. Fill them",
    ),
    ({"label": np.ma.masked_equal(LABELS, 1)}, "`train_label` without missing values, but 20 values are masked"),
    ({"label": LABELS * 10**14}, r"labels 0 to 200000000000000, .* but \[1, 2, 3, 4, 5\] are missing"),
    ({"train": VECTORS.astype(complex)}, "`train` to hold numbers, but got an array of dtype complex128"),
    ({"train": torch.zeros(60, 5, dtype=torch.complex64)}, "`train` to hold real numbers, but got torch.complex64"),
    ({"train": VECTORS.tolist()}, "`train` to be an array, a tensor or a path, but got a list"),
    ({"train": None}, "`train` to be an array, a tensor or a path, but got a NoneType"),
    ({"train": VECTORS[:0]}, r"`train` with samples, but got shape \(0, 5\)"),
    ({"train": VECTORS[:, :0]}, r"`train` with samples, but got shape \(60, 0\)"),
    ({"train": np.ones((60, 5))}, "training samples that differ, but each feature or channel has one value"),
    ({"train": np.ones((60, 1, 4, 4))}, "training samples that differ, but every pixel of a channel has one value"),
    ({"train": VECTORS[:, 0]}, r"`kind` for `train` of shape \(60,\): 'image' for .*, 'vector' for .*, or 'signal'"),
    ({"train": KINDS["signal"]}, r"`kind` for `train` of shape \(60, 2, 12\)"),
    (
        {"train": KINDS["signal"], "kind": "vector"},
        r"\(N, D\) for kind 'vector', but got \(60, 2, 12\)",
    ),
    (
        {"train": KINDS["image"].transpose(0, 2, 3, 1)},
        r"\(60, 6, 6, 3\). Set `channels_last`",
    ),
    ({"train": KINDS["image"] * 2}, r"`train` in \[0, 1\], as it is floating point, but got values in \["),
    ({"train": KINDS["image"].astype(int)}, r"uint8, or floating point in \[0, 1\], but got torch.int64"),
    ({"val": VECTORS}, "labels for all of the sets train, val or for none, but got them for train only"),
    (
        {"test": VECTORS[:, :3], "test_label": LABELS},
        r"one shape .* in `train`, \(3,\) .* in `test`",
    ),
    ({"channels": 3}, "`channels` None for samples that are no images, but got 3"),
    ({"image_size": 3}, "`image_size` None for samples that are no images, but got 3"),
    ({"val_label": LABELS}, "`val` beside `val_label`, but got None"),
    ({"kind": "images"}, r"`kind` to be one of \(None, 'image', 'vector', 'signal'\), but got 'images'"),
    ({"channels_last": "no"}, "`channels_last` to be True or False, but got 'no'"),
    ({"train": torch.from_numpy(VECTORS).to_sparse()}, r"`train` to be a dense tensor, .* Use `train.to_dense\(\)`"),
    ({"label": torch.from_numpy(LABELS).to_sparse()}, "`train_label` to be a dense tensor, but got one of layout"),
    ({"train": torch.empty(60, 5, device="meta")}, '`train` to be a dense tensor, but got one on the device "meta"'),
    ({"train": RAGGED}, "`train` to be a dense tensor, but got a nested one. Make all rows equally long"),
    ({"val_fraction": "0.1"}, r"`val_fraction` in \[0, 1\), but got '0.1', which is no number"),
    ({"val_fraction": None}, r"`val_fraction` in \[0, 1\), but got None"),
    ({"val_fraction": math.nan}, r"`val_fraction` in \[0, 1\), but got nan"),
    ({"batch_size": 2.5}, "`batch_size` to be an integer >= 1, but got 2.5"),
    ({"subset": 2.5}, "`subset` to be an integer >= 2, but got 2.5"),
    ({"seed": "1"}, r"`seed` to be an integer between -2\*\*63 and 2\*\*63 - 1, but got '1'"),
    ({"seed": 2**70}, r"`seed` to be an integer between -2\*\*63 and 2\*\*63 - 1, but got 1180591620717411303424"),
    ({"drop_last": "no"}, "`drop_last` to be True or False, but got 'no'"),
    ({"class_names": "abc"}, "`class_names` to be a list, but got 'abc'"),
    ({"class_names": {"a", "b"}}, "`class_names` to be a list, but got"),
    ({"test_fraction": 1.5}, r"`test_fraction` in \[0, 1\], but got 1.5"),
    ({"test_fraction": 1.0, "subset": 5}, "`subset` None with `test_fraction=1`, .* but got 5"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_is_wrong_with_the_arrays(change, message):
    with pytest.raises(ValueError, match=message):
        module(**change).setup()


def test_what_is_wrong_with_the_files(tmp_path):
    np.savez(tmp_path / "two.npz", x=VECTORS, label=LABELS)
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY but no more")
    with pytest.raises(FileNotFoundError, match=r"`train` to be an existing .npy or .npz file, .* none at .*no.npz"):
        module(f"{tmp_path}/no.npz:x").setup()
    for path in ("two.npz", "two.npz:y"):
        with pytest.raises(ValueError, match=r"two.npz:KEY with one of the keys \['x', 'label'\], but got"):
            module(f"{tmp_path}/{path}").setup()
    whole = (tmp_path / "two.npz").read_bytes()
    (tmp_path / "torn.npz").write_bytes(whole[:500])
    (tmp_path / "flipped.npz").write_bytes(whole[:300] + bytes([whole[300] ^ 255]) + whole[301:])
    np.save(tmp_path / "x.npy", VECTORS)
    (tmp_path / "header.npy").write_bytes((tmp_path / "x.npy").read_bytes().replace(b"), }", b"((((", 1))
    (tmp_path / "negative.npy").write_bytes((tmp_path / "x.npy").read_bytes().replace(b"(60, 5)", b"(-9, 5)", 1))
    broken = ("torn.npz:x", "flipped.npz:x", "header.npy", "negative.npy")
    for path in ("objects.npy", "broken.npy", *broken):
        with pytest.raises(ValueError, match=r"`train` to be a \.npy or \.npz file of numbers, but got"):
            module(f"{tmp_path}/{path}").setup()
