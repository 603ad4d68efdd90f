"""Which rows stand for all: rules that choose landmarks from a sample."""

import json

import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import SpecError
from bigkpca.numerics import landmarks
from bigkpca.numerics.bandwidth import median_sigma, pair_distances
from bigkpca.numerics.kernels import Gaussian
from bigkpca.numerics.landmarks import KMeans, Uniform

KERNEL = Gaussian(1.0)
every_rule = pytest.mark.parametrize("rule", [KMeans(), Uniform()], ids=lambda rule: rule.name)


def sorted_rows(X):
    return X[np.lexsort(X.T)]


def sum_of_squares(rows, centres):
    """Σ_i min_j |x_i - c_j|^2."""
    return ((rows[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2).min(axis=1).sum()


def clustered(seed, n=200):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) * 0.3 + rng.normal(size=(6, 3))[rng.integers(0, 6, n)] * 4


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


@pytest.mark.parametrize("seed", range(5))
def test_iterations_of_kmeans_lower_the_sum_of_squares(seed):
    sample = clustered(seed)
    sums = [
        sum_of_squares(
            sample, KMeans(iterations, rows_per_landmark=20).choose(sample, KERNEL, 10, np.random.default_rng(7))
        )
        for iterations in range(5)  # without iterations they are the rows that it starts from
    ]
    assert (np.diff(sums) <= 1e-9 * sums[0]).all()
    assert sums[3] < 0.8 * sums[0]


def test_one_centre_is_the_mean():
    sample = clustered(0)
    assert_allclose(
        KMeans(1, rows_per_landmark=200).choose(sample, KERNEL, 1, np.random.default_rng(0))[0], sample.mean(axis=0)
    )


def test_more_rows_than_a_tile_are_all_assigned(monkeypatch):
    sample = clustered(0)
    whole = KMeans().choose(sample, KERNEL, 20, np.random.default_rng(0))
    monkeypatch.setattr(landmarks, "_TILE_ROWS", 7)
    assert_allclose(KMeans().choose(sample, KERNEL, 20, np.random.default_rng(0)), whole, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_duplicate_rows_leave_centres_that_are_such_rows(dtype):
    distinct = np.array([[0.0, 1.0], [2.0, 3.0], [-4.0, 5.0]], dtype)
    sample = np.repeat(distinct, 20, axis=0)
    centres = KMeans().choose(sample, KERNEL, 12, np.random.default_rng(0))
    assert centres.shape == (12, 2)
    nearest = np.abs(centres[:, None] - distinct).sum(axis=2).min(axis=1)
    assert_allclose(nearest, 0, atol=1e-6)


def eigenvalue_error(X, chosen, kernel, exact):
    """Mean relative error of the leading eigenvalues of the Nyström approximation."""
    approximate, _ = oracles.nystroem_kpca(kernel(X, chosen), kernel(chosen, chosen), len(exact))
    return np.mean(1 - approximate / exact)


def test_kmeans_beats_uniform_landmarks_threefold_on_digits(digits):
    X = digits[:600].astype(np.float64)
    kernel = Gaussian(median_sigma(pair_distances(X, "sqeuclidean", np.random.default_rng(0)), "sqeuclidean"))
    exact, _ = oracles.gram_kpca(kernel(X, X), 10)
    uniform, kmeans = (
        np.mean(
            [eigenvalue_error(X, rule.choose(X, kernel, 50, np.random.default_rng(s)), kernel, exact) for s in range(3)]
        )
        for rule in (Uniform(), KMeans())
    )
    assert 0 < kmeans < uniform / 3


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("kmeans", KMeans()),
        ("k-means", KMeans()),
        ("K-Means", KMeans()),
        ("uniform", Uniform()),
        ("UNIFORM", Uniform()),
    ],
)
def test_a_name_stands_for_the_default_of_its_rule(name, rule):
    assert landmarks.named(name) == rule


@pytest.mark.parametrize(("name", "nearest"), [("kmean", "kmeans"), ("unifrom", "uniform"), ("Auto", "auto")])
def test_an_unknown_name_comes_with_the_nearest(name, nearest):
    with pytest.raises(SpecError, match=f"unknown landmark rule '{name}': did you mean '{nearest}'"):
        landmarks.named(name)


@pytest.mark.parametrize("rule", [KMeans(), KMeans(5, 20), Uniform()], ids=str)
def test_a_rule_goes_through_json_and_back(rule):
    assert landmarks.from_dict(json.loads(json.dumps(landmarks.to_dict(rule))), np.empty((0, 0))) == rule


@pytest.mark.parametrize("values", [{"rows_per_landmark": 0}, {"iterations": -1}])
def test_kmeans_refuses_options_out_of_range(values):
    with pytest.raises(SpecError):
        landmarks.KMeans(**values)
