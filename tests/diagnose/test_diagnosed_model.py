import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.diagnose import DiagnosedModel
from lightning_ssl_geometry.views import SimCLRViews


class Host(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.trunk(x).flatten(1))


def batch(n=5):
    generator = torch.Generator().manual_seed(1)
    views = tuple(torch.rand(n, 3, 8, 8, generator=generator) for _ in range(2))
    return {"views": views, "image": views[0], "label": torch.arange(n) % 2, "index": torch.arange(n)}


def test_it_passes_views_and_images_through_backbone_and_projector():
    host, seen = Host(), batch()
    found = DiagnosedModel(host, backbone="trunk", projector="head").test_step(seen, 0)
    h = torch.stack([host.trunk(view).flatten(1) for view in seen["views"]])
    torch.testing.assert_close(found["h"], h)
    torch.testing.assert_close(found["z"], host.head(h))
    torch.testing.assert_close(found["h_image"], h[0])
    assert found["projector"] is host.head
    assert (found["label"] == seen["label"]).all()


def test_a_network_as_it_is_and_an_inner_layer_of_it():
    host, x = Host(), batch()["image"]
    torch.testing.assert_close(DiagnosedModel(host)(x), host(x))
    torch.testing.assert_close(DiagnosedModel(host, layer="trunk.2")(x), host.trunk(x).flatten(1))
    assert "z" not in DiagnosedModel(host).test_step(batch(), 0)


@pytest.mark.parametrize("keys", [{"image": 0, "label": 1}, {"image": 0, "label": 1, "index": 2}])
def test_views_are_made_where_a_batch_has_one_image(monkeypatch, keys):
    monkeypatch.setattr(distributed, "rank", lambda: 1)
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    made, given = SimCLRViews(seed=3), batch()
    model = DiagnosedModel(Host(), batch_keys=keys, augment=made)
    index = torch.tensor([7, 1, 3, 0, 2])
    for start in (0, 5):
        found = model.test_step((given["image"], given["label"], index), 0)
        expected = index if "index" in keys else (start + torch.arange(5)) * 2 + 1
        assert found["index"].tolist() == expected.tolist()
        views = made(given["image"], expected)
        torch.testing.assert_close(found["h"], torch.stack([model(view) for view in views]))
    model.on_test_epoch_start()
    if "index" not in keys:
        assert model.test_step((given["image"], given["label"], index), 0)["index"].tolist() == [1, 3, 5, 7, 9]


def test_views_at_places_of_their_own():
    given = batch()
    model = DiagnosedModel(Host(), batch_keys={"views": ["0.a", "0.b"], "index": 1})
    found = model.test_step([{"a": given["views"][0], "b": given["views"][1]}, given["index"]], 0)
    torch.testing.assert_close(found["h"], DiagnosedModel(Host()).test_step(given, 0)["h"])


def test_places_in_the_batches_of_a_test():
    given = batch()
    keys = {"label": 0, "test/label": 1, "val/label": 7, "image": 0}
    model = DiagnosedModel(Host(), batch_keys=keys, augment=SimCLRViews())
    found = model.test_step((given["image"], given["label"]), 0)
    assert torch.equal(found["label"], given["label"])


def test_bad_input():
    with pytest.raises(ValueError, match=r"`batch_keys` of views, image, label, coarse_label, index, but got 'lable'"):
        DiagnosedModel(Host(), batch_keys={"lable": 1})
    with pytest.raises(ValueError, match=r"`batch_keys` of one of the stages .* but got 'tset/label'"):
        DiagnosedModel(Host(), batch_keys={"tset/label": 1})
    model = DiagnosedModel(Host(), batch_keys={"image": 0, "index": 1}, augment=SimCLRViews())
    with pytest.raises(ValueError, match=r"images in \[0, 1\] for `augment`, but got values from 0 to 3"):
        model.test_step((torch.tensor([0.0, 3.0]).expand(2, 3, 8, 2), torch.arange(2)), 0)
    with pytest.raises(
        ValueError, match=r"`backbone` to name submodules of Host, but got 'trunc'. Did you mean `trunk`"
    ):
        DiagnosedModel(Host(), backbone="trunc")
    with pytest.raises(ValueError, match=r"`projector` to name submodules of Host, .* Did you mean `trunk` or `head`"):
        DiagnosedModel(Host(), projector="projector")
    with pytest.raises(ValueError, match=r"`layer` to name submodules of Sequential, but got 'avgpool'"):
        DiagnosedModel(Host(), backbone="trunk", layer="avgpool")
    with pytest.raises(ValueError, match=r"`trunk.1` to return \(N, D\) or \(N, D, 1, 1\), but got \(5, 6, 6, 6\)"):
        DiagnosedModel(Host(), layer="trunk.1")(batch()["image"])
    with pytest.raises(ValueError, match=r"`backbone` to return .* but got tuple"):
        DiagnosedModel(Pair())(batch()["image"])
    with pytest.raises(
        ValueError, match=r"`views`, or with an `image` beside `augment`, but they have nothing that is"
    ):
        DiagnosedModel(Host()).test_step([torch.ones(2, 3, 8, 8)], 0)
    with pytest.raises(ValueError, match=r"but they have image, label that is known"):
        DiagnosedModel(Host()).test_step({"image": torch.ones(2, 3, 8, 8), "label": torch.zeros(2)}, 0)


