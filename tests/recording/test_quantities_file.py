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
from lightning_ssl_geometry.callbacks.run_callback import run_files
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.diagnose import DiagnosedModel, diagnose
from lightning_ssl_geometry.diagnostics import EffectiveRank, NearestNeighbors, UnexplainedVariance
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.manifest import Declared, read_manifest
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.quantity import Paper, Quantity
from lightning_ssl_geometry.recording.quantities_file import QuantitiesFile, meaning
from lightning_ssl_geometry.recording.run_files import RunFiles
from lightning_ssl_geometry.report import read_run, write_report

TAPS = {"h": "trunk", "z": "head", "projector": "head"}
KEYS = {"label": 2, "views": [0, 1]}
SPREAD = Quantity(title="Spread", low="Rows are alike.", high="Rows differ.", paper=Paper("A 2024", "B"), unit="units")
FIRST = Quantity(title="First layers", low="Small.", high="Large.", parts=True)
FILE = "geometry/quantities.json"


class Spread(Metric):
    """A user's own; from the second readout on it has one more result if it is `late`."""

    section = "ranks"
    quantities: ClassVar[dict[str, Quantity]] = {"value": SPREAD, "layer": FIRST}

    def __init__(self, late=False):
        super().__init__()
        self.late, self.readouts = late, 0
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, h):
        self.total = self.total + h.var()

    def compute(self):
        self.readouts += 1
        names = ["value", "layer_trunk_0", "value_null", *(["layer_late"] if self.late and self.readouts > 1 else [])]
        return dict.fromkeys(names, self.total) | {"profile": self.total.repeat(3)}


class Quiet(Spread):
    """The same results, of which it declares one alone."""

    quantities: ClassVar[dict[str, Quantity]] = {"value": SPREAD}


class OfProjector(Spread):
    def update(self, h, projector):
        super().update(h)


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

    def test_step(self, batch, batch_idx):
        self.embed(*batch[:2])


class ReturningHost(PlainHost):
    """A module whose validation step returns what it saw, as our methods do."""

    def validation_step(self, batch, batch_idx):
        h = torch.stack([self.trunk(x) for x in batch[:2]])
        index = torch.arange(h.shape[1])
        return {"h": h, "z": self.head(h), "projector": self.head, "index": index, "fibers": h[..., :6]}


class SilentHost(DeclaringHost):
    """A module which declares nothing, and calls something else quantities."""

    quantities: ClassVar[list[float]] = [0.5]


class DeclaringProbe(LinearProbe):
    """Stands for any probe."""

    section = "probes"
    quantities: ClassVar[dict[str, Quantity]] = {
        "accuracy": Quantity(title="Linear probe", text="Accuracy.", bounds=(0.0, 1.0)),
        "loss": Quantity(title="Loss of the probe", text="Cross entropy."),
    }


def manifest(folder):
    found, notes = read_manifest((folder / FILE).read_text())
    assert notes == []
    return found


def monitor(diagnostics, rename=None, stages=("val",), **arguments):
    return GeometryMonitor(
        diagnostics, rename, stages, every_n_steps=1, batch_keys=KEYS, **({"taps": TAPS} | arguments)
    )


def probe(**arguments):
    return DeclaringProbe(2, taps={"h": "trunk"}, batch_keys=KEYS, **arguments)


def fit(folder, *callbacks, host=PlainHost, ckpt_path=None, **arguments):
    torch.manual_seed(0)
    trainer = quiet(folder, callbacks=list(callbacks), **arguments)
    trainer.fit(host(), loader(), loader(seed=1), ckpt_path=ckpt_path, weights_only=ckpt_path and True)
    return trainer


# --- what is written


@pytest.mark.parametrize(
    ("thing", "key", "space", "renamed"),
    [
        (EffectiveRank(), "", "h", False),
        (EffectiveRank(), "", "z", True),
        (NearestNeighbors(), "image", "h", False),  # it takes h or h_image: no title has to say which
        (UnexplainedVariance(), "full", "", False),
    ],
)
def test_a_tensor_that_a_class_asks_for_is_not_called_another(thing, key, space, renamed):
    assert meaning(thing, key, space=space).renamed is renamed


