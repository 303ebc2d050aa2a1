"""Matrices (D, D) that are too large are refused before they are made, and the monitor goes on without them."""

import inspect
import warnings

import lightning as L
import pytest
import torch
from clouds import Drawn
from hosts import loader, quiet
from observations import concrete, metric_of, observed
from torch import nn

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.diagnostics import EffectiveRank, diagnostic
from lightning_ssl_geometry.diagnostics.diagnostic import TooWideError

DIM = 65_536
TAPS = {"h": "trunk", "z": "head", "projector": "head"}


def updated(kind):
    metric, given = metric_of(kind), observed(Drawn(views=2).points().double())
    metric.update(**{key: given[key] for key in inspect.signature(metric.update).parameters})
    return metric


def grown(metric):
    """The bytes of the matrices whose size the first update has set: the smallest size of a state (D, D) is 0."""
    states = {name: getattr(metric, name) for name in metric._defaults}
    matrices = [
        value
        for name, value in states.items()
        if isinstance(value, torch.Tensor) and value.ndim > 1 and not any(metric._defaults[name].shape)
    ]
    return sum(8 * value.numel() for value in matrices)


MATRICES = [name for name, kind in concrete().items() if grown(updated(kind))]


def test_diagnostics_with_matrices_are_known():
    assert {"EffectiveRank", "LogSpectrum", "AlphaReQ", "AugmentationRank", "LiDAR", "NeuralCollapse"} <= {*MATRICES}


@pytest.mark.parametrize("name", MATRICES)
def test_its_matrices_may_fill_the_limit_and_not_a_byte_more(name, monkeypatch):
    needed = grown(updated(concrete()[name]))
    monkeypatch.setattr(diagnostic, "STATE_LIMIT", needed)
    updated(concrete()[name])
    monkeypatch.setattr(diagnostic, "STATE_LIMIT", needed - 1)
    with pytest.raises(TooWideError, match=rf"Expected {name} to need at most .* GiB for matrices \(D, D\), but `\w+`"):
        updated(concrete()[name])


def test_the_error_comes_before_the_allocation():
    metric = EffectiveRank()
    with pytest.raises(ValueError, match=r"`h` has D = 65,536: 32 GiB\. Observe a narrower layer"):
        metric.update(torch.randn(3, DIM))
    assert not metric.outer.numel()


class Wide(L.LightningModule):
    """A head with more outputs than the limit of the test allows."""

    def __init__(self):
        super().__init__()
        self.trunk, self.head = nn.Linear(6, 10), nn.Linear(10, 512, bias=False)

    def training_step(self, batch, batch_idx):
        return (self.head(self.trunk(batch[0])) - self.head(self.trunk(batch[1]))).square().mean()

    validation_step = training_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-6)


def test_a_monitor_leaves_them_out_with_one_warning_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(diagnostic, "STATE_LIMIT", 2**20)
    monitor = GeometryMonitor(taps=TAPS, every_n_steps=1, stages=["train", "val"])
    trainer = quiet(tmp_path, callbacks=[monitor], max_epochs=2)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer.fit(Wide(), loader(16), loader(16, seed=1))
    about = [str(each.message) for each in said if "matrices" in str(each.message)]
    assert len(about) == 1
    both = "effective_rank_z (D = 512: 0.00195 GiB), log_spectrum_z (D = 512: 0.00195 GiB) out"
    assert both in about[0]
    assert "narrower layer in `taps`" in about[0]
    logged = trainer.callback_metrics
    for stage in ("train", "val"):
        for name in ("effective_rank_h", "alignment", "uniformity", "bound_upper"):
            assert logged[f"{stage}/{name}"].isfinite(), name
        assert f"{stage}/effective_rank_z" not in logged
