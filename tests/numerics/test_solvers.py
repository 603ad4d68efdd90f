"""Solvers against the full Gram matrix: equivalences, bounds, signs, and what cannot be solved; leading eigenpairs from
the action alone, and what a pass leaves behind in any split."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import DataError
from bigkpca.numerics import solvers
from bigkpca.numerics.kernels import Cosine, Gaussian, Polynomial, Sigmoid
from bigkpca.numerics.solvers import OVERSAMPLING, PASSES, block_action, leading_eigenpairs, starting_block
from tests.helpers import oracles
from tests.helpers.oracles import matrix_with
from tests.numerics.fits import centred_or_not, columns_fit, exact_fit, nystroem_fit, plain_fit, rows, seeds, thesis_fit

FITS = [exact_fit, nystroem_fit, columns_fit, thesis_fit]


@centred_or_not
@given(seed=seeds)
def test_all_rows_as_landmarks_give_exact_kernel_pca_by_any_method(center, seed):
    X, new, kernel, r = rows(seed, n=25), rows(seed + 1, n=7), Gaussian(1.0), 5
    K, k = kernel(X, X), kernel(new, X)
    eigenvalues, scores = oracles.gram_kpca(K, r, center)
    total = np.trace(oracles.centred(K) if center else K)
    if center:
        k = k - k.mean(axis=1, keepdims=True) - K.mean(axis=0) + K.mean()
    both = np.vstack([scores, k @ (scores / eigenvalues)])  # those of rows of the fit and of new ones
    apart = np.abs(np.diff(np.append(eigenvalues, 0))).min() > 1e-3 * eigenvalues[0]  # else eigenvectors mix
    for fit in FITS:
        solution, _ = fit(kernel, X, X, r, center)
        assert_allclose(solution.eigenvalues, eigenvalues, rtol=1e-8)
        assert_allclose(solution.total_variance, total, rtol=1e-7)
        assert_allclose(solution.unexplained or 0, 0, atol=1e-8)
        got = (kernel(np.vstack([X, new]), X) - solution.mean) @ solution.components
        if apart:
            assert_allclose(got, oracles.with_signs_of(both, got), atol=1e-6 * np.abs(scores).max())


@centred_or_not
@given(seed=seeds, size=st.integers(3, 20))
def test_any_landmarks_give_kernel_pca_of_the_naive_approximation(center, seed, size):
    X, kernel = rows(seed), Gaussian(1.0)
    S = np.random.default_rng(seed).normal(size=(size, 3))  # landmarks need not be rows
    solution, got = nystroem_fit(kernel, X, S, 3, center)
    approximation = oracles.nystroem_gram(kernel(X, S), kernel(S, S), 1e-12)
    eigenvalues, scores = oracles.gram_kpca(approximation, 3, center)
    assert_allclose(solution.eigenvalues, eigenvalues, rtol=1e-6)
    # Gram matrices of the scores, because they know neither signs nor mixtures of close components.
    assert_allclose(np.sum(got**2, axis=0), np.sum(scores**2, axis=0), rtol=1e-6)
    everything, _ = nystroem_fit(kernel, X, S, None, center)
    whole = (kernel(X, S) - everything.mean) @ everything.components
    expected = oracles.centred(approximation) if center else approximation
    assert_allclose(whole @ whole.T, expected, atol=1e-6)


@pytest.mark.parametrize("fit", FITS)
def test_components_are_a_number_a_share_or_all(fit):
    X, kernel = rows(0), Gaussian(1.5)
    everything = fit(kernel, X, X[:30], None)[0]
    assert 20 < len(everything.eigenvalues) < 40
    assert_allclose(fit(kernel, X, X[:30], 4)[0].eigenvalues, everything.eigenvalues[:4], rtol=1e-10)
    assert len(fit(kernel, X, X[:30], 1000)[0].eigenvalues) == len(everything.eigenvalues)
    for share in (0.3, 0.7, 0.9):
        explained = fit(kernel, X, X[:30], share)[0].explained_variance_ratio.cumsum()
        assert explained[-1] >= share
        assert len(explained) == 1 or explained[-2] < share


@pytest.mark.parametrize("fit", FITS)
def test_data_without_variance_are_refused_unless_uncentred(fit):
    parallel = np.arange(1.0, 21)[:, None] * [1, 2, 3]  # whose cosines are all 1, but for rounding
    for kernel, X in ((Gaussian(1.0), np.ones((20, 3))), (Cosine(), parallel)):
        for components in (1, 0.5, None):
            with pytest.raises(DataError, match="no direction varies in feature space"):
                fit(kernel, X, X[:5], components)
        if fit in (nystroem_fit, exact_fit):
            assert_allclose(fit(Gaussian(1.0), np.ones((20, 3)), np.ones((5, 3)), None, False)[0].eigenvalues, [20])
    for added in (0.0, 0.3):
        with pytest.raises(DataError, match="no direction varies in feature space"):
            plain_fit(np.ones((20, 3)), 2, added=added)


@centred_or_not
def test_the_score_of_largest_absolute_value_at_the_landmarks_is_positive(center):
    X, kernel = rows(0), Gaussian(1.0)
    for fit in FITS:
        solution, S = fit(kernel, X, X[:12], 6, center)[0], X if fit is exact_fit else X[:12]
        at_landmarks = (kernel(S, S) - solution.mean) @ solution.components
        assert (at_landmarks.max(axis=0) >= -at_landmarks.min(axis=0) * (1 - 1e-9)).all()


@centred_or_not
@pytest.mark.parametrize(("kernel", "d"), [(Sigmoid(0.5, -0.5), 3), (Sigmoid(0.02, -2.0), 8), (Sigmoid(2.0, 0.1), 2)])
def test_nystroem_of_an_indefinite_kernel_is_the_positive_part_of_c_w_inverse_c(kernel, d, center):
    X = rows(0, 40, d)
    for size in (5, 15, 40):
        K = oracles.nystroem_gram(kernel(X, X[:size]), kernel.gram(X[:size]), 1e-12)
        values, vectors = np.linalg.eigh(oracles.centred(K) if center else K)
        r = min(3, int((values > 1e-9 * values[-1]).sum()))
        solution, scores = nystroem_fit(kernel, X, X[:size], r, center)
        assert_allclose(solution.eigenvalues, values[::-1][:r], rtol=1e-7)
        assert_allclose(min(values[0] / values[-1], 0), solution.negative, atol=1e-9)
        expected = vectors[:, ::-1][:, :r] * np.sqrt(values[::-1][:r])
        assert_allclose(scores, oracles.with_signs_of(expected, scores), atol=1e-6 * np.abs(scores).max())
        assert solution.unexplained is None or size < 40


def test_an_indefinite_kernel_is_not_called_constant_and_its_ratios_sum_to_one_at_most():
    X = np.random.default_rng(0).normal(size=(50, 4))
    found = solvers.gram(Sigmoid(0.1, 1.0)(X, X), None, center=True, tolerance=1e-12, positive=False)
    assert found.explained_variance_ratio.sum() <= 1 + 1e-12
    K = -0.6 * Gaussian(1.0)(X, X) + X @ X.T * 0.1
    assert np.trace(K) < 0
    found = solvers.gram(K, 2, center=True, tolerance=1e-12, positive=False)
    assert (found.eigenvalues > 0).all()
    assert found.negative < 0


@centred_or_not
@given(seed=seeds, size=st.integers(4, 15))
def test_columns_are_the_scaled_singular_value_decomposition_centred_over_rows_and_landmarks(center, seed, size):
    X, kernel = rows(seed), Gaussian(1.0)
    solution, got = columns_fit(kernel, X, X[:size], 2, center)
    C = kernel(X, X[:size])
    H = np.eye(size) - center * np.ones((size, size)) / size
    U, D, _ = np.linalg.svd((C - center * C.mean(axis=0)) @ H, full_matrices=False)
    values = np.sqrt(40 / size) * D[:2]
    assert_allclose(solution.eigenvalues, values, rtol=1e-8)
    if min(D[0] - D[1], D[1] - D[2]) > 1e-3 * D[0]:
        expected = U[:, :2] * np.sqrt(values)
        assert_allclose(got, oracles.with_signs_of(expected, got), atol=1e-7 * np.abs(expected).max())
    assert_allclose(solution.mean, center * C.mean(axis=0), rtol=1e-12)
    if center:
        assert_allclose(solution.components.sum(axis=0), 0, atol=1e-9 * np.abs(solution.components).max())


@centred_or_not
@pytest.mark.parametrize("rank", [None, 3, 7, 100])
def test_the_thesis_extends_eigenvectors_of_the_landmarks_and_centres_over_landmarks(center, rank):
    X, kernel, size = rows(0), Gaussian(1.0), 8
    C, W = kernel(X, X[:size]), kernel(X[:size], X[:size])
    a, B = np.linalg.eigh(oracles.centred(W) if center else W)
    kept = min(rank or size, size - center)
    a, B = a[::-1][:kept], B[:, ::-1][:, :kept]
    expected = np.sqrt(size / 40) * (C - center * W.mean(axis=0)) @ B / a * np.sqrt(40 / size * a)
    solution, got = thesis_fit(kernel, X, X[:size], None, center, rank)
    assert solution.components.shape == (size, kept)
    assert_allclose(solution.eigenvalues, 40 / size * a, rtol=1e-9)
    assert_allclose(got, oracles.with_signs_of(expected, got), atol=1e-8 * np.abs(expected).max())
    assert len(thesis_fit(kernel, X, X[:size], 2, center, rank)[0].eigenvalues) == 2


@centred_or_not
def test_the_unexplained_share_is_the_trace_that_the_span_of_the_landmarks_leaves(center):
    X, kernel = rows(0), 3.0 * Gaussian(1.0) + Polynomial(0.1, 2)
    K = kernel(X, X)
    for size in (1, 5, 20, 40):
        left = np.trace(K - oracles.nystroem_gram(K[:, :size], K[:size, :size], 1e-12))
        for fit in (nystroem_fit, columns_fit, thesis_fit):
            if size > 1 or not center or fit is nystroem_fit:  # one centred landmark is nothing
                solution, _ = fit(kernel, X, X[:size], 1, center)
                assert_allclose(solution.unexplained, left / np.trace(K), atol=1e-7)
    assert exact_fit(kernel, X, None, 2, center)[0].unexplained is None


@centred_or_not
def test_plain_is_kernel_pca_of_the_products_of_features(center):
    V = np.column_stack([rows(0, n=30, d=6) * [5, 4, 3, 2, 1, 1] + 1, np.full(30, float(not center)), np.zeros(30)])
    eigenvalues, scores = oracles.gram_kpca(V @ V.T, 6, center)
    solution, got = plain_fit(V, None if center else 6, center)  # directions that do not vary are left out
    assert_allclose(solution.eigenvalues, eigenvalues, rtol=1e-9)
    assert_allclose(got, oracles.with_signs_of(scores, got), atol=1e-8)
    assert_allclose(solution.total_variance, np.trace(oracles.centred(V @ V.T) if center else V @ V.T), rtol=1e-10)
    assert (solution.components.max(axis=0) >= -solution.components.min(axis=0)).all()
    assert (solution.unexplained, solution.negative) == (None, 0)


def test_what_features_leave_unexplained_is_added_to_eigenvalues_and_not_to_scores():
    V = rows(0, n=30, d=6) * 0.3
    trace = float((V**2).sum()) + 30 * 0.2
    bare, scores = plain_fit(V, 3, trace=trace)
    solution, same = plain_fit(V, 3, trace=trace, added=0.2)
    assert_allclose(solution.eigenvalues, bare.eigenvalues + 0.2, rtol=1e-12)
    assert_allclose(same, scores)
    assert_allclose(solution.total_variance, bare.total_variance)
    # More features than rows have no more components than rows.
    assert len(plain_fit(rows(0, n=10, d=20), None, added=0.3, tolerance=1e-30)[0].eigenvalues) == 9
    K = V @ V.T + 0.2 * np.eye(30)
    assert_allclose(plain_fit(V, 3, False, 0.2, trace)[0].eigenvalues, np.linalg.eigvalsh(K)[::-1][:3], rtol=1e-9)


def test_products_with_equal_kernels_in_float32_are_wrong_by_at_most_32_eps():
    n = 377
    B = np.full((n, 1), 1, np.float32) * np.linspace(0.5, 1, 300, dtype=np.float32)
    out = solvers._product(np.ones((n, n), np.float32), B)
    assert_allclose(out, n * B.astype(float), rtol=32 * np.finfo(np.float32).eps)


def powers(D, decay=0.9, rank=None):
    """(a positive semidefinite matrix of eigenvalues decay^j up to this rank, its eigenvalues)."""
    values = decay ** np.arange(D) * (np.arange(D) < (D if rank is None else rank))
    return matrix_with(values), values


def counted(A):
    """(apply, widths of the blocks that it was given)."""
    widths = []

    def apply(Q):
        widths.append(Q.shape[1])
        assert_allclose(Q.T @ Q, np.eye(Q.shape[1]), atol=1e-10)
        return A @ Q

    return apply, widths


def found_by(apply, D, count, seed=0, **options):
    """The leading eigenpairs from a random start, a little wider than asked for."""
    start = starting_block(D, min(D, count + OVERSAMPLING), np.random.default_rng(seed))
    return leading_eigenpairs(apply, start, count, **options)


@pytest.mark.parametrize(
    ("D", "count", "rank"),
    [(1, 1, 1), (5, 5, 5), (12, 2, 12), (12, 8, 12), (40, 30, 40), *((100, 20, rank) for rank in (0, 1, 7, 25))],
)
def test_blocks_that_fill_the_space_or_the_range_give_the_dense_eigenpairs(D, count, rank):
    A, values = powers(D, rank=rank)
    apply, widths = counted(A)
    found = found_by(apply, D, count)
    assert_allclose(found.values, values[:count], rtol=1e-9, atol=1e-12)
    assert_allclose(found.vectors.T @ found.vectors, np.eye(count), atol=1e-9)
    assert_allclose(A @ found.vectors, found.vectors * found.values, atol=1e-9 if rank == D else 1e-10)
    if rank == 0:
        assert_array_equal(found.residuals, np.full(count, np.inf))
        assert len(widths) == 1


def test_values_are_lower_bounds_that_grow_with_each_product_and_converge_after_new_starts():
    A, values = powers(400, decay=0.99)
    apply, widths = counted(A)
    heard = []
    found = found_by(apply, 400, 6, most=20, tol=1e-3, on_iteration=lambda ritz: heard.append((ritz, len(widths))))
    assert PASSES + 1 < found.products < 20
    assert widths == [6 + OVERSAMPLING] * found.products
    assert [(ritz.products, made) for ritz, made in heard] == [(i, i) for i in range(1, found.products + 1)]
    assert heard[-1][0] is found
    steps = np.array([ritz.values for ritz, _ in heard])
    assert (steps <= values[:6] * (1 + 1e-12)).all()
    assert (np.diff(steps, axis=0) >= -1e-10).all()
    sizes = [ritz.residuals.max() for ritz, _ in heard]
    assert 1e-3 >= sizes[-1] < sizes[PASSES] < sizes[0]
    assert_allclose(found.values, values[:6], rtol=1e-5)
    assert_allclose(found.vectors.T @ found.vectors, np.eye(6), atol=1e-10)
    assert_allclose(A @ found.vectors, found.vectors * found.values, atol=1e-3)


def test_products_stop_at_the_tolerance_and_residuals_are_the_true_ones():
    A, _ = powers(300)
    for tol in (1e-1, 1e-3):
        apply, widths = counted(A)
        found = found_by(apply, 300, 8, most=30, tol=tol)
        left = np.linalg.norm(A @ found.vectors - found.vectors * found.values, axis=0)
        assert_allclose(found.residuals, left / found.values, rtol=1e-5)
        assert found.residuals.max() <= tol
        assert 1 < found.products == len(widths) < 30
        less = found_by(apply, 300, 8, most=found.products - 1, tol=tol)  # one less was not enough
        assert less.products == found.products - 1
        assert less.residuals.max() > tol
    diagonal = 0.995 ** np.arange(120.0)  # so flat that more products are needed than blocks of 24 fit into R^120
    start = starting_block(120, 24, np.random.default_rng(0))
    found = leading_eigenpairs(lambda Q: diagonal[:, None] * Q, start, 4, most=40, tol=1e-6)
    assert 5 < found.products < 40
    assert_allclose(found.values, diagonal[:4], rtol=1e-9)
    start = np.linalg.eigh(A)[1][:, ::-1][:, :8]
    assert leading_eigenpairs(counted(A)[0], 3 * start, 5, most=9, tol=1e-10).products == 1


def action_of(V, v0, Q, cuts=()):
    """Of one block that comes in tiles."""
    return block_action([(tile.copy(), np.ones(len(tile))) for tile in np.split(V, cuts)], v0, Q)


@pytest.mark.parametrize("shift", ["none", "near the mean", "far"])
def test_an_action_is_the_scatter_times_the_block_and_those_of_any_split_add_up(shift):
    rng = np.random.default_rng(0)
    V, Q = rng.normal(size=(40, 6)) + 5, np.linalg.qr(rng.normal(size=(6, 3)))[0]
    v0 = {"none": np.zeros(6), "near the mean": V.mean(axis=0) + 0.1, "far": np.full(6, -1000.0)}[shift]
    action = action_of(V, v0, Q, [3, 3, 17])
    about_mean = (V - V.mean(axis=0)).T @ (V - V.mean(axis=0))
    rtol = 1e-11 if shift != "far" else 1e-7
    assert_allclose(action.applied(Q, v0, True), about_mean @ Q, atol=rtol * about_mean.max())
    assert_allclose(action.applied(Q, v0, False), V.T @ V @ Q, rtol=rtol, atol=rtol * (V.T @ V).max())
    assert_allclose(action.mean(v0), V.mean(axis=0), rtol=1e-11)
    assert_allclose(action.squares_about_zero(v0), (V**2).sum(), rtol=rtol)
    assert_allclose(action.squares, ((V - v0) ** 2).sum(), rtol=1e-12)
    assert (action.count, action.trace) == (40, 40.0)
    whole = action_of(V, v0, Q)
    for cuts in ([20], [1, 2, 39], [0, 13, 13, 40]):  # some of the parts are empty
        total, *parts = (action_of(part, v0, Q, [2]) for part in np.split(V, cuts))
        for part in parts:
            total = total + part
        assert (total.count, total.trace) == (whole.count, whole.trace)
        assert_allclose(total.total, whole.total, rtol=1e-12, atol=1e-12)
        assert_allclose(total.products, whole.products, rtol=1e-10, atol=1e-9)
        assert_allclose(total.squares, whole.squares, rtol=1e-12)


def test_a_shift_keeps_the_action_of_single_precision_rows():
    rng = np.random.default_rng(0)
    V32, Q = (rng.normal(size=(40, 6)) + 1005).astype(np.float32), np.linalg.qr(rng.normal(size=(6, 3)))[0]
    v0 = V32[0].astype(np.float64)  # single precision holds it
    exact = V32.astype(np.float64)
    exact -= exact.mean(axis=0)
    found = action_of(V32, v0, Q).applied(Q, v0, True)
    assert_allclose(found, exact.T @ exact @ Q, atol=1e-5 * (exact.T @ exact).max())
