"""Whether the projector keeps the directions between views and between samples (Cosentino et al. 2022)."""

__all__ = [
    "AugmentationRank",
    "NullSpaceFraction",
    "UnexplainedVariance",
    "between_samples",
    "centered",
    "is_linear_projector",
    "isotropic",
    "null_space_baselines",
    "projector_weight",
    "random_directions",
    "share_or_nan",
]

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.diagnostics.accumulate import Moments, SampledRows, Standing, by_sample
from lightning_ssl_geometry.diagnostics.neighbors import has_neighbors
from lightning_ssl_geometry.diagnostics.shared_work import once
from lightning_ssl_geometry.diagnostics.spectrum import rank_or_nan
from lightning_ssl_geometry.diagnostics.undefined import directions, undefined
from lightning_ssl_geometry.functional.info_nce.upper_bound import hardest_negative
from lightning_ssl_geometry.functional.rounding import moments_floor, rounding_eps
from lightning_ssl_geometry.functional.spectrum import RankMode, singular_values_rank
from lightning_ssl_geometry.functional.tangent import column_space, least_share_outside, share_outside
from lightning_ssl_geometry.papers import COSENTINO
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity

_of_augmentations = partial(
    Quantity,
    paper=COSENTINO,
    where="Prop. 4.2",
    bounds=(0, None),
    invariances=("rotation", "translation", "permutation"),
)
_share = partial(Quantity, paper=COSENTINO, bounds=(0, 1), comparable=("temperature", "batch size"))
_missed = partial(_share, invariances=("scale", "permutation"), better="low", label="unexplained")
_NULL_SPACE = Chart("null_space", "Augmentations ignored by the projector", "share")
_UNEXPLAINED = Chart("unexplained_variance", "Unexplained variance", "share")
_UNEXPLAINED_TAU = Chart("unexplained_variance_tau", "Unexplained variance at a threshold", "share")


_baseline = partial(Quantity, paper=COSENTINO, bounds=(0, 1), baseline=True)


def isotropic(where: str, chart: Chart) -> Quantity:
    """Describe a baseline as a Quantity: the share of random directions that a projector ignores."""
    return _baseline(
        title="Isotropic",
        text="What directions drawn at random would give, or the same directions with a projector of this rank that "
        "was rotated at random: 1 - rank / D.",
        low="The projector has nearly full rank, at the threshold where there is one.",
        high="The projector has collapsed.",
        where=where,
        chart=chart,
        label="isotropic",
    )


def between_samples(where: str, chart: Chart) -> Quantity:
    """Describe a baseline as a Quantity: the share of the displacements between samples that a projector ignores."""
    return _baseline(
        title="Between samples",
        text="Share of the displacements h_i - h_j between different samples that the projector leaves out. "
        "Representations are not isotropic: a projector that keeps samples apart keeps the directions in which they "
        "differ, whatever it does with augmentations.",
        low="The projector keeps nearly all directions in which samples differ.",
        high="The projector discards directions in which samples differ.",
        where=where,
        chart=chart,
        label="between samples",
    )


def _floor(where: str, chart: Chart) -> Quantity:
    return _baseline(
        title="Floor",
        text="The least share that any subspace of the same dimension leaves out: that of the leading principal "
        "directions of the displacements themselves.",
        low="The displacements lie in few directions.",
        high="The displacements need more directions than the projector has.",
        where=where,
        chart=chart,
        label="floor",
    )


def _random(where: str, chart: Chart) -> Quantity:
    return _baseline(
        title="Random projector",
        text="The share that a W with these singular values but random directions leaves out, of the displacements to "
        "the hardest negatives behind that W. A hardest negative is chosen to be near behind the projector, so even a "
        "random W misses more of these displacements than of isotropic ones.",
        low="The projector has nearly full rank, at the threshold where there is one.",
        high="The projector has collapsed.",
        where=where,
        chart=chart,
        label="random W",
    )


