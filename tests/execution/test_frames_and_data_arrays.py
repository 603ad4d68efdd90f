"""Dask frames and DataArrays of xarray are streamed, and get back what they are: lazily, with their labels."""

from collections import Counter

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr
import zarr
from numpy.testing import assert_allclose, assert_array_equal

import bigkpca
from bigkpca import KernelPCA
from bigkpca.data.opening import open_rows
from bigkpca.errors import DataError, MemoryLimitError, SpecError
from tests.data.cases import refused
from tests.helpers.lazy import refuse
from tests.helpers.memory import traced_peak

NAMES = list("abcdef")
TIMES = pd.date_range("2020-01-01", periods=500, freq="h")
VALUES = np.random.default_rng(0).normal(size=(500, 6))
AS_FRAME = pd.DataFrame(VALUES, TIMES, NAMES)
FRAME = dd.from_pandas(AS_FRAME, npartitions=4)


def fresh():
    return KernelPCA(3, size=40, random_state=0)


@pytest.fixture(scope="module")
def plain():
    """Fitted to the same rows in memory."""
    return fresh().fit(VALUES)


@pytest.fixture(scope="module")
def by_name():
    """Fitted to the frame."""
    return fresh().fit(FRAME)


def data_array(values):
    coords = {"time": TIMES, "label": ("time", list("xyxyx") * 100), "place": "here", "column": NAMES}
    return xr.DataArray(values, dims=("time", "column"), coords=coords, attrs={"unit": "m"}, name="rows")


def test_results_of_a_dask_frame_are_lazy_frames_with_its_index(by_name, plain):
    assert list(by_name.feature_names_in_) == NAMES
    assert by_name.n_features_in_ == 6
    assert_array_equal(by_name.transform(AS_FRAME), plain.transform(VALUES))
    with dask.config.set(scheduler=refuse):
        scores, residual, clean = by_name.transform(FRAME), by_name.residual(FRAME), by_name.denoise(FRAME)
        back = by_name.inverse_transform(scores)
        refused(scores.compute, (AssertionError, "computed although lazy"))
    Y = plain.transform(VALUES)
    for found, columns, expected in (
        (scores, ["kernelpca0", "kernelpca1", "kernelpca2"], Y),
        (clean, NAMES, plain.denoise(VALUES)),
        (back, NAMES, plain.inverse_transform(Y)),
    ):
        assert isinstance(found, dd.DataFrame)
        assert found.divisions == FRAME.divisions
        assert list(found.columns) == columns
        computed = found.compute()
        pd.testing.assert_index_equal(computed.index, TIMES, check_names=False)
        assert computed.dtypes.equals(found.dtypes)
        assert_allclose(computed, expected, atol=1e-12 if found is scores else 1e-4)
    assert residual.name == "residual"
    assert_allclose(residual.compute(), plain.residual(VALUES), atol=1e-12)
    assert by_name.score(FRAME) == pytest.approx(by_name.score(AS_FRAME))
    numbered = plain.inverse_transform(dd.from_pandas(pd.DataFrame(Y), npartitions=2))
    assert list(numbered.columns) == list(range(6))  # where no names were fitted


def test_frames_of_other_columns_or_without_numbers_are_refused_before_anything_is_computed(by_name):
    with dask.config.set(scheduler=refuse):
        for method in (by_name.transform, by_name.denoise, by_name.residual, by_name.score, by_name.partial_fit):
            with pytest.raises(ValueError, match="Feature names must be in the same order as they were in fit"):
                method(FRAME[NAMES[::-1]])
        refused(by_name.transform, (FRAME[["a", "c"]], ValueError, "yet now missing:\n- b"))
        refused(by_name.inverse_transform, (FRAME[["a", "c"]], SpecError, "but the model has 3 components"))
    for other, message in [
        (FRAME.assign(word="x"), r"column 'word' holds .* values: rows must be real numbers"),
        (FRAME.assign(kind=FRAME["a"].astype("category")), "column 'kind' holds object values"),
        (FRAME["a"], r"the dask dataframe is a Series, one column: .* pass a frame, as in df\[\['x'\]\]"),
        (FRAME[[]], r"the dask dataframe is empty: shape \(1, 0\)"),
    ]:
        refused(bigkpca.fit, (other, "nowhere", DataError, message))


