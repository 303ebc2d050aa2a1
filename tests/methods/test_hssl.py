"""H-SSL: the paper's law, its modes, and what it refuses."""

import warnings

import pytest
import torch
from hosts import quiet
from torch import nn

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.diagnostics import JacobianRank
from lightning_ssl_geometry.functional import info_nce, quarter_turn, translate
from lightning_ssl_geometry.functional.groups.fibers import base_spaces, feature_map, fiber_bundle
from lightning_ssl_geometry.losses import InfoNCELoss, LogBilinearInfoNCELoss, VICRegLoss
from lightning_ssl_geometry.methods import HSSLModule
from lightning_ssl_geometry.nn import (
    EquivariantCNN,
    EquivariantResNet,
    GroupClassifier,
    MLPProjector,
    UnstructuredCNN,
    UnstructuredMLP,
)
from lightning_ssl_geometry.views import GroupViews

N = 6


def images(side=9, channels=1):
    return torch.rand(N, channels, side, side, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def contrast(head, first, second):
    """Eq. 2 and Eq. 3 as printed, but for the misprinted index, over the pairs' embeddings: a slow loop."""
    a, b = (nn.functional.normalize(head(x), dim=1) for x in (first, second))
    total = 0
    for i in range(N):
        others = [k for k in range(N) if k != i]
        terms = [x[i] @ y[k] / 0.1 for k in others for x in (a, b) for y in (a, b)]
        total = total + torch.logsumexp(torch.stack(terms), 0) - a[i] @ b[i] / 0.1
    return total / N


def law(network, group, act, moves, base_size, circular=False):
    """The two losses of a network on the same weights, inputs, base spaces and group elements; and their gradients."""
    torch.manual_seed(0)
    x = images()
    maps, structure = feature_map(network(x), group, circular=circular)
    bases = base_spaces(structure, base_size)
    head = nn.Sequential(nn.Linear(base_size * maps.shape[1], 16), nn.Tanh(), nn.Linear(16, 8)).double()
    generator = torch.Generator().manual_seed(2)
    place = torch.randint(len(bases), (N,), generator=generator)  # g_0, of each example
    elements = [torch.randint(len(moves[0]), (N,), generator=generator) for _ in range(2)]  # g_1 and g_2
    augmented = [
        fiber_bundle(feature_map(network(act(x, g)), group, circular=circular)[0], bases[place]) for g in elements
    ]
    homomorphic = [fiber_bundle(maps, moves[1](bases[place], g)) for g in elements]
    weights = list(network.parameters())
    losses, gradients = [], []
    for pair in (augmented, homomorphic):
        loss = info_nce(head(pair[0]), head(pair[1]), temperature=0.1, positive_in_denominator=False, joint=True)
        torch.testing.assert_close(loss, contrast(head, *pair))
        losses.append(loss)
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights, retain_graph=True)]))
    return losses, gradients


def same(losses, gradients):
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5 * gradients[0].abs().max().item())


def turned_back(elements, g):
    return (elements - g[:, None]) % 4


ROTATIONS = (range(4), turned_back)


@pytest.mark.parametrize("interaction", [False, True])
@pytest.mark.parametrize("base_size", [1, 2, 4])
def test_the_law_for_rotation(interaction, base_size):
    network = EquivariantCNN(width=8, group="rotation", interaction=interaction, norm="group").double().eval()
    same(*law(network, "rotation", quarter_turn, ROTATIONS, base_size))


@pytest.mark.parametrize("base_size", [1, 3])
def test_the_law_for_translation(base_size):
    network = EquivariantCNN(width=8, group="translation", norm="group", padding_mode="circular").double().eval()
    shifts = torch.tensor([[0, 0], [4, 0], [0, 4], [4, 4], [-4, 4]])  # multiples of the total stride, on 12 x 12

    def act(x, g):
        return translate(nn.functional.pad(x, (0, 3, 0, 3)), shifts[g], circular=True)

    def back(elements, g):
        steps = shifts[g] // 4
        rows, columns = elements // 3 - steps[:, :1], elements % 3 - steps[:, 1:]
        return rows % 3 * 3 + columns % 3

    class Padded(nn.Module):
        group_shape = (1, 1)

        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, x):
            return self.network(x if x.shape[-1] == 12 else nn.functional.pad(x, (0, 3, 0, 3)))

    same(*law(Padded(), "translation", act, (shifts, back), base_size, circular=True))


