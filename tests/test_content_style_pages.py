"""Pages and figures of runs on synthetic processes with content and style."""

import re

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from lightning_ssl_geometry.report.glossary import lookup
from pages import CHROMIUM, Page, seen_in_a_browser, write_csv, write_log
from torch import nn
from torch.utils.data import DataLoader

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.diagnostics import (
    DimensionTemperature,
    GradientSpectrum,
    LatentR2,
    LossTerms,
    MeanCorrelation,
    NeuralCollapse,
    OutputWeights,
    TemperatureOrder,
)
from lightning_ssl_geometry.methods import AdaptiveTemperatureModule
from lightning_ssl_geometry.report import comparison_figures, figures, read_run, write_comparison, write_report
from lightning_ssl_geometry.report.headline import headline

LAYERS, DIM = 9, 10
SCALARS = {  # at the start and at the end, of a run that loses its style
    "latent_r2_content_h": (0.6, 0.99),
    "latent_r2_style_h": (0.6, 0.9),
    "latent_r2_content_z": (0.5, 0.99),
    "latent_r2_style_z": (0.5, 0.07),
    "mcc_mean": (0.3, 0.6),
    "mcc_content": (0.3, 0.9),
    "mcc_style": (0.3, 0.3),
    "temperature_order_auc": (0.5, 0.9),
    "temperature_order_content_share": (0.5, 0.95),
    "temperature_order_style_share": (0.5, 0.8),
    "temperature_order_content_outputs": (6, 5),
    "gradient_spectrum_content_dimension": (0, 5),
    "loss_terms_align": (-0.1, 0.2),
    "loss_terms_uniform": (6.9, 4.0),
    "loss_terms_total": (6.8, 4.2),
    "output_weights_used": (0.1, 0.1),
    "output_weights_unused": (0.1, 0.001),
    "neural_collapse_within_class": (30, 0.5),
    "neural_collapse_equinorm": (0.5, 0.1),
    "neural_collapse_equiangularity": (0.3, 0.2),
    "neural_collapse_simplex": (0.5, 0.1),
}
FIGURES = (
    *("within_class", "neural_collapse"),  # beside the neighbours, where labels are
    *("latent_r2_by_layer", "latent_r2_z", "latent_r2_h", "mcc", "loss_terms", "content_dimension"),
    *("temperature_order", "temperature_shares", "content_outputs", "output_weights_split"),
    *("gradient_spectrum", "gradient_ratio", "temperatures", "output_weights"),
)


def arrays(share):
    """What layers, directions, dimensions and channels have when this share of training is done."""
    lost = np.where(np.arange(LAYERS) == LAYERS - 1, 0.5 - 0.43 * share, 0.9)
    content = np.arange(DIM) < 5
    ratio = np.where(content, 0.001, 0.4)
    ratio[-1] = np.nan
    return {
        "latent_r2_content": np.linspace(0.8, 0.8 + 0.19 * share, LAYERS),
        "latent_r2_style": lost,
        "gradient_spectrum_singular_values": np.where(content, 1.0, 0.1 - 0.09 * share),
        "gradient_spectrum_ratio": ratio,
        "dimension_temperature": np.where(content, 1.0 - 0.8 * share, 1.0),
        "output_weights_weight": np.where(content, 0.1, 0.1 - 0.099 * share),
    }


def write_run(folder, stage="probe", shift=0.0):
    steps = np.linspace(0, 1, 4)
    columns = {f"{stage}__{k}": first + (last - first) * steps + shift for k, (first, last) in SCALARS.items()}
    write_log(folder, **columns)
    for name in arrays(0):
        rows = [[e, 10 * (e + 1), *(arrays(share)[name] + shift)] for e, share in enumerate(steps)]
        write_csv(folder / f"geometry/{stage}/{name}.csv", ["epoch", "step", *range(len(rows[0]) - 2)], rows)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "one")


def test_figures_have_names_of_their_own(run, tmp_path):
    drawn = figures(read_run(run))
    assert tuple(drawn) == FIGURES
    for figure in drawn.values():
        figure.savefig(tmp_path / "figure.png")


def test_layers_are_counted_from_the_input_and_style_is_dashed(run):
    (axes,) = figures(read_run(run))["latent_r2_by_layer"].axes
    content, style = [line for line in axes.lines if len(line.get_xdata()) == LAYERS and line.get_marker() == "None"]
    assert content.get_xdata().tolist() == list(range(LAYERS))
    np.testing.assert_allclose(content.get_ydata(), arrays(1)["latent_r2_content"])
    np.testing.assert_allclose(style.get_ydata(), arrays(1)["latent_r2_style"])
    assert content.get_linestyle() == "-"
    assert style.get_linestyle() != "-"
    assert [text.get_text() for text in axes.texts if text.get_text() in ("content 0.990", "style 0.0700")]


