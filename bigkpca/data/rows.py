"""Rows and their weights, in memory or on a device; reading of consecutive tiles, and of rows by number."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bigkpca.data.blocks import READ_BYTES, Block, power_of_two, split
from bigkpca.data.devices import Device, device_of
from bigkpca.errors import Array, DataError, check_finite
from bigkpca.numerics.array_api import dtype_of, functions_of, on_host, rows_of
from bigkpca.numerics.display import brief
from bigkpca.numerics.linalg import aligned
from bigkpca.numerics.moments import OneHot

if TYPE_CHECKING:  # `--help` imports this file for the options of a fit, and must be fast
    from dask.delayed import Delayed


def anonymous(rows: Rows) -> dict[str, Any]:
    """The fingerprint of rows without a path, before a stamp is added."""
    return {"path": None, "shape": list(rows.shape), "dtype": rows.dtype.str, "stamp": None}


def check_shape(shape: tuple[int, ...], where: str) -> tuple[int, int]:
    """Raise DataError unless the shape is two-dimensional, with at least one row and one column."""
    if len(shape) != 2:
        raise DataError(f"{where} has shape {shape}: rows must be two-dimensional, (rows, columns)")
    if 0 in shape:
        raise DataError(f"{where} is empty: shape {shape}")
    return shape


def little_endian(X: Array) -> memoryview:
    """The values of X in C order, little-endian, as bytes to hash."""
    return np.ascontiguousarray(X.astype(X.dtype.newbyteorder("<"), copy=False)).view(np.uint8).data


@dataclass(frozen=True)
class SampleWeights:
    """One weight for each of `count` rows.

    values: weights in memory, of rows `first` and later, or a function that reads those of rows start..stop; None: 1.
    excluded: ascending numbers of rows whose weight is 0.
    """

    values: Array | Callable[[int, int], Array] | None
    count: int
    first: int = 0
    excluded: Array = field(default_factory=lambda: np.empty(0, np.intp))

    @property
    def held(self) -> bool:
        """Whether they are in memory."""
        return not callable(self.values)

    @cached_property
    def stamp(self) -> str:
        """SHA-256 of the weights."""
        digest = hashlib.sha256()
        for block in split(self.count, READ_BYTES // 8):
            digest.update(little_endian(self.of(block.start, block.stop)))
        return digest.hexdigest()

    def part(self, start: int, stop: int) -> SampleWeights:
        """The weights that a task on rows start..stop needs, numbered as in the whole."""
        found = replace(self, excluded=self._excluded(start, stop))
        if self.values is None or callable(self.values):
            return found
        return replace(found, values=self.values[start - self.first : stop - self.first], first=start)

    def of(self, start: int, stop: int) -> Array:
        """The weights of rows start..stop, (stop - start,), float64."""
        if self.values is None:
            found = np.ones(stop - start)
        elif callable(self.values):
            found = self.values(start, stop).reshape(-1).astype(np.float64)
        else:
            found = self.values[start - self.first : stop - self.first].astype(np.float64)
        found[self._excluded(start, stop) - start] = 0
        return found

    def _excluded(self, start: int, stop: int) -> Array:
        return self.excluded[slice(*np.searchsorted(self.excluded, [start, stop]))]


@dataclass(frozen=True)
class Rows(ABC):
    """A two-dimensional table of numbers that is read in ranges of rows; each source has a subclass.

    where: name of the source in messages. name: name of the array in its group, to open it again. names: names of the
    columns. one_hot: the columns of 0 and 1 that are one column of categories, as their dataset records them. weights:
    None if all are 1.
    """

    _: KW_ONLY
    where: str = "the array"
    name: str | None = None
    names: tuple[str, ...] | None = None
    one_hot: tuple[OneHot, ...] = ()
    weights: SampleWeights | None = field(default=None, repr=False)

    @property
    def device(self) -> Device | None:
        """The device that holds the rows; None for host memory and for files."""
        return None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(n, d)."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The dtype as stored."""

    @property
    @abstractmethod
    def grain(self) -> int:
        """Number of rows that storage reads at once; blocks start at multiples of it."""

    @property
    def chunk(self) -> int:
        """Number of rows that come at once, though blocks may start at others."""
        return self.grain

    @abstractmethod
    def part(self, start: int, stop: int) -> Rows | Delayed:
        """The part of the source that a task on rows start..stop needs, numbered as in the whole."""

    @abstractmethod
    def block(self, start: int, stop: int) -> Array:
        """Rows start..stop in `dtype`, aligned. Raises CorruptionError if they cannot be read."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """The identity of the rows, JSON-ready: path (or None), shape, dtype, and a stamp that changes with them: of
        sizes and times or tags of stored chunks, or of values in memory. Makes no pass over files."""

    def changed(self, **fields: Any) -> Self:
        """The same rows with other values of these fields, and with what is known of them already."""
        found = object.__new__(type(self))  # a copy would leave out what tasks do not need
        vars(found).update(vars(self) | fields)
        return found

    def _weights_of(self, start: int, stop: int) -> SampleWeights | None:
        """The weights that a task on rows start..stop needs."""
        return None if self.weights is None else self.weights.part(start, stop)


@dataclass(frozen=True)
class ArrayRows(Rows):
    """Rows first, first + 1, ... of a table in memory, or of a tensor on a device. In another process they are an array
    of NumPy."""

    values: Any
    first: int = 0
    grain: int = 1

    __repr__ = brief

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return dtype_of(self.values)

    @property
    def device(self) -> Device | None:
        return device_of(self.values)

    @property
    def held_bytes(self) -> int:
        """Bytes of the values."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def part(self, start: int, stop: int) -> ArrayRows:
        weights = self._weights_of(start, stop)
        return type(self)(self._cut(start, stop), start, where=self.where, names=self.names, weights=weights)

    def block(self, start: int, stop: int) -> Array:
        return aligned(on_host(self._cut(start, stop)))

    def taken(self, numbers: Array) -> Array:
        """Rows with these numbers, (m, d), aligned."""
        with self.device.current() if self.device else nullcontext():
            return aligned(on_host(rows_of(self.values, numbers - self.first)))

    def _cut(self, start: int, stop: int) -> Any:
        return self.values[start - self.first : stop - self.first, :]

    def fingerprint(self) -> dict[str, Any]:
        whole = Block(0, self.first, self.first + self.shape[0])
        return anonymous(self) | {"stamp": digest_of_rows(self, whole)}

    def tile(self, start: int, stop: int, digest: Any = None) -> Any:
        """Rows start..stop on the device, checked like those of `tiles`; copied only for a digest or an error."""
        X = self._cut(start, stop)
        xp = functions_of(X)
        if digest is not None or (self.dtype.kind == "f" and not bool(xp.all(xp.isfinite(X)))):
            copy = on_host(X)
            check_rows(self, copy, start)
            if digest is not None:
                digest.update(little_endian(copy))
        return X

    def __reduce__(self) -> Any:
        return partial(ArrayRows, **(vars(self) | {"values": on_host(self.values)})), ()


