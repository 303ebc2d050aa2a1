"""CRL-TAC: SimCLR where the policy is uniform, and both phases on every batch."""

import math
from pathlib import Path
from types import SimpleNamespace

import lightning as L
import pytest
import torch
from hosts import quiet
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, SingleDeviceStrategy
from torch import nn
from torch.nn.functional import normalize

from lightning_ssl_geometry.cli import lightning_cli
from lightning_ssl_geometry.data import ShiftedMNISTDataModule
from lightning_ssl_geometry.functional import augmentation_channel_loss
from lightning_ssl_geometry.losses import AllPairs, DistinctPairs, ExactInformation, InfoNCELoss, ScoreFunction
from lightning_ssl_geometry.methods import CRLTACModule
from lightning_ssl_geometry.nn import ShallowCNN
from lightning_ssl_geometry.views import CropFamily

K = 9


def test_the_defaults_are_the_papers():
    """8 draws, beta = 0.5, lambda = 0.0025, and Jensen's inequality."""
    parts = ShallowCNN(image_size=6, out_dim=16, width=8), nn.Linear(16, 4), CropFamily(image_size=24, size=6, stride=9)
    model = CRLTACModule(*parts)
    observation = model.step(batch())
    assert len(observation["z"]) == 8
    expected = augmentation_channel_loss(observation["z"].transpose(0, 1), beta=0.5, jensen=True)
    torch.testing.assert_close(observation["loss"], expected)
    assert (model.entropy_weight, model.collapse_entropy) == (0.0025, 0.3)
    assert observation["scores"] == {}  # without a policy there is none to look at


def crl_tac(policy=True, **arguments):
    torch.manual_seed(0)
    return CRLTACModule(
        ShallowCNN(image_size=6, out_dim=16, width=8),
        nn.Linear(16, 4),
        CropFamily(image_size=24, size=6, stride=9),
        ShallowCNN(image_size=24, out_dim=K, width=8, hidden_dim=16, strides=(2, 2)) if policy else None,
        **{"draws": 4, **arguments},
    )


def data(**arguments):
    return ShiftedMNISTDataModule(source="digits", **{"batch_size": 20, "subset": 110, **arguments})


def batch(n=12):
    module = data(batch_size=n)
    module.setup()
    made = next(iter(module.train_dataloader()))
    return module.on_after_batch_transfer(made, 0)


def fit(model, folder, *callbacks, **arguments):
    trainer = quiet(folder, **({"max_epochs": 2, "callbacks": list(callbacks)} | arguments))
    trainer.fit(model, datamodule=data())
    return trainer


def test_two_uniform_draws_are_simclr():
    """Equal loss, but for log(2N - 1), and equal gradient of every parameter."""
    ours, given = crl_tac(policy=False, draws=2, beta=2.0).double(), batch()
    given["views"] = tuple(view.double() for view in given["views"])
    observation = ours.step(given)
    observation["loss"].backward()
    found = {name: p.grad.clone() for name, p in ours.named_parameters()}
    ours.zero_grad()
    z = observation["z"]
    member = (ours._draws_of(1, given, given["views"][0]) * K).long()
    sample = torch.arange(12)
    views = [ours.family(given["views"][0], sample, member[:, j]) for j in range(2)]
    z1, z2 = (ours.projector(ours.backbone(view)) for view in views)
    torch.testing.assert_close(torch.stack([z1, z2]), z)
    expected = InfoNCELoss(temperature=1 / 2.0)(z1, z2)
    expected.backward()
    torch.testing.assert_close(observation["loss"], expected - math.log(2 * 12 - 1))
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)


def test_equal_crops_are_pairs_when_they_are_two_draws():
    """A policy that always chooses one crop: every draw is the same view, and still its own image's positive."""
    model, given = crl_tac(), batch()
    with torch.no_grad():
        model.policy[-1].weight.zero_()
        model.policy[-1].bias.copy_(100.0 * (torch.arange(K) == 4))
    observation = model.step(given)
    z = normalize(observation["z"], dim=-1)
    torch.testing.assert_close(z, z[:1].expand_as(z))
    same = z[0] @ z[0].T / 2
    total = 4 * same.exp().sum(1) - same.diagonal().exp()
    assert observation["scores"]["policy_entropy"] == pytest.approx(0.0, abs=1e-6)
    torch.testing.assert_close(observation["loss"], (total / (4 * 12 - 1)).log().mean() - 0.5)