class AugmentationRank(Moments):
    """Rank and spectrum of the augmentation directions h2 - h1 (Cosentino et al. 2022, Proposition 4.2).

    h1 and h2 are the first two views of a sample. Results for n samples with D dimensions: `rank` in [0, min(n, D)],
    and `singular_values` (D,), divided by sqrt(n). An update of N samples costs O(N D^2), `compute` O(D^3).

    Args:
        tau: The rank counts the singular values that reach this threshold.
        mode: Unit of `tau`: "absolute", "relative" to the largest value, or "cumulative" share of the sum of squares.
    """

    section = "augmentations"
    quantities: ClassVar[dict[str, Quantity]] = {
        "rank": _of_augmentations(
            title="Rank of the augmentations",
            text="How many directions of h the augmentations move in: the rank of v = h2 - h1.",
            low="The encoder maps augmentations onto few directions: the projector can ignore them and keep its rank.",
            high="Augmentations move h in nearly all directions: a projector cannot ignore them and keep its rank.",
            cap="min(N, D)",
            comparable=("temperature", "batch size"),
            chart=Chart("augmentation_rank", "Rank of the augmentations", "directions"),
        ),
        "singular_values": _of_augmentations(
            title="Spectrum of the augmentations",
            text="Singular values of the augmentation directions v = h2 - h1.",
            low="Low values early on, a steep fall: few directions carry the augmentations.",
            high="High values to the end: the augmentations move h in all directions.",
            chart=Chart("augmentation_spectrum", "Spectrum of the augmentations", "singular value"),
            picture=Picture("spectrum"),
        ),
    }

    def __init__(self, tau: float = 1e-2, mode: RankMode = "relative") -> None:
        super().__init__()
        singular_values_rank(torch.ones(1), tau, mode=mode)  # checks `tau` and `mode`
        self.tau = tau
        self.mode: RankMode = mode

    def update(self, h: Tensor) -> None:
        """Add `h` (V, N, D) for V >= 2 views of N samples. Only the first two views are used."""
        self.add_differences(by_sample("h", h, views=2))

    def compute(self) -> dict[str, Tensor]:
        sigma = self.singular_values()
        rank = rank_or_nan(singular_values_rank(sigma, self.tau, mode=self.mode), sigma)
        return {"rank": rank, "singular_values": sigma}


