"""Moments: any split of the rows, in any grouping, gives the same as two passes over all of them; sums of products in
strips down to the diagonal."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics import moments
from bigkpca.numerics.moments import represented
from tests.helpers import oracles
from tests.numerics.fits import block_moments, seeds


def added_in_some_order(parts, rng):
    """The sum of neighbours, two at a time, wherever the random numbers say."""
    parts = list(parts)
    while len(parts) > 1:
        i = rng.integers(len(parts) - 1)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts[0]


@given(
    seed=seeds,
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
    rtol = 1e-12 if dtype == np.float64 else 1e-5
    total = added_in_some_order(parts, rng)
    assert total.count == n
    assert_allclose(total.trace, n, rtol=1e-12)
    mean, scatter = oracles.two_pass_moments(V)
    largest = np.abs(mean).max()
    assert_allclose(total.mean, mean, rtol=rtol, atol=rtol * largest)
    assert_allclose(total.scatter, scatter, atol=rtol * (n * largest**2 + np.abs(scatter).max()))
    assert_allclose(total.squares, (V.astype(float) ** 2).sum(), rtol=rtol)


def test_the_mean_belongs_to_the_shift_that_was_subtracted():
    # In float32, 1e6 + 0.3 is 1e6 + 0.3125; the rows are whole numbers, so that all else is exact.
    V = (1e6 + np.arange(12).reshape(6, 2)).astype(np.float32)
    got = block_moments([(V.copy(), np.ones(6))], np.full(2, 1e6 + 0.3))
    mean, scatter = oracles.two_pass_moments(V)
    assert_allclose(got.mean, mean, rtol=1e-13)
    assert_allclose(got.scatter, scatter, rtol=1e-6)


def test_rows_drawn_for_certain_stand_for_themselves_and_others_for_equal_shares_of_the_rest():
    np.testing.assert_allclose(represented(np.array([1.0, 60.0, 2.0, 30.0]), 100.0), [5, 60, 5, 30])
    np.testing.assert_allclose(represented(np.array([1.0, 2.0]), 100.0), [50, 50])
    for weights in (np.random.default_rng(0).exponential(size=50), np.full(10, 0.1)):  # all rows
        np.testing.assert_allclose(represented(weights, weights.sum()), weights)


@pytest.mark.parametrize(
    ("D", "dtype"),
    [*((D, np.float64) for D in (1, 2, 511, 512, 1023, 1024, 1025)), (16, np.float32), (1600, np.float32)],
)
def test_sums_of_products_are_those_of_the_square(D, dtype):
    rng = np.random.default_rng(D)
    sums, expected = moments.empty_sums(D), np.zeros((D, D))
    assert sums.shape == (moments.entries(D),)
    assert not sums.any()
    work = moments.work_space(np.empty((0, D), dtype))
    for rows in (5, 1, 0, 30):
        V = rng.standard_normal((rows, D)).astype(dtype)
        moments.add_products(sums, V, work)
        expected += V.astype(np.float64).T @ V.astype(np.float64)
    found = moments.square_of(sums, D)
    eps = np.finfo(dtype).eps
    assert_allclose(found, expected, rtol=0, atol=100 * eps * np.abs(expected).max())
    assert_array_equal(found, found.T)
    assert_array_equal(moments.square_of(moments.of_square(found), D), found)


def test_large_sums_hold_little_more_than_half_of_the_square():
    assert moments.entries(500) == 500**2
    assert moments.entries(2000) < 0.7 * 2000**2
    assert moments.entries(4000) < 0.58 * 4000**2
    assert moments.work_space(np.empty((0, 4000), np.float32)).nbytes < 10e6
