"""Samples, labels and settings that cannot be shown are one error that names the argument, or are left out."""

import math

import pytest
import torch

from lightning_ssl_geometry.diagnostics import (
    ClassAccuracy,
    ClassRank,
    NearestNeighbors,
    RankConvergence,
    RepresentationMap,
    ViewPairs,
)

N = 6
H, IMAGE = torch.randn(2, N, 4), torch.rand(N, 1, 8, 8)


def of_labels(make, label):
    return make().update(H, label=label, **({"image": IMAGE} if make is NearestNeighbors else {}))


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (torch.eye(N), r"`label` as class numbers, .* shape \(6, 6\)"),
        (torch.rand(N), r"`label` as class numbers, .* torch.float32"),
        (["a"] * N, "`label` as class numbers, .* a list of str"),
        (torch.arange(N - 1), r"`label` with N rows .* got \(5,\), \(6,\)"),
    ],
)
@pytest.mark.parametrize("make", [NearestNeighbors, RepresentationMap, ClassAccuracy, ClassRank])
def test_labels_that_are_no_classes(make, label, message):
    with pytest.raises(ValueError, match=message):
        of_labels(make, label)


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (ViewPairs, {"views": None}, r"`views` of V >= 2 tensors .* got \[\]"),
        (ViewPairs, {"views": (IMAGE, IMAGE[:4])}, r"`view_2` with N rows .* got \(4, 1, 8, 8\), \(6,\)"),
        (ViewPairs, {"views": (IMAGE[..., :0],) * 2}, "`views` of V >= 2 tensors"),
        (ViewPairs, {"views": (IMAGE.to(torch.complex64),) * 2}, "`views` of V >= 2 tensors"),
        (ViewPairs, {"views": (IMAGE, IMAGE), "image": H[0]}, r"`image` of shape \(N, C, H, W\), but got \(6, 4\)"),
        (ViewPairs, {"views": (IMAGE, IMAGE), "index": torch.arange(9)}, r"`index` of shape \(N,\), but got .* \(9,\)"),
        (NearestNeighbors, {"h": H, "image": IMAGE[:4]}, r"`image` with N rows .* got \(4, 1, 8, 8\), \(6,\)"),
        (NearestNeighbors, {"h": H, "image": IMAGE, "index": torch.arange(4)}, r"`index` of shape \(N,\)"),
        (NearestNeighbors, {"h": H, "image": IMAGE[:, :0]}, "`image` or `views` with images"),
    ],
)
def test_samples_that_do_not_fit_together(make, given, message):
    with pytest.raises(ValueError, match=message):
        make().update(**given)


@pytest.mark.parametrize(
    ("make", "given"), [(ViewPairs, {"views": (IMAGE, IMAGE)}), (NearestNeighbors, {"h": H, "image": IMAGE})]
)
def test_images_of_another_size_than_before_are_an_error(make, given):
    metric = make()
    metric.update(**given)
    larger = {"views": (torch.rand(N, 1, 9, 9),) * 2, "image": torch.rand(N, 1, 9, 9), "h": H}
    with pytest.raises(ValueError, match=r"rows of shape \(1, 8, 8\), as before, but got \(1, 9, 9\)"):
        metric.update(**{name: larger[name] for name in given})


@pytest.mark.parametrize("method", ["pca", "tsne"])
@pytest.mark.parametrize(
    ("h", "message"),
    [
        ((H[..., :0],), r"`h` with vectors of D >= 1 dimensions, but got \(6, 0\)"),
        ((H, H[..., :3]), r"`h` with rows of shape \(4,\), as before, but got \(3,\)"),
    ],
)
def test_vectors_without_a_width_or_of_another_one_are_an_error(method, h, message):
    metric = RepresentationMap(method)
    *others, last = h
    for rows in others:
        metric.update(rows)
    with pytest.raises(ValueError, match=message):
        metric.update(last)


@pytest.mark.parametrize("size", [1e30, 1e200])
@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_vectors_too_large_for_their_squares_have_the_map_of_small_ones(method, size):
    def found(h):
        metric = RepresentationMap(method)
        metric.update(h)
        return metric.compute()

    small, large = found(H.double()), found(size * H.double())
    assert large["coordinates"].isfinite().all()
    if method == "pca":
        torch.testing.assert_close(large["share"], small["share"])
        torch.testing.assert_close(large["coordinates"] / size, small["coordinates"])


def test_no_views_are_no_pairs():
    assert not ViewPairs.sees({"views": None})
    assert not ViewPairs.sees({})
    assert not NearestNeighbors.sees({"h": H, "views": None})


def test_views_and_images_of_other_channels_are_shown_in_those_of_the_first_view():
    colour = torch.rand(N, 3, 8, 8)
    metric = ViewPairs()
    metric.update((colour, IMAGE), torch.rand(N, 4, 8, 8))
    image, first, second = metric.compute()
    assert first.shape == second.shape == image.shape == (N, 3, 8, 8)
    assert torch.equal(second[:, 0], second[:, 2])
    metric = ViewPairs()
    metric.update((IMAGE, colour))
    torch.testing.assert_close(metric.compute()[2].mean(), colour.mean())


@pytest.mark.filterwarnings("ignore::lightning_ssl_geometry.diagnostics.UndefinedWarning")
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_neighbors_without_a_finite_h_are_the_samples_alone(value):
    known, lost = NearestNeighbors(neighbors=2), NearestNeighbors(neighbors=2)
    known.update(H, image=IMAGE, label=torch.arange(N))
    lost.update(H.index_fill(2, torch.tensor(0), value), image=IMAGE, label=torch.arange(N))
    expected, found = known.compute(), lost.compute()
    assert found.keys() == expected.keys()
    for name, each in found.items():
        assert each.shape == expected[name].shape
        assert each[:, 1:].isnan().all()
        torch.testing.assert_close(each[:, 0], expected[name][:, 0].double())


SETTINGS = [(ViewPairs, "count"), (NearestNeighbors, "count"), (NearestNeighbors, "neighbors"),
            (RepresentationMap, "count"), (ClassAccuracy, "neighbors"), (ClassAccuracy, "contrast_size"),
            (RankConvergence, "contrast_size"), (ClassRank, "contrast_size")]  # fmt: skip


@pytest.mark.parametrize("value", [2.5, math.inf, math.nan, "3", None, True, -1])
@pytest.mark.parametrize(("make", "name"), SETTINGS, ids=lambda each: getattr(each, "__name__", each))
def test_numbers_of_samples_are_integers(make, name, value):
    with pytest.raises(ValueError, match=rf"Expected `(contrast_size|{name})` (to be an integer )?>= "):
        make(**{name: value})


@pytest.mark.parametrize("seed", [0.5, math.nan, True, "3", None, 2**63])
def test_seeds_are_integers(seed):
    with pytest.raises(ValueError, match="Expected `seed` to be an integer between"):
        NearestNeighbors(seed=seed)
