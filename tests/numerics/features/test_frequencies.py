"""Random frequencies: the kernel is the mean of their cosines, whatever the coupling; laws of length and direction."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from bigkpca.numerics.features import FourierRows, draw_frequencies
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


@pytest.mark.parametrize(("kernel", "distance"), [(Gaussian(1.0), 0.5), (Matern(1.2, 2.2), 2.0)], ids=str)
def test_variances_of_pairs_and_of_phases_follow_the_formulas(kernel, distance):
    # D Var = 1 + k(2 delta) - 2 k(delta)^2 for pairs, 1 + k(2 delta) / 2 - k(delta)^2 for phases.
    m, X, rng = 100_000, two_rows(3, distance), np.random.default_rng(0)
    once, twice = kernel(X, X)[0, 1], kernel(X, two_rows(3, 2 * distance))[0, 1]
    W = draw_frequencies(kernel, "iid", m, 3, rng)
    V = features(kernel, W, X)
    each = m * (V[0] * V[1]).reshape(2, m).sum(axis=0)  # what one frequency alone estimates
    assert_allclose(2 * each.var(), 1 + twice - 2 * once**2, rtol=0.02)
    V = features(kernel, W, X, rng.uniform(0, 2 * np.pi, m))
    each = m * V[0] * V[1]
    assert_allclose(each.var(), 1 + twice / 2 - once**2, rtol=0.02)
    assert abs(each.mean() - once) < 5 * each.std() / np.sqrt(m)


def test_orthogonal_frequencies_have_the_lower_variance():
    X = two_rows(8, 1.0)
    iid, orthogonal = (estimates(Gaussian(1.0), each, 8, 8, X, 100, seed=0).var() for each in COUPLINGS)
    assert orthogonal < 0.6 * iid
