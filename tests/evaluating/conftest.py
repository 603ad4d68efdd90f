"""Digits that scores are of."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def X(digits):
    return digits[:240].astype(np.float64)
