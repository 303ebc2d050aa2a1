import sys

import pytest
from torch import nn

from lightning_ssl_geometry.nn.equivariant.escnn import EscnnBackbone, EscnnCNN


@pytest.fixture(autouse=True)
def _no_escnn(monkeypatch):
    monkeypatch.setitem(sys.modules, "escnn", None)  # importing it raises, also where it is installed


@pytest.mark.parametrize("make", [EscnnCNN, lambda: EscnnBackbone(nn.Identity())], ids=["cnn", "adapter"])
@pytest.mark.parametrize(
    "advice",
    [
        r"pip install 'lightning-ssl-geometry\[escnn\]'",
        r"py3nj, which needs a Fortran compiler \(gfortran\)",
        r"override-dependencies = \[\"py3nj ; sys_platform == 'never'\"\]",
        r"numpy below 2, so give it an environment of its own",
    ],
)
def test_making_a_backbone_without_escnn_says_how_to_install_it(make, advice):
    with pytest.raises(ImportError, match=advice):
        make()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"in_channels": 0}, "`in_channels` to be an integer >= 1, but got 0"),
        ({"width": 0}, "`width` to be an integer >= 1, but got 0"),
        ({"rotations": 0}, "`rotations` to be an integer >= 1, but got 0"),
        ({"kernel_sizes": [11, 6, 7]}, r"`kernel_sizes` of positive odd numbers, but got \[11, 6, 7\]"),
        ({"kernel_sizes": []}, r"`kernel_sizes` of positive odd numbers, but got \[\]"),
        ({"strides": [1, 2]}, r"`strides` of 3 positive numbers, but got \[1, 2\]"),
        ({"strides": [1, 2, 0]}, r"`strides` of 3 positive numbers, but got \[1, 2, 0\]"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        EscnnCNN(**arguments)
