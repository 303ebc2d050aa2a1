"""From a fit to its page: what diagnostics compute is written down with its meaning, and the page says it."""

from typing import ClassVar

import pandas as pd
import pytest
import torch
from hosts import PlainHost, loader, quiet
from lightning.pytorch.loggers import CSVLogger
from pages import drawn, report
from rich.console import Console
from torch import nn
from torchmetrics import MeanMetric

from lightning_ssl_geometry import diagnostics as d
from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.report import read_run, summary_table, write_report


def fit(folder, host, monitor, *loaders):
    torch.manual_seed(0)
    trainer = quiet(folder, callbacks=[monitor], logger=CSVLogger(folder, "run"), max_epochs=2)
    trainer.fit(host, *loaders)
    return folder / "run" / "version_0"


class Norm(MeanMetric):
    """A user's: the mean norm of z."""

    section = "My own"
    quantities: ClassVar = {"": Quantity(title="Norm of rows", low="Short rows.", high="Long rows.", unit="lengths")}

    def update(self, z):
        super().update(z.norm(dim=-1))


class Plain(MeanMetric):
    """The mean entry. Nothing more."""

    def update(self, h):
        super().update(h)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Wide layers, few rows, and names that say nothing of the diagnostics behind them."""
    host = PlainHost()
    host.trunk = nn.Sequential(nn.Linear(6, 200), nn.ReLU(), nn.Linear(200, 40))
    host.head = nn.Linear(40, 4, bias=False)
    named = {"one": d.EffectiveRank(), "two": d.EffectiveRank(), "near": d.AugmentationRank(), "own": Norm()}
    named |= {"spectrum": d.LogSpectrum(), "plain": Plain()}
    monitor = GeometryMonitor(named, taps={"h": "trunk", "z": "head"}, every_n_steps=100, rename={"two": {"h": "z"}})
    return fit(tmp_path_factory.mktemp("fit"), host, monitor, loader(40), loader(80, seed=1))


def test_each_readout_records_its_rows(run):
    for stage, samples in (("train", 8), ("val", 80)):
        frame = pd.read_csv(run / "geometry" / stage / "rows_seen.csv")
        assert list(frame) == ["epoch", "step", "samples", "views", "width_h", "width_z", "views_z"]
        assert frame.to_numpy().tolist() == [[0, 5, samples, 2, 40, 4, 2], [1, 10, samples, 2, 40, 4, 2]]


def test_the_page_says_what_was_computed_whatever_its_name(run):
    page = report(run)
    for kind in (d.EffectiveRank, d.AugmentationRank, d.LogSpectrum):
        assert kind.quantities.get("", next(iter(kind.quantities.values()))).high in page.text
    for text in ("<h2>My own</h2>", "Long rows.", "Norm of rows", "The mean entry.", "their_loss"):
        assert text in page.source
    assert "Nothing more" not in page.text
    labels = {text.get_text().split()[0] for text in drawn(run)["effective_rank"].texts}
    assert {"h", "z"} <= labels


def test_a_rank_that_the_rows_bound_is_called_so(run):
    read = read_run(run)
    assert not any("seen" in name for name in read.arrays)
    said = "Readouts of train saw few samples. Their number, not the network, limits some ranks and spectra to 8 or 16."
    assert sum(note.startswith(said) for note in read.notes) == 1
    assert not any("Readouts of val" in note for note in read.notes)
    console = Console(width=200, record=True)
    console.print(summary_table(read))
    shown = {line.split()[1]: line for line in console.export_text().splitlines() if "train/" in line}
    assert "(at most 16 here)" in shown["train/one"]
    assert "(at most 8 here)" in shown["train/near_rank"]
    text = report(run).text
    assert text.count("In train, 8 samples in 2 views were seen: at most 16 here.") == 1
    assert "In val" not in text


def test_a_table_of_rows_that_holds_nonsense_bounds_nothing(run):
    path = run / "geometry" / "train" / "rows_seen.csv"
    for row in ("0,5,nan,2,40,4", "0,5,-3,2,40,4", "0,5,1e30,2,40,4", "0,5,x,2,,"):
        path.write_text(f"epoch,step,samples,views,width_h,width_z\n{row}\n")
        assert not any("few samples" in note for note in read_run(run).notes)
    write_report(run)
