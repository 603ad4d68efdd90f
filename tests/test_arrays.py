"""Lazy views: nothing is computed before it is asked for, and what comes out is what the formulas say. Landmarks drawn
without a fit are those of a fit."""

from itertools import product

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask.callbacks import Callback

from bigkpca import arrays, kernels, landmarks, methods
from bigkpca.errors import DataError, SpecError
from bigkpca.numerics import measures
from tests.data.cases import refused
from tests.helpers import oracles
from tests.helpers.fits import fit, scores
from tests.helpers.lazy import refuse

GAUSSIAN = kernels.Gaussian(25.0)


@pytest.fixture(scope="module")
def X(digits):
    return digits[:150].astype(np.float64)


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


def fitted(X, **options):
    return fit(X, **{"n_components": 5, "size": 40, "sigma": 25.0, "random_state": 1, **options})


VIEWS = {
    "kernel_blocks": lambda model, X: arrays.kernel_blocks(X, np.eye(7, 64) * 5, GAUSSIAN)[0],
    "random_features": lambda model, X: arrays.random_features(X, 20, GAUSSIAN),
    "feature_map": arrays.feature_map,
    "scores": arrays.scores,
    "leverage": arrays.leverage,
}


@pytest.mark.parametrize("view", VIEWS)
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


@pytest.mark.full
def test_everything_is_the_same_bytes_on_processes(X, tall, two_processes):
    def computed(get):
        model, rows = fitted(X, block_rows=30), da.from_array(X, chunks=(40, 64))
        lazy = (view(model, X) for view in VIEWS.values())
        triplets = arrays.randomized_svd(da.from_array(tall, chunks=(50, 60)), 3)
        return [arrays.draw_landmarks(rows, 30, GAUSSIAN), *dask.compute(*lazy, *triplets, scheduler=get)]

    here = computed("synchronous")
    with two_processes.client.as_current(), dask.config.set(scheduler="distributed"):
        there = computed("distributed")
    assert [values.tobytes() for values in there] == [values.tobytes() for values in here]


@pytest.mark.parametrize("rule", ["auto", *landmarks.RULES, landmarks.BasicPatterns(threshold=0.9)], ids=str)
@pytest.mark.parametrize("kernel", [GAUSSIAN, kernels.Polynomial(0.01, 2, 1.0)], ids=lambda kernel: kernel.name)
def test_landmarks_are_those_of_a_fit(kernel, rule, X):
    for rows in (X.astype(np.float32) * 1.1, da.from_array(X, chunks=((1, 0, 99, 50), (40, 24)))):
        S = arrays.draw_landmarks(rows, 30, kernel, landmarks=rule, random_state=3)
        model = fitted(rows, kernel=kernel, sigma="median", size=30, landmarks=rule, random_state=3)
        np.testing.assert_array_equal(S, model.features.landmarks_in_user_units())
        assert S.dtype == np.float64
    own = (S[:, None] == X).all(axis=2).any(axis=1)  # rows of the array, and not their means
    assert own.all() == (rule != "kmeans" and not (rule == "auto" and kernel == GAUSSIAN))
    assert len(arrays.draw_landmarks(X, 1000, kernel)) == 150  # there are no more rows


def test_landmarks_are_drawn_in_one_pass_and_one_more_counts_rows(tmp_path):
    rows = np.random.default_rng(0).normal(size=(30_000, 3))
    X = da.from_array(rows, chunks=(1700, 3)).map_blocks(counting(tmp_path / "reads"), dtype=float)
    (tmp_path / "reads").write_bytes(b"")  # Dask has computed an empty chunk
    S = arrays.draw_landmarks(X, 20, GAUSSIAN)
    assert (tmp_path / "reads").stat().st_size == X.numblocks[0]
    masked = X[X[:, 0] > 1]
    assert np.isnan(masked.shape[0])
    own = arrays.draw_landmarks(masked, 20, GAUSSIAN, landmarks="uniform")
    assert (own[:, 0] > 1).all()
    assert (S[:, 0] < 1).any()
    assert (tmp_path / "reads").stat().st_size == 3 * X.numblocks[0]


