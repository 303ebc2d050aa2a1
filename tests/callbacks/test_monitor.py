import copy

import pandas as pd
import pytest
import torch
from hosts import HalvesHost, InterleavedHost, PlainHost, loader, pairs, quiet
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.data import LatentDGPDataModule
from lightning_ssl_geometry.diagnostics import Alignment, EffectiveRank, LogSpectrum, UpperBound
from lightning_ssl_geometry.methods import SimCLRModule

TAPS = {"h": "trunk", "z": "head", "projector": "head"}
STANDARD = {
    "effective_rank_h",
    "effective_rank_z",
    "projector_rank",
    "augmentation_rank",
    "alignment",
    "uniformity",
    "gaussian_potential",
    "bound_info_nce",
    "bound_negatives",
    "bound_temperature",
    "bound_upper",
    "bound_invariance",
    "bound_repulsion",
    "bound_expectation",
    "bound_entropy",
    "bound_entropy_form",
}


def monitor(**arguments):
    return GeometryMonitor(**({"taps": TAPS, "every_n_steps": 1} | arguments))


def fit(folder, host, *callbacks, **arguments):
    torch.manual_seed(0)
    trainer = quiet(folder, callbacks=list(callbacks), **arguments)
    trainer.fit(host, loader(), loader(seed=1))
    return trainer


@pytest.mark.parametrize(
    ("host", "views"), [(PlainHost, "calls"), (HalvesHost, "halves"), (InterleavedHost, "interleaved")]
)
def test_a_plain_module_in_any_layout(tmp_path, host, views):
    trainer = fit(tmp_path, host(), monitor(view_layout=views), max_epochs=2)
    logged = {name for name in trainer.callback_metrics if "/" in name}
    assert logged == {f"{stage}/{name}" for stage in ("train", "val") for name in STANDARD}
    assert all(torch.isfinite(trainer.callback_metrics[name]) for name in logged)
    for stage in ("train", "val"):
        for name, width in [("log_spectrum_h", 10), ("log_spectrum_z", 4), ("projector_singular_values", 4)]:
            frame = pd.read_csv(tmp_path / "geometry" / stage / f"{name}.csv")
            assert frame.shape == (2, width + 2)
            assert frame["step"].tolist() == [5, 10]


def test_layouts_give_the_same_numbers(tmp_path):
    # Without dropout the three hosts are one model on the same pairs.
    found = []
    for host, views in [(PlainHost, "calls"), (HalvesHost, "halves"), (InterleavedHost, "interleaved")]:
        torch.manual_seed(0)
        model = host()
        model.trunk[2].p = 0.0
        trainer = fit(tmp_path / views, model, monitor(view_layout=views))
        found.append({name: v for name, v in trainer.callback_metrics.items() if "/" in name})
    for other in found[1:]:
        for name in other:
            torch.testing.assert_close(other[name], found[0][name], rtol=1e-4, atol=1e-5, msg=name)


def test_training_is_the_same_bit_for_bit(tmp_path):
    torch.manual_seed(0)
    bare = PlainHost()
    watched = copy.deepcopy(bare)
    keys = set(watched.state_dict())
    fit(tmp_path / "a", bare, max_epochs=2)
    fit(tmp_path / "b", watched, monitor(), max_epochs=2)
    assert set(watched.state_dict()) == keys
    for name, value in bare.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name


def test_values_are_those_of_the_observed_steps(tmp_path):
    diagnostics = {"alignment": Alignment(), "rank_z": EffectiveRank(), "spectrum": LogSpectrum(center=True)}
    callback = monitor(diagnostics=diagnostics, rename={"rank_z": {"h": "z"}}, stages=["val"])
    host = PlainHost()
    trainer = fit(tmp_path, host, callback)
    host.eval()
    x1, x2, _ = pairs(seed=1).tensors
    z, h = torch.stack([host(x1), host(x2)]).detach(), torch.stack([host.trunk(x1), host.trunk(x2)]).detach()
    by_hand = Alignment(), EffectiveRank(), LogSpectrum(center=True)
    for metric, value in zip(by_hand, (z, z, h), strict=True):
        metric.update(value)
    metrics = trainer.callback_metrics
    torch.testing.assert_close(metrics["val/alignment"], by_hand[0].compute().float())
    torch.testing.assert_close(metrics["val/rank_z"], by_hand[1].compute().float())
    row = pd.read_csv(tmp_path / "geometry" / "val" / "spectrum.csv").iloc[0, 2:].to_numpy()
    torch.testing.assert_close(torch.tensor(row, dtype=torch.float64), by_hand[2].compute(), rtol=1e-4, atol=1e-4)


