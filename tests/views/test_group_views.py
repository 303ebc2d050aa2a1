"""GroupViews: what the elements say is what happened, and a view depends on its sample alone."""

import copy
import pickle

import pytest
import torch
from jsonargparse import ArgumentParser
from scipy.stats import chisquare, kstest

from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.functional import quarter_turn, rescale, translate
from lightning_ssl_geometry.views import GroupViews, ImageViews

ACTIONS = [None, "translation", "rotation", "scale", ("rotation", "scale"), ["scale", "translation", "rotation"]]
ALL = ("translation", "rotation", "scale")
LEVEL = 1e-3  # of each test of a distribution: the seeds are fixed, so a pass stays a pass


def batch(n=16, channels=3, height=12, width=12):
    return torch.randint(256, (n, channels, height, width), dtype=torch.uint8), 1000 + 7 * torch.arange(n)


def rebuilt(image, g, action):
    """A view from the image and its element, by the functional actions: scale, rotation, translation."""
    names = [] if action is None else [action] if isinstance(action, str) else action
    columns = list(g.unbind(1))
    shift = torch.stack([columns.pop(0), columns.pop(0)], 1) if "translation" in names else None
    turns = columns.pop(0) if "rotation" in names else None
    x = rescale(image, columns.pop(0)) if "scale" in names else image
    x = x if turns is None else quarter_turn(x, turns.long())
    assert not columns
    return x if shift is None else translate(x, shift.long())


@pytest.mark.parametrize("action", ACTIONS)
def test_the_elements_say_what_happened(action):
    image, index = batch()
    mean, std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.4])
    views = GroupViews(action, num_views=3, seed=4)
    elements = views.elements(index, 2, 12, 12)
    plain, normalised = views(image, index, 2), views(image, index, 2, mean, std)
    assert len(elements) == len(plain) == len(normalised) == 3
    for g, x, y in zip(elements, plain, normalised, strict=True):
        assert g.dtype == x.dtype == y.dtype == torch.float32
        expected = rebuilt(image / 255, g, action)
        assert torch.equal(x, expected)
        assert torch.equal(y, (expected - mean[:, None, None]) / std[:, None, None])


def test_no_action_only_normalises():
    image, index = batch(height=9, width=14)
    for action in (None, [], ()):
        (view,) = GroupViews(action, num_views=1)(image, index)
        assert torch.equal(view, image / 255)
        (g,) = GroupViews(action, num_views=1).elements(index, 0, 9, 14)
        assert g.shape == (16, 0)
    x = image / 255
    a, b = GroupViews()(x, index)
    assert torch.equal(a, b)
    assert len({view.data_ptr() for view in (a, b, x)}) == 3


@pytest.mark.parametrize("action", ACTIONS)
def test_bytes_and_floats_agree(action):
    image, index = batch()
    views = GroupViews(action)
    for ours, given in ((image / 255, image), ((image / 255).half().float(), (image / 255).half())):
        for a, b in zip(views(ours, index), views(given, index), strict=True):
            assert torch.equal(a.to(b.dtype), b)
    double = (image / 255).double()
    assert views(double, index)[0].dtype == torch.float64
    for a, b in zip(views(double, index), views(image, index), strict=True):
        torch.testing.assert_close(a.float(), b, atol=1e-6, rtol=0)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_view_depends_on_its_sample_alone(action):
    image, index = batch(64)
    views = GroupViews(action, seed=5)
    whole, elements = views(image, index, 4), views.elements(index, 4, 12, 12)
    for rows in (torch.tensor([17]), torch.arange(7) * 3, torch.randperm(64)):
        for ours, all_of_them in zip(views.elements(index[rows], 4, 12, 12), elements, strict=True):
            assert torch.equal(ours, all_of_them[rows])
        for ours, all_of_them in zip(views(image[rows], index[rows], 4), whole, strict=True):
            torch.testing.assert_close(ours, all_of_them[rows], atol=1e-6, rtol=0)


