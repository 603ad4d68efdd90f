"""Dask frames and DataArrays of xarray are streamed, and get back what they are: lazily, with their labels."""

import threading
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

import bigkpca
from bigkpca import KernelPCA
from bigkpca.data.opening import open_rows
from bigkpca.errors import DataError, MemoryLimitError, SpecError
from tests.helpers.lazy import refuse
from tests.helpers.memory import traced_peak

NAMES = list("abcdef")
TIMES = pd.date_range("2020-01-01", periods=500, freq="h")
VALUES = np.random.default_rng(0).normal(size=(500, 6))


def fresh():
    return KernelPCA(3, size=40, random_state=0)


@pytest.fixture(scope="module")
def plain():
    """Fitted to the same rows in memory."""
    return fresh().fit(VALUES)


@pytest.fixture
def frame():
    return dd.from_pandas(pd.DataFrame(VALUES, TIMES, NAMES), npartitions=7)


def data_array(values):
    coords = {"time": TIMES, "label": ("time", list("xyxyx") * 100), "place": "here", "column": NAMES}
    return xr.DataArray(values, dims=("time", "column"), coords=coords, attrs={"unit": "m"}, name="rows")


@pytest.fixture(params=["dask", "numpy"])
def table(request):
    return data_array(da.from_array(VALUES, chunks=(60, 4)) if request.param == "dask" else VALUES)


# -- Dask frames ---------------------------------------------------------------------------------------------


def test_a_dask_frame_gives_the_model_of_its_rows_and_its_names(frame, plain):
    kpca = fresh().fit(frame)
    np.testing.assert_array_equal(kpca.transform(VALUES_AS_FRAME), plain.transform(VALUES))
    assert list(kpca.feature_names_in_) == NAMES
    assert kpca.n_features_in_ == 6


VALUES_AS_FRAME = pd.DataFrame(VALUES, TIMES, NAMES)


def test_scores_of_a_dask_frame_are_a_lazy_frame_with_its_index(frame):
    kpca = fresh().fit(frame)
    with dask.config.set(scheduler=refuse):
        scores = kpca.transform(frame)
        with pytest.raises(AssertionError, match="computed although lazy"):
            scores.compute()
    assert isinstance(scores, dd.DataFrame)
    assert scores.divisions == frame.divisions
    assert list(scores.columns) == ["kernelpca0", "kernelpca1", "kernelpca2"]
    found = scores.compute()
    pd.testing.assert_index_equal(found.index, TIMES, check_names=False)
    assert found.dtypes.equals(scores.dtypes)
    np.testing.assert_allclose(found, kpca.transform(VALUES_AS_FRAME), atol=1e-12)


def test_other_results_of_a_dask_frame_are_lazy_frames_too(frame):
    kpca = fresh().fit(frame)
    with dask.config.set(scheduler=refuse):
        residual, clean = kpca.residual(frame), kpca.denoise(frame)
        back = kpca.inverse_transform(kpca.transform(frame))
    assert residual.name == "residual"
    np.testing.assert_allclose(residual.compute(), kpca.residual(VALUES_AS_FRAME), atol=1e-12)
    for found, expected in (
        (clean, kpca.denoise(VALUES_AS_FRAME)),
        (back, kpca.inverse_transform(kpca.transform(VALUES_AS_FRAME))),
    ):
        assert list(found.columns) == NAMES
        assert found.divisions == frame.divisions
        np.testing.assert_allclose(found.compute(), expected, atol=1e-4)
    assert kpca.score(frame) == pytest.approx(kpca.score(VALUES_AS_FRAME))


def test_pre_images_of_a_frame_have_numbers_for_columns_where_no_names_were_fitted(plain):
    scores = dd.from_pandas(pd.DataFrame(plain.transform(VALUES)), npartitions=2)
    assert list(plain.inverse_transform(scores).compute().columns) == list(range(6))


def test_frames_of_other_columns_are_refused_before_anything_is_computed(frame):
    kpca = fresh().fit(frame)
    with dask.config.set(scheduler=refuse):
        for method in (kpca.transform, kpca.denoise, kpca.residual, kpca.score, kpca.partial_fit):
            with pytest.raises(ValueError, match="Feature names must be in the same order as they were in fit"):
                method(frame[NAMES[::-1]])
        with pytest.raises(ValueError, match="yet now missing:\n- b"):
            kpca.transform(frame[["a", "c"]])
        with pytest.raises(SpecError, match="but the model has 3 components"):
            kpca.inverse_transform(frame[["a", "c"]])


