"""Arrays of other libraries: each function against its result for NumPy's."""

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
from tests.helpers.devices import agree, every_device, every_dtype, place


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
@pytest.mark.parametrize("name", ["subtract", "multiply", "divide", "maximum", "minimum"])
def test_functions_write_to_an_argument_or_return_a_new_array(device, name):
    X, Y = rows(), rows(seed=1)
    here = getattr(np, name)(X, Y)
    there, other = place(device)(X), place(device)(Y)
    xp = functions_of(there)
    agree(getattr(xp, name)(there, other), here, "float32")
    for dtype in ("float32", "float64"):
        out = empty(X.shape, there, dtype)
        assert getattr(xp, name)(there, other, out=out) is out
        agree(out, here, "float32")
        assert dtype_of(out) == dtype
    assert getattr(xp, name)(there, other, out=there) is there
    agree(there, here, "float32")
    if name in ("maximum", "minimum"):
        X = np.append(X.ravel(), np.float32([np.inf, -np.inf, np.nan, 0]))
        for number in (0.0, -0.1, 745.0):
            found = getattr(xp, name)(place(device)(X), number)
            assert_array_equal(on_host(found), getattr(np, name)(X, number), strict=True)
    if name == "divide":  # rounded once, when it is written
        Z, y = rows(dtype="float64"), np.float64([1, 2, 3, 1e-30])
        out = xp.divide(place(device)(Z), place(device)(y), out=empty(Z.shape, there, np.float32))
        assert_array_equal(on_host(out), (Z / y).astype(np.float32))


@every_device
@every_dtype
def test_inner_products_rows_and_columns(device, dtype):
    A, B = rows(dtype=dtype), rows(dtype=dtype, seed=1)
    there, other = place(device)(A), place(device)(B)
    for axis in (1, 0):
        for each in (inner_products(A, B, axis=axis), inner_products(there, other, axis=axis)):
            assert dtype_of(each) == dtype
            agree(each, (A.astype(np.float64) * B).sum(axis=axis), dtype)
    X = place(device)(np.float32([[1e30, 1], [-1e30, 1e-30]]))  # whose squares overflow in float32
    np.testing.assert_allclose(on_host(inner_products(X, X, np.float64)), [1e60, 1e60])
    for numbers in (np.array([3, 0, 3]), np.empty(0, np.intp), np.array([2], np.int32)):
        assert_array_equal(on_host(rows_of(there, numbers)), A[numbers])
        assert_array_equal(on_host(columns_of(there, numbers)), A[:, numbers])
    values = rows(5, 2, "float64")
    for numbers in (np.array([3, 1]), np.empty(0, np.intp)):
        set_columns(there, numbers, place(device)(values[:, : len(numbers)]))
        set_columns(A, numbers, values[:, : len(numbers)])
        assert_array_equal(on_host(there), A)
        assert_array_equal(A[:, numbers], values[:, : len(numbers)].astype(dtype))


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
