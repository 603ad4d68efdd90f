"""The principal subspace in which landmarks may lie, and kernels with such landmarks."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.numerics import subspace
from bigkpca.numerics.features import Columns, SubspaceRows, takes
from bigkpca.numerics.kernels import Gaussian, Laplacian, Linear, Matern, Polynomial, RationalQuadratic


def rows(n, d=20, seed=0):
    """Rows that vary less along each further axis of a random basis."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * 0.8 ** np.arange(d) @ np.linalg.qr(rng.normal(size=(d, d)))[0]


def random_axes(p):
    return np.linalg.qr(np.random.default_rng(1).normal(size=(20, p)))[0]


def test_rounded_axes_leave_a_kernel_matrix_positive_semidefinite():
    """V'V <= I: with a length above one, kernels of rows and landmarks would be those of no set of rows."""
    X, kernel = rows(300), Gaussian(0.5)
    for dtype in ("f4", "f2"):
        assert np.linalg.norm(subspace.contracted(random_axes(8), np.dtype(dtype)).astype("f8"), 2) <= 1
    axes = random_axes(8) * 0.9  # much shorter than rounding makes them
    features = SubspaceRows(kernel, np.zeros(20), (X @ axes)[:40], axes)
    ((C, _),) = features.tiles([X], 300)
    whole = np.block([[kernel(X, X), C], [C.T, features.gram()]])
    assert np.linalg.eigvalsh(whole)[0] > -1e-10


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Gaussian(2.0), 1 / 4),
        (RationalQuadratic(2.0), 1 / 4),
        (Matern(2.0, nu=1.5), 3 / 4),
        (Linear(), 1),
        (Polynomial(0.5, degree=3, coef0=1.0), 3 * 0.5 * (0.5 * 9 + 1) ** 2),
    ],
)
def test_the_rate_is_the_derivative_of_the_kernel(kernel, expected):
    assert subspace.rate(kernel, np.tile([3.0, 0.0, 0.0], (4, 1))) == pytest.approx(expected, rel=1e-2)


def axes_of(X, enough, most):
    columns = Columns(Gaussian(1.0), np.zeros(X.shape[1]), np.dtype("f4"))
    return subspace.leading_axes(columns, X, X[:512], enough, most, np.random.default_rng(0))


def test_leading_axes_are_those_of_the_second_moments():
    X = rows(3000).astype("f4")
    values, vectors = np.linalg.eigh(X.T.astype("f8") @ X / len(X))
    axes = axes_of(X, float(values[-7]), 10)
    assert axes.shape == (20, 8)  # a multiple of 8 whose rest is small
    assert_allclose(axes.T @ axes, np.eye(8), atol=1e-12)
    assert_allclose(np.linalg.svd(axes.T @ vectors[:, -5:])[1], 1, atol=1e-3)
    assert axes_of(X, 0.0, 10) is None  # more than are allowed
    assert axes_of(X, 1e9, 10) is None  # none at all


def test_axes_beyond_the_leading_ones_come_from_all_sampled_rows():
    X = (np.random.default_rng(0).normal(size=(6000, 200)) * 0.97 ** np.arange(200)).astype("f4")
    axes = axes_of(X, 0.97**180, 100).astype("f4")
    p = axes.shape[1]
    assert subspace.LEADING < p < 100
    variances = np.linalg.eigvalsh(X.T.astype("f8") @ X / len(X))[::-1]
    assert np.sum((X @ axes) ** 2) / len(X) > 0.995 * variances[:p].sum()
    columns = Columns(Gaussian(1.0), np.zeros(200), np.dtype("f4"))
    assert_allclose(subspace.coordinates(columns, X, axes), X @ axes, atol=1e-4)


def test_landmarks_stay_whole_where_axes_would_cost_more_or_kernels_need_all_columns():
    assert subspace.most_axes(60_000, 20_000, 784, 300) > 100
    assert subspace.most_axes(60_000, 20_000, 784, 100) == 0  # the pass for the axes costs more than is saved
    assert subspace.most_axes(10**6, 20_000, 64, 1000) == 0  # half of the columns are few
    assert subspace.most_axes(10**8, 20_000, 784, 10**4) == 392  # half of the columns
    for kernel in (Laplacian(1.0), Gaussian(1.0) + Laplacian(1.0)):  # no functions of lengths and inner products
        assert not takes(SubspaceRows, kernel)
