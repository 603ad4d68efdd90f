"""The basis of the span of landmarks: orthonormal, of Cholesky's factor with pivoting or of eigenvectors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.errors import DataError
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Gaussian, Sigmoid
from bigkpca.numerics.span import basis_of
from tests.helpers import oracles
from tests.numerics.fits import moments_of, rows, span_of


@pytest.mark.parametrize(("kernel", "positive"), [(Gaussian(1.5), True), (Gaussian(1.5), False), (Sigmoid(2.0), False)])
@pytest.mark.parametrize("l", [1, 30])
def test_a_basis_is_orthonormal_and_leaves_what_the_landmarks_leave(kernel, positive, l):  # noqa: E741
    X = rows(3, 120, 4)
    moments, C = moments_of(KernelRows(kernel, np.zeros(4), X[:l]), X)
    W = kernel.gram(X[:l])
    span = span_of(W, moments, 1e-12, positive=positive)
    basis, Z = span.basis, C @ span.basis.P
    assert basis.triangular is positive
    assert basis.indefinite is bool((np.linalg.eigvalsh(W) < 0).any())
    assert_allclose(basis.P.T @ W @ basis.P, np.diag(basis.signs), atol=1e-8)
    b = np.random.default_rng(0).normal(size=(l, 2))
    assert_allclose(basis.solve(b), np.linalg.solve(W, b), rtol=1e-6)
    scatter = (Z - Z.mean(axis=0)).T @ (Z - Z.mean(axis=0))
    assert_allclose(span.coordinates.scatter, scatter, atol=1e-8 * np.abs(scatter).max())
    left = np.trace(kernel.gram(X) - oracles.nystroem_gram(C, W, 1e-12))
    assert_allclose(span.trace_error, left, atol=1e-8 * moments.trace)
    assert (span.unexplained is None) is basis.indefinite


@pytest.mark.parametrize("positive", [True, False])
def test_landmarks_that_repeat_at_any_scale_span_what_one_of_them_does(positive):
    W = Gaussian(1.5).gram(np.repeat(rows(3, 6, 4), 3, axis=0))
    basis = basis_of(W, 1e-12, positive=positive)
    assert basis.P.shape == (18, 6)
    assert_allclose(W @ basis.P @ basis.P.T @ W, W, atol=1e-10)
    for scale in (1e-300, 1e-30, 1e300):  # without warnings
        assert basis_of(scale * W, 1e-12, positive=positive).P.shape == (18, 6)


def test_without_a_positive_eigenvalue_nothing_is_spanned():
    for W in (np.zeros((3, 3)), -np.eye(2)):
        for positive in (True, False):
            with pytest.raises(DataError, match="no positive eigenvalue"):
                basis_of(W, 1e-12, positive=positive)
