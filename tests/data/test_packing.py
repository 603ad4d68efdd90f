"""Packed arrays are decoded as by xarray where they are ingested; those of Zarr are left to xarray."""

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import example, given
from hypothesis import strategies as st

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.data.packing import packing_of
from bigkpca.errors import DataError, SpecError

RNG = np.random.default_rng(3)
KELVIN = (280 + 5 * RNG.normal(size=(300, 9))).round(2)
OLD = tuple(map(int, xr.__version__.split(".")[:2])) < (2025, 7)
FORMATS = [2, pytest.param(3, marks=pytest.mark.skipif(OLD, reason="this xarray reads no format 3 of this Zarr"))]
PACKED = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}


def in_xarray(path, values, zarr_format, **encoding):
    """The array sst of a dataset that xarray wrote, with these values."""
    rows = xr.DataArray(values, dims=("time", "cell"), name="sst").to_dataset()
    # Explicit chunks, since the oldest xarray passes on None, which Zarr refuses.
    encoding = {"chunks": values.shape, **encoding}
    rows.to_zarr(path, encoding={"sst": encoding}, zarr_format=zarr_format, consolidated=False)
    return f"{path}/sst"


@pytest.mark.parametrize("zarr_format", FORMATS)
def test_packed_zarr_arrays_are_left_to_xarray(tmp_path, zarr_format):
    values = np.where(KELVIN > 290, np.nan, KELVIN)
    for name, encoding in (("a", PACKED), ("b", {"dtype": "f4", "_FillValue": 1e20})):
        path = in_xarray(tmp_path / name, values, zarr_format, **encoding)
        message = r"sst is packed, by scale_factor, .* open it with xarray\.open_zarr, .* and pass the DataArray"
        for opened in (path, zarr.open_array(path, mode="r")):
            with pytest.raises(SpecError, match=message):
                open_rows(opened)
        with xr.open_zarr(tmp_path / name, consolidated=False) as found:
            np.testing.assert_allclose(open_rows(found["sst"]).block(0, 300), values, atol=0.005)
    plain = in_xarray(tmp_path / "c", values, zarr_format, dtype="f4", _FillValue=np.nan)  # as xarray does by default
    np.testing.assert_array_equal(open_rows(plain).block(0, 300), values.astype("f4"))


def test_only_fill_values_that_xarray_masks_are_packing(tmp_path):
    numbers = np.arange(1, 13, dtype="u1").reshape(4, 3)
    for zarr_format, attributes, packed in ((2, {}, 0), (2, {"_ARRAY_DIMENSIONS": ["t", "c"]}, 1), (3, {}, 0)):
        path = str(tmp_path / f"{zarr_format}{packed}.zarr")
        array = zarr.create_array(path, data=numbers, fill_value=0, zarr_format=zarr_format, attributes=attributes)
        if packed:
            with pytest.raises(SpecError, match="is packed"):
                open_rows(array)
        else:
            np.testing.assert_array_equal(open_rows(array).block(0, 4), numbers)


NUMBERS = st.sampled_from([None, 0.5, 2, -3.25])


@given(
    dtype=st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "f4", "f8"]),
    scale=NUMBERS,
    offset=NUMBERS,
    fill=st.sampled_from([None, 3, 7.0]),
    missing=st.sampled_from([None, 5, [2, 3], 1e300]),
    unsigned=st.sampled_from([None, "true", "false"]),
)
@example(dtype="f4", scale=None, offset=None, fill=None, missing=1e300, unsigned=None)
@pytest.mark.filterwarnings("ignore::xarray.SerializationWarning")  # of several fill values
def test_attributes_mean_what_they_mean_in_xarray(dtype, scale, offset, fill, missing, unsigned):
    named = {"scale_factor": scale, "add_offset": offset, "_FillValue": fill, "missing_value": missing}
    if np.dtype(dtype).kind in "iu":
        named["_Unsigned"] = unsigned
    # With an integer factor and no other, xarray rounds to integers, and fails for missing values.
    attributes = {
        key: float(value) if type(value) is int and key == "scale_factor" else value
        for key, value in named.items()
        if value is not None
    }
    numbers = np.array([[-1, 0, 1, 2], [3, 5, 7, 100]]).astype(dtype)
    packing = packing_of(attributes, numbers.dtype, "x")
    found = numbers if packing is None else packing.decode(numbers.copy())
    expected = xr.decode_cf(xr.Dataset({"x": (("t", "c"), numbers, attributes)}))["x"].values
    np.testing.assert_array_equal(found, expected)
    assert missing == 1e300 or found.dtype == expected.dtype  # integers that cannot be missing stay integers


