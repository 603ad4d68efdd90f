"""Lazy views: nothing is computed before it is asked for, and what comes out is what the formulas say."""

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

from bigkpca import KernelPCA, arrays, kernels, methods
from bigkpca.arrays import svd
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.errors import SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.execution.projection import score_rows
from bigkpca.fitting import random_features, sample
from bigkpca.numerics import measures
from bigkpca.numerics.random_streams import random_stream
from tests.helpers import oracles
from tests.helpers.fits import fit
from tests.helpers.lazy import refuse

GAUSSIAN = kernels.Gaussian(25.0)


@pytest.fixture(scope="module")
def X(digits):
    return digits[:300].astype(np.float64)


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


def fitted(X, **options):
    return fit(X, **{"components": 5, "size": 40, "sigma": 25.0, "seed": 1, **options})


VIEWS = {
    "kernel_blocks": lambda model, X: arrays.kernel_blocks(X, np.eye(7, 64) * 5, GAUSSIAN)[0],
    "random_features": lambda model, X: arrays.random_features(X, 20, GAUSSIAN),
    "feature_map": arrays.feature_map,
    "scores": arrays.scores,
    "leverage": arrays.leverage,
}
every_view = pytest.mark.parametrize("view", VIEWS)


@every_view
def test_views_are_lazy_and_take_every_kind_of_rows(view, X, tmp_path):
    np.save(tmp_path / "rows.npy", X)
    stored = zarr.create_array(str(tmp_path / "rows.zarr"), data=X, chunks=(50, 64))
    model = fitted(X, block_rows=50)
    expected = VIEWS[view](model, X).compute()
    for rows in (X, da.from_array(X, chunks=(77, 20)), stored, str(tmp_path / "rows.zarr"), tmp_path / "rows.npy"):
        with dask.config.set(scheduler=refuse):
            lazy = VIEWS[view](model, rows)
            with pytest.raises(AssertionError, match="computed although lazy"):
                lazy.compute()
        assert isinstance(lazy, da.Array)
        assert lazy.shape == expected.shape
        assert lazy.dtype == expected.dtype
        np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-12, atol=1e-12)


@every_view
def test_views_go_on_in_a_graph_of_the_users(view, X):
    rows = da.from_array(X, chunks=(60, 64))
    model = fitted(X, block_rows=60)
    lazy = VIEWS[view](model, rows * 1.0)
    if view in ("scores", "feature_map", "leverage"):
        assert lazy.chunks[0] == (60,) * 5
    whole = lazy.compute()
    np.testing.assert_allclose(lazy.mean(axis=0).compute(), whole.mean(axis=0), atol=1e-12)
    np.testing.assert_array_equal(lazy[55:130:3].compute(), whole[55:130:3])
    np.testing.assert_allclose((lazy - lazy.min()).sum().compute(), (whole - whole.min()).sum())
    np.testing.assert_array_equal(lazy.compute(scheduler="threads"), whole)


@every_view
def test_views_are_the_same_bytes_on_processes(view, X, two_processes):
    lazy = VIEWS[view](fitted(X, block_rows=60), X)
    assert two_processes.client is not None
    assert two_processes.client.compute(lazy).result().tobytes() == lazy.compute().tobytes()


@pytest.mark.parametrize(
    "kernel",
    [GAUSSIAN, kernels.Laplacian(90.0), kernels.Polynomial(0.01, 2, 1.0), kernels.Linear(), kernels.Cosine()],
    ids=str,
)
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-11), (np.float32, 1e-5), (np.uint8, 1e-5)])
def test_kernel_blocks_are_the_kernel(kernel, dtype, rtol, X):
    S = X[::30] + 0.5
    C, W = arrays.kernel_blocks(X.astype(dtype), S, kernel)
    assert C.dtype == (np.float64 if dtype == np.float64 else np.float32)
    assert W.dtype == np.float64
    np.testing.assert_allclose(C.compute(), kernel(X, S), rtol=rtol)
    np.testing.assert_allclose(W, kernel(S, S), rtol=rtol)


