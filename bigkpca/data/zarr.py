"""Rows of Zarr arrays, with checks for missing chunks and fingerprints of stored versions."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import zarr

from bigkpca.data.beside import arrays_of
from bigkpca.data.blocks import Block
from bigkpca.data.json_files import parsed, read_if_there
from bigkpca.data.packing import Packing, packing_of_array
from bigkpca.data.rows import EVERY, ArrayRows, BaseRows, anonymous, check_shape, digest_of_rows
from bigkpca.data.stored import (
    ALL_THERE,
    ANY_VERSION,
    Digests,
    Manifest,
    StoredArray,
    array_path,
    files_below,
    versions_of,
)
from bigkpca.data.stores import StoredFile, last_name, store_of
from bigkpca.data.versions import JOB, current_version, version_marks
from bigkpca.errors import Array, CorruptionError, IncompleteError, SpecError
from bigkpca.numerics.linalg import aligned
from bigkpca.numerics.moments import OneHot

ATTRIBUTE = "bigkpca"  # bigkpca's only key in the attributes of a Zarr group
MAIN = {"features": "scores", "reconstruction": "x"}  # kinds of output written block by block: the main array of each
_STAMP_DIGITS = 16
PUBLISHING = "publishing"  # in a manifest to which a run is adding rows: the folder of that run
MANIFEST = "manifest.json"  # in the folder of that array, once all of it is there


@dataclass(frozen=True)
class ZarrRows(BaseRows):
    """Rows of a Zarr array (v2 or v3).

    `count` rows are trusted: all of a foreign array, and those that a dataset's attribute guarantees. `whole`: every
    chunk was written, so a missing one is a loss and not the fill value. Other processes may add rows after those that
    are `pinned`, even in the last chunk of these. `digests` of the rows are in a `manifest`. `reader` is the object
    with which a task reads its rows.
    """

    array: zarr.Array[Any]
    where: str
    count: int
    name: str | None = None
    whole: bool = False
    names: tuple[str, ...] | None = None
    pinned: bool = False
    digests: Digests | None = None
    manifest: Manifest | None = None
    reader: StoredArray | None = None
    one_hot: tuple[OneHot, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        return self.count, self.array.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.array.dtype) if self._packing is None else self._packing.dtype

    @property
    def fills(self) -> tuple[str, ...]:
        return () if self._packing is None else self._packing.shown_fills

    @cached_property
    def _packing(self) -> Packing | None:
        return packing_of_array(self.array, self.where)

    @property
    def grain(self) -> int:
        return self.grid[0] if self.digests is None else self.digests.rows

    @property
    def grid(self) -> tuple[int, int]:
        rows, columns = (min(pair) for pair in zip(self.array.chunks, self.array.shape, strict=True))
        return rows, columns

    def part(self, start: int, stop: int, columns: slice = EVERY) -> ZarrRows:
        reader = self._reader.part(start, stop, columns)
        weights = self._weights_of(start, stop)
        return replace(self, reader=reader, digests=reader.digests, names=None, one_hot=(), weights=weights)

    def block(self, start: int, stop: int, columns: slice = EVERY) -> Array:
        found = self._reader.read(start, stop, columns)
        return found if self._packing is None else aligned(self._packing.decode(found))

    @property
    def group(self) -> str | None:
        """The path of the group that contains the array; None if there is none."""
        path = array_path(self.array)
        if path is None or not self.array.path:
            return None
        return path.removesuffix(f"/{self.name or last_name(path)}")

    def listed(self) -> ZarrRows:
        """The same rows; from now on their files must be the current versions."""
        _ = self._reader
        return self

    @cached_property
    def _reader(self) -> StoredArray:
        """The reader of the rows as they were when their files were listed."""
        if self.reader is not None:
            return self.reader
        versions = versions_of(self.array, self._files)
        if self.whole:
            versions.others = ANY_VERSION
        found = StoredArray(self.array, self.where, self.count, versions, self.digests, self.manifest)
        return found.while_growing() if self.pinned else found

    @cached_property
    def _files(self) -> Mapping[str, StoredFile] | None:
        """The files of the array, by name; None if the store cannot be listed."""
        folder = array_path(self.array)
        return None if folder is None else files_below(folder)

    @cached_property
    def _stored(self) -> dict[str, StoredFile] | None:
        """The stored chunks or shards, by key; None if the store cannot be listed."""
        if self._files is None:
            return None
        # Over existing files, not expected ones: an array may claim any number of chunks.
        found = {}
        for key, file in self._files.items():
            index = tuple(int(digits) for digits in re.findall("[0-9]+", key)[-2:] if len(digits) < 20)
            inside = len(index) == 2 and all(at < end for at, end in zip(index, self._chunk_grid, strict=True))
            if file.bytes and inside and self.array.metadata.encode_chunk_key(index) == key:
                found[key] = file
        return found

    def pin(self, count: int) -> ZarrRows:
        """The first `count` rows, which stay the same while other processes append to the array: with the files of
        these rows from the first listing, so that everything written since then is detected."""
        found = replace(self, count=count, pinned=True)
        if "_files" in vars(self):
            vars(found)["_files"] = self._files
        return found

    @property
    def _chunk_grid(self) -> tuple[int, int]:
        """Number of chunks, or shards, along rows and columns."""
        rows, columns = self.array.shards or self.array.chunks
        return math.ceil(self.count / rows), math.ceil(self.array.shape[1] / columns)

    def missing(self) -> int:
        """Number of chunks that should be stored but are not; 0 if the store cannot be listed."""
        return 0 if self._stored is None else math.prod(self._chunk_grid) - len(self._stored)

    def unstored(self, row: int, column: int) -> tuple[slice, slice] | None:
        """Rows and columns of the chunk or shard of an entry, if it is not stored; None if it is, or if the store
        cannot be listed."""
        height, width = self.array.shards or self.array.chunks
        at = row // height, column // width
        if self._stored is None or self.array.metadata.encode_chunk_key(at) in self._stored:
            return None
        rows, columns = (
            slice(number * size, min(number * size + size, end))
            for number, size, end in zip(at, (height, width), self.shape, strict=True)
        )
        return rows, columns

    def check_whole(self) -> None:
        """Raise CorruptionError if a chunk is missing that was written, or whose fill value is NaN."""
        fill = self.array.fill_value
        if not self.whole and not (isinstance(fill, float | np.floating) and np.isnan(fill)):
            return
        if missing := self.missing():
            across, encode = self._chunk_grid[1], self.array.metadata.encode_chunk_key
            chunks = (divmod(number, across) for number in itertools.count())  # row after row
            row = next(index[0] for index in chunks if encode(index) not in (self._stored or {})) * self._height
            raise CorruptionError(
                f"{self.where}: {missing} stored chunks are missing, the first with row {row}; restore them or ingest "
                "the data again"
            )

    def fingerprint(self) -> dict[str, Any]:
        digest = hashlib.sha256(self._packed.encode())
        if self._stored is None:
            marks = version_marks(self.array)
            if marks is None:
                return ArrayRows(self.block(0, self.count)).fingerprint()
            digest.update("\n".join(marks).encode())
            return anonymous(self) | {"stamp": digest.hexdigest()}
        # Other processes may add rows to the last chunk or shard of pinned rows: for these, the values must not change.
        last = self.count // self._height if self.pinned and self.count % self._height else None
        values = "" if last is None else digest_of_rows(self, Block(0, last * self._height, self.count))
        for key, file in sorted(self._stored.items()):
            digest.update(f"{key} {values if self._row_of_chunks(key) == last else file.stamp}\n".encode())
        return anonymous(self) | {"path": store_of(self.where).absolute(self.where), "stamp": digest.hexdigest()}

    @property
    def _packed(self) -> str:
        """The part of stamps that changes with the packing; empty without one."""
        return "" if self._packing is None else f"{self._packing}\n"

    @property
    def _height(self) -> int:
        """Rows of a stored chunk, or shard."""
        height: int = (self.array.shards or self.array.chunks)[0]
        return height

    @staticmethod
    def _row_of_chunks(key: str) -> int:
        return int(re.findall("[0-9]+", key)[-2])

    def stamps(self, blocks: Sequence[Block]) -> list[str] | None:
        """For each block of rows, a value that changes when a chunk or shard with some of them is written; None if the
        store cannot be listed."""
        if (stored := self._stored) is None:
            return None
        height, (_, across) = self._height, self._chunk_grid

        def stamp(block: Block) -> str:
            along = range(block.start // height, (block.stop - 1) // height + 1)
            keys = [self.array.metadata.encode_chunk_key(index) for index in itertools.product(along, range(across))]
            held = [stored[key].stamp if key in stored else "" for key in keys]
            return hashlib.sha256((self._packed + "\n".join(held)).encode()).hexdigest()[:_STAMP_DIGITS]

        return [stamp(block) for block in blocks]

    def stored_rows(self, known: int = 0, never: Sequence[Sequence[int]] = ()) -> int:
        """The rows before the first gap that begins after `known` rows, which the appending process has not written
        yet. Gaps as in `gaps`; those `never` written contain the fill value. All rows if their dataset guarantees them,
        or the store cannot be listed."""
        if self._stored is None or self.whole:
            return self.count
        complete = self._complete(known)
        end = (complete[-1] + 1) * self._height if complete else known
        waiting = (start for start, stop in self.gaps(known) if [start, stop] not in [list(gap) for gap in never])
        return min(self.count, next(waiting, end))

    def tail_stamps(self, known: int) -> list[str]:
        """A value that changes when a chunk, or shard, with row `known` and rows before it is written: none of these
        contains rows from `known` on while the value is the same as when the rows before were read. Empty if there is
        none."""
        if self._stored is None or not known % self._height:
            return []
        keys = [self.array.metadata.encode_chunk_key((known // self._height, at)) for at in range(self._chunk_grid[1])]
        return [self._stored[key].stamp if key in self._stored else "" for key in keys]

    def gaps(self, known: int = 0) -> list[tuple[int, int]]:
        """Ranges of rows after `known` rows whose chunks or shards are not stored, although later ones are."""
        first, found = known // self._height, []
        for row in self._complete(known):
            if row > first:
                found.append((first * self._height, row * self._height))
            first = row + 1
        return found

    def _complete(self, known: int) -> list[int]:
        """The rows of chunks, or shards, from that of row `known` on, that are stored for all columns; ascending."""
        chunks = Counter(map(self._row_of_chunks, self._stored or ()))
        across = self._chunk_grid[1]
        return sorted(row for row, count in chunks.items() if count == across and row >= known // self._height)

    def __getstate__(self) -> dict[str, Any]:
        # Sent with every task: the rows to read, and their versions; no task needs the names of all columns.
        kept = {key: value for key, value in self.__dict__.items() if not key.startswith("_") and key != "names"}
        return kept | {"reader": self._reader}


def group_rows(path: str, group: zarr.Group, name: str | None) -> ZarrRows:
    about: Any = group.attrs.get(ATTRIBUTE, {})
    kind = about.get("format") if isinstance(about, dict) else None
    if kind == JOB:
        path = current_version(path)
        return group_rows(path, zarr.open_group(store_of(path).zarr(path), mode="r"), name)
    if kind == "dataset":
        name = name or "x"
        if "rows" not in about:
            raise IncompleteError(f"{path}: its ingest did not finish; run the same bigkpca ingest command again")
    elif isinstance(kind, str) and kind in MAIN:
        name = name or MAIN[kind]
        if not store_of(path).exists(f"{path}/{MAIN[kind]}/{MANIFEST}"):
            raise IncompleteError(f"{path} is not finished: run the command that makes it again")
    elif kind == "model":
        raise SpecError(f"{path} is a bigkpca model, not rows: pass a dataset, an array, or scores")
    try:
        node: Any = group.get(name or "x")
    except Exception as error:  # zarr raises several types for metadata that cannot be parsed
        raise CorruptionError(f"{path}/{name or 'x'} is not an array that can be read ({error}); restore it") from error
    if node is None and name is None:
        arrays = dict(group.arrays())
        if len(arrays) != 1:
            raise SpecError(f"{path} contains the arrays {sorted(arrays)}: name one with --array (array= in Python)")
        ((name, node),) = arrays.items()
    if not isinstance(node, zarr.Array):
        raise SpecError(f"{path} does not contain an array {name!r}, but {sorted(key for key, _ in group.arrays())}")
    check_shape(node.shape, f"{path}/{name}")
    names, one_hot = None, tuple[OneHot, ...]()
    if kind == "dataset" and name == "x":
        rows, columns = about["rows"], about.get("column_names")
        if type(rows) is not int or not 0 < rows <= node.shape[0]:
            raise CorruptionError(
                f"{path} claims to have {rows!r:.80} rows, but its array x has {node.shape[0]}; ingest it again"
            )
        if columns is not None:
            texts = isinstance(columns, list) and all(isinstance(each, str) for each in columns)
            if not texts or len(columns) != node.shape[1]:
                raise CorruptionError(
                    f"{path}: its column names are {columns!r:.80}, for {node.shape[1]} columns; ingest it again"
                )
            names = tuple(columns)
        one_hot = _one_hot(path, about.get("encoding"), node.shape[1])
    count, digests, manifest = promised(path, about, name or "x", node)
    whole = digests is not None or (kind == "dataset" and name == "x")
    grows = bool(manifest and about.get("grows"))
    return ZarrRows(
        node, path, count, name, whole, names, pinned=grows, digests=digests, manifest=manifest, one_hot=one_hot
    )


def _one_hot(path: str, encoding: Any, width: int) -> tuple[OneHot, ...]:
    """The columns of categories of a dataset of `width` columns. Raises CorruptionError for a damaged encoding."""
    if encoding is None:
        return ()
    found, at = [], 0
    try:
        for column in encoding["columns"]:
            widths = {"text": len(column["categories"]), "characters": column["length"]}
            stop = at + widths.get(column["kind"], 1)
            if column["kind"] == "text":
                found.append(OneHot(column["name"], at, stop))
            at = stop
    except (TypeError, KeyError) as error:
        raise CorruptionError(f"{path}: its encoding of columns is damaged; ingest it again") from error
    if at != width:
        raise CorruptionError(f"{path} describes {at} columns, and has {width}; ingest it again")
    return tuple(found)


def promised(path: str, about: Any, name: str, array: zarr.Array[Any]) -> tuple[int, Digests | None, Manifest | None]:
    """What a group records about its array `name`: its number of rows, their digests, and the manifest with these.
    `about` is the attribute of the group. Datasets of earlier versions and foreign groups have no digests. Raises
    CorruptionError for a damaged manifest."""
    kind = about.get("format") if isinstance(about, dict) else None
    if kind == "dataset" and name in arrays_of(about):
        count = about["rows"] if type(about.get("rows")) is int else array.shape[0]
        named = about.get("manifest")
        if not (isinstance(named, dict) and re.fullmatch("manifest-[0-9]+[.]json", str(named.get("file")))):
            return count, None, None
        at = f"{path}/x/{named['file']}"
        held, sha256 = _read_manifest(at)
        if sha256 != named.get("sha256"):
            raise CorruptionError(f"{at} is not the one recorded in {path}; restore it or ingest the data again")
        digests = _dataset_digests(held, name)
    elif isinstance(kind, str) and kind in MAIN:
        at = f"{path}/{MAIN[kind]}/{MANIFEST}"
        held, sha256 = _read_manifest(at)
        digests = _block_digests(held, "sha256" if name == MAIN[kind] else f"{name}_sha256")
        if digests is None and name != MAIN[kind]:  # put there by someone else
            return array.shape[0], None, None
        count = 0 if digests is None else digests.count
        if not 0 < count <= array.shape[0] or (count < array.shape[0] and not about.get("grows")):
            raise CorruptionError(f"{at} claims {count} rows, but its array has {array.shape[0]}; restore it")
    else:
        return array.shape[0], None, None
    stored = array.chunks[0], (array.shards or array.chunks)[0]  # more rows than memory was planned for
    fits = digests is not None and digests.count == count and digests.rows in stored
    if digests is None or not fits or len(digests.of) != math.ceil(count / digests.rows):
        raise CorruptionError(f"{at} does not have the digests of {count:,} rows; restore it or make the data again")
    return count, digests, Manifest(at, sha256, isinstance(held, dict) and PUBLISHING in held)


def stored_array(path: str, group: zarr.Group, name: str) -> StoredArray:
    """The array of this name in a group, with its digests if they are known. Every chunk that has a digest must exist;
    of other arrays, those that exist now."""
    array = group[name]
    assert isinstance(array, zarr.Array)
    count, digests, manifest = promised(path, group.attrs.get(ATTRIBUTE, {}), name, array)
    versions = versions_of(array) if digests is None else ALL_THERE
    return StoredArray(array, path, min(count, array.shape[0]), versions, digests, manifest)


def _read_manifest(path: str) -> tuple[Any, str]:
    """The values of a manifest, and the SHA-256 of the file."""
    try:
        content = read_if_there(path)
        if content is not None:
            return parsed(content), hashlib.sha256(content).hexdigest()
    except ValueError as error:
        raise CorruptionError(f"{path} cannot be read ({error}); restore it") from error
    raise CorruptionError(f"{path} is missing; restore it")


def _dataset_digests(held: Any, name: str) -> Digests | None:
    """The digests of an array of a dataset, from its manifest; None if it does not have them."""
    arrays = held.get("arrays") if isinstance(held, dict) else None
    found = arrays.get(name) if isinstance(arrays, dict) else None
    if not (isinstance(found, dict) and _is_count(found.get("rows")) and _is_count(held.get("rows"))):
        return None
    digits = str(found.get("crc32c"))
    of = tuple(digits[at : at + 8] for at in range(0, len(digits), 8))
    return Digests(found["rows"], held["rows"], of, "crc32c")


def _block_digests(held: Any, key: str) -> Digests | None:
    """The digests of an array that was written block by block, from its manifest; None if it does not have them."""
    if not (isinstance(held, dict) and _is_count(held.get("block_rows")) and _is_count(held.get("rows"))):
        return None
    blocks = held.get("blocks")
    of = [each.get(key) if isinstance(each, dict) else None for each in blocks] if isinstance(blocks, list) else [None]
    if not all(isinstance(digest, str) for digest in of):
        return None
    return Digests(held["block_rows"], held["rows"], tuple(map(str, of)), "sha256")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**62
