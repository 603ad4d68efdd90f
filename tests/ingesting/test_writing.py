"""The promises of ingest: atomic, repeatable, appended to without harm, and told of."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import zarr

from bigkpca import ingesting
from bigkpca.data.opening import open_rows
from bigkpca.data.stores import LocalDisk
from bigkpca.errors import CorruptionError, DataError, IncompleteError, SpecError
from bigkpca.ingesting import ingest
from bigkpca.storage import groups
from tests.helpers.disks import tree_bytes
from tests.helpers.named import stored
from tests.helpers.progress import Recorder
from tests.ingesting.files import RNG, WORDS, X, Y, about, made, npy, refuse, write_npz


class Stop(BaseException):
    """As Ctrl-C, at a moment of the test's choice."""


def stopped(moment, source, out, **options):
    """An ingest that is stopped at a call of a function."""
    owner, name, at = moment
    real, calls = getattr(owner, name), itertools.count(1)

    def stopping(*args, **kwargs):
        if next(calls) == at:
            raise Stop
        return real(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, stopping)
        with pytest.raises(Stop):
            ingest([source], out, **options)


MOMENTS = [(ingesting, "_codes", 1), (LocalDisk, "sync", 1), (groups, "write_manifest", 1)]
STOPS = [*((False, moment) for moment in MOMENTS), (True, MOMENTS[0]), (True, MOMENTS[2])]


@pytest.mark.parametrize(("overwrite", "moment"), STOPS)
def test_a_stopped_ingest_leaves_what_was_there_and_starts_over(overwrite, moment, tmp_path):
    source, options = write_npz(tmp_path, X, Y)
    options |= {"block_rows": 64, "overwrite": overwrite}
    whole, out = tmp_path / "whole.zarr", tmp_path / "out.zarr"
    ingest([source], whole, **options)
    if overwrite:
        made(tmp_path, X * 2, out="out.zarr")
    before = tree_bytes(out)
    stopped(moment, source, out, **options)
    assert tree_bytes(out) == before
    assert moment != MOMENTS[0] or list(tmp_path.glob("out.zarr*")) == ([out] if overwrite else [])
    assert overwrite or moment == MOMENTS[0] or not_finished(out, source)
    assert not ingest([source], out, **options).already_done
    assert tree_bytes(out) == tree_bytes(whole)
    assert list(tmp_path.glob("out.zarr*")) == [out]


def not_finished(out, source):
    """A dataset of which only the beginning is there is neither read nor added to."""
    for work in (lambda: open_rows(f"{out}/"), lambda: ingest([source], out, append=True)):
        with pytest.raises(IncompleteError, match=r"out\.zarr is not finished: run the command that makes it again"):
            work()
    return True


def test_refused_rows_are_named_by_their_file_and_leave_the_old_dataset(tmp_path, monkeypatch):
    monkeypatch.setattr("bigkpca.ingesting.arrays.READ_BYTES", 400)
    made(tmp_path, X, block_rows=64)
    bad = np.where(np.arange(300)[:, None] == 299, np.nan, X)
    for append in (False, True):
        with pytest.raises(DataError, match=r"b\.npy: row 299, column 0 is NaN"):
            made(tmp_path, X, bad, append=append)
        np.testing.assert_array_equal(open_rows(tmp_path / "o.zarr").block(0, 300), X)
        assert not list(tmp_path.glob("o.zarr.*"))


def test_every_chunk_is_written_once_and_metadata_never_lags(tmp_path, monkeypatch):
    monkeypatch.setattr("bigkpca.ingesting.arrays.READ_BYTES", 400)
    monkeypatch.setattr("bigkpca.ingesting._HELD_BYTES", 1)
    written, put = [], zarr.Array.__setitem__

    def counting(array, rows, values):
        assert array.shape[0] >= rows.stop
        written.append((rows.start, rows.stop))
        put(array, rows, values)

    monkeypatch.setattr(zarr.Array, "__setitem__", counting)
    ingest([npy(tmp_path / "a.npy", X)], tmp_path / "out.zarr", block_rows=128)
    assert written == [(0, 128), (128, 256), (256, 300)]


def test_a_file_that_changes_is_not_ingested(tmp_path):
    source = npy(tmp_path / "x.npy", np.zeros((50, 3)))

    class Meddling(Recorder):
        def advance(self, rows):
            np.save(source, np.ones((51, 3)))

    refuse(tmp_path, IncompleteError, r"x\.npy changed while it was being read", source, progress=Meddling())
    assert len(made(tmp_path, source)["x"]) == 51


