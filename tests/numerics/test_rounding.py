"""Rounding errors of the sums of a pass, against the same sums computed in both precisions."""

import numpy as np
import pytest

from bigkpca.numerics import rounding
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Gaussian, Polynomial
from bigkpca.numerics.moments import Moments, block_moments


def features_of(dtype, kernel):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)).astype(np.float32)
    return KernelRows(kernel, np.zeros(3), X[:40].astype(dtype)), X


def in_both(features, X):
    dtypes = (np.dtype(np.float32), np.dtype(np.float64))
    return [next(features.in_precision(dtype).tiles([X], len(X)))[0] for dtype in dtypes]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_errors_of_the_scatter_follow_from_those_about_zero(dtype, monkeypatch):
    features, X = features_of(dtype, Gaussian(2.0))
    # Rows that are added near landmarks would hide the sums over the rows of the test.
    monkeypatch.setattr(rounding, "has_landmarks", lambda features: False)
    rounded, exact = in_both(features, X)
    shift = exact.mean(axis=0)
    sums = block_moments([(rounded.copy(), np.zeros(1))], shift)
    centred = exact - exact.mean(axis=0)
    found = rounding.measured(features, sums, shift, X)
    m, e = found.means.T
    of_scatter = found.second + np.outer(m, m) - np.outer(e, e)
    scale = (1.0 if dtype == np.float32 else 2.0**-29) / len(X)
    largest = np.abs(sums.scatter - centred.T @ centred).max() * scale
    np.testing.assert_allclose(found.second, (sums.about_zero - exact.T @ exact) * scale, atol=1e-6 * largest)
    np.testing.assert_allclose(of_scatter, (sums.scatter - centred.T @ centred) * scale, atol=1e-6 * largest)
    assert np.abs(found.second - of_scatter).max() > 0.1 * largest  # so that one is not taken for the other


@pytest.mark.parametrize("height", [1, 7, 40, 100])
def test_the_farthest_rows_are_those_of_a_sort_the_first_of_equal_ones(height):
    X = np.random.default_rng(0).integers(-2, 3, (100, 3)).astype(np.float32)  # many have equal lengths
    farthest = rounding.Farthest()
    for start in range(0, len(X), height):
        tile = X[start : start + height]
        farthest.see(tile + 7, tile)
    squares = (X**2).sum(axis=1)
    expected = np.sort(np.argsort(-squares, kind="stable")[: rounding.FAR_ROWS])
    np.testing.assert_array_equal(farthest.found.X, X[expected] + 7)
    np.testing.assert_array_equal(farthest.found.squares, squares[expected])


def test_far_rows_have_their_weights_and_rows_of_weight_zero_are_not_among_them():
    X, weights = np.arange(100.0)[:, None], np.arange(100.0) % 3
    farthest = rounding.Farthest(weights)
    for start in range(0, 100, 40):  # pieces of one or several tiles
        farthest.see(X[start : start + 40], X[start : start + 40])
    expected = np.flatnonzero(weights)[-rounding.FAR_ROWS :]
    np.testing.assert_array_equal(farthest.found.X[:, 0], expected)
    np.testing.assert_array_equal(farthest.found.weights, weights[expected])


def test_sums_that_overflow_are_taken_to_be_wrong_in_their_twentieth_bit():
    features, X = features_of(np.float32, Polynomial(1.0, degree=9))
    X *= np.float32(1e4)
    with np.errstate(over="ignore"):
        found = rounding.measured(features, Moments(200, 200, np.zeros(40), np.zeros((40, 40)), 0.0), np.zeros(40), X)
    assert not found.means.any()
    np.testing.assert_allclose(np.diag(found.second), 2.0**-20 * found.squares)
