"""States that diagnostics accumulate over batches and ranks: second moments, or a limited sample of rows."""

__all__ = [
    "ComparedRows",
    "Moments",
    "SampledEmbeddings",
    "SampledRows",
    "Standing",
    "by_sample",
    "evaluating",
]

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torchmetrics.utilities import dim_zero_cat

from lightning_ssl_geometry.checks import at_least
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic, Standing
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.rounding import moments_floor, rounding_eps
from lightning_ssl_geometry.random import counter_hash


class Moments(Diagnostic):
    """Base: the second moments of rows, exact over any number of batches, in D x D memory.

    The states are the number of rows, the sums of h and of h h^T in float64, and an estimate of the rounding errors of
    h. All add up over batches and ranks. An update costs O(N D^2). A subclass computes from :meth:`singular_values`;
    with `center` the mean row is subtracted first.
    """

    full_state_update = False
    rows: Tensor
    total: Tensor
    outer: Tensor
    rounding: Tensor

    def __init__(self, center: bool = False) -> None:
        super().__init__()
        self.center = center
        self.add_sums("rows", "rounding")
        self.add_sums("total", shape=(0,))
        self.add_sums("outer", shape=(0, 0))

    def update(self, h: Tensor) -> None:
        """Add rows: h (V, N, D) or (N, D)."""
        self._add(h)

    def add_differences(self, h: Tensor) -> None:
        """Add h2 - h1 of each sample: h (N, V, D), V >= 2. The rounding errors of both views count."""
        pair = h[:, :2].double()
        self._add(pair[:, 1] - pair[:, 0], rounding_eps(h.dtype) ** 2 * pair.square().sum())

    def _add(self, h: Tensor, rounding: Tensor | None = None) -> None:
        eps, h = rounding_eps(h.dtype), h.reshape(-1, h.shape[-1]).double()
        outer = h.T @ h
        if not self.outer.numel():
            self.total = h.new_zeros(h.shape[-1])
            self.outer = h.new_zeros(h.shape[-1], h.shape[-1])
        self.rows += len(h)
        self.total += h.sum(0)
        self.outer += outer
        self.rounding += eps**2 * outer.trace() if rounding is None else rounding

    def noise(self) -> Tensor:
        """Return the threshold below which an eigenvalue of the moments, divided by n, is only a rounding error."""
        return moments_floor(self.rows, self.outer, self.rounding)

    def singular_values(self) -> Tensor:
        """Singular values of all rows seen, divided by sqrt(n): (D,), float64, descending; NaN if an h was not finite.

        Values below about 1e-7 of the size of the rows, before centring, are rounding errors and become 0. No rows are
        a ValueError.
        """
        self.require(self.rows, "rows")
        mean = self.total / self.rows
        moments = self.outer / self.rows - (torch.outer(mean, mean) if self.center else 0.0)
        if not moments.isfinite().all():
            return undefined(self, "`h` is not finite, or too large for its squares", like=self.total)
        eigenvalues = torch.linalg.eigvalsh(moments).flip(0)
        return eigenvalues.where(eigenvalues > self.noise(), 0).sqrt()


