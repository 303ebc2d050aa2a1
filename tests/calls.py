"""Make the arguments of every function of `functional.__all__`, for the laws that all of them keep.

A new function enters by itself: its arguments are made from the names in its signature. If a name is not in `MADE`, add
it there.
"""

__all__ = ["FUNCTIONS", "WHOLE", "Cloud", "arguments", "converted", "flat"]

import inspect
from typing import NamedTuple

import torch
from torch import nn

from lightning_ssl_geometry import functional
from lightning_ssl_geometry.functional.groups.fibers import FiberGroup

FUNCTIONS = {name: getattr(functional, name) for name in functional.__all__ if name[0].islower()}
GROUP = FiberGroup((4,), (True,))


class Cloud(NamedTuple):
    """What the arguments of a call are made from."""

    n: int
    d: int
    kind: str
    seed: int

    def draw(self, name, *shape):
        generator = torch.Generator().manual_seed(self.seed + 1000 * sum(map(ord, name)))
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def points(self, name):
        x = self.draw(name, self.n, self.d)
        if self.kind == "doubled":
            x[1] = x[0]
        if self.kind == "constant":
            x[:] = x[0]
        if self.kind == "zero row":
            x[-1] = 0
        return x

    def network(self):
        network = nn.Sequential(nn.Linear(self.d, 5), nn.ReLU(), nn.Linear(5, 3)).double()
        for k, weight in enumerate(network.parameters()):
            weight.data = self.draw(f"weight {k}", *weight.shape)
        return network

    def kernel(self):
        root = self.draw("kernel", self.n, self.n)
        return root @ root.mT

    def label(self):
        return torch.arange(self.n) % 3

    def images(self, name):
        return self.draw(name, self.n, 2, 8, 8)

    def policy(self, name):
        return self.draw(name, self.n, 5).softmax(-1)


def pairs(cloud, name):
    """Points near the first ones."""
    return cloud.points("1") + 0.1 * cloud.draw(name, cloud.n, cloud.d)


