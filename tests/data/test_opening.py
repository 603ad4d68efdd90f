"""Every kind of input becomes the same rows; nonsense is named."""

import errno
import hashlib
import os
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import dask
import dask.array as da
import dask.dataframe as dd
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix

from bigkpca import KernelPCA
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows, OneHot, take, tiles
from bigkpca.data.stores import LocalDisk
from bigkpca.errors import CorruptionError, DataError, IncompleteError, SpecError
from bigkpca.ingesting import ingest
from tests.data.cases import case, refused
from tests.helpers.lazy import refuse
from tests.helpers.stores import as_npy, as_zarr

X = np.random.default_rng(0).normal(size=(103, 7))
X[X < -0.5] = 0


def in_chunks(folder, **options):
    return as_zarr(folder, X, **{"chunks": (10, 4), "zarr_format": 3} | options)


def as_group(folder, name):
    path = str(folder / "group.zarr")
    zarr.create_group(path).create_array(name, data=X, chunks=(10, 7))
    return path


def in_memory_zarr(values):
    return zarr.create_array(zarr.storage.MemoryStore(), data=values, chunks=(10, 7))


KINDS = {
    "numpy": lambda folder: X,
    "list": lambda folder: X.tolist(),
    "pandas": lambda folder: pd.DataFrame(X),
    "polars": lambda folder: pl.DataFrame(X),
    "dask": lambda folder: da.from_array(X, chunks=(17, 3)),
    "sparse": lambda folder: csr_array(X),
    "sparse chunks": lambda folder: da.from_array(X, chunks=(17, 7)).map_blocks(csr_matrix),
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
def test_every_kind_gives_the_same_rows(kind, tmp_path):
    rows = open_rows(KINDS[kind](tmp_path))
    assert rows.shape == X.shape
    assert rows.dtype == np.float64
    assert rows.names == (tuple(f"column_{j}" for j in range(7)) if kind == "polars" else None)  # as polars calls them
    for start, stop in ((0, 103), (0, 1), (20, 55), (102, 103)):
        np.testing.assert_array_equal(rows.block(start, stop), X[start:stop])
        part = rows.part(start, stop)  # which counts its rows as the whole does
        part = part.compute(scheduler="synchronous") if hasattr(part, "compute") else part
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(part)).block(start, stop), X[start:stop])
        np.testing.assert_array_equal(part.block(stop - 1, stop), X[stop - 1 : stop])
    numbers = np.array([0, 1, 9, 10, 33, 34, 101, 102])
    np.testing.assert_array_equal(take(rows, numbers), X[numbers])


@given(start=st.integers(0, 10), length=st.integers(1, 93), height=st.integers(1, 50))
def test_tiles_cover_a_range_in_fixed_steps(start, length, height):
    rows = ArrayRows(X)
    digest = hashlib.sha256()
    found = [tile.copy() for tile in tiles(rows, start, start + length, height, digest)]
    np.testing.assert_array_equal(np.concatenate(found), X[start : start + length])
    assert {len(tile) for tile in found[:-1]} <= {height}
    assert digest.hexdigest() == hashlib.sha256(X[start : start + length].tobytes()).hexdigest()


@pytest.mark.parametrize("most_rows", [3, 30])
def test_tiles_do_not_depend_on_storage_and_are_no_copies_of_rows_in_memory(most_rows, tmp_path, monkeypatch):
    monkeypatch.setattr("bigkpca.data.rows.READ_BYTES", most_rows * 7 * 8)
    found = list(tiles(ArrayRows(X), 10, 103, 16))
    assert [len(tile) for tile in found] == [16] * 5 + [13]
    assert all(np.shares_memory(tile, X) for tile in found)
    for ours, plain in zip(tiles(open_rows(in_chunks(tmp_path)), 10, 103, 16), found, strict=True):
        np.testing.assert_array_equal(ours, plain)


