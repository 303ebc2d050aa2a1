"""A guard ends fits that collapse, after as many readouts as it says, and no others."""

import warnings

import lightning as L
import pytest
import torch
from hosts import quiet
from torch import nn

from lightning_ssl_geometry.callbacks import CollapseGuard, GeometryMonitor
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods import SimCLRModule


class Encoder(nn.Module):
    """Maps images to h as `kind` says, from an epoch on."""

    def __init__(self, kind, begins=0):
        super().__init__()
        self.kind, self.begins, self.epoch = kind, begins, 0
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        x = x.flatten(1)[:, :16]
        h = torch.randn(len(x), 16, generator=torch.Generator().manual_seed(0)) + 0 * x
        if self.epoch >= self.begins:
            if self.kind == "point":
                h = 1 + 1e-3 * h
            elif self.kind == "line":
                h = h[:, :1] * torch.linspace(-1, 2, 16) + 1e-2 * h
        return self.scale * h


class Clock(L.Callback):
    def on_train_epoch_start(self, trainer, pl_module):
        pl_module.backbone.epoch = trainer.current_epoch


def fitted(folder, kind, guard, begins=0, epochs=6, **further):
    model = SimCLRModule(Encoder(kind, begins), nn.Identity(), InfoNCELoss(0.5))
    trainer = quiet(folder, max_epochs=epochs, callbacks=[Clock(), guard, *further.pop("callbacks", ())], **further)
    trainer.fit(model, datamodule=DigitsDataModule(batch_size=32, subset=200))
    return trainer


@pytest.mark.parametrize(("kind", "said"), [("point", "collapse in whole"), ("line", "collapse of the dimensions")])
def test_a_collapse_ends_the_fit_after_as_many_readouts(tmp_path, kind, said):
    guard = CollapseGuard(patience=2)
    with pytest.warns(
        UserWarning, match=rf"CollapseGuard 'collapse' ends the fit after epoch 2: .*{said}.* in 2 readouts"
    ):
        trainer = fitted(tmp_path, kind, guard, begins=1)
    assert trainer.current_epoch == 3
    assert any(said in text for text in guard.found.values())


def test_a_spread_representation_is_left_alone(tmp_path):
    guard = CollapseGuard(patience=1, per_class=True)
    assert fitted(tmp_path, "spread", guard).current_epoch == 6
    assert not guard.found


def test_it_may_only_warn(tmp_path):
    guard = CollapseGuard("warn", patience=1)
    with pytest.warns(
        UserWarning, match="'collapse' warns after epoch 0: All rows of [hz] .* It was so in the last readout"
    ):
        assert fitted(tmp_path, "point", guard, epochs=2).current_epoch == 2


def test_its_values_are_logged_beside_a_monitors(tmp_path):
    trainer = fitted(tmp_path, "spread", CollapseGuard(), epochs=1, callbacks=[GeometryMonitor(stages=["val"])])
    assert -1 <= trainer.callback_metrics["val/collapse/mean_cosine_z"] < 0.5
    assert trainer.callback_metrics["val/collapse/variance_rank_h_participation_ratio"] > 2


