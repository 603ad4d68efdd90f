"""Scores and rows on disk keep the dim and coordinates of the rows, and open as datasets of xarray."""

from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import bigkpca
from bigkpca import KernelPCA
from bigkpca.errors import CorruptionError, MemoryLimitError, SpecError
from bigkpca.workflows import block_writer
from tests.helpers.lazy import refuse

VALUES = np.random.default_rng(0).normal(size=(500, 6))
TIMES = pd.date_range("2020-01-01", periods=500, freq="h")
COORDS = {
    "time": TIMES,
    "season": ("time", ["winter", "spring", "é"] * 166 + ["x", "y"]),
    "lag": ("time", pd.to_timedelta(np.arange(500), unit="min")),
    "seen": ("time", np.where(np.arange(500) % 7, TIMES.values, np.datetime64("NaT", "us"))),
    "night": ("time", np.arange(500) % 24 < 6),
    "weight": ("time", np.where(np.arange(500) == 3, np.nan, np.arange(500)).astype("f4")),
    "band": list("abcdef"),
}
TABLE = xr.DataArray(VALUES, dims=("time", "band"), coords=COORDS)


@pytest.fixture(scope="module")
def kpca():
    return KernelPCA(3, size=40, random_state=0).fit(TABLE)


def opened(path):
    return xr.open_zarr(path, consolidated=False, chunks=None).load()


@pytest.mark.parametrize("lazy", [pytest.param(False, marks=pytest.mark.full), True])
def test_scores_on_disk_open_as_those_in_memory(kpca, lazy, tmp_path):
    given = TABLE.chunk(time=90) if lazy else TABLE
    bigkpca.transform(kpca, given, tmp_path / "s.zarr", block_rows=128, residual=True)
    found = opened(tmp_path / "s.zarr")
    assert set(found.data_vars) == {"scores", "residual"}
    for name, expected in (("scores", kpca.transform(TABLE)), ("residual", kpca.residual(TABLE))):
        xr.testing.assert_allclose(found[name], expected)
        xr.testing.assert_identical(found[name].coords.to_dataset(), expected.coords.to_dataset())
    assert bigkpca.verify(tmp_path / "s.zarr").shape == (500, 3)
    scores = found["scores"]
    xr.testing.assert_allclose(kpca.inverse_transform(scores), kpca.inverse_transform(kpca.transform(TABLE)))


def test_stacked_rows_are_stored_by_their_levels(tmp_path):
    field = xr.DataArray(VALUES.reshape(20, 25, 6), dims=("lat", "lon", "band"))
    rows = field.assign_coords(lat=np.arange(20.0), lon=np.arange(25)).stack(place=["lat", "lon"])
    rows = rows.transpose("place", "band")[3:]
    kpca = KernelPCA(3, size=40, random_state=0).fit(rows)
    kpca.transform(rows, tmp_path / "s.zarr")
    found = opened(tmp_path / "s.zarr")
    assert found["scores"].dims == ("place", "component")
    expected = kpca.transform(rows)
    xr.testing.assert_allclose(found.set_index(place=["lat", "lon"]).unstack("place")["scores"], expected)
    kpca.inverse_transform(expected.fillna(0), tmp_path / "x.zarr")
    assert opened(tmp_path / "x.zarr")["lat"].shape == (500,)
    kpca.denoise(rows, tmp_path / "d.zarr")
    assert opened(tmp_path / "d.zarr")["x"].dims == ("place", "column")


def test_names_of_dims_do_not_collide(tmp_path):
    kpca = KernelPCA(2, size=40, random_state=0).fit(TABLE.rename(time="component"))
    kpca.transform(TABLE.rename(time="component"), tmp_path / "s.zarr")
    assert opened(tmp_path / "s.zarr")["scores"].dims == ("component", "component_")


