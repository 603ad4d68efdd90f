"""Rows of Zarr arrays: a chunk that is lost or damaged is named, and fingerprints tell what changed."""

import errno
import pickle
from pathlib import Path
from unittest.mock import MagicMock

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.core.sync import sync

from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.data.zarr import ZarrRows, read
from bigkpca.errors import CorruptionError, FillValuesWarning, IncompleteError, LockedError, SpecError
from bigkpca.ingesting import ingest
from bigkpca.storage.groups import open_values
from tests.data.cases import refused

ONES = np.ones((100, 3), "f4")


def foreign(store, zarr_format=3, gap=slice(0), **options):
    """An array of others with chunks of 10 rows, of which some may never have been written."""
    options |= {"shape": (100, 3), "chunks": (10, 3), "dtype": "f4", "zarr_format": zarr_format}
    array = zarr.create_array(store, **options)
    array[: gap.start or 0], array[gap.stop :] = 1, 1
    return array


def object_store(tmp_path):
    obstore = pytest.importorskip("obstore", reason="obstore is not installed: pip install 'bigkpca[cloud]'")
    return zarr.storage.ObjectStore(obstore.store.MemoryStore())


STORES = {
    "memory": lambda tmp_path: zarr.storage.MemoryStore(),
    "folder": lambda tmp_path: zarr.storage.LocalStore(tmp_path / "f.zarr"),
    # A store of a new name, since the memory of fsspec is one for all.
    "fsspec": lambda tmp_path: zarr.storage.FsspecStore.from_url(f"memory://{tmp_path.name}/{id(tmp_path)}/g"),
    "zip": lambda tmp_path: zarr.storage.ZipStore(tmp_path / "z.zip", mode="w"),
    "obstore": object_store,
}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("store", ["folder", "memory", "fsspec", "obstore"])
def test_a_chunk_that_goes_is_an_error_if_all_were_stored(store, zarr_format, tmp_path):
    array = foreign(STORES[store](tmp_path), zarr_format)
    rows, key = open_rows(array), array.metadata.encode_chunk_key((3, 0))
    sync(array.store.delete(key))
    readers = [rows, rows.part(20, 40)]
    if store == "folder":
        readers += [pickle.loads(pickle.dumps(each)) for each in readers]
    for each in readers:
        refused(each.block, (20, 40, CorruptionError, rf"{key} is missing; restore it or make the"))
    np.testing.assert_array_equal(rows.block(0, 30), ONES[:30])


@pytest.mark.parametrize("store", ["folder", "memory"])
def test_chunks_that_were_never_stored_are_fill_values_which_is_told_once(store, tmp_path):
    array = foreign(STORES[store](tmp_path), gap=slice(50, 60))
    message = ": 1 of its chunks are not stored, so their values are the fill value 0"
    with pytest.warns(FillValuesWarning, match=message):
        rows = open_rows(array)
    assert rows.missing() == 1
    np.testing.assert_array_equal(rows.part(40, 60).block(40, 60), [[1.0] * 3] * 10 + [[0.0] * 3] * 10)
    pinned = rows.pin(45)  # of which all chunks are stored
    sync(array.store.delete("c/3/0"))
    refused(pinned.block, (20, 40, CorruptionError, r"c/3/0 is missing"))


def test_shards_that_go_are_missed_and_chunks_that_a_shard_lacks_are_fill_values(tmp_path):
    array = foreign(STORES["folder"](tmp_path), shards=(50, 3), gap=slice(20, 30))
    rows = open_rows(array)
    np.testing.assert_array_equal(rows.block(15, 25), [[1.0] * 3] * 5 + [[0.0] * 3] * 5)
    sync(array.store.delete("c/1/0"))
    refused(rows.block, (60, 70, CorruptionError, r"f\.zarr/c/1/0 is missing"))


def test_every_way_to_read_a_chunk_misses_it(tmp_path):
    array = open_rows(foreign(STORES["folder"](tmp_path))).array
    sync(array.store.delete("c/3/0"))
    prototype = zarr.core.buffer.default_buffer_prototype()
    for coroutine in (
        array.store.get("c/3/0"),
        array.store.get("c/3/0", prototype, zarr.abc.store.RangeByteRequest(0, 4)),
        array.store.get_partial_values(prototype, [("c/2/0", None), ("c/3/0", None)]),
    ):
        refused(sync, (coroutine, FileNotFoundError, r"f\.zarr/c/3/0"))
    assert sync(array.store.get("nothing/zarr.json")) is None
    assert pickle.loads(pickle.dumps(array)) == array
    assert str(array.store).startswith("file://")