class Pair(nn.Module):
    def forward(self, x):
        return x, x


def vit(depth=3):
    torch.manual_seed(0)
    return VisionTransformer(img_size=8, patch_size=4, embed_dim=12, depth=depth, num_heads=2, num_classes=0).eval()


def up_to(network, block, x):
    """The tokens that the first blocks of a vision transformer return."""
    x = network.norm_pre(network._pos_embed(network.patch_embed(x)))
    return network.blocks[: block + 1](x)


@pytest.mark.parametrize("token", ["cls", "mean"])
def test_layers_by_a_pattern_are_of_the_forward_pass_of_h(token):
    network, given = vit(), batch()
    model = DiagnosedModel(
        network, layers="blocks.*", token=token, augment=SimCLRViews(), batch_keys={"image": "image"}
    )
    calls = []
    network.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        found = model.test_step(given, 0)
    assert len(calls) == 2  # the views together, and the images
    assert list(found["h_layers"]) == list(found["h_layers_image"]) == ["blocks.0", "blocks.1", "blocks.2"]
    for name, x in [("h_layers", torch.cat(given["views"])), ("h_layers_image", given["image"])]:
        for place in range(3):
            tokens = up_to(network, place, x).detach()
            expected = tokens[:, 0] if token == "cls" else tokens.mean(1)
            torch.testing.assert_close(found[name][f"blocks.{place}"].reshape(-1, 12), expected)
    torch.testing.assert_close(found["h_image"], network(given["image"]))


def test_only_the_vectors_of_a_layer_are_kept():
    model = DiagnosedModel(vit(), layers="blocks.*", token="cls")
    with torch.no_grad():
        _, layers = model._represent(batch()["image"], model.layers)
    assert [z.untyped_storage().nbytes() for z in layers.values()] == [4 * z.numel() for z in layers.values()]


def test_the_layer_whose_output_is_h_is_named_once():
    model = DiagnosedModel(vit(), layer="blocks.1", layers="blocks.*", token="cls")
    assert "blocks.0" in model.layers
    assert "blocks.1" not in model.layers


def test_the_first_of_what_a_layer_returns_counts():
    class Block(nn.Sequential):
        def forward(self, x):
            return self[1](self[0](x))[0]

    network = nn.Sequential(nn.Flatten(), Block(nn.Linear(192, 5), Pair()))
    model = DiagnosedModel(network, layers=["1.1"])
    h, layers = model._represent(batch()["image"], model.layers)
    assert torch.equal(layers["1.1"], h)


def test_bad_layers_and_tokens():
    with pytest.raises(ValueError, match=r"`token` to be one of \(None, 'cls', 'mean', .*'flatten'\), but got 'first'"):
        DiagnosedModel(vit(), token="first")
    with pytest.raises(
        ValueError, match=r"`layers` to .*, but got 'block.\*'. Did you mean `blocks.2`, `blocks.1` or `blocks.0`"
    ):
        DiagnosedModel(vit(), layers=["block.*"])
    model = DiagnosedModel(vit(), layers="blocks.*")
    with pytest.raises(ValueError, match=r"`blocks.0` to return .*, but got \(5, 5, 12\)\. .*: 'cls' .the first token"):
        model._represent(batch()["image"], model.layers)


class Failing(nn.Module):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def forward(self, x):
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("mat1 and mat2 shapes differ"), "Failing says: mat1 and mat2 shapes differ$"),
        (
            RuntimeError("no such key"),
            "no such key\\. It takes other images, or the network has an error",
        ),
    ],
)
def test_the_words_of_the_network_are_kept(error, said):
    with pytest.raises(ValueError, match=said):
        DiagnosedModel(Failing(error))(torch.zeros(2, 3, 8, 8))


def test_memory_that_is_full_is_not_the_fault_of_a_shape():
    with pytest.raises(torch.OutOfMemoryError, match=r"^full$"):
        DiagnosedModel(Failing(torch.OutOfMemoryError("full")))(torch.zeros(2, 3, 8, 8))
