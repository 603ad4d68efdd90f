"""Rows appended to a dataset: safe to stop, to repeat, and refused where they do not fit."""

from pathlib import Path

import numpy as np
import pytest
import zarr

from bigkpca.data.opening import open_rows
from bigkpca.errors import CorruptionError, SpecError
from bigkpca.ingesting.streaming import ingest
from tests.helpers.disks import tree_bytes
from tests.helpers.stores import sha256
from tests.ingesting.files import RNG, WORDS, X, Y, about, labels_of, npy, rows_of
from tests.ingesting.stopping import MOMENTS, Stop, stop_at


def dataset(tmp_path, rows=X, words=None):
    np.savez(tmp_path / "first.npz", x=rows, y=WORDS[Y] if words is None else words)
    return ingest([tmp_path / "first.npz"], tmp_path / "out.zarr", labels="y", block_rows=64).path


def more(tmp_path, count=200, name="more"):
    new = RNG.normal(size=(count, 5)), np.array(["kiwi", "pear"])[RNG.integers(0, 2, count)]
    np.savez(tmp_path / f"{name}.npz", x=new[0], y=new[1])
    return tmp_path / f"{name}.npz", *new


def check_appended(path, new, words):
    np.testing.assert_array_equal(rows_of(path), np.concatenate([X, new]))
    categories = np.array(about(path)["categories"])
    np.testing.assert_array_equal(categories[labels_of(path)], np.concatenate([WORDS[Y], words]))
    assert about(path)["provenance"] == [
        {"sources": ["first.npz"], "rows": [0, 300], "sha256": sha256(X)},
        {"sources": ["more.npz"], "rows": [300, 300 + len(new)], "sha256": sha256(new)},
    ]


def test_append_adds_rows_and_is_safe_to_repeat(tmp_path):
    path = dataset(tmp_path)
    source, new, words = more(tmp_path)
    done = ingest([source], path, labels="y", append=True)
    assert (done.rows, done.already_done) == (500, False)
    check_appended(path, new, words)
    before = tree_bytes(path)
    assert [Path(s["path"]).name for s in about(path)["sources"]] == ["first.npz", "more.npz"]
    assert ingest([source], path, labels="y", append=True).already_done
    assert tree_bytes(path) == before
    assert open_rows(path).shape == (500, 5)


def test_append_may_repeat_the_first_source_once(tmp_path):
    a = npy(tmp_path / "a.npy", X)
    ingest([a], tmp_path / "out.zarr")
    assert ingest([a], tmp_path / "out.zarr", append=True).rows == 600
    assert ingest([a], tmp_path / "out.zarr", append=True).already_done


@pytest.mark.parametrize("moment", [*MOMENTS, (zarr.Array, "__setitem__", 3)])
def test_a_stopped_append_leaves_the_old_rows_and_completes_later(tmp_path, moment):
    path = dataset(tmp_path)
    longer, *_ = more(tmp_path, 400, "longer")
    source, new, words = more(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, *moment)
        with pytest.raises(Stop):
            ingest([longer], path, labels="y", append=True)
    rows = open_rows(path)
    assert rows.shape == (300, 5)
    np.testing.assert_array_equal(rows.block(0, 300), X)
    np.testing.assert_array_equal(labels_of(path)[:300], ingested_codes())
    assert ingest([tmp_path / "first.npz"], path, labels="y", block_rows=64).already_done
    ingest([source], path, labels="y", append=True)
    check_appended(path, new, words)


def ingested_codes():
    order = list(dict.fromkeys(WORDS[Y].tolist()))
    return [order.index(word) for word in WORDS[Y]]


def test_append_refuses_what_does_not_fit(tmp_path):
    path = dataset(tmp_path)
    before = tree_bytes(path)

    def refused(message, *sources, **options):
        with pytest.raises(SpecError, match=message):
            ingest(sources, path, append=True, **options)
        assert tree_bytes(path) == before

    source, new, _ = more(tmp_path)
    refused("labels is text there and none in the new rows", source)
    refused("columns is 5 there and 4", npy(tmp_path / "a.npy", X[:, :4]))
    refused("dtype is float64 there and float32", source, labels="y", dtype="float32")
    refused("block_rows is 64 there and 32", source, labels="y", block_rows=32)
    np.savez(tmp_path / "numbers.npz", x=new, y=np.arange(200))
    refused("labels is text there and int64", tmp_path / "numbers.npz", labels="y")
    with pytest.raises(SpecError, match="does not exist: no dataset"):
        ingest([source], tmp_path / "none.zarr", append=True)
    ingest([npy(tmp_path / "b.npy", X)], tmp_path / "plain.zarr")
    with pytest.raises(SpecError, match="labels is none there and text"):
        ingest([source], tmp_path / "plain.zarr", append=True, labels="y")


def test_append_to_a_damaged_tail_is_corruption(tmp_path):
    path = dataset(tmp_path)
    source, *_ = more(tmp_path)
    shard = Path(path) / "x" / "c" / "4" / "0"
    shard.write_bytes(shard.read_bytes()[:-8])
    with pytest.raises(CorruptionError, match="rows 256 to 299 cannot be read"):
        ingest([source], path, labels="y", append=True)
