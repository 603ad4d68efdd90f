"""Rows in files: what is read is what was listed, damage is named, and fingerprints tell what changed."""

import errno
import os
import pickle
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.core.sync import sync

import bigkpca
from bigkpca.data import retrying
from bigkpca.data.opening import open_rows
from bigkpca.data.retrying import retrying_for
from bigkpca.data.rows import ArrayRows
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import CorruptionError, IncompleteError
from bigkpca.ingesting import ingest
from bigkpca.storage.groups import open_values
from tests.data.kinds import X, fsspec_store, in_chunks
from tests.helpers.stores import as_npy


def test_a_npy_that_is_truncated_or_shrinks_while_it_is_read(tmp_path):
    path = Path(as_npy(tmp_path, X))
    rows = open_rows(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IncompleteError, match="changed while it was being read"):
        rows.block(0, 103)
    with pytest.raises(CorruptionError, match="is truncated"):
        open_rows(path)


def test_a_missing_chunk_is_a_loss_where_the_fill_value_is_nan_and_that_value_elsewhere(tmp_path):
    for fill_value in (np.nan, 0.0):
        path = in_chunks(tmp_path, fill_value=fill_value)
        (Path(path) / "c" / "3" / "0").unlink()
        if np.isnan(fill_value):
            with pytest.raises(CorruptionError, match="1 stored chunks are missing, the first with row 30"):
                open_rows(path)
    rows = open_rows(path)
    assert rows.missing() == 1
    np.testing.assert_array_equal(rows.block(30, 40)[:, :4], 0)


def test_fingerprints_tell_a_changed_file(tmp_path):
    paths = [in_chunks(tmp_path), as_npy(tmp_path, X)]
    before = [open_rows(path).fingerprint() for path in paths]
    assert [open_rows(path).fingerprint() for path in paths] == before
    zarr.open_array(paths[0], mode="r+")[0, 0] = 5
    as_npy(tmp_path, X + 1)
    assert all(open_rows(path).fingerprint() != old for path, old in zip(paths, before, strict=True))


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


def test_stores_that_tell_neither_tags_nor_times_are_told_apart_by_their_values(tmp_path, monkeypatch):
    values = np.random.default_rng(0).normal(size=(60, 3))
    array = zarr.create_array(fsspec_store(tmp_path), data=values, chunks=(20, 3))
    find = array.store.fs._find

    async def without_times(*arguments, **options):
        found = await find(*arguments, **options)
        return {name: {"size": each["size"]} for name, each in found.items()} if options.get("detail") else found

    monkeypatch.setattr(array.store.fs, "_find", without_times)
    in_memory = zarr.create_array(zarr.storage.MemoryStore(), data=values, chunks=(20, 3))
    for each in (array, in_memory):
        assert open_rows(each).fingerprint() == ArrayRows(values).fingerprint()
        each[25] = 7.0
        assert open_rows(each).fingerprint() != ArrayRows(values).fingerprint()


def foreign(tmp_path, zarr_format=3, **options):
    """An array of others with chunks of 10 rows, of which rows 50 to 59 were never written."""
    options |= {"shape": (100, 3), "chunks": (10, 3), "dtype": "f4", "zarr_format": zarr_format}
    array = zarr.create_array(str(tmp_path / "f.zarr"), **options)
    array[:50], array[60:] = np.ones((50, 3)), np.ones((40, 3))
    return tmp_path / "f.zarr"


def chunk_of(path, number):
    return next(each for each in (path / "c" / f"{number}" / "0", path / f"{number}.0") if each.parent.is_dir())


@pytest.fixture
def path(tmp_path):
    return foreign(tmp_path)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_chunk_that_goes_is_an_error_and_one_that_never_was_is_the_fill_value(zarr_format, tmp_path):
    path = foreign(tmp_path, zarr_format)
    rows = open_rows(path)
    chunk_of(path, 3).unlink()
    for read in (rows, rows.part(20, 40), pickle.loads(pickle.dumps(rows.part(20, 40)))):
        message = r"f\.zarr: .*3.0 is missing, and did not reappear"
        with retrying_for(0.0), pytest.raises(CorruptionError, match=message):
            read.block(20, 40)
    np.testing.assert_array_equal(rows.block(40, 60), [[1.0] * 3] * 10 + [[0.0] * 3] * 10)
    zarr.open_array(str(path), mode="r+")[50:60] = 7.0  # or its list was not complete
    with pytest.raises(IncompleteError, match="changed while it was being read"):
        rows.part(50, 60).block(50, 60)


