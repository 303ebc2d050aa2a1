import copy

import pytest
import torch
from observations import at_once, of_rank
from torch import nn
from torch.testing import assert_close as close

from lightning_ssl_geometry.diagnostics.lie import LieGenerator, RotationRank
from lightning_ssl_geometry.functional.groups.lie import lie_action
from lightning_ssl_geometry.functional.groups.rotation import covariance_rank, rotate

N, D, K = 120, 8, 3


def generator():
    """A rotation of the first K coordinates."""
    g = torch.zeros(D, D)
    g[:K, :K] = torch.tensor([[0.0, -0.8, 0.2], [0.8, 0.0, -0.5], [-0.2, 0.5, 0.0]])
    return g


def act(image, strength):
    """The group acts on vectors, which are images of one row."""
    return lie_action(generator(), image.flatten(1), strength).view_as(image)


def vectors(n=N):
    return torch.randn(n, 1, 1, D, generator=torch.Generator().manual_seed(1)), torch.arange(n) * 7


def images(n=30, size=12):
    # float64: the fit of a generator to few images amplifies rounding 1e5 times, and processes may add in other orders
    generator = torch.Generator().manual_seed(2)
    return torch.rand(n, 1, size, size, generator=generator, dtype=torch.float64), torch.arange(n) * 7


def convolutional():
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return (
            nn.Sequential(
                nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(400, 6)
            )
            .eval()
            .double()
        )


def linear(columns):
    """A projector that keeps these coordinates only."""
    layer = nn.Linear(D, len(columns), bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(D)[columns])
    return layer


def fed(metric, image, index, chunks, *modules):
    networks = dict(zip(("encoder", "projector"), modules, strict=False))
    for rows in chunks:
        metric.update(image[rows], index[rows], **networks)
    return metric


CASES = {
    "rotation": (lambda: LieGenerator(contrast_size=20, dimensions=2), images, True),
    "rotation_exponential": (lambda: LieGenerator(contrast_size=16, order="exponential", seed=3), images, True),
    "planted": (lambda: LieGenerator(act, 1.0), vectors, False),
    "rank": (lambda: RotationRank((20, 180), count=10, contrast_size=3), images, True),
}


def observed(name, chunks):
    metric, source, pixels = CASES[name]
    encoder = convolutional() if pixels else nn.Flatten()
    image, index = source()
    return fed(metric(), image, index, [rows for rows in chunks(len(index)) if len(rows)], encoder).compute()


@pytest.mark.parametrize("name", CASES)
def test_it_does_not_depend_on_batches_or_order(name):
    once = observed(name, at_once)
    close(observed(name, lambda n: torch.arange(n).split(7)), once)
    close(observed(name, lambda n: torch.randperm(n).split(11)), once)
    close(observed(name, lambda n: [torch.arange(n), torch.arange(9)]), once)  # a repeated sample counts once


def rank_result(rank, name):
    return observed(name, lambda n: of_rank(rank, n, 10))


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_same_on_two_processes(name, two_processes):
    once = observed(name, at_once)
    for found in two_processes(rank_result, name):
        close(found, once)


@pytest.mark.parametrize("order", ["first", "exponential"])
def test_a_planted_group(order):
    metric = fed(LieGenerator(act, 1.0, order=order), *vectors(400), at_once(400), nn.Flatten())
    found = metric.compute()
    assert set(found) == {"r2", "r2_shuffled"}
    assert found["r2"] > (0.9 if order == "first" else 0.999)
    assert found["r2_shuffled"] < 0.1


def test_the_unit_of_the_strength_does_not_matter():
    once = fed(LieGenerator(act, 1.0), *vectors(), at_once(N), nn.Flatten()).compute()
    other = LieGenerator(lambda image, strength: act(image, strength / 50), 50.0)
    close(fed(other, *vectors(), at_once(N), nn.Flatten()).compute(), once, atol=1e-4, rtol=1e-4)


def test_rotations_through_an_encoder():
    """Off-centre dots are rotated; the encoder keeps every pixel, so that the angle can be found."""
    image, index = images(200)
    y, x = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    image = image * 0.05 + torch.exp(-((x - 5.5) ** 2 + (y - 2.5) ** 2) / 6)
    metric = LieGenerator(max_strength=20, order="exponential", dimensions=5)
    found = fed(metric, image, index, at_once(200), nn.Flatten()).compute()
    assert found["r2"] > 0.9
    assert found["r2_shuffled"] < 0.5