def test_the_law_fails_without_structure():
    torch.manual_seed(3)
    network = UnstructuredCNN(width=4, copies=4).double()
    losses, gradients = law(network, "rotation", quarter_turn, ROTATIONS, 1)
    assert abs(losses[0] - losses[1]) > 1e-2 * losses[0].abs()
    assert (gradients[0] - gradients[1]).norm() > 0.1 * gradients[0].norm()


def test_the_law_fails_on_an_even_size():
    network = EquivariantCNN(width=8, group="rotation", norm="group").double().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = nn.functional.pad(images(), (0, 1, 0, 1))
        maps = [feature_map(network(y), "rotation")[0] for y in (x, quarter_turn(x, 1))]
    assert (maps[1].roll(-1, 2) - maps[0]).norm() > 1e-3 * maps[0].norm()


def module(group="rotation", mode="h-ssl", **arguments):
    torch.manual_seed(0)
    backbone = arguments.pop("backbone", None) or EquivariantCNN(
        width=8, group=group if isinstance(group, str) else "scale-rotation", norm="group"
    )
    return HSSLModule(backbone, group, mode, **arguments).double()


def batch(views=1, **more):
    return {"views": tuple(images() for _ in range(views)), "index": torch.arange(N), **more}


GROUPS = ["translation", "rotation", "scale", ("scale", "rotation"), ("rotation", "translation")]


@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("mode", ["h-ssl", "a-ssl", "hybrid"])
def test_every_mode_descends_and_reaches_every_weight(mode, group):
    turns_too = group == ("rotation", "translation")
    backbone = EquivariantCNN(width=8, group="rotation", norm="group") if turns_too else None
    size = 1 if turns_too else 2
    model = module(group, mode, base_size=size, backbone=backbone)
    found = model.observe(batch(1 if mode == "h-ssl" else 2))
    assert found["z"].shape == (2, N, 128)
    assert found["fibers"].shape == (2, N, size * 32)
    assert found["h"].shape == (1 if mode == "h-ssl" else 2, N, 32)  # the views of z are fibers of one feature map
    found["loss"].backward()
    assert all(p.grad is not None for p in model.parameters())
    assert torch.equal(found["encoder"](images()), model(images()))
    assert not any(found[name].requires_grad for name in ("h", "z", "fibers"))


def test_the_default_loss_is_equation_3():
    model = module().eval()
    found = model.observe(batch())
    expected = contrast(nn.Identity(), *found["z"])
    torch.testing.assert_close(found["loss"].detach(), expected.detach())


