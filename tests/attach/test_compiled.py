"""torch.compile around a whole LightningModule, or around a part of it. The backends need no C++ compiler."""

import pytest
import torch
from hosts import assert_logged, assert_undisturbed, attach, rankme

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.diagnostics import EffectiveRank, JacobianRank, NullSpaceFraction, ProjectorRank

STAGES = {"train", "val", "probe"}


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()


def whole(host):
    return torch.compile(host(), backend="aot_eager")


def part(host):
    made = host()
    made.encoder = torch.compile(made.encoder, backend="eager")
    return made


@pytest.mark.parametrize("compiled", [whole, part])
def test_it_is_observed_and_trains_the_same(tmp_path, compiled):
    scene = assert_undisturbed(tmp_path, "compiled", host=compiled, max_epochs=2)
    assert_logged(scene["trainer"], STAGES)
    host = scene["trainer"].lightning_module.eval()
    h = torch.cat([host.encoder(x).detach() for batch in scene["seen"].batches for x in batch[:2]])
    for stage in ("val", "probe"):
        found = scene["trainer"].callback_metrics[f"{stage}/effective_rank_h"]
        assert found == pytest.approx(rankme(h), rel=1e-4)


def inner(monitor):
    """Tap a layer inside the compiled module, by its name without torch.compile's prefix."""
    monitor["CALLBACKS"][:] = [GeometryMonitor({"rank": EffectiveRank()}, taps={"h": "encoder.0"})]


def test_a_layer_inside_of_what_is_compiled(tmp_path):
    found = {}
    for name, host in (("plain", None), ("compiled", part)):
        torch.compiler.reset()
        scene = attach(tmp_path / name, "compiled", host=host, before=inner)
        found[name] = {key: value.item() for key, value in scene["trainer"].callback_metrics.items() if "rank" in key}
    assert found["plain"].keys() == {"train/rank", "val/rank"}
    assert found["compiled"] == pytest.approx(found["plain"], rel=1e-4)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's own, of two compiled parts in a row
def test_diagnostics_that_read_or_differentiate_the_projector_see_it_without_the_wrapper(tmp_path):
    def both(host):
        made = part(host)
        made.head = torch.compile(made.head, backend="aot_eager")
        return made

    def deep(scene):
        diagnostics = {"jacobian": JacobianRank(contrast_size=8), "rank": ProjectorRank(), "null": NullSpaceFraction()}
        taps = {"h": "encoder", "z": "head", "encoder": "encoder", "projector": "head"}
        scene["CALLBACKS"][:] = [
            GeometryMonitor(diagnostics, taps=taps, batch_keys={"views": [0, 1]}, stages=["probe"])
        ]

    found = []
    for host in (None, both):
        torch.compiler.reset()
        metrics = attach(tmp_path / str(len(found)), "compiled", host=host, before=deep)["trainer"].callback_metrics
        found.append({name: value.item() for name, value in metrics.items() if "probe/" in name})
    assert len(found[0]) >= 3
    assert found[1] == pytest.approx(found[0], rel=1e-3)


def test_a_hook_that_is_ignored_is_an_error(tmp_path):
    def called_before(host):
        made = part(host)
        made.encoder(torch.randn(60, 64))
        return made

    with pytest.raises(ValueError, match=r"`taps` \['h'\], but 'encoder.0' was never called.*torch.compile"):
        attach(tmp_path, "compiled", host=called_before, before=inner)


def test_the_nearest_names_are_those_without_torch_compile(tmp_path):
    def unknown(scene):
        scene["CALLBACKS"][:] = [GeometryMonitor(taps={"h": "encoder.9"})]

    with pytest.raises(ValueError, match=r"h='encoder.9'. Did you mean `encoder") as error:
        attach(tmp_path, "compiled", host=part, before=unknown)
    assert "_orig_mod" not in str(error.value)
