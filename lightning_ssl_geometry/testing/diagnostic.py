"""The contracts of a diagnostic: what its value may depend on, and what it may leave behind."""

__all__ = ["DIAGNOSTIC_CONTRACTS", "check_diagnostic"]

from collections.abc import Callable, Iterable, Mapping

from torchmetrics import Metric

from lightning_ssl_geometry.testing.case import Case
from lightning_ssl_geometry.testing.contract import kept, of_all
from lightning_ssl_geometry.testing.cost import cost, memory
from lightning_ssl_geometry.testing.declarations import bounds, described, invariances
from lightning_ssl_geometry.testing.observation import Observation
from lightning_ssl_geometry.testing.updates import (
    batches,
    copies,
    forward,
    merged,
    order,
    registered,
    repeated,
    reset,
    untouched,
)
from lightning_ssl_geometry.testing.values import degenerate, half_precision, single_precision


def check_diagnostic(
    metric: Metric,
    observation: Observation,
    expected_failures: Mapping[str, str] | None = None,
    *,
    axes: Mapping[str, int | None] | None = None,
    only: Iterable[str] | None = None,
    sized: Callable[[int, int], Observation] | None = None,
) -> dict[str, str]:
    """Check that a diagnostic keeps the contracts of this package.

    The diagnostic is copied for each contract, and the tensors and modules of the observation become float64. Any
    Metric can be checked. Contracts on what a :class:`Diagnostic` declares are left out for others.

    ========================  ==========================================================================================
    name                      contract
    ========================  ==========================================================================================
    batches                   the value does not depend on how the samples are divided into batches
    order                     it does not depend on the order of the samples
    merged                    it is the same if 2 or 4 copies observe parts of the samples and are merged
    forward                   a call with a batch returns the batch's value, and adds the batch
    repeated                  a second `compute` returns the same
    reset                     after `reset`, it does not depend on what was observed before
    registered                tensors are states or buffers, if the constructor makes them or batches accumulate in them
    copies                    a copy by pickle or deepcopy, made between two batches, goes on as the original
    untouched                 tensors, weights, modes, gradients, random numbers, settings of torch are left alone
    half_precision            it is finite in bfloat16 and float16 where it is in float64
    single_precision          it is that of float64 to 1% in float32, for points whose mean is 3000 times their spread
    degenerate                samples that are few, equal, 0 or not finite give a value, NaN, or a ValueError, and so
                              does one sample of zeros or of ones among others
    described                 each result has a declaration with sentences that stand alone, and the other way round
    bounds                    results lie within the declared bounds and cap
    invariances               results do not change under the declared invariances
    memory                    the memory of the state grows as `cost` declares, with the samples and the width
    cost                      the work of `update` and `compute` grows as `cost` declares
    ========================  ==========================================================================================

    Args:
        metric: A Metric that has observed nothing yet.
        observation: Maps the arguments of `metric.update` to values for N samples, such as `h` (V, N, D) and `label`
            (N,). Without "index", an `update` with `index` gets 0 to N - 1. N >= 8.
        expected_failures: Maps names of contracts that the diagnostic breaks to the reason. Such a contract must be
            broken: if it is kept, this is an error.
        axes: Maps arguments to the axis of the samples, or to None for values without samples. By default, the axis is
            1 for `h`, `z` and `latent` with views, and 0 for others.
        only: Names of the contracts to check. None: all.
        sized: Makes the observation of N samples with D dimensions from (N, D), with 480 samples and 32 dimensions at
            most, for the contracts `memory` and `cost`. None: the samples of `observation` are drawn again with noise.
            The width is then changed only if `observation` has no other numbers than h, z, h_image, z_image and
            integers.

    Returns:
        Maps each contract to "kept", or to "left out" or "fails as expected" with the reason.

    Raises:
        AssertionError: If a contract is broken. The message names every broken contract, and what was found.
        ValueError: If an argument is wrong: the Metric has observed something, a name is unknown, a reason is missing,
            or the observation lacks an argument of `update`.
    """
    case = Case(metric, observation, axes=axes, sized=sized)
    return kept(DIAGNOSTIC_CONTRACTS, case, expected_failures, only=only)


DIAGNOSTIC_CONTRACTS = of_all(
    batches,
    order,
    merged,
    forward,
    repeated,
    reset,
    registered,
    copies,
    untouched,
    half_precision,
    single_precision,
    degenerate,
    described,
    bounds,
    invariances,
    memory,
    cost,
)
"""The contracts of :func:`check_diagnostic` by name."""
