"""Rows in files: damage is named, and fingerprints tell what changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.data.opening import open_rows
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import CorruptionError, IncompleteError
from tests.data.kinds import KINDS, X, fsspec_store, in_chunks
from tests.helpers.stores import as_npy


def test_a_truncated_npy_is_corrupt(tmp_path: Path) -> None:
    path = Path(as_npy(tmp_path, X))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptionError, match="is truncated"):
        open_rows(path)


def test_a_npy_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = Path(as_npy(tmp_path, X))
    rows = open_rows(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IncompleteError, match="changed while it was read"):
        rows.block(0, 103)
    with pytest.raises(CorruptionError, match="is truncated"):
        open_rows(path)


def test_a_chunk_that_does_not_decode_is_named(tmp_path: Path) -> None:
    path = in_chunks(tmp_path)
    chunk = Path(path) / "c" / "3" / "0"
    chunk.write_bytes(b"noise")
    with pytest.raises(CorruptionError, match="rows 25 to 44 cannot be read"):
        open_rows(path).block(25, 45)


def test_a_missing_chunk_is_a_loss_where_the_fill_value_is_nan(tmp_path: Path) -> None:
    path = in_chunks(tmp_path, fill_value=np.nan)
    (Path(path) / "c" / "3" / "0").unlink()
    with pytest.raises(CorruptionError, match="1 stored chunks are missing, the first holds row 30"):
        open_rows(path)


def test_a_missing_chunk_is_the_fill_value_elsewhere(tmp_path: Path) -> None:
    path = in_chunks(tmp_path, fill_value=0.0)
    (Path(path) / "c" / "3" / "0").unlink()
    rows = open_rows(path)
    assert isinstance(rows, ZarrRows)
    assert rows.missing() == 1
    np.testing.assert_array_equal(rows.block(30, 40)[:, :4], 0)


def test_a_half_finished_ingest_is_refused(tmp_path: Path) -> None:
    attributes = {"bigkpca": {"format": "dataset", "format_version": 1}}
    zarr.create_group(str(tmp_path / "half.zarr"), attributes=attributes)
    with pytest.raises(IncompleteError, match="its ingest did not finish"):
        open_rows(tmp_path / "half.zarr")


@pytest.mark.parametrize("kind", ["zarr v3", "npy"])
def test_fingerprints_tell_a_changed_file(kind: str, tmp_path: Path) -> None:
    path = KINDS[kind](tmp_path)
    before = open_rows(path).fingerprint()
    assert open_rows(path).fingerprint() == before
    if kind == "npy":
        as_npy(tmp_path, X + 1)
    else:
        zarr.open_array(path, mode="r+")[0, 0] = 5
    assert open_rows(path).fingerprint() != before


def zip_store(tmp_path):
    return zarr.storage.ZipStore(tmp_path / "z.zip", mode="w")


def object_store(tmp_path):
    obstore = pytest.importorskip("obstore", reason="obstore is not installed: pip install 'bigkpca[cloud]'")
    return zarr.storage.ObjectStore(obstore.store.MemoryStore())


@pytest.mark.parametrize("make", [fsspec_store, zip_store, object_store])
def test_fingerprints_of_stores_elsewhere_read_no_values(make, tmp_path, monkeypatch):
    store, X = make(tmp_path), np.random.default_rng(0).normal(size=(60, 3))
    group = zarr.create_group(store)
    array = group.create_array("x", shape=X.shape, dtype=X.dtype, chunks=(20, 3))
    array[:] = X
    with monkeypatch.context() as patch:
        patch.setattr(ZarrRows, "block", lambda *_: pytest.fail("values were read"))
        before = open_rows(array).fingerprint()
        assert before == open_rows(array).fingerprint()
        assert before["stamp"] != open_rows(group.create_array("y", data=X + 1, chunks=(20, 3))).fingerprint()["stamp"]
    if make is not zip_store:  # which is written once
        array[25] = 7.0
        assert open_rows(array).fingerprint() != before


def test_fingerprints_of_stores_in_memory_are_those_of_their_values():
    X = np.random.default_rng(0).normal(size=(60, 3))
    for values in (X, X + 1):
        array = zarr.create_array(zarr.storage.MemoryStore(), data=values, chunks=(20, 3))
        assert open_rows(array).fingerprint() == ArrayRows(values).fingerprint()


def test_stores_that_tell_neither_tags_nor_times_are_told_apart_by_their_values(tmp_path, monkeypatch):
    array = zarr.create_array(fsspec_store(tmp_path), data=np.ones((60, 3)), chunks=(20, 3))
    find = array.store.fs._find

    async def without_times(*arguments, **options):
        found = await find(*arguments, **options)
        return {name: {"size": each["size"]} for name, each in found.items()} if options.get("detail") else found

    monkeypatch.setattr(array.store.fs, "_find", without_times)
    before = open_rows(array).fingerprint()
    assert before == ArrayRows(np.ones((60, 3))).fingerprint()
    array[25] = 7.0
    assert open_rows(array).fingerprint() != before
