"""Reader of HDF5 files, by the optional library h5py."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from bigkpca.errors import Array, DataError, SpecError
from bigkpca.ingesting.formats.base import (
    TEXT,
    Batches,
    Stored,
    Table,
    choose,
    decoding,
    member_table,
    native,
    ranges,
)


def hdf5(path: Path, member: str | None, labels: str | None) -> Table:
    """Rows of one data set of an HDF5 file, with those of another as labels."""
    try:
        import h5py
    except ImportError as error:
        raise SpecError(f"{path} needs h5py to be read: pip install 'bigkpca[io]'") from error
    arrays: dict[str, Stored] = {}
    chunks: dict[str, int] = {}

    def look(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset):
            shape = (0,) if node.shape is None else node.shape  # a null data set has none
            try:
                dtype = node.dtype
            except TypeError:  # types that NumPy does not have, such as times
                dtype = np.dtype(object)
            chunks[name] = math.prod(node.chunks or ()) * dtype.itemsize if node.chunks else 0
            arrays[name] = Stored(shape, TEXT if h5py.check_string_dtype(dtype) is not None else dtype)

    with decoding(path), h5py.File(path, "r") as file:
        file.visititems(look)
    chosen = choose(arrays, member, labels, str(path))

    def pieces(file: Any, name: str) -> Iterator[Array]:
        x = arrays[chosen]
        stored = file[name].asstr("utf-8") if arrays[name].dtype == TEXT else file[name]
        for a, b in ranges(x.shape[0], x.row_bytes):
            with _utf8(f"{path}:{name}"):
                values = stored[a:b]
            values = values.astype(str) if values.dtype == object else native(values)
            yield values.reshape(b - a, math.prod(values.shape[1:])) if name == chosen else values

    def batches() -> Batches:
        with decoding(path), h5py.File(path, "r") as file:
            ys = repeat(None) if labels is None else pieces(file, labels)
            yield from zip(pieces(file, chosen), ys, strict=False)

    # A chunk is decompressed as a whole.
    return member_table(path, arrays, chosen, labels, batches(), 2 * max(chunks[chosen], chunks[labels or chosen]))


@contextmanager
def _utf8(where: str) -> Iterator[None]:
    """Turn an error of decoding text into a DataError."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not text in UTF-8: {error}") from error
