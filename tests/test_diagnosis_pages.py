import io
import json
import re

import numpy as np
import pytest
from diagnoses import LAYERS, SCALARS, write_diagnosis, write_layers
from lightning_ssl_geometry.report.glossary import ENTRIES, PAPERS, lookup
from pages import Page, write_csv, write_geometry, write_log
from rich.console import Console

from lightning_ssl_geometry import plots
from lightning_ssl_geometry.report import (
    comparison_figures,
    figures,
    read_run,
    summary_table,
    write_comparison,
    write_report,
)


@pytest.fixture(scope="module")
def diagnosis(tmp_path_factory):
    return write_diagnosis(tmp_path_factory.mktemp("runs") / "resnet")


@pytest.fixture(scope="module")
def page(diagnosis):
    return Page(write_report(diagnosis).read_text("utf-8"))


def texts(axes):
    return [text.get_text() for text in axes.texts]


def lines(axes, color="blue"):
    return [each for each in axes.lines if each.get_color() == plots.COLORS[color] and each.get_linestyle() != "None"]


# --- one model, looked at once


def test_the_page_says_what_was_looked_at(page):
    for text in (
        "Diagnosis of resnet18", "weights from /models/last.ckpt", "ImageFolderDataModule from /photos/val",
        "10,000 samples", "11,176,512 parameters", "seed 0", "data path", "config.yaml",
    ):  # fmt: skip
        assert text in page.text


def test_nothing_is_drawn_over_training_and_nothing_of_it_is_missed(diagnosis, page):
    assert read_run(diagnosis).notes == ()
    for text in ("of training", "Not recorded", "Nothing recorded", "missing", "from 5.5", "at the start", "after 0"):
        assert text not in page.text
    assert "Is it learning?" not in page.text
    names = list(figures(read_run(diagnosis)))
    assert names == [
        "projector_thresholds", "test_log_spectrum_h", "test_projector_singular_values", "layers_effective_rank",
        "layers_knn_accuracy", "layer_cka", "hardest_negative_histogram_test",
    ]  # fmt: skip


def test_every_scalar_has_its_value_and_its_sentence(page):
    for name in SCALARS.keys() - {"my_own_metric", "null_space_isotropic"}:
        assert lookup(f"test/{name}").text in page.text or "range" in lookup(f"test/{name}").title.lower(), name
    assert "Spectral decay (alpha-ReQ)1.25Fitted to eigenvalues 2 to 12." in page.text
    assert "Augmentations ignored0.900isotropic 0.750" in page.text
    assert "my_own_metric3.25" in page.text
    for paper in ("agrawal", "thilak", "facco", "levina", "balestriero", "bordes", "kornblith", "garrido"):
        assert PAPERS[paper].title in page.text


def test_a_spectrum_is_one_line(diagnosis):
    axes = figures(read_run(diagnosis))["test_log_spectrum_h"].axes[0]
    assert len(lines(axes)) == 1
    assert "this model" in texts(axes)


def test_ranks_at_thresholds_are_rows(diagnosis):
    axes = figures(read_run(diagnosis))["projector_thresholds"].axes[0]
    assert {"max × 0.1", "8", "of 8"} <= set(texts(axes))  # noqa: RUF001


def test_the_terminal_table_has_one_column(diagnosis):
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(summary_table(diagnosis))
    text = console.export_text()
    assert "value" in text
    assert "first" not in text.replace("alpha_req_first", "")


def test_the_new_scalars_are_in_the_glossary():
    for name, key in (
        ("alpha_req_alpha", "alpha_req"), ("alpha_req_r2", "alpha_req_r2"), ("alpha_req_last", "alpha_req_range"),
        ("lidar", "lidar"), ("sigreg", "sigreg"), ("cka_drift_first", "cka_drift_first"),
        ("intrinsic_dimension_two_nn", "intrinsic_dimension_two_nn"), ("layer_cka", "layer_cka"),
    ):  # fmt: skip
        assert lookup(f"test/{name}") is ENTRIES[key]
    assert "RankMe" in ENTRIES["effective_rank_h"].title


def test_over_training_the_range_of_the_fit_is_said(tmp_path):
    write_log(tmp_path, val__alpha_req_alpha=[1.5, 1.2], val__alpha_req_first=[2, 2], val__alpha_req_last=[9, 9])
    assert "Fitted to eigenvalues 2 to 9." in Page(write_report(tmp_path).read_text("utf-8")).text
    assert list(figures(read_run(tmp_path))) == ["alpha_req"]


