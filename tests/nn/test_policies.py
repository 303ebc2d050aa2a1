"""A policy over crops that follows their content."""

import pytest
import torch

from lightning_ssl_geometry.nn import ConvPolicy
from lightning_ssl_geometry.views import CropFamily


@pytest.mark.parametrize(
    ("image_size", "size", "stride", "reduction"),
    [(84, 20, 4, 4), (24, 6, 2, 2), (24, 6, 2, 1), (21, 5, 3, 1), (28, 20, 4, 4)],
)
def test_one_logit_per_crop(image_size, size, stride, reduction):
    family = CropFamily(image_size, size, stride)
    policy = ConvPolicy(2, size, stride, width=4, reduction=reduction)
    assert policy(torch.randn(3, 2, image_size, image_size)).shape == (3, len(family))


def test_it_moves_with_the_image():
    """An object in the middle of a cell, in another cell: the same logits, as far away."""
    policy = ConvPolicy(width=4).double()
    patch = torch.rand(20, 20, dtype=torch.float64)
    image = torch.zeros(2, 1, 84, 84, dtype=torch.float64)
    image[0, 0, 32:52, 32:52] = image[1, 0, 36:56, 24:44] = patch
    first, second = policy(image).view(2, 17, 17)
    torch.testing.assert_close(first.roll((1, -2), (0, 1))[3:-3, 3:-3], second[3:-3, 3:-3])
    assert (first - second).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "`size` to be an integer >= 1, but got 0"),
        ({"reduction": 3}, r"`reduction` to be 1, 2 or 4 and to divide 20 \(`size`\) and 4 \(`stride`\), but got 3"),
        ({"size": 21, "reduction": 2}, r"to divide 21 \(`size`\) and 4 \(`stride`\), but got 2"),
        ({"stride": 2}, r"and 2 \(`stride`\), but got 4"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ConvPolicy(**arguments)
