"""Base classes of diagnostics that accumulate second moments or keep a set of samples, over batches and ranks."""

__all__ = [
    "ComparedRows",
    "Moments",
    "SampledEmbeddings",
    "SampledRows",
    "Standing",
    "by_sample",
    "evaluating",
    "first_view",
    "label_second",
    "merged_by_class",
]

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from lightning_ssl_geometry.checks import indexed, whole
from lightning_ssl_geometry.checks import seed as checked_seed
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic, Standing
from lightning_ssl_geometry.diagnostics.row_numbers import RowNumbers
from lightning_ssl_geometry.diagnostics.shared_work import once
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.few_rows import few_rows_eigenvalues
from lightning_ssl_geometry.functional.rounding import moments_floor, rounding_eps
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.random import counter_hash
from lightning_ssl_geometry.settings import names_its_class

_Update = TypeVar("_Update", bound=Callable[..., None])


_ROWS = 512  # that are multiplied at once


class Moments(Diagnostic):
    """Base class of diagnostics that are computed from the second moments of the rows of a matrix h (N, D).

    The result does not depend on how the rows are divided into batches or ranks. A subclass calls
    :meth:`singular_values` in `compute`. Memory: O(D^2), 8 D^2 bytes. Above 1 GiB (D = 11,585),
    `update` raises a :class:`TooWideError` before it allocates. An update costs O(N D^2). The method
    :meth:`singular_values` costs O(D^3), or O(D n^2) if there are n <= D / 4 rows in all.

    Args:
        center: Whether to subtract the mean of the rows.
    """

    full_state_update = False
    shares_state = True
    cost = Cost(update="n D^2", compute="D^3", memory="D^2")
    matrices: ClassVar[int] = 1  # (D, D) in the state
    rows: Tensor
    total: Tensor
    outer: Tensor
    rounding: Tensor

    @names_its_class
    def __init__(self, center: bool = False) -> None:
        super().__init__()
        self.center = center
        self.add_sums("rows", "rounding")
        self.add_sums("total", shape=(0,))
        self.add_sums("outer", shape=(0, 0))

    def update(self, h: Tensor) -> None:
        """Add the rows of `h`, of shape (N, D), or (V, N, D) for V views of N samples."""
        by_sample("h", h)  # checks the shape
        self._add(h)

    def add_differences(self, h: Tensor) -> None:
        """Add the difference of the first two views of each sample. `h` (N, V, D) has V >= 2 views."""
        pair = in_float64(h[:, :2])
        self._add(pair[:, 1] - pair[:, 0], rounding_eps(h.dtype) ** 2 * pair.square().sum())

    def _add(self, h: Tensor, rounding: Tensor | None = None) -> None:
        self.afford(h.shape[-1], *[h.shape[-1]] * self.matrices, argument="h")
        eps, h = rounding_eps(h.dtype), in_float64(h.reshape(-1, h.shape[-1]))
        self.as_wide(self.total, h=h)
        if not self.outer.numel():
            self.total = h.new_zeros(h.shape[-1])
            self.outer = h.new_zeros(h.shape[-1], h.shape[-1])
        self.rows += len(h)
        total, outer = once(_sums, h)
        self.total += total
        self.outer += outer
        self.rounding += eps**2 * outer.trace() if rounding is None else rounding

    def noise(self) -> Tensor:
        """Return the rounding error of the eigenvalues of the second-moment matrix, a scalar."""
        return moments_floor(self.rows, self.outer, self.rounding)

    def singular_values(self) -> Tensor:
        """Return the singular values (D,) of the matrix of all n rows, divided by sqrt(n).

        The values are float64 and descending. Values below about 1e-7 times the norm of the matrix are rounding errors
        and become 0. All values are NaN if a row is not finite. A ValueError is raised if there are no rows.
        """
        self.require(self.rows, "rows")
        mean = self.total / self.rows
        moments = self.outer / self.rows - (torch.outer(mean, mean) if self.center else 0.0)
        if not moments.isfinite().all():
            return undefined(self, "`h` is not finite, or too large for its squares", like=self.total)
        noise, rows = self.noise(), int(self.rows)
        if 4 * rows <= len(moments):
            eigenvalues = few_rows_eigenvalues(moments, rows, noise=noise)
        else:
            eigenvalues = once(torch.linalg.eigvalsh, moments).flip(0)
        return eigenvalues.where(eigenvalues > noise, 0).sqrt()