@pytest.mark.full
def test_fits_take_frames_in_parts_and_with_empty_partitions_and_forget_names():
    assert not hasattr(fresh().fit(FRAME).fit(da.from_array(VALUES, chunks=100)), "feature_names_in_")
    kpca = fresh().partial_fit(FRAME.partitions[:2]).partial_fit(FRAME.partitions[2:])
    assert kpca.model_.moments.count == 500
    kept = AS_FRAME.assign(kept=np.arange(500) >= 150)
    some = dd.from_pandas(kept, npartitions=7).query("kept")[NAMES]
    assert 0 in list(some.map_partitions(len).compute())
    kpca = fresh().fit(some)
    assert_array_equal(kpca.eigenvalues_, fresh().fit(AS_FRAME[150:]).eigenvalues_)
    assert_allclose(kpca.transform(some).compute(), kpca.transform(AS_FRAME[150:]), atol=1e-12)


def test_columns_of_all_kinds_of_numbers_are_rows(plain):
    mixed = pd.DataFrame({"small": np.arange(20, dtype=np.int8), "flag": np.arange(20) % 2 == 0})
    mixed["nullable"] = pd.array([*range(19), None], dtype="Int64")
    mixed["arrow"] = pd.array(np.arange(20.0), dtype="float[pyarrow]")
    rows = open_rows(dd.from_pandas(mixed, npartitions=2))
    assert rows.dtype == np.float64
    assert_array_equal(rows.block(0, 20), mixed.astype(np.float64).to_numpy())
    assert open_rows(dd.from_pandas(mixed[["small"]], npartitions=2)).dtype == np.int8
    whole = pd.DataFrame(np.arange(60).reshape(10, 6)).astype("Int64")
    assert_allclose(plain.transform(dd.from_pandas(whole, npartitions=2)), plain.transform(whole), atol=1e-12)
    whole.iloc[7, 2] = None
    with pytest.raises(DataError, match="a partition of the dask dataframe: row 2, column 2 is NaN"):
        plain.transform(dd.from_pandas(whole, npartitions=2)).compute(scheduler="synchronous")


@pytest.fixture
def uncounted():
    """Rows of which nobody knows how many there are, and none in some chunks."""
    rows = da.from_array(VALUES, chunks=(100, 4))
    return rows[(rows[:, 0] > 0) & (da.arange(500, chunks=100) >= 130)]


def test_models_of_uncounted_rows_are_those_of_counted_ones_to_the_bit(uncounted, tmp_path):
    counted = uncounted.copy().compute_chunk_sizes()
    kpca, expected = fresh().fit(uncounted), fresh().fit(counted)
    assert_array_equal(kpca.model_.solution.components, expected.model_.solution.components)
    assert_array_equal(kpca.eigenvalues_, expected.eigenvalues_)
    assert kpca.score(uncounted) == expected.score(counted)
    kpca.partial_fit(uncounted)
    assert_array_equal(kpca.eigenvalues_, expected.partial_fit(counted).eigenvalues_)
    model = bigkpca.fit(uncounted, tmp_path / "model.zarr", n_components=3, size=40)
    scores = bigkpca.transform(model, uncounted, tmp_path / "scores.zarr")
    assert_array_equal(scores, bigkpca.transform(model, counted, tmp_path / "counted.zarr"))


def test_results_of_uncounted_rows_are_lazy_chunk_by_chunk_and_bad_or_labelled_ones_are_refused(uncounted, plain):
    with dask.config.set(scheduler=refuse):
        scores = plain.transform(uncounted)
        found = [scores, plain.residual(uncounted), plain.denoise(uncounted), plain.inverse_transform(scores)]
        refused(plain.transform, (uncounted[:, :4], SpecError, "has 4 columns, but the model was fitted on 6"))
        refused(plain.inverse_transform, (uncounted, SpecError, "but the model has 3 components"))
    rows = uncounted.compute()
    Y = plain.transform(rows)
    expected = [Y, plain.residual(rows), plain.denoise(rows), plain.inverse_transform(Y)]
    for lazy, values in zip(found, expected, strict=True):
        assert (lazy.numblocks[0], lazy.ndim) == (uncounted.numblocks[0], values.ndim)
        assert_allclose(lazy.compute(), values, atol=1e-6)
    assert_allclose(fresh().fit_transform(uncounted).compute(), fresh().fit(rows).transform(rows), atol=1e-6)
    with pytest.raises(DataError, match="a chunk of the dask array: row 0, column 0 is NaN"):
        plain.transform(uncounted * np.nan).compute(scheduler="synchronous")
    table = xr.DataArray(uncounted, dims=("t", "v"))
    for method in (plain.transform, plain.score, fresh().fit):
        refused(method, (table, SpecError, r"call compute_chunk_sizes\(\) on its Dask array before creating it"))