class NullSpaceFraction(Moments):
    """Share of the augmentation directions h2 - h1 that a linear projector ignores (Cosentino et al. 2022, Prop. 4.1).

    h1 and h2 are the first two views of a sample, with D dimensions. Results in [0, 1]: `fraction` is the share. At 1,
    all directions lie in the projector's null space. Three baselines: `between_samples` is the share of the
    displacements h1_i - h1_j between different samples, `isotropic` is 1 - rank / D with the rank of the projector, and
    `floor` is the least share for any subspace of that rank. `fraction` and `floor` are NaN if the views coincide up to
    rounding, and `between_samples` if the samples do. The weights must not change between updates. An update of N
    samples costs O(N D^2), `compute` O(D^3 + D^2 P) for P outputs.

    Args:
        tau: The projector's null space has the directions with singular values below this threshold.
        mode: Unit of `tau`: "absolute", "relative" to the largest value, or "cumulative" share of the sum of squares.
    """

    shares_state = False  # it keeps the projector
    section = "augmentations"
    quantities: ClassVar[dict[str, Quantity]] = {
        "fraction": _share(
            title="Augmentations ignored",
            text="Share of the augmentation directions v = h2 - h1 in the null space of the projector.",
            low="Near 0: the projector sees all that augmentations do.",
            high="Near 1: the projector ignores what augmentations do, so that the invariance term can be as low as "
            "possible.",
            where="Prop. 4.1",
            null="between_samples",
            invariances=("scale", "translation", "permutation"),
            chart=_NULL_SPACE,
            label="ignored",
        ),
        "between_samples": between_samples("Prop. 4.1", _NULL_SPACE),
        "isotropic": isotropic("Prop. 4.1", _NULL_SPACE),
        "floor": _floor("Prop. 4.1", _NULL_SPACE),
    }
    matrices = 2
    samples_total: Tensor
    samples_outer: Tensor
    samples_rounding: Tensor

    def __init__(self, tau: float = 1e-2, mode: RankMode = "relative") -> None:
        super().__init__()
        singular_values_rank(torch.ones(1), tau, mode=mode)  # checks `tau` and `mode`
        self.tau = tau
        self.mode: RankMode = mode
        self.projector = Standing()
        self.add_sums("samples_rounding")
        self.add_sums("samples_total", shape=(0,))
        self.add_sums("samples_outer", shape=(0, 0))

    def update(self, h: Tensor, projector: nn.Module) -> None:  # type: ignore[override]
        """Add the projector and `h` (V, N, D) for V >= 2 views of N samples. Only the first two views are used."""
        projector_weight(projector, h)
        self.projector.hold(projector)
        views = by_sample("h", h, views=2)
        self.add_differences(views)
        first = in_float64(views[:, 0])
        if not self.samples_outer.numel():
            self.samples_total = first.new_zeros(first.shape[1])
            self.samples_outer = first.new_zeros(first.shape[1], first.shape[1])
        self.samples_total += first.sum(0)
        self.samples_outer += first.T @ first
        self.samples_rounding += rounding_eps(h.dtype) ** 2 * first.square().sum()

    def compute(self) -> dict[str, Tensor]:
        basis = column_space(projector_weight(self.projector.module()), self.tau, mode=self.mode)
        moment = self.outer.to(basis.device)
        found = {}
        if self.rounding < moment.trace() < torch.inf:
            found = {"fraction": share_outside(moment, basis), "floor": least_share_outside(moment, basis.shape[1])}
        else:
            nan = undefined(self, "the views of `h` coincide but for rounding, or are not finite")
            found = {"fraction": nan, "floor": nan}
        noise = len(moment) * self.rows * moments_floor(self.rows, self.samples_outer, self.samples_rounding)
        samples = self.samples_outer - torch.outer(self.samples_total, self.samples_total) / self.rows
        found["between_samples"] = share_or_nan(self, samples.to(basis.device), basis, rounding=noise)
        return found | {"isotropic": moment.new_tensor(1 - basis.shape[1] / basis.shape[0])}


