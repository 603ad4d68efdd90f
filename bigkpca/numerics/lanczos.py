"""Few leading eigenpairs of a symmetric matrix that is held: block Lanczos, and a proof that none was missed."""

from __future__ import annotations

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.linalg import Map, eigh_descending, is_positive, rounding_of_eigenvalues
from bigkpca.numerics.sketch import OVERSAMPLING, next_block, starting_block

_LEAST_ROWS = 2048  # below, LAPACK is as fast
_FEW = 16  # rows for each vector that stays when the basis starts anew
_WIDTH = 8  # of a block: a product reads the whole matrix, whether with eight vectors or with one
_FULL = 5  # times the vectors that stay, the basis starts anew
_MOST = 0.25  # of n: products with so many vectors cost about a third of what LAPACK takes
_PROOFS = 6  # that are tried: each that fails brings a block of directions more
_RESIDUAL = 1e-12
_TILE_ROWS = 1024
_EPS = 2.0**-52
_HUGE = 1e100  # entries beyond which, and one over it below which, squares of sums may overflow or vanish


def are_few(count: int, n: int) -> bool:
    """Whether `count` of n eigenpairs are so few that iterating is faster than LAPACK."""
    return n >= _LEAST_ROWS and _FEW * (count + OVERSAMPLING) <= n


def leading(A: Array, count: int, entry: float, in_order: Map = map) -> tuple[Array, Array] | None:
    """The `count` largest eigenvalues of A (n, n), symmetric, float64, descending, and eigenvectors in columns.

    Block Lanczos with thick restarts (Grimes, Lewis and Simon 1994; Wu and Simon 2000), from the same block for every
    A, until residuals |A u - value u| are at most 1e-12 of the value, or of the size of the rounding of A, made of
    numbers up to `entry`. Then Cholesky proves that

        (the least of the values + slack / 2) I - (A - V diag(values) V')

    has no negative eigenvalue: V holds all eigenvectors above, as many as there are of multiple eigenvalues. So values
    are those of A in their order, but for `slack`, which is `linalg.rounding_of_eigenvalues`. None where that takes too
    long, since eigenvalues are hard to tell apart, and for entries so large or small that squares overflow or vanish.
    The same bits for any number of threads of `in_order`. Memory: once more A, and about 15 (count + 10) n float64.
    """
    if not 1 / _HUGE < entry < _HUGE:
        return None
    n, kept = len(A), count + OVERSAMPLING
    most = max(_FULL * kept, kept + 4 * _WIDTH)
    basis, images, T = np.empty((most, n)).T, np.empty((most, n)).T, np.zeros((most, most))
    rng = np.random.default_rng(0)
    block, held, due, tried = starting_block(n, _WIDTH, rng), 0, kept, 0
    for _ in range(int(_MOST * n) // _WIDTH):
        new = slice(held, held + _WIDTH)
        basis[:, new], images[:, new] = block, _product(A, block, in_order)
        held += _WIDTH
        V, AV = basis[:, :held], images[:, :held]
        T[:held, new] = V.T @ AV[:, new]
        T[new, :held] = T[:held, new].T
        block = _next(V, AV[:, new], rng)
        full = held + _WIDTH > most
        if held < due and not full:
            continue
        all_values, S = eigh_descending((T[:held, :held] + T[:held, :held].T) / 2)
        values, vectors = all_values[:count], V @ S[:, :count]
        if _are_exact(values, vectors, AV @ S[:, :count], entry):
            moved = _product(A, vectors, in_order)  # images that were combined many times are not taken on trust
            values = np.einsum("ij,ij->j", vectors, moved)
            order = np.argsort(-values, kind="stable")  # those of a multiple one may come in any
            values, vectors, moved = values[order], np.ascontiguousarray(vectors[:, order]), moved[:, order]
            if _are_exact(values, vectors, moved, entry):
                if _are_all(A, values, vectors, entry, in_order):
                    return values, vectors
                if (tried := tried + 1) == _PROOFS:
                    return None
                # A direction has no share in the basis: one more eigenvector of a multiple eigenvalue, say.
                block, full = _next(V, rng.standard_normal((n, _WIDTH)), rng), True
        due = held + kept // 4
        if full:
            basis[:, :kept], images[:, :kept] = V @ S[:, :kept], AV @ S[:, :kept]
            T[:kept, :kept] = np.diag(all_values[:kept])
            held, due = kept, (kept + most) // 2
    return None


def _product(A: Array, B: Array, in_order: Map) -> Array:
    def tile(start: int) -> Array:
        found: Array = A[start : start + _TILE_ROWS] @ B
        return found

    return np.concatenate(list(in_order(tile, range(0, len(A), _TILE_ROWS))))


def _next(basis: Array, image: Array, rng: np.random.Generator) -> Array:
    """Orthonormal columns that span what the image adds to the basis, and random ones where it adds too little."""
    Q = next_block(basis, image)
    if missing := _WIDTH - Q.shape[1]:
        Q = np.hstack([Q, next_block(np.hstack([basis, Q]), rng.standard_normal((len(basis), missing)))])
    return Q


def _are_exact(values: Array, vectors: Array, moved: Array, entry: float) -> bool:
    """Whether residuals of A with A V = `moved` are as small as is asked, and together at most half the slack."""
    n = len(vectors)
    norms = np.linalg.norm(moved - vectors * values, axis=0)
    noise = _EPS * (64 * abs(values[0]) + 4 * np.sqrt(n) * entry)
    together = rounding_of_eigenvalues(n, 0.0, entry, values[0]) / 2
    return bool((norms <= np.maximum(_RESIDUAL * values, noise)).all() and np.linalg.norm(norms) <= together)


def _are_all(A: Array, values: Array, vectors: Array, entry: float, in_order: Map) -> bool:
    """Whether no eigenvalue of A lies above the least of the values by more than half the slack, beside these."""
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
