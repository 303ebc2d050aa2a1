import math
import pickle
from copy import deepcopy

import lightning as L
import pytest
import torch
from hosts import quiet
from torch import nn
from torch.utils.data import DataLoader

from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.functional import byol
from lightning_ssl_geometry.methods import BYOLModule
from lightning_ssl_geometry.nn import MLPProjector, SmallCNN
from lightning_ssl_geometry.views import SimCLRViews

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")


def sgd(groups):
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def module(momentum=0.7, norm="batch", **arguments):
    projector, predictor = MLPProjector(6, 8, 4, norm=norm), MLPProjector(4, 8, 4, norm=norm)
    return BYOLModule(nn.Linear(5, 6), projector, predictor, momentum, **({"optimizer": sgd} | arguments))


def batch(n=6, views=2):
    return {"views": tuple(torch.randn(views, n, 5)), "index": torch.arange(n)}


def one(collated):
    return collated[0]


def fit(folder, model, steps=6, **arguments):
    torch.manual_seed(0)
    trainer = quiet(folder, **arguments)
    trainer.fit(model, DataLoader([batch() for _ in range(steps)], collate_fn=one))
    return trainer


def online(model):
    return [p.detach().clone() for p in (*model.backbone.parameters(), *model.projector.parameters())]


def target(model):
    return [p.detach().clone() for p in model.target.parameters()]


class Weights(L.Callback):
    """After each batch: the step, the online weights and the target's."""

    def __init__(self):
        self.seen = []

    def on_train_start(self, trainer, pl_module):
        self.seen.append((trainer.global_step, online(pl_module), target(pl_module)))

    def on_train_batch_end(self, trainer, pl_module, *_):
        self.seen.append((trainer.global_step, online(pl_module), target(pl_module)))


def assert_follows(seen, steps, start, end=1.0):
    """Eq. 1, weight by weight, once per step and at no other time."""
    (_, first, expected), *rest = seen
    assert all(torch.equal(p, q) for p, q in zip(first, expected, strict=True))  # it begins as a copy
    before = 0
    for step, theta, xi in rest:
        if step > before:
            tau = end - (end - start) * (math.cos(math.pi * before / steps) + 1) / 2
            expected = [tau * old + (1 - tau) * new for old, new in zip(expected, theta, strict=True)]
            before = step
        torch.testing.assert_close(xi, expected, rtol=1e-12, atol=1e-14)
    assert before == steps


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ({"max_epochs": 2}, 12),
        ({"max_epochs": 2, "accumulate_grad_batches": 4}, 4),  # of 4 and of 2 batches
        ({"max_epochs": -1, "max_steps": 5}, 5),
        ({"max_epochs": 9, "max_steps": 7}, 7),
        ({"fast_dev_run": 3}, 3),
    ],
    ids=str,
)
def test_the_target_is_the_moving_average_by_a_slow_loop(arguments, steps, tmp_path):
    look = Weights()
    model = module()
    fit(tmp_path, model, callbacks=[look], precision="64-true", **arguments)
    assert_follows(look.seen, steps, start=0.7)
    assert model.target.n_averaged == 1 + steps
    assert not torch.equal(look.seen[0][2][0], look.seen[-1][2][0])


class Manual(BYOLModule):
    """The same under manual optimization."""

    automatic_optimization = False

    def descend(self, observation, batch):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(observation["loss"])
        optimizer.step()
        self.lr_schedulers().step()
        return observation


def test_the_momentum_is_declared_and_accepted_from_0_to_1():
    low, high = BYOLModule.quantities["momentum"].bounds
    module(low, final_momentum=high)
    for wrong in (low - 1e-6, high + 1e-6):
        with pytest.raises(ValueError, match=r"Expected `momentum` in \[0, 1\], but got"):
            module(wrong)
        with pytest.raises(ValueError, match=r"Expected `final_momentum` in \[0, 1\], but got"):
            module(final_momentum=wrong)


def test_manual_optimization_is_followed_as_well(tmp_path):
    automatic = module()
    parts = deepcopy([automatic.backbone, automatic.projector, automatic.predictor])
    manual, look = Manual(*parts, 0.7, optimizer=sgd), Weights()
    fit(tmp_path, manual, callbacks=[look], precision="64-true")
    fit(tmp_path, automatic, precision="64-true")
    assert_follows(look.seen, 6, start=0.7)
    torch.testing.assert_close(manual.state_dict(), automatic.state_dict())


def test_the_momentum_is_logged_as_the_mean_of_an_epochs_steps(tmp_path):
    found = fit(tmp_path, module(0.9), max_epochs=1, accumulate_grad_batches=2).callback_metrics
    expected = [1 - 0.1 * (math.cos(math.pi * k / 3) + 1) / 2 for k in range(3)]
    assert found["train/momentum"].item() == pytest.approx(sum(expected) / 3)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("arguments", [{"max_epochs": -1, "max_time": {"seconds": 2}}, {"max_epochs": -1}], ids=str)
