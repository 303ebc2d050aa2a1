import copy

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.diagnostics.latents import LatentR2, fitted_half
from lightning_ssl_geometry.diagnostics.undefined import UndefinedWarning
from lightning_ssl_geometry.functional.latent_r2 import latent_r2
from lightning_ssl_geometry.methods import SimCLRModule

N, LATENTS = 300, 4
CONTENT = torch.tensor([True, False, True, False])


def host(seed=3):
    torch.manual_seed(seed)
    backbone = nn.Sequential(nn.Linear(6, 20), nn.BatchNorm1d(20), nn.LeakyReLU(inplace=True), nn.Linear(20, 5))
    module = SimCLRModule(backbone, nn.Sequential(nn.Linear(5, 8), nn.Dropout(), nn.ReLU(), nn.Linear(8, 3)))
    module.double().backbone(torch.randn(100, 6, dtype=torch.float64))  # running statistics
    return module


def data(n=N):
    generator = torch.Generator().manual_seed(1)
    latent = torch.rand(2, n, LATENTS, generator=generator, dtype=torch.float64)
    image = latent[0] @ torch.randn(LATENTS, 6, generator=generator, dtype=torch.float64)
    return image, latent, torch.arange(n) * 3


def fed(metric, module=None, chunks=None, content=CONTENT, projector=True):
    module = host() if module is None else module
    image, latent, index = data()
    for rows in [torch.arange(N)] if chunks is None else chunks:
        parts = {"encoder": module} | ({"projector": module.projector} if projector else {})
        metric.update(image[rows], latent[:, rows], content, index[rows], **parts)
    return metric


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_it_is_the_functions_on_every_layer():
    module = host().eval()
    metric = fed(LatentR2(normalize=True, seed=2), module)
    assert metric.layer_names == (
        *("image", "backbone.0", "backbone.1", "backbone.2", "h"),
        *("projector.0", "projector.2", "z", "z_normalized"),
    )
    image, latent, index = data()
    features = [image]
    with torch.no_grad():
        for layer in (*module.backbone, *module.projector[:1], *module.projector[2:]):
            features.append(layer(features[-1].clone()))
        features.append(nn.functional.normalize(features[-1]))
    fit = fitted_half(2, index)
    r2 = torch.stack([latent_r2(h, latent[0], fit) for h in features])
    content, style = r2[:, CONTENT].mean(1), r2[:, ~CONTENT].mean(1)
    expected = {"content": content, "content_h": content[4], "content_z": content[7]}
    expected |= {"style": style, "style_h": style[4], "style_z": style[7]}
    close(metric.compute(), expected)
    assert content[0].item() == pytest.approx(1)  # the mixing is linear
    assert style[7] < 0.9


def test_named_layers_come_in_the_order_of_the_pass():
    everything = fed(LatentR2())
    chosen = fed(LatentR2(["projector.0", "backbone.2"]))
    assert chosen.layer_names == ("image", "backbone.2", "h", "projector.0", "z")
    places = [everything.layer_names.index(name) for name in chosen.layer_names]
    close(chosen.compute()["style"], everything.compute()["style"][places])


@pytest.mark.parametrize("projector", [nn.Identity(), nn.Linear(5, 2), None])
def test_a_host_of_another_package(projector):
    backbone = host().backbone
    image, latent, index = data()
    metric = LatentR2()
    metric.update(
        image, latent, CONTENT, index, encoder=backbone, projector=None if projector is None else projector.double()
    )
    last = ("h",) if projector is None else ("h", "z")
    assert metric.layer_names == ("image", "0", "1", "2", *last)
    found = metric.compute()
    assert ("content_z" in found) == (projector is not None)
    if isinstance(projector, nn.Identity):
        close(found["style_h"], found["style_z"])


def test_maps_are_averaged_over_their_pixels_and_what_is_called_twice_is_left_out():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution, self.relu, self.flat = nn.Conv2d(2, 3, 1), nn.ReLU(), nn.Flatten()

        def forward(self, x):
            return self.flat(self.relu(self.convolution(self.relu(x))))

    image, latent = torch.randn(N, 2, 2, 2), torch.randn(1, N, 2)
    metric = LatentR2()
    metric.update(image, latent, torch.tensor([True, False]), torch.arange(N), encoder=Twice())
    assert metric.layer_names == ("image", "convolution", "h")
    expected = latent_r2(image.mean((2, 3)), latent[0], fitted_half(0, torch.arange(N)))
    close(metric.compute()["content"][0], expected[0])


