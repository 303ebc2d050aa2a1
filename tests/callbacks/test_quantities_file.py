"""geometry/quantities.json: what a run's logs mean, whatever names its user chose."""

import json
from html import unescape
from typing import ClassVar

import lightning as L
import pytest
import torch
from hosts import PlainHost, loader, quiet
from lightning.pytorch.loggers import CSVLogger
from torchmetrics import MeanMetric, MeanSquaredError, Metric

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LayerGeometry, LinearProbe, RunReport
from lightning_ssl_geometry.callbacks.quantities_file import QuantitiesFile
from lightning_ssl_geometry.callbacks.run_callback import run_files
from lightning_ssl_geometry.callbacks.run_files import RunFiles
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.diagnose import DiagnosedModel, diagnose
from lightning_ssl_geometry.diagnostics import EffectiveRank, UnexplainedVariance
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.manifest import Declared, read_manifest
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.quantity import Paper, Quantity
from lightning_ssl_geometry.report import read_run, write_report

TAPS = {"h": "trunk", "z": "head", "projector": "head"}
KEYS = {"label": 2, "views": [0, 1]}
SPREAD = Quantity(title="Spread", low="Rows are alike.", high="Rows differ.", paper=Paper("A 2024", "B"), unit="units")
FIRST = Quantity(title="First layers", low="Small.", high="Large.", parts=True)


class Spread(Metric):
    """A user's own."""

    section = "ranks"
    quantities: ClassVar[dict[str, Quantity]] = {"value": SPREAD, "layer": FIRST}

    def __init__(self):
        super().__init__()
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, h):
        self.total = self.total + h.var()

    def compute(self):
        return {"value": self.total, "layer_trunk_0": self.total, "profile": self.total.repeat(3)} | {
            "value_null": self.total
        }


class Pair(MeanMetric):
    """Two means of something. Nobody declared them."""

    higher_is_better = True
    plot_lower_bound = 0.0

    def update(self, h, z):
        super().update(h.mean() + z.mean())

    def compute(self):
        return {"first_half": super().compute(), "second_half": super().compute()}


class DeclaringHost(PlainHost):
    """Somebody's module that says what it logs."""

    quantities: ClassVar[dict[str, Quantity]] = {"their_loss": Quantity(title="Their loss", text="Of the views.")}

    def validation_step(self, batch, batch_idx):
        z1, z2 = self.embed(*batch[:2])
        self.log("val/their_loss", (z1 - z2).square().mean())
        self.log("val/accuracy", 0.5)
        self.log("val/momentum", 0.9)


class ReturningHost(PlainHost):
    """The same, whose validation step returns what it saw, as our methods do."""

    def validation_step(self, batch, batch_idx):
        h = torch.stack([self.trunk(x) for x in batch[:2]])
        return {"h": h, "z": self.head(h), "projector": self.head, "index": torch.arange(h.shape[1])}


class SilentHost(DeclaringHost):
    """The same, which declares nothing, and calls something else quantities."""

    quantities: ClassVar[list[float]] = [0.5]


class DeclaringProbe(LinearProbe):
    """Stands for any probe."""

    section = "probes"
    quantities: ClassVar[dict[str, Quantity]] = {
        "accuracy": Quantity(title="Linear probe", text="Accuracy.", bounds=(0.0, 1.0)),
        "loss": Quantity(title="Loss of the probe", text="Cross entropy."),
    }


def manifest(folder):
    found, notes = read_manifest((folder / "geometry" / "quantities.json").read_text())
    assert notes == []
    return found


def monitor(diagnostics, rename=None, stages=("val",), **arguments):
    return GeometryMonitor(diagnostics, rename, stages, every_n_steps=1, taps=TAPS, batch_keys=KEYS, **arguments)


def fit(folder, *callbacks, host=PlainHost, ckpt_path=None, **arguments):
    torch.manual_seed(0)
    trainer = quiet(folder, callbacks=list(callbacks), **arguments)
    trainer.fit(host(), loader(), loader(seed=1), ckpt_path=ckpt_path, weights_only=ckpt_path and True)
    return trainer


