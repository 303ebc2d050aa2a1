"""A timm backbone with a projector in a module of one's own."""

import runpy

import pytest
import torch
from hosts import ATTACH, assert_logged, assert_undisturbed, rankme


@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny"])
def test_it_is_observed_and_trains_the_same(tmp_path, name):
    def host(kind):
        return kind() if name == "resnet10t" else small_transformer(kind)

    scene = assert_undisturbed(tmp_path, "timm_backbone", host=host)
    assert_logged(scene["trainer"], {"train", "val", "probe"})
    model = scene["host"].eval()
    with torch.no_grad():
        h = torch.cat([model.backbone(x) for batch in scene["seen"].batches for x in batch[:2]])
    for stage in ("val", "probe"):
        assert scene["trainer"].callback_metrics[f"{stage}/effective_rank_h"] == pytest.approx(rankme(h), rel=1e-4)


def small_transformer(kind):
    import timm

    made = kind()
    shape = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3}
    made.backbone = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=0, **shape)
    made.projector = torch.nn.Linear(48, 16)
    return made


@pytest.mark.filterwarnings("ignore")  # Lightning's advice to users: loggers, workers, logging intervals
def test_the_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ATTACH / "timm_backbone.py"), run_name="__main__")
    assert list(tmp_path.rglob("geometry/probe/log_spectrum_h.csv"))
