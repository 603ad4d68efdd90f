"""Rows that the tests of landmark rules share."""

import numpy as np


def clustered(seed, n=200):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) * 0.3 + rng.normal(size=(6, 3))[rng.integers(0, 6, n)] * 4