def test_a_users_metric_under_a_users_name(tmp_path):
    trainer = fit(tmp_path, monitor({"mine": Spread()}))
    found = manifest(tmp_path)
    assert found["val/mine_value"] == Declared(
        quantity=SPREAD, section="ranks", diagnostic="Spread", key="value", space="h", width=10
    )
    assert found["val/mine_layer_trunk_0"].quantity == FIRST
    assert (found["val/mine_layer_trunk_0"].key, found["val/mine_layer_trunk_0"].part) == ("layer", "trunk_0")
    assert "val/mine_value_null" not in found  # it is no part of the value
    assert "val/mine_profile" not in found  # of a Metric that declares, what it does not declare has no claims
    assert (tmp_path / "geometry" / "val" / "mine_profile.csv").exists()
    assert "geometry/quantities.json" in run_files(trainer).names


def test_spaces_are_those_that_were_handed_over(tmp_path):
    diagnostics = {name: EffectiveRank() for name in ("a", "b", "c")} | {"w": UnexplainedVariance(), "p": Pair()}
    rename = {"b": {"h": "z"}, "c": {"h": "own"}}
    taps = TAPS | {"own": "trunk.0"}
    fit(tmp_path, GeometryMonitor(diagnostics, rename, ("val", "test"), 1, taps=taps))
    found = {name: (entry.space, entry.width) for name, entry in manifest(tmp_path).items()}
    expected = {"val/a": ("h", 10), "val/b": ("z", 4), "val/c": ("own", 10), "val/p_first_half": ("", None)}
    assert expected.items() <= found.items()
    assert found[next(name for name in found if name.startswith("val/w"))] == ("", None)  # h and z
    assert not any(name.startswith("test/") for name in found)


def test_fibers_are_what_their_projector_saw(tmp_path):
    class Host(ReturningHost):
        def validation_step(self, batch, batch_idx):
            found = super().validation_step(batch, batch_idx)
            return found | {"fibers": found["h"][..., :6]}

    class OfProjector(Spread):
        def update(self, h, projector):
            super().update(h)

    diagnostics = {"mine": OfProjector(), "other": Spread()}
    trainer = quiet(tmp_path, callbacks=[GeometryMonitor(diagnostics, stages=["val"])])
    trainer.fit(Host(), loader(), loader())
    found = manifest(tmp_path)
    assert (found["val/mine_value"].space, found["val/mine_value"].width) == ("fibers", 6)
    assert (found["val/other_value"].space, found["val/other_value"].width) == ("h", 10)


def test_metrics_that_declare_nothing_are_known_by_their_class(tmp_path):
    diagnostics = {"error": MeanSquaredError(), "mean": MeanMetric(), "pair": Pair()}
    rename = {"error": {"preds": "z", "target": "z"}, "mean": {"value": "h", "weight": "nothing"}}
    fit(tmp_path, monitor(diagnostics, rename))
    found = manifest(tmp_path)
    error = found["val/error"]
    said = (error.quantity.title, error.diagnostic, error.space, error.section)
    assert said == ("Mean squared error", "MeanSquaredError", "z", "other")
    assert error.quantity.better == "low"
    assert error.quantity.text
    assert found["val/mean"].space == "h"
    second = found["val/pair_second_half"]
    assert (second.quantity.title, second.key) == ("Pair, second half", "second_half")
    assert second.quantity.text == "Two means of something."
    assert (second.quantity.better, second.quantity.bounds) == ("high", (0.0, None))


@pytest.mark.parametrize("wrong", [["value"], {"value": "Spread"}])
def test_quantities_of_another_kind_are_an_error_before_the_first_step(tmp_path, wrong):
    class Wrong(Spread):
        quantities = wrong

    with pytest.raises(ValueError, match="before the first step: Expected `quantities` of Wrong to map keys"):
        fit(tmp_path, monitor({"mine": Wrong()}))


def test_two_monitors_and_two_probes_of_one_run(tmp_path):
    fit(
        tmp_path,
        monitor({"rank": EffectiveRank()}),
        monitor({"rank": EffectiveRank(), "mine": Spread()}, {"rank": {"h": "z"}}, name="teacher"),
        DeclaringProbe(2, taps={"h": "trunk"}, batch_keys=KEYS),
        DeclaringProbe(2, taps={"h": "trunk"}, batch_keys=KEYS, name="again"),
    )
    found = manifest(tmp_path)
    assert (found["val/rank"].space, found["val/teacher/rank"].space) == ("h", "z")
    assert found["val/teacher/mine_value"].quantity == SPREAD
    for name, part in (("linear_probe", ""), ("again", "again")):
        for logged, key in ((f"val/{name}_accuracy", "accuracy"), (f"train/{name}_loss", "loss")):
            entry = found[logged]
            assert entry.quantity == DeclaringProbe.quantities[key]
            assert (entry.section, entry.key, entry.part, entry.space) == ("probes", key, part, "")


