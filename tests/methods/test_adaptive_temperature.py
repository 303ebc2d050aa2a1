import functools

import pytest
import torch
from hosts import quiet
from torch import nn
from torch.utils.data import DataLoader

from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.functional import info_nce
from lightning_ssl_geometry.losses import (
    ContentStyleTemperature,
    GradientSpectrumTemperature,
    InfoNCELoss,
    LearnedTemperature,
    VICRegLoss,
)
from lightning_ssl_geometry.methods import AdaptiveTemperatureModule
from lightning_ssl_geometry.nn import MLPBackbone, MLPProjector, SmallCNN


def rusak(temperature, **settings):
    return InfoNCELoss(temperature, **{"form": "RUSAK", "normalize": False, "similarity": "distance"} | settings)


def module(temperature=None, **arguments):
    torch.manual_seed(1)
    backbone = MLPBackbone(6, [16], 16, last_activation=True)
    loss = None if temperature is None else rusak(temperature)
    return AdaptiveTemperatureModule(backbone, nn.Linear(16, 4), loss=loss, **arguments)


def batch(n=32, views=2):
    x = torch.rand(n, 6)
    change = torch.tensor([0.0, 0.0, 0.0, 0.1, 0.1, 0.1])
    return {"views": tuple(x + i * change * torch.randn(n, 6) for i in range(views)), "image": x}


def test_observe():
    model, sample = module([0.5, 0.5, 1.0, 1.0]), batch()
    found = model.observe(sample)
    h = torch.stack([model(view) for view in sample["views"]])
    z = model.projector(h)
    torch.testing.assert_close(found["h"], h)
    torch.testing.assert_close(found["z"], z)
    torch.testing.assert_close(found["loss"], rusak([0.5, 0.5, 1.0, 1.0])(z[0], z[1]))
    assert found["loss"].requires_grad
    assert not found["z"].requires_grad
    assert found["temperature"].tolist() == [0.5, 0.5, 1, 1]
    assert found["projector"] is model.projector


def test_the_defaults_are_unnormalised():
    model, sample = module(), batch()
    found = model.observe(sample)
    expected = info_nce(*found["z"], 1.0, normalize=False, symmetric=False, negatives="same", similarity="distance")
    torch.testing.assert_close(found["loss"], expected)
    assert found["temperature"].tolist() == [1, 1, 1, 1]


def test_standardised_embeddings():
    model, sample = module(standardize=True), batch()
    found = model.observe(sample)
    rows = found["z"].flatten(0, 1)  # both views
    plain = model.projector[0](found["h"]).flatten(0, 1)
    variance, mean = torch.var_mean(plain, dim=0, correction=0)
    torch.testing.assert_close(rows, (plain - mean) / (variance + 1e-5).sqrt())
    torch.testing.assert_close(model.projector(found["h"].flatten(0, 1)), rows)
    assert {p.ndim for p in model.projector.parameters()} == {1, 2}
    assert len(list(model.projector.parameters())) == 2  # none of the batch norm
    assert "projector.1.running_mean" in model.state_dict()


@pytest.mark.parametrize("projector", [MLPProjector(16, 8, 4), nn.Sequential(nn.Linear(16, 4), nn.Identity())])
def test_the_width_to_standardise_is_that_of_the_last_linear_layer(projector):
    model = AdaptiveTemperatureModule(MLPBackbone(6, [], 16), projector, standardize=True)
    assert model.observe(batch())["z"].shape == (2, 32, 4)


