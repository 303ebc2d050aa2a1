"""Files stay whole after a kill or on a full disk."""

import errno
import os
import subprocess
import sys

import pytest

from lightning_ssl_geometry.files import append, replacing, set_aside, unfinished


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "x.txt"
    path.write_text("old")
    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"), replacing(path) as file:
        file.write(b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


LIMITED = """
import resource, signal, sys
from pathlib import Path
from lightning_ssl_geometry.files import append, replacing

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
path = Path(sys.argv[1])
for attempt in range(20):
    try:
        append(path, "0123456789abcd\\n")
    except OSError:
        print("full after", attempt)
        break
try:
    with replacing(path) as file:
        file.write(b"x" * 1000)
except OSError:
    print("not replaced")
"""


def test_a_disk_that_is_full_within_a_line_leaves_whole_lines(tmp_path):
    """A limit on the size of files imitates a full disk: the system shortens the write that crosses it."""
    path = tmp_path / "x.csv"
    path.write_text("header\n")
    command = [sys.executable, "-c", LIMITED, str(path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["full after 6", "not replaced"]
    assert path.read_text() == "header\n" + "0123456789abcd\n" * 6
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_set_aside_overwrites_nothing(tmp_path):
    for text in ("first", "second"):
        (tmp_path / "x.csv").write_text(text)
        set_aside(tmp_path / "x.csv")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "x.csv.unreadable-1": "first",
        "x.csv.unreadable-2": "second",
    }


def test_what_a_killed_process_left_is_found_and_nothing_else(tmp_path):
    names = [f".x.csv.{'a1' * 16}.part", ".x.csv.mine.part", f".y.csv.{'a1' * 16}.part", "x.csv"]
    for name in names:
        (tmp_path / name).touch()
    assert [path.name for path in unfinished(tmp_path / "x.csv")] == names[:1]


def test_brackets_in_a_name_are_no_pattern(tmp_path):
    names = [f".{name}.{'a1' * 16}.part" for name in ("rank[ab].csv", "ranka.csv")]
    for name in names:
        (tmp_path / name).touch()
    assert [path.name for path in unfinished(tmp_path / "rank[ab].csv")] == names[:1]
    assert [path.name for path in unfinished(tmp_path / "ranka.csv")] == names[1:]


def test_append_wants_a_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        append(tmp_path / "x.csv", "1\n")
