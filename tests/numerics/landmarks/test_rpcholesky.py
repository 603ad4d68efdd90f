"""Randomly pivoted Cholesky: its law, its stops, and rejection from stale bounds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics.kernels import Gaussian, Linear, Polynomial
from bigkpca.numerics.landmarks import RPCholesky, sampling
from bigkpca.numerics.landmarks.sampling import rpcholesky_rows, thinned
from tests.helpers import oracles
from tests.numerics.fits import rows

KERNEL = Gaussian(1.0)


def chosen(X, size, kernel=KERNEL, tolerance=0.0):
    return rpcholesky_rows(X, kernel, size, tolerance, np.random.default_rng(0))


SIX = np.array([[0.0, 0.0], [0.1, 0.3], [0.2, 0.0], [2.0, 1.0], [2.2, 1.5], [-1.0, 3.0]])
CHI_SQUARED = 5  # standard deviations of the statistic that are allowed


@pytest.mark.parametrize(
    ("kernel", "size", "draws"),
    [(KERNEL, 2, 200), pytest.param(Polynomial(0.3, 2, 0.5), 5, 500, marks=pytest.mark.full)],
)
def test_the_first_two_pivots_follow_the_law_of_simple_rpcholesky(kernel, size, draws):
    """By chi-square, where pairs of which fewer than five are expected count as one."""
    rng = np.random.default_rng(0)
    law = oracles.rpcholesky_pivot_law(kernel(SIX, SIX))
    counts, expected = np.zeros(law.shape), law * draws
    np.add.at(counts, tuple(np.transpose([rpcholesky_rows(SIX, kernel, size, 0.0, rng)[:2] for _ in range(draws)])), 1)
    assert counts[law == 0].sum() == 0
    rare = expected < 5
    found, expected = (np.append(cells[~rare], cells[rare].sum()) for cells in (counts, expected))
    freedom = len(expected) - 1
    assert np.sum((found - expected) ** 2 / expected) < freedom + CHI_SQUARED * np.sqrt(2 * freedom)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_row_is_chosen_twice_and_the_rank_of_the_kernel_matrix_bounds_their_number(dtype):
    X = rows(0, n=60).astype(dtype)
    found = chosen(X, 60, Gaussian(3.0))
    assert len(set(found)) == len(found) > 30
    assert len(chosen(X, 25, Gaussian(0.3))) == 25
    repeated = np.random.default_rng(0).permutation(np.repeat(X[:7], 30, axis=0))
    found = chosen(repeated, 50)
    assert_array_equal(np.unique(repeated[found], axis=0), np.unique(X[:7], axis=0))
    assert len(found) == 7
    assert len(chosen(rows(0), 30, Linear())) == 3
    assert len(chosen(rows(0), 30, Polynomial(1.0, 2))) == 10
    assert len(chosen(np.zeros((9, 2), dtype), 4, Linear())) == 0


@pytest.mark.parametrize("tolerance", [0.3, 0.05, 1e-3])
def test_the_stop_is_the_first_block_whose_trace_error_is_within_tolerance(tolerance):
    X = rows(0, n=120)
    K, found = KERNEL(X, X), chosen(X, 100, tolerance=tolerance)

    def trace_error(numbers):
        return np.trace(K - oracles.nystroem_gram(K[:, numbers], K[np.ix_(numbers, numbers)], 1e-13))

    assert len(found) < 100
    assert_array_equal(RPCholesky(tol=tolerance).choose(X, KERNEL, 100, np.random.default_rng(0)), X[found])
    assert trace_error(found) <= tolerance * 120 * (1 + 1e-9)
    assert trace_error(found[: max(len(found) - 10, 0)]) > tolerance * 120  # blocks hold ten at most


def test_tiles_do_not_matter(monkeypatch):
    X = rows(0, n=150)
    whole = chosen(X, 40)
    assert (np.diff(whole) < 0).any()  # their order is that of choice and not of rows
    monkeypatch.setattr(sampling, "_TILE_ROWS", 11)  # else a sample of several tiles takes seconds
    assert_array_equal(chosen(X, 40), whole)


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
    rng, residual = np.random.default_rng(0), KERNEL.gram(rows(0, n=30))
    bound, chances = rng.uniform(1, 2, 30), np.random.default_rng(100).random(30)
    sizes = []
    for least in (np.full(30, 1e-12), rng.uniform(0, 0.6, 30)):
        kept, L = thinned(residual.copy(), bound, least, np.random.default_rng(100))
        assert_array_equal(kept, naive_thinned(residual, bound, least, chances))
        assert_allclose(L, np.linalg.cholesky(residual[np.ix_(kept, kept)]), atol=1e-12)
        sizes.append(len(kept))
    assert 1 < sizes[1] <= sizes[0] < 29
