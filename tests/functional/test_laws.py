"""Laws that every function of `functional.__all__` keeps, over shapes, dtypes, and scales from 1e-30 to 1e30.

`EXCEPTIONS` has the laws that a function breaks, with the reason, and a line that is not needed fails.
"""

import copy
import inspect
import os
import re
import warnings

import pytest
import torch
from calls import FUNCTIONS, WHOLE, Cloud, arguments, converted, flat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

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
