"""The promises of ingest: atomic, repeatable, bounded in memory, and told of."""

import errno
import gzip
import os
import subprocess
import tempfile
from functools import partial

import numpy as np
import pytest
import zarr

from bigkpca.data.opening import open_rows
from bigkpca.data.stores import LocalDisk
from bigkpca.data.stores import local_locks as locks
from bigkpca.errors import DataError, IncompleteError, LockedError, SpecError
from bigkpca.ingesting.formats import base, text_rows
from bigkpca.ingesting.formats.base import decoding
from bigkpca.ingesting.streaming import ingest
from bigkpca.storage import destination
from tests.helpers.disks import small_disk, tree_bytes
from tests.helpers.memory import traced_peak
from tests.helpers.progress import Recorder
from tests.ingesting.files import RNG, WORDS, X, Y, idx_bytes, labels_of, npy, rows_of, write_npz
from tests.ingesting.stopping import MOMENTS, Stop, stop_at


def test_doing_it_again_touches_nothing(tmp_path):
    a = npy(tmp_path / "a.npy", X)
    assert not ingest([a], tmp_path / "out.zarr").already_done
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "out.zarr").rglob("*")}
    again = ingest([a], str(tmp_path / "out.zarr") + "/")
    assert again.already_done
    assert (again.rows, again.columns, again.dtype) == (300, 5, np.float64)
    assert stamps == {p: p.stat().st_mtime_ns for p in (tmp_path / "out.zarr").rglob("*")}


def test_other_input_is_in_the_way_until_overwritten(tmp_path):
    a, b = npy(tmp_path / "a.npy", X), npy(tmp_path / "b.npy", X * 2)
    ingest([a], tmp_path / "out.zarr")
    with pytest.raises(SpecError, match=r"in the way.*--overwrite"):
        ingest([b], tmp_path / "out.zarr")
    ingest([b], tmp_path / "out.zarr", overwrite=True)
    np.testing.assert_array_equal(rows_of(tmp_path / "out.zarr"), X * 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "b.npy", "out.zarr"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_stopped_ingest_starts_over_and_ends_the_same(tmp_path, moment):
    source, options = write_npz(tmp_path, X, Y)
    ingest([source], tmp_path / "whole.zarr", block_rows=64, **options)
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, *moment)
        with pytest.raises(Stop):
            ingest([source], tmp_path / "out.zarr", block_rows=64, **options)
    assert not list(tmp_path.glob("out.zarr*"))
    with pytest.raises(SpecError, match="does not exist"):
        open_rows(tmp_path / "out.zarr")
    assert not ingest([source], tmp_path / "out.zarr", block_rows=64, **options).already_done
    assert tree_bytes(tmp_path / "out.zarr") == tree_bytes(tmp_path / "whole.zarr")


@pytest.mark.parametrize("moment", [*MOMENTS, (destination.Destination, "put_in_place", 1)])
def test_a_stopped_overwrite_leaves_the_old_dataset(tmp_path, moment):
    old = npy(tmp_path / "old.npy", X * 2)
    ingest([old], tmp_path / "out.zarr")
    before = tree_bytes(tmp_path / "out.zarr")
    source, options = write_npz(tmp_path, X, Y)
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, *moment)
        with pytest.raises(Stop):
            ingest([source], tmp_path / "out.zarr", overwrite=True, **options)
    assert tree_bytes(tmp_path / "out.zarr") == before
    assert ingest([old], tmp_path / "out.zarr").already_done
    ingest([source], tmp_path / "out.zarr", overwrite=True, **options)
    np.testing.assert_array_equal(rows_of(tmp_path / "out.zarr"), X)
    np.testing.assert_array_equal(labels_of(tmp_path / "out.zarr"), Y)