def test_a_guard_without_a_readout_says_so(tmp_path):
    with pytest.warns(UserWarning, match="had no readout of 'val' in this fit, .* `stage='train'` watches"):
        fitted(tmp_path / "a", "point", CollapseGuard(), epochs=1, limit_val_batches=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*had no readout")
        fitted(tmp_path / "b", "spread", CollapseGuard(stage="train"), epochs=1, limit_val_batches=0)


class Ends(L.Callback):
    def on_validation_end(self, trainer, pl_module):
        if trainer.current_epoch == 1 and not trainer.sanity_checking:
            trainer.should_stop = True


def test_the_count_goes_on_after_a_resume(tmp_path):
    fitted(tmp_path / "a", "point", CollapseGuard(patience=3), callbacks=[Ends()]).save_checkpoint(tmp_path / "x.ckpt")
    guard = CollapseGuard(patience=3)
    model = SimCLRModule(Encoder("point"), nn.Identity(), InfoNCELoss(0.5))
    trainer = quiet(tmp_path / "b", max_epochs=9, callbacks=[guard])
    with pytest.warns(UserWarning, match="ends the fit after epoch 2"):
        trainer.fit(
            model,
            datamodule=DigitsDataModule(batch_size=32, subset=200),
            ckpt_path=tmp_path / "x.ckpt",
            weights_only=False,
        )


@pytest.mark.parametrize(("epochs", "warns"), [(4, True), (2, False)])
def test_a_resumed_fit_without_a_readout_says_so(tmp_path, epochs, warns):
    """Two epochs are done before; a fit that has nothing left to do says nothing."""
    trainer = fitted(tmp_path / "a", "spread", CollapseGuard(), epochs=2)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    model, data = SimCLRModule(Encoder("spread"), nn.Identity(), InfoNCELoss(0.5)), DigitsDataModule(32, subset=200)
    resumed = quiet(tmp_path / "b", max_epochs=epochs, callbacks=[CollapseGuard()], limit_val_batches=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        resumed.fit(model, datamodule=data, ckpt_path=tmp_path / "x.ckpt", weights_only=False)
    assert any("had no readout of 'val' in this fit" in str(each.message) for each in said) == warns


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"action": "end"}, "Expected `action` to be one of .'stop', 'warn'., but got 'end'"),
        ({"patience": 0}, "Expected `patience` to be an integer >= 1, but got 0"),
        ({"stage": "test"}, "Expected `stage` to be one of"),
        ({"per_class": "no"}, "Expected `per_class` to be True or False, but got 'no'"),
    ],
)
def test_wrong_arguments_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        CollapseGuard(**given)


class Labelled(L.LightningModule):
    """Shows its batches as h and z."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def training_step(self, batch, batch_idx):
        h, label = batch
        return {"loss": self.weight**2, "h": h[None], "z": h[None], "label": label}

    def validation_step(self, batch, batch_idx):
        return self.training_step(batch, batch_idx)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("per_class", [True, False])
def test_a_class_that_collapses_is_found_if_asked_for(tmp_path, per_class):
    torch.manual_seed(0)
    h, label = torch.randn(80, 8), torch.arange(80) % 4
    h[label == 1] = torch.linspace(-1, 1, 8) + 1e-3 * torch.randn(20, 8)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(h, label), batch_size=20)
    guards = [CollapseGuard("warn", 1, per_class=per_class), CollapseGuard("warn", 1, name="other")]
    trainer = quiet(tmp_path, max_epochs=1, callbacks=guards)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        trainer.fit(Labelled(), loader, loader)
    said = " ".join(guards[0].found.values())
    assert ("In 1 classes all rows of h" in said) == per_class
    assert not guards[1].found
    trainer.save_checkpoint(tmp_path / "both.ckpt")  # each guard has a state of its own
    held = torch.load(tmp_path / "both.ckpt", weights_only=False)["callbacks"]
    assert {"CollapseGuard 'collapse'", "CollapseGuard 'other'"} <= held.keys()


@pytest.mark.parametrize("fill", [0.0, float("nan")])
def test_rows_that_are_all_zero_are_a_collapse_and_rows_that_are_not_finite_are_warned_of(tmp_path, fill):
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.full((80, 8), fill), torch.arange(80) % 4), batch_size=20
    )
    guard = CollapseGuard(patience=2, per_class=True)
    trainer = quiet(tmp_path, max_epochs=4, callbacks=[guard])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer.fit(Labelled(), loader, loader)
    if fill == 0:
        assert guard.found == {f"val/collapse/mean_cosine_{space}": f"All rows of {space} are 0." for space in "hz"}
        assert trainer.current_epoch == 2
    else:
        assert not guard.found
        assert trainer.current_epoch == 4
        assert any("Expected finite `h`" in str(each.message) for each in said)
