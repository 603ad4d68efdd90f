"""Scores and rows on disk keep the dim and coordinates of the rows, and open as datasets of xarray."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import bigkpca
from bigkpca import KernelPCA
from bigkpca.errors import CorruptionError, SpecError

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
    with pytest.raises(SpecError, match=r"made with other options \(coordinates"):
        bigkpca.transform(kpca, moved, out, block_rows=128)
    bigkpca.transform(kpca, moved, out, block_rows=128, overwrite=True)
    np.testing.assert_array_equal(opened(out)["time"], moved["time"])


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