def test_a_chunk_that_comes_back_is_read(path, monkeypatch):
    rows, chunk = open_rows(path), chunk_of(path, 3)
    kept = chunk.rename(path.parent / "kept")
    monkeypatch.setattr(retrying.time, "sleep", lambda _: kept.rename(chunk))
    np.testing.assert_array_equal(rows.block(30, 40), 1)


def test_a_chunk_of_another_version_or_an_empty_one_is_not_read(path):
    rows = open_rows(path)
    zarr.open_array(str(path), mode="r+")[30:40] = 7.0
    with pytest.raises(IncompleteError, match=r"f\.zarr changed while it was being read"):
        rows.block(25, 35)
    chunk_of(path, 3).write_bytes(b"")
    with pytest.raises(CorruptionError, match=r"3.0 is empty; restore it"):
        open_rows(path).block(25, 35)


def test_a_task_can_read_its_own_rows_alone(path):
    part = open_rows(path).part(20, 40)
    assert len(part.reader.versions) == 2
    with pytest.raises(KeyError, match=r"4.0"):
        part.block(40, 50)


def test_a_list_that_lacks_what_is_there_is_made_again(path, monkeypatch):
    scandir, missed = os.scandir, []

    def once_empty(folder):
        if "f.zarr" in str(folder) and len(missed) < 2:
            missed.append(folder)
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", once_empty)
    np.testing.assert_array_equal(open_rows(path).block(0, 50), 1)
    assert missed


def test_chunks_that_do_not_decode_are_damage_whatever_their_codec_raises(tmp_path):
    path = in_chunks(tmp_path)
    (Path(path) / "c" / "3" / "0").write_bytes(b"noise")
    with pytest.raises(CorruptionError, match="rows 25 to 44 cannot be read"):
        open_rows(path).block(25, 45)
    for codec in ({"id": "gzip", "level": 1}, {"id": "bz2", "level": 1}):
        path = foreign(tmp_path, 2, compressors=numcodecs.get_codec(codec), overwrite=True)
        chunk_of(path, 3).write_bytes(b"damaged")
        with pytest.raises(CorruptionError, match="rows 30 to 39 cannot be read"):
            open_rows(path).block(30, 40)


class Unlisted(zarr.storage.MemoryStore):
    """A store that does not list what it holds."""

    async def list_prefix(self, prefix):
        for key in ():
            yield key


def test_stores_that_list_nothing_are_read_as_zarr_does_and_others_miss_chunks_that_go():
    for store in (Unlisted(), zarr.storage.MemoryStore()):
        array = zarr.create_array(store, shape=(100, 3), chunks=(10, 3), dtype="f4")
        array[:50] = 1.0
        rows = open_rows(array)
        np.testing.assert_array_equal(rows.block(40, 60), [[1.0] * 3] * 10 + [[0.0] * 3] * 10)
    sync(array.store.delete("c/3/0"))
    with retrying_for(0.0), pytest.raises(CorruptionError, match=r"c/3/0 is missing"):
        rows.block(30, 40)


@pytest.fixture
def dataset(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(300.0).reshape(100, 3))
    np.save(tmp_path / "y.npy", np.arange(100))
    ingest([tmp_path / "x.npy"], tmp_path / "d.zarr", labels=str(tmp_path / "y.npy"), block_rows=16)
    return tmp_path / "d.zarr"


def other_shard(dataset, name, number):
    """Put the shard before in the place of one: it decodes, and is not what was written there."""
    at = dataset / name / "c"
    source, target = ((at / str(k) / "0") if name in ("x", "scores") else (at / str(k)) for k in (number - 1, number))
    target.write_bytes(source.read_bytes())


