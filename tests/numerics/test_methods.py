"""The factor of each method, and what principal features add."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.numerics.features import FourierRows, KernelRows, PrincipalFourierRows
from bigkpca.numerics.kernels import Gaussian
from bigkpca.numerics.methods import ColumnSampling, Exact, Nystroem, PrincipalFeatures, RandomFeatures
from tests.helpers import oracles
from tests.numerics.fits import moments_of, rows

KERNEL = Gaussian(1.0)


def principal(factor=None):
    axes = np.linalg.qr(rows(4, n=3))[0][:, :2]
    return PrincipalFourierRows(KERNEL, np.zeros(3), rows(1, n=6, d=2), axes, None, factor)


X = rows(0)
LANDMARKS = KernelRows(KERNEL, np.zeros(3), X[:8])
WAVES = FourierRows(KERNEL, np.zeros(3), rows(1, n=6), None)


@pytest.mark.parametrize(("center", "factor"), [(True, None), (False, 0.9)])
def test_principal_features_add_what_their_diagonal_lacks(center, factor):
    moments, V = moments_of(principal(factor), X)
    lacking = 1 - (V**2).sum() / 40
    assert lacking > 0.1
    centred = V - V.mean(axis=0) if center else V
    found = PrincipalFeatures().solve(moments, principal(factor), 2, center, 1e-12, None)
    assert_allclose(found.eigenvalues, np.linalg.eigvalsh(centred.T @ centred)[::-1][:2] + lacking, rtol=1e-10)


def test_factors_multiply_to_the_approximation_and_leave_out_what_repeats():
    for S, rank in ((X[:8], 8), (np.repeat(X[:4], 3, axis=0), 4)):
        features = KernelRows(KERNEL, np.zeros(3), S)
        moments, C = moments_of(features, X)
        nystroem, columns = oracles.nystroem_gram(C, features.gram(), 1e-12), oracles.columns_gram(C)
        for method, expected in ((Nystroem(), nystroem), (Nystroem("thesis"), nystroem), (ColumnSampling(), columns)):
            P = method.factor(moments, features, 1e-12)
            assert P.shape == (len(S), rank)
            assert_allclose(C @ P @ P.T @ C.T, expected, atol=1e-7)
    everything = KernelRows(KERNEL, np.zeros(3), X)
    Z = KERNEL(X, X) @ Exact().factor(None, everything, 1e-12)
    assert_allclose(Z @ Z.T, KERNEL(X, X), atol=1e-7)
    for method, features in ((RandomFeatures(), WAVES), (PrincipalFeatures(), principal())):
        assert method.factor(moments, features, 1e-12) is None
    moments, C = moments_of(LANDMARKS, X)
    values, Q = np.linalg.eigh(LANDMARKS.gram())
    for rank in (1, 3, 20):  # before the factor of the thesis is extended
        kept = slice(None, -rank - 1, -1)
        Z = C @ Nystroem("thesis", rank).factor(moments, LANDMARKS, 1e-12)
        assert_allclose(Z @ Z.T, C @ (Q[:, kept] / values[kept]) @ Q[:, kept].T @ C.T, atol=1e-9)
