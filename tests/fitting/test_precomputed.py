"""Kernel PCA of a Gram matrix that the caller has, against scikit-learn's; mistakes in it."""

import re

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import KernelPCA as Peer
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

import bigkpca
from bigkpca import KernelPCA, arrays, kernels
from bigkpca.errors import DataError, IndefiniteKernelWarning, MemoryLimitError, SpecError
from bigkpca.spec import FitSpec
from tests.helpers import oracles
from tests.helpers.fits import fit, scores
from tests.helpers.stores import as_npy, as_zarr

N, NEW, R = 330, 40, 6
X = np.random.default_rng(0).normal(size=(N + NEW, 5)) * [3, 1, 2, 1, 0.5]
KERNEL = kernels.Gaussian(2.5)
WHOLE = KERNEL.gram(X)
K, K_NEW = WHOLE[:N, :N], WHOLE[N:, :N]
OPTIONS = {"kernel": "precomputed", "method": "exact", "n_components": R, "random_state": 3}


def fitted(data, **options):
    return fit(data, **OPTIONS | options)


def squared_distances(A, B):
    return np.square(A[:, None] - B[None]).sum(axis=2)


DISTANCES = -squared_distances(X[:N], X[:N]) / 2  # what classical scaling takes


def leading(matrix, count=R, center=True):
    """The largest eigenvalues of the centred matrix, descending."""
    return np.linalg.eigvalsh(oracles.centred(matrix) if center else matrix)[::-1][:count]


def with_entry(row, column, value):
    """K with one wrong entry."""
    wrong = K.copy()
    wrong[row, column] = value
    return wrong


@pytest.mark.parametrize(
    "source",
    [
        lambda folder, values: as_zarr(folder, values, (37, 91)),
        lambda folder, values: as_npy(folder, np.asfortranarray(values)),
        lambda folder, values: da.from_array(values, chunks=(50, 50)),
    ],
    ids=["zarr, odd chunks", "Fortran npy", "dask"],
)
def test_every_source_gives_the_scores_of_scikit_learn(source, tmp_path):
    theirs, ours = Peer(R, kernel="precomputed").fit(K), KernelPCA(**OPTIONS).fit(source(tmp_path, K))
    assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-11)
    assert ours.certificate_.unexplained == 0
    for values in (K, K_NEW):
        expected = theirs.transform(values)
        found = np.asarray(ours.transform(source(tmp_path, values)))
        assert_allclose(oracles.with_signs_of(found, expected), expected, atol=1e-6)


def test_precision_is_that_of_the_matrix_or_as_asked():
    for dtype, asked, expected in (
        (np.float16, None, "float32"),
        (np.float32, "float64", "float64"),
        (np.float64, "float32", "float32"),
    ):
        given = K.astype(dtype)
        model = fitted(given, dtype=asked)
        assert model.features.dtype == expected, (dtype, asked)
        rtol = 1e-7 if expected == "float64" else 1e-5
        assert_allclose(model.solution.eigenvalues, leading(given.astype(np.float64)), rtol=rtol)
    counts = np.random.default_rng(1).integers(0, 4, (N, 4))
    counts = (counts @ counts.T).astype(np.uint8)
    assert_allclose(fitted(counts, n_components=3).solution.eigenvalues, leading(counts.astype(float), 3), rtol=1e-5)


def test_a_model_keeps_no_matrix(tmp_path):
    KernelPCA(**OPTIONS).fit(K).save(tmp_path / "model.zarr")
    assert sum(each.stat().st_size for each in (tmp_path / "model.zarr").rglob("*")) < 20 * 8 * N + 80_000


@pytest.mark.parametrize(("dtype", "close"), [(np.float64, 1e-9), (np.float32, 1e-5)])
def test_squared_distances_give_classical_scaling(dtype, close):
    given = DISTANCES.astype(dtype)
    centre = X[:N].mean(axis=0)
    model = fitted(given, n_components=5)
    assert model.solution.negative == 0  # no warning
    assert_allclose(model.solution.total_variance, np.square(X[:N] - centre).sum(), rtol=close)
    assert_allclose(model.solution.explained_variance_ratio.sum(), 1, rtol=1e-4)
    axes = np.linalg.svd(X[:N] - centre, full_matrices=False)[2].T
    for rows, matrix in ((X[:N], given), (X[N:], (-squared_distances(X[N:], X[:N]) / 2).astype(dtype))):
        expected = (rows - centre) @ axes  # new rows are where principal axes have them, too
        atol = max(close, 1e-5) * np.abs(expected).max()
        assert_allclose(oracles.with_signs_of(scores(model, matrix), expected), expected, atol=atol)


