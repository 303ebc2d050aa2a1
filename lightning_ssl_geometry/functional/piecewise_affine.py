r"""The affine pieces of a projector: local maps, regions, and the variance that each sample's own map explains.

Cosentino et al., Toward a Geometrical Understanding of Self-supervised Contrastive Learning (2022), Sec. 5. An MLP with
(leaky) ReLU divides the encoder's space into regions and is affine on each region (Eq. 11):

.. math:: g(h) = \sum_{\omega \in \Omega} 1_{h \in \omega} (W_\omega^T h + b_\omega)
"""

__all__ = ["activation_pattern", "affine_map", "linear_regions", "local_unexplained_variance", "unexplained_squares"]

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lightning_ssl_geometry.checks import at_least, embeddings, one_of, shaped
from lightning_ssl_geometry.functional.spectrum import RankMode, singular_values_rank
from lightning_ssl_geometry.introspection import check_settled, vectors
from lightning_ssl_geometry.precision import in_float64

_AFFINE = {  # name -> which arguments may depend on h together
    **dict.fromkeys(("mm", "linear", "neg", "rsub", "div", "cat", "slice", "split", "split_with_sizes"), ("0",)),
    **dict.fromkeys(("add", "sub"), ("0", "1", "01")),
    **{"mul": ("0", "1"), "addmm": ("1", "01")},
}
_RESHAPES = {"view", "_unsafe_view", "_reshape_alias", "alias", "detach", "clone", "squeeze", "unsqueeze"}
_BATCH_NORMS = {"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit_no_training"}
_BREAKS: dict[str, Callable[..., tuple[Any, ...]]] = {  # aten arguments -> where the slope changes
    **dict.fromkeys(("relu", "leaky_relu", "_prelu_kernel"), lambda x, *_: (0.0,)),
    "hardtanh": lambda x, low=-1.0, high=1.0: (low, high),
    "clamp": lambda x, low=None, high=None: tuple(end for end in (low, high) if end is not None),
    **dict.fromkeys(("clamp_min", "clamp_max"), lambda x, end: (end,)),
}


def affine_map(projector: nn.Module, h: Tensor, *, chunk_size: int = 256) -> tuple[Tensor, Tensor]:
    r"""Compute the projector's affine map near each sample (Eq. 11 of Cosentino et al. 2022, plus a bias).

    .. math:: g(h) = W_i^T h + b_i \text{ near } h_i, \quad W_i = \Bigl(\frac{\partial g}{\partial h}(h_i)\Bigr)^T

    The map is exact for a piecewise affine projector. Otherwise (GELU, layer norm) it is the tangent map at h_i.

    Args:
        projector: g, (N, D) -> (N, P), which maps each sample independently.
        h: (N, D).
        chunk_size: Number of samples computed at a time. Fewer samples take less memory.

    Returns:
        W (N, D, P), for a `nn.Linear` the transpose of its weight, and b (N, P), both detached.

    Raises:
        ValueError: If a shape is wrong, or batch norm or dropout is not in eval mode.

    >>> layer = nn.Linear(3, 2)
    >>> torch.equal(affine_map(layer, torch.randn(5, 3))[0][4], layer.weight.T)
    True
    """
    embeddings("N, D", h=h)
    at_least(1, chunk_size=chunk_size)
    weights, biases = [], []
    with _plain(projector, h) as rows:
        for x in rows.split(chunk_size):
            with torch.enable_grad():
                z = _embedded(projector, x.requires_grad_())
                columns = z.sum(0).unbind()  # its derivative by h_i is that of g(h_i), since samples are independent
            weights.append(torch.stack([torch.autograd.grad(c, x, retain_graph=True)[0] for c in columns], 2))
            biases.append(z.detach() - torch.einsum("ndp,nd->np", weights[-1], x.detach()))
    return torch.cat(weights), torch.cat(biases)


