"""Rows of sparse CSR matrices in memory; they become dense one block at a time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bigkpca.data.rows import Rows, anonymous, check_shape, little_endian
from bigkpca.errors import Array, CorruptionError


@dataclass(frozen=True)
class SparseRows(Rows):
    """Rows first, first + 1, ... of a CSR matrix."""

    matrix: Any
    first: int = 0
    grain: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.matrix.dtype

    @property
    def held_bytes(self) -> int:
        """Bytes of the values and indices."""
        return self.matrix.data.nbytes + self.matrix.indices.nbytes

    def part(self, start: int, stop: int) -> SparseRows:
        return replace(self, matrix=self._cut(start, stop), first=start, weights=self._weights_of(start, stop))

    def block(self, start: int, stop: int) -> Array:
        return self._cut(start, stop).toarray()

    def _cut(self, start: int, stop: int) -> Any:
        """These rows, of the same memory."""
        indptr = self.matrix.indptr[start - self.first : stop - self.first + 1]
        held = slice(int(indptr[0]), int(indptr[-1]))
        own = self.matrix.data[held], self.matrix.indices[held], indptr - indptr[0]
        return csr_array(own, shape=(stop - start, self.shape[1]))

    def fingerprint(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for array in (self.matrix.indptr, self.matrix.indices, self.matrix.data):
            digest.update(little_endian(array))
        return anonymous(self) | {"stamp": digest.hexdigest()}


def sparse_rows(matrix: Any) -> SparseRows:
    """Rows of a SciPy sparse matrix. Raises CorruptionError for indices outside, where SciPy would write anywhere."""
    where = "the sparse matrix"
    check_shape(matrix.shape, where)
    csr = csr_array(matrix)
    try:
        csr.check_format(full_check=True)
    except ValueError as error:
        raise CorruptionError(f"{where} is damaged: {error}") from error
    if csr.dtype == np.float16:  # which SciPy cannot convert to a dense array
        csr = csr.astype(np.float32)
    return SparseRows(csr, where=where)