def test_results_have_their_meanings_and_the_spaces_that_were_handed_over(tmp_path):
    found = {"mine": Spread(), "a": EffectiveRank(), "b": EffectiveRank(), "c": EffectiveRank(), "pair": Pair()}
    found |= {"w": UnexplainedVariance(), "error": MeanSquaredError(), "mean": MeanMetric()}
    rename = {"b": {"h": "z"}, "c": {"h": "own"}, "error": {"preds": "z", "target": "z"}}
    rename |= {"mean": {"value": "h", "weight": "nothing"}}
    trainer = fit(tmp_path, monitor(found, rename, ("val", "test"), taps=TAPS | {"own": "trunk.0"}))
    found = manifest(tmp_path)
    about = {"section": "ranks", "diagnostic": "Spread", "space": "h", "width": 10}
    assert found["val/mine_value"] == Declared(quantity=SPREAD, key="value", **about)
    assert found["val/mine_layer_trunk_0"] == Declared(quantity=FIRST, key="layer", part="trunk_0", **about)
    assert "val/mine_value_null" not in found  # it is no part of the value
    assert "val/mine_profile" not in found  # of a Metric that declares, what it does not declare has no claims
    assert (tmp_path / "geometry" / "val" / "mine_profile.csv").exists()
    assert FILE in run_files(trainer).names
    spaces = {name: (entry.space, entry.width) for name, entry in found.items()}
    expected = {"val/a": ("h", 10), "val/b": ("z", 4), "val/c": ("own", 10), "val/pair_first_half": ("", None)}
    assert expected.items() <= spaces.items()
    assert spaces[next(name for name in found if name.startswith("val/w"))] == ("", None)  # h and z
    assert not any(name.startswith("test/") for name in found)
    error, second = found["val/error"], found["val/pair_second_half"]  # known by their classes
    assert (error.quantity.title, error.diagnostic, error.space) == ("Mean squared error", "MeanSquaredError", "z")
    assert (error.section, error.quantity.better, found["val/mean"].space) == ("other", "low", "h")
    assert (second.quantity.title, second.key) == ("Pair, second half", "second_half")
    assert second.quantity.text == "Two means of something."
    assert (second.quantity.better, second.quantity.bounds) == ("high", (0.0, None))


def test_fibers_are_what_their_projector_saw_and_the_table_of_layers_is_declared(tmp_path):
    watching = GeometryMonitor({"mine": OfProjector(), "other": Spread()}, stages=["val"])
    fit(tmp_path, watching, LayerGeometry({"spread": Spread(), "rank": EffectiveRank()}), host=ReturningHost)
    found = manifest(tmp_path)
    assert (found["val/mine_value"].space, found["val/mine_value"].width) == ("fibers", 6)
    assert (found["val/other_value"].space, found["val/other_value"].width) == ("h", 10)
    header = (tmp_path / "layers.csv").read_text().splitlines()[0].split(",")
    columns = {name.removeprefix("layers/") for name in found if name.startswith("layers/")}
    assert {"spread_value", "spread_layer_trunk_0", "rank"} <= columns <= set(header)
    entry = found["layers/spread_value"]
    assert (entry.quantity, entry.section, entry.space, entry.diagnostic) == (SPREAD, "layers", "", "Spread")


def test_two_monitors_and_two_probes_of_one_run(tmp_path):
    teacher = monitor({"rank": EffectiveRank(), "mine": Spread()}, {"rank": {"h": "z"}}, name="teacher")
    fit(tmp_path, monitor({"rank": EffectiveRank()}), teacher, probe(), probe(name="again"))
    found = manifest(tmp_path)
    assert (found["val/rank"].space, found["val/teacher/rank"].space) == ("h", "z")
    assert found["val/teacher/mine_value"].quantity == SPREAD
    for name, part in (("linear_probe", ""), ("again", "again")):
        for logged, key in ((f"val/{name}_accuracy", "accuracy"), (f"train/{name}_loss", "loss")):
            entry = found[logged]
            assert entry.quantity == DeclaringProbe.quantities[key]
            assert (entry.section, entry.key, entry.part, entry.space) == ("probes", key, part, "")


