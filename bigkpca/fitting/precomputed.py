"""Kernel PCA of a precomputed kernel matrix: checked, then solved in memory or by products, tile by tile."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bigkpca.data.matrix_tiles import Part, halves, matrix_tiles, parts
from bigkpca.data.rows import ArrayRows, Rows
from bigkpca.errors import Array, DataError, check_overflow
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import sums_of
from bigkpca.execution.projection import score_rows
from bigkpca.execution.tasks import Carried, Task
from bigkpca.numerics import solvers
from bigkpca.numerics.eigenpairs import Solution, least_and_largest
from bigkpca.numerics.features import Columns
from bigkpca.numerics.kernels import Precomputed
from bigkpca.numerics.linalg import Map, rank_tolerance
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import SKETCH, random_stream
from bigkpca.numerics.solvers import add_tile
from bigkpca.numerics.span import span_of
from bigkpca.spec import ResolvedFit

# Tolerance relative to sqrt(s_i s_j), by itemsize: larger than rounding, smaller than mistakes.
ASYMMETRY = {2: 1e-2, 4: 1e-5, 8: 1e-8}
FLAT = 1e-6  # diagonal entries below this share of the largest entry count as zero
NEARLY = 1.01  # factor that allows for rounding of entries
BAND = 512  # rows checked at once


def tasks_by_part(function: Any, rows: Rows, cut: list[Part], *given: Any) -> list[Task]:
    """One task for each part; progress counts the rows of a strip once, with its last part."""
    return [
        Task(
            function,
            (rows.part(p.rows.start, p.rows.stop, p.columns), p, *given),
            p.shape[0] if p.columns.stop == rows.shape[1] else 0,
            f"{rows.where}, rows {p.rows.start} to {p.rows.stop - 1}",
        )
        for p in cut
    ]


def read_part(rows: Rows, part: Part, dtype: np.dtype[Any]) -> tuple[Array, str]:
    """The entries of a part, and their digest."""
    values, digest = np.empty(part.shape, dtype), hashlib.sha256()
    with np.errstate(over="ignore"):
        for at, K in matrix_tiles(rows, part, digest=digest):
            values[at.within(part)] = K
    check_overflow(values, rows.where)
    return values, digest.hexdigest()


def combined_digest(digests: list[str]) -> str:
    """One digest of the digests of all parts, in order."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def entry_scales(diagonal: Array, largest: Array) -> Array:
    """s (n,) with |K_ij| <= sqrt(s_i s_j), the scale of rounding: K_ii if the matrix can be a kernel matrix; otherwise
    the `largest` |K_ij| of each row, e.g. for -D² / 2 of squared distances, whose diagonal is zero."""
    may_be = diagonal.min() >= 0 and (largest**2 <= NEARLY * diagonal * diagonal.max()).all()
    return diagonal if may_be else largest


def entry_dtype(fit: ResolvedFit) -> np.dtype[Any]:
    """The dtype to which entries are rounded: the dtype of block work, or the stored one if it is coarser."""
    stored = fit.stored
    return min(stored, fit.dtype, key=lambda dtype: dtype.itemsize) if stored.kind == "f" else fit.dtype


def rounding_noise(total: float, n: int, dtype: np.dtype[Any]) -> float:
    """How negative rounding can make the eigenvalues of a positive semidefinite matrix (n, n): a few eps sqrt(n) times
    the mean of its `entry_scales`, whose sum is `total`: the norm of a matrix of random errors."""
    return 16 * float(np.finfo(dtype).eps) * total / float(np.sqrt(n))


def share_above_noise(lowest: float, largest: float, noise: float) -> float:
    """The lowest eigenvalue as a share of the largest; 0 if it is within the noise."""
    return lowest / largest if lowest < -noise else 0.0


def check_matrix_diagonal(rows: Rows, diagonal: Array, seen: Array, least: float, largest: float) -> None:
    """Raise an error unless the diagonal (n,) can be that of a kernel matrix.

    It may be positive, or zero where a row is all zeros (squared lengths); zero throughout (-D² / 2); or of either
    sign. Entries lie between `least` and `largest`. A row of the matrix is zero, or equal to another, if the same holds
    for its row of `seen` (n, p).
    """
    flat = np.abs(diagonal).max() <= FLAT * max(largest, -least)
    zero = np.flatnonzero((diagonal == 0) & seen.any(axis=1)).tolist()
    if flat and largest > 0 and least >= -FLAT * largest:
        raise DataError(
            f"{rows.where}: the diagonal is 0 and no entry is negative, as in a matrix of distances D: convert "
            "distances to kernels with exp(-D² / (2 sigma²)), or with -D² / 2 for classical scaling"
        )
    if zero and not flat and diagonal.min() >= 0:
        raise DataError(
            f"{rows.where}: entry ({zero[0]}, {zero[0]}) is 0, but others in its row are not (counted from 0): if "
            "k(x, x) = 0, then k(x, y) = 0 for all y"
        )


