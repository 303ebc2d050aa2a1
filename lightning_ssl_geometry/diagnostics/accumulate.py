"""What diagnostics accumulate over batches and ranks: second moments, a capped sample of rows, a standing module."""

__all__ = ["Moments", "SampledEmbeddings", "SampledRows", "Standing", "by_sample", "evaluating"]

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torchmetrics.utilities import dim_zero_cat

from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.rounding import moments_floor, rounding_eps
from lightning_ssl_geometry.random import counter_hash


class Moments(Diagnostic):
    """Base: the second moments of rows, exact over any number of batches in D x D memory.

    It keeps n, the sum of h and the sum of h h^T in float64, and how far the dtypes of h may have rounded these, which
    all add over batches and ranks; an update costs O(N D^2). A subclass computes from :meth:`singular_values`.

    Args:
        center: Subtract the mean row.
    """

    full_state_update = False
    rows: Tensor
    total: Tensor
    outer: Tensor
    rounding: Tensor

    def __init__(self, center: bool = False) -> None:
        super().__init__()
        self.center = center
        self.add_state("rows", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("total", torch.zeros(0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("outer", torch.zeros(0, 0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("rounding", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, h: Tensor) -> None:
        """Add rows: h (V, N, D) or (N, D)."""
        self._add(h)

    def add_differences(self, h: Tensor) -> None:
        """Add v = h2 - h1 of each sample: h (N, V, D), V >= 2, whose rounding the difference keeps."""
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
        """Largest eigenvalue of the moments over n that is rounding, as functional's `moments_floor` has it."""
        return moments_floor(self.rows, self.outer, self.rounding)

    def singular_values(self) -> Tensor:
        """Singular values of all rows seen, divided by sqrt(n): (D,), float64, descending.

        One that is rounding is 0: they come from the D x D moments, so this is one below about 1e-7 of the size of
        the rows, before a mean is subtracted. All are NaN where an h was not finite.

        Raises:
            ValueError: If no row was seen.
        """
        if not self.rows:
            raise ValueError(f"Expected {type(self).__name__} to have observed rows, but got none.")
        mean = self.total / self.rows
        moments = self.outer / self.rows - (torch.outer(mean, mean) if self.center else 0.0)
        if not moments.isfinite().all():
            return undefined(self, "`h` is not finite, or too large for its squares", like=self.total)
        eigenvalues = torch.linalg.eigvalsh(moments).flip(0)
        return eigenvalues.where(eigenvalues > self.noise(), 0).sqrt()


class SampledRows(Diagnostic):
    """Base: the same `contrast_size` samples however they arrive, for quantities that contrast samples.

    It keeps the samples whose hash of (seed, index) is smallest: a choice that does not depend on batches, order or
    ranks, and counts a repeated sample once. A subclass names what it keeps of each, calls :meth:`offer` in `update`
    and computes from :meth:`rows`.

    Args:
        columns: What is kept of a sample, such as ("h", "z").
        contrast_size: Number of samples kept, >= 2; with fewer observed, all of them are kept.
        seed: Another seed chooses other samples.

    Raises:
        ValueError: If `contrast_size` < 2.
    """

    full_state_update = False
    key: list[Tensor]

    def __init__(self, columns: Sequence[str], contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__()
        if contrast_size < 2:
            raise ValueError(f"Expected `contrast_size` >= 2, but got {contrast_size}.")
        self.columns = tuple(columns)
        self.contrast_size = contrast_size
        self.seed = seed
        for name in (*(f"kept_{column}" for column in columns), "key"):
            # lists of at most one tensor: their length may differ between ranks, which a tensor state's may not
            self.add_state(name, [], dist_reduce_fx="cat")

    def offer(self, index: Tensor, **columns: Tensor) -> None:
        """Offer samples: the position of each in its data set, index (N,), and each column with N rows."""
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
        """Columns of the kept samples, each with n rows, in an order that does not depend on their arrival.

        Raises:
            ValueError: If fewer than 2 samples were seen.
        """
        chosen = self._chosen(dim_zero_cat(self.key)) if len(self.key) else ()
        if len(chosen) < 2:
            seen = len(chosen) or "none"
            raise ValueError(f"Expected {type(self).__name__} to have observed at least 2 samples, but got {seen}.")
        return {name: dim_zero_cat(kept)[chosen] for name in self.columns if len(kept := getattr(self, f"kept_{name}"))}

    def _chosen(self, keys: Tensor) -> Tensor:
        key, order = keys.sort(stable=True)
        first = torch.ones_like(key, dtype=torch.bool)
        first[1:] = key[1:] != key[:-1]
        return order[first.nonzero()[: self.contrast_size, 0]]


class SampledEmbeddings(SampledRows):
    """Base: the embeddings of the same `contrast_size` samples however they arrive.

    Args:
        contrast_size: As in :class:`SampledRows`.
        seed: As in :class:`SampledRows`.

    Raises:
        ValueError: As :class:`SampledRows`.
    """

    def __init__(self, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(("z",), contrast_size, seed)

    def update(self, z: Tensor, index: Tensor) -> None:
        """Offer samples: z (V, N, P), or (N, P) for one view, and the position of each in its data set, index (N,)."""
        self.offer(index, z=by_sample("z", z[None] if z.ndim == 2 else z))

    def sample(self) -> Tensor:
        """Views of the kept samples, (V, n, P).

        Raises:
            ValueError: If fewer than 2 samples were seen.
        """
        return self.rows()["z"].transpose(0, 1)


def by_sample(name: str, value: Tensor, views: int = 1) -> Tensor:
    """Put the samples of an observation (V, N, ...) first, to (N, V, ...), if it has as many views as needed.

    Raises:
        ValueError: If it has another shape or fewer views.
    """
    if value.ndim != 3 or len(value) < views:
        wanted = f" with V >= {views} views" if views > 1 else ""
        raise ValueError(f"Expected `{name}` of shape (V, N, dim){wanted}, but got {tuple(value.shape)}.")
    return value.transpose(0, 1)


class Standing:
    """A module that a diagnostic looks at when it computes: it must not have changed since it was first observed.

    Representations of one moment and weights of another describe no network, so a diagnostic that needs both is for
    the stages where weights stand still: "val", "test" and "probe".
    """

    def __init__(self) -> None:
        self._held: tuple[nn.Module, ...] = ()  # in a tuple: a Metric must not take it for a part of itself
        self._moment: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._held)

    def hold(self, module: nn.Module) -> None:
        """Observe it.

        Raises:
            ValueError: If it is another module than before, or its weights or statistics have changed.
        """
        if not self._held:
            self._held, self._moment = (module,), _moment(module)
        self._check(module)

    def module(self) -> nn.Module:
        """Get it back.

        Raises:
            ValueError: If it has changed, or none was observed.
        """
        if not self._held:
            raise ValueError("Expected to have observed a module, but got none.")
        self._check(self._held[0])
        return self._held[0]

    def _check(self, module: nn.Module) -> None:
        if module is not self._held[0] or _moment(module) != self._moment:
            raise ValueError(
                f"Expected a {type(module).__name__} that stands still while it is observed, but its weights changed. "
                "Observe this diagnostic in the stages 'val', 'test' or 'probe'."
            )


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into eval mode and leave inference mode, whose tensors autograd refuses; restore both after."""
    modes = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        with torch.inference_mode(False):
            yield
    finally:
        for child, training in modes:
            child.training = training


def _moment(module: nn.Module) -> tuple[int, ...]:
    """Every in-place change of a tensor counts its version up."""
    tensors = (*module.parameters(), *module.buffers())
    return tuple(number for tensor in tensors for number in (id(tensor), tensor._version))
