"""Two towers of different widths, as in CLIP: each gets its view, has diagnostics of its own, and trains the same."""

import runpy
import warnings

import lightning as L
import pytest
import torch
from hosts import ATTACH, Recorded, assert_undisturbed, quiet, rankme
from torch import nn

from lightning_ssl_geometry.callbacks import GeometryMonitor, RunReport
from lightning_ssl_geometry.diagnostics import EffectiveRank, Uniformity
from lightning_ssl_geometry.diagnostics.standard import standard_diagnostics, tower_diagnostics
from lightning_ssl_geometry.functional import alignment, modality_gap, uniformity
from lightning_ssl_geometry.report import read_run
from lightning_ssl_geometry.report.seen import cap_of

LEFT_OUT = pytest.mark.filterwarnings("ignore:GeometryMonitor leaves effective_rank_h, log_spectrum_h out")
OWN = {"effective_rank_h_visual", "effective_rank_h_text", "effective_rank_z_visual_head", "effective_rank_z_text_head"}
OWN |= {"uniformity_visual_head", "uniformity_text_head", "modality_gap_gap", "modality_gap_gap_chance"}
OWN |= {"modality_gap_share", "modality_gap_share_chance", "projector_rank_visual_head", "projector_rank_text_head"}
JOINT = {"effective_rank_z", "alignment", "uniformity", "gaussian_potential", "bound_upper", "bound_info_nce"}
ABSENT = {"effective_rank_h", "augmentation_rank"}


def embedded(scene):
    """h of each tower and z of both, of the validation set."""
    host, batches = scene["host"].eval(), scene["seen"].batches
    with torch.no_grad():
        image, text = (torch.cat([batch[key] for batch in batches]) for key in ("image", "text"))
        h = host.visual(image), host.text(text)
        return *h, torch.stack([host.visual_head(h[0]), host.text_head(h[1])]).double()


def test_the_page_has_the_towers_in_order_and_no_augmentations(tmp_path):
    found = tower_diagnostics({"h": ["visual", "text"], "z": ["visual_head", "text_head"]})
    spectra = [name for name in found if name.startswith("log_spectrum")]
    each = ["h_visual", "h_text", "z_visual_head", "z_text_head", "h", "z"]
    assert spectra == [f"log_spectrum_{name}" for name in each]
    assert "augmentation" not in found
    charts = {name: metric.quantities[""].chart.name for name, metric in found.items() if "effective_rank" in name}
    by_chart = [list(charts.values()).count(chart) for chart in charts.values()]
    assert max(by_chart) == 2  # lines of one stage in one figure
    assert tower_diagnostics({}).keys() == standard_diagnostics(samples=True).keys()


