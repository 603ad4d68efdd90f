"""What a run will cost, computed before anything runs: passes, tasks, bytes read, peak bytes of a process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, log2
from typing import Any

from bigkpca.data.blocks import READ_BYTES, fit_block_rows, output_block_rows, sample_rows, tile_rows
from bigkpca.data.dask import DaskRows
from bigkpca.data.matrix_tiles import PART_BYTES, check_square, parts, read_bytes, upper_share
from bigkpca.data.rows import Rows
from bigkpca.errors import MemoryLimitError
from bigkpca.numerics.features import GivenKernels, KernelRows
from bigkpca.numerics.growth import JUDGING_ROWS
from bigkpca.numerics.methods import PrincipalFeatures
from bigkpca.numerics.model import Model
from bigkpca.numerics.rounding import MEASURED_ROWS
from bigkpca.numerics.sketch import OVERSAMPLING, PASSES
from bigkpca.spec import DENSE_MOST_FEATURES, FitSpec

# Resident bytes of a process that has imported everything and computed nothing: 232 MB on Linux where pandas and
# pyarrow are installed, which scikit-learn then imports (158 MB where not), and what thread pools and their heaps add.
INTERPRETER_BYTES = 245_000_000
_DECODING_BYTES = 32_000_000  # that Zarr's own threads were seen to keep, for each thread that reads small chunks
_PRODUCTS = 2  # that a given matrix is planned for
_BLOCKS_HELD = 18  # of n x (r + 10) float64: basis, images, and work space of four products
_LEAST_SIZE = 10  # that is advised
_AXES_WIDTH = 512 + OVERSAMPLING
_EXPANSION_SQUARES = 7  # of D x D float64: W, its decomposition, and products with the moments
_KEPT_BY_ALLOCATOR = 1.4  # at most what was resident for each byte of work space in use, on several shapes


@dataclass(frozen=True)
class Plan:
    """The cost of a run. Bytes are decimal everywhere that people read them."""

    rows: int
    columns: int
    size: int  # D, features of a row
    block_rows: int
    tasks: int
    passes: int  # over all rows, the sample not counted
    bytes_read: int
    peak_bytes: int  # resident, of one process, interpreter included
    result_bytes: int

    def check(self, limit: int | None, remedy: str) -> None:
        """Raise MemoryLimitError if the peak is above the limit."""
        check_peak(self.peak_bytes, limit, remedy)


def check_peak(peak_bytes: int, limit: int | None, remedy: str) -> None:
    """Raise MemoryLimitError, with both numbers and what to do, if a peak is above the limit."""
    if limit is not None and peak_bytes > limit:
        raise MemoryLimitError(
            f"this needs {peak_bytes / 1e6:.0f} MB in a process, {limit / 1e6:.0f} MB are allowed: {remedy}"
        )


def plan_fit(rows: Rows, spec: FitSpec, threads: int) -> Plan:
    """The cost of a fit: the sample and its passes. Raises SpecError for more rows than `exact` can hold.

    With a tolerance it is the cost of the largest size that may be needed. What RPCholesky over all rows adds depends
    on the data and is not counted.
    """
    n, d = rows.shape
    if spec.precomputed:
        return _plan_similarities(rows, spec, threads)
    if spec.matrix_free(n):
        return _plan_products(rows, spec, threads)
    itemsize = spec.block_dtype(rows.dtype).itemsize
    D = spec.feature_count(n, d)
    block = min(n, fit_block_rows(n, rows.grain, spec.block_rows))
    blocks = ceil(n / block)
    m = sample_rows(n, d, D if spec.method_value.landmarks else 0)
    sample = m * d * rows.dtype.itemsize
    held = spec.method_value.map_bytes(d, D, itemsize)
    scaled = m * d * itemsize if spec.standardize else 0  # a copy, for the median
    stages = [sample + scaled + _choosing_bytes(spec, m, d, D, itemsize)]
    if spec.tol is not None:  # what a size is tried with, beside the sample
        stages.append(sample + 8 * (2 * D * D + 2 * JUDGING_ROWS * (D + d)))
    passes = 0
    if spec.exact:
        stages.append(4 * 8 * D * D + sample + held)  # the sample is all rows
    else:
        partial = min(blocks, ceil(log2(blocks + 1)) + 2 * threads)
        unseen = spec.unseen_count(n, d)
        held += (unseen + MEASURED_ROWS) * d * rows.dtype.itemsize
        passes, working = _pass(rows, D, held, itemsize, threads, partial, _sketch_width(spec, D))
        stages.append(held + scaled + working)  # allocators keep what held the copy
        if _sketch_width(spec, D) is None:
            stages.append(held + _certificate_bytes(d, D, unseen, itemsize, threads))
    if isinstance(spec.method_value, PrincipalFeatures):
        wide = d > DENSE_MOST_FEATURES
        more, working = _pass(rows, d, 0, itemsize, threads, partial, _AXES_WIDTH if wide else None)
        passes += more
        stages.append(sample + working)
    if spec.keeps_sample:
        stages = [stage + sample for stage in stages]
    if spec.preimage_value.trained:
        passes += 1
        stages.append(_training_bytes(rows, spec, D, held, itemsize, threads, blocks))
    passes += spec.standardize
    return Plan(
        rows=n,
        columns=d,
        size=D,
        block_rows=block,
        tasks=max(passes, 1) * (2 * blocks - 1) + min(blocks, m),
        passes=passes,
        bytes_read=rows.dtype.itemsize * d * (passes * n + min(n, m * rows.grain)),
        peak_bytes=_resident(max(stages) + threads * _graph_bytes(rows, block)),
        result_bytes=held + 8 * D * _components(spec, D) + (0 if _sketch_width(spec, D) else 8 * D * (D + 2)),
    )


def _certificate_bytes(d: int, D: int, unseen: int, itemsize: int, threads: int) -> int:
    """Work space of the certificate: squares of the sums, of W and of their rounding, and the upper half of the square
    of kernels of the unseen rows, with tiles of it and their coordinates."""
    rounding = 12 * 8 * D * D + 3 * MEASURED_ROWS * 8 * D
    spectral = itemsize * (unseen * unseen // 2 + unseen * (2 * D + 7 * d + 2 * 512 * threads)) + 8 * unseen * 400
    return max(rounding, 7 * 8 * D * D + spectral)


def _training_bytes(rows: Rows, spec: FitSpec, D: int, held: int, itemsize: int, threads: int, blocks: int) -> int:
    """Work space of the pass that teaches the way back, and of its linear system."""
    way: Any = spec.preimage_value
    d, q = rows.shape[1], way.size
    square = 8 * q * (q + d)
    tile = tile_rows(d, D, itemsize) * 8 * (2 * q + 2 * d)
    partial = min(blocks, ceil(log2(blocks + 1)) + 2 * threads)
    moments = 0 if spec.exact else 8 * D * D
    return moments + threads * (_streaming_bytes(rows, D, held, itemsize) + tile + 2 * square) + (partial + 3) * square


def _plan_products(rows: Rows, spec: FitSpec, threads: int) -> Plan:
    """The cost of exact eigenpairs: an approximate fit, its scores, the rows in memory, and products with K."""
    n, d = rows.shape
    start = plan_fit(rows, spec.start(n), threads)
    held = n * d * spec.block_dtype(rows.dtype).itemsize
    block = 8 * n * (_components(spec, n) + OVERSAMPLING + 1)
    working = max(2 * held, held + (_BLOCKS_HELD + threads) * block)
    return replace(
        start,
        size=n,
        passes=start.passes + 2,
        bytes_read=start.bytes_read + 2 * rows.dtype.itemsize * n * d,
        peak_bytes=max(start.peak_bytes, _resident(working)),
        result_bytes=held + 8 * n * (_components(spec, n) + 1),
    )


def _plan_similarities(rows: Rows, spec: FitSpec, threads: int) -> Plan:
    """The cost of a given matrix: held whole in float64, or looked at once and read for each of two products.

    Products beyond those depend on the data and are not counted.
    """
    check_square(rows)
    n, itemsize = rows.shape[0], spec.block_dtype(rows.dtype).itemsize
    cut, reading = parts(rows, spec.block_rows, upper=False), threads * _piece_bytes(rows)
    r = _components(spec, n)
    passes, tasks, share = 1, len(cut), 1.0
    working = 4 * 8 * n * n + itemsize * n * n + reading
    if spec.matrix_free(n):
        passes, share = 1 + _PRODUCTS, 1 + _PRODUCTS * upper_share(rows)
        tasks += _PRODUCTS * (2 * len(parts(rows, spec.block_rows, upper=share < passes)) - 1)
        l = spec.start(n).feature_count(n, n)  # noqa: E741
        block = 8 * n * (r + 2 * OVERSAMPLING + 1)
        starting = n * l * itemsize + (3 * threads + 6) * 8 * l * l
        working = reading + max(2 * n * l * itemsize, starting, (_BLOCKS_HELD + threads) * block)
    return Plan(
        rows=n,
        columns=rows.shape[1],
        size=n,
        block_rows=cut[0].shape[0],
        tasks=tasks,
        passes=passes,
        bytes_read=round(share * rows.dtype.itemsize * n * n),
        peak_bytes=_resident(working),
        result_bytes=8 * n * (r + 2),
    )


def _piece_bytes(rows: Rows) -> int:
    """Work space of one thread that reads a matrix in pieces: encoded, decoded, and in the dtype of block work."""
    return 3 * read_bytes(rows) + _DECODING_BYTES + (PART_BYTES if isinstance(rows, DaskRows) else 0)


def _choosing_bytes(spec: FitSpec, m: int, d: int, D: int, itemsize: int) -> int:
    """Work space of choosing landmarks or frequencies, beside the sample of m rows."""
    if not spec.method_value.landmarks:
        return spec.method_value.working_bytes(m, d, D)
    rule = spec.landmark_rule()
    candidates = m if spec.own_landmarks is not None else min(m, rule.most_rows(D))
    return rule.working_bytes(candidates, d, D, itemsize)


def _sketch_width(spec: FitSpec, D: int) -> int | None:
    """Columns of the block that a randomized solver multiplies; None where D x D is held."""
    return _components(spec, D) + OVERSAMPLING if spec.randomized(D) else None


def _pass(
    rows: Rows, D: int, held: int, itemsize: int, threads: int, partial: int, width: int | None
) -> tuple[int, int]:
    """(passes, bytes) of adding up features of a map of `held` bytes, and of the eigenproblem that follows.

    `partial` sums are alive at once. `width` is that of a sketch, None where D x D is held.
    """
    streaming = _streaming_bytes(rows, D, held, itemsize)
    if width is None:
        # Products, and a sum with its correction; the eigenproblem holds six squares.
        square = 8 * D * D
        accumulators = 3 * square + D * D * itemsize
        return 1, max(threads * (streaming + accumulators) + partial * square, 6 * square)
    thin = 8 * D * width
    return min(PASSES, ceil(D / width)), threads * (streaming + 3 * thin) + partial * thin + (2 * PASSES + 4) * thin


def plan_transform(rows: Rows, model: Model, block_rows: int | None, threads: int, *, residual: bool = False) -> Plan:
    """The cost of writing the scores of all rows, and residuals beside them: one pass, one shard for each block."""
    n, d = rows.shape
    itemsize = model.features.dtype.itemsize
    row_bytes = model.components * itemsize
    block = output_block_rows(n, rows.grain, row_bytes, block_rows)
    D = model.features.size
    held = sum(array.nbytes for array in model.features.arrays().values())
    fixed = 2 * held + model.solution.components.nbytes
    fixed += 8 * D * D if model.moments else 0
    # Rows of kernels are read piece by piece, and multiplied by components in the dtype of block work.
    given = isinstance(model.features, GivenKernels)
    reading = _piece_bytes(rows) + D * row_bytes if given else _streaming_bytes(rows, D, held, itemsize)
    one = reading + 4 * block * row_bytes + _graph_bytes(rows, block)
    peak = fixed + threads * one
    if residual:
        expansion = 2 * 8 * D * (model.components + 1)
        preparing = _EXPANSION_SQUARES * 8 * D * D if model.moments and isinstance(model.features, KernelRows) else 0
        # The features of a tile are computed twice, for scores and for residuals; of the latter in float64 as well.
        tile = tile_rows(d, D, itemsize) * (2 * D * (itemsize + 8) + 8 * (d + 3 * model.components)) + 2 * held
        peak = fixed + expansion + max(preparing, threads * (one + tile))
    return Plan(
        rows=n,
        columns=d,
        size=D,
        block_rows=block,
        tasks=ceil(n / block),
        passes=1,
        bytes_read=rows.dtype.itemsize * d * n,
        peak_bytes=_resident(peak),
        result_bytes=n * (row_bytes + (itemsize if residual else 0)),
    )


def plan_reconstruct(rows: Rows, model: Model, block_rows: int | None, threads: int) -> Plan:
    """The cost of writing pre-images of all rows, or of all scores: one pass, one shard for each block.

    Iterations depend on the data and are not counted.
    """
    n, given = rows.shape
    d, D, itemsize = model.columns, model.features.size, model.features.dtype.itemsize
    row_bytes = d * itemsize
    block = output_block_rows(n, rows.grain, row_bytes, block_rows)
    assert model.decoder is not None
    decoder = sum(array.nbytes for array in model.decoder.arrays().values())
    held = sum(array.nbytes for array in model.features.arrays().values())
    fixed = 2 * held + decoder + model.solution.components.nbytes + (8 * D * D if model.moments else 0)
    height = tile_rows(d, D, 8)
    # In float64: kernels and pulls of a tile, beside a few copies of its rows; landmarks once more for each thread.
    tile = height * 8 * (4 * D + 8 * d) + 2 * 8 * D * d
    one = _streaming_bytes(rows, D, held, itemsize) + tile + 4 * block * row_bytes
    return Plan(
        rows=n,
        columns=given,
        size=D,
        block_rows=block,
        tasks=ceil(n / block),
        passes=1,
        bytes_read=rows.dtype.itemsize * given * n,
        peak_bytes=_resident(fixed + threads * (one + _graph_bytes(rows, block))),
        result_bytes=n * row_bytes,
    )


def plan_evaluate(rows: Rows, model: Model, sample: int, pooled: int, threads: int) -> Plan:
    """The cost of an evaluation by `sample` exact rows, chosen from `pooled` that are read: these, and one pass."""
    n, d = rows.shape
    D, r, itemsize = model.features.size, model.components, model.features.dtype.itemsize
    held = sum(array.nbytes for array in model.features.arrays().values())
    fixed = 2 * held + model.solution.components.nbytes + (8 * D * D if model.moments else 0)
    pool = 2 * pooled * d * rows.dtype.itemsize
    factor = 8 * D * D if isinstance(model.features, KernelRows) else 0
    probes = 8 * sample * (2 * D + d + r)
    height = tile_rows(d, D, itemsize)
    # For each thread: landmarks, probes and their coordinates in the dtype of block work; kernels and errors of a tile.
    one = _streaming_bytes(rows, D, held, itemsize) + itemsize * sample * (D + 2 * d + 3 * height)
    one += 3 * 8 * r * (sample + D + r)
    choosing = pool + 5 * factor + tile_rows(d, D, 8) * 8 * (3 * D + 2 * d)
    block = min(n, fit_block_rows(n, rows.grain, model.block_rows))
    return Plan(
        rows=n,
        columns=d,
        size=D,
        block_rows=block,
        tasks=2 * ceil(n / block) - 1,
        passes=1,
        bytes_read=rows.dtype.itemsize * d * (n + min(n, pooled * rows.grain)),
        peak_bytes=_resident(fixed + max(choosing, pool + factor + probes + threads * one)),
        result_bytes=8 * 5 * r,
    )


def sample_bytes(rows: Rows, spec: FitSpec, threads: int) -> int:
    """The peak of a process that reads the sample of a fit, and takes distances of its pairs."""
    n, d = rows.shape
    itemsize = spec.block_dtype(rows.dtype).itemsize
    m = sample_rows(n, d, spec.feature_count(n, d) if spec.method_value.landmarks else 0)
    drawn = 3 * m * d * rows.dtype.itemsize + (m * d * itemsize if spec.standardize else 0)
    return _resident(drawn + threads * _streaming_bytes(rows, d, 0, itemsize))


def largest_size_that_fits(rows: Rows, spec: FitSpec, threads: int, limit: int) -> int | None:
    """The largest size, of two digits, whose fit stays within `limit` bytes; None if none does."""
    for size in _two_digit_sizes(spec.feature_count(*rows.shape)):
        if _bytes_at(size, rows, spec, threads) <= limit:
            return size
    return None


def smallest(rows: Rows, spec: FitSpec, threads: int) -> str:
    """In words, what a fit of the least size needs."""
    return f"even a size of {_LEAST_SIZE} needs {_bytes_at(_LEAST_SIZE, rows, spec, threads) / 1e6:.0f} MB"


def _bytes_at(size: int, rows: Rows, spec: FitSpec, threads: int) -> int:
    """The peak of a fit of this size; of landmarks in place of the exact method."""
    changed = {"size": size} | ({"method": "nystroem"} if spec.exact else {})
    return plan_fit(rows, spec.model_copy(update=changed), threads).peak_bytes


def _two_digit_sizes(below: int) -> Iterator[int]:
    """10 to 99 times powers of ten, from `below` down to 10, the least that is advised."""
    for power in reversed(range(len(str(below)))):
        yield from (digits * 10**power for digits in reversed(range(10, 100)) if digits * 10**power < below)


def _resident(working: int) -> int:
    return INTERPRETER_BYTES + round(working * _KEPT_BY_ALLOCATOR)


def _streaming_bytes(rows: Rows, D: int, held: int, itemsize: int) -> int:
    """Work space of one thread that turns rows into features: a read, its decoded chunks, and the tiles."""
    d = rows.shape[1]
    piece = max(READ_BYTES, rows.grain * d * rows.dtype.itemsize)
    tile = tile_rows(d, D, itemsize)
    return 3 * piece + tile * itemsize * (2 * (d + 2) + 2 * D) + 2 * held


def _graph_bytes(rows: Rows, block: int) -> int:
    """What a thread holds of a Dask array besides: the rows of a block, and two chunks that they are cut from."""
    if not isinstance(rows, DaskRows):
        return 0
    return (block + 2 * rows.grid[0]) * rows.shape[1] * rows.dtype.itemsize


def _components(spec: FitSpec, D: int) -> int:
    return min(spec.components, D) if isinstance(spec.components, int) else D
