"""Sums of products of which strips down to the diagonal are held."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics import moments


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


def test_large_sums_hold_little_more_than_half_of_the_square():
    assert moments.entries(500) == 500**2
    assert moments.entries(2000) < 0.7 * 2000**2
    assert moments.entries(4000) < 0.58 * 4000**2
    assert moments.work_space(np.empty((0, 4000), np.float32)).nbytes < 10e6


def test_sums_can_be_made_of_a_square():
    for D in (1, 3, 600, 1111):
        square = np.random.default_rng(D).standard_normal((D, D))
        square += square.T
        sums = moments.of_square(square)
        assert sums.shape == (moments.entries(D),)
        assert_array_equal(moments.square_of(sums, D), square)