def test_kernel_blocks_are_the_kernel(X):
    S = X[::15] + 0.5
    others = kernels.Laplacian(90.0), kernels.Polynomial(0.01, 2, 1.0), kernels.Linear(), kernels.Cosine()
    for kernel in (GAUSSIAN, *others):
        for dtype, rtol in ((np.float64, 1e-11), (np.float32, 1e-5), (np.uint8, 1e-5)):
            C, W = arrays.kernel_blocks(X.astype(dtype), S, kernel)
            assert C.dtype == (np.float64 if dtype == np.float64 else np.float32)
            assert W.dtype == np.float64
            np.testing.assert_allclose(C.compute(), kernel(X, S), rtol=rtol, err_msg=f"{kernel}, {dtype}")
            np.testing.assert_allclose(W, kernel(S, S), rtol=rtol, err_msg=f"{kernel}, {dtype}")


def test_random_features_approximate_the_kernel_and_depend_on_the_seed_alone(X):
    for form in ("orthogonal", "iid", "phase"):
        Z = arrays.random_features(X[:40], 10_000, GAUSSIAN, form=form).compute()
        assert Z.shape == (40, 10_000)
        np.testing.assert_allclose(Z @ Z.T, GAUSSIAN(X[:40], X[:40]), atol=0.05, err_msg=form)  # 5 standard errors
    one, again, other = (arrays.random_features(X, 40, GAUSSIAN, random_state=seed).compute() for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    for Z in (other, arrays.feature_map(fitted(X, method="rff"), X).compute()):  # a fit draws others
        assert np.abs(Z @ Z.T - one @ one.T).max() > 0.01


def test_the_feature_map_gives_the_approximated_gram_matrix_and_its_eigenvalues(X):
    thesis = methods.Nystroem("thesis", rank=40)  # of all landmarks it is the same
    cases = *product(("nystroem", "exact"), (True, False)), (thesis, True), ("columns", False), ("rff", True)
    for method, center in cases:
        model = fitted(X, method=method, center=center)
        Z, S = arrays.feature_map(model, X).compute(), model.features.landmarks_in_user_units()
        if method not in ("columns", "rff"):
            expected = oracles.nystroem_gram(GAUSSIAN(X, S), GAUSSIAN(S, S), 1e-12)
            np.testing.assert_allclose(Z @ Z.T, expected, atol=1e-8, err_msg=method)
        if method is not thesis:  # which centres the columns that it was given, and not the approximation
            expected, _ = oracles.gram_kpca(Z @ Z.T, 5, center)
            np.testing.assert_allclose(model.solution.eigenvalues, expected, rtol=1e-7, err_msg=method)


def quadratic(A, B):
    return (1 + A @ B.T / 1000) ** 2


def test_lazy_scores_are_the_scores_and_kernels_that_are_functions_have_a_feature_map(X):
    for method in ("nystroem", "columns", "rff", "rff-pca", "exact"):
        model = fitted(X, method=method)
        found = arrays.scores(model, X).compute()
        np.testing.assert_array_equal(found, scores(model, X), err_msg=method)
        if method.startswith("rff"):  # which are their own feature map
            Z = arrays.feature_map(model, X).compute()
            np.testing.assert_allclose(found, (Z - model.solution.mean) @ model.solution.components, atol=1e-12)
    for kernel, K in ((quadratic, quadratic(X, X)), ("linear", X @ X.T)):
        model = fitted(X, kernel=kernel, sigma="median", method="exact", center=False)
        np.testing.assert_array_equal(arrays.scores(model, X).compute(), scores(model, X))
        Z = arrays.feature_map(model, X).compute()
        np.testing.assert_allclose(Z @ Z.T, K, rtol=1e-6)


def test_leverages_add_up_to_the_number_of_components(X):
    for method in ("nystroem", "columns", "rff", "exact"):
        leverages = arrays.leverage(fitted(X, method=method), X)
        assert leverages.shape == (150,)
        found = leverages.compute()
        assert (found >= 0).all()
        np.testing.assert_allclose(found.sum(), 5, rtol=1e-6)
        assert 1 <= measures.coherence(found, 5) <= 150 / 5
    _, vectors = np.linalg.eigh(oracles.centred(GAUSSIAN(X, X)))  # of the exact method
    np.testing.assert_allclose(found, (vectors[:, -5:] ** 2).sum(axis=1), rtol=1e-6, atol=1e-9)


@pytest.fixture(scope="module")
def tall():
    """(500, 60) with singular values 1, 0.8, 0.8², ..."""
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.normal(size=(rows, 60)))[0] for rows in (500, 60))
    return (U * 0.8 ** np.arange(60)) @ V.T


