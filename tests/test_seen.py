"""Where the rows of a readout bound a rank, the table, the page and the notes say so."""

import pandas as pd
import pytest
import torch
from hosts import loader, quiet
from lightning.pytorch.loggers import CSVLogger
from pages import Page
from rich.console import Console
from torch import nn

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.diagnostics import AugmentationRank, EffectiveRank, LogSpectrum
from lightning_ssl_geometry.report import read_run, summary_table, write_report

DIAGNOSTICS = {"effective_rank_h": EffectiveRank(), "augmentation": AugmentationRank(), "log_spectrum_h": LogSpectrum()}


class Wide(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6, 200), nn.ReLU(), nn.Linear(200, 40))


@pytest.fixture
def run(tmp_path):
    from hosts import PlainHost

    torch.manual_seed(0)
    host = PlainHost()
    host.trunk, host.head = Wide(), nn.Linear(40, 4, bias=False)
    monitor = GeometryMonitor(DIAGNOSTICS, taps={"h": "trunk", "z": "head"}, every_n_steps=100)
    trainer = quiet(tmp_path, callbacks=[monitor], logger=CSVLogger(tmp_path, "run"), max_epochs=2)
    trainer.fit(host, loader(40), loader(80, seed=1))
    return tmp_path / "run" / "version_0"


def test_each_readout_records_its_rows(run):
    for stage, samples in (("train", 8), ("val", 80)):
        frame = pd.read_csv(run / "geometry" / stage / "rows_seen.csv")
        assert list(frame) == ["epoch", "step", "samples", "views", "width_h", "width_z"]
        assert frame.to_numpy().tolist() == [[0, 5, samples, 2, 40, 4], [1, 10, samples, 2, 40, 4]]


def test_a_bounded_rank_is_called_so(run):
    read = read_run(run)
    assert not any("seen" in name for name in read.arrays)
    assert len([note for note in read.notes if "train saw fewer rows than dimensions" in note]) == 1
    assert not any("Readouts of val" in note for note in read.notes)
    console = Console(width=200, record=True)
    console.print(summary_table(read))
    shown = [line.strip(" │┃") for line in console.export_text().splitlines()]
    lines = {line.split()[0]: line for line in shown if line.startswith("train/")}
    assert "(at most 16 here)" in lines["train/effective_rank_h"]
    assert "(at most 8 here)" in lines["train/augmentation_rank"]
    text = Page(write_report(run).read_text()).text
    assert "In train, 8 samples in 2 views were seen: at most 16 here." in text
    assert "at most 8 here" in text
    assert "In val" not in text


def test_a_table_that_holds_nonsense_bounds_nothing(run):
    path = run / "geometry" / "train" / "rows_seen.csv"
    for row in ("0,5,nan,2,40,4", "0,5,-3,2,40,4", "0,5,1e30,2,40,4", "0,5,x,2,,"):
        path.write_text(f"epoch,step,samples,views,width_h,width_z\n{row}\n")
        assert not any("fewer rows" in note for note in read_run(run).notes)
        write_report(run)
