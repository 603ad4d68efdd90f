"""Digits that the tests of fits share."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def X(digits):
    return digits[:300].astype(np.float64)


@pytest.fixture(scope="module")
def few(X):
    return X[:150]