@pytest.mark.parametrize("kind", ["dask", pytest.param("numpy", marks=pytest.mark.full)])
def test_results_of_a_data_array_keep_the_dims_and_the_coordinates_of_its_rows(kind, plain):
    table = data_array(da.from_array(VALUES, chunks=(60, 4)) if kind == "dask" else VALUES)
    kpca = fresh().fit(table)
    with dask.config.set(scheduler=refuse if kind == "dask" else None):
        scores, residual, clean = kpca.transform(table), kpca.residual(table), kpca.denoise(table)
        back = kpca.inverse_transform(scores)
    assert (scores.chunks is None) == (table.chunks is None)
    assert (scores.dims, residual.dims, scores.name) == (("time", "component"), ("time",), "scores")
    assert set(scores.coords) == set(residual.coords) == {"time", "label", "place"}
    xr.testing.assert_equal(scores["label"], table["label"].drop_vars("column", errors="ignore"))
    # Chunks of Dask arrays are other blocks, which round in their own way.
    assert_allclose(scores.values, plain.transform(VALUES), rtol=1e-9, atol=1e-12)
    assert_allclose(residual.values, plain.residual(VALUES))
    assert_allclose(clean.values, plain.denoise(VALUES), rtol=1e-9, atol=1e-9)
    xr.testing.assert_identical(clean, table.copy(data=clean.data))
    assert (back.dims, set(back.coords)) == (("time", "feature"), {"time", "label", "place"})
    assert_allclose(back.values, plain.inverse_transform(plain.transform(VALUES)))


def test_a_dim_occurs_once_and_columns_are_compared_by_their_number(plain):
    assert plain.transform(xr.DataArray(VALUES[:5], dims=("component", "column"))).dims == ("component", "component_")
    both = xr.DataArray(VALUES[:5], dims=("t", "v"), coords={"both": (("t", "v"), VALUES[:5]), "v": NAMES})
    assert not plain.transform(both).coords
    with pytest.raises(SpecError, match="has 2 columns, but the model was fitted on 6"):
        plain.transform(xr.DataArray(da.ones((5, 2)), dims=("t", "y")))


@pytest.mark.parametrize("lazy", [pytest.param(False, marks=pytest.mark.full), True])
def test_rows_and_columns_that_were_stacked_are_maps_again(lazy):
    values = VALUES[:120].reshape(8, 15, 6).copy()
    land = np.random.default_rng(0).random((8, 15)) < 0.3
    values[land] = np.nan
    coords = {"lat": 10 * np.arange(8), "lon": np.arange(15), "band": NAMES, "depth": (("lat", "lon"), 1.0 * land)}
    field = xr.DataArray(values, dims=("lat", "lon", "band"), coords=coords)
    rows = field.stack(place=["lat", "lon"]).transpose("place", "band").dropna("place")
    given = rows.chunk(place=20) if lazy else rows
    kpca, plain = fresh().fit(given), fresh().fit(rows.values)
    with dask.config.set(scheduler=refuse if lazy else None):
        scores = kpca.transform(given)
        back = given.copy(data=kpca.inverse_transform(scores).data)
    assert (back.chunks is not None) == lazy
    Y = plain.transform(rows.values)
    for found, expected in ((scores, Y), (back, plain.inverse_transform(Y))):
        assert found.indexes["place"].equals(rows.indexes["place"])
        assert_allclose(found.values, expected, atol=1e-6)
        maps = found.unstack("place").reindex_like(field)
        assert np.isnan(maps.transpose("lat", "lon", ...).values[land]).all()


