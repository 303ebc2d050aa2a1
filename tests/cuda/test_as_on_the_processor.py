"""Functions, diagnostics, views and trainings on a GPU: the numbers are those of the CPU, and every contract is kept.

`nox -s cuda` runs these tests on a GPU. SSL_GEOMETRY_DEVICE=cpu runs them on the CPU, where they compare a device with
itself: this shows that the tests themselves run.
"""

import copy
import inspect
import os
import warnings

import pytest
import torch
from calls import FUNCTIONS, Cloud, arguments, converted, flat
from clouds import Drawn
from hosts import quiet
from observations import concrete, metric_of, observed
from small_methods import METHODS, data
from torch import Tensor, nn

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe
from lightning_ssl_geometry.testing import check_method
from lightning_ssl_geometry.views import SimCLRViews

DEVICE = torch.device(os.environ.get("SSL_GEOMETRY_DEVICE", "cuda"))
ACCELERATOR = {"accelerator": "gpu" if DEVICE.type == "cuda" else DEVICE.type, "devices": 1}
pytestmark = pytest.mark.skipif(DEVICE.type == "cuda" and not torch.cuda.is_available(), reason="needs a GPU")
EXPECTED = {
    "contrastive_flow": {"copies": "its optimizer is a lambda, which pickle refuses"},
    "crl_tac": {"views": "it takes the first view, and draws its own views from it"},
}


def moved(value):
    """A copy on the device; a generator stays where it is, as random numbers of the CPU are the same anywhere."""
    if isinstance(value, Tensor | nn.Module):
        return copy.deepcopy(value).to(DEVICE)
    if type(value) in (list, tuple):
        return type(value)(moved(each) for each in value)
    if isinstance(value, torch.Generator):
        return torch.Generator().set_state(value.get_state())
    return copy.deepcopy(value)


def called(name, given):
    """The numbers of a function, and the gradients of their sum for each argument that can have one."""
    given = dict(given)
    leaves = {key: value for key, value in given.items() if isinstance(value, Tensor) and value.is_floating_point()}
    for value in leaves.values():
        value.requires_grad_()
    positional = [given.pop("counters")] if "counters" in given else []
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = FUNCTIONS[name](*positional, **given)
    total = sum((each.sum() for each in tensors(found) if each.requires_grad), torch.zeros((), device=DEVICE))
    if total.requires_grad:
        total.backward()
    gradients = {key: leaf.grad.cpu() for key, leaf in leaves.items() if leaf.grad is not None}
    return flat(cpu(found)), gradients


def tensors(result):
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, dict):
        result = list(result.values())
    return [each for part in result for each in tensors(part)] if isinstance(result, list | tuple) else []


def cpu(result):
    if isinstance(result, Tensor):
        return result.cpu()
    if isinstance(result, dict):
        return {key: cpu(value) for key, value in result.items()}
    return [cpu(each) for each in result] if isinstance(result, list | tuple) else result


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-7), (torch.float32, 1e-2)], ids=["float64", "float32"])
def test_functions_and_their_gradients(name, dtype, rtol):
    made, _ = arguments(name, Cloud(14, 3, "plain", 0))
    given = {key: converted(value, dtype) for key, value in made.items()}
    there = {key: moved(value) for key, value in given.items()}
    expected, gradients = called(name, {key: copy.copy(value) for key, value in given.items()})
    found, others = called(name, there)
    torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol / 100, equal_nan=True)
    assert set(others) == set(gradients)
    for key, gradient in gradients.items():
        torch.testing.assert_close(others[key], gradient, rtol=rtol, atol=rtol / 100, equal_nan=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bfloat16_gives_finite_numbers_or_an_error_that_says_why_not(name):
    made, _ = arguments(name, Cloud(14, 3, "plain", 0))
    given = {key: moved(converted(value, torch.bfloat16)) for key, value in made.items()}
    positional = [given.pop("counters")] if "counters" in given else []
    try:
        found = flat(cpu(FUNCTIONS[name](*positional, **given)))
    except (RuntimeError, TypeError, ValueError) as error:
        found, said = torch.zeros(1), str(error)
    else:
        said = "a number"
    assert said
    assert found.isfinite().all()


@pytest.mark.parametrize("name", concrete())
def test_diagnostics(name):
    given = observed(Drawn(views=3, rows=24).points().double())
    found = []
    for observation in (given, {key: moved(value) for key, value in given.items()}):
        metric = metric_of(concrete()[name]).to(DEVICE if found else "cpu")
        wanted = inspect.signature(metric.update).parameters
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):  # some compare with the first readout
                metric.reset()
                metric.update(**{key: value for key, value in observation.items() if key in wanted})
                computed = metric.compute()
        found.append(flat(cpu(computed)))
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=1e-8, equal_nan=True)


@pytest.mark.parametrize("color", ["exact", "fast"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_views(color, channels_last):
    image = torch.rand(64, 3, 32, 32)
    views = SimCLRViews(color=color, blur=0.5, channels_last=channels_last)
    for index in (torch.arange(64), torch.arange(64, device=DEVICE)):
        for ours, theirs in zip(views(image.to(DEVICE), index), views(image, index.cpu()), strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, atol=1e-4, rtol=0)


def fitted(method, folder, **arguments):
    watch = [GeometryMonitor(stages=["train", "val", "probe"], probe_size=10), LinearProbe(), KNNProbe(k=5)]
    model = METHODS[method]()
    trainer = quiet(folder, max_epochs=2, callbacks=watch, **arguments)
    trainer.fit(model, datamodule=data(50))
    weights = {name: value.cpu() for name, value in model.state_dict().items()}
    return weights, {name: value.item() for name, value in trainer.callback_metrics.items()}


@pytest.mark.parametrize("method", METHODS)
def test_a_training_has_the_weights_and_the_results_of_the_processor(method, tmp_path):
    weights, scalars = fitted(method, tmp_path / "cpu", precision="64-true", accelerator="cpu")
    found, others = fitted(method, tmp_path / "device", precision="64-true", **ACCELERATOR)
    for name, value in weights.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
    assert set(others) == set(scalars)
    for name, value in scalars.items():
        assert others[name] == pytest.approx(value, rel=1e-3, abs=1e-4, nan_ok=True), name


@pytest.mark.parametrize("method", METHODS)
def test_contracts(method):
    # Two fits on a GPU may round otherwise, where sums are added in another order.
    torch.use_deterministic_algorithms(DEVICE.type == "cuda", warn_only=True)
    try:
        check_method(METHODS[method](), data(50), EXPECTED.get(method), **ACCELERATOR)
    finally:
        torch.use_deterministic_algorithms(False)
