"""GeometryLoop in a hand-written training: the same numbers and files as the monitor's, and the same weights."""

import copy
import json
import re
from contextlib import nullcontext

import lightning as L
import numpy as np
import pytest
import torch
from hosts import PlainHost, pairs, quiet
from loops import SETTINGS, TAPS, Model, diagnostics, loop, rows, seeded, train
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from lightning_ssl_geometry.callbacks import GeometryMonitor, Host, RunReport
from lightning_ssl_geometry.diagnostics import Alignment, EffectiveRank, LabelAgreement, Uniformity
from lightning_ssl_geometry.measuring import GeometryLoop


class NotValidated(PlainHost):
    validation_step = L.LightningModule.validation_step


def test_the_training_is_bit_identical_with_and_without_the_loop(tmp_path):
    bare, watched = seeded(), seeded()
    torch.manual_seed(1)
    train(bare)
    torch.manual_seed(1)
    train(watched, loop(tmp_path, watched), held_out=DataLoader(pairs(seed=1), 8))
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), watched.parameters(), strict=True))
    assert torch.equal(bare.trunk[0].weight.grad, watched.trunk[0].weight.grad)


def test_numbers_and_files_are_those_of_the_monitor_under_a_trainer(tmp_path):
    torch.manual_seed(0)
    host = NotValidated()
    monitor = GeometryMonitor(diagnostics(), stages=["train"], **SETTINGS)
    torch.manual_seed(1)
    callbacks = [monitor, RunReport(table=False)]
    trainer = quiet(tmp_path / "trainer", max_epochs=2, callbacks=callbacks)
    trainer.fit(host, DataLoader(pairs(), 8))
    model = seeded()
    geometry = loop(tmp_path / "loop", model, diagnostics=diagnostics())
    torch.manual_seed(1)
    train(model, geometry)
    geometry.close()
    theirs, own = tmp_path / "trainer", geometry.folder
    assert files(own) == files(theirs)
    for expected, found in zip(rows(theirs / "metrics.csv"), rows(own / "metrics.csv"), strict=True):
        for name, value in expected.items() - {("train/objective", expected["train/objective"])}:
            assert float(found[name]) == pytest.approx(float(value), rel=1e-6), name
    for path in (theirs / "geometry").rglob("*.csv"):
        assert (own / path.relative_to(theirs)).read_text() == path.read_text()
    described = [json.loads((folder / "geometry" / "quantities.json").read_text()) for folder in (own, theirs)]
    assert described[1].pop("train/objective")["diagnostic"] == "RunReport"
    assert described[0] == described[1]
    record = json.loads((own / "run.json").read_text())
    assert (record["status"], record["steps"], record["epochs"], record["model"]) == ("finished", 10, 2, "Model")


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_what_is_looked_at_is_the_monitors_stage_probe(tmp_path):
    model = seeded()
    geometry = loop(tmp_path, model, diagnostics={"rank": EffectiveRank()})
    held_out = pairs(seed=1)
    geometry.look(DataLoader(held_out, 8))
    found = geometry.read_out()["val/rank"]
    model.eval()
    expected = EffectiveRank()
    expected.update(torch.stack([model.trunk(held_out.tensors[view]) for view in range(2)]).detach())
    assert found == pytest.approx(expected.compute().item(), rel=1e-6)
    assert not model.training


def test_tensors_of_a_loop_that_has_no_modules(tmp_path):
    geometry = GeometryLoop(nn.Identity(), tmp_path, {"rank": EffectiveRank()}, table=False)
    h = torch.randn(2, 32, 4)
    with geometry.step() as seen:
        seen["h"] = h.requires_grad_()
    expected = EffectiveRank()
    expected.update(h.detach())
    assert geometry.read_out() == {"train/rank": pytest.approx(expected.compute().item())}


def test_labels_in_a_dict_need_no_batch_keys(tmp_path):
    model = seeded()
    geometry = loop(tmp_path, model, diagnostics={"agreement": LabelAgreement()}, batch_keys=None)
    x1, x2, label = pairs()[:]
    with geometry.step({"label": label}):
        model.loss(x1, x2, label)
    assert "train/agreement_fine" in geometry.read_out()


def test_every_nth_step_is_counted_from_the_latest_readout(tmp_path):
    model = seeded()
    geometry = loop(tmp_path, model, diagnostics={"rank": EffectiveRank()}, every_n_steps=3)
    train(model, geometry, epochs=2)
    seen = rows(geometry.folder / "geometry" / "train" / "rows_seen.csv")
    assert [row["samples"] for row in seen] == ["16", "16"]  # batches 0 and 3 of five, each of 8 samples


