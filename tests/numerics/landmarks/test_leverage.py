"""Rows drawn by ridge leverage scores: their law, and kernels for which there is none."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import SpecError
from bigkpca.numerics.kernels import Gaussian, Linear, Sigmoid
from bigkpca.numerics.landmarks import Leverage, sampling
from tests.numerics.landmarks.samples import clustered

KERNEL = Gaussian(1.0)


def test_scores_against_all_rows_are_ridge_leverage_scores():
    # Of the scores themselves, as the rows that are drawn by them tell little of their size.
    X, size = clustered(0, n=80), 30
    K = KERNEL.gram(X)
    k = int(size / (4 * np.log(size)))
    lam = np.linalg.eigvalsh(K)[:-k].sum() / k
    exact = np.diag(K - K @ np.linalg.inv(K + lam * np.eye(80)) @ K) / lam
    scores = sampling.leverage_scores(X, X, np.ones(80), KERNEL, size, map)
    assert_allclose(scores, np.minimum(np.log(size) * exact, 1), rtol=1e-9)
    assert scores.min() < 0.9
    # A row that is kept with probability p counts for 1 / p rows.
    twice = sampling.leverage_scores(X, X, np.full(80, 2**0.5), KERNEL, size, map)
    doubled = np.diag(K - K @ np.linalg.inv(K + lam * np.eye(80)) @ K)
    assert_allclose(twice, np.minimum(np.log(size) * doubled / (2 * lam), 1), rtol=1e-9)


def test_leverage_of_an_indefinite_kernel_works_or_is_refused():
    refused = 0
    for seed in range(10):
        try:
            assert len(Leverage().choose(clustered(seed), Sigmoid(0.5, -0.5), 20, np.random.default_rng(seed))) == 20
        except SpecError:
            refused += 1
    assert refused > 0
    with pytest.raises(SpecError, match=r"leverage scores need a positive semidefinite kernel.*landmarks='uniform'"):
        sampling.leverage_scores(np.eye(3), np.eye(3)[:2], np.ones(2), Sigmoid(1.0, -5.0), 2, map)
    chosen = Leverage().choose(clustered(0), Sigmoid(0.02, 0.0), 20, np.random.default_rng(0))
    assert len(np.unique(chosen, axis=0)) == 20


def test_leverage_of_rows_that_are_all_zero_is_the_same_for_all():
    X = np.zeros((50, 3))
    scores = sampling.leverage_scores(X, X[:5], np.ones(5), Linear(), 5, map)
    assert scores[0] > 0
    assert_array_equal(scores, np.full(50, scores[0]))
    assert len(set(sampling.leverage_rows(X, Linear(), 5, np.random.default_rng(0)))) == 5
