"""Input to which others append: gaps, rows that change, lost chunks, and first nights with too little."""

import shutil
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca.data.opening import open_growing
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import CorruptionError, DataError, IncompleteError, SpecError
from bigkpca.storage import block_arrays
from tests.helpers.disks import tree_bytes
from tests.helpers.nights import JOB, Night, some_rows
from tests.helpers.progress import Once, Recorder


def array_of_others(night, rows=0, chunks=(16, 4), fill=0):
    """The input, with this many rows, as another program makes it."""
    array = zarr.create_array(night.rows, shape=(0, 4), dtype="f4", chunks=chunks, fill_value=fill)
    if rows:
        array.append(some_rows(rows))
    return array


def test_an_array_of_others_may_grow_by_any_number_of_rows(new):
    array, model = array_of_others(new, chunks=(64, 3)), tree_bytes(new.model)
    for number, count in enumerate([50, 6, 21]):
        array.append(some_rows(count, number))
        new.run()
    assert (
        block_arrays.read_grown(f"{new.out}/1")["block_rows"] == 64
    )  # it does not hang on the rows of the first night
    np.testing.assert_array_equal(new.scores(), new.wanted())
    assert tree_bytes(new.model) == model  # one that is there is used


def test_chunks_that_are_written_out_of_order_wait_for_those_before(new):
    array = array_of_others(new, 64, fill=np.nan)
    new.run()
    array.resize((128, 4))
    X = some_rows(64, 1)
    array[112:128] = X[48:]
    told = Recorder()
    assert new.run(told)[0]["status"] == "nothing new"
    assert "rows 64 to 127 are not stored yet: left for the next run" in told.notes
    array[64:80] = X[:16]
    assert new.run()[0]["rows"] == [64, 80]
    array[80:112] = X[16:48]
    assert new.run()[0]["rows"] == [80, 128]
    np.testing.assert_array_equal(new.scores(), new.wanted())


@pytest.mark.parametrize("fill", [pytest.param(0, marks=pytest.mark.full), np.nan])
def test_room_for_rows_that_are_not_stored_waits_whatever_the_fill_value_is(new, fill):
    array = zarr.create_array(new.rows, shape=(40, 4), dtype="f4", chunks=(10, 2), fill_value=fill)
    with pytest.raises(DataError, match="has room for 40 rows, but the first of them are not stored yet"):
        new.run()
    array[:20] = some_rows(20)
    array[20:30, :2] = 1  # half of a row of chunks
    told = Recorder()
    new.run(told)
    assert new.scores().shape == (20, 3)
    assert "rows 20 to 39 are not stored yet: left for the next run" in told.notes


def test_a_gap_that_a_run_saw_an_hour_before_holds_the_fill_value(new):
    array = array_of_others(new, 64)
    new.run()
    array.resize((128, 4))
    array[64:] = 0  # which Zarr does not store
    array[112:128] = 1
    assert new.run()[0]["rows"] == [64, 64]
    new.age(timedelta(minutes=30), timedelta(minutes=30))
    assert new.run()[0]["rows"] == [64, 64]
    new.age(timedelta(minutes=31), timedelta(minutes=31))
    (record,) = new.run()
    assert record["rows"] == [64, 128]
    assert record["message"].startswith("rows 64 to 111 were never stored: using the fill value 0.0")
    np.testing.assert_array_equal(new.scores(), new.wanted())


@pytest.mark.parametrize("more", [3, pytest.param(40, marks=pytest.mark.full)])
def test_room_in_the_last_chunk_waits_until_that_is_written(new, more):
    array = array_of_others(new, 90, chunks=(16, 2))
    new.run()
    array.resize((90 + more, 4))
    X = some_rows(more, 1)
    for columns in (slice(0, 2), slice(2, 4)):
        (record,) = new.run()
        assert record["rows"] == [90, 90]
        array[90:, columns] = X[:, columns]
    (record,) = new.run()
    assert record["rows"] == [90, 90 + more]
    np.testing.assert_array_equal(new.scores(), new.wanted())


@pytest.mark.parametrize("more", [0, pytest.param(40, marks=pytest.mark.full)])
def test_rows_that_change_while_they_are_compared_are_not_taken_for_compared(night, more):
    array = zarr.open_array(f"{night.rows}/x", mode="r+")
    array[:] = array[:]  # other files, same values
    if more:
        night.append(some_rows(more, 2))
    night.forget_digests()
    changing = Once(what=lambda: array.set_basic_selection(slice(0, 16), 99), after=89, title="comparing rows")
    refused = pytest.raises(IncompleteError, match="changed while it was being read")
    with refused if more else nullcontext():
        night.run(changing)
    with pytest.raises(CorruptionError, match="in the rows 0:32"):
        night.run()