def test_every_n_steps(tmp_path):
    class Count(MeanMetric):
        def update(self, h):
            super().update(torch.tensor(1.0))

        def compute(self):
            return self.weight

    trainer = fit(tmp_path, PlainHost(), monitor(diagnostics={"count": Count()}, every_n_steps=2))
    assert trainer.callback_metrics["train/count"] == 3  # batches 0, 2 and 4 of 5
    assert trainer.callback_metrics["val/count"] == 5


def test_an_argument_with_a_default_is_observed_where_it_is_there(tmp_path):
    class Labelled(MeanMetric):
        def update(self, z, label=None):
            super().update(torch.tensor(0.0 if label is None else 1.0))

    without, with_label = (
        monitor(diagnostics={"a": Labelled()}),
        monitor(diagnostics={"b": Labelled()}, batch_keys={"label": 2}),
    )
    found = fit(tmp_path, PlainHost(), without, with_label).callback_metrics
    assert found["train/a"] == 0
    assert found["train/b"] == 1


def test_any_torchmetric_by_rename_and_batch_keys(tmp_path):
    callback = monitor(
        diagnostics={"label_mean": MeanMetric()},
        rename={"label_mean": {"value": "label", "weight": "weight"}},
        batch_keys={"label": 2, "weight": 2},
        stages=["val"],
    )
    trainer = fit(tmp_path, PlainHost(), callback)
    assert trainer.callback_metrics["val/label_mean"] == 1  # labels weighted by themselves: those of class 1


def test_early_stopping_and_checkpoints_see_it_in_any_order(tmp_path):
    stop = EarlyStopping("train/alignment", mode="min", patience=0, min_delta=1e9, check_on_train_epoch_end=True)
    keep = ModelCheckpoint(tmp_path, "{epoch}-{val/effective_rank_h:.2f}", "val/effective_rank_h", mode="max")
    trainer = fit(tmp_path, PlainHost(), stop, keep, monitor(), max_epochs=9, enable_checkpointing=True)
    assert trainer.current_epoch == 2
    assert keep.best_model_score == pytest.approx(keep.best_model_score.item())
    assert "effective_rank_h=" in keep.best_model_path


def test_scalars_reach_the_csv_logger(tmp_path):
    fit(tmp_path, PlainHost(), monitor(), logger=CSVLogger(tmp_path, "run"))
    frame = pd.read_csv(tmp_path / "run" / "version_0" / "metrics.csv")
    assert {f"val/{name}" for name in STANDARD} <= set(frame)
    assert (tmp_path / "run" / "version_0" / "geometry" / "val" / "log_spectrum_h.csv").exists()


