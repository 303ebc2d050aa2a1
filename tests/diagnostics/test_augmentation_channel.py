import copy
import inspect
import math

import pytest
import torch
from observations import of_rank
from torch.nn.functional import normalize

from lightning_ssl_geometry.diagnostics import (
    EmbeddingVectors,
    NonEmptyProbability,
    PairSimilarity,
    PolicyEntropy,
    PolicyMaps,
)
from lightning_ssl_geometry.diagnostics.undefined import UndefinedWarning
from lightning_ssl_geometry.views.family import CropFamily

N, P = 40, 5
FAMILY = CropFamily(image_size=6, size=2, stride=2)  # 3 x 3 crops that do not overlap
OF_IMAGES = {
    "non_empty": NonEmptyProbability(),
    "entropy": PolicyEntropy(),
    "maps": PolicyMaps(count=4),
    "maps_of_all": PolicyMaps(count=50, seed=3),
    "similarity": PairSimilarity(),
    "similarity_of_20": PairSimilarity(quantiles=7, contrast_size=20),
    "embeddings": EmbeddingVectors(count=10),
}


def data():
    generator = torch.Generator().manual_seed(1)
    image = torch.full((N, 2, 6, 6), -0.4)
    for n, square in enumerate(image):
        square[:, n % 6, 2 * n % 6] = torch.rand(2, generator=generator)  # one pixel, in one of the crops
    return {
        "image": image,
        "log_policy": torch.randn(N, 9, generator=generator).log_softmax(1),
        "z_image": normalize(torch.randn(N, P, generator=generator, dtype=torch.float64), dim=1),
        "index": torch.arange(N) * 7,
        "label": torch.arange(N) % 3,
    }


def fed(metric, chunks):
    metric, given = copy.deepcopy(metric), data()
    for rows in chunks:
        update(metric, {name: value[rows] for name, value in given.items()})
    return metric


def update(metric, given):
    given = given | {"family": FAMILY}
    metric.update(**{name: given[name] for name in inspect.signature(metric.update).parameters})


def close(found, expected):
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", OF_IMAGES)
def test_it_does_not_depend_on_batches_or_order(name):
    once = fed(OF_IMAGES[name], [torch.arange(N)]).compute()
    close(fed(OF_IMAGES[name], torch.arange(N).split(7)).compute(), once)
    close(fed(OF_IMAGES[name], torch.randperm(N).split(11)).compute(), once)


def rank_result(rank, name):
    return fed(OF_IMAGES[name], of_rank(rank, N, 10)).compute()


@pytest.mark.parametrize("name", OF_IMAGES)
def test_it_is_the_same_on_two_processes(name, two_processes):
    once = fed(OF_IMAGES[name], [torch.arange(N)]).compute()
    for found in two_processes(rank_result, name):
        close(found, once)


@pytest.mark.parametrize("name", OF_IMAGES)
def test_reset_forgets(name):
    metric = fed(OF_IMAGES[name], [torch.arange(17)])
    metric.compute()
    metric.reset()
    update(metric, data())
    close(metric.compute(), fed(OF_IMAGES[name], [torch.arange(N)]).compute())


@pytest.mark.parametrize("name", ["maps", "similarity", "similarity_of_20", "embeddings"])
def test_a_repeated_sample_counts_once(name):
    once = fed(OF_IMAGES[name], [torch.arange(N)]).compute()
    close(fed(OF_IMAGES[name], [torch.arange(N), torch.arange(9)]).compute(), once)


def test_non_empty_probability_is_that_of_crops_with_a_pixel_in_them():
    given = data()
    found = fed(NonEmptyProbability(), [torch.arange(N)]).compute()
    mass = 0.0
    for image, log_policy in zip(given["image"], given["log_policy"], strict=True):
        for place, (top, left) in enumerate(FAMILY.corner.tolist()):
            if (image[:, top : top + 2, left : left + 2] > -0.4).any():
                mass += log_policy[place].exp().item() / N
    assert found["learned"].item() == pytest.approx(mass)
    assert found["uniform"].item() == pytest.approx(1 / 9)  # each pixel is in one crop of nine


def test_non_empty_probability_of_a_uniform_policy_is_its_baseline_and_of_the_best_one_is_1():
    image = data()["image"]
    metric = NonEmptyProbability()
    metric.update(image, torch.zeros(N, 9), FAMILY)  # logits, of any common factor
    close(*metric.compute().values())
    metric.reset()
    metric.update(image, (~FAMILY.empty(image)).double().log(), FAMILY)
    assert metric.compute()["learned"].item() == pytest.approx(1)


def test_blank_images_count_as_0_with_a_warning():
    given, rest = data(), torch.arange(N) % 8 != 0
    given["image"][~rest] = 0.7
    metric, filled = NonEmptyProbability(), NonEmptyProbability()
    for rows in torch.arange(N).split(1):
        metric.update(given["image"][rows], given["log_policy"][rows], FAMILY)
    with pytest.warns(UserWarning, match="All views of 5 of 40 images are empty: they count as 0") as caught:
        found = metric.compute()
    assert len(caught) == 1
    filled.update(given["image"][rest], given["log_policy"][rest], FAMILY)
    for name, value in filled.compute().items():
        assert found[name].item() == pytest.approx(value.item() * 35 / 40)