def test_the_null_space_of_a_planted_generator():
    for columns, expected in (([3, 4, 5], 1.0), ([0, 1, 2], 0.0)):
        projector = nn.Sequential(linear(columns))
        found = fed(LieGenerator(act, 1.0), *vectors(), at_once(N), nn.Flatten(), projector).compute()
        assert found["null_space"].item() == pytest.approx(expected, abs=1e-6)
        assert found["null_space_isotropic"].item() == 1 - 3 / D


def test_the_null_space_counts_singular_values_that_reach_tau():
    projector = nn.Linear(D, 2, bias=False)
    with torch.no_grad():
        projector.weight.copy_(torch.eye(2, D) * torch.tensor([[1.0], [1e-3]]))
    values = {}
    for tau in (1e-2, 1e-4):
        metric = LieGenerator(act, 1.0, tau=tau)
        values[tau] = fed(metric, *vectors(), at_once(N), nn.Flatten(), projector).compute()
    assert values[1e-2]["null_space_isotropic"] == 1 - 1 / D
    assert values[1e-4]["null_space_isotropic"] == 1 - 2 / D
    assert values[1e-2]["null_space"] > values[1e-4]["null_space"] > 0


def test_a_random_projector_gives_the_isotropic_null_space():
    mean = torch.zeros(2, dtype=torch.float64)
    metric = LieGenerator(act, 1.0)
    for _ in range(50):
        metric.reset()
        found = fed(metric, *vectors(), at_once(N), nn.Flatten(), nn.Linear(D, 3)).compute()
        mean += torch.stack([found["null_space"], found["null_space_isotropic"]]) / 50
    assert mean[0].item() == pytest.approx(mean[1].item(), abs=0.08)


def test_projectors_that_are_not_linear_leave_the_null_space_out():
    for projector in (None, nn.Sequential(nn.Linear(D, 3), nn.ReLU(), nn.Linear(3, 2))):
        found = fed(LieGenerator(act, 1.0), *vectors(), at_once(N), nn.Flatten(), projector).compute()
        assert set(found) == {"r2", "r2_shuffled"}


def test_nothing_moves():
    still = LieGenerator(lambda image, strength: image, 1.0)
    found = fed(still, *vectors(), at_once(N), nn.Flatten(), nn.Linear(D, 2)).compute()
    assert found["null_space"].isnan()
    assert found["r2"] <= 0


def test_dimensions_are_the_leading_directions():
    image, index = vectors()
    image = image * torch.cat([torch.full((K,), 10.0), torch.full((D - K,), 0.1)])
    metric, whole = LieGenerator(act, 1.0, dimensions=K), LieGenerator(act, 1.0)
    found = fed(metric, image, index, at_once(N), nn.Flatten(), linear([4])).compute()
    expected = fed(whole, image, index, at_once(N), nn.Flatten(), linear([4])).compute()
    assert found["r2"].item() == pytest.approx(expected["r2"].item(), abs=0.01)
    assert found["null_space"].item() == pytest.approx(1, abs=1e-4)


def test_rotation_rank_in_pixels_and_through_the_encoder():
    image, index = images(2)
    found = fed(RotationRank((30, 180), count=40), image, index, at_once(2), nn.Flatten()).compute()
    assert found["angles"].tolist() == [30, 180]
    assert found["pixels"].dtype == torch.float64
    torch.testing.assert_close(found["h"], found["pixels"])
    assert (found["pixels"].diff() >= 0).all()
    assert (found["pixels"] <= 39).all()
    narrow = nn.Sequential(nn.Flatten(), nn.Linear(144, 2, bias=False)).double()
    assert fed(RotationRank((90,), 40), image, index, at_once(2), narrow).compute()["h"].item() == 2
    blind = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Threshold(1e9, 0.3))  # sees nothing
    assert fed(RotationRank((90,), 40), image, index, at_once(2), blind).compute()["h"].item() == 0


def test_rotation_rank_is_the_functions():
    image, index = images(2)
    metric = fed(RotationRank((50,), count=15), image, index, at_once(2), nn.Flatten())
    angles = []
    metric._ranks = lambda encoder, x, angle: angles.append((x, angle)) or torch.zeros(2)
    metric.compute()
    expected = [covariance_rank(rotate(x.expand(15, -1, -1, -1), a).flatten(1)).item() for x, a in angles]
    assert all(a.min() >= 0 and a.max() < 50 for _, a in angles)
    again = fed(RotationRank((50,), count=15), image, index, at_once(2), nn.Flatten()).compute()
    assert again["pixels"].item() == sum(expected) / 2


METRICS = {"generator": lambda: LieGenerator(order="exponential", dimensions=3), "rank": lambda: RotationRank((9,), 9)}


