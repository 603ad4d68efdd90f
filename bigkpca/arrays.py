"""Lazy Dask arrays for users who build their own graphs: nothing is read or computed until it is requested.

X is anything that `KernelPCA.fit` takes as rows (n, d), and a model is a `Model`, the path of one, or a fitted
`KernelPCA`. An array has one chunk for each chunk of rows of a Dask array, or for each block of other rows, and takes
one pass over them when it is computed. Functions of a model raise SpecError for rows of another width or other columns,
and for what the model does not have: pre-images, k(x, x), or calibration rows.
Three things are done immediately: the rows of Dask frames are counted, `draw_landmarks` reads a sample, and
`randomized_svd` makes its passes. `docs/containers.md` shows an example.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import numpy as np

from bigkpca.data.blocks import Block, fit_block_rows, split
from bigkpca.data.dask import DaskRows, rows_of_chunk
from bigkpca.data.opening import open_rows, open_uncounted
from bigkpca.data.rows import ArrayRows, Rows
from bigkpca.errors import Array, DataError, SpecError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import block_tiles
from bigkpca.execution.options import RunOptions
from bigkpca.execution.projection import (
    block_denoised,
    block_preimages,
    block_residuals,
    block_scores,
    block_statistics,
    check_columns,
    expansion_of,
)
from bigkpca.execution.tasks import constant, run_function
from bigkpca.fitting.features import choose_landmarks
from bigkpca.fitting.sample import draw_sample, scaled_columns
from bigkpca.numerics import measures, solvers
from bigkpca.numerics.features import FeatureMap, FourierRows, KernelRows, draw_frequencies
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.landmarks import LandmarkRule
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.methods import Form, RandomFeatures
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import VIEW_FREQUENCIES, VIEW_START, random_stream
from bigkpca.spec import FitSpec, resolve
from bigkpca.storage.models import AnyModel, model_of
from bigkpca.workflows.inputs import open_scores

if TYPE_CHECKING:
    import dask.array as da

LazyArray: TypeAlias = "da.Array"

__all__ = [
    "denoised",
    "draw_landmarks",
    "feature_map",
    "kernel_blocks",
    "leverage",
    "preimages",
    "random_features",
    "randomized_svd",
    "residuals",
    "scores",
    "statistics",
]


def draw_landmarks(
    X: Any, size: int, kernel: Kernel, *, landmarks: str | LandmarkRule = "auto", random_state: int = 0
) -> Array:
    """Landmarks S (l, d) from a sample of the rows, without a fit: float64, in the units of X.

    They are those of `KernelPCA(kernel=kernel, size=size, landmarks=landmarks, random_state=random_state).fit(X)`; only
    if rounding makes that fit choose float64, its landmarks are rounded differently. Computed immediately, from a
    sample of at most 20,000 rows and 64 MB as float32, but at least `size` rows, in at most one pass. Raises SpecError
    for a rule that does not suit the kernel, and DataError for NaN, infinity, or equal rows in the sample.

    Parameters
    ----------
    size : int
        The largest number of landmarks: l is smaller if there are fewer rows, or if more landmarks add nothing.
    landmarks : "auto", "kmeans", "uniform", "rpcholesky" or "basic-patterns", or a rule of `bigkpca.landmarks`
        "auto" means k-means centres for kernels that depend only on x - y. For others it means rows: "rpcholesky", or
        "uniform" if the kernel may be indefinite.
    """
    rows = open_rows(X)
    spec = FitSpec.checked(method="nystroem", kernel=kernel, size=size, landmarks=landmarks, random_state=random_state)
    fit = replace(resolve(spec, rows), most_drawn=0)  # no rows for a certificate, which only a model has
    with RunOptions().engine() as engine, single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        sample = draw_sample(rows, fit, engine)
        columns = scaled_columns(sample, fit, engine)
        return columns.unshifted(choose_landmarks(sample, columns, fit, engine))


def kernel_blocks(X: Any, landmarks: Array, kernel: Kernel) -> tuple[da.Array, Array]:
    """C = k(X, S), (n, l), lazy, and W = k(S, S), (l, l), in float64, of landmarks S (l, d) in the units of X.

    Raises SpecError for landmarks that differ in width from X.
    """
    rows = open_uncounted(X)
    S = np.asarray(landmarks)
    if S.ndim != 2 or S.shape[1] != rows.shape[1]:
        raise SpecError(f"landmarks of shape {S.shape} do not fit rows of {rows.shape[1]} columns")
    dtype = np.result_type(rows.dtype, np.float32)
    offset = S.mean(axis=0, dtype=np.float64) if kernel.stationary else np.zeros(rows.shape[1])
    features = KernelRows(kernel, offset, (S - offset).astype(dtype))
    return _view(rows, features, None), features.gram()


def random_features(X: Any, size: int, kernel: Kernel, *, random_state: int = 0, form: Form = "orthogonal") -> da.Array:
    """Random features Z (n, size) with E z(x)'z(y) = k(x, y), lazy; sines and cosines both count.

    Raises SpecError for a kernel without a spectral density, or an odd size for pairs. Source: Rahimi and Recht (2007),
    *NIPS*; `docs/numerics.md`, section 9.

    Parameters
    ----------
    form : "orthogonal", "iid" or "phase"
        How frequencies are drawn.
    """
    rows = open_uncounted(X)
    method = RandomFeatures(form)
    method.check(kernel, size)
    rng, m, dtype = random_stream(random_state, VIEW_FREQUENCIES), size // 2, np.result_type(rows.dtype, np.float32)
    phases = None
    if form == "phase":
        m, phases = size, rng.uniform(0, 2 * np.pi, size).astype(dtype)
    frequencies = draw_frequencies(kernel, method.coupling, m, rows.shape[1], rng).astype(dtype)
    return _view(rows, FourierRows(kernel, np.zeros(rows.shape[1]), frequencies, phases), None)


def feature_map(model: AnyModel, X: Any) -> da.Array:
    """Features Z (n, m) of a model with K ≈ ZZ', not centred, lazy.

    For landmarks these are C P (C W⁺ C' = ZZ' for Nyström); for random features, the features themselves, with a
    diagonal added by rff-pca.
    """
    model, rows = _opened(model, X)
    tolerance = rank_tolerance(model.features.dtype)
    with single_threaded_blas:
        P = model.factor(tolerance)
    return _view(rows, model.features, P, model.block_rows)


def scores(model: AnyModel, X: Any) -> da.Array:
    """Scores (n, r) of rows, lazy: (v(x) - mean) @ components."""
    model, rows = _opened(model, X)
    return _blockwise(rows, block_scores, (model.components,), model.features.dtype, (model,), model.block_rows)


def preimages(model: AnyModel, Y: Any) -> da.Array:
    """Pre-images (n, d) of scores Y (n, r) of this model, lazy: the rows that the scores represent."""
    model = model_of(model)
    scores = open_scores(model, Y)
    model.check_preimages()
    return _blockwise(scores, _preimages, (model.columns,), model.features.dtype, (model,), model.block_rows)


def denoised(model: AnyModel, X: Any) -> da.Array:
    """Pre-images (n, d) of the scores of rows, lazy: rows as the model represents them."""
    model, rows = _opened(model, X)
    model.check_preimages()
    return _blockwise(rows, _denoised, (model.columns,), model.features.dtype, (model,), model.block_rows)


def residuals(model: AnyModel, X: Any) -> da.Array:
    """|φ(x) - φ^(x)|² of each row, (n,), lazy: the part of k(x, x) that its scores leave out."""
    model, rows = _opened(model, X)
    given = model, expansion_of(model)
    return _blockwise(rows, block_residuals, (), model.features.dtype, given, model.block_rows)


def statistics(model: AnyModel, X: Any) -> da.Array:
    """How unusual each row is, (n, 3), lazy: residual, distance, and both combined (see `KernelPCADetector`)."""
    model, rows = _opened(model, X)
    model.check_calibrated()
    given = model, expansion_of(model)
    return _blockwise(rows, block_statistics, (3,), np.float64, given, model.block_rows)


def leverage(model: AnyModel, X: Any) -> da.Array:
    """Leverage of each row, (n,), lazy: |row of U|² with U = scores / sqrt(eigenvalues).

    The ratio of its largest value to its mean is the coherence (`measures.coherence`). Over the fitted rows the
    leverage adds up to r for Nyström, columns and rff, and to a little less for rff-pca.
    """

    def of_block(values: Array) -> Array:
        return measures.leverage(values, eigenvalues)

    model = model_of(model)
    eigenvalues = model.solution.eigenvalues
    return scores(model, X).map_blocks(of_block, drop_axis=1, dtype=np.float64, meta=np.empty(0))  # type: ignore[call-arg, arg-type]  # Dask's own types are wrong


def _opened(model: AnyModel, X: Any) -> tuple[Model, Rows]:
    """A model, and rows with its columns."""
    model, rows = model_of(model), open_uncounted(X)
    check_columns(rows, model)
    return model, rows


_TILE_ROWS = 1024


def randomized_svd(
    Z: da.Array, k: int, *, center: bool = False, random_state: int = 0, passes: int = solvers.PASSES
) -> tuple[da.Array, Array, Array]:
    """The k leading singular triplets of Z (n, D), or of Z minus its mean row: U (n, k), lazy, s (k,) and Vt (k, D).

    Block Krylov on Z'Z, which is never formed. Each pass, of which there are at most `passes`, computes the chunks of Z
    and releases them, so memory holds a few chunks and D x k blocks, however tall Z is. `Z - Z.mean(axis=0)` would keep
    all chunks until the mean is known: `center=True` needs no extra pass. Computing U takes one more pass.

    Raises SpecError if k is out of range, there are no passes, or Z is not a table of real numbers; DataError if Z
    contains NaN or infinity. Source: Musco and Musco (2015), *NIPS*; `docs/numerics.md`, section 11.
    """
    if Z.ndim != 2 or Z.dtype.kind not in "biuf":
        raise SpecError(f"Z has shape {Z.shape} and dtype {Z.dtype}: it must be a table of real numbers")
    if passes < 1:
        raise SpecError(f"passes={passes}: at least one is needed")
    n, D = Z.shape
    if not 0 < k <= min(n, D):
        raise SpecError(f"k={k}: Z of shape {Z.shape} has at most {min(n, D)} singular values")
    tall, shift, deviation = Z.rechunk({1: -1}), np.zeros(D), np.zeros(D)
    if center:  # a row near the mean, about which sums lose no digits
        first = int(np.argmax(np.array(tall.chunks[0]) > 0))
        shift = np.asarray(tall.blocks[first].mean(axis=0, dtype=float).compute())

    def apply(Q: Array) -> Array:
        nonlocal deviation
        chunks = (1,) * tall.numblocks[0], (D,), (Q.shape[1] + 1,)
        given = constant(shift), constant(Q)
        found = tall.map_blocks(_products, *given, chunks=chunks, new_axis=2, dtype=float, meta=np.empty((0, 0, 0)))
        sums = found.sum(axis=0).compute()
        deviation = sums[:, -1] / n * center
        return np.asarray(sums[:, :-1] - n * np.outer(deviation, deviation @ Q))

    start = solvers.starting_block(D, min(D, k + solvers.OVERSAMPLING), random_stream(random_state, VIEW_START))
    with single_threaded_blas:
        found = solvers.leading_eigenpairs(apply, start, k, most=passes)
    s, V = np.sqrt(np.maximum(found.values, 0)), found.vectors
    given = constant(shift + deviation), constant(V / np.where(s > 0, s, 1))
    return tall.map_blocks(_left, *given, chunks=(tall.chunks[0], (k,)), dtype=float, meta=np.empty((0, 0))), s, V.T


def _products(V: Array, shift: Any, Q: Any) -> Array:
    """The sums of a chunk: V'V Q and V'1, side by side, of V about the shift, (1, D, b + 1)."""

    def sums(V: Array, shift: Array, Q: Array) -> Array:
        tiles = (V[start : start + _TILE_ROWS] for start in range(0, len(V), _TILE_ROWS))
        copies = (tile.astype(np.result_type(V, np.float32)) for tile in tiles)  # which are overwritten
        found = solvers.block_action(((tile, np.zeros(len(tile))) for tile in copies), shift, Q)
        if not np.isfinite(found.squares):
            raise DataError("Z contains NaN or infinity, or its squares overflow: remove or impute such rows first")
        return np.column_stack([found.products, found.total])[None]

    return np.asarray(run_function(sums, (V, shift, Q)))


def _left(V: Array, mean: Any, right: Any) -> Array:
    return np.asarray(run_function(lambda V, mean, right: (V - mean) @ right, (V, mean, right)))


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
    """function(rows, block, *given), (rows of the block, *width), for each chunk of a Dask array or each block of other
    rows."""
    import dask.array as da  # here, since KernelPCA does not need it for rows in memory

    values = [constant(value) for value in given]
    about: dict[str, Any] = {"dtype": dtype, "meta": np.empty((0,) * (1 + len(width)), dtype)}
    about["name"] = f"bigkpca-{function.__name__.removeprefix('block').strip('_').replace('_', '-')}-{uuid4().hex}"
    if isinstance(rows, DaskRows):
        X = rows.values.rechunk({1: -1})
        chunks = X.chunks[0], *((length,) for length in width)
        where, first = rows.where, np.cumsum([0, *X.chunks[0][:-1]])
        if not rows.counted:
            where, first = f"a chunk of {where}", np.zeros(X.numblocks[0], int)
        about |= {"chunks": chunks, "drop_axis": None if width else 1}
        none = np.empty((0, *width), dtype)
        return X.map_blocks(_of_chunk, function, where, constant(first), none, *values, **about)
    n = rows.shape[0]
    blocks = split(n, fit_block_rows(n, rows.grain, block_rows))
    chunks = tuple(len(block) for block in blocks), *((length,) for length in width)
    if isinstance(rows, ArrayRows) and rows.device is None:  # each task gets its own rows
        X = da.from_array(rows.values, chunks=(chunks[0], rows.shape[1]), name=False)
        return _blockwise(DaskRows(X, where=rows.where), function, width, dtype, given, None)
    return da.map_blocks(_of_block, function, constant(rows), constant(blocks), *values, chunks=chunks, **about)


def _of_chunk(
    X: Any,
    function: Callable[..., Array],
    where: str,
    first: Any,
    none: Array,
    *given: Any,
    block_id: tuple[int, ...],
) -> Array:
    count = X.shape[0]
    if not count:
        return none
    start = int(first.value[block_id[0]])
    rows, block = rows_of_chunk(X, start, where), Block(block_id[0], start, start + count)
    return run_function(function, (rows, block, *given))


def _of_block(function: Callable[..., Array], rows: Any, blocks: Any, *given: Any, block_id: tuple[int, ...]) -> Array:
    return run_function(function, (rows, blocks.value[block_id[0]], *given))


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