def test_kernel_blocks_take_landmarks_of_their_width_alone(X):
    for S in (np.ones((4, 3)), np.ones(64), np.ones((2, 64, 1))):
        with pytest.raises(SpecError, match=r"landmarks of shape \(.*\) do not fit rows of 64 columns"):
            arrays.kernel_blocks(X, S, GAUSSIAN)


@pytest.mark.parametrize("view", ["scores", "feature_map", "leverage"])
def test_rows_of_another_width_are_refused(view, X):
    with pytest.raises(SpecError, match="has 3 columns, the model was fitted on 64"):
        VIEWS[view](fitted(X), da.ones((10, 3)))


@pytest.mark.parametrize("form", ["orthogonal", "iid", "phase"])
def test_random_features_approximate_the_kernel(form, X):
    rows = X[:40]
    grams = []
    for seed in range(40):
        Z = arrays.random_features(rows, 100, GAUSSIAN, seed=seed, form=form).compute()
        assert Z.shape == (40, 100)
        grams.append(Z @ Z.T)
    error = np.std(grams, axis=0) / np.sqrt(len(grams))
    assert (np.abs(np.mean(grams, axis=0) - GAUSSIAN(rows, rows)) < 5 * error + 1e-9).all()
    assert error.max() < 0.05


def test_views_draw_from_random_streams_of_their_own(X, monkeypatch):
    used = []

    def recorded(seed, purpose):
        used.append(purpose)
        return random_stream(seed, purpose)

    for module in (sample, random_features, arrays, svd):
        monkeypatch.setattr(module, "random_stream", recorded)
    fitted(X, method="rff")
    of_fits = set(used)
    Z = arrays.random_features(X, 20, GAUSSIAN)
    arrays.randomized_svd(Z, 3)[1].compute()
    frequencies, start = used[-2:]
    assert len({frequencies, start} | of_fits) == 2 + len(of_fits) > 3


def test_random_features_depend_on_the_seed_alone(X):
    one, again, other = (arrays.random_features(X, 30, GAUSSIAN, seed=seed).compute() for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 31}, "size=31: sines and cosines come in pairs"),
        ({"kernel": kernels.Linear()}, "the linear kernel has no spectral density.*method='nystroem'"),
        ({"form": "qmc"}, "form='qmc' needs the principal axes of the rows: fit method='rff' and use feature_map"),
        ({"form": "sobol"}, "unknown form of RandomFeatures 'sobol'"),
    ],
)
def test_random_features_that_cannot_be(options, message, X):
    with pytest.raises(SpecError, match=message):
        arrays.random_features(X, **{"size": 30, "kernel": GAUSSIAN, **options})


@pytest.mark.parametrize(
    "method", ["nystroem", "columns", methods.Nystroem("thesis"), methods.Nystroem("thesis", rank=7), "exact"], ids=str
)
def test_the_feature_map_is_the_approximation_of_the_gram_matrix(method, X):
    model = fitted(X, method=method, landmarks="auto" if method in ("columns", "exact") else "uniform")
    Z = arrays.feature_map(model, X).compute()
    S = model.features.landmarks_in_user_units()  # type: ignore[attr-defined]
    C, W = GAUSSIAN(X, S), GAUSSIAN(S, S)
    if method == "columns":
        values, U = np.linalg.eigh(C.T @ C)
        root = (U * np.sqrt(np.maximum(values, 0))) @ U.T
        expected = np.sqrt(len(X) / len(S)) * C @ np.linalg.pinv(root, rcond=1e-6, hermitian=True) @ C.T
    elif method == methods.Nystroem("thesis", rank=7):
        values, U = np.linalg.eigh(W)
        expected = (C @ U[:, -7:] / values[-7:]) @ (C @ U[:, -7:]).T
    else:
        expected = oracles.nystroem_gram(C, W, 1e-12)
    np.testing.assert_allclose(Z @ Z.T, expected, atol=1e-8)
    if method == "exact":
        np.testing.assert_allclose(Z @ Z.T, GAUSSIAN(X, X), atol=1e-8)


