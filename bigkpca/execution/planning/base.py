"""The plan of a run, and memory that all runs need."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from bigkpca.data.blocks import READ_BYTES, power_of_two, tile_rows
from bigkpca.data.dask import DaskRows
from bigkpca.data.matrix_tiles import PART_BYTES, read_bytes
from bigkpca.data.rows import Rows
from bigkpca.errors import MemoryLimitError
from bigkpca.execution.freed_memory import returns_freed_memory
from bigkpca.numerics.kernels import Kernel, Polynomial
from bigkpca.numerics.kernels.base import Leaf
from bigkpca.spec import FitSpec

# Resident bytes of a process, measured on Linux with Python 3.11 and 3.13: of a command that has opened its rows, what
# modules add that other code has imported (for distributed, with a cluster at work), and what an eigenproblem imports.
# Of libraries that were just installed more is resident than later: of pandas, with PyArrow, 102 MB in place of 65.
_STARTED = 100_000_000
_OF_MODULES = {"pandas": 105_000_000, "sklearn": 60_000_000, "dask.array": 20_000_000, "distributed": 40_000_000}
SOLVER_BYTES = 25_000_000
_DECODING_BYTES = 32_000_000  # that Zarr's own threads were seen to keep, for each thread that reads small chunks
_RETURNED, _KEPT = 1.05, 1.4  # at most what was resident for each byte in use: freed memory is returned at once, or not


@dataclass(frozen=True)
class Plan:
    """The cost of a run. Bytes are decimal everywhere that people read them.

    Attributes
    ----------
    rows, columns : int
        Shape of the data, (n, d).
    size : int
        D, features of a row.
    block_rows, tasks : int
        Rows of one task, and the number of tasks.
    passes : int
        Passes over all rows, the sample not counted.
    bytes_read : int
        By the sample and all passes.
    peak_bytes : int
        Resident memory of one process, interpreter included.
    result_bytes : int
        Size of the result.
    checkpoint_bytes : int
        At most on disk beside the output, while the run lasts.
    expected_seconds : float or None
        Where it was asked for and is known.
    not_timed : str or None
        Why it is not known.
    threads : int
        Of all processes, that the time holds for.
    on_workers : bool
        Whether these are of workers, and not of this process.
    refused : str or None
        Why the memory allowed is not enough.
    """

    rows: int
    columns: int
    size: int
    block_rows: int
    tasks: int
    passes: int
    bytes_read: int
    peak_bytes: int
    result_bytes: int
    checkpoint_bytes: int = 0
    expected_seconds: float | None = None
    not_timed: str | None = None
    threads: int = 0
    on_workers: bool = False
    refused: str | None = None

    def check(self, limit: int | None, remedy: str) -> None:
        """Raise MemoryLimitError if the peak is above the limit."""
        check_peak(self.peak_bytes, limit, remedy)


def check_peak(peak_bytes: int, limit: int | None, remedy: str) -> None:
    """Raise MemoryLimitError, with both numbers and what to do, if a peak is above the limit."""
    if limit is not None and peak_bytes > limit:
        raise MemoryLimitError(
            f"this needs {peak_bytes / 1e6:.0f} MB in a process, {limit / 1e6:.0f} MB are allowed: {remedy}"
        )


def tile_bytes(rows: Rows) -> int:
    """Work space of one thread that reads a matrix in tiles: encoded, decoded, in the dtype of block work; of a Dask
    array a part, and the chunks that it is put together of."""
    return 3 * read_bytes(rows) + _DECODING_BYTES + (2 * PART_BYTES if isinstance(rows, DaskRows) else 0)


def process_bytes() -> int:
    """Resident bytes of a process that has computed nothing, by what it has imported."""
    return _STARTED + sum(size for name, size in _OF_MODULES.items() if name in sys.modules)


def resident(working: int) -> int:
    """Resident bytes of a process whose arrays take `working` bytes: what the allocator keeps besides is counted."""
    return process_bytes() + round(working * (_RETURNED if returns_freed_memory() else _KEPT))


@dataclass(frozen=True)
class Work:
    """The feature map that turns rows (b, d) into features (b, D), as far as memory depends on it: size D, bytes
    `of_map` of landmarks or frequencies, itemsize of block work. landmarks: whether features are kernels with
    landmarks; without a kernel they are the columns themselves, `scaled` where standardised."""

    size: int
    of_map: int
    itemsize: int
    kernel: Kernel | None = None
    landmarks: bool = False
    scaled: bool = False

    def row_bytes(self, d: int) -> int:
        """Bytes of each row of a tile: the row shifted and scaled, its features, and what these are computed from."""
        D = self.size
        if self.kernel is None:
            numbers = 2 * d
        elif self.landmarks:  # a copy of the row with two more columns; not all kernels are computed in place
            in_place = isinstance(self.kernel, Leaf) and (self.kernel.radial or self.kernel.towards is not None)
            numbers = 2 * (d + 2) + (D if in_place else 3 * D)
        else:  # angles of pairs of sines and cosines, or the spectra of a sketch
            numbers = 2 * d + 5 * D if isinstance(self.kernel, Polynomial) else d + 3 * D // 2
        return self.itemsize * (numbers + d * self.scaled)


def reading_bytes(rows: Rows, tile: int, block: int) -> int:
    """What one thread holds that reads a block in tiles of `tile` rows: the tile before and its rest, or what is put
    together of them and the next read, and that read with its decoded chunks."""
    row = rows.shape[1] * rows.dtype.itemsize
    read = min(block, max(1, power_of_two(READ_BYTES // row) // rows.grain) * rows.grain)
    return row * (2 * max(min(tile, block), read) + 2 * read)


def streaming_bytes(rows: Rows, work: Work, block: int) -> int:
    """Work space of one thread that turns a block of rows into features: what it reads, a tile, and the landmarks
    transposed, which before the first tile are in float64, twice."""
    d = rows.shape[1]
    tile = min(block, tile_rows(d, work.size, work.itemsize))
    first = 2 * 8 * (work.of_map // work.itemsize)
    return reading_bytes(rows, tile, block) + work.of_map + max(tile * work.row_bytes(d), first)


def graph_bytes(rows: Rows, block: int) -> int:
    """What a thread holds of a Dask array besides: the rows of a block, and two chunks that they are cut from."""
    if not isinstance(rows, DaskRows):
        return 0
    return (block + 2 * rows.grid[0]) * rows.shape[1] * rows.dtype.itemsize


def components(spec: FitSpec, D: int) -> int:
    return min(spec.components, D) if isinstance(spec.components, int) else D
