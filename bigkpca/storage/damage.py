"""What is wrong with stored arrays, file by file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bigkpca.data.blocks import READ_BYTES, Block
from bigkpca.data.rows import EVERY
from bigkpca.data.stored import OtherValuesError, StoredArray, files_below, sha256
from bigkpca.data.stores import last_name, store_of
from bigkpca.data.zarr import MAIN, MANIFEST
from bigkpca.errors import CorruptionError
from bigkpca.storage.block_arrays import Stored, holds_file, open_arrays, shard, stored_values

Index = tuple[int, ...]  # of a stored file in the grid of an array
_MOST = 10  # files listed in a message
_OTHER, _LOST = "holds other values than its manifest records", "is missing, or empty"
_TASK_BYTES = 2**26  # bytes of values checked by one task


@dataclass(frozen=True)
class Damage:
    """One file of an output that differs from what was written."""

    file: str  # below the output
    what: str
    block: Block | None = None  # its rows; None for a file without rows

    def __str__(self) -> str:
        if self.block is None:
            return f"{self.file} {self.what}"
        return f"{self.file} (block {self.block.number}, rows {self.block.start} to {self.block.stop - 1}) {self.what}"


def told(damage: Sequence[Damage]) -> str:
    """A description of all damage: a line for each of the first files, then a count."""
    lines = [f"  {each}" for each in damage[:_MOST]]
    more = [f"  and {len(damage) - _MOST} more"] if len(damage) > _MOST else []
    return "\n".join(lines + more)


# -- block-wise output, against its manifest -----------------------------------------------------------------


def listed_damage(path: str, kind: str, blocks: Sequence[Block]) -> tuple[list[Damage], list[Damage]]:
    """Shards that are missing from finished output, and files that do not belong to it."""
    arrays = open_arrays(path)
    shards = {f"{name}/{shard(array, block)}": block for block in blocks for name, array in arrays.items()}
    own = {"zarr.json", f"{MAIN[kind]}/{MANIFEST}", *(f"{name}/zarr.json" for name in arrays)}
    there = store_of(path).files(path)
    missing = [Damage(file, _LOST, block) for file, block in shards.items() if not holds_file(there, file)]
    strange = [
        file
        for file in sorted(there)
        if file not in shards
        and file not in own
        # Remains of killed writes, and hidden files such as file systems and desktops make, do no harm.
        and not file.endswith(".partial")
        and not last_name(file).startswith(".")
    ]
    return missing, [Damage(file, "does not belong here: move it elsewhere") for file in strange]


def block_damage(path: str, block: Block, digests: Mapping[str, str]) -> list[Damage]:
    """Shards of one block whose values do not match the digests."""
    arrays = open_arrays(path, digests)
    found = []
    for name, digest in digests.items():
        try:
            values = stored_values(path, arrays[name], block)
            what = None if sha256(values) == digest else _OTHER
        except CorruptionError as error:
            what = _fault(error)
        if what is not None:
            found.append(Damage(f"{name}/{shard(arrays[name], block)}", what, block))
    return found


def _fault(error: CorruptionError) -> str:
    """What is wrong with a file, from the error raised when reading it."""
    cause = error.__cause__
    if isinstance(error, OtherValuesError):
        return _OTHER
    if cause is None or isinstance(cause, FileNotFoundError):
        return _LOST
    return f"does not decode ({type(cause).__name__}: {str(cause)[:100]})"


# -- any array -----------------------------------------------------------------------------------------------


def stored_files(array: Stored, rows: int) -> list[Index]:
    """The places in the grid of chunks, or of shards, that hold the first `rows` rows."""
    shape = (rows, *array.shape[1:])
    sizes = array.shards or array.chunks
    return list(np.ndindex(*(math.ceil(length / size) for length, size in zip(shape, sizes, strict=True))))


def files_of_a_task(array: Stored) -> int:
    """How many chunks or shards one task checks."""
    return max(1, _TASK_BYTES // max(1, array.dtype.itemsize * math.prod(array.shards or array.chunks)))


def rows_of(array: Stored, rows: int, indices: Sequence[Index]) -> int:
    """How many rows these files count for in the progress: those of the files in the first column of the main array."""
    height = (array.shards or array.chunks)[0]
    return sum(min(height, rows - index[0] * height) for index in indices if not any(index[1:]) and array.ndim > 1)


def read_bytes(array: Stored, *, whole: bool) -> int:
    """Bytes of the largest read of a check: of `whole` shards, or of pieces of them."""
    shard_bytes, chunk_bytes = (
        array.dtype.itemsize * math.prod(sizes or (0,)) for sizes in (array.shards, array.chunks)
    )
    return max(shard_bytes, chunk_bytes) if whole else max(READ_BYTES, chunk_bytes)


def split_by_presence(
    array: Stored, path: str, name: str, rows: int, indices: Sequence[Index]
) -> tuple[list[Index], list[Damage]]:
    """Those of the files that are stored, and those that are missing."""
    there = files_below(f"{path}/{name}")
    kept = [index for index in indices if holds_file(there, array.metadata.encode_chunk_key(index))]
    gone = set(indices).difference(kept)
    return kept, [_damaged_file(array, name, rows, index, _LOST) for index in indices if index in gone]


def file_damage(stored: StoredArray, name: str, indices: Sequence[Index]) -> list[Damage]:
    """Stored files of an array, among these, that do not decode, or whose values have other digests."""
    array, found = stored.array, []
    sizes = array.shards or array.chunks
    # Pieces that are read at once: whole chunks, at most 4 MB, or one row of chunks.
    row_bytes = array.dtype.itemsize * math.prod(sizes[1:])
    step = max(1, READ_BYTES // max(1, row_bytes * array.chunks[0])) * array.chunks[0]
    for index in indices:
        starts = [number * size for number, size in zip(index, sizes, strict=True)]
        stops = [min(start + size, end) for start, size, end in zip(starts, sizes, stored.shape, strict=True)]
        columns = EVERY if array.ndim == 1 else slice(starts[1], stops[1])
        try:
            for first in range(starts[0], stops[0], step):
                stored.read(first, min(first + step, stops[0]), columns)
        except CorruptionError as error:
            found.append(_damaged_file(array, name, stored.count, index, _fault(error)))
    return found


def _damaged_file(array: Stored, name: str, rows: int, index: Index, what: str) -> Damage:
    """Describe `what` is wrong with one stored file of the array `name`."""
    height = (array.shards or array.chunks)[0]
    block = Block(index[0], index[0] * height, min(index[0] * height + height, rows))
    return Damage(f"{name}/{array.metadata.encode_chunk_key(index)}".lstrip("/"), what, block)
