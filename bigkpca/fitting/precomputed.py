"""A Gram matrix that the caller has: read, checked, and multiplied; above 8192 rows without ever being held."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bigkpca.data.matrix_tiles import Part, halves, parts, pieces
from bigkpca.data.memory import ArrayRows
from bigkpca.data.rows import Rows
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import Array, BigKPCAError, CorruptionError, DataError, check_overflow
from bigkpca.execution.engine import Engine, Task, shared
from bigkpca.execution.progress import Progress
from bigkpca.execution.projection import score_rows
from bigkpca.execution.reductions import moments_of
from bigkpca.numerics import gram_solver, solvers
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.exact import add_tile
from bigkpca.numerics.features import Columns
from bigkpca.numerics.kernels import Precomputed
from bigkpca.numerics.linalg import Map, rank_tolerance
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import SKETCH, random_stream
from bigkpca.spec import FitSpec

_ASYMMETRY = {2: 1e-2, 4: 1e-5, 8: 1e-8}  # of sqrt(s_i s_j), by bytes: well above rounding, far below mistakes
_FLAT = 1e-6  # of the largest entry, at most, is what counts as zero on the diagonal
_NEARLY = 1.01  # rounding of entries counts for less
_PROBES = 4  # random vectors p for which K p = K'p
_BAND = 512  # rows looked at together


# Up to 8192 rows


def whole(rows: Rows, spec: FitSpec, engine: Engine, progress: Progress) -> tuple[Array, str]:
    """The matrix (n, n), float64, and a digest of it: one pass.

    Raises DataError for NaN and infinity, for entries that differ from their mirror image, and for distances;
    CorruptionError where such entries stand in a chunk that is not stored.
    """
    dtype, cut = spec.block_dtype(rows.dtype), parts(rows, spec.block_rows, upper=False)
    found = engine.each("reading the matrix", _tasks(_values, rows, cut, dtype), progress)
    K = np.empty(rows.shape)
    for part, (values, _) in zip(cut, found, strict=True):
        K[part.rows, part.columns] = values
    tolerance, found_sizes = _ASYMMETRY[precision(rows, spec).itemsize], sizes_of(K)
    _check_diagonal(rows, K.diagonal(), K, float(K.min()), float(K.max()))
    for start in range(0, len(K), _BAND):
        numbers = np.arange(start, min(start + _BAND, len(K)))
        _check_symmetry(rows, numbers, K[numbers], K[:, numbers].T, found_sizes, tolerance)
    _make_symmetric(K)
    return K, _joined([digest for _, digest in found])


def _make_symmetric(K: Array) -> None:
    """Replace K by (K + K') / 2, which leaves no rounding that solvers could take for another matrix."""
    for start in range(0, len(K), _BAND):
        own = slice(start, start + _BAND)
        mean = (K[own, start:] + K[start:, own].T) / 2
        K[own, start:], K[start:, own] = mean, mean.T


def _tasks(function: Any, rows: Rows, cut: list[Part], *given: Any) -> list[Task]:
    """A task for each part; progress counts the rows of a strip once."""
    return [
        Task(
            function,
            (rows.part(p.rows.start, p.rows.stop, p.columns), p, *given),
            p.shape[0] if p.columns.stop == rows.shape[1] else 0,
        )
        for p in cut
    ]


def _values(rows: Rows, part: Part, dtype: np.dtype[Any]) -> tuple[Array, str]:
    values, digest = np.empty(part.shape, dtype), hashlib.sha256()
    with np.errstate(over="ignore"):
        for at, K in pieces(rows, part, digest=digest):
            values[at.within(part)] = K
    check_overflow(values, rows.where)
    return values, digest.hexdigest()


def _joined(digests: list[str]) -> str:
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def sizes_of(K: Array) -> Array:
    """`sizes` of a matrix that is held, (n,)."""
    return sizes(K.diagonal(), np.maximum(K.max(axis=1), -K.min(axis=1)))


def solved(rows: Rows, K: Array, spec: FitSpec, components: int | float | None, in_order: Map) -> Solution:
    """The exact solution of the matrix of these rows, which is overwritten."""
    noise = rounding(float(sizes_of(K).sum()), len(K), precision(rows, spec))
    tolerance = rank_tolerance(spec.block_dtype(rows.dtype))
    found = gram_solver.gram(
        K, components, center=spec.center, tolerance=tolerance, positive=False, noise=noise, in_order=in_order
    )
    largest = found.eigenvalues[0]
    return replace(found, negative=noticed(found.negative * largest, largest, noise))


# What every matrix of similarities has


def sizes(diagonal: Array, largest: Array) -> Array:
    """s (n,) with |K_ij| <= sqrt(s_i s_j), beside which rounding is small: K_ii as in a matrix of kernels, where it can
    be one; else the `largest` |K_ij| of each row, as in one of squared distances, -D² / 2, whose diagonal is zero."""
    may_be = diagonal.min() >= 0 and (largest**2 <= _NEARLY * diagonal * diagonal.max()).all()
    return diagonal if may_be else largest


def precision(rows: Rows, spec: FitSpec) -> np.dtype[Any]:
    """The dtype to which entries are rounded: the one of block work, or as stored where that is coarser."""
    block = spec.block_dtype(rows.dtype)
    return min(rows.dtype, block, key=lambda dtype: dtype.itemsize) if rows.dtype.kind == "f" else block


def rounding(total: float, n: int, dtype: np.dtype[Any]) -> float:
    """How negative rounding of its entries makes eigenvalues of a positive matrix (n, n) whose `sizes` add up to
    `total`: at most a few eps sqrt(n) times their mean, the norm of a matrix of random errors."""
    return 16 * float(np.finfo(dtype).eps) * total / float(np.sqrt(n))


def noticed(lowest: float, largest: float, noise: float) -> float:
    """A negative eigenvalue as a share of the largest, 0 where it is noise."""
    return lowest / largest if lowest < -noise else 0.0


def _check_diagonal(rows: Rows, diagonal: Array, seen: Array, least: float, largest: float) -> None:
    """Raise unless the diagonal (n,) can be one of similarities: of squares of lengths, positive, or zero where a row
    holds nothing but zeros; of -D² / 2, zero; or of either sign. Entries lie from `least` to `largest`, and rows of the
    matrix are zero, or the same, where those of `seen` (n, p) are."""
    flat = np.abs(diagonal).max() <= _FLAT * max(largest, -least)
    zero = np.flatnonzero((diagonal == 0) & seen.any(axis=1)).tolist()
    for i in zero:
        if (hole := _hole(rows, (i, i))) and not (flat and _alike(rows, seen, i)):
            raise hole
    if flat and largest > 0 and least >= -_FLAT * largest:
        raise DataError(
            f"{rows.where}: the diagonal is 0 and no entry is negative, as in a matrix of distances D: distances D are "
            "made kernels by exp(-D² / (2 sigma²)), or -D² / 2 for classical scaling"
        )
    if zero and not flat and diagonal.min() >= 0:
        raise DataError(
            f"{rows.where}: entry ({zero[0]}, {zero[0]}) is 0, and others of its row are not (counted from 0): where "
            "k(x, x) = 0, k(x, y) = 0 for all y"
        )


def _alike(rows: Rows, seen: Array, i: int) -> bool:
    """Whether all rows of the chunk that holds entry (i, i) are the same, which are at no distance from each other: a
    chunk of zeros, which need not be stored."""
    assert isinstance(rows, ZarrRows)
    chunk = rows.unstored(i, i)
    return chunk is not None and bool(np.ptp(seen[chunk[0]], axis=0).max() <= _FLAT * np.abs(seen[i]).max())


def _check_symmetry(
    rows: Rows, numbers: Array, values: Array, mirrored: Array, scales: Array, tolerance: float
) -> None:
    """Raise unless rows of these numbers, (b, n), are the columns, which are `mirrored` (b, n), up to rounding."""
    roots = np.sqrt(scales)
    apart = np.abs(values - mirrored) - tolerance * np.outer(roots[numbers], roots)
    if (apart > 0).any():
        k, j = divmod(int(apart.argmax()), apart.shape[1])
        i = int(numbers[k])
        raise _hole(rows, (i, j), (j, i)) or DataError(
            f"{rows.where} is not symmetric: entry ({i}, {j}) is {values[k, j]:.9g}, entry ({j}, {i}) is "
            f"{mirrored[k, j]:.9g} (counted from 0): correct what is wrong; where it is rounding alone, store "
            "(K + K.T) / 2"
        )


def _hole(rows: Rows, *entries: tuple[int, int]) -> BigKPCAError | None:
    """The error for the first of these entries that stands in a chunk that is not stored; None if there is none."""
    for row, column in entries:
        if isinstance(rows, ZarrRows) and (hole := rows.unstored(row, column)):
            tall, wide = hole
            return CorruptionError(
                f"{rows.where}: the chunk of rows {tall.start} to {tall.stop - 1}, columns {wide.start} to "
                f"{wide.stop - 1} is not stored, but its mirror image or its rows are not zero; write it again"
            )
    return None


# Above 8192 rows


@dataclass(frozen=True)
class Start:
    """What products start from: a block (n, b); and tr(K), the sum of the `sizes` of K, a digest of it, and the most
    negative eigenvalue of sampled entries as a share of their largest."""

    block: Array
    trace: float
    total: float
    digest: str
    negative: float


def started(rows: Rows, spec: FitSpec, engine: Engine, progress: Progress) -> Start:
    """Look at all of the matrix once, and check it: raises what `whole` raises.

    The block holds the scores of a Nyström model of randomly drawn columns.
    """
    n, rng = rows.shape[0], random_stream(spec.seed, SKETCH)
    dtype, few = spec.block_dtype(rows.dtype), spec.start(n)
    S = np.sort(rng.choice(n, few.feature_count(n, n), replace=False))
    found = _survey(rows, spec, S, rng.standard_normal((n, _PROBES)), engine, progress)
    _check_diagonal(rows, found.diagonal, found.images, float(found.least.min()), float(found.largest.max()))
    _check_probes(rows, found, _ASYMMETRY[precision(rows, spec).itemsize])
    # The columns are in memory here, and stay.
    local, C = Engine(engine.threads), ArrayRows(found.columns)
    features = Columns(Precomputed(), np.zeros(len(S)), dtype)
    near_mean = found.columns[:_BAND].mean(axis=0).astype(np.float64)
    moments, _ = moments_of(C, features, near_mean, None, local, progress, "adding up sampled columns")
    moments, W = replace(moments, trace=float(found.diagonal.sum())), found.columns[S].astype(np.float64)
    W = (W + W.T) / 2
    assert isinstance(few.components, int)  # the spec checks
    tolerance = rank_tolerance(dtype)
    try:
        span = solvers.span_of(W, moments, tolerance)
        solution = solvers.nystroem(span, few.components, center=spec.center, tolerance=tolerance)
    except DataError:
        if found.sizes is found.diagonal:
            raise
        block = np.empty((n, 0))  # of a matrix that is not positive, a part may have no positive eigenvalue
    else:
        block = score_rows(C, Model(features, solution, None), local, progress).astype(np.float64)
    noise = rounding(float(found.sizes[S].sum()), len(W), precision(rows, spec))
    negative = _negative_share(W, spec.center, noise)
    return Start(block, moments.trace, float(found.sizes.sum()), found.digest, negative)


def _negative_share(W: Array, center: bool, noise: float) -> float:
    """The most negative eigenvalue of W, centred if asked, as a share of its largest."""
    H = W - W.mean(axis=0) if center else W
    values = np.linalg.eigvalsh(H - H.mean(axis=1)[:, None] if center else H)
    return noticed(values[0], values[-1], noise)


@dataclass(frozen=True)
class Survey:
    """What looking at K leaves, of a part of it or of all: diagonal, least and largest entry of each row, K P and K'P
    for random P, columns C = K[:, S] for random S, in the dtype of block work, and a digest. What a part does not have
    is zero."""

    diagonal: Array
    least: Array
    largest: Array
    images: Array
    mirrored: Array
    columns: Array
    digest: str

    @cached_property
    def sizes(self) -> Array:
        """`sizes` of K, (n,)."""
        return sizes(self.diagonal, np.maximum(self.largest, -self.least))


def _survey(rows: Rows, spec: FitSpec, S: Array, P: Array, engine: Engine, progress: Progress) -> Survey:
    n, dtype = rows.shape[0], spec.block_dtype(rows.dtype)
    cut = parts(rows, spec.block_rows, upper=False)
    tasks = _tasks(_surveyed, rows, cut, shared(S), shared(P.astype(dtype)))
    images, columns = np.zeros(P.shape), np.empty((n, len(S)), dtype)
    total = Survey(np.zeros(n), np.full(n, np.inf), np.full(n, -np.inf), images, images.copy(), columns, "")
    digests = []
    for part, found in zip(cut, engine.each("looking at the matrix", tasks, progress), strict=True):
        total.diagonal[part.rows] += found.diagonal
        total.least[part.rows] = np.minimum(total.least[part.rows], found.least)
        total.largest[part.rows] = np.maximum(total.largest[part.rows], found.largest)
        total.images[part.rows] += found.images
        total.mirrored[part.columns] += found.mirrored
        total.columns[part.rows, _drawn(S, part.columns)] = found.columns
        digests.append(found.digest)
    return replace(total, digest=_joined(digests))


def _drawn(S: Array, columns: slice) -> slice:
    """Which of the ascending numbers S are those of these columns."""
    first, last = np.searchsorted(S, [columns.start, columns.stop])
    return slice(int(first), int(last))


def _surveyed(rows: Rows, part: Part, S: Array, P: Array) -> Survey:
    (height, width), own, digest = part.shape, S[_drawn(S, part.columns)], hashlib.sha256()
    diagonal, columns = np.zeros(height), np.empty((height, len(own)), P.dtype)
    images, mirrored = np.zeros((height, P.shape[1])), np.zeros((width, P.shape[1]))
    least, largest = np.full(height, np.inf), np.full(height, -np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        for at, values in pieces(rows, part, digest=digest):
            K, (tall, wide) = values.astype(P.dtype, copy=False), at.within(part)
            images[tall] += K @ P[at.columns]
            least[tall], largest[tall] = (
                np.minimum(least[tall], K.min(axis=1)),
                np.maximum(largest[tall], K.max(axis=1)),
            )
            mirrored[wide] += K.T @ P[at.rows]
            drawn = _drawn(own, at.columns)
            columns[tall, drawn] = K[:, own[drawn] - at.columns.start]
            on = np.arange(max(at.rows.start, at.columns.start), min(at.rows.stop, at.columns.stop))
            diagonal[on - part.rows.start] = K[on - at.rows.start, on - at.columns.start]
    check_overflow(images, rows.where)
    return Survey(diagonal, least, largest, images, mirrored, columns, digest.hexdigest())


def _check_probes(rows: Rows, found: Survey, tolerance: float) -> None:
    """Raise unless K P = K'P up to rounding; the row in which they differ most tells which entry is wrong."""
    apart = np.linalg.norm(found.images - found.mirrored, axis=1)
    apart -= tolerance * np.sqrt(_PROBES * found.sizes * found.sizes.sum())
    i = int(apart.argmax())
    if apart[i] > 0:
        row, column = rows.block(i, i + 1), rows.block(0, rows.shape[0], slice(i, i + 1)).T
        given = (row.astype(np.float64), column.astype(np.float64), found.sizes, tolerance)
        _check_symmetry(rows, np.array([i]), *given)


def product(rows: Rows, spec: FitSpec, engine: Engine, progress: Progress, B: Array) -> Array:
    """K B (n, c), float64: one pass over K, over its upper half alone where its chunks allow that."""
    upper = halves(rows)
    cut, given = parts(rows, spec.block_rows, upper=upper), shared(B.astype(spec.block_dtype(rows.dtype)))
    tasks = _tasks(_product, rows, cut, given, upper)
    found: Array = engine.total("products with the matrix", tasks, progress)
    return found


def _product(rows: Rows, part: Part, B: Array, upper: bool) -> Array:
    out = np.zeros(B.shape)
    for at, K in pieces(rows, part, upper=upper):
        add_tile(out, B, at.rows, at.columns, K.astype(B.dtype, copy=False), mirrored=upper)
    return out
