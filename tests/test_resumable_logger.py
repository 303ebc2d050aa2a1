"""The file metrics.csv after kills and resumes."""

import os

import pandas as pd
import pytest
from lightning.pytorch.loggers import CSVLogger

from lightning_ssl_geometry.loggers import ResumableCSVLogger


def logged(folder, *steps, name="loss", kind=ResumableCSVLogger):
    logger = kind(folder, "", "one")
    for step in steps:
        logger.log_metrics({name: step / 10}, step)
    logger.save()
    return logger, folder / "one" / "metrics.csv"


def test_it_writes_what_lightnings_writes(tmp_path):
    _, ours = logged(tmp_path / "ours", 0, 1, 2)
    _, theirs = logged(tmp_path / "theirs", 0, 1, 2, kind=CSVLogger)
    assert ours.read_bytes() == theirs.read_bytes()


def test_an_earlier_table_goes_on_with_new_columns_too(tmp_path):
    logged(tmp_path, 0, 1)
    logged(tmp_path, 2)
    _, path = logged(tmp_path, 3, name="accuracy")
    table = pd.read_csv(path)
    assert table["step"].tolist() == [0, 1, 2, 3]
    assert table["loss"].tolist()[:3] == [0.0, 0.1, 0.2]
    assert table["accuracy"].tolist()[3] == 0.3


def test_each_row_is_on_disk_at_once(tmp_path):
    logger = ResumableCSVLogger(tmp_path, "", "one")
    logger.log_metrics({"loss": 1.0}, 0)
    logger.log_metrics({"loss": 2.0}, 1)
    assert len(pd.read_csv(tmp_path / "one" / "metrics.csv")) == 2


def test_a_torn_last_row_is_cut(tmp_path):
    _, path = logged(tmp_path, 0, 1)
    with path.open("a") as file:
        file.write("0.")
    logged(tmp_path, 2)
    assert pd.read_csv(path)["step"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"loss\n1\n", b"step,lo"])
def test_a_file_that_is_no_table_is_set_aside(tmp_path, content):
    path = tmp_path / "one" / "metrics.csv"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.warns(UserWarning, match=r"metrics\.csv could not be read: .* It is now .*metrics\.csv\.unreadable-1"):
        logged(tmp_path, 0)
    assert (path.parent / "metrics.csv.unreadable-1").read_bytes() == content
    assert pd.read_csv(path)["step"].tolist() == [0]


def test_rewinding_moves_later_rows_and_keeps_a_test_of_the_same_weights(tmp_path):
    logger, path = logged(tmp_path, 0, 1, 2, 3)
    logger.log_metrics({"test/loss": 0.5}, 2)
    logger.rewind(2, tmp_path / "later.csv")
    assert pd.read_csv(path)["step"].tolist() == [0, 1, 2]
    assert pd.read_csv(path)["test/loss"].dropna().tolist() == [0.5]
    assert pd.read_csv(tmp_path / "later.csv")["step"].tolist() == [2, 3]


def test_a_full_disk_is_warned_of_once_and_loses_no_row(tmp_path, monkeypatch):
    logger, path = logged(tmp_path, 0)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.warns(UserWarning, match=r"metrics\.csv cannot be written now: .*No space left"):
            logger.log_metrics({"loss": 0.1}, 1)
        logger.log_metrics({"loss": 0.2}, 2)  # said once
        assert path.read_bytes() == before
    logger.log_metrics({"loss": 0.3}, 3)
    assert pd.read_csv(path)["step"].tolist() == [0, 1, 2, 3]


def test_a_remote_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"Expected `save_dir` on a local file system, but got 's3://bucket'"):
        ResumableCSVLogger("s3://bucket")
