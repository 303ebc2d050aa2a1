"""A loss without arguments has the documented settings: each is another loss at double the value."""

import pytest
import torch

from lightning_ssl_geometry.functional import augmentation_channel_loss, byol, info_nce, variational_loss, vicreg
from lightning_ssl_geometry.losses import (
    AdaptiveTemperatureLoss,
    AugmentationChannelLoss,
    BYOLLoss,
    ContentStyleTemperature,
    EqualizingTemperature,
    GradientSpectrumTemperature,
    InfoNCELoss,
    LearnedTemperature,
    VariationalLoss,
    VICRegLoss,
)


def views():
    return torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)


def test_simclrs_temperature_is_a_half():

    z1, z2 = views()
    torch.testing.assert_close(InfoNCELoss()(z1, z2), info_nce(z1, z2, 0.5, form="NT_XENT"))


def test_calder_and_lees_temperature_is_a_tenth():
    z1, z2 = views()
    torch.testing.assert_close(VariationalLoss()(z1, z2), variational_loss(z1, z2, temperature=0.1))


def test_crl_tacs_inverse_temperature_is_a_half():
    z = torch.randn(4, 3, 2, dtype=torch.float64)
    torch.testing.assert_close(AugmentationChannelLoss()(z), augmentation_channel_loss(z, None, 0.5, jensen=True))


def test_vicregs_weights_are_25_and_25_and_1():
    z1, z2 = views()
    settings = {"invariance": 25.0, "variance": 25.0, "covariance": 1.0, "gamma": 1.0, "eps": 1e-4}
    torch.testing.assert_close(VICRegLoss()(z1, z2), vicreg(z1, z2, **settings))


def test_the_deprecated_loss_has_temperature_1():
    z1, z2 = views()
    with pytest.warns(FutureWarning, match="AdaptiveTemperatureLoss"):
        loss = AdaptiveTemperatureLoss()
    form = {"form": "RUSAK", "normalize": False, "similarity": "distance"}
    torch.testing.assert_close(loss(z1, z2), info_nce(z1, z2, 1.0, **form))


def test_byol_treats_rows_of_a_hundred_millionth_as_zero():
    # The error of a unit vector and 0 is 1; of two unit vectors it is |q - z|^2.
    unit = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    short, shorter = 1.5e-8 * unit, 0.5e-8 * unit
    torch.testing.assert_close(BYOLLoss()(short, short, unit, unit), unit.new_zeros(()))
    assert BYOLLoss()(shorter, shorter, unit, unit) > 1
    torch.testing.assert_close(BYOLLoss()(short, unit, unit, short), byol(short, unit, unit, short, eps=1e-8))


@pytest.mark.filterwarnings("ignore:The equalizing temperature of content")
def test_the_temperatures_settings():
    z = torch.zeros(2, 4)
    assert EqualizingTemperature(4, sigma_c=0.0, sigma_s=1.0, content_dim=1)(z, z).tolist() == pytest.approx(
        [0.1, 1, 1, 1]
    )
    assert ContentStyleTemperature(4)(z, z).tolist() == pytest.approx([0.7, 0.7, 1, 1])
    assert LearnedTemperature(4)(z, z).tolist() == pytest.approx([1, 1, 1, 1])
    rule = GradientSpectrumTemperature(4)
    assert (rule.momentum, rule.floor, rule.min_ratio, rule.eps) == (0.99, 0.1, 10.0, 1e-6)
