"""Moments: any split of the rows, in any grouping, says the same as two passes over all of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics.bandwidth import median_sigma, pair_distances
from bigkpca.numerics.kernels import Gaussian
from bigkpca.numerics.moments import Moments, ShiftedSums, block_moments, column_moments, shifted_sums
from tests.helpers import oracles


def moments_of(V, shift=None):
    """Of one block that comes as one tile, with a trace that counts rows twice."""
    shift = np.zeros(V.shape[1]) if shift is None else shift
    return block_moments([(V.copy(), np.full(len(V), 2.0))], shift)


def added_in_some_order(parts, rng):
    """The sum of neighbours, two at a time, wherever the random numbers say."""
    parts = list(parts)
    while len(parts) > 1:
        i = rng.integers(len(parts) - 1)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts[0]


def assert_same_moments(got, expected, rtol):
    assert got.count == expected.count
    assert_allclose(got.trace, expected.trace, rtol=1e-12)
    scale = np.abs(expected.mean).max() ** 2 * expected.count + np.abs(expected.scatter).max()
    assert_allclose(got.mean, expected.mean, rtol=rtol, atol=rtol * np.abs(expected.mean).max())
    assert_allclose(got.scatter, expected.scatter, atol=rtol * scale)


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 40),
    D=st.integers(1, 5),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    dtype=st.sampled_from([np.float32, np.float64]),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_any_split_in_any_grouping_gives_the_two_pass_moments(seed, n, D, cuts, dtype, scale):
    rng = np.random.default_rng(seed)
    V = (scale * (rng.normal(size=(n, D)) + 3)).astype(dtype)
    shift = scale * (3 + rng.normal(size=D))
    blocks = np.split(V, sorted(min(cut, n) for cut in cuts))  # some of them empty
    parts = [block_moments([(tile.copy(), np.ones(len(tile))) for tile in np.split(b, [2, 5])], shift) for b in blocks]
    expected, rtol = Moments(n, *oracles.two_pass_moments(V), float(n)), 1e-12 if dtype == np.float64 else 1e-5
    total = added_in_some_order(parts, rng)
    assert_same_moments(total, expected, rtol)
    assert_allclose(total.squares, (V.astype(float) ** 2).sum(), rtol=rtol)


def test_adding_leaves_the_parts_alone():
    rng = np.random.default_rng(0)
    a, b = moments_of(rng.normal(size=(5, 3))), moments_of(rng.normal(size=(4, 3)))
    before = a.scatter.copy(), b.scatter.copy(), a.mean.copy()
    _ = a + b
    assert_array_equal(a.scatter, before[0])
    assert_array_equal(b.scatter, before[1])
    assert_array_equal(a.mean, before[2])


def test_the_mean_belongs_to_the_shift_that_was_subtracted():
    # In float32, 1e6 + 0.3 is 1e6 + 0.3125; the rows are whole numbers, so that all else is exact.
    V = (1e6 + np.arange(12).reshape(6, 2)).astype(np.float32)
    got = moments_of(V, np.full(2, 1e6 + 0.3))
    mean, scatter = oracles.two_pass_moments(V)
    assert_allclose(got.mean, mean, rtol=1e-13)
    assert_allclose(got.scatter, scatter, rtol=1e-6)


def leading_eigenvalues(V, shift):
    tiles = [(tile.copy(), np.zeros(len(tile))) for tile in np.array_split(V, 4)]
    return np.linalg.eigvalsh(block_moments(tiles, shift).scatter)[::-1][:10]


def test_the_shift_keeps_single_precision_safe_for_a_wide_kernel(digits):
    """The Gaussian is 30 times as wide as usual, so that every entry is nearly 1."""
    X, rng = digits[:900].astype(np.float64), np.random.default_rng(0)
    sigma = 30 * median_sigma(pair_distances(X, "sqeuclidean", rng), "sqeuclidean")
    V = Gaussian(sigma)(X, X[rng.choice(len(X), 100, replace=False)])
    exact = np.linalg.eigvalsh(oracles.two_pass_moments(V)[1])[::-1][:10]
    single, near_mean = V.astype(np.float32), V[:200].mean(axis=0)
    assert_allclose(leading_eigenvalues(single, near_mean), exact, rtol=1e-4)
    unshifted = leading_eigenvalues(single, np.zeros(100))
    assert np.abs(unshifted / exact - 1).max() > 1  # useless


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 40),
    d=st.integers(1, 4),
    cuts=st.lists(st.integers(1, 39), max_size=6),
    dtype=st.sampled_from([np.uint8, np.float32, np.float64]),
    offset=st.sampled_from([0.0, 1e6]),
)
def test_moments_of_columns_are_those_of_two_passes_in_any_split(seed, n, d, cuts, dtype, offset):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) * 20 + 100 + (offset if dtype != np.uint8 else 0)).astype(dtype)
    parts = [column_moments(part) for part in np.split(X, sorted(set(cuts))) if len(part)]
    total = added_in_some_order(parts, rng)
    exact = X.astype(np.longdouble)
    assert total.count == n
    assert total.mean.dtype == total.squares.dtype == np.float64
    assert_allclose(total.mean, exact.mean(axis=0).astype(float), rtol=1e-14)
    assert_allclose(total.squares, ((exact - exact.mean(axis=0)) ** 2).sum(axis=0).astype(float), rtol=1e-8, atol=1e-5)
    assert (total.squares >= 0).all()
    assert_allclose(total.scale**2, np.where(total.scale == 1, 1, total.squares / n), rtol=1e-12)


def test_constant_columns_have_scale_one_and_rows_are_left_alone():
    X = np.column_stack([np.full(6, 0.1), np.full(6, 1e9 / 3), np.arange(6) * 1e-9, np.zeros(6)])
    X.flags.writeable = False
    scale = (column_moments(X[:4]) + column_moments(X[4:])).scale
    assert_array_equal(scale[[0, 1, 3]], 1)
    assert_allclose(scale[2], np.arange(6).std() * 1e-9)


def test_sums_about_other_vectors_add_up():
    rng = np.random.default_rng(0)
    V, ones = rng.normal(3, 2, (12, 4)), np.ones(12)
    parts = [
        shifted_sums([(V[rows].copy(), ones[rows])], about)
        for rows, about in ((np.s_[:5], np.zeros(4)), (np.s_[5:], np.ones(4)))
    ]
    found = (parts[0] + parts[1]).moments
    expected = ShiftedSums.of(block_moments([(V.copy(), ones)], np.zeros(4))).moments
    assert found.count == 12
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.scatter, expected.scatter, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.scatter, np.cov(V.T, bias=True) * 12, rtol=1e-12, atol=1e-12)
