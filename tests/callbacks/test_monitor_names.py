"""Names of monitors and diagnostics, in logs and of files."""

import pandas as pd
import pytest
from hosts import PlainHost, loader, quiet
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LayerGeometry, LinearProbe, RunReport
from lightning_ssl_geometry.callbacks.order import put_in_order
from lightning_ssl_geometry.diagnostics import Alignment, EffectiveRank, LogSpectrum

TAPS = {"h": "trunk", "z": "head"}
DIAGNOSTICS = {"rank": EffectiveRank(), "spectrum": LogSpectrum()}


def test_two_named_monitors_log_and_write_apart(tmp_path):
    student = GeometryMonitor(DIAGNOSTICS, taps=TAPS, every_n_steps=1)
    teacher = GeometryMonitor(DIAGNOSTICS, {"rank": {"h": "z"}}, taps=TAPS, every_n_steps=1, name="teacher")
    trainer = quiet(tmp_path, callbacks=[student, teacher], logger=CSVLogger(tmp_path, "run"))
    trainer.fit(PlainHost(), loader(), loader(seed=1))
    found = trainer.callback_metrics
    alone = []
    for place, rename in enumerate(({}, {"rank": {"h": "z"}})):
        monitor = GeometryMonitor(DIAGNOSTICS, rename, taps=TAPS, every_n_steps=1)
        host = trainer.lightning_module
        alone += quiet(tmp_path / str(place), callbacks=[monitor]).validate(host, loader(seed=1), verbose=False)
    assert found["val/rank"].item() == pytest.approx(alone[0]["val/rank"], rel=1e-6)
    assert found["val/teacher/rank"].item() == pytest.approx(alone[1]["val/rank"], rel=1e-6)
    assert found["val/rank"] != found["val/teacher/rank"]
    folder = tmp_path / "run" / "version_0" / "geometry" / "val"
    assert pd.read_csv(folder / "spectrum.csv").shape == (1, 12)
    assert pd.read_csv(folder / "teacher" / "spectrum.csv").shape == (1, 12)


@pytest.mark.parametrize("name", ["x/../../evil", "a/b", "a\\b", "..", ".", "", "a\nb", "a\0b"])
def test_a_name_with_a_separator_is_refused(name):
    with pytest.raises(ValueError, match="`diagnostics` to be names without '/'"):
        GeometryMonitor({name: Alignment()})
    for make in (LinearProbe, KNNProbe):
        with pytest.raises(ValueError, match="`name` to be names without '/'"):
            make(name=name)
    with pytest.raises(ValueError, match="`name` to be names without '/'"):
        GeometryMonitor(name=name)


def test_a_misspelt_argument_in_rename_is_refused():
    with pytest.raises(ValueError, match=r"`rename` of 'effective_rank_z' to name arguments .*, h, but got 'hh'"):
        GeometryMonitor(rename={"effective_rank_z": {"hh": "z"}})


def test_monitors_and_probes_go_before_what_reads_them_and_the_report_behind_what_writes(tmp_path):
    report, stopping, saving = RunReport(table=False), EarlyStopping("val/x"), ModelCheckpoint(tmp_path)
    layers, first, second = LayerGeometry(), GeometryMonitor(name="first"), GeometryMonitor(name="second")
    given = [report, stopping, first, saving, layers, second]
    trainer = quiet(tmp_path, callbacks=given, enable_checkpointing=True)
    for callback in (report, second):
        put_in_order(trainer, callback)
    assert trainer.callbacks == [second, first, stopping, layers, report, saving]
