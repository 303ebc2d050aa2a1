"""SklearnDataModule: tables that scikit-learn brings along, which need no download."""

__all__ = ["SklearnDataModule"]

from typing import Literal, Unpack, get_args

import torch

from lightning_ssl_geometry.checks import inside, one_of
from lightning_ssl_geometry.data.base import Images, ViewSettings
from lightning_ssl_geometry.data.parts import Parts, PartsDataModule
from lightning_ssl_geometry.settings import passed_on

Table = Literal["breast_cancer", "iris", "wine"]


class SklearnDataModule(PartsDataModule):
    """A table of scikit-learn as vectors: one row is one sample, and its features are standardised.

    | name | samples | features | classes |
    | --- | --- | --- | --- |
    | breast_cancer | 569 | 30 | 2 |
    | iris | 150 | 4 | 3 |
    | wine | 178 | 13 | 3 |

    Args:
        name: "breast_cancer", "iris" or "wine".
        batch_size: Samples per process.
        test_fraction: Fraction of the samples to hold out as the test set, in (0, 1).
        **settings: `views`, `val_fraction`, `subset`, `seed` and `drop_last` of :class:`ImageDataModule`. `seed` also
            draws the test set. If `views` is None, they are `VectorViews()`.

    Raises:
        ValueError: If an argument is out of range.
    """

    @passed_on
    def __init__(
        self,
        name: Table = "breast_cancer",
        batch_size: int = 128,
        *,
        test_fraction: float = 0.2,
        **settings: Unpack[ViewSettings],
    ) -> None:
        super().__init__(batch_size, test_fraction=test_fraction, **settings)
        one_of(get_args(Table), name=name)
        inside("(0, 1)", test_fraction=test_fraction)
        self.name = name
        self._names: list[str] = []

    def parts(self) -> Parts:
        """Read the table."""
        from sklearn import datasets

        table = getattr(datasets, f"load_{self.name}")()
        self._names = [str(name) for name in table.target_names]
        return Parts(Images(torch.from_numpy(table.data).float(), torch.from_numpy(table.target).long()))

    def names(self) -> list[str]:
        return self._names
