"""Randomly pivoted Cholesky: its law, its stops, and rejection from stale bounds."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import DataError, SpecError
from bigkpca.numerics.kernels import Function, Gaussian, Linear, Polynomial, Sigmoid
from bigkpca.numerics.landmarks import RPCholesky, rpcholesky
from bigkpca.numerics.landmarks.rpcholesky import Factor, Proposals, choose_rows, grown, thinned
from tests.helpers import oracles
from tests.numerics.landmarks.samples import clustered, trace_left, with_small_clusters

seeds = pytest.mark.parametrize("seed", range(3))
KERNEL = Gaussian(1.0)


def rows(seed, n=60, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def trace_error(X, chosen, kernel=KERNEL):
    """tr(K - K^) of the Nyström approximation from these rows, by the pseudo-inverse."""
    K = kernel(X.astype(np.float64), X.astype(np.float64))
    return np.trace(K - oracles.nystroem_gram(K[:, chosen], K[np.ix_(chosen, chosen)], 1e-13))


def face(n=500):
    """A wide mouth and two eyes, of 1 % of the rows each and far from everything."""
    rng = np.random.default_rng(0)
    few = n // 100
    mouth = rng.uniform(-1, 1, n - 2 * few)
    X = np.column_stack([10 * mouth, 4 * mouth**2]) + rng.normal(size=(len(mouth), 2)) * 0.1
    eyes = rng.normal(size=(2 * few, 2)) * 0.3 + np.repeat([[-5.0, 30.0], [5.0, 30.0]], few, axis=0)
    return rng.permutation(np.concatenate([X, eyes]))


# The law of the pivots

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


@pytest.mark.parametrize("kernel", [KERNEL, Polynomial(0.3, 2, 0.5)], ids=str)
@pytest.mark.parametrize("size", [2, 5])
def test_the_first_two_pivots_follow_the_law_of_simple_rpcholesky(kernel, size):
    rng = np.random.default_rng(0)
    pairs = [choose_rows(SIX, kernel, size, 0.0, rng)[:2] for _ in range(1000)]
    assert_follows(pairs, oracles.rpcholesky_pivot_law(kernel(SIX, SIX)))


def two_more(start, X, bounds, rng):
    """Numbers of the next two rows of X that are accepted."""
    factor, size = start, len(start.landmarks) + 2
    while len(factor.landmarks) < size:
        drawn = rng.choice(len(X), 60, p=bounds / bounds.sum())
        factor = grown(factor, Proposals(X[drawn], bounds[drawn], bounds.sum()), size, 0.0, 0.0, rng)
    return [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in factor.landmarks[-2:]]


@pytest.mark.parametrize("kernel", [KERNEL, Polynomial(0.3, 2, 0.5)], ids=str)
@pytest.mark.parametrize("slack", [1.0, np.array([1.0, 3.0, 1.5, 1.0, 2.0, 4.0])], ids=["tight", "stale"])
def test_rejection_from_stale_bounds_follows_the_same_law(kernel, slack):
    bounds, rng = kernel.diagonal(SIX) * slack, np.random.default_rng(0)
    pairs = [two_more(Factor.empty(kernel, SIX), SIX, bounds, rng) for _ in range(1000)]
    assert_follows(pairs, oracles.rpcholesky_pivot_law(kernel(SIX, SIX)))


def test_a_factor_that_stands_already_leaves_the_law_of_what_follows():
    X = np.concatenate([SIX, [[0.5, 0.5]]])
    start = Factor.empty(KERNEL, X).extended(X[6:], np.ones((1, 1)))
    column = KERNEL(X, X)[:, 6]
    residual = KERNEL(X, X) - np.outer(column, column)
    law = oracles.rpcholesky_pivot_law(residual[:6, :6])
    rng = np.random.default_rng(0)
    assert_follows([two_more(start, SIX, np.ones(6), rng) for _ in range(1000)], law)


# Choosing rows of a sample


@seeds
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_row_is_chosen_twice(seed, dtype):
    X = rows(seed).astype(dtype)
    chosen = choose_rows(X, Gaussian(3.0), 60, 0.0, np.random.default_rng(seed))
    assert len(set(chosen)) == len(chosen) > 30
    assert len(choose_rows(X, Gaussian(0.3), 25, 0.0, np.random.default_rng(seed))) == 25


@seeds
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_few_distinct_rows_give_as_few_landmarks(seed, dtype):
    distinct = rows(seed, n=7).astype(dtype)
    X = np.random.default_rng(seed).permutation(np.repeat(distinct, 30, axis=0))
    chosen = choose_rows(X, KERNEL, 50, 0.0, np.random.default_rng(seed))
    assert_array_equal(np.unique(X[chosen], axis=0), np.unique(distinct, axis=0))
    assert len(chosen) == 7


def test_the_rank_of_the_kernel_bounds_the_number_of_landmarks():
    X = rows(0, n=80, d=4)
    assert len(choose_rows(X, Linear(), 30, 0.0, np.random.default_rng(0))) == 4
    assert len(choose_rows(X, Polynomial(1.0, 2), 30, 0.0, np.random.default_rng(0))) == 15


def test_rows_without_any_kernel_give_no_landmarks():
    assert len(choose_rows(np.zeros((9, 2)), Linear(), 4, 0.0, np.random.default_rng(0))) == 0


@seeds
@pytest.mark.parametrize("tolerance", [0.3, 0.05, 1e-3])
def test_the_stop_is_the_first_block_whose_trace_error_is_within_tolerance(seed, tolerance):
    X = rows(seed, n=120)
    chosen = choose_rows(X, KERNEL, 100, tolerance, np.random.default_rng(seed))
    assert len(chosen) < 100
    assert trace_error(X, chosen) <= tolerance * 120 * (1 + 1e-9)
    assert trace_error(X, chosen[: max(len(chosen) - 10, 0)]) > tolerance * 120  # blocks hold ten at most


@seeds
def test_far_smaller_errors_than_uniform_rows_where_clusters_are_small(seed):
    X, kernel, rng = face(), Gaussian(1.5), np.random.default_rng(seed)
    chosen = choose_rows(X, kernel, 40, 0.0, rng)
    uniform = np.mean([trace_error(X, rng.choice(500, 40, replace=False), kernel) for _ in range(5)])
    assert trace_error(X, chosen, kernel) < uniform / 10


@seeds
def test_single_precision_chooses_as_well_as_double(seed):
    X = rows(seed, n=150)
    double, single = (
        trace_error(X, choose_rows(X.astype(dtype), KERNEL, 40, 0.0, np.random.default_rng(seed)))
        for dtype in (np.float64, np.float32)
    )
    assert single < 1.5 * double


def test_tiles_and_threads_do_not_matter(monkeypatch):
    X = rows(0, n=150)
    whole = choose_rows(X, KERNEL, 40, 0.0, np.random.default_rng(0))
    monkeypatch.setattr(rpcholesky, "_TILE_ROWS", 11)
    assert_array_equal(choose_rows(X, KERNEL, 40, 0.0, np.random.default_rng(0)), whole)
    with ThreadPoolExecutor(2) as pool:
        assert_array_equal(choose_rows(X, KERNEL, 40, 0.0, np.random.default_rng(0), pool.map), whole)


def test_the_order_is_that_of_choice_and_not_of_rows():
    chosen = choose_rows(face(), Gaussian(1.5), 40, 0.0, np.random.default_rng(0))
    assert (np.diff(chosen) < 0).any()
    errors = [trace_error(face(), chosen[:count], Gaussian(1.5)) for count in (10, 20, 30, 40)]
    assert errors[3] < errors[2] < errors[1] < errors[0] / 2


@pytest.mark.parametrize(
    "kernel", [Sigmoid(0.5, -5.0), Function(lambda X, Y: -np.ones((len(X), len(Y))))], ids=["sigmoid", "function"]
)
def test_a_negative_diagonal_cannot_be_drawn_from(kernel):
    message = r"rpcholesky needs a positive semidefinite kernel, but k\(x, x\) = -.*use landmarks='uniform'"
    with pytest.raises(SpecError, match=message):
        choose_rows(rows(0), kernel, 5, 0.0, np.random.default_rng(0))


def test_values_that_overflow_are_named():
    X = np.concatenate([rows(0), [[1e20, 0, 0]]]).astype(np.float32)
    with pytest.raises(DataError, match="the sampled rows: kernel values overflow"):
        choose_rows(X, Polynomial(1.0, 2), 5, 0.0, np.random.default_rng(0))


# Thinning


def naive_thinned(residual, bound, least, chances):
    """One proposal after the other, judged by what the kept ones before it leave."""
    kept = []
    for j, chance in enumerate(chances):
        S = residual[np.ix_(kept, kept)]
        left = residual[j, j] - (residual[j, kept] @ np.linalg.solve(S, residual[kept, j]) if kept else 0)
        if left > least[j] and left / bound[j] > chance:
            kept.append(j)
    return kept


@seeds
def test_proposals_are_thinned_one_after_the_other(seed):
    X, rng = rows(seed, n=30), np.random.default_rng(seed)
    residual = KERNEL.gram(X)
    bound = rng.uniform(1, 2, 30)
    chances = np.random.default_rng(seed + 100).random(30)
    sizes = []
    for least in (np.full(30, 1e-12), rng.uniform(0, 0.6, 30)):
        kept, L = thinned(residual.copy(), bound, least, np.random.default_rng(seed + 100))
        assert_array_equal(kept, naive_thinned(residual, bound, least, chances))
        assert_allclose(L, np.linalg.cholesky(residual[np.ix_(kept, kept)]), atol=1e-12)
        sizes.append(len(kept))
    assert 1 < sizes[1] <= sizes[0] < 29


def test_a_proposal_that_repeats_is_kept_once():
    X = np.repeat(rows(0, n=3), 4, axis=0)
    kept, L = thinned(KERNEL.gram(X), np.ones(12), np.full(12, 1e-12), np.random.default_rng(0))
    assert len(np.unique(X[kept], axis=0)) == len(kept) == len(L) > 0


def test_what_is_left_below_rounding_is_never_kept():
    for residual in (np.diag([1e-13, -1e-13, 0.0]), np.zeros((3, 3))):
        for bound in (1.0, 1e-14):  # a bound of rounding alone makes no residual worth keeping
            kept, L = thinned(residual.copy(), np.full(3, bound), np.full(3, 1e-12), np.random.default_rng(0))
            assert len(kept) == 0
            assert L.shape == (0, 0)


def test_the_least_residual_is_that_of_each_proposal():
    least = np.array([0.0, 2e-6, 0.5e-6, 1e-6, 0.0])
    kept, L = thinned(np.diag(np.full(5, 1e-6)), np.full(5, 1e-6), least, np.random.default_rng(0))
    assert_array_equal(kept, [0, 2, 4])  # those of which all is left, and more than the least
    assert_allclose(L, np.eye(3) * 1e-3)


# The factor, and how it grows


@seeds
@pytest.mark.parametrize("kernel", [KERNEL, Polynomial(0.3, 2, 0.5)], ids=str)
def test_a_factor_knows_what_its_landmarks_leave(seed, kernel):
    X = rows(seed)
    factor = Factor.empty(kernel, X)
    for block in (X[:4], X[4:5], X[5:8]):
        factor = factor.extended(block, np.linalg.cholesky(factor.residual(block)))
    assert_array_equal(factor.landmarks, X[:8])
    assert_allclose(factor.L, np.linalg.cholesky(kernel(X[:8], X[:8])), atol=1e-9)
    K = kernel(X, X)
    left = K - oracles.nystroem_gram(K[:, :8], K[:8, :8], 1e-14)
    assert_allclose(factor.residual(X), left, atol=1e-7)
    assert_allclose(factor.residual_diagonal(X), np.diag(left), atol=1e-7)
    assert_allclose(factor.residual_diagonal(X).sum(), trace_error(X, range(8), kernel), rtol=1e-7)
    assert (factor.residual_diagonal(X) >= 0).all()
    assert factor.coordinates(X).shape == (8, 60)


def test_no_landmarks_leave_everything():
    X = rows(0, n=5).astype(np.float32)
    factor = Factor.empty(KERNEL, X)
    assert factor.landmarks.shape == (0, 3)
    assert factor.landmarks.dtype == np.float32
    assert_array_equal(factor.residual_diagonal(X), np.ones(5))
    assert_allclose(factor.residual(X), KERNEL(X, X), atol=1e-6)


def test_proposals_come_in_blocks():
    X = rows(0, n=7)
    proposals = Proposals(X, np.arange(7.0), 21.0)
    blocks = list(proposals.blocks(3))
    assert [len(bound) for _, bound in blocks] == [3, 3, 1]
    assert_array_equal(np.concatenate([block for block, _ in blocks]), X)
    assert_array_equal(np.concatenate([bound for _, bound in blocks]), np.arange(7.0))


def all_of(X, kernel=KERNEL):
    bound = kernel.diagonal(X)
    return Proposals(X, bound, float(bound.sum()))


@seeds
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_growth_ends_at_the_size_with_a_valid_factor(seed, dtype):
    X = rows(seed, n=400).astype(dtype)
    factor = grown(Factor.empty(KERNEL, X), all_of(X), 23, 0.0, 0.0, np.random.default_rng(seed))
    S = factor.landmarks
    assert S.shape == (23, 3)
    assert S.dtype == dtype
    assert len(np.unique(S, axis=0)) == 23
    assert_allclose(factor.L @ factor.L.T, KERNEL.gram(S), atol=1e-12 if dtype == np.float64 else 1e-5)
    again = grown(factor, all_of(X), 23, 0.0, 0.0, np.random.default_rng(seed))
    assert len(again.landmarks) == 23


def test_growth_ends_with_the_proposals():
    X = rows(0, n=15)
    factor = grown(Factor.empty(KERNEL, X), all_of(X), 100, 0.0, 0.0, np.random.default_rng(0))
    assert 3 < len(factor.landmarks) < 15
    nothing = Proposals(X[:0], np.empty(0), 0.0)
    assert grown(factor, nothing, 100, 0.2, 0.0, np.random.default_rng(0)) is factor


@seeds
def test_growth_ends_after_the_first_block_of_which_too_few_are_accepted(seed):
    X = rows(seed, n=300, d=1)
    accepted = []
    for least in (0.0, 0.35):
        factor, found = Factor.empty(KERNEL, X), []
        rng = np.random.default_rng(seed)
        for start in range(0, 300, 10):
            before = len(factor.landmarks)
            factor = grown(factor, all_of(X[start : start + 10]), 100, least, 0.0, rng)
            found.append(len(factor.landmarks) - before)
        accepted.append(found)
    assert accepted[0] == accepted[1]  # a block that ends growth still counts
    first_poor = next(i for i, count in enumerate(accepted[0]) if count < 3.5)
    whole = grown(Factor.empty(KERNEL, X), all_of(X), 100, 0.35, 0.0, np.random.default_rng(seed))
    assert len(whole.landmarks) == sum(accepted[0][: first_poor + 1])


@seeds
def test_growth_ends_when_the_residual_trace_is_estimated_to_be_small_enough(seed):
    X, rng = rows(seed, n=400, d=2), np.random.default_rng(seed)
    drawn = X[rng.choice(400, 3000)]
    proposals = Proposals(drawn, np.ones(3000), 400.0)
    coarse, fine = (grown(Factor.empty(KERNEL, X), proposals, 200, 0.0, least, rng) for least in (40.0, 4.0))
    for factor, least in ((coarse, 40.0), (fine, 4.0)):
        assert least / 10 < factor.residual_diagonal(X).sum() < 4 * least
    assert len(coarse.landmarks) < len(fine.landmarks)
    # Before the first landmark the estimate is the trace itself, 400, which is not below 400.
    assert len(grown(Factor.empty(KERNEL, X), proposals, 200, 0.0, 400.1, rng).landmarks) == 0
    assert 0 < len(grown(Factor.empty(KERNEL, X), proposals, 200, 0.0, 400.0, rng).landmarks) <= 20


def test_rows_that_are_landmarks_already_are_not_accepted_again():
    X = rows(0, n=8)
    factor = grown(Factor.empty(KERNEL, X), all_of(np.tile(X, (20, 1))), 100, 0.0, 0.0, np.random.default_rng(0))
    assert len(factor.landmarks) == len(np.unique(factor.landmarks, axis=0)) <= 8
    stuck = grown(factor, all_of(factor.landmarks), 100, 0.2, 0.0, np.random.default_rng(0))
    assert len(stuck.landmarks) == len(factor.landmarks)


# The rule


@seeds
def test_rpcholesky_puts_a_landmark_into_every_small_cluster(seed):
    chosen = RPCholesky().choose(with_small_clusters(seed), Gaussian(3.0), 40, np.random.default_rng(seed))
    assert (chosen > 30).any(axis=0).all()


@pytest.mark.parametrize(
    "values",
    [{"tol": -0.1}, {"tol": 1.0}, {"least_accepted": 0.0}, {"least_accepted": 1.0}, {"over": "some"}],
    ids=str,
)
def test_rpcholesky_refuses_options_out_of_range(values):
    message = r"tol lies in \[0, 1\), least_accepted in \(0, 1\), over is 'sample' or 'all'"
    with pytest.raises(SpecError, match=message):
        RPCholesky(**values)


def test_a_tolerance_gives_fewer_landmarks_than_asked_for():
    X = clustered(0)
    loose, tight = (RPCholesky(tol=tol).choose(X, KERNEL, 150, np.random.default_rng(0)) for tol in (0.5, 0.05))
    assert len(loose) < len(tight) < 150
    assert trace_left(X, loose, KERNEL) <= 0.5 * 200
    assert trace_left(X, tight, KERNEL) <= 0.05 * 200