@pytest.mark.parametrize("options", [{"overwrite": True}, {"append": True}])
def test_refused_rows_leave_the_old_dataset(tmp_path, options):
    ingest([npy(tmp_path / "a.npy", X)], tmp_path / "out.zarr", block_rows=64)
    bad = np.where(np.arange(300)[:, None] == 299, np.nan, X)
    with pytest.raises(DataError, match="row 299, column 0 is NaN"):
        ingest([npy(tmp_path / "b.npy", bad)], tmp_path / "out.zarr", **options)
    assert open_rows(tmp_path / "out.zarr").shape == (300, 5)
    np.testing.assert_array_equal(open_rows(tmp_path / "out.zarr").block(0, 300), X)
    assert not list(tmp_path.glob("out.zarr.*"))


def test_two_at_once_are_refused(tmp_path):
    a = npy(tmp_path / "a.npy", X)
    with locks.lock(str(tmp_path / "out.zarr")), pytest.raises(LockedError, match="another run"):
        ingest([a], tmp_path / "out.zarr")


@pytest.mark.parametrize("piece_bytes", [1, 333, 5000])
def test_the_bytes_of_a_dataset_do_not_depend_on_the_pieces(tmp_path, monkeypatch, piece_bytes):
    source, options = write_npz(tmp_path, X, WORDS[Y])
    ingest([source], tmp_path / "a.zarr", block_rows=64, **options)
    monkeypatch.setattr(base, "READ_BYTES", piece_bytes)
    ingest([source], tmp_path / "b.zarr", block_rows=64, **options)
    assert tree_bytes(tmp_path / "a.zarr") == tree_bytes(tmp_path / "b.zarr")


def test_every_shard_is_written_once_and_metadata_never_lags(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "READ_BYTES", 400)
    written, put = [], zarr.Array.__setitem__

    def counting(array, rows, values):
        assert array.shape[0] >= rows.stop
        written.append((array.path, rows.start, rows.stop))
        put(array, rows, values)

    monkeypatch.setattr(zarr.Array, "__setitem__", counting)
    ingest([npy(tmp_path / "a.npy", X)], tmp_path / "out.zarr", block_rows=128)
    assert written == [("x", 0, 128), ("x", 128, 256), ("x", 256, 300)]


# Limits of the machine


@pytest.fixture
def disk(tmp_path):
    with small_disk("1m", tmp_path / "disk") as place:
        yield place


def test_a_full_disk_is_incomplete_and_the_same_command_finishes(tmp_path, disk):
    source = npy(tmp_path / "a.npy", RNG.normal(size=(4000, 64)))
    small = npy(tmp_path / "small.npy", X)
    ingest([small], disk / "out.zarr")
    with pytest.raises(IncompleteError, match="make room and run the same command again"):
        ingest([source], disk / "out.zarr", overwrite=True, block_rows=256)
    np.testing.assert_array_equal(rows_of(disk / "out.zarr"), X)
    subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
    ingest([source], disk / "out.zarr", overwrite=True, block_rows=256)
    np.testing.assert_array_equal(rows_of(disk / "out.zarr"), np.load(source))


def test_a_dataset_of_which_only_the_beginning_is_there_is_refused(tmp_path):
    """As one that an ingest is writing, or as earlier versions left it when they were stopped."""
    a = npy(tmp_path / "a.npy", X)
    ingest([a], tmp_path / "out.zarr")
    group = zarr.open_group(tmp_path / "out.zarr")
    group.attrs["bigkpca"] = {key: value for key, value in group.attrs["bigkpca"].items() if key != "rows"}
    with pytest.raises(IncompleteError, match="did not finish"):
        open_rows(tmp_path / "out.zarr")
    with pytest.raises(IncompleteError, match="did not finish; run that command again"):
        ingest([a], tmp_path / "out.zarr", append=True)
    ingest([a], tmp_path / "out.zarr")
    np.testing.assert_array_equal(rows_of(tmp_path / "out.zarr"), X)


def test_a_dataset_that_was_killed_half_way_is_told_of(tmp_path):
    (tmp_path / "out.zarr.bigkpca-new").mkdir()
    with pytest.raises(IncompleteError, match=r"out\.zarr is not finished: run the command that makes it again"):
        open_rows(tmp_path / "out.zarr/")