@pytest.mark.parametrize("output", ["pandas", pytest.param("polars", marks=pytest.mark.full)])
def test_frames_that_were_asked_for_are_made_of_what_is_in_memory_alone(output, plain, tmp_path):
    kpca = fresh().set_output(transform=output).fit(AS_FRAME)
    for given in (AS_FRAME, pl.DataFrame(VALUES, schema=NAMES)):
        for found in (kpca.transform(given), fresh().set_output(transform=output).fit_transform(given)):
            assert isinstance(found, pd.DataFrame if output == "pandas" else pl.DataFrame)
            assert list(found.columns) == ["kernelpca0", "kernelpca1", "kernelpca2"]
            assert_allclose(found, plain.transform(VALUES), atol=1e-12)
    assert output == "polars" or kpca.transform(AS_FRAME).index.equals(TIMES)
    kpca = fresh().set_output(transform=output).fit(VALUES)
    np.save(tmp_path / "rows.npy", VALUES)
    with dask.config.set(scheduler=refuse):
        assert isinstance(kpca.transform(da.from_array(VALUES)), da.Array)
        assert isinstance(kpca.transform(str(tmp_path / "rows.npy")), da.Array)
    assert isinstance(kpca.transform(data_array(VALUES)), xr.DataArray)
    assert isinstance(kpca.transform(VALUES, tmp_path / "a.zarr"), zarr.Array)
    assert isinstance(kpca.transform(VALUES, out=tmp_path / "b.zarr"), zarr.Array)
    assert isinstance(fresh().set_output(transform=output).fit_transform(FRAME), dd.DataFrame)


COLUMNS = 50
LOADED = []


def piece(number, part_rows):
    LOADED.append(number)
    return np.random.default_rng(number).normal(size=(part_rows, COLUMNS))


def chunk(part_rows, block_info=None):
    return piece(block_info[None]["chunk-location"][0], part_rows)


def partition(number, part_rows):
    return pd.DataFrame(piece(number, part_rows)).add_prefix("c")


def lazy_rows(parts, part_rows):
    """Rows of an array, a DataArray and a frame, which count how often each part is made."""
    chunks = ((part_rows,) * parts, (COLUMNS,))
    array = da.map_blocks(chunk, part_rows, chunks=chunks, dtype=float, meta=np.empty((0, 0)))
    frame = dd.from_map(partition, range(parts), part_rows=part_rows)
    return array, xr.DataArray(array, dims=("time", "column")), frame


@pytest.mark.full
def test_a_chunk_is_computed_once_in_a_pass_however_many_blocks_are_cut_from_it():
    for rows in lazy_rows(4, 900):
        LOADED.clear()
        kpca = KernelPCA(2, size=20, random_state=0, block_rows=400).fit(rows)
        assert set(Counter(LOADED).values()) == {2 + isinstance(rows, dd.DataFrame)}  # the sample, the pass; lengths
        LOADED.clear()
        kpca.transform(rows).compute()
        assert sorted(LOADED) == [0, 1, 2, 3]


@pytest.mark.full
def test_rows_are_streamed_in_and_out(monkeypatch):
    monkeypatch.setattr("bigkpca.spec.resolved.DRAWN_ROWS", 256)  # whose kernels take as much for any number of rows
    array, _, frame = lazy_rows(40, 5000)  # 2 MB in each part, 80 MB together

    def fit_and_transform(rows):
        kpca = KernelPCA(2, method="rff", size=20, random_state=0).fit(rows)
        np.asarray(kpca.transform(rows).sum(axis=0).compute())

    for rows in (array, frame):
        assert traced_peak(lambda rows=rows: fit_and_transform(rows), attempts=1) < 0.7 * 8 * 40 * 5000 * COLUMNS


def test_memory_limits_count_the_chunks_of_a_graph():
    array, table, frame = lazy_rows(40, 5000)
    for huge in (array.rechunk(-1), table.chunk(-1), frame.repartition(npartitions=1)):
        refused(KernelPCA(2, size=20, memory_limit="500 MB").fit, (huge, MemoryLimitError, "500 MB are allowed"))