@pytest.mark.parametrize("name", METRICS)
def test_encoders_and_the_random_state_are_left_as_they_were(name):
    encoder = convolutional()
    encoder.train()
    encoder[1].eval()
    modes = [module.training for module in encoder.modules()]
    before, state = copy.deepcopy(encoder.state_dict()), torch.get_rng_state()
    metric = fed(METRICS[name](), *images(), at_once(30), encoder)
    found = metric.compute()
    assert [module.training for module in encoder.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    close(encoder.state_dict(), before, atol=0, rtol=0)
    assert all(parameter.grad is None for parameter in encoder.parameters())
    with torch.inference_mode():
        metric = fed(METRICS[name](), *(x.clone() for x in images()), at_once(30), encoder)
        close(metric.compute(), found)


@pytest.mark.parametrize("name", METRICS)
def test_reset_forgets_samples_and_modules(name):
    encoder, other = convolutional(), nn.Flatten()
    image, index = images()
    metric = fed(METRICS[name](), image + 1, index + 1, at_once(30), encoder)
    metric.compute()
    with pytest.raises(ValueError, match="stands still"):
        metric.update(image, index, encoder=other)
    metric.reset()
    found = fed(metric, image, index, at_once(30), other).compute()
    close(found, fed(METRICS[name](), image, index, at_once(30), other).compute())


@pytest.mark.parametrize("name", METRICS)
def test_modules_must_stand_still(name):
    encoder = convolutional()
    metric = fed(METRICS[name](), *images(), at_once(30), encoder)
    with torch.no_grad():
        encoder[0].weight.add_(1)
    with pytest.raises(ValueError, match="stands still"):
        metric.compute()


def test_the_projector_must_stand_still():
    projector = nn.Linear(D, 2)
    metric = fed(LieGenerator(act, 1.0), *vectors(), at_once(N), nn.Flatten(), projector)
    with torch.no_grad():
        projector.weight.add_(1)
    with pytest.raises(ValueError, match="Linear that stands still"):
        metric.compute()


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
@pytest.mark.parametrize("make", [LieGenerator, RotationRank])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda make: make(tau=2), r"`tau` in \(0, 1\], but got 2"),
        (
            lambda make: make().update(torch.ones(3, 4, 4), torch.arange(3), encoder=nn.Flatten()),
            r"`image` of shape \(N, C, H, W\), but got \(3, 4, 4\)",
        ),
        (
            lambda make: make().update(
                torch.ones(2, 1, 4, 4, dtype=torch.uint8), torch.arange(2), encoder=nn.Flatten()
            ),
            r"`image` of a float dtype, but got torch.uint8",
        ),
        (
            lambda make: make().update(torch.ones(2, 1, 4, 4), torch.arange(3), encoder=nn.Flatten()),
            "`image` with N rows and `index`",
        ),
        (lambda make: make().compute(), "but got none"),
        (
            lambda make: fed(make(), *images(), at_once(30), nn.Identity()).compute(),
            r"`encoder` to return \(N, D\) for N = .* images, but got",
        ),
    ],
)
def test_bad_input_of_both(make, call, message):
    with pytest.raises(ValueError, match=message):
        call(make)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LieGenerator(contrast_size=3), "`contrast_size` >= 4, but got 3"),
        (lambda: RotationRank(contrast_size=1), "`contrast_size` >= 2, but got 1"),
        (lambda: LieGenerator(max_strength=0), "`max_strength` > 0 and finite, but got"),
        (lambda: LieGenerator(max_strength=-1), "`max_strength` > 0 and finite, but got"),
        (lambda: LieGenerator(max_strength=float("inf")), "`max_strength` > 0 and finite, but got"),
        (lambda: LieGenerator(max_strength=float("nan")), "`max_strength` > 0 and finite, but got"),
        (lambda: LieGenerator(order="second"), r"`order` to be one of \('first', 'exponential'\), but got 'second'"),
        (lambda: LieGenerator(dimensions=0), "`dimensions` >= 1, but got 0"),
        (lambda: LieGenerator(ridge=-1), "`ridge` >= 0 and finite, but got -1"),
        (lambda: RotationRank(()), "`ranges` with at least one angle, each > 0 and finite"),
        (lambda: RotationRank((10, 0)), "`ranges` with at least one angle, each > 0 and finite"),
        (lambda: RotationRank((float("inf"),)), "`ranges` with at least one angle, each > 0 and finite"),
        (lambda: RotationRank(count=1), "`count` >= 2, but got 1"),
        (lambda: fed(LieGenerator(), *images(3), at_once(3), nn.Flatten()).compute(), "at least 4 samples, but got 3"),
        (
            lambda: fed(LieGenerator(act, dimensions=9), *vectors(), at_once(N), nn.Flatten()).compute(),
            "`dimensions` <= D = 8, but got 9",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
