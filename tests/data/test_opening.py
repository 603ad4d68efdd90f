"""Every kind of input becomes the same rows; damage and nonsense are named."""

from __future__ import annotations

import hashlib
import pickle
from datetime import datetime
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from bigkpca import KernelPCA
from bigkpca.data.memory import ArrayRows
from bigkpca.data.npy import NpyRows
from bigkpca.data.opening import open_rows
from bigkpca.data.reading import take, tiles
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import CorruptionError, DataError, IncompleteError, SpecError
from tests.helpers.stores import as_npy, as_zarr

X = np.random.default_rng(0).normal(size=(103, 7))


def in_chunks(folder: Path, **options: Any) -> str:
    return as_zarr(folder, X, **{"chunks": (10, 4), "zarr_format": 3} | options)


def as_group(folder: Path, name: str) -> str:
    path = str(folder / "group.zarr")
    zarr.create_group(path).create_array(name, data=X, chunks=(10, 7))
    return path


KINDS = {
    "numpy": lambda folder: X,
    "list": lambda folder: X.tolist(),
    "pandas": lambda folder: pd.DataFrame(X),
    "polars": lambda folder: pl.DataFrame(X),
    "dask": lambda folder: da.from_array(X, chunks=(17, 3)),
    "zarr v3": in_chunks,
    "zarr v2": lambda folder: in_chunks(folder, zarr_format=2),
    "sharded zarr": lambda folder: in_chunks(folder, chunks=(10, 7), shards=(40, 7)),
    "zarr object": lambda folder: zarr.open_array(in_chunks(folder), mode="r"),
    "group with x": lambda folder: as_group(folder, "x"),
    "group with one array": lambda folder: as_group(folder, "anything"),
    "npy": lambda folder: as_npy(folder, X),
    "Fortran npy": lambda folder: as_npy(folder, np.asfortranarray(X)),
    "path object": lambda folder: Path(as_npy(folder, X)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_rows(kind: str, tmp_path: Path) -> None:
    rows = open_rows(KINDS[kind](tmp_path))
    assert rows.shape == X.shape
    assert rows.dtype == np.float64
    np.testing.assert_array_equal(rows.block(20, 55), X[20:55])


@pytest.mark.parametrize("kind", KINDS)
def test_parts_number_their_rows_as_the_whole_does(kind: str, tmp_path: Path) -> None:
    rows = open_rows(KINDS[kind](tmp_path))
    part = rows.part(20, 60)
    part = part.compute(scheduler="synchronous") if hasattr(part, "compute") else part
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(part)).block(30, 40), X[30:40])


@pytest.mark.parametrize("kind", KINDS)
def test_taking_rows(kind: str, tmp_path: Path) -> None:
    numbers = np.array([0, 1, 9, 10, 33, 34, 101, 102])
    np.testing.assert_array_equal(take(open_rows(KINDS[kind](tmp_path)), numbers), X[numbers])


@given(start=st.integers(0, 10), length=st.integers(1, 93), height=st.integers(1, 50))
def test_tiles_cover_a_range_in_fixed_steps(start: int, length: int, height: int) -> None:
    rows = ArrayRows(X)
    digest = hashlib.sha256()
    found = [tile.copy() for tile in tiles(rows, start, start + length, height, digest)]
    np.testing.assert_array_equal(np.concatenate(found), X[start : start + length])
    assert {len(tile) for tile in found[:-1]} <= {height}
    assert digest.hexdigest() == hashlib.sha256(X[start : start + length].tobytes()).hexdigest()


def test_tiles_do_not_depend_on_how_storage_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigkpca.data.reading.READ_BYTES", 30 * 7 * 8)
    stored = tiles(open_rows(in_chunks(tmp_path)), 10, 103, 16)
    for ours, plain in zip(stored, tiles(ArrayRows(X), 10, 103, 16), strict=True):
        np.testing.assert_array_equal(ours, plain)


