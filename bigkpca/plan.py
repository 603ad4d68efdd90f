"""What a run will cost, computed before anything runs: passes, tasks, bytes read, peak bytes of a process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2

from bigkpca.blocks import READ_BYTES, fit_block_rows, output_block_rows, sample_rows, tile_rows
from bigkpca.errors import MemoryLimitError, SpecError
from bigkpca.numerics.model import Model
from bigkpca.sources import Rows
from bigkpca.spec import EXACT_MOST_ROWS, FitSpec

# Resident bytes of a process that has imported everything and computed nothing: 186 MB measured on Linux, and up to
# 30 MB that thread pools and their heaps were seen to add.
INTERPRETER_BYTES = 215_000_000
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
        if limit is not None and self.peak_bytes > limit:
            raise MemoryLimitError(
                f"this needs {self.peak_bytes / 1e6:.0f} MB in a process, {limit / 1e6:.0f} MB are allowed: {remedy}"
            )


def plan_fit(rows: Rows, spec: FitSpec, threads: int) -> Plan:
    """The cost of a fit: the sample and one pass. Raises SpecError for more rows than `exact` can hold."""
    n, d = rows.shape
    if spec.method == "exact" and n > EXACT_MOST_ROWS:
        raise SpecError(
            f"method='exact' holds the Gram matrix of at most {EXACT_MOST_ROWS} rows, these are {n}: "
            "use method='nystroem', whose size sets its accuracy"
        )
    block_dtype = spec.block_dtype(rows.dtype)
    D = spec.landmark_count(n)
    block = min(n, fit_block_rows(n, rows.grain, spec.block_rows))
    blocks = ceil(n / block)
    m = sample_rows(n, d, D)
    square = 8 * D * D
    sample = m * d * rows.dtype.itemsize
    landmarks = D * d * block_dtype.itemsize
    # Landmarks: the rows of k-means and two tiles of closeness; float64 W; the eigenproblem holds five squares.
    choosing = (2 * min(m, 10 * D) * d + 2 * 2048 * D) * block_dtype.itemsize
    if spec.method == "exact":
        working, passes = 4 * square + sample + landmarks, 0  # the sample is all rows
    else:
        partial = min(blocks, ceil(log2(blocks + 1)) + 2 * threads)
        accumulators = 3 * square + D * D * block_dtype.itemsize  # products, and a sum with its correction
        one = _streaming_bytes(rows, D, block_dtype.itemsize) + accumulators
        passes = 1
        working = max(sample + choosing, landmarks + max(threads * one + partial * square, 6 * square))
    return Plan(
        rows=n,
        columns=d,
        size=D,
        block_rows=block,
        tasks=2 * blocks - 1 + min(blocks, m),
        passes=passes,
        bytes_read=rows.dtype.itemsize * d * (passes * n + min(n, m * rows.grain)),
        peak_bytes=_resident(working),
        result_bytes=8 * D * (D + 2) + landmarks + 8 * D * _components(spec, D),
    )


def plan_transform(rows: Rows, model: Model, block_rows: int | None, threads: int) -> Plan:
    """The cost of writing the scores of all rows: one pass, one shard for each block."""
    n, d = rows.shape
    itemsize = model.features.dtype.itemsize
    row_bytes = model.components * itemsize
    block = output_block_rows(n, rows.grain, row_bytes, block_rows)
    D = model.features.size
    fixed = model.features.landmarks.nbytes * 2 + model.solution.components.nbytes + 8 * D * D
    one = _streaming_bytes(rows, D, itemsize) + 4 * block * row_bytes
    return Plan(
        rows=n,
        columns=d,
        size=D,
        block_rows=block,
        tasks=ceil(n / block),
        passes=1,
        bytes_read=rows.dtype.itemsize * d * n,
        peak_bytes=_resident(fixed + threads * one),
        result_bytes=n * row_bytes,
    )


def largest_size_that_fits(rows: Rows, spec: FitSpec, threads: int, limit: int) -> int | None:
    """The largest number of landmarks, of two digits, whose fit stays within `limit` bytes; None if none does."""
    by_landmarks = spec.model_copy(update={"method": "nystroem"})
    for size in _two_digit_sizes(spec.landmark_count(rows.shape[0])):
        if plan_fit(rows, by_landmarks.model_copy(update={"size": size}), threads).peak_bytes <= limit:
            return size
    return None


def _two_digit_sizes(below: int) -> Iterator[int]:
    """10 to 99 times powers of ten, from `below` down to 10."""
    for power in reversed(range(len(str(below)))):
        yield from (digits * 10**power for digits in reversed(range(10, 100)) if digits * 10**power < below)


def _resident(working: int) -> int:
    return INTERPRETER_BYTES + round(working * _KEPT_BY_ALLOCATOR)


def _streaming_bytes(rows: Rows, D: int, itemsize: int) -> int:
    """Work space of one thread that turns rows into features: a read, its decoded chunks, and the tiles."""
    d = rows.shape[1]
    piece = max(READ_BYTES, rows.grain * d * rows.dtype.itemsize)
    tile = tile_rows(d, D, itemsize)
    return 3 * piece + tile * itemsize * (2 * (d + 2) + D) + 2 * D * d * itemsize


def _components(spec: FitSpec, D: int) -> int:
    return min(spec.components, D) if isinstance(spec.components, int) else D
