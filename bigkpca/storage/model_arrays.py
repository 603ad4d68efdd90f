"""Read the arrays of a model, after what they declare was compared with what is stored.

A model may come from anybody. So Zarr sees only metadata of the form that `groups.create_array` writes, without a
compressor, and nothing is read that claims to be larger than its files.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import zarr

from bigkpca.data.json_files import parsed, read_if_there
from bigkpca.data.stored import ALL_THERE, StoredArray
from bigkpca.data.stores import StoredFile, store_of
from bigkpca.errors import Array, CorruptionError, IncompleteError

AGAIN = "fit the model again with --overwrite (overwrite=True in Python)"
_TYPES = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"}
_KEYS = {
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "attributes",
    "dimension_names",
    "zarr_format",
    "node_type",
    "storage_transformers",
}
_PLACES = {"name": "default", "configuration": {"separator": "/"}}
_MOST = 2**62  # of a length; products of two still fit the integers of Zarr's index


def read_arrays(group: zarr.Group, path: str, names: Collection[str]) -> dict[str, Array]:
    """The arrays of these names in the model at `path`, in memory.

    Raises CorruptionError, naming the array, where one is missing, is larger than its files, or is stored in another
    way than models are.
    """
    _check_names(path, names)
    files = store_of(path).files(path)
    if gone := sorted(name for name in names if f"{name}/zarr.json" not in files):
        what = " (the rows that it compares others with)" if "landmarks" in gone else ""
        raise CorruptionError(f"{path}: {', '.join(gone)}{what} are missing; restore them, or {AGAIN}")
    stored = _chunk_bytes(files)
    metadata = {name: _checked_metadata(f"{path}/{name}", stored.get(name, 0)) for name in sorted(names)}
    try:
        return {name: _values(group, path, name, found) for name, found in metadata.items()}
    except (MemoryError, IncompleteError):
        raise
    except Exception as error:  # Zarr has its own kinds for metadata that it does not take
        raise CorruptionError(f"{path}: an array does not decode ({error}); {AGAIN}") from error


def _check_names(path: str, names: Collection[str]) -> None:
    """Raise CorruptionError unless all names are plain, so that none leads out of the folder."""
    if not isinstance(names, list) or not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise CorruptionError(f"{path}: its list of arrays is {names!r:.80}, not one of plain names; {AGAIN}")


def _chunk_bytes(files: Mapping[str, StoredFile]) -> dict[str, int]:
    """The bytes of all stored chunks of each array."""
    found: dict[str, int] = {}
    for key, file in files.items():
        name, _, rest = key.partition("/")
        if rest.startswith("c/"):
            found[name] = found.get(name, 0) + file.bytes
    return found


def _values(group: zarr.Group, path: str, name: str, metadata: Any) -> Array:
    """The values of the array with the metadata that were checked, which are not read again. All chunks are there."""
    array: Any = zarr.Array(zarr.AsyncArray(metadata, group.store_path / name))
    return StoredArray(array, path, array.shape[0], ALL_THERE)[:]


def _checked_metadata(where: str, stored: int) -> dict[str, Any]:
    """The metadata of an array. Raises CorruptionError unless it is one of a model that fits in `stored` bytes."""
    try:
        found = parsed(read_if_there(f"{where}/zarr.json") or b"")
    except (OSError, ValueError) as error:
        raise CorruptionError(f"{where}: an array does not decode ({error}); {AGAIN}") from error
    if wrong := _wrong(found):
        raise CorruptionError(f"{where} is not an array that bigkpca wrote: {wrong}; {AGAIN}")
    declared = math.prod(found["shape"]) * np.dtype(found["data_type"]).itemsize
    if declared > stored:
        raise CorruptionError(
            f"{where}: an array does not decode (shape {tuple(found['shape'])} takes {declared:,} bytes, and its files "
            f"have {stored:,}); {AGAIN}"
        )
    metadata: dict[str, Any] = found
    return metadata


def _wrong(found: Any) -> str | None:
    """What is wrong with the metadata of an array, which may be any JSON; None where nothing is."""
    if not isinstance(found, dict) or not found.keys() <= _KEYS:
        return "its metadata have other entries"
    if found.get("node_type") != "array" or found.get("zarr_format") != 3:
        return "it is no array of Zarr's format 3"
    shape: Any = found.get("shape")
    kind = found.get("data_type")
    if not (_is_shape(shape, 0) and len(shape) in (1, 2)):
        return f"its shape is {shape!r:.80}"
    if not isinstance(kind, str) or kind not in _TYPES:
        return f"its type is {kind!r:.80}"
    if found.get("fill_value") != ("NaN" if np.dtype(kind).kind == "f" else 0):
        return f"its fill value is {found.get('fill_value')!r:.80}"
    if found.get("chunk_key_encoding") != _PLACES or found.get("storage_transformers"):
        return "its chunks have other names"
    return _wrong_chunks(shape, found.get("chunk_grid"), found.get("codecs"))


def _wrong_chunks(shape: list[int], grid: Any, codecs: Any) -> str | None:
    """What is wrong with the chunks of an array: shards of whole rows, with a checksum for each chunk, and no codec
    that could make much of little."""
    shard = _entry(grid, "regular", "chunk_shape")
    if not (isinstance(codecs, list) and len(codecs) == 1):
        return "it is stored with other codecs"
    inner = _entry(codecs[0], "sharding_indexed", "chunk_shape")
    if not _fits(inner, shape):
        return f"its chunks have the shape {inner!r:.80}"
    # The last chunk of a shard may reach beyond the array, no further one may.
    if not _fits(shard, [shape[0] + inner[0] - 1, *shape[1:]]) or shard[0] % inner[0]:
        return f"its shards have the shape {shard!r:.80}"
    how = codecs[0]["configuration"]
    known = how.keys() <= {"chunk_shape", "codecs", "index_codecs", "index_location"}
    plain = all(_is_checked_bytes(how.get(key)) for key in ("codecs", "index_codecs"))
    if not (known and plain and how.get("index_location", "end") == "end"):
        return "it is stored with other codecs"
    return None


def _entry(value: Any, name: str, key: str) -> Any:
    """An entry of the configuration of a part of the metadata, which may be any JSON; None where it is another part."""
    configuration = value.get("configuration") if isinstance(value, dict) and value.get("name") == name else None
    return configuration.get(key) if isinstance(configuration, dict) else None


def _fits(chunk: Any, whole: list[int]) -> bool:
    """Whether a chunk is one or more whole rows of the array or shard that it is a part of."""
    return _is_shape(chunk, 1) and len(chunk) == len(whole) and chunk[0] <= max(1, whole[0]) and chunk[1:] == whole[1:]


def _is_shape(value: Any, least: int) -> bool:
    return isinstance(value, list) and all(type(length) is int and least <= length < _MOST for length in value)


def _is_checked_bytes(codecs: Any) -> bool:
    """Whether values are stored as they are, with a checksum."""
    if not (isinstance(codecs, list) and len(codecs) == 2 and all(isinstance(each, dict) for each in codecs)):
        return False
    values, check = codecs
    orders: tuple[Any, ...] = (None, {}, {"endian": "little"}, {"endian": "big"})  # none where a value is one byte
    return (
        values.get("name") == "bytes"
        and values.get("configuration") in orders
        and check.get("name") == "crc32c"
        and not check.get("configuration")
    )
