"""Rows of sparse CSR matrices, in memory or on disk; they become dense one block at a time.

CSR stores, row by row, the nonzero values and their columns; those of row i are at indptr[i] to indptr[i + 1]. Formats
on disk: SciPy's .npz, and AnnData matrices in Zarr or HDF5.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import zarr
from scipy.sparse import csr_array

from bigkpca.data.blocks import READ_BYTES, power_of_two
from bigkpca.data.retrying import changed, may_pass, retried
from bigkpca.data.rows import EVERY, BaseRows, anonymous, check_shape, little_endian
from bigkpca.data.stored import StoredArray, files_below, versions_of
from bigkpca.data.stores import store_of
from bigkpca.errors import Array, BigKPCAError, CorruptionError, DataError, SpecError, require


@dataclass(frozen=True)
class Hdf5Vector:
    """A one-dimensional dataset in an HDF5 file, which is opened for each read, so any process can read it."""

    path: str
    name: str
    dtype: np.dtype[Any]
    stamp: str  # of the version that was opened

    def __getitem__(self, at: slice) -> Array:
        def read() -> Array:
            with hdf5_file(self.path) as file:
                values: Array = file[self.name][at]
            if store_of(self.path).file(self.path).stamp != self.stamp:
                raise changed(self.path)
            return values

        return retried(read, self.path, CorruptionError)


@dataclass(frozen=True)
class SparseRows(BaseRows):
    """Rows first, first + 1, ... of a CSR matrix. path: where it is stored; None in memory.

    indptr (n + 1,) is in memory, 8 bytes for each row; indices and values are arrays, or vectors that are read in
    ranges. grain: rows that are read at once.
    """

    indptr: Array
    indices: Any
    values: Any
    columns: int
    where: str = "the sparse matrix"
    path: str | None = None
    name: str | None = None
    names: tuple[str, ...] | None = None
    one_hot: tuple[()] = ()
    first: int = 0
    grain: int = 1
    stamp: str | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.columns

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.values.dtype)

    @property
    def grid(self) -> tuple[int, int]:
        return self.grain, self.columns

    @property
    def in_memory(self) -> bool:
        """Whether the values are in memory."""
        return isinstance(self.values, np.ndarray)

    @property
    def held_bytes(self) -> int:
        """Bytes of the values and indices that are in memory."""
        return sum(each.nbytes for each in (self.values, self.indices) if isinstance(each, np.ndarray))

    def part(self, start: int, stop: int, columns: slice = EVERY) -> SparseRows:
        indptr, held = self._held(start, stop)
        if self.in_memory:
            indptr, values, indices = indptr - held.start, self.values[held], self.indices[held]
        elif isinstance(self.values, StoredArray) and isinstance(self.indices, StoredArray) and held.start < held.stop:
            values, indices = (each.part(held.start, held.stop) for each in (self.values, self.indices))
        else:
            return self if self.weights is None else replace(self, weights=self._weights_of(start, stop))
        weights = self._weights_of(start, stop)
        return replace(self, indptr=indptr, values=values, indices=indices, names=None, first=start, weights=weights)

    def block(self, start: int, stop: int, columns: slice = EVERY) -> Array:
        indptr, held = self._held(start, stop)
        try:
            values, indices = self.values[held], self.indices[held]
            if len(indices) and not 0 <= indices.min() <= indices.max() < self.columns:  # SciPy would write anywhere
                raise ValueError(f"a column has the number {indices.max()}, but there are only {self.columns}")
            found = csr_array((values, indices, indptr - held.start), shape=(stop - start, self.columns)).toarray()
        except (MemoryError, BigKPCAError):
            raise
        except Exception as error:  # of h5py, which has its own types, and of SciPy, for unknown columns
            raise CorruptionError(
                f"{self.where}: rows {start} to {stop - 1} cannot be read ({type(error).__name__}: {error}); restore "
                "this file"
            ) from error
        return found if columns == EVERY else np.ascontiguousarray(found[:, columns])

    def _held(self, start: int, stop: int) -> tuple[Array, slice]:
        """indptr of rows start..stop, and where their values are."""
        indptr = self.indptr[start - self.first : stop - self.first + 1]
        return indptr, slice(int(indptr[0]), int(indptr[-1]))

    def fingerprint(self) -> dict[str, Any]:
        if self.path is not None:
            return anonymous(self) | {"path": self.path, "stamp": self.stamp}
        digest = hashlib.sha256()
        for array in (self.indptr, self.indices[EVERY], self.values[EVERY]):
            digest.update(little_endian(np.asarray(array)))
        return anonymous(self) | {"stamp": digest.hexdigest()}


def sparse_rows(matrix: Any) -> SparseRows:
    """Rows of a SciPy sparse matrix of any format."""
    check_shape(matrix.shape, "the sparse matrix")
    csr = csr_array(matrix)
    if csr.dtype == np.float16:  # which SciPy cannot convert to a dense array
        csr = csr.astype(np.float32)
    return SparseRows(csr.indptr, csr.indices, csr.data, csr.shape[1])


def npz_rows(path: str) -> SparseRows:
    """Rows of a .npz file that `scipy.sparse.save_npz` wrote; they are read into memory. Raises SpecError for other
    .npz files."""
    from scipy.sparse import load_npz

    store = store_of(path)
    stamp = store.file(path).stamp
    try:
        with store.open(path) as file:
            matrix = load_npz(file)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise CorruptionError(f"{path} cannot be read ({error}): is it truncated? Download it again") from error
    except (KeyError, ValueError, OSError, AttributeError) as error:
        if may_pass(error):
            raise
        raise SpecError(
            f"{path} does not contain a SciPy sparse matrix ({error}); make a dataset from its arrays: bigkpca ingest "
            f"{path} DATASET.zarr"
        ) from error
    if store.file(path).stamp != stamp:
        raise changed(path)
    return replace(sparse_rows(matrix), where=path, path=store.absolute(path), stamp=stamp)


def is_stored_matrix(node: Any) -> bool:
    """Whether a Zarr or HDF5 group is AnnData, or a sparse matrix as AnnData writes it."""
    return str(node.attrs.get("encoding-type", "")) in ("anndata", "csr_matrix", "csc_matrix")


def is_backed(data: Any) -> bool:
    """Whether `data` is a sparse matrix of AnnData that was opened but not read (`backed="r"`)."""
    return all(hasattr(data, name) for name in ("group", "to_memory", "format"))


def zarr_matrix(path: str, group: Any, name: str | None) -> SparseRows | None:
    """Rows of a sparse matrix in a group of Zarr, `name` in AnnData (X by default); None if that is a dense array.
    Raises SpecError for a name that does not exist, and for matrices that are stored by columns."""
    node, names = _chosen(path, group, name)
    if node is None:
        return None
    files = sorted((name, file) for name, file in files_below(path).items() if file.bytes)
    stamp = hashlib.sha256("\n".join(f"{name} {file.stamp}" for name, file in files).encode()).hexdigest()

    def vector(part: Any) -> StoredArray:
        return StoredArray(part, path, part.shape[0], versions_of(part))

    return _stored(path, node, vector, name, names, stamp)


def hdf5_rows(path: str, name: str | None) -> SparseRows:
    """Rows of a sparse matrix in an HDF5 file, `name` in AnnData (X by default). Raises SpecError like `zarr_matrix`,
    for dense arrays, and if h5py is missing."""
    with hdf5_file(path) as file:
        node, names = _chosen(path, file, name) if is_stored_matrix(file) else (None, None)
        if node is None:
            raise SpecError(
                f"{path} does not contain an AnnData sparse matrix there; make a dataset from an array: bigkpca ingest "
                f"{path} DATASET.zarr --member NAME"
            )
        stamp = store_of(path).file(path).stamp
        return _stored(path, node, lambda part: Hdf5Vector(path, part.name, part.dtype, stamp), name, names, stamp)


def h5py_for(path: Any) -> Any:
    """The library h5py, imported when a file needs it. Raises SpecError if it is missing."""
    require("h5py", "io", str(path))
    import h5py

    return h5py


@contextmanager
def hdf5_file(path: str) -> Iterator[Any]:
    """An HDF5 file to read. Raises SpecError if h5py is missing, CorruptionError if the file cannot be read."""
    try:
        with h5py_for(path).File(path, "r") as file:
            yield file
    except OSError as error:
        number = re.search(r"errno = (\d+)", str(error))  # which h5py puts into the text of read errors
        if may_pass(error) or (number and may_pass(OSError(int(number[1]), ""))):
            raise OSError(error.errno or int(number[1] if number else 0), "cannot be read", path) from error
        raise CorruptionError(f"{path} cannot be read ({error}): is it truncated? Download it again") from error


def _chosen(path: str, group: Any, name: str | None) -> tuple[Any | None, tuple[str, ...] | None]:
    """The sparse matrix in a group and the names of its columns, if any; None for a dense array."""
    kind = str(group.attrs.get("encoding-type", ""))
    node: Any = group
    names: tuple[str, ...] | None = None
    if kind == "anndata":
        if (name or "X") not in group:
            raise SpecError(f"{path} contains no matrix {name or 'X'!r}: name one with --array (array= in Python)")
        node = group[name or "X"]
        with suppress(KeyError, TypeError, ValueError):  # of variables that have no names
            index = group["var"][str(group["var"].attrs["_index"])]
            if isinstance(index, zarr.Array):
                index = StoredArray(index, str(index.store_path), index.shape[0], versions_of(index))
            found = [each.decode() if isinstance(each, bytes) else each for each in np.asarray(index[:]).tolist()]
            names = tuple(found) if all(isinstance(each, str) for each in found) else None
        kind = str(node.attrs.get("encoding-type", ""))
    elif name is not None:
        raise SpecError(f"{path} is one matrix, not a group that contains {name!r}: omit --array (array= in Python)")
    if kind == "csc_matrix":
        raise SpecError(f"{path} is stored by columns (CSC), so single rows cannot be read: store it as CSR")
    return (node if kind == "csr_matrix" else None), names


def _stored(
    path: str, node: Any, vector: Callable[[Any], Any], name: str | None, names: tuple[str, ...] | None, stamp: str
) -> SparseRows:
    """Rows of a stored matrix, whose parts are read as vectors. Raises CorruptionError if parts are missing or do not
    match each other, DataError if it is empty."""
    if lost := [key for key in ("indptr", "indices", "data") if key not in node]:
        raise CorruptionError(f"{path}: the sparse matrix lacks {', '.join(lost)}; write the matrix again")
    shape = node.attrs.get("shape")
    if np.shape(shape) != (2,) or np.asarray(shape).dtype.kind not in "iu":
        raise CorruptionError(
            f"{path}: the sparse matrix needs an attribute 'shape' of two whole numbers, but has {shape!r}; write the "
            "matrix again"
        )
    rows, columns = (int(length) for length in shape)
    check_shape((rows, columns), path)
    indptr = np.asarray(vector(node["indptr"])[EVERY]).astype(np.int64)
    held = int(node["data"].shape[0])
    if len(indptr) != rows + 1 or (np.diff(indptr) < 0).any() or indptr[0] != 0 or indptr[-1] != held:
        raise CorruptionError(f"{path}: indptr does not match a matrix of {rows} rows and {held} values; restore it")
    if np.dtype(node["data"].dtype).kind not in "buif":
        raise DataError(f"{path} contains {node['data'].dtype} values: rows must be real numbers")
    itemsize = np.dtype(node["data"].dtype).itemsize
    chunk = (getattr(node["data"], "chunks", None) or (READ_BYTES // itemsize,))[0]
    dense = max(1, READ_BYTES // (columns * itemsize))  # rows of one read
    grain = power_of_two(min(dense, int(chunk * rows / max(1, held))))
    at = store_of(path).absolute(path)
    indices, values = vector(node["indices"]), vector(node["data"])
    fitting = names if names is not None and len(names) == columns else None  # raw/X has other variables
    return SparseRows(indptr, indices, values, columns, path, at, name, fitting, grain=grain, stamp=stamp)
