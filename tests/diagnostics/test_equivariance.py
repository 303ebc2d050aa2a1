import copy
import csv

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from observations import at_once, of_rank
from torch import nn
from torch.testing import assert_close as close
from torch.utils.data import DataLoader

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.diagnostics import EquivarianceError, InvarianceError
from lightning_ssl_geometry.functional import equivariance_error, invariance_error, quarter_turn, rescale, translate
from lightning_ssl_geometry.nn.equivariant.layers import GroupBatchNorm, GroupConv2d, LiftingConv2d

N, SCALES = 11, (1.0, 1.5, 2.0)


def images(n=N, size=13):
    return torch.rand(n, 1, size, size, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


class Extractor(nn.Sequential):
    """Scales and orientations, with layers that behave differently in training."""

    def __init__(self):
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            super().__init__(
                LiftingConv2d(1, 4, 7, 3, scales=SCALES, rotations=4),
                GroupBatchNorm(4),
                nn.Dropout(),
                nn.ReLU(inplace=True),
                GroupConv2d(4, 4, 7, 3, scales=SCALES, rotations=4, stride=2, padding_mode="circular"),
            )
        self.group_shape, self.scales, self.stride = (3, 4), SCALES, 2
        self.double().eval()


class Pooled(nn.Module):
    """The mean over the maps and, with `orientations`, over the orientations."""

    def __init__(self, orientations=True):
        super().__init__()
        self.extractor, self.orientations = Extractor(), orientations

    def forward(self, x):
        h = self.extractor(x).relu().mean((3, 4)).unflatten(2, (3, 4))
        return (h.mean(3) if self.orientations else h).flatten(1)


def fed(metric, image, chunks, module):
    for rows in chunks:
        metric.update(image[rows], module)
    return metric


CASES = {
    "rotation": (EquivarianceError, Extractor),
    "translation": (lambda: EquivarianceError("translation", layers=["0", "4"], stride=[2, 2], margin=1), Extractor),
    "scale": (lambda: EquivarianceError("scale", layers=["0", "3", "4"]), Extractor),
    "scales": (lambda: EquivarianceError("scale", scales=SCALES, fill=[0.5]), Extractor),
    "invariance_rotation": (InvarianceError, Pooled),
    "invariance_translation": (lambda: InvarianceError("translation", shift=3), Pooled),
    "invariance_scale": (lambda: InvarianceError("scale", factors=(0.5, 0.8), fill=0.5), lambda: Pooled(False)),
}


def observed(name, chunks):
    metric, module = CASES[name]
    return fed(metric(), images(), [rows for rows in chunks(N) if len(rows)], module()).compute()


@pytest.mark.parametrize("name", CASES)
def test_it_does_not_depend_on_batches_or_order(name):
    once = observed(name, at_once)
    close(observed(name, lambda n: torch.arange(n).split(4)), once, atol=1e-12, rtol=1e-9)
    close(observed(name, lambda n: torch.randperm(n).split(3)), once, atol=1e-12, rtol=1e-9)


def rank_result(rank, name):
    return observed(name, lambda n: of_rank(rank, n, 3))


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_same_on_two_processes(name, two_processes):
    once = observed(name, at_once)
    for found in two_processes(rank_result, name):
        close(found, once, atol=1e-12, rtol=1e-9)


def idle_rank(rank):
    """Rank 1 has only repeated samples, which the monitor cuts off."""
    metric, other = EquivarianceError(), EquivarianceError("translation")
    for each in (metric, other):
        each.update(images()[: N if rank == 0 else 0], Extractor())
    return metric.compute() | {f"translation_{key}": value for key, value in other.compute().items()}


def test_a_rank_may_have_nothing(two_processes):
    alone = fed(EquivarianceError(), images(), at_once(N), Extractor()).compute()
    for found in two_processes(idle_rank):
        close({key: found[key] for key in alone}, alone)


# --- the values


def test_the_error_is_the_functions():
    network, x = Extractor(), images()
    expected = equivariance_error(network, x)["output"].detach()
    found = fed(EquivarianceError(), x, at_once(N), network).compute()
    close(found, {"mean": expected.mean(), "elements": expected})
    assert (found["elements"] < 1e-20).all()
    settings = {"layers": ["0", "4"], "stride": [2, 2], "circular": True, "margin": 1, "fill": 0.3}
    by_layer = equivariance_error(network, x, "translation", **settings)
    found = fed(EquivarianceError("translation", **settings), x, at_once(N), network).compute()
    assert list(found) == ["mean_0", "mean_4", "elements_0", "elements_4"]
    for name in ("0", "4"):
        torch.testing.assert_close(found[f"elements_{name}"], by_layer[name].detach())
        torch.testing.assert_close(found[f"mean_{name}"], by_layer[name].detach().mean())


def test_names_of_layers_lose_their_dots():
    network = nn.Sequential(Extractor())
    found = fed(EquivarianceError(layers=["0.0", "0"], group_shape=(3, 4)), images(), at_once(N), network).compute()
    assert list(found) == ["mean_0_0", "mean_0", "elements_0_0", "elements_0"]


MOVED = {
    "rotation": [lambda x, r=r: quarter_turn(x, r) for r in (1, 2, 3)],
    "translation": [lambda x, s=s: translate(x, torch.tensor(s), 0.2) for s in ((3, 0), (-3, 0), (0, 3), (0, -3))],
    "scale": [lambda x, f=f: rescale(x, f, 0.2) for f in (0.5, 0.9)],
}


@pytest.mark.parametrize("group", MOVED)
def test_invariance_is_the_functions(group):
    encoder, x = Pooled(), images()
    metric = InvarianceError(group, shift=3, factors=(0.5, 0.9), fill=0.2)
    expected = torch.stack([invariance_error(encoder(x), encoder(move(x))) for move in MOVED[group]]).detach()
    close(fed(metric, x, at_once(N), encoder).compute(), {"mean": expected.mean(), "elements": expected})


def test_pooling_over_the_orientations_is_invariant():
    pooled = fed(InvarianceError(), images(), at_once(N), Pooled()).compute()
    assert (pooled["elements"] < 1e-20).all()
    kept = fed(InvarianceError(), images(), at_once(N), Pooled(False)).compute()
    assert (kept["elements"] > 1e-3).all()


def test_circular_translations():
    encoder, x = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), images()
    around = fed(InvarianceError("translation", circular=True), x, at_once(N), encoder).compute()
    assert (around["elements"] < 1e-20).all()
    cut = fed(InvarianceError("translation"), x, at_once(N), encoder).compute()
    assert (cut["elements"] > 0.01).all()


