"""A module of stable-pretraining, on its data sets and transforms; in an environment of its own (`nox -s hosts`)."""

import os
import runpy

import pytest
import torch

pytest.importorskip("stable_pretraining")

from hosts import ATTACH, STANDARD, quiet, rankme

pytestmark = pytest.mark.filterwarnings("ignore")  # the package's own, and Lightning's advice to users


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    import stable_pretraining as spt

    spt.set(cache_dir=str(tmp_path / "cache"))


def fit(folder, watched):
    torch.manual_seed(0)
    scene = runpy.run_path(str(ATTACH / "stable_pretraining_module.py"))
    torch.manual_seed(1)
    host = scene["build"]()
    scene["CALLBACKS"][0].every_n_steps = 1
    trainer = quiet(folder, callbacks=scene["CALLBACKS"] if watched else [])
    trainer.fit(host, scene["LOADER"], scene["VALIDATION"])
    return scene, trainer, host


def test_it_is_observed_and_trains_the_same(tmp_path):
    scene, trainer, host = fit(tmp_path / "a", True)
    _, bare, expected = fit(tmp_path / "b", False)
    for name, value in expected.state_dict().items():
        assert torch.equal(host.state_dict()[name], value), name
    keys = []
    for each in (trainer, bare):
        each.save_checkpoint(tmp_path / "x.ckpt")
        keys.append(set(torch.load(tmp_path / "x.ckpt", weights_only=False)["state_dict"]))
    assert keys[0] == keys[1]

    metrics = trainer.callback_metrics
    for stage in ("train", "probe"):
        for name in STANDARD:
            found = [value for key, value in metrics.items() if key.startswith(f"{stage}/{name}")]
            assert found, f"{stage}/{name}"
            assert all(torch.isfinite(value) for value in found), f"{stage}/{name}"
    assert {"val/linear_probe_accuracy", "val/knn_probe_accuracy"} <= metrics.keys()

    host.eval()
    augment, start, h = scene["PROBE"].observer.augment, 0, []
    with torch.no_grad():
        for batch in scene["VALIDATION"]:
            image = batch["image"]
            index = torch.arange(start, start := start + len(image))
            h += [host.backbone(view) for view in augment(image, index)]
    assert metrics["probe/effective_rank_h"] == pytest.approx(rankme(torch.cat(h)), rel=1e-3)


def test_the_callbacks_that_it_adds_to_every_trainer_come_beside(tmp_path):
    names = {type(callback).__module__.split(".")[0] for callback in quiet(tmp_path).callbacks}
    assert "stable_pretraining" in names or os.environ.get("SPT_DISABLE_CALLBACKS")
