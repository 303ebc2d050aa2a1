import math

import lightning as L
import pytest
import torch
from hosts import quiet
from torch import nn
from torch.utils.data import DataLoader

from lightning_ssl_geometry.functional import info_nce
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import MLPProjector, SmallCNN

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")


def module(**arguments):
    return SimCLRModule(SmallCNN(1, 8, "group"), MLPProjector(64, 16, 8, norm="layer"), **arguments)


def batch(n=6, views=2):
    return {"views": tuple(torch.randn(views, n, 1, 8, 8)), "label": torch.arange(n), "index": torch.arange(n)}


def one(collated):
    return collated[0]


def fit(folder, model, steps=4, **arguments):
    torch.manual_seed(0)
    loader = DataLoader([batch() for _ in range(steps)], collate_fn=one)
    trainer = quiet(folder, **arguments)
    trainer.fit(model, loader)
    return trainer


def test_forward_is_the_representation():
    model = module()
    x = torch.randn(3, 1, 8, 8)
    torch.testing.assert_close(model(x), model.backbone(x))
    assert model(x).shape == (3, 64)


def test_observe():
    model, sample = module(), batch()
    found = model.observe(sample)
    h = torch.stack([model(view) for view in sample["views"]])
    z = torch.stack([model.projector(row) for row in h])
    torch.testing.assert_close(found["h"], h)
    torch.testing.assert_close(found["z"], z)
    torch.testing.assert_close(found["loss"], info_nce(z[0], z[1], 0.5))
    assert found["loss"].requires_grad
    assert not found["h"].requires_grad
    assert not found["z"].requires_grad
    assert torch.equal(found["label"], sample["label"])
    assert found["projector"] is model.projector


def test_every_parameter_receives_a_gradient():
    model = module()
    model.observe(batch())["loss"].backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_evaluation_adds_the_clean_image(tmp_path):
    sample, model, seen = batch() | {"image": torch.randn(6, 1, 8, 8)}, module(), {}

    class Look(L.Callback):
        def on_validation_batch_end(self, trainer, pl_module, outputs, *_):
            seen.update(outputs)

    quiet(tmp_path, callbacks=[Look()]).validate(model, DataLoader([sample], collate_fn=one), verbose=False)
    torch.testing.assert_close(seen["h_image"], model(sample["image"]).detach())


def test_norm_and_bias_have_no_weight_decay_and_so_no_trust_ratio(tmp_path):
    model = module(optimizer=lambda groups: torch.optim.SGD(groups, lr=0.1, weight_decay=0.5))
    trainer = fit(tmp_path, model)
    decayed, free = trainer.optimizers[0].param_groups
    assert decayed["weight_decay"] == 0.5
    assert free["weight_decay"] == 0
    assert {p.ndim for p in decayed["params"]} == {2, 4}
    assert {p.ndim for p in free["params"]} == {1}
    assert len(decayed["params"]) + len(free["params"]) == len(list(model.parameters()))
    model = module(optimizer=lambda groups: torch.optim.SGD(groups, lr=0.1), exclude_norm_and_bias=False)
    assert len(fit(tmp_path, model).optimizers[0].param_groups) == 1


def test_lars_leaves_excluded_parameters_to_plain_momentum(tmp_path):
    from timm.optim import Lars

    model = module(optimizer=lambda groups: Lars(groups, lr=0.1, momentum=0.9, weight_decay=1e-6))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    fit(tmp_path, model, steps=1)
    moved = {name: (p - before[name]).norm() for name, p in model.named_parameters()}
    for name, p in model.named_parameters():
        # The trust ratio is 0.001 |w| / |g|, so an adapted weight moves by lr * 0.001 * |w| at first.
        if p.ndim > 1:
            assert moved[name].item() == pytest.approx(1e-4 * before[name].norm().item(), rel=1e-2), name
        else:
            assert moved[name].item() != pytest.approx(1e-4 * before[name].norm().item(), rel=1e-2), name


def test_the_schedule_knows_the_length_of_the_run(tmp_path):
    model = module(optimizer=lambda groups: torch.optim.SGD(groups, lr=1.0), warmup_epochs=1)
    trainer = fit(tmp_path, model, max_epochs=3)
    assert trainer.global_step == 12
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0, abs=1e-12)
    rates = []

    class Look(L.Callback):
        def on_train_batch_start(self, trainer, *_):
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    model = module(optimizer=lambda groups: torch.optim.SGD(groups, lr=1.0), warmup_epochs=1)
    fit(tmp_path, model, max_epochs=2, callbacks=[Look()])
    assert rates[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])  # the first of two epochs of 4 steps
    assert rates[4:] == pytest.approx([0.5 + 0.5 * math.cos(math.pi * s / 4) for s in range(4)])


