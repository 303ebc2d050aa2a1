"""Modules of one's own, on batches that are tuples, nested dicts, one image, or (index, views, label)."""

import random
import runpy

import lightning as L
import numpy as np
import pytest
import torch
from hosts import ATTACH, assert_logged, assert_undisturbed, attach, quiet, rankme
from torch.utils.data import DataLoader

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe
from lightning_ssl_geometry.diagnostics import EffectiveRank
from lightning_ssl_geometry.observe.batch_keys import contents
from lightning_ssl_geometry.observe.undisturbed import undisturbed
from lightning_ssl_geometry.views import SimCLRViews

STAGES = {"train", "val", "probe"}
PAIR = {"views": [0, 1]}


@pytest.mark.parametrize(
    ("name", "encoder", "views"),
    [
        ("tuple_batches", "encoder", lambda batch: batch[:2]),
        ("dict_batches", "model.trunk", lambda batch: [view["image"] for view in batch["views"]]),
        ("solo_learn_style", "backbone", lambda batch: batch[1]),
    ],
    ids=["tuples", "dicts", "solo-learn"],
)
def test_it_is_observed_and_trains_the_same(tmp_path, name, encoder, views):
    scene = assert_undisturbed(tmp_path, name, max_epochs=2)
    assert_logged(scene["trainer"], STAGES)
    host, metrics = scene["host"].eval(), scene["trainer"].callback_metrics
    with torch.no_grad():
        h = torch.cat([host.get_submodule(encoder)(x) for batch in scene["seen"].batches for x in views(batch)])
    for stage in ("val", "probe"):
        assert metrics[f"{stage}/effective_rank_h"] == pytest.approx(rankme(h), rel=1e-4)
    assert metrics["val/linear_probe_accuracy"] > 0.3  # of ten digits, after two epochs
    assert metrics["val/knn_probe_accuracy"] > 0.7


def test_one_image_becomes_two_views_in_every_stage(tmp_path):
    scene = assert_undisturbed(tmp_path, "one_image", max_epochs=2)
    assert_logged(scene["trainer"], STAGES)
    host, augment = scene["host"].eval(), scene["AUGMENT"]
    start, h = 0, []
    for image, _ in scene["seen"].batches:
        index = torch.arange(start, start := start + len(image))
        h += [host.features(view).detach() for view in augment(image, index)]
    for stage in ("val", "probe"):
        found = scene["trainer"].callback_metrics[f"{stage}/effective_rank_h"]
        assert found == pytest.approx(rankme(torch.cat(h)), rel=1e-4)


@pytest.mark.parametrize("name", ["tuple_batches", "dict_batches", "solo_learn_style", "one_image"])
@pytest.mark.filterwarnings("ignore")  # Lightning's advice to users: loggers, workers, logging intervals
def test_the_example_runs(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    scene = runpy.run_path(str(ATTACH / f"{name}.py"), run_name="__main__")
    assert scene["CALLBACKS"]
    assert list(tmp_path.rglob("geometry/train/log_spectrum_h.csv"))


class OneImageInValidation(L.LightningModule):
    """Training has two views and nested labels; validation has one image and its label."""

    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Linear(6, 4)

    def training_step(self, batch, batch_idx):
        return sum(self.trunk(view["image"]).square().mean() for view in batch["views"])

    def validation_step(self, batch, batch_idx):
        self.trunk(batch["image"])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_the_batches_of_a_stage_may_differ(tmp_path):
    one = [{"image": torch.randn(6), "label": i % 2} for i in range(16)]
    two = [{"views": [{"image": torch.randn(6)}, {"image": torch.randn(6)}], "meta": i % 2} for i in range(16)]
    seen = {"taps": {"h": "trunk"}, "batch_keys": {"label": "meta", "val/label": "label"}}
    callbacks = [LinearProbe(2, **seen), KNNProbe(num_classes=2, **seen)]
    trainer = quiet(tmp_path, callbacks=[*callbacks, GeometryMonitor({"rank": EffectiveRank()}, **seen)])
    trainer.fit(OneImageInValidation(), *(DataLoader(samples, batch_size=8) for samples in (two, one)))
    assert {"val/linear_probe_accuracy", "val/knn_probe_accuracy", "val/rank"} <= trainer.callback_metrics.keys()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"label": "lable"},
            r"label='lable' to be in the batch, which has 'image', 'label'. Did you mean `label`\? The batch has 'i",
        ),
        (
            {"label": "zebra"},
            r"label='zebra' to be in the batch, which has 'image', 'label'. The batch has 'image': float32 \(8, 6\); "
            r"'label': int64 \(8,\).$",
        ),
        (
            {"val/label": "labell", "label": "meta"},
            r"stage 'val', .* label='labell' .* Did you mean `label`\? The batch",
        ),
    ],
)
def test_a_misspelt_place_is_answered_with_the_near_one(tmp_path, keys, message):
    batches = DataLoader([{"image": torch.randn(6), "label": i % 2} for i in range(16)], batch_size=8)
    monitor = GeometryMonitor({"rank": EffectiveRank()}, taps={"h": "trunk"}, batch_keys=keys)
    with pytest.raises(ValueError, match=message):
        quiet(tmp_path, callbacks=[monitor]).fit(OneImageInValidation(), batches, batches)


