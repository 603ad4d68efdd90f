"""Columns of frames that are numbers or not; masked entries, fill values and packed numbers, which are refused in a
sentence whose advice gives the right rows."""

import sys
from datetime import datetime
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr
import zarr

from bigkpca import KernelPCA
from bigkpca.data.opening import open_rows
from bigkpca.errors import DataError, SpecError
from tests.data.cases import case, refused

DAY = datetime(2020, 1, 1)


def frame_of(**columns):
    """A frame of the library that the last column is of."""
    of_pandas = isinstance([*columns.values()][-1], pd.Series)
    return (pd.DataFrame if of_pandas else pl.DataFrame)(columns)


def test_columns_that_are_no_numbers_are_named():
    for name, column in (
        ("datetime64", pd.Series([DAY, DAY])),
        ("datetime64", pd.Series([DAY, DAY]).dt.tz_localize("UTC")),
        ("timedelta64", pd.Series([DAY, DAY]) - DAY),
        ("category", pd.Series(["u", "v"], dtype="category")),
        ("object", pd.Series(["u", 2.0], dtype=object)),
        ("complex128", pd.Series([1j, 2j])),
        ("object", pd.Series([np.zeros(3), np.ones(3)])),
        ("List", pl.Series([[1.0, 2.0], [2.0, 3.0]])),
        ("period", pd.Series(pd.period_range("2020", periods=2, freq="D"))),
        ("timestamp", pd.Series([DAY, DAY], dtype="timestamp[ns][pyarrow]")),
        ("string", pd.Series(["u", "v"], dtype="string[pyarrow]")),
        ("Datetime", pl.Series([DAY, DAY])),
        ("Date", pl.Series([DAY.date(), DAY.date()])),
        ("Duration", pl.Series([DAY - DAY, DAY - DAY])),
        ("String", pl.Series(["u", "v"])),
        ("Categorical", pl.Series(["u", "v"], dtype=pl.Categorical)),
        ("Struct", pl.Series([{"a": 1}, {"a": 2}])),
        ("Enum", pl.Series(["u", "v"], dtype=pl.Enum(["u", "v"]))),
    ):
        for number, data in ((0, frame_of(t=column)), (1, frame_of(a=[1.0, 2.0], t=column))):
            message = rf"the frame contains .*{name}.* values in column {number} \('t'\): rows must be real numbers"
            for use in (open_rows, KernelPCA(1).fit):
                refused(use, (data, DataError, message))


def test_all_columns_that_are_no_numbers_are_named_with_what_to_do():
    columns = {"a": [1.0, 2.0], "w": ["u", "v"], "t": [DAY, DAY]}
    places = r"\w+.* values in column 1 \('w'\), \w+.* values in column 2 \('t'\): rows must be"
    advice = r"ColumnTransformer, .*numpy\.stack\(column\), or .*bigkpca\.ingest\(frame, .*categorical=\[\.\.\.\]\)"
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)):
        refused(KernelPCA(1).fit, (frame, DataError, rf"the frame contains {places}.*{advice}"))
    many = pd.DataFrame({f"w{number}": ["u", "v"] for number in range(8)})
    message = r"in column 4 \('w4'\), and in 3 more columns: rows must be"
    refused(KernelPCA(1).fit, (many, DataError, message))


def test_columns_that_are_numbers_are_rows_however_they_are_kept():
    for column in (
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
    ):
        with case(column.dtype):
            rows = open_rows(frame_of(a=[0.5, 0.25], b=column))
            np.testing.assert_array_equal(rows.block(0, 2), [[0.5, 1], [0.25, 0]])
            assert rows.dtype == np.float64


def test_values_that_a_frame_misses_are_nan_and_their_column_is_named():
    for series, kinds in (
        (pd.Series, ["Int64", "boolean", "category", "int64[pyarrow]", "bool[pyarrow]", object]),
        (pl.Series, [pl.Int64, pl.Boolean, pl.Decimal(10, 2)]),
    ):
        for kind in kinds:
            column = series([True if "bool" in str(kind).lower() else 1, None], dtype=kind)
            with case(kind):
                frame = frame_of(a=[0.5, 0.25], b=column)
                assert np.isnan(open_rows(frame).block(0, 2)[1, 1])
                refused(KernelPCA(1).fit, (frame, DataError, r"row 1, column 1 \('b'\) is NaN"))