def test_what_two_callbacks_mean_by_one_name_is_one_thing(tmp_path):
    class Layers(LayerGeometry):
        quantities: ClassVar[dict[str, Quantity]] = {"layer_cka": Quantity(title="Layers", text="Of layers.")}

    said = r"before the first step: Expected one meaning of 'val/layer_cka', but got 'Layers' \(Layers, layer_cka\)"
    with pytest.raises(ValueError, match=said + r" and 'Effective rank.* of h \(EffectiveRank"):
        quiet(tmp_path, callbacks=[GeometryMonitor({"layer_cka": EffectiveRank()}, stages=["val"]), Layers()]).fit(
            ReturningHost(), loader(), loader()
        )
    assert not (tmp_path / "geometry" / "val").exists()


def test_the_table_of_layers(tmp_path):
    fit(tmp_path, LayerGeometry({"spread": Spread(), "rank": EffectiveRank()}), host=ReturningHost)
    found = manifest(tmp_path)
    header = (tmp_path / "layers.csv").read_text().splitlines()[0].split(",")
    columns = {name.removeprefix("layers/") for name in found if name.startswith("layers/")}
    assert columns <= set(header)
    assert {"spread_value", "spread_layer_trunk_0", "rank"} <= columns
    entry = found["layers/spread_value"]
    assert (entry.quantity, entry.section, entry.space, entry.diagnostic) == (SPREAD, "layers", "", "Spread")


@pytest.mark.parametrize(
    "callback", [RunReport(table=False), KNNProbe(num_classes=2, taps={"h": "trunk"}, batch_keys=KEYS)]
)
def test_the_hosts_own_scalars(tmp_path, callback):
    fit(tmp_path, callback, host=DeclaringHost)
    found = {name: entry for name, entry in manifest(tmp_path).items() if entry.diagnostic == "DeclaringHost"}
    assert set(found) == {"train/their_loss", "val/their_loss"}
    assert found["val/their_loss"].quantity.title == "Their loss"
    assert found["val/their_loss"].section == "learning"


def test_a_host_that_declares_nothing_has_no_entry(tmp_path):
    fit(tmp_path, RunReport(table=False), host=SilentHost)
    assert not (tmp_path / "geometry" / "quantities.json").exists()
    fit(tmp_path / "watched", monitor({"mine": Spread()}), host=SilentHost)
    assert not {"val/accuracy", "val/momentum", "val/their_loss"} & manifest(tmp_path / "watched").keys()


class Late(Spread):
    """One more result from the second readout on, as if the first epoch were too short for it."""

    def __init__(self):
        super().__init__()
        self.readouts = 0

    def compute(self):
        self.readouts += 1
        return {"value": self.total} | ({"layer_late": self.total} if self.readouts > 1 else {})


def test_a_result_that_comes_later_is_declared_when_it_comes(tmp_path):
    late = Late()
    fit(tmp_path / "once", monitor({"mine": late}))
    assert set(manifest(tmp_path / "once")) == {"val/mine_value"}
    fit(tmp_path / "twice", monitor({"mine": late}), max_epochs=2)
    assert set(manifest(tmp_path / "twice")) == {"val/mine_value", "val/mine_layer_late"}


class Undeclared(Late):
    """The same late result, of which it says nothing."""

    quantities: ClassVar[dict[str, Quantity]] = {"value": SPREAD}


