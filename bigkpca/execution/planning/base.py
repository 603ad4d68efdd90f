"""The plan of a run, and memory that all runs need."""

from __future__ import annotations

from dataclasses import dataclass

from bigkpca.data.blocks import READ_BYTES, tile_rows
from bigkpca.data.dask import DaskRows
from bigkpca.data.matrix_tiles import PART_BYTES, read_bytes
from bigkpca.data.rows import Rows
from bigkpca.errors import MemoryLimitError
from bigkpca.spec import FitSpec

# Resident bytes of a process that has imported everything and computed nothing: 232 MB on Linux where pandas and
# pyarrow are installed, which scikit-learn then imports (158 MB where not), and what thread pools and their heaps add.
INTERPRETER_BYTES = 245_000_000
_DECODING_BYTES = 32_000_000  # that Zarr's own threads were seen to keep, for each thread that reads small chunks
_KEPT_BY_ALLOCATOR = 1.4  # at most what was resident for each byte of work space in use, on several shapes


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
    """Work space of one thread that reads a matrix in tiles: encoded, decoded, and in the dtype of block work."""
    return 3 * read_bytes(rows) + _DECODING_BYTES + (PART_BYTES if isinstance(rows, DaskRows) else 0)


def resident(working: int) -> int:
    return INTERPRETER_BYTES + round(working * _KEPT_BY_ALLOCATOR)


def streaming_bytes(rows: Rows, D: int, held: int, itemsize: int) -> int:
    """Work space of one thread that turns rows into features: a read, its decoded chunks, and the tiles."""
    d = rows.shape[1]
    piece = max(READ_BYTES, rows.grain * d * rows.dtype.itemsize)
    tile = tile_rows(d, D, itemsize)
    return 3 * piece + tile * itemsize * (2 * (d + 2) + 2 * D) + 2 * held


def graph_bytes(rows: Rows, block: int) -> int:
    """What a thread holds of a Dask array besides: the rows of a block, and two chunks that they are cut from."""
    if not isinstance(rows, DaskRows):
        return 0
    return (block + 2 * rows.grid[0]) * rows.shape[1] * rows.dtype.itemsize


def components(spec: FitSpec, D: int) -> int:
    return min(spec.components, D) if isinstance(spec.components, int) else D
