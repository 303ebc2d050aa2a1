"""Runs of which one file is bad: the page is made of the others, and says what is wrong with this one, in seconds."""

import json
import os
import socket
import struct
import time
import zipfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from pages import Page, write_csv

from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.report import (
    array_panels,
    figures,
    files,
    logs,
    panel_html,
    read_run,
    write_comparison,
    write_report,
)

SECONDS = 30.0  # on a machine that does other work too; most take a tenth
CSV = ("metrics.csv", "geometry/val/log_spectrum_h.csv", "geometry/val/own.csv", "linear_evaluation.csv", "layers.csv")
NPZ = ("geometry/val/layer_cka.npz", "geometry/val/neural_kernel_blocks.npz")
EVERY = ("run.json", "config.yaml", "metrics.csv", "linear_evaluation.csv", "layers.csv", CSV[2], NPZ[0])
TABLES = {  # header and row
    "metrics.csv": (["epoch", "step", "val/loss", "val/effective_rank_h", "own"], [1, 19, 0.5, 7.5, 3]),
    "geometry/val/log_spectrum_h.csv": (["epoch", "step", 0, 1, 2], [1, 20, 1.5, 1.0, 0.5]),
    "geometry/val/own.csv": (["epoch", "step", 0, 1, 2], [1, 20, 1.5, 1.0, 0.5]),
    "linear_evaluation.csv": (["features", "accuracy", "accuracy_std"], ["trained", 0.875, 0.01]),
    "layers.csv": (["layer", "width", "effective_rank", "own"], ["h", 8, 4.5, 2]),
}


def write_whole_run(folder):
    """A run with one of each file that is read."""
    for name, (header, row) in TABLES.items():
        second = ["z" if cell == "h" else cell for cell in row]
        write_csv(folder / name, header, [[cell if cell != 1 else 0 for cell in row], second])
    write_csv(folder / "metrics.csv", *_two_epochs())
    for name in NPZ:
        np.savez(folder / name, values=np.eye(2, dtype=np.float32), epoch=1, step=20)
    info = {"model": "SimCLRModule", "data": "DigitsDataModule", "status": "finished", "steps": 20, "epochs": 2}
    (folder / "run.json").write_text(json.dumps(info))
    (folder / "config.yaml").write_text("seed_everything: 3\nmodel: {class_path: a.SimCLRModule}\n")
    return folder


def _two_epochs():
    header, row = TABLES["metrics.csv"]
    return header, [[0, 9, *row[2:]], row]


def with_cells(value):
    """The table of a file with this in all cells that are numbers measured."""

    def write(path, name):
        header, row = TABLES[name]
        labels = {"epoch", "step", "features", "layer"}
        cells = [cell if column in labels else value for column, cell in zip(header, row, strict=True)]
        write_csv(path, header, [cells, cells])

    return write


def with_steps(value, column="step"):
    def write(path, name):
        header, row = TABLES[name]
        write_csv(path, header, [[value if key == column else cell for key, cell in zip(header, row, strict=True)]])

    return write


def text(content):
    return lambda path, name: path.write_bytes(content if isinstance(content, bytes) else content.encode())


def link(target):
    return lambda path, name: path.symlink_to(target if target else path.name)


def of_a_socket(path, name):
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(path.parent, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder}/{path.name}")  # a path of a socket is short
        os.close(folder)


def sparse(size):
    def write(path, name):
        with path.open("wb") as file:
            file.truncate(size)

    return write


def npz(**arrays):
    def write(path, name):
        held = {"values": np.eye(2), "epoch": 1, "step": 20} | arrays
        np.savez(path, **{key: value for key, value in held.items() if value is not None})

    return write


def declared(shape, dtype="<f4", data=b"", method=zipfile.ZIP_STORED, key="values"):
    """An array whose header says this, whatever follows."""

    def write(path, name):
        npz()(path, name)
        with zipfile.ZipFile(path) as whole:
            held = {each: whole.read(each) for each in whole.namelist() if each != f"{key}.npy"}
        header = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        member = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
        with zipfile.ZipFile(path, "w", method) as archive:
            for each, content in held.items():
                archive.writestr(each, content)
            archive.writestr(f"{key}.npy", member + data)

    return write


def with_another_byte(path, name):
    """A bit of a value is not what was written, as the archive knows."""
    npz()(path, name)
    held = path.read_bytes()
    value = np.float64(1).tobytes()
    assert held.count(value) == 2
    path.write_bytes(held.replace(value, np.float64(1.25).tobytes(), 1))