@pytest.mark.parametrize("kind", [Late, Undeclared])
@pytest.mark.parametrize("on_error", ["warn", "raise"])
def test_a_late_result_under_the_name_of_another_is_not_logged(tmp_path, kind, on_error):
    other = monitor({"mine_layer_late": EffectiveRank()})
    late = GeometryMonitor(
        {"mine": kind()}, stages=["val"], every_n_steps=1, taps=TAPS, batch_keys=KEYS, on_error=on_error
    )
    said = r"diagnostic 'mine', stage 'val'.*Expected one meaning of 'val/mine_layer_late', but got 'Effective rank"
    torch.manual_seed(0)
    trainer = quiet(tmp_path, callbacks=[other, late], max_epochs=3, logger=CSVLogger(tmp_path, "", ""))
    if on_error == "raise":
        with pytest.raises(ValueError, match=said), pytest.warns(UserWarning, match="once the checkpoints"):
            trainer.fit(PlainHost(), loader(), loader(seed=1))
    else:
        with pytest.warns(UserWarning, match=said + r".*\. It is not logged under that name, and the run goes on"):
            trainer.fit(PlainHost(), loader(), loader(seed=1))
    run = read_run(tmp_path)
    assert run.declared["val/mine_layer_late"].diagnostic == "EffectiveRank"
    assert (run.scalars["val/mine_layer_late"].value != run.scalars["val/mine_value"].value).all()
    if on_error == "warn":
        assert len(run.scalars["val/mine_value"].value) == 3


def saved(folder, *diagnostics):
    trainer = fit(folder, monitor({name: Spread() for name in diagnostics}))
    trainer.save_checkpoint(folder / "checkpoints" / "x.ckpt")
    return folder / "checkpoints" / "x.ckpt"


@pytest.mark.filterwarnings("ignore:val/both_value is .* from here on")
@pytest.mark.parametrize("place", [".", "other"])
def test_a_resumed_run_keeps_what_its_earlier_part_declared(tmp_path, place):
    checkpoint = saved(tmp_path / "one", "before", "both")
    folder = tmp_path / "one" / place
    fit(folder, monitor({"both": Late(), "after": Spread()}), max_epochs=2, ckpt_path=checkpoint)
    found = manifest(folder)
    assert {"val/before_value", "val/both_value", "val/after_value"} <= found.keys()
    assert found["val/both_value"].diagnostic == "Late"  # what is declared now goes before
    if place != ".":
        assert "val/after_value" not in manifest(tmp_path / "one")


@pytest.mark.parametrize("place", [".", "other"])
def test_a_resumed_run_that_means_something_else_by_a_name_says_so(tmp_path, place):
    checkpoint = saved(tmp_path / "one", "same")
    folder = tmp_path / "one" / place
    ranked = {"same_value": EffectiveRank(), "new": Spread()}
    with pytest.warns(
        UserWarning, match=r"val/same_value is 'Effective .* but was 'Spread' of h, in units \(Spread, value\)"
    ):
        fit(folder, monitor(ranked), max_epochs=2, ckpt_path=checkpoint)
    found = manifest(folder)
    assert found["val/same_value"].earlier == ("'Spread' of h, in units (Spread, value)",)
    assert found["val/new_value"].earlier == ()
    said = (
        "val/same_value has two meanings: it was 'Spread' of h, in units (Spread, value) in an earlier part of this "
        "run, and is"
    )
    (note,) = [note for note in read_run(folder).notes if note.startswith(said)]
    assert note in unescape(write_report(folder).read_text())


class Quiet(Spread):
    """The same results, of which it declares one alone."""

    quantities: ClassVar[dict[str, Quantity]] = {"value": SPREAD}


@pytest.mark.filterwarnings("ignore:val/mine_value is .* from here on")
@pytest.mark.parametrize("place", [".", "other"])
def test_a_resumed_run_that_no_longer_declares_a_name_makes_no_claims_of_it(tmp_path, place):
    checkpoint = saved(tmp_path / "one", "mine")
    folder, name, was = tmp_path / "one" / place, "val/mine_layer_trunk_0", "'First layers' of h (Spread, layer, part t"
    with pytest.warns(UserWarning, match=rf"{name} is a result that nobody declares from here on, but was 'First lay"):
        trainer = fit(folder, monitor({"mine": Quiet()}), max_epochs=2, ckpt_path=checkpoint)
    entry = manifest(folder)[name]
    assert (entry.silent, entry.quantity.title, entry.diagnostic) == (True, "mine_layer_trunk_0", "")
    assert [each[: len(was)] for each in entry.earlier] == [was]
    run = read_run(folder)
    assert len(run.scalars[name].value) == 2
    assert run.declared[name].silent
    page = unescape(write_report(folder).read_text())
    assert f"{name} has two meanings: it was {was}" in page
    assert "is a result that nobody declares in the latest. Figures show" in page
    assert FIRST.low not in page
    trainer.save_checkpoint(tmp_path / "two.ckpt")
    fit(folder, monitor({"mine": Quiet()}), max_epochs=3, ckpt_path=tmp_path / "two.ckpt")  # warns of nothing
    assert manifest(folder)[name].earlier == entry.earlier


