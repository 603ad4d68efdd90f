"""Where an iteration begins when its start has no direction to go: at the landmark that explains φ^ best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.features import FeatureMap, KernelRows
from bigkpca.numerics.preimages.objective import Objective

_MOST_ROWS = 512
_MOST_KERNELS = 2**22
_LEAST_COSINE = 0.5  # between φ(z) and φ^: with less, a landmark explains too little of it to stand for the row


@dataclass(frozen=True)
class Candidates:
    """Rows C (c, d) to begin from, with their features V (c, D) and k(c, c), (c,).

    lack (c,) is what F(c) lacks of <φ(c), φ^>, and may be 0 for all where it is the same for all.
    """

    rows: Array
    V: Array
    diagonal: Array
    lack: Array


def candidates_of(features: FeatureMap) -> Candidates:
    """Some of the landmarks. None for random features: where they have no direction, they are noise everywhere."""
    if not isinstance(features, KernelRows):
        return Candidates(np.empty((0, features.columns)), np.empty((0, features.size)), np.empty(0), np.empty(0))
    S = features.landmarks.astype(np.float64)
    C = S[:: -(-len(S) // min(_MOST_ROWS, max(16, _MOST_KERNELS // len(S))))]
    diagonal = features.kernel.diagonal(C)
    lack = diagonal / 2 if features.kernel.towards == "product" else np.zeros(len(C))
    return Candidates(C, features.kernel(C, S), diagonal, lack)


def begin(
    goal: Objective, Z: Array, gamma: Array, norms: Array, candidates: Candidates, *, known: bool
) -> tuple[Array, Array]:
    """(rows to begin from (b, d), which of them are far (b,)), for starts Z and |φ^| = norms (b,).

    A row is lost where nothing pulls it, or more away than towards: it moves to the candidate with the largest F. It is
    far where that has next to nothing in common with φ^; and where it is the caller's own (`known`) and has no kernel
    value with any landmark, since then its scores say nothing of it.
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
