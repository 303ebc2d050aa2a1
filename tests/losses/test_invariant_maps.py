"""Prop. 2.1 and Appendix A.1 of Calder & Lee: at an invariant map, a loss knows the latent distribution and no more.

Two data sets that share nothing: on an interval, either four tight clusters or evenly spaced points, in spaces of
different dimension whose other coordinates are noise, and augmented differently. A network of each one flattens its
distribution to the same points on a curve and ignores the noise, so the map is invariant, and the latent distributions
are equal.
"""

import math

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.functional import byol, info_nce, vicreg, vicreg_terms
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods import BYOLModule, SimCLRModule, VICRegModule

N, P = 24, 4
# A point u of `Flattened` is a sum of N products whose sizes add up to 251 (the clusters' steep slopes cancel), each
# rounded to eps; `Curve` stretches an error in u by at most 2 pi |(1, 1, 2, 3)| |mixing| = 78.
ROUNDING = N * torch.finfo(torch.float64).eps * 251 * 78  # 1e-10, of an embedding
LOSS_ROUNDING = 100 * ROUNDING  # no loss here changes by 100 times as much as its embeddings do


class Flattened(nn.Module):
    """A one-hidden-layer ReLU network of the first coordinate: points t_1 < ... < t_N go to 0, 1/N, ..., (N-1)/N.

    `leak` adds that much of the second coordinate, which is noise.
    """

    def __init__(self, t, leak=0.0):
        super().__init__()
        slope = torch.diff(t).reciprocal() / len(t)
        self.register_buffer("knots", t[:-1].clone())
        self.register_buffer("weight", torch.diff(slope, prepend=slope.new_zeros(1)))
        self.leak = leak

    def forward(self, x):
        u = torch.relu(x[:, :1] - self.knots) @ self.weight  # (N,)
        return (u + self.leak * x[:, 1])[:, None]


class Curve(nn.Module):
    """From [0, 1) to a closed curve in P dimensions, on no axis."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.register_buffer("mixing", torch.randn(4, P, generator=generator, dtype=torch.float64))

    def forward(self, u):
        angle = 2 * math.pi * u
        return torch.cat([angle.cos(), angle.sin(), (2 * angle).cos(), (3 * angle).sin()], dim=1) @ self.mixing


def clustered():
    """Four clusters of width 0.02, in 3 dimensions; an augmentation draws the other coordinates anew."""
    t = (torch.tensor([-3.0, -1.0, 1.0, 3.0])[:, None] + torch.linspace(-0.01, 0.01, N // 4)).flatten().double()

    def views():
        return tuple(torch.cat([t[:, None], torch.randn(N, 2, dtype=torch.float64)], dim=1) for _ in range(2))

    return t, views


def even():
    """Points at equal distances, in another order and in 6 dimensions; an augmentation turns and scales the rest."""
    t, order = torch.linspace(0, 1, N, dtype=torch.float64), torch.randperm(N)
    noise = torch.rand(N, 5, dtype=torch.float64)

    def views():
        turns = [torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64)).Q * scale for scale in (0.5, 7.0)]
        return tuple(torch.cat([t[order, None], noise @ turn], dim=1) for turn in turns)

    return t, views


def latent():
    """The points that both networks have in the latent space."""
    return Curve()(torch.arange(N, dtype=torch.float64)[:, None] / N)


def predictor():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(P, 7), nn.Tanh(), nn.Linear(7, P)).double()


INFO_NCE = {
    "nt-xent": {"temperature": 0.5},
    "eq. 4": {"denominator": "mean", "symmetric": False, "negatives": "other", "include_self": True},
    "eq. 1, printed": {"denominator": "mean", "symmetric": False},
    "without the positive": {"positive_in_denominator": False, "joint": True},
    "distances": {"similarity": "distance", "normalize": False, "negatives": "same"},
}
METHODS = {
    **{
        name: (
            lambda backbone, form=form: SimCLRModule(backbone, nn.Identity(), InfoNCELoss(**form)),
            lambda z, form=form: info_nce(z, z, **form),
        )
        for name, form in INFO_NCE.items()
    },
    "vicreg": (lambda backbone: VICRegModule(backbone, nn.Identity()), lambda z: vicreg(z, z)),
    "byol": (
        lambda backbone: BYOLModule(backbone, nn.Identity(), predictor()),
        lambda z: byol(predictor()(z), predictor()(z), z, z),
    ),
}


def losses(make, leak=0.0):
    """The method's loss on either data set, twice: the augmentations are others."""
    found = []
    for source in (clustered, even):
        t, views = source()
        method = make(nn.Sequential(Flattened(t, leak), Curve()))
        found += [method.step({"views": views()})["loss"].item() for _ in range(2)]
    return found


@pytest.mark.parametrize("method", METHODS)
def test_at_an_invariant_map_the_loss_depends_on_the_latent_distribution_alone(method):
    make, of_latent = METHODS[method]
    assert losses(make) == pytest.approx([of_latent(latent()).item()] * 4, rel=0, abs=LOSS_ROUNDING)


@pytest.mark.parametrize("method", METHODS)
def test_at_another_map_it_depends_on_the_data(method):
    make, of_latent = METHODS[method]
    first, _, second, _ = losses(make, leak=0.05)
    assert abs(first - second) > 1e-3
    assert abs(first - of_latent(latent()).item()) > 1e-3


def test_vicregs_invariance_vanishes_at_an_invariant_map_and_at_no_other():
    for source in (clustered, even):
        t, views = source()
        for leak, vanishes in ((0.0, True), (0.05, False)):
            network = nn.Sequential(Flattened(t, leak), Curve())
            invariance = vicreg_terms(*(network(view) for view in views()))[0].item()
            assert (invariance < P * ROUNDING**2) if vanishes else (invariance > 1e-3)


def test_the_inputs_are_far_apart_where_the_latents_are_equal():
    # The widest gap between neighbours, in units of the mean one: clusters, and none.
    gaps = [torch.diff(source()[0]) for source in (clustered, even)]
    assert gaps[0].max() / gaps[0].mean() > 5
    assert gaps[1].max() / gaps[1].mean() < 1 + 1e-9
    for source in (clustered, even):
        t, views = source()
        z = nn.Sequential(Flattened(t), Curve())(views()[0])
        nearest = torch.cdist(z, latent()).min(dim=0)
        assert nearest.values.max() < ROUNDING
        assert sorted(nearest.indices.tolist()) == list(range(N))
