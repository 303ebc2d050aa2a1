"""Clouds of points that are hard on a diagnostic, for every Metric."""

__all__ = ["CLOUDS", "ONE_POINT", "cloud"]

import torch

V, N, D = 2, 60, 6


def cloud(name, n=N, d=D):
    """Two views of a cloud, (V, n, d) float32, the same in every call."""
    generator = torch.Generator().manual_seed(7)
    return CLOUDS[name](generator, n, d)


def _isotropic(generator, n, d):
    center = torch.randn(n, d, generator=generator)
    return center + 0.3 * torch.randn(V, n, d, generator=generator)


def _far(generator, n, d):
    """A mean of 100 times the spread."""
    return _isotropic(generator, n, d) + 100


def _of_rank(rank):
    def make(generator, n, d):
        return _isotropic(generator, n, rank) @ torch.randn(rank, d, generator=generator)

    return make


def _zero(generator, n, d):
    return torch.zeros(V, n, d)


def _constant(generator, n, d):
    return torch.randn(d, generator=generator).expand(V, n, d).clone()


def _constant_far(generator, n, d):
    return 1e3 + _constant(generator, n, d)


def _rounded(generator, n, d):
    """One point but for the last bit of float32."""
    steps = torch.randint(-1, 2, (V, n, d), generator=generator)
    return 0.3 * (1 + steps * torch.finfo(torch.float32).eps)


def _duplicated(generator, n, d):
    """Every row twice."""
    half = _isotropic(generator, -(-n // 2), d)
    return half.repeat(1, 2, 1)[:, :n]


def _few_rows(generator, n, d):
    return _isotropic(generator, 4, d)


def _one_nan(generator, n, d):
    found = _isotropic(generator, n, d)
    found[0, n // 3, 0] = torch.nan
    return found


def _one_inf(generator, n, d):
    found = _isotropic(generator, n, d)
    found[0, n // 3, 0] = torch.inf
    return found


def _huge(generator, n, d):
    return 1e25 * _isotropic(generator, n, d)  # the squares overflow in float32


def _tiny(generator, n, d):
    return 1e-25 * _isotropic(generator, n, d)  # the squares are 0 in float32


CLOUDS = {
    "isotropic": _isotropic,
    "far": _far,
    "rank one": _of_rank(1),
    "rank three": _of_rank(3),
    "zero": _zero,
    "constant": _constant,
    "constant, far": _constant_far,
    "rounded": _rounded,
    "duplicated": _duplicated,
    "fewer rows than dimensions": _few_rows,
    "one nan": _one_nan,
    "one inf": _one_inf,
    "huge": _huge,
    "tiny": _tiny,
}
ONE_POINT = ("zero", "constant", "constant, far", "rounded")