@pytest.mark.parametrize(
    ("samples", "taps", "message"),
    [
        (
            torch.randn(16, 6),
            {"h": "trunk"},
            r"views of each sample, but the batch is one tensor, of shape \(8, 6\). Let the data set return a pair "
            r"\(view 1, view 2\), and say `batch_keys={\"views\": \[0, 1\]}`.$",
        ),
        (
            [[torch.randn(6)] * 2 for _ in range(16)],
            {"h": "trunk"},
            r"Expected `batch_keys` to say where the views are, or the images, such as "
            r"`batch_keys={\"views\": \[0, 1\]}`, but got none. The batch has 0: float32 \(8, 6\); 1: f",
        ),
        (torch.randn(16, 6), None, "Expected `taps` for OneTensor, which is not of this package, .* which of its sub"),
    ],
)
def test_missing_views_are_asked_for(tmp_path, samples, taps, message):
    class OneTensor(OneImageInValidation):
        training_step = validation_step = lambda self, batch, batch_idx: None

    batches = DataLoader(samples, batch_size=8)
    monitor = GeometryMonitor({"rank": EffectiveRank()}, stages=["probe"], taps=taps)
    with pytest.raises(ValueError, match=message):
        quiet(tmp_path, callbacks=[monitor]).fit(OneTensor(), batches, batches)


LIGHTLY = [([torch.randn(6)] * 2, place % 2, "name") for place in range(16)]
HOLDS = r" The batch has 0: a list of 2 tensors \(8, 6\); 1: int64 \(8,\); 2: a tuple of str.$"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"views": 1}, 'views to be a list of tensors, but got Tensor. Say `batch_keys={"views": 0}`.'),
        ({"views": 0, "label": 3}, "label=3 to be in the batch, which has 3 positions."),
        ({"label": 1}, "where the views are, .*, such as `batch_keys={\"views\": 0}`, but got 'label'."),
        (
            {"views": 0, "label": 0},
            r"Expected `batch_keys` label=0 to be a tensor with 8 rows, as h and z have, but got a list of 2 tensors "
            r"\(8, 6\).",
        ),
    ],
)
def test_a_wrong_place_is_answered_with_what_the_batch_holds(tmp_path, keys, message):
    class Lightly(OneImageInValidation):
        training_step = validation_step = lambda self, batch, batch_idx: None

    batches = DataLoader(LIGHTLY, batch_size=8)
    monitor = GeometryMonitor({"rank": EffectiveRank()}, stages=["probe"], taps={"h": "trunk"}, batch_keys=keys)
    with pytest.raises(ValueError, match=message + HOLDS):
        quiet(tmp_path, callbacks=[monitor]).fit(Lightly(), batches, batches)


def test_a_batch_is_said_in_short():
    batch = {"views": [{"image": torch.ones(2, 3)}], "crops": (torch.ones(2), torch.ones(3)), "id": 5, "meta": {"a": 1}}
    said = contents(batch | {name: [] for name in "abcd"})
    assert said == (
        "The batch has 'views': a list of dict; 'crops': a tuple of 2 tensors (2,) and others; 'id': one int; "
        "'meta': a dict of 'a'; 'a': one list; 'b': one list; 2 more."
    )
    assert contents(torch.ones(2, 3)) == "The batch is float32 (2, 3)."