def test_progress_is_told_of_every_row(tmp_path):
    told = Recorder()
    made(tmp_path, X, progress=told)
    made(tmp_path, "a,b\n1,2\n3,4\n", progress=told)
    assert told == Recorder([("ingest", 300), ("ingest", 0)], 302, 2, [])


def dataset(tmp_path):
    np.savez(tmp_path / "first.npz", x=X, y=WORDS[Y])
    return ingest([tmp_path / "first.npz"], tmp_path / "out.zarr", labels="y", block_rows=64).path


def more(tmp_path, count=200, name="more"):
    new = RNG.normal(size=(count, 5)), np.array(["kiwi", "pear"])[RNG.integers(0, 2, count)]
    np.savez(tmp_path / f"{name}.npz", x=new[0], y=new[1])
    return tmp_path / f"{name}.npz", *new


def words_of(path, rows=None):
    """The labels of a dataset, or of so many of its rows, as text."""
    found = stored(path)
    return np.array(found["categories"])[found["y"][:rows]]


def test_rows_with_other_labels_are_not_those_that_were_appended_last(tmp_path):
    rows, out = npy(tmp_path / "x.npy", np.ones((2, 1))), tmp_path / "o.zarr"
    labels = [npy(tmp_path / f"y{i}.npy", np.array([i, i + 1])) for i in (0, 7)]
    done = [ingest(rows, out, labels=labels[i], append=out.exists()).already_done for i in (0, 0, 1, 1, 0)]
    assert done == [False, False, False, True, False]
    assert stored(out)["y"].tolist() == [0, 1, 0, 1, 7, 8, 0, 1]


@pytest.mark.parametrize("moment", [*MOMENTS, (zarr.Array, "__setitem__", 2)])
def test_a_stopped_append_leaves_the_old_rows_and_completes_later(tmp_path, moment):
    path = dataset(tmp_path)
    longer, *_ = more(tmp_path, 400, "longer")
    source, new, words = more(tmp_path)
    stopped(moment, longer, path, labels="y", append=True)
    rows = open_rows(path)
    assert rows.shape == (300, 5)
    np.testing.assert_array_equal(rows.block(0, 300), X)
    np.testing.assert_array_equal(words_of(path, 300), WORDS[Y])
    assert ingest([tmp_path / "first.npz"], path, labels="y", block_rows=64).already_done
    ingest([source], path, append=True)  # with the labels of the same name
    np.testing.assert_array_equal(stored(path)["x"], np.concatenate([X, new]))
    np.testing.assert_array_equal(words_of(path), np.concatenate([WORDS[Y], words]))
    told = [(each["sources"], each["rows"]) for each in about(path)["provenance"]]
    assert told == [(["first.npz"], [0, 300]), (["more.npz"], [300, 500])]
    assert [Path(source["path"]).name for source in about(path)["sources"]] == ["first.npz", "more.npz"]


def test_append_refuses_what_does_not_fit(tmp_path):
    dataset(tmp_path)
    source, new, words = more(tmp_path)
    np.savez(tmp_path / "numbers.npz", x=new, y=np.arange(200))
    np.savez(tmp_path / "narrow.npz", x=new[:, :4], y=words)
    made(tmp_path, X)
    for content, options, message in (
        (X, {}, "is one array, without a member 'y', and there is no such file"),
        (tmp_path / "narrow.npz", {}, "columns is 5 there and 4"),
        (source, {"labels": "y", "dtype": "float32"}, "dtype is float64 there and float32"),
        (source, {"labels": "y", "block_rows": 32}, "block_rows is 64 there and 32"),
        (tmp_path / "numbers.npz", {"labels": "y"}, "labels is text there and int64"),
        (source, {"labels": "y", "out": "o.zarr"}, "labels is none there and text"),
        (source, {"out": "none.zarr"}, "does not exist: no dataset"),
    ):
        refuse(tmp_path, SpecError, message, content, **{"out": "out.zarr"} | options, append=True)


def test_append_to_a_damaged_tail_is_corruption(tmp_path):
    path = dataset(tmp_path)
    chunk = Path(path) / "x" / "c" / "4" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-8])
    with pytest.raises(CorruptionError, match="rows 256 to 299 cannot be read"):
        ingest([more(tmp_path)[0]], path, labels="y", append=True)