def test_a_second_run_gets_a_folder_of_its_own(tmp_path):
    for number in range(2):
        with loop(tmp_path) as geometry:
            train(geometry.model, geometry, epochs=1)
        assert geometry.folder == tmp_path / f"version_{number}"


def test_no_folder_leaves_no_file_and_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = []
    for folder in (None, tmp_path / "runs"):
        model = seeded()
        torch.manual_seed(1)
        with loop(folder, model, diagnostics=diagnostics()) as geometry:
            found.append(train(model, geometry))
        assert (geometry.folder is None) == (folder is None)
        assert folder is not None or not list(tmp_path.iterdir())
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), "interrupted"), (RuntimeError("out of memory"), "failed")]
)
def test_an_error_ends_the_run_and_is_recorded(tmp_path, error, status):
    model = seeded()
    geometry = loop(tmp_path, model)

    def run():
        with geometry:
            train(model, geometry, epochs=1)
            with geometry.step(pairs()[:8]):
                raise error

    with pytest.raises(type(error)):
        run()
    record = json.loads((geometry.folder / "run.json").read_text())
    assert (record["status"], record["error"]["type"]) == (status, type(error).__name__)
    assert (geometry.folder / "report.html").exists()
    assert not model.trunk._forward_hooks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "resnet18"}, "Expected `model` to be a torch.nn.Module, but got a str."),
        ({"taps": {"h": "body"}}, "Expected `taps` to name submodules of Model, but got h='body'"),
        ({"every_n_steps": 0}, "Expected `every_n_steps` >= 1"),
        ({"batch_keys": {"lable": 2}}, "none observes 'lable'. Did you mean `label`"),
        ({"on_error": "ignore"}, "Expected `on_error`"),
        ({"diagnostics": {"a/b": EffectiveRank()}}, "without '/'"),
        ({"rename": {"rnk": {"h": "z"}}}, "Expected `rename` to name one of"),
    ],
)
def test_wrong_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        loop(tmp_path, **arguments)
    assert not list(tmp_path.iterdir())


def test_wrong_steps(tmp_path):
    model = seeded()
    geometry = loop(tmp_path, model)
    batch = pairs()[:8]
    with (
        pytest.raises(ValueError, match=r"Expected `stage` to be one of .* but got 'valid'"),
        geometry.step(stage="valid"),
    ):
        pass
    with pytest.raises(ValueError, match="was never called"), geometry.step(batch):
        pass
    with pytest.raises(ValueError, match="one shape per view"), geometry.step(batch):
        model(batch[0]), model(batch[1][:3])
    with geometry.step(batch):
        model.loss(*batch)
    with pytest.raises(ValueError, match="before the first step"):
        geometry.load_state_dict(geometry.state_dict())
    geometry.close()
    geometry.close()
    with pytest.raises(ValueError, match="Expected steps before `close`"), geometry.step(batch):
        pass


@pytest.mark.parametrize("on_error", ["warn", "raise"])
def test_a_loss_that_diverges_later(tmp_path, on_error):
    model = seeded()
    geometry = loop(tmp_path, model, diagnostics={"rank": EffectiveRank()}, on_error=on_error)
    batch = pairs()[:8]
    with geometry.step(batch):
        model.loss(*batch)
    with torch.no_grad():
        model.head.weight.fill_(torch.nan)
    expected = (
        pytest.warns(UserWarning, match="goes on") if on_error == "warn" else pytest.raises(ValueError, match="finite")
    )
    with expected, geometry.step(batch):
        model.loss(*batch)
    if on_error == "warn":
        assert np.isnan(geometry.read_out()["train/rank"])


def test_a_diagnostic_that_fails_at_the_readout_loses_nothing_else(tmp_path):
    class Failing(EffectiveRank):
        def compute(self):
            raise ValueError("no rank today")

    model = seeded()
    geometry = loop(tmp_path, model, diagnostics={"rank": EffectiveRank(), "bad": Failing()}, on_error="raise")
    with geometry.step(pairs()[:8]):
        model.loss(*pairs()[:8])
    with pytest.raises(ValueError, match="no rank today"):
        geometry.read_out({"train/loss": 0.5})
    (row,) = rows(geometry.folder / "metrics.csv")
    assert float(row["train/loss"]) == 0.5
    assert float(row["train/rank"]) > 1
    assert np.isnan(float(row["train/bad"]))


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_the_backward_pass_computes_again_is_no_view(reentrant):
    model = seeded()
    geometry = loop(None, model, diagnostics={"rank": EffectiveRank()}, taps={"h": "trunk"})
    x1, x2, _ = batch = pairs()[:8]
    with geometry.step(batch):
        views = [checkpoint(model.trunk, x.requires_grad_(), use_reentrant=reentrant) for x in (x1, x2)]
        (views[0] - views[1]).square().mean().backward()
    geometry.read_out()
    assert geometry.measurements.seen["train"] == (8, 2)


