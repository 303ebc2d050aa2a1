"""The section with the data: pictures of samples, points in two dimensions, and a value for each class."""

import base64
import io
import re

import numpy as np
import pytest
from pages import comparison, declare, drawn, entry, report, texts, write_log, write_snapshot
from PIL import Image

from lightning_ssl_geometry.plots import COLORS, Tiles, gallery
from lightning_ssl_geometry.quantity import Chart, Picture
from lightning_ssl_geometry.report.numbers import percent
from lightning_ssl_geometry.report.svg import inline_svg

NEAR = Chart("near", "Nearest")


def pictures(folder, step=30, first=10, stage="val"):
    """A run with the neighbours of three samples: one picture is 7, where a class differs."""
    write_log(folder, loss=[1.0, 2.0, 3.0])
    image, label = np.random.default_rng(0).normal(size=(3, 4, 1, 6, 6)), np.array([[1, 1, 2, 1]] * 3)
    image[0, 2] = 7
    for ending, at in (("", step), (".first", first)):
        if at is not None:
            write_snapshot(folder, f"{stage}/near_image{ending}", image, at)
            write_snapshot(folder, f"{stage}/near_label{ending}", label, at)
            image, label = image.copy(), np.ones_like(label)
            image[:, 1:] = -image[:, 1:]
    about = {f"{stage}__near_image": entry("Nearest", key="image", section="data", chart=NEAR, xlabel="close",
                                           picture=Picture("gallery", first=True))}  # fmt: skip
    about[f"{stage}__near_label"] = entry("Class", key="label", section="data", chart=NEAR,
                                          picture=Picture("gallery", role="label", first=True))  # fmt: skip
    return declare(folder, **about)


def frames(axes):
    return sum(line.get_color() == COLORS["orange"] for line in axes.lines)


def test_samples_stand_beside_their_first_and_their_latest_neighbors(tmp_path):
    figure = drawn(pictures(tmp_path))["near"].figure
    after = figure.axes[-1]
    assert [each for axes in figure.axes for each in texts(axes)] == [
        "sample",
        "close, after 1 epoch",
        "close, after 3 epochs",
    ]
    assert [each.images[0].get_array().shape[:2] for each in figure.axes] == [(18, 6), (18, 18), (18, 18)]
    assert [frames(each) for each in figure.axes] == [0, 0, 3]
    assert (after.images[0].get_array()[:6, 6:12] == 1).all()  # the brightest picture of all
    page = report(tmp_path)
    assert "The data" in page.text
    assert "class 2" in page.source


def test_the_first_look_alone_and_a_look_before_training_are_said(tmp_path):
    once = drawn(pictures(tmp_path / "one", step=10, first=10))["near"].figure
    assert [each for axes in once.axes for each in texts(axes)] == ["sample", "close, after 1 epoch"]
    without = drawn(pictures(tmp_path / "two", step=10, first=None))["near"].figure
    assert [frames(each) for each in without.axes] == [0, 3]
    pictures(tmp_path / "three")
    both = drawn(pictures(tmp_path / "three", first=0, stage="probe"))["near"].figure
    assert "close, at the start" in texts(both.axes[1])  # the stage that was looked at first


def test_rows_with_names_are_named_and_an_empty_row_is_left_out(tmp_path):
    values = np.random.default_rng(0).uniform(size=(3, 5, 3, 6, 6))
    values[0] = np.nan
    write_snapshot(write_log(tmp_path, loss=[1.0, 2.0]), "val/pairs", values)
    about = entry("Pairs", picture=Picture("gallery", names=("clean", "one", "two")))
    axes = drawn(declare(tmp_path, val__pairs=about))["toy"]
    assert [each for each in texts(axes) if each] == ["one", "two"]
    assert axes.images[0].get_array().shape == (12, 30, 3)


def test_what_is_no_gallery_leaves_the_page_whole_and_a_comparison_has_no_pictures(tmp_path):
    for name, values in {
        "flat": np.ones((3, 3)),
        "deep": np.ones((2, 2, 2, 3, 3)),
        "none": np.full((2, 2, 1, 3, 3), np.nan),
    }.items():
        write_snapshot(write_log(tmp_path / name, loss=[1.0, 2.0]), "val/x", values)
        declare(tmp_path / name, val__x=entry("X", picture=Picture("gallery", first=True)))
        assert "toy" not in drawn(tmp_path / name) or name == "deep"
        report(tmp_path / name)
    one = pictures(tmp_path / "one")
    assert "<image" not in comparison(tmp_path, a=[one], b=[one]).text


def classes(folder, count, missing=()):
    rng = np.random.default_rng(0)
    values = np.stack([np.arange(count) + 10.0, rng.uniform(size=count), np.full(count, 1 / count)], axis=1)
    values[list(missing), 1] = np.nan
    write_snapshot(write_log(folder, loss=[1.0, 2.0]), "val/c", values)
    return declare(folder, val__c=entry("Classes", percent=True, unit="accuracy", picture=Picture("classes"))), values


