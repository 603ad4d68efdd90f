"""Cholesky factors, their inverses and products by tiles: against the plain formulas, on any number of threads."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics import linalg
from tests.helpers.oracles import matrix_with
from tests.numerics.fits import threads

TILE = 32


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Small matrices have several tiles: of the package's own size, they would take seconds."""
    monkeypatch.setattr(linalg, "_TILE_ROWS", TILE)


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 100])
def test_factor_inverse_and_products_are_those_of_the_formulas(n):
    A, S = matrix_with(np.geomspace(1e-3, 1, n)), matrix_with(np.linspace(-1, 2, n), 5)
    before = A.copy(), S.copy()
    L = linalg.cholesky(A)
    assert L is not None
    assert_allclose(np.tril(L), np.linalg.cholesky(A), atol=1e-12)
    T = linalg.inverse_transposed(L)
    assert_array_equal(T, np.triu(T))
    assert_allclose(T.T @ A @ T, np.eye(n), atol=1e-10)
    found = linalg.congruence(S, T)
    assert_array_equal(found, found.T)
    assert_allclose(found, T.T @ S @ T, atol=1e-10 * np.abs(T).max() ** 2)
    assert_allclose(linalg.quadratic_forms(S, T), np.diag(T.T @ S @ T), atol=1e-10 * np.abs(T).max() ** 2)
    assert_array_equal(A, before[0])
    assert_array_equal(S, before[1])


def test_bits_are_the_same_for_any_number_of_threads():
    A, S = matrix_with(np.geomspace(1e-3, 1, 150)), matrix_with(np.linspace(-1, 2, 150), 5)

    def made(in_order):
        L = linalg.cholesky(A, in_order)
        assert L is not None
        T = linalg.inverse_transposed(L, in_order)
        others = linalg.quadratic_forms(S, T, in_order), linalg.reordered(S, np.arange(150)[::-1], in_order)
        return np.tril(L), T, linalg.congruence(S, T, in_order), *others

    for one, other in zip(made(map), made(threads), strict=True):
        assert_array_equal(one, other)


def test_a_shift_is_added_to_the_diagonal():
    A = matrix_with(np.linspace(-0.2, 1, 70)) + 0.25 * np.eye(70)
    L = linalg.cholesky(A, shift=0.3)
    assert L is not None
    assert_allclose(np.tril(L), np.linalg.cholesky(A + 0.3 * np.eye(70)), atol=1e-12)
    assert linalg.cholesky(A, shift=-0.06) is None


@pytest.mark.parametrize("kind", ["random", "triangular", "positive", "rank one", "zero row", "zero", "huge"])
def test_the_bound_of_a_norm_lies_between_the_norm_and_that_of_frobenius(kind, monkeypatch):
    A = np.random.default_rng(0).normal(size=(40, 30))
    A = {
        "random": A,
        "triangular": np.triu(A[:30]),
        "positive": np.abs(A),
        "rank one": np.outer(A[:, 0], A[0]),
        "zero row": A * (np.arange(40) != 3)[:, None],
        "zero": 0 * A,
        "huge": A * np.geomspace(1e-140, 1e140, 40)[:, None],
    }[kind]
    norm, frobenius = np.linalg.norm(A, 2) ** 2, np.linalg.norm(A) ** 2
    found = linalg.squared_norm_at_most(A)
    assert norm * (1 - 1e-12) <= found <= frobenius * (1 + 1e-12)
    assert_allclose(linalg.squared_norm_at_most(A, 2 * frobenius), frobenius)
    monkeypatch.setattr(linalg, "_STEPS", 1)
    first = linalg.squared_norm_at_most(A)
    monkeypatch.setattr(linalg, "_STEPS", 5)
    assert found <= linalg.squared_norm_at_most(A, first) == first
    if kind in ("positive", "rank one"):  # nothing cancels
        assert_allclose(found, norm, rtol=1e-3)


@pytest.mark.parametrize("n", [1, 31, 100])
def test_rows_and_columns_are_reordered_together(n):
    S, order = np.random.default_rng(0).normal(size=(n, n)), np.random.default_rng(1).permutation(n)
    assert_array_equal(linalg.reordered(S, order), S[order][:, order])