def test_rows_that_are_not_those_of_ingest_are_found(dataset):
    other_shard(dataset, "x", 2)
    rows = open_rows(dataset)
    np.testing.assert_array_equal(rows.block(0, 32), np.arange(96.0).reshape(32, 3))
    for start, stop in ((0, 100), (32, 48), (33, 34), (47, 49)):
        with pytest.raises(CorruptionError, match=r"d\.zarr: rows 32 to 47 are not the values that were written there"):
            rows.part(start, stop).block(start, stop)


def test_labels_are_those_of_ingest(dataset):
    np.testing.assert_array_equal(open_values(str(dataset), "y")[30:40], np.arange(30, 40))
    other_shard(dataset, "y", 2)
    with pytest.raises(CorruptionError, match="rows 32 to 47 are not the values"):
        open_values(str(dataset), "y")[30:40]
    # Shards of nothing but zeros are stored; in an array that others put there, they may be left out.
    np.save(dataset.parent / "y.npy", np.repeat([0, 1], 50))
    source, labels = dataset.parent / "x.npy", str(dataset.parent / "y.npy")
    ingest([source], dataset, labels=labels, block_rows=16, overwrite=True)
    ingest([source], dataset, labels=labels, append=True)
    bigkpca.verify(dataset)
    own = zarr.open_group(str(dataset)).create_array("own", shape=(200,), chunks=(10,), dtype="i4")
    own[50:100] = own[150:] = 1
    for name in ("y", "own"):
        np.testing.assert_array_equal(open_values(str(dataset), name)[:], np.tile(np.repeat([0, 1], 50), 2))


def add(dataset):
    return ingest([dataset.parent / "x.npy"], dataset, labels=str(dataset.parent / "y.npy"), append=True)


def test_digests_of_rows_that_were_added(dataset):
    before = open_rows(dataset)
    for _ in range(3):
        add(dataset)
        np.save(dataset.parent / "x.npy", np.load(dataset.parent / "x.npy") + 1)
    assert open_rows(dataset).block(0, 400).shape == (400, 3)
    assert {each.name for each in (dataset / "x").glob("manifest-*")} == {"manifest-300.json", "manifest-400.json"}
    other_shard(dataset, "x", 20)
    with pytest.raises(CorruptionError, match="rows 320 to 335 are not the values"):
        open_rows(dataset).block(300, 400)
    np.testing.assert_array_equal(before.pin(100).block(90, 96), np.arange(270.0, 288.0).reshape(6, 3))


def test_a_manifest_of_another_dataset_is_refused(dataset):
    manifest = dataset / "x" / "manifest-100.json"
    for content, message in (
        (manifest.read_bytes() + b" ", r"is not the one recorded in .*d\.zarr"),
        (b"{", "cannot be read .*; restore it"),
        (None, "is missing; restore it"),
    ):
        manifest.unlink() if content is None else manifest.write_bytes(content)
        with pytest.raises(CorruptionError, match=rf"manifest-100\.json {message}"):
            open_rows(dataset)


def test_datasets_of_earlier_versions_have_no_digests(dataset):
    group = zarr.open_group(str(dataset))
    group.attrs["bigkpca"] = {key: value for key, value in group.attrs["bigkpca"].items() if key != "manifest"}
    assert open_rows(dataset).block(0, 100).shape == (100, 3)
    add(dataset)
    assert open_rows(dataset).block(0, 200).shape == (200, 3)


def test_a_feature_store_is_read_as_its_manifest_says(dataset):
    out = dataset.parent / "s.zarr"

    def score(size, **how):
        model = bigkpca.fit(dataset, dataset.parent / f"{size}.zarr", components=2, size=size)
        bigkpca.transform(model, dataset, out, residual=True, block_rows=16, **how)

    score(20)
    rows = open_rows(out)
    assert rows.grain == 16
    score(30, overwrite=True)
    with pytest.raises(IncompleteError, match=r"s\.zarr changed while it was being read"):
        rows.block(0, 32)
    other_shard(out, "scores", 2)
    with pytest.raises(CorruptionError, match="rows 32 to 47 are not the values"):
        open_rows(out).block(0, 100)
    (out / "residual" / "c" / "2").unlink()
    with retrying_for(0.0), pytest.raises(CorruptionError, match="residual/c/2 is missing"):
        open_values(str(out), "residual")[0:100]