# --- few samples, and numbers that are none


def test_singular_values_that_are_rounding_are_not_drawn(tmp_path):
    folder = write_diagnosis(tmp_path / "few", width=512, samples=200)
    row = np.where(np.arange(512) < 200, 2.0, -30.0) - 0.01 * np.arange(512)
    write_csv(folder / "geometry/test/log_spectrum_h.csv", ["epoch", "step", *range(512)], [[0, 0, *row]])
    axes = figures(read_run(folder))["test_log_spectrum_h"].axes[0]
    drawn = lines(axes)[0].get_ydata()
    assert np.flatnonzero(np.isfinite(drawn)).max() == 199
    assert axes.get_ylim()[0] > 0.5
    text = Page(write_report(folder).read_text("utf-8")).text
    assert "312 of 512 values are below 10⁻⁸ of the largest, which is rounding, and not drawn." in text
    bound = "Fewer samples (200) than dimensions (512): ranks and spectra cannot exceed the samples (400 rows of two"
    assert text.count(bound) == 1
    axes = comparison_figures({"few": [folder]})["spectrum_h"].axes[0]
    assert len(lines(axes)[0].get_ydata()) == 200
    assert "drawn: few 312 of 512." in " ".join(texts(axes))
    compared = Page(write_comparison({"few": [folder]}, tmp_path / "page.html").read_text("utf-8"))
    assert f"few, few: {bound}" in compared.text


@pytest.mark.parametrize("samples", [16, None, "200", True])
def test_enough_samples_and_unknown_ones_are_no_note(tmp_path, samples):
    assert read_run(write_diagnosis(tmp_path, samples=samples)).notes == ()


@pytest.mark.parametrize(("kind", "said"), [("random", "random weights"), ("timm's", "timm's weights")])
def test_where_weights_are_from_is_said(tmp_path, kind, said):
    folder = write_diagnosis(tmp_path / "net", checkpoint=None, weights=kind)
    text = Page(write_report(folder).read_text("utf-8")).text
    assert f"{said}ImageFolderDataModule from /photos/val" in text
    assert "no checkpoint" not in text
    compared = Page(write_comparison({"net": [folder]}, tmp_path / "page.html").read_text("utf-8"))
    assert f"net {said}" in compared.text


def test_one_layer_is_no_section(tmp_path):
    folder = write_diagnosis(tmp_path / "net", names=("h",))
    assert not [name for name in figures(read_run(folder)) if "layer" in name]
    assert "Layer by layer" not in Page(write_report(folder).read_text("utf-8")).text
    assert not [name for name in comparison_figures({"net": [folder]}) if "layer" in name]


def test_class_means_stand_where_labels_are(tmp_path):
    values = {f"test__neural_collapse_{name}": [0.5] for name in ("simplex", "equinorm", "within_class")}
    write_log(tmp_path, **values)
    (tmp_path / "run.json").write_text(json.dumps({"kind": "diagnosis"}))
    text = Page(write_report(tmp_path).read_text("utf-8")).text
    assert text.index("Neighbours and classes") < text.index("Distance to the simplex")
    assert "Content and style" not in text


# --- layer by layer


def test_layers_are_drawn_in_order_with_their_names(diagnosis, page):
    drawn = figures(read_run(diagnosis))
    axes = drawn["layers_effective_rank"].axes[0]
    assert lines(axes)[0].get_ydata().tolist() == [9.5, 8.5, 7.5, 6.5]
    assert [label.get_text() for label in axes.get_xticklabels()] == list(LAYERS)
    assert lines(drawn["layers_knn_accuracy"].axes[0])[0].get_ydata()[0] == 75.0
    assert "projector.28" not in page.text.replace("projector.287.50", "")
    assert "h169.5075.0%" in page.text  # the table's first row: name, width, rank, accuracy
    assert "h (16 dimensions): 9.5" in page.source
    assert "Guillotine Regularization" in page.text