def test_a_run_of_unknown_length_needs_a_constant_momentum(arguments, tmp_path):
    constant = lambda optimizer: torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)  # noqa: E731
    message = "`max_epochs` or `max_steps` of the Trainer for a momentum that changes from `momentum` = 0.7 to `final_m"
    with pytest.raises(ValueError, match=message):
        fit(tmp_path, module(lr_scheduler=constant), **arguments)

    class Stop(Weights):
        def on_train_batch_end(self, trainer, *rest):
            super().on_train_batch_end(trainer, *rest)
            trainer.should_stop = trainer.global_step == 4

    look = Stop()
    model = module(final_momentum=0.7, lr_scheduler=constant)
    fit(tmp_path, model, callbacks=[look], precision="64-true", **arguments)
    assert_follows(look.seen, 4, start=0.7, end=0.7)


def test_the_limits_of_the_momentum(tmp_path):
    still, follower = module(1.0), module(0.0, final_momentum=0.0)
    start = target(still)
    fit(tmp_path, still)
    fit(tmp_path, follower)
    assert all(torch.equal(p, q) for p, q in zip(target(still), start, strict=True))
    assert all(torch.equal(p, q) for p, q in zip(target(follower), online(follower), strict=True))


def test_a_step_predicts_the_targets_embedding_of_the_other_view():
    model, sample = module(norm="layer"), batch()
    with torch.no_grad():
        for parameter in model.target.parameters():
            parameter.mul_(1.5)
    h = torch.stack([model(view) for view in sample["views"]])
    z = torch.stack([model.projector(row) for row in h])
    q1, q2 = (model.predictor(row) for row in z)
    found = model.observe(sample)
    torch.testing.assert_close(found["h"], h)
    torch.testing.assert_close(found["z"], z)
    assert found["projector"] is model.projector
    torch.testing.assert_close(found["loss"], byol(q1, q2, *(model.target(view) for view in sample["views"])))
    torch.testing.assert_close(model.eval().observe(sample)["loss"], found["loss"])


def test_what_learns_has_a_gradient_and_the_target_has_none():
    model = module()
    model.observe(batch())["loss"].backward()
    own = {id(p) for p in model.target.parameters()}
    learning = [p for p in model.parameters() if id(p) not in own]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in learning)
    assert all(p.grad is None and not p.requires_grad for p in model.target.parameters())
    groups = [p for group in model._parameter_groups() for p in group["params"]]
    assert {id(p) for p in groups} == {id(p) for p in learning}


