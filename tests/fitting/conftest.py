"""Digits that the tests of fits share."""

import numpy as np
import pytest

from tests.fitting.cases import fitted


@pytest.fixture(scope="module")
def X(digits):
    return digits[:600].astype(np.float64)


@pytest.fixture(scope="module")
def few(X):
    return X[:300]


@pytest.fixture(scope="module")
def exact(X):
    """The five leading eigenvalues of the centred Gram matrix, for sigma = 25."""
    return fitted(X, method="exact", sigma=25.0, components=5).solution.eigenvalues
