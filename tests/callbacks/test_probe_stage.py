"""The stage "probe": a fixed set with two views, looked at before training and after its epochs."""

import copy

import lightning as L
import pandas as pd
import pytest
import torch
from hosts import PlainHost, loader, quiet
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn.functional import cross_entropy

from lightning_ssl_geometry import functional as F
from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.diagnostics import (
    Alignment,
    AugmentationRank,
    EffectiveRank,
    HardestNegativeDistance,
    JacobianRank,
    LabelAgreement,
    LieGenerator,
    LinearRegions,
    LocalUnexplainedVariance,
    LogSpectrum,
    NullSpaceFraction,
    ProjectorRank,
    RotationRank,
    UnexplainedVariance,
    UpperBound,
)
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import SmallCNN
from lightning_ssl_geometry.report import read_run

DIAGNOSTICS = {
    "alignment": Alignment(),
    "rank": EffectiveRank(),
    "unexplained": UnexplainedVariance(contrast_size=50),
    "labels": LabelAgreement(contrast_size=50),
    "log_spectrum_h_image": LogSpectrum(),
}
CLEAN = {"log_spectrum_h_image": {"h": "h_image"}}
TAPS = {"h": "trunk", "z": "head", "encoder": "trunk", "projector": "head"}


def monitor(**arguments):
    defaults = {"diagnostics": DIAGNOSTICS, "rename": CLEAN, "stages": ["probe"], "probe_size": 60}
    return GeometryMonitor(**(defaults | arguments))


def digits():
    return DigitsDataModule(batch_size=30, subset=600)


def simclr():
    torch.manual_seed(0)
    return SimCLRModule(SmallCNN(1, 4), nn.Linear(32, 8, bias=False))


def fit(folder, model, *callbacks, ckpt_path=None, **arguments):
    torch.manual_seed(1)
    trainer = quiet(folder, callbacks=list(callbacks), logger=CSVLogger(folder, "run"), **arguments)
    trainer.fit(model, datamodule=digits(), ckpt_path=ckpt_path)
    return trainer


def logged(folder, name):
    frame = pd.read_csv(folder / "run" / "version_0" / "metrics.csv")
    return frame[frame[name].notna()].sort_values("step")


def array(folder, name):
    return pd.read_csv(folder / "run" / "version_0" / "geometry" / "probe" / f"{name}.csv")


class ViewsHost(L.LightningModule):
    """A model that knows nothing of this package, on batches that are dicts with views; both views in one call."""

    def __init__(self, together=False):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(12, 5, bias=False)
        self.together = together

    def training_step(self, batch, batch_idx):
        z1, z2 = self.embed(*batch["views"])
        return cross_entropy(z1 @ z2.T, torch.arange(len(z1)))

    def validation_step(self, batch, batch_idx):
        self.embed(*batch["views"])

    def embed(self, x1, x2):
        return self.z(torch.cat([x1, x2])).chunk(2) if self.together else (self.z(x1), self.z(x2))

    def z(self, x):
        return self.head(self.trunk(x))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


@pytest.mark.parametrize("host", [simclr, ViewsHost], ids=["ours", "tapped"])
def test_training_is_the_same_bit_for_bit(tmp_path, host):
    taps = None if host is simclr else TAPS
    labels = {} if taps is None else {"batch_keys": {"label": "label", "index": "index"}}
    bare, watched = host(), host()
    fit(tmp_path / "a", bare, max_epochs=2)
    fit(tmp_path / "b", watched, monitor(taps=taps, **labels), max_epochs=2)
    assert set(bare.state_dict()) == set(watched.state_dict())
    for name, value in bare.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name
    assert len(logged(tmp_path / "b", "probe/alignment")) == 3
    assert array(tmp_path / "b", "log_spectrum_h_image").shape == (3, 2 + (32 if taps is None else 12))


