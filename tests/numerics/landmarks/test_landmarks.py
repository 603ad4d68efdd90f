"""Which rows stand for all: what every rule that chooses landmarks from a sample has in common."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import DataError
from bigkpca.numerics.kernels import Function, Gaussian, Polynomial
from bigkpca.numerics.landmarks import BasicPatterns, KMeans, RPCholesky, Uniform
from tests.helpers import oracles
from tests.numerics.landmarks.samples import clustered

KERNEL = Gaussian(1.0)
RULES_OF_ROWS = [Uniform(), RPCholesky(), BasicPatterns()]


@pytest.mark.parametrize("rule", [KMeans(), *RULES_OF_ROWS], ids=lambda rule: rule.name)
def test_as_many_landmarks_as_rows_are_the_rows(rule):
    sample = clustered(3, n=30)
    chosen = rule.choose(sample, KERNEL, 30, np.random.default_rng(0))
    assert_array_equal(np.unique(chosen, axis=0), np.unique(sample, axis=0))


@pytest.mark.parametrize("rule", RULES_OF_ROWS, ids=lambda rule: rule.name)
def test_rules_but_kmeans_give_distinct_rows_of_the_sample_for_any_kernel(rule):
    sample = clustered(0)
    for kernel in (KERNEL, Function(oracles.inverse_quadratic)):
        chosen = rule.choose(sample, kernel, 17, np.random.default_rng(0))
        assert len(np.unique(chosen, axis=0)) == 17
        assert (chosen[:, None] == sample[None]).all(axis=2).any(axis=1).all()


def test_rpcholesky_has_smaller_errors_than_uniform_rows_where_clusters_are_small():
    def left(rule):
        K, S = kernel(X, X), rule.choose(X, kernel, 40, rng)
        return np.trace(K - oracles.nystroem_gram(kernel(X, S), kernel(S, S), 1e-12))

    kernel, found = Gaussian(3.0), []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(600, 2))
        X[:6] = rng.normal(size=(6, 2)) * 0.3 + [40, 0]
        X[6:12] = rng.normal(size=(6, 2)) * 0.3 + [0, 40]
        found.append((left(RPCholesky()), left(Uniform())))
    own, uniform = np.mean(found, axis=0)
    assert own < uniform / 2
    assert (RPCholesky().most_rows(50), RPCholesky().most_rows(2000)) == (20_000, 40_000)  # twenty for each landmark


@pytest.mark.parametrize(
    "rule", [RPCholesky(), BasicPatterns(), BasicPatterns(centred=False)], ids=lambda rule: rule.name
)
def test_kernel_values_that_overflow_are_named(rule):
    X = clustered(0).astype(np.float32)
    X[7] = 1e20
    with pytest.raises(DataError, match="the sampled rows: kernel values overflow"):
        rule.choose(X, Polynomial(1.0, 2), 20, np.random.default_rng(0))


def test_every_row_is_equally_likely_to_be_a_uniform_landmark():
    sample = np.arange(10.0)[:, None]
    rng = np.random.default_rng(0)
    drawn = [Uniform().choose(sample, KERNEL, 3, rng)[:, 0] for _ in range(2000)]
    assert (np.diff(drawn) > 0).all()  # in their order
    counts = np.bincount(np.concatenate(drawn).astype(int))
    assert_allclose(counts, 600, atol=6 * np.sqrt(2000 * 0.3 * 0.7))