def check_symmetry(rows: Rows, numbers: Array, values: Array, mirrored: Array, scales: Array, tolerance: float) -> None:
    """Raise an error unless rows `values` (b, n) of K equal its columns `mirrored` (b, n) up to rounding."""
    roots = np.sqrt(scales)
    apart = np.abs(values - mirrored) - tolerance * np.outer(roots[numbers], roots)
    if (apart > 0).any():
        k, j = divmod(int(apart.argmax()), apart.shape[1])
        i = int(numbers[k])
        raise DataError(
            f"{rows.where} is not symmetric: entry ({i}, {j}) is {values[k, j]:.9g}, entry ({j}, {i}) is "
            f"{mirrored[k, j]:.9g} (counted from 0): correct the wrong entry; if the difference is only rounding, "
            "store (K + K.T) / 2"
        )


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


def start_products(rows: Rows, fit: ResolvedFit, engine: Engine) -> ProductStart:
    """Check the whole matrix in one pass, and make the starting block: scores of a Nyström model of randomly drawn
    columns. Raises the same errors as `read_matrix`."""
    n, rng = fit.n, random_stream(fit.spec.random_state, SKETCH)
    dtype, few = fit.dtype, fit.start()
    S = np.sort(rng.choice(n, few.size, replace=False))
    found = _survey_matrix(rows, fit, S, rng.standard_normal((n, _PROBES)), engine)
    check_matrix_diagonal(rows, found.diagonal, found.images, float(found.least.min()), float(found.largest.max()))
    # K P = K'P up to rounding; the row that differs most is read again to name the entry.
    asymmetry = ASYMMETRY[entry_dtype(fit).itemsize]
    apart = np.linalg.norm(found.images - found.mirrored, axis=1)
    apart -= asymmetry * np.sqrt(_PROBES * found.entry_scales * found.entry_scales.sum())
    if apart[i := int(apart.argmax())] > 0:
        row, column = rows.block(i, i + 1).astype(np.float64), rows.block(0, n, slice(i, i + 1)).T.astype(np.float64)
        check_symmetry(rows, np.array([i]), row, column, found.entry_scales, asymmetry)
    # The columns are in memory, so this pass runs on local threads.
    local, C = Engine(engine.threads, progress=engine.progress), ArrayRows(found.columns)
    features = Columns(Precomputed(), np.zeros(len(S)), dtype)
    near_mean = found.columns[:BAND].mean(axis=0).astype(np.float64)
    sums = sums_of(C, features, near_mean, None, local, "adding up sampled columns").sums
    moments, W = replace(sums.moments, trace=float(found.diagonal.sum())), found.columns[S].astype(np.float64)
    W = (W + W.T) / 2
    assert isinstance(few.spec.n_components, int)  # the spec checks
    tolerance = rank_tolerance(dtype)
    try:
        span = span_of(W, moments, tolerance)
        solution = solvers.nystroem(span, few.spec.n_components, center=fit.spec.center, tolerance=tolerance)
    except DataError:
        if found.entry_scales is found.diagonal:
            raise
        block = np.empty((n, 0))  # part of an indefinite matrix may have no positive eigenvalue
    else:
        block = score_rows(C, Model(features, solution), local).astype(np.float64)
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


def _survey_matrix(rows: Rows, fit: ResolvedFit, S: Array, P: Array, engine: Engine) -> MatrixSurvey:
    """The survey of all of K, from those of its parts: one pass."""
    n, dtype = fit.n, fit.dtype
    cut = parts(rows, fit.spec.block_rows, upper=False)
    tasks = tasks_by_part(_survey_part, rows, cut, Carried(S), Carried(P.astype(dtype)))
    images, columns = np.zeros(P.shape), np.empty((n, len(S)), dtype)
    total = MatrixSurvey(np.zeros(n), np.full(n, np.inf), np.full(n, -np.inf), images, images.copy(), columns, "")
    digests = []
    for part, found in zip(cut, engine.each("looking at the matrix", tasks), strict=True):
        total.diagonal[part.rows] += found.diagonal
        total.least[part.rows] = np.minimum(total.least[part.rows], found.least)
        total.largest[part.rows] = np.maximum(total.largest[part.rows], found.largest)
        total.images[part.rows] += found.images
        total.mirrored[part.columns] += found.mirrored
        total.columns[part.rows, _columns_within(S, part.columns)] = found.columns
        digests.append(found.digest)
    return replace(total, digest=combined_digest(digests))


