"""Basic patterns: directions of kernel vectors that differ by a threshold."""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import DataError, SpecError
from bigkpca.numerics.kernels import Function, Gaussian, Linear, Polynomial
from bigkpca.numerics.landmarks import BasicPatterns, basic_patterns
from tests.helpers import oracles
from tests.numerics.landmarks.samples import clustered

KERNEL = Gaussian(1.0)
seeds = pytest.mark.parametrize("seed", range(3))


@pytest.mark.parametrize("centred", [True, False])
def test_kernel_vectors_of_large_rows_overflow_without_a_warning(centred):
    X = clustered(0).astype(np.float32)
    X[7] = 1e20
    with pytest.raises(DataError, match="the sampled rows: kernel values overflow"):
        basic_patterns.kernel_directions(X, X[:20], Polynomial(1.0, 2), centred)


def test_kernel_vectors_that_overflow_are_named():
    X = clustered(0).astype(np.float32)
    infinite = Function(lambda X, Y: np.full((len(X), len(Y)), np.inf))
    with pytest.raises(DataError, match="the sampled rows: kernel values overflow"):
        BasicPatterns().choose(X, infinite, 20, np.random.default_rng(0))


@cache
def naive_kernel(seed, n, m):
    """Of n clustered rows and the first m of them."""
    X = clustered(seed, n)
    return oracles.matrix(lambda x, y: oracles.gaussian(x, y, 1.0), X, X[:m])


def naive_directions(seed, n, m, centred):
    K = naive_kernel(seed, n, m)
    if centred:
        K = K - K.mean(axis=0)
    return K / np.linalg.norm(K, axis=1, keepdims=True)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_directions_are_unit_kernel_vectors(centred, dtype):
    X = clustered(0, n=40).astype(dtype)
    found = basic_patterns.kernel_directions(X, X[:15], KERNEL, centred)
    assert found.dtype == dtype
    assert_allclose(found, naive_directions(0, 40, 15, centred), atol=1e-10 if dtype == np.float64 else 1e-4)


def test_a_kernel_vector_of_zeros_has_no_direction():
    found = basic_patterns.kernel_directions(np.array([[0.0], [2.0]]), np.array([[1.0], [1.0]]), Linear(), False)
    assert_allclose(found, [[0, 0], [0.5**0.5, 0.5**0.5]])


@seeds
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("threshold", [0.3, 0.8, 0.99])
def test_patterns_differ_by_the_threshold_and_every_other_row_is_like_one_of_them(seed, centred, threshold):
    directions = naive_directions(seed, 120, 120, centred)
    numbers = basic_patterns.scan(directions, threshold, 120)
    cosines = directions @ directions.T
    among = cosines[np.ix_(numbers, numbers)]
    assert (among[~np.eye(len(numbers), dtype=bool)] < threshold).all()
    assert (np.diff(numbers) > 0).all()
    for row in set(range(120)) - set(numbers):
        assert cosines[row, numbers[numbers < row]].max() >= threshold
    assert numbers[0] == 0
    assert 1 < len(numbers) < 120


@seeds
def test_pieces_and_a_bound_do_not_change_the_order_of_patterns(seed, monkeypatch):
    directions = naive_directions(seed, 300, 50, True)
    whole = basic_patterns.scan(directions, 0.9, 300)
    monkeypatch.setattr(basic_patterns, "_PIECE_ROWS", 7)
    assert_array_equal(basic_patterns.scan(directions, 0.9, 300), whole)
    assert len(whole) > 6
    assert_array_equal(basic_patterns.scan(directions, 0.9, 6), whole[:6])


@seeds
@pytest.mark.parametrize("count", [1, 5, 30])
def test_the_smallest_threshold_that_finds_enough_is_found(seed, count):
    directions = naive_directions(seed, 150, 150, True)
    numbers = basic_patterns.scan_for(directions, count)
    assert len(set(numbers)) == len(numbers) == count
    cosines = (directions @ directions.T)[np.ix_(numbers, numbers)]
    closest = cosines[~np.eye(count, dtype=bool)].max(initial=-1)
    assert len(basic_patterns.scan(directions, closest - 2e-3, count)) < count or closest == -1
    first = (directions @ directions.T)[:count, :count][~np.eye(count, dtype=bool)].max(initial=-1)
    assert closest <= first


@pytest.mark.parametrize("centred", [True, False])
def test_a_threshold_gives_at_most_as_many_as_asked_for(centred):
    sample = clustered(0)
    few, many = (
        BasicPatterns(threshold, centred).choose(sample, KERNEL, 100, np.random.default_rng(0))
        for threshold in (0.5, 0.99)
    )
    assert 3 < len(few) < len(many) <= 100
    assert len(BasicPatterns(0.99, centred).choose(sample, KERNEL, 10, np.random.default_rng(0))) == 10


def test_a_threshold_keeps_every_distinct_row_once():
    sample = np.repeat(clustered(0, n=12), 5, axis=0)
    chosen = BasicPatterns(0.999).choose(sample, Gaussian(0.5), 40, np.random.default_rng(0))
    assert len(np.unique(chosen, axis=0)) == len(chosen) <= 12


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_pattern_is_found_twice_where_rows_repeat(centred, dtype):
    for seed in range(10):
        distinct = clustered(seed, n=12).astype(dtype)
        for kernel in (Gaussian(0.5), Gaussian(3.0), Polynomial(0.1, 2)):
            chosen = BasicPatterns(centred=centred).choose(
                np.repeat(distinct, 5, axis=0), kernel, 40, np.random.default_rng(seed)
            )
            assert 1 < len(chosen) == len(np.unique(chosen, axis=0)) <= 12


@pytest.mark.parametrize("threshold", [-1.0, 1.01, np.nan])
def test_a_threshold_is_a_cosine(threshold):
    with pytest.raises(SpecError, match="the threshold is a cosine, above -1 and at most 1"):
        BasicPatterns(threshold)


def test_centred_patterns_tell_rows_apart_where_the_kernel_is_wide():
    sample, kernel = clustered(0), Gaussian(100.0)
    numbers = [len(BasicPatterns(0.9, c).choose(sample, kernel, 50, np.random.default_rng(0))) for c in (True, False)]
    assert numbers[0] > 5
    assert numbers[1] == 1