@pytest.mark.parametrize(
    "callback", [RunReport(table=False), KNNProbe(num_classes=2, taps={"h": "trunk"}, batch_keys=KEYS)]
)
def test_the_hosts_own_scalars_behind_the_first_step(tmp_path, callback):
    class Looks(L.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            assert (tmp_path / FILE).exists() == (batch_idx > 0)

    fit(tmp_path, callback, Looks(), host=DeclaringHost)
    found = {name: entry for name, entry in manifest(tmp_path).items() if entry.diagnostic == "DeclaringHost"}
    assert {name: entry.section for name, entry in found.items()} == {
        "train/their_loss": "learning",
        "val/their_loss": "learning",
    }
    assert found["val/their_loss"].quantity.title == "Their loss"

    class LoggingHost(SilentHost):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss)
            return loss

    fit(tmp_path / "silent", RunReport(table=False), host=LoggingHost)
    assert not (tmp_path / "silent" / FILE).exists()


def test_a_test_after_a_fit_adds_to_the_file_and_a_run_that_starts_anew_sets_it_aside(tmp_path):
    logger = ResumableCSVLogger(tmp_path, "", "one")
    trainer = fit(tmp_path, monitor({"mine": Spread()}, stages=("val", "test")), host=DeclaringHost, logger=logger)
    before = manifest(tmp_path / "one")
    trainer.test(trainer.lightning_module, loader(), verbose=False)
    after = manifest(tmp_path / "one")
    assert after.keys() - before.keys() == {"test/their_loss", "test/mine_value", "test/mine_layer_trunk_0"}
    assert before.items() <= after.items()
    fit(tmp_path, monitor({"after": Spread()}), logger=logger)
    assert set(manifest(tmp_path / "one")) == {"val/after_value", "val/after_layer_trunk_0"}
    assert "val/mine_value" in manifest(tmp_path / "one" / "superseded-1")


def test_our_own_method_and_its_diagnosis(tmp_path):
    data = DigitsDataModule(batch_size=40, subset=120)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8))
    model = SimCLRModule(network, torch.nn.Linear(8, 4))
    model.quantities = {"loss": Quantity(title="Loss", text="Descended.")}
    for module, own in ((model, {"test/loss"}), (DiagnosedModel(network), set())):
        found = manifest(diagnose(module, data, tmp_path, progress=False))
        assert {name for name in found if found[name].diagnostic == type(module).__name__} == own
        assert {"test/effective_rank_h", "test/lidar"} <= found.keys()
        assert found["test/effective_rank_h"].space == "h"
        assert (found["test/alpha_req_alpha"].space, found["test/alpha_req_alpha"].width) == ("h_image", 8)


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


# --- one name has one meaning


@pytest.mark.parametrize("wrong", [["value"], {"value": "Spread"}])
def test_quantities_of_another_kind_are_an_error_before_the_first_step(tmp_path, wrong):
    class Wrong(Spread):
        quantities = wrong

    with pytest.raises(ValueError, match="before the first step: Expected `quantities` of Wrong to map keys"):
        fit(tmp_path, monitor({"mine": Wrong()}))


def test_a_declared_key_that_no_result_has_is_named_once(tmp_path):
    class Misspelt(Spread):
        quantities: ClassVar[dict[str, Quantity]] = {"vlaue": SPREAD, "layer": FIRST}

    class Sometimes(Spread):
        quantities: ClassVar[dict[str, Quantity]] = {"value": SPREAD, "coarse": SPREAD, "layer": FIRST}

        def compute(self):
            return {"value": self.total}

    said = r"^`Misspelt.quantities` declares 'vlaue', which `compute` did not return. Did you mean `value`\?$"
    with pytest.warns(UserWarning, match=said) as warned:
        fit(tmp_path / "a", monitor({"mine": Misspelt()}, stages=("train", "val")), max_epochs=2)
    assert len([each for each in warned if "Misspelt" in str(each.message)]) == 1
    with pytest.warns(UserWarning, match=said):  # without a rehearsal, at the first readout
        quiet(tmp_path / "b", callbacks=[monitor({"mine": Misspelt()})]).validate(PlainHost(), loader(), verbose=False)
    fit(tmp_path / "c", monitor({"mine": Sometimes(), "other": Spread(late=True)}))  # warnings are errors here


