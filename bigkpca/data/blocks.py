"""Division of rows into blocks, each the work of one task, and of blocks into tiles.

Blocks and tiles depend only on the shape of the data and on the spec, never on the machine: the bits of a matrix
product depend on the shape of its tile, so results would otherwise depend on where they were computed.
"""

from __future__ import annotations

from dataclasses import dataclass

TILE_BYTES = 2**25  # more rows save additions of (D, D) products, which matter from 2000 features on
READ_BYTES = 2**22  # one read: large enough to hide the cost of a call, small enough for many threads
_TILE_ROWS = 2048  # fastest in measurements: the (D, D) product is added once per tile; 4096 gain little


@dataclass(frozen=True)
class Block:
    """Rows start <= row < stop, the work of one task."""

    number: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def fit_block_rows(n: int, grain: int, given: int | None = None) -> int:
    """Rows of a block of a reduction: whole storage chunks of `grain` rows, 4096 to 65536, at least about 16 blocks.
    Few large tasks: the result of a block is (D, D), so small blocks would move more results than rows."""
    rows = given or min(65536, max(4096, power_of_two(n // 16)))
    return max(1, round(rows / grain)) * grain


def output_block_rows(n: int, grain: int, row_bytes: int, given: int | None = None) -> int:
    """Rows of a block that is written as one chunk, encoded as a whole in memory: at most 4 MB or 2048 rows."""
    most = max(_TILE_ROWS, power_of_two(2**22 // row_bytes))
    return fit_block_rows(n, grain, given or min(most, fit_block_rows(n, 1)))


def split(n: int, rows: int) -> tuple[Block, ...]:
    """Rows 0..n as consecutive blocks of `rows` rows; the last one may be shorter."""
    return tuple(Block(i, a, min(a + rows, n)) for i, a in enumerate(range(0, n, rows)))


def tile_rows(d: int, D: int, itemsize: int) -> int:
    """Rows of a tile: 2048, halved until its rows (d) and its features (D) each take at most 32 MB."""
    rows = _TILE_ROWS
    while rows > 16 and rows * max(d, D) * itemsize > TILE_BYTES:
        rows //= 2
    return rows


def sample_rows(n: int, d: int, size: int) -> int:
    """Rows of the bounded sample: at most 20,000 and 64 MB as float32, but at least the number of landmarks."""
    return min(n, max(size, min(20_000, 64_000_000 // (4 * d))))


def power_of_two(value: int) -> int:
    """The largest power of two not above `value`, at least 1."""
    return 1 << max(0, value.bit_length() - 1)
