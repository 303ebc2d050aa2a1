"""Laws of all views of vectors and signals: a view depends on its sample, (seed, epoch, index, view), and no more."""

import copy
import pickle

import pytest
import torch
from jsonargparse import ArgumentParser
from torch import nn

from lightning_ssl_geometry.data import TensorDataModule
from lightning_ssl_geometry.views import ArrayViews, SignalViews, SimCLRViews, VectorViews, learn

NEUTRAL_SIGNAL = {"crop_scale": (1.0, 1.0), "scaling": 0.0, "jitter": 0.0, "mask_spans": 0}
EVERYTHING = {
    "vector": lambda **more: VectorViews(0.4, noise=0.3, mask=0.2, keep_first=False, **more),
    "signal": lambda **more: SignalViews((0.3, 0.9), max_shift=0.2, mask_spans=2, mask_length=0.3, **more),
}
NOTHING = {
    "vector": lambda: VectorViews(0.0),
    "signal": lambda: SignalViews(**NEUTRAL_SIGNAL),
}
SHAPES = {"vector": (12, 9), "signal": (12, 3, 40)}


def made(kind, **more):
    """Views that know a training set, samples, and their indices."""
    views = EVERYTHING[kind](**more)
    x = torch.randn(SHAPES[kind], generator=torch.Generator().manual_seed(1))
    views.learn(torch.cat([x + 3, x]), torch.arange(6, 18))
    return views, x, 1000 + 7 * torch.arange(12)


@pytest.mark.parametrize("kind", EVERYTHING)
def test_a_view_does_not_depend_on_the_batch(kind):
    views, x, index = made(kind)
    whole = views(x, index, epoch=3)
    order = torch.randperm(12)[:5]
    for one, part in zip(whole, views(x[order], index[order], epoch=3), strict=True):
        assert torch.equal(one[order], part)
    for place in (0, 11):
        assert torch.equal(views(x[place : place + 1], index[place : place + 1], epoch=3)[1][0], whole[1][place])


@pytest.mark.parametrize("kind", EVERYTHING)
@pytest.mark.parametrize("change", ["seed", "epoch", "index", "view"])
def test_each_counter_changes_a_view(kind, change):
    views, x, index = made(kind)
    first, second = views(x, index, epoch=3)
    other = {
        "seed": lambda: made(kind, seed=1)[0](x, index, epoch=3)[0],
        "epoch": lambda: views(x, index, epoch=4)[0],
        "index": lambda: views(x, index + 1, epoch=3)[0],
        "view": lambda: second,
    }[change]()
    assert not torch.equal(first, other)
    assert torch.equal(first, views(x, index, epoch=3)[0])


@pytest.mark.parametrize("kind", EVERYTHING)
def test_the_global_random_state_is_neither_read_nor_changed(kind):
    views, x, index = made(kind)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first, _ = views(x, index)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    assert torch.equal(views(x, index)[0], first)


@pytest.mark.parametrize("kind", NOTHING)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_without_strength_a_view_is_the_standardised_sample(kind, dtype):
    x = torch.randn(SHAPES[kind]).to(dtype)
    c = x.shape[1]
    mean, std = torch.randn(c), torch.rand(c) + 0.5
    column = (-1, *[1] * (x.ndim - 2))
    for view in NOTHING[kind]()(x, torch.arange(12)):
        assert view.dtype == dtype
        assert torch.equal(view, x)
    wide = x.to(torch.promote_types(dtype, torch.float32))
    for view in NOTHING[kind]()(x, torch.arange(12), 0, mean, std):
        expected = (wide - mean.to(wide).view(column)) / std.to(wide).view(column)
        assert torch.equal(view, expected.to(dtype))


@pytest.mark.parametrize("kind", EVERYTHING)
def test_the_operations_act_on_standardised_samples(kind):
    """The views of a x + b with moments a m + b, a s are those of x with moments m, s."""
    views, x, index = made(kind)
    c = x.shape[1]
    column = (-1, *[1] * (x.ndim - 2))
    mean, std, a, b = torch.randn(c), torch.rand(c) + 0.5, torch.rand(c) + 0.5, torch.randn(c)
    expected = views(x, index, 0, mean, std)
    views.learn(a.view(column) * torch.cat([x + 3, x]) + b.view(column), torch.arange(6, 18))
    found = views(a.view(column) * x + b.view(column), index, 0, a * mean + b, a * std)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", EVERYTHING)
