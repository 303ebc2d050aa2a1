"""Pictures of the data: pairs of views, nearest neighbours, a map in two dimensions, and accuracy by class."""

import copy
import inspect
from itertools import product

import numpy as np
import pytest
import torch
from observations import of_rank
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

from lightning_ssl_geometry.diagnostics import ClassAccuracy, NearestNeighbors, RepresentationMap, ViewPairs

N, D = 60, 8
METRICS = {
    "views": ViewPairs(count=4),
    "views_of_all": ViewPairs(count=90),
    "neighbors": NearestNeighbors(count=3, neighbors=2, contrast_size=20),
    "neighbors_of_all": NearestNeighbors(count=5, neighbors=4),
    "map": RepresentationMap(count=30),
    "classes": ClassAccuracy(neighbors=5, contrast_size=40),
}


def data(side=6, channels=2):
    generator = torch.Generator().manual_seed(1)
    image = torch.randn(N, channels, side, side, generator=generator)
    h = torch.randn(2, N, D, generator=generator, dtype=torch.float64)
    return {
        "views": (image + 1, image + 2),
        "image": image,
        "h": h,
        "h_image": h.mean(0),
        "index": torch.arange(N) * 7,
        "label": torch.arange(N) % 3,
    }


def part(given, rows):
    found = {name: value[rows] for name, value in given.items() if name not in ("h", "views")}
    return found | {"h": given["h"][:, rows], "views": tuple(view[rows] for view in given["views"])}


def fed(metric, chunks, given=None, without=()):
    metric, given = copy.deepcopy(metric), given or data()
    for rows in chunks:
        names = inspect.signature(metric.update).parameters.keys() - set(without)
        metric.update(**{name: value for name, value in part(given, rows).items() if name in names})
    return metric


def computed(name, chunks, **settings):
    return fed(METRICS[name], chunks, **settings).compute()


def close(found, expected):
    torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("name", METRICS)
def test_it_does_not_depend_on_batches_or_order(name):
    once = computed(name, [torch.arange(N)])
    close(computed(name, torch.arange(N).split(7)), once)
    close(computed(name, torch.randperm(N).split(11)), once)
    close(computed(name, [*torch.arange(N).split(13), torch.arange(9)]), once)  # a repeated sample counts once


def rank_result(rank, name):
    return computed(name, of_rank(rank, N, 10))


@pytest.mark.parametrize("name", METRICS)
def test_it_is_the_same_on_two_processes(name, two_processes):
    once = computed(name, [torch.arange(N)])
    for found in two_processes(rank_result, name):
        close(found, once)


@pytest.mark.parametrize("name", METRICS)
def test_only_samples_that_may_be_kept_are_looked_at(name):
    """The state never has more rows than asked for, and its images are small."""
    metric = fed(METRICS[name], torch.arange(N).split(7), data(side=100))
    kept = [part for state in metric.metric_state.values() if isinstance(state, list) for part in state]
    assert kept
    assert all(len(part) <= metric.contrast_size for part in kept)
    assert all(max(part.shape[2:]) <= 48 for part in kept if part.ndim == 4)


def test_a_pair_is_two_views_below_its_image():
    found = ViewPairs(count=4)
    given = data(channels=3)
    found.update(given["views"], given["image"], given["index"])
    picture = found.compute()
    assert picture.shape == (3, 4, 3, 6, 6)
    close(picture[1], picture[0] + 1)
    close(picture[2], picture[0] + 2)
    kept = [bool((given["image"] == each).flatten(1).all(1).any()) for each in picture[0]]
    assert all(kept)


def test_pairs_without_an_image_have_an_empty_first_row():
    picture = fed(ViewPairs(count=4), [torch.arange(N)], without=("image",)).compute()
    assert picture[0].isnan().all()
    assert picture[1:].isfinite().all()


@pytest.mark.parametrize("side", [6, 48, 100])
def test_a_thumbnail_is_the_image_or_its_mean_over_areas_in_gray_or_colour(side):
    for channels in (1, 2, 3, 4):
        given = data(side, channels)
        picture = fed(ViewPairs(count=60), [torch.arange(N)], given).compute()
        least = min(side, 48)
        assert picture.shape == (3, N, channels if channels in (1, 3) else 1, least, least)
        torch.testing.assert_close(picture[0].mean(), given["image"].mean(), atol=2e-3, rtol=0)