@pytest.mark.parametrize("policy", [True, False])
def test_represent_is_the_explicit_sum(policy):
    model, image = crl_tac(policy).double().eval(), batch()["views"][0].double()
    weight = torch.rand(3, len(image), K, dtype=torch.float64).softmax(2)
    f, head = model.represent(image, weight)
    for s in range(3):
        for n in range(len(image)):
            views = model.family(image, torch.full((K,), n), torch.arange(K))
            h = model.backbone(views)
            torch.testing.assert_close(f[s, n], sum(weight[s, n, k] * h[k] for k in range(K)))
            z = sum(weight[s, n, k] * normalize(model.projector(h[k]), dim=0) for k in range(K))
            torch.testing.assert_close(head[s, n], z / z.norm())
    probability = model.probabilities(image)
    torch.testing.assert_close(model(image), model.represent(image, probability[None])[0][0])
    torch.testing.assert_close(probability.sum(1), torch.ones(len(image), dtype=probability.dtype))
    assert policy or (probability - 1 / K).abs().max() < 1e-6


def test_the_policy_phase_moves_the_policy_alone_and_by_its_own_loss(tmp_path):
    """One step by hand, phase by phase: draws from P, the encoder's step, uniform draws, the policy's step."""
    sgd = lambda groups: torch.optim.SGD(groups, lr=0.1)  # noqa: E731
    constant = lambda optimizer: torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)  # noqa: E731
    rest = {"optimizer": sgd, "policy_optimizer": sgd, "lr_scheduler": constant, "policy_lr_scheduler": constant}
    ours, slow = (crl_tac(entropy_weight=0.3, jensen=False, **rest) for _ in range(2))
    fit(ours, tmp_path, max_epochs=1, limit_train_batches=1)
    module = data()
    module.setup()
    given = module.on_after_batch_transfer(next(iter(module.train_dataloader())), 0)
    image = given["views"][0]
    log_policy = slow.policy(image).log_softmax(1)
    optimizers = [torch.optim.SGD(part, lr=0.1) for part in (slow.parameters(), slow.policy.parameters())]
    slow.step(given)["loss"].backward()
    assert all(p.grad is None for p in slow.policy.parameters())
    optimizers[0].step()
    member = (slow._draws_of(2, given, image) * K).long()
    z = slow.projector(slow.backbone(slow._views(image, member))).unflatten(0, member.shape).detach()
    entropy = -(log_policy.exp() * log_policy).sum(1).mean()
    loss = augmentation_channel_loss(z, log_policy.gather(1, member), 0.5, jensen=False) - 0.3 * entropy
    loss.backward()
    optimizers[1].step()
    for name, parameter in slow.named_parameters():
        torch.testing.assert_close(ours.state_dict()[name], parameter.detach(), msg=name)


@pytest.mark.parametrize("kind", [AllPairs, DistinctPairs, ExactInformation, ScoreFunction])
def test_each_estimator_of_the_policys_gradient_moves_the_policy_and_not_the_encoder(kind, tmp_path):
    """After one step, the encoder is that of the default, whatever moves the policy."""
    default, other = crl_tac(), crl_tac(policy_gradient=kind())
    for model in (default, other):
        fit(model, tmp_path, max_epochs=1, limit_train_batches=1)
    assert other.state_dict().keys() == default.state_dict().keys()
    for name, value in other.state_dict().items():
        same = torch.equal(value, default.state_dict()[name])
        assert same is (kind is DistinctPairs or not name.startswith("policy")), name


def test_the_estimator_is_built_from_yaml_by_its_class_path(tmp_path):
    config = "examples/trainable_augmentation_channel/smoke.yaml"
    added = ["--model.init_args.policy_gradient=lightning_ssl_geometry.losses.ExactInformation"]
    added += ["--model.init_args.policy_gradient.init_args.chunk_size=64"]
    path = str(Path(__file__).parents[2] / config)
    model = lightning_cli(["--config", path, *added, f"--trainer.default_root_dir={tmp_path}"], run=False).model
    assert isinstance(model.policy_gradient, ExactInformation)
    assert model.policy_gradient.chunk_size == 64


