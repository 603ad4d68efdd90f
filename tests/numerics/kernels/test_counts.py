"""Kernels of counts and shares, against their formulas and scikit-learn."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics.pairwise import chi2_kernel

from bigkpca import KernelPCA
from bigkpca.errors import DataError, SpecError
from bigkpca.numerics.kernels import ChiSquared, Tanimoto


def histograms(n, d=12):
    found = np.random.default_rng(0).dirichlet(np.full(d, 0.4), n)
    found[:2, 3] = 0.0
    return found


def test_chi_squared_is_that_of_scikit_learn():
    X, Y = histograms(40), histograms(15)
    for gamma in (0.3, 1.0, 4.0):
        assert_allclose(ChiSquared(gamma)(X, Y), chi2_kernel(X, Y, gamma=gamma), rtol=1e-12)
        assert_allclose(ChiSquared(gamma)(X.astype("f4"), Y.astype("f4")), chi2_kernel(X, Y, gamma=gamma), rtol=1e-4)


def test_tanimoto_of_sets_is_the_share_in_common():
    X = np.random.default_rng(1).random((30, 20)) < 0.3
    X[4] = False
    K = Tanimoto()(X.astype("u1"), X.astype("u1"))
    for i, one in enumerate(X):
        for j, other in enumerate(X):
            union = (one | other).sum()
            assert K[i, j] == pytest.approx((one & other).sum() / union if union else 0, abs=1e-6)


@pytest.mark.parametrize("kernel", [Tanimoto(), ChiSquared(), ChiSquared(20.0)])
def test_they_are_positive_semidefinite(kernel):
    X = np.abs(np.random.default_rng(2).normal(size=(150, 3)))
    assert np.linalg.eigvalsh(kernel.gram(X)).min() > -1e-10
    assert np.linalg.eigvalsh(Tanimoto().gram(X - 1)).min() > -1e-10  # of any rows


@pytest.mark.parametrize("name", ["tanimoto", "chi-squared", "chi-squared:gamma=5"])
def test_a_fit_with_all_landmarks_is_exact(name):
    X = histograms(120)
    exact = KernelPCA(4, kernel=name, method="exact").fit(X)
    found = KernelPCA(4, kernel=name, size=120).fit(X)
    assert_allclose(found.eigenvalues_, exact.eigenvalues_, rtol=1e-6)
    assert exact.kernel_.to_dict().get("gamma", 1.0) in (1.0, 5.0)


def test_negative_numbers_and_a_gamma_of_zero_are_refused():
    with pytest.raises(DataError, match=r"counts or shares, which are not negative, but the rows have -2"):
        KernelPCA(2, kernel="chi-squared", size=10).fit(np.array([[1.0, -2.0], [0.0, 3.0], [4.0, 1.0]]))
    with pytest.raises(SpecError, match="gamma"):
        ChiSquared(0.0)
