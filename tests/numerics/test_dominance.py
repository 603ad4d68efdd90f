"""The column that makes nearly all of the distances between rows: found where it does, and nowhere else."""

import numpy as np
import pytest

from bigkpca.numerics.dominance import dominant_columns

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 5))
KINDS = np.eye(4)[RNG.integers(0, 4, 400)]


def mean_squares(X):
    """Mean squared differences of all pairs, by column."""
    return ((X[:, None] - X[None]) ** 2).mean(axis=(0, 1))


def test_the_share_is_that_of_the_mean_squared_distance_of_all_pairs():
    rows = X * [1, 8, 1, 1, 1]
    found, squares = dominant_columns(rows), mean_squares(rows)
    assert (found.columns, found.share) == (slice(1, 2), pytest.approx(squares[1] / squares.sum()))
    rows = np.hstack([X[:, :2], 8 * KINDS])
    found, squares = dominant_columns(rows, [slice(2, 6)]), mean_squares(rows)
    assert (found.columns, found.share) == (slice(2, 6), pytest.approx(squares[2:].sum() / squares.sum()))
    assert dominant_columns(rows) is None  # as four columns
    assert dominant_columns(X * [1, 1, 1e10, 1, 1]).columns == slice(2, 3)  # the others are below rounding


def test_only_one_column_of_several_that_vary_dominates():
    for rows in (X, X * [1, 5, 1, 1, 1], X[:, :1], np.column_stack([X[:, 0], np.ones((400, 3))]), np.ones((9, 3))):
        assert dominant_columns(rows) is None
    assert dominant_columns(KINDS * 9, [slice(0, 4)]) is None


def test_a_few_far_rows_do_not_make_a_column_dominate():
    far = RNG.random(400) < 0.06
    for sentinel in (-9999, 1e20):  # beside 1e20, the other variances are below rounding
        rows = X.copy()
        rows[far, 2] = sentinel
        assert mean_squares(rows)[2] / mean_squares(rows).sum() > 0.99
        assert dominant_columns(rows) is None
    rows[far, 2] = -9999
    assert dominant_columns(rows * [1, 1, 100, 1, 1]).columns == slice(2, 3)  # without them, too


def test_rows_beyond_the_range_of_floats_are_no_error():
    for rows in (X * 1e200, X * [1, 1e300, 1, 1, 1], np.full((3, 2), np.inf)):
        assert dominant_columns(rows) is None
