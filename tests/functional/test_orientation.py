"""Groups of orientations: their table, their action on images, and what is equivariant to them."""

import itertools

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.diagnostics import EquivarianceError, InvarianceError, LossGap
from lightning_ssl_geometry.functional import equivariance_error
from lightning_ssl_geometry.functional.groups.fibers import feature_map
from lightning_ssl_geometry.functional.groups.orientation import (
    hue_matrices,
    number_of_orientations,
    orient,
    relative_orientations,
)
from lightning_ssl_geometry.functional.groups.rotation import rotate
from lightning_ssl_geometry.methods import HSSLModule
from lightning_ssl_geometry.nn.equivariant import EquivariantCNN, GroupConvClassifier
from lightning_ssl_geometry.views import GroupViews

GROUPS = [("rotation", 4), ("rotation", 2), ("dihedral", 4), ("dihedral", 2), ("hue", 3), ("hue", 5)]


def images(channels=3, size=9, n=2):
    return torch.randn(n, channels, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def inverse(table, g):
    return int(table[g, 0])


@pytest.mark.parametrize(("group", "turns"), [*GROUPS, ("rotation", 1), ("dihedral", 5)])
def test_the_table_is_a_groups(group, turns):
    table = relative_orientations(group, turns)
    count = number_of_orientations(group, turns)
    assert table.shape == (count, count)
    assert (table.sort(1).values == torch.arange(count)).all()
    assert (table.diagonal() == 0).all()
    assert torch.equal(table[0], torch.arange(count))
    for g, h, k in itertools.product(range(count), repeat=3):  # (g^-1 h) (h^-1 k) = g^-1 k
        assert table[inverse(table, int(table[g, h])), table[h, k]] == table[g, k]


@pytest.mark.parametrize(("group", "turns"), GROUPS)
def test_the_action_multiplies_as_the_table_says(group, turns):
    x, table = images(), relative_orientations(group, turns)
    for g, h in itertools.product(range(len(table)), repeat=2):
        product = int(table[inverse(table, g), h])
        torch.testing.assert_close(
            orient(orient(x, h, turns, group), g, turns, group), orient(x, product, turns, group)
        )


def test_elements_of_each_sample_and_angles_between_quarter_turns():
    x = images(1, 11, 8) + 3
    each = torch.arange(8)
    found = orient(x, each, 8, "rotation", fill=3.0)
    for k in range(8):
        torch.testing.assert_close(found[k : k + 1], orient(x[k : k + 1], k, 8, "rotation", fill=3.0))
        angle = torch.tensor([45.0 * k], dtype=torch.float64)
        torch.testing.assert_close(found[k : k + 1], rotate(x[k : k + 1] - 3, angle) + 3)
    assert torch.equal(found[2], x[2].rot90(1, (-2, -1)))  # permuted, as quarter turns are
    mirrored = orient(x, 8 + each, 8, "dihedral", fill=3.0)
    torch.testing.assert_close(mirrored, orient(x.flip(-1), each, 8, "rotation", fill=3.0))


@pytest.mark.parametrize("fill", [0.0, 0.3, torch.tensor([0.1, -0.2, 0.5])])
def test_each_image_is_turned_by_its_own_angle_beside_others(fill):
    """Eighths of a turn: even ones permute the pixels, odd ones interpolate; the corners get the fill."""
    x = torch.rand(9, 3, 7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    element = torch.arange(9) % 8
    found = orient(x, element, 8, fill=fill)
    background = fill[:, None, None].double() if isinstance(fill, torch.Tensor) else fill
    for i, k in enumerate(element.tolist()):
        alone = orient(x[i : i + 1], k, 8, fill=fill)[0]
        torch.testing.assert_close(found[i], alone, rtol=0, atol=1e-12)
        if k % 2 == 0:
            assert torch.equal(alone, torch.rot90(x[i], k // 2, (-2, -1)))
        else:
            degrees = torch.tensor([45.0 * k], dtype=torch.float64)
            torch.testing.assert_close(alone, (rotate(x[i : i + 1] - background, degrees) + background)[0])
            corner = background.flatten() if isinstance(fill, torch.Tensor) else torch.full((3,), fill).double()
            torch.testing.assert_close(alone[:, 0, 0], corner)  # 45 degrees leave the corners empty
    mirrored = orient(x, 8 + element, 8, "dihedral", fill=fill)
    torch.testing.assert_close(mirrored, orient(x.flip(-1), element, 8, fill=fill))


def test_half_turns_of_images_that_are_not_square():
    x = torch.rand(2, 1, 4, 6)
    assert torch.equal(orient(x, torch.tensor([0, 1]), 2), torch.stack([x[0], x[1].flip((-2, -1))]))
    assert torch.equal(orient(x, torch.tensor([0, 0]), 3), x)
    assert torch.equal(orient(x, torch.tensor([4, 0]), 8), torch.stack([x[0].flip((-2, -1)), x[1]]))
    between = orient(x, torch.tensor([4, 1]), 8)  # by 180 and by 45 degrees
    assert torch.equal(between[0], x[0].flip((-2, -1)))
    for turned in (2, torch.tensor([2, 1]), torch.tensor([1, 6])):
        with pytest.raises(ValueError, match=r"Expected square images, .* by 90 or 270 degrees, but got 4 x 6 pixels"):
            orient(x, turned, 8)


def test_hues_turn_about_grays():
    matrices = hue_matrices(3)
    torch.testing.assert_close(matrices[1] @ torch.tensor([1.0, 0, 0]).double(), torch.tensor([0.0, 1, 0]).double())
    torch.testing.assert_close(matrices @ torch.ones(3).double(), torch.ones(3, 3).double())
    x = images()
    torch.testing.assert_close(orient(x, 2, 3, "hue"), torch.einsum("cd,ndhw->nchw", matrices[2], x))


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)  # of the basis and of the matrices of the hue
    yield
    torch.set_default_dtype(torch.float32)


def network(group, turns, **other):
    made = EquivariantCNN(3, 2, group=group, rotations=turns, **other).eval()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.0)
    return made


@pytest.mark.parametrize("interaction", [False, True])
@pytest.mark.parametrize(
    ("group", "turns"), [("dihedral", 4), ("dihedral", 2), ("rotation", 2), ("hue", 3), ("hue", 4)]
)
def test_networks_are_exactly_equivariant(group, turns, interaction):
    made, x = network(group, turns, interaction=interaction), images(size=13)
    found = equivariance_error(made, x, group, turns=turns)["output"]
    assert len(found) == number_of_orientations(group, turns) - 1
    assert (found < 1e-25).all()
    # Without the group's own table, the maps do not move as they should.
    wrong = nn.Sequential(made)
    wrong.group_shape = (number_of_orientations(group, turns), 1)
    assert (equivariance_error(wrong, x, group, turns=turns)["output"] > 1e-3).any()


@pytest.mark.parametrize(("group", "turns"), [("dihedral", 4), ("rotation", 2), ("rotation", 8), ("hue", 3)])
def test_separable_filters_are_the_convolutions(group, turns, monkeypatch):
    x = images(size=13)
    for interaction in (False, True):
        made = network(group, turns, interaction=interaction)
        found = []
        for pays in (True, False):
            monkeypatch.setattr("lightning_ssl_geometry.nn.equivariant.layers.pays", lambda *a, p=pays, **k: p)
            found.append(made(x))
        torch.testing.assert_close(*found)


def test_finer_rotations_are_near_with_room_around_the_filters():
    line = torch.linspace(-3, 3, 29, dtype=torch.float64)
    blob = torch.exp(-(line[:, None] ** 2) - 2 * (line - 0.5) ** 2 - line[:, None] * line)
    x = torch.stack([blob, blob.flip(0), blob.T])[None]
    errors = {}
    for kernels in ("paper", "accurate"):
        torch.manual_seed(0)
        made = network("rotation", 8, kernels=kernels)
        errors[kernels] = equivariance_error(made, x, turns=8, margin=6, layers=["layers.2"])["layers.2"]
    assert (errors["accurate"][1::2] < 1e-25).all()  # quarter turns
    assert errors["accurate"][::2].max() < 0.02
    assert errors["paper"][::2].min() > 10 * errors["accurate"][::2].max()
    sixteen = equivariance_error(network("rotation", 16), x, turns=16, margin=6, layers=["layers.2"])["layers.2"]
    assert (sixteen[3::4] < 1e-25).all()
    assert sixteen.max() < 0.02
    assert network("rotation", 8).stride == 2  # the accurate kernels, by default
    assert network("rotation", 4).stride == 4


@pytest.mark.parametrize(("group", "turns"), [("dihedral", 4), ("hue", 3)])
def test_both_losses_are_equal_for_an_equivariant_network(group, turns):
    made, head = network(group, turns, interaction=True), nn.Linear(8, 4).double()
    gap = LossGap(group, turns=turns, contrast_size=12)
    gap.update(images(size=13, n=12), made, head, torch.arange(12))
    found = gap.compute()
    assert found["difference"].abs() < 1e-6
    assert found["similarity"] == pytest.approx(1, abs=1e-6)


def test_diagnostics_of_other_orientations():
    made, x = network("dihedral", 4), images(size=13, n=4)
    error = EquivarianceError("dihedral")
    error.update(x, made)
    assert error.compute()["elements"].shape == (7,)
    assert error.compute()["mean"] < 1e-25
    invariance = InvarianceError("dihedral")
    invariance.update(x, nn.Sequential(made, Largest()))
    assert invariance.compute()["mean"] < 1e-25
    plain = InvarianceError("hue", turns=3)
    plain.update(x, nn.Sequential(made, Largest()))
    assert plain.compute()["elements"].shape == (2,)
    assert plain.compute()["mean"] > 1e-3


def test_a_margin_is_left_out_for_hues_too():
    class SeesHuesAtTheTop(nn.Module):
        def forward(self, x):
            plain = x.mean(1, keepdim=True).expand_as(x).clone()
            plain[:, :, 0] = x[:, :, 0]
            return plain

    x = images(size=13, n=4)
    before, after = (equivariance_error(SeesHuesAtTheTop(), x, "hue", turns=3, margin=m) for m in (0, 2))
    assert before["output"].mean() > 1e-3
    assert after["output"].mean() < 1e-10


class Largest(nn.Module):
    def forward(self, z):
        return z.amax(2).mean((-2, -1))


def test_views_of_the_groups():
    x, index = torch.rand(6, 3, 9, 9, dtype=torch.float64), torch.arange(6)
    for action, kind, turns in (("dihedral", "dihedral", 4), ("rotation", "rotation", 8), ("hue", "hue", 3)):
        views = GroupViews(action, turns=turns if action != "hue" else 4)
        (g1, g2), (v1, v2) = views.elements(index, 0, height=9, width=9), views(x, index, 0)
        assert g1.max() < number_of_orientations(kind, turns)
        for g, view in ((g1, v1), (g2, v2)):
            torch.testing.assert_close(view, orient(x, g[:, 0].long(), turns, kind))
    both = GroupViews(["hue", "translation", "dihedral"], hues=5)
    assert both.elements(index, 0, height=9, width=9)[0].shape == (6, 4)
    many = GroupViews(["dihedral", "hue"], num_views=1, turns=3, hues=5)
    (g,) = many.elements(torch.arange(3000), 0, height=9, width=9)
    assert [len(column.unique()) for column in g.unbind(1)] == [6, 5]


@pytest.mark.parametrize(("group", "turns"), [("dihedral", 4), ("hue", 3)])
def test_fibers_of_the_groups_are_trained_on(group, turns):
    made = EquivariantCNN(3, 2, group=group, rotations=turns)
    classifier = GroupConvClassifier(8, 10, group=group, rotations=turns)
    module = HSSLModule(made, group=group, min_distance=1, classifier=classifier)
    batch = {"views": (torch.rand(4, 3, 29, 29),), "index": torch.arange(4), "label": torch.arange(4)}
    found = module.step(batch)
    found["loss"].backward()
    assert found["fibers"].shape == (2, 4, 8)
    assert (found["fibers"][0] != found["fibers"][1]).any(1).all()
    assert all(parameter.grad is not None for parameter in made.parameters())
    maps, fibers = feature_map(made(batch["views"][0]), group)
    assert (maps.shape[2], fibers.cyclic) == (number_of_orientations(group, turns), (True,))


BAD = [
    (lambda: orient(images(), 8, 4, "dihedral"), "`element` from 0 to 7, but got 8"),
    (lambda: orient(images(), torch.tensor([0, 8]), 4, "dihedral"), "`element` from 0 to 7, but got 8"),
    (lambda: orient(images(), torch.tensor(-1), 4), "`element` from 0 to 3, but got -1"),
    (lambda: orient(images(), torch.zeros(3), 4), r"`element` to be an integer or torch.int64 of shape \(2,\)"),
    (lambda: orient(images(1), 1, 3, "hue"), "3 channels"),
    (lambda: number_of_orientations("mirror", 4), "`group` to be one of .*, but got 'mirror'"),
    (lambda: EquivariantCNN(1, 2, group="hue"), "`in_channels` = 3 for `orientation` = 'hue', but got 1"),
    (lambda: EquivariantCNN(3, 2, group="translation", rotations=4), "no `rotations` for `group` = 'translation'"),
    (lambda: EquivariantCNN(3, 2, group="rotation", rotations=1), "`rotations` to be an integer >= 2, but got 1"),
    (lambda: EquivariantCNN(3, 2, kernels="other"), "`kernels` to be one of .*, but got 'other'"),
    (lambda: GroupViews(["rotation", "dihedral"]), "`action` with one of 'rotation' and 'dihedral'"),
    (lambda: GroupViews("hue", hues=1), "`hues` to be an integer >= 2, but got 1"),
    (lambda: HSSLModule(network("dihedral", 4), group="dihedral", base_size=2), "`base_size` = 1 and no `max_dist"),
    (lambda: HSSLModule(network("dihedral", 4), group="dihedral", min_distance=1.5), "`min_distance` = 1.5"),
    (lambda: HSSLModule(network("dihedral", 4), group=["dihedral", "rotation"]), "with one of .*, which share an axis"),
    (lambda: EquivarianceError("hue", turns=1), "`turns` to be an integer >= 2, but got 1"),
    (
        lambda: equivariance_error(network("rotation", 4), images(size=13), turns=8),
        "1 orientation or a multiple of 8 for `turns` = 8, but got 4",
    ),
    (
        lambda: equivariance_error(network("dihedral", 4), images(size=13), "dihedral", turns=2),
        "1 orientation or 4 for `turns` = 2, but got 8",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def read(metric, made, x):
    metric.update(x, made)
    return metric.compute()


@pytest.mark.parametrize(("group", "turns"), [("rotation", 8), ("rotation", 2), ("dihedral", 8), ("hue", 3)])
def test_the_turns_are_those_of_the_network(group, turns):
    made, x = network(group, turns), images(size=13, n=4)
    count = number_of_orientations(group, turns)
    found = read(EquivarianceError(group), made, x)
    assert found["elements"].numel() == count - 1
    torch.testing.assert_close(found["elements"], read(EquivarianceError(group, turns=turns), made, x)["elements"])
    idle = EquivarianceError(group)
    idle.update(x[:0], made)
    assert idle.difference.shape == (1, count - 1)  # as on other ranks
    heads = nn.Linear(8, 4).double()
    both = [LossGap(group, turns=given, contrast_size=4) for given in (None, turns)]
    for gap in both:
        gap.update(x, made, heads, torch.arange(4))
    assert both[0].compute() == both[1].compute()


def test_a_network_without_orientations_is_turned_by_quarters():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()).double().eval()
    assert read(EquivarianceError("rotation"), plain, images())["elements"].shape == (3,)
    assert read(EquivarianceError("hue"), plain, images())["elements"].shape == (2,)


@pytest.mark.parametrize(("kind", "asked"), [("dihedral", "rotation"), ("hue", "rotation"), ("rotation", "hue")])
def test_orientations_of_another_group_are_refused(kind, asked):
    made, x = network(kind, 4), images(size=13, n=4)
    said = f"Expected `group` to be '{kind}', the network's orientations, but got '{asked}'"
    with pytest.raises(ValueError, match=said):
        EquivarianceError(asked).update(x, made)
    with pytest.raises(ValueError, match=said):
        LossGap(asked, contrast_size=4).update(x, made, nn.Linear(8, 4).double(), torch.arange(4))


@pytest.mark.parametrize(("group", "rotations"), [("rotation", 2), ("dihedral", 2), ("dihedral", 3), ("rotation", 4)])
def test_sizes_of_images_that_are_not_exact_give_a_warning(group, rotations):
    made = EquivariantCNN(1, 2, group, rotations=rotations, kernels="paper").eval()
    with pytest.warns(UserWarning, match="only approximately equivariant to quarter and half turns and mirror images"):
        made(torch.randn(1, 1, 28, 28))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: InvarianceError(fill="black"), "`fill` to be a number, or one per channel, but got 'black'"),
        (lambda: InvarianceError(fill=float("nan")), "finite `fill`"),
        (lambda: InvarianceError(shift=1.5), "`shift` to be an integer >= 1, but got 1.5"),
        (lambda: InvarianceError(circular="no"), "`circular` to be True or False, but got 'no'"),
        (lambda: EquivarianceError(circular="no"), "`circular` to be True or False, but got 'no'"),
        (lambda: LossGap("translation", circular="no"), "`circular` to be True or False, but got 'no'"),
        (lambda: LossGap("translation", circular=True, margin=2), "no `margin` for `circular`, but got 2"),
        (lambda: LossGap("translation", stride=0), "`stride` to be an integer >= 1, but got 0"),
        (lambda: HSSLModule(network("rotation", 4), group="rotation", circular="no"), "`circular` to be True or False"),
        (lambda: HSSLModule(network("rotation", 4), group="rotation", seed=2**64), "`seed`"),
        (lambda: HSSLModule(network("rotation", 4), group="rotation", seed=1.5), "`seed`"),
        (
            lambda: read(InvarianceError("translation", shift=9), nn.Flatten(), images()),
            "`shift` below the size of the images, 9 x 9, but got 9",
        ),
    ],
)
def test_bad_settings_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