def test_other_views_epochs_seeds_and_samples_are_other_draws():
    index = torch.arange(64)
    a, b = GroupViews(ALL).elements(index, 0, 100, 100)
    others = [
        b,
        GroupViews(ALL, seed=1).elements(index, 0, 100, 100)[0],
        GroupViews(ALL).elements(index, 1, 100, 100)[0],
        GroupViews(ALL).elements(index + 64, 0, 100, 100)[0],
    ]
    for other in others:
        assert (a[:, 3] != other[:, 3]).all()
        assert (a[:, 2] != other[:, 2]).any()
        assert ((a[:, :2] != other[:, :2]).any(1)).float().mean() > 0.9
    assert torch.equal(GroupViews(ALL, num_views=5).elements(index, 0, 100, 100)[1], b)
    image, index = batch()
    for action in ("translation", "rotation", "scale"):
        x, y = GroupViews(action)(image, index)
        assert (x != y).flatten(1).any(1).float().mean() > 0.5


def test_draws_do_not_depend_on_the_other_actions():
    index = torch.arange(32)
    for whole, *single in zip(
        GroupViews(["scale", "rotation", "translation"]).elements(index, 3, 30, 30),
        *(GroupViews(name).elements(index, 3, 30, 30) for name in ALL),
        strict=True,
    ):
        assert torch.equal(whole, torch.cat(single, 1))


def test_the_ranges_are_covered_evenly():
    index, n = torch.arange(3000), 6000
    g = torch.cat(GroupViews(ALL, max_shift=0.2).elements(index, 0, 32, 32))
    rows = torch.cat(GroupViews("translation", max_shift=0.1).elements(index, 0, 32, 60))
    for column, low, high in [
        (g[:, 0], -6, 6),
        (g[:, 1], -6, 6),
        (g[:, 2], 0, 3),
        (rows[:, 0], -3, 3),
        (rows[:, 1], -6, 6),
    ]:
        value, count = column.unique(return_counts=True)
        assert value.tolist() == list(range(low, high + 1))
        assert chisquare(count.numpy()).pvalue > LEVEL
    assert kstest(((g[:, 3] - 0.57) / 0.43).numpy(), "uniform").pvalue > LEVEL
    assert abs(torch.corrcoef(g.T) - torch.eye(4)).max() < 4 / n**0.5
    still = GroupViews(ALL, max_shift=0.0, scale=(1.5, 1.5)).elements(index, 0, 32, 32)[0]
    assert not still[:, :2].any()
    assert (still[:, 3] == 1.5).all()


def test_background_is_black_before_it_is_normalised():
    white, index = torch.full((64, 1, 10, 10), 255, dtype=torch.uint8), torch.arange(64)
    mean, std = torch.tensor([0.25]), torch.tensor([0.5])
    for action in ("translation", "scale"):
        view = torch.cat(GroupViews(action)(white, index, 0, mean, std))
        assert view.min() == -0.5
        assert view.max() == pytest.approx(1.5)
    assert torch.cat(GroupViews("rotation")(white, index, 0, mean, std)).eq(1.5).all()


def test_nothing_else_is_touched():
    image, index = batch()
    before, state = image.clone(), torch.get_rng_state()
    views = GroupViews(ALL)
    made = views(image, index)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(image, before)
    x = (image / 255).requires_grad_()
    assert not views(x, index)[0].requires_grad
    for twin in (copy.deepcopy(views), pickle.loads(pickle.dumps(views))):
        assert torch.equal(twin(image, index)[1], made[1])
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(views(image, index)[0], made[0])
    assert "actions=('translation', 'rotation', 'scale'), num_views=2" in repr(views)


@pytest.mark.parametrize("channels", [1, 3])
def test_batches_have_the_elements(channels):
    views = GroupViews("rotation", seed=2)
    data = DigitsDataModule(batch_size=64, views=views, channels=channels)
    data.setup()
    for loader in (data.train_dataloader(), data.val_dataloader()):
        raw = next(iter(loader))
        made = data.on_after_batch_transfer(data.transfer_batch_to_device(raw, torch.device("cpu"), 0), 0)
        clean = (raw["image"] / 255 - data.mean[:, None, None]) / data.std[:, None, None]
        assert len(made["g"]) == len(made["views"]) == 2
        for g, view in zip(made["g"], made["views"], strict=True):
            assert g.shape == (len(view), 1)
            assert torch.equal(view, quarter_turn(clean, g[:, 0].long()))
    raw = next(iter(data.unaugmented_dataloader("val")))
    assert "g" not in data.on_after_batch_transfer(raw, 0)