def test_what_enters_at_the_border_is_the_fill():
    """Images of two channels with a border of (0.5, -1): moved with it, their mean colour is the same."""
    border = torch.tensor([0.5, -1.0], dtype=torch.float64)[:, None, None]
    x = border.expand(2, 12, 12).repeat(N, 1, 1, 1)
    x[:, :, 4:8, 4:8] = torch.rand(N, 2, 4, 4, dtype=torch.float64)
    encoder = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    right = fed(InvarianceError("translation", fill=[0.5, -1.0]), x, at_once(N), encoder).compute()
    assert right["mean"] < 1e-20
    assert fed(InvarianceError("translation"), x, at_once(N), encoder).compute()["mean"] > 1


def test_zeros_are_not_a_number():
    dead = nn.Threshold(1e9, 0.0)
    assert fed(EquivarianceError(), images(), at_once(N), dead).compute()["mean"].isnan()
    assert fed(InvarianceError(), images(), at_once(N), nn.Sequential(dead, nn.Flatten())).compute()["mean"].isnan()


# --- what they leave behind

METRICS = {"equivariance": (EquivarianceError, Extractor), "invariance": (InvarianceError, Pooled)}


@pytest.mark.parametrize("name", METRICS)
def test_modules_images_and_the_random_state_are_left_as_they_were(name):
    make, build = METRICS[name]
    module, x = build(), images()
    expected = fed(make(), x, at_once(N), module).compute()
    module.train()
    next(m for m in module.modules() if isinstance(m, nn.Dropout)).eval()
    modes = [each.training for each in module.modules()]
    before, state, kept = copy.deepcopy(module.state_dict()), torch.get_rng_state(), x.clone()
    close(fed(make(), x, at_once(N), module).compute(), expected)  # in eval mode
    assert [each.training for each in module.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(x, kept)
    close(module.state_dict(), before, atol=0, rtol=0)
    assert all(parameter.grad is None for parameter in module.parameters())
    assert not any(each._forward_hooks for each in module.modules())
    with torch.inference_mode():
        metric = fed(make(), x.clone(), at_once(N), module)
        close(metric.compute(), expected)
    metric.update(x, module)  # and after it
    close(metric.compute(), expected)


@pytest.mark.parametrize("name", METRICS)
def test_modules_need_not_stand_still(name):
    make, build = METRICS[name]
    module = build()
    metric = fed(make(), images(), at_once(N), module)
    expected = metric.compute()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(2)
    close(metric.compute(), expected)
    metric.update(images() + 1, module)
    assert metric.compute()["mean"].isfinite()


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
@pytest.mark.parametrize("name", CASES)
def test_reset_forgets(name):
    make, build = CASES[name]
    metric, module = make(), build()
    metric.update(images() ** 2 + 1, module)
    metric.compute()
    metric.reset()
    with pytest.raises(ValueError, match=r"to have observed .*, but got none"):
        metric.compute()
    metric.reset()
    close(fed(metric, images(), at_once(N), module).compute(), observed(name, at_once))


class Host(L.LightningModule):
    """A host whose steps return what they observe."""

    def __init__(self):
        super().__init__()
        self.extractor, self.encoder = Extractor(), Pooled()

    def validation_step(self, batch, batch_idx):
        h = self.encoder(batch)
        return {"h": torch.stack([h, h]), "image": batch, "encoder": self.encoder, "feature_extractor": self.extractor}


def test_the_monitor_logs_means_and_writes_elements(tmp_path):
    monitor = GeometryMonitor(
        {
            "equivariance_rotation": EquivarianceError(layers=["0", "4"]),
            "equivariance_scale": EquivarianceError("scale"),
            "equivariance": EquivarianceError("translation", circular=True),
            "invariance": InvarianceError(),
        },
        rename={"equivariance": {"feature_extractor": "encoder"}},
        stages=("val",),
    )
    trainer = L.Trainer(
        callbacks=[monitor], logger=CSVLogger(tmp_path, "", ""), accelerator="cpu", enable_progress_bar=False
    )  # fmt: skip
    with pytest.raises(ValueError, match="`stride`, the pixels to move images by"):
        trainer.validate(Host(), DataLoader(images(), batch_size=4), verbose=False)
    monitor.measurements.of("val")["equivariance"] = EquivarianceError("translation", circular=True, stride=2)
    (logged,) = trainer.validate(Host(), DataLoader(images(), batch_size=4), verbose=False)
    assert set(logged) == {
        "val/equivariance_mean",
        "val/equivariance_rotation_mean_0",
        "val/equivariance_rotation_mean_4",
        "val/equivariance_scale_mean",
        "val/invariance_mean",
    }
    assert 0 <= logged["val/equivariance_rotation_mean_4"] < 1e-20
    assert logged["val/equivariance_scale_mean"] > 1e-3
    with (tmp_path / "geometry" / "val" / "equivariance_scale_elements.csv").open() as file:
        header, row = csv.reader(file)
    assert header == ["epoch", "step", "0", "1", "2"]
    expected = fed(EquivarianceError("scale"), images(), at_once(N), Extractor()).compute()["elements"]
    torch.testing.assert_close(torch.tensor([float(v) for v in row[2:]]).double(), expected, rtol=1e-6, atol=0)


# --- errors


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EquivarianceError("mirror"), r"`group` to be one of .*, but got 'mirror'"),
        (
            lambda: EquivarianceError().update(images()[:, 0], Pooled()),
            r"of shape \(N, C, H, W\), but got \(11, 13, 13\)",
        ),
        (lambda: EquivarianceError().update(images().to(torch.uint8), Pooled()), "of a float dtype"),
        (lambda: InvarianceError("mirror"), r"`group` to be one of .*, but got 'mirror'"),
        (
            lambda: InvarianceError().update(images()[:, 0], Pooled()),
            r"of shape \(N, C, H, W\), but got \(11, 13, 13\)",
        ),
        (lambda: InvarianceError().update(images().to(torch.uint8), Pooled()), "of a float dtype"),
        (lambda: EquivarianceError().compute(), "to have observed images, but got none"),
        (lambda: EquivarianceError(group_shape=(1, 3), turns=4), "multiple of 4 for `turns` = 4, but got 3"),
        (lambda: EquivarianceError("scale", scales=(1.0,)), "`scales` > 0, at least 2, ascending"),
        (lambda: EquivarianceError(stride=0), "`stride` >= 1, but got 0"),
        (lambda: EquivarianceError(stride=1.5), "`stride` to be a list, but got"),
        (lambda: EquivarianceError(stride=[1.5]), "`stride` to be an integer >= 1, but got 1.5"),
        (lambda: EquivarianceError(group_shape=4), "`group_shape` to be a list, but got"),
        (lambda: InvarianceError(factors=0.5), "`factors` to be a list, but got"),
        (lambda: EquivarianceError(margin=-1), "`margin` >= 0, but got -1"),
        (lambda: EquivarianceError(fill="0.5"), "`fill` to be a number, or one per channel, but got '0.5'"),
        (
            lambda: EquivarianceError(layers=["a.b", "a_b"]),
            r"`layers` that differ in more than '.' and '_', but got \['a.b', 'a_b'\]",
        ),
        (
            lambda: EquivarianceError(layers=["head"]).update(images(), Extractor()),
            "`layers` to name submodules of Extractor, but got 'head'",
        ),
        (lambda: InvarianceError(shift=0), "`shift` to be an integer >= 1, but got 0"),
        (lambda: InvarianceError(factors=()), "`factors` with at least one, each > 0 and finite, but got"),
        (lambda: InvarianceError(factors=(0.5, 0.0)), "`factors` with at least one, each > 0 and finite, but got"),
        (lambda: InvarianceError(factors=(float("inf"),)), "`factors` with at least one, each > 0 and finite, but got"),
        (
            lambda: InvarianceError().update(images(), nn.Identity()),
            r"`encoder` to return \(N, D\) for N = 11 images, but got \(11, 1, 13, 13\)",
        ),
        (lambda: InvarianceError().compute(), "at least 2 samples, but got none"),
        (lambda: fed(InvarianceError(), images(1), at_once(1), Pooled()).compute(), "at least 2 samples, but got 1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_scales_count_for_their_own_group_alone():
    settings = {"layers": ["a"], "scales": (1.0, 0.0)}
    assert EquivarianceError("translation", **settings).difference.shape == (1, 4)
