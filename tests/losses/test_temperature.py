import pickle
import warnings

import pytest
import torch

from lightning_ssl_geometry.losses import (
    ContentStyleTemperature,
    EqualizingTemperature,
    GradientSpectrumTemperature,
    LearnedTemperature,
)

pytestmark = pytest.mark.filterwarnings("ignore:The temperature of content")
Z = torch.zeros(2, 4)


def pairs(n, content, style, sigma_c, sigma_s, variance=1.0):
    """Independent normal outputs of one variance, and their positives."""
    z1 = variance**0.5 * torch.randn(n, content + style)
    return z1, z1 + torch.tensor([sigma_c] * content + [sigma_s] * style) * torch.randn_like(z1)


def test_half_and_half():
    assert ContentStyleTemperature(5)(torch.zeros(2, 5), torch.zeros(2, 5)).tolist() == pytest.approx(
        [0.7, 0.7, 1, 1, 1]
    )
    rule = ContentStyleTemperature(4, tau_c=0.5, tau_s=2.0, content_dim=3)
    assert rule(Z, Z).tolist() == [0.5, 0.5, 0.5, 2.0]
    assert "temperature=(0.5, 0.5, 0.5, 2.0)" in repr(rule)
    assert rule.state_dict() == {}


def test_equalizing():
    rule = EqualizingTemperature(4, sigma_c=0.01, sigma_s=0.04, content_dim=1)
    assert rule(Z, Z).tolist() == [0.25, 1, 1, 1]
    assert "temperature=(0.25, 1.0, 1.0, 1.0)" in repr(rule)
    with pytest.warns(UserWarning, match="below `floor` = 0.3"):
        rule = EqualizingTemperature(4, sigma_c=0.0, sigma_s=0.04, content_dim=1, floor=0.3)
    assert rule(Z, Z).tolist() == pytest.approx([0.3, 1, 1, 1])


def test_a_learned_temperature_is_two_over_the_precision():
    rule = LearnedTemperature(4, initial=[0.5, 1.0, 2.0, 4.0])
    torch.testing.assert_close(rule(Z, Z), torch.tensor([0.5, 1.0, 2.0, 4.0]))
    torch.testing.assert_close(rule.precision, torch.tensor([4.0, 2.0, 1.0, 0.5]))
    torch.testing.assert_close(rule(Z, Z), 2 / rule.precision)
    assert [name for name, _ in rule.named_parameters()] == ["log_precision"]
    assert "dim=4" in repr(rule)


@pytest.mark.parametrize("content", [0, 1, 3])
@pytest.mark.parametrize("rotated", [False, True])
def test_the_gradient_spectrum_gives_proposition_3(content, rotated):
    rule = GradientSpectrumTemperature(4, floor=0.01)
    rotation = torch.linalg.qr(torch.randn(4, 4)).Q if rotated else torch.eye(4)
    for _ in range(20):
        z1, z2 = pairs(500, content, 4 - content, sigma_c=0.02, sigma_s=0.2)
        tau = rule(z1 @ rotation, z2 @ rotation)
    assert (tau < 1).sum() == content
    assert tau[tau < 1].tolist() == pytest.approx([0.1] * content, rel=0.05)  # sigma_c / sigma_s
    if not rotated:
        assert (tau[:content] < 1).all()
    assert tau.dtype == torch.float32


def test_exact_content_has_the_temperature_of_the_floor_and_this_is_said_once():
    rule = GradientSpectrumTemperature(4, floor=0.25)
    views = pairs(500, 2, 2, sigma_c=0.0, sigma_s=0.2)
    with pytest.warns(UserWarning, match=r"The temperature of content .* is below `floor` = 0\.25") as said:
        assert rule(*views).tolist() == [0.25, 0.25, 1, 1]
    # The content's share of the change is 0 but for rounding of 4 x 4 matrices whose condition is near 1.
    tau_c = float(str(said[0].message).split(",")[1])
    assert 0 <= tau_c <= (16 * torch.finfo(torch.float64).eps) ** 0.5
    with warnings.catch_warnings(action="error"):
        assert rule(*views).tolist() == [0.25, 0.25, 1, 1]


