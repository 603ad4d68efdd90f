"""Solvers against the full Gram matrix: equivalences, bounds, signs, and what cannot be solved."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA

from bigkpca.errors import DataError
from bigkpca.numerics import gram_solver, solvers
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Cosine, Function, Gaussian, Linear, Polynomial, Sigmoid
from bigkpca.numerics.moments import Moments, block_moments
from bigkpca.numerics.span import span_of
from tests.helpers import oracles
from tests.numerics.fits import centred_or_not, digits_kernel, few, gram_fit, nystroem_fit, rows, seeds


@centred_or_not
@few
@given(seed=seeds)
def test_all_rows_as_landmarks_give_exact_kernel_pca(center, seed):
    X, kernel, r = rows(seed), Gaussian(1.0), 6
    eigenvalues, scores = oracles.gram_kpca(kernel(X, X), r, center)
    for solution, got in (nystroem_fit(kernel, X, X, r, center), gram_fit(kernel, X, r, center)):
        assert_allclose(solution.eigenvalues, eigenvalues, rtol=1e-8)
        gaps = np.abs(np.subtract.outer(eigenvalues, eigenvalues)) + np.eye(r) * eigenvalues[0]
        if gaps.min() > 1e-3 * eigenvalues[0]:  # else eigenvectors mix
            assert_allclose(oracles.with_signs_of(scores, got), got, atol=1e-7 * np.abs(got).max())


@centred_or_not
@few
@given(seed=seeds, size=st.integers(3, 20))
def test_any_landmarks_give_kernel_pca_of_the_naive_approximation(center, seed, size):
    X, kernel = rows(seed), Gaussian(1.0)
    S = np.random.default_rng(seed).normal(size=(size, 3))  # landmarks need not be rows
    solution, got = nystroem_fit(kernel, X, S, 3, center)
    eigenvalues, scores = oracles.nystroem_kpca(kernel(X, S), kernel(S, S), 3, center)
    assert_allclose(solution.eigenvalues, eigenvalues, rtol=1e-6)
    # Gram matrices of the scores, because they know neither signs nor mixtures of close components.
    assert_allclose(np.sum(got**2, axis=0), np.sum(scores**2, axis=0), rtol=1e-6)
    everything, _ = nystroem_fit(kernel, X, S, None, center)
    whole = (kernel(X, S) - everything.mean) @ everything.components
    approximation = oracles.nystroem_gram(kernel(X, S), kernel(S, S), 1e-12)
    expected = oracles.centred(approximation) if center else approximation
    assert_allclose(whole @ whole.T, expected, atol=1e-6)


@centred_or_not
@few
@given(seed=seeds, size=st.integers(2, 40))
def test_squared_norms_of_scores_are_the_eigenvalues(center, seed, size):
    X = rows(seed)
    for solution, scores in (
        nystroem_fit(Gaussian(1.0), X, X[:size], 5, center),
        gram_fit(Gaussian(1.0), X, 5, center),
    ):
        assert_allclose((scores**2).sum(axis=0), solution.eigenvalues, rtol=1e-7)
        products = scores.T @ scores
        assert_allclose(products, np.diag(products.diagonal()), atol=1e-7 * solution.eigenvalues[0])
        if center:
            assert_allclose(scores.sum(axis=0), 0, atol=1e-7 * np.abs(scores).max() * len(X))


def test_scores_of_new_rows_need_only_the_mean_kernel_row():
    X, new, kernel = rows(0), rows(1, n=7), Gaussian(1.0)
    K, k = kernel(X, X), kernel(new, X)
    eigenvalues, scores = oracles.gram_kpca(K, 4)
    expected = (k - k.mean(axis=1, keepdims=True) - K.mean(axis=0) + K.mean()) @ (scores / eigenvalues)
    solution, _ = gram_fit(kernel, X, 4)
    got = (k - solution.mean) @ solution.components
    assert_allclose(got, oracles.with_signs_of(expected, got), atol=1e-10)


@pytest.mark.parametrize("method", ["nystroem", "gram"])
def test_the_linear_kernel_is_principal_component_analysis(method):
    X = rows(0, n=60, d=5) * [5, 4, 3, 2, 1] + 2
    if method == "nystroem":
        solution, got = nystroem_fit(Linear(), X, X[:8], 5)  # eight rows span the five columns
    else:
        solution, got = gram_fit(Linear(), X, 5)
    pca = PCA(5, svd_solver="full")
    expected = pca.fit_transform(X)
    assert_allclose(solution.eigenvalues, pca.singular_values_**2, rtol=1e-9)
    assert_allclose(got, oracles.with_signs_of(expected, got), atol=1e-8)
    assert_allclose(solution.explained_variance_ratio, pca.explained_variance_ratio_, rtol=1e-9)


@centred_or_not
@few
@given(seed=seeds, size=st.integers(2, 40))
def test_nystroem_never_promises_too_much(center, seed, size):
    X, kernel = rows(seed), Gaussian(1.0)
    K = kernel(X, X)
    exact, _ = oracles.gram_kpca(K, 40, center)
    solution, _ = nystroem_fit(kernel, X, X[:size], None, center)
    slack = 1e-9 * exact[0]
    assert (solution.eigenvalues <= exact[: len(solution.eigenvalues)] + slack).all()
    total = np.trace(oracles.centred(K) if center else K)
    assert solution.total_variance >= total - slack
    assert (solution.explained_variance_ratio <= exact[: len(solution.eigenvalues)] / total + 1e-9).all()


@centred_or_not
def test_all_landmarks_leave_no_doubt_about_the_total_variance(center):
    X, kernel = rows(0), Gaussian(1.0)
    K = kernel(X, X)
    total = np.trace(oracles.centred(K) if center else K)
    assert_allclose(nystroem_fit(kernel, X, X, 3, center)[0].total_variance, total, rtol=1e-8)
    assert_allclose(gram_fit(kernel, X, 3, center)[0].total_variance, total, rtol=1e-12)


def test_more_landmarks_never_lower_an_eigenvalue():
    X, kernel = rows(0), Gaussian(1.0)
    found = np.array([nystroem_fit(kernel, X, X[:size], 4)[0].eigenvalues for size in (6, 12, 24, 40)])
    assert (np.diff(found, axis=0) >= -1e-9 * found[-1]).all()


@pytest.mark.parametrize(
    "fit", [lambda *a: nystroem_fit(a[0], a[1], a[1][:30], a[2]), gram_fit], ids=["nystroem", "gram"]
)
def test_components_are_a_number_a_share_or_all(fit):
    X, kernel = rows(0), Gaussian(1.5)
    everything = fit(kernel, X, None)[0]
    assert 20 < len(everything.eigenvalues) < 40
    few_of_them = fit(kernel, X, 4)[0]
    assert_allclose(few_of_them.eigenvalues, everything.eigenvalues[:4], rtol=1e-10)
    assert few_of_them.components.shape[1] == 4
    assert len(fit(kernel, X, 1000)[0].eigenvalues) == len(everything.eigenvalues)
    for share in (0.3, 0.7, 0.9):
        explained = fit(kernel, X, share)[0].explained_variance_ratio.cumsum()
        assert explained[-1] >= share
        assert len(explained) == 1 or explained[-2] < share


def test_a_share_that_the_landmarks_do_not_reach_gives_all_there_is():
    X = rows(0)
    everything = nystroem_fit(Gaussian(0.3), X, X[:5], None)[0]
    assert everything.explained_variance_ratio.sum() < 0.9
    assert_array_equal(nystroem_fit(Gaussian(0.3), X, X[:5], 0.9)[0].eigenvalues, everything.eigenvalues)


def test_the_rank_is_found_where_rows_and_landmarks_repeat():
    distinct, kernel = rows(0, n=6), Gaussian(1.0)
    X = np.repeat(distinct, 5, axis=0)
    eigenvalues, _ = oracles.gram_kpca(kernel(X, X), 5)
    for _, scores in (nystroem_fit(kernel, X, X[:20], None), gram_fit(kernel, X, None)):
        assert np.isfinite(scores).all()
    assert_allclose(gram_fit(kernel, X, None)[0].eigenvalues, eigenvalues, rtol=1e-9)  # five after centring six
    solution, _ = nystroem_fit(kernel, X, np.repeat(distinct, 3, axis=0), None)
    assert_allclose(solution.eigenvalues, eigenvalues, rtol=1e-9)
    assert solution.components.shape == (18, 5)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_scaling_rows_and_length_together_changes_nothing(factor):
    X = rows(0)
    for fit in (lambda X, s: nystroem_fit(Gaussian(s), X, X[:12], None), lambda X, s: gram_fit(Gaussian(s), X, None)):
        one, other = fit(X, 1.0)[0], fit(X * factor, factor)[0]
        assert_allclose(other.eigenvalues[:10], one.eigenvalues[:10], rtol=1e-8)
        assert len(one.eigenvalues) == len(other.eigenvalues)


@pytest.mark.parametrize("factor", [1e-12, 1e12])
def test_scaling_the_kernel_scales_eigenvalues_and_scores(factor):
    X = rows(0)
    one, scores = nystroem_fit(Gaussian(1.0), X, X[:12], 5)
    other, scaled = nystroem_fit(factor * Gaussian(1.0), X, X[:12], 5)
    assert_allclose(other.eigenvalues, factor * one.eigenvalues, rtol=1e-9)
    assert_allclose(scaled, factor**0.5 * scores, rtol=1e-6, atol=1e-9 * factor**0.5)


@centred_or_not
def test_the_score_of_largest_absolute_value_at_the_landmarks_is_positive(center):
    X = rows(0)
    for solution, S in (
        (nystroem_fit(Gaussian(1.0), X, X[:12], 8, center)[0], X[:12]),
        (gram_fit(Gaussian(1.0), X, 8, center)[0], X),
    ):
        at_landmarks = (Gaussian(1.0)(S, S) - solution.mean) @ solution.components
        assert (at_landmarks.max(axis=0) >= -at_landmarks.min(axis=0) * (1 - 1e-9)).all()


def test_single_and_double_precision_agree_on_signs_and_values_on_digits(digits):
    X, kernel = digits.astype(np.float64), digits_kernel(digits)
    S = X[np.random.default_rng(1).choice(len(X), 100, replace=False)]
    double, scores = nystroem_fit(kernel, X, S, 10)
    single, scores32 = nystroem_fit(kernel, X.astype(np.float32), S.astype(np.float32), 10)
    assert_allclose(single.eigenvalues, double.eigenvalues, rtol=1e-4)
    assert_allclose(scores32, scores, atol=1e-2 * np.abs(scores).max())


def test_the_negative_share_of_an_indefinite_kernel_is_reported():
    X, kernel = rows(0), Sigmoid(0.5, -0.5)
    values = np.linalg.eigvalsh(oracles.centred(kernel(X, X)))
    assert values[0] < -0.01 * values[-1]
    solution, _ = gram_fit(kernel, X, 3)
    assert_allclose(solution.negative, values[0] / values[-1], rtol=1e-9)
    assert_allclose(solution.eigenvalues, values[::-1][:3], rtol=1e-9)


@centred_or_not
@pytest.mark.parametrize("size", [5, 15, 40])
@pytest.mark.parametrize(("kernel", "d"), [(Sigmoid(0.5, -0.5), 3), (Sigmoid(0.02, -2.0), 8), (Sigmoid(2.0, 0.1), 2)])
def test_nystroem_of_an_indefinite_kernel_is_the_positive_part_of_c_w_inverse_c(kernel, d, size, center):
    for seed in range(3):
        X = rows(seed, 40, d)
        K = oracles.nystroem_gram(kernel(X, X[:size]), kernel.gram(X[:size]), 1e-12)
        values, vectors = np.linalg.eigh(oracles.centred(K) if center else K)
        r = min(3, int((values > 1e-9 * values[-1]).sum()))
        solution, scores = nystroem_fit(kernel, X, X[:size], r, center)
        assert_allclose(solution.eigenvalues, values[::-1][:r], rtol=1e-7)
        assert_allclose(min(values[0] / values[-1], 0), solution.negative, atol=1e-9)
        expected = vectors[:, ::-1][:, :r] * np.sqrt(values[::-1][:r])
        assert_allclose(scores, oracles.with_signs_of(expected, scores), atol=1e-6 * np.abs(scores).max())
        assert solution.unexplained is None or size < 40


def test_columns_of_an_indefinite_kernel_leave_negative_eigenvalues_out():
    X, kernel = rows(0, 200, 8), Sigmoid(0.02, -2.0)  # all of whose leading eigenvalue is negative, uncentred
    K = kernel(X, X)
    values = np.linalg.eigvalsh(K)
    assert values[0] < -10 * values[-1]
    V = kernel(X, X[:60])
    moments = block_moments([(V.copy(), kernel.diagonal(X))], V.mean(axis=0))
    span = span_of(kernel.gram(X[:60]), moments, 1e-12)
    solution = solvers.column_sampling(span, 3, center=False, tolerance=1e-12)
    assert_allclose(solution.eigenvalues, values[::-1][:3], rtol=0.5)  # where singular values begin with |values[0]|
    assert_allclose(solution.negative, -1, rtol=1e-9)


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Linear(), Polynomial(0.3), Cosine()], ids=str)
def test_positive_kernels_have_no_negative_share(kernel):
    X = rows(0)
    assert -1e-12 < nystroem_fit(kernel, X, X[:12], 2)[0].negative <= 0
    assert -1e-12 < gram_fit(kernel, X, None)[0].negative <= 0
    assert gram_fit(kernel, X, 2)[0].negative == 0


def test_the_whole_spectrum_is_computed_for_kernels_of_unknown_sign():
    X = rows(0)
    K = Sigmoid(0.5, -0.5)(X, X)
    assert gram_solver.gram(K.copy(), 2, center=True, tolerance=1e-12, positive=True).negative == 0
    assert gram_solver.gram(K.copy(), 2, center=True, tolerance=1e-12, positive=False).negative < -0.01


@pytest.mark.parametrize("components", [1, 0.5, None])
def test_constant_data_have_no_principal_components(components):
    X = np.ones((20, 3))
    message = "no direction varies in feature space"
    with pytest.raises(DataError, match=message):
        nystroem_fit(Gaussian(1.0), X, X[:5], components)
    with pytest.raises(DataError, match=message):
        gram_fit(Gaussian(1.0), X, components)


def test_constant_data_have_one_component_without_centring():
    X = np.ones((20, 3))
    assert_allclose(nystroem_fit(Gaussian(1.0), X, X[:5], None, center=False)[0].eigenvalues, [20])
    assert_allclose(gram_fit(Gaussian(1.0), X, None, center=False)[0].eigenvalues, [20])


def test_landmarks_without_a_positive_eigenvalue_span_nothing():
    negative = Function(lambda X, Y: -np.ones((len(X), len(Y))))
    with pytest.raises(DataError, match="the kernel matrix of the landmarks has no positive eigenvalue"):
        nystroem_fit(negative, rows(0), rows(0)[:5], 2)


def test_arguments_are_left_alone_where_they_are_not_promised_to_be_overwritten():
    X = rows(0)
    features = KernelRows(Gaussian(1.0), np.zeros(3), X[:8])
    V = Gaussian(1.0)(X, X[:8])
    moments = Moments(40, *oracles.two_pass_moments(V), 40.0)
    W = np.asfortranarray(features.gram())  # the order that LAPACK would overwrite
    arrays = (W, moments.mean, moments.scatter)
    before = [array.copy() for array in arrays]
    for center in (True, False):
        solvers.nystroem(span_of(W, moments, 1e-12), 3, center=center, tolerance=1e-12)
    for array, kept in zip(arrays, before, strict=True):
        assert_array_equal(array, kept)


def test_ratios_of_an_indefinite_exact_fit_sum_to_one_at_most():
    X = np.random.default_rng(0).normal(size=(50, 4))
    s = gram_solver.gram(Sigmoid(0.1, 1.0)(X, X), None, center=True, tolerance=1e-12, positive=False)
    assert s.explained_variance_ratio.sum() <= 1 + 1e-12


def test_an_indefinite_kernel_with_a_negative_trace_is_not_called_constant():
    X = np.random.default_rng(0).normal(size=(50, 4))
    K = -0.6 * Gaussian(1.0)(X, X) + X @ X.T * 0.1
    assert np.trace(K) < 0
    found = gram_solver.gram(K, 2, center=True, tolerance=1e-12, positive=False)
    assert (found.eigenvalues > 0).all()
    assert found.negative < 0


@pytest.mark.parametrize("seed", range(3))
def test_rounding_noise_is_not_a_component(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(1, 2, (200, 1)) * rng.normal(size=5)  # parallel rows: every cosine is 1
    with pytest.raises(DataError, match="constant data"):
        gram_solver.gram(Cosine()(X, X), 3, center=True, tolerance=1e-12, positive=True)