def test_names_of_a_frame_are_forgotten_when_an_array_is_fitted(frame):
    kpca = fresh().fit(frame).fit(da.from_array(VALUES, chunks=100))
    assert not hasattr(kpca, "feature_names_in_")


def test_partial_fit_takes_dask_frames(frame):
    kpca = fresh().partial_fit(frame.partitions[:3]).partial_fit(frame.partitions[3:])
    assert kpca.model_.moments.count == 500


def test_partitions_may_be_empty():
    kept = VALUES_AS_FRAME.assign(kept=np.arange(500) >= 150)
    some = dd.from_pandas(kept, npartitions=7).query("kept")[NAMES]
    assert 0 in list(some.map_partitions(len).compute())
    kpca = fresh().fit(some)
    np.testing.assert_array_equal(kpca.eigenvalues_, fresh().fit(VALUES_AS_FRAME[150:]).eigenvalues_)
    found = kpca.transform(some).compute()
    np.testing.assert_allclose(found, kpca.transform(VALUES_AS_FRAME[150:]), atol=1e-12)


def test_columns_of_all_kinds_of_numbers_are_rows(plain):
    mixed = pd.DataFrame(
        {
            "small": np.arange(20, dtype=np.int8),
            "flag": np.arange(20) % 2 == 0,
            "nullable": pd.array([*range(19), None], dtype="Int64"),
            "arrow": pd.array(np.arange(20.0), dtype="float[pyarrow]"),
        }
    )
    rows = open_rows(dd.from_pandas(mixed, npartitions=2))
    assert rows.dtype == np.float64
    np.testing.assert_array_equal(rows.block(0, 20), mixed.astype(np.float64).to_numpy())
    assert open_rows(dd.from_pandas(mixed[["small"]], npartitions=2)).dtype == np.int8


def test_what_is_missing_in_a_nullable_column_is_not_a_number(plain):
    whole = pd.DataFrame(np.arange(60).reshape(10, 6)).astype("Int64")
    found = plain.transform(dd.from_pandas(whole, npartitions=2))
    np.testing.assert_allclose(found.compute(), plain.transform(whole), atol=1e-12)
    whole.iloc[7, 2] = None
    with pytest.raises(DataError, match="a partition of the dask dataframe: row 2, column 2 is NaN"):
        plain.transform(dd.from_pandas(whole, npartitions=2)).compute(scheduler="synchronous")


def test_frames_that_are_no_tables_of_numbers(frame):
    with pytest.raises(DataError, match=r"column 'word' holds .* values: rows must be real numbers"):
        fresh().fit(frame.assign(word="x"))
    with pytest.raises(DataError, match="column 'kind' holds object values"):
        fresh().fit(frame.assign(kind=frame["a"].astype("category")))
    with pytest.raises(
        DataError, match=r"the dask dataframe is a Series, one column: .* give a frame, as df\[\['x'\]\]"
    ):
        fresh().fit(frame["a"])
    with pytest.raises(DataError, match=r"the dask dataframe is empty: shape \(1, 0\)"):
        bigkpca.fit(frame[[]], "nowhere")


def test_bad_values_are_named_in_their_partition(frame):
    kpca = fresh().fit(frame)
    bad = frame.assign(b=np.nan)
    with pytest.raises(DataError, match="a partition of the dask dataframe: row 0, column 1 is NaN"):
        kpca.transform(bad).compute(scheduler="synchronous")


# -- Dask arrays that nobody counted -------------------------------------------------------------------------


@pytest.fixture
def uncounted():
    """Rows of which nobody knows how many there are, and none in some chunks."""
    rows = da.from_array(VALUES, chunks=(60, 4))
    return rows[(rows[:, 0] > 0) & (da.arange(500, chunks=60) >= 130)]


def test_models_of_uncounted_rows_are_those_of_counted_ones_to_the_bit(uncounted, tmp_path):
    counted = uncounted.copy().compute_chunk_sizes()
    kpca, expected = fresh().fit(uncounted), fresh().fit(counted)
    np.testing.assert_array_equal(kpca.model_.solution.components, expected.model_.solution.components)
    np.testing.assert_array_equal(kpca.eigenvalues_, expected.eigenvalues_)
    assert kpca.score(uncounted) == expected.score(counted)
    kpca.partial_fit(uncounted)
    np.testing.assert_array_equal(kpca.eigenvalues_, expected.partial_fit(counted).eigenvalues_)
    model = bigkpca.fit(uncounted, tmp_path / "model.zarr", components=3, size=40)
    scores = bigkpca.transform(model, uncounted, tmp_path / "scores.zarr")
    np.testing.assert_array_equal(scores, bigkpca.transform(model, counted, tmp_path / "counted.zarr"))


