"""Arrays of rows that tasks write block by block, one shard for each, and the manifest that publishes them.

features         scores (n, r), optionally residual (n,)
reconstruction   x (n, d), with converged, far (n,) and iterations (n,)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import zarr

from bigkpca.data.blocks import Block
from bigkpca.data.rows import little_endian
from bigkpca.data.stores import store_of
from bigkpca.data.zarr import MAIN
from bigkpca.errors import Array, CorruptionError
from bigkpca.storage import groups, records

Stored = zarr.Array[Any]  # (n, r) or (n, d), as stored
Kind = Literal["features", "reconstruction"]
_NAMES = {"features": ("row", "component"), "reconstruction": ("row", "column")}


def create(path: str, record: Mapping[str, Any], n: int, arrays: Mapping[str, tuple[tuple[int, ...], Any]]) -> None:
    """Create empty arrays for n rows: name -> (shape of a row, dtype).

    `record` holds format, model, input and the number of rows of a block.
    """
    group = groups.create_group(path, record)
    for name, (row, dtype) in arrays.items():
        shape = (n, *row)
        names = _NAMES[record["format"]][: len(shape)]
        groups.create_array(group, name, shape, dtype, record["block_rows"], names, compress=False)


def open_main(path: str, kind: Kind) -> Stored:
    """Open the main array: scores (n, r), or x (n, d)."""
    array = groups.open_group(path, kind)[MAIN[kind]]
    assert isinstance(array, zarr.Array)
    return array


def values(path: str, name: str) -> Array:
    """A whole array of one value for each row, in memory."""
    return np.asarray(_arrays(path)[name][...])


def _arrays(path: str, mode: Literal["r", "r+"] = "r") -> dict[str, Stored]:
    # Zarr forgets, from one opening to the next, that a chunk of nothing but the fill value must be written.
    found = zarr.open_group(store_of(path).zarr(path), mode=mode).arrays()
    return {name: array.with_config({"write_empty_chunks": True}) for name, array in found}


def write_block(path: str, block: Block, values: Mapping[str, Array]) -> dict[str, str]:
    """Write the shard of one block in each array. May run twice. Returns the SHA-256 of each."""
    arrays = _arrays(path, "r+")
    for name in values:
        # Zarr reads a shard before it replaces it, even as a whole, and would stop at one that does not decode.
        store_of(path).remove_file(f"{path}/{name}/{_shard(arrays[name], block)}")
        arrays[name][block.start : block.stop] = values[name]
    return {name: _sha256(found) for name, found in values.items()}


def stored_blocks(path: str, blocks: Sequence[Block]) -> list[Block]:
    """The blocks whose shards exist; shards appear whole, by a rename."""
    stored = [(array, store_of(path).files(f"{path}/{name}")) for name, array in _arrays(path).items()]
    return [block for block in blocks if all(_shard(array, block) in files for array, files in stored)]


def _shard(array: Stored, block: Block) -> str:
    """The name of the file, in the folder of the array, that holds a block."""
    return array.metadata.encode_chunk_key((block.number, *[0] * (array.ndim - 1)))


def _sha256(values: Array) -> str:
    return hashlib.sha256(little_endian(values)).hexdigest()


def block_digests(path: str, block: Block) -> dict[str, str] | None:
    """SHA-256 of the values of a stored block of each array, None if a shard does not decode."""
    try:
        return {name: _sha256(np.asarray(array[block.start : block.stop])) for name, array in _arrays(path).items()}
    except Exception:  # each codec raises its own kind; a shard that does not decode is simply not done
        return None


def publish(
    path: str, record: Mapping[str, Any], blocks: Sequence[Block], digests: Sequence[Mapping[str, str]]
) -> None:
    """Force every shard to disk, then publish the manifest: from here on readers trust the rows it names."""
    store_of(path).sync(path)
    manifest = {
        **record,
        "format_version": groups.FORMAT_VERSION,
        "rows": blocks[-1].stop,
        "blocks": [
            {"start": block.start, "stop": block.stop, **_named(digest, MAIN[record["format"]])}
            for block, digest in zip(blocks, digests, strict=True)
        ],
    }
    groups.write_json(groups.manifest_path(path), manifest)


def _named(digests: Mapping[str, str], main: str) -> dict[str, str]:
    return {"sha256" if name == main else f"{name}_sha256": digests[name] for name in sorted(digests)}


def read_manifest(path: str) -> dict[str, Any] | None:
    """The manifest of a published store, None before it is published."""
    name = groups.manifest_path(path)
    try:
        manifest: dict[str, Any] = groups.read_json(name)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CorruptionError(f"{name} does not parse ({error}); write {path} again") from error
    records.check(manifest, records.MANIFEST, name)
    return manifest