def activation_pattern(projector: nn.Module, h: Tensor) -> Tensor:
    """Return booleans (N, A): on which side of each activation's breakpoints each sample lies.

    A ReLU, leaky ReLU or PReLU unit has one column, which is True if the unit's input is above 0. A hardtanh or
    two-sided clamp has two columns, one for each end. Columns are in order of execution. Functions such as `F.relu`
    count like modules. A linear projector has A = 0.

    Args:
        projector: g, (N, D) -> (N, P), piecewise affine in h.
        h: (N, D).

    Raises:
        ValueError: If an operation is not piecewise affine, a shape is wrong, or batch norm or dropout is in train
            mode.

    >>> activation_pattern(nn.ReLU(), torch.tensor([[1.0, -1.0], [2.0, 3.0]])).tolist()
    [[True, False], [True, True]]
    """
    embeddings("N, D", h=h)
    patterns = []
    with _plain(projector, h) as rows:
        for x in rows.split(1024):  # all activations of a chunk are held
            with _Trace(x) as trace:
                z = _embedded(projector, x)
            if not trace.follows(z):
                _refuse("an output that does not depend on h by these alone")
            patterns.append(torch.cat([x.new_empty(len(x), 0, dtype=torch.bool), *trace.sides], 1))
    return torch.cat(patterns)


def linear_regions(projector: nn.Module, h: Tensor) -> Tensor:
    """Return the index of each sample's region in the projector's partition Omega (Eq. 11 of Cosentino et al. 2022).

    Samples with the same :func:`activation_pattern` share a region. It describes the arguments and errors. Units that
    do not affect the output split one affine piece into several regions. The result is (N,) int64, counted from 0.

    >>> linear_regions(nn.ReLU(), torch.tensor([[1.0], [-1.0], [2.0]]))
    tensor([1, 0, 1])
    """
    embeddings("N, D", h=h)
    pattern = nn.functional.pad(activation_pattern(projector, h), (0, 1))  # `unique` needs a column
    return torch.unique(pattern, dim=0, return_inverse=True)[1]


def local_unexplained_variance(
    delta: Tensor, weight: Tensor, tau: float | None = None, *, mode: RankMode = "relative"
) -> Tensor:
    r"""Return the fraction of squared displacements outside the column spaces of the projector's local matrices W_i.

    .. math:: \sum_i \min_{t_i \in \mathbb R^P} \|\delta h_i - W_i t_i\|^2 \Big/ \sum_i \|\delta h_i\|^2

    W_i (D, P) is the matrix of the affine map that equals the projector near sample i. The formula is Eq. 10 of
    Cosentino et al. 2022, with W_i in place of W as in their Sec. 5. The result is a float64 scalar in [0, 1].
    Isotropic displacements give 1 - r / D, with r the mean rank of the W_i.

    Args:
        delta: (N, D), the displacements.
        weight: W_i (N, D, P), from :func:`affine_map`, in float32 or float64.
        tau: Threshold; singular values of W_i below it count as 0. None: max(D, P) times the machine epsilon of
            `weight`'s dtype times the largest singular value.
        mode: "absolute", "relative" or "cumulative": how :func:`numerical_rank` reads `tau`.

    Raises:
        ValueError: If a shape, the dtype, `tau` or `mode` is out of range, or all displacements are zero.

    >>> delta = torch.tensor([[3.0, 4.0]])
    >>> round(local_unexplained_variance(delta, torch.tensor([[[1.0], [0.0]]])).item(), 4)  # 16 / 25
    0.64
    """
    embeddings("N, D", delta=delta)
    squares, _ = unexplained_squares(delta, weight, [tau], mode=mode)
    if not delta.any():
        raise ValueError("Expected `delta` with at least one displacement that is not zero, but all are.")
    return squares.sum() / in_float64(delta).square().sum()


