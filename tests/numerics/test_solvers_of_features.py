"""Column sampling, the Nyström method of the thesis, and principal components of features: what each solver gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA

from bigkpca.errors import DataError
from bigkpca.numerics import eigenpairs, solvers
from bigkpca.numerics.kernels import Cosine, Gaussian, Polynomial
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.span import span_of
from tests.helpers import oracles
from tests.numerics.fits import (
    centred_or_not,
    columns_fit,
    few,
    gram_fit,
    moments_at,
    nystroem_fit,
    plain_fit,
    rows,
    seeds,
    thesis_fit,
)


@few
@given(seed=seeds, size=st.integers(2, 15))
def test_uncentred_columns_are_the_scaled_singular_value_decomposition(seed, size):
    X, kernel = rows(seed), Gaussian(1.0)
    solution, got = columns_fit(kernel, X, X[:size], 2, center=False)
    U, D, _ = np.linalg.svd(kernel(X, X[:size]), full_matrices=False)
    values = np.sqrt(40 / size) * D[:2]
    assert_allclose(solution.eigenvalues, values, rtol=1e-8)
    expected = U[:, :2] * np.sqrt(values)
    if D[0] - D[1] > 1e-3 * D[0] and (size == 2 or D[1] - D[2] > 1e-3 * D[0]):
        assert_allclose(got, oracles.with_signs_of(expected, got), atol=1e-7 * np.abs(expected).max())
    assert_array_equal(solution.mean, np.zeros(size))


@few
@given(seed=seeds, size=st.integers(4, 15))
def test_centred_columns_are_centred_over_rows_and_over_landmarks(seed, size):
    X, kernel = rows(seed), Gaussian(1.0)
    solution, got = columns_fit(kernel, X, X[:size], 2)
    C = kernel(X, X[:size])
    H = np.eye(size) - np.ones((size, size)) / size
    U, D, _ = np.linalg.svd((C - C.mean(axis=0)) @ H, full_matrices=False)
    values = np.sqrt(40 / size) * D[:2]
    assert_allclose(solution.eigenvalues, values, rtol=1e-8)
    if min(D[0] - D[1], D[1] - D[2]) > 1e-3 * D[0]:
        expected = U[:, :2] * np.sqrt(values)
        assert_allclose(got, oracles.with_signs_of(expected, got), atol=1e-7 * np.abs(expected).max())
    assert_allclose(solution.mean, C.mean(axis=0), rtol=1e-12)
    assert_allclose(solution.components.sum(axis=0), 0, atol=1e-9 * np.abs(solution.components).max())


@centred_or_not
@pytest.mark.parametrize("fit", [columns_fit, thesis_fit], ids=["columns", "thesis"])
@pytest.mark.parametrize("seed", range(3))
def test_every_row_as_a_landmark_gives_exact_kernel_pca_by_any_method(fit, center, seed):
    X, kernel, r = rows(seed), Gaussian(1.0), 5
    eigenvalues, scores = oracles.gram_kpca(kernel(X, X), r, center)
    solution, got = fit(kernel, X, X, r, center)
    assert_allclose(solution.eigenvalues, eigenvalues, rtol=1e-8)
    gaps = -np.diff(np.append(eigenvalues, eigenvalues[-1] / 2))
    apart = gaps.min() > 1e-3 * eigenvalues[0]
    assert_allclose(got, oracles.with_signs_of(scores, got), atol=(1e-6 if apart else 1e-4) * np.abs(scores).max())
    total = np.trace(oracles.centred(kernel(X, X)) if center else kernel(X, X))
    assert_allclose(solution.total_variance, total, rtol=1e-7)
    assert_allclose(solution.unexplained, 0, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rank", [None, 3, 8, 100])
def test_the_thesis_extends_eigenvectors_of_the_landmarks(seed, rank):
    X, kernel, size = rows(seed), Gaussian(1.0), 8
    C, W = kernel(X, X[:size]), kernel(X[:size], X[:size])
    a, B = np.linalg.eigh(W)
    a, B = a[::-1][:rank], B[:, ::-1][:, :rank]
    U = np.sqrt(size / 40) * C @ B / a
    expected = U * np.sqrt(40 / size * a)
    solution, got = thesis_fit(kernel, X, X[:size], None, False, rank)
    assert solution.components.shape == (size, min(rank or size, size))
    assert_allclose(solution.eigenvalues, 40 / size * a, rtol=1e-9)
    assert_allclose(got, oracles.with_signs_of(expected, got), atol=1e-8 * np.abs(expected).max())
    assert len(thesis_fit(kernel, X, X[:size], 2, False, rank)[0].eigenvalues) == 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rank", [None, 3])
def test_the_centred_form_of_the_thesis_centres_over_landmarks(seed, rank):
    X, kernel, size = rows(seed), Gaussian(1.0), 8
    C, W = kernel(X, X[:size]), kernel(X[:size], X[:size])
    a, B = np.linalg.eigh(oracles.centred(W))
    a, B = a[::-1][: rank or 7], B[:, ::-1][:, : rank or 7]
    expected = np.sqrt(size / 40) * (C - W.mean(axis=0)) @ B / a * np.sqrt(40 / size * a)
    solution, got = thesis_fit(kernel, X, X[:size], None, True, rank)
    assert_allclose(solution.eigenvalues, 40 / size * a, rtol=1e-9)
    assert_allclose(got, oracles.with_signs_of(expected, got), atol=1e-8 * np.abs(expected).max())


@centred_or_not
@pytest.mark.parametrize("fit", [columns_fit, thesis_fit], ids=["columns", "thesis"])
def test_other_methods_keep_the_sign_rule_at_the_landmarks(fit, center):
    X, kernel = rows(0), Gaussian(1.0)
    solution, _ = fit(kernel, X, X[:12], 6, center)
    at_landmarks = (kernel(X[:12], X[:12]) - solution.mean) @ solution.components
    assert (at_landmarks.max(axis=0) >= -at_landmarks.min(axis=0) * (1 - 1e-9)).all()


@pytest.mark.parametrize("fit", [columns_fit, thesis_fit], ids=["columns", "thesis"])
def test_other_methods_take_a_share_of_the_variance_and_refuse_constant_data(fit):
    X, kernel = rows(0), Gaussian(1.5)
    explained = fit(kernel, X, X[:20], 0.7)[0].explained_variance_ratio.cumsum()
    assert explained[-1] >= 0.7 > explained[-2]
    with pytest.raises(DataError, match="no direction varies in feature space"):
        fit(kernel, np.ones((20, 3)), np.ones((5, 3)), 2)
    with pytest.raises(DataError, match="no direction varies in feature space"):
        fit(Cosine(), np.outer(np.arange(1.0, 21), [1, 2, 3]), np.outer(np.arange(1.0, 6), [1, 2, 3]), None)


@pytest.mark.parametrize("seed", range(3))
def test_eigenvalues_of_columns_are_nearer_on_average_than_the_lower_bounds_of_a_flat_spectrum(seed):
    X, kernel = rows(seed, n=150, d=6), Gaussian(1.0)
    exact, _ = oracles.gram_kpca(kernel(X, X), 5)
    rng, found = np.random.default_rng(seed), []
    for _ in range(5):
        S = X[rng.choice(150, 30, replace=False)]
        found.append([fit(kernel, X, S, 5)[0].eigenvalues for fit in (columns_fit, nystroem_fit)])
    columns, lower = np.mean(found, axis=0)
    assert np.abs(columns - exact).mean() < np.abs(lower - exact).mean()
    assert (lower <= exact).all()


@pytest.mark.parametrize("seed", range(3))
def test_maps_are_factors_of_the_approximations(seed):
    X, kernel = rows(seed), Gaussian(1.0)
    moments, W, C = moments_at(kernel, X, X[:10])
    Z = C @ solvers.nystroem_map(W, 1e-12)
    assert_allclose(Z @ Z.T, oracles.nystroem_gram(C, W, 1e-12), atol=1e-7)
    Z = C @ solvers.column_sampling_map(moments, 1e-12)
    assert_allclose(Z @ Z.T, oracles.columns_gram(C), atol=1e-7)
    assert_allclose(Z.T @ Z, np.diag(np.diag(Z.T @ Z)), atol=1e-7)


def test_maps_leave_out_what_repeats():
    X, kernel = rows(0), Gaussian(1.0)
    S = np.repeat(X[:4], 3, axis=0)
    moments, W, C = moments_at(kernel, X, S)
    for P, expected in (
        (solvers.nystroem_map(W, 1e-12), oracles.nystroem_gram(C, W, 1e-12)),
        (solvers.column_sampling_map(moments, 1e-12), oracles.columns_gram(C)),
    ):
        assert P.shape == (12, 4)
        assert_allclose(C @ P @ P.T @ C.T, expected, atol=1e-7)


def test_the_factor_of_columns_is_the_square_root_of_n_over_l():
    # Erratum of the thesis: sqrt(n) / l is too large by sqrt(l), and the error with it.
    rng = np.random.default_rng(0)
    X, kernel = rng.normal(size=(400, 4)), Gaussian(2.0)
    S = X[rng.choice(400, 60, replace=False)]
    moments, _, C = moments_at(kernel, X, S)
    P = solvers.column_sampling_map(moments, 1e-12)
    K = kernel(X, X)
    assert np.linalg.norm(K - C @ P @ P.T @ C.T) < 0.1 * np.linalg.norm(K)


@centred_or_not
@pytest.mark.parametrize("size", [1, 5, 20, 40])
@pytest.mark.parametrize("fit", [nystroem_fit, columns_fit, thesis_fit], ids=["nystroem", "columns", "thesis"])
def test_the_unexplained_share_is_the_trace_that_the_span_of_the_landmarks_leaves(fit, size, center):
    X, kernel = rows(0), 3.0 * Gaussian(1.0) + Polynomial(0.1, 2)
    if size == 1 and center and fit is not nystroem_fit:
        return  # one centred landmark is nothing
    solution, _ = fit(kernel, X, X[:size], 1, center)
    K = kernel(X, X)
    left = np.trace(K - oracles.nystroem_gram(K[:, :size], K[:size, :size], 1e-12))
    assert_allclose(solution.unexplained, left / np.trace(K), atol=1e-7)
    assert gram_fit(kernel, X, 2, center)[0].unexplained is None


@pytest.mark.parametrize("seed", range(3))
def test_plain_is_principal_component_analysis_of_the_features(seed):
    V = rows(seed, n=60, d=5) * [5, 4, 3, 2, 1] + 2
    solution, got = plain_fit(V, 3)
    pca = PCA(5, svd_solver="full")
    expected = pca.fit_transform(V)[:, :3]
    assert_allclose(solution.eigenvalues, pca.singular_values_[:3] ** 2, rtol=1e-10)
    assert_allclose(got, oracles.with_signs_of(expected, got), atol=1e-9)
    assert_allclose(solution.explained_variance_ratio, pca.explained_variance_ratio_[:3], rtol=1e-10)
    assert (solution.components.max(axis=0) >= -solution.components.min(axis=0)).all()
    assert solution.unexplained is None
    assert solution.negative == 0


@centred_or_not
def test_plain_is_kernel_pca_of_the_products_of_features(center):
    V = rows(0, n=30, d=6) + 1
    eigenvalues, scores = oracles.gram_kpca(V @ V.T, 6, center)
    solution, got = plain_fit(V, None, center)
    assert_allclose(solution.eigenvalues, eigenvalues, rtol=1e-9)
    assert_allclose(got, oracles.with_signs_of(scores, got), atol=1e-8)
    assert_allclose(solution.total_variance, eigenvalues.sum(), rtol=1e-10)


def test_what_features_leave_unexplained_is_added_to_eigenvalues_and_not_to_scores():
    V = rows(0, n=30, d=6) * 0.3
    trace = float((V**2).sum()) + 30 * 0.2
    bare, scores = plain_fit(V, 3, trace=trace)
    solution, same = plain_fit(V, 3, trace=trace, unexplained=0.2)
    assert_allclose(solution.eigenvalues, bare.eigenvalues + 0.2, rtol=1e-12)
    assert_allclose(same, scores)
    assert_allclose(solution.total_variance, bare.total_variance)
    K = V @ V.T + 0.2 * np.eye(30)
    assert_allclose(plain_fit(V, 3, False, 0.2, trace)[0].eigenvalues, np.linalg.eigvalsh(K)[::-1][:3], rtol=1e-9)


def test_plain_leaves_out_directions_that_do_not_vary_and_refuses_where_none_does():
    V = np.column_stack([rows(0, d=2), np.ones(40), np.zeros(40)])
    assert plain_fit(V, None, unexplained=0.5)[0].components.shape == (4, 2)
    with pytest.raises(DataError, match="no direction varies in feature space"):
        plain_fit(np.ones((20, 3)), 2)
    with pytest.raises(DataError, match="no direction varies in feature space"):
        plain_fit(np.ones((20, 3)), 2, unexplained=0.3)


def test_plain_takes_a_share_of_the_variance():
    V = rows(0, n=60, d=5) * [5, 4, 3, 2, 1]
    for share in (0.3, 0.8, 0.95):
        explained = plain_fit(V, share)[0].explained_variance_ratio.cumsum()
        assert explained[-1] >= share
        assert len(explained) == 1 or explained[-2] < share


@centred_or_not
def test_leading_eigenpairs_alone_give_the_same_solution(center):
    V = rows(0, n=60, d=5) * [5, 4, 3, 2, 1] + 1
    whole, _ = plain_fit(V, 2, center, 0.1)
    centred = V - V.mean(axis=0) if center else V
    values, vectors = np.linalg.eigh(centred.T @ centred)
    mean = V.mean(axis=0) if center else np.zeros(5)
    found = eigenpairs.spectrum(values[::-1][:3], vectors[:, ::-1][:, :3], mean, 60, float((V**2).sum()), 2, 0.1, 1e-12)
    assert_allclose(found.eigenvalues, whole.eigenvalues, rtol=1e-10)
    assert_allclose(found.components, whole.components, atol=1e-9)
    assert_allclose(found.total_variance, whole.total_variance, rtol=1e-10)
    assert_array_equal(found.mean, mean)


def test_other_solvers_leave_their_arguments_alone_too():
    X, kernel = rows(0), Gaussian(1.0)
    moments, W, _ = moments_at(kernel, X, X[:8])
    W = np.asfortranarray(W)
    moments = Moments(40, moments.mean, np.asfortranarray(moments.scatter), 40.0)
    before = W.copy(), moments.mean.copy(), moments.scatter.copy()
    for center in (True, False):
        solvers.column_sampling(span_of(W, moments, 1e-12), 3, center=center, tolerance=1e-12)
        solvers.nystroem_thesis(span_of(W, moments, 1e-12), 3, rank=None, center=center, tolerance=1e-12)
        solvers.plain(moments, 3, center=center, tolerance=1e-12)
    solvers.column_sampling_map(moments, 1e-12)
    solvers.nystroem_map(W, 1e-12)
    for array, kept in zip((W, moments.mean, moments.scatter), before, strict=True):
        assert_array_equal(array, kept)
