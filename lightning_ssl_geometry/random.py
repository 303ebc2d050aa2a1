"""Random numbers that do not depend on the order of calls, batches or ranks.

A random number is a hash of integers that name it, such as (seed, epoch, sample index, view). The hash is the finaliser
of SplitMix64 (Steele, Lea & Flood, Fast splittable pseudorandom number generators, 2014) in int64. Functions that draw
from distributions take hashes as `key`. A sample with the same hash gets the same draw in every batch.
"""

__all__ = ["counter_hash", "counter_uniform", "generalized_normal", "reject", "uniform_sphere", "von_mises_fisher"]

import math
from collections.abc import Callable
from numbers import Integral

import torch
from torch import Tensor
from torch.nn.functional import normalize

from lightning_ssl_geometry.checks import at_least, inside, shaped
from lightning_ssl_geometry.precision import in_float64

_GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)  # 2^64 / golden ratio, as a signed integer
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


def counter_hash(*counters: Tensor | int) -> Tensor:
    """Return pseudo-random 64-bit integers that are a function of the given integers.

    Args:
        counters: One or more integers or int64 tensors. The tensors are broadcast. The order of the counters matters.

    Returns:
        An int64 tensor of the broadcast shape, uniform over all of int64, on the tensors' device.

    Raises:
        ValueError: If there is no counter, or a counter is not an integer.
    """
    if not counters:
        raise ValueError("Expected at least one counter, but got none.")
    state: Tensor = torch.zeros((), dtype=torch.int64)
    for counter in counters:
        if isinstance(counter, Tensor):
            if counter.dtype != torch.int64:
                raise ValueError(f"Expected counters of dtype torch.int64, but got {counter.dtype}.")
            # a state of one number is added to a GPU's counters from the CPU: to copy it there would wait
            state = _mix((state.to(counter.device) if state.ndim else state) + _GAMMA + counter)
        elif isinstance(counter, Integral):
            state = _mix(state + _GAMMA + _signed(int(counter)))
        else:
            raise ValueError(f"Expected counters that are integers, but got {counter!r}.")
    return state


def counter_uniform(*counters: Tensor | int, size: int) -> Tensor:
    """Return pseudo-random numbers, uniform on [0, 1), that are a function of the given integers.

    Args:
        counters: One or more integers or int64 tensors. The tensors are broadcast. The order of the counters matters.
        size: Number of draws for each element of the broadcast tensors.

    Returns:
        float32 (*broadcast shape, size), multiples of 2^-24.

    >>> u = counter_uniform(0, torch.tensor([5, 6, 7]), size=2)
    >>> torch.equal(u[2], counter_uniform(0, torch.tensor([7]), size=2)[0])
    True
    """
    key = counter_hash(*counters).unsqueeze(-1)
    bits = _mix(key + _GAMMA * torch.arange(1, size + 1, device=key.device))
    return _shift(bits, 40).to(torch.float32) * 2.0**-24


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:  # torch's own shift keeps the sign
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


_POINT, _DIRECTION = -1, -2  # counters of a key for draws that are not attempts (0, 1, ...)


def uniform_sphere(key: Tensor, dim: int) -> Tensor:
    """Draw points uniformly from the unit sphere, float32 (N, d).

    Args:
        key: (N,) int64, one integer for each point, such as hashes by :func:`counter_hash`.
        dim: d >= 1, the dimension of the surrounding space.

    Raises:
        ValueError: If `dim` < 1, or `key` is not (N,).
    """
    at_least(1, dim=dim)
    shaped("N,", key=key)
    return normalize(_normal(dim, key, _POINT), dim=1).float().to(key.device)


