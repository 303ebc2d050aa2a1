"""BYOL, MoCo, DINO and a masked autoencoder with lightly's parts: teachers, several crops and tokens."""

import pytest
import torch
from hosts import ATTACH, assert_undisturbed, rankme

pytest.importorskip("lightly")
ALONE = pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`")


def every_step(scene):
    for callback in scene["CALLBACKS"]:
        if hasattr(callback, "every_n_steps"):
            callback.every_n_steps = 1


def observed(folder, name):
    """Fit an example with and without its callbacks, and return its names."""
    return assert_undisturbed(folder, name, max_epochs=1, before=every_step)


def images(scene, views=(0, 1)):
    return [torch.cat([batch[view] for batch in scene["seen"].batches]) for view in views]


@ALONE
def test_byols_teacher_and_student_are_two_monitors(tmp_path):
    scene = observed(tmp_path, "byol")
    host, metrics = scene["host"].eval(), scene["trainer"].callback_metrics
    with torch.no_grad():
        for name, backbone in (("student", host.backbone), ("teacher", host.backbone_momentum)):
            h = torch.cat([backbone(x) for x in images(scene)])
            assert metrics[f"probe/{name}/effective_rank_h"] == pytest.approx(rankme(h), rel=1e-4)
            assert f"train/{name}/alignment" in metrics
    assert metrics["probe/student/effective_rank_h"] != metrics["probe/teacher/effective_rank_h"]
    assert metrics["val/knn_probe_accuracy"] > 0.7


@ALONE
def test_mocos_query_and_key_are_the_views_of_two_networks(tmp_path):
    scene = observed(tmp_path, "moco")
    host, metrics = scene["host"].eval(), scene["trainer"].callback_metrics
    query, key = images(scene)
    with torch.no_grad():
        h = host.backbone(query), host.backbone_momentum(key)
        z = torch.stack([host.projection_head(h[0]), host.projection_head_momentum(h[1])])
    assert metrics["probe/effective_rank_h_backbone"] == pytest.approx(rankme(h[0]), rel=1e-4)
    assert metrics["probe/effective_rank_h_backbone_momentum"] == pytest.approx(rankme(h[1]), rel=1e-4)
    assert metrics["probe/effective_rank_h"] == pytest.approx(rankme(torch.cat(h)), rel=1e-4)
    assert metrics["probe/effective_rank_z"] == pytest.approx(rankme(z.flatten(0, 1)), rel=1e-4)
    assert {f"{stage}/modality_gap_gap" for stage in ("train", "probe")} <= metrics.keys()


@ALONE
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")  # in lightly's head
def test_dinos_student_is_observed_on_six_crops_and_its_teacher_on_two(tmp_path):
    scene = observed(tmp_path, "dino")
    student, teacher = scene["MONITORS"]
    for monitor, views in ((student, 6), (teacher, 2)):
        assert {stage: seen.views for stage, seen in monitor.measurements.seen.items()} == {
            "train": views,
            "probe": views,
        }
    assert {f"{stage}/{who}/alignment" for stage in ("train", "probe") for who in ("student", "teacher")} <= (
        scene["trainer"].callback_metrics.keys()
    )


@ALONE
def test_a_masked_autoencoders_tokens_become_rows(tmp_path):
    scene = observed(tmp_path, "masked_autoencoder")
    host, metrics = scene["host"].eval(), scene["trainer"].callback_metrics
    with torch.no_grad():
        tokens = torch.cat([host(batch[0]) for batch in scene["seen"].batches])
    assert tokens.shape == (900, 5, 48)
    assert metrics["probe/rank_patches"] == pytest.approx(rankme(tokens[:, 1:].mean(1)), rel=1e-4)
    assert metrics["probe/rank_cls"] == pytest.approx(rankme(tokens[:, 0]), rel=1e-4)
    assert {"train/rank_patches", "train/alpha_req_cls_alpha", "val/linear_probe_accuracy"} <= metrics.keys()


def test_the_examples_are_observed_as_their_first_lines_say():
    for name in ("byol", "moco", "dino", "masked_autoencoder", "clip"):
        first = (ATTACH / f"{name}.py").read_text().splitlines()[0]
        assert first.endswith(f'python examples/attach/{name}.py."""')