def bomb(levels):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, levels)]
    return "\n".join(lines)


def merges(levels):
    lines = ["a0: &a0 {x0: 1}"]
    lines += [f"a{k}: &a{k}\n  <<: [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, levels)]
    return "\n".join(lines)


ANY = {
    "folder": lambda path, name: path.mkdir(),
    "pipe": lambda path, name: os.mkfifo(path),
    "socket": of_a_socket,
    "link to nothing": link("nothing"),
    "link to itself": link(None),
    "link to a device": link("/dev/zero"),
    "empty": text(""),
    "one NUL": text("\0"),
    "300 MB of NUL": sparse(300 * 10**6),
    "bytes": text(bytes(range(256)) * 10),
    "brackets": text("[" * 100_000),
}
IN_TABLES = {
    "header alone": lambda path, name: write_csv(path, TABLES[name][0], []),
    "half a header": lambda path, name: path.write_text("epoch,st"),
    "no header": lambda path, name: write_csv(path, [1, 2, 3], [[4, 5, 6]]),
    "a million columns": lambda path, name: write_csv(
        path, [*TABLES[name][0], *range(10**6)], [[*TABLES[name][1], *range(10**6)]]
    ),
    "a long line": text("1" * 10**8),
    "only commas": text("epoch,step,a\n" + "," * 10**6 + "\n"),
    "an open quote": text('epoch,step,a\n"' + "1,2,3\n" * 30_000),
    "one name twice": lambda path, name: write_csv(
        path, [*TABLES[name][0], TABLES[name][0][-1]], [[*TABLES[name][1], 1]]
    ),
    "rows of many lengths": lambda path, name: write_csv(path, TABLES[name][0], [TABLES[name][1], [1], [1] * 9]),
    "not UTF-8": lambda path, name: path.write_bytes(
        "".join(",".join(map(str, row)) + "\n" for row in TABLES[name]).encode() + b"\xff\xfe\n"
    ),
    "NaN": with_cells("nan"),
    "infinities": with_cells("inf"),
    "minus infinity": with_cells("-inf"),
    "1e308": with_cells("1e308"),
    "-1e308": with_cells("-1e308"),
    "1e400": with_cells("1e400"),
    "words": with_cells("<b>word</b>"),
}
STEPS = {
    "negative": with_steps("-5"),
    "NaN step": with_steps("nan"),
    "huge step": with_steps("1e300"),
    "step of 1e400": with_steps("1e400"),
}
IN_NPZ = {
    "10^12 values": declared((10**12,)),
    "10^40 values": declared((10**20, 10**20)),
    "negative shape": declared((-1, 2)),
    "many axes": declared((1,) * 60),
    "more than it holds": declared((3000, 3000), data=b"1234"),
    "a bomb": declared((2**30 // 4,), data=bytes(2**28), method=zipfile.ZIP_DEFLATED),
    "compressed otherwise": declared((2, 2), data=bytes(16), method=zipfile.ZIP_LZMA),
    "another byte": with_another_byte,
    "pickles": npz(values=np.array([[object(), print]], dtype=object)),
    "records": npz(values=np.zeros((2, 2), dtype=[("a", "<f4")])),
    "text": npz(values=np.array([["a", "b"]])),
    "times": npz(values=np.array([["2020-01-01"]], dtype="datetime64[D]")),
    "complex": npz(values=np.eye(2) * 1j),
    "a scalar": npz(values=np.float32(1)),
    "one axis": npz(values=np.ones(3)),
    "nothing in it": npz(values=np.ones((0, 2))),
    "no values": npz(values=None, z=np.eye(2)),
    "no step": npz(step=None),
    "steps": npz(step=np.arange(3)),
    "NaN step": npz(step=np.nan),
    "negative step": npz(step=-3),
    "text as step": npz(step="now"),
    "NaN": npz(values=np.full((2, 2), np.nan)),
    "1e308": npz(values=np.array([[1e308, -1e308], [-1e308, 1e308]])),
    "not a ZIP": text("PK\x03\x04 and more"),
    "a header of minus signs": declared("-" * 50 + "1", data=b""),
}
IN_JSON = {
    "braces": text('{"a":' * 100_000),
    "deep, and whole": text('{"model": ' + '{"a":' * 400 + "1" + "}" * 401),
    "large": text('{"model": "' + "a" * 2**20 + '"}'),
    "a long number": text('{"samples": 1' + "0" * 5_000 + "}"),
    "a list": text("[1]"),
}
IN_YAML = {
    "brackets": text("[" * 20_000),
    "large": text("# " + "a" * 2**18 + "\nseed_everything: 3"),
    "a Python object": text("model: !!python/object/apply:os.system [touch ran]\n"),
    "two documents": text("a: 1\n---\nb: 2\n"),
}
NAMED = [
    *((name, kind, make) for name in EVERY for kind, make in ANY.items() if (name, kind) != ("config.yaml", "empty")),
    *((name, kind, make) for name in CSV for kind, make in IN_TABLES.items()),
    *((name, kind, make) for name in CSV[:2] for kind, make in STEPS.items()),
    *((NPZ[0], kind, make) for kind, make in IN_NPZ.items()),
    *(("run.json", kind, make) for kind, make in IN_JSON.items()),
    *(("config.yaml", kind, make) for kind, make in IN_YAML.items()),
]
SHOWN = {  # a text of the page that is of this file
    "metrics.csv": "val/effective_rank_h",
    "geometry/val/own.csv": "own",
    "linear_evaluation.csv": "87.5%",
    "layers.csv": "Save as CSV",
    "run.json": "DigitsDataModule",
    "config.yaml": "class_path: a.SimCLRModule",
}
SAID = {  # what is wrong, in the words of the note
    "folder": "could not be read: it is a folder.",
    "pipe": "could not be read: it is a named pipe.",
    "socket": "could not be read: it is a socket.",
    "link to nothing": "could not be read: it is a link to nothing.",
    "link to itself": "could not be read: Too many levels of symbolic links.",
    "link to a device": "could not be read: it is a device.",
    "a million columns": "columns, and no more than 20,000 are read.",
    "only commas": "a line has 1,000,001 columns, and no more than 20,000 are read.",
    "one name twice": "has several columns of one name, such as",
    "not UTF-8": "has bytes that are not UTF-8; they are shown as",
    "10^12 values": "`values` declares 1,000,000,000,000 values, and no more than 16,777,216 are read.",
    "a bomb": "`values` declares 268,435,456 values, and no more than 16,777,216 are read.",
    "compressed otherwise": "is compressed as numpy does not.",
    "another byte": "it is no NPZ file, or a broken one.",
    "pickles": "`values` holds pickled Python objects, which are not read: reading them could run any code.",
    "text": "`values` holds <U1 instead of numbers.",
    "a scalar": "its `values` have the shape () instead of two axes or more.",
    "no values": "it has no array `values`.",
    "steps": "its `step` is not one number >= 0.",
    "negative step": "its `step` is not one number >= 0.",
    "a header of minus signs": "it has a header that is none of numpy's format.",
    "braces": "run.json could not be read: it is nested too deeply.",
    "deep, and whole": "run.json is nested more than 20 deep; it was left out.",
    "a Python object": "asks for a Python object (!!python/object/apply:os.system), which was not built",
}


def report(folder, capsys):
    """The page and what the terminal says, by the command, in seconds."""
    started = time.monotonic()
    main(["report", str(folder)])
    assert time.monotonic() - started < SECONDS
    return Page((folder / "report.html").read_text("utf-8")), capsys.readouterr().out


@pytest.mark.parametrize(("name", "kind", "make"), NAMED, ids=[f"{name}-{kind}" for name, kind, _ in NAMED])
def test_one_bad_file_becomes_a_note_and_the_rest_is_shown(tmp_path, capsys, monkeypatch, name, kind, make):
    monkeypatch.chdir(tmp_path)
    folder = write_whole_run(tmp_path / "whole")
    (folder / name).unlink()
    make(folder / name, name)
    page, said = report(folder, capsys)
    notes = read_run(folder).notes
    assert all(note in page.text and note in said for note in notes)
    assert SAID.get(kind, "") in " ".join(notes)
    assert any(name in note for note in notes) or (name == "metrics.csv" and "val/loss" in notes[0])
    for other, shown in SHOWN.items():
        assert shown in page.text or other == name
    assert not (tmp_path / "ran").exists()


def test_a_whole_run_has_nothing_to_note(tmp_path):
    assert read_run(write_whole_run(tmp_path)).notes == ()


@pytest.mark.parametrize("name", ["metrics.csv", "geometry/val/own.csv"])
def test_files_at_the_limits_are_shown_in_seconds(tmp_path, capsys, name):
    folder = write_whole_run(tmp_path)
    header, row = TABLES[name]
    more = 19_999 - len(header)
    write_csv(folder / name, [*header, *range(3, 3 + more)], [[*row, *[0.5] * more]] * 20)
    page, said = report(folder, capsys)
    scalars = "metrics.csv has 19,997 scalars; only the first 1,000 were read."
    assert (scalars in page.text and scalars in said) is (name == "metrics.csv")


def test_a_file_with_more_cells_than_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_CELLS", 100)
    write_csv(tmp_path / "metrics.csv", ["epoch", "step", "a"], [[0, step, 1] for step in range(1000)])
    read = read_run(tmp_path)
    assert read.scalars["a"].step.max() == 31
    assert "metrics.csv has more than 100 cells; rows behind 33 were left out." in read.notes


def test_more_files_than_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_FILES", 2)
    for name in "abc":
        write_csv(tmp_path / f"geometry/val/{name}.csv", ["epoch", "step", 0], [[0, 1, 2]])
    read = read_run(tmp_path)
    assert list(read.arrays) == ["val/a", "val/b"]
    assert "geometry/ holds 3 files *.csv; only the first 2 were read." in read.notes


def refused(*_, **__):
    raise PermissionError(13, "Permission denied")


def test_files_that_may_not_be_read(tmp_path, capsys, monkeypatch):
    folder = write_whole_run(tmp_path)
    with monkeypatch.context() as patch:  # root may read everything
        patch.setattr(os, "open", refused)
        notes = read_run(folder).notes
    assert [f"{name} could not be read: Permission denied." for name in EVERY if name not in "\n".join(notes)] == []
    assert sum("could not be read: Permission denied." in note for note in notes) == len({*EVERY, *CSV, *NPZ})


def test_a_file_that_goes_while_the_run_is_read(tmp_path, monkeypatch):
    folder, found = write_whole_run(tmp_path), files.listed

    def listed(*args):
        named = found(*args)
        for path, _ in named[0]:
            path.unlink()
        return named

    monkeypatch.setattr(logs, "listed", listed)
    read = read_run(folder)
    assert read.scalars
    for name in ("geometry/val/own.csv", *NPZ):
        assert f"{name} could not be read: it is not there any more." in read.notes


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tmp_path, monkeypatch):
    folder, stat = write_whole_run(tmp_path), Path.stat
    whole = stat(folder / "metrics.csv")
    (folder / "metrics.csv").unlink()
    os.mkfifo(folder / "metrics.csv")
    monkeypatch.setattr(Path, "stat", lambda path, **_: whole if path.name == "metrics.csv" else stat(path))
    assert "metrics.csv could not be read: it is no file." in read_run(folder).notes


@pytest.mark.parametrize(("name", "kind"), [("metrics.csv", "1e308"), ("metrics.csv", "pipe"), (NPZ[0], "a bomb"),
                                            ("run.json", "braces"), ("linear_evaluation.csv", "-1e308"),
                                            ("geometry/val/log_spectrum_h.csv", "1e308"), ("layers.csv", "1e308"),
                                            ("geometry/val/own.csv", "folder")])  # fmt: skip
def test_a_comparison_has_the_note_too(tmp_path, name, kind):
    bad, whole = write_whole_run(tmp_path / "bad"), write_whole_run(tmp_path / "whole")
    (bad / name).unlink()
    (ANY | IN_JSON | (IN_NPZ if name in NPZ else IN_TABLES))[kind](bad / name, name)
    page = Page(write_comparison({"a": [whole, bad], "b": [whole]}, tmp_path / "both.html").read_text("utf-8"))
    (note,) = [note for note in read_run(bad).notes if name in note or "val/loss" in note]
    assert f"a, bad: {note}" in page.text
    assert "Effective rank" in page.text


@pytest.mark.parametrize("where", ["curves", "inline_svg"])
def test_a_figure_that_cannot_be_drawn_is_named_and_the_others_are_there(tmp_path, monkeypatch, where):
    def broken(figure=None, *_, **arguments):
        raise RuntimeError("no glyph <b>")

    folder = write_whole_run(tmp_path)
    place = {"curves": array_panels, "inline_svg": panel_html}[where]
    monkeypatch.setattr(place, where, broken)
    with pytest.warns(UserWarning, match=r"report.html lacks figures\. Not drawn: .*RuntimeError: no glyph <b>"):
        page = Page(write_report(folder).read_text("utf-8"))
    assert "because of RuntimeError: no glyph <b>" in page.text
    assert "87.5%" in page.text
    assert page.values("class").count("figure") == (0 if where == "inline_svg" else page.tags.count("figure"))
    with pytest.warns(UserWarning, match="lacks figures") if where == "curves" else nullcontext():
        assert "loss" in figures(read_run(folder))
