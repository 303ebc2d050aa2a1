"""Each kind of picture on the page of a run: what is drawn where, and what is left out and said."""

import numpy as np
import pytest
from pages import (
    declare,
    drawn,
    entry,
    lines,
    report,
    texts,
    write_array,
    write_csv,
    write_info,
    write_log,
    write_snapshot,
)

from lightning_ssl_geometry.quantity import Chart, Picture


def test_a_spectrum_is_drawn_at_the_start_half_and_end_without_rounding(tmp_path):
    index = np.arange(8)
    rows = [np.where(index < 7, 2.0 - index * share, -12.5) for share in (0.1, 0.2, 0.3, 0.4, 0.5)]
    write_array(tmp_path, "val/log_spectrum", *rows)
    declare(tmp_path, val__log_spectrum=entry("Spectrum", unit="singular value", picture=Picture("spectrum", "", True)))
    axes = drawn(tmp_path)["val_toy"]
    assert axes.get_yscale() == "log"
    shown = [*lines(axes, "muted"), *lines(axes)]
    for line, row in zip(shown, (rows[0], rows[2], rows[4]), strict=True):
        assert np.log(line.get_ydata()[:7]) == pytest.approx(row[:7])
        assert not np.isfinite(line.get_ydata()[7:]).any()
    assert not sum(len(line.get_xdata()) for line in axes.lines if line.get_marker() == "x")
    assert {"after 1 epoch", "after 3 epochs", "after 5 epochs", "singular value (log scale)"} <= set(texts(axes))
    said = "1 of 8 values are 0 up to single precision (below 10⁻⁶ of the largest), and not drawn."
    assert said in report(tmp_path).text


def test_a_value_of_a_spectrum_that_is_not_finite_has_a_cross_and_one_that_stood_still_is_said_to(tmp_path):
    write_array(tmp_path, "val/sigma", [3, np.nan, 1e-12], [3, np.nan, 1e-12], [9, np.nan, 1e-12])
    declare(tmp_path, val__sigma=entry("Spectrum", picture=Picture("spectrum")))
    crosses = [line.get_xdata() for line in drawn(tmp_path)["val_toy"].lines if line.get_marker() == "x"]
    assert [each.tolist() for each in crosses] == [[2]] * 3
    text = report(tmp_path).text
    assert "1 of 3 values are 0 up to single precision" in text
    assert "Identical lines: after 1 epoch = after 2 epochs." in text


def test_a_histogram_has_its_bins_over_its_bounds(tmp_path):
    write_array(tmp_path, "val/h", [1, 0, 0, 0], [0.5, 0.25, 0.25, 0])
    about = entry("Distances", bounds=(0, 2), percent=True, xlabel="distance", picture=Picture("histogram"))
    axes = drawn(declare(tmp_path, val__h=about))["val_toy"]
    first, last = [line for line in axes.lines if line.get_drawstyle() == "steps-post"]
    assert last.get_xdata().tolist() == [0, 0.5, 1, 1.5, 2]
    assert first.get_ydata().tolist() == [100, 0, 0, 0, 0]
    assert last.get_ydata().tolist() == [50, 25, 25, 0, 0]
    assert (axes.get_xlim(), axes.get_xlabel()) == ((0, 2), "distance")


def test_a_profile_stands_over_its_abscissae_and_quantiles_over_percents(tmp_path):
    chart = Chart("turns", "Turns", "degrees")
    about = {"val__x": entry("Angle", key="x", chart=chart, picture=Picture("profile", "x"))}
    about |= {f"val__{key}": entry(key, key=key, chart=chart, label=key, picture=Picture("profile")) for key in "ab"}
    about["val__q"] = entry("Quantiles", key="q", picture=Picture("quantiles"))
    for name, values in {"x": [10, 45, 180], "a": [9, 8, 7], "b": [1, 2, 3], "q": [0, 1, 5, 6, 9]}.items():
        write_array(tmp_path, f"val/{name}", values)
    found = drawn(declare(tmp_path, **about))
    assert list(found) == ["val_turns", "val_toy_q"]
    assert lines(found["val_turns"])[0].get_xdata().tolist() == [10, 45, 180]
    assert {"a 7", "b 3", "degrees"} <= set(texts(found["val_turns"]))
    assert lines(found["val_toy_q"])[0].get_xdata().tolist() == [0, 25, 50, 75, 100]


