"""Arrays of other libraries beside NumPy's. Kernels, features and fits on devices have tests of their own, which go
through most of these functions."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.spatial.distance import cdist

from bigkpca.numerics import array_api
from bigkpca.numerics.array_api import (
    astype,
    columns_of,
    distances,
    dtype_of,
    empty,
    functions_of,
    in_numpy,
    inner_products,
    moved,
    on_host,
    rows_of,
    set_columns,
    subtract,
)
from tests.helpers.devices import every_device, every_dtype, place


def rows(n=5, d=4, dtype="float32", seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


@every_device
def test_arrays_go_to_a_device_as_copies_and_come_back_as_they_were(device):
    like = place(device)(rows())
    for dtype in ("bool", "uint8", "int16", "int32", "int64", "float32", "float64"):
        X = (3 * rows(dtype="float64")).astype(dtype)
        for given in (X, X.T, X[::-1], X[1:, 2:], X[:0], np.broadcast_to(X[0], (3, 4))):
            there = moved(given, like)
            assert type(there) is type(like)
            assert dtype_of(there) == given.dtype
            assert moved(there, like) is there
            assert_array_equal(on_host(there), given, strict=True)
    X = rows()
    X.flags.writeable = False  # which torch would warn of
    there = moved(X, like)
    there *= 2
    assert_array_equal(on_host(there), 2 * X)
    assert_array_equal(X, rows())


@every_device
def test_results_are_written_to_an_argument_rounded_once_and_to_some_columns(device):
    X, y = rows(dtype="float64"), np.float64([1, 2, 3, 1e-30])
    there, xp = place(device)(X), functions_of(place(device)(X))
    out = empty(X.shape, there, np.float32)
    assert xp.divide(there, place(device)(y), out=out) is out
    assert_array_equal(on_host(out), (X / y).astype(np.float32))
    assert xp.multiply(there, there, out=there) is there
    assert_array_equal(on_host(there), X * X)
    values = rows(5, 2, "float64")
    for numbers in (np.array([3, 1]), np.empty(0, np.intp)):
        for A, given in ((out, place(device)(values)), (X, values)):
            set_columns(A, numbers, given[:, : len(numbers)])
            assert_array_equal(on_host(columns_of(A, numbers)), values[:, : len(numbers)].astype(dtype_of(A)))
            assert_array_equal(on_host(rows_of(A, numbers)), on_host(A)[numbers])
    assert_array_equal(on_host(xp.maximum(place(device)(np.array([np.nan, -np.inf, -1])), -0.5)), [np.nan, -0.5, -0.5])


@every_device
@every_dtype
@pytest.mark.parametrize("metric", ["sqeuclidean", "cityblock"])
@pytest.mark.parametrize("held", [2**24, 2 * 5 * 4])
def test_distances_do_not_cancel_far_from_the_origin(device, dtype, metric, held, monkeypatch):
    monkeypatch.setattr(array_api, "_DIFFERENCES", held)
    X, Y = (rows(n, dtype=dtype, seed=n) + np.dtype(dtype).type(1e5) for n in (5, 7))
    expected, there = cdist(X, Y, metric), (place(device)(X), place(device)(Y))
    assert_array_equal(distances(X, Y, metric), expected)
    out = place(device)(np.empty((5, 7)))
    assert distances(*there, metric, out) is out
    for found in (out, distances(*there, metric)):
        assert dtype_of(found) == np.float64
        np.testing.assert_allclose(on_host(found), expected, rtol=1e-14)
    assert tuple(distances(there[0], there[1][:0, :], metric).shape) == (5, 0)


def test_nothing_of_another_library_is_imported_for_numpy(monkeypatch):
    monkeypatch.delattr(array_api, "_namespace")
    X = rows()
    for same in (astype(X, np.float32), moved(X, X), on_host(X)):
        assert same is X
    for found in (astype(X, np.float64), empty((1, 1), X), subtract(X, X[0], np.float32)):
        assert in_numpy(found)
    assert functions_of(X) is np
    distances(X, X, "cityblock", np.empty((5, 5)))
    set_columns(X, np.array([1]), X[:, :1])
    assert in_numpy(inner_products(rows_of(X, np.array([1])), columns_of(X, np.arange(4))[:1]))