def test_a_ssl_takes_one_base_space_for_both_views_and_h_ssl_two():
    model = module("translation", "a-ssl")
    features = torch.arange(2.0 * N).view(2 * N, 1, 1, 1, 1) * 100 + torch.arange(64.0).view(8, 8)
    first, second = model.fibers(features, batch())
    assert torch.equal(first % 100, second % 100)
    assert len(set((first % 100).flatten().tolist())) > 2
    for fibers, sample in ((first, torch.arange(N)), (second, torch.arange(N, 2 * N))):  # one view each
        assert torch.equal((fibers // 100).flatten(), sample)
    model = module("translation", "h-ssl")
    first, second = model.fibers(features, batch(index=torch.arange(2 * N)))
    assert not torch.equal(first, second)


def test_base_spaces_are_functions_of_seed_epoch_and_index():
    model = module("translation")
    features = torch.arange(64.0).view(8, 8).expand(N, 1, 1, 8, 8)
    index = torch.tensor([5, 3, 9, 0, 1, 7])
    once = model.fibers(features, batch() | {"index": index})
    again = model.fibers(features, batch() | {"index": index.flip(0)})
    assert torch.equal(once, again.flip(1))
    other = module("translation", seed=1).fibers(features, batch() | {"index": index})
    assert not torch.equal(once, other)


def test_base_spaces_change_with_the_epoch_in_training_alone(monkeypatch):
    model = module("translation")
    features = torch.arange(64.0).view(8, 8).expand(N, 1, 1, 8, 8)
    found = {}
    for training in (True, False):
        for epoch in (0, 3):
            monkeypatch.setattr(HSSLModule, "current_epoch", epoch)
            found[training, epoch] = model.train(training).fibers(features, batch())
    assert not torch.equal(found[True, 0], found[True, 3])
    assert torch.equal(found[False, 0], found[True, 0])
    assert torch.equal(found[False, 3], found[True, 0])


def test_hybrid_looks_at_both_views_in_one_base_space_and_at_the_first_in_another():
    model = module("translation", "hybrid")
    features = torch.arange(2.0 * N).view(2 * N, 1, 1, 1, 1) * 100 + torch.arange(64.0).view(8, 8)
    first, second, other = model.fibers(features, batch()).squeeze(-1)
    assert torch.equal(first // 100, torch.arange(float(N)))
    assert torch.equal(second // 100, N + torch.arange(float(N)))
    assert torch.equal(other // 100, torch.arange(float(N)))
    assert torch.equal(first % 100, second % 100)
    assert not torch.equal(first % 100, other % 100)


def test_distances_and_patches_go_round_where_they_are_said_to():
    index = torch.arange(2000)
    turns = torch.arange(4.0).view(4, 1, 1).expand(2000, 1, 4, 1, 1)
    for wrap in (False, True):
        model = module("rotation", max_distance=1, wrap_distance=wrap)
        first, second = model.fibers(turns, {"views": (), "index": index}).flatten(1)
        assert (((first - second).abs() == 3).sum() > 0) == wrap
    features = torch.arange(64.0).view(8, 8).expand(2000, 1, 1, 8, 8)
    for circular in (False, True):
        model = module("translation", base_size=4, circular=circular)
        columns = model.fibers(features, {"views": (), "index": index})[0] % 8
        assert ((columns.amax(1) == 7) & (columns.amin(1) == 0)).any() == circular


def test_a_ssl_may_take_the_whole_group_as_its_base_space():
    found = module("scale", "a-ssl", base_size=6).observe(batch(2))
    assert found["fibers"].shape == (2, N, 6 * 32)


def test_a_backbone_that_does_not_name_its_group_needs_its_shape():
    wrapped = nn.Sequential(EquivariantCNN(width=8, group="rotation", norm="group"))
    head = MLPProjector(32, 16, 8, norm="none")
    with pytest.raises(ValueError, match=r"Expected `group_shape` \(scales, orientations\) for a `backbone`"):
        HSSLModule(wrapped, "rotation", projector=head).double().observe(batch())
    model = HSSLModule(wrapped, "rotation", projector=head, group_shape=(1, 4)).double()
    assert model.observe(batch())["z"].shape == (2, N, 8)


def test_the_monitor_hands_fibers_to_what_looks_at_the_projector(tmp_path):
    model = HSSLModule(EquivariantCNN(width=2), "scale", base_size=2, projector=MLPProjector(16, 16, 8))
    monitor = GeometryMonitor(diagnostics={"jacobian": JacobianRank()}, stages=["val"])
    data = DigitsDataModule(batch_size=40, subset=100, image_size=9, views=GroupViews(None, 1), val_fraction=0.4)
    trainer = quiet(tmp_path, max_epochs=1, callbacks=[monitor])
    trainer.fit(model, datamodule=data)
    assert 0 < trainer.callback_metrics["val/jacobian_rank"] <= 8


def test_base_spaces_are_uniform_and_keep_the_distance():
    index = torch.arange(4000)
    features = torch.arange(64.0).view(8, 8).expand(4000, 1, 1, 8, 8)
    first, second = module("translation").fibers(features, {"views": (), "index": index}).long().flatten(1)
    counts = torch.stack([place.bincount(minlength=64) for place in (first, second)]).double()
    assert ((counts - 62.5) / 62.5**0.5).abs().max() < 4.5
    near = module("translation", max_distance=4).fibers(features, {"views": (), "index": index}).long()
    rows, columns = near // 8, near % 8
    distance = (rows[0] - rows[1]) ** 2 + (columns[0] - columns[1]) ** 2
    assert distance.max() == 4
    assert distance.min() == 0
    for least, most in ((1, 4), (1, None), (4, 4), (9, None)):
        away = module("translation", max_distance=most, min_distance=least)
        rows, columns = (part(away.fibers(features, {"views": (), "index": index}).long()) for part in (
            lambda place: place // 8, lambda place: place % 8))  # fmt: skip
        distance = (rows[0] - rows[1]) ** 2 + (columns[0] - columns[1]) ** 2
        assert distance.min() == least
        assert distance.max() == (most or 98)


def test_without_an_index_base_spaces_are_drawn_at_random():
    model = module("translation")
    torch.manual_seed(0)
    once = model.observe({"views": (images(),)})["fibers"]
    assert not torch.equal(once, model.observe({"views": (images(),)})["fibers"])


def test_hybrid_weighs_both_losses():
    views = batch(2)

    def loss(mode, **arguments):  # without batch statistics, which the third bundle would change
        torch.manual_seed(1)
        head = MLPProjector(32, 16, 8, norm="layer")
        return module("scale", mode, projector=head, **arguments).observe(views)["loss"]

    a, h = (loss("hybrid", hybrid_weight=w) for w in (0.0, 1.0))
    torch.testing.assert_close(loss("hybrid", hybrid_weight=0.25), 0.75 * a + 0.25 * h)
    torch.testing.assert_close(a, loss("a-ssl"))
    torch.testing.assert_close(h, loss("h-ssl"))


def test_the_classifier_learns_beside_and_sends_nothing_back():
    label = torch.arange(N) % 3
    model = module(classifier=GroupClassifier(32, 3))
    found = model.observe(batch(label=label))
    torch.testing.assert_close(found["loss"].detach(), found["scores"]["ssl_loss"] + found["scores"]["classifier_loss"])
    found["loss"].backward()
    alone = module()
    alone.observe(batch())["loss"].backward()
    for name, parameter in alone.named_parameters():
        assert torch.equal(parameter.grad, model.get_parameter(name).grad)
    assert model.classifier.linear.weight.grad.abs().sum() > 0


def test_evaluation_classifies_images_without_augmentation():
    label = torch.arange(N) % 3
    model = module(mode="a-ssl", classifier=GroupClassifier(32, 3)).eval()
    views = tuple(torch.zeros_like(images()) for _ in range(2))
    found = model.observe({"views": views, "image": images(), "label": label, "index": torch.arange(N)})
    logits = model.classifier(model.backbone(images()))
    assert found["scores"]["accuracy"] == (logits.argmax(1) == label).float().mean()
    torch.testing.assert_close(found["h_image"], model(images()).detach())
    assert not found["h_image"].requires_grad


@pytest.mark.parametrize("loss", [VICRegLoss(), LogBilinearInfoNCELoss(128, joint=True), InfoNCELoss()], ids=repr)
def test_the_loss_is_an_argument(loss):
    model = module("scale", loss=loss)
    found = model.observe(batch())
    torch.testing.assert_close(found["loss"].detach(), loss(*found["z"]).detach())


@pytest.mark.parametrize(
    "backbone", [UnstructuredMLP(81, width=16), UnstructuredMLP(81, width=16, side=2)], ids=["4x4", "2x2"]
)
def test_the_mlp_without_structure_has_positions_to_draw_from(backbone):
    found = module("translation", backbone=backbone).observe(batch())
    assert found["fibers"].shape == (2, N, 16)


def test_a_plain_feature_map_will_do_for_translation():
    backbone = nn.Conv2d(1, 8, 3)
    model = HSSLModule(backbone, projector=MLPProjector(8, 16, 4, norm="none")).double()
    assert model.observe(batch())["z"].shape == (2, N, 4)


def test_the_resnet_of_products():
    backbone = EquivariantResNet(1, width=8, group="scale-rotation", scales=(1.0, 1.5), blocks=1, norm="group")
    found = module(("scale", "rotation"), backbone=backbone, base_size=3).observe(batch())
    assert found["fibers"].shape == (2, N, 3 * 64)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "b-ssl"}, "Expected `mode` to be one of .* but got 'b-ssl'"),
        ({"group": "colour"}, "Expected `group` to be one or several of"),
        (
            {"base_size": 2, "group": ["rotation", "translation"]},
            r"Expected `base_size` = 1 for translation with rotation, but got 2",
        ),
        ({"base_size": 0}, "Expected `base_size` >= 1, but got 0"),
        ({"max_distance": "4"}, "Expected `max_distance` >= 1.* but got '4', which is no number"),
        ({"group_shape": 4}, "Expected `group_shape` to be a list, but got"),
        ({"group_shape": [2, 0.5]}, r"Expected `group_shape` to be 2 positive integers, but got \[2, 0.5\]"),
        ({"classifier": "x"}, "Expected `classifier` to be a module or None, but got 'x'"),
        ({"max_distance": 0}, "Expected `max_distance` >= 1.* but got 0"),
        ({"max_distance": 4, "mode": "a-ssl"}, "Expected no `max_distance` for `mode` = 'a-ssl'.* but got 4"),
        ({"min_distance": -1}, "Expected `min_distance` >= 0 and finite, but got -1"),
        ({"min_distance": 5, "max_distance": 4}, "Expected `min_distance` <= `max_distance` = 4, but got 5"),
        ({"min_distance": 1, "mode": "a-ssl"}, "Expected no `min_distance` for `mode` = 'a-ssl'.* but got 1"),
        ({"hybrid_weight": 1.5}, r"Expected `hybrid_weight` in \[0, 1\], but got 1.5"),
        ({"backbone": nn.Identity()}, "Expected `projector` for a Identity, which has no `out_dim`, but got None"),
    ],
)
def test_a_wrong_argument_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        HSSLModule(**({"backbone": EquivariantCNN(width=8)} | arguments))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: module("scale", base_size=6), "Expected `base_size` of at most 5, but got 6"),
        (lambda: module("scale", base_size=7), r"Expected `base_size` in \[1, 6\], but got 7"),
        (lambda: module("rotation", base_size=5), r"Expected `base_size` in \[1, 4\], but got 5"),
        (lambda: module("rotation", "a-ssl"), "Expected 2 `views` in a batch for `mode` = 'a-ssl', but got 1"),
        (lambda: module(classifier=GroupClassifier(32, 3)), "Expected `label` in a batch for the classifier"),
        (
            lambda: HSSLModule(nn.Flatten(), "rotation", projector=nn.Identity()),
            r"Expected `backbone` to return a feature map with a group axis.*'h-ssl', but got shape \(6, 81\)",
        ),
        (
            lambda: HSSLModule(nn.Conv2d(1, 8, 3).double(), "rotation", projector=nn.Identity()),
            "Expected `z` with a group axis of more than one rotation",
        ),
    ],
)
def test_a_step_that_cannot_be_taken_is_refused(model, message):
    with pytest.raises(ValueError, match=message):
        model().observe(batch())