def test_results_of_uncounted_rows_are_lazy_chunk_by_chunk(uncounted, plain):
    with dask.config.set(scheduler=refuse):
        scores = plain.transform(uncounted)
        found = [scores, plain.residual(uncounted), plain.denoise(uncounted), plain.inverse_transform(scores)]
        with pytest.raises(SpecError, match="has 4 columns, the model was fitted on 6"):
            plain.transform(uncounted[:, :4])
        with pytest.raises(SpecError, match="but the model has 3 components"):
            plain.inverse_transform(uncounted)
    rows = uncounted.compute()
    Y = plain.transform(rows)
    expected = [Y, plain.residual(rows), plain.denoise(rows), plain.inverse_transform(Y)]
    for lazy, values in zip(found, expected, strict=True):
        assert lazy.numblocks[0] == uncounted.numblocks[0]
        assert lazy.ndim == values.ndim
        np.testing.assert_allclose(lazy.compute(), values, atol=1e-6)
    fitted = fresh().fit_transform(uncounted)
    np.testing.assert_allclose(fitted.compute(), fresh().fit(rows).transform(rows), atol=1e-6)


def test_bad_values_of_uncounted_rows_are_named_in_their_chunk(uncounted, plain):
    with pytest.raises(DataError, match="a chunk of the dask array: row 0, column 0 is NaN"):
        plain.transform(uncounted * np.nan).compute(scheduler="synchronous")


def test_data_arrays_of_unknown_length_are_refused(uncounted, plain):
    table = xr.DataArray(uncounted, dims=("t", "v"))
    for method in (plain.transform, plain.score, fresh().fit):
        with pytest.raises(SpecError, match=r"call compute_chunk_sizes\(\) on its Dask array before you make it"):
            method(table)


# -- DataArrays ----------------------------------------------------------------------------------------------


def test_scores_of_a_data_array_keep_the_dim_and_the_coordinates_of_its_rows(table, plain):
    scores = fresh().fit(table).transform(table)
    assert scores.dims == ("time", "component")
    assert set(scores.coords) == {"time", "label", "place"}
    assert scores.name == "scores"
    assert (scores.chunks is None) == (table.chunks is None)
    np.testing.assert_array_equal(scores.values, plain.transform(VALUES))
    xr.testing.assert_equal(scores["label"], table["label"].drop_vars("column", errors="ignore"))


def test_other_results_of_a_data_array_are_labelled_too(table, plain):
    kpca = fresh().fit(table)
    residual, clean, back = kpca.residual(table), kpca.denoise(table), kpca.inverse_transform(kpca.transform(table))
    assert residual.dims == ("time",)
    assert set(residual.coords) == {"time", "label", "place"}
    np.testing.assert_allclose(residual.values, plain.residual(VALUES))
    xr.testing.assert_identical(clean, table.copy(data=plain.denoise(VALUES)))
    assert back.dims == table.dims
    xr.testing.assert_equal(back, table.copy(data=back.data))
    np.testing.assert_allclose(back.values, plain.inverse_transform(plain.transform(VALUES)))


def test_pre_images_of_a_data_array_have_the_names_of_the_columns(frame):
    kpca = fresh().fit(frame)
    back = kpca.inverse_transform(xr.DataArray(np.zeros((2, 3)), dims=("component", "c")))
    assert list(back["feature"].values) == NAMES


def test_a_dim_of_rows_that_is_called_component_stays(plain):
    found = plain.transform(xr.DataArray(VALUES[:5], dims=("component", "column")))
    assert found.dims == ("component", "component_")


def test_data_arrays_over_dask_stay_lazy(plain):
    table = data_array(da.from_array(VALUES, chunks=(60, 6)))
    with dask.config.set(scheduler=refuse):
        for found in (plain.transform(table), plain.residual(table), plain.denoise(table)):
            with pytest.raises(AssertionError, match="computed although lazy"):
                found.compute()


def test_data_arrays_of_other_shapes_are_refused(plain):
    with pytest.raises(DataError, match=r"dims \('t', 'y', 'x'\): rows .*X\.stack\(feature=\['y', 'x'\]\)"):
        fresh().fit(xr.DataArray(da.ones((5, 2, 3)), dims=("t", "y", "x")))
    with pytest.raises(SpecError, match="has 2 columns, the model was fitted on 6"):
        plain.transform(xr.DataArray(da.ones((5, 2)), dims=("t", "y")))