def test_the_page_shows_content_and_style(run):
    page = Page(write_report(run).read_text("utf-8"))
    text = page.text.replace("\N{NO-BREAK SPACE}", " ")
    for expected in ("Content and style", "R² of content and style by layer", "Fig. 1", "Prop. 3", "Rusak et al. 2022"):
        assert expected in text, expected
    assert "Content Suppresses Style" in text
    assert "Other diagnostics" not in re.sub("Nothing recorded.*", "", text)
    assert not [
        name for name in page.values("href") if not name.startswith(("https://arxiv.org/abs/", "#", "data:text/csv;"))
    ]
    tiles = {tile.name: tile for tile in headline(read_run(run))}
    assert tiles["R² of style in z"].value == "0.0700"
    assert "content 0.990" in tiles["R² of style in z"].remark


def test_each_stage_has_its_figures(tmp_path):
    for stage in ("val", "probe"):
        write_run(tmp_path / "both", stage)
    drawn = figures(read_run(tmp_path / "both"))
    assert {"latent_r2_by_layer", "latent_r2_by_layer_2", "temperatures", "temperatures_2"} <= drawn.keys()


def test_a_kind_may_be_missing_and_arrays_without_a_finite_number_are_left_out(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "geometry/probe/latent_r2_style.csv").unlink()
    (run / "metrics.csv").unlink()
    for name in ("dimension_temperature", "output_weights_weight"):
        write_csv(run / f"geometry/probe/{name}.csv", ["epoch", "step", 0, 1], [[0, 10, "nan", "nan"]])
    assert list(figures(read_run(run))) == ["latent_r2_by_layer", "gradient_spectrum", "gradient_ratio"]
    write_csv(run / "geometry/probe/latent_r2_content.csv", ["epoch", "step", 0, 1], [[0, 10, "nan", "nan"]])
    assert "latent_r2_by_layer" not in figures(read_run(run))
    assert "latent_r2_by_layer" not in comparison_figures({"a": [run]})


def test_groups_are_compared(run, tmp_path):
    groups = {"a": [run, write_run(tmp_path / "other", shift=0.01)], "b": [write_run(tmp_path / "b", shift=-0.02)]}
    drawn = comparison_figures(groups)
    assert tuple(drawn) == FIGURES
    (axes,) = drawn["latent_r2_by_layer"].axes
    labels = {text.get_text() for text in axes.texts}
    assert {"a 0.995", "a 0.0750", "b 0.970", "b 0.0500"} <= labels
    page = Page(write_comparison(groups, tmp_path / "page.html").read_text("utf-8"))
    assert "Content and style" in page.text
    many = {name: [run] for name in "abcd"}  # their lines are named once
    (axes,) = comparison_figures(many)["latent_r2_by_layer"].axes
    assert not [text for text in axes.texts if text.get_text().endswith("0.0700")]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_browser_shows_the_page(run, tmp_path):
    seen = seen_in_a_browser(Page(write_report(run).read_text("utf-8")), tmp_path)
    for width in ("390", "1440"):
        assert seen[width]["overflow"] <= 0
        assert seen[width]["cut"] == []
        assert seen[width]["figures"] == seen[width]["seen"] == len(FIGURES)


def test_the_glossary_knows_what_the_monitor_writes():
    for name in (*SCALARS, *arrays(0)):
        assert lookup(f"probe/{name}") is not None, name


def as_batch(samples):
    latent = torch.stack(samples, 1)
    content = torch.tensor([True, False])
    label, index = (latent[0, :, 0] > 0.5).long(), (1e6 * latent[0, :, 0]).long()
    return {"views": tuple(latent), "image": latent[0], "latent": latent, "content": content, "label": label,
            "index": index}  # fmt: skip


def test_a_fit_writes_what_the_page_shows(tmp_path):
    diagnostics = {
        "latent_r2": LatentR2(),
        "mcc": MeanCorrelation(),
        "temperature_order": TemperatureOrder(),
        "gradient_spectrum": GradientSpectrum(),
        "loss_terms": LossTerms(similarity="distance"),
        "dimension_temperature": DimensionTemperature(),
        "output_weights": OutputWeights("backbone.2", split=2),
        "neural_collapse": NeuralCollapse(),
    }
    model = AdaptiveTemperatureModule(
        nn.Sequential(nn.Linear(2, 4), nn.LeakyReLU(), nn.Linear(4, 4)), nn.Linear(4, 2), temperature=[0.5, 1.0]
    )
    first = torch.rand(96, 2)
    samples = list(torch.stack([first, first + torch.randn(96, 2) * torch.tensor([0.0, 0.1])], 1))
    loader = DataLoader(samples, 48, collate_fn=as_batch)
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=CSVLogger(tmp_path),
        callbacks=[GeometryMonitor(diagnostics, stages=("val",))],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
    )
    trainer.fit(model, loader, loader)
    run = read_run(trainer.log_dir)
    assert {f"val/{name}" for name in arrays(0)} == run.arrays.keys()
    assert {f"val/{name}" for name in SCALARS} <= run.scalars.keys()
    assert set(FIGURES) - {"temperature_order", "temperature_shares"} <= figures(run).keys()  # without a number so far
