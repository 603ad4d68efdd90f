"""The start of an iteration, where its own start has no reliable direction: the landmark that explains φ^ best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.features import FeatureMap, has_landmarks
from bigkpca.numerics.preimages.objective import Objective

_MOST_ROWS = 512
_MOST_KERNELS = 2**22
_LEAST_COSINE = 0.5  # between φ(z) and φ^; a landmark with less explains too little to start from


@dataclass(frozen=True)
class Candidates:
    """Rows C (c, d) to start from, with their features V (c, D) and k(c, c) (c,).

    lack (c,) is <φ(c), φ^> - F(c), but for a constant.
    """

    rows: Array
    V: Array
    diagonal: Array
    lack: Array


def candidates_of(features: FeatureMap) -> Candidates:
    """Some of the landmarks. None for random features, which are noise wherever they have no direction."""
    if not has_landmarks(features):
        return Candidates(np.empty((0, features.columns)), np.empty((0, features.size)), np.empty(0), np.empty(0))
    S = features.landmarks.astype(np.float64)
    C = S[:: -(-len(S) // min(_MOST_ROWS, max(16, _MOST_KERNELS // len(S))))]
    diagonal = features.kernel.diagonal(C)
    lack = diagonal / 2 if features.kernel.towards == "product" else np.zeros(len(C))
    return Candidates(C, features.kernel(C, S), diagonal, lack)


def begin(
    goal: Objective, Z: Array, gamma: Array, norms: Array, candidates: Candidates, *, known: bool
) -> tuple[Array, Array]:
    """Rows to start from (b, d), and which of them are far (b,), for starts Z and |φ^| = norms (b,).

    A row without a reliable direction moves to the candidate with the largest F. It is far where φ of that candidate
    has a small cosine with φ^. It is also far where the start is the caller's own row (`known`) and has no kernel value
    with any landmark, since then its scores say nothing about it.
    """
    at = goal.at(Z, gamma)
    nothing = at.total <= goal.least * goal.reach * np.abs(gamma).sum(axis=1)
    far = nothing | ~(at.weight > goal.least * at.total)
    anew = np.flatnonzero(far & ~nothing if known else far)
    if not len(anew) or not len(candidates.rows):
        return Z, far
    inner = gamma[anew] @ candidates.V.T
    best = (inner - candidates.lack).argmax(axis=1)
    largest = _LEAST_COSINE * norms[anew] * np.sqrt(candidates.diagonal[best])
    Z, far = Z.copy(), far.copy()
    Z[anew], far[anew] = candidates.rows[best], inner[np.arange(len(anew)), best] <= largest
    return Z, far
