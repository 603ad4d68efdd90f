"""Few leading eigenpairs of a symmetric matrix in memory: block Lanczos, and a proof that none was missed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.linalg import Map, eigh_descending, rounding_of_eigenvalues
from bigkpca.numerics.sketch import OVERSAMPLING, next_block, starting_block
from bigkpca.numerics.triangular import is_positive

_LEAST_ROWS = 1536  # for fewer rows LAPACK is as fast, though other threads wait for it (SciPy 1.17)
_FEW = 16  # rows for each vector that a restart keeps
_WIDTH = 8  # of a block: a product reads the whole matrix, whether with eight vectors or with one
_FULL = 5  # times the vectors that a restart keeps: the largest basis
_MOST = 0.25  # of n: products with so many vectors cost about a third of LAPACK's work
_PROOFS = 6  # attempts of the proof: each failure adds a block of directions
_RESIDUAL = 1e-12
_TILE_ROWS = 1024
_EPS = 2.0**-52
_HUGE = 1e100  # squares of sums may overflow for entries above, and underflow for entries below 1 / _HUGE


def are_few(count: int, n: int) -> bool:
    """Whether `count` of n eigenpairs are so few that Lanczos is faster than LAPACK."""
    return n >= _LEAST_ROWS and _FEW * (count + OVERSAMPLING) <= n


def leading(A: Array, count: int, entry: float, in_order: Map = map) -> tuple[Array, Array] | None:
    """The `count` largest eigenvalues of the symmetric A (n, n), float64, descending, and eigenvectors in columns.

    Block Lanczos with thick restarts (Grimes, Lewis and Simon 1994; Wu and Simon 2000), from the same start for every
    A, until residuals |A u - value u| are at most 1e-12 of the value, or the rounding of A with entries up to `entry`.
    Then Cholesky proves that

        (the least of the values + slack / 2) I - (A - V diag(values) V')

    has no negative eigenvalue, so that V holds all eigenvectors above, multiple ones as often as they occur, and values
    are right up to `slack` = `linalg.rounding_of_eigenvalues`. None where that takes too long (eigenvalues too close),
    and for entries whose squares overflow or underflow. The same bits for any number of threads of `in_order`. Memory:
    once more A, and about 15 (count + 10) n float64.
    """
    if not 1 / _HUGE < entry < _HUGE:
        return None
    n, kept = len(A), count + OVERSAMPLING
    most = max(_FULL * kept, kept + 4 * _WIDTH)
    space = _Krylov.empty(n, most)
    rng = np.random.default_rng(0)
    block, due, tried = starting_block(n, _WIDTH, rng), kept, 0
    for _ in range(int(_MOST * n) // _WIDTH):
        space.add(block, _product(A, block, in_order))
        V, AV, T = space.held()
        block = _next(V, AV[:, -_WIDTH:], rng)
        full = len(T) + _WIDTH > most
        if len(T) < due and not full:
            continue
        values, S = eigh_descending((T + T.T) / 2)
        vectors = V @ S[:, :count]
        if _are_exact(values[:count], vectors, AV @ S[:, :count], entry):
            pairs = _recomputed(A, vectors, entry, in_order)
            if pairs is not None:
                if _are_all(A, *pairs, entry, in_order):
                    return pairs
                if (tried := tried + 1) == _PROOFS:
                    return None
                # The basis lacks an eigenvector, e.g. another one of a multiple eigenvalue: add random directions.
                block, full = _next(V, rng.standard_normal((n, _WIDTH)), rng), True
        due = len(T) + kept // 4
        if full:
            space.restart(values[:kept], S[:, :kept])
            due = (kept + most) // 2
    return None


@dataclass
class _Krylov:
    """Basis V (n, most) of a Krylov space, its images A V, and T = V'A V; the first `count` columns are filled."""

    basis: Array
    images: Array
    T: Array
    count: int = 0

    @classmethod
    def empty(cls, n: int, most: int) -> _Krylov:
        """Room for `most` columns, each contiguous in memory."""
        return cls(np.empty((most, n)).T, np.empty((most, n)).T, np.zeros((most, most)))

    def add(self, block: Array, image: Array) -> None:
        """Append a block of columns and their images."""
        new = slice(self.count, self.count + _WIDTH)
        self.basis[:, new], self.images[:, new] = block, image
        self.count += _WIDTH
        V, AV, T = self.held()
        T[:, new] = V.T @ AV[:, new]
        T[new, :] = T[:, new].T

    def held(self) -> tuple[Array, Array, Array]:
        """Views of V, A V and T, filled columns alone."""
        return self.basis[:, : self.count], self.images[:, : self.count], self.T[: self.count, : self.count]

    def restart(self, values: Array, S: Array) -> None:
        """Keep the Ritz vectors V S of the Ritz `values` as the new basis (thick restart)."""
        V, AV, _ = self.held()
        self.count = len(values)
        kept = slice(self.count)
        self.basis[:, kept], self.images[:, kept] = V @ S, AV @ S
        self.T[kept, kept] = np.diag(values)


def _recomputed(A: Array, vectors: Array, entry: float, in_order: Map) -> tuple[Array, Array] | None:
    """The pairs in descending order, from fresh products with A; None where their residuals are too large after all.

    Images in the basis were combined many times, so that their rounding errors may have grown.
    """
    moved = _product(A, vectors, in_order)
    values = np.einsum("ij,ij->j", vectors, moved)
    order = np.argsort(-values, kind="stable")  # multiple eigenvalues may come in any order
    values, vectors, moved = values[order], np.ascontiguousarray(vectors[:, order]), moved[:, order]
    return (values, vectors) if _are_exact(values, vectors, moved, entry) else None


def _product(A: Array, B: Array, in_order: Map) -> Array:
    """A B, by tiles of rows."""

    def tile(start: int) -> Array:
        found: Array = A[start : start + _TILE_ROWS] @ B
        return found

    return np.concatenate(list(in_order(tile, range(0, len(A), _TILE_ROWS))))


def _next(basis: Array, image: Array, rng: np.random.Generator) -> Array:
    """Orthonormal columns that span what the image adds to the basis, completed by random ones."""
    Q = next_block(basis, image)
    if missing := _WIDTH - Q.shape[1]:
        Q = np.hstack([Q, next_block(np.hstack([basis, Q]), rng.standard_normal((len(basis), missing)))])
    return Q


def _are_exact(values: Array, vectors: Array, moved: Array, entry: float) -> bool:
    """Whether residuals, with A V = `moved`, are small enough, and together at most half the slack."""
    n = len(vectors)
    norms = np.linalg.norm(moved - vectors * values, axis=0)
    noise = _EPS * (64 * abs(values[0]) + 4 * np.sqrt(n) * entry)
    together = rounding_of_eigenvalues(n, 0.0, entry, values[0]) / 2
    return bool((norms <= np.maximum(_RESIDUAL * values, noise)).all() and np.linalg.norm(norms) <= together)


def _are_all(A: Array, values: Array, vectors: Array, entry: float, in_order: Map) -> bool:
    """Whether A has no eigenvalue, other than these, above the least of the values plus half the slack."""
    n, rest = len(A), np.empty_like(A)

    def tile(start: int) -> Array:
        here = slice(start, start + _TILE_ROWS)
        np.matmul(vectors[here] * values, vectors.T, out=rest[here])
        rest[here] -= A[here]
        return rest[here]

    for _ in in_order(tile, range(0, n, _TILE_ROWS)):
        pass
    shift = max(float(values[-1]), 0.0) + rounding_of_eigenvalues(n, 0.0, entry, values[0]) / 2
    return is_positive(rest, shift, in_order, overwrite=True)
