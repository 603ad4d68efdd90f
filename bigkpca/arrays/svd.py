"""Singular values of a tall Dask array by block Krylov iteration, lazily."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from dask.base import optimize

from bigkpca.errors import Array, SpecError
from bigkpca.execution.on_graphs import lazy
from bigkpca.numerics import sketch
from bigkpca.numerics.aligned import aligned
from bigkpca.numerics.random_streams import VIEW_START, random_stream

if TYPE_CHECKING:
    import dask.array as da


def randomized_svd(
    Z: da.Array, k: int, *, seed: int = 0, passes: int = sketch.PASSES
) -> tuple[da.Array, da.Array, da.Array]:
    """The k leading singular triplets of Z (n, D), lazy: U (n, k), s (k,), Vt (k, D).

    Block Krylov on Z'Z, which is never formed. Every pass computes chunks of Z afresh and lets go of them, so that
    memory holds a few of them and D x k blocks, however tall Z is; so Z should not be a persisted collection.

    Parameters
    ----------
    Z : dask.array.Array, (n, D)
    k : int
    seed : int
        Of the random block that it starts with.
    passes : int
        Passes over Z; U takes one more when it is computed.

    Raises
    ------
    SpecError
        k out of range.

    Notes
    -----
    Source: Musco and Musco 2015; `docs/numerics.md`, section 11.
    """
    import dask.array as da

    D = Z.shape[1]
    if not 0 < k <= min(Z.shape):
        raise SpecError(f"k={k}: Z of shape {Z.shape} has at most {min(Z.shape)} singular values")
    tall = Z.rechunk({1: -1})
    chunks = [_Chunk(chunk) for chunk in tall.to_delayed().ravel()]
    basis: list[Any] = []
    images: list[Any] = []
    Q = lazy(_start, D, min(D, k + sketch.OVERSAMPLING), seed)
    for _ in range(passes):
        basis.append(Q)
        images.append(_summed([lazy(_product, chunk, Q) for chunk in chunks]))
        Q = lazy(_next_block, images[-1], *basis)
    pair: Any = lazy(_ritz, k, *basis, *images)
    s, V = pair[0], pair[1]
    left = [
        da.from_delayed(lazy(_left, chunk, s, V), (rows, k), dtype=np.float64)
        for chunk, rows in zip(chunks, tall.chunks[0], strict=True)
    ]
    return (
        da.concatenate(left),
        da.from_delayed(s, (k,), dtype=np.float64),
        da.from_delayed(V, (D, k), dtype=np.float64).T,
    )


class _Chunk:
    """A chunk that each task computes for itself, its graph hidden from the scheduler, which would otherwise keep the
    chunks of one pass in memory for the next."""

    def __init__(self, chunk: Any) -> None:
        (self._culled,) = optimize(chunk)

    def values(self) -> Array:
        return aligned(np.asarray(self._culled.compute(scheduler="synchronous")))


def _summed(parts: list[Any]) -> Any:
    """The sum of the parts over a binary tree."""
    while len(parts) > 1:
        sums = [lazy(np.add, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = sums + parts[len(sums) * 2 :]
    return parts[0]


def _start(D: int, width: int, seed: int) -> Array:
    return sketch.starting_block(D, width, random_stream(seed, VIEW_START))


def _product(chunk: _Chunk, Q: Array) -> Array:
    Z = chunk.values()
    return np.asarray(Z.T @ (Z @ Q), np.float64)


def _next_block(image: Array, *basis: Array) -> Array:
    return sketch.next_block(np.hstack(basis), image)


def _ritz(k: int, *blocks: Array) -> tuple[Array, Array]:
    """From the blocks of the basis, and then their images: k singular values, and the right vectors (D, k)."""
    half = len(blocks) // 2
    found = sketch.rayleigh_ritz(np.hstack(blocks[:half]), np.hstack(blocks[half:]), k)
    return np.sqrt(np.maximum(found.values, 0)), found.vectors


def _left(chunk: _Chunk, s: Array, V: Array) -> Array:
    return np.asarray(chunk.values() @ (V / np.where(s > 0, s, 1)))
