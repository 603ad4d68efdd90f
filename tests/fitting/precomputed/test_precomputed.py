"""Kernel PCA of a Gram matrix that the caller has: as scikit-learn's, and as our own exact method's."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.decomposition import KernelPCA as Peer

from bigkpca import KernelPCA, kernels
from bigkpca.errors import DataError, IndefiniteKernelWarning
from tests.fitting.precomputed.matrices import (
    DISTANCES,
    K_NEW,
    KERNEL,
    OPTIONS,
    SOURCES,
    K,
    N,
    R,
    X,
    estimator,
    fitted,
    leading,
    squared_distances,
    with_entry,
)
from tests.helpers import oracles
from tests.helpers.fits import scores


@pytest.mark.parametrize(
    "kinds", [["zarr, odd chunks"], pytest.param(SOURCES, marks=pytest.mark.full)], ids=["one", "all"]
)
def test_every_source_gives_the_scores_of_scikit_learn(kinds, tmp_path):
    theirs = Peer(R, kernel="precomputed").fit(K)
    for kind in kinds:
        source = SOURCES[kind]
        ours = estimator().fit(source(tmp_path, K))
        assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-11, err_msg=kind)
        for values in (K, K_NEW):
            expected = theirs.transform(values)
            found = np.asarray(ours.transform(source(tmp_path, values)))
            assert_allclose(oracles.with_signs_of(found, expected), expected, atol=1e-6, err_msg=kind)


def test_it_is_the_exact_method_on_the_rows():
    rows, given = fitted(X[:N], kernel=KERNEL), fitted(K)
    assert_allclose(given.solution.eigenvalues, rows.solution.eigenvalues, rtol=1e-11)
    assert_allclose(given.solution.total_variance, rows.solution.total_variance, rtol=1e-11)
    assert_allclose(given.solution.mean, rows.solution.mean, rtol=1e-10, atol=1e-13)
    assert_allclose(scores(given, K), scores(rows, X[:N]), atol=1e-6)  # signs as well
    assert_allclose(scores(given, K_NEW), scores(rows, X[N:]), atol=1e-6)
    assert given.certificate.unexplained == 0
    assert not given.certificate.of_products


def test_precision_is_that_of_the_matrix_or_as_asked():
    for dtype, asked, expected in (
        (np.float16, None, "float32"),
        (np.float32, "float64", "float64"),
        (np.float64, "float32", "float32"),
    ):
        given = K.astype(dtype)
        model = fitted(given, residual_tol=1e-4, dtype=asked)
        assert model.features.dtype == expected, (dtype, asked)
        rtol = 1e-7 if expected == "float64" else 1e-5
        assert_allclose(model.solution.eigenvalues, leading(given.astype(np.float64)), rtol=rtol)
    counts = np.random.default_rng(1).integers(0, 4, (N, 4))
    counts = (counts @ counts.T).astype(np.uint8)
    assert_allclose(fitted(counts, n_components=3).solution.eigenvalues, leading(counts.astype(float), 3), rtol=1e-5)


def test_all_components_or_a_share_of_the_variance():
    true = leading(K, N)
    share = int(np.searchsorted(np.cumsum(true) / true.sum(), 0.9)) + 1
    found = {given: fitted(K, n_components=given).solution.eigenvalues for given in (None, 0.9)}
    assert len(found[0.9]) == share
    assert N - 2 <= len(found[None]) <= N
    assert_allclose(found[None], true[: len(found[None])], rtol=1e-6)


def test_a_model_keeps_no_matrix_but_a_digest_of_it(tmp_path):
    model = estimator().fit(K)
    model.save(tmp_path / "model.zarr")
    assert sum(each.stat().st_size for each in (tmp_path / "model.zarr").rglob("*")) < 20 * 8 * N + 80_000
    content = KernelPCA.load(tmp_path / "model.zarr").model_.provenance["content"]
    assert content == fitted(K.copy()).provenance["content"]
    assert content != fitted(with_entry(7, 7, 1.01)).provenance["content"]


def test_squared_distances_give_classical_scaling():
    values, coordinates = oracles.gram_kpca(DISTANCES, 5)  # as Torgerson has it: eigenvalues of -H D² H / 2
    centre = X[:N].mean(axis=0)
    axes = np.linalg.svd(X[:N] - centre, full_matrices=False)[2].T
    for dtype, close in ((np.float64, 1e-9), (np.float32, 1e-5)):
        given = DISTANCES.astype(dtype)
        model = fitted(given, n_components=5, residual_tol=1e-5)
        assert_allclose(model.solution.eigenvalues, values, rtol=close)
        assert model.solution.negative == 0  # no warning
        atol = max(close, 1e-5) * np.sqrt(values[0])
        assert_allclose(oracles.with_signs_of(scores(model, given), coordinates), coordinates, atol=atol)
        assert_allclose(model.solution.total_variance, np.square(X[:N] - centre).sum(), rtol=close)
        assert_allclose(model.solution.explained_variance_ratio.sum(), 1, rtol=1e-4)
        expected = (X[N:] - centre) @ axes  # new rows are where principal axes have them
        new = scores(model, (-squared_distances(X[N:], X[:N]) / 2).astype(dtype))
        assert_allclose(oracles.with_signs_of(new, expected), expected, atol=atol)


def test_distances_of_no_space_give_the_positive_part_and_a_warning(tmp_path):
    given = -(np.abs(X[:N, None] - X[None, :N]).sum(axis=2) ** 2) / 2  # of city blocks
    values, coordinates = oracles.gram_kpca(given, R)
    spectrum = leading(given, N)
    with pytest.warns(IndefiniteKernelWarning, match=r"most negative eigenvalue is -\S+ of the largest") as told:
        model = fitted(SOURCES["zarr, odd chunks"](tmp_path, given))
    (message,) = {str(warning.message) for warning in told}
    share, rtol = spectrum[-1] / spectrum[0], 0.05
    assert_allclose([model.solution.negative, float(re.search(r"is (-\S+) of", message)[1])], share, rtol=rtol)
    assert_allclose(model.solution.eigenvalues, values, rtol=1e-9)
    found = scores(model, given)
    assert_allclose(oracles.with_signs_of(found, coordinates), coordinates, atol=1e-5 * np.sqrt(values[0]))
    certificate = model.certificate
    assert (certificate.lower <= values * (1 + 1e-14)).all()
    assert (values <= certificate.upper).all()
    assert_allclose(model.solution.total_variance, spectrum[spectrum > 0].sum(), rtol=1e-9)


def test_a_diagonal_of_either_sign_is_kept_to_its_positive_part():
    signs = np.where(np.arange(N) % 3, 1.0, -1.0)
    given = K * signs[:, None] + signs * K  # indefinite, with a diagonal of both signs
    for center in (True, False):
        with pytest.warns(IndefiniteKernelWarning):
            model = fitted(given, center=center)
        expected = leading(given, center=center)
        assert_allclose(model.solution.eigenvalues, expected, rtol=1e-9)
        assert_allclose(np.square(scores(model, given)).sum(axis=0), expected, rtol=1e-6)


def test_without_a_positive_eigenvalue_nothing_is_left():
    message = "has no positive eigenvalue, and -.* kernel values must be large for similar rows"
    for matrix in (-K, -2 * DISTANCES - 1e-3):
        with pytest.raises(DataError, match=message):
            fitted(matrix)


def test_single_precision_makes_no_matrix_indefinite():
    for sigma in (2.5, 30.0, 300.0):
        given = kernels.Gaussian(sigma).gram(X[:N]).astype(np.float32)
        assert fitted(given, residual_tol=1e-2, n_components=3).solution.negative == 0, sigma


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
        found = KernelPCA(5, **OPTIONS, center=False).fit(given).certificate_
    assert (found.lower <= 1.001).all()
    assert (found.upper >= 1.001).all()


def test_centring_rows_that_are_nearly_alike_makes_no_eigenvalue():
    n = 1200
    u = np.random.default_rng(1).normal(size=n)
    u -= u.mean()
    u /= np.linalg.norm(u)
    kpca = KernelPCA(2, **OPTIONS).fit(0.9999 + 2e-10 * np.outer(u, u))
    assert kpca.eigenvalues_[0] == pytest.approx(2e-10, rel=1e-4)
    assert kpca.certificate_.lower[1:].max(initial=0.0) == 0


def test_large_entries_beside_a_small_diagonal_may_be_rounded():
    A = np.random.default_rng(2).normal(size=(80, 80))
    given = (1000 * (A + A.T)).astype(np.float32)
    np.fill_diagonal(given, 1.0)
    given[3, 5] = np.nextafter(given[3, 5], np.float32(np.inf))
    with pytest.warns(IndefiniteKernelWarning):
        assert KernelPCA(3, **OPTIONS).fit(given).n_components_ == 3
