"""Every kernel on arrays of other libraries against NumPy's: ordinary rows, and the ends of the ranges of both
dtypes."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bigkpca.numerics.array_api import dtype_of, empty, moved, on_host
from bigkpca.numerics.kernels import (
    Cosine,
    Function,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)
from tests.helpers.devices import agree, every_device, every_dtype, place
from tests.numerics.kernels.cases import ALL, rows

ONLY_NUMPY = Function(lambda X, Y: np.einsum("id,jd->ij", X, Y))
KERNELS = {name: kernel for name, (kernel, _) in ALL.items()} | {
    "matern of nu 0.5": Matern(1.3, 0.5),
    "sum with one for NumPy alone": Gaussian(1.3) + ONLY_NUMPY,
    "multiple of one for NumPy alone": 2 * ONLY_NUMPY,
    "parameters of NumPy": Gaussian(np.float64(1.3)) * Laplacian(np.float32(2)) + np.float32(0.5) * Linear(),
    "more parameters of NumPy": Polynomial(np.float64(0.4), np.int64(2), np.float32(1))
    + Sigmoid(np.float32(0.3), np.float64(-0.2)) * RationalQuadratic(np.float32(1.3), np.float64(0.7))
    + Matern(np.float32(1.3), np.float64(1.5)),
}
STATIONARY = {
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    **{f"matern of nu {nu}": lambda sigma, nu=nu: Matern(sigma, nu) for nu in (0.5, 1.5, 2.5, 2.2)},
    "rational-quadratic": lambda sigma: RationalQuadratic(sigma, 0.7),
}
every_stationary = pytest.mark.parametrize("kind", STATIONARY.values(), ids=STATIONARY)


def on_both(kernel, X, Y, device):
    """k(X, Y) by NumPy and by the device, in two tiles that are written to a part of a larger array."""
    cut = 2 * len(X) // 3
    found = []
    for fixed in (Y, place(device)(Y)):
        evaluate, out = kernel.against_anywhere(fixed, len(X)), empty((len(X) + 2, len(Y)), fixed)
        out[:, :] = float("nan")
        evaluate(moved(X[:cut], fixed), out[1 : cut + 1, :])
        evaluate(moved(X[cut:], fixed), out[cut + 1 : -1, :])
        assert dtype_of(out) == X.dtype
        assert np.isnan(on_host(out)[[0, -1]]).all()
        assert_array_equal(on_host(fixed), Y)
        found.append(on_host(out)[1:-1])
    return found


@every_device
@every_dtype
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_values_are_those_of_numpy(kernel, dtype, device):
    X, Y = rows(0, 130, 3, dtype), rows(1, 7, 3, dtype)
    here, there = on_both(kernel, X, Y, device)
    agree(here, kernel(X, Y), dtype)
    agree(there, here, dtype)
    diagonal = kernel.diagonal_anywhere(place(device)(X))
    assert isinstance(diagonal, np.ndarray)
    assert diagonal.dtype == np.float64
    agree(diagonal, kernel.diagonal(X), dtype)


@every_device
@every_dtype
@every_stationary
@pytest.mark.parametrize("unit", [1e-37, 1e-30, 1.0, 1e30])
def test_values_do_not_depend_on_the_unit_of_rows(kind, unit, dtype, device):
    X, Y = (np.rint(2 * rows(seed, n, 3)) for seed, n in ((0, 20), (1, 5)))
    here, there = on_both(kind(2 * unit), (X * unit).astype(dtype), (Y * unit).astype(dtype), device)
    agree(here, kind(2.0)(X, Y), dtype)
    agree(there, here, dtype)


@every_device
@every_dtype
@every_stationary
def test_rows_and_landmarks_far_from_the_origin(kind, dtype, device):
    """Beyond 32 sigma distances come from differences; squares of some rows overflow."""
    far = np.array([100.0, -1000.0, 3e5])
    Y = np.concatenate([rows(1, 4, 3), far + rows(2, 3, 3), np.zeros((1, 3)), np.full((1, 3), 1e6)]).astype(dtype)
    largest = np.finfo(dtype).max
    X = np.concatenate([Y, rows(0, 70, 3), far + rows(3, 5, 3), np.zeros((1, 3)), [[1e30, 0, 0]]]).astype(dtype)
    for extra in ([], [[largest, 0, 0], [-largest, largest, -largest], [largest / 4, 1, 0]]):
        Z = np.concatenate([X, np.reshape(extra, (-1, 3)).astype(dtype)])
        here, there = on_both(kind(1.3), Z, Y, device)
        if kind(1.3) == Matern(1.3, 0.5):  # of the root of what rounds
            agree(np.log(there + 1e-30) ** 2, np.log(here + 1e-30) ** 2, dtype)
        else:
            agree(there, here, dtype)
        assert np.isfinite(there).all()
        np.testing.assert_allclose(np.diag(there), 1, atol=1e-3)  # of each landmark with itself
        assert not there[len(X) :].any() or kind(1.3).name == "rational-quadratic"


@every_device
def test_a_row_whose_square_overflows_leaves_nothing_for_the_next_tile(device):
    X, Y = rows(0, 6, 3, np.float32), rows(1, 4, 3, np.float32)
    for fixed in (Y, place(device)(Y)):
        evaluate, out = Gaussian(1.3).against_anywhere(fixed, 6), empty((6, 4), fixed)
        evaluate(moved(X * np.float32(1e38), fixed), out)
        assert not on_host(out).any()
        evaluate(moved(X, fixed), out)
        agree(out, Gaussian(1.3)(X, Y), "float32")


@every_device
@pytest.mark.parametrize(
    "kernel", [Linear(), Polynomial(0.4, 3, 0.7), Sigmoid(0.3), Cosine(), Gaussian(1.0) * Linear()], ids=str
)
def test_rows_whose_products_overflow_are_infinite_as_for_numpy(kernel, device):
    X = np.float32([[1, 2], [3e38, 0], [-3e38, 1e-38], [1e30, 1e30], [0, 0], [1e-45, 0], [1e-30, -1e-30]])
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        here, there = on_both(kernel, X, X[:5], device)
        agree(there, here, "float32")
        for found in (kernel.diagonal_anywhere(place(device)(X)), kernel.diagonal_anywhere(X)):
            np.testing.assert_allclose(found, kernel.diagonal(X), rtol=1e-12)