@pytest.mark.parametrize(("count", "rows"), [(3, 3), (16, 16), (17, 16), (200, 16)])
def test_classes_are_sorted_and_of_many_the_ends_are_drawn(tmp_path, count, rows):
    folder, values = classes(tmp_path, count, missing=[1])
    axes = drawn(folder)["toy"]
    named = [each for each in texts(axes) if each.startswith("class ")]
    order = values[np.argsort(values[:, 1])][: count - 1, 0]  # NaN is last
    expected = order if count <= 17 else [*order[:10], *order[-6:]]
    assert named == [f"class {kind:.0f}" for kind in expected]
    page = report(folder)
    assert f"Chance is {percent(1 / count)} to {percent(1 / count)}" in page.text
    assert (f"Of {count - 1} classes, the 10 lowest and the 6 highest are shown." in page.text) == (count > 17)


def test_classes_stand_beside_their_first_values_if_these_are_older(tmp_path):
    folder, values = classes(tmp_path, 4)
    first = values[[2, 0, 1]] * [1, 0.5, 1]  # another order, and one class was not seen
    write_snapshot(folder, "val/c.first", first, 0)
    axes = drawn(folder)["toy"]
    rings = {line.get_ydata()[0]: line.get_xdata()[0] for line in axes.lines if line.get_color() == COLORS["muted"]}
    rows = np.argsort(values[:, 1])
    assert rings == {place: pytest.approx(50 * values[kind, 1]) for place, kind in enumerate(rows) if kind < 3}
    page = report(folder)
    means = [percent(float(each[:, 1].mean())) for each in (first, values)]
    assert "The rings are from the first look, at the start." in page.text
    assert f"The mean over the classes was {means[0]} at the start, and {means[1]} after 2 epochs." in page.text
    ((header, *cells),) = [table for name, table in page.downloads().items() if name.endswith("-toy.csv")]
    assert header == ["class", "accuracy", "baseline", "accuracy at the start"]
    found = {float(row[0]): float(row[3]) for row in cells if row[3]}
    assert found == {kind: pytest.approx(value) for kind, value, _ in first.tolist()}
    write_snapshot(folder, "val/c.first", first, 20)  # the look that is also the latest
    assert "rings" not in report(folder).text


def test_points_name_their_axes_with_shares_and_say_which_classes_have_colors(tmp_path):
    chart, rng = Chart("plane", "Plane"), np.random.default_rng(0)
    held = {
        "position": rng.normal(size=(60, 2)) * 9,
        "label": np.arange(60)[:, None] % 12,
        "share": np.array([[0.5, 0.25]]),
    }
    roles = {"position": "", "label": "label", "share": "x"}
    write_log(tmp_path, loss=[1.0, 2.0])
    about = {}
    for name, values in held.items():
        write_snapshot(tmp_path, f"val/m_{name}", values)
        picture = Picture("points", roles[name], names=("first", "second") if name == "position" else ())
        about[f"val__m_{name}"] = entry(name, key=name, chart=chart, picture=picture)
    axes = drawn(declare(tmp_path, **about))["plane"]
    assert axes.get_xlabel() == "first, 50.0% of the variance"
    assert "second, 25.0% of the variance" in texts(axes)
    said = "The 10 classes with the most points have colours, and 2 others are grey."
    assert said in report(tmp_path).text


def test_many_pixels_become_a_small_jpeg_and_few_stay_as_they_are():
    for side, kind in ((8, "png"), (32, "jpeg")):
        rng = np.random.default_rng(0)
        images = rng.uniform(size=(3, 4, 3, 1, 1)) * rng.uniform(size=(3, 4, 1, side, side))
        block = Tiles("", images, np.zeros((3, 4), bool), [[""] * 4] * 3)
        svg = inline_svg(gallery([block]), key="k", label="pictures")
        ((found, data),) = re.findall(r"data:image/(\w+);base64,([\w+/=\s]+)", svg)
        assert found == kind
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"), dtype=float) / 255
        assert shown.shape == (3 * side, 4 * side, 3)
        low, high = (bound(images, axis=(0, 1, 3, 4), keepdims=True) for bound in (np.min, np.max))
        expected = ((images - low) / (high - low)).transpose(0, 3, 1, 4, 2).reshape(shown.shape)
        assert np.abs(shown - expected).mean() < (0.05 if kind == "jpeg" else 0.003)


def test_two_monitors_have_a_figure_each(tmp_path):
    values = np.array([[0, 0.5, 0.5], [1, 0.75, 0.5]])
    about = entry("Classes", percent=True, unit="accuracy", picture=Picture("classes"))
    for place, name in enumerate(("teacher", "student")):
        write_snapshot(tmp_path, f"val/{name}/c", values * np.array([1, 1 - 0.1 * place, 1]))
        declare(tmp_path, **{f"val__{name}__c": about})
    write_log(tmp_path, loss=[1.0, 2.0])
    titles = re.findall(r"<h3>(Classes.*?)</h3>", report(tmp_path).source)
    assert sorted(titles) == ["Classes (student)", "Classes (teacher)"]
