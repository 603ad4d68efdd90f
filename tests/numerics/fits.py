"""Each method in one call, as the tests of solvers use it."""

from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st

from bigkpca.numerics import solvers
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.methods import ColumnSampling, Exact, Nystroem
from bigkpca.numerics.moments import Rounding, shifted_sums
from bigkpca.numerics.span import Span, basis_of

seeds = st.integers(0, 2**32 - 1)
centred_or_not = pytest.mark.parametrize("center", [True, False], ids=["centred", "uncentred"])


def rows(seed, n=40, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def clustered_rows(seed, n, d=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * rng.uniform(0.3, 2, d) + rng.normal(size=(4, d))[rng.integers(0, 4, n)]


def block_moments(tiles, shift):
    """The moments of the rows of one block."""
    return shifted_sums(tiles, shift, Rounding.unknown(len(shift))).moments


def moments_of(features, X):
    """(moments of the features of X, these features)."""
    ((V, diagonal),) = features.tiles([X], len(X))
    V = V.copy()
    return block_moments([(V.copy(), diagonal)], V.mean(axis=0, dtype=np.float64)), V


def span_of(W, moments, tolerance, *, positive):
    """The span of landmarks with Gram matrix W."""
    return Span.of(basis_of(W, tolerance, positive=positive), moments)


def landmark_fit(method, kernel, X, landmarks, components, center=True):
    """(solution, scores of X) of a method with landmarks, in their dtype."""
    features = KernelRows(kernel, np.zeros(X.shape[1]), landmarks)
    moments, V = moments_of(features, X)
    tolerance = rank_tolerance(features.dtype)
    span = span_of(features.gram(), moments, tolerance, positive=kernel.positive)
    solution = method.solve(moments, features, components, center, tolerance, span)
    return solution, (V - solution.mean) @ solution.components


nystroem_fit, columns_fit = partial(landmark_fit, Nystroem()), partial(landmark_fit, ColumnSampling())


def thesis_fit(kernel, X, landmarks, components, center=True, rank=None):
    return landmark_fit(Nystroem("thesis", rank), kernel, X, landmarks, components, center)


def exact_fit(kernel, X, _, components, center=True):
    return landmark_fit(Exact(), kernel, X, X, components, center)


def plain_fit(V, components, center=True, added=0.0, trace=None, tolerance=1e-12):
    """(solution, scores of the features)."""
    diagonal = np.full(len(V), (float((V**2).sum()) if trace is None else trace) / len(V))
    moments = block_moments([(V.copy(), diagonal)], V.mean(axis=0))
    solution = solvers.plain(moments, components, added=added, center=center, tolerance=tolerance)
    return solution, (V - solution.mean) @ solution.components