def test_a_result_that_nobody_declares_has_no_entry_where_nobody_did(tmp_path):
    checkpoint = saved(tmp_path, "before")
    fit(tmp_path, monitor({"after": Quiet()}), max_epochs=2, ckpt_path=checkpoint)
    assert {name for name in manifest(tmp_path) if "after" in name} == {"val/after_value"}


def test_a_run_that_starts_anew_sets_the_file_aside(tmp_path):
    logger = ResumableCSVLogger(tmp_path, "", "one")
    fit(tmp_path, monitor({"before": Spread()}), logger=logger)
    fit(tmp_path, monitor({"after": Spread()}), logger=logger)
    assert set(manifest(tmp_path / "one")) == {"val/after_value", "val/after_layer_trunk_0"}
    assert "val/before_value" in manifest(tmp_path / "one" / "superseded-1")


def test_a_test_after_a_fit_adds_to_the_file(tmp_path):
    class Tested(DeclaringHost):
        def test_step(self, batch, batch_idx):
            self.embed(*batch[:2])

    trainer = fit(tmp_path, monitor({"mine": Spread()}, stages=("val", "test")), host=Tested)
    before = manifest(tmp_path)
    trainer.test(trainer.lightning_module, loader(), verbose=False)
    assert manifest(tmp_path).keys() - before.keys() == {
        "test/their_loss",
        "test/mine_value",
        "test/mine_layer_trunk_0",
    }
    assert before.items() <= manifest(tmp_path).items()


def test_a_file_of_another_is_refused_and_not_touched(tmp_path):
    path = tmp_path / "geometry" / "quantities.json"
    path.parent.mkdir()
    path.write_text("mine")
    with pytest.raises(ValueError, match=r"Expected `geometry/quantities\.json` to be this run's to write"):
        fit(tmp_path, monitor({"mine": Spread()}))
    with pytest.warns(UserWarning, match=r"`geometry/quantities\.json` of this run is not kept"):
        quiet(tmp_path, callbacks=[RunReport()]).validate(DeclaringHost(), loader(), verbose=False)
    assert path.read_text() == "mine"


def test_an_own_file_that_cannot_be_read_is_set_aside(tmp_path):
    files, said = RunFiles(tmp_path), L.Callback()
    entry = Declared(quantity=SPREAD)
    QuantitiesFile(files).declare({said: {"val/x": entry}})
    path = tmp_path / "geometry" / "quantities.json"
    path.write_text("[" * 100_000)
    with pytest.warns(UserWarning, match=r"quantities\.json could not be read: .* It is now .*unreadable-1; the run"):
        QuantitiesFile(files).declare({said: {"val/y": entry}})
    assert manifest(tmp_path) == {"val/y": entry}


def with_strange_entries(path):
    """Write entries that a later version may have written, and more than are read, into a file that was written."""
    held = json.loads(path.read_text())
    strange = {"val/strange": held["val/x"] | {"comparable": ["planet"]}}
    path.write_text(json.dumps(held | strange | {f"val/{place}": held["val/x"] for place in range(5_000)}))
    return path.read_text()


