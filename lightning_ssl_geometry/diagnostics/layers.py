"""The outputs of several layers for the same samples."""

__all__ = ["LayerSample"]

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from lightning_ssl_geometry.checks import at_least
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows
from lightning_ssl_geometry.quantity import Quantity


class LayerSample(SampledRows):
    """The outputs of several layers for the same samples, to compare layers or models.

    Results for n samples: `sample` (n,) holds their indices in the data set. `layer_0` (n, D_0), `layer_1` (n, D_1) and
    so on are the outputs. `label` (n,) is added if given. Memory: O(contrast_size) times the sum of the widths.

    Args:
        num_layers: Number of layers, >= 1.
        contrast_size: Number of samples kept, >= 2.
        seed: Determines which samples are kept.
    """

    section = "layers"
    cost = Cost(update="n D + N D", compute="N D", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "sample": Quantity(title="Sample", text="Position of each kept sample in its data set.", shown=False),
        "label": Quantity(title="Label", text="Class of each kept sample.", shown=False),
        "layer": Quantity(title="Output of a layer", text="A row for each kept sample.", shown=False, parts=True),
    }

    def __init__(self, num_layers: int, contrast_size: int = 1024, seed: int = 0) -> None:
        at_least(1, num_layers=num_layers)
        super().__init__(("sample", "label", *(f"layer_{k}" for k in range(num_layers))), contrast_size, seed)
        self.num_layers = num_layers

    def update(self, layers: Sequence[Tensor], index: Tensor | None = None, label: Tensor | None = None) -> None:
        """Add one output (N, D_l) for each layer l, `index` (N,) and, if known, `label` (N,)."""
        if len(layers) != self.num_layers:
            raise ValueError(f"Expected `layers` of {self.num_layers} tensors, but got {len(layers)}.")
        columns = {f"layer_{k}": layer for k, layer in enumerate(layers)}
        index = self.numbers.of(index, layers[0])
        self.keep(index, sample=index, **({} if label is None else {"label": label}), **columns)

    def compute(self) -> dict[str, Tensor]:
        return self.rows()
