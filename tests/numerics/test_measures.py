"""Measures of approximations against their definitions, and the theorems that relate them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.numerics import measures
from bigkpca.numerics.kernels import Gaussian, Sigmoid
from tests.numerics.fits import rows


def gram(seed, n=40):
    return Gaussian(1.0).gram(rows(seed, n))


def truncated(K, rank):
    """The best approximation of a symmetric matrix, from its singular value decomposition."""
    U, D, V = np.linalg.svd(K)
    return (U[:, :rank] * D[:rank]) @ V[:rank]


@pytest.mark.parametrize("rank", [0, 1, 5, 40])
def test_errors_are_differences_and_ratios_of_frobenius_norms(rank):
    K = gram(0)
    other = K + np.random.default_rng(0).normal(size=K.shape)
    best = np.sqrt(((K - truncated(K, rank)) ** 2).sum())
    norm = np.sqrt(((K - other) ** 2).sum())
    assert_allclose(measures.best_error(K, rank), best, atol=1e-11)
    assert_allclose(measures.matrix_error(K, other, rank), norm - best, rtol=1e-11)
    assert_allclose(measures.relative_accuracy(K, other, rank), best / norm, atol=1e-11)
    indefinite = Sigmoid(0.5, -1.0)(rows(0), rows(0))
    assert np.linalg.eigvalsh(indefinite)[0] < -0.1 * np.linalg.norm(indefinite, 2)
    left = np.linalg.norm(indefinite - truncated(indefinite, rank))
    assert_allclose(measures.best_error(indefinite, rank), left, atol=1e-11)


def test_agreement_of_vectors_is_the_cosine_of_each_pair():
    rng = np.random.default_rng(0)
    U, V = rng.normal(size=(2, 20, 4))
    expected = [abs(np.dot(u, v)) / np.linalg.norm(u) / np.linalg.norm(v) for u, v in zip(U.T, V.T, strict=True)]
    assert_allclose(measures.vector_agreement(U, V), expected)
    assert_allclose(measures.vector_agreement(U, -7 * U), 1)


def test_leverages_are_squared_rows_of_the_eigenvectors_and_coherence_reaches_its_bounds():
    values, U = np.linalg.eigh(gram(0))
    values, U = values[-5:], U[:, -5:]
    found = measures.leverage(U * np.sqrt(values), values)
    assert_allclose(found, (U**2).sum(axis=1))
    assert_allclose(found.sum(), 5)
    spread, peaked = np.full((16, 1), 0.25), np.eye(16)[:, :2]
    assert_allclose(measures.coherence((spread**2).sum(axis=1), 1), 1)
    assert_allclose(measures.coherence((peaked**2).sum(axis=1), 2), 8)


def test_the_cosine_of_subspaces_is_that_of_the_largest_angle():
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    angles = np.array([0.1, 0.7, 1.2])
    turned = Q[:, :3] * np.cos(angles) + Q[:, 3:6] * np.sin(angles)
    mix = rng.normal(size=(2, 3, 3)) + 3 * np.eye(3)
    assert_allclose(measures.subspace_cosine(Q[:, :3] @ mix[0], turned @ mix[1]), np.cos(1.2))
    assert_allclose(measures.subspace_cosine(Q[:, :3] @ mix[0], Q[:, :3]), 1)
    assert_allclose(measures.subspace_cosine(Q[:, :3], Q[:, 2:5]), 0, atol=1e-12)


def test_measures_of_components_that_were_not_found():
    exact = np.array([4.0, 2.0, 1.0])
    assert measures.eigenvalue_error(exact, np.array([3.0])) == pytest.approx((1 / 4 + 1 + 1) / 3)
    rng = np.random.default_rng(0)
    Y = np.linalg.qr(rng.standard_normal((50, 3)))[0] * np.sqrt(exact)
    assert measures.score_error(Y, Y[:, :1]) == pytest.approx(np.sqrt(3 / 7))
    assert measures.score_error(Y, Y @ rng.standard_normal((3, 3))) == pytest.approx(0, abs=1e-12)