def test_images_are_flattened_row_by_row(tmp_path: Path) -> None:
    images = np.arange(5 * 3 * 4).reshape(5, 3, 4)
    for order in (images, np.asfortranarray(images)):
        rows = NpyRows.open(Path(as_npy(tmp_path, order)))
        assert rows.row_shape == (3, 4)
        np.testing.assert_array_equal(rows.block(1, 4), images[1:4].reshape(3, 12))


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (np.zeros(5), DataError, r"shape \(5,\): rows must be two-dimensional"),
        (np.zeros((2, 3, 4)), DataError, "two-dimensional"),
        (np.zeros((0, 4)), DataError, r"the array is empty: shape \(0, 4\)"),
        (np.zeros((4, 0)), DataError, "is empty"),
        (np.array([["a", "b"]]), DataError, "holds <U1 values: rows must be real numbers"),
        (np.zeros((2, 2), object), DataError, "holds object values"),
        (np.zeros((2, 2), complex), DataError, "holds complex128 values"),
        (pd.DataFrame({"a": [1, 2], "b": ["u", "v"]}), DataError, "real numbers"),
        (pl.LazyFrame({"a": [1.0]}), SpecError, r"a LazyFrame holds no rows yet: give what its collect\(\) returns"),
        (da.zeros(4), DataError, "two-dimensional"),
        ("nowhere.zarr", SpecError, "nowhere.zarr does not exist"),
        ("s3://bucket/rows.zarr", SpecError, "only local paths"),
    ],
)
def test_what_cannot_be_rows_is_refused(data: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        open_rows(data)


DAY = datetime(2020, 1, 1)


@pytest.mark.parametrize(
    ("column", "name"),
    [
        (pd.Series([DAY, DAY]), "datetime64"),
        (pd.Series([DAY, DAY]).dt.tz_localize("UTC"), "datetime64"),
        (pd.Series([DAY, DAY]) - DAY, "timedelta64"),
        (pd.Series(["u", "v"], dtype="category"), "category"),
        (pd.Series(["u", 2.0], dtype=object), "object"),
        (pd.Series([1j, 2j]), "complex128"),
        (pd.Series(pd.period_range("2020", periods=2, freq="D")), "period"),
        (pl.Series([DAY, DAY]), "Datetime"),
        (pl.Series([DAY.date(), DAY.date()]), "Date"),
        (pl.Series([DAY - DAY, DAY - DAY]), "Duration"),
        (pl.Series(["u", "v"]), "String"),
        (pl.Series(["u", "v"], dtype=pl.Categorical), "Categorical"),
        (pl.Series([[1], [2, 3]]), "List"),
    ],
    ids=lambda value: None if isinstance(value, str) else f"{type(value).__module__}",
)
@pytest.mark.parametrize("alone", [True, False])
def test_columns_of_a_frame_that_are_no_numbers_are_named(column: Any, name: str, alone: bool) -> None:
    frame = pd.DataFrame if isinstance(column, pd.Series) else pl.DataFrame
    data = frame({"t": column} if alone else {"a": [1.0, 2.0], "t": column})
    message = rf"the frame holds .*{name}.* values in column {0 if alone else 1} \('t'\): rows must be real numbers"
    with pytest.raises(DataError, match=message):
        open_rows(data)
    with pytest.raises(DataError, match=message):
        KernelPCA(1).fit(data)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1, 0], dtype="Int64"),
        pd.Series([True, False], dtype="boolean"),
        pd.Series([True, False]),
        pd.Series([1, 0], dtype="int64[pyarrow]"),
        pd.Series([1, 0], dtype="category"),
        pd.Series([1, 0], dtype=object),
        pd.Series([1.0, 0.0], dtype="Sparse[float64]"),
        pl.Series([True, False]),
        pl.Series([1, 0], dtype=pl.UInt8),
        pl.Series([1, 0], dtype=pl.Decimal(10, 2)),
    ],
    ids=lambda column: f"{type(column).__module__} {column.dtype}",
)
def test_columns_of_a_frame_that_are_numbers_are_rows_however_they_are_kept(column: Any) -> None:
    frame = pd.DataFrame if isinstance(column, pd.Series) else pl.DataFrame
    rows = open_rows(frame({"a": [0.5, 0.25], "b": column}))
    np.testing.assert_array_equal(rows.block(0, 2), [[0.5, 1], [0.25, 0]])
    assert rows.dtype == np.float64