def _sums(h: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum (D,) of rows (N, D), and that of their outer products (D, D)."""
    # One product of many equal rows has a rounding error that grows with their number.
    parts = h.split(_ROWS)
    outer = parts[0].T @ parts[0]
    for part in parts[1:]:
        outer += part.T @ part
    return torch.stack([part.sum(0) for part in parts]).sum(0), outer


class SampledRows(Diagnostic):
    """Base class of diagnostics that keep a fixed number of samples and compare them with each other.

    A hash of `seed` and the index in the data set decides which samples are kept. Batches, order and ranks do not
    matter. A repeated sample counts once. Subclasses call :meth:`offer` in `update` and :meth:`rows` in `compute`.

    Without `index`, :class:`RowNumbers` numbers the samples as they come. The choice then depends on the order of the
    samples and on the number of ranks, and a repeated sample counts twice. Two calls of `compute` compare the same
    samples only if the samples come in the same order. Either all updates between two resets have an index, or none.

    Args:
        columns: Names of the tensors kept for each sample, such as ("h", "z").
        contrast_size: Number of samples kept, >= 2. If fewer were observed, all are kept.
        seed: Determines which samples are kept, and all other random choices of a subclass.
    """

    full_state_update = False
    key: list[Tensor]

    def __init__(self, columns: Sequence[str], contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__()
        whole(2, contrast_size=contrast_size)
        checked_seed(seed=seed)
        self.columns = tuple(columns)
        self.contrast_size = contrast_size
        self.seed = seed
        self.numbers = RowNumbers()
        for name in (*(f"kept_{column}" for column in columns), "key"):
            # lists of at most one tensor, because the length of a tensor state may not differ between ranks
            self.add_state(name, [], dist_reduce_fx="cat")

    def offer(self, index: Tensor | None, **columns: Tensor) -> None:
        """Offer N samples. `index` (N,) holds their indices in the data set, and each column has N rows.

        If `index` is None, the samples are numbered as they come.
        """
        self.keep(self.numbers.of(index, next(iter(columns.values()))), **columns)

    def contenders(self, index: Tensor | None, **columns: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return those of N samples that may be kept: their index (n,) and columns, as :meth:`offer` gets them.

        To :meth:`keep` these n samples has the same result as to keep all.
        """
        index = self.numbers.of(index, next(iter(columns.values())))
        indexed(index, **columns)
        key = counter_hash(self.seed, index)
        full = len(self.key) and len(self.key[0]) >= self.contrast_size
        rows = (key < self.key[0].max()).nonzero()[:, 0] if full else torch.arange(len(key), device=key.device)
        rows = rows[key[rows].argsort()[: self.contrast_size]]
        return index[rows], {name: column[rows.to(column.device)] for name, column in columns.items()}

    def keep(self, index: Tensor, **columns: Tensor) -> None:
        """Offer N samples whose `index` (N,) is known or from `self.numbers`. Each column has N rows."""
        indexed(index, **columns)
        keys = torch.cat([*self.key, counter_hash(self.seed, index)])
        chosen = self._chosen(keys)
        for name, column in columns.items():
            kept = getattr(self, f"kept_{name}")
            own = 1 if column.ndim == 2 else 2  # of another number of views, the monitor tells
            if kept and kept[0].shape[own:] != column.shape[own:]:
                expected, got = tuple(kept[0].shape[1:]), tuple(column.shape[1:])
                raise ValueError(f"Expected `{name}` with rows of shape {expected}, as before, but got {got}.")
            setattr(self, f"kept_{name}", [torch.cat([*kept, column])[chosen.to(column.device)]])
        self.key = [keys[chosen]]

    def rows(self) -> dict[str, Tensor]:
        """Return {name of a column: its n >= 2 kept rows}. The order of the rows does not depend on the updates."""
        chosen = self._chosen(dim_zero_cat(self.key) if len(self.key) else torch.zeros(0, dtype=torch.int64))
        self.require(len(chosen), "samples", least=2)
        kept = {name: getattr(self, f"kept_{name}") for name in self.columns}
        rows = {name: dim_zero_cat(parts) for name, parts in kept.items() if len(parts)}
        return {name: column[chosen.to(column.device)] for name, column in rows.items()}

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add the samples of another Metric. Raise a ValueError if the samples of one of them have no index."""
        if self.numbers.used or (isinstance(incoming_state, SampledRows) and incoming_state.numbers.used):
            raise ValueError("Expected `index` in all updates of Metrics that are merged, but got updates without it.")
        super().merge_state(incoming_state)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *settings: Any) -> None:
        loaded = f"{prefix}key" in state_dict
        super()._load_from_state_dict(state_dict, prefix, *settings)
        if loaded and len(self.key):
            self.numbers.require()  # new numbers might be those of loaded samples

    def _chosen(self, keys: Tensor) -> Tensor:
        key, order = keys.sort(stable=True)
        first = torch.ones_like(key, dtype=torch.bool)
        first[1:] = key[1:] != key[:-1]
        return order[first.nonzero()[: self.contrast_size, 0]]


class SampledEmbeddings(SampledRows):
    """Base class of diagnostics that compare the embeddings z of a fixed number of samples.

    Args:
        contrast_size: Number of samples kept, >= 2.
        seed: Determines which samples are kept.

    Attributes:
        views: The smallest number of views that `update` accepts.
    """

    views: ClassVar[int] = 1

    def __init__(self, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(("z",), contrast_size, seed)

    def update(self, z: Tensor, index: Tensor | None = None) -> None:
        """Add `z` (V, N, P) or (N, P) for V views of N samples, and `index` (N,), their indices in the data set.

        Without `index`, the samples are numbered as they come. A subclass may need several views.
        """
        self.offer(index, z=by_sample("z", z, views=self.views))

    def sample(self) -> Tensor:
        """Return the embeddings z (V, n, P) of all V views of the n >= 2 kept samples."""
        return self.rows()["z"].transpose(0, 1)

    def pairs(self) -> Tensor:
        """Return the first two views (2, n, P) of the kept samples. If there is only one view, raise a ValueError."""
        z = self.sample()
        if len(z) < 2:
            raise ValueError(f"Expected `z` of shape (V, N, P) with V >= 2 views, but got {tuple(z.shape)}.")
        return z[:2]


class ComparedRows(SampledRows):
    """Base class of diagnostics that compare samples with their state at earlier calls of `compute`.

    A subclass calls :meth:`earlier` and then :meth:`remember` in `compute`. The remembered tensors are in CPU memory.
    `reset` does not delete them, and a checkpoint does not contain them.

    Args:
        columns: Names of the tensors kept for each sample. The name "sample", the index in the data set, is added.
        contrast_size: Number of samples kept, >= 2.
        seed: Determines which samples are kept.
    """

    def __init__(self, columns: Sequence[str], contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__((*columns, "sample"), contrast_size, seed)
        self._kept: dict[str, dict[str, Tensor]] = {}  # "now", "first", "last" -> columns, which `reset` keeps

    def earlier(self, readout: str, sample: Tensor) -> dict[str, Tensor] | None:
        """Return the tensors that :meth:`remember` got in an earlier `compute`, or None if there was none.

        `readout` is "first" for the first call of `compute`, and "last" for the previous one. `sample` (n,) holds the
        indices of the present samples in the data set. If they differ from the earlier ones, a ValueError is raised.
        """
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
        """Keep tensors for later calls of `compute`. The argument `sample`, indices in the data set, is required."""
        self._kept["now"] = {name: column.detach().cpu() for name, column in columns.items()}

    def begin_anew(self) -> None:
        """Delete all remembered tensors."""
        self._kept = {}

    def reset(self) -> None:
        """Delete the observed samples, but not the tensors that earlier calls of `compute` remembered."""
        super().reset()
        if "now" in self._kept and not self._forwards:
            now = self._kept.pop("now")
            self._kept = {"first": self._kept.get("first", now), "last": now}


def label_second(update: _Update) -> _Update:
    """Let `update(z, label)` work where `index` stands second: if no label is named, the second is the label."""

    @functools.wraps(update)
    def wrapped(self: Metric, *given: Any, **named: Any) -> None:
        if len(given) == 2 and not {"label", "index"} & named.keys():
            first, second = given
            update(self, first, **named, label=second)
        else:
            update(self, *given, **named)

    return wrapped  # type: ignore[return-value]


def merged_by_class(classes: list[Tensor], *columns: list[Tensor]) -> tuple[Tensor, ...]:
    """Return the different classes (C,) in ascending order, and for each the sums of the rows of `columns`, (C, ...).

    Args:
        classes: Tensors (n_k,) with the classes of the rows.
        columns: Each has tensors (n_k, ...) with the rows.
    """
    seen, which = torch.cat(classes).unique(return_inverse=True)
    added = (
        rows.new_zeros(len(seen), *rows.shape[1:]).index_add_(0, which.to(rows.device), rows)
        for rows in map(torch.cat, columns)
    )
    return seen, *added


def by_sample(name: str, value: Tensor, views: int = 1) -> Tensor:
    """Transpose `value` (V, N, D), of V >= `views` views, to (N, V, D). A `value` (N, D) is a single view.

    A ValueError is raised for other shapes. `name` is the name of the argument for the message, "h", "z" or "latent".
    """
    if value.ndim == 2 and views == 1:
        return value.unsqueeze(1)
    if value.ndim != 3 or len(value) < views:
        dim = {"z": "P", "latent": "d"}.get(name, "D")
        wanted = f"(V, N, {dim}) with V >= {views} views" if views > 1 else f"(V, N, {dim}) or (N, {dim})"
        raise ValueError(f"Expected `{name}` of shape {wanted}, but got {tuple(value.shape)}.")
    return value.transpose(0, 1)


def first_view(name: str, value: Tensor) -> Tensor:
    """Return the first view (N, D) of `value` (V, N, D) or (N, D). Raise a ValueError for other shapes."""
    return by_sample(name, value)[:, 0]


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Context manager that sets the module to eval mode and turns inference mode off, so that autograd works."""
    modes = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        with torch.inference_mode(False):
            yield
    finally:
        for child, training in modes:
            child.training = training
