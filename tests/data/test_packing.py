"""Packed arrays are decoded as by xarray wherever they are opened, and their fill values are missing values."""

import json

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
from bigkpca.errors import DataError
from bigkpca.storage.describe import info

RNG = np.random.default_rng(3)
KELVIN = (280 + 5 * RNG.normal(size=(300, 9))).round(2)
OLD = tuple(map(int, xr.__version__.split(".")[:2])) < (2025, 7)
FORMATS = [2, pytest.param(3, marks=pytest.mark.skipif(OLD, reason="this xarray reads no format 3 of this Zarr"))]
PACKED = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}


def in_xarray(path, values=KELVIN, zarr_format=2, **encoding):
    """The array sst of a dataset that xarray wrote, with these values."""
    rows = xr.DataArray(values, dims=("time", "cell"), name="sst").to_dataset()
    # Explicit chunks, since the oldest xarray passes on None, which Zarr refuses.
    encoding = PACKED | {"chunks": values.shape} | encoding
    rows.to_zarr(path, encoding={"sst": encoding}, zarr_format=zarr_format, consolidated=False)
    return f"{path}/sst"


def by_xarray(path):
    group, _, name = path.rpartition("/")
    with xr.open_zarr(group, consolidated=False, mask_and_scale=True, chunks=None) as found:
        return found[name].values


@pytest.mark.parametrize("zarr_format", FORMATS)
@pytest.mark.parametrize("encoding", [{}, {"dtype": "i4"}, {"dtype": "u1", "_FillValue": 255}])
def test_what_xarray_writes_is_read_as_by_xarray(tmp_path, zarr_format, encoding):
    path = in_xarray(tmp_path / "a.zarr", zarr_format=zarr_format, **encoding)
    rows, expected = open_rows(path), by_xarray(path)
    assert rows.dtype == expected.dtype == np.float64
    np.testing.assert_array_equal(rows.block(40, 200, slice(2, 7)), expected[40:200, 2:7])
    np.testing.assert_array_equal(open_rows(zarr.open_array(path, mode="r")).block(0, 300), expected)
    part = rows.part(64, 128).block(70, 80)  # in a task
    np.testing.assert_array_equal(part, expected[70:80])


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_fill_values_of_floats_are_read_as_by_xarray(tmp_path, zarr_format):
    values = np.where(KELVIN > 285, np.nan, KELVIN).astype("f4")
    for fill in (np.nan, 1e20):
        rows = xr.DataArray(values, dims=("time", "cell"), name="sst").to_dataset()
        encoding = {"sst": {"_FillValue": fill, "chunks": values.shape}}
        rows.to_zarr(tmp_path / f"{fill}", encoding=encoding, zarr_format=zarr_format, consolidated=False)
        found = open_rows(zarr.open_array(tmp_path / f"{fill}" / "sst", mode="r"))
        np.testing.assert_array_equal(found.block(0, 300), values)
        assert found.dtype == np.float32


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


def test_a_fill_value_is_a_missing_value(tmp_path):
    holes = np.where(RNG.random(KELVIN.shape) < 0.1, np.nan, KELVIN)
    holes[:6] = KELVIN[:6]
    row, column = np.argwhere(np.isnan(holes))[0]
    for zarr_format in (2, 3):
        path = in_xarray(tmp_path / f"{zarr_format}.zarr", holes, zarr_format)
        where = rf"sst: row {row}, column {column} is missing, as the fill value -32768 or as NaN"
        for call in (bigkpca.fit, bigkpca.sigma):
            with pytest.raises(DataError, match=where + r" \(both counted from 0\); .* the DataArray that dropna or"):
                call(path, *[tmp_path / "m.zarr"] * (call is bigkpca.fit))
        assert not (tmp_path / "m.zarr").exists()
        with pytest.raises(DataError, match="is missing"):
            bigkpca.KernelPCA(2).fit_transform(path).compute()


