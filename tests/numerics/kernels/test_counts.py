"""Kernels of counts and shares, against their formulas and scikit-learn."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics.pairwise import chi2_kernel

from bigkpca import KernelPCA
from bigkpca.errors import DataError
from bigkpca.numerics.kernels import ChiSquared, Tanimoto


def test_chi_squared_is_that_of_scikit_learn():
    X = np.random.default_rng(0).dirichlet(np.full(12, 0.4), 40)
    X[:2, 3] = 0
    Y = X[::3]
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


def test_negative_numbers_are_refused():
    with pytest.raises(DataError, match=r"counts or shares, which are not negative, but the rows have -2"):
        KernelPCA(2, kernel="chi-squared", size=10).fit(np.array([[1.0, -2.0], [0.0, 3.0], [4.0, 1.0]]))