def test_the_targets_batch_statistics_are_its_own(tmp_path):
    model = module(norm="batch")
    apart = deepcopy(model.target.module)
    seen = []

    class Look(L.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            apart.load_state_dict(dict(apart.named_buffers()) | dict(pl_module.target.module.named_parameters()))
            apart(torch.cat(batch["views"]))
            seen.append(batch)

    fit(tmp_path, model, callbacks=[Look()])
    buffers, theirs = dict(model.target.module.named_buffers()), dict(model.projector.named_buffers())
    assert len(seen) == 6
    assert buffers["projector.1.num_batches_tracked"] == 6
    for name, value in apart.named_buffers():
        torch.testing.assert_close(buffers[name], value)
    assert not torch.allclose(buffers["projector.1.running_mean"], theirs["1.running_mean"])


def test_train_and_eval_reach_the_target():
    model = module()
    assert all(part.training for part in model.target.modules())
    assert not any(part.training for part in model.eval().target.modules())


def digits(norm="batch"):
    torch.manual_seed(0)
    network = SmallCNN(1, 8, norm), MLPProjector(64, 16, 8, norm=norm), MLPProjector(8, 16, 8, norm=norm)
    return BYOLModule(*network, momentum=0.8, optimizer=sgd, warmup_epochs=1)


def data(batch_size=40):
    return DigitsDataModule(batch_size=batch_size, subset=260, views=SimCLRViews(strength="moderate"))


def test_a_fit_resumed_within_an_epoch_is_the_same_fit(tmp_path):
    class Save(L.Callback):
        def on_train_batch_end(self, trainer, *_):  # where ModelCheckpoint saves: the module's own hook is yet to come
            if trainer.global_step == 8:
                trainer.save_checkpoint(tmp_path / "x.ckpt")

    def fitted(ckpt_path=None):
        model = digits()
        trainer = quiet(tmp_path, max_epochs=2, callbacks=[] if ckpt_path else [Save()])
        trainer.fit(model, datamodule=data(), ckpt_path=ckpt_path)
        assert trainer.global_step == 10
        return model.state_dict()

    whole = fitted()
    saved = torch.load(tmp_path / "x.ckpt", weights_only=True)
    assert saved["global_step"] == 8  # within the second epoch, of five steps
    assert not torch.equal(saved["state_dict"]["target.module.projector.0.weight"], whole["projector.0.weight"])
    torch.testing.assert_close(fitted(tmp_path / "x.ckpt"), whole, rtol=0, atol=0)


def trained_with_batch_norm(rank, folder):
    """Weights after a fit on two processes, whose batch statistics differ."""
    model = digits("batch")
    quiet(folder, max_epochs=1, devices=2, strategy="ddp", limit_val_batches=0).fit(model, datamodule=data(20))
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def test_two_processes_have_the_same_target(tmp_path, two_processes):
    first, second = two_processes(trained_with_batch_norm, tmp_path)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    start = dict(digits("batch").named_parameters())
    assert all(not torch.equal(first[name], start[name]) for name in first if name.startswith("target"))


def test_a_copy_follows_its_own_weights(tmp_path):
    model = module()
    start = target(model)
    for again in (deepcopy(model), pickle.loads(pickle.dumps(model))):
        fit(tmp_path, again)
        assert not torch.equal(target(again)[0], start[0])
    assert all(torch.equal(p, q) for p, q in zip(target(model), start, strict=True))


def test_the_target_of_loaded_weights_begins_as_their_copy():
    model = module()
    with torch.no_grad():
        model.backbone.weight.mul_(2)
    assert not torch.equal(target(model)[0], online(model)[0])
    model.setup("fit")
    assert all(torch.equal(p, q) for p, q in zip(online(model), target(model), strict=True))


def test_load_from_checkpoint(tmp_path):
    model = module()
    trainer = fit(tmp_path, model)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    arguments = {"backbone": nn.Linear(5, 6), "projector": MLPProjector(6, 8, 4), "predictor": MLPProjector(4, 8, 4)}
    again = BYOLModule.load_from_checkpoint(tmp_path / "x.ckpt", **arguments, weights_only=True)
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_bf16_mixed(tmp_path):
    model = module()
    trainer = fit(tmp_path, model, precision="bf16-mixed", max_epochs=2)
    assert torch.isfinite(trainer.callback_metrics["train/loss"])
    assert {p.dtype for p in model.target.parameters()} == {torch.float32}


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_wrong_momentum_is_named(value):
    with pytest.raises(ValueError, match=rf"Expected `momentum` in \[0, 1\], but got {value}"):
        module(value)
    with pytest.raises(ValueError, match=rf"Expected `final_momentum` in \[0, 1\], but got {value}"):
        module(final_momentum=value)


def test_a_wrong_predictor_or_batch_is_named(tmp_path):
    def with_predictor(predictor):
        return BYOLModule(nn.Linear(5, 6), nn.Linear(6, 4), predictor, lr_scheduler=None)

    with pytest.raises(ValueError, match="Expected `predictor` to take P = 4, the projector's output, but got 7"):
        with_predictor(MLPProjector(7, 8, 4)).observe(batch())
    with pytest.raises(ValueError, match=r"`predictor` to return \(2 N, P\) = \(12, 4\), but got shape \(12, 3\)"):
        with_predictor(nn.Sequential(nn.ReLU(), nn.Linear(4, 3))).observe(batch())
    with pytest.raises(ValueError, match="Expected 2 `views` in a batch, but got 3"):
        module().observe(batch(views=3))
    with pytest.raises(ValueError, match="Expected `warmup_epochs` >= 0 and finite, but got -1"):
        module(warmup_epochs=-1)
    with pytest.raises(ValueError, match=r"Expected `projector` with weights that .* copy, but got a lazy layer"):
        BYOLModule(nn.Linear(5, 6), nn.LazyLinear(4), nn.Linear(4, 4))
    assert with_predictor(nn.LazyLinear(4)).observe(batch())["z"].shape[-1] == 4


def test_weights_in_half_precision_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"Expected weights in float32 or float64, .*, but got torch\.bfloat16"):
        fit(tmp_path, module(), precision="bf16-true")


def test_weights_that_were_loaded_before_training_are_the_targets_too(tmp_path):
    model = module()
    with torch.no_grad():
        model.backbone.weight.fill_(7.0)
    watch = Weights()
    fit(tmp_path, model, steps=1, callbacks=[watch])
    _, began, aim = watch.seen[0]
    assert (began[0] == 7.0).all()
    assert all(torch.equal(p, q) for p, q in zip(began, aim, strict=True))
    moved = target(model)
    fit(tmp_path, model, steps=1, callbacks=[again := Weights()])  # a second fit goes on with the average
    assert all(torch.equal(p, q) for p, q in zip(again.seen[0][2], moved, strict=True))
    assert not all(torch.equal(p, q) for p, q in zip(*again.seen[0][1:], strict=True))


def test_a_module_that_was_unfrozen_does_not_train_its_target(tmp_path):
    model = module()
    model.unfreeze()
    trainer = fit(tmp_path, model, steps=1)
    trained = {id(p) for group in trainer.optimizers[0].param_groups for p in group["params"]}
    assert not trained & {id(p) for p in model.target.parameters()}