def test_the_map_of_layers_has_names_and_values(diagnosis, page):
    axes = figures(read_run(diagnosis))["layer_cka"].axes[0]
    assert {"h", "projector.0", "z", "1.00", "0.50", "0.12"} <= set(texts(axes))
    assert "h and z: 0.125" in page.source


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("", "layers.csv is empty"),
        ("name,width\nh,2\n", "layers.csv has no column `layer`; it was left out"),
        ("layer,width,a\nh,2,x\nz,1,3\n", "layers.csv: left out cells that are not finite numbers, 1 in all"),
        ("layer,width,a\nh,2\nz,1,3\n", "left out rows of another length than the header, 1 of 2"),
        ("layer,width,a\nh,2,1\nz,1", "layers.csv ends in an incomplete line"),
    ],
)
def test_a_broken_file_of_layers_is_a_note(tmp_path, text, note):
    write_csv(tmp_path / "metrics.csv", ["epoch", "step", "a"], [[0, 9, 1]])
    (tmp_path / "layers.csv").write_text(text)
    assert note in Page(write_report(tmp_path).read_text("utf-8")).text


def test_cells_may_be_empty_and_columns_without_values_are_left_out(tmp_path):
    write_layers(tmp_path, alignment=["", 0.5, "", 0.25], empty=[""] * 4)
    read = read_run(tmp_path)
    assert read.notes[0].startswith("metrics.csv is missing")
    assert list(read.layers.values) == ["effective_rank", "knn_accuracy", "alignment"]
    assert np.isnan(read.layers.values["alignment"]).tolist() == [True, False, True, False]
    assert "layers_alignment" in figures(read)


def test_columns_as_the_monitor_names_them_are_known(tmp_path):
    ends = {"alpha_req_first": [2, 2, 2, 1], "alpha_req_last": [9, 9, 9, 4], "alpha_req_r2": [0.9] * 4}
    known = {"alpha_req_alpha": [1.5] * 4, "intrinsic_dimension_two_nn": [3.5] * 4, "label_agreement_fine": [0.5] * 4}
    write_layers(tmp_path, **known, **ends, label_agreement_fine_chance=[0.1] * 4)
    drawn = figures(read_run(tmp_path))
    assert [name for name in drawn if name.startswith("layers_")] == [
        "layers_effective_rank", "layers_knn_accuracy", "layers_alpha_req", "layers_two_nn", "layers_label_agreement",
    ]  # fmt: skip
    assert lines(drawn["layers_label_agreement"].axes[0])[0].get_ydata().tolist() == [50.0] * 4
    text = Page(write_report(tmp_path).read_text("utf-8")).text
    assert "Fitted to eigenvalues 2 to 9, 1 to 4, layer by layer." in text
    heads = "Spectral decay (alpha-ReQ)Intrinsic dimension, TwoNNLabel agreementFirst eigenvalue fitted"
    assert f"{heads}Last eigenvalue fittedFit of the spectral decayChance of it" in text.replace(
        lookup("label_agreement_fine_chance").title, "Chance of it"
    )


def test_a_map_of_layers_that_are_not_named_has_numbers(tmp_path):
    write_layers(tmp_path)
    (tmp_path / "layers.csv").unlink()
    text = Page(write_report(tmp_path).read_text("utf-8")).text
    assert "layers.csv does not name these 4 layers." in text
    assert "layer 1" in text


# --- models side by side


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    short = ("h", "projector.0", "z")
    models = {"small": (0.0, 16, LAYERS), "wide": (0.5, 24, LAYERS), "short": (1.0, 12, short)}
    return {name: [write_diagnosis(folder / name, *each)] for name, each in models.items()}


def test_models_have_a_row_each(three):
    axes = comparison_figures(three)["lidar"].axes[0]
    assert {"small", "wide", "short", "7.50", "8", "8.50"} <= set(texts(axes))
    assert "steps of training" not in axes.get_xlabel()


def test_layers_of_models_are_lines_at_their_places(three):
    axes = comparison_figures(three)["layers_effective_rank"].axes[0]
    assert lines(axes)[0].get_ydata().tolist() == [9.5, 8.5, 7.5, 6.5]
    assert lines(axes, "green")[0].get_ydata().tolist() == [10.5, 9.5, 8.5]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["h", "projector.0", "3", "z"]


