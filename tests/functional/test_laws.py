"""Laws that every function of `functional.__all__` keeps, over shapes, dtypes, and scales from 1e-30 to 1e30.

A new function enters by itself: its arguments are made from the names in its signature. If a name is not in `MADE`, add
it there. `EXCEPTIONS` has the laws that a function breaks, with the reason, and a line that is not needed fails.
"""

import copy
import inspect
import os
import re
import warnings
from typing import NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from lightning_ssl_geometry import functional
from lightning_ssl_geometry.functional.groups.fibers import FiberGroup

FUNCTIONS = {name: getattr(functional, name) for name in functional.__all__ if name[0].islower()}
COUNT = int(os.environ.get("FUZZ_COUNT", 2))
SCALES = (1e-30, 1e-10, 1.0, 1e10, 1e30)
SHORT_ROWS = (
    "info_nce",
    "info_nce_entropy",
    "info_nce_upper_bound",
    "kmeans",
    "alignment",
    "alignment_uniformity_terms",
    "augmentation_channel_loss",
    "exact_channel_loss",
    "score_function_loss",
    "byol",
    "byol_prediction_error",
    "clusteredness",
    "silhouette",
    "gaussian_potential",
    "hardest_negative",
    "uniformity",
)
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
SHORT = "Rows shorter than an absolute bound (`eps`, or torch's 1e-12) count as 0."
SPHERE = "Distances enter an exponential, and float64 does not hold exp of 1e20."
EXCEPTIONS = {
    **{
        ("invariance_error", f"scale {scale:g}"): "Points that are all equal have no distance to compare with."
        for scale in SCALES
    },
    **{("log_singular_values", f"scale {scale:g}"): "The logarithm of 0, as its docstring says." for scale in SCALES},
    **{
        (name, f"scale {scale:g}"): SPHERE for name in ("first_variation", "second_variation") for scale in (1e10, 1e30)
    },
    ("numerical_rank", "large"): "`tau` is absolute by default.",
    ("numerical_rank", "small"): "`tau` is absolute by default.",
    **{(name, "small"): SHORT for name in SHORT_ROWS},
}


def arguments(name, cloud):
    """The arguments of a call by name, and the names of those that are scaled."""
    made, scaled = {}, set()
    for key, parameter in inspect.signature(FUNCTIONS[name]).parameters.items():
        own = f"{name}.{key}"
        if parameter.kind is parameter.VAR_KEYWORD or (parameter.default is not parameter.empty and own not in WHOLE):
            continue
        found = own if own in WHOLE else key
        assert found in WHOLE, f"Add the argument {own!r} (or {key!r}) to MADE."
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


def called(name, cloud, dtype=torch.float64, factor=1.0, **settings):
    """The numbers of a result, or a ValueError."""
    made, scaled = arguments(name, cloud)
    made |= settings
    given = {key: converted(value, dtype, factor if key in scaled else 1.0) for key, value in made.items()}
    positional = [given.pop("counters")] if "counters" in given else []
    torch.default_generator.manual_seed(0)  # as in conftest.py
    before = copy.deepcopy((positional, given))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = flat(FUNCTIONS[name](*positional, **given))
        except ValueError as error:
            found = error
    torch.testing.assert_close(
        (positional, list(map(state, given.values()))),
        (before[0], list(map(state, before[1].values()))),
        rtol=0,
        atol=0,
        equal_nan=True,
    )
    return found


def state(value):
    """What a change would show in."""
    if isinstance(value, nn.Module):
        return list(value.parameters())
    return value if isinstance(value, torch.Tensor | list) else 0


KINDS = ("plain", "doubled", "zero row", "constant")
CLOUDS = st.tuples(st.integers(14, 20), st.integers(3, 5), st.integers(0, 99)).map(
    lambda drawn: [Cloud(*drawn[:2], kind, drawn[2]) for kind in KINDS]
)


