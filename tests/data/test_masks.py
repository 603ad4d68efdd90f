"""Masked entries, fill values and packed numbers are refused in a sentence whose advice gives the right rows."""

import sys
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

from bigkpca import KernelPCA
from bigkpca.data.opening import open_rows
from bigkpca.errors import DataError, SpecError
from tests.data.cases import case

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
    for name, rows, error, message in (
        ("NumPy", MASKED, DataError, r"values of the array are masked: numpy\.ma\.compress_rows\(X\) leaves out"),
        ("Dask", lazy, DataError, OF_DASK),
        ("netCDF4", Variable(), SpecError, r"pass xarray\.open_dataset\('sst\.nc'\)\['sst'\], where they are NaN"),
        ("Dask over netCDF4", da.from_array(Variable(), chunks=(100, 5)), DataError, OF_DASK),
    ):
        for use in (open_rows, KernelPCA(2).fit):
            with case(name), pytest.raises(error, match=message):
                use(rows)
    # Newer versions of xarray make NaN of masked values.
    with pytest.raises(DataError, match=f"row 0, column 0 is NaN|{OF_DASK}"):
        KernelPCA(2).fit(xr.DataArray(lazy, dims=("t", "x")))
    filled = da.ma.filled(lazy.astype(float), np.nan)
    for rows in (X[60:], np.ma.compress_rows(MASKED), filled[~da.isnan(filled).any(axis=1)], np.ma.array(X[60:])):
        np.testing.assert_array_equal(eigenvalues(rows), RIGHT)


@pytest.mark.parametrize("columns", [5, 2])  # chunks of all columns, and chunks that Dask joins
def test_chunks_that_turn_out_to_be_masked_are_refused(columns):
    late = da.from_array(X, chunks=(100, columns)).map_blocks(
        np.ma.masked_equal, -999.0, dtype=float, meta=np.empty((0, 0))
    )
    kpca = KernelPCA(2, size=200, random_state=0).fit(X[60:])
    for compute in (
        lambda: open_rows(late).block(40, 220),
        lambda: KernelPCA(2).fit(late),
        lambda: kpca.transform(late).compute(scheduler="synchronous"),
    ):
        with pytest.raises(DataError, match=OF_DASK):
            compute()
    np.testing.assert_array_equal(open_rows(late).block(60, 220), X[60:220])
    np.testing.assert_array_equal(eigenvalues(late[60:]), RIGHT)


@pytest.mark.parametrize("name", ["_FillValue", "missing_value"])
@pytest.mark.parametrize("lazy", [False, True])
def test_fill_values_of_a_data_array_are_refused(name, lazy):
    rows = xr.DataArray(da.from_array(X, chunks=100) if lazy else X, dims=("t", "x"), attrs={name: -999.0})
    line = rf"X\.where\(X != -999\.0\)\.assign_attrs\({name}=numpy\.nan\) .* dropna\('t'\) leaves"
    message = rf"has the attribute {name}=-999\.0, .* {line}"
    for use in (open_rows, KernelPCA(2).fit, KernelPCA(2, size=50).fit(X[60:]).transform):
        with pytest.raises(DataError, match=message):
            use(rows)
    np.testing.assert_array_equal(
        eigenvalues(rows.where(rows != -999.0).assign_attrs({name: np.nan}).dropna("t")), RIGHT
    )
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
            with pytest.raises(DataError, match=f"its numbers are packed, or some mean missing; pass {line}"):
                open_rows(opened)
        with pytest.raises(DataError, match=line):
            open_rows(tmp_path / name, "sst")
        with xr.open_zarr(tmp_path / name, consolidated=False) as found:
            np.testing.assert_array_equal(eigenvalues(found["sst"].dropna("time").astype(float)), RIGHT)
    rows = xr.DataArray(X[60:], dims=("time", "cell"), name="sst").to_dataset()
    encoding = {"sst": {"chunks": X[60:].shape}}  # and a fill value of NaN, as by default
    rows.to_zarr(tmp_path / "c", encoding=encoding, zarr_format=zarr_format, consolidated=False)
    np.testing.assert_array_equal(eigenvalues(str(tmp_path / "c" / "sst")), RIGHT)


def test_attributes_of_fill_values(tmp_path):
    numbers = np.arange(1, 13, dtype="u1").reshape(4, 3)
    for number, (zarr_format, attributes, refused) in enumerate(
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
            if refused:
                with pytest.raises(DataError, match="its numbers are packed, or some mean missing"):
                    open_rows(array)
            else:
                np.testing.assert_array_equal(open_rows(array).block(0, 4), numbers)