def test_npy_files_that_are_lost_or_damaged_or_change_are_named(tmp_path, monkeypatch):
    path = Path(as_npy(tmp_path, X))
    rows, content = open_rows(path), path.read_bytes()

    def block_after(code):
        error = OSError(code, os.strerror(code), str(path))
        with monkeypatch.context() as patch:
            patch.setattr(LocalDisk, "open", Mock(side_effect=error))
            rows.block(0, 5)

    refused(
        block_after,
        (errno.EIO, IncompleteError, "stored.npy: Input/output error; run the same command again when it is reachable"),
        (errno.EACCES, SpecError, "stored.npy: Permission denied: this user needs permission to read it"),
    )
    for left, kind, message in (
        (content[:-1], CorruptionError, r"stored\.npy is truncated: \d+ bytes are needed"),
        (b"", CorruptionError, r"stored\.npy is empty; restore it"),
        (b"not an array", DataError, r"stored\.npy is not a \.npy file"),
        (content.replace(b"(103, 7)", b"(-1, 7) "), DataError, r"is not a \.npy file: its shape is \(-1, 7\)"),
        (content.replace(b"(103, 7), ", b"(103,7,1),"), DataError, r"has shape \(103, 7, 1\): .* bigkpca ingest .*npy"),
    ):
        path.write_bytes(left)
        refused(rows.block, (0, 103, IncompleteError, "changed while it was being read"))
        refused(open_rows, (path, kind, message))
    path.write_bytes(content)
    rows = open_rows(path)
    short = replace(rows, stamp=rows.stamp, data_start=rows.data_start + 8)  # as if it were truncated meanwhile
    refused(short.block, (100, 103, IncompleteError, "changed while it was being read"))
    path.unlink()
    refused(rows.block, (0, 103, CorruptionError, r"stored\.npy is missing; restore it"))
    before = open_rows(as_npy(tmp_path, X)).fingerprint()
    assert open_rows(path).fingerprint() == before != open_rows(as_npy(tmp_path, X + 1)).fingerprint()


SERIES = xr.Dataset({"u": ("t", [1.0]), "v": ("t", [2.0])})
MAP = xr.Dataset({"u": (("y", "x"), [[1.0]])})


def test_what_cannot_be_rows_is_refused(tmp_path):
    group, empty = zarr.create_group(str(tmp_path / "g.zarr")), zarr.create_group({})
    for name in ("second", "first"):
        group.create_array(name, data=X)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        stored = file.create_dataset("x", data=X)
        advice = SpecError, r"as dask\.array\.from_array\(dataset\) or, .*xarray\.open_data"
        refused(KernelPCA(1).fit, (file, *advice), (stored, *advice))
        np.testing.assert_array_equal(open_rows(da.from_array(stored)).block(20, 50), X[20:50])
    anndata = SimpleNamespace(X=X, obs=0, var=0)
    refused(
        open_rows,
        (np.zeros(5), DataError, r"shape \(5,\): rows must be two-dimensional"),
        (np.zeros((2, 3, 4)), DataError, "two-dimensional"),
        (np.zeros((0, 4)), DataError, r"the array is empty: shape \(0, 4\)"),
        (np.zeros((4, 0)), DataError, "is empty"),
        (np.array([["a", "b"]]), DataError, r"contains the text 'a' at \[0, 0\] \(counted from 0\): rows must be num"),
        (np.zeros((2, 2), object), DataError, "holds object values"),
        ([[1.0], [1.0, 2.0]], DataError, "do not form an array, since they differ in length or are not numbers"),
        (np.zeros((2, 2), complex), DataError, "holds complex128 values"),
        (pl.LazyFrame({"a": [1.0]}), SpecError, r"a LazyFrame has no rows yet: pass the result of its collect\(\)"),
        (da.zeros(4), DataError, "two-dimensional"),
        (anndata, SpecError, r"an AnnData object .* matrices: pass one, as in X\.X or X\.lay"),
        (SERIES, SpecError, r"arrays: pass one, as in X\['u'\], .* X\.to_array\('variable'\)\.transpose\('t', 'v"),
        (MAP, SpecError, r"X\.to_array\('variable'\)\.stack\(row=\['y', 'x'\]\)\.transpose\('row', 'variable'\)"),
        (xr.DataArray(np.zeros((5, 2, 3)), dims=("t", "y", "x")), DataError, r"X\.stack\(feature=\['y', 'x'\]\)"),
        (xr.DataArray(np.zeros(5), dims="t"), DataError, r"one column is X\.expand_dims\('feature', axis=1\)"),
        ("nowhere.zarr", SpecError, "nowhere.zarr does not exist"),
        (group, SpecError, r"g\.zarr is a Zarr group of the arrays \['first', 'second'\], .* as in group\['first'\]"),
        (empty, SpecError, r"the data is a Zarr group of the arrays \[\], but rows must be one array: pass an array"),
        (["a.npy", "b.npy"], SpecError, r"a list of paths \('a\.npy', \.\.\.\): .* ingest FILE FILE .* --append adds"),
        ((Path("a.npy"),), SpecError, r"one path, not a list of paths \('a\.npy'"),
    )