def test_batches_of_other_views_have_none():
    data = DigitsDataModule(batch_size=64)
    data.setup()
    assert "g" not in data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)


def batch_of(views):
    data = DigitsDataModule(batch_size=64, views=views)
    data.setup()
    raw = next(iter(data.train_dataloader()))
    return raw, data.on_after_batch_transfer(raw, 0)


def test_anybodys_views_add_entries():
    class Numbered(ImageViews):
        def _views(self, image, index, epoch, normalize):
            return image / 255, image / 255

        def batch_entries(self, index, epoch, height, width):
            return {"size": torch.tensor([epoch, height, width]), "label": index % 2, "g": (index, -index)}

    raw, made = batch_of(Numbered())
    assert made["size"].tolist() == [0, 8, 8]
    assert torch.equal(made["label"], raw["index"] % 2)
    assert torch.equal(made["g"][1], -raw["index"])


def test_a_method_of_the_same_name_in_another_module_is_not_called():
    class Coincidence(torch.nn.Module):
        def forward(self, image, index, epoch, mean, std):
            return image / 255, image / 255

        def batch_entries(self):
            raise AssertionError("this is not about batches")

    assert set(batch_of(Coincidence())[1]) == {"index", "label", "views"}


@pytest.mark.parametrize(
    ("given", "actions"),
    [
        ("scale", ("scale",)),
        ("[rotation, translation]", ("translation", "rotation")),
        ("null", ()),
        ("[]", ()),
    ],
)
def test_the_command_line_can_say_it(given, actions):
    parser = ArgumentParser()
    parser.add_class_arguments(GroupViews, "views")
    parsed = parser.parse_args([f"--views.action={given}", "--views.scale=[0.5, 1.0]"])
    assert parser.instantiate_classes(parsed).views.actions == actions


SCALE = r"`scale` = \(minimum, maximum\) with 0.0 < minimum <= maximum < inf"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"action": "shear"},
            r"`action` to be one of \('translation', 'rotation', 'scale', 'dihedral', 'hue'\), but got 'shear'",
        ),
        ({"action": ["rotation", "shear"]}, "`action` to be one of .*, but got 'shear'"),
        ({"action": ["scale", "scale"]}, r"each `action` once, but got \('scale', 'scale'\)"),
        ({"action": 3}, "`action` to be a name, a list of names or None, but got 3"),
        ({"num_views": 0}, "`num_views` to be an integer >= 1, but got 0"),
        ({"num_views": 1.5}, "`num_views` to be an integer >= 1, but got 1.5"),
        ({"max_shift": -0.1}, r"`max_shift` in \[0, 1\], but got -0.1"),
        ({"max_shift": 1.1}, r"`max_shift` in \[0, 1\], but got 1.1"),
        ({"max_shift": float("nan")}, r"`max_shift` in \[0, 1\], but got nan"),
        ({"scale": (0.0, 1.0)}, SCALE),
        ({"scale": (1.0, 0.5)}, SCALE),
        ({"scale": (0.5,)}, SCALE),
        ({"scale": (0.5, float("inf"))}, SCALE),
    ],
    ids=str,
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        GroupViews(**settings)


IMAGE, INDEX = batch(4)
VIEWS = GroupViews("rotation")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: VIEWS(IMAGE[0], INDEX), r"`image` of shape \(N, C, H, W\), but got \(3, 12, 12\)"),
        (lambda: VIEWS(IMAGE.long(), INDEX), r"`image` of torch.uint8 or a float dtype, but got torch.int64"),
        *(
            (lambda wrong=wrong: VIEWS(IMAGE, wrong), r"`index` of shape \(4,\) and torch.int64, but got shape")
            for wrong in (INDEX[:3], INDEX.float())
        ),
        (lambda: VIEWS(IMAGE, INDEX, 0, torch.zeros(1)), r"`mean` of shape \(C,\), C = 3, but got \(1,\)"),
        (lambda: VIEWS(IMAGE, INDEX, 0, None, torch.tensor(1.0)), r"`std` of shape \(C,\), C = 3, but got \(\)"),
        (lambda: VIEWS(IMAGE[..., :10], INDEX), "square images for rotations, but got 12 x 10 pixels"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
