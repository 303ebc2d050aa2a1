"""Runs of which one file is bad: the page is made of the others, and says what is wrong with this one, in seconds."""

import json
import os
import struct
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from pages import comparison, declare, entry, page_of, report, write_csv, write_info, write_rows, write_snapshot

from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.quantity import Picture
from lightning_ssl_geometry.report import drawn, figures, files, logs, page, read_run

SECONDS = 30.0  # on a machine that does other work too; most take a tenth
TABLES = {  # header and row
    "metrics.csv": (["epoch", "step", "val/loss", "val/rank", "own"], [1, 19, 0.5, 7.5, 3]),
    "geometry/val/spectrum.csv": (["epoch", "step", 0, 1, 2], [1, 20, 1.5, 1.0, 0.5]),
    "geometry/val/own.csv": (["epoch", "step", 0, 1, 2], [1, 20, 1.5, 1.0, 0.5]),
    "linear_evaluation.csv": (["features", "accuracy", "accuracy_std"], ["trained", 0.875, 0.01]),
    "layers.csv": (["layer", "width", "rank", "own"], ["h", 8, 4.5, 2]),
}
CSV, NPZ, MANIFEST = [*TABLES], "geometry/val/map.npz", "geometry/quantities.json"
EVERY = ["run.json", "config.yaml", *CSV, NPZ, MANIFEST]


def write_whole_run(folder):
    """A run with one of each file that is read."""
    for name, (header, row) in TABLES.items():
        rows = [row, ["z" if cell == "h" else cell for cell in row]]
        rows = [[0, 9, *row[2:]], row] if name == "metrics.csv" else rows
        write_csv(folder / name, header, rows)
    write_snapshot(folder, "val/map", np.eye(2))
    declare(folder, val__rank=entry("Rank"), val__spectrum=entry("Spectrum", picture=Picture("spectrum")))
    write_info(folder, model="SimCLRModule", data="DigitsDataModule", status="finished", steps=20, epochs=2)
    (folder / "config.yaml").write_text("seed_everything: 3\nmodel: {class_path: a.SimCLRModule}\n")
    return folder


def with_cells(value, *columns):
    """The table of a file with this in some columns, or else in all cells that are numbers measured."""

    def write(path, name):
        header, row = TABLES[name]
        chosen = columns or {*header} - {"epoch", "step", "features", "layer"}
        cells = [value if column in chosen else cell for column, cell in zip(header, row, strict=True)]
        write_csv(path, header, [cells] if columns else [cells, cells])

    return write


def text(content):
    return lambda path, name: path.write_bytes(content if isinstance(content, bytes) else content.encode())


def sparse(path, name):
    with path.open("wb") as file:
        file.truncate(300 * 10**6)


def wide(path, name):
    write_csv(path, [*TABLES[name][0], *range(10**6)], [[*TABLES[name][1], *range(10**6)]])


def not_utf8(path, name):
    path.write_bytes("".join(",".join(map(str, row)) + "\n" for row in TABLES[name]).encode() + b"\xff\xfe\n")


def npz(**arrays):
    def write(path, name):
        held = {"values": np.eye(2), "epoch": 1, "step": 20} | arrays
        np.savez(path, **{key: value for key, value in held.items() if value is not None})

    return write


def says(shape, data=b"", method=zipfile.ZIP_STORED):
    """An array whose header says this, whatever follows."""

    def write(path, name):
        npz()(path, name)
        with zipfile.ZipFile(path) as whole:
            held = {each: whole.read(each) for each in whole.namelist() if each != "values.npy"}
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        with zipfile.ZipFile(path, "w", method) as archive:
            for each, content in held.items():
                archive.writestr(each, content)
            head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
            archive.writestr("values.npy", head + data)

    return write


def with_another_bit(path, name):
    npz()(path, name)
    path.write_bytes(path.read_bytes().replace(np.float64(1).tobytes(), np.float64(1.25).tobytes(), 1))