def test_a_host_without_validation_is_scored_on_the_set_it_leaves_aside(tmp_path):
    def silent(host):
        return type("Silent", (host,), {"validation_step": L.LightningModule.validation_step})()

    with pytest.warns(UserWarning, match="have no `validation_step`"):
        scene = attach(tmp_path, "tuple_batches", host=silent, max_epochs=2, num_sanity_val_steps=2)
    assert_logged(scene["trainer"], {"train", "probe"})
    metrics, probe = scene["trainer"].callback_metrics, scene["CALLBACKS"][1]
    right = [probe._predict(scene["host"].eval().encoder(x1)) == label for x1, _, label in scene["LOADER"]]
    assert metrics["val/linear_probe_accuracy"] == torch.cat(right).float().mean()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"taps": {"h": "encodr", "z": "head"}}, r"submodules of Host, but got h='encodr'. Did you mean `encoder"),
        (
            {"taps": {"h": "encoder", "z": "spare"}, "stages": ["train"]},
            r"`taps` \['z'\], but 'spare' was never called",
        ),
        ({"batch_keys": PAIR | {"label": 7}}, "label=7 to be in the batch, which has 3 positions"),
        ({"batch_keys": PAIR | {"label": "2.x"}}, r"label='2.x' to be in the batch, which has a Tensor"),
        ({"batch_keys": PAIR | {"label": "meta.x"}}, r"label='meta.x' to be in the batch, which has 3 positions"),
        (
            {"batch_keys": {"views": 0}},
            r"views to be a list of tensors, but got Tensor. Say `batch_keys={\"views\": \[0, 1\]}`. The batch has 0: ",
        ),
        (
            {"batch_keys": {"views": "image"}},
            r"views='image' to be in the batch, which has 3 positions. Name a position. The batch has 0: float32 ",
        ),
        ({"batch_keys": {}}, r"where the views are, .* such as `batch_keys={\"views\": \[0, 1\]}`, but got none. The "),
        (
            {"batch_keys": {"label": 2}, "augment": SimCLRViews()},
            r"where the images are, such as `batch_keys={\"image\": 0}`, but got 'label'. The batch has 0: float32",
        ),
        ({"batch_keys": {"image": 0}, "augment": SimCLRViews()}, r"in \[0, 1\] for `augment`, but got values from -"),
        ({"batch_keys": {"image": 4}, "augment": SimCLRViews()}, "image=4 to be in the batch, which has 3 positions"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, arguments, message):
    scene = runpy.run_path(str(ATTACH / "tuple_batches.py"))
    host = scene["Host"]()
    host.spare = torch.nn.Linear(1, 1)
    monitor = GeometryMonitor(**({"taps": {"h": "encoder", "z": "head"}, "stages": ["probe"]} | arguments))
    with pytest.raises(ValueError, match=message):
        quiet(tmp_path, callbacks=[monitor]).fit(host, scene["LOADER"], scene["LOADER"])


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"of one of the stages \('train', .*, but got 'fit/label'"):
        GeometryMonitor(taps={"h": "encoder"}, batch_keys={"fit/label": 2})
    with pytest.raises(ValueError, match="Expected `taps` beside `augment`"):
        GeometryMonitor(augment=SimCLRViews())


@pytest.mark.parametrize("probe", [LinearProbe, KNNProbe])
def test_probes_without_a_label_say_so(tmp_path, probe):
    scene = runpy.run_path(str(ATTACH / "tuple_batches.py"))
    callback = probe(num_classes=10, taps={"h": "encoder"})
    with pytest.raises(ValueError, match=r"Expected `label` for .*Probe, but the step has only h, index"):
        quiet(tmp_path, callbacks=[callback]).fit(scene["Host"](), scene["LOADER"], scene["LOADER"])


def test_a_forward_that_ends_before_z_is_explained(tmp_path):
    scene = runpy.run_path(str(ATTACH / "tuple_batches.py"))
    host = type("Short", (scene["Host"],), {"forward": lambda self, x: self.encoder(x)})()
    monitor = GeometryMonitor(taps={"h": "encoder", "z": "head"}, batch_keys=PAIR, stages=["probe"])
    with pytest.raises(
        ValueError, match=r"'head' was never called.*add 'encoder': 'encoder' and 'projector': 'head' to `taps`"
    ):
        quiet(tmp_path, callbacks=[monitor]).fit(host, scene["LOADER"], scene["LOADER"])


def test_the_random_numbers_of_numpy_and_python_are_left_alone_too():
    def draw():
        return random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002 (as transforms of others do)

    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    draw()
    expected = draw()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    draw()
    with undisturbed(torch.nn.ReLU()):  # as transforms of a data set do during a pass over the probe set
        draw()
    assert draw() == expected