class UnexplainedVariance(SampledRows):
    """Share of the displacements h2 - h* that a linear projector ignores (Cosentino et al. 2022, Eq. 10, Fig. 7).

    h2 is the second view of a sample, with D dimensions. The hardest negative h* is the view of another sample with the
    most similar z. The embeddings z have P dimensions. Results in [0, 1]: `full` is the share outside the span of all
    directions of the projector's weight. `tau` uses only the directions with singular values that reach the threshold.
    Each has four baselines: with `_random`, the share of the displacements to the hardest negatives behind a W with the
    same singular values and random directions; with `_between_samples`, that of the displacements h1_i - h1_j between
    different samples; with `_isotropic`, 1 - rank / D; with `_floor`, the least share for any subspace of that rank.
    With fewer samples than D, the results describe only these samples. The shares and floors are NaN if all embeddings
    have the same direction, and the shares between samples if all rows of h coincide. The weights must not change
    between updates. Memory: O(contrast_size (D + P)). `compute` costs O(contrast_size^2 P + contrast_size D^2 + D^3).
    For non-linear projectors, use :class:`LocalUnexplainedVariance`.

    Args:
        tau: Threshold of the singular values.
        mode: Unit of `tau`: "absolute", "relative" to the largest value, or "cumulative" share of the sum of squares.
        contrast_size: Number of samples kept, >= 2. With more samples, negatives are harder.
        seed: Determines which samples are kept, and the random W.
    """

    section = "augmentations"
    cost = Cost(update="n D + N D", compute="N^2 D + N D^2", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "full": _missed(
            title="Unexplained variance",
            text="Share of the displacements h2 - h* outside the column space of the projector's W, with h* the vector "
            "of the hardest negative.",
            low="The projector spans the displacements, as far as the floor allows.",
            high="Near 1: the projector misses the displacements. Above the value of a random projector: it prefers "
            "other directions.",
            where="Eq. 10, Fig. 7",
            null="full_random",
            chart=_UNEXPLAINED,
            headline=True,
        ),
        "full_random": _random("Eq. 10", _UNEXPLAINED),
        "full_between_samples": between_samples("Eq. 10", _UNEXPLAINED),
        "full_isotropic": isotropic("Eq. 10", _UNEXPLAINED),
        "full_floor": _floor("Eq. 10", _UNEXPLAINED),
        "tau": _missed(
            title="Unexplained variance at a threshold",
            text="Share of the displacements h2 - h* outside those directions of W whose singular values reach a "
            "threshold.",
            low="The directions of W that count span the displacements.",
            high="Near 1: the directions that count miss the displacements. Far above the value of all directions: W "
            "needs its faint directions.",
            where="Eq. 10",
            null="tau_random",
            chart=_UNEXPLAINED_TAU,
        ),
        "tau_random": _random("Eq. 10", _UNEXPLAINED_TAU),
        "tau_between_samples": between_samples("Eq. 10", _UNEXPLAINED_TAU),
        "tau_isotropic": isotropic("Eq. 10", _UNEXPLAINED_TAU),
        "tau_floor": _floor("Eq. 10", _UNEXPLAINED_TAU),
    }

    def __init__(
        self, tau: float = 1e-2, mode: RankMode = "relative", contrast_size: int = 1024, seed: int = 0
    ) -> None:
        super().__init__(("h", "z"), contrast_size, seed)
        singular_values_rank(torch.ones(1), tau, mode=mode)  # checks `tau` and `mode`
        self.tau = tau
        self.mode: RankMode = mode
        self.projector = Standing()

    @by_position("projector")
    def update(self, h: Tensor, z: Tensor, index: Tensor | None = None, *, projector: nn.Module) -> None:
        """Add `h` (V, N, D) and `z` (V, N, P) for V >= 2 views of N samples, `index` (N,) and the projector."""
        projector_weight(projector, h)
        self.projector.hold(projector)
        self.offer(index, h=by_sample("h", h, views=2), z=by_sample("z", z, views=2))

    def compute(self) -> dict[str, Tensor]:
        weight, rows = projector_weight(self.projector.module()), self.rows()
        taus = {"full": None, "tau": self.tau}
        bases = {name: column_space(weight, tau, mode=self.mode) for name, tau in taus.items()}
        delta = displacements(self, rows["h"], rows["z"])
        samples, rounding = centered(rows["h"][:, 0])
        between, known = samples.T @ samples, not bool(delta.isnan().any())
        found: dict[str, Tensor] = {}
        for name, basis in bases.items():
            found[f"{name}_between_samples"] = share_or_nan(self, between, basis, rounding=rounding)
            found[f"{name}_isotropic"] = delta.new_tensor(1 - basis.shape[1] / len(basis))
        if not known:
            return found | {f"{name}{key}": delta[0, 0] for name in bases for key in ("", "_random", "_floor")}
        sigma = torch.linalg.svdvals(in_float64(weight))
        random = random_directions(len(weight), len(sigma), seed=self.seed, like=sigma) * sigma
        to_random = displacements(self, rows["h"], in_float64(rows["h"]) @ random)
        moment, moment_of_random = delta.T @ delta, to_random.T @ to_random
        for name, basis in bases.items():
            found[name] = share_outside(moment, basis)
            own = column_space(random, taus[name], mode=self.mode)
            undone = bool(to_random.isnan().any())  # behind the random W, all embeddings have one direction
            found[f"{name}_random"] = to_random[0, 0] if undone else share_outside(moment_of_random, own)
            found[f"{name}_floor"] = least_share_outside(moment, basis.shape[1])
        return found