def unexplained_squares(
    delta: Tensor, weight: Tensor, taus: Sequence[float | None], *, mode: RankMode = "relative"
) -> tuple[Tensor, Tensor]:
    """Compute the terms of the numerator of :func:`local_unexplained_variance` for T thresholds `taus`.

    The results (T, N) are the squared distances from the column spaces, float64, and the ranks of the W_i, int64.

    >>> unexplained_squares(torch.tensor([[3.0, 4.0]]), torch.tensor([[[1.0], [0.0]]]), [None])
    (tensor([[16.]], dtype=torch.float64), tensor([[1]]))
    """
    shaped("N, D", delta=delta)
    shaped("N, D, P", dict(zip("ND", delta.shape, strict=True)), weight=weight)
    one_of((torch.float32, torch.float64), **{"weight.dtype": weight.dtype})
    delta = in_float64(delta)
    u, sigma, _ = torch.linalg.svd(in_float64(weight), full_matrices=False)  # (N, D, d), (N, d)
    exact = singular_values_rank(sigma, torch.finfo(weight.dtype).eps * max(weight.shape[1:]), mode="relative")
    cut = [exact if tau is None else singular_values_rank(sigma, tau, mode=mode) for tau in taus]
    rank = torch.minimum(torch.stack(cut), exact)  # (T, N)
    kept = torch.arange(u.shape[2], device=u.device) < rank[..., None]  # (T, N, d)
    t = torch.einsum("ndk,nd->nk", u, delta) * kept
    squares = (delta - torch.einsum("ndk,tnk->tnd", u, t)).square().sum(-1)
    return torch.minimum(squares, delta.square().sum(1)), rank  # rounding may exceed it


@contextmanager
def _plain(projector: nn.Module, h: Tensor) -> Iterator[Tensor]:
    if h.ndim != 2 or not len(h):
        raise ValueError(f"Expected `h` of shape (N, D) with N >= 1, but got {tuple(h.shape)}.")
    check_settled(projector, "projector", "map")
    dtype = next((p.dtype for p in projector.parameters() if p.is_floating_point()), h.dtype)
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(h.device.type, enabled=False):
        yield h.clone().to(dtype)


def _embedded(projector: nn.Module, h: Tensor) -> Tensor:
    return vectors(projector(h.clone()), h, "projector")  # layers may work in place


class _Trace(TorchDispatchMode):
    """Records the activation pattern of h, and refuses operations that are not piecewise affine in h."""

    def __init__(self, h: Tensor) -> None:
        super().__init__()
        self.n = len(h)
        self.sides: list[Tensor] = []
        self.followed = {id(h): h}  # kept alive, so that no id is used again

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not (inputs := self.follows((args, kwargs))):
            return func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::").removesuffix("_")  # in place or not
        self._admit(name, func._schema.is_mutable, args, kwargs=kwargs)
        self.sides += [(args[0] > end).reshape(self.n, -1) for end in _BREAKS.get(name, lambda *_: ())(*args)]
        out = func(*args, **kwargs)
        for result in out[:1] if name in _BATCH_NORMS else tree_leaves(out):
            kept = all(x.ndim == result.ndim and len(x) == len(result) for x in inputs)
            if not (len(result) % self.n == 0 if name in _RESHAPES and result.ndim else kept):
                _refuse(f"`{name}` across samples, {tuple(inputs[0].shape)} -> {tuple(result.shape)}")
            self.followed[id(result)] = result
        return out

    def follows(self, tree: Any) -> list[Tensor]:
        return [leaf for leaf in tree_leaves(tree) if id(leaf) in self.followed]

    def _admit(self, name: str, mutates: bool, args: Any, kwargs: Any) -> None:
        if name not in {*_AFFINE, *_BREAKS, *_RESHAPES, *_BATCH_NORMS}:
            _refuse(f"`{name}`")
        places = "".join(str(i) for i, arg in enumerate(args) if self.follows(arg))
        named = kwargs.keys() & {"out", "rounding_mode"} or self.follows(kwargs)
        if named or places not in _AFFINE.get(name, ("0",)) or (mutates and "0" not in places):
            _refuse(f"`{name}` in which h enters as argument {' and '.join(places)}")
        if name in _BATCH_NORMS and args[5] is True:  # the flag `training`, or a number in variants without it
            _refuse(f"`{name}` with statistics of the batch")


def _refuse(what: str) -> NoReturn:
    raise ValueError(
        "Expected `projector` to be piecewise affine: linear layers, (leaky) ReLU, PReLU, hardtanh, clamp, batch norm "
        "and dropout in eval mode, sums, products with constants, slices of features, and views that keep each sample "
        f"apart; but got {what}."
    )