def test_columns_of_a_data_array_keep_their_coordinates_and_order():
    table = xr.DataArray(VALUES, dims=("t", "v"), coords={"v": [f"c{j}" for j in range(VALUES.shape[1])]})
    kpca = fresh().fit(table)
    with pytest.raises(SpecError, match="the coordinates of the dim 'v' are not those that were fitted"):
        kpca.transform(table.isel(v=slice(None, None, -1)))
    with pytest.raises(SpecError, match=r"was fitted on columns along 'v'"):
        kpca.transform(table.rename(v="w"))
    assert kpca.inverse_transform(kpca.transform(table)).coords["v"].equals(table.coords["v"])


def test_rows_that_were_stacked_are_maps_again():
    field = xr.DataArray(
        VALUES[:60].reshape(60, 2, 3), dims=("time", "lat", "lon"), coords={"lat": [0, 1], "lon": [5, 6, 7]}
    )
    kpca = fresh().fit(field.stack(feature=["lat", "lon"]))
    series = kpca.transform(field.stack(feature=["lat", "lon"]))
    assert kpca.inverse_transform(series).unstack("feature").dims == ("time", "lat", "lon")
    places = VALUES[:60].reshape(4, 15, 6)
    cells = xr.DataArray(places, dims=("lat", "lon", "band"), coords={"lat": range(4), "lon": range(15)})
    by_place = fresh().fit(cells.stack(place=["lat", "lon"]).transpose("place", "band"))
    maps = by_place.transform(cells.stack(place=["lat", "lon"]).transpose("place", "band"))
    assert set(maps.dims) == {"lat", "lon", "component"}
    assert set(by_place.inverse_transform(maps).dims) == {"lat", "lon", "band"}


@pytest.mark.parametrize("lazy", [False, True])
def test_rows_that_were_left_out_of_a_stack_are_missing_in_maps(lazy):
    values = VALUES[:120].reshape(8, 15, 6).copy()
    land = np.random.default_rng(0).random((8, 15)) < 0.3
    values[land] = np.nan
    coords = {"lat": 10 * np.arange(8), "lon": np.arange(15), "band": NAMES, "depth": (("lat", "lon"), 1.0 * land)}
    field = xr.DataArray(values, dims=("lat", "lon", "band"), coords=coords)
    rows = field.stack(place=["lat", "lon"]).transpose("place", "band").dropna("place")
    given = rows.chunk(place=20) if lazy else rows
    kpca, plain = fresh().fit(given), fresh().fit(rows.values)
    with dask.config.set(scheduler=refuse if lazy else None):
        scores, residual = kpca.transform(given), kpca.residual(given)
        back = kpca.inverse_transform(scores)
    assert (back.chunks is not None) == lazy
    for found, expected in (
        (scores, plain.transform(rows.values)),
        (residual, plain.residual(rows.values)),
        (back, plain.inverse_transform(plain.transform(rows.values))),
    ):
        assert np.isnan(found.transpose("lat", "lon", ...).values[land]).all()
        np.testing.assert_array_equal(found["lat"], coords["lat"])
        kept = found.stack(place=["lat", "lon"]).transpose("place", ...).dropna("place")
        assert kept.indexes["place"].equals(rows.indexes["place"])
        np.testing.assert_allclose(kept.values, expected, atol=1e-6)
    np.testing.assert_array_equal(back["band"], NAMES)
    some = scores.compute()
    some.loc[{"lat": 0, "lon": np.flatnonzero(~land[0])[0], "component": 1}] = np.nan
    with pytest.raises(DataError, match="row 0, column 1 is NaN"):  # not missing, but bad
        kpca.inverse_transform(some)


def test_maps_with_missing_rows_are_not_stored_as_rows(plain, tmp_path):
    maps = xr.DataArray(np.zeros((2, 2, 3)), dims=("y", "x", "component"))
    assert plain.inverse_transform(maps, tmp_path / "rows.zarr").shape == (4, 6)
    with pytest.raises(DataError, match="row 1, column 0 is NaN"):
        plain.inverse_transform(maps.where(maps["x"] != 1), tmp_path / "others.zarr")


