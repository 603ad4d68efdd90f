"""Symmetric eigenproblems: order, the rank rule, the sign rule."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics import linalg
from bigkpca.numerics.linalg import congruence, eigh_descending, numerical_rank, rank_tolerance, signs
from tests.helpers import oracles
from tests.helpers.oracles import matrix_with
from tests.numerics.fits import seeds

SPECTRUM = np.array([5.0, 3.0, 3.0, 1.0, 1e-3, 0.0, -0.5])


@given(seed=seeds, scale=st.sampled_from([1e-12, 1.0, 1e12]))
def test_leading_eigenpairs_descend(seed, scale):
    A = matrix_with(SPECTRUM * scale, seed)
    for count in (1, 3, 6, 7, 20, None):
        kept = min(count or 7, 7)
        values, vectors = eigh_descending(A.copy(), count)
        assert_allclose(values, SPECTRUM[:kept] * scale, atol=1e-13 * scale)
        assert_allclose(A @ vectors, vectors * values, atol=1e-13 * scale)
        assert_allclose(vectors.T @ vectors, np.eye(kept), atol=1e-13)


def test_no_eigenvalue_is_lost_where_all_are_nearly_equal(digits):
    X = digits[:200].astype(float)
    K = oracles.centred(np.exp(-2 * ((X[:, None] - X[None]) ** 2).sum(axis=2)))
    for A in (K, np.eye(200), np.eye(200) - 1 / 200):
        values, vectors = eigh_descending(A.copy(), 5)
        assert_allclose(values, 1, atol=1e-12)
        assert_allclose(vectors.T @ vectors, np.eye(5), atol=1e-12)
        assert_allclose(A @ vectors, vectors, atol=1e-12)


def test_a_matrix_of_which_some_eigenpairs_are_computed_stays():
    kept = matrix_with(SPECTRUM, 0)
    A = np.asfortranarray(kept)  # LAPACK works on a copy of others in any case
    for count in (5, 20):
        eigh_descending(A, count)
        assert_array_equal(A, kept)


def test_the_rank_is_relative_to_the_largest_eigenvalue():
    for scale in (1e-12, 1.0, 1e12):
        values = np.array([4.0, 2.0, 1e-6, 1e-9, 0.0, -1e-9]) * scale
        assert [numerical_rank(values, tolerance) for tolerance in (1e-12, 1e-7, 0.4)] == [4, 3, 2]
    assert numerical_rank(np.array([1.0, 0.5]), 0.5) == 1  # an eigenvalue at the tolerance is dropped
    for values in ([], [0.0, 0.0], [-1.0, -2.0]):
        assert numerical_rank(np.array(values), 1e-12) == 0


def test_the_tolerance_knows_the_dtype():
    assert [rank_tolerance(np.dtype(dtype)) for dtype in ("f2", "f4", "f8")] == [1e-7, 1e-7, 1e-12]


def test_the_entry_of_largest_absolute_value_decides_the_sign():
    scores = np.array([[1.0, -1.0, 2.0, 0.0], [-3.0, 0.5, -2.0, 0.0], [2.0, -0.2, 1.0, 0.0]])
    # Columns: largest is -3; largest is -1; 2 and -2 tie and the first decides; all zero.
    assert_array_equal(signs(scores), [-1, -1, 1, 1])
    assert_array_equal(signs(np.empty((0, 3))), [1, 1, 1])


@pytest.mark.parametrize("n", [1, 255, 257, 600])
def test_products_with_a_triangle_are_those_of_the_formula(n):
    """From several tiles on; exactly symmetric, and with the same bits for any number of threads."""
    S, T = matrix_with(np.linspace(-1, 2, n), 5), np.triu(np.random.default_rng(0).normal(size=(n, n)))
    found = congruence(S, T)
    assert_array_equal(found, found.T)
    assert_allclose(found, T.T @ S @ T, atol=1e-12 * n * np.abs(T).max() ** 2)
    with mock.patch.object(linalg, "_PROCESSORS", 1):
        assert_array_equal(congruence(S, T), found)