def test_it_does_not_depend_on_batches_or_order():
    once = fed(LatentR2()).compute()
    close(fed(LatentR2(), chunks=torch.arange(N).split(7)).compute(), once)
    close(fed(LatentR2(), chunks=torch.randperm(N).split(64)).compute(), once)


def rank_result(rank):
    rows = torch.arange(N)[slice(0, 91) if rank == 0 else slice(91, None)]
    return fed(LatentR2(), chunks=rows.split(50)).compute()


def idle_rank(rank):
    return fed(LatentR2(), chunks=[torch.arange(N if rank == 0 else 0)]).compute()


@pytest.mark.parametrize("function", [rank_result, idle_rank])
def test_it_is_the_same_on_two_processes(function, two_processes):
    once = fed(LatentR2()).compute()
    for found in two_processes(function):
        close(found, once)


def test_only_the_kinds_that_there_are():
    for content, kind in ((torch.ones(LATENTS) > 0, "content"), (torch.ones(LATENTS) < 0, "style")):
        found = fed(LatentR2(), content=content).compute()
        assert list(found) == [kind, f"{kind}_h", f"{kind}_z"]


def test_it_leaves_the_networks_as_they_were_and_works_in_inference_mode():
    module = host().train()
    module.backbone[1].eval()
    once = fed(LatentR2(), host().eval()).compute()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    with torch.inference_mode():
        close(fed(LatentR2(), module).compute(), once)
    assert [layer.training for layer in module.backbone] == [True, False, True, True]
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert not any(layer._forward_hooks for layer in module.modules())


def test_reset_forgets_samples_and_layers():
    metric = fed(LatentR2())
    metric.reset()
    other = SimCLRModule(nn.Linear(6, 4).double(), nn.Identity())
    assert fed(metric, other).layer_names == ("image", "h", "z")
    close(metric.compute(), fed(LatentR2(), other).compute())
    close(copy.deepcopy(metric).compute(), metric.compute())


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_nothing_observed_is_an_error():
    with pytest.raises(ValueError, match="Expected LatentR2 to have observed samples, but got none"):
        LatentR2().compute()
    with pytest.raises(ValueError, match="Expected LatentR2 to have observed samples, but got none"):
        fed(LatentR2(), chunks=[torch.arange(0)]).compute()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latent": torch.ones(2, 9, 4)}, r"Expected `latent` of shape \(N, d\), N = 300, but got \(9, 4\)"),
        ({"content": torch.ones(4)}, r"Expected `content` of booleans, but got torch.float32"),
        ({"content": torch.ones(3) > 0}, r"Expected `content` of shape \(d,\), d = 4, but got \(3,\)"),
        ({"index": torch.arange(9)}, r"Expected `index` of shape \(N,\), N = 300, but got \(9,\)"),
    ],
)
def test_what_does_not_fit_is_an_error(change, message):
    image, latent, index = data()
    given = {"image": image, "latent": latent, "content": CONTENT, "index": index, "encoder": host()}
    with pytest.raises(ValueError, match=message):
        LatentR2().update(**given | change)


def test_layers_that_are_not_there_are_an_error():
    with pytest.raises(ValueError, match=r"Expected `layers` to name submodules .* but got 'backbone.9'"):
        fed(LatentR2(["backbone.9"]))
    with pytest.raises(ValueError, match=r"but got 'projector.9'"):
        fed(LatentR2(["projector.9"]))
    idle = host()
    idle.idle = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"Expected `layers` that are called in a pass, but 'encoder\.idle' was not"):
        fed(LatentR2(["idle"]), idle)
    module = host()
    module.backbone.extend([nn.Unflatten(1, (5, 1)), nn.Flatten()])
    with pytest.raises(ValueError, match=r"Expected `backbone.4` of shape .* N = 300, but got \(300, 5, 1\)"):
        fed(LatentR2(["backbone.4"]), module)
    with pytest.raises(ValueError, match="Expected `content` to be the same in every update, but got another"):
        fed(fed(LatentR2()), content=~CONTENT)


def test_too_few_samples_give_nan_and_say_so():
    with pytest.warns(UndefinedWarning, match=r"LatentR2 is NaN: half of .*Expected at least .* scored samples"):
        found = fed(LatentR2(), chunks=[torch.arange(9)]).compute()
    assert found["content"].isnan().any()


def test_equal_latents_give_nan_and_say_so():
    module, (image, latent, index) = host(), data()
    metric = LatentR2()
    metric.update(image, latent[:, :1].expand_as(latent), CONTENT, index, encoder=module, projector=module.projector)
    with pytest.warns(UndefinedWarning, match="LatentR2 is NaN: no latent differs between the samples"):
        found = metric.compute()
    assert all(value.isnan().all() for value in found.values())