def test_eigenvalues_of_a_model_are_those_of_its_feature_map(X):
    for method in ("nystroem", "columns", "rff", "exact"):
        for center in (True, False):
            if (method, center) == ("columns", True):
                continue  # it centres the columns it was given, and not the approximation
            model = fitted(X, method=method, center=center)
            Z = arrays.feature_map(model, X).compute()
            expected, _ = oracles.gram_kpca(Z @ Z.T, 5, center)
            np.testing.assert_allclose(model.solution.eigenvalues, expected, rtol=1e-7)


@pytest.mark.parametrize("method", ["rff", "rff-pca"])
def test_random_features_are_their_own_feature_map(method, X):
    model = fitted(X, method=method)
    Z = arrays.feature_map(model, X).compute()
    assert Z.shape == (300, 40)
    scores = (Z - model.solution.mean) @ model.solution.components
    np.testing.assert_allclose(scores, arrays.scores(model, X).compute(), atol=1e-12)
    diagonal = (Z**2).sum(axis=1)
    if method == "rff":
        np.testing.assert_allclose(diagonal, 1)
    else:
        assert (diagonal < 1).all()
        axes = model.features.axes.astype(float)  # type: ignore[attr-defined]
        centred = X - model.features.offset
        residual = (centred**2).sum(axis=1) - ((centred @ axes) ** 2).sum(axis=1)
        np.testing.assert_allclose(diagonal, np.exp(-residual / 25.0**2), rtol=1e-9)


@pytest.mark.parametrize("method", ["nystroem", "columns", "rff", "rff-pca", "exact"])
def test_lazy_scores_are_the_scores(method, X):
    model = fitted(X, method=method)
    expected = score_rows(ArrayRows(X), model, Engine(threads=1), Silent())
    np.testing.assert_array_equal(arrays.scores(model, X).compute(), expected)


@pytest.mark.parametrize("method", ["nystroem", "columns", "rff", "exact"])
def test_leverages_add_up_to_the_number_of_components(method, X):
    model = fitted(X, method=method)
    leverages = arrays.leverage(model, X)
    assert leverages.shape == (300,)
    found = leverages.compute()
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(), 5, rtol=1e-6)
    assert 1 <= measures.coherence(found, 5) <= 300 / 5
    if method == "exact":
        _, vectors = np.linalg.eigh(oracles.centred(GAUSSIAN(X, X)))
        np.testing.assert_allclose(found, (vectors[:, -5:] ** 2).sum(axis=1), rtol=1e-6, atol=1e-9)


# -- randomized_svd ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tall():
    """(500, 60) with singular values 1, 0.8, 0.8², ..."""
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.normal(size=(rows, 60)))[0] for rows in (500, 60))
    return (U * 0.8 ** np.arange(60)) @ V.T


@pytest.mark.parametrize("chunks", [(500, 60), (64, 60), (100, 17)])
@pytest.mark.parametrize("k", [1, 6, 60])
def test_randomized_svd_is_the_svd(tall, chunks, k):
    with dask.config.set(scheduler=refuse):
        lazy = arrays.randomized_svd(da.from_array(tall, chunks=chunks), k)
    assert [part.shape for part in lazy] == [(500, k), (k,), (k, 60)]
    U, s, Vt = dask.compute(*lazy)
    expected = np.linalg.svd(tall, full_matrices=False)
    leading = 0.8 ** np.arange(k)
    np.testing.assert_allclose(s, leading, rtol=1e-5 if k < 60 else 1e-3)
    if k < 60:
        np.testing.assert_allclose(U.T @ U, np.eye(k), atol=1e-6)
        np.testing.assert_allclose(Vt @ Vt.T, np.eye(k), atol=1e-9)
        np.testing.assert_allclose(np.abs(np.sum(Vt * expected[2][:k], axis=1)), 1, atol=1e-5)
    np.testing.assert_allclose((U * s) @ Vt, (expected[0][:, :k] * leading) @ expected[2][:k], atol=1e-3 * leading[-1])


def test_randomized_svd_is_as_good_as_that_of_dask(tall):
    Z = da.from_array(tall, chunks=(100, 60))
    ours = arrays.randomized_svd(Z, 6)[1].compute()
    # As many passes: one to begin with, and two for each power iteration.
    _, theirs, _ = da.linalg.svd_compressed(Z, 6, n_power_iter=2, seed=0)
    exact = 0.8 ** np.arange(6)
    assert np.abs(ours / exact - 1).max() <= np.abs(theirs.compute() / exact - 1).max() + 1e-12


