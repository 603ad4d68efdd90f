"""Kernels of differences at their limits: Gaussian, Matérn and their like."""

from functools import partial
from math import comb, factorial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics.kernels import Gaussian, Matern, RationalQuadratic
from tests.helpers import oracles
from tests.numerics.kernels.cases import rows

RADIAL = [Gaussian(1.0), *(Matern(1.0, nu) for nu in (0.5, 0.8, 1.5, 2.5)), RationalQuadratic(1.0, 0.5)]


@pytest.mark.parametrize("kernel", RADIAL, ids=str)
def test_radial_kernels_lie_between_zero_and_one_whatever_the_size_of_the_rows(kernel):
    for size in range(-15, 16, 3):
        for dtype in (np.float32, np.float64):
            K = kernel((rows(0, 6, 3) * 10.0**size).astype(dtype), (rows(1, 5, 3) * 10.0**size).astype(dtype))
            assert K.min() >= 0
            assert K.max() <= 1 + (0 if kernel == Gaussian(1.0) else 10 * np.finfo(dtype).eps)


@pytest.mark.parametrize(("nu", "dtype", "atol"), [(0.5, "f4", 1e-5), (0.5, "f8", 1e-12), (0.8, "f8", 1e-12)])
def test_rough_matern_kernels_equal_a_double_loop(nu, dtype, atol):
    # Their slope at zero is infinite or not zero, so that rounding shows for rows that nearly coincide: not here.
    X, Y = (10 * np.arange(8.0)[:, None] + rows(1, 8, 3)).astype(dtype), rows(2, 5, 3, dtype)
    expected = oracles.matrix(partial(oracles.matern, sigma=9.0, nu=nu), X, Y)
    assert_allclose(Matern(9.0, nu)(X, Y), expected, atol=atol)


@pytest.mark.parametrize(("nu", "dtype"), [(40.0, np.float64), (100.0, np.float32)])
def test_very_smooth_matern_kernels_fall_from_one_to_zero(nu, dtype):
    r = np.concatenate([[0], np.logspace(-9, 1, 200)]).astype(dtype)
    values = Matern(1.0, nu)(np.zeros((1, 1), dtype), r[:, None])[0]
    assert values[0] == 1
    assert ((values >= 0) & (values <= 1)).all()
    assert (np.diff(values) <= 1e-6).all()
    assert_allclose(values, Gaussian(1.0)(np.zeros((1, 1)), r[:, None].astype(float))[0], atol=0.3 / nu)


def test_matern_kernels_of_half_a_whole_number_more_are_a_polynomial_times_an_exponential():
    p, r = 40, np.logspace(-2, 1, 50)
    s = np.sqrt(2 * p + 1) * r
    weights = [factorial(p) * comb(p, i) * factorial(p + i) / factorial(2 * p) / factorial(p) for i in range(p + 1)]
    expected = np.exp(-s) * sum(weight * (2 * s) ** (p - i) for i, weight in enumerate(weights))
    assert_allclose(Matern(1.0, p + 0.5)(np.zeros((1, 1)), r[:, None])[0], expected, rtol=1e-9)


@pytest.mark.parametrize("far", [np.float32(3e19), np.float64(1e160)])
@pytest.mark.filterwarnings("ignore:overflow")
def test_matern_kernels_of_far_rows_are_zero(far):
    X = np.array([[0.0], [1e3], [1e9], [1e18], [far]], far.dtype)
    for nu in (0.3, 0.5, 0.8, 1.0, 1.5, 2.5, 3.7):
        assert_array_equal(Matern(1.0, nu)(X, X), np.eye(5), err_msg=f"nu={nu}")