def test_entropy_is_that_of_the_policy():
    metric = PolicyEntropy()
    metric.update(torch.zeros(3, 9))
    assert metric.compute().item() == pytest.approx(math.log(9))
    metric.update(torch.full((3, 9), -torch.inf).index_fill(1, torch.tensor([4]), 0.0))  # certain
    assert metric.compute().item() == pytest.approx(math.log(9) / 2)
    policy = data()["log_policy"].double()
    slow = -sum((p.exp() * p).item() for row in policy for p in row) / N
    assert fed(PolicyEntropy(), [torch.arange(N)]).compute().item() == pytest.approx(slow)


def test_maps_lie_beside_their_images():
    given = data()
    found = fed(PolicyMaps(count=50), [torch.randperm(N)]).compute()
    assert found["image"].shape == (N, 6, 6)
    assert found["probability"].shape == (N, 3, 3)
    close(found["probability"].sum((1, 2)), torch.ones(N).double())
    grey, policy = given["image"].double().mean(1), given["log_policy"].double().exp().view(N, 3, 3)
    for image, probability in zip(found["image"], found["probability"], strict=True):
        row = int((grey - image).abs().sum((1, 2)).argmin())
        close(probability, policy[row])


def test_other_seeds_show_other_samples():
    few = [fed(PolicyMaps(count=4, seed=seed), [torch.arange(N)]).compute()["image"] for seed in (0, 0, 1)]
    assert torch.equal(few[0], few[1])
    assert not torch.equal(few[0], few[2])


def test_pair_similarities_are_those_of_all_pairs_in_order():
    z = data()["z_image"]
    slow = sorted(abs(float(z[i] @ z[j])) for i in range(N) for j in range(i))
    metric = PairSimilarity(quantiles=len(slow))
    metric.update(3 * z, torch.arange(N))
    close(metric.compute(), torch.tensor(slow, dtype=torch.float64))
    few = fed(PairSimilarity(quantiles=3), [torch.arange(N)]).compute()
    close(few[[0, 2]], torch.tensor([min(slow), max(slow)], dtype=torch.float64))


@pytest.mark.parametrize(("z", "expected"), [(torch.eye(30), 0.0), (torch.ones(30, 4), 1.0), (-torch.ones(30, 4), 1.0)])
def test_pair_similarity_of_orthogonal_and_of_collapsed_embeddings(z, expected):
    z[::2] *= -1  # of opposite sign is in the same direction
    metric = PairSimilarity()
    metric.update(z, torch.arange(30))
    close(metric.compute(), torch.full((101,), expected, dtype=torch.float64))


def test_the_sample_of_embeddings_keeps_rows_and_labels_together():
    given = data()
    found = fed(EmbeddingVectors(count=10), [torch.randperm(N)]).compute()
    assert found["label"].shape == (10, 1)
    for z, label in zip(found["z"], found["label"], strict=True):
        row = int((given["z_image"] - z).abs().sum(1).argmin())
        assert torch.equal(given["z_image"][row], z)
        assert given["label"][row] == label
    alone = EmbeddingVectors(count=10)
    alone.update(given["z_image"], given["index"])
    assert torch.equal(alone.compute()["z"], found["z"])
    assert set(alone.compute()) == {"z"}


@pytest.mark.parametrize("make", [PolicyEntropy, NonEmptyProbability])
def test_a_policy_with_nan_gives_nan_and_says_so(make):
    given, metric = data(), make()
    given["log_policy"][3, 2] = math.nan
    update(metric, given)
    with pytest.warns(UndefinedWarning, match=rf"{make.__name__} is NaN: a value of `log_policy` is NaN"):
        found = metric.compute()
    first = next(iter(found.values())) if isinstance(found, dict) else found
    assert first.isnan()


def test_bad_input():
    given = data()
    image, log_policy, z, index = (given[name] for name in ("image", "log_policy", "z_image", "index"))
    for make in (PolicyMaps, EmbeddingVectors):
        with pytest.raises(ValueError, match="`count` >= 2, but got 1"):
            make(count=1)
    with pytest.raises(ValueError, match="`quantiles` >= 2, but got 1"):
        PairSimilarity(quantiles=1)
    with pytest.raises(ValueError, match=r"`log_policy` of shape \(N, K\), N = 40, K = 9, but got \(40, 8\)"):
        NonEmptyProbability().update(image, log_policy[:, :8], FAMILY)
    blank = NonEmptyProbability()
    blank.update(torch.full_like(image, 0.7), log_policy, FAMILY)
    with pytest.warns(UndefinedWarning, match="NonEmptyProbability is NaN: all views of all 40 images are empty"):
        assert all(value.isnan() for value in blank.compute().values())
    with pytest.raises(ValueError, match=r"`log_policy` of shape \(N, K\), K = 9, but got \(40, 8\)"):
        PolicyMaps().update(image, log_policy[:, :8], FAMILY, index)
    shapeless = copy.deepcopy(FAMILY)
    shapeless.grid = None
    with pytest.raises(ValueError, match="`family` with a grid of its members, but got CropFamily"):
        PolicyMaps().update(image, log_policy, shapeless, index)
    for make in (PairSimilarity, EmbeddingVectors):
        with pytest.raises(ValueError, match=r"`z_image` of shape \(N, P\), but got \(1, 40, 5\)"):
            make().update(z[None], index)
    metric = EmbeddingVectors()
    metric.update(z, index)
    with pytest.raises(ValueError, match="`label` in every batch or in none, but got both"):
        metric.update(z, index, given["label"])