def test_an_image_of_another_size_or_shape_has_the_size_of_its_views():
    given = data(side=12)
    given["views"] = tuple(view[..., ::2, ::3] for view in given["views"])
    assert fed(ViewPairs(count=4), [torch.arange(N)], given).compute().shape == (3, 4, 1, 6, 4)


def test_neighbors_are_those_that_numpy_finds_and_the_sample_comes_first():
    given = data()
    found = fed(METRICS["neighbors_of_all"], [torch.arange(N)]).compute()
    h, label = given["h_image"].numpy(), given["label"].numpy()
    unit = h / np.linalg.norm(h, axis=1, keepdims=True)
    cosine = unit @ unit.T
    gray = given["image"].mean(1)
    for row in range(5):
        anchor = next(n for n in range(N) if torch.allclose(gray[n], found["image"][row, 0, 0].float()))
        others = np.argsort(-np.where(np.arange(N) == anchor, -9.0, cosine[anchor]))[:4]
        close(found["image"][row, 1:, 0].float(), gray[others])
        close(found["label"][row], torch.from_numpy(label[[anchor, *others]]))
        close(found["cosine"][row], torch.from_numpy(np.append(1.0, cosine[anchor, others])))


def test_the_samples_of_the_neighbors_do_not_depend_on_h():
    given = data()
    other = given | {"h": -given["h"].flip(1), "h_image": given["h_image"].flip(0) ** 3}
    first, second = (fed(METRICS["neighbors"], [torch.arange(N)], each).compute() for each in (given, other))
    close(first["image"][:, 0], second["image"][:, 0])
    assert not torch.equal(first["image"], second["image"])


def test_without_clean_images_the_first_view_stands_for_a_sample():
    given = data(channels=1)
    found = fed(METRICS["neighbors"], [torch.arange(N)], given, without=("image", "h_image", "label")).compute()
    whole = given | {"image": given["views"][0], "h_image": given["h"][0]}
    expected = fed(METRICS["neighbors"], [torch.arange(N)], whole).compute()
    assert "label" not in found
    close(found, {name: expected[name] for name in found})


@pytest.mark.filterwarnings("ignore::lightning_ssl_geometry.diagnostics.UndefinedWarning")
def test_h_that_is_not_finite_has_no_neighbors_and_no_map():
    given = data()
    given["h_image"] = given["h_image"].clone()
    given["h_image"][::2] = torch.inf
    found = fed(METRICS["neighbors"], [torch.arange(N)], given).compute()
    assert found["image"][:, 0].isfinite().all()
    assert found["image"][:, 1:].isnan().all()
    assert fed(METRICS["map"], [torch.arange(N)], given).compute()["coordinates"].isnan().all()
    assert fed(METRICS["classes"], [torch.arange(N)], given).compute()[:, 1].isnan().all()


def test_the_map_is_scikit_learns_pca_up_to_signs():
    metric = RepresentationMap(count=N)
    metric.update(data()["h"], h_image=data()["h_image"])
    found, rows = metric.compute(), metric.rows()["h"].numpy()
    judge = PCA(2).fit(rows)
    np.testing.assert_allclose(found["coordinates"].abs(), np.abs(judge.transform(rows)), atol=1e-9)
    np.testing.assert_allclose(found["share"][0], judge.explained_variance_ratio_, atol=1e-12)
    assert "label" not in found


def test_the_map_keeps_its_signs_and_does_not_depend_on_the_process():
    metric = RepresentationMap(count=N)
    metric.update(data()["h"], h_image=-data()["h_image"])
    mirrored = RepresentationMap(count=N)
    mirrored.update(data()["h"], h_image=data()["h_image"])
    close(metric.compute()["coordinates"], -mirrored.compute()["coordinates"])