class Count(L.Callback):
    def __init__(self):
        self.rates = []
        self.norms = {0: [], 1: []}

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        place = trainer.optimizers.index(optimizer)
        grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
        self.norms[place].append(torch.stack([grad.norm() for grad in grads]).norm().item())

    def on_train_batch_end(self, trainer, *_):
        self.rates.append([optimizer.param_groups[0]["lr"] for optimizer in trainer.optimizers])


def test_a_batch_is_one_global_step(tmp_path):
    count = Count()
    trainer = fit(crl_tac(), tmp_path, count)
    batches = 2 * trainer.num_training_batches
    assert trainer.global_step == batches == len(count.rates) == len(count.norms[0]) == len(count.norms[1]) > 5
    assert fit(crl_tac(), tmp_path, max_steps=7, max_epochs=-1).global_step == 7


def test_both_schedules_are_stepped_per_batch(tmp_path):
    count = Count()
    fit(crl_tac(warmup_epochs=1), tmp_path, count)
    rates = torch.tensor(count.rates)
    assert torch.equal(rates[:, 0], rates[:, 1])
    half = len(rates) // 2
    assert (rates[: half - 1].diff(dim=0) > 0).all()
    assert (rates[half:].diff(dim=0) < 0).all()
    assert rates[-1].max() < 1e-9


def test_schedulers_of_ones_own_are_stepped_per_epoch(tmp_path):
    halve = lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)  # noqa: E731
    count = Count()
    fit(crl_tac(lr_scheduler=halve, policy_lr_scheduler=halve), tmp_path, count)
    after_batch = [1e-3] * 3 + [5e-4] * 4 + [2.5e-4]  # with the epoch's last batch, as Lightning's own
    assert [both[0] for both in count.rates] == [both[1] for both in count.rates] == pytest.approx(after_batch)


def clipped_norms(model):
    """Let a model remember the norm of every gradient that it has clipped."""
    norms, clip = [], model.clip_gradients

    def recorded(optimizer, **arguments):
        clip(optimizer, **arguments)
        grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norms.append(torch.stack([grad.norm() for grad in grads]).norm().item())

    model.clip_gradients = recorded
    return norms


def test_gradients_are_clipped_each_by_its_own_norm(tmp_path):
    free, model = crl_tac(), crl_tac(grad_clip_h=1e-3, grad_clip_pi=1e-4)
    unclipped, norms = clipped_norms(free), clipped_norms(model)
    for each in (free, model):
        fit(each, tmp_path, max_epochs=1)
    assert min(unclipped[::2]) > 1e-3
    assert min(unclipped[1::2]) > 1e-4
    assert norms[::2] == pytest.approx([1e-3] * len(norms[::2]), rel=1e-2)
    assert norms[1::2] == pytest.approx([1e-4] * len(norms[1::2]), rel=1e-2)


def test_half_precision_with_scaled_gradients_clips_what_is_unscaled(tmp_path):
    scaled = MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))
    half, whole = (crl_tac(grad_clip_h=1e-3, grad_clip_pi=1e-4) for _ in range(2))
    norms = clipped_norms(half)
    trainer = fit(half, tmp_path, max_epochs=1, plugins=[scaled])
    assert trainer.global_step == len(norms) / 2 == 4
    assert norms[::2] == pytest.approx([1e-3] * 4, rel=1e-2)
    fit(whole, tmp_path, max_epochs=1)
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(half.state_dict()[name], value, rtol=0, atol=2e-3)


def test_phase_2_sees_the_updated_encoder_under_a_cached_autocast(tmp_path, monkeypatch):
    """As Lightning had it before 2.5.6."""
    large = lambda groups: torch.optim.SGD(groups, lr=5.0)  # noqa: E731
    found = []
    for cached in (False, True):
        context = lambda self, cached=cached: torch.autocast("cpu", torch.bfloat16, cache_enabled=cached)  # noqa: E731
        monkeypatch.setattr(MixedPrecision, "autocast_context_manager", context)
        model = crl_tac(optimizer=large, policy_optimizer=large)
        fit(model, tmp_path, max_epochs=1, limit_train_batches=1, precision="bf16-mixed")
        found.append(model.state_dict())
    for name, value in found[0].items():
        assert torch.equal(value, found[1][name]), name