def test_a_wrapped_model_is_observed_inside(tmp_path):
    model = seeded()
    geometry = loop(tmp_path, nn.DataParallel(model))
    assert geometry.model is model


def test_a_copy_of_the_model_is_not_observed(tmp_path):
    model = seeded()
    geometry = loop(None, model, diagnostics={"rank": EffectiveRank()})
    teacher = copy.deepcopy(model)
    x1, x2, _ = batch = pairs()[:8]
    with geometry.step(batch):
        model.loss(*batch)
        teacher(x1), teacher(x2)
    geometry.read_out()
    assert geometry.measurements.seen["train"] == (8, 2)
    torch.save(model, tmp_path / "model.pt")
    whole = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(whole.eval()(x1), model.eval()(x1))


@pytest.mark.parametrize("name", ["train/rank", "epoch", "step"])
def test_a_scalar_with_a_name_that_is_taken(name):
    model = seeded()
    geometry = loop(None, model, diagnostics={"rank": EffectiveRank()})
    with geometry.step(pairs()[:8]):
        model.loss(*pairs()[:8])
    with pytest.raises(ValueError, match=f"Expected `scalars` of names that are not logged already, but got '{name}'"):
        geometry.read_out({name: 99.0})


@pytest.mark.parametrize(("first", "second"), [(2, 3), (3, 2)])
def test_a_number_of_views_that_changes_is_one_line(first, second):
    geometry = GeometryLoop(nn.Linear(1, 1), None, {"uniformity": Uniformity()}, every_n_steps=1, on_error="raise")
    with geometry.step() as seen:
        seen["z"] = torch.randn(first, 16, 4)
    said = f"same number of views in all steps of the stage 'train', but got {second} after {first}"
    with pytest.raises(ValueError, match=said), geometry.step() as seen:
        seen["z"] = torch.randn(second, 16, 4)


NO_SCALARS = {
    "none": ({"train/loss": None}, "hold real numbers, but 'train/loss' is None. Leave it out."),
    "a list": ({"train/loss": [1.0]}, r"but 'train/loss' is \[1.0\]. Give one number"),
    "a text": ({"train/loss": "0.5"}, "but 'train/loss' is '0.5'"),
    "complex": ({"train/loss": torch.tensor(1j)}, r"is a tensor of shape \(\), torch.complex64"),
    "several": ({"train/loss": torch.ones(2)}, r"is a tensor of shape \(2,\)"),
    "no name": ({3: 1.0}, "to have texts as names, but got 3"),
    "no dict": ([0.5], r"to be a dict of names and numbers, but got \[0.5\]"),
    "a name of a diagnostic": ({"train/rank": 1.0}, "names that are not logged already, but got 'train/rank'"),
}


@pytest.mark.parametrize(("scalars", "said"), NO_SCALARS.values(), ids=NO_SCALARS.keys())
def test_refused_scalars_lose_no_step(tmp_path, scalars, said):
    model = seeded()
    geometry = loop(tmp_path, model, diagnostics={"rank": EffectiveRank()})
    with geometry.step(pairs()[:8]):
        model.loss(*pairs()[:8])
    with pytest.raises(ValueError, match=f"Expected `scalars` .*{said}"):
        geometry.read_out(scalars)
    found = geometry.read_out({"train/loss": torch.tensor(0.5)})
    assert found["train/rank"] > 1
    assert [(row["epoch"], row["train/loss"]) for row in rows(geometry.folder / "metrics.csv")] == [("0", "0.5")]


class OfTwo(EffectiveRank):
    quantities = {}  # noqa: RUF012

    def compute(self):
        return {"low": super().compute(), "high": super().compute()}


def test_a_scalar_with_the_name_of_a_result_that_is_not_declared_loses_no_result(tmp_path):
    model = seeded()
    geometry = loop(tmp_path, model, diagnostics={"rank": OfTwo()})
    with geometry.step(pairs()[:8]):
        model.loss(*pairs()[:8])
    with pytest.raises(ValueError, match="names that are not logged already, but got 'train/rank_low'"):
        geometry.read_out({"train/rank_low": -1.0, "train/loss": 0.5})
    (row,) = rows(geometry.folder / "metrics.csv")
    assert float(row["train/rank_low"]) == float(row["train/rank_high"]) > 1
    assert row["train/loss"] == "0.5"


def unusable(folder, kind):
    (folder / "file").write_text("")
    (folder / "loop").symlink_to(folder / "loop")
    return {
        "a file": folder / "file",
        "below a file": folder / "file" / "x",
        "a loop": folder / "loop",
        "null": "a\0b",
    }[kind]