def test_rows_of_unknown_chunk_sizes_are_counted_or_refused_before_a_pass_and_the_array_stays_as_it_was():
    lazy = da.from_array(X, chunks=(10, 4))
    some = lazy[lazy[:, 0] > 0]
    rows = open_rows(some)
    assert np.isnan(some.shape[0])
    assert rows.shape == (np.count_nonzero(X[:, 0] > 0), 7)
    np.testing.assert_array_equal(rows.block(5, 30), X[X[:, 0] > 0][5:30])
    known = some.copy().compute_chunk_sizes()
    assert rows.chunk == open_rows(known).chunk
    assert rows.fingerprint() == open_rows(known).fingerprint()
    message = r"unknown number of columns, as after X\[:, mask\]: call compute_chunk_sizes"
    with dask.config.set(scheduler=refuse):
        refused(open_rows, (lazy[:, lazy[0] > 0], SpecError, message))
        refused(open_rows, (some + 1j, DataError, "the dask array holds complex128 values"))
    refused(open_rows, (lazy[lazy[:, 0] > 1e9], DataError, r"the dask array is empty: shape \(0, 7\)"))


def test_partitions_of_files_are_counted_as_they_are_read(tmp_path):
    for number in range(6):  # of few columns Dask reads several files at once
        some = pd.DataFrame(np.random.default_rng(number).normal(size=(10 + number, 12)))
        some.rename(columns=str).to_parquet(tmp_path / f"{number}.parquet")
    for filesystem in ("fsspec", "arrow"):
        frame = dd.read_parquet(tmp_path, filesystem=filesystem)
        for table in (frame, frame[["0", "7"]]):
            expected = table.compute().to_numpy()
            assert len(expected) == 75
            rows = open_rows(table)
            np.testing.assert_array_equal(rows.block(0, 75), expected)
            assert rows.names == tuple(table.columns)


def test_paths_that_are_no_rows(tmp_path):
    (tmp_path / "rows.csv").write_text("1,2\n")
    for name in ("n.zarr.partial", "broken.zarr", "g.zarr/torn"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "zarr.json").write_text("{")
    as_npy(tmp_path, X, "a.npy")
    for group in ("g.zarr", "h.zarr"):
        for name in ("first", "second"):
            zarr.open_group(str(tmp_path / group)).create_array(name, data=X)
    refused(
        lambda name, array: open_rows(tmp_path / name, array),
        ("rows.csv", None, SpecError, "bigkpca ingest"),
        (".", None, SpecError, "is not a Zarr array or group"),
        ("n.zarr", None, IncompleteError, r"n\.zarr is not finished: run the command that makes it again"),
        ("broken.zarr", None, CorruptionError, r"broken\.zarr cannot be read .*; restore it"),
        ("g.zarr", "torn", CorruptionError, r"g\.zarr/torn is not an array that can be read .*; restore it"),
        ("h.zarr", None, SpecError, r"contains the arrays \['first', 'second'\]: pass the path of one, as in "),
        ("h.zarr", "third", SpecError, r"does not contain an array 'third', but \['first', 'second'\]"),
        ("g.zarr", None, CorruptionError, r"g\.zarr contains an array that cannot be read .*; restore it"),
    )
    assert open_rows(tmp_path / "g.zarr/second").shape == X.shape  # beside one that is damaged