def test_views_are_detached_and_their_input_stays(kind):
    views, x, index = made(kind)
    before = x.clone()
    assert not any(view.requires_grad for view in views(x.clone().requires_grad_(), index))
    views(x, index)
    assert torch.equal(x, before)


@pytest.mark.parametrize("kind", EVERYTHING)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda views: pickle.loads(pickle.dumps(views))])
def test_a_copy_makes_the_same_views(kind, copied):
    views, x, index = made(kind)
    assert torch.equal(copied(views)(x, index)[0], views(x, index)[0])
    assert repr(copied(views)) == repr(views)
    assert not views.state_dict()


@pytest.mark.parametrize("kind", EVERYTHING)
def test_the_number_of_views(kind):
    views, x, index = made(kind, num_views=5)
    assert [view.shape for view in views(x, index)] == [x.shape] * 5


def test_from_yaml():
    parser = ArgumentParser()
    parser.add_argument("--views", type=ArrayViews)
    text = {"class_path": "lightning_ssl_geometry.views.SignalViews", "init_args": {"crop_scale": [0.5, 0.7]}}
    built = parser.instantiate_classes(parser.parse_object({"views": text}))
    assert built["views"].crop_scale == (0.5, 0.7)


BAD_CALLS = [
    (
        VectorViews(0.0),
        (4, 3, 8, 8),
        {},
        r"`image` of shape \(N, D\), but got \(4, 3, 8, 8\).*SimCLRViews \(N, C, H, W\)",
    ),
    (SignalViews(), (4, 8), {}, r"`image` of shape \(N, C, T\), but got \(4, 8\)"),
    (SimCLRViews(), (4, 8), {}, r"`image` of shape \(N, C, H, W\), but got \(4, 8\).*VectorViews takes \(N, D\)"),
    (VectorViews(0.0), (4, 8), {"mean": torch.zeros(3)}, r"`mean` of shape \(C,\), C = 8, but got \(3,\)"),
    (SignalViews(), (4, 2, 8), {"std": torch.zeros(8)}, r"`std` of shape \(C,\), C = 2, but got \(8,\)"),
    (VectorViews(), (4, 8), {}, "a training set for `corruption` > 0, but VectorViews has none. Call `learn` first"),
]


@pytest.mark.parametrize(("views", "shape", "moments", "message"), BAD_CALLS)
def test_bad_calls(views, shape, moments, message):
    with pytest.raises(ValueError, match=message):
        views(torch.zeros(shape), torch.arange(4), 0, **moments)


@pytest.mark.parametrize("kind", EVERYTHING)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, index: (x.long(), index), "`image` of a float dtype, but got torch.int64"),
        (lambda x, index: (x, index[:3]), r"`index` of shape \(12,\) and torch.int64, but got shape \(3,\)"),
        (lambda x, index: (x, index.float()), "`index` of .* and torch.int64, but got .* and torch.float32"),
    ],
)
def test_bad_samples(kind, change, message):
    views, x, index = made(kind)
    with pytest.raises(ValueError, match=message):
        views(*change(x, index))


def test_views_of_another_kind_are_refused_before_the_training():
    data = TensorDataModule(torch.rand(20, 3, 8, 8), views=VectorViews(), batch_size=4)
    with pytest.raises(ValueError, match=r"`image` of shape \(N, D\), but got \(20, 3, 8, 8\)"):
        data.train_dataloader()


def test_views_within_another_module_learn_from_the_training_set():
    inner = VectorViews()
    learn(nn.ModuleDict({"a": nn.Sequential(inner), "b": SignalViews()}), torch.ones(3, 5), torch.arange(3))
    first, second = inner(torch.zeros(4, 5), torch.arange(4))
    assert (first == 0).all()
    assert (second.sum(1) == 3).all()  # floor(0.6 x 5) features are of the training set
