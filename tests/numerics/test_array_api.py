"""Arrays of other libraries: each function against its result for NumPy's."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.spatial.distance import cdist

from bigkpca.numerics import array_api
from bigkpca.numerics.array_api import (
    astype,
    columns_of,
    contiguous,
    distances,
    dtype_of,
    empty,
    functions_of,
    in_host_memory,
    in_numpy,
    inner_products,
    moved,
    on_host,
    rows_of,
    set_columns,
    subtract,
)
from tests.helpers.devices import agree, every_device, every_dtype, place

every_function = pytest.mark.parametrize("name", ["subtract", "multiply", "divide", "maximum", "minimum"])


def rows(n=5, d=4, dtype="float32", seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def test_functions_for_arrays_of_numpy_are_its_own():
    X = rows()
    assert functions_of(X) is np
    for same in (astype(X, np.float32), moved(X, X), on_host(X), contiguous(X)):
        assert same is X
    assert contiguous(X.T).flags.c_contiguous
    assert empty((2, 3), X).dtype == np.float32
    assert empty((2, 3), X, np.float64).dtype == np.float64


@every_device
def test_arrays_go_to_a_device_and_come_back_as_they_were(device):
    like = place(device)(rows())
    assert not in_numpy(like)
    for dtype in ("bool", "uint8", "int16", "int32", "int64", "float32", "float64"):
        X = (3 * rows(dtype="float64")).astype(dtype)
        for given in (X, X.T, X[::-1], X[1:, 2:], X[:0], np.broadcast_to(X[0], (3, 4))):
            there = moved(given, like)
            assert type(there) is type(like)
            assert dtype_of(there) == given.dtype
            assert moved(there, like) is there
            assert_array_equal(on_host(there), given, strict=True)
            assert_array_equal(on_host(place(device)(np.array(given))), given, strict=True)


@every_device
def test_what_is_moved_is_a_copy(device):
    X = rows()
    X.flags.writeable = False  # which torch would warn of
    there = moved(X, place(device)(X))
    there *= 2
    assert_array_equal(on_host(there), 2 * X)
    assert_array_equal(X, rows())


@every_device
def test_dtypes_are_those_of_numpy(device):
    X = place(device)(rows())
    assert (dtype_of(X), dtype_of(astype(X, np.float64))) == (np.float32, np.float64)
    assert astype(X, np.dtype("float32")) is X
    for dtype in ("float64", np.float64, np.dtype(">f8").newbyteorder("=")):
        found = empty((2, 3), X, dtype)
        assert (type(found), dtype_of(found), tuple(found.shape)) == (type(X), np.float64, (2, 3))
    assert dtype_of(empty((2, 3), X)) == np.float32
    assert tuple(empty((0, 3), X).shape) == (0, 3)


@every_device
@every_function
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
    assert_array_equal(on_host(other), Y)


@every_device
@every_dtype
def test_the_larger_and_the_smaller_of_values_and_a_number(device, dtype):
    X = np.append(rows(dtype=dtype).ravel(), [np.inf, -np.inf, np.nan, 0]).astype(dtype)
    there = place(device)(X)
    for name in ("maximum", "minimum"):
        for number in (0.0, -0.1, 745.0):
            found = getattr(functions_of(there), name)(there, number)
            assert_array_equal(on_host(found), getattr(np, name)(X, number), strict=True)


@every_device
def test_functions_round_only_what_they_write(device):
    X, y = rows(dtype="float64"), np.float64([1, 2, 3, 1e-30])
    there = place(device)(X)
    out = empty(X.shape, there, np.float32)
    functions_of(there).divide(there, place(device)(y), out=out)
    assert_array_equal(on_host(out), (X / y).astype(np.float32))


@every_device
def test_functions_of_a_part_write_to_this_part(device):
    out = np.zeros((4, 6), np.float32)
    there = place(device)(out)
    X, xp = place(device)(rows(2, 3)), functions_of(there)
    xp.cos(X, out=there[1:3, :3])
    xp.matmul(X, X.T, out=xp.reshape(there[3, :4], (2, 2)))
    np.cos(rows(2, 3), out=out[1:3, :3])
    np.matmul(rows(2, 3), rows(2, 3).T, out=out[3, :4].reshape(2, 2))
    agree(there, out, "float32")


@every_device
def test_the_same_functions_for_every_array_of_a_library(device):
    X, Y = place(device)(rows()), place(device)(rows(dtype="float64"))
    assert functions_of(X) is functions_of(Y)
    assert functions_of(X).exp is functions_of(Y).exp
    assert functions_of(X).pi == np.pi
    with pytest.raises(AttributeError, match="no_such_function"):
        _ = functions_of(X).no_such_function


@every_device
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "float64"])
def test_differences_in_a_dtype(device, dtype):
    X, y = (100 * np.abs(rows())).astype(dtype), np.array([0.25, 1e-9, 300.0, -2.0])
    there = place(device)(X)
    for precision in ("float32", "float64") if dtype != "float64" else ("float64",):
        shift = y.astype(precision)
        expected = subtract(X, shift, np.dtype(precision))
        assert_array_equal(expected, X.astype(precision) - shift, strict=True)
        found = subtract(there, place(device)(shift), np.dtype(precision))
        assert_array_equal(on_host(found), expected, strict=True)
        out = empty(X.shape, there, np.float32)
        assert subtract(there, place(device)(shift), np.dtype(precision), out) is out
        assert_array_equal(on_host(out), expected.astype(np.float32))


@every_device
@every_dtype
def test_inner_products_of_rows_and_of_columns(device, dtype):
    A, B = rows(dtype=dtype), rows(dtype=dtype, seed=1)
    there, other = place(device)(A), place(device)(B)
    for axis in (1, 0):
        expected = (A.astype(np.float64) * B).sum(axis=axis)
        for each in (inner_products(A, B, axis=axis), inner_products(there, other, axis=axis)):
            assert dtype_of(each) == dtype
            agree(each, expected, dtype)
        for each in (inner_products(A, B, np.float64, axis), inner_products(there, other, np.float64, axis)):
            assert dtype_of(each) == np.float64
            agree(each, expected, "float64")


@every_device
def test_squares_beyond_the_range_of_single_precision_are_summed_in_double_precision(device):
    X = np.float32([[1e30, 1], [-1e30, 1e-30]])
    found = inner_products(place(device)(X), place(device)(X), np.float64)
    np.testing.assert_allclose(on_host(found), (X.astype(np.float64) ** 2).sum(axis=1))


@every_device
def test_some_rows_and_some_columns(device):
    X = rows()
    there = place(device)(X)
    for numbers in (np.array([3, 0, 3]), np.empty(0, np.intp), np.array([2], np.int32)):
        for of, expected in ((rows_of, X[numbers]), (columns_of, X[:, numbers])):
            assert_array_equal(of(X, numbers), expected)
            assert_array_equal(on_host(of(there, numbers)), expected)


@every_device
def test_columns_are_set_in_the_dtype_of_the_array(device):
    values, numbers = rows(5, 2, "float64"), np.array([3, 1])
    for X in (rows(), rows(dtype="float64")):
        there = place(device)(X)
        set_columns(there, numbers, place(device)(values))
        set_columns(X, numbers, values)
        assert_array_equal(on_host(there), X)
        assert_array_equal(X[:, numbers], values.astype(X.dtype))
        set_columns(there, numbers[:0], place(device)(values[:, :0]))
        assert_array_equal(on_host(there), X)


@every_device
@every_dtype
@pytest.mark.parametrize("metric", ["sqeuclidean", "cityblock"])
def test_distances_do_not_cancel_far_from_the_origin(device, dtype, metric):
    X, Y = (rows(n, dtype=dtype, seed=n) + np.dtype(dtype).type(1e5) for n in (5, 3))
    expected = cdist(X, Y, metric)
    there = place(device)(X), place(device)(Y)
    found = distances(*there, metric)
    assert dtype_of(found) == np.float64
    np.testing.assert_allclose(on_host(found), expected, rtol=1e-14)
    assert_array_equal(distances(X, Y, metric), expected)
    for written in (np.empty((5, 3)), place(device)(np.empty((5, 3)))):
        assert distances(*((X, Y) if in_numpy(written) else there), metric, written) is written
        np.testing.assert_allclose(on_host(written), expected, rtol=1e-14)
    assert tuple(distances(there[0], there[1][:0, :], metric).shape) == (5, 0)
    with np.errstate(over="ignore"):
        assert np.isinf(on_host(distances(there[0][:, :1] * 1e300, there[1][:, :1] * -1e300, "sqeuclidean"))).all()


@every_device
def test_distances_to_more_rows_than_are_held_at_once(device, monkeypatch):
    monkeypatch.setattr(array_api, "_DIFFERENCES", 2 * 5 * 4)  # to two rows
    X, Y = rows(), rows(7, seed=1)
    for metric in ("sqeuclidean", "cityblock"):
        found = distances(place(device)(X), place(device)(Y), metric)
        np.testing.assert_allclose(on_host(found), cdist(X, Y, metric), rtol=1e-14)


@every_device
def test_a_function_for_numpy_gets_and_returns_arrays_of_numpy(device):
    def double(X, out):
        assert in_numpy(X)
        assert in_numpy(out)
        out[:] = 2 * X

    for dtype in ("float32", "float64"):
        X = rows(dtype=dtype)
        there, out, here = place(device)(X), place(device)(np.zeros((7, 4), dtype)), np.zeros((7, 4), dtype)
        in_host_memory(double)(there, out[1:6, :])
        in_host_memory(double)(X, here[1:6])
        assert_array_equal(on_host(out), here)
        assert_array_equal(here[1:6], 2 * X)


def test_nothing_of_another_library_is_imported_for_numpy(monkeypatch):
    def refuse(X):
        raise AssertionError("not for NumPy")

    monkeypatch.setattr(array_api, "_namespace", refuse)
    X, out = rows(), np.empty((5, 5))
    for found in (astype(X, np.float64), empty((1, 1), X), moved(X, X), subtract(X, X[0], np.float32)):
        assert in_numpy(found)
    distances(X, X, "cityblock", out)
    set_columns(X, np.array([1]), X[:, :1])
    assert in_numpy(inner_products(rows_of(X, np.array([1])), columns_of(X, np.arange(4))[:1]))
