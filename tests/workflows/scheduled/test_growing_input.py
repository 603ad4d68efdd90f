"""Input to which others append: gaps, changes at bad moments, lost chunks, and first nights with too little."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import zarr

from bigkpca.data import stored
from bigkpca.data.opening import open_growing
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import CorruptionError, DataError, IncompleteError, SpecError
from bigkpca.storage import block_arrays
from bigkpca.workflows.scheduled import input_rows, records
from tests.helpers.nights import Night, some_rows
from tests.helpers.progress import Recorder


@pytest.fixture
def night(tmp_path):
    return Night.made(tmp_path / "job")


def begun(night, rows=64, fill=0):
    """An array of others, whose rows are extracted."""
    array = zarr.create_array(night.rows, shape=(0, 4), dtype="f4", chunks=(16, 4), fill_value=fill)
    array.append(some_rows(rows))
    night.run()
    return array


@pytest.mark.parametrize("fill", [0, np.nan])
def test_chunks_that_are_written_out_of_order_wait_for_those_before(night, fill):
    array = begun(night, fill=fill)
    array.resize((128, 4))
    X = some_rows(64, 1)
    array[112:128] = X[48:]
    told = Recorder()
    assert night.run(told)[0]["status"] == "nothing new"
    assert "rows 64 to 127 are not stored yet: left to the next run" in told.notes
    array[64:80] = X[:16]
    assert night.run()[0]["rows"] == [64, 80]
    array[80:112] = X[16:48]
    assert night.run()[0]["rows"] == [80, 128]
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_a_gap_that_a_run_saw_an_hour_before_holds_the_fill_value(night, monkeypatch):
    array = begun(night)
    array.resize((128, 4))
    array[64:] = 0  # which Zarr does not store
    array[112:128] = 1
    for minutes, rows in ((0, [64, 64]), (30, [64, 64]), (61, [64, 128])):

        class Later(datetime):
            @classmethod
            def now(cls, tz=None):  # type: ignore[override]
                return datetime.now(tz) + timedelta(minutes=minutes)  # noqa: B023

        monkeypatch.setattr(records, "datetime", Later)
        (record,) = night.run()
        assert record["rows"] == rows
    assert record["message"].startswith("rows 64 to 111 were never stored: taken as 0.0")
    np.testing.assert_array_equal(night.scores(), night.wanted())
    assert datetime.fromisoformat(record["started"]) > datetime.now(UTC)


def changing_rows_after(compare, night):
    """The comparison, after which somebody writes other values into rows that were compared."""

    def then_change(*given):
        compare(*given)
        zarr.open_array(f"{night.rows}/x", mode="r+")[0:16] = 99

    return then_change


def test_rows_that_change_while_they_are_compared_are_not_taken_for_compared(night, monkeypatch):
    night.append(some_rows(200))
    night.run()
    night.append(some_rows(40, 2))
    night.forget_digests()
    with monkeypatch.context() as patched:
        patched.setattr(
            input_rows, "check_unchanged_blocks", changing_rows_after(input_rows.check_unchanged_blocks, night)
        )
        with pytest.raises(IncompleteError, match="changed while it was read"):
            night.run()
    with pytest.raises(CorruptionError, match="in the rows 0:32"):
        night.run()


def test_a_change_while_a_run_without_new_rows_compares_is_seen_by_the_next(night, monkeypatch):
    X = some_rows(200)
    night.append(X)
    night.run()
    night.forget_digests()
    zarr.open_array(f"{night.rows}/x", mode="r+")[:] = X  # other files, same values
    with monkeypatch.context() as patched:
        patched.setattr(
            input_rows, "check_unchanged_blocks", changing_rows_after(input_rows.check_unchanged_blocks, night)
        )
        night.run()
    with pytest.raises(CorruptionError, match="in the rows 0:32"):
        night.run()


def test_a_first_night_with_too_few_rows_does_not_hold_up_the_next(night):
    night.append(some_rows(1))
    with pytest.raises(DataError, match="constant"):
        night.run()
    night.append(some_rows(199, 1))
    (record,) = night.run()
    assert record["rows"] == [0, 200]


def remove_all(night):
    shutil.rmtree(f"{night.rows}/x/c")


def remove_last(night):
    max(Path(night.rows, "x", "c").glob("*/0"), key=lambda path: int(path.parent.name)).unlink()


@pytest.mark.parametrize("remove", [remove_all, remove_last])
@pytest.mark.parametrize("extracted", [True, False])
def test_rows_of_a_dataset_that_are_lost_are_no_rows_that_are_not_written_yet(night, remove, extracted):
    night.append(some_rows(200))
    if extracted:
        night.run()
    remove(night)
    with pytest.raises(CorruptionError, match="chunks are missing"):
        night.run()


def test_rows_of_an_array_that_are_lost_changed(night):
    begun(night)
    shutil.rmtree(f"{night.rows}/c")
    with pytest.raises(CorruptionError, match="changed since features were extracted from it, in the rows 0:32"):
        night.run()


def test_the_output_of_a_job_is_no_input_of_another(night, tmp_path):
    night.append(some_rows(70))
    night.run()
    for path in (night.out, f"{night.out}/1"):
        other = Night.made(tmp_path / "other")
        Path(other.job).write_text(Path(other.job).read_text().replace("rows.zarr", path))
        with pytest.raises(SpecError, match="is the output of a job, whose last block is computed again"):
            other.run()


def test_the_fingerprint_of_pinned_rows_reads_those_of_the_last_shard_once_and_in_pieces(night, monkeypatch):
    wide = {"shape": (1000, 800), "chunks": (100, 80), "shards": (1000, 800)}
    zarr.create_array(night.rows, dtype="f8", **wide)[:] = 1  # type: ignore[arg-type]
    rows, read, block = open_growing(night.rows), [], ZarrRows.block

    def counting(self, start, stop, *columns):
        read.append((start, stop))
        return block(self, start, stop, *columns)

    monkeypatch.setattr(ZarrRows, "block", counting)
    assert isinstance(rows, ZarrRows)
    rows.pin(950).fingerprint()
    assert [start for start, _ in read] == [0, *(stop for _, stop in read[:-1])]
    assert read[-1][1] == 950
    assert max(stop - start for start, stop in read) * 800 * 8 <= 4 * 2**20


def test_stored_blocks_are_listed_once_however_many_there_are(night, monkeypatch):
    listed, files = [], stored.files_below

    def counting(folder):
        listed.append(folder)
        return files(folder)

    monkeypatch.setattr(block_arrays, "files_below", counting)
    counts = []
    for rows in (64, 640):
        night.append(some_rows(rows))
        listed.clear()
        night.run()
        counts.append(len(listed))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("asked", [{}, {"full": True}])
@pytest.mark.parametrize("more", [3, 40])
def test_room_in_the_last_chunk_waits_until_that_is_written(night, more, asked):
    array = zarr.create_array(night.rows, shape=(0, 4), dtype="f4", chunks=(16, 2))
    array.append(some_rows(90))
    night.run()
    array.resize((90 + more, 4))
    X = some_rows(more, 1)
    for columns in (slice(0, 2), slice(2, 4)):
        (record,) = night.run(**asked)
        assert record["rows"] == ([0, 90] if asked else [90, 90])
        array[90:, columns] = X[:, columns]
    (record,) = night.run(**asked)
    assert record["rows"] == [0 if asked else 90, 90 + more]
    np.testing.assert_array_equal(night.scores(), night.wanted())