ANY = {  # kind -> what is there instead, and what the note says
    "folder": (lambda path, name: path.mkdir(), "could not be read: it is a folder."),
    "pipe": (lambda path, name: os.mkfifo(path), "could not be read: it is a named pipe."),
    "link to nothing": (lambda path, name: path.symlink_to("nothing"), "could not be read: it is a link to nothing."),
    "link to itself": (lambda path, name: path.symlink_to(path.name), "Too many levels of symbolic links."),
    "link to a device": (lambda path, name: path.symlink_to("/dev/zero"), "could not be read: it is a device."),
    "one NUL": (text("\0"), ""),
    "300 MB of NUL": (sparse, ""),
    "bytes": (text(bytes(range(256)) * 10), ""),
    "brackets": (text("[" * 100_000), ""),
}
VALUES = ("nan", "-inf", "1e308", "-1e308", "1e400", "<b>word</b>")
IN_TABLES = {
    "no header": (lambda path, name: write_csv(path, [1, 2, 3], [[4, 5, 6]]), ""),
    "a million columns": (wide, "columns, and no more than 20,000 are read."),
    "a long line": (text("1" * 10**8), ""),
    "only commas": (text("epoch,step,a\n" + "," * 10**6 + "\n"), "a line has 1,000,001 columns, and no more than"),
    "an open quote": (text('epoch,step,a\n"' + "1,2,3\n" * 30_000), ""),
    "one name twice": (lambda path, name: write_csv(path, [*TABLES[name][0], TABLES[name][0][-1]],
                                                    [[*TABLES[name][1], 1]]), "has several columns of one name, such"),
    "not UTF-8": (not_utf8, "has bytes that are not UTF-8; they are shown as"),
    **{value: (with_cells(value), "") for value in VALUES},
}  # fmt: skip
STEPS = {value: (with_cells(value, "step"), "") for value in ("-5", "nan", "1e300", "1e400")}
STEP = "its `step` is not one number >= 0."
LARGE = "values, and no more than 16,777,216 are read."
PICKLED = "`values` holds pickled Python objects, which are not read: reading them could run any code."
IN_NPZ = {
    "10^40 values": (says((10**20, 10**20)), LARGE),
    "negative shape": (says((-1, 2)), ""),
    "many axes": (says((1,) * 60), ""),
    "more than it holds": (says((3000, 3000), b"1234"), ""),
    "a bomb": (says((2**30 // 4,), bytes(2**28), zipfile.ZIP_DEFLATED), f"`values` declares 268,435,456 {LARGE}"),
    "compressed otherwise": (says((2, 2), bytes(16), zipfile.ZIP_LZMA), "is compressed as numpy does not."),
    "a header of minus signs": (says("-" * 50 + "1"), "it has a header that is none of numpy's format."),
    "another bit": (with_another_bit, "it is no NPZ file, or a broken one."),
    "pickles": (npz(values=np.array([[object(), print]], dtype=object)), PICKLED),
    "records": (npz(values=np.zeros((2, 2), dtype=[("a", "<f4")])), ""),
    "text": (npz(values=np.array([["a", "b"]])), "`values` holds <U1 instead of numbers."),
    "a scalar": (npz(values=np.float32(1)), "its `values` have the shape () instead of two axes or more."),
    "nothing in it": (npz(values=np.ones((0, 2))), ""),
    "no values": (npz(values=None, z=np.eye(2)), "it has no array `values`."),
    "steps": (npz(step=np.arange(3)), STEP),
    "negative step": (npz(step=-3), STEP),
    "all NaN": (npz(values=np.full((2, 2), np.nan)), "holds no finite number."),
    "huge": (npz(values=np.array([[1e308, -1e308], [-1e308, 1e308]])), "has values beyond ±1e+100, 4 in all"),
    "not a ZIP": (text("PK\x03\x04 and more"), ""),
}
IN_JSON = {
    "braces": (text('{"a":' * 100_000), "could not be read: it is nested too deeply."),
    "deep, and whole": (text('{"model": ' + '{"a":' * 400 + "1" + "}" * 401), ""),
    "a list": (text("[1]"), "holds a list instead of an object"),
}
IN_RECORD = {
    "large": (text('{"model": "' + "a" * 2**20 + '"}'), ""),
    "a long number": (text('{"samples": 1' + "0" * 5_000 + "}"), ""),
}
IN_YAML = {
    "large": (text("# " + "a" * 2**18 + "\nseed_everything: 3"), ""),
    "two documents": (text("a: 1\n---\nb: 2\n"), ""),
    "a Python object": (text("model: !!python/object/apply:os.system [touch ran]\n"),
                        "asks for a Python object (!!python/object/apply:os.system), which was not built"),
}  # fmt: skip
CONTENT = ("one NUL", "300 MB of NUL", "bytes", "brackets")  # what each reader meets; the rest is one way to open files
NAMED = [(name, kind, *ANY[kind]) for name in EVERY for kind in ("folder", "pipe", *CONTENT)]
NAMED += [("metrics.csv", kind, *ANY[kind]) for kind in ANY if (kind not in ("folder", "pipe", *CONTENT))]
NAMED += [(name, kind, *IN_TABLES[kind]) for name in CSV for kind in IN_TABLES]
NAMED += [(name, kind, *STEPS[kind]) for name in CSV[:2] for kind in STEPS]
NAMED += [(NPZ, kind, *IN_NPZ[kind]) for kind in IN_NPZ]
NAMED += [(name, kind, *IN_JSON[kind]) for name in ("run.json", MANIFEST) for kind in IN_JSON]
NAMED += [("run.json", kind, *IN_RECORD[kind]) for kind in IN_RECORD]
NAMED += [("config.yaml", kind, *IN_YAML[kind]) for kind in IN_YAML]
SHOWN = {  # a text of the page that is of this file
    "metrics.csv": "val/rank",
    "geometry/val/own.csv": "own",
    "linear_evaluation.csv": "87.5%",
    "layers.csv": "Save as CSV",
    "run.json": "DigitsDataModule",
    "config.yaml": "class_path: a.SimCLRModule",
    MANIFEST: "High Rank.",
}
# What a picture could break on: cells of any table, and one table that is torn in each way.
DRAWN = {("metrics.csv", kind) for kind in IN_TABLES} | {(name, kind) for name in CSV for kind in VALUES}
DRAWN |= {(name, kind) for name in EVERY for kind in ("folder", "huge", "all NaN", "braces", "a Python object")}


@pytest.mark.parametrize(("name", "kind", "make", "said"), NAMED, ids=[f"{name}-{kind}" for name, kind, *_ in NAMED])
def test_one_bad_file_becomes_a_note_and_the_rest_is_shown(tmp_path, capsys, monkeypatch, name, kind, make, said):
    monkeypatch.chdir(tmp_path)
    folder = write_whole_run(tmp_path / "whole")
    (folder / name).unlink()
    make(folder / name, name)
    started = time.monotonic()
    notes = read_run(folder).notes
    assert said in " ".join(notes)
    assert any(name in note for note in notes) or (name == "metrics.csv" and "val/loss" in notes[0])
    if (name, kind) in DRAWN:
        main(["report", str(folder)])
        shown, printed = page_of(folder / "report.html"), capsys.readouterr().out
        assert all(note.replace("`", "") in shown.text and note in printed for note in notes)
        assert all(part in shown.text or name in (other, "metrics.csv") for other, part in SHOWN.items())
    assert time.monotonic() - started < SECONDS
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["metrics.csv", "geometry/val/own.csv"])
def test_files_at_the_limits_are_shown_in_seconds(tmp_path, name):
    folder, (header, row) = write_whole_run(tmp_path), TABLES[name]
    more, started = 19_999 - len(header), time.monotonic()
    write_csv(folder / name, [*header, *range(3, 3 + more)], [[*row, *[0.5] * more]] * 20)
    shown = report(folder)
    said = "metrics.csv has 19,997 scalars; only the first 1,000 were read."
    assert (said in shown.text) is (name == "metrics.csv")
    assert time.monotonic() - started < SECONDS


def test_no_more_cells_and_files_are_read_than_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_CELLS", 100)
    monkeypatch.setattr(files, "_MOST_FILES", 2)
    write_rows(tmp_path, ["a"], *([0, step, 1] for step in range(1000)))
    for name in "abc":
        write_csv(tmp_path / f"geometry/val/{name}.csv", ["epoch", "step", 0], [[0, 1, 2]])
    read = read_run(tmp_path)
    assert (read.scalars["a"].step.max(), list(read.arrays)) == (31, ["val/a", "val/b"])
    assert "metrics.csv has more than 100 cells; rows behind 33 were left out." in read.notes
    assert "geometry/ holds 3 files *.csv; only the first 2 were read." in read.notes


def test_files_that_may_not_be_read(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    folder = write_whole_run(tmp_path)
    assert read_run(folder).notes == ()
    monkeypatch.setattr(os, "open", refused)  # root may read everything
    notes = read_run(folder).notes
    assert [name for name in EVERY if f"{name} could not be read: Permission denied." not in notes] == []


def test_files_that_go_or_change_while_the_run_is_read(tmp_path, monkeypatch):
    folder, found, stat = write_whole_run(tmp_path), files.listed, Path.stat

    def listed(*args):
        named = found(*args)
        for path, _ in named[0]:
            path.unlink()
        return named

    whole = stat(folder / "metrics.csv")
    (folder / "metrics.csv").unlink()
    os.mkfifo(folder / "metrics.csv")  # it is not waited for
    monkeypatch.setattr(logs, "listed", listed)
    monkeypatch.setattr(Path, "stat", lambda path, **_: whole if path.name == "metrics.csv" else stat(path))
    notes = read_run(folder).notes
    assert "metrics.csv could not be read: it is no file." in notes
    assert all(
        f"{name} could not be read: it is not there any more." in notes for name in ("geometry/val/own.csv", NPZ)
    )


@pytest.mark.parametrize(("name", "kind"), [("metrics.csv", "1e308"), (NPZ, "a bomb"), (MANIFEST, "a list")])
def test_a_comparison_has_the_note_too(tmp_path, name, kind):
    bad, whole = write_whole_run(tmp_path / "bad"), write_whole_run(tmp_path / "whole")
    (bad / name).unlink()
    (IN_JSON | IN_NPZ | IN_TABLES)[kind][0](bad / name, name)
    shown = comparison(tmp_path, a=[whole, bad], b=[whole])
    (note,) = [note for note in read_run(bad).notes if name in note or "val/loss" in note]
    assert f"a (bad): {note}".replace("`", "") in shown.text
    assert "High Rank." in shown.text


@pytest.mark.parametrize(("place", "name", "count"), [(drawn._PICTURES, "line", 6), (page.__dict__, "inline_svg", 0)])
def test_a_figure_that_cannot_be_drawn_is_named_and_the_others_are_there(tmp_path, monkeypatch, place, name, count):
    def broken(*_, **__):
        raise RuntimeError("no glyph <b>")

    folder = write_whole_run(tmp_path / "whole")
    monkeypatch.setitem(place, name, broken)
    with pytest.warns(UserWarning, match=r"report.html lacks figures\. Not drawn: .*RuntimeError: no glyph <b>"):
        shown = report(folder)
    assert "because of RuntimeError: no glyph <b>" in shown.text
    assert "87.5%" in shown.text
    assert shown.count() == count
    if count:
        with pytest.warns(UserWarning, match="whole lacks figures"):
            assert "layers_rank" in figures(read_run(folder))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"step": 10**400}, "history.json could not be read: OverflowError. An earlier part is not known."),
        ({"from": "a\0b"}, "because `a\0b` is no name of a folder."),
        ({"from": "b" * 5_000}, f"because `{'b' * 59}…` is no name of a folder."),
    ],
    ids=["a long number", "NUL", "a long name"],
)
def test_a_bad_entry_of_the_history_becomes_a_note(tmp_path, entry, said):
    folder = write_whole_run(tmp_path)
    resumed = {"from": "../earlier", "run": "b", "step": 10, "logged": 9, "epoch": 1} | entry
    (folder / "history.json").write_text(json.dumps({"run": "a", "resumed": [resumed]}))
    read = read_run(folder)
    assert said in " ".join(read.notes)
    assert "val/rank" in read.scalars
