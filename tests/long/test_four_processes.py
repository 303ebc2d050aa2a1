"""Every method gives the same results on 1 and on 4 processes, with an uneven last batch."""

import pytest
from hosts import quiet
from small_methods import METHODS, data

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe


def fitted(rank, method, folder, batch_size):
    """Weights and logged scalars after a fit in float64, by four processes if a rank is given."""
    devices = {"devices": 4, "strategy": "ddp"} if rank is not None else {}
    model, watch = METHODS[method](), [GeometryMonitor(every_n_steps=2), KNNProbe(k=5)]
    trainer = quiet(folder, max_epochs=2, callbacks=watch, precision="64-true", **devices)
    trainer.fit(model, datamodule=data(batch_size))
    scalars = {name: value.item() for name, value in trainer.callback_metrics.items()}
    return {name: value.numpy() for name, value in model.state_dict().items()}, scalars


@pytest.mark.parametrize("method", METHODS)
def test_one_and_four_processes_agree(method, tmp_path, four_processes):
    weights, scalars = fitted(None, method, tmp_path / "one", 48)
    assert {"train/loss", "val/knn_probe_accuracy"} <= scalars.keys()
    for found_weights, found_scalars in four_processes(fitted, method, tmp_path / "four", 12):
        assert found_scalars == pytest.approx(scalars, rel=1e-6, abs=1e-7)
        for name, value in weights.items():
            assert found_weights[name] == pytest.approx(value, rel=1e-6, abs=1e-7), name
