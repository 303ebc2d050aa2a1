"""An observation of everything that a diagnostic may name, made from a cloud of points: for laws over all Metrics."""

__all__ = ["metric_of", "observed", "permuted", "results", "variants"]

import inspect
import warnings
from typing import Literal, get_args, get_origin

import torch
from clouds import cloud
from torch import nn

from lightning_ssl_geometry.views.family import CropFamily

D, P, SIDE = 6, 4, 6
SPACES = ("h", "z", "h_image", "z_image")  # what rotation, scale and translation move
SAMPLES = {"h": 1, "z": 1, "latent": 1}  # the axis of the samples, where it is not the first
WITHOUT_SAMPLES = ("content", "temperature", "encoder", "projector", "feature_extractor", "family")
SMALL = {  # settings of these names, for small clouds; a diagnostic that has others keeps its own
    "count": 8,
    "layer": "linear",
    "n_init": 2,
    "neighbors": 9,
    "num_layers": 1,
    "num_slices": 16,
    "ranges": (30.0, 90.0),
    "shift": 1,
    "split": 3,
}


class Encoder(nn.Sequential):
    def __init__(self):
        super().__init__()
        self.add_module("flatten", nn.Flatten())
        self.add_module("linear", nn.Linear(SIDE**2, D))
        self.add_module("tanh", nn.Tanh())


class FeatureExtractor(nn.Module):
    """Maps images to D channels over four orientations; it is not equivariant."""

    group_shape, scales, stride = (1, 4), (1.0,), 1

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4 * D, 3, padding=1)

    def forward(self, x):
        return self.conv(x).unflatten(1, (D, 4))


def observed(name, dtype=torch.float32):
    """All that is observed of a cloud, by name: images are a linear map of its points, networks are the same always."""
    rows = cloud(name, d=D).to(dtype)
    n = rows.shape[1]
    with torch.random.fork_rng([]):
        torch.manual_seed(3)
        images = rows @ torch.randn(D, SIDE**2).to(dtype) / D**0.5
        log_policy = nn.Linear(D, 9).to(dtype)(rows[0]).detach().log_softmax(1)
        networks = {"encoder": Encoder(), "projector": nn.Linear(D, P, bias=False)}
        networks["feature_extractor"] = FeatureExtractor()
    image, *views = (each.unflatten(1, (1, SIDE, SIDE)) for each in (images[0], *images))
    networks = {key: network.to(dtype) for key, network in networks.items()}
    return networks | {
        **{"h": rows, "z": rows, "z_image": rows[0], "layers": [rows[0]], "latent": rows[..., :4]},
        **{"image": image, "views": tuple(views), "h_image": networks["encoder"](image).detach()},
        **{"index": torch.arange(n) * 7, "label": torch.arange(n) % 3, "coarse_label": torch.arange(n) % 2},
        **{"content": torch.arange(4) < 2, "temperature": torch.linspace(0.5, 1, D, dtype=dtype)},
        **{"log_policy": log_policy, "family": CropFamily(image_size=SIDE, size=2, stride=2)},
        "box": torch.tensor([1, 1, 4, 4]).expand(n, 4),
    }


def permuted(observation, order):
    """The same samples in another order."""

    def moved(name, value):
        if isinstance(value, list | tuple):
            return type(value)(each[order] for each in value)
        return value if name in WITHOUT_SAMPLES else value.index_select(SAMPLES.get(name, 0), order)

    return {name: moved(name, value) for name, value in observation.items()}


def metric_of(kind, **settings):
    """Make a Metric whose settings fit small clouds."""
    wanted = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in SMALL.items() if name in wanted} | settings)


def variants(kind):
    """Settings that differ in one switch or one choice of words from the small ones."""
    found = [{}]
    for name, parameter in inspect.signature(kind).parameters.items():
        if isinstance(parameter.default, bool):
            found.append({name: not parameter.default})
        if get_origin(parameter.annotation) is Literal:
            found += [{name: choice} for choice in get_args(parameter.annotation)]
    return found


def results(metric, observation):
    """What a Metric computes, by key, at its second readout: the first is of an isotropic cloud."""
    first = observed("isotropic", observation["h"].dtype) | {
        name: value for name, value in observation.items() if isinstance(value, nn.Module)
    }
    n = observation["h"].shape[1]
    first = permuted(first, torch.arange(n))
    wanted = inspect.signature(metric.update).parameters
    if unknown := wanted.keys() - observation.keys():
        raise ValueError(f"Expected tests/observations.py to make {sorted(unknown)}, which {metric} observes.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in (first, observation):
            metric.update(**{name: each[name] for name in wanted})
            found = metric.compute()
            if each is first:
                metric.reset()
    return found if isinstance(found, dict) else {"": found}