def test_components_are_lines_with_names_and_arrays_without_a_finite_number_are_left_out(tmp_path):
    write_array(write_array(tmp_path, "val/ranks", [9, 8], [7, 6]), "val/none", ["nan"] * 2, ["nan"] * 2)
    write_array(tmp_path, "val/once", ["nan", "nan"], [2, 1])
    about = entry("Ranks", key="r", picture=Picture("components", names=("at 0.1", "at 0.01")))
    declare(tmp_path, val__ranks=about, val__none=entry("A", key="a"), val__once=entry("B", key="b"))
    assert list(drawn(tmp_path)) == ["toy_r", "val_toy_b"]
    axes = drawn(tmp_path)["toy_r"]
    assert {"at 0.1: 7", "at 0.01: 6"} <= set(texts(axes))
    assert lines(axes, "green")[0].get_ydata().tolist() == [8, 6]
    once = drawn(tmp_path)["val_toy_b"]
    assert texts(once) == ["value", "after 2 epochs"]
    assert not sum(len(line.get_xdata()) for line in once.lines if line.get_marker() == "x")  # the first is no readout


def test_a_matrix_has_names_and_values_and_only_a_square_one_is_drawn(tmp_path):
    for name, values in {"m": [[1, 0.25], [0.25, 1]], "wide": np.ones((2, 3)), "deep": np.ones((2, 2, 2)),
                         "none": np.full((2, 2), np.nan)}.items():  # fmt: skip
        write_snapshot(tmp_path, f"val/{name}", values)
    about = {f"val__{name}": entry(name, key=name, unit="CKA", picture=Picture("matrix", names=("in", "out")))
             for name in ("m", "wide", "deep", "none")}  # fmt: skip
    page = report(declare(tmp_path, **about))
    assert list(drawn(tmp_path)) == ["toy_m"]
    assert {"in", "out", "1.00", "0.25"} <= set(texts(drawn(tmp_path)["toy_m"]))
    assert "in and out 0.250" in page.source


def test_points_have_the_colours_of_their_labels_and_images_their_maps(tmp_path):
    cloud, maps = Chart("cloud", "Cloud"), Chart("maps", "Maps")
    about = {"val__z": entry("Points", chart=cloud, key="z", picture=Picture("points"))}
    about |= {"val__y": entry("Label", chart=cloud, key="y", picture=Picture("points", "label"))}
    about |= {"val__i": entry("Images", chart=maps, key="i", picture=Picture("images"))}
    about |= {"val__p": entry("Maps", chart=maps, key="p", picture=Picture("images", "overlay"))}
    arrays = {
        "z": [[0, 1], [1, 0], [np.nan, 1]],
        "y": [[0], [1], [1]],
        "i": np.ones((3, 4, 4)),
        "p": np.ones((3, 2, 2)),
    }
    for name, values in arrays.items():
        write_snapshot(tmp_path, f"val/{name}", values)
    page = report(declare(tmp_path, **about))
    assert list(drawn(tmp_path)) == ["cloud", "maps"]
    assert "class 0: 0, 1" in page.source
    assert "class 1: 1, 0" in page.source
    pictures = [value for tag, each in page.attributes if tag == "image" for value in each.values() if "data:" in value]
    assert len(pictures) == 2 * 3 + 1  # and the scale
    assert all(picture.startswith("data:image/png;base64,") for picture in pictures)
    assert "After 20 steps." in page.text
    (tmp_path / "geometry/val/p.npz").unlink()
    assert list(drawn(tmp_path)) == ["cloud"]