@pytest.mark.parametrize(
    "temperature", [0.5, [0.5, 0.5, 1.0, 1.0], LearnedTemperature(4), GradientSpectrumTemperature(4)], ids=str
)
def test_every_parameter_receives_a_gradient(temperature):
    model = module(temperature)
    model.observe(batch())["loss"].backward()
    for name, p in model.named_parameters():
        if name == "projector.bias":  # distances do not see it
            assert p.grad.abs().max() < 1e-6
        else:
            assert p.grad.abs().sum() > 0, name


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
def test_a_learned_temperature_is_in_the_optimizer_without_weight_decay_and_in_the_checkpoint(tmp_path):
    model = module(LearnedTemperature(4), optimizer=lambda groups: torch.optim.SGD(groups, lr=0.1, weight_decay=0.5))
    before = model.loss.temperature.log_precision.detach().clone()
    trainer = quiet(tmp_path, max_epochs=1)
    trainer.fit(model, DataLoader([batch()], collate_fn=lambda rows: rows[0]))
    free = trainer.optimizers[0].param_groups[1]
    assert free["weight_decay"] == 0
    assert any(p is model.loss.temperature.log_precision for p in free["params"])
    assert not torch.equal(model.loss.temperature.log_precision, before)
    assert "loss.temperature.log_precision" in model.state_dict()


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
@pytest.mark.parametrize("exclude", [False, True])
def test_the_loss_can_have_its_own_learning_rate(tmp_path, exclude):
    optimizer = functools.partial(torch.optim.AdamW, lr=0.01, weight_decay=0.5)
    model = module(LearnedTemperature(4), optimizer=optimizer, exclude_norm_and_bias=exclude, loss_lr=0.1)
    trainer = quiet(tmp_path, max_epochs=1)
    trainer.fit(model, DataLoader([batch()], collate_fn=lambda rows: rows[0]))
    *others, own = trainer.optimizers[0].param_groups
    assert own["params"] == [model.loss.temperature.log_precision]
    assert (own["initial_lr"], own["weight_decay"]) == (0.1, 0.0)
    assert own["lr"] == pytest.approx(10.0 * others[0]["lr"])
    assert {group["initial_lr"] for group in others} == {0.01}
    parameters = [p for group in trainer.optimizers[0].param_groups for p in group["params"]]
    assert sorted(map(id, parameters)) == sorted(map(id, model.parameters()))


@pytest.mark.filterwarnings("ignore:The temperature of content")
def test_the_gradient_spectrum_finds_the_content_of_a_linear_process():
    # Half of the latents are exact content. On Euclidean distances no output is content until temperatures differ.
    torch.manual_seed(0)
    mixing = torch.linalg.qr(torch.randn(6, 6)).Q
    rule = GradientSpectrumTemperature(6, momentum=0.9)
    model = AdaptiveTemperatureModule(nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False), loss=rusak(rule))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(300):
        views = tuple(view @ mixing for view in batch(128)["views"])
        optimizer.zero_grad()
        found = model.observe({"views": views})
        found["loss"].backward()
        optimizer.step()
    content = found["temperature"] < 1
    assert content.sum() == 3
    z1, z2 = found["z"]
    ratio = (z1 - z2).square().mean(dim=0) / z1.var(dim=0)
    assert ratio[content].max() < ratio[~content].min()


YAML = """
model:
  class_path: lightning_ssl_geometry.methods.AdaptiveTemperatureModule
  init_args:
    backbone: {class_path: lightning_ssl_geometry.nn.SmallCNN, init_args: {in_channels: 1, width: 8}}
    projector: {class_path: torch.nn.Linear, init_args: {in_features: 64, out_features: 4}}
    loss: {class_path: LOSSES.InfoNCELoss, init_args: {form: RUSAK, temperature: TEMPERATURE}}
    standardize: true
data:
  class_path: lightning_ssl_geometry.data.DigitsDataModule
  init_args: {batch_size: 32, subset: 64}
trainer:
  fast_dev_run: true
  accelerator: cpu
  enable_progress_bar: false
"""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("0.5", float),
        ("2", float),
        ("[0.5, 0.5, 1, 1]", tuple),
        ("{class_path: LOSSES.LearnedTemperature, init_args: {dim: 4}}", LearnedTemperature),
        ("{class_path: LOSSES.LearnedTemperature, init_args: {dim: 4, initial: [1, 1, 2, 2]}}", LearnedTemperature),
        ("{class_path: LOSSES.ContentStyleTemperature, init_args: {dim: 4}}", ContentStyleTemperature),
        ("{class_path: LOSSES.GradientSpectrumTemperature, init_args: {dim: 4}}", GradientSpectrumTemperature),
    ],
)
def test_the_temperature_in_yaml(tmp_path, monkeypatch, text, kind):
    path = tmp_path / "x.yaml"
    path.write_text(YAML.replace("TEMPERATURE", text).replace("LOSSES", "lightning_ssl_geometry.losses"))
    made = []

    def watched(self, stage):
        made.append(self.loss.temperature)

    monkeypatch.setattr(AdaptiveTemperatureModule, "setup", watched)
    monkeypatch.chdir(tmp_path)
    main(["fit", "--config", str(path)])
    assert isinstance(made[0], kind)