def test_values_that_a_frame_misses_are_nan() -> None:
    for column in (pd.Series([1, None], dtype="Int64"), pd.Series([True, None], dtype="boolean")):
        assert np.isnan(open_rows(pd.DataFrame({"a": [0.5, 0.25], "b": column})).block(0, 2)[1, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_only_frames_and_datasets_have_names(kind: str, tmp_path: Path) -> None:
    expected = tuple(f"column_{j}" for j in range(7)) if kind == "polars" else None  # as polars calls them
    assert open_rows(KINDS[kind](tmp_path)).names == expected


def test_unknown_chunk_sizes_are_refused() -> None:
    lazy = da.from_array(X, chunks=(10, 7))
    with pytest.raises(SpecError, match="compute_chunk_sizes"):
        open_rows(lazy[lazy[:, 0] > 0])


def test_files_and_folders_that_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1,2\n")
    with pytest.raises(SpecError, match="bigkpca ingest"):
        open_rows(tmp_path / "rows.csv")
    with pytest.raises(SpecError, match="is not a Zarr array or group"):
        open_rows(tmp_path)
    (tmp_path / "bad.npy").write_bytes(b"not an array")
    with pytest.raises(DataError, match=r"is not a \.npy file"):
        open_rows(tmp_path / "bad.npy")


def test_arrays_in_groups_are_named(tmp_path: Path) -> None:
    group = zarr.create_group(str(tmp_path / "g.zarr"))
    for name in ("first", "second"):
        group.create_array(name, data=X)
    with pytest.raises(SpecError, match=r"holds the arrays \['first', 'second'\]: name one with --array"):
        open_rows(tmp_path / "g.zarr")
    with pytest.raises(SpecError, match="holds no array 'third'"):
        open_rows(tmp_path / "g.zarr", "third")
    assert open_rows(tmp_path / "g.zarr", "second").shape == X.shape


def test_a_truncated_npy_is_corrupt(tmp_path: Path) -> None:
    path = Path(as_npy(tmp_path, X))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptionError, match="is truncated"):
        open_rows(path)


def test_a_npy_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = Path(as_npy(tmp_path, X))
    rows = open_rows(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptionError, match="ended early"):
        rows.block(0, 103)


def test_a_chunk_that_does_not_decode_is_named(tmp_path: Path) -> None:
    path = in_chunks(tmp_path)
    chunk = Path(path) / "c" / "3" / "0"
    chunk.write_bytes(b"noise")
    with pytest.raises(CorruptionError, match="rows 25 to 44 cannot be read"):
        open_rows(path).block(25, 45)


def test_a_missing_chunk_is_a_loss_where_the_fill_value_is_nan(tmp_path: Path) -> None:
    path = in_chunks(tmp_path, fill_value=np.nan)
    (Path(path) / "c" / "3" / "0").unlink()
    with pytest.raises(CorruptionError, match="1 stored chunks are gone, the first holds row 30"):
        open_rows(path)


def test_a_missing_chunk_is_the_fill_value_elsewhere(tmp_path: Path) -> None:
    path = in_chunks(tmp_path, fill_value=0.0)
    (Path(path) / "c" / "3" / "0").unlink()
    rows = open_rows(path)
    assert isinstance(rows, ZarrRows)
    assert rows.missing() == [30]
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


def test_fingerprints_tell_what_is_in_memory_apart() -> None:
    for kind in (np.asarray, lambda values: da.from_array(values, chunks=50), in_memory_zarr):
        stamps = [open_rows(kind(values)).fingerprint()["stamp"] for values in (X, X.copy(), X + 1)]
        assert stamps[0] == stamps[1] != stamps[2]


def in_memory_zarr(values: np.ndarray[Any, Any]) -> zarr.Array[Any]:
    return zarr.create_array(zarr.storage.MemoryStore(), data=values, chunks=(10, 7))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named(value: float, tmp_path: Path) -> None:
    bad = X.copy()
    bad[45, 3] = value
    rows = open_rows(as_npy(tmp_path, bad))
    name = "NaN" if np.isnan(value) else "infinity"
    with pytest.raises(DataError, match=f"row 45, column 3 is {name}"):
        list(tiles(rows, 40, 60, 8))
    with pytest.raises(DataError, match=f"row 45, column 3 is {name}"):
        take(rows, np.array([3, 45, 50]))


# Stores that are no local folder


def fsspec_store(tmp_path):
    # A store of a new name, since the memory of fsspec is one for all.
    return zarr.storage.FsspecStore.from_url(f"memory://{tmp_path.name}/{id(tmp_path)}/g")


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
        return {name: {"size": about["size"]} for name, about in (await find(*arguments, **options)).items()}

    monkeypatch.setattr(array.store.fs, "_find", without_times)
    before = open_rows(array).fingerprint()
    assert before == ArrayRows(np.ones((60, 3))).fingerprint()
    array[25] = 7.0
    assert open_rows(array).fingerprint() != before