def test_batch_statistics_are_those_of_phase_1(tmp_path):
    model = crl_tac()
    model.projector = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    fit(model, tmp_path, max_epochs=1, limit_train_batches=3)
    assert model.projector[1].num_batches_tracked == 3


def test_evaluation_looks_at_the_image_that_it_has():
    model, given = crl_tac(), batch()
    given["image"] = given["views"][0].clone()
    given["views"] = tuple(view.flip(-1) for view in given["views"])
    model.eval()
    with torch.no_grad():
        observation = model.observe(given)
        torch.testing.assert_close(observation["log_policy"].exp(), model.probabilities(given["image"]))
        torch.testing.assert_close(observation["h_image"], model(given["image"]))
        z = model.project_image(observation["h_image"], given)
        assert z.shape == (12, 4)
        torch.testing.assert_close(observation["z_image"], z)
        del given["image"]
        assert {"h_image", "z_image"}.isdisjoint(model.observe(given))
    model.train()
    assert not torch.equal(model.observe(given)["log_policy"], observation["log_policy"])


def test_it_learns_where_the_digits_are(tmp_path):
    """Crops that see some of the digit gain probability over those that do not, on images that were held out."""
    fast = lambda groups: torch.optim.Adam(groups, lr=5e-3)  # noqa: E731
    model = crl_tac(optimizer=fast, policy_optimizer=fast, collapse_entropy=0.0)
    module = ShiftedMNISTDataModule(source="digits", batch_size=100, subset=1100)
    module.setup()
    image = module.on_after_batch_transfer(next(iter(module.test_dataloader())), 0)["image"]
    content = ~model.family.empty(image)
    share = content.float().mean()
    quiet(tmp_path, max_epochs=12).fit(model, datamodule=module)
    mass = (model.probabilities(image) * content).sum(1).mean()
    assert share < 0.3
    assert mass > 0.9


def test_a_collapsed_policy_warns(tmp_path):
    model = crl_tac(entropy_weight=0.0)
    with torch.no_grad():
        model.policy[-1].bias.copy_(50.0 * (torch.arange(K) == 4))
    with pytest.warns(UserWarning, match="policy has collapsed.*Raise `entropy_weight`, which is 0.0"):
        fit(model, tmp_path, max_epochs=1)


def test_an_uncollapsed_policy_does_not_warn(tmp_path):
    fit(crl_tac(), tmp_path, max_epochs=1)


class SaveAndStop(L.Callback):
    def __init__(self, path, step):
        self.path, self.step = path, step

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.step and not self.path.exists():
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True


@pytest.mark.parametrize("scheduler", [None, lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)])
@pytest.mark.parametrize("step", [3, 4, 7])
def test_it_resumes_within_and_between_epochs(step, scheduler, tmp_path):
    """Weights, rates, and the moments of both optimizers."""
    whole, parts, resumed = (crl_tac(lr_scheduler=scheduler, policy_lr_scheduler=scheduler) for _ in range(3))
    of_whole = fit(whole, tmp_path)
    assert of_whole.num_training_batches == 4
    fit(parts, tmp_path, SaveAndStop(tmp_path / "x.ckpt", step))
    trainer = quiet(tmp_path, max_epochs=2)
    trainer.fit(resumed, datamodule=data(), ckpt_path=tmp_path / "x.ckpt")
    assert trainer.global_step == of_whole.global_step == 8
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
        assert not torch.equal(value, parts.state_dict()[name]), name
    for one, other in zip(of_whole.optimizers, trainer.optimizers, strict=True):
        assert one.param_groups[0]["lr"] == other.param_groups[0]["lr"]
        for key, state in one.state_dict()["state"].items():
            assert torch.equal(state["exp_avg_sq"], other.state_dict()["state"][key]["exp_avg_sq"])


