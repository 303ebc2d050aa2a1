"""From a fit to its page: what diagnostics compute is written down with its meaning, and the page says it."""

from typing import ClassVar

import pandas as pd
import pytest
import torch
from hosts import PlainHost, loader, quiet
from lightning.pytorch.loggers import CSVLogger
from pages import page_of
from rich.console import Console
from torch import nn
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric

from lightning_ssl_geometry import diagnostics as d
from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.methods import AdaptiveTemperatureModule, CRLTACModule
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.report import figures, read_run, summary_table, write_report
from lightning_ssl_geometry.views import CropFamily


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
        assert list(frame) == ["epoch", "step", "samples", "views", "width_h", "width_z"]
        assert frame.to_numpy().tolist() == [[0, 5, samples, 2, 40, 4], [1, 10, samples, 2, 40, 4]]


def test_the_page_says_what_was_computed_whatever_its_name(run):
    page = page_of(write_report(run))
    for kind in (d.EffectiveRank, d.AugmentationRank, d.LogSpectrum):
        assert kind.quantities.get("", next(iter(kind.quantities.values()))).high in page.text
    for text in ("<h2>My own</h2>", "Long rows.", "Norm of rows", "The mean entry.", "their_loss"):
        assert text in page.source
    assert "Nothing more" not in page.text
    labels = {text.get_text().split()[0] for text in figures(read_run(run))["effective_rank"].axes[0].texts}
    assert {"h", "z"} <= labels


def test_a_rank_that_the_rows_bound_is_called_so(run):
    read = read_run(run)
    assert not any("seen" in name for name in read.arrays)
    assert sum("train saw fewer rows than dimensions" in note for note in read.notes) == 1
    assert not any("Readouts of val" in note for note in read.notes)
    console = Console(width=200, record=True)
    console.print(summary_table(read))
    shown = {line.split()[1]: line for line in console.export_text().splitlines() if "train/" in line}
    assert "(at most 16 here)" in shown["train/one"]
    assert "(at most 8 here)" in shown["train/near_rank"]
    text = page_of(write_report(run)).text
    assert "In train, 8 samples in 2 views were seen: at most 16 here." in text
    assert "In val" not in text


def test_a_table_of_rows_that_holds_nonsense_bounds_nothing(run):
    path = run / "geometry" / "train" / "rows_seen.csv"
    before = path.read_text()
    for row in ("0,5,nan,2,40,4", "0,5,-3,2,40,4", "0,5,1e30,2,40,4", "0,5,x,2,,"):
        path.write_text(f"epoch,step,samples,views,width_h,width_z\n{row}\n")
        assert not any("fewer rows" in note for note in read_run(run).notes)
        write_report(run)
    path.write_text(before)


def drawn_of(read, *kinds):
    """Charts of what these classes declare that are figures of a run, in one stage."""
    charts = [quantity.chart for kind in kinds for quantity in kind.quantities.values() if quantity.chart]
    names = {name.removeprefix("val_") for name in figures(read)}
    return {chart.name for chart in charts} & names, {chart.name for chart in charts}


def as_batch(samples):
    batch = {name: torch.stack([torch.as_tensor(sample[name]) for sample in samples]) for name in samples[0]}
    return batch | {"views": (batch["image"],)}


def test_a_method_with_a_policy(tmp_path):
    kinds = (d.NonEmptyProbability, d.PolicyEntropy, d.PolicyMaps, d.PairSimilarity, d.EmbeddingSample)
    named = {kind.__name__: kind(**{"count": 4} if kind in (d.PolicyMaps, d.EmbeddingSample) else {}) for kind in kinds}
    model = CRLTACModule(
        nn.Sequential(nn.Flatten(), nn.Linear(4, 6)),
        nn.Linear(6, 3),
        CropFamily(image_size=6, size=2, stride=2),
        policy=nn.Sequential(nn.Flatten(), nn.Linear(36, 9)),
        draws=2,
    )
    samples = [{"image": image, "index": n, "label": n % 2} for n, image in enumerate(torch.rand(16, 1, 6, 6))]
    batches = DataLoader(samples, 8, collate_fn=as_batch)
    read = read_run(
        fit(tmp_path, model, GeometryMonitor(named, stages=("val", "probe"), probe_size=8), batches, batches)
    )
    assert read.snapshots["val/PolicyMaps_probability"].step == 4
    assert "probe/PolicyMaps_image" in read.snapshots
    found, charts = drawn_of(read, *kinds)
    assert found == charts
    assert {"policy_entropy", "policy_loss"} <= {entry.key for entry in read.declared.values()}  # of the method


def latents(samples):
    latent = torch.stack(samples, 1)
    label, index = (latent[0, :, 0] > 0.5).long(), (1e6 * latent[0, :, 0]).long()
    return {"views": tuple(latent), "image": latent[0], "latent": latent, "content": torch.tensor([True, False]),
            "label": label, "index": index}  # fmt: skip


def test_a_method_on_content_and_style(tmp_path):
    kinds = (d.LatentR2, d.MeanCorrelation, d.GradientSpectrum, d.LossTerms, d.DimensionTemperature, d.NeuralCollapse)
    named = {kind.__name__: kind(**{"similarity": "distance"} if kind is d.LossTerms else {}) for kind in kinds}
    named["OutputWeights"] = d.OutputWeights("backbone.2", split=2)
    model = AdaptiveTemperatureModule(
        nn.Sequential(nn.Linear(2, 4), nn.LeakyReLU(), nn.Linear(4, 4)), nn.Linear(4, 2), temperature=[0.5, 1.0]
    )
    first = torch.rand(96, 2)
    samples = list(torch.stack([first, first + torch.randn(96, 2) * torch.tensor([0.0, 0.1])], 1))
    batches = DataLoader(samples, 48, collate_fn=latents)
    read = read_run(fit(tmp_path, model, GeometryMonitor(named, stages=("val",)), batches, batches))
    found, charts = drawn_of(read, *kinds, d.OutputWeights)
    assert found == charts
