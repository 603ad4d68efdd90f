"""Which rows stand for all: what every rule that chooses landmarks from a sample has in common."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import DataError, SpecError
from bigkpca.numerics import landmarks
from bigkpca.numerics.kernels import Function, Gaussian, Polynomial
from bigkpca.numerics.landmarks import BasicPatterns, KMeans, Leverage, RPCholesky, Uniform
from tests.helpers.oracles import inverse_quadratic
from tests.numerics.landmarks.samples import clustered, sorted_rows, trace_left, with_small_clusters

KERNEL = Gaussian(1.0)
every_rule = pytest.mark.parametrize(
    "rule", [KMeans(), Uniform(), RPCholesky(), Leverage(), BasicPatterns()], ids=lambda rule: rule.name
)
every_rule_of_rows = pytest.mark.parametrize(
    "rule", [Uniform(), RPCholesky(), Leverage(), BasicPatterns()], ids=lambda rule: rule.name
)


@every_rule
def test_a_rule_gives_as_many_landmarks_as_asked_in_the_dtype_of_the_sample_and_the_seed_decides(rule):
    for dtype in (np.float32, np.float64):
        sample = clustered(0).astype(dtype)
        sample.flags.writeable = False
        one, again, other = (rule.choose(sample, KERNEL, 17, np.random.default_rng(seed)) for seed in (1, 1, 2))
        assert one.shape == (17, 3)
        assert one.dtype == dtype
        assert np.isfinite(one).all()
        assert_array_equal(one, again)
        assert (one != other).any()


@every_rule
def test_as_many_landmarks_as_rows_are_the_rows(rule):
    sample = clustered(3, n=30)
    assert_array_equal(sorted_rows(rule.choose(sample, KERNEL, 30, np.random.default_rng(0))), sorted_rows(sample))


def test_a_name_stands_for_the_default_of_its_rule_and_an_unknown_one_comes_with_the_nearest():
    names = {"kmeans": KMeans(), "k-means": KMeans(), "K-Means": KMeans(), "uniform": Uniform(), "UNIFORM": Uniform()}
    names |= {"RPCholesky": RPCholesky(), "leverage": Leverage(), "basic_patterns": BasicPatterns()}
    for name, rule in names.items():
        assert landmarks.named(name) == rule
    for name, nearest in {"kmean": "kmeans", "unifrom": "uniform", "Auto": "auto", "cholesky": "rpcholesky"}.items():
        with pytest.raises(SpecError, match=f"unknown landmark rule '{name}': did you mean '{nearest}'"):
            landmarks.named(name)
    with pytest.raises(SpecError, match="unknown landmark rule 'leverages': did you mean 'leverage'"):
        landmarks.from_dict({"name": "leverages"}, np.empty((0, 0)))


def test_a_rule_goes_through_json_and_back():
    options = [KMeans(5), RPCholesky(0.01, "all", 0.1), BasicPatterns(0.9, False)]
    for rule in [KMeans(), Uniform(), Leverage(), *options]:
        assert landmarks.from_dict(json.loads(json.dumps(landmarks.to_dict(rule))), np.empty((0, 0))) == rule


@every_rule_of_rows
def test_other_rules_give_distinct_rows_of_the_sample_for_any_kernel(rule):
    sample = clustered(0)
    for kernel in (KERNEL, Function(inverse_quadratic)):
        chosen = rule.choose(sample, kernel, 17, np.random.default_rng(0))
        assert len(np.unique(chosen, axis=0)) == 17
        assert (chosen[:, None] == sample[None]).all(axis=2).any(axis=1).all()


def test_rules_that_look_at_the_kernel_use_twenty_rows_for_a_landmark_but_no_fewer_than_20000():
    for rule in (RPCholesky(), Leverage()):
        assert rule.most_rows(50) == 20_000
        assert rule.most_rows(2000) == 40_000


@pytest.mark.parametrize("rule", [RPCholesky(), Leverage()], ids=lambda rule: rule.name)
def test_rules_that_look_at_the_kernel_have_smaller_errors_than_uniform_rows_where_clusters_are_small(rule):
    kernel, found = Gaussian(3.0), []
    for seed in range(3):
        X, rng = with_small_clusters(seed), np.random.default_rng(seed)
        found.append([trace_left(X, each.choose(X, kernel, 40, rng), kernel) for each in (rule, Uniform())])
    own, uniform = np.mean(found, axis=0)
    assert own < uniform / 2


@pytest.mark.parametrize("rule", [RPCholesky(), Leverage(), BasicPatterns()], ids=lambda rule: rule.name)
def test_kernel_values_that_overflow_are_named(rule):
    X = clustered(0).astype(np.float32)
    X[7] = 1e20
    with pytest.raises(DataError, match="the sampled rows: kernel values overflow"):
        rule.choose(X, Polynomial(1.0, 2), 20, np.random.default_rng(0))


def test_uniform_landmarks_are_different_rows_in_their_order():
    sample = np.arange(50.0)[:, None]
    chosen = Uniform().choose(sample, KERNEL, 20, np.random.default_rng(0))[:, 0]
    assert (np.diff(chosen) > 0).all()
    assert set(chosen) <= set(range(50))


def test_every_row_is_equally_likely_to_be_a_uniform_landmark():
    sample = np.arange(10.0)[:, None]
    rng = np.random.default_rng(0)
    counts = sum(np.isin(np.arange(10), Uniform().choose(sample, KERNEL, 3, rng)) for _ in range(2000))
    assert_allclose(counts, 600, atol=6 * np.sqrt(2000 * 0.3 * 0.7))
