import pytest
import torch
from observations import at_once, of_rank
from torch import nn

from lightning_ssl_geometry import functional as F
from lightning_ssl_geometry.diagnostics import LieGenerator, PolicyGenerators, UndefinedWarning
from lightning_ssl_geometry.functional.tangent import share_outside

N, SIZE = 80, 5
D = 3 * SIZE**2


def images(n=N, channels=3):
    generator = torch.Generator().manual_seed(2)
    return torch.rand(n, channels, SIZE, SIZE, generator=generator, dtype=torch.float64), torch.arange(n) * 7


def linear(dim=D, out=6):
    layer = nn.Linear(dim, out, bias=False).double()
    layer.weight.data = torch.randn(out, dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return layer


def fed(metric, image, index, chunks=None, encoder=None, projector=None):
    encoder = nn.Flatten() if encoder is None else encoder
    for rows in [torch.arange(len(index))] if chunks is None else chunks:
        metric.update(image[rows], index[rows], encoder=encoder, projector=projector)
    return metric


def close(found, expected, **tolerance):
    torch.testing.assert_close(found, expected, **tolerance)


def test_each_group_is_that_of_the_generator_alone():
    """With all dimensions and one group, the fits are LieGenerator's."""
    image, index = images()
    for group, strength in (("brightness", 0.3), ("zoom", 0.2)):
        own = PolicyGenerators({group: strength}, dimensions=D)
        alone = LieGenerator(lambda x, e, group=group: F.one_parameter_action(x, e, group), strength, dimensions=D)
        found = fed(own, image, index, projector=linear()).compute()
        expected = fed(alone, image, index, projector=linear()).compute()
        close(found[f"r2_{group}"], expected["r2"], atol=1e-6, rtol=1e-6)
        close(found["r2_shuffled"], expected["r2_shuffled"], atol=1e-6, rtol=1e-6)
        close(found[f"null_space_{group}"], expected["null_space"], atol=1e-6, rtol=1e-6)
        close(found["null_space_span"], expected["null_space"], atol=1e-6, rtol=1e-6)
        for name in ("null_space_between_samples", "null_space_isotropic"):
            close(found[name], expected[name])


def test_brightness_scales_what_is_linear_in_the_pixels():
    found = fed(PolicyGenerators({"brightness": 0.1}), *images()).compute()
    assert set(found) == {"r2_brightness", "r2_shuffled"}
    assert found["r2_brightness"] > 0.99 > 0.3 > found["r2_shuffled"]


def test_the_gain_is_that_of_the_displacements():
    image, index = images()
    metric = fed(PolicyGenerators({"hue": 0.1, "translation": 2.0}, 0.4, 0.5), image, index, projector=linear())
    seen = []
    encoder = nn.Flatten()
    encoder.register_forward_hook(lambda module, given, out: seen.append(out))
    found = fed(
        PolicyGenerators({"hue": 0.1, "translation": 2.0}, 0.4, 0.5), image, index, encoder=encoder, projector=linear()
    ).compute()
    close(found, metric.compute())
    h, hue, translation = seen
    weight = linear().weight.detach().T
    close(found["gain_hue"], F.projector_gain(hue - h, weight))
    close(found["gain_translation"], F.projector_gain(translation - h, weight))
    pairs = torch.combinations(torch.arange(N))
    close(found["gain_between_samples"], F.projector_gain(h[pairs[:, 0]] - h[pairs[:, 1]], weight))


def test_a_projector_that_ignores_grays_ignores_brightness_and_no_hue():
    image, index = images()
    colors = torch.eye(3, dtype=torch.float64) - 1 / 3
    gray = image.mean(1, keepdim=True).expand(-1, 3, -1, -1)  # brightness moves along grays only
    projector = nn.Linear(D, D, bias=False).double()
    projector.weight.data = torch.kron(colors, torch.eye(SIZE**2, dtype=torch.float64))
    found = fed(PolicyGenerators({"brightness": 0.3}, dimensions=D), gray, index, projector=projector).compute()
    assert found["gain_brightness"].item() == pytest.approx(0, abs=1e-12)
    assert found["null_space_brightness"].item() == pytest.approx(1)
    found = fed(PolicyGenerators({"hue": 0.1}, dimensions=D), image, index, projector=projector).compute()
    assert found["gain_hue"].item() == pytest.approx(1.5)  # all of it lies in 2 of 3 dimensions
    assert found["null_space_hue"].item() == pytest.approx(0, abs=1e-9)


def test_the_span_weighs_all_groups_alike():
    image, index = images()
    projector, made = linear(), []
    strengths = {"brightness": 0.3, "hue": 0.1, "rotation": 20.0}
    metric = PolicyGenerators(strengths)
    original = metric._of_projector
    metric._of_projector = lambda *given, **named: made.append(named["generators"]) or original(*given, **named)
    found = fed(metric, image, index, projector=projector).compute()
    moments = [g @ g.T / g.square().sum() for g in made[0].values()]
    basis = torch.linalg.svd(projector.weight.detach().T, full_matrices=False).U
    close(found["null_space_span"], share_outside(sum(moments), basis))
    shares = torch.stack([found[f"null_space_{group}"] for group in strengths])
    close(found["null_space_span"], shares.mean())


def observed(chunks):
    image, index = images()
    parts = [rows for rows in chunks(N) if len(rows)]
    metric = PolicyGenerators(contrast_size=20, dimensions=2)
    return fed(metric, image, index, parts, projector=linear()).compute()


def rank_result(rank):
    return observed(lambda n: of_rank(rank, n, 10))


def test_it_does_not_depend_on_batches_order_or_processes(two_processes):
    once = observed(at_once)
    close(observed(lambda n: torch.arange(n).split(7)), once)
    close(observed(lambda n: torch.randperm(n).split(11)), once)
    for found in two_processes(rank_result):
        close(found, once)


def test_images_of_one_channel_have_no_hue():
    image, index = images(channels=1)
    with pytest.warns(UndefinedWarning, match="images of one channel have no saturation and no hue"):
        found = fed(PolicyGenerators(dimensions=8), image, index).compute()
    known = {key for key, value in found.items() if not value.isnan()} - {"r2_shuffled"}
    assert known == {f"r2_{group}" for group in ("brightness", "contrast", "zoom", "translation", "rotation")}
    assert {key for key, value in found.items() if value.isnan()} == {"r2_saturation", "r2_hue"}
    with pytest.raises(ValueError, match="3 channels for 'hue', but got 1"):
        fed(PolicyGenerators({"hue": 0.1}), image, index)


def test_images_of_three_channels_have_all_declared_results():
    image, index = images()
    found = fed(PolicyGenerators(dimensions=8), image, index, projector=linear()).compute()
    assert set(found) == set(PolicyGenerators.quantities)
    assert all(value.isfinite() for value in found.values())


def test_projectors_that_are_not_linear_leave_the_strengths():
    image, index = images()
    projector = nn.Sequential(nn.Linear(D, 3), nn.ReLU(), nn.Linear(3, 2)).double()
    found = fed(PolicyGenerators({"hue": 0.1}), image, index, projector=projector).compute()
    assert set(found) == {"r2_hue", "r2_shuffled"}


def test_a_blind_encoder_has_no_gain_and_says_so():
    encoder = nn.Sequential(nn.Flatten(), nn.Threshold(1e9, 0.3))
    with pytest.warns(UndefinedWarning, match="h does not move by hue"):
        found = fed(PolicyGenerators({"hue": 0.1}), *images(), encoder=encoder, projector=linear()).compute()
    assert found["gain_hue"].isnan()
    assert found["null_space_hue"].isnan()
    assert found["null_space_span"].isnan()


def test_what_is_not_finite_is_nan_with_its_reason():
    image, index = images()
    expected = fed(PolicyGenerators({"hue": 0.1}), image, index, projector=linear()).compute()
    image[3, 0, 0, 0] = torch.nan
    with pytest.warns(UndefinedWarning, match="an image is not finite"):
        found = fed(PolicyGenerators({"hue": 0.1}), image, index, projector=linear()).compute()
    assert set(found) == set(expected)
    assert all(value.isnan() for value in found.values())
    with pytest.warns(UndefinedWarning):
        assert set(fed(PolicyGenerators({"hue": 0.1}), image, index).compute()) == {"r2_hue", "r2_shuffled"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strengths": ["hue"]}, r"`strengths` to be a dict of groups and numbers, but got \['hue'\]"),
        ({"strengths": {"shear": 1.0}}, "`a key of strengths` to be one of .*'hue'.*, but got 'shear'"),
        ({"strengths": {"hue": 0.0}}, r"`strengths\['hue'\]` > 0 and finite, but got 0.0"),
        ({"strengths": {}}, "`strengths` with at least one group, but got none"),
        ({"dimensions": 0}, "`dimensions` >= 1, but got 0"),
        ({"contrast_size": 3}, "`contrast_size` >= 4, but got 3"),
        ({"order": "second"}, "`order` to be one of"),
        ({"ridge": -1.0}, "`ridge` >= 0"),
        ({"tau": 2.0}, "`tau` in"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        PolicyGenerators(**settings)