@pytest.mark.parametrize("text", ["many", "{class_path: lightning_ssl_geometry.losses.LearntTemperature}"])
def test_a_wrong_temperature_in_yaml_is_named(tmp_path, capsys, text):
    path = tmp_path / "x.yaml"
    path.write_text(YAML.replace("TEMPERATURE", text).replace("LOSSES", "lightning_ssl_geometry.losses"))
    with pytest.raises(SystemExit, match="2"):
        main(["fit", "--config", str(path)])
    assert "temperature" in capsys.readouterr().err


def test_wrong_input_is_named():
    with pytest.raises(ValueError, match="`temperature` with P = 4 values, one per dimension, but got 3"):
        module([0.5, 1.0, 1.0]).observe(batch())
    with pytest.raises(ValueError, match=r"Expected `temperature` > 0 and finite, but got 0\.0"):
        module(0.0)
    with pytest.raises(ValueError, match="2 `views` in a batch, but got 3"):
        module().observe(batch(views=3))
    with pytest.raises(ValueError, match=r"Expected a `projector` with a nn.Linear, .* but got Identity: put nn.Batch"):
        AdaptiveTemperatureModule(SmallCNN(1, 8), nn.Identity(), standardize=True)
    with pytest.raises(ValueError, match="Expected `loss` alone, but got `normalize`, `temperature` beside it"):
        AdaptiveTemperatureModule(SmallCNN(1, 8), nn.Linear(64, 4), loss=rusak(1.0), temperature=0.5, normalize=True)
    with pytest.raises(ValueError, match="Expected `standardize` to be True or False, but got 'no'"):
        module(standardize="no")
    with pytest.raises(
        ValueError, match=r"Expected a `loss` with parameters for `loss_lr` = 0\.1, but got InfoNCELoss"
    ):
        module(1.0, loss_lr=0.1)
    with pytest.raises(ValueError, match="Expected `loss` to be an InfoNCELoss, whose temperatures adapt, but got VIC"):
        AdaptiveTemperatureModule(nn.Linear(4, 4), nn.Linear(4, 2), loss=VICRegLoss())
    with pytest.raises(ValueError, match="Expected `exclude_norm_and_bias` to be True or False, but got 'no'"):
        AdaptiveTemperatureModule(nn.Linear(4, 4), nn.Linear(4, 2), exclude_norm_and_bias="no")
    with pytest.raises(ValueError, match="Expected `loss_lr` > 0 and finite, but got 0"):
        module(LearnedTemperature(4), loss_lr=0.0)


def test_parameters_of_the_module_itself_have_the_encoders_learning_rate():
    class Mine(AdaptiveTemperatureModule):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            self.extra = nn.Parameter(torch.ones(3))

    loss = InfoNCELoss(LearnedTemperature(4))
    optimizer = functools.partial(torch.optim.SGD, lr=0.5)
    model = Mine(nn.Linear(3, 3), nn.Linear(3, 4), loss=loss, loss_lr=0.1, optimizer=optimizer)
    groups = model._parameter_groups()
    own = next(group for group in groups if any(p is model.extra for p in group["params"]))
    assert "lr" not in own  # the optimizer's
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    loss.temperature.requires_grad_(False)
    assert all(p.requires_grad for group in model._parameter_groups() for p in group["params"])
