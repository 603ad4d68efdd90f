"""The matrix E = K - K^ of sampled rows, by its products with blocks of vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.linalg import Map
from bigkpca.numerics.span import Span

_TILE_ROWS = 512


@dataclass(frozen=True)
class ResidualMatrix:
    """E = K - C P P'C' (m, m), by its products: forming the second term would take longer than forming K.

    tiles: the upper half of K; tile i holds 512 columns down to the diagonal. C (m, l): kernels with the landmarks.
    kernels (m,): the diagonal of K, float64.
    """

    tiles: list[Array]
    C: Array
    P: Array
    kernels: Array

    def times(self, Q: Array, in_order: Map = map) -> Array:
        """E Q (m, b), float64: products of tiles in the dtype of block work, added up in float64."""
        m, C, right = len(Q), self.C, Q.astype(self.C.dtype)

        def product(i: int) -> Array:
            out, own = np.zeros((m + C.shape[1], Q.shape[1])), slice(i * _TILE_ROWS, len(self.tiles[i]))
            with _quiet():
                for first in range(0, own.start, _TILE_ROWS):  # a piece is in the cache for its transpose
                    others = slice(first, first + _TILE_ROWS)
                    out[others] = self.tiles[i][others] @ right[own]
                    out[own] += self.tiles[i][others].T @ right[others]
                out[own] += self.tiles[i][own] @ right[own]
                out[m:] = C[own].T @ right[own]
            return out

        def explained(i: int) -> Array:
            own = slice(i * _TILE_ROWS, len(self.tiles[i]))
            with _quiet():
                out: Array = C[own] @ inner
            return out

        longest_first = range(len(self.tiles) - 1, -1, -1)
        found = np.asarray(sum(in_order(product, longest_first)))
        inner = _by_tiles(self.P, _by_tiles(self.P.T, found[m:].astype(C.dtype), in_order), in_order)
        found[:m] -= np.concatenate(list(in_order(explained, range(len(self.tiles)))))
        return np.asarray(found[:m])

    def diagonal(self) -> Array:
        """The diagonal of E (m,), float64, not below zero."""
        B = self.C @ self.P
        return np.maximum(self.kernels - np.einsum("ij,ij->i", B, B), 0)


def residual_matrix(features: KernelRows, span: Span, X: Array, in_order: Map = map) -> ResidualMatrix:
    """E of rows X (m, d) in the units of the data, in the dtype of block work."""
    rows, kernel = features.shifted(X), features.kernel
    diagonal, C = kernel.diagonal(rows), np.empty((len(X), features.size), features.dtype)

    def columns(start: int) -> Array:
        own = slice(start, start + _TILE_ROWS)
        with _quiet():
            C[own] = kernel(rows[own], features.landmarks)
        return C[own]

    def tile(start: int) -> Array:
        stop = min(start + _TILE_ROWS, len(X))
        evaluate, K = kernel.against(rows[start:stop], _TILE_ROWS), np.empty((stop, stop - start), features.dtype)
        with _quiet():
            for first in range(0, stop, _TILE_ROWS):
                piece = slice(first, min(first + _TILE_ROWS, stop))
                evaluate(rows[piece], K[piece])
            own = np.arange(stop - start)
            K[start + own, own] = diagonal[start:stop]
        return K

    for _ in in_order(columns, range(0, len(X), _TILE_ROWS)):
        pass
    longest_first = range(0, len(X), _TILE_ROWS)[::-1]
    with _quiet():
        P = span.basis.P.astype(C.dtype, copy=False)
    return ResidualMatrix(list(in_order(tile, longest_first))[::-1], C, P, diagonal.astype(np.float64))


def _by_tiles(A: Array, B: Array, in_order: Map) -> Array:
    """A B (k, b), by tiles of rows of A (k, l)."""

    def tile(start: int) -> Array:
        with _quiet():
            return np.asarray(A[start : start + _TILE_ROWS] @ B)

    return np.concatenate(list(in_order(tile, range(0, len(A), _TILE_ROWS))))


def _quiet() -> np.errstate:
    """Suppress warnings about overflow, which is checked afterwards."""
    return np.errstate(over="ignore", invalid="ignore")  # set in every thread, as settings are per thread
