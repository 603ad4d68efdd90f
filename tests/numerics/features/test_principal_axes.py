"""Principal axes of the rows: variances, signs, how many axes RFF-PCA needs, what is left outside of them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA

from bigkpca.numerics.features import BIAS, PrincipalAxes, axes_of_covariance

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