def test_errors_of_the_disk_end_an_ingest_that_can_be_repeated(tmp_path, monkeypatch):
    a = npy(tmp_path / "a.npy", X)
    for code, message in (
        (errno.EDQUOT, "disk is full"),
        (errno.EIO, "Input/output error: run the same command again"),
    ):

        def failing(store, path, code=code):
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(LocalDisk, "sync", failing)
        with pytest.raises(IncompleteError, match=message):
            ingest([a], tmp_path / "out.zarr")


def ingest_and_delete(source, folder):
    with tempfile.TemporaryDirectory(dir=folder) as out:
        ingest([source], f"{out}/rows.zarr", block_rows=1024)


@pytest.mark.parametrize("suffix", [".npy", ".csv.gz", ".npz", ".gz"])
def test_memory_does_not_grow_with_the_rows(tmp_path, suffix):
    """Peaks for 4 and 16 shards of 1 MB: in pieces and shards the longer one needs no more."""
    peaks = []
    for n in (4, 16):
        values = np.tile(RNG.integers(0, 9, size=(1024, 128)).astype(float), (n, 1))
        source = tmp_path / f"rows{n}{suffix}"
        if suffix == ".npy":
            np.save(source, values)
        elif suffix == ".npz":
            np.savez(source, values)
        elif suffix == ".gz":
            source.write_bytes(gzip.compress(idx_bytes(values), 1))
        else:
            body = "\n".join(",".join(row) for row in values[:1024].astype(int).astype(str)) + "\n"
            source.write_bytes(gzip.compress((body * n).encode(), 1))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(base, "READ_BYTES", 2**19)
            patch.setattr(text_rows, "_TEXT_BYTES", 2**17)
            peaks.append(traced_peak(partial(ingest_and_delete, source, tmp_path)))
    assert peaks[1] < 1.2 * peaks[0]


def test_pieces_are_at_most_eight_megabytes():
    for row_bytes in (1, 784, 2**23 + 1):
        a, b = next(iter(base.ranges(10**9, row_bytes)))
        assert b - a == 1 or (b - a) * row_bytes <= 2**23
    assert text_rows._TEXT_BYTES * 4 <= 2**23


def test_progress_is_told_of_every_row(tmp_path):
    told = []

    class ShowsSummary:
        def start(self, title, rows):
            told.append((title, rows))

        def advance(self, rows):
            told.append(rows)

        def finish(self):
            told.append("finish")

        def note(self, message):
            raise AssertionError(message)

    ingest([npy(tmp_path / "a.npy", X)], tmp_path / "out.zarr", progress=ShowsSummary())
    assert told == [("ingest", 300), 300, "finish"]
    (tmp_path / "a.csv").write_text("1,2\n3,x\n")
    with pytest.raises(DataError, match="row 1"):
        ingest([tmp_path / "a.csv"], tmp_path / "b.zarr", progress=ShowsSummary())
    assert told[3:] == [("ingest", 0), "finish"]


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((50, 3)))

    class Meddling(Recorder):
        def advance(self, rows):
            np.save(tmp_path / "x.npy", np.ones((51, 3)))

    with pytest.raises(IncompleteError, match=r"x\.npy changed while it was read"):
        ingest([tmp_path / "x.npy"], tmp_path / "d.zarr", progress=Meddling())
    assert not (tmp_path / "d.zarr").exists()
    assert ingest([tmp_path / "x.npy"], tmp_path / "d.zarr").rows == 51


def test_a_file_that_cannot_be_read_for_the_moment_is_not_called_damaged(tmp_path):
    with (
        pytest.raises(IncompleteError, match=r"x\.npy cannot be read for the moment .*run the same command again"),
        decoding(tmp_path / "x.npy"),
    ):
        raise OSError(errno.ESTALE, "Stale file handle")