def null_space_baselines(metric: Metric, h: Tensor, basis: Tensor) -> dict[str, Tensor]:
    """Return the baselines of the share of a generator outside of `basis` (D, r), for representations `h` (N, D)."""
    samples, rounding = centered(h)
    return {
        "null_space_between_samples": share_or_nan(metric, samples.T @ samples, basis, rounding=rounding),
        "null_space_isotropic": samples.new_tensor(1 - basis.shape[1] / len(basis)),
    }


def random_directions(dim: int, count: int, *, seed: int, like: Tensor) -> Tensor:
    """Draw `count` orthonormal columns (D, count), D = `dim`, uniformly, with the dtype and device of `like`.

    Times singular values, they are a projector with random directions: for x, the lengths of W^T x and the angles
    between them do not depend on the right singular vectors of W.
    """
    drawn = torch.randn(dim, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.linalg.qr(drawn).Q.to(like)


def centered(h: Tensor) -> tuple[Tensor, Tensor]:
    """Subtract the mean of the rows of `h` (N, D). Return them in float64, and the sum of squares of their rounding.

    The second moments of the centred rows are those of the displacements h_i - h_j, up to a factor.
    """
    rows = in_float64(h)
    return rows - rows.mean(0), rounding_eps(h.dtype) ** 2 * rows.square().sum()


def share_or_nan(metric: Metric, moment: Tensor, basis: Tensor, *, rounding: Tensor) -> Tensor:
    """Return :func:`share_outside`, or NaN with a warning if the trace of `moment` is not above `rounding`."""
    if rounding.to(moment.device) < moment.trace() < torch.inf:
        return share_outside(moment, basis)
    return undefined(metric, "all rows of `h` coincide but for rounding, or one is not finite", like=moment[0, 0])


def displacements(metric: Metric, h: Tensor, z: Tensor, *, view: int = 1) -> Tensor:
    """Return one view of each sample, by default the second, minus its hardest negative h*: (N, D), float64.

    h* is the view, in `h` (N, V, D), of another sample with the most similar embedding in `z` (N, V, P). If all
    embeddings have one direction, all displacements are 0 or a value is not finite, warn and return NaN.
    """
    h, z = in_float64(h), directions(metric, z)
    if not has_neighbors(metric, z):
        return torch.full_like(h[:, 1], torch.nan)
    index, of, _ = once(hardest_negative, z[:, 0], z[:, 1])
    delta = h[:, view] - h[index, of]
    if not delta.isfinite().all() or not delta.any():
        return undefined(metric, "all displacements in `h` are 0, or one is not finite", like=delta)
    return delta


def is_linear_projector(projector: nn.Module) -> bool:
    """Return whether a module has one `torch.nn.Linear` and no other layers than Identity or Dropout."""
    acting = [m for m in projector.modules() if not any(m.children()) and not isinstance(m, nn.Identity | nn.Dropout)]
    return [isinstance(module, nn.Linear) for module in acting] == [True]


def projector_weight(projector: nn.Module, h: Tensor | None = None) -> Tensor:
    """Return the weight W (D, P) of a linear projector z = W^T h + b, detached.

    A ValueError is raised for other projectors, and for one that does not have as many inputs as `h` (..., D).
    """
    if not is_linear_projector(projector):
        raise ValueError(
            f"Expected `projector` to be one torch.nn.Linear, but got {type(projector).__name__}, which has no single "
            "W. For other projectors: ProjectorRank (by layer), JacobianRank, LinearRegions, LocalUnexplainedVariance, "
            "ProjectionAlignment."
        )
    (layer,) = (module for module in projector.modules() if isinstance(module, nn.Linear))
    if h is not None and h.shape[-1:] != (layer.in_features,):
        raise ValueError(
            f"Expected `h` with {layer.in_features} dimensions, as `projector` has, but got {tuple(h.shape)}."
        )
    return layer.weight.detach().T
