"""Rows that several processes append to files, and the one file that has them sorted."""

import numpy as np
import pytest

from lightning_ssl_geometry.callbacks import row_files
from lightning_ssl_geometry.callbacks.row_files import RowFiles, write_sorted

RNG = np.random.default_rng(0)


def appended(folder, rank, *batches):
    rows = RowFiles(folder, rank)
    for batch in batches:
        rows.append(batch)
    rows.close()


def batch(index, dtype="float32", shape=(3,)):
    index = np.asarray(index)
    h = np.broadcast_to(index.reshape(-1, *[1] * len(shape)), (len(index), *shape))
    return {"index": index, "h": h.astype(dtype)}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 4)])
@pytest.mark.parametrize("chunk", [1, 40, 2**26])
def test_the_file_is_the_sorted_concatenation(tmp_path, monkeypatch, dtype, shape, chunk):
    monkeypatch.setattr(row_files, "_CHUNK", chunk)
    index = RNG.permutation(17)
    appended(tmp_path / "rows", 0, batch(index[:4], dtype, shape), batch(index[4:9], dtype, shape))
    appended(tmp_path / "rows", 1)  # a process without a batch
    appended(tmp_path / "rows", 2, batch(index[9:], dtype, shape))
    assert write_sorted(tmp_path / "rows", 3, tmp_path / "x.npz") == 17
    expected = batch(np.arange(17), dtype, shape)
    with np.load(tmp_path / "x.npz") as found:
        assert sorted(found) == ["h", "index"]
        for name, array in expected.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)


def test_a_repeated_index_is_kept_once(tmp_path):
    appended(tmp_path / "rows", 0, batch([5, 1]), batch([1, 3]))
    appended(tmp_path / "rows", 1, batch([3, 0]))
    assert write_sorted(tmp_path / "rows", 2, tmp_path / "x.npz") == 4
    assert np.load(tmp_path / "x.npz")["h"][:, 0].tolist() == [0, 1, 3, 5]


def changed(rows, name, value):
    return rows | {name: np.full_like(rows[name], value)}


@pytest.mark.parametrize("chunk", [1, 2**26])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int64"])
def test_rows_that_differ_under_one_index_are_counted(tmp_path, monkeypatch, dtype, chunk):
    monkeypatch.setattr(row_files, "_CHUNK", chunk)
    appended(tmp_path / "rows", 0, batch([5, 1], dtype), changed(batch([1], dtype), "h", 9), batch([5], dtype))
    appended(tmp_path / "rows", 1, changed(batch([5, 2], dtype), "h", 7))
    with pytest.warns(UserWarning, match=r"`index` of its own .* but 2 of 6 rows .* such as 1\. These 2 rows are not"):
        assert write_sorted(tmp_path / "rows", 2, tmp_path / "x.npz") == 3
    assert np.load(tmp_path / "x.npz")["h"][:, 0].tolist() == [1, 7, 5]


@pytest.mark.parametrize("value", [3 * (1 + 1e-4), np.nan, np.inf])
def test_rounding_is_no_difference(tmp_path, value):
    rows = batch([3])
    first = rows if np.isfinite(value) else changed(rows, "h", value)
    appended(tmp_path / "rows", 0, first)
    appended(tmp_path / "rows", 1, changed(rows, "h", value))
    assert write_sorted(tmp_path / "rows", 2, tmp_path / "x.npz") == 1


@pytest.mark.parametrize("value", [3 * (1 + 0.02), np.nan, np.inf, -np.inf])
def test_more_than_rounding_is_a_difference(tmp_path, value):
    appended(tmp_path / "rows", 0, batch([3]), changed(batch([3]), "h", value))
    with pytest.warns(UserWarning, match="but 1 of 2 rows"):
        write_sorted(tmp_path / "rows", 1, tmp_path / "x.npz")


WRONG = {
    "other width": ([batch([0]), batch([1], shape=(2,))], r"Expected batches with the same arrays, .*\[3\].*, but got"),
    "other dtype": ([batch([0]), batch([1], dtype="float64")], "Expected batches with the same arrays, .*<f4.*<f8"),
    "other names": ([batch([0]), {"index": np.arange(1)}], "Expected batches with the same arrays"),
}


@pytest.mark.parametrize(("batches", "said"), WRONG.values(), ids=WRONG.keys())
def test_batches_that_do_not_fit(tmp_path, batches, said):
    rows = RowFiles(tmp_path, 0)
    rows.append(batches[0])
    with pytest.raises(ValueError, match=said):
        rows.append(batches[1])
    rows.discard()


def test_processes_that_do_not_fit(tmp_path):
    appended(tmp_path / "rows", 0, batch([0]))
    with pytest.raises(ValueError, match=r"Expected the rows of process 1 in .*rows, but there are none. Use a shared"):
        write_sorted(tmp_path / "rows", 2, tmp_path / "x.npz")
    appended(tmp_path / "rows", 1, batch([1], shape=(2,)))
    with pytest.raises(ValueError, match="Expected the same arrays from all processes, but got"):
        write_sorted(tmp_path / "rows", 2, tmp_path / "x.npz")
    appended(tmp_path / "none", 0)
    with pytest.raises(ValueError, match="Expected at least one row, but got none"):
        write_sorted(tmp_path / "none", 1, tmp_path / "x.npz")
    assert not (tmp_path / "x.npz").exists()


def test_what_is_discarded_is_gone(tmp_path):
    rows = RowFiles(tmp_path / "rows", 0)
    rows.append(batch([0]))
    rows.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(tmp_path):
    class Full:
        def close(self):
            raise OSError(28, "No space left on device")

    rows = RowFiles(tmp_path / "rows", 0)
    rows.append(batch([0, 1]))
    last, rows._files["h"] = rows._files["h"], Full()
    rows.discard()
    last.close()
    assert not (tmp_path / "rows").exists()
    assert rows._files["index"].closed
