"""On a device without float64, every diagnostic computes in float64 on the CPU, with the same values. So do views."""

import inspect
import re
import warnings
from functools import partial
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch
from clouds import cloud
from observations import concrete, metric_of, observed, variants
from pretended import PLACE, PretendedDevice, on_cpu, pretended

from lightning_ssl_geometry import precision
from lightning_ssl_geometry.diagnostics import Alignment
from lightning_ssl_geometry.functional import clusteredness, silhouette
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.views import GroupViews, SignalViews, VectorViews


def moved(tensor, data, *, device=None, **settings):
    """torch's function `tensor`, which calls no operation for a device."""
    return tensor(data, **settings).to(device)


def backward_jvp(function, primals, tangents):
    """torch's jvp without its forward mode, which does not know the pretended device."""
    value, pull = torch.func.vjp(function, *primals)
    return value, torch.func.vjp(pull, torch.zeros_like(value))[1](tangents)[0]


@pytest.fixture
def apple(monkeypatch):
    """The pretended device, which has no float64."""
    monkeypatch.setattr(precision, "supports_float64", lambda device: device != PLACE)
    monkeypatch.setattr(torch, "tensor", partial(moved, torch.tensor))
    monkeypatch.setattr(torch, "autocast", partial(on_cpu, torch.autocast))
    monkeypatch.setattr(import_module("lightning_ssl_geometry.functional.output_velocity"), "jvp", backward_jvp)
    with PretendedDevice():
        yield PLACE


SLOW = {(name, "exponential") for name in ("LieGenerator", "PolicyGenerators")}  # many small steps
CASES = [
    (name, settings)
    for name, kind in concrete().items()
    for settings in variants(kind)
    if (name, *settings.values()) not in SLOW
]


def read(name, settings, place):
    """The results at two readouts of a Metric on `place`, by key."""
    metric = metric_of(concrete()[name], **settings).to(place)
    given = observed(cloud("isotropic"))
    given = pretended(given) if place == PLACE else given
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            metric.update(**{key: given[key] for key in inspect.signature(metric.update).parameters})
            found.append(metric.compute())
            metric.reset()
    return [each if isinstance(each, dict) else {"": each} for each in found]


@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_a_diagnostic_has_its_values_on_a_device_without_float64(name, settings, apple):
    try:
        expected = read(name, settings, torch.device("cpu"))
    except ValueError as error:  # settings that need others
        with pytest.raises(ValueError, match=re.escape(str(error))):
            read(name, settings, apple)
        return
    for found, wanted in zip(read(name, settings, apple), expected, strict=True):
        on_cpu = {key: value.cpu() for key, value in found.items()}
        torch.testing.assert_close(on_cpu, wanted, rtol=1e-6, atol=1e-6, equal_nan=True)


VIEWS = {
    "vectors": (VectorViews(noise=0.1, mask=0.2, keep_first=False), (12, 9)),
    "signals": (SignalViews(max_shift=0.2, mask_spans=2, mask_length=0.3), (12, 3, 40)),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_views_have_their_values_on_a_device_without_float64(kind, apple):
    views, shape = VIEWS[kind]
    x, index = torch.randn(shape), torch.arange(shape[0])
    views.learn(torch.randn(shape), index)
    for found, expected in zip(views(x.to(apple), index), views(x, index), strict=True):
        assert found.device == apple
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("action", ["translation", "rotation", "scale"])
def test_group_views_have_their_values_on_a_device_without_float64(action, apple):
    views = GroupViews(action, seed=3)
    image, index = torch.rand(5, 3, 8, 8), torch.arange(5)
    normalize = (torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.2, 0.3]))
    expected = views(image, index, 1, *normalize)
    for found, each in zip(views(image.to(apple), index.to(apple), 1, *pretended(normalize)), expected, strict=True):
        assert found.device == apple
        torch.testing.assert_close(found.cpu(), each, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("temperature", [torch.tensor(0.3), torch.linspace(0.2, 0.9, 4)], ids=["one", "each"])
@pytest.mark.parametrize("mode", ["distance", "feature"])
def test_info_nce_takes_a_temperature_on_a_device_without_float64(temperature, mode, apple):
    settings = {"form": "RUSAK", "normalize": False, "similarity": "distance", "mode": mode}
    z1, z2 = torch.randn(2, 12, 4)
    expected = InfoNCELoss(temperature.double(), **settings)(z1.double(), z2.double())
    found = InfoNCELoss(temperature.to(apple), **settings)(z1.to(apple), z2.to(apple))
    assert found.device == apple
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_a_silhouette_has_its_value_on_a_device_without_float64(apple):
    z, label = torch.randn(12, 3), torch.arange(12) % 3
    expected = silhouette(z.double(), label)
    assert silhouette(z.to(apple), label.to(apple)).item() == pytest.approx(expected.item(), abs=1e-6)
    found, wanted = clusteredness(z.to(apple), label.to(apple), n_init=2), clusteredness(z.double(), label, n_init=2)
    torch.testing.assert_close(torch.stack(found).cpu(), torch.stack(wanted), rtol=1e-6, atol=1e-6)


def test_the_pretended_device_refuses_what_such_a_device_refuses(apple):
    x = torch.ones(3).to(apple)
    assert (x + 1).device == apple
    assert (x + 1).cpu().tolist() == [2.0, 2.0, 2.0]
    made = {"dtype": torch.float64, "device": apple}
    for wrong in (x.double, lambda: torch.ones(3, **made), lambda: torch.ones(1).double().to(apple)):
        with pytest.raises(TypeError, match="float64, which it does not have"):
            wrong()
    for two_devices in (lambda: x + torch.ones(3), lambda: torch.ones(3) + x.sum(), lambda: torch.ones(3)[x.long()]):
        with pytest.raises(RuntimeError, match="Expected"):
            two_devices()


@pytest.mark.parametrize(("device", "has"), [("cpu", True), ("cuda", True), ("mps", False), ("mps:0", False)])
def test_mps_has_no_float64(device, has):
    assert precision.supports_float64(torch.device(device)) is has
    assert precision.float64_device(torch.device(device)) == torch.device(device if has else "cpu")


@pytest.mark.parametrize("has", [True, False])
def test_an_xpu_is_asked(has, monkeypatch):
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda device: SimpleNamespace(has_fp64=has))
    assert precision.supports_float64(torch.device("xpu")) is has


def test_a_cast_has_a_gradient():
    x = torch.ones(3, requires_grad=True)
    precision.in_float64(x).square().sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_states_stay_in_float64_where_a_module_moves_or_changes_its_dtype(apple):
    metric = Alignment()
    for change in (lambda each: each.to(apple), lambda each: each.half(), lambda each: each.cpu()):
        assert {state.dtype for state in change(metric).metric_state.values()} == {torch.float64}
        assert {state.device.type for state in metric.metric_state.values()} == {"cpu"}