def generalized_normal(
    mean: Tensor,
    scale: float | Tensor,
    p: float,
    key: Tensor,
    low: float = -math.inf,
    high: float = math.inf,
) -> Tensor:
    r"""Draw each element from a generalised normal distribution truncated to an interval, by rejection sampling.

    .. math:: p(x) \propto \exp(-|(x - m) / s|^p), \quad \mathrm{low} \le x \le \mathrm{high}

    p = 2 is the normal distribution with standard deviation :math:`s / \sqrt 2`, p = 1 the Laplace distribution with
    scale s.

    Args:
        mean: m (N, d), finite, in [low, high].
        scale: s >= 0, finite: a number, (d,) or (N, d). With 0, the draw is the mean.
        p: The shape p >= 1.
        key: (N, d) int64, one integer for each element, such as hashes by :func:`counter_hash`.
        low: Lower end of the interval.
        high: Upper end of the interval.

    Returns:
        (N, d) in [low, high], with the dtype of the mean. The computation is in float64.

    Raises:
        ValueError: If an argument is out of range or a shape is wrong.
    """
    inside("[1, inf)", p=p)
    if key.shape != mean.shape:
        raise ValueError(f"Expected `key` of the shape of `mean`, {tuple(mean.shape)}, but got {tuple(key.shape)}.")
    m = in_float64(mean)
    s = _column(scale, "scale", m).flatten()
    m = m.flatten()
    if not ((m >= low) & (m <= high) & m.isfinite()).all():
        raise ValueError(
            f"Expected `mean` in [{low}, {high}] and finite, but got values in [{m.min():g}, {m.max():g}]."
        )
    kept, keys = m.clone(), key.flatten().to(m.device)

    def attempt(rows: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        return _propose(m[rows], s[rows], p, u=_uniform(2, keys[rows], numbers), low=low, high=high)

    reject(kept, s.nonzero().squeeze(1), attempt)
    return kept.view(mean.shape).to(mean).clamp(low, high)  # corrects rounding only


def von_mises_fisher(mean: Tensor, concentration: float | Tensor, key: Tensor) -> Tensor:
    r"""Draw from the von Mises-Fisher distribution on the unit sphere.

    .. math:: p(x) \propto \exp(\kappa \langle m, x \rangle)

    The cosine <m, x> is drawn by the rejection sampling of Wood, Simulation of the von Mises Fisher distribution
    (1994). The direction orthogonal to m is uniform.

    Args:
        mean: m (N, d), vectors of length 1, d >= 2.
        concentration: kappa >= 0, finite: a number or (N,). 0 gives the uniform distribution.
        key: (N,) int64, one integer for each vector, such as hashes by :func:`counter_hash`.

    Returns:
        (N, d), vectors of length 1, with the dtype of the mean. The computation is in float64.

    Raises:
        ValueError: If an argument is out of range or a shape is wrong.

    >>> x = von_mises_fisher(torch.tensor([[1.0, 0.0, 0.0]]).expand(1000, 3), 50.0, torch.arange(1000))
    >>> f"{x[:, 0].mean():.2f}"  # coth(50) - 1 / 50
    '0.98'
    """
    shaped("N, d", mean=mean)
    at_least(2, **{"mean.shape[1]": mean.shape[1]})
    shaped("N,", {"N": len(mean)}, key=key)
    m = in_float64(mean)
    key = key.to(m.device)
    if not ((length := torch.linalg.vector_norm(m, dim=1)) - 1).abs().lt(1e-3).all():
        raise ValueError(f"Expected `mean` of length 1, but got lengths in [{length.min():g}, {length.max():g}].")
    m = m / length[:, None]
    versine = _versine(_column(concentration, "concentration", m[:, 0]), m.shape[1], key)[:, None]  # 1 - w
    direction = _normal(m.shape[1], key, _DIRECTION)
    direction = normalize(direction - (direction * m).sum(1, keepdim=True) * m, dim=1)
    return (m - versine * m + (versine * (2 - versine)).sqrt() * direction).to(mean)


def _propose(m: Tensor, s: Tensor, p: float, u: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    # The envelope of y = |x - m| / s is 1 for y <= 1, and exp(-1 - p (y - 1)) beyond: the tangent of -y^p at 1.
    below, above = (_envelope_mass(side / s, p) for side in (m - low, high - m))
    t = u[:, 0] * (below + above) - below
    sign, t = t.sign(), t.abs()
    y = torch.where(t <= 1, t, 1 - torch.log1p(-p * math.e * (t - 1)) / p)
    excess = torch.where(t <= 1, 0.0, 1 + p * (y - 1))  # minus the envelope's logarithm
    return m + sign * s * y, u[:, 1].log() <= excess - y**p


def _envelope_mass(y: Tensor, p: float) -> Tensor:
    return y.clamp(max=1) - torch.expm1(-p * (y - 1).clamp(min=0)) / (p * math.e)


def _versine(kappa: Tensor, dim: int, key: Tensor) -> Tensor:
    b = (dim - 1) / (2 * kappa + (4 * kappa.square() + (dim - 1) ** 2).sqrt())
    q = 2 * b / (1 + b)  # 1 - x_0 of Wood; b is Wood's b

    def attempt(rows: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        u = _uniform(3, key[rows], numbers)
        # two coordinates of a uniform point have an angle of uniform law and 1 - radius^2 ~ u^(2 / (d - 2))
        radius = (1 - u[:, 0] ** (2 / (dim - 2))).sqrt() if dim > 2 else 1.0
        beta = (1 + radius * torch.cos(2 * math.pi * u[:, 1])) / 2
        v = 2 * b[rows] * beta / (1 - (1 - b[rows]) * beta)
        at, peak = q[rows] + v - q[rows] * v, q[rows] * (2 - q[rows])  # 1 - x_0 w, 1 - x_0^2
        return v, u[:, 2].log() <= kappa[rows] * (q[rows] - v) + (dim - 1) * (at / peak).log()

    versine = torch.empty_like(kappa)
    reject(versine, torch.arange(len(kappa), device=kappa.device), attempt)
    return versine


def reject(kept: Tensor, pending: Tensor, attempt: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
    """Write the first accepted draw of each row in `pending` (M,), int64, to `kept` (N,).

    `attempt(rows, numbers)` makes one draw per row and number of the attempt, and says whether it is accepted. Every
    pass doubles the attempts per row that is left: few passes, since each waits for the GPU.
    """
    start, width = 0, 1
    while len(pending):
        rows = pending.repeat_interleave(width)
        numbers = torch.arange(start, start + width, device=pending.device).repeat(len(pending))
        drawn, accepted = (answer.view(-1, width) for answer in attempt(rows, numbers))
        done, first = accepted.max(1)
        kept[pending[done]] = drawn.gather(1, first[:, None]).squeeze(1)[done]
        pending, start, width = pending[~done], start + width, 2 * width


def _normal(size: int, *counters: Tensor | int) -> Tensor:
    return torch.special.ndtri(_uniform(size, *counters))


def _uniform(size: int, *counters: Tensor | int) -> Tensor:
    return in_float64(counter_uniform(*counters, size=size)) + 2.0**-25  # never 0


def _column(value: float | Tensor, name: str, like: Tensor) -> Tensor:
    column = in_float64(value) if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
    column = column.to(like.device)
    if column.shape not in {like.shape[axis:] for axis in range(like.ndim + 1)}:
        raise ValueError(
            f"Expected `{name}` to be a number or to fit shape {tuple(like.shape)}, but got {tuple(column.shape)}."
        )
    if not ((column >= 0) & column.isfinite()).all():
        raise ValueError(f"Expected `{name}` >= 0 and finite, but got {value}.")
    return column.expand(like.shape)
