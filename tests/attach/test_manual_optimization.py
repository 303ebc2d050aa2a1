"""A host that steps two optimizers itself; it has no validation."""

import pytest
import torch
from hosts import assert_logged, assert_undisturbed, rankme

ALONE = pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`")


@ALONE
def test_it_is_observed_and_trains_the_same(tmp_path):
    scene = assert_undisturbed(tmp_path, "manual_optimization", max_epochs=2)
    assert_logged(scene["trainer"], {"train", "probe"})
    host = scene["host"].eval()
    assert scene["trainer"].global_step == 2 * 2 * len(scene["LOADER"])  # Lightning counts each optimizer's steps
    with torch.no_grad():
        h = torch.cat([host.encoder(x) for batch in scene["seen"].batches for x in batch[:2]])
    assert scene["trainer"].callback_metrics["probe/effective_rank_h"] == pytest.approx(rankme(h), rel=1e-4)