def test_a_scheduler_of_the_users_own(tmp_path):
    model = module(
        optimizer=lambda groups: torch.optim.SGD(groups, lr=1.0),
        lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
    )
    trainer = fit(tmp_path, model, max_epochs=3)
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.125)


def test_load_from_checkpoint(tmp_path):
    model = module()
    trainer = fit(tmp_path, model)
    path = tmp_path / "x.ckpt"
    trainer.save_checkpoint(path)
    again = SimCLRModule.load_from_checkpoint(
        path, backbone=SmallCNN(1, 8, "group"), projector=MLPProjector(64, 16, 8, norm="layer"), weights_only=True
    )
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])


def test_a_checkpoint_of_another_class_is_refused(tmp_path):
    class OtherModule(SimCLRModule):
        pass

    trainer = fit(tmp_path, OtherModule(SmallCNN(1, 8), nn.Linear(64, 4)))
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match="Expected a checkpoint of SimCLRModule, but got one of OtherModule"):
        quiet(tmp_path, max_epochs=2).fit(
            module(), DataLoader([batch()], collate_fn=one), ckpt_path=tmp_path / "x.ckpt"
        )


def test_bf16(tmp_path):
    model = module(loss=InfoNCELoss(0.1))
    trainer = fit(tmp_path, model, precision="bf16-mixed", max_epochs=2)
    assert torch.isfinite(trainer.callback_metrics["train/loss"])


CNN, IDENTITY = SmallCNN(1, 8, "group"), nn.Identity()
FITS = "`projector` to take D = 64, which SmallCNN as `backbone` returns, but got {}, which takes 63"
NO_FORWARD = r"Expected `{}` to be a module with a `forward`, but got Module\(\)"
NO_MODULE = "Expected `{}` to be a torch.nn.Module, but got a str"
ERRORS = [
    (lambda _: SimCLRModule(CNN, MLPProjector(63, 16, 8, norm="layer")).observe(batch()), FITS.format("MLPProjector")),
    (lambda _: SimCLRModule(CNN, nn.Linear(63, 8)).observe(batch()), FITS.format("Linear")),
    (
        lambda _: SimCLRModule(IDENTITY, IDENTITY).observe(batch()),
        r"`backbone` to return \(N, D\), but got shape \(12, 1, 8, 8\)",
    ),
    (lambda _: SimCLRModule(nn.Module(), IDENTITY), NO_FORWARD.format("backbone")),
    (lambda _: SimCLRModule(IDENTITY, nn.Module()), NO_FORWARD.format("projector")),
    (lambda _: SimCLRModule("SmallCNN", IDENTITY), NO_MODULE.format("backbone")),
    (lambda _: SimCLRModule(IDENTITY, "SmallCNN"), NO_MODULE.format("projector")),
    (lambda _: module(loss=0.5), "`loss` to be a module or None, but got 0.5"),
    (lambda _: module(loss=False), "`loss` to be a module or None, but got False"),
    (lambda _: module(loss=InfoNCELoss), "`loss` to be a module or None, but got the class InfoNCELoss"),
    (lambda _: module(warmup_epochs=math.inf), "`warmup_epochs` >= 0 and finite, but got inf"),
    (lambda _: module(warmup_epochs=-1), "`warmup_epochs` >= 0 and finite, but got -1"),
    (lambda _: module(warmup_epochs=2, lr_scheduler=one), "`warmup_epochs` = 0 beside `lr_scheduler`, but got 2"),
    (lambda _: module().observe(batch(views=3)), "2 `views` in a batch, but got 3"),
    (lambda tmp: fit(tmp, module(), max_epochs=-1), "`max_epochs` or `max_steps` of the Trainer for a cosine schedule"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_bad_input(call, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        call(tmp_path)


def test_what_torch_says_of_a_projector_is_passed_on():
    with pytest.raises(RuntimeError, match="unflatten"):  # of which nothing is known
        SimCLRModule(CNN, nn.Unflatten(1, (63, 1))).observe(batch())
    with pytest.raises(RuntimeError, match="mat1 and mat2"):  # an error within
        SimCLRModule(CNN, nn.Sequential(nn.Linear(64, 8), nn.Linear(9, 8))).observe(batch())