def test_the_rank_of_one_tower_is_bounded_by_its_own_rows(tmp_path):
    scene = runpy.run_path(str(ATTACH / "clip.py"))
    arguments = {"callbacks": [scene["MONITOR"], RunReport()], "limit_train_batches": 1, "limit_val_batches": 1}
    trainer = quiet(tmp_path, **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(scene["Host"](), scene["LOADER"], scene["VALIDATION"])
    run = read_run(tmp_path)
    for name, most in (("h_visual", 60), ("h_text", 48), ("z_text_head", 16)):  # one batch of 60 pairs
        assert cap_of(run, f"val/effective_rank_{name}").most == most
    assert cap_of(run, "val/effective_rank_z").most == 16


@LEFT_OUT
def test_it_is_observed_and_trains_the_same(tmp_path):
    scene = assert_undisturbed(tmp_path, "clip", max_epochs=2)
    metrics = scene["trainer"].callback_metrics
    visual, text, z = embedded(scene)
    expected = {
        "effective_rank_h_visual": rankme(visual),
        "effective_rank_h_text": rankme(text),
        "effective_rank_z": rankme(z.flatten(0, 1)),
        "effective_rank_z_text_head": rankme(z[1]),
        "alignment": alignment(*z),
        "uniformity_visual_head": uniformity(z[0]),
        "uniformity": (uniformity(z[0]) + uniformity(z[1])) / 2,
        "modality_gap_gap": modality_gap(*z),
    }
    for stage in ("val", "probe"):
        for name, value in expected.items():
            assert metrics[f"{stage}/{name}"] == pytest.approx(float(value), rel=1e-4), name
    for stage in ("train", "val", "probe"):
        logged = {name.removeprefix(f"{stage}/") for name in metrics if name.startswith(f"{stage}/")}
        assert logged >= OWN | JOINT
        assert not logged & ABSENT
    assert metrics["val/linear_probe_accuracy"] > 0.3


def test_what_is_left_out_is_said_once(tmp_path):
    scene = runpy.run_path(str(ATTACH / "clip.py"))
    trainer = quiet(tmp_path, callbacks=[scene["MONITOR"]], limit_train_batches=2, limit_val_batches=1)
    with pytest.warns(UserWarning, match="leaves .* out, since the towers in `taps` return vectors of diff") as said:
        trainer.fit(scene["Host"](), scene["LOADER"], scene["VALIDATION"])
    assert len([each for each in said if "leaves" in str(each.message)]) == 1


class TimmTowers(L.LightningModule):
    """A transformer of timm for images, an embedding for texts, and no `forward`."""

    def __init__(self):
        super().__init__()
        timm = pytest.importorskip("timm")
        shape = {"img_size": 8, "patch_size": 4, "in_chans": 1, "embed_dim": 24, "depth": 1, "num_heads": 3}
        self.towers = nn.ModuleDict({"image": timm.create_model("vit_tiny_patch16_224", num_classes=0, **shape)})
        self.towers["words"] = nn.EmbeddingBag(13, 24)
        self.heads = nn.ModuleDict({"image": nn.Linear(24, 6), "words": nn.Linear(24, 6)})

    def training_step(self, batch, batch_idx):
        z1 = self.heads["image"](self.towers["image"].forward_features(batch["image"].view(-1, 1, 8, 8))[:, 0])
        return (z1 - self.heads["words"](self.towers["words"](batch["text"]))).square().mean()

    validation_step = training_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_one_of_timms_towers_and_its_tokens(tmp_path):
    scene = runpy.run_path(str(ATTACH / "clip.py"))
    taps = {"h": ["towers.image.norm:cls", "towers.words"], "z": ["heads.image", "heads.words"]}
    taps |= {"projector": taps["z"]}
    monitor = GeometryMonitor(taps=taps, stages=["train", "val"], every_n_steps=1)
    trainer = quiet(tmp_path, callbacks=[monitor], limit_train_batches=2)
    seen, host = Recorded(scene["VALIDATION"]), TimmTowers()
    trainer.fit(host, scene["LOADER"], seen)
    image = torch.cat([batch["image"] for batch in seen.batches]).view(-1, 1, 8, 8)
    with torch.no_grad():
        h = host.eval().towers["image"].forward_features(image)[:, 0]
    metrics = trainer.callback_metrics
    assert metrics["val/effective_rank_h_image_norm_cls"] == pytest.approx(rankme(h), rel=1e-4)
    assert "train/effective_rank_h" in metrics  # both towers are 24 wide, so that there is one h of both


def test_a_diagnostic_of_ones_own_names_its_tower(tmp_path):
    scene = runpy.run_path(str(ATTACH / "clip.py"))

    def fit(folder, rename):
        monitor = GeometryMonitor({"rank": EffectiveRank(), "text": Uniformity()}, rename, taps=scene["TAPS"])
        trainer = quiet(folder, callbacks=[monitor], limit_train_batches=2, limit_val_batches=1)
        trainer.fit(scene["Host"](), scene["LOADER"], scene["VALIDATION"])
        return trainer.callback_metrics

    assert {"val/rank", "val/text"} <= fit(
        tmp_path / "own", {"rank": {"h": "h.text"}, "text": {"z": "z.text_head"}}
    ).keys()
    with pytest.raises(ValueError, match=r"Expected `h` for the diagnostic 'rank', but .* has only h.text, h.visual, "):
        fit(tmp_path / "joint", {})