def test_what_two_callbacks_mean_by_one_name_is_one_thing(tmp_path):
    class Layers(LayerGeometry):
        quantities: ClassVar[dict[str, Quantity]] = {"layer_cka": Quantity(title="Layers", text="Of layers.")}

    said = r"before the first step: Expected one meaning of 'val/layer_cka', but got 'Layers' \(Layers, layer_cka\)"
    with pytest.raises(ValueError, match=said + r" and 'Effective rank.* of h \(EffectiveRank"):
        fit(tmp_path, GeometryMonitor({"layer_cka": EffectiveRank()}, stages=["val"]), Layers(), host=ReturningHost)
    assert not (tmp_path / "geometry" / "val").exists()


def test_a_result_that_comes_later_is_declared_when_it_comes(tmp_path):
    late, known = Spread(late=True), {"val/mine_value", "val/mine_layer_trunk_0"}
    fit(tmp_path / "once", monitor({"mine": late}))
    assert set(manifest(tmp_path / "once")) == known
    fit(tmp_path / "twice", monitor({"mine": late}), max_epochs=2)
    assert set(manifest(tmp_path / "twice")) == known | {"val/mine_layer_late"}


@pytest.mark.parametrize("kind", [Spread, Quiet])
@pytest.mark.parametrize("on_error", ["warn", "raise"])
def test_a_late_result_under_the_name_of_another_is_not_logged(tmp_path, kind, on_error):
    callbacks = [monitor({"mine_layer_late": EffectiveRank()}), monitor({"mine": kind(late=True)}, on_error=on_error)]
    said = r"diagnostic 'mine', stage 'val'.*Expected one meaning of 'val/mine_layer_late', but got 'Effective rank"
    arguments = {"max_epochs": 3, "logger": CSVLogger(tmp_path, "", "")}
    if on_error == "raise":
        with pytest.raises(ValueError, match=said), pytest.warns(UserWarning, match="once the checkpoints"):
            fit(tmp_path, *callbacks, **arguments)
    else:
        with pytest.warns(UserWarning, match=said + r".*\. It is not logged under that name, and the run goes on"):
            fit(tmp_path, *callbacks, **arguments)
    run = read_run(tmp_path)
    assert run.declared["val/mine_layer_late"].diagnostic == "EffectiveRank"
    assert (run.scalars["val/mine_layer_late"].value != run.scalars["val/mine_value"].value).all()
    if on_error == "warn":
        assert len(run.scalars["val/mine_value"].value) == 3


# --- resumed


@pytest.fixture(params=[".", "other"])
def resumed(tmp_path, request):
    """Resume a run in its folder or another one: by how many epochs, and with which diagnostics."""
    folder = tmp_path / "one" / request.param
    first = fit(tmp_path / "one", monitor({"before": Spread(), "mine": Spread()}))
    first.save_checkpoint(tmp_path / "one" / "1.ckpt")

    def go_on(diagnostics, max_epochs=2):
        path = tmp_path / "one" / f"{max_epochs - 1}.ckpt"
        trainer = fit(folder, monitor(diagnostics), max_epochs=max_epochs, ckpt_path=path)
        trainer.save_checkpoint(tmp_path / "one" / f"{max_epochs}.ckpt")
        return folder

    return go_on


def test_a_resumed_run_keeps_what_was_declared_and_says_what_a_name_meant_before(tmp_path, resumed):
    ranked = {"mine_value": EffectiveRank(), "after": Spread()}
    was = "'Spread' of h, in units (Spread, value)"
    with pytest.warns(
        UserWarning, match=r"val/mine_value is 'Effective .* but was 'Spread' of h, in units \(Spread, v"
    ):
        folder = resumed(ranked)
    found = manifest(folder)
    assert {"val/before_value", "val/after_value"} <= found.keys()
    assert (found["val/mine_value"].diagnostic, found["val/mine_value"].earlier) == ("EffectiveRank", (was,))
    assert found["val/after_value"].earlier == ()
    said = f"val/mine_value has two meanings: it was {was} in an earlier part of this run, and is"
    (note,) = [note for note in read_run(folder).notes if note.startswith(said)]
    assert note in unescape(write_report(folder).read_text())
    if folder != tmp_path / "one":
        assert "val/after_value" not in manifest(tmp_path / "one")


