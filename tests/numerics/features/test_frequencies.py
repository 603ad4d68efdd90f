"""Random frequencies: the kernel is the mean of their cosines, whatever the coupling; laws of length and direction.

Principal axes of rows, on which those of RFF-PCA are: variances, signs, how many it needs, and what is left outside.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.decomposition import PCA

from bigkpca.numerics.features import BIAS, FourierRows, PrincipalAxes, axes_of_covariance, draw_frequencies
from bigkpca.numerics.kernels import Gaussian, Laplacian, Matern
from bigkpca.numerics.kernels import RationalQuadratic as Rational

KERNELS = {
    "gaussian": Gaussian(1.0),
    "laplacian": Laplacian(2.0),
    "matern of nu 0.5": Matern(1.2, 0.5),
    "matern of nu 2.2": Matern(1.2, 2.2),
    "rational-quadratic": Rational(1.0, 0.8),
    "square": Gaussian(1.5) * Gaussian(1.5),
    "product": Gaussian(1.5) * Laplacian(4.0),
    "scaled product": 3.0 * (Matern(2.0) * Rational(1.5)),
}
COUPLINGS = ["iid", "orthogonal"]
every_coupling = pytest.mark.parametrize("coupling", COUPLINGS)


def two_rows(d, distance=1.6):
    """Neither on an axis nor at the origin."""
    step = np.arange(1.0, d + 1)
    X = np.full((2, d), 0.3)
    X[1] += distance * step / np.linalg.norm(step)
    return X


def features(kernel, frequencies, X, phases=None):
    ((V, _),) = FourierRows(kernel, np.zeros(X.shape[1]), frequencies, phases).tiles([X], len(X))
    return V.copy()


def estimates(kernel, coupling, m, d, X, draws, seed):
    """z(x)'z(y) of as many independent draws of m frequencies, (draws,)."""
    rng = np.random.default_rng(seed)
    V = [features(kernel, draw_frequencies(kernel, coupling, m, d, rng), X) for _ in range(draws)]
    return np.array([v[0] @ v[1] for v in V])


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
def test_products_of_features_have_the_kernel_as_their_mean(kernel):
    # Lengths that scale the coordinates of an orthogonal block rather than its rows give 0.195, not 0.278, for the
    # Gaussian with m = 8 and d = 4.
    for coupling, m, d, draws in (("iid", 16, 4, 100), ("orthogonal", 8, 4, 400), ("orthogonal", 16, 1, 100)):
        X = two_rows(d)
        values, exact = estimates(kernel, coupling, m, d, X, draws, seed=d), kernel(X, X)[0, 1]
        error = values.std(ddof=1) / np.sqrt(draws)
        assert abs(values.mean() - exact) < 5 * error
        assert error < 0.05 * kernel.diagonal(X)[0]  # else the margin would hide a bias


def test_orthogonal_frequencies_come_in_blocks_of_orthogonal_rows():
    for m, d in ((12, 4), (10, 4), (3, 7), (5, 1)):
        W = draw_frequencies(Gaussian(2.0), "orthogonal", m, d, np.random.default_rng(0))
        assert W.shape == (m, d)
        for start in range(0, m, d):
            products = W[start : start + d] @ W[start : start + d].T
            assert_allclose(products, np.diag(products.diagonal()), atol=1e-12 * products.max())


@every_coupling
def test_every_entry_and_length_follows_the_normal_law(coupling):
    m, d, sigma = 4000, 5, 0.7
    W = sigma * draw_frequencies(Gaussian(sigma), coupling, m, d, np.random.default_rng(0))
    assert stats.kstest((W**2).sum(axis=1), stats.chi2(d).cdf).pvalue > 1e-4
    for column in W.T:
        assert stats.kstest(column, "norm").pvalue > 1e-4


@every_coupling
def test_frequencies_of_extreme_matern_kernels_are_finite(coupling):
    for nu in (0.01, 0.003, 100.0):
        W = draw_frequencies(Matern(1.0, nu), coupling, 500, 3, np.random.default_rng(0))
        assert np.isfinite(W).all()
        assert (np.abs(W).max(axis=1) > 0).all()