def test_two_scalars_are_a_path_where_both_are_there_and_lines_else(tmp_path):
    chart = Chart("path", "Both")
    about = {f"{stage}__{name}": entry(name.upper(), key=name, chart=chart, picture=Picture("path", role))
             for stage in ("train", "val") for name, role in (("a", ""), ("u", "x"))}  # fmt: skip
    declare(tmp_path, **about)
    write_log(tmp_path, train__a=[1.0, 0.5])
    assert list(drawn(tmp_path)) == ["toy_a"]
    write_log(tmp_path, train__a=[1.0, 0.5], train__u=[-2.0, -3.0], val__a=[1, 1])
    assert list(drawn(tmp_path)) == ["train_path"]
    axes = drawn(tmp_path)["train_path"]
    assert (axes.get_xlabel(), texts(axes)[0]) == ("u", "a")
    assert {"after 1 epoch", "after 2 epochs"} <= set(texts(axes))
    assert "a 0.5, u -3 (epoch 1, step 19)" in report(tmp_path).source


LAYERS = ("h", "projector.0", "z")


def write_layers(folder, names=LAYERS):
    rows = [[name, 16 - place, 9.5 - place, 0.75] for place, name in enumerate(names)]
    write_csv(folder / "layers.csv", ["layer", "width", "rank", "knn"], rows)
    write_snapshot(folder, "test/cka", np.eye(len(names)), 0)
    about = {"layers__rank": entry("Rank", section="layers", unit="directions", short="R")}
    about["layers__knn"] = entry("kNN", of="KNN", section="layers", percent=True)
    about["test/cka"] = entry("CKA between layers", key="cka", section="layers", picture=Picture("matrix"))
    return write_info(declare(folder, **about), kind="diagnosis")


def test_the_chance_of_a_value_by_layer_is_a_dotted_line_beside_it(tmp_path):
    rows = [["h", 8, 0.75, 0.1], ["z", 4, 0.7, 0.1]]
    write_csv(tmp_path / "layers.csv", ["layer", "width", "knn", "knn_chance"], rows)
    about = {"of": "KNN", "section": "layers", "percent": True}
    known = {"layers__knn": entry("kNN", null="chance", **about)}
    known["layers__knn_chance"] = entry("Chance", key="chance", baseline=True, **about)
    axes = drawn(write_info(declare(tmp_path, **known)))
    assert list(axes) == ["layers_knn"]
    (value,), (chance,) = lines(axes["layers_knn"]), lines(axes["layers_knn"], "muted")
    assert (value.get_ydata().tolist(), chance.get_ydata().tolist()) == ([75.0, 70.0], [10.0, 10.0])
    assert "chance 10.0%" in texts(axes["layers_knn"])


def test_layers_are_drawn_in_order_with_their_names(tmp_path):
    page = report(write_layers(tmp_path))
    found = drawn(tmp_path)
    assert list(found) == ["layers_rank", "layers_knn", "toy_cka"]
    axes = found["layers_rank"]
    assert lines(axes)[0].get_ydata().tolist() == [9.5, 8.5, 7.5]
    assert [label.get_text() for label in axes.get_xticklabels()] == list(LAYERS)
    assert lines(found["layers_knn"])[0].get_ydata().tolist() == [75.0] * 3
    assert set(LAYERS) <= set(texts(found["toy_cka"]))
    assert "layerwidthRkNN" in page.text.replace("\n", "")
    assert "h169.5075.0%" in page.text
    assert page.text.count("High Rank.") == 1
    (tmp_path / "layers.csv").unlink()
    assert {"1", "2", "3"} <= set(texts(drawn(tmp_path)["toy_cka"]))
    rows = [["h", 2, "", ""], ["m", 2, 3, ""], ["z", 1, 4, ""]]  # a layer without a number is a gap
    write_csv(write_info(tmp_path / "gap") / "layers.csv", ["layer", "width", "a", "none"], rows)
    assert list(drawn(tmp_path / "gap")) == ["layers_a"]
    np.testing.assert_array_equal(lines(drawn(tmp_path / "gap")["layers_a"])[0].get_ydata(), [np.nan, 3, 4])
    write_layers(tmp_path, ("h",))
    assert list(drawn(tmp_path)) == []
    assert "Layer by layer" not in report(tmp_path).text