def test_an_own_file_that_is_read_in_part_is_kept_whole(tmp_path):
    files, said = RunFiles(tmp_path), L.Callback()
    entry = Declared(quantity=SPREAD)
    QuantitiesFile(files).declare({said: {"val/x": entry}})
    path = tmp_path / "geometry" / "quantities.json"
    before = with_strange_entries(path)
    shown = r"was read in part: .*: val/strange\..* has 5,002 entries; only .* is now .*quantities\.json\.unreadable-1"
    with pytest.warns(UserWarning, match=shown):
        QuantitiesFile(files).declare({said: {"val/y": entry}})
    assert path.with_name("quantities.json.unreadable-1").read_text() == before
    held = json.loads(path.read_text())
    assert {"val/x", "val/y", "val/0"} <= held.keys()
    assert "val/strange" not in held
    QuantitiesFile(files).declare({said: {"val/z": entry}})  # nothing is left out of it any more


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_text("[]"), "could not be read: it holds a list instead of an object"),
        (with_strange_entries, r"was read in part: .*val/strange\..* The run goes on without"),
    ],
)
def test_an_earlier_file_that_is_not_read_whole_stays_where_it_is(tmp_path, spoil, message):
    QuantitiesFile(RunFiles(tmp_path)).declare({L.Callback(): {"val/x": Declared(quantity=SPREAD)}})
    path = tmp_path / "geometry" / "quantities.json"
    spoil(path)
    before = path.read_text()
    with pytest.warns(UserWarning, match=message):
        QuantitiesFile(RunFiles(tmp_path / "new")).carry(tmp_path)
    assert [each.read_text() for each in path.parent.iterdir()] == [before]


def test_a_fit_that_fails_before_its_first_step_leaves_no_file(tmp_path):
    class Fails(DeclaringHost):
        def training_step(self, batch, batch_idx):
            raise RuntimeError("no step")

    with pytest.raises(RuntimeError, match="no step"):
        fit(tmp_path, DeclaringProbe(2, taps={"h": "trunk"}, batch_keys=KEYS), host=Fails)
    assert not (tmp_path / "geometry").exists()
    fit(tmp_path, DeclaringProbe(2, taps={"h": "trunk"}, batch_keys=KEYS), host=DeclaringHost)
    assert "val/their_loss" in manifest(tmp_path)


def test_it_is_there_behind_the_first_step(tmp_path):
    class Looks(L.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            assert (tmp_path / "geometry" / "quantities.json").exists() == (batch_idx > 0)

    fit(tmp_path, RunReport(table=False, page=False), Looks(), host=DeclaringHost)


def test_nothing_is_written_twice(tmp_path):
    quantities, said = QuantitiesFile(RunFiles(tmp_path)), L.Callback()
    path = tmp_path / "geometry" / "quantities.json"
    for _ in range(2):
        quantities.declare({said: {"val/x": Declared(quantity=SPREAD)}})
        number = path.stat().st_ino
    quantities.declare({said: {"val/x": Declared(quantity=SPREAD)}})
    assert path.stat().st_ino == number
    quantities.declare({said: {"val/y": Declared(quantity=SPREAD)}})
    assert path.stat().st_ino != number


def test_our_own_method_and_its_diagnosis(tmp_path):
    data = DigitsDataModule(batch_size=40, subset=120)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8))
    model = SimCLRModule(network, torch.nn.Linear(8, 4))
    model.quantities = {"loss": Quantity(title="Loss", text="Descended.")}
    for module, own in ((model, {"test/loss"}), (DiagnosedModel(network), set())):
        folder = diagnose(module, data, tmp_path, progress=False)
        found = manifest(folder)
        assert {name for name in found if found[name].diagnostic == type(module).__name__} == own
        assert {"test/effective_rank_h", "test/lidar"} <= found.keys()
        assert found["test/effective_rank_h"].space == "h"
        assert (found["test/alpha_req_alpha"].space, found["test/alpha_req_alpha"].width) == ("h_image", 8)
        assert all(isinstance(name, str) for name in json.loads((folder / "geometry" / "quantities.json").read_text()))


def declared_by(rank, folder):
    torch.manual_seed(0)
    callbacks = [monitor({"mine": Spread(), "rank": EffectiveRank()}), RunReport(table=False, page=False)]
    trainer = quiet(folder, callbacks=callbacks, devices=2, strategy="ddp", use_distributed_sampler=False)
    trainer.fit(DeclaringHost(), loader(40), loader(16))
    return run_files(trainer).writes


def test_rank_0_writes_it(tmp_path, two_processes):
    assert two_processes(declared_by, tmp_path) == [True, False]
    found = manifest(tmp_path)
    assert {"val/mine_value", "val/rank", "val/their_loss"} <= found.keys()
    assert (found["val/rank"].space, found["val/rank"].width) == ("h", 10)