MADE = {  # an argument's name, or "function.argument" where the name alone is not enough; the first group is scaled
    "scaled": {
        "h": lambda c: c.points("1"),
        "h1": lambda c: c.points("1"),
        "h2": lambda c: pairs(c, "2"),
        "h_moved": lambda c: pairs(c, "2"),
        "z": lambda c: c.points("1"),
        "z1": lambda c: c.points("1"),
        "z2": lambda c: pairs(c, "2"),
        "q": lambda c: c.points("3"),
        "q1": lambda c: c.points("3"),
        "q2": lambda c: c.points("4"),
        "x": lambda c: c.points("1"),
        "x1": lambda c: c.points("1"),
        "x2": lambda c: pairs(c, "2"),
        "a": lambda c: c.points("1"),
        "b": lambda c: c.points("3"),
        "at": lambda c: c.points("1"),
        "moved": lambda c: pairs(c, "2"),
        "delta": lambda c: c.points("1"),
        "direction": lambda c: c.points("3"),
        "vector": lambda c: c.points("3"),
        "latent": lambda c: c.points("3"),
        "matrix": lambda c: c.points("1"),
        "image": lambda c: c.images("1"),
        "kernel": Cloud.kernel,
        "other": lambda c: c.draw("other", c.n, c.n),
        "gradient": lambda c: c.points("3"),
        "cka_matrix.h": lambda c: [c.points("1"), c.points("3")],
        "cka_or_nan.h": lambda c: [c.points("1"), c.points("3")],
        "cka_between.a": lambda c: [c.points("1")],
        "cka_between.b": lambda c: [c.points("3")],
        "kernel_flow.kernel": lambda c: c.draw("kernel", c.n, c.n, c.d, c.d),
        "step_invariance_error.moved": lambda c: torch.stack([pairs(c, "2"), pairs(c, "3")]),
        "lidar.h": lambda c: torch.stack([c.points("1"), pairs(c, "2")]),
        "equivariance_error.x": lambda c: c.images("1"),
        "feature_map.z": lambda c: c.draw("1", c.n, 3, 4, 6, 6),
        "fiber_bundle.z": lambda c: c.draw("1", c.n, 3, 4),
        "quarter_turn.x": lambda c: c.images("1"),
        "rescale.x": lambda c: c.images("1"),
        "translate.x": lambda c: c.images("1"),
        "rotation_rank.image": lambda c: c.draw("1", 1, 8, 8),
        "one_parameter_action.image": lambda c: c.draw("1", c.n, 3, 8, 8),
        "augmentation_channel_loss.z": lambda c: c.draw("1", 3, c.n, c.d),
        "exact_channel_loss.z": lambda c: c.draw("1", c.n, 5, c.d),
        "score_function_loss.z": lambda c: c.draw("1", 3, c.n, c.d),
    },
    "kept": {
        "projector": Cloud.network,
        "network": Cloud.network,
        "equivariance_error.network": lambda c: nn.Conv2d(2, 3, 3, padding=1).double(),
        "label": Cloud.label,
        "clustered_flow.label": lambda c: torch.arange(c.n) % min(3, c.d),
        "weight": lambda c: c.draw("weight", c.d, 3),
        "gradient_spectrum.weight": lambda c: c.draw("weight", 3, c.d),
        "log_bilinear_info_nce.weight": lambda c: c.draw("weight", c.d, c.d),
        "local_unexplained_variance.weight": lambda c: c.draw("weight", c.n, c.d, 3),
        "cluster_rates.weight": lambda c: c.draw("weight", 6, c.d),
        "one_hidden_layer_kernel.weight": lambda c: c.draw("weight", 6, c.d),
        "center": lambda c: torch.eye(c.d, dtype=torch.float64)[: min(3, c.d)],
        "out_dim": lambda c: 2,
        "dim": lambda c: c.d + 1,
        "content_dim": lambda c: 1,
        "tau_c": lambda c: 0.3,
        "sigma_c": lambda c: 0.3,
        "sigma_s": lambda c: 0.5,
        "step": lambda c: 3,
        "steps": lambda c: 10,
        "n": lambda c: c.n + 3,
        "tau": lambda c: 0.1,
        "max_angle": lambda c: 30.0,
        "rotation_rank.count": lambda c: 8,
        "clusters": lambda c: 2,
        "group": lambda c: GROUP,
        "equivariance_error.group": lambda c: "rotation",
        "feature_map.group": lambda c: "rotation",
        "one_parameter_action.group": lambda c: "saturation",
        "elements": lambda c: torch.arange(c.n)[:, None] % 4,
        "bases": lambda c: torch.tensor([[0, 1], [1, 2]]),
        "g1": lambda c: torch.tensor([[0], [1]]),
        "g2": lambda c: torch.tensor([[1], [3]]),
        "angle": lambda c: c.draw("angle", c.n),
        "turns": lambda c: 1,
        "factor": lambda c: 1.2,
        "shift": lambda c: torch.tensor([1, -2]),
        "counters": lambda c: torch.arange(c.n),
        "size": lambda c: 4,
        "base_spaces.size": lambda c: 1,
        "key": lambda c: torch.arange(c.n),
        "mean": lambda c: nn.functional.normalize(c.points("mean") + 1e-3, dim=-1),
        "scale": lambda c: 0.5,
        "normalized_distance.scale": lambda c: "unit",
        "generalized_normal.key": lambda c: torch.arange(c.n * c.d).view(c.n, c.d),
        "p": lambda c: 1.5,
        "concentration": lambda c: 3.0,
        "probability": lambda c: c.policy("policy"),
        "draw_members.uniform": lambda c: c.draw("uniform", c.n, 2).sigmoid(),
        "log_policy": lambda c: c.policy("policy").log(),
        "log_probability": lambda c: c.draw("probability", 3, c.n),
        "neighbor": lambda c: (torch.arange(c.n) + 1) % c.n,
        "strength": lambda c: c.draw("strength", c.n),
        "generator": lambda c: c.draw("generator", c.d, c.d),
        "rotation_rank.generator": lambda c: None,
        "sigreg.generator": lambda c: torch.Generator().manual_seed(0),
        "cotangent": lambda c: c.draw("cotangent", c.n, 3),
        "discard": lambda c: 0.1,
        "mle_dimension.neighbors": lambda c: 2,
    },
}
WHOLE = {key: make for group in MADE.values() for key, make in group.items()}


def arguments(name, cloud):
    """The arguments of a call by name, and the names of those that are scaled."""
    made, scaled = {}, set()
    for key, parameter in inspect.signature(FUNCTIONS[name]).parameters.items():
        own = f"{name}.{key}"
        if parameter.kind is parameter.VAR_KEYWORD or (parameter.default is not parameter.empty and own not in WHOLE):
            continue
        found = own if own in WHOLE else key
        assert found in WHOLE, f"Add the argument {own!r} (or {key!r}) to MADE of tests/calls.py."
        made[key] = WHOLE[found](cloud)
        scaled |= {key} if found in MADE["scaled"] else set()
    return made, scaled


def converted(value, dtype, factor=1.0):
    if isinstance(value, nn.Module):
        return value.to(dtype)
    if isinstance(value, list):
        return [converted(each, dtype, factor) for each in value]
    return (value * factor).to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def flat(result):
    """The numbers of a result as one vector."""
    if isinstance(result, torch.Tensor):
        return result.detach().to(torch.float64 if not result.is_complex() else torch.complex128).reshape(-1)
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, tuple | list):
        return torch.cat([flat(each) for each in result]) if result else torch.zeros(0)
    if isinstance(result, int | float | bool):
        return torch.tensor([float(result)], dtype=torch.float64)
    return torch.zeros(0, dtype=torch.float64)