@pytest.mark.parametrize("kind", ["a file", "below a file", "a loop", "null"])
def test_an_unusable_folder_is_one_line(tmp_path, kind):
    with pytest.raises(
        ValueError, match=r"Expected `folder` to be a folder to write in, but got .* Name another one"
    ) as found:
        loop(unusable(tmp_path, kind))
    assert "\n" not in str(found.value)


def test_a_folder_that_cannot_be_made_is_one_line():
    geometry = loop("/proc/runs")
    with pytest.raises(ValueError, match="Expected `folder` to be a folder to write in, but got '/proc/runs': "):
        geometry.read_out()


def test_a_change_of_the_working_directory_does_not_move_the_folder(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    geometry = loop("runs")
    monkeypatch.chdir(tmp_path / "elsewhere")
    geometry.read_out({"train/loss": 1.0})
    assert geometry.folder == tmp_path / "runs" / "version_0"


@pytest.mark.parametrize("call", ["step", "look", "read_out"])
def test_calls_inside_of_a_step(call):
    geometry = loop(None)
    with geometry.step(pairs()[:8]):
        arguments = ([pairs()[:8]],) if call == "look" else ()
        message = f"Expected `{call}` after the block of `step`, but got it inside"
        with pytest.raises(ValueError, match=message), geometry.step() if call == "step" else nullcontext():
            getattr(geometry, call)(*arguments)
        geometry.model.loss(*pairs()[:8])


def flat(seen, model):
    seen["h"] = torch.randn(8, 4)


def twice(seen, model):
    model.loss(*pairs()[:8])
    seen["h"] = torch.randn(2, 8, 4)


def in_one_call(seen, model):
    model(torch.cat([pairs()[:8][0], pairs()[:8][1]]))


@pytest.mark.parametrize(
    ("step", "settings", "message"),
    [
        (
            flat,
            {"taps": None, "batch_keys": None},
            r"Expected `h` of shape \(V, N, D\) .*, but got \(8, 4\). One view is `h\[None\]`",
        ),
        (twice, {}, "Expected each name once, but got 'h' from the step and in `taps`"),
        (
            in_one_call,
            {"diagnostics": {"a": Alignment()}, "batch_keys": None},
            "left out: a.* say `view_layout='halves'`",
        ),
    ],
)
def test_steps_that_show_something_else(step, settings, message):
    model = seeded()
    geometry = loop(None, model, **({"diagnostics": diagnostics()} | settings))
    with pytest.raises(ValueError, match=message), geometry.step() as seen:
        step(seen, model)


def test_labels_of_all_views_are_refused():
    model = seeded()
    geometry = loop(None, model, view_layout="halves", diagnostics=diagnostics())
    x1, x2, label = pairs()[:8]
    of_both = (0, 0, label.repeat(2))
    with pytest.raises(ValueError, match="many rows as the batch has samples, 16"), geometry.step(of_both):
        model(torch.cat([x1, x2]))


@pytest.mark.filterwarnings("ignore:GeometryLoop, stage 'val'. With one view")
def test_a_pass_that_shows_more_than_the_first_is_observed():
    model = seeded()
    found = []
    geometry = loop(None, model, diagnostics={"rank": EffectiveRank(), "alignment": Alignment()})
    for count in (1, 2):
        with geometry.step(pairs()[:8], "val"):
            for view in range(count):
                model(pairs()[:8][view])
        found.append(set(geometry.read_out()))
    assert found == [{"val/rank"}, {"val/rank", "val/alignment"}]


def test_one_host_describes_a_loop_and_a_monitor():
    host = Host(TAPS, batch_keys={"label": 2})
    assert GeometryLoop(Model(), None, host=host).observer.taps.taps == GeometryMonitor(host=host).observer.taps.taps
    with pytest.raises(ValueError, match="Expected `host` alone, but got `taps` beside it"):
        GeometryLoop(Model(), None, host=host, taps=TAPS)


def test_the_standard_set_leaves_out_what_no_tap_shows():
    model = seeded()
    geometry = GeometryLoop(model, None, taps={"h": "trunk"})
    with geometry.step():
        model.loss(*pairs()[:32])
    assert set(geometry.read_out()) == {"train/effective_rank_h", "train/augmentation_rank"}


def test_an_empty_batch_changes_nothing():
    def numbers(*sizes):
        torch.manual_seed(0)
        geometry = GeometryLoop(Model().eval(), None, taps=TAPS, every_n_steps=1)
        for size in sizes:
            with geometry.step():
                for _ in range(2):
                    geometry.model(torch.randn(size, 6))
        return geometry.read_out()

    assert numbers(8, 0, 8) == numbers(8, 8)