@pytest.mark.parametrize("side", [8, 10, 11, 28])
def test_a_strided_network_warns_of_sizes_that_are_not_exact(side):
    network = EquivariantCNN(width=1, group="rotation")
    with pytest.warns(UserWarning, match=r"Exact are sizes 4 k \+ 1, such as"):
        network(torch.rand(2, 1, side, side))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network(torch.rand(2, 1, 29, 29))
        EquivariantCNN(width=1, group="scale")(torch.rand(2, 1, side, side))


def test_isolated_blocks_are_trained_by_their_own_losses_alone():
    """Greedy InfoMax: the gradient of a block is that of its own loss, with all before it as constants."""
    torch.manual_seed(0)
    backbone = EquivariantCNN(width=8, group="translation", norm="group").double()
    heads = [nn.Linear(4 * 8, 6).double(), nn.Linear(4 * 16, 6).double()]
    last = nn.Linear(4 * 32, 6).double()
    given = {"base_size": 4, "min_distance": 1, "projector": last}
    model = HSSLModule(backbone, blocks=["layers.2", "layers.5"], heads=heads, **given)
    sample = {"views": (torch.rand(5, 1, 17, 17, dtype=torch.float64),), "index": torch.arange(5)}
    model.step(sample)["loss"].backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    x = sample["views"][0]
    for part, head in zip(
        (backbone.layers[:3], backbone.layers[3:6], backbone.layers[6:]), [*heads, last], strict=True
    ):
        model.zero_grad()
        x = part(x.detach())
        bundles = model.fibers(x, sample)
        model.loss(*head(bundles)).backward()
        grads = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        assert {name for name in grads if name.startswith("backbone")}
        torch.testing.assert_close({name: found[name] for name in grads}, grads)
    whole = HSSLModule(backbone, **given).step(sample)["loss"]
    assert model.step(sample)["loss"] > whole  # the losses are added