def padded(rank, folder, n):
    host = PlainHost()
    with torch.no_grad():
        for i, parameter in enumerate(host.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
    callback = monitor(diagnostics={"alignment": Alignment(), "rank": EffectiveRank()}, stages=["val"])
    devices = {"devices": 2, "strategy": "ddp"} if rank is not None else {}
    trainer = quiet(folder, callbacks=[callback], **devices)
    trainer.validate(host, DataLoader(pairs(n), batch_size=4), verbose=False)
    return {name: value.item() for name, value in trainer.callback_metrics.items() if "/" in name}


def test_a_set_that_does_not_divide_counts_each_sample_once(tmp_path, two_processes):
    alone = padded(None, tmp_path, 11)
    for found in two_processes(padded, tmp_path, 11):
        assert found == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stages": ["training"]}, r"`stages` to be one of \('train', 'val', 'test', 'probe'\), but got 'training'"),
        ({"every_n_steps": 0}, "`every_n_steps` >= 1, but got 0"),
        ({"probe_size": 0}, "`probe_size` >= 1, but got 0"),
        ({"probe_every_n_epochs": 0}, "`probe_every_n_epochs` >= 1, but got 0"),
        ({"rename": {"x": {}}}, "`rename` to name one of .*, but got 'x'"),
        ({"view_layout": "x"}, "`view_layout` to be one of"),
        (
            {"diagnostics": {"a": Alignment}},
            r"^Expected `diagnostics` to hold Metrics, but 'a' is the class Alignment: say Alignment\(\).$",
        ),
        ({"diagnostics": {"a": nn.Identity()}}, "`diagnostics` to hold Metrics, but 'a' is of type Identity.$"),
        (
            {"diagnostics": [Alignment()]},
            "^Expected `diagnostics` to be a dict of names and Metrics, but got a list.$",
        ),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        monitor(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"taps": {"h": "trunk"}, "diagnostics": {"rank": EffectiveRank()}, "rename": {"rank": {"h": "z"}}},
            "Expected `z` for the diagnostic 'rank', but the val step has only h, in",
        ),
        (
            {"taps": None},
            "before the first step: Expected `taps` for PlainHost, whose validation step returns none of h, z: name "
            'its submodules, such as `taps={"h": ..., "z": ...}`. It has trunk, head.$',
        ),
        (
            {"taps": None, "diagnostics": {"mean": MeanMetric()}},
            "Expected `value` for the diagnostic 'mean', but the val step has nothing to observe. Return it",
        ),
        (
            {"taps": TAPS | {"H": "trunk"}},
            "`taps` of GeometryMonitor to name what a diagnostic observes, but none observes 'H'. Did you mean `h`\\?$",
        ),
        ({"taps": TAPS | {"h": "torso"}}, "taps` to name submodules of PlainHost, but got h='torso'"),
        ({"batch_keys": {"label": 5}}, "`batch_keys` label=5 to be in the batch, which has 3 positions"),
        (
            {"batch_keys": {"labels": 2}},
            "to name what a diagnostic observes, but none observes 'labels'. Did you mean `label`",
        ),
        (
            {"batch_keys": {"val/lable": 2}},
            "to name what a diagnostic observes, but none observes 'lable'. Did you mean `lab",
        ),
        ({"view_layout": "halves"}, r"called once on 2N rows \(`view_layout`='halves'\), got \[8, 8\]"),
    ],
)
def test_what_is_not_there_is_named(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        fit(tmp_path, PlainHost(), monitor(**arguments))


def test_nan_is_named(tmp_path):
    host = PlainHost()
    with torch.no_grad():
        host.head.weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"finite `z`, but got 16 of 64 values that are not, at step 0 \(epoch 0\)"):
        fit(tmp_path, host, monitor(diagnostics={"bound": UpperBound()}, on_error="raise"))


def test_labels_of_another_length_are_named(tmp_path):
    class Host(PlainHost):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            batch[2] = batch[2][:-1]
            return loss

    message = "`label` with 8 rows, as h and z have, but got 7"
    with pytest.warns(UserWarning, match=message), pytest.raises(ValueError, match=message):
        fit(tmp_path, Host(), monitor(batch_keys={"label": 2}, on_error="raise"))


def test_a_projector_without_weights_has_no_rank_and_the_next_host_has_one_again(tmp_path):
    monitor = GeometryMonitor(stages=["val"])
    data = LatentDGPDataModule(dim=4, content_dim=2, mixing=nn.Identity(), batch_size=16, epoch_size=16, val_size=16)
    for projector, ranked in ((nn.Identity(), False), (nn.Linear(4, 4), True)):
        trainer = quiet(tmp_path / str(ranked), callbacks=[monitor])
        trainer.fit(SimCLRModule(nn.Linear(4, 4), projector), datamodule=data)
        assert ("val/projector_rank" in trainer.callback_metrics) == ranked
        assert "val/effective_rank_z" in trainer.callback_metrics
