"""A map of the representation h in two dimensions."""

__all__ = ["RepresentationMap"]

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import one_of, whole
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows, first_view
from lightning_ssl_geometry.diagnostics.thumbnails import consistent
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.principal_components import principal_components
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity

Method = Literal["pca", "tsne", "umap"]
_TEXTS = {
    "pca": "Each point is the h of a sample, in the two directions in which h varies most (principal components). "
    "Classes may lie apart in other directions.",
    "tsne": "Each point is the h of a sample, placed by t-SNE so that neighbours in h stay neighbours. Sizes of groups "
    "and distances between groups mean nothing.",
    "umap": "Each point is the h of a sample, placed by UMAP so that neighbours in h stay neighbours. Sizes of groups "
    "and distances between groups mean little.",
}
_LARGEST = 1e15  # the others compute squares in float32
_NAMES = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}


def _quantities(method: Method) -> dict[str, Quantity]:
    name = _NAMES[method]
    chart = Chart(f"representation_map_{method}", f"The representation in two dimensions ({name})")
    axes = ("first component", "second component") if method == "pca" else (f"{name} 1", f"{name} 2")
    quantity = partial(Quantity, chart=chart)
    return {
        "coordinates": quantity(
            title="Representation in two dimensions", text=_TEXTS[method], picture=Picture("points", names=axes)
        ),
        "label": quantity(title="Class", picture=Picture("points", role="label")),
        "share": quantity(title="Share of the variance", bounds=(0, 1), picture=Picture("points", role="x")),
    }


class RepresentationMap(SampledRows):
    """The representations h of some samples in two dimensions, coloured by class.

    Observes h of the images without augmentation, or else the first view of h, and the index of each image in the data
    set. The result `coordinates` (n, 2) is NaN if h is not finite. `label` (n, 1) has the classes, if known. For "pca",
    `share` (1, 2) has each axis' share of the variance of h. Memory: O(count D). `compute` costs
    O(count D min(count, D)) for "pca". "tsne" and "umap" take seconds, at every readout.

    Args:
        method: "pca" (:func:`functional.principal_components`), "tsne" (scikit-learn) or "umap" (the package
            umap-learn, which is not installed by default).
        count: Number of samples, >= 2.
        seed: Determines which samples are kept, and the random numbers of "tsne" and "umap".
    """

    section = "data"
    cost = Cost(update="n D + N D", compute="N D^2", memory="N D", uncounted="t-SNE and UMAP, if chosen")
    quantities: ClassVar[dict[str, Quantity]] = _quantities("pca")

    def __init__(self, method: Method = "pca", count: int = 400, seed: int = 0) -> None:
        one_of(get_args(Method), method=method)
        whole(2, count=count)
        if method == "umap" and find_spec("umap") is None:
            raise ModuleNotFoundError(
                "Expected umap-learn to be installed, since `method`='umap' needs umap-learn. Run "
                "`pip install 'lightning-ssl-geometry[umap]'` or `pip install umap-learn`.",
                name="umap",
            )
        super().__init__(("h", "label"), count, seed)
        self.method = method
        self.has_label: bool | None = None
        self.quantities = _quantities(method)  # type: ignore[misc]

    @classmethod
    def sees(cls, observation: Mapping[str, Any]) -> bool:
        return "h" in observation

    def update(
        self, h: Tensor, index: Tensor | None = None, label: Tensor | None = None, h_image: Tensor | None = None
    ) -> None:
        """Add `h_image` (N, D), or else the first view of `h` (V, N, D), with `index` (N,) and `label` (N,)."""
        name, rows = ("h", first_view("h", h)) if h_image is None else ("h_image", h_image)
        if rows.ndim != 2 or not rows.shape[1]:
            raise ValueError(f"Expected `{name}` with vectors of D >= 1 dimensions, but got {tuple(rows.shape)}.")
        self.has_label = consistent(self.has_label if self.key else None, label)
        self.offer(index, h=rows, **({} if label is None else {"label": label}))

    def compute(self) -> dict[str, Tensor]:
        rows = self.rows()
        h, found = in_float64(rows["h"]), {}
        if "label" in rows:
            found["label"] = rows["label"].unsqueeze(1)
        if not h.isfinite().all():
            return {"coordinates": undefined(self, "`h` is not finite", like=h.new_empty(len(h), 2))} | found
        if self.method == "pca":
            coordinates, share = principal_components(h)
            return {"coordinates": coordinates, "share": share.unsqueeze(0)} | found
        h = h / h.abs().max() if (h.abs() > _LARGEST).any() else h
        place = _by_tsne if self.method == "tsne" else _by_umap
        return {"coordinates": torch.from_numpy(place(h.numpy(force=True), self.seed)).to(h)} | found


def _by_tsne(h: Any, seed: int) -> Any:
    from sklearn.manifold import TSNE

    return TSNE(perplexity=min(30.0, (len(h) - 1) / 3), init="random", random_state=seed).fit_transform(h)


def _by_umap(h: Any, seed: int) -> Any:
    import umap

    return umap.UMAP(n_neighbors=min(15, len(h) - 1), random_state=seed, n_jobs=1).fit_transform(h)
