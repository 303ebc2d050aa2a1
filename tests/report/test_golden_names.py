"""Names of figures, which people save and link to: those of a small run of each kind."""

from dataclasses import replace

import pytest
from pages import declare, entry, write_csv, write_info, write_results, write_snapshot

from lightning_ssl_geometry.callbacks import LayerGeometry, LinearEvaluation
from lightning_ssl_geometry.callbacks.quantities_file import meaning, meanings
from lightning_ssl_geometry.diagnostics.standard import STANDARD_RENAME, standard_diagnostics
from lightning_ssl_geometry.manifest import Declared
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.report import comparison_figures, figures, read_run

STANDARD = [
    "loss", "upper_bound", "bound_terms", "bound_entropy", "effective_rank", "projector_rank", "projector_thresholds",
    "val_spectrum_h", "val_spectrum_z", "val_projector_spectrum", "augmentation_rank", "val_augmentation_spectrum",
    "val_trajectory", "gaussian_potential",
]  # fmt: skip
COMPARED = [name.removeprefix("val_") for name in STANDARD]
COMPARED[COMPARED.index("trajectory") : COMPARED.index("trajectory") + 1] = ["alignment", "uniformity"]
COMPARED.insert(COMPARED.index("projector_thresholds") + 1, "projector_thresholds_2")
DIAGNOSED = [
    "linear_evaluation", "projector_thresholds", "test_spectrum_h", "test_spectrum_z", "test_projector_spectrum",
    "layers_e", "layers_a", "layer_cka", "test_augmentation_spectrum",
]  # fmt: skip
FIGURES = {  # people save figures by these names
    *("upper_bound", "bound_terms", "bound_entropy", "effective_rank", "projector_rank", "projector_thresholds"),
    *("lidar", "alpha_req", "alpha_req_r2", "intrinsic_dimension", "sigreg", "augmentation_rank", "null_space"),
    *("unexplained_variance", "unexplained_variance_tau", "local_unexplained_variance", "rotation", "trajectory"),
    *("local_unexplained_variance_tau", "jacobian_rank", "linear_regions", "linear_regions_visited", "lie_r2"),
    *("lie_null_space", "hardest_negative_distance", "hardest_negative_histogram", "label_agreement", "mcc"),
    *("within_class", "neural_collapse", "cka_drift", "temperature_order", "temperature_shares", "content_outputs"),
    *("spectrum", "projector_spectrum", "augmentation_spectrum", "jacobian_spectrum"),
}
LAYERS = (("e", "EffectiveRank", ""), ("a", "AlphaReQ", "alpha"))  # columns and what they are of


@pytest.fixture(scope="module")
def standard(computed):
    """The diagnostics of a monitor that is given none."""
    return {name: computed[type(metric).__name__] for name, metric in standard_diagnostics().items()}


@pytest.fixture(scope="module")
def run(standard, tmp_path_factory):
    return write_standard(tmp_path_factory.mktemp("runs") / "one", standard)


def write_standard(folder, standard, **arguments):
    loss = Declared(quantity=SimCLRModule.quantities["loss"], section="learning", diagnostic="SimCLRModule", key="loss")
    declare(folder, train__loss=loss)
    write_results(folder, standard, rename=STANDARD_RENAME, **arguments)
    rows = (folder / "metrics.csv").read_text().splitlines()
    rows = [f"{row},{'train/loss' if place == 0 else 5 - place}" for place, row in enumerate(rows)]
    (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
    return folder


def test_charts_keep_their_names(computed):
    charts = {quantity.chart for metric, _ in computed.values() for quantity in metric.quantities.values()} - {None}
    assert {chart.name for chart in charts} >= FIGURES


def test_of_a_fit(run):
    assert list(figures(read_run(run))) == STANDARD


def test_of_a_comparison(run, standard, tmp_path):
    other = write_standard(tmp_path / "other", standard, shift=0.1)
    assert list(comparison_figures({"a": [run], "b": [other]})) == COMPARED
    assert list(comparison_figures({"a": [run]})) == COMPARED


def test_of_a_diagnosis(standard, computed, tmp_path):
    write_results(tmp_path, standard, "test", 1, STANDARD_RENAME)
    write_info(tmp_path, kind="diagnosis")
    write_csv(tmp_path / "layers.csv", ["layer", "width", "e", "a"], [["h", 6, 5.5, 1.25], ["z", 4, 3.5, 1.5]])
    write_csv(tmp_path / "linear_evaluation.csv", ["features", "accuracy"], [["trained", 0.9], ["frozen", 0.8]])
    write_snapshot(tmp_path, "test/layer_cka", [[1, 0.5], [0.5, 1]], 0)
    about = {f"layers__{name}": replace(meaning(computed[of][0], key), section="layers") for name, of, key in LAYERS}
    about |= meanings(LayerGeometry(), {"test/layer_cka": "layer_cka"})
    declare(tmp_path, **about, **meanings(LinearEvaluation(), {"linear_evaluation": "linear_evaluation"}))
    assert list(figures(read_run(tmp_path))) == DIAGNOSED


def test_names_are_told_apart(tmp_path):
    write_csv(tmp_path / "metrics.csv", ["epoch", "step", "a_b_2", "a b", "a/b", "a.b"], [[0, 9, 1, 2, 3, 4]])
    assert list(figures(read_run(tmp_path))) == ["a_b_2", "a_b", "a_b_3", "a_b_4"]
    declare(tmp_path, a_b_2=entry("A", of="LiDARRank", key="b"))
    assert next(iter(figures(read_run(tmp_path)))) == "li_dar_rank_b"