def test_only_fill_values_that_xarray_masks_are_missing(tmp_path):
    numbers = np.arange(12, dtype="u1").reshape(4, 3)
    for zarr_format, attributes, masked in ((2, {}, 0), (2, {"_ARRAY_DIMENSIONS": ["t", "c"]}, 1), (3, {}, 0)):
        path = str(tmp_path / f"{zarr_format}{masked}.zarr")
        array = zarr.create_array(path, data=numbers, fill_value=0, zarr_format=zarr_format, attributes=attributes)
        rows = open_rows(array)
        assert rows.dtype == (np.float32 if masked else np.uint8)
        assert np.isnan(rows.block(0, 4).astype(float)).sum() == masked


def test_models_and_scores_are_those_of_the_decoded_rows(tmp_path):
    path = in_xarray(tmp_path / "a.zarr")
    decoded = by_xarray(path)
    model = bigkpca.fit(path, tmp_path / "m.zarr", n_components=3, size=50)
    same = bigkpca.KernelPCA(3, size=50, random_state=0).fit(decoded)
    np.testing.assert_array_equal(model.solution.eigenvalues, same.eigenvalues_)
    scores = bigkpca.transform(model, path, tmp_path / "s.zarr")
    np.testing.assert_array_equal(scores[:], same.transform(decoded))
    assert bigkpca.plan(path, n_components=3).bytes_read == bigkpca.plan(decoded, n_components=3).bytes_read
    facts = info(path)
    assert (facts["dtype"], facts["stored_dtype"]) == ("float64", "int16")
    assert "stored_dtype" not in info(str(tmp_path / "s.zarr" / "scores"))


def test_other_attributes_are_other_rows(tmp_path):
    path = in_xarray(tmp_path / "a.zarr")
    before = open_rows(path)
    blocks = [bigkpca.data.blocks.Block(0, 0, 300)]
    file = tmp_path / "a.zarr" / "sst" / ".zattrs"
    attributes = json.loads(file.read_text())
    file.write_text(json.dumps(attributes | {"scale_factor": 0.02}))
    after = open_rows(path)
    assert after.fingerprint()["stamp"] != before.fingerprint()["stamp"]
    assert after.stamps(blocks) != before.stamps(blocks)
    assert open_rows(path).fingerprint() == after.fingerprint()


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
def test_attributes_that_cannot_be_used_are_named(tmp_path, attributes, message):
    array = zarr.create_array(str(tmp_path / "x"), data=np.ones((4, 2), "i2"))
    array.update_attributes(attributes)
    with pytest.raises(DataError, match=message):
        bigkpca.fit(tmp_path / "x", tmp_path / "m.zarr")
    with pytest.raises(DataError, match="_FillValue is 'none', not a number"):
        packing_of({"_FillValue": "none"}, np.dtype("f4"), "x")


@pytest.mark.parametrize("attribute", ["_FillValue", "missing_value"])
def test_attributes_that_name_no_number_are_ignored_as_by_xarray(attribute):
    numbers = np.float32([[1, np.nan], [3, 4]])
    for nothing in ("NaN", "nan", None, [None, "NaN"]):
        assert packing_of({attribute: nothing}, numbers.dtype, "x") is None
        assert packing_of({attribute: nothing}, np.dtype("i2"), "x") is None
    assert packing_of({attribute: ["NaN", 3]}, numbers.dtype, "x").decode(numbers)[1, 0] != 3


def test_fill_values_are_shown_as_their_dtype_writes_them(tmp_path):
    for dtype, fill, shown in (("f4", 9.969209968386869e36, r"9\.96921e\+36"), ("f8", -9999.000001, r"-9999\.000001")):
        values = np.where(KELVIN > 285, fill, KELVIN).astype(dtype)
        array = zarr.create_array(str(tmp_path / dtype), data=values, attributes={"missing_value": fill})
        with pytest.raises(DataError, match=f"is missing, as the fill value {shown} or as NaN"):
            bigkpca.fit(array, tmp_path / "m.zarr")


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
