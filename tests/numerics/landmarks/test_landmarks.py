"""Which rows stand for all: what every rule that chooses landmarks from a sample has in common."""

import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal

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
seeds = pytest.mark.parametrize("seed", range(3))


@every_rule
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_rule_gives_as_many_landmarks_as_asked_in_the_dtype_of_the_sample(rule, dtype):
    sample = clustered(0).astype(dtype)
    sample.flags.writeable = False
    chosen = rule.choose(sample, KERNEL, 17, np.random.default_rng(0))
    assert chosen.shape == (17, 3)
    assert chosen.dtype == dtype
    assert np.isfinite(chosen).all()


@every_rule
def test_the_seed_decides(rule):
    sample = clustered(0)
    one, again, other = (rule.choose(sample, KERNEL, 10, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert_array_equal(one, again)
    assert (one != other).any()


@every_rule
def test_as_many_landmarks_as_rows_are_the_rows(rule):
    sample = clustered(3, n=30)
    assert_array_equal(sorted_rows(rule.choose(sample, KERNEL, 30, np.random.default_rng(0))), sorted_rows(sample))


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("kmeans", KMeans()),
        ("k-means", KMeans()),
        ("K-Means", KMeans()),
        ("uniform", Uniform()),
        ("UNIFORM", Uniform()),
        ("rpcholesky", RPCholesky()),
        ("RPCholesky", RPCholesky()),
        ("leverage", Leverage()),
        ("basic-patterns", BasicPatterns()),
        ("basic_patterns", BasicPatterns()),
    ],
)
def test_a_name_stands_for_the_default_of_its_rule(name, rule):
    assert landmarks.named(name) == rule


@pytest.mark.parametrize(
    ("name", "nearest"), [("kmean", "kmeans"), ("unifrom", "uniform"), ("Auto", "auto"), ("cholesky", "rpcholesky")]
)
def test_an_unknown_name_comes_with_the_nearest(name, nearest):
    with pytest.raises(SpecError, match=f"unknown landmark rule '{name}': did you mean '{nearest}'"):
        landmarks.named(name)


@pytest.mark.parametrize(
    "rule",
    [KMeans(), KMeans(5), Uniform(), RPCholesky(0.01, "all", 0.1), Leverage(), BasicPatterns(0.9, False)],
    ids=str,
)
def test_a_rule_goes_through_json_and_back(rule):
    assert landmarks.from_dict(json.loads(json.dumps(landmarks.to_dict(rule))), np.empty((0, 0))) == rule


@every_rule_of_rows
@seeds
def test_other_rules_give_distinct_rows_of_the_sample_for_any_kernel(rule, seed):
    sample = clustered(seed)
    for kernel in (KERNEL, Function(inverse_quadratic)):
        chosen = rule.choose(sample, kernel, 17, np.random.default_rng(seed))
        assert len(np.unique(chosen, axis=0)) == 17
        assert (chosen[:, None] == sample[None]).all(axis=2).any(axis=1).all()


@pytest.mark.parametrize("rule", [RPCholesky(), Leverage()], ids=lambda rule: rule.name)
def test_rules_that_look_at_the_kernel_use_twenty_rows_for_a_landmark_but_no_fewer_than_20000(rule):
    assert rule.most_rows(50) == 20_000
    assert rule.most_rows(2000) == 40_000


@pytest.mark.parametrize("rule", [RPCholesky(), Leverage()], ids=lambda rule: rule.name)
def test_rules_that_look_at_the_kernel_have_smaller_errors_than_uniform_rows_where_clusters_are_small(rule):
    kernel, found = Gaussian(3.0), []
    for seed in range(10):
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


def test_an_unknown_rule_in_a_file_is_named():
    with pytest.raises(SpecError, match="unknown landmark rule 'leverages': did you mean 'leverage'"):
        landmarks.from_dict({"name": "leverages"}, np.empty((0, 0)))