def test_files_that_other_libraries_open_are_refused_with_the_line_that_does(tmp_path):
    with zarr.storage.ZipStore(tmp_path / "x.zarr.zip", mode="w") as store:
        zarr.create_group(store).create_array("NAME", data=X, chunks=(10, 7))
    xr.Dataset({"NAME": (("t", "c"), X)}).to_netcdf(tmp_path / "x.nc", engine="scipy")  # netCDF 3
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["NAME"] = X
    for name, start in (("x.zarr.zip", "zarr.open("), ("x.nc", "xarray.open_data"), ("x.h5", "dask.array.from_array(")):
        with pytest.raises(SpecError, match=f"{name} is a file: pass an array in it, as in ") as raised:
            open_rows(tmp_path / name)
        line = str(raised.value).partition("as in ")[2]
        assert line.startswith(start)
        rows = eval(line, {"zarr": zarr, "xarray": xr, "h5py": h5py, "dask": dask})
        np.testing.assert_array_equal(open_rows(rows).block(0, 103), X)


def test_the_group_of_a_dataset_is_read_as_its_path(tmp_path):
    made = ingest(as_npy(tmp_path, X), tmp_path / "d.zarr").path
    found = open_rows(zarr.open_group(made))
    assert found.fingerprint() == open_rows(made).fingerprint()
    np.testing.assert_array_equal(found.block(0, 103), X)
    assert isinstance(KernelPCA(1, size=20).fit(made).transform(zarr.open_group(made)), da.Array)


def test_rows_of_a_dataset_know_its_columns_of_categories_unless_their_record_is_damaged(tmp_path):
    (tmp_path / "t.csv").write_text("a,kind,b,other\n1,u,2,x\n3,v,4,x\n5,w,6,y\n")
    made = ingest(tmp_path / "t.csv", tmp_path / "t.zarr", categorical=["kind", "other"]).path
    rows = open_rows(made)
    assert rows.one_hot == (OneHot("kind", 1, 4), OneHot("other", 5, 7))
    names = [rows.names[each.columns] for each in rows.one_hot]
    assert names == [("kind=u", "kind=v", "kind=w"), ("other=x", "other=y")]
    assert pickle.loads(pickle.dumps(rows)).one_hot == rows.one_hot
    assert rows.part(0, 2).one_hot == ()  # which tasks do not need
    group = zarr.open_group(made)
    for other in (X, group["x"], da.ones((3, 7)), as_npy(tmp_path, X)):
        assert open_rows(other).one_hot == ()
    about = group.attrs["bigkpca"]
    category = {"name": "a", "kind": "category", "categories": 3, "length": 1}
    for columns in ([], [{"kind": "number"}], "text", None, [category]):
        group.attrs["bigkpca"] = {**about, "encoding": {**about["encoding"], "columns": columns}}
        message = "its encoding of columns is damaged" if columns != [] else "describes 0 columns, and has 7"
        with case(columns):
            refused(open_rows, (made, CorruptionError, f"{message}; ingest it again"))


def test_fingerprints_tell_what_is_in_memory_apart():
    for kind in (np.asarray, csr_array, lambda values: da.from_array(values, chunks=50), in_memory_zarr):
        stamps = [open_rows(kind(values)).fingerprint()["stamp"] for values in (X, X.copy(), 2 * X)]
        assert stamps[0] == stamps[1] != stamps[2]
