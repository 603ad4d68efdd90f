"""Input to which others append: rows that are not stored yet, rows that change, and lost chunks."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca.errors import CorruptionError, DataError, IncompleteError, SpecError
from bigkpca.storage import groups
from tests.helpers.disks import tree_bytes
from tests.helpers.nights import JOB, some_rows
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
    assert groups.describe(new.out)["block_rows"] == 64  # whatever the first night has
    np.testing.assert_array_equal(new.scores(), new.wanted())
    assert tree_bytes(new.model) == model  # one that is there is used


@pytest.mark.parametrize("fill", [pytest.param(0, marks=pytest.mark.full), np.nan])
def test_rows_wait_for_chunks_that_are_not_stored_whatever_the_fill_value_is(new, fill):
    array, X, told = array_of_others(new, chunks=(16, 2), fill=fill), some_rows(64, 1), Recorder()
    array.resize((64, 4))
    new.refused(DataError, "has room for 64 rows, but the first of them are not stored yet")
    array[:16] = X[:16]
    array[16:32, :2] = X[16:32, :2]  # half of a row of chunks
    array[48:] = X[48:]
    assert new.run(told)[0]["rows"] == [0, 16]
    assert "rows 16 to 63 are not stored yet: left for the next run" in told.notes
    assert new.run()[0]["status"] == "nothing new"
    array[16:32] = X[16:32]
    assert new.run()[0]["rows"] == [16, 32]
    array[32:48] = X[32:48]
    assert new.run()[0]["rows"] == [32, 64]
    np.testing.assert_array_equal(new.scores(), new.wanted())


@pytest.mark.parametrize("more", [3, pytest.param(40, marks=pytest.mark.full)])
def test_room_in_the_last_chunk_waits_until_that_is_written(new, more):
    array = array_of_others(new, 90, chunks=(16, 2))
    new.run()
    array.resize((90 + more, 4))
    X = some_rows(more, 1)
    for columns in (slice(0, 2), slice(2, 4)):
        assert new.run()[0]["rows"] == [90, 90]
        array[90:, columns] = X[:, columns]
    assert new.run()[0]["rows"] == [90, 90 + more]
    np.testing.assert_array_equal(new.scores(), new.wanted())


@pytest.mark.parametrize("row", [pytest.param(0, marks=pytest.mark.full), 89])
def test_input_that_changed_is_refused_until_it_is_restored(new, row):
    array = array_of_others(new, 90)
    new.run()
    before = tree_bytes(new.out)
    own, array[row] = array[row], 9
    array.append(some_rows(9, 1))
    start, stop = row // 32 * 32, min(row // 32 * 32 + 32, 90)
    new.refused(CorruptionError, rf"in the rows {start}:{stop}\. .*name another output\.path")
    assert tree_bytes(new.out) == before
    array[row] = own
    new.run()
    np.testing.assert_array_equal(new.scores(), new.wanted())


def test_input_that_was_touched_is_read_once_to_be_compared(new):
    array = array_of_others(new, 90)
    new.run()
    array[:] = array[:]  # other files, same values
    for passes in ([("comparing rows", 90)], []):
        told = Recorder()
        assert new.run(told)[0]["status"] == "nothing new"
        assert told.started == passes


@pytest.mark.parametrize("more", [0, pytest.param(40, marks=pytest.mark.full)])
def test_rows_that_change_while_they_are_compared_are_not_taken_for_compared(new, more):
    array = array_of_others(new, 90)
    new.run()
    array[:] = array[:]
    if more:
        array.append(some_rows(more, 2))
    before = tree_bytes(f"{new.out}/scores")
    changing = Once(what=lambda: array.set_basic_selection(slice(0, 16), 99), after=89, title="comparing rows")
    if more:
        new.refused(IncompleteError, "changed while it was being read", changing)
        after = tree_bytes(f"{new.out}/scores")
        assert [before[name] for name in ("c/0/0", "c/2/0")] == [after[name] for name in ("c/0/0", "c/2/0")]
    else:
        new.run(changing)
    new.refused(CorruptionError, "in the rows 0:32")


def test_rows_that_share_a_chunk_with_new_rows_are_not_compared_again(new):
    new.append(some_rows(70), chunk=256)
    new.run()
    new.append(some_rows(70, 1))
    for passes in ([("extracting features", 140)], []):
        told = Recorder()
        new.run(told)
        assert told.started == passes
    np.testing.assert_array_equal(new.scores(), new.wanted(block_rows=256))


def test_input_that_shrank_or_is_another_is_refused(new):
    array = array_of_others(new, 40, chunks=(10, 4))
    new.run()
    array.resize((30, 4))
    new.refused(CorruptionError, "has 30 rows, but features of 40 were extracted: rows were removed")
    zarr.create_array(new.rows, shape=(60, 4), dtype="f8", chunks=(10, 4), overwrite=True)[:] = some_rows(60)
    new.refused(CorruptionError, "holds <f8, but features were extracted from <f4")
    zarr.create_array(new.rows, shape=(60, 5), dtype="f4", chunks=(10, 5), overwrite=True)[:] = 1
    new.refused(SpecError, "has 5 columns, but the model was fitted on 4")
    assert [record["exit_code"] for record in bigkpca.history(new.out)] == [0, 7, 7, 2]


def test_rows_that_are_lost_are_no_rows_that_are_not_written_yet(night, new):
    shutil.rmtree(f"{night.rows}/x/c")
    new.append(some_rows(90))
    max(Path(new.rows, "x", "c").glob("*/0"), key=lambda path: int(path.parent.name)).unlink()
    for job in (night, new):
        job.refused(CorruptionError, "chunks are missing")
    shutil.rmtree(new.rows)
    Path(new.out + ".runs.jsonl").unlink()
    array_of_others(new, 64)
    new.run()
    Path(new.rows, "c", "1", "0").unlink()
    new.refused(CorruptionError, r"c/1/0 is missing")


def test_what_cannot_grow_and_the_output_of_another_job_are_no_input(night, new):
    np.save(f"{new.folder}/rows.npy", some_rows(50))
    for path, message in (
        ("rows.npy", "is not a Zarr array or dataset, as a job needs"),
        (night.out, "is the output of a job, whose last block is computed again"),
    ):
        new.set(JOB.replace("rows.zarr", path))
        new.refused(SpecError, message)


def test_a_damaged_manifest_is_named_and_nothing_replaced(night):
    file = Path(night.out, "zarr.json")
    whole = file.read_text()
    for old, new in (
        ('"rows_sha256": [', '"rows_sha256": [1, '),
        ('"rows_sha256": [', '"rows_sha256": ["x", '),
        ('"tail"', '"other"'),
        ('"rows": 90', '"rows": "x"'),
        ('"block_rows": 32', '"block_rows": 0'),
    ):
        file.write_text(whole.replace(old, new))
        before = tree_bytes(night.out)
        night.refused(CorruptionError, r"features\.zarr.*restore it, or name another output\.path")
        assert tree_bytes(night.out) == before
    assert bigkpca.history(night.out)[-1]["exit_code"] == 7
