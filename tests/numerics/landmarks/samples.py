"""Samples of rows that the tests of landmark rules share."""

import numpy as np

from tests.helpers import oracles


def sorted_rows(X):
    return X[np.lexsort(X.T)]


def clustered(seed, n=200):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) * 0.3 + rng.normal(size=(6, 3))[rng.integers(0, 6, n)] * 4


def with_small_clusters(seed, n=600):
    """One large cluster, and two of 1 % of the rows each, far away."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    X[: n // 100] = rng.normal(size=(n // 100, 2)) * 0.3 + [40, 0]
    X[n // 100 : n // 50] = rng.normal(size=(n // 100, 2)) * 0.3 + [0, 40]
    return rng.permutation(X)


def trace_left(X, S, kernel):
    return len(X) - np.trace(oracles.nystroem_gram(kernel(X, S), kernel(S, S), 1e-12))