# Principal axes.

MANY = 10**6  # frequencies, more than axes


def rows(seed, n=80, d=6):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * 2.0 ** -np.arange(d) @ np.linalg.qr(rng.normal(size=(d, d)))[0] + 3


def axes_of(X):
    mean = X.mean(axis=0)
    return axes_of_covariance(mean, (X - mean).T @ (X - mean), len(X))


def known(variances, of=None):
    """Axes with these variances, in as many columns; `of` is the sum of all variances, known or not."""
    variances = np.array(variances, float)
    total = float(variances.sum()) if of is None else of
    return PrincipalAxes(np.zeros(len(variances)), np.eye(len(variances)), variances, total)


def test_axes_are_those_of_principal_component_analysis_and_their_largest_entry_is_positive():
    X = rows(0)
    found, pca = axes_of(X), PCA(6, svd_solver="full").fit(X)
    assert_allclose(found.mean, pca.mean_)
    assert_allclose(found.variances, pca.explained_variance_ * 79 / 80, rtol=1e-9)
    assert_allclose(found.total, X.var(axis=0).sum(), rtol=1e-12)
    assert_allclose(np.abs(np.einsum("ij,ji->i", pca.components_, found.axes)), 1, rtol=1e-9)
    assert_allclose(found.axes.T @ found.axes, np.eye(6), atol=1e-12)
    assert (found.axes.max(axis=0) >= -found.axes.min(axis=0)).all()


def test_the_residual_is_the_variance_outside_the_leading_axes():
    for X in (rows(1), rows(0)[:, [0, 1, 0, 1, 0]]):  # of the latter, some columns depend on others
        found = axes_of(X)
        assert (found.variances >= 0).all()
        centred = X - found.mean
        for kept in (0, 1, 3, 6):
            V = found.axes[:, :kept]
            outside = centred - centred @ V @ V.T
            assert found.residual(kept) >= 0
            assert_allclose(found.residual(kept), (outside**2).sum() / len(X), atol=1e-12 * found.total)
    assert_allclose(known([4, 2], of=10).residual(2), 4)  # axes that are not known are part of it
    assert known([4, 2], of=5.9).residual(2) == 0


@pytest.mark.parametrize("sigma", [1.0, 2.0, 5.0])
def test_directions_are_the_fewest_whose_rest_biases_the_kernel_by_a_fiftieth(sigma):
    variances = np.sort(np.random.default_rng(0).exponential(size=30))[::-1] * 0.7 ** np.arange(30)
    enough = [k for k in range(31) if np.sqrt((variances[k:] ** 2).sum()) / sigma**2 <= BIAS]
    assert known(variances).directions(sigma, 0, MANY) == enough[0]
    assert 0 < enough[0] < 30


def test_directions_are_at_least_as_many_as_components_and_at_most_as_many_as_axes_and_frequencies():
    for components, expected in ((1, 2), (2, 2), (3, 3), (4, 4), (9, 4)):
        assert known([4, 1, 1e-4, 1e-4]).directions(1.0, components, MANY) == expected
    for frequencies, expected in ((1, 1), (3, 3), (4, 4), (5, 4)):
        assert known([4, 1, 0.5, 0.25]).directions(1.0, 1, frequencies) == expected  # by their bias
        assert known([4, 1e-4, 1e-4, 1e-4]).directions(1.0, 9, frequencies) == expected  # by the components asked for


def test_variance_on_unknown_axes_counts_as_if_it_lay_on_axes_like_the_last():
    # 100 unknown axes of variance 0.01 each, as large as they can be: sqrt(100) 0.01 = 0.1 in all.
    truth = known([1.0] * 5 + [0.01] * 101)
    seen = known([1.0] * 5 + [0.01], of=truth.total)
    for sigma in (1.0, 2.0, 2.2, 2.3, 3.0):
        tail = np.sqrt((truth.variances[5:] ** 2).sum()) / sigma**2
        assert seen.directions(sigma, 0, MANY) == (5 if tail <= BIAS else 6)