def take(rows: Rows, numbers: Array) -> Array:
    """Rows with the given ascending numbers, (m, d), each chunk read once. Raises DataError for NaN and infinity."""
    if isinstance(rows, ArrayRows):
        found = rows.taken(numbers)
    else:
        # One read for adjacent chunks that all contain some of the rows, up to 4 MB.
        chunks = numbers // rows.grain
        pieces = chunks // max(1, READ_BYTES // (rows.shape[1] * rows.dtype.itemsize * rows.grain))
        apart = (np.diff(chunks) > 1) | (np.diff(pieces) > 0)
        groups = np.split(numbers, np.flatnonzero(apart) + 1)
        found = np.concatenate([rows.block(int(g[0]), int(g[-1]) + 1)[g - g[0]] for g in groups])
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        for number, row in zip(numbers, found, strict=True):
            check_rows(rows, row[None], int(number))
    return found


def tiles(
    rows: Rows, start: int, stop: int, tile_rows: int, digest: Any = None, *, device: Device | None = None
) -> Iterator[Any]:
    """Rows start..stop in tiles of `tile_rows` rows, counted from `start`, checked for NaN and infinity and added to
    `digest`. Tiles are arrays of NumPy, but those of rows on this `device` stay there."""
    if device is not None and isinstance(rows, ArrayRows) and rows.device == device:
        for a in range(start, stop, tile_rows):
            yield rows.tile(a, min(a + tile_rows, stop), digest)
        return
    rest: Array | None = None
    for a, b, X in _pieces(rows, start, stop, tile_rows if isinstance(rows, ArrayRows) else None):
        check_rows(rows, X, a)
        if digest is not None:
            digest.update(little_endian(X))
        if rest is not None:
            X = np.concatenate([rest, X])
        whole = len(X) if b >= stop else len(X) // tile_rows * tile_rows
        for at in range(0, whole, tile_rows):
            yield X[at : min(at + tile_rows, whole)]
        rest = X[whole:] if whole < len(X) else None


def tile_weights(rows: Rows, start: int, stop: int, tile_rows: int) -> list[Array] | None:
    """The weights (b,) of the rows of each tile of `tiles`; None if there are none."""
    if rows.weights is None:
        return None
    weights = rows.weights.of(start, stop)
    return [weights[at : at + tile_rows] for at in range(0, stop - start, tile_rows)]


def identity_of(rows: Rows, *, stamped: bool = True) -> dict[str, Any]:
    """The fingerprint of rows and of their weights; without stamps, which can take a pass, unless `stamped`."""
    found = rows.fingerprint() if stamped else anonymous(rows)
    if rows.weights is not None:
        found["weights"] = rows.weights.stamp if stamped else None
    return found


def check_rows(rows: Rows, X: Array, first_row: int) -> None:
    """Raise DataError naming the first NaN or infinity in X (b, d), a part of the rows from this row on."""
    check_finite(X, first_row, rows.where, rows.names)


def digest_of_rows(rows: Rows, block: Block) -> str:
    """SHA-256 of the little-endian values of a block of rows, as `tiles` adds them to its digest. One read."""
    digest = hashlib.sha256()
    for _, _, X in _pieces(rows, block.start, block.stop):
        digest.update(little_endian(X))
    return digest.hexdigest()


def _pieces(rows: Rows, start: int, stop: int, step: int | None = None) -> Iterator[tuple[int, int, Array]]:
    """(a, b, rows a..b) of whole storage chunks, about 4 MB or `step` rows; `start` is a multiple of `rows.grain`."""
    if step is None:
        row_bytes = rows.shape[1] * rows.dtype.itemsize
        # The number of rows is a power of two, so reads of bigkpca's own datasets end where tiles end.
        step = max(1, power_of_two(READ_BYTES // row_bytes) // rows.grain) * rows.grain
    for a in range(start, stop, step):
        b = min(a + step, stop)
        yield a, b, rows.block(a, b)
