"""Randomly pivoted Cholesky: its law, its stops, and rejection from stale bounds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics.kernels import Gaussian, Linear, Polynomial
from bigkpca.numerics.landmarks import RPCholesky, sampling
from bigkpca.numerics.landmarks.sampling import rpcholesky_rows, thinned
from tests.helpers import oracles

KERNEL = Gaussian(1.0)


def rows(seed, n=60, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def trace_error(X, chosen, kernel=KERNEL):
    """tr(K - K^) of the Nyström approximation from these rows, by the pseudo-inverse."""
    K = kernel(X.astype(np.float64), X.astype(np.float64))
    return np.trace(K - oracles.nystroem_gram(K[:, chosen], K[np.ix_(chosen, chosen)], 1e-13))


SIX = np.array([[0.0, 0.0], [0.1, 0.3], [0.2, 0.0], [2.0, 1.0], [2.2, 1.5], [-1.0, 3.0]])
CHI_SQUARED = 5  # standard deviations of the statistic that are allowed


def assert_follows(pairs, law):
    """Chi-square: numbers of the first two pivots against their probabilities under simple RPCholesky, pairs of which
    fewer than five are expected counted as one."""
    counts = np.zeros(law.shape)
    np.add.at(counts, tuple(np.transpose(pairs)), 1)
    expected = law * len(pairs)
    assert counts[law == 0].sum() == 0
    rare = expected < 5
    found, expected = (np.append(cells[~rare], cells[rare].sum()) for cells in (counts, expected))
    statistic = np.sum((found - expected) ** 2 / expected)
    freedom = len(expected) - 1
    assert statistic < freedom + CHI_SQUARED * np.sqrt(2 * freedom)


@pytest.mark.parametrize(
    ("kernel", "size", "draws"),
    [(KERNEL, 2, 200), pytest.param(Polynomial(0.3, 2, 0.5), 5, 500, marks=pytest.mark.full)],
)
def test_the_first_two_pivots_follow_the_law_of_simple_rpcholesky(kernel, size, draws):
    rng = np.random.default_rng(0)
    pairs = [rpcholesky_rows(SIX, kernel, size, 0.0, rng)[:2] for _ in range(draws)]
    assert_follows(pairs, oracles.rpcholesky_pivot_law(kernel(SIX, SIX)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_row_is_chosen_twice_and_the_rank_of_the_kernel_matrix_bounds_their_number(dtype):
    X = rows(0).astype(dtype)
    chosen = rpcholesky_rows(X, Gaussian(3.0), 60, 0.0, np.random.default_rng(0))
    assert len(set(chosen)) == len(chosen) > 30
    assert len(rpcholesky_rows(X, Gaussian(0.3), 25, 0.0, np.random.default_rng(0))) == 25
    distinct = X[:7]
    X = np.random.default_rng(0).permutation(np.repeat(distinct, 30, axis=0))
    chosen = rpcholesky_rows(X, KERNEL, 50, 0.0, np.random.default_rng(0))
    assert_array_equal(np.unique(X[chosen], axis=0), np.unique(distinct, axis=0))
    assert len(chosen) == 7
    for kernel, rank in ((Linear(), 3), (Polynomial(1.0, 2), 10)):
        assert len(rpcholesky_rows(rows(0), kernel, 30, 0.0, np.random.default_rng(0))) == rank
    assert len(rpcholesky_rows(np.zeros((9, 2)), Linear(), 4, 0.0, np.random.default_rng(0))) == 0


@pytest.mark.parametrize("tolerance", [0.3, 0.05, 1e-3])
def test_the_stop_is_the_first_block_whose_trace_error_is_within_tolerance(tolerance):
    X = rows(0, n=120)
    chosen = rpcholesky_rows(X, KERNEL, 100, tolerance, np.random.default_rng(0))
    assert len(chosen) < 100
    assert_array_equal(RPCholesky(tol=tolerance).choose(X, KERNEL, 100, np.random.default_rng(0)), X[chosen])
    assert trace_error(X, chosen) <= tolerance * 120 * (1 + 1e-9)
    assert trace_error(X, chosen[: max(len(chosen) - 10, 0)]) > tolerance * 120  # blocks hold ten at most


def test_tiles_do_not_matter(monkeypatch):
    X = rows(0, n=150)
    whole = rpcholesky_rows(X, KERNEL, 40, 0.0, np.random.default_rng(0))
    assert (np.diff(whole) < 0).any()  # their order is that of choice and not of rows
    monkeypatch.setattr(sampling, "_TILE_ROWS", 11)  # else a sample of several tiles takes seconds
    assert_array_equal(rpcholesky_rows(X, KERNEL, 40, 0.0, np.random.default_rng(0)), whole)


def naive_thinned(residual, bound, least, chances):
    """One proposal after the other, judged by what the kept ones before it leave."""
    kept = []
    for j, chance in enumerate(chances):
        S = residual[np.ix_(kept, kept)]
        left = residual[j, j] - (residual[j, kept] @ np.linalg.solve(S, residual[kept, j]) if kept else 0)
        if left > least[j] and left / bound[j] > chance:
            kept.append(j)
    return kept


def test_proposals_are_thinned_one_after_the_other():
    X, rng = rows(0, n=30), np.random.default_rng(0)
    residual = KERNEL.gram(X)
    bound = rng.uniform(1, 2, 30)
    chances = np.random.default_rng(100).random(30)
    sizes = []
    for least in (np.full(30, 1e-12), rng.uniform(0, 0.6, 30)):
        kept, L = thinned(residual.copy(), bound, least, np.random.default_rng(100))
        assert_array_equal(kept, naive_thinned(residual, bound, least, chances))
        assert_allclose(L, np.linalg.cholesky(residual[np.ix_(kept, kept)]), atol=1e-12)
        sizes.append(len(kept))
    assert 1 < sizes[1] <= sizes[0] < 29
