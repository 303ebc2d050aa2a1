"""Make an observation with every key from a cloud of points, for the laws that all Metrics obey."""

__all__ = ["at_once", "concrete", "metric_of", "observed", "of_rank", "permuted", "results", "variants"]

import inspect
import warnings
from typing import Literal, get_args, get_origin

import torch
from clouds import Drawn
from torch import nn
from torchmetrics import Metric

from lightning_ssl_geometry import diagnostics
from lightning_ssl_geometry.views.family import CropFamily

SIDE = 6
SPACES = ("h", "z", "h_image", "z_image")  # the keys that rotation, scale and translation change
SAMPLES = {"h": 1, "z": 1, "latent": 1}  # the axis of the samples, where it is not the first
DEAR = ("tsne", "umap")  # choices that take seconds; they have tests of their own
WITHOUT_SAMPLES = ("content", "temperature", "encoder", "projector", "feature_extractor", "family")
SMALL = {  # arguments for small clouds; for others a diagnostic keeps its defaults
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
    def __init__(self, d):
        super().__init__()
        self.add_module("flatten", nn.Flatten())
        self.add_module("linear", nn.Linear(SIDE**2, d))
        self.add_module("tanh", nn.Tanh())


class FeatureExtractor(nn.Module):
    """Maps images to D channels over four orientations; it is not equivariant."""

    group_shape, scales, stride = (1, 4), (1.0,), 1

    def __init__(self, d):
        super().__init__()
        self.conv = nn.Conv2d(1, 4 * d, 3, padding=1)

    def forward(self, x):
        return self.conv(x).unflatten(1, (-1, 4))


def observed(rows, p=4):
    """An observation with all keys of points (V, N, D): images are a linear map of them, networks are fixed."""
    _, n, d = rows.shape
    dtype = rows.dtype
    with torch.random.fork_rng([]):
        torch.manual_seed(3)
        images = rows @ torch.randn(d, SIDE**2).to(dtype) / d**0.5
        log_policy = nn.Linear(d, 9).to(dtype)(rows[0]).detach().log_softmax(1)
        networks = {"encoder": Encoder(d), "projector": nn.Linear(d, p, bias=False)}
        networks["feature_extractor"] = FeatureExtractor(d)
    image, *views = (each.unflatten(1, (1, SIDE, SIDE)) for each in (images[0], *images))
    networks = {key: network.to(dtype) for key, network in networks.items()}
    latent, z = rows[..., :4], networks["projector"](rows).detach()
    return networks | {
        **{"h": rows, "z": z, "z_image": z[0], "layers": [rows[0]], "latent": latent},
        **{"image": image, "views": tuple(views), "h_image": networks["encoder"](image).detach()},
        **{"index": torch.arange(n) * 7, "label": torch.arange(n) % 3, "coarse_label": torch.arange(n) % 2},
        **{"content": torch.arange(latent.shape[2]) < 2, "temperature": torch.linspace(0.5, 1, p, dtype=dtype)},
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


def concrete():
    """The Metrics among the diagnostics, by name."""
    found = {name: getattr(diagnostics, name) for name in diagnostics.__all__}
    kinds = {name: kind for name, kind in found.items() if inspect.isclass(kind) and issubclass(kind, Metric)}
    return {name: kind for name, kind in kinds.items() if not inspect.isabstract(kind)}


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
            found += [{name: choice} for choice in get_args(parameter.annotation) if choice not in DEAR]
    return found


def results(metric, observation):
    """What a Metric computes, by key, at its second readout: the first is of another cloud of that size."""
    views, n, d = observation["h"].shape
    before = Drawn("isotropic", views, n, d).points().to(observation["h"].dtype)
    first = observed(before, observation["z"].shape[2])
    first |= {name: value for name, value in observation.items() if isinstance(value, nn.Module)}
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


def at_once(n):
    return [torch.arange(n)]


def of_rank(rank, n, size):
    """The batches of one of two ranks: a third of n samples, or the others."""
    return torch.arange(n)[slice(0, n // 3) if rank == 0 else slice(n // 3, None)].split(size)
