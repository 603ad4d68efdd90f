"""Basic patterns: directions of kernel vectors that differ by a threshold."""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.errors import SpecError
from bigkpca.numerics.kernels import Gaussian, Linear, Polynomial
from bigkpca.numerics.landmarks import BasicPatterns, basic_patterns
from tests.helpers import oracles
from tests.numerics.landmarks.test_landmarks import KERNEL, chosen, clustered


@cache
def naive_directions(n, m, centred=True):
    """Of n clustered rows by kernels with the first m of them."""
    X = clustered(0, n)
    K = oracles.matrix(lambda x, y: oracles.gaussian(x, y, 1.0), X, X[:m])
    K -= K.mean(axis=0) * centred
    return K / np.linalg.norm(K, axis=1, keepdims=True)


@pytest.mark.parametrize(("centred", "dtype"), [(True, np.float32), (True, np.float64), (False, np.float64)])
def test_directions_are_unit_kernel_vectors(centred, dtype):
    X = clustered(0, n=40).astype(dtype)
    found = basic_patterns.kernel_directions(X, X[:15], KERNEL, centred)
    assert found.dtype == dtype
    assert_allclose(found, naive_directions(40, 15, centred), atol=1e-10 if dtype == np.float64 else 1e-4)
    zeros = basic_patterns.kernel_directions(np.array([[0.0], [2.0]]), np.array([[1.0], [1.0]]), Linear(), False)
    assert_allclose(zeros, [[0, 0], [0.5**0.5, 0.5**0.5]])


@pytest.mark.parametrize(("centred", "threshold"), [(True, 0.3), (True, 0.99), (False, 0.8)])
def test_patterns_differ_by_the_threshold_and_every_other_row_is_like_one_of_them(centred, threshold, monkeypatch):
    monkeypatch.setattr(basic_patterns, "_PIECE_ROWS", 7)  # else all rows are one piece
    directions = naive_directions(120, 120, centred)
    numbers = basic_patterns.scan(directions, threshold, 120)
    cosines = directions @ directions.T
    among = cosines[np.ix_(numbers, numbers)]
    assert (among[~np.eye(len(numbers), dtype=bool)] < threshold).all()
    assert (np.diff(numbers) > 0).all()
    for row in set(range(120)) - set(numbers):
        assert cosines[row, numbers[numbers < row]].max() >= threshold
    assert numbers[0] == 0
    assert 1 < len(numbers) < 120


@pytest.mark.parametrize("count", [1, 5, 30])
def test_the_smallest_threshold_that_finds_enough_is_found(count):
    directions, others = naive_directions(150, 150), ~np.eye(count, dtype=bool)
    numbers = basic_patterns.scan_for(directions, count)
    assert len(set(numbers)) == len(numbers) == count
    cosines = directions @ directions.T
    closest = cosines[np.ix_(numbers, numbers)][others].max(initial=-1)
    assert len(basic_patterns.scan(directions, closest - 2e-3, count)) < count or closest == -1
    assert closest <= cosines[:count, :count][others].max(initial=-1)  # of the first rows


@pytest.mark.parametrize("centred", [True, False])
def test_a_threshold_gives_at_most_as_many_as_asked_for(centred):
    few, many, ten = (
        chosen(BasicPatterns(threshold, centred), clustered(0), most)
        for threshold, most in ((0.5, 100), (0.99, 100), (0.99, 10))
    )
    assert 3 < len(few) < len(many) <= 100
    assert len(ten) == 10
    for threshold in (-1.0, 1.01, np.nan):
        with pytest.raises(SpecError, match="the threshold is a cosine and must be above -1 and at most 1"):
            BasicPatterns(threshold, centred)


@pytest.mark.parametrize(("centred", "dtype"), [(True, np.float32), (False, np.float64)])
def test_no_pattern_is_found_twice_where_rows_repeat(centred, dtype):
    for seed in range(3):
        sample = np.repeat(clustered(seed, n=12).astype(dtype), 5, axis=0)
        for kernel in (Gaussian(0.5), Gaussian(3.0), Polynomial(0.1, 2)):
            for threshold in (None, 0.999):
                found = chosen(BasicPatterns(threshold, centred), sample, 40, kernel, seed)
                assert 1 < len(found) == len(np.unique(found, axis=0)) <= 12