class SampledRows(Diagnostic):
    """Base: the same `contrast_size` samples in whatever order they arrive, for quantities that contrast samples.

    The samples with the smallest hash of (`seed`, index) are kept. This choice does not depend on batches, order or
    ranks, and a repeated sample counts once. A subclass names the columns that it keeps of each sample, such as ("h",
    "z"), calls :meth:`offer` in `update` and computes from :meth:`rows`. `contrast_size` is >= 2; if fewer samples were
    observed, all are kept. `seed` also determines all other random choices of a subclass.
    """

    full_state_update = False
    key: list[Tensor]

    def __init__(self, columns: Sequence[str], contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__()
        at_least(2, contrast_size=contrast_size)
        self.columns = tuple(columns)
        self.contrast_size = contrast_size
        self.seed = seed
        for name in (*(f"kept_{column}" for column in columns), "key"):
            # lists of at most one tensor, because the length of a tensor state may not differ between ranks
            self.add_state(name, [], dist_reduce_fx="cat")

    def offer(self, index: Tensor, **columns: Tensor) -> None:
        """Offer samples: their positions in the data set, index (N,), and for each column N rows."""
        if wrong := [name for name, column in columns.items() if index.ndim != 1 or column.shape[:1] != index.shape]:
            shapes = f"{tuple(columns[wrong[0]].shape)}, {tuple(index.shape)}"
            raise ValueError(f"Expected `{wrong[0]}` with N rows and `index` of shape (N,), but got {shapes}.")
        keys = torch.cat([*self.key, counter_hash(self.seed, index)])
        chosen = self._chosen(keys)
        for name, column in columns.items():
            kept = getattr(self, f"kept_{name}")
            setattr(self, f"kept_{name}", [torch.cat([*kept, column])[chosen]])
        self.key = [keys[chosen]]

    def rows(self) -> dict[str, Tensor]:
        """Return the columns of the n >= 2 kept samples, n rows each; their order does not depend on their arrival."""
        chosen = self._chosen(dim_zero_cat(self.key)) if len(self.key) else ()
        self.require(len(chosen), "samples", least=2)
        return {name: dim_zero_cat(kept)[chosen] for name in self.columns if len(kept := getattr(self, f"kept_{name}"))}

    def _chosen(self, keys: Tensor) -> Tensor:
        key, order = keys.sort(stable=True)
        first = torch.ones_like(key, dtype=torch.bool)
        first[1:] = key[1:] != key[:-1]
        return order[first.nonzero()[: self.contrast_size, 0]]


class SampledEmbeddings(SampledRows):
    """Base: the embeddings of the same `contrast_size` samples, chosen by `seed`, in whatever order they arrive."""

    def __init__(self, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(("z",), contrast_size, seed)

    def update(self, z: Tensor, index: Tensor) -> None:
        """Offer samples: z (V, N, P), or (N, P) for one view, and the position of each in its data set, index (N,)."""
        self.offer(index, z=by_sample("z", z[None] if z.ndim == 2 else z))

    def sample(self) -> Tensor:
        """Return all views of the kept samples, (V, n, P), n >= 2."""
        return self.rows()["z"].transpose(0, 1)

    def pairs(self) -> Tensor:
        """Return the first two views of the kept samples, (2, n, P), n >= 2; a ValueError if there is only one view."""
        z = self.sample()
        if len(z) < 2:
            raise ValueError(f"Expected `z` of at least 2 views for {type(self).__name__}, but got {len(z)}.")
        return z[:2]


class ComparedRows(SampledRows):
    """Base: compares a readout with earlier readouts of the same samples.

    A subclass calls :meth:`earlier` and then :meth:`remember` in `compute`. The remembered columns stay in CPU memory.
    They outlive `reset`, but are not in checkpoints.
    """

    def __init__(self, columns: Sequence[str], contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__((*columns, "sample"), contrast_size, seed)
        self._kept: dict[str, dict[str, Tensor]] = {}  # "now", "first", "last" -> columns, which `reset` keeps

    def earlier(self, readout: str, sample: Tensor) -> dict[str, Tensor] | None:
        """Return the columns of the readout "first" or "last", or None; a ValueError if its samples differ."""
        then, now = self._kept.get(readout), sample.cpu()
        if then is not None and not torch.equal(then["sample"], now):
            same = int(torch.isin(now, then["sample"]).sum())
            raise ValueError(
                f"Expected {type(self).__name__} to observe the same {len(then['sample'])} samples at every readout, "
                f"but got {len(now)}, of which {same} are the same. Observe this diagnostic in the stages 'val', "
                "'test' or 'probe'."
            )
        return then

    def remember(self, **columns: Tensor) -> None:
        """Keep columns of this readout, one of which is `sample`, for later readouts."""
        self._kept["now"] = {name: column.detach().cpu() for name, column in columns.items()}

    def begin_anew(self) -> None:
        """Forget the earlier readouts."""
        self._kept = {}

    def reset(self) -> None:
        """Forget the observed rows; the columns of this readout become those of an earlier one."""
        super().reset()
        if "now" in self._kept:
            now = self._kept.pop("now")
            self._kept = {"first": self._kept.get("first", now), "last": now}


def by_sample(name: str, value: Tensor, views: int = 1) -> Tensor:
    """Put the samples of (V, N, dim) first: (N, V, dim); a ValueError if the value has another shape or fewer views."""
    if value.ndim != 3 or len(value) < views:
        wanted = f" with V >= {views} views" if views > 1 else ""
        raise ValueError(f"Expected `{name}` of shape (V, N, dim){wanted}, but got {tuple(value.shape)}.")
    return value.transpose(0, 1)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into eval mode, and leave inference mode, whose tensors autograd refuses; restore both after."""
    modes = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        with torch.inference_mode(False):
            yield
    finally:
        for child, training in modes:
            child.training = training