def test_coordinates_that_cannot_be_stored_are_named(kpca, tmp_path, capsys):
    more = {
        "scores": ("time", VALUES[:, 0]),
        "mixed": ("time", np.array([1, "a"] * 250, object)),
        "two": (("time", "band"), VALUES),
    }
    bigkpca.transform(kpca, TABLE.assign_coords(more), tmp_path / "s.zarr", progress=True)
    assert "coordinates that are not stored: mixed, scores (only numbers, text" in capsys.readouterr().err
    assert set(opened(tmp_path / "s.zarr").coords) == set(COORDS) - {"band"}


def test_a_run_resumes_and_other_coordinates_are_other_output(kpca, tmp_path):
    out = tmp_path / "s.zarr"
    bigkpca.transform(kpca, TABLE, out, block_rows=128)
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*") if file.is_file()}
    bigkpca.transform(kpca, TABLE, out, block_rows=128)
    assert before == {file: file.stat().st_mtime_ns for file in out.rglob("*") if file.is_file()}
    moved = TABLE.assign_coords(time=TIMES + pd.Timedelta("1h"))
    with pytest.raises(SpecError, match=r"of rows with other coordinates \(the difference is in time\)"):
        bigkpca.transform(kpca, moved, out, block_rows=128)
    bigkpca.transform(kpca, moved, out, block_rows=128, overwrite=True)
    np.testing.assert_array_equal(opened(out)["time"], moved["time"])


def test_outputs_with_and_without_coordinates_are_told_apart(kpca, tmp_path):
    out, plain = tmp_path / "s.zarr", tmp_path / "p.zarr"
    bigkpca.transform(kpca, TABLE, out)
    bigkpca.transform(kpca, VALUES, plain)
    shard = out / "scores" / "c" / "0" / "0"
    damaged = bytes([*shard.read_bytes()[:-1], 77])
    shard.write_bytes(damaged)
    for rows, path, where in ((VALUES, out, "here"), (TABLE, plain, "there")):
        with pytest.raises(
            SpecError, match=rf"of rows with other coordinates \(there are none {where}\): choose another"
        ):
            bigkpca.transform(kpca, rows, path)
    with pytest.raises(SpecError, match=r"the dim is 'time' there and 'day' here"):
        bigkpca.transform(kpca, TABLE.rename(time="day"), out)
    assert shard.read_bytes() == damaged
    bigkpca.transform(kpca, TABLE, out)
    assert bigkpca.verify(out)


@pytest.mark.full
def test_attributes_of_coordinates_are_stored(kpca, tmp_path):
    rows = TABLE.copy()
    for name, attrs in (("weight", {"units": "kg", "range": [0, 1.5]}), ("time", {"long_name": "hour"})):
        rows[name].attrs = attrs
    bigkpca.transform(kpca, rows, tmp_path / "s.zarr")
    xr.testing.assert_identical(opened(tmp_path / "s.zarr")["weight"].variable, rows["weight"].variable)
    assert opened(tmp_path / "s.zarr")["time"].attrs == {"long_name": "hour"}
    with pytest.raises(SpecError, match=r"the difference is in time, weight"):
        bigkpca.transform(kpca, TABLE, tmp_path / "s.zarr")


@pytest.mark.parametrize("dim", ["scores", *(pytest.param(name, marks=pytest.mark.full) for name in ("residual", "x"))])
def test_dims_with_the_names_of_arrays_are_renamed(dim, tmp_path):
    rows = TABLE.rename(time=dim)
    KernelPCA(2, size=40, random_state=0).fit(rows).transform(rows, tmp_path / "s.zarr")
    found = opened(tmp_path / "s.zarr")["scores"]
    assert found.dims == (dim if dim == "x" else f"{dim}_", "component")
    np.testing.assert_array_equal(found[found.dims[0]], TIMES)


@pytest.mark.parametrize("dim", ["scores", pytest.param("x", marks=pytest.mark.full)])
def test_renamed_dims_have_names_that_are_free(dim, tmp_path):
    rows = TABLE.rename(time=dim, season=f"{dim}_", band=f"{dim}__")
    kpca = KernelPCA(2, size=40, random_state=0).fit(rows)
    (kpca.transform if dim == "scores" else kpca.denoise)(rows, tmp_path / "s.zarr")
    found = opened(tmp_path / "s.zarr")
    assert found[dim].dims[0] == f"{dim}___"
    np.testing.assert_array_equal(found[f"{dim}___"], TIMES)
    np.testing.assert_array_equal(found[f"{dim}_"], TABLE["season"])