def test_randomized_svd_reads_each_chunk_once_a_pass(tall):
    read = []

    def counted(block):
        read.append(block[0, 0])
        return block

    Z = da.from_array(tall, chunks=(100, 60)).map_blocks(counted, meta=np.empty((0, 0)))
    for passes in (1, 2, 4):
        U, s, Vt = arrays.randomized_svd(Z, 3, passes=passes)
        read.clear()
        dask.compute(s, Vt)
        assert len(read) == 5 * passes
        read.clear()
        dask.compute(U, s, Vt)
        assert len(read) == 5 * (passes + 1)
        assert len(set(read)) == 5


def test_randomized_svd_repeats_with_its_seed(tall):
    Z = da.from_array(tall, chunks=(100, 60))
    one, again, other = (arrays.randomized_svd(Z, 3, seed=seed, passes=1)[1].compute() for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one != other).all()
    np.testing.assert_array_equal(arrays.randomized_svd(Z, 3, seed=1, passes=1)[1].compute(scheduler="threads"), one)


@pytest.mark.parametrize("k", [0, -1, 61])
def test_randomized_svd_has_no_more_triplets_than_columns(tall, k):
    with pytest.raises(SpecError, match=rf"k={k}: Z of shape \(500, 60\) has at most 60 singular values"):
        arrays.randomized_svd(da.from_array(tall), k)


def test_randomized_svd_of_a_feature_map_is_kernel_pca_without_centring(X):
    model = fitted(X, center=False, size=60)
    _, s, _ = arrays.randomized_svd(arrays.feature_map(model, X), 5)
    np.testing.assert_allclose(s.compute() ** 2, model.solution.eigenvalues, rtol=1e-6)


@pytest.mark.parametrize("view", ["feature_map", "random_features", "kernel_blocks", "scores"])
def test_randomized_svd_takes_views(view, X):
    Z = VIEWS[view](fitted(X, block_rows=60), X)
    U, s, Vt = dask.compute(*arrays.randomized_svd(Z, 4))
    expected = np.linalg.svd(Z.compute(), full_matrices=False)
    np.testing.assert_allclose(s, expected[1][:4], rtol=1e-6)
    np.testing.assert_allclose(U.T @ U, np.eye(4), atol=1e-6)
    np.testing.assert_allclose((U * s) @ Vt, (expected[0][:, :4] * expected[1][:4]) @ expected[2][:4], atol=1e-3 * s[0])


def test_randomized_svd_of_zeros_is_zero():
    U, s, Vt = dask.compute(*arrays.randomized_svd(da.zeros((50, 20), chunks=(10, 20)), 3))
    np.testing.assert_array_equal(s, np.zeros(3))
    np.testing.assert_array_equal(U, np.zeros((50, 3)))
    np.testing.assert_allclose(Vt @ Vt.T, np.eye(3), atol=1e-12)


def quadratic(A, B):
    return (1 + A @ B.T / 1000) ** 2


@pytest.mark.parametrize("method", ["nystroem", "columns", "exact"])
def test_views_of_a_model_whose_kernel_is_a_function(method, X):
    model = fitted(X, kernel=quadratic, sigma="median", method=method, center=False)
    Z = arrays.feature_map(model, X).compute()
    np.testing.assert_allclose(np.linalg.eigvalsh(Z.T @ Z)[::-1][:5], model.solution.eigenvalues, rtol=1e-6)
    if method == "exact":
        np.testing.assert_allclose(Z @ Z.T, quadratic(X, X), rtol=1e-6)
    expected = score_rows(ArrayRows(X), model, Engine(threads=1), Silent())
    np.testing.assert_array_equal(arrays.scores(model, X).compute(), expected)


def test_views_of_the_estimator_are_those_of_its_model(X):
    kpca = KernelPCA(4, method="rff", size=30, random_state=0).fit(X)
    lazy = kpca.transform(da.from_array(X, chunks=(100, 64)))
    np.testing.assert_allclose(lazy.compute(), arrays.scores(kpca.model_, X).compute(), atol=1e-12)