def require(name, law, broken_by):
    """Fail if `broken_by(cloud)` yields a sentence for a cloud, or if it yields none and there is an exception."""
    reason, broken = EXCEPTIONS.get((name, law)), []

    def each_kind(clouds):
        broken.extend(f"{cloud}: {said}" for cloud in clouds for said in broken_by(cloud))

    count = max(COUNT, 8) if reason else COUNT  # not every cloud shows that an exception is needed
    few = settings(max_examples=count, deadline=None, derandomize=True, database=None)
    settings(few, suppress_health_check=list(HealthCheck))(given(CLOUDS)(each_kind))()
    if reason:
        assert broken, f"{name} keeps the law {law!r}: delete its exception ({reason})."
    else:
        assert not broken, "\n".join(broken)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ordinary_values_are_taken(name):
    found = called(name, Cloud(14, 3, "plain", 0))
    assert isinstance(found, torch.Tensor), found
    assert found.isfinite().all()
    assert torch.equal(found, called(name, Cloud(14, 3, "plain", 0)))


def defaults(function):
    """The numbers among the defaults of a function's arguments."""
    found = {key: each.default for key, each in inspect.signature(function).parameters.items()}
    return {key: value for key, value in found.items() if type(value) in (int, float)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_a_file_share_their_defaults(name):
    file, own = inspect.getmodule(FUNCTIONS[name]), defaults(FUNCTIONS[name])
    for other in map(defaults, filter(inspect.isfunction, (getattr(file, each) for each in file.__all__))):
        assert {key: other[key] for key in own.keys() & other} == {key: own[key] for key in own.keys() & other}
    said = {key: value for key, value in own.items() if f"{name}.{key}" not in WHOLE}
    assert torch.equal(called(name, Cloud(14, 3, "plain", 0)), called(name, Cloud(14, 3, "plain", 0), **said))


def first(found):
    """The beginning of a result for a sentence."""
    return found if isinstance(found, ValueError) else found[:4].tolist()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_gives_numbers(name, scale):
    def broken_by(cloud):
        plain = cloud.kind == "plain"
        wide, narrow = (called(name, cloud, dtype, scale) for dtype in (torch.float64, torch.float32))
        if isinstance(wide, ValueError) or wide.isinf().any() or (plain and wide.isnan().any()):
            if plain or not isinstance(wide, ValueError):
                yield f"{first(wide)} in float64"
            return
        held = wide.isfinite()
        if wide[held].abs().gt(1e37).any():  # float32 does not hold it
            return
        if isinstance(narrow, ValueError):
            wrong = plain
        else:
            near = scale != 1 or not plain or torch.allclose(narrow[held], wide[held], 2e-2, 2e-3)
            wrong = not narrow[held].isfinite().all() or not near
        if wrong:
            yield f"{first(narrow)} in float32, {first(wide)} in float64"

    require(name, f"scale {scale:g}", broken_by)


def is_scale_invariant(name):
    """Whether a function takes the same values when all points are 1/2, 2 or 1,024 times as long."""
    clouds = [Cloud(16, 3, "plain", seed) for seed in range(3)]
    at_one = [called(name, cloud) for cloud in clouds]
    return bool(arguments(name, clouds[0])[1]) and all(
        torch.allclose(called(name, cloud, factor=factor), base, 1e-9, 1e-9, equal_nan=True)
        for cloud, base in zip(clouds, at_one, strict=True)
        for factor in (0.5, 2.0, 1024.0)
    )


POWERS = {  # of 2
    "small": {torch.float64: (-90, -40), torch.float32: (-60, -30)},
    "large": {torch.float64: (-10, 40, 90), torch.float32: (-10, 30)},
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("side", POWERS)
def test_the_unit_of_length_does_not_matter_where_2_does_not(name, side):
    if not is_scale_invariant(name):
        assert (name, side) not in EXCEPTIONS
        return

    def broken_by(cloud):
        if cloud.kind == "constant":  # its value may be rounding
            return
        for dtype, near in ((torch.float64, 1e-6), (torch.float32, 1e-2)):
            base = called(name, cloud, dtype)
            if isinstance(base, ValueError):  # as test_every_scale_gives_numbers asks
                continue
            for power in POWERS[side][dtype]:
                found = called(name, cloud, dtype, 2.0**power)
                if isinstance(found, ValueError) or not torch.allclose(found, base, near, near, equal_nan=True):
                    yield f"{first(found)} at 2^{power} in {dtype}, {first(base)} at 1"

    require(name, side, broken_by)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_half_precision_is_finite_or_refused(name, dtype):
    try:
        found = called(name, Cloud(14, 3, "plain", 0), dtype)
    except RuntimeError as error:
        found = error if re.search("Half|BFloat16", str(error)) else None  # torch has no such operation
    assert isinstance(found, Exception) or found.isfinite().all(), found