def test_frames_of_polars_keep_their_precision_in_an_estimator():
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    plain = KernelPCA(2, size=20, random_state=0).fit(X)
    kpca = KernelPCA(2, size=20, random_state=0).fit(pl.DataFrame(X, schema=list("abc")))
    assert list(kpca.feature_names_in_) == list("abc")
    assert kpca.model_.features.dtype == np.float32
    np.testing.assert_array_equal(kpca.eigenvalues_, plain.eigenvalues_)
    message = "feature names should match those that were passed during fit"
    refused(kpca.transform, (pl.DataFrame(X, schema=list("abz")), ValueError, message))


X = np.random.default_rng(0).normal(100, 10, (400, 5))
X[:60] = -999.0
MASKED = np.ma.masked_equal(X, -999.0)
RIGHT = [27.4, 23.9]


def eigenvalues(rows):
    return KernelPCA(2, size=200, random_state=0).fit(rows).eigenvalues_.round(1)


class Variable:
    """A variable of netCDF4, as far as Dask and bigkpca look at it: it masks what it reads."""

    shape, dtype, ndim, name = X.shape, X.dtype, 2, "sst"

    def __getitem__(self, place):
        return MASKED[place]

    def group(self):
        return SimpleNamespace(filepath=lambda: "sst.nc")


OF_DASK = r"dask array are masked: dask\.array\.ma\.filled\(X\.astype\(float\), numpy\.nan\) makes them NaN, and X\["


def test_masked_entries_are_refused_with_a_line_that_leaves_out_their_rows(monkeypatch):
    monkeypatch.setitem(sys.modules, "netCDF4", SimpleNamespace(Variable=Variable))
    lazy = da.from_array(MASKED, chunks=(100, 5))
    for use in (open_rows, KernelPCA(2).fit):
        refused(
            use,
            (MASKED, DataError, r"values of the array are masked: numpy\.ma\.compress_rows\(X\) leaves out"),
            (lazy, DataError, OF_DASK),
            (Variable(), SpecError, r"pass xarray\.open_dataset\('sst\.nc'\)\['sst'\], where they are NaN"),
            (da.from_array(Variable(), chunks=(100, 5)), DataError, OF_DASK),
        )
    # Newer versions of xarray make NaN of masked values.
    of_xarray = xr.DataArray(lazy, dims=("t", "x"))
    refused(KernelPCA(2).fit, (of_xarray, DataError, f"row 0, column 0 is NaN|{OF_DASK}"))
    filled = da.ma.filled(lazy.astype(float), np.nan)
    for rows in (X[60:], np.ma.compress_rows(MASKED), filled[~da.isnan(filled).any(axis=1)], np.ma.array(X[60:])):
        np.testing.assert_array_equal(eigenvalues(rows), RIGHT)


@pytest.mark.parametrize("columns", [5, 2])  # chunks of all columns, and chunks that Dask joins
def test_chunks_that_turn_out_to_be_masked_are_refused(columns):
    known = da.from_array(X, chunks=(100, columns))
    late = known.map_blocks(np.ma.masked_equal, -999.0, dtype=float, meta=np.empty((0, 0)))
    kpca = KernelPCA(2, size=200, random_state=0).fit(X[60:])
    refused(open_rows(late).block, (40, 220, DataError, OF_DASK))
    refused(KernelPCA(2).fit, (late, DataError, OF_DASK))
    refused(kpca.transform(late).compute, (DataError, OF_DASK))
    np.testing.assert_array_equal(open_rows(late).block(60, 220), X[60:220])
    np.testing.assert_array_equal(eigenvalues(late[60:]), RIGHT)