@pytest.mark.parametrize("method", ["tsne", "umap"])
def test_maps_of_neighbors_keep_classes_that_lie_apart_together_and_change_no_random_state(method):
    if method == "umap":
        pytest.importorskip("umap", reason="umap-learn is in the session `hosts`", exc_type=ModuleNotFoundError)
    given = data()
    given["h_image"] = given["h_image"] + 20 * torch.eye(D, dtype=torch.float64)[given["label"]]
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    once, twice = (fed(RepresentationMap(method), [torch.arange(N)], given).compute() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    close(once, twice)
    places, labels = once["coordinates"].numpy(), once["label"][:, 0].numpy()
    assert KNeighborsClassifier(3).fit(places, labels).score(places, labels) == 1
    assert "share" not in once


def test_umap_that_is_not_installed_is_named_at_once(monkeypatch):
    monkeypatch.setattr("lightning_ssl_geometry.diagnostics.representation_map.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"`method`='umap' needs umap-learn.*pip install umap-learn"):
        RepresentationMap("umap")


def test_accuracy_by_class_is_that_of_scikit_learns_leave_one_out():
    given = data()
    given["h_image"] = given["h_image"] + 1.5 * torch.eye(D, dtype=torch.float64)[given["label"]]
    metric = fed(ClassAccuracy(neighbors=5, contrast_size=N), [torch.arange(N)], given)
    found, rows = metric.compute(), metric.rows()
    h, label = rows["h"].numpy(), rows["label"].numpy()
    right = []
    for n in range(N):
        judge = KNeighborsClassifier(
            5, metric="cosine", weights=lambda d: torch.exp((1 - torch.tensor(d)) / 0.07).numpy()
        )
        others = np.arange(N) != n
        right.append(judge.fit(h[others], label[others]).predict(h[n : n + 1])[0] == label[n])
    expected = [[c, np.mean(np.array(right)[label == c]), np.mean(label == c)] for c in range(3)]
    close(found, torch.tensor(expected, dtype=torch.float64))


def test_accuracy_by_class_names_the_classes_there_are_and_one_sample_alone_has_none():
    given = data()
    given["label"] = torch.where(torch.arange(N) == 5, 90, 10 * (torch.arange(N) % 2))
    found = fed(ClassAccuracy(), [torch.arange(N)], given).compute()
    assert found[:, 0].tolist() == [0, 10, 90]
    assert found[2, 1].isnan()  # nothing else has its class
    assert found[:, 2].sum().item() == pytest.approx(1)


@pytest.mark.parametrize("name", ["neighbors", "map"])
def test_labels_in_some_batches_only_are_an_error(name):
    metric = fed(METRICS[name], [torch.arange(9)])
    given = part(data(), torch.arange(9, 20))
    names = inspect.signature(metric.update).parameters.keys() & given.keys() - {"label"}
    with pytest.raises(ValueError, match="Expected `label` in every batch or in none, but got both"):
        metric.update(**{name: given[name] for name in names})


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (ViewPairs, {"views": (torch.ones(4, 9), torch.ones(4, 9))}, r"`views` of V >= 2 tensors .*\(N, C, H, W\)"),
        (ViewPairs, {"views": (torch.ones(4, 1, 5, 5),)}, "`views` of V >= 2 tensors"),
        (NearestNeighbors, {"h": torch.ones(1, 4, 3)}, "`image` or `views` with images"),
        (NearestNeighbors, {"h": torch.ones(1, 4, 3), "image": torch.ones(4, 7)}, "`image` or `views` with images"),
    ],
)
def test_samples_that_are_no_images_are_an_error(make, given, message):
    with pytest.raises(ValueError, match=message):
        make().update(**given)


@pytest.mark.parametrize("make", [ViewPairs, NearestNeighbors, RepresentationMap, ClassAccuracy])
def test_it_sees_what_it_can_draw(make):
    vectors = {"views": (torch.ones(4, 9),) * 2, "image": torch.ones(4, 9), "h": torch.ones(2, 4, 3)}
    images = vectors | {"views": (torch.ones(4, 1, 5, 5),) * 2, "label": torch.arange(4)}
    assert make.sees(images)
    assert make.sees(vectors) == (make is RepresentationMap)
    assert not make.sees({"z": torch.ones(2, 4, 3)})


def test_wrong_settings_are_errors():
    wrong = [(ViewPairs, "count"), (NearestNeighbors, "count"), (NearestNeighbors, "neighbors"),
             (ClassAccuracy, "neighbors"), (RepresentationMap, "count")]  # fmt: skip
    for (make, name), value in product(wrong, (0, -1)):
        with pytest.raises(ValueError, match=f"Expected `{name}` >= "):
            make(**{name: value})
    with pytest.raises(ValueError, match="`method` to be one of"):
        RepresentationMap("mds")