def test_the_averages_are_those_of_all_batches_and_then_exponential():
    rule = GradientSpectrumTemperature(1, momentum=0.75)
    variances = [1.0, 2.0, 3.0, 4.0, 8.0, 16.0]
    for variance in variances:
        z = variance**0.5 * torch.tensor([[1.0], [-1.0]])
        rule(z, 3 * z)
    mean = torch.tensor([[((1 + 2 + 3 + 4) / 4 * 0.75 + 8 * 0.25) * 0.75 + 16 * 0.25]], dtype=torch.float64)
    torch.testing.assert_close(rule.marginal, mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(rule.conditional, 4 * mean, rtol=1e-6, atol=0)
    assert rule.batches == 6


def test_a_batch_that_is_refused_leaves_no_trace():
    rule, z = GradientSpectrumTemperature(2), torch.randn(16, 2)
    rule(z, 1.1 * z)
    before = {name: value.clone() for name, value in rule.state_dict().items()}
    with pytest.raises(ValueError, match="Expected finite `z1`"):
        rule(z / 0, 1.1 * z)
    torch.testing.assert_close(dict(rule.state_dict()), before, rtol=0, atol=0)


def test_it_looks_in_training_only():
    rule = GradientSpectrumTemperature(3)
    views = pairs(500, 1, 2, sigma_c=0.0, sigma_s=0.2)
    assert rule.eval()(*views).tolist() == [1, 1, 1]  # it has seen nothing
    assert rule.batches == 0
    seen = rule.train()(*views)
    assert seen.min() < 1
    assert torch.equal(rule.eval()(*pairs(500, 0, 3, 0.0, 0.2)), seen)


def test_it_has_no_gradient_and_goes_on_from_its_state():
    rule = GradientSpectrumTemperature(3, momentum=0.5)
    z1, z2 = pairs(50, 1, 2, sigma_c=0.0, sigma_s=0.2)
    assert not rule(z1.requires_grad_(), z2).requires_grad
    assert not list(rule.parameters())
    again = GradientSpectrumTemperature(3, momentum=0.5)
    again.load_state_dict(rule.state_dict())
    views = pairs(50, 1, 2, sigma_c=0.01, sigma_s=0.2)
    assert torch.equal(again(*views), rule(*views))
    assert torch.equal(pickle.loads(pickle.dumps(rule)).marginal, rule.marginal)
    assert "dim=3, momentum=0.5, floor=0.1, min_ratio=10.0" in repr(rule)


def test_constant_outputs_are_not_content():
    z1, z2 = pairs(500, 1, 2, sigma_c=0.001, sigma_s=0.2)
    dead = torch.full((500, 1), 0.3)  # whose mean is not 0.3 to the last digit
    tau = GradientSpectrumTemperature(4)(torch.cat([dead, z1], dim=1), torch.cat([dead, z2], dim=1))
    assert tau.tolist() == pytest.approx([1, 0.1, 1, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ContentStyleTemperature(0), "Expected `dim` >= 1, but got 0"),
        (lambda: ContentStyleTemperature(4, content_dim=5), "0 <= content_dim <= dim = 4, but got 5"),
        (lambda: ContentStyleTemperature(4, tau_c=-1.0), r"Expected `tau_c` > 0 and finite, but got -1\.0"),
        (lambda: EqualizingTemperature(4, 0.1, -1.0, 2), r"Expected `sigma_s` > 0 and finite, but got -1\.0"),
        (lambda: LearnedTemperature(0), "Expected `dim` >= 1, but got 0"),
        (lambda: LearnedTemperature(4, initial=-1.0), r"Expected `temperature` > 0 and finite, but got -1\.0"),
        (lambda: LearnedTemperature(4, initial=[1.0, 2.0]), "with P = 4 values, one per dimension, but got 2"),
        (lambda: GradientSpectrumTemperature(0), "Expected `dim` >= 1, but got 0"),
        (lambda: GradientSpectrumTemperature(4, momentum=1.0), r"`momentum` in \[0, 1\), but got 1\.0"),
        (lambda: GradientSpectrumTemperature(4, floor=2.0), r"`floor` in \(0, 1\], but got 2\.0"),
        (lambda: GradientSpectrumTemperature(4, min_ratio=1.0), r"`min_ratio` > 1 and finite, but got 1\.0"),
        (lambda: GradientSpectrumTemperature(4, eps=-1.0), r"`eps` > 0 and finite, but got -1\.0"),
        (lambda: GradientSpectrumTemperature(3)(Z, Z), r"`z1` of shape \(N, P\), P = 3, but got"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