@pytest.mark.parametrize("name", ["_FillValue", "missing_value"])
@pytest.mark.parametrize("lazy", [False, True])
def test_fill_values_of_a_data_array_are_refused(name, lazy):
    rows = xr.DataArray(da.from_array(X, chunks=100) if lazy else X, dims=("t", "x"), attrs={name: -999.0})
    line = rf"X\.where\(X != -999\.0\)\.assign_attrs\({name}=numpy\.nan\) .* dropna\('t'\) leaves"
    message = rf"has the attribute {name}=-999\.0, .* {line}"
    for use in (open_rows, KernelPCA(2).fit, KernelPCA(2, size=50).fit(X[60:]).transform):
        refused(use, (rows, DataError, message))
    kept = rows.where(rows != -999.0).assign_attrs({name: np.nan}).dropna("t")
    np.testing.assert_array_equal(eigenvalues(kept), RIGHT)
    np.testing.assert_array_equal(eigenvalues(rows[60:].assign_attrs({name: np.float32(np.nan)})), RIGHT)


PACKED = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 100.0, "_FillValue": -32768}
OLD = tuple(map(int, xr.__version__.split(".")[:2])) < (2025, 7)
FORMATS = [2, pytest.param(3, marks=pytest.mark.skipif(OLD, reason="this xarray reads no format 3 of this Zarr"))]


@pytest.mark.parametrize("zarr_format", FORMATS)
def test_packed_zarr_arrays_are_left_to_xarray(tmp_path, zarr_format):
    values = MASKED.filled(np.nan)
    for name, encoding in (("a", PACKED), ("b", {"dtype": "f4", "_FillValue": 1e20})):
        rows = xr.DataArray(values, dims=("time", "cell"), name="sst").to_dataset()
        encoding = {"sst": {"chunks": values.shape, **encoding}}
        rows.to_zarr(tmp_path / name, encoding=encoding, zarr_format=zarr_format, consolidated=False)
        line = rf"xarray\.open_zarr\('{tmp_path / name}'\)\['sst'\], which decodes them, and leave out"
        for opened in (f"{tmp_path / name}/sst", zarr.open_group(tmp_path / name, mode="r")["sst"]):
            refused(open_rows, (opened, DataError, f"its numbers are packed, or some mean missing; pass {line}"))
        refused(open_rows, (tmp_path / name, "sst", DataError, line))
        with xr.open_zarr(tmp_path / name, consolidated=False) as found:
            np.testing.assert_array_equal(eigenvalues(found["sst"].dropna("time").astype(float)), RIGHT)
    rows = xr.DataArray(X[60:], dims=("time", "cell"), name="sst").to_dataset()
    encoding = {"sst": {"chunks": X[60:].shape}}  # and a fill value of NaN, as by default
    rows.to_zarr(tmp_path / "c", encoding=encoding, zarr_format=zarr_format, consolidated=False)
    np.testing.assert_array_equal(eigenvalues(str(tmp_path / "c" / "sst")), RIGHT)


def test_attributes_of_fill_values(tmp_path):
    numbers = np.arange(1, 13, dtype="u1").reshape(4, 3)
    for number, (zarr_format, attributes, packed) in enumerate(
        (
            (2, {}, False),
            (3, {}, False),
            (2, {"_ARRAY_DIMENSIONS": ["t", "c"]}, True),  # where xarray masks Zarr's own fill value
            (3, {"_FillValue": "NaN"}, False),
            (3, {"missing_value": [None, "nan"]}, False),
            (3, {"missing_value": ["NaN", 3]}, True),
            (3, {"_Unsigned": "true"}, True),
            (3, {"add_offset": 1}, True),
        )
    ):
        path = str(tmp_path / f"{number}.zarr")
        array = zarr.create_array(path, data=numbers, fill_value=0, zarr_format=zarr_format, attributes=attributes)
        with case(attributes):
            if packed:
                refused(open_rows, (array, DataError, "its numbers are packed, or some mean missing"))
            else:
                np.testing.assert_array_equal(open_rows(array).block(0, 4), numbers)
