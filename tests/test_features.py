"""Feature maps: rows to kernel rows, tile by tile, with the offset taken away in the precision of the data."""

import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics.features import KernelRows, shifted_rows
from bigkpca.numerics.kernels import Gaussian, Laplacian, Linear, Polynomial


def kernel_rows(kernel, landmarks, offset=None, dtype=np.float64):
    """The map of landmarks that are given in the units of the data."""
    offset = np.zeros(landmarks.shape[1]) if offset is None else offset
    return KernelRows(kernel, offset, (landmarks - offset).astype(dtype))


def all_features(features, X, tile=64):
    """(V, Σ k(x, x)) of all rows."""
    tiles = [(V.copy(), trace) for V, trace in features.tiles((X[a : a + tile] for a in range(0, len(X), tile)), tile)]
    return np.concatenate([V for V, _ in tiles]), sum(trace for _, trace in tiles)


@pytest.mark.parametrize("kernel", [Gaussian(1.5), Laplacian(3.0), Linear(), Polynomial(0.5)], ids=str)
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-11), (np.float32, 1e-4)])
def test_features_are_kernel_values_at_the_landmarks(kernel, dtype, rtol):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(11, 3)).astype(dtype)
    features = kernel_rows(kernel, X[:4], dtype=dtype)
    V, trace = all_features(features, X, tile=4)
    assert (features.size, features.columns, features.dtype) == (4, 3, np.dtype(dtype))
    assert V.dtype == dtype
    assert_allclose(V, kernel(X.astype(float), X[:4].astype(float)), rtol=rtol, atol=rtol)
    assert_allclose(trace, kernel.diagonal(X).sum(), rtol=1e-5)


def test_tiles_may_be_overwritten_by_the_caller():
    X = np.random.default_rng(0).normal(size=(10, 3))
    features = kernel_rows(Gaussian(1.5), X[:4])
    expected, _ = all_features(features, X, tile=5)
    got = []
    for V, _ in features.tiles([X[:5], X[5:8], X[8:]], 5):
        got.append(V.copy())
        V[:] = np.nan
    assert_allclose(np.concatenate(got), expected, rtol=1e-13)


def test_the_rows_are_left_alone():
    X = np.random.default_rng(0).normal(size=(6, 3)) + 5
    X.flags.writeable = False
    all_features(kernel_rows(Gaussian(1.5), X[:2], np.full(3, 5.0)), X)


@pytest.mark.parametrize("kernel", [Gaussian(1.5), Laplacian(2.0)], ids=str)
def test_rows_far_from_the_origin_keep_their_variation_in_single_precision(kernel):
    # Longitudes in metres: at 1e6, neighbouring float32 values lie 1/16 apart, so rows must stay float64 until
    # the offset is gone.
    rng = np.random.default_rng(0)
    X = 1e6 + rng.normal(size=(40, 3))
    offset = X.mean(axis=0)
    exact, _ = all_features(kernel_rows(kernel, X[:7], offset), X)
    assert_allclose(exact, kernel(X - 1e6, X[:7] - 1e6), rtol=1e-6)
    single, _ = all_features(kernel_rows(kernel, X[:7], offset, np.float32), X)
    assert_allclose(single, exact, atol=1e-5)
    # What the offset is for: without it nothing is left.
    with_none, _ = all_features(kernel_rows(Laplacian(2.0), X[:7], dtype=np.float32), X)
    assert np.abs(with_none - all_features(kernel_rows(Laplacian(2.0), X[:7]), X)[0]).max() > 0.01


def test_float32_rows_are_shifted_exactly():
    X = (1e6 + np.arange(-4, 4).reshape(4, 2)).astype(np.float32)
    out = np.empty((4, 2), np.float32)
    shifted_rows(X, np.full(2, 1e6), None, out)
    assert_array_equal(out, np.arange(-4, 4).reshape(4, 2))


def test_wide_integers_are_shifted_before_they_are_rounded():
    X = 2**40 + np.arange(6).reshape(3, 2)
    out = np.empty((3, 2), np.float32)
    shifted_rows(X, np.full(2, 2.0**40), None, out)
    assert_array_equal(out, np.arange(6).reshape(3, 2))


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "i2", "i4", "i8", "f2", "f4", "f8"])
def test_equal_values_of_any_dtype_give_equal_features(dtype):
    values = np.random.default_rng(0).integers(0, 2, (20, 5))
    features = kernel_rows(Gaussian(2.0), values[:4].astype(float), np.full(5, 0.25), np.float32)
    expected, expected_trace = all_features(features, values.astype(np.float32))
    V, trace = all_features(features, values.astype(dtype))
    assert V.dtype == np.float32
    assert_array_equal(V, expected)  # 0.25 is exact in every precision, so not even rounding differs
    assert trace == expected_trace


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_gram_matrix_is_symmetric_and_float64_from_the_landmarks_as_stored(dtype):
    landmarks = (np.random.default_rng(0).normal(size=(9, 4)) / 3).astype(dtype)
    W = kernel_rows(Gaussian(1.5), landmarks, dtype=dtype).gram()
    assert W.dtype == np.float64
    assert_array_equal(W, W.T)
    assert_array_equal(W.diagonal(), np.ones(9))
    naive = oracles.matrix(lambda x, y: oracles.gaussian(x, y, 1.5), landmarks, landmarks)
    assert_allclose(W, naive, rtol=1e-12)


def test_the_gram_matrix_of_other_kernels_has_their_diagonal():
    landmarks = np.random.default_rng(0).normal(size=(9, 4))
    W = kernel_rows(Polynomial(0.5, 2), landmarks).gram()
    assert_array_equal(W, W.T)
    assert_array_equal(W.diagonal(), Polynomial(0.5, 2).diagonal(landmarks))


def test_landmarks_come_back_in_the_units_of_the_data():
    landmarks = np.array([[1e6 + 0.5, -3.0], [1e6 + 0.25, 7.0]])
    features = kernel_rows(Gaussian(1.0), landmarks, np.array([1e6, 2.0]), np.float32)
    back = features.landmarks_in_user_units()
    assert back.dtype == np.float64
    assert_array_equal(back, landmarks)