def counting(path):
    """A function that returns the chunks that it gets, and leaves a byte in a file for each."""

    def load(chunk):
        with open(path, "ab") as file:  # appended to by several processes
            file.write(b"x")
        return chunk

    return load


COLLECTIONS = {  # Z of rows
    "plain": lambda X: X,
    "centred": lambda X: X - X.mean(axis=0),
    "features of persisted rows": lambda X: arrays.random_features(X.persist(), 40, kernels.Gaussian(1.0)),
    "wide chunks": lambda X: X.rechunk({1: 7}),
    "bytes": lambda X: (300 * abs(X)).astype("u1"),
    "flags": lambda X: X > 0,
    "halves": lambda X: X.astype("f2"),
}


CHUNKS = [*((name, (50, 60), 3) for name in COLLECTIONS)]
CHUNKS += [("plain", (500, 60), 6), ("plain", (64, 60), 60), ("plain", ((0, 250, 250), (17, 43)), 1)]


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(("name", "chunks", "k"), CHUNKS)
def test_randomized_svd_is_the_svd_of_what_users_make(name, chunks, k, center, tall):
    Z = COLLECTIONS[name](da.from_array(tall, chunks=chunks))
    found = arrays.randomized_svd(Z, k, center=center)
    assert [part.shape for part in found] == [(500, k), (k,), (k, Z.shape[1])]
    U, s, Vt = dask.compute(*found)
    known = Z.compute().astype(float)
    known = known - known.mean(axis=0) if center else known
    left, values, right = np.linalg.svd(known, full_matrices=False)
    np.testing.assert_allclose(s, values[:k], rtol=1e-5 if Z.dtype == float and k < 60 else 1e-3)
    np.testing.assert_allclose(U * s, known @ Vt.T, atol=1e-9 if Z.dtype == float else 1e-3)
    np.testing.assert_allclose(Vt @ Vt.T, np.eye(k), atol=1e-9)
    if name == "plain":
        np.testing.assert_allclose((U * s) @ Vt, (left * values)[:, :k] @ right[:k], atol=1e-3 * values[k - 1])


def test_randomized_svd_reads_each_chunk_once_a_pass(tall, tmp_path):
    load = counting(tmp_path / "reads")
    Z = da.from_array(tall, chunks=(50, 60)).map_blocks(load, dtype=float, meta=np.empty((0, 0)))
    U, _, _ = arrays.randomized_svd(Z, 3, passes=3)
    assert (tmp_path / "reads").stat().st_size == 30
    U.compute()
    assert (tmp_path / "reads").stat().st_size == 40