def test_distances_of_no_space_give_the_positive_part_and_a_warning():
    given = -(np.abs(X[:N, None] - X[None, :N]).sum(axis=2) ** 2) / 2  # of city blocks
    values, coordinates = oracles.gram_kpca(given, R)
    spectrum = leading(given, N)
    with pytest.warns(IndefiniteKernelWarning, match=r"most negative eigenvalue is -\S+ of the largest") as told:
        model = fitted(given)
    (message,) = {str(warning.message) for warning in told}
    share = spectrum[-1] / spectrum[0]
    assert_allclose([model.solution.negative, float(re.search(r"is (-\S+) of", message)[1])], share, rtol=0.05)
    assert_allclose(model.solution.eigenvalues, values, rtol=1e-9)
    found = scores(model, given)
    assert_allclose(oracles.with_signs_of(found, coordinates), coordinates, atol=1e-5 * np.sqrt(values[0]))
    assert (model.certificate.lower <= values * (1 + 1e-14)).all()
    assert (values <= model.certificate.upper).all()
    assert_allclose(model.solution.total_variance, spectrum[spectrum > 0].sum(), rtol=1e-9)


def test_single_precision_makes_no_matrix_indefinite():
    for sigma in (2.5, 30.0, 300.0):
        given = kernels.Gaussian(sigma).gram(X[:N]).astype(np.float32)
        assert fitted(given, n_components=3).solution.negative == 0, sigma


def test_a_matrix_that_is_positive_once_centred_is_not_indefinite():
    given = DISTANCES - DISTANCES.min() / 4  # of which scaling is classical: its centred form is that of XX'
    assert np.linalg.eigvalsh(given)[0] < -1
    expected = leading(X[:N] @ X[:N].T, 5)
    assert_allclose(fitted(given, n_components=5).solution.eigenvalues, expected, rtol=1e-9)
    with pytest.warns(IndefiniteKernelWarning):
        fitted(given, n_components=5, center=False)


def test_eigenvalues_beside_a_large_negative_one_are_proven_no_better_than_they_are():
    u = np.random.default_rng(0).choice([-1.0, 1.0], 600)
    given = -np.outer(u, u)
    np.fill_diagonal(given, 0.001)
    with pytest.warns(IndefiniteKernelWarning):
        found = fitted(given, n_components=5, center=False).certificate
    assert (found.lower <= 1.001).all()
    assert (found.upper >= 1.001).all()


def test_centring_rows_that_are_nearly_alike_makes_no_eigenvalue():
    u = np.random.default_rng(1).normal(size=1200)
    u -= u.mean()
    u /= np.linalg.norm(u)
    model = fitted(0.9999 + 2e-10 * np.outer(u, u), n_components=2)
    assert model.solution.eigenvalues[0] == pytest.approx(2e-10, rel=1e-4)
    assert model.certificate.lower[1:].max(initial=0.0) == 0


def test_large_entries_beside_a_small_diagonal_may_be_rounded():
    A = np.random.default_rng(2).normal(size=(80, 80))
    given = (1000 * (A + A.T)).astype(np.float32)
    np.fill_diagonal(given, 1.0)
    given[3, 5] = np.nextafter(given[3, 5], np.float32(np.inf))
    with pytest.warns(IndefiniteKernelWarning):
        assert fitted(given, n_components=3).components == 3


