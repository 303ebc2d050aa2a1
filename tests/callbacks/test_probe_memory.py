import pytest
import torch
from hosts import HalvesHost, PlainHost, loader, quiet

from lightning_ssl_geometry.callbacks import KNNProbe


@pytest.mark.parametrize(("host", "views"), [(PlainHost, "calls"), (HalvesHost, "halves")])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_bank_of_a_knn_probe_keeps_first_views_alone(tmp_path, host, views, precision):
    probe = KNNProbe(num_classes=2, taps={"h": "trunk"}, view_layout=views, batch_keys={"label": 2}, bank_size=20)
    quiet(tmp_path, callbacks=[probe], precision=precision).fit(host(), loader(), loader(seed=1))
    assert len(probe._bank) == 3  # of 5 batches of 8
    for h, label in probe._bank:
        assert (h.dtype, h.shape, h.grad_fn) == (torch.float32, (8, 10), None)
        assert h.untyped_storage().nbytes() == 8 * 10 * 4  # not that of the batch's other view too
        assert label.untyped_storage().nbytes() == 8 * 8