def test_what_does_not_fit_is_refused(X, tall):
    missing, wrong = X.copy(), da.from_array(np.where(tall == tall.max(), np.nan, tall), chunks=(50, 60))
    missing[120, 3] = np.nan
    model = fitted(X)
    for view in (arrays.scores, arrays.feature_map, arrays.leverage):
        refused(view, (model, da.ones((10, 3)), SpecError, "has 3 columns, but the model was fitted on 64"))
    for S in (np.ones((4, 3)), np.ones(64), np.ones((2, 64, 1))):
        message = r"landmarks of shape \(.*\) do not fit rows of 64 columns"
        refused(arrays.kernel_blocks, (X, S, GAUSSIAN, SpecError, message))
    refused(
        lambda rows, size, kernel, rule="auto": arrays.draw_landmarks(rows, size, kernel, landmarks=rule),
        (X, 0, GAUSSIAN, SpecError, "size=0: Input should be greater than or equal to 1"),
        (X, 5, kernels.Function(quadratic), "kmeans", SpecError, "landmarks='kmeans' uses averages of rows"),
        (da.from_array(missing, chunks=(40, 4)), 5, GAUSSIAN, DataError, "the dask array: row 120, column 3 is NaN"),
        (da.ones((50, 4), chunks=40), 5, GAUSSIAN, DataError, "the dask array: all 50 sampled rows are equal"),
        (da.from_array(X[:0], chunks=(40, 4)), 5, GAUSSIAN, DataError, "the dask array"),
    )
    refused(
        lambda Z, k, passes=5: arrays.randomized_svd(Z, k, passes=passes),
        *((wrong, k, SpecError, rf"k={k}: Z of shape \(500, 60\) has at most 60 singular values") for k in (0, -1, 61)),
        (da.ones(10), 1, SpecError, "Z has shape"),
        (da.ones((5, 5), dtype=complex), 1, SpecError, "complex128: it must be a table of real numbers"),
        (da.ones((5, 5)), 1, 0, SpecError, "passes=0: at least one is needed"),
        (wrong, 3, DataError, "Z contains NaN or infinity"),
    )


def test_randomized_svd_holds_few_chunks_at_a_time(tall):
    class Held(Callback):
        most = 0

        def _posttask(self, key, value, dsk, state, worker):
            self.most = max(self.most, sum(getattr(each, "nbytes", 0) for each in state["cache"].values()))

    X = da.map_blocks(lambda block_id: tall[50 * block_id[0] :][:50], chunks=((50,) * 10, (60,)), dtype=float)
    for center in (False, True):
        with Held() as held:
            arrays.randomized_svd(X, 3, center=center)
        assert held.most < tall.nbytes / 2


@pytest.mark.full
def test_graphs_hold_what_all_chunks_need_once():
    rows = da.zeros((10_000_000, 54), chunks=(16_384, 54))
    for Z in (
        arrays.random_features(rows, 2000, kernels.Gaussian(5.0)),
        arrays.kernel_blocks(rows, np.zeros((2000, 54)), kernels.Gaussian(5.0))[0],
    ):
        assert len(cloudpickle.dumps(dict(dask.optimize(Z)[0].dask))) < 5e6


def test_chunks_of_rows_are_kept(X):
    rows, model = da.from_array(X, chunks=((1, 99, 50), (40, 24))), fitted(X, preimage="ridge")
    found = arrays.scores(model, rows)
    for lazy in (found, arrays.residuals(model, rows), arrays.preimages(model, found), arrays.denoised(model, rows)):
        assert lazy.chunks[0] == (1, 99, 50)
    many = da.zeros((100_000, 64), chunks=(10_000, 64))
    assert arrays.scores(model, many).chunks[0] == (10_000,) * 10
    missing = da.where(da.arange(150 * 64).reshape(150, 64) == 120 * 64 + 3, np.nan, rows)
    refused(arrays.scores(model, missing).compute, (DataError, "the dask array: row 120, column 3 is NaN"))


def test_randomized_svd_repeats_with_its_seed_and_is_zero_for_zeros(tall):
    Z = da.from_array(tall, chunks=(100, 60))
    one, again, other = (arrays.randomized_svd(Z, 3, random_state=seed, passes=1)[1] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one != other).all()
    U, s, Vt = dask.compute(*arrays.randomized_svd(da.zeros((50, 20), chunks=(10, 20)), 3))
    np.testing.assert_array_equal(s, np.zeros(3))
    np.testing.assert_array_equal(U, np.zeros((50, 3)))
    np.testing.assert_allclose(Vt @ Vt.T, np.eye(3), atol=1e-12)