@pytest.mark.filterwarnings("ignore:val/mine_value is .* from here on")
def test_a_resumed_run_that_no_longer_declares_a_name_makes_no_claims_of_it(resumed):
    name, was = "val/mine_layer_trunk_0", "'First layers' of h (Spread, layer, part t"
    with pytest.warns(UserWarning, match=rf"{name} is a result that nobody declares from here on, but was 'First lay"):
        folder = resumed({"mine": Quiet(), "after": Quiet()})
    entry = manifest(folder)[name]
    assert (entry.silent, entry.quantity.title, entry.diagnostic) == (True, "mine_layer_trunk_0", "")
    assert [each[: len(was)] for each in entry.earlier] == [was]
    assert {each for each in manifest(folder) if "after" in each} == {"val/after_value"}  # nobody declared the other
    run = read_run(folder)
    assert len(run.scalars[name].value) == 2
    page = unescape(write_report(folder).read_text())
    assert f"{name} has two meanings: it was {was}" in page
    assert "is a result that nobody declares in the latest. Figures show" in page
    resumed({"mine": Quiet(), "after": Quiet()}, max_epochs=3)  # warns of nothing
    assert manifest(folder)[name].earlier == entry.earlier


# --- files that are another's, or broken


def test_a_file_of_another_is_refused_and_not_touched(tmp_path):
    path = tmp_path / FILE
    path.parent.mkdir()
    path.write_text("mine")
    with pytest.raises(ValueError, match=r"Expected `geometry/quantities\.json` to be this run's to write"):
        fit(tmp_path, monitor({"mine": Spread()}))
    with pytest.warns(UserWarning, match=r"`geometry/quantities\.json` of this run is not kept"):
        quiet(tmp_path, callbacks=[RunReport()]).validate(DeclaringHost(), loader(), verbose=False)
    assert path.read_text() == "mine"


def nested(path):
    path.write_text("[" * 100_000)


def strange(path):
    """Add entries that a later version may have written, and more than are read."""
    held = json.loads(path.read_text())
    more = {"val/strange": held["val/x"] | {"comparable": ["planet"]}} | {
        f"val/{n}": held["val/x"] for n in range(5_000)
    }
    path.write_text(json.dumps(held | more))


@pytest.mark.parametrize(
    ("spoil", "said", "kept"),
    [
        (nested, r"could not be read: ", []),
        (strange, r"was read in part: .*: val/strange\..* has 5,002 entries; only ", ["val/x", "val/0"]),
    ],
)
def test_a_file_that_is_not_read_whole_is_kept_whole(tmp_path, spoil, said, kept):
    who, entry, path = L.Callback(), Declared(quantity=SPREAD), tmp_path / FILE
    QuantitiesFile(RunFiles(tmp_path / "never")).carry(tmp_path)  # there is none yet, which is nothing to warn of
    files = RunFiles(tmp_path)
    QuantitiesFile(files).declare({who: {"val/x": entry}})
    spoil(path)
    before = path.read_text()
    with pytest.warns(UserWarning, match=said + r".*The run goes on without"):
        QuantitiesFile(RunFiles(tmp_path / "new")).carry(tmp_path)
    assert [each.read_text() for each in path.parent.iterdir()] == [before]  # an earlier run's stays where it is
    with pytest.warns(UserWarning, match=said + r".* is now .*quantities\.json\.unreadable-1; the run"):
        QuantitiesFile(files).declare({who: {"val/y": entry}})
    assert path.with_name("quantities.json.unreadable-1").read_text() == before
    held = json.loads(path.read_text())
    assert {"val/y", *kept} <= held.keys()
    assert "val/strange" not in held
    QuantitiesFile(files).declare({who: {"val/z": entry}})  # nothing is left out of it any more


def test_nothing_is_written_twice_nor_by_a_fit_that_fails_before_its_first_step(tmp_path):
    quantities, who, path = QuantitiesFile(RunFiles(tmp_path)), L.Callback(), tmp_path / FILE
    numbers = []
    for name in ("val/x", "val/x", "val/y"):
        quantities.declare({who: {name: Declared(quantity=SPREAD)}})
        numbers.append(path.stat().st_ino)
    assert numbers[0] == numbers[1] != numbers[2]

    class Fails(DeclaringHost):
        def training_step(self, batch, batch_idx):
            raise RuntimeError("no step")

    with pytest.raises(RuntimeError, match="no step"):
        fit(tmp_path / "fails", probe(), host=Fails)
    assert not (tmp_path / "fails" / "geometry").exists()
    fit(tmp_path / "fails", probe(), host=DeclaringHost)
    assert "val/their_loss" in manifest(tmp_path / "fails")