def _columns_within(S: Array, columns: slice) -> slice:
    """The positions in S, which ascends, of the numbers among these columns."""
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
            least[tall] = np.minimum(least[tall], K.min(axis=1))
            largest[tall] = np.maximum(largest[tall], K.max(axis=1))
            mirrored[wide] += K.T @ P[at.rows]
            drawn = _columns_within(own, at.columns)
            columns[tall, drawn] = K[:, own[drawn] - at.columns.start]
            on = np.arange(max(at.rows.start, at.columns.start), min(at.rows.stop, at.columns.stop))
            diagonal[on - part.rows.start] = K[on - at.rows.start, on - at.columns.start]
    check_overflow(images, rows.where)
    return MatrixSurvey(diagonal, least, largest, images, mirrored, columns, digest.hexdigest())


def product(rows: Rows, fit: ResolvedFit, engine: Engine, B: Array) -> Array:
    """K B (n, c), float64: one pass over K, or over its upper half if its chunks allow that."""
    upper = halves(rows)
    cut, given = parts(rows, fit.spec.block_rows, upper=upper), Carried(B.astype(fit.dtype))
    tasks = tasks_by_part(_multiply_part, rows, cut, given, upper)
    return engine.total("products with the matrix", tasks, B)


def _multiply_part(rows: Rows, part: Part, B: Array, upper: bool) -> Array:
    """The contribution of one part to K B, (n, c)."""
    out = np.zeros(B.shape)
    for at, K in matrix_tiles(rows, part, upper=upper):
        add_tile(out, B, at.rows, at.columns, K.astype(B.dtype, copy=False), mirrored=upper)
    return out


def read_matrix(rows: Rows, fit: ResolvedFit, engine: Engine) -> tuple[Array, str]:
    """Read the matrix (n, n), float64, with its digest, in one pass.

    Raises DataError for NaN and infinity, for a matrix that is not symmetric, and for distances instead of kernels;
    CorruptionError if such entries lie in a chunk that is not stored.
    """
    dtype, cut = fit.dtype, parts(rows, fit.spec.block_rows, upper=False)
    found = engine.each("reading the matrix", tasks_by_part(read_part, rows, cut, dtype))
    K = np.empty(rows.shape)
    for part, (values, _) in zip(cut, found, strict=True):
        K[part.rows, part.columns] = values
    tolerance, found_sizes = ASYMMETRY[entry_dtype(fit).itemsize], entry_scales_of(K)
    check_matrix_diagonal(rows, K.diagonal(), K, float(K.min()), float(K.max()))
    for start in range(0, len(K), BAND):
        numbers = np.arange(start, min(start + BAND, len(K)))
        check_symmetry(rows, numbers, K[numbers], K[:, numbers].T, found_sizes, tolerance)
    for start in range(0, len(K), BAND):  # symmetric to the bit, so that all solvers see the same matrix
        own = slice(start, start + BAND)
        mean = (K[own, start:] + K[start:, own].T) / 2
        K[own, start:], K[start:, own] = mean, mean.T
    return K, combined_digest([digest for _, digest in found])


def entry_scales_of(K: Array) -> Array:
    """`entry_scales` (n,) of a matrix in memory."""
    return entry_scales(K.diagonal(), np.maximum(K.max(axis=1), -K.min(axis=1)))


def solve_matrix(fit: ResolvedFit, K: Array, components: int | float | None, in_order: Map) -> Solution:
    """Exact solution of the matrix K (n, n), which is overwritten."""
    noise = rounding_noise(float(entry_scales_of(K).sum()), len(K), entry_dtype(fit))
    tolerance = rank_tolerance(fit.dtype)
    found = solvers.gram(
        K, components, center=fit.spec.center, tolerance=tolerance, positive=False, noise=noise, in_order=in_order
    )
    largest = found.eigenvalues[0]
    return replace(found, negative=share_above_noise(found.negative * largest, largest, noise))
