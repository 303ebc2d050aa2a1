"""Our layers beside the published code of Sosnovik et al. 2020, whose outputs for the weights below are recorded here.

The code is github.com/ISosnovik/sesn, classes SESConv_Z2_H and SESConv_H_H, run with torch 2.15.0 in float32. Weights
and images are `wave`, and its filters are those of types A and B. A case has the outputs at seven places, which are a
seventh of the output apart, and the root mean square of the output, of the first layer and of the second.
"""

import math

import pytest
import torch
from torch.testing import assert_close

from lightning_ssl_geometry.nn.equivariant import GroupConv2d, LiftingConv2d, layers

PAPER = (1.0, 1.25, 1.33, 1.5, 1.66, 1.75)
RECORDED = [  # type, kernel size, effective size, scales, stride and scale size of the second layer, outputs
    (
        ("A", 7, 3, PAPER, 1, 1),
        (3.4456, -2.2142, -1.0258, -1.3516, 0.7335, 1.9499, 1.3359, 1.57674),
        (10.1652, -17.4147, -2.7099, -5.6554, -8.3492, 12.0388, 3.9328, 8.56734),
    ),
    (
        ("A", 11, 3, (1.0, 1.75), 2, 2),
        (3.1841, 0.579, -1.8215, 2.8592, 0.1309, -0.3023, -0.1562, 1.75977),
        (9.4461, 15.3662, 5.5315, -2.6801, 6.6821, 5.3693, 2.9722, 10.94669),
    ),
    (
        ("A", 7, 7, (0.9, 1.1), 1, 2),
        (-0.9939, 5.905, -1.568, -5.2171, 0.926, -1.2298, -0.8997, 4.92545),
        (16.4661, 16.0643, -4.7347, -97.1838, -102.404, 136.3049, -45.8273, 70.97341),
    ),
    (
        ("B", 7, 4, (0.9, 1.26, 1.76), 1, 1),
        (1.6644, -0.071, 2.6301, -3.3095, 0.146, 1.0362, -0.6803, 2.12814),
        (7.5245, 1.2032, 6.8794, 13.3579, 14.0009, 1.1233, -3.8502, 13.49415),
    ),
    (
        ("B", 9, 5, (0.9, 1.273, 1.8), 2, 3),
        (3.6774, 1.9209, -3.2549, 4.1099, 1.6916, -1.0384, -3.4859, 2.9469),
        (42.1136, -19.9099, 3.0917, 10.477, -26.4501, 11.2525, -7.7942, 32.91985),
    ),
]


def wave(*shape):
    return torch.sin(torch.arange(1, math.prod(shape) + 1, dtype=torch.float64) ** 1.5).view(shape).float()


def summary(z):
    return torch.stack([*z.flatten()[:: z.numel() // 7][:7], z.square().mean().sqrt()])


@pytest.mark.parametrize(("case", "lifted", "grouped"), RECORDED, ids=[str(case[0]) for case in RECORDED])
@pytest.mark.parametrize("faster", [False, True])
def test_outputs_of_the_published_layers(case, lifted, grouped, faster, monkeypatch):
    monkeypatch.setattr(layers, "pays", lambda *_, **__: faster)  # matrix products, where the filters are separable
    basis_type, kernel_size, effective_size, scales, stride, scale_size = case
    settings = {"scales": scales, "basis_type": basis_type}
    first = LiftingConv2d(2, 3, kernel_size, effective_size, **settings)
    second = GroupConv2d(3, 2, kernel_size, effective_size, stride=stride, scale_size=scale_size, **settings)
    with torch.no_grad():
        for layer in (first, second):
            layer.weight.copy_(wave(*layer.weight.shape))
        y = first(wave(1, 2, 13, 13))
        z = second(y)
    assert_close(summary(y), torch.tensor(lifted), rtol=1e-5, atol=1e-4)
    assert_close(summary(z), torch.tensor(grouped), rtol=1e-5, atol=2e-4)