def calibrated(model):
    """Batch norm with the mean statistics of the first 16 training batches, in eval mode."""
    data, norms = digits(), [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    for layer in norms:
        layer.momentum = None
    with torch.no_grad():
        for _, batch in zip(range(16), data.train_dataloader(), strict=False):
            model.step(data.on_after_batch_transfer(batch, 0))
    return model.eval()


def test_it_looks_before_the_first_step_and_after_each_epoch(tmp_path):
    model = simclr()
    before = calibrated(copy.deepcopy(model))
    fit(tmp_path, model, monitor(), max_epochs=2)
    assert logged(tmp_path, "probe/alignment")[["epoch", "step"]].to_numpy().tolist() == [[0, 0], [0, 17], [1, 35]]
    assert array(tmp_path, "log_spectrum_h_image")["step"].tolist() == [0, 18, 36]
    data = digits()
    batches = [data.on_after_batch_transfer(batch, 0) for batch in data.val_dataloader()]
    for row, network in ((0, before), (2, model.eval())):
        z = torch.cat([network.observe(batch)["z"] for batch in batches], dim=1)
        expected = F.alignment(z[0].double(), z[1].double()).item()
        assert logged(tmp_path, "probe/alignment")["probe/alignment"].iloc[row] == pytest.approx(expected, rel=1e-5)
        h = torch.cat([network(batch["image"]) for batch in batches]).detach()
        spectrum = array(tmp_path, "log_spectrum_h_image").iloc[row, 2:].to_numpy()
        torch.testing.assert_close(torch.tensor(spectrum), F.log_singular_values(h), rtol=1e-3, atol=1e-3)


def test_epochs_of_one_step_keep_the_look_before_the_first(tmp_path):
    fit(tmp_path, simclr(), monitor(), max_epochs=2, limit_train_batches=1)
    run = read_run(tmp_path / "run")
    alignment = run.scalars["probe/alignment"]
    assert run.time(alignment).tolist() == run.time(run.arrays["probe/log_spectrum_h_image"]).tolist() == [0, 1, 2]
    assert alignment.value.tolist() == pytest.approx(logged(tmp_path, "probe/alignment")["probe/alignment"].tolist())


def test_every_n_epochs_and_the_last(tmp_path):
    fit(tmp_path, simclr(), monitor(probe_every_n_epochs=2), max_epochs=5)
    assert logged(tmp_path, "probe/alignment")["epoch"].tolist() == [0, 1, 3, 4]


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_a_resumed_run_does_not_look_at_its_start_again(tmp_path):
    fit(tmp_path / "a", simclr(), monitor(), max_epochs=1, enable_checkpointing=True)
    (checkpoint,) = (tmp_path / "a").rglob("*.ckpt")
    fit(tmp_path / "b", simclr(), monitor(), max_epochs=2, enable_checkpointing=True, ckpt_path=checkpoint)
    assert logged(tmp_path / "b", "probe/alignment")["step"].tolist() == [35]


@pytest.mark.parametrize("together", [False, True])
def test_a_tapped_host_gives_what_its_submodules_return(tmp_path, together):
    host = ViewsHost(together)
    views = "halves" if together else "calls"
    keys = {"label": "label", "index": "index"}
    fit(tmp_path, host, monitor(taps=TAPS, view_layout=views, batch_keys=keys), max_epochs=1)
    data = digits()
    batches = [data.on_after_batch_transfer(batch, 0) for batch in data.val_dataloader()]
    host.eval()
    z = torch.stack([torch.cat([host.z(batch["views"][v]) for batch in batches]) for v in (0, 1)]).detach()
    found = logged(tmp_path, "probe/alignment")["probe/alignment"].iloc[-1]
    assert found == pytest.approx(F.alignment(z[0], z[1]).item(), rel=1e-4)


def test_the_set_is_spread_over_the_validation_set(tmp_path):
    seen = []

    class Places(EffectiveRank):
        def update(self, h, index):
            seen.append(index.tolist())
            super().update(h)

    data = DigitsDataModule(batch_size=10, val_fraction=0.5, subset=200)  # ten batches of validation
    callback = monitor(diagnostics={"places": Places()}, rename={}, probe_size=25)
    trainer = quiet(tmp_path, callbacks=[callback], max_epochs=1)
    trainer.fit(simclr(), datamodule=data)
    batches = [batch["index"].tolist() for batch in data.val_dataloader()]
    assert seen == 2 * [batches[0], batches[3], batches[6]]


def every_diagnostic():
    of_20 = {
        **{"jacobian": JacobianRank, "bound": UpperBound, "lie": LieGenerator, "linear_regions": LinearRegions},
        **{"hardest_negative": HardestNegativeDistance, "label_agreement": LabelAgreement},
        **{"unexplained_variance": UnexplainedVariance, "local_unexplained_variance": LocalUnexplainedVariance},
    }
    return {name: kind(contrast_size=20) for name, kind in of_20.items()} | {
        "projector": ProjectorRank(),
        "log_spectrum_h": LogSpectrum(),
        "log_spectrum_h_image": LogSpectrum(),
        "null_space": NullSpaceFraction(),
        "augmentation": AugmentationRank(),
        "rotation": RotationRank(contrast_size=2, count=10),
    }


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("stage", ["probe", "val"])
def test_every_diagnostic_of_the_paper_on_a_tapped_host(tmp_path, stage, together):
    host, keys = ViewsHost(together), {"label": "label", "index": "index"}
    views = "halves" if together else "calls"
    diagnostics, rename = every_diagnostic(), CLEAN
    if stage == "val":  # only the probe set's clean images are encoded for a host that does not do so
        diagnostics.pop("log_spectrum_h_image")
        keys, rename = keys | {"image": "image"}, {}
    watching = monitor(
        diagnostics=diagnostics, rename=rename, taps=TAPS, view_layout=views, batch_keys=keys, stages=[stage]
    )
    metrics = fit(tmp_path, host, watching, max_epochs=1).callback_metrics
    found = {name.removeprefix(f"{stage}/"): value for name, value in metrics.items()}
    for name in diagnostics:
        arrays = list((tmp_path / "run" / "version_0" / "geometry" / stage).glob(f"{name}*.csv"))
        scalars = [value for key, value in found.items() if key.startswith(name)]
        assert arrays or scalars, name
        assert all(torch.isfinite(value) for value in scalars), name
    assert found["linear_regions_visited"] == 1
    assert found["jacobian_rank"] == found["projector_rank"]
    # one linear map: the local numbers are the global ones
    for part in ("full", "tau"):
        torch.testing.assert_close(found[f"local_unexplained_variance_{part}"], found[f"unexplained_variance_{part}"])


def test_two_monitors_keep_their_stages_apart(tmp_path):
    streaming = GeometryMonitor({"bound": UpperBound(contrast_size=30)}, stages=["train"], every_n_steps=4)
    trainer = fit(tmp_path, simclr(), streaming, monitor(), max_epochs=1)
    names = {name for name in trainer.callback_metrics if "bound" in name or "alignment" in name}
    assert {"train/bound_upper", "probe/alignment"} <= names
    assert "train/alignment" not in names


def test_weights_that_move_are_refused_in_the_training_stage(tmp_path):
    with (
        pytest.raises(
            ValueError, match=r"stands still.*Observe this diagnostic in the stages 'val', 'test' or 'probe'"
        ),
        pytest.warns(UserWarning, match="The fit ends with this error"),
    ):
        fit(tmp_path, simclr(), monitor(stages=["train"], rename={}, on_error="raise"), max_epochs=1)


def test_without_labels_or_a_validation_set_it_says_so(tmp_path):
    labels = {"labels": LabelAgreement()}
    with pytest.raises(ValueError, match="Expected `label` for the diagnostic 'labels', but the probe step has only"):
        fit(tmp_path, ViewsHost(), monitor(diagnostics=labels, rename={}, taps=TAPS), max_epochs=1)
    said = pytest.warns(UserWarning, match="no `val_dataloader`")
    with said, pytest.raises(ValueError, match="validation set for the stage 'probe', but the Trainer has none"):
        quiet(tmp_path, callbacks=[monitor(taps=TAPS)]).fit(PlainHost(), loader())