ROW_OF_ZEROS = K.copy()
ROW_OF_ZEROS[5] = 0
MISTAKES = {
    "one entry": (
        with_entry(201, 77, K[201, 77] + 0.25),
        r"is not symmetric: entry \((201, 77|77, 201)\) is [\d.e-]+, entry \((77, 201|201, 77)\) is [\d.e-]+ \(counted",
    ),
    "the last entry": (with_entry(N - 1, 0, K[N - 1, 0] - 0.01), rf"not symmetric: entry \(({N - 1}, 0|0, {N - 1})\)"),
    "row of zeros": (ROW_OF_ZEROS, r"entry \(5, 5\) is 0|entry \(5, \d+\) is 0, entry"),
    "NaN": (with_entry(150, 250, np.nan), "row 150, column 250 is NaN"),
    "zero diagonal": (with_entry(9, 9, 0), r"entry \(9, 9\) is 0, but others in its row are not"),
    "distances": (
        1 - K,
        r"no entry is negative, as in a matrix of distances D: convert distances .* exp\(-D² .*, or with -D² / 2",
    ),
    "constant": (np.full((N, N), 3.0), "no direction varies"),
    "negative": (-K, "has no positive eigenvalue, and -.* kernel values must be large for similar rows"),
    "huge": (K * 1e300, "overflow"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake):
    wrong, message = MISTAKES[mistake]
    with pytest.raises(DataError, match=message):
        fitted(wrong, **{"dtype": "float32"} if mistake == "huge" else {})


@pytest.mark.parametrize("given", ["kernels", "squared distances"])
def test_rounding_is_no_asymmetry(given):
    lengths = np.geomspace(1, 1e3, N)
    matrix = K * np.outer(lengths, lengths) if given == "kernels" else DISTANCES
    rng = np.random.default_rng(0)
    for dtype, scale in ((np.float32, 1e-12), (np.float64, 1e12)):
        eps = np.finfo(dtype).eps
        rounded = (matrix * scale * (1 + 8 * eps * rng.uniform(-1, 1, K.shape))).astype(dtype)
        assert fitted(rounded, n_components=3).components == 3
        rounded[200, 300] *= 1.5
        with pytest.raises(DataError, match=r"is not symmetric: entry \((200, 300|300, 200)\)"):
            fitted(rounded, n_components=3)


def test_a_matrix_that_is_not_square_or_too_large_is_refused_before_it_is_read():
    for rows, columns in ((N, N - 1), (N - 1, N)):
        message = f"has {rows} rows and {columns} columns: .* needs the square matrix"
        for call in (fitted, lambda given: bigkpca.plan(given, **OPTIONS)):
            with pytest.raises(SpecError, match=message):
                call(np.ones((rows, columns)))
    matrix = np.broadcast_to(np.float32(np.nan), (8192, 8192))
    plan = bigkpca.plan(matrix, **OPTIONS)
    assert plan.array_bytes > 2 * 8 * 8192**2
    assert (plan.bytes_read, plan.passes) == (4 * 8192**2, 1)
    with pytest.raises(MemoryLimitError, match="50 MB are allowed: request fewer components, or allow more"):
        KernelPCA(**OPTIONS, memory_limit="50 MB").fit(matrix)


def test_the_kernel_has_no_formula_and_few_options():
    kernel = kernels.Precomputed()
    assert kernels.from_dict(kernel.to_dict()) == kernel
    for combined in (kernel, 2.0 * kernel, kernel + KERNEL, KERNEL * kernel):
        with pytest.raises(SpecError, match="a precomputed kernel has no formula to evaluate or to combine"):
            combined(X, X)
    for options, message in (
        ({"method": "nystroem"}, "kernel='precomputed' needs method='exact', not 'nystroem'"),
        ({"standardize": True}, "standardize=True does not work with kernel='precomputed'"),
        ({"sigma": 2.0}, "the precomputed kernel has no length sigma"),
        ({"gamma": 2.0}, "the precomputed kernel has no gamma"),
    ):
        with pytest.raises(SpecError, match=message):
            FitSpec.checked(**OPTIONS | options)


def test_new_rows_that_are_no_kernels_with_the_fitted_ones_are_refused(tmp_path):
    model = KernelPCA(**OPTIONS).fit(K)
    message = (
        rf"has 7 columns, but the model was fitted on the kernels of {N} rows: each new row must contain its kernels"
    )
    with pytest.raises(SpecError, match=message):
        bigkpca.transform(model.model_, K_NEW[:, :7], tmp_path / "scores.zarr")
    with pytest.raises(SpecError, match=message):
        model.transform(da.from_array(K_NEW[:, :7]))
    with pytest.raises(DataError, match="rows 0 to 39: kernel values overflow"):
        scores(fitted(K, dtype="float32"), K_NEW * 1e300)


def test_what_needs_rows_or_their_matrix_says_so():
    model = KernelPCA(**OPTIONS).fit(K)
    with pytest.raises(SpecError, match="is a kernel matrix: see the residual of every component"):
        bigkpca.evaluate(model.model_, K)
    with pytest.raises(SpecError, match="keeps neither the rows nor their matrix"):
        arrays.feature_map(model.model_, K)
    assert not hasattr(model, "partial_fit")
    assert_allclose(arrays.leverage(model.model_, K).sum().compute(), R, rtol=1e-6)
    assert (model.landmarks_, model.sigma_) == (None, None)


@pytest.mark.full
def test_scikit_learn_contract():
    refused = {"check_estimators_nan_inf": "wants NaN reported before a matrix of 10 rows and 3 columns is refused"}
    for name in ("pandas_series", "not_an_array", "list", "shape", "not_overwritten"):
        refused[f"check_sample_weights_{name}"] = "a kernel matrix takes no weights"
    refused["check_all_zero_sample_weights_error"] = "a kernel matrix takes no weights"
    given = KernelPCA(**OPTIONS | {"n_components": 2, "random_state": 0})
    assert check_estimator(given, expected_failed_checks=refused, on_skip=None)


def test_the_tag_says_that_input_is_pairwise_however_the_kernel_is_typed():
    for kernel in ("PRECOMPUTED", kernels.Precomputed()):
        given = KernelPCA(**OPTIONS | {"kernel": kernel})
        assert get_tags(given).input_tags.pairwise
        assert not hasattr(given, "score")
        assert_array_equal(given.fit(K).model_.solution.components, fitted(K).solution.components)
    for kernel in ("gaussian", "no kernel", kernels.Linear(), np.dot):
        assert not get_tags(KernelPCA(kernel=kernel)).input_tags.pairwise
