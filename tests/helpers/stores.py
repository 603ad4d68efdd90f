"""Arrays written to disk as users have them, how often their chunks are read, and digests as manifests hold them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from bigkpca.data.zarr import ZarrRows


def as_zarr(folder: Path, values: Any, chunks: tuple[int, ...], name: str = "stored.zarr", **options: Any) -> str:
    """A Zarr array of these values in place of what was there."""
    path = str(folder / name)
    array = zarr.create_array(path, shape=values.shape, dtype=values.dtype, chunks=chunks, overwrite=True, **options)
    array[:] = values
    return path


def as_npy(folder: Path, values: Any, name: str = "stored.npy") -> str:
    np.save(folder / name, values)
    return str(folder / name)


def counted_reads(monkeypatch: pytest.MonkeyPatch, chunks: int, chunk_rows: int) -> np.ndarray[Any, Any]:
    """How often each of so many chunks of stored rows is read from now on."""
    counts, block = np.zeros(chunks, int), ZarrRows.block

    def counting(self: ZarrRows, start: int, stop: int) -> Any:
        counts[start // chunk_rows : (stop - 1) // chunk_rows + 1] += 1
        return block(self, start, stop)

    monkeypatch.setattr(ZarrRows, "block", counting)
    return counts


def sha256(values: Any) -> str:
    """Of the values in C order, little-endian."""
    values = np.asarray(values)
    little = values.astype(values.dtype.newbyteorder("<"))
    return hashlib.sha256(little.tobytes(order="C")).hexdigest()
