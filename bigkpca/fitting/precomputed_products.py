"""Products with a precomputed kernel matrix too large for memory: one checking pass, then tile by tile."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bigkpca.data.matrix_tiles import Part, halves, matrix_tiles, parts
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.data.rows import Rows
from bigkpca.errors import Array, DataError, check_overflow
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import sums_of
from bigkpca.execution.progress import Progress
from bigkpca.execution.projection import score_rows
from bigkpca.execution.tasks import shared
from bigkpca.fitting.precomputed_checks import (
    ASYMMETRY,
    BAND,
    check_matrix_diagonal,
    check_symmetry,
    combined_digest,
    entry_dtype,
    entry_scales,
    rounding_noise,
    share_above_noise,
    tasks_by_part,
)
from bigkpca.numerics import solvers
from bigkpca.numerics.eigenpairs import least_and_largest
from bigkpca.numerics.features import Columns
from bigkpca.numerics.gram_tiles import add_tile
from bigkpca.numerics.kernels import Precomputed
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import SKETCH, random_stream
from bigkpca.numerics.span import span_of
from bigkpca.spec import ResolvedFit

_PROBES = 4  # random vectors p for which K p = K'p is checked


@dataclass(frozen=True)
class ProductStart:
    """Starting block (n, b) of the products, with statistics of K from the checking pass.

    `trace` is tr(K), `total` the sum of `entry_scales` of K, `negative` the most negative eigenvalue of sampled entries
    as a share of their largest.
    """

    block: Array
    trace: float
    total: float
    digest: str
    negative: float


def start_products(rows: Rows, fit: ResolvedFit, engine: Engine, progress: Progress) -> ProductStart:
    """Check all of the matrix in one pass, and make the starting block; raises what `precomputed.read_matrix` raises.

    The block holds the scores of a Nyström model of randomly drawn columns.
    """
    n, rng = fit.n, random_stream(fit.spec.seed, SKETCH)
    dtype, few = fit.dtype, fit.start()
    S = np.sort(rng.choice(n, few.size, replace=False))
    found = _survey_matrix(rows, fit, S, rng.standard_normal((n, _PROBES)), engine, progress)
    check_matrix_diagonal(rows, found.diagonal, found.images, float(found.least.min()), float(found.largest.max()))
    _check_probes(rows, found, ASYMMETRY[entry_dtype(fit).itemsize])
    # The columns are in memory, so this pass runs on local threads.
    local, C = Engine(engine.threads), ArrayRows(found.columns)
    features = Columns(Precomputed(), np.zeros(len(S)), dtype)
    near_mean = found.columns[:BAND].mean(axis=0).astype(np.float64)
    sums = sums_of(C, features, near_mean, None, local, progress, "adding up sampled columns").sums
    moments, W = replace(sums.moments, trace=float(found.diagonal.sum())), found.columns[S].astype(np.float64)
    W = (W + W.T) / 2
    assert isinstance(few.spec.components, int)  # the spec checks
    tolerance = rank_tolerance(dtype)
    try:
        span = span_of(W, moments, tolerance)
        solution = solvers.nystroem(span, few.spec.components, center=fit.spec.center, tolerance=tolerance)
    except DataError:
        if found.entry_scales is found.diagonal:
            raise
        block = np.empty((n, 0))  # part of an indefinite matrix may have no positive eigenvalue
    else:
        block = score_rows(C, Model(features, solution, None), local, progress).astype(np.float64)
    noise = rounding_noise(float(found.entry_scales[S].sum()), len(W), entry_dtype(fit))
    negative = share_above_noise(*least_and_largest(W, fit.spec.center), noise)
    return ProductStart(block, moments.trace, float(found.entry_scales.sum()), found.digest, negative)


@dataclass(frozen=True)
class MatrixSurvey:
    """Statistics of K (n, n), or of a part of it, from the checking pass.

    Diagonal, least and largest entry of each row, images K P and mirrored images K'P for random P (n, p), columns C =
    K[:, S] for random S in the dtype of block work, and a digest. Entries outside the part count as zero.
    """

    diagonal: Array
    least: Array
    largest: Array
    images: Array
    mirrored: Array
    columns: Array
    digest: str

    @cached_property
    def entry_scales(self) -> Array:
        """`entry_scales` of K, (n,)."""
        return entry_scales(self.diagonal, np.maximum(self.largest, -self.least))


def _survey_matrix(
    rows: Rows, fit: ResolvedFit, S: Array, P: Array, engine: Engine, progress: Progress
) -> MatrixSurvey:
    """The survey of all of K, from those of its parts: one pass."""
    n, dtype = fit.n, fit.dtype
    cut = parts(rows, fit.spec.block_rows, upper=False)
    tasks = tasks_by_part(_survey_part, rows, cut, shared(S), shared(P.astype(dtype)))
    images, columns = np.zeros(P.shape), np.empty((n, len(S)), dtype)
    total = MatrixSurvey(np.zeros(n), np.full(n, np.inf), np.full(n, -np.inf), images, images.copy(), columns, "")
    digests = []
    for part, found in zip(cut, engine.each("looking at the matrix", tasks, progress), strict=True):
        total.diagonal[part.rows] += found.diagonal
        total.least[part.rows] = np.minimum(total.least[part.rows], found.least)
        total.largest[part.rows] = np.maximum(total.largest[part.rows], found.largest)
        total.images[part.rows] += found.images
        total.mirrored[part.columns] += found.mirrored
        total.columns[part.rows, _columns_within(S, part.columns)] = found.columns
        digests.append(found.digest)
    return replace(total, digest=combined_digest(digests))


def _columns_within(S: Array, columns: slice) -> slice:
    """The positions, in the ascending numbers S, of those among these columns."""
    first, last = np.searchsorted(S, [columns.start, columns.stop])
    return slice(int(first), int(last))


def _survey_part(rows: Rows, part: Part, S: Array, P: Array) -> MatrixSurvey:
    """The survey of one part, tile by tile."""
    (height, width), own, digest = part.shape, S[_columns_within(S, part.columns)], hashlib.sha256()
    diagonal, columns = np.zeros(height), np.empty((height, len(own)), P.dtype)
    images, mirrored = np.zeros((height, P.shape[1])), np.zeros((width, P.shape[1]))
    least, largest = np.full(height, np.inf), np.full(height, -np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        for at, values in matrix_tiles(rows, part, digest=digest):
            K, (tall, wide) = values.astype(P.dtype, copy=False), at.within(part)
            images[tall] += K @ P[at.columns]
            least[tall], largest[tall] = (
                np.minimum(least[tall], K.min(axis=1)),
                np.maximum(largest[tall], K.max(axis=1)),
            )
            mirrored[wide] += K.T @ P[at.rows]
            drawn = _columns_within(own, at.columns)
            columns[tall, drawn] = K[:, own[drawn] - at.columns.start]
            on = np.arange(max(at.rows.start, at.columns.start), min(at.rows.stop, at.columns.stop))
            diagonal[on - part.rows.start] = K[on - at.rows.start, on - at.columns.start]
    check_overflow(images, rows.where)
    return MatrixSurvey(diagonal, least, largest, images, mirrored, columns, digest.hexdigest())


def _check_probes(rows: Rows, found: MatrixSurvey, tolerance: float) -> None:
    """Raise an error unless K P = K'P up to rounding; the row that differs most is read again to name the entry."""
    apart = np.linalg.norm(found.images - found.mirrored, axis=1)
    apart -= tolerance * np.sqrt(_PROBES * found.entry_scales * found.entry_scales.sum())
    i = int(apart.argmax())
    if apart[i] > 0:
        row, column = rows.block(i, i + 1), rows.block(0, rows.shape[0], slice(i, i + 1)).T
        given = (row.astype(np.float64), column.astype(np.float64), found.entry_scales, tolerance)
        check_symmetry(rows, np.array([i]), *given)


def product(rows: Rows, fit: ResolvedFit, engine: Engine, progress: Progress, B: Array) -> Array:
    """K B (n, c), float64: one pass over K, or over its upper half where its chunks allow that."""
    upper = halves(rows)
    cut, given = parts(rows, fit.spec.block_rows, upper=upper), shared(B.astype(fit.dtype))
    tasks = tasks_by_part(_multiply_part, rows, cut, given, upper)
    found: Array = engine.total("products with the matrix", tasks, progress, B)
    return found


def _multiply_part(rows: Rows, part: Part, B: Array, upper: bool) -> Array:
    """The contribution of one part to K B, (n, c)."""
    out = np.zeros(B.shape)
    for at, K in matrix_tiles(rows, part, upper=upper):
        add_tile(out, B, at.rows, at.columns, K.astype(B.dtype, copy=False), mirrored=upper)
    return out
