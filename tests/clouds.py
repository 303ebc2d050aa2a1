"""Difficult clouds of points for the tests of all Metrics: some with names, and others that hypothesis draws."""

__all__ = ["CLOUDS", "ONE_POINT", "Drawn", "cloud", "drawn"]

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

V, N, D = 2, 60, 6


def cloud(name, n=N, d=D):
    """Two views of a cloud, (V, n, d) float32, the same in every call."""
    generator = torch.Generator().manual_seed(7)
    return CLOUDS[name](generator, n, d)


def _isotropic(generator, n, d):
    center = torch.randn(n, d, generator=generator)
    return center + 0.3 * torch.randn(V, n, d, generator=generator)


def _far(generator, n, d):
    """A cloud whose mean is 100 times its spread."""
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
    """Points that differ only in the last bit of float32."""
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


def _clusters(generator, views, n, d):
    centers = 5 * torch.randn(3, d, generator=generator)
    return centers[torch.arange(n) % 3] + torch.randn(views, n, d, generator=generator)


def _heavy_tailed(generator, views, n, d):
    """Student's t with two degrees of freedom: no finite variance."""
    normal = torch.randn(views, n, d, generator=generator)
    return normal / torch.rand(views, n, 1, generator=generator).clamp_min(1e-6).log().neg().sqrt()


def _around(rows, generator, views):
    """Views that lie around rows (n, d)."""
    return rows + 0.3 * rows.std() * torch.randn(views, *rows.shape, generator=generator)


def _low_rank(generator, views, n, d):
    rank = min(d, 2 + d // 4)
    rows = _around(torch.randn(n, rank, generator=generator), generator, views)
    return rows.double() @ torch.randn(rank, d, generator=generator).double()


SHAPES = {
    "structureless": lambda g, v, n, d: torch.randn(v, n, d, generator=g),
    "isotropic": lambda g, v, n, d: _around(torch.randn(n, d, generator=g), g, v),
    "low rank": _low_rank,
    "clusters": _clusters,
    "heavy-tailed": _heavy_tailed,
    "duplicated": lambda g, v, n, d: torch.randn(v, -(-n // 2), d, generator=g).repeat(1, 2, 1)[:, :n],
    "constant": lambda g, v, n, d: torch.randn(d, generator=g).expand(v, n, d).clone(),
}

TIES = ("duplicated", "constant")


@dataclass(frozen=True)
class Drawn:
    """A cloud made from a few words and numbers, which hypothesis can shrink and a person can repeat."""

    shape: str = "structureless"
    views: int = 2
    rows: int = 60
    width: int = 6
    outputs: int = 4
    exponent: int = 0
    shift: int = 0
    seed: int = 0

    def points(self):
        """The cloud, (V, N, D) float64."""
        generator = torch.Generator().manual_seed(self.seed)
        found = SHAPES[self.shape](generator, self.views, self.rows, self.width).double()
        return 10.0**self.exponent * (found + self.shift)


def drawn(well_conditioned=False):
    """Strategy for clouds. Well-conditioned ones have no ties, at least two dimensions, unit size and a mean near 0."""
    least, size, shift = (2, 1, 3) if well_conditioned else (1, 6, 100)
    return st.builds(
        Drawn,
        shape=st.sampled_from([name for name in SHAPES if not (well_conditioned and name in TIES)]),
        views=st.integers(2, 3),
        rows=st.integers(2, 60),
        width=st.integers(least, 16),
        outputs=st.integers(least, 16),
        exponent=st.integers(-size, size),
        shift=st.integers(-shift, shift),
        seed=st.integers(0, 2**16),
    )