@pytest.mark.parametrize("row", [pytest.param(0, marks=pytest.mark.full), 89])
def test_input_that_changed_is_refused_until_it_is_restored(night, row):
    night.forget_digests()
    before = tree_bytes(f"{night.out}/1")
    array = zarr.open_array(f"{night.rows}/x", mode="r+")
    own, array[row] = array[row], 9
    night.append(some_rows(9, 1))
    start, stop = row // 32 * 32, min(row // 32 * 32 + 32, 90)
    with pytest.raises(CorruptionError, match=rf"in the rows {start}:{stop}\. .*name another output\.path"):
        night.run()
    assert tree_bytes(f"{night.out}/1") == before
    array[row] = own
    night.run()
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_changes_of_many_blocks_are_named_in_short(new):
    array = array_of_others(new, 320)
    new.run()
    array[:] = 1
    with pytest.raises(CorruptionError, match=r"in the rows 0:32, .*, 128:160 and 5 more blocks\. "):
        new.run()


def test_input_that_was_touched_is_read_once_to_be_compared(night):
    array = zarr.open_array(f"{night.rows}/x", mode="r+")
    array[:] = array[:]
    for passes in ([("comparing rows", 90)], []):
        told = Recorder()
        assert night.run(told)[0]["status"] == "nothing new"
        assert told.started == passes


def test_blocks_that_share_a_shard_with_new_rows_are_read_once_to_be_compared(new):
    new.append(some_rows(70), chunk=256)  # shards of 256 rows, blocks of 32
    new.run()
    new.append(some_rows(70, 1))
    compared, idle = Recorder(), Recorder()
    new.run(compared)
    assert ("comparing rows", 70) in compared.started
    assert new.run(idle)[0]["status"] == "nothing new"
    assert idle.started == []


def test_input_that_shrank_or_is_another_is_refused(new):
    array = array_of_others(new, 40, chunks=(10, 4))
    new.run()
    array.resize((30, 4))
    with pytest.raises(CorruptionError, match="has 30 rows, but features of 40 were extracted: rows were removed"):
        new.run()
    zarr.create_array(new.rows, shape=(60, 4), dtype="f8", chunks=(10, 4), overwrite=True)[:] = some_rows(60)
    with pytest.raises(CorruptionError, match="holds <f8, but features were extracted from <f4"):
        new.run()
    zarr.create_array(new.rows, shape=(60, 5), dtype="f4", chunks=(10, 5), overwrite=True)[:] = 1
    with pytest.raises(SpecError, match="has 5 columns, but the model was fitted on 4"):
        new.run()
    assert [record["exit_code"] for record in bigkpca.history(new.out)] == [0, 7, 7, 2]


def test_a_first_night_with_too_few_rows_does_not_hold_up_the_next(tmp_path):
    night = Night.made(tmp_path / "job")
    night.append(some_rows(1))
    with pytest.raises(DataError, match="constant"):
        night.run()
    night.append(some_rows(99, 1))
    (record,) = night.run()
    assert record["rows"] == [0, 100]


def test_rows_that_are_lost_are_no_rows_that_are_not_written_yet(night, new, tmp_path):
    shutil.rmtree(f"{night.rows}/x/c")
    new.append(some_rows(90))
    max(Path(new.rows, "x", "c").glob("*/0"), key=lambda path: int(path.parent.name)).unlink()
    for job in (night, new):
        with pytest.raises(CorruptionError, match="chunks are missing"):
            job.run()
    shutil.rmtree(new.rows)
    array_of_others(new, 64)
    new.run()
    shutil.rmtree(f"{new.rows}/c")
    with pytest.raises(CorruptionError, match="changed since features were extracted from it, in the rows 0:32"):
        new.run()


def test_what_cannot_grow_and_the_output_of_another_job_are_no_input(night, new):
    np.save(f"{new.folder}/rows.npy", some_rows(50))
    of_a_job = "is the output of a job, whose last block is computed again"
    for path, message in (
        ("rows.npy", "is not a Zarr array or dataset, as a job needs"),
        (night.out, of_a_job),
        (f"{night.out}/1", of_a_job),
    ):
        new.set(JOB.replace("rows.zarr", path))
        with pytest.raises(SpecError, match=message):
            new.run()


def test_the_fingerprint_of_pinned_rows_reads_those_of_the_last_shard_once_and_in_pieces(new):
    zarr.create_array(new.rows, dtype="f8", shape=(1000, 800), chunks=(100, 80), shards=(1000, 800))[:] = 1
    rows = open_growing(new.rows)
    with mock.patch.object(ZarrRows, "block", autospec=True, side_effect=ZarrRows.block) as block:
        rows.pin(950).fingerprint()
    read = [call.args[1:3] for call in block.call_args_list]
    assert [start for start, _ in read] == [0, *(stop for _, stop in read[:-1])]
    assert read[-1][1] == 950
    assert max(stop - start for start, stop in read) * 800 * 8 <= 4 * 2**20


@pytest.mark.full
def test_stored_blocks_are_listed_once_however_many_there_are(night):
    counts = []
    for rows in (64, 256):
        night.append(some_rows(rows))
        with mock.patch.object(block_arrays, "files_below", side_effect=block_arrays.files_below) as listed:
            night.run()
        counts.append(listed.call_count)
    assert counts[0] == counts[1] > 0