def test_stores_that_list_nothing_are_read_as_zarr_does():
    unlisted = type("Unlisted", (zarr.storage.MemoryStore,), {"supports_listing": False})
    array = foreign(unlisted(), gap=slice(50, 60))
    np.testing.assert_array_equal(open_rows(array).pin(70).block(49, 51), [[1.0] * 3, [0.0] * 3])


def test_values_beside_rows_are_read_as_rows_are(tmp_path):
    group = zarr.create_group(str(tmp_path / "g.zarr"))
    group.create_array("x", data=np.ones((4, 2)))
    for name, stop in (("y", 100), ("z", 50)):
        group.create_array(name, shape=(100,), chunks=(10,), dtype="i4")[:stop] = 1
    found = open_values(str(tmp_path / "g.zarr"), "y")
    (tmp_path / "g.zarr/y/c/3").unlink()
    refused(found.__getitem__, (slice(30, 40), CorruptionError, "y/c/3 is missing"))
    for given in ((str(tmp_path / "g.zarr"), "z"), (str(tmp_path / "g.zarr/z"), None)):
        with pytest.warns(FillValuesWarning, match="5 of its chunks are not stored"):
            assert open_values(*given)[:].sum() == 50
    refused(
        open_values,
        (str(tmp_path), None, SpecError, "is not a Zarr array or group"),
        (str(tmp_path / "g.zarr"), "w", SpecError, r"does not contain an array 'w', but \['x', 'y', 'z'\]"),
        (str(tmp_path / "g.zarr"), "x", SpecError, r"g\.zarr/x has shape \(4, 2\): one value per row is needed"),
    )


@pytest.fixture
def dataset(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(300.0).reshape(100, 3))
    np.save(tmp_path / "y.npy", np.arange(100))
    ingest([tmp_path / "x.npy"], tmp_path / "d.zarr", labels=str(tmp_path / "y.npy"), block_rows=16)
    return tmp_path / "d.zarr"


def test_every_chunk_of_a_dataset_must_be_there(dataset):
    rows, labels = open_rows(dataset), open_values(str(dataset), "y")
    for name, each in (("x/c/2/0", lambda: rows.block(20, 40)), ("y/c/2", lambda: labels[20:40])):
        (dataset / name).rename(dataset / "kept")
        refused(each, (CorruptionError, rf"d\.zarr.*: .*{name} is missing"))
        (dataset / "kept").rename(dataset / name)
        each()
    for lose in (Path.unlink, lambda file: file.write_bytes(b"")):
        lose(dataset / "x/c/2/0")
        message = r"d\.zarr: 1 stored chunks are missing, the first with row 32; rest"
        refused(open_rows, (dataset, CorruptionError, message))


def damaged(file, how):
    content = file.read_bytes()
    half = 0 if how == "empty" else len(content) // 2
    flipped = content[:half] + bytes([content[half] ^ 16]) + content[half + 1 :]
    file.write_bytes(flipped if how == "flipped" else content[:half])


@pytest.mark.parametrize("how", ["truncated", "flipped", "empty"])
def test_chunks_that_do_not_decode_are_damage_whatever_their_codec_raises(how, dataset):
    rows, files = {"ours": open_rows(dataset)}, {"ours": dataset / "x/c/2/0"}
    for codec in ("gzip", "bz2", None):
        options = {"compressors": codec and numcodecs.get_codec({"id": codec, "level": 1}), "overwrite": True}
        path = dataset.parent / f"{codec}.zarr"
        rows[codec], files[codec] = open_rows(foreign(str(path), 2, **options)), path / "2.0"
    for name, each in rows.items():
        if name is None and how == "flipped":  # which nobody can tell
            continue
        damaged(files[name], how)
        what = "is missing; restore" if how == "empty" else "rows 15 to 40 cannot be read .*restore"
        message = f"{dataset.name if name == 'ours' else f'{name}.zarr'}: .*{what}"
        refused(each.block, (15, 41, CorruptionError, message))


