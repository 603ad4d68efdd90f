"""Each solver in one call, as the tests of solvers use it."""

import numpy as np
import pytest
from hypothesis import strategies as st

from bigkpca.numerics import solvers
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.moments import Rounding, shifted_sums
from bigkpca.numerics.span import span_of

seeds = st.integers(0, 2**32 - 1)
centred_or_not = pytest.mark.parametrize("center", [True, False], ids=["centred", "uncentred"])


def block_moments(tiles, shift):
    """The moments of the rows of one block."""
    return shifted_sums(tiles, shift, Rounding.unknown(len(shift))).moments


def nystroem_fit(kernel, X, landmarks, components, center=True):
    """(solution, scores of X), in the dtype of the landmarks."""
    features = KernelRows(kernel, np.zeros(X.shape[1]), landmarks)
    ((V, diagonal),) = features.tiles([X], len(X))
    V = V.copy()
    moments = block_moments([(V.copy(), diagonal)], V.mean(axis=0, dtype=np.float64))
    tolerance = rank_tolerance(features.dtype)
    solution = solvers.nystroem(
        span_of(features.gram(), moments, tolerance, positive=kernel.positive),
        components,
        center=center,
        tolerance=tolerance,
    )
    return solution, (V - solution.mean) @ solution.components


def gram_fit(kernel, X, components, center=True):
    """(solution, scores of X)."""
    K = kernel(X, X)
    solution = solvers.gram(K.copy(), components, center=center, tolerance=1e-12, positive=kernel.positive)
    return solution, (K - solution.mean) @ solution.components


def rows(seed, n=40, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def moments_at(kernel, X, landmarks):
    """(moments of k(X, S), k(S, S), k(X, S))."""
    C = kernel(X, landmarks)
    moments = block_moments([(C.copy(), kernel.diagonal(X))], C.mean(axis=0))
    return moments, kernel.gram(landmarks), C


def columns_fit(kernel, X, landmarks, components, center=True):
    """(solution, scores of X)."""
    moments, W, C = moments_at(kernel, X, landmarks)
    solution = solvers.column_sampling(
        span_of(W, moments, 1e-12, positive=kernel.positive), components, center=center, tolerance=1e-12
    )
    return solution, (C - solution.mean) @ solution.components


def thesis_fit(kernel, X, landmarks, components, center=True, rank=None):
    """(solution, scores of X)."""
    moments, W, C = moments_at(kernel, X, landmarks)
    solution = solvers.nystroem_thesis(
        span_of(W, moments, 1e-12, positive=kernel.positive), components, rank=rank, center=center, tolerance=1e-12
    )
    return solution, (C - solution.mean) @ solution.components


def plain_fit(V, components, center=True, unexplained=0.0, trace=None, tolerance=1e-12):
    """(solution, scores of the features)."""
    diagonal = np.full(len(V), (float((V**2).sum()) if trace is None else trace) / len(V))
    moments = block_moments([(V.copy(), diagonal)], V.mean(axis=0))
    solution = solvers.plain(moments, components, unexplained=unexplained, center=center, tolerance=tolerance)
    return solution, (V - solution.mean) @ solution.components
