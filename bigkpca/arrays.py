"""Lazy Dask views, for people who build their own graphs: nothing is read or computed until they ask.

Every function takes rows as KernelPCA.fit does (NumPy, Dask or Zarr arrays, frames, paths) and returns arrays of one
chunk for each block of rows. Models are what fit returned, fitted KernelPCAs or paths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
from dask.base import optimize

from bigkpca.data.blocks import Block, fit_block_rows, split
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import Array, SpecError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.by_block import block_tiles
from bigkpca.execution.engine import lazy, shared
from bigkpca.execution.projection import (
    block_denoised,
    block_preimages,
    block_residuals,
    block_scores,
    check_columns,
    expansion_of,
)
from bigkpca.numerics import measures, sketch
from bigkpca.numerics.aligned import aligned
from bigkpca.numerics.features import FeatureMap, FourierRows, KernelRows
from bigkpca.numerics.features.frequencies import draw_frequencies
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.methods import Form, RandomFeatures
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import VIEW_FREQUENCIES, VIEW_START, random_stream
from bigkpca.storage.models import AnyModel, model_of
from bigkpca.workflows.scores import open_scores


def kernel_blocks(X: Any, landmarks: Array, kernel: Kernel) -> tuple[da.Array, Array]:
    """C = k(X, S) (n, l), lazy, and W = k(S, S) (l, l), float64, in memory; landmarks S (l, d) in the units of X.

    One pass over X when C is computed. Raises SpecError for landmarks of another width than X.
    """
    rows = open_rows(X)
    S = np.asarray(landmarks)
    if S.ndim != 2 or S.shape[1] != rows.shape[1]:
        raise SpecError(f"landmarks of shape {S.shape} do not go with rows of {rows.shape[1]} columns")
    dtype = np.result_type(rows.dtype, np.float32)
    offset = S.mean(axis=0, dtype=np.float64) if kernel.stationary else np.zeros(rows.shape[1])
    features = KernelRows(kernel, offset, (S - offset).astype(dtype))
    return _view(rows, features, None), features.gram()


def random_features(X: Any, size: int, kernel: Kernel, *, seed: int = 0, form: Form = "orthogonal") -> da.Array:
    """Z (n, size) with E z(x)'z(y) = k(x, y), lazy: random Fourier features, all forms but "qmc".

    One pass over X when it is computed. Raises SpecError for kernels without a spectral density and odd sizes of pairs.
    """
    rows = open_rows(X)
    method = RandomFeatures(form)
    if form == "qmc":
        raise SpecError("form='qmc' needs the principal axes of the rows: fit method='rff' and use feature_map")
    method.check(kernel, size)
    rng, m, dtype = random_stream(seed, VIEW_FREQUENCIES), size // 2, np.result_type(rows.dtype, np.float32)
    phases = None
    if form == "phase":
        m, phases = size, rng.uniform(0, 2 * np.pi, size).astype(dtype)
    frequencies = draw_frequencies(kernel, method.coupling, m, rows.shape[1], rng).astype(dtype)
    return _view(rows, FourierRows(kernel, np.zeros(rows.shape[1]), frequencies, phases), None)


def feature_map(model: AnyModel, X: Any) -> da.Array:
    """Z (n, m) with K ≈ ZZ', not centred, lazy: the approximation of the Gram matrix behind a model.

    C P for landmarks (C W⁺ C' = ZZ' for Nyström), the features themselves for random ones; rff-pca adds a diagonal.
    One pass over X when it is computed. Raises SpecError for rows of the wrong width.
    """
    model, rows = model_of(model), open_rows(X)
    check_columns(rows, model)
    tolerance = rank_tolerance(model.features.dtype)
    with single_threaded_blas:
        P = model.factor(tolerance)
    return _view(rows, model.features, P, model.block_rows)


def scores(model: AnyModel, X: Any) -> da.Array:
    """Scores (n, r), lazy. One pass over X when they are computed. Raises SpecError for rows of the wrong width."""
    model, rows = model_of(model), open_rows(X)
    check_columns(rows, model)
    return _blockwise(rows, block_scores, (model.components,), model.features.dtype, (model,), model.block_rows)


def preimages(model: AnyModel, Y: Any) -> da.Array:
    """Rows (n, d) that scores Y (n, r) stand for, lazy. One pass over Y when they are computed."""
    model = model_of(model)
    scores = open_scores(model, Y)
    model.reconstructing(1)  # which says so where there is no way back
    return _blockwise(scores, _preimages, (model.columns,), model.features.dtype, (model,), model.block_rows)


def denoised(model: AnyModel, X: Any) -> da.Array:
    """Rows (n, d) as the model sees them, lazy: pre-images of their scores. One pass over X when they are computed."""
    model, rows = model_of(model), open_rows(X)
    check_columns(rows, model)
    model.reconstructing(1)
    return _blockwise(rows, _denoised, (model.columns,), model.features.dtype, (model,), model.block_rows)


def residuals(model: AnyModel, X: Any) -> da.Array:
    """|φ(x) - φ^(x)|² of each row, (n,), lazy: what its scores leave out. One pass over X when they are computed."""
    model, rows = model_of(model), open_rows(X)
    check_columns(rows, model)
    given = model, expansion_of(model)
    return _blockwise(rows, block_residuals, (), model.features.dtype, given, model.block_rows)


def leverage(model: AnyModel, X: Any) -> da.Array:
    """Leverage of each row (n,), lazy: |row of U|² with U = scores / sqrt(eigenvalues).

    Its largest over its mean is the coherence (`measures.coherence`). Over the fitted rows it adds up to r for Nyström,
    columns and rff, to a little less for rff-pca. One pass over X when it is computed.
    """

    def of_block(values: Array) -> Array:
        return measures.leverage(values, eigenvalues)

    model = model_of(model)
    eigenvalues = model.solution.eigenvalues
    return scores(model, X).map_blocks(of_block, drop_axis=1, dtype=np.float64, meta=np.empty(0))  # type: ignore[call-arg, arg-type]  # Dask's own types are wrong


def randomized_svd(
    Z: da.Array, k: int, *, seed: int = 0, passes: int = sketch.PASSES
) -> tuple[da.Array, da.Array, da.Array]:
    """The k leading singular triplets of Z (n, D), lazy: U (n, k), s (k,), Vt (k, D).

    Block Krylov on Z'Z, which is never formed: `passes` passes over Z, and one more where U is computed. Every pass
    computes chunks of Z afresh and lets go of them, so that memory holds a few of them and D x k blocks, however tall Z
    is; so Z should not be a persisted collection. Raises SpecError for k out of range.
    """
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


def _view(rows: Rows, features: FeatureMap, P: Array | None, block_rows: int | None = None) -> da.Array:
    """v(x) P of all rows, or v(x) without P."""
    width = features.size if P is None else P.shape[1]
    return _blockwise(rows, _features, (width,), features.dtype, (features, P), block_rows)


def _blockwise(
    rows: Rows,
    function: Callable[..., Array],
    width: tuple[int, ...],
    dtype: Any,
    given: tuple[Any, ...],
    block_rows: int | None,
) -> da.Array:
    n, values = rows.shape[0], [shared(value) for value in given]
    chunks = [
        da.from_delayed(lazy(function, rows.part(b.start, b.stop), b, *values), (len(b), *width), dtype=dtype)
        for b in split(n, fit_block_rows(n, rows.grain, block_rows))
    ]
    return da.concatenate(chunks)


def _preimages(scores: Rows, block: Block, model: Model) -> Array:
    return block_preimages(scores, block, model).rows


def _denoised(rows: Rows, block: Block, model: Model) -> Array:
    return block_denoised(rows, block, model).rows


def _features(rows: Rows, block: Block, features: FeatureMap, P: Array | None) -> Array:
    X_tiles, most_rows = block_tiles(rows, block, features)
    if P is None:
        return np.concatenate([V.copy() for V, _ in features.tiles(X_tiles, most_rows)])
    factor = P.astype(features.dtype)
    return np.concatenate([V @ factor for V, _ in features.tiles(X_tiles, most_rows)])