def test_precision_follows_the_attributes_as_in_xarray():
    for factors in ((np.float32(0.5), np.float32(3)), (np.float32(0.5), 3.0), (np.float32(0.5), None)):
        for dtype in ("i2", "i4", ">i2"):
            attributes = {
                key: f for key, f in zip(("scale_factor", "add_offset"), factors, strict=True) if f is not None
            }
            numbers = np.arange(6, dtype=dtype).reshape(2, 3)
            packing = packing_of(attributes, numbers.dtype, "x")
            expected = xr.decode_cf(xr.Dataset({"x": (("t", "c"), numbers, attributes)}))["x"].values
            np.testing.assert_array_equal(packing.decode(numbers), expected)
            assert packing.dtype == expected.dtype


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {"scale_factor": "0.01"},
            r"x: its attribute scale_factor is '0\.01', not one finite number other than 0: corr",
        ),
        ({"scale_factor": 0}, "scale_factor is 0, not one finite number other than 0"),
        ({"scale_factor": [1.0, 2.0]}, r"scale_factor is \[1\.0, 2\.0\], not one finite number"),
        (
            {"add_offset": np.nan},
            "add_offset is nan, not one finite number: correct the attribute, or pass the decoded",
        ),
        ({"add_offset": None}, "add_offset is None, not one finite number"),
        ({"_FillValue": "none"}, "_FillValue is 'none', not a number"),
        ({"missing_value": ["-999"]}, r"missing_value is \['-999'\], not a number"),
        ({"_Unsigned": "yes"}, "_Unsigned is 'yes', not 'true' or 'false'"),
    ],
)
def test_attributes_that_cannot_be_used_are_named(attributes, message):
    with pytest.raises(DataError, match=message):
        packing_of(attributes, np.dtype("i2"), "x")
    with pytest.raises(DataError, match="_FillValue is 'none', not a number"):
        packing_of({"_FillValue": "none"}, np.dtype("f4"), "x")


@pytest.mark.parametrize("attribute", ["_FillValue", "missing_value"])
def test_attributes_that_name_no_number_are_ignored_as_by_xarray(attribute):
    numbers = np.float32([[1, np.nan], [3, 4]])
    for nothing in ("NaN", "nan", None, [None, "NaN"]):
        assert packing_of({attribute: nothing}, numbers.dtype, "x") is None
        assert packing_of({attribute: nothing}, np.dtype("i2"), "x") is None
    assert packing_of({attribute: ["NaN", 3]}, numbers.dtype, "x").decode(numbers)[1, 0] != 3


def test_fill_values_are_shown_as_their_dtype_writes_them():
    for dtype, fill, shown in (("f4", 9.969209968386869e36, "9.96921e+36"), ("f8", -9999.000001, "-9999.000001")):
        assert packing_of({"missing_value": fill}, np.dtype(dtype), "x").shown_fills == (shown,)


def test_labels_of_integers_stay_integers_unless_one_is_missing(tmp_path):
    def write(path, year, **attributes):
        with h5py.File(path, "w") as file:
            file["sst"], file["year"] = KELVIN, year
            file["year"].attrs.update(attributes)
        return path

    years = 2**53 + np.arange(300)
    for name, values, attributes, dtype in (
        ("a", years, {"_FillValue": -1}, "i8"),
        ("b", np.arange(300).astype("u1").view("i1"), {"_Unsigned": "true"}, "u1"),
    ):
        path = write(tmp_path / f"{name}.h5", values, **attributes)
        bigkpca.ingest(path, tmp_path / f"{name}.zarr", member="sst", labels="year")
        found = zarr.open_group(tmp_path / f"{name}.zarr")["y"]
        assert found.dtype == dtype
        np.testing.assert_array_equal(found[:], values.view(dtype))
    path = write(tmp_path / "c.h5", years, _FillValue=2**53 + 7)
    with pytest.raises(
        DataError, match=r"the labels of .*c\.h5:year: row 7, column 0 is missing, as the fill value 9007"
    ):
        bigkpca.ingest(path, tmp_path / "c.zarr", member="sst", labels="year")
    assert not (tmp_path / "c.zarr").exists()


def test_hdf5_and_netcdf4_are_decoded_by_ingest(tmp_path):
    numbers = RNG.integers(-20, 20, (30, 4, 5)).astype(">i2")
    attributes = {"scale_factor": np.array([0.5], "f4"), "add_offset": np.array([3], "f4"), "_FillValue": np.int16(99)}
    with h5py.File(tmp_path / "x.nc", "w") as file:
        file["sst"] = numbers
        file["sst"].attrs.update(attributes)
        file["day"] = np.arange(30, dtype="i2")
        file["day"].attrs["scale_factor"] = 2.0
    bigkpca.ingest(tmp_path / "x.nc", tmp_path / "x.zarr", member="sst", labels="day")
    found = zarr.open_group(tmp_path / "x.zarr")
    expected = numbers.astype("f4") * np.float32(0.5) + 3
    np.testing.assert_array_equal(found["x"][:], expected.reshape(30, 20))
    assert found["x"].dtype == np.float32
    np.testing.assert_array_equal(found["y"][:], 2.0 * np.arange(30))
    with h5py.File(tmp_path / "x.nc", "r+") as file:
        file["sst"][3, 2, 1] = 99
    with pytest.raises(DataError, match=r"x\.nc:sst: row 3, column 11 is missing, as the fill value 99 or as NaN"):
        bigkpca.ingest(tmp_path / "x.nc", tmp_path / "y.zarr", member="sst")
    assert not (tmp_path / "y.zarr").exists()
