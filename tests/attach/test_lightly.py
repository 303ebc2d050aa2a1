"""SimCLR and VICReg as lightly's documentation builds them, on its own data sets, heads, losses and transforms."""

import runpy

import pytest
import torch
from hosts import ATTACH, assert_logged, assert_undisturbed, rankme

from lightning_ssl_geometry.callbacks import GeometryMonitor

pytest.importorskip("lightly")
pytorch_lightning = pytest.importorskip("pytorch_lightning")
ALONE = pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`")


def h_by_hand(scene):
    host = scene["host"].eval()
    with torch.no_grad():
        return torch.cat([host.backbone(x).flatten(1) for batch in scene["seen"].batches for x in batch[0]])


@ALONE
@pytest.mark.parametrize(
    ("name", "stages"), [("lightly_simclr", {"train", "probe"}), ("lightly_vicreg", {"train", "val"})]
)
def test_it_is_observed_and_trains_the_same(tmp_path, name, stages):
    scene = assert_undisturbed(tmp_path, name, max_epochs=1)
    assert_logged(scene["trainer"], stages)
    stage = "probe" if "probe" in stages else "val"
    found = scene["trainer"].callback_metrics[f"{stage}/effective_rank_h"]
    assert found == pytest.approx(rankme(h_by_hand(scene)), rel=1e-4)


@pytest.mark.filterwarnings("ignore")  # those of the other Lightning package
def test_the_trainer_may_come_from_pytorch_lightning_as_in_their_documentation(tmp_path):
    scene = runpy.run_path(str(ATTACH / "lightly_simclr.py"))
    steps = {"training_step": scene["Host"].training_step, "configure_optimizers": scene["Host"].configure_optimizers}
    host = type("Host", (pytorch_lightning.LightningModule,), steps)()
    model = scene["Host"]()
    host.backbone, host.projection_head, host.criterion = model.backbone, model.projection_head, model.criterion
    monitor = GeometryMonitor(**scene["SEEN"], stages=["probe"])
    trainer = pytorch_lightning.Trainer(
        default_root_dir=tmp_path, max_steps=1, accelerator="cpu", enable_progress_bar=False, callbacks=[monitor]
    )
    trainer.fit(host, scene["LOADER"], scene["LOADER"])
    assert_logged(trainer, {"probe"}, probes=False)
    assert list(tmp_path.rglob("geometry/probe/log_spectrum_h.csv"))
