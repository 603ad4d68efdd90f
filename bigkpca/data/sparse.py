"""Rows of sparse CSR matrices in memory; they become dense one block at a time.

CSR stores, row by row, the nonzero values and their columns; those of row i are at indptr[i] to indptr[i + 1].
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bigkpca.data.rows import EVERY, Rows, anonymous, check_shape, little_endian
from bigkpca.data.stores import store_of
from bigkpca.errors import Array, CorruptionError, SpecError


@dataclass(frozen=True)
class SparseRows(Rows):
    """Rows first, first + 1, ... of a CSR matrix. path: the file that it was read from; None for a user's matrix."""

    indptr: Array
    indices: Array
    values: Array
    columns: int
    path: str | None = None
    first: int = 0
    grain: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.columns

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def grid(self) -> tuple[int, int]:
        return self.grain, self.columns

    @property
    def held_bytes(self) -> int:
        """Bytes of the values and indices."""
        return self.values.nbytes + self.indices.nbytes

    def part(self, start: int, stop: int, columns: slice = EVERY) -> SparseRows:
        indptr, held = self._held(start, stop)
        own = {"indptr": indptr - held.start, "values": self.values[held], "indices": self.indices[held]}
        return replace(self, **own, first=start, weights=self._weights_of(start, stop))

    def block(self, start: int, stop: int, columns: slice = EVERY) -> Array:
        indptr, held = self._held(start, stop)
        indices = self.indices[held]
        wrong = indices[(indices < 0) | (indices >= self.columns)]
        if len(wrong):  # where SciPy would write anywhere
            raise CorruptionError(
                f"{self.where}: rows {start} to {stop - 1} have a column {wrong[0]}, but there are only {self.columns}"
            )
        found = csr_array((self.values[held], indices, indptr - held.start), shape=(stop - start, self.columns))
        dense: Array = found.toarray()
        return dense if columns == EVERY else np.ascontiguousarray(dense[:, columns])

    def _held(self, start: int, stop: int) -> tuple[Array, slice]:
        """indptr of rows start..stop, and where their values are."""
        indptr = self.indptr[start - self.first : stop - self.first + 1]
        return indptr, slice(int(indptr[0]), int(indptr[-1]))

    def fingerprint(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for array in (self.indptr, self.indices, self.values):
            digest.update(little_endian(array))
        return anonymous(self) | {"path": self.path, "stamp": digest.hexdigest()}


def sparse_rows(matrix: Any) -> SparseRows:
    """Rows of a SciPy sparse matrix of any format."""
    check_shape(matrix.shape, "the sparse matrix")
    csr = csr_array(matrix)
    if csr.dtype == np.float16:  # which SciPy cannot convert to a dense array
        csr = csr.astype(np.float32)
    return SparseRows(csr.indptr, csr.indices, csr.data, csr.shape[1], where="the sparse matrix")


def npz_rows(path: str) -> SparseRows:
    """Rows of a .npz file that `scipy.sparse.save_npz` wrote; they are read into memory. Raises SpecError for other
    .npz files."""
    from scipy.sparse import load_npz

    try:
        with store_of(path).open(path) as file:
            matrix = load_npz(file)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise CorruptionError(f"{path} cannot be read ({error}): is it truncated? Download it again") from error
    except (KeyError, ValueError, AttributeError) as error:
        raise SpecError(
            f"{path} does not contain a SciPy sparse matrix ({error}); make a dataset from its arrays: bigkpca ingest "
            f"{path} DATASET.zarr"
        ) from error
    return replace(sparse_rows(matrix), where=path, path=store_of(path).absolute(path))