def test_errors_of_several_chunks_mean_what_the_first_one_means():
    def failing(error):
        return ExceptionGroup("several", [ExceptionGroup("of one", [error, ValueError("another")])])

    refused(
        lambda error: read(MagicMock(**{"__getitem__.side_effect": failing(error)}), "x", 0, 10),
        (FileNotFoundError(errno.ENOENT, "no", "x/c/1"), CorruptionError, "x: x/c/1 is missing"),
        (OSError(errno.EIO, "broken", "x/c/1"), IncompleteError, "x: x/c/1: broken; run the same command again"),
        (OSError(errno.ESTALE, "stale", "x/c/1"), IncompleteError, "x: x/c/1: stale; run the same command again"),
        (OSError(errno.EIO, "broken"), IncompleteError, "x: a file: broken; run the same command again"),
        (PermissionError(errno.EACCES, "denied", "x/c/1"), SpecError, "x: x/c/1: denied: this user needs permission"),
        (OSError(errno.ENAMETOOLONG, "too long", "x/c/1"), CorruptionError, "x: x/c/1: too long; restore it"),
        (OSError("not gzip"), CorruptionError, r"rows 0 to 9 cannot be read \(OSError: not gzip\)"),
        (ValueError("checksum"), CorruptionError, r"rows 0 to 9 cannot be read \(ValueError: checksum\); restore this"),
        (MemoryError("too large"), MemoryError, "too large"),
        (LockedError("of ours"), LockedError, "of ours"),
    )


@pytest.mark.parametrize("store", ["fsspec", "zip", "obstore"])
def test_fingerprints_of_stores_elsewhere_read_no_values(store, tmp_path, monkeypatch):
    group, X = zarr.create_group(STORES[store](tmp_path)), np.random.default_rng(0).normal(size=(60, 3))
    array = group.create_array("x", data=X, chunks=(20, 3))
    with monkeypatch.context() as patch:
        patch.setattr(ZarrRows, "block", lambda *_: pytest.fail("values were read"))
        before = open_rows(array).fingerprint()
        assert before == open_rows(array).fingerprint()
        assert before["stamp"] != open_rows(group.create_array("y", data=X + 1, chunks=(20, 3))).fingerprint()["stamp"]
    if store != "zip":  # which is written once
        array[25] = 7.0
        assert open_rows(array).fingerprint() != before


def test_stores_that_tell_neither_tags_nor_times_are_told_apart_by_their_values(tmp_path, monkeypatch):
    values = np.random.default_rng(0).normal(size=(60, 3))
    array = zarr.create_array(STORES["fsspec"](tmp_path), data=values, chunks=(20, 3))
    find = array.store.fs._find

    async def without_times(*arguments, **options):
        found = await find(*arguments, **options)
        return {name: {"size": each["size"]} for name, each in found.items()} if options.get("detail") else found

    monkeypatch.setattr(array.store.fs, "_find", without_times)
    for each in (array, zarr.create_array(zarr.storage.MemoryStore(), data=values, chunks=(20, 3))):
        assert open_rows(each).fingerprint() == ArrayRows(values).fingerprint()
        each[25] = 7.0
        assert open_rows(each).fingerprint() != ArrayRows(values).fingerprint()


@pytest.mark.parametrize("kind", ["ours", "of others"])
def test_pinned_rows_stay_the_same_while_others_are_added(kind, dataset):
    """Even in their last chunk."""
    path = dataset if kind == "ours" else dataset.parent / "f.zarr"
    if kind == "of others":
        foreign(str(path))
    before = open_rows(path).pin(95)
    held, stamp = before.block(0, 95), before.fingerprint()
    if kind == "ours":
        x, y = (dataset.parent / name for name in ("x.npy", "y.npy"))
        ingest([x], dataset, labels=str(y), append=True)
    else:
        array = zarr.open_array(str(path), mode="r+")
        array.resize((150, 3))
        array[96:] = 5.0
    after = open_rows(path)
    assert after.pin(95).fingerprint() == before.fingerprint() == stamp != after.fingerprint()
    np.testing.assert_array_equal(before.block(0, 95), held)
    zarr.open_array(str(path / "x" if kind == "ours" else path), mode="r+")[40] = 9.0
    assert open_rows(path).pin(95).fingerprint() != stamp


def test_rows_end_before_a_chunk_that_programs_that_append_have_not_written_yet(tmp_path):
    array = foreign(STORES["folder"](tmp_path), gap=slice(50, 60))
    with pytest.warns(FillValuesWarning):
        rows = open_rows(array)
    assert [rows.stored_rows(known) for known in (0, 45, 55, 60)] == [50, 50, 55, 100]
    assert open_rows(foreign(STORES["memory"](tmp_path))).stored_rows() == 100