class Repeated(nn.Module):
    """A backbone that calls its middle layer a given number of times."""

    def __init__(self, calls):
        super().__init__()
        self.calls, self.out_dim = calls, 4
        self.first, self.middle, self.last = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)

    def forward(self, x):
        x = self.first(x)
        for _ in range(self.calls):
            x = self.middle(x)
        return self.last(x)


@pytest.mark.parametrize(
    ("calls", "blocks", "message"),
    [
        (0, ["middle"], r"Expected `blocks` \['middle'\] to be called once each, in this order, but \[\] were"),
        (2, ["middle"], r"but \['middle', 'middle'\] were called"),
        (1, ["middle", "first"], r"but \['first', 'middle'\] were called"),
        (1, ["first", "last"], "Expected `blocks` with trained layers behind the last, but 'last' has none"),
    ],
)
def test_blocks_that_cannot_be_trained_apart_are_refused(calls, blocks, message):
    heads = [nn.Linear(4, 4) for _ in blocks]
    model = HSSLModule(Repeated(calls), blocks=blocks, heads=heads)
    with pytest.raises(ValueError, match=message):
        model.step({"views": (torch.rand(4, 1, 16, 16),), "index": torch.arange(4)})


def test_one_block_cannot_be_named_twice():
    heads = [nn.Linear(4, 4) for _ in range(2)]
    with pytest.raises(
        ValueError, match=r"Expected a list of different `blocks` .* but got \['first', 'first'\] and 2"
    ):
        HSSLModule(Repeated(1), blocks=["first", "first"], heads=heads)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"blocks": ["layers.2"]},
            r"Expected a list of different `blocks` with as many `heads`, but got \['layers.2'\] and 0",
        ),
        ({"blocks": "layers.2", "heads": [nn.Identity()] * 8}, "Expected a list of different `blocks` with as"),
        (
            {"blocks": ["layer.2"], "heads": [nn.Identity()]},
            "Expected `blocks` to name submodules of EquivariantCNN, but",
        ),
    ],
)
def test_blocks_that_do_not_fit_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        HSSLModule(EquivariantCNN(width=2, group="translation"), **given)


@pytest.mark.parametrize(("own", "group"), [("dihedral", "rotation"), ("rotation", "dihedral"), ("rotation", "hue")])
def test_other_orientations_than_the_backbones_are_refused(own, group):
    backbone = EquivariantCNN(width=2, group=own)
    with pytest.raises(
        ValueError, match=f"Expected `group` with '{own}', the backbone's orientations, but got .*{group}"
    ):
        HSSLModule(backbone, group=group)
    assert HSSLModule(backbone, group=own).pairs.group == (own,)
    assert HSSLModule(backbone, group="translation").pairs.group == ("translation",)


@pytest.mark.parametrize("scales", [(1.5, 1.0), (1.0, 1.0), (0.4, 1.0), ()])
def test_scales_out_of_order_are_refused(scales):
    with pytest.raises(ValueError, match="Expected `scales`"):
        EquivariantCNN(scales=scales)
