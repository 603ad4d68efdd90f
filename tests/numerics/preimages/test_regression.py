"""The sums of a linear regression from scores to rows, however they are split, and its weights."""

from functools import reduce
from operator import add

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.numerics.preimages import (
    Regression,
)
from bigkpca.numerics.preimages.regression import block_regression
from tests.numerics.preimages.models import naive_regression, rows


def block_sums(F, X, splits, shift=0.5):
    """Sums over blocks that begin at the given rows, in tiles of 7."""
    ends = [*splits[1:], len(F)]
    tiles = lambda a, b: ((F[i : min(i + 7, b)].copy(), X[i : min(i + 7, b)].copy()) for i in range(a, b, 7))  # noqa: E731
    parts = [
        block_regression(tiles(a, b), np.full(4, shift), np.full(3, shift)) for a, b in zip(splits, ends, strict=True)
    ]
    return reduce(add, parts)


@pytest.mark.parametrize(("splits", "shift"), [([0], 0.0), ([0], 0.5), ([0, 20, 20, 41], 0.5), ([0, 0, 59], -2.0)])
def test_sums_of_any_split_are_those_of_the_whole(splits, shift):
    F, X = rows(60, 4) + 3, rows(60, seed=1)
    got = block_sums(F, X, splits, shift)
    f, x = F - F.mean(axis=0), X - X.mean(axis=0)
    assert got.count == 60
    assert_allclose(got.mean, F.mean(axis=0), rtol=1e-12)
    assert_allclose(got.mean_rows, X.mean(axis=0), rtol=1e-12)
    assert_allclose(got.scatter, f.T @ f, atol=1e-10)
    assert_allclose(got.cross, f.T @ x, atol=1e-10)


def test_single_precision_tiles_keep_what_a_shift_saves():
    F, X = rows(5000, 4) * 1e-3 + 100, rows(5000, seed=1)
    single = F.astype(np.float32)
    exact = single.astype(float)
    got = block_regression([(single.copy(), X.copy())], np.full(4, 100.0), np.zeros(3))
    f = exact - exact.mean(axis=0)
    assert_allclose(got.scatter, f.T @ f, rtol=1e-4, atol=1e-7)
    assert_allclose(got.mean, exact.mean(axis=0), rtol=1e-8)


def test_regression_weights_are_least_squares():
    F, X = rows(60, 4), rows(60, seed=1)
    penalty = np.diag([1.0, 2.0, 0.5, 3.0]) + 0.1
    assert_allclose(block_sums(F, X, [0, 30]).weights(penalty, 0.0), naive_regression(F, X, penalty), rtol=1e-9)


def test_a_column_that_never_varies_has_no_weight():
    F, X = rows(60, 4), rows(60, seed=1)
    F[:, 2] = 7.0
    weights = block_sums(F, X, [0], shift=7.0).weights(np.zeros((4, 4)), 1e-12)
    assert_allclose(weights[2], 0, atol=1e-12)
    assert_allclose(
        np.delete(weights, 2, axis=0), naive_regression(np.delete(F, 2, axis=1), X, 1e-20 * np.eye(3)), rtol=1e-6
    )


def test_equal_columns_share_their_weight():
    F, X = rows(60, 4), rows(60, seed=1)
    F[:, 1] = F[:, 0]
    weights = block_sums(F, X, [0]).weights(np.zeros((4, 4)), 1e-12)
    assert_allclose(weights[0], weights[1], atol=1e-4)


def test_empty_sums_add_nothing():
    empty = block_regression([], np.zeros(4), np.zeros(3))
    full = block_sums(rows(60, 4), rows(), [0])
    assert isinstance(empty, Regression)
    assert empty.count == 0
    assert empty + full is full
    assert full + empty is full