def test_similarities_of_models_are_a_map(three, tmp_path):
    values = np.array([[1.0, 0.625, np.nan], [0.625, 1.0, 0.5], [np.nan, 0.5, 1.0]])
    path = write_comparison(three, tmp_path / "page.html", similarity=(list(three), values))
    page = Page(path.read_text("utf-8"))
    assert "CKA between models" in page.text
    assert "small and wide: 0.625" in page.source
    assert "Diagnosis" not in page.text
    for name in three:
        assert f"weights from {name}" not in page.text


@pytest.mark.parametrize(("names", "shape"), [(["a", "b"], (2, 3)), (["a"], (2, 2)), ([], (0, 0))])
def test_similarities_are_one_for_each_pair(three, tmp_path, names, shape):
    with pytest.raises(ValueError, match=rf"Expected `similarity` with values of shape \({len(names)}, {len(names)}\)"):
        write_comparison(three, tmp_path / "page.html", similarity=(names, np.zeros(shape)))


def test_what_models_share_is_said_once_under_the_title(three, tmp_path):
    text = Page(write_comparison(three, tmp_path / "page.html").read_text("utf-8")).text
    head = text.partition("Runs")[0].partition("Probes")[0]
    assert head.count("ImageFolderDataModule from /photos/val10,000 samples") == 1
    assert "standard deviation" not in text.lower()
    other = write_diagnosis(tmp_path / "other", samples=300, data_path="/photos/test")
    page = Page(write_comparison(three | {"other": [other]}, tmp_path / "page.html").read_text("utf-8"))
    assert "/photos" not in page.text.partition("Runs")[0].partition("Layer by layer")[0]


def test_who_has_what_and_which_widths_differ_are_said(three, tmp_path):
    trained = write_geometry(tmp_path / "trained")
    path = write_comparison({"trained": [trained], "two": [*three["small"], *three["wide"]]}, tmp_path / "page.html")
    page = Page(path.read_text("utf-8"))
    assert "two: test/log_spectrum_h has 16 in small, 24 in wide values" in page.text
    assert "Not all runs have the same diagnostics" in page.text
    assert "LiDAR\N{EN DASH}yes" in page.text
    assert "Local" not in page.text.partition("Who has what")[0].partition("LiDAR")[0]
    axes = comparison_figures({"trained": [trained], "two": three["small"]})["lidar"].axes[0]
    assert "Without: trained." in texts(axes)
    same = write_comparison({"a": three["small"], "b": three["wide"]}, tmp_path / "same.html")
    assert "Who has what" not in Page(same.read_text("utf-8")).text


def test_names_of_the_user_are_shown_and_not_run(tmp_path):
    evil = "<script>alert(1)</script>"
    names = (evil, '"><img src=x onerror=alert(1)>', "z")
    folder = write_diagnosis(tmp_path / "<b>evil", names=names, model=evil, checkpoint=evil, data=evil, data_path=evil)
    write_csv(folder / "linear_evaluation.csv", ["features", "accuracy", "split"], [[evil, 0.5, evil]])
    (folder / "config.yaml").write_text(json.dumps({evil: evil}))
    write_layers(folder, names, **{evil.replace("/", ""): [1.0, 2.0, 3.0]})
    similarity = ([evil, "b"], np.eye(2))
    run = Page(write_report(folder).read_text("utf-8"))
    compared = write_comparison({evil: [folder]}, tmp_path / "page.html", title=evil, similarity=similarity)
    for page in (run, Page(compared.read_text("utf-8"))):
        assert not {"script", "img", "b"} & set(page.tags) - {"b"}
        assert "<script" not in page.source
        assert "<b>evil" not in page.source
        assert evil in page.text
        assert not any(name.startswith("on") for _, attributes in page.attributes for name in attributes)


def test_every_figure_shows_values_under_a_pointer(page, three, tmp_path):
    compared = Page(write_comparison(three, tmp_path / "page.html", similarity=(["a"], np.eye(1))).read_text("utf-8"))
    trained = {"a": [write_geometry(tmp_path / "a")], "b": [write_geometry(tmp_path / "b", 0.5)]}
    lines_too = Page(write_comparison(trained, tmp_path / "page.html").read_text("utf-8"))
    for each in (page, compared, lines_too):
        drawn = re.findall(r'<svg class="figure".*?</svg>', each.source, re.DOTALL)
        assert len(drawn) == each.values("class").count("figure")
        assert all("<title>" in figure for figure in drawn)