@pytest.mark.parametrize("kind", ["frame", "array", "memory"])
def test_columns_of_a_data_array_are_forgotten_when_something_else_is_fitted(kind, frame):
    others = {"frame": frame, "array": da.from_array(VALUES), "memory": VALUES}
    kpca = fresh().fit(data_array(VALUES).rename(column="channel")).fit(others[kind])
    back = kpca.inverse_transform(xr.DataArray(np.zeros((2, 3)), dims=("t", "component")))
    assert back.dims == ("t", "feature")


# -- set_output ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_frames_that_were_asked_for_are_made_of_what_is_in_memory(output):
    kpca = fresh().set_output(transform=output).fit(VALUES_AS_FRAME)
    expected = fresh().fit(VALUES_AS_FRAME).transform(VALUES_AS_FRAME)
    for given in (VALUES_AS_FRAME, pl.DataFrame(VALUES, schema=NAMES)):
        for found in (kpca.transform(given), fresh().set_output(transform=output).fit_transform(given)):
            assert isinstance(found, pd.DataFrame if output == "pandas" else pl.DataFrame)
            assert list(found.columns) == ["kernelpca0", "kernelpca1", "kernelpca2"]
            np.testing.assert_allclose(found, expected, atol=1e-12)
    if output == "pandas":
        assert kpca.transform(VALUES_AS_FRAME).index.equals(VALUES_AS_FRAME.index)


@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_what_is_lazy_or_labelled_stays_so_whatever_frames_are_asked_for(output, frame, tmp_path):
    kpca = fresh().set_output(transform=output).fit(VALUES)
    np.save(tmp_path / "rows.npy", VALUES)
    with dask.config.set(scheduler=refuse):
        assert isinstance(kpca.transform(da.from_array(VALUES)), da.Array)
        assert isinstance(kpca.transform(str(tmp_path / "rows.npy")), da.Array)
    assert isinstance(kpca.transform(data_array(VALUES)), xr.DataArray)
    assert isinstance(kpca.transform(VALUES, tmp_path / "a.zarr"), zarr.Array)
    assert isinstance(kpca.transform(VALUES, out=tmp_path / "b.zarr"), zarr.Array)
    scores = fresh().set_output(transform=output).fit_transform(frame)
    assert isinstance(scores, dd.DataFrame)
    assert scores.divisions == frame.divisions


# -- Memory and work -----------------------------------------------------------------------------------------

PARTS, PART_ROWS, COLUMNS = 40, 5000, 50  # 2 MB each, 80 MB together
LOADED = Counter()
LOCK = threading.Lock()


def piece(number):
    with LOCK:
        LOADED[number] += 1
    return np.random.default_rng(number).normal(size=(PART_ROWS, COLUMNS))


def chunk(block_info=None):
    return piece(block_info[None]["chunk-location"][0])


def partition(number):
    return pd.DataFrame(piece(number), columns=[f"c{column}" for column in range(COLUMNS)])


def lazy_array():
    return da.map_blocks(chunk, chunks=((PART_ROWS,) * PARTS, (COLUMNS,)), dtype=float, meta=np.empty((0, 0)))


def lazy_table():
    return xr.DataArray(lazy_array(), dims=("time", "column"))


def lazy_frame():
    return dd.from_map(partition, range(PARTS))


every_lazy = pytest.mark.parametrize("make", [lazy_array, lazy_table, lazy_frame])


@every_lazy
def test_rows_are_streamed_in_and_out(make):
    rows = make()
    held = 8 * PARTS * PART_ROWS * COLUMNS

    def fit_and_transform():
        kpca = KernelPCA(2, method="rff", size=20, random_state=0).fit(rows)
        np.asarray(kpca.transform(rows).sum(axis=0).compute())

    assert traced_peak(fit_and_transform, attempts=1) < 0.7 * held


@every_lazy
def test_a_chunk_is_computed_once_in_a_pass_however_many_blocks_are_cut_from_it(make):
    rows = make()
    LOADED.clear()
    kpca = KernelPCA(2, size=20, random_state=0, block_rows=2000).fit(rows)
    counting = make is lazy_frame
    assert set(LOADED.values()) == {2 + counting}  # the sample and the pass
    LOADED.clear()
    kpca.transform(rows).compute()
    assert set(LOADED.values()) == {1}


def test_memory_limits_count_the_chunks_of_a_graph():
    for huge in (lazy_array().rechunk(-1), lazy_table().chunk(-1), lazy_frame().repartition(npartitions=1)):
        with pytest.raises(MemoryLimitError, match="500 MB are allowed"):
            KernelPCA(2, size=20, memory_limit="500 MB").fit(huge)
