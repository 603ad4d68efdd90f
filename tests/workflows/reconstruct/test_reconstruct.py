"""From scores back to rows in one call for every kind of scores, and views that compute nothing yet."""

from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.decomposition import PCA

from bigkpca import methods, preimages
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.execution.projection import block_preimages, reconstruct_rows
from bigkpca.storage import block_arrays
from tests.helpers.lazy import refuse
from tests.workflows.reconstruct.digits import ARRAYS, CHUNK, N, error_of, fitted


def test_reconstruct_is_inverse_transform_of_every_kind_of_scores(kpca, scores, back, tmp_path):
    array = zarr.open_group(scores, mode="r")["scores"]
    Y = array[:]
    expected = zarr.open_group(back, mode="r")["x"][:]
    assert expected.dtype == np.float32
    for held in (Y, pd.DataFrame(Y), Y.tolist()):
        np.testing.assert_array_equal(kpca.inverse_transform(held), expected)
    np.save(tmp_path / "scores.npy", Y)
    for lazy in (da.from_array(Y, chunks=(77, 3)), array, scores, Path(scores), tmp_path / "scores.npy"):
        found = kpca.inverse_transform(lazy)
        assert isinstance(found, da.Array)
        np.testing.assert_array_equal(found.compute(scheduler="threads"), expected)
    stored = kpca.inverse_transform(Y, out=tmp_path / "rows.zarr")
    assert isinstance(stored, zarr.Array)
    assert (stored.shape, stored.dtype) == ((N, 64), np.float32)
    found = reconstruct_rows(ArrayRows(Y), kpca.model_, block_preimages, Engine(threads=1), Silent())
    np.testing.assert_array_equal(found.rows, expected)
    for name in ARRAYS[1:]:
        np.testing.assert_array_equal(block_arrays.values(str(back), name), getattr(found, name))
    assert found.iterations.max() > 0


@pytest.mark.full
def test_denoise_is_one_call_for_every_kind_of_rows(kpca, dataset, X, denoised, back, tmp_path):
    expected = zarr.open_group(denoised, mode="r")["x"][:]
    for held in (X, np.asfortranarray(X), pd.DataFrame(X)):
        np.testing.assert_array_equal(kpca.denoise(held), expected)
    for lazy in (da.from_array(X, chunks=(77, 30)), zarr.open_array(dataset), dataset):
        found = kpca.denoise(lazy)
        assert isinstance(found, da.Array)
        np.testing.assert_array_equal(found.compute(scheduler="threads"), expected)
    stored = kpca.denoise(dataset, out=tmp_path / "rows.zarr")
    np.testing.assert_allclose(stored[:], expected, atol=1e-3)  # other blocks
    # Iterations start at the rows, and end near where those of the scores alone do.
    from_scores = zarr.open_group(back, mode="r")["x"][:]
    assert not np.array_equal(from_scores, expected)
    np.testing.assert_allclose(expected, from_scores, atol=0.1)


def test_views_compute_nothing_before_they_are_asked(kpca, X):
    import dask

    rows, Y = da.from_array(X, chunks=CHUNK), da.from_array(kpca.transform(X), chunks=CHUNK)
    with dask.config.set(scheduler=refuse):
        views = kpca.inverse_transform(Y), kpca.denoise(rows), kpca.residual(rows)
        assert [view.shape for view in views] == [(N, 64), (N, 64), (N,)]
        for view in views:
            with pytest.raises(AssertionError, match="computed although lazy"):
                view.compute()


MAKES = [
    {"method": "columns", "kernel": "matern"},
    {"method": "rff-pca", "size": 400, "dtype": "float64"},
    {"method": "exact", "preimage": "mds"},
    {"method": "rff", "refine": 2},
    {"standardize": True, "preimage": preimages.Ridge(size=100)},
    {"kernel": "laplacian", "preimage": "linear"},
]
FURTHER_MAKES = [
    {"method": methods.Nystroem("thesis", rank=30)},
    {"method": "rff", "size": 400, "solver": "randomized"},
    {"refine": 2, "preimage": "mds"},
    {"method": "rff", "kernel": "polynomial", "size": 400, "preimage": "linear"},
    {"standardize": True, "kernel": "rational-quadratic", "landmarks": "uniform"},
    {"center": False},
    {"kernel": "polynomial", "degree": 2},
    {"size": "auto", "tol": 0.3},
]


@pytest.mark.parametrize(
    "options", [*MAKES, *(pytest.param(make, marks=pytest.mark.full) for make in FURTHER_MAKES)], ids=str
)
def test_models_of_every_make_lead_back(options, X):
    few = X[:300]
    pca = PCA(8).fit(few)
    best = ((few - pca.inverse_transform(pca.transform(few))) ** 2).sum() / ((few - few.mean(axis=0)) ** 2).sum()
    assert 0.25 < best < 0.27
    assert error_of(fitted(few, **options), few) < 2 * best