class Blank(L.Callback):
    def __init__(self, place):
        self.place = place

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch_idx == self.place:
            for view in batch["views"]:
                view.fill_(-0.5)


def test_a_first_batch_of_empty_images_is_refused_and_a_later_one_is_not(tmp_path):
    fit(crl_tac(), tmp_path, Blank(1), max_epochs=1)
    with pytest.raises(ValueError, match="`views` with images that are not empty, but got a batch of 20 that all are"):
        fit(crl_tac(), tmp_path, Blank(0))


def test_a_policy_that_is_not_finite_is_refused():
    model = crl_tac()
    with torch.no_grad():
        model.policy[-1].bias[2] = -torch.inf
    with pytest.raises(ValueError, match="`policy` to return finite logits, but got 12 of 108 that are not"):
        model.step(batch())


def test_strategies_that_keep_parts_of_the_parameters_are_refused(monkeypatch):
    model = crl_tac()
    monkeypatch.setattr(model, "_optimization", lambda part: part)
    for strategy in (DDPStrategy(), SingleDeviceStrategy()):
        model._trainer = SimpleNamespace(strategy=strategy)
        assert len(model.configure_optimizers()) == 2
    model._trainer = SimpleNamespace(strategy=FSDPStrategy())
    with pytest.raises(ValueError, match="strategy to be 'ddp' or one device, but got FSDPStrategy"):
        model.configure_optimizers()


def test_a_policy_of_another_size_is_refused():
    model = crl_tac()
    model.policy = ShallowCNN(image_size=24, out_dim=8)
    with pytest.raises(ValueError, match=r"`policy` to return shape \(12, 9\), one logit per .*got \(12, 8\)"):
        model.step(batch())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"draws": 1}, "`draws` to be an integer >= 2, but got 1"),
        ({"draws": 2.5}, "`draws` to be an integer >= 2, but got 2.5"),
        ({"draws": 2, "policy_gradient": ScoreFunction()}, "`draws` to be an integer >= 3, but got 2"),
        ({"jensen": False, "policy_gradient": ScoreFunction()}, "`jensen` = True beside ScoreFunction, but got False"),
        ({"beta": 0.0}, "`beta` > 0 and finite, but got 0.0"),
        ({"entropy_weight": -0.1}, "`entropy_weight` >= 0 and finite, but got -0.1"),
        ({"collapse_entropy": -1.0}, "`collapse_entropy` >= 0 and below 2.2 nats.*uniform policy over 9, but got -1.0"),
        ({"collapse_entropy": 2.3}, "uniform policy over 9, but got 2.3"),
        ({"grad_clip_h": 0.0}, "`grad_clip_h` > 0, but got 0.0"),
        ({"grad_clip_pi": -1.0}, "`grad_clip_pi` > 0, but got -1.0"),
        ({"warmup_epochs": 1, "policy_lr_scheduler": print}, "`warmup_epochs` = 0 beside `policy_lr_scheduler`"),
    ],
)
def test_arguments_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        crl_tac(**arguments)


def test_a_scheduler_that_needs_a_metric_is_refused(tmp_path):
    with pytest.raises(ValueError, match="needs no metric, but got ReduceLROnPlateau"):
        fit(crl_tac(lr_scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau), tmp_path)


def test_an_estimator_is_an_instance_and_batch_statistics_are_refused_where_parts_are_embedded():
    with pytest.raises(ValueError, match=r"to be a PolicyGradient, .*, but got the class ScoreFunction"):
        crl_tac(policy_gradient=ScoreFunction)
    with pytest.raises(ValueError, match=r"`chunk_size` to be an integer >= 1, but got 1.5"):
        ExactInformation(chunk_size=1.5)
    parts = ShallowCNN(image_size=6, out_dim=16, width=8), nn.Sequential(nn.Linear(16, 4), nn.BatchNorm1d(4))
    family = CropFamily(image_size=24, size=6, stride=9)
    with pytest.raises(ValueError, match=r"without batch statistics beside ExactInformation, .*, but got BatchNorm1d"):
        CRLTACModule(*parts, family, policy_gradient=ExactInformation())
    CRLTACModule(*parts, family, policy_gradient=DistinctPairs())