@pytest.mark.parametrize("dim", ["zarr.json", *(pytest.param(name, marks=pytest.mark.full) for name in ("a/b", "a b"))])
def test_names_that_no_folder_can_have_are_left_out(dim, tmp_path, capsys):
    rows = TABLE.rename(time=dim)
    bigkpca.transform(KernelPCA(2, size=40, random_state=0).fit(rows), rows, tmp_path / "s.zarr", progress=True)
    found = opened(tmp_path / "s.zarr")["scores"]
    assert found.dims == (dim, "component")
    assert dim not in found.coords
    assert f"not stored: {dim} (" in capsys.readouterr().err


def test_coordinates_are_planned_as_memory_before_they_are_computed(kpca, tmp_path):
    long = TABLE.assign_coords(season=("time", np.array(["a" * 10**6] + ["b"] * 499, object)))
    lazy = xr.DataArray(da.zeros((10**9, 6), chunks=(10**6, 6)), dims=("time", "band"))
    lazy = lazy.assign_coords(
        number=("time", da.zeros(10**9, chunks=10**6).map_blocks(refuse, dtype=float)),
        name=("time", da.zeros(10**9, chunks=10**6, dtype=object).map_blocks(refuse, dtype=object)),
    )
    for rows, megabytes in ((long, "20[0-9]{2}"), (lazy, "108000")):
        with pytest.raises(
            MemoryLimitError, match=f"coordinates of the rows take {megabytes} MB of it; leave out large"
        ):
            bigkpca.transform(kpca, rows, tmp_path / "s.zarr", memory="1GB")
    assert not (tmp_path / "s.zarr").exists()


def test_manifests_with_many_coordinates_stay_readable(kpca, tmp_path, monkeypatch):
    monkeypatch.setattr(block_writer, "MOST_JSON_BYTES", 4 * 600)
    bare = TABLE.drop_vars([name for name in COORDS if name != "band"])
    bigkpca.transform(kpca, bare, tmp_path / "s.zarr", block_rows=128)
    with pytest.raises(SpecError, match="the output would have 4 blocks, more than the limit of 2: use larger blocks"):
        bigkpca.transform(kpca, TABLE, tmp_path / "t.zarr", block_rows=128)


@pytest.mark.full
def test_a_finished_model_without_coordinates_is_named(tmp_path, capsys):
    for rows in (VALUES, TABLE):
        bigkpca.fit(rows, tmp_path / "m.zarr", n_components=2, size=40, progress=True)
    assert "m.zarr has no names or coordinates of columns: remove it and fit again" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["season", pytest.param("time", marks=pytest.mark.full)])
def test_damaged_coordinates_are_found_and_written_again(kpca, name, tmp_path):
    out = tmp_path / "s.zarr"
    bigkpca.transform(kpca, TABLE, out, block_rows=128)
    expected = opened(out)
    shard = Path(out, name, "c", "2")
    content = bytearray(shard.read_bytes())
    content[5] ^= 255
    shard.write_bytes(content)
    with pytest.raises(CorruptionError, match=rf"{name}/c/2"):
        bigkpca.verify(out)
    bigkpca.transform(kpca, TABLE, out, block_rows=128)
    xr.testing.assert_identical(opened(out), expected)
    assert bigkpca.verify(out)


def test_projected_coordinates_may_have_the_names_of_other_arrays(kpca, tmp_path):
    rows = TABLE.drop_vars(["season", "lag", "seen", "night", "weight"]).assign_coords(x=("time", np.arange(500)))
    kpca.transform(rows, out=tmp_path / "s.zarr")
    assert bigkpca.verify(tmp_path / "s.zarr").shape == (500, 3)
    np.testing.assert_array_equal(opened(tmp_path / "s.zarr")["x"], np.arange(500))
